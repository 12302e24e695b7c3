"""Examine this machine and the broker: what limits a run here, and what to do about it."""

from __future__ import annotations

import asyncio
import enum
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from overnight_common.brokers.base import DEAD_QUEUE
from overnight_common.brokers.opening import open_broker
from overnight_common.errors import BadInputError, BrokerError
from overnight_common.file_systems import refuse_network_share
from overnight_producer.options import environment
from overnight_producer.reports import machine
from overnight_producer.reports.queue_report import has_begun
from overnight_producer.views.tables import print_json, print_line
from overnight_producer.views.wording import amount, counted, duration, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

    from overnight_common.brokers.base import Broker
    from overnight_producer.options import Place

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
LITTLE_MEMORY_BYTES = 1 << 30
LITTLE_DISK_BYTES = 1 << 30
LITTLE_SHARED_MEMORY_BYTES = 256 << 20
SLOW_ROUND_TRIP_SECONDS = 0.1
ACK_TIMEOUT_UNTIL = (3, 12)


class Verdict(enum.StrEnum):
    """Say how bad a finding is; an `error` prevents a run."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold one thing that was looked at.

    Attributes:
        name: what was looked at.
        value: what was found, in words.
        verdict: how bad it is.
        advice: what to do, empty if nothing.
        figures: the same in figures, for JSON, with units in the names.
    """

    name: str
    value: str
    verdict: Verdict = Verdict.OK
    advice: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)


def examine(place: Place, as_json: bool, console: Console) -> int:
    """Look at this machine and the broker of a place; print what was found and return the exit status.

    Raises:
        BadInputError: the broker's address is of no known kind.
    """
    broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
    return asyncio.run(
        doctor(
            place.home,
            environment(),
            broker,
            as_json=as_json,
            console=console,
            deadline_seconds=place.broker_timeout_seconds,
        )
    )


async def doctor(
    home: Path,
    variables: Mapping[str, str],
    broker: Broker | None,
    *,
    as_json: bool,
    console: Console,
    deadline_seconds: float = 5.0,
) -> int:
    """Print what was found; return the exit status: 0, or 1 if something prevents a run.

    Args:
        home: folder of the job files.
        variables: the environment of this process.
        broker: made but not yet open, closed again; None to leave it out.
        as_json: print JSON.
        console: where to print.
        deadline_seconds: how long the broker may take to answer.
    """
    findings = examine_machine(home, variables)
    if broker is not None:
        findings.append(await _broker(broker, deadline_seconds))
    if as_json:
        print_json(console, {"findings": [_object(finding) for finding in findings]})
    else:
        _print(findings, console)
    return 1 if any(finding.verdict is Verdict.ERROR for finding in findings) else 0


def examine_machine(home: Path, environment: Mapping[str, str]) -> list[Finding]:
    """Return what was found on this machine."""
    cores, sqlite = machine.ask_consumer()
    return [
        Finding("python", f"{sys.version.split()[0]} ({sys.executable})"),
        _cores(cores),
        _memory(machine.memory_available_bytes(), machine.memory_limit_bytes(), machine.memory_used_bytes()),
        _shared_memory(machine.shared_memory_bytes()),
        _home(home),
        _disk(machine.free_disk_bytes(home)),
        Finding("sqlite", sqlite or "unknown", figures={"version": sqlite or None}),
        *(_package(name) for name in ("numpy", "torch")),
        _threads(environment),
    ]


async def _broker(broker: Broker, deadline_seconds: float) -> Finding:
    # Opening the embedded broker would make its file: whoever only looks leaves no trace.
    if not has_begun(broker):
        return Finding("broker", "embedded: no server is needed; its file is made at the first run")
    return await examine_broker(broker, deadline_seconds)


async def examine_broker(broker: Broker, deadline_seconds: float) -> Finding:
    """Return whether the broker answers, and how fast; its address never shows a password."""
    address = one_line(broker.address)
    try:
        await broker.open(deadline_seconds)
        try:
            began = time.perf_counter()
            await broker.depth(DEAD_QUEUE)
            seconds = time.perf_counter() - began
            server = broker.server
        finally:
            await broker.close()
    except BrokerError as error:
        return Finding(
            "broker",
            f"{address}: {one_line(str(error))}",
            Verdict.ERROR,
            "start it, or name another with --broker; without --broker no server is needed",
            {"address": address, "reachable": False},
        )
    verdict, advice = _judge_broker(server, seconds)
    figures = {"address": address, "reachable": True, "server": server, "round_trip_seconds": seconds}
    return Finding(
        "broker", f"{server} at {address}, answers in {duration(seconds)}", verdict, advice, figures
    )


def _judge_broker(server: str, seconds: float) -> tuple[Verdict, str]:
    version = re.search(r"RabbitMQ (\d+)\.(\d+)", server)
    if version and (int(version[1]), int(version[2])) < ACK_TIMEOUT_UNTIL:
        return Verdict.WARNING, (
            "before RabbitMQ 3.12 only the server's own setting decides how long a task may run: for tasks"
            " over 30 min set consumer_timeout in its configuration, or use a newer server"
        )
    if seconds > SLOW_ROUND_TRIP_SECONDS:
        return (
            Verdict.WARNING,
            "it is far away or busy: use larger batches, so that the way there matters less",
        )
    return Verdict.OK, ""


def _cores(cores: machine.Cores) -> Finding:
    figures = {"usable": cores.usable, "affinity": cores.affinity}
    if cores.usable is None:
        what = "unknown" if cores.affinity is None else f"{cores.affinity} by affinity, quota unknown"
        return Finding("cores", what, Verdict.WARNING, "the consumer is not installed here", figures)
    if cores.affinity is not None and cores.usable < cores.affinity:
        return Finding(
            "cores",
            f"{cores.usable} of {cores.affinity}: the container's quota is the limit",
            Verdict.WARNING,
            "slots are limited by the quota; raise it to use the others",
            figures,
        )
    return Finding("cores", f"{counted(cores.usable, 'core')} to use", figures=figures)


def _memory(available: int | None, limit: int | None, used: int | None) -> Finding:
    figures = {"available_bytes": available, "limit_bytes": limit, "used_bytes": used}
    free = available
    words = "unknown" if available is None else f"{amount(available)} available"
    if limit is not None and (available is None or limit - (used or 0) < available):
        free = max(limit - (used or 0), 0)
        words = f"{amount(free)} left of the container's {amount(limit)}"
    if free is not None and free < LITTLE_MEMORY_BYTES:
        return Finding("memory", words, Verdict.WARNING, "use few slots, or free some memory", figures)
    return Finding("memory", words, figures=figures)


def _shared_memory(size: int | None) -> Finding:
    figures = {"size_bytes": size}
    if size is None:
        return Finding("shared memory", "none", figures=figures)
    if size < LITTLE_SHARED_MEMORY_BYTES:
        advice = "methods that share memory between processes (torch data loaders) need more: --shm-size=1g"
        return Finding("shared memory", amount(size), Verdict.WARNING, advice, figures)
    return Finding("shared memory", amount(size), figures=figures)


def _home(home: Path) -> Finding:
    figures = {"path": str(home.absolute())}
    try:
        refuse_network_share(home)
    except BadInputError as error:
        return Finding("home", str(error), Verdict.ERROR, "name a local folder with --home", figures)
    place = home
    while not place.exists() and place != place.parent:
        place = place.absolute().parent
    try:
        # Tried, not asked for: rights, read-only mounts and full disks all show up in the same way.
        with tempfile.NamedTemporaryFile(dir=place) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        advice = "set OVERNIGHT_HOME (or --home) to a folder that you may write to"
        words = f"{home.absolute()} cannot be written: {error.strerror}"
        return Finding("home", words, Verdict.ERROR, advice, figures)
    return Finding(
        "home", f"{home.absolute()}" + ("" if home.exists() else ", made at the first run"), figures=figures
    )


def _disk(free: int | None) -> Finding:
    figures = {"free_bytes": free}
    if free is None:
        return Finding("disk", "unknown", figures=figures)
    if free < LITTLE_DISK_BYTES:
        advice = "results are kept in OVERNIGHT_HOME: make room, or set it to another disk"
        return Finding("disk", f"{amount(free)} free", Verdict.WARNING, advice, figures)
    return Finding("disk", f"{amount(free)} free", figures=figures)


def _package(name: str) -> Finding:
    version = machine.version_of(name)
    return Finding(name, version or "not installed", figures={"version": version})


def _threads(environment: Mapping[str, str]) -> Finding:
    found = {name: environment[name] for name in THREAD_VARIABLES if environment.get(name)}
    if not found:
        return Finding("threads", "no variable is set: each slot gets its share of the cores", figures=found)
    words = ", ".join(f"{name}={one_line(value, 20)}" for name, value in found.items())
    advice = f"the consumer sets threads per slot itself; unset {', '.join(found)} unless you mean it"
    return Finding("threads", words, Verdict.WARNING, advice, found)


def _print(findings: list[Finding], console: Console) -> None:
    styles = {Verdict.OK: "", Verdict.WARNING: "yellow", Verdict.ERROR: "bold red"}
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        style = styles[finding.verdict]
        print_line(console, f"{finding.verdict.value:<7}  {finding.name:<{width}}  {finding.value}", style)
        if finding.advice:
            print_line(console, f"{'':<7}  {'':<{width}}  {finding.advice}", style)


def _object(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "verdict": finding.verdict.value,
        "value": finding.value,
        "advice": finding.advice or None,
        "figures": dict(finding.figures),
    }
