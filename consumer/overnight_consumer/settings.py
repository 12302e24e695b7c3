"""Hold the consumer's settings in one validated, frozen object; the only file that reads the environment."""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from overnight_common.addresses import LOOPBACK
from overnight_common.brokers.opening import given_address
from overnight_common.errors import BadInputError
from overnight_common.loading import find_method, known_methods
from overnight_common.messages import DEFAULT_MAX_MESSAGE_BYTES
from overnight_common.modules import find_module
from overnight_consumer.cores import available_cores
from overnight_consumer.device_search import search
from overnight_consumer.devices import ON_CPU, Devices
from overnight_consumer.limits import DEFAULT_LOAD_LIMIT_SECONDS, Limits
from overnight_consumer.memory_limits import AUTO, NONE, parse_size, slot_limit_bytes
from overnight_consumer.recycling import Recycling

LOG_LEVELS = ("debug", "info", "warning", "error")
# What a child and the user's code in it have no business knowing.
_SECRETS = ("OVERNIGHT_BROKER", "OVERNIGHT_BROKER_FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Say how a consumer runs.

    Attributes:
        broker: URL, or None for the embedded broker under `home`.
        home: folder of the embedded broker.
        queues: short names of the task queues to serve.
        methods: `module:function`, bare names, or modules.
        commands: texts of commands that may be run.
        per_point: what holds for methods that do not say.
        source: folder of the user's modules; commands run in it.
        slots: number of slots.
        cores: cores to share among the slots.
        idle_exit_seconds: end after so long without a task; None to stay.
        grace_seconds: how long running tasks may go on after a stop signal.
        name: name of this consumer in replies and logs.
        max_deliveries: a task handed out so often before is not run again.
        max_message_bytes: the largest message.
        devices: those that the slots share.
        log_level: for the log on standard error.
        broker_timeout_seconds: how long to try to reach the broker at the start.
        parent: id of the process without which this consumer has no use; None if it stands alone.
        metrics_port: where figures and health are served, 0 for any free port, None for nowhere.
        metrics_address: on which address of this machine.
        limits: what each slot may use.
    """

    broker: str | None
    home: Path
    queues: tuple[str, ...]
    methods: tuple[str, ...]
    commands: tuple[str, ...]
    per_point: bool
    source: Path
    slots: int
    cores: int
    idle_exit_seconds: float | None
    grace_seconds: float
    name: str
    max_deliveries: int = 5
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    devices: Devices = ON_CPU
    log_level: str = "info"
    broker_timeout_seconds: float = 30.0
    parent: int | None = None
    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSettings:
    """Carry what the command line gave, before anything is checked; the fields are those of `Settings`.

    Attributes:
        broker_file: file that holds the URL, in the place of `broker`.
    """

    broker: str | None = None
    broker_file: Path | None = None
    home: Path = Path(".overnight")
    queues: tuple[str, ...] = ("default",)
    methods: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    per_point: bool = False
    source: Path = Path()
    slots: str = "auto"
    idle_exit: float | None = None
    grace: float = 3600.0
    name: str = ""
    max_deliveries: int = 5
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    device: str = "auto"
    log_level: str = "info"
    broker_timeout: float = 30.0
    parent: int | None = None
    metrics_port: int | None = None
    metrics_address: str = LOOPBACK
    load_limit: float = DEFAULT_LOAD_LIMIT_SECONDS
    time_limit: float | None = None
    memory_limit: str = AUTO
    recycle_tasks: int | None = None
    recycle_growth: str = NONE


def validated(raw: RawSettings) -> Settings:
    """Return checked settings.

    Raises:
        BadInputError: with all faults at once.
    """
    faults = _faults(raw)
    broker, devices = None, ON_CPU
    try:
        broker = given_address(raw.broker or "", raw.broker_file)
    except BadInputError as error:
        faults += error.faults
    try:
        devices = search(raw.device, inherited_environment())
    except BadInputError as error:
        faults += error.faults
    if faults:
        raise BadInputError(*faults)
    cores = available_cores()
    slots = devices.default_slots(cores) if raw.slots == "auto" else int(raw.slots)
    return Settings(
        broker=broker,
        home=raw.home.absolute(),
        queues=tuple(dict.fromkeys(raw.queues)),
        methods=tuple(dict.fromkeys(raw.methods)),
        commands=tuple(dict.fromkeys(raw.commands)),
        per_point=raw.per_point,
        source=raw.source.absolute(),
        slots=slots,
        cores=cores,
        idle_exit_seconds=raw.idle_exit,
        grace_seconds=raw.grace,
        name=raw.name or f"{socket.gethostname()}-{os.getpid()}",
        max_deliveries=raw.max_deliveries,
        max_message_bytes=raw.max_message_bytes,
        devices=devices,
        log_level=raw.log_level.lower(),
        broker_timeout_seconds=raw.broker_timeout,
        parent=raw.parent,
        metrics_port=raw.metrics_port,
        metrics_address=raw.metrics_address,
        limits=Limits(
            load_limit_seconds=raw.load_limit,
            time_limit_seconds=raw.time_limit,
            memory_limit_bytes=slot_limit_bytes(raw.memory_limit, slots),
            recycling=Recycling(raw.recycle_tasks, parse_size(raw.recycle_growth)),
        ),
    )


def _faults(raw: RawSettings) -> list[str]:
    faults = []
    if not raw.methods and not raw.commands:
        faults.append(
            "Nothing to serve: give --methods (module:function, a bare name, or a module) or --command."
        )
    faults += [fault for name in raw.methods if (fault := _method_fault(name, raw.source))]
    faults += ["--command is empty." for text in raw.commands if not text.strip()]
    faults += [f"--queue {name!r} is no queue name." for name in raw.queues if name.split() != [name]]
    if not raw.queues:
        faults.append("No --queue to take tasks from.")
    if not raw.source.is_dir():
        faults.append(f"--source {raw.source.absolute()} is no folder.")
    if raw.slots != "auto" and not (raw.slots.isascii() and raw.slots.isdigit() and int(raw.slots) >= 1):
        faults.append(f"--slots {raw.slots!r} is neither `auto` nor a number from 1.")
    if raw.log_level.lower() not in LOG_LEVELS:
        faults.append(f"--log-level {raw.log_level!r} is not known; choose one of {', '.join(LOG_LEVELS)}.")
    if raw.memory_limit not in (AUTO, NONE) and parse_size(raw.memory_limit) is None:
        faults.append(
            f"--memory-limit {raw.memory_limit!r} is neither `auto`, `none` nor a size such as 1.5G."
        )
    if raw.recycle_growth != NONE and parse_size(raw.recycle_growth) is None:
        faults.append(f"--recycle-growth {raw.recycle_growth!r} is neither `none` nor a size such as 500M.")
    for flag, number, least in _numbers(raw):
        if not number >= least:
            faults.append(f"{flag} {number} is below {least}.")
    return faults


def _method_fault(name: str, source: Path) -> str | None:
    """Return what is wrong with one `--methods`, as far as can be told without running the user's code."""
    if ":" not in name and name not in known_methods():
        if all(part.isidentifier() for part in name.split(".")) and find_module(name, source):
            return None
        return f"--methods {name!r} is no module in {source.absolute()}, none installed, and no known method."
    try:
        find_method(name, source)
    except BadInputError as error:
        return f"--methods: {error}"
    return None


def _numbers(raw: RawSettings) -> list[tuple[str, float, float]]:
    return [
        ("--idle-exit", 0.0 if raw.idle_exit is None else raw.idle_exit, 0.0),
        ("--grace", raw.grace, 0.0),
        ("--time-limit", 1.0 if raw.time_limit is None else raw.time_limit, 0.001),
        ("--load-limit", raw.load_limit, 0.001),
        ("--recycle-tasks", 1 if raw.recycle_tasks is None else raw.recycle_tasks, 1),
        ("--max-deliveries", raw.max_deliveries, 1),
        ("--max-message-bytes", raw.max_message_bytes, 1024),
        ("--broker-timeout", raw.broker_timeout, 0.0),
        ("--metrics-port", raw.metrics_port or 0, 0),
    ]


def environment_commands() -> tuple[str, ...]:
    """Return the commands in OVERNIGHT_COMMAND, one a line (spaces are part of a command)."""
    return tuple(line for line in os.environ.get("OVERNIGHT_COMMAND", "").splitlines() if line.strip())


def inherited_environment() -> dict[str, str]:
    """Return the variables that children and commands get from us, without the broker's credentials."""
    return {name: value for name, value in os.environ.items() if name not in _SECRETS}


def set_up_log(settings: Settings) -> None:
    """Write the log to standard error, with UTC times."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)sZ %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
