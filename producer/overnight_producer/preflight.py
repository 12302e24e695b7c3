"""Check everything about a wanted job before anything is made or published, and name all faults at once."""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from overnight_common.brokers.base import task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.command_lines import command_fault
from overnight_common.datasets import open_dataset
from overnight_common.errors import BadInputError, EncodeError
from overnight_common.file_systems import refuse_network_share
from overnight_common.fingerprints import command_fingerprint
from overnight_producer.describing import describe
from overnight_producer.driving.task_maker import PointTooLargeError, TaskMaker
from overnight_producer.exports.export import check_output
from overnight_producer.jobs.jobspec import JobSpec, new_job_id, own_queue

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker
    from overnight_common.datasets import DataSet
    from overnight_producer.options import Driving, Place, Wanted

QUEUE_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold a checked job: nothing in it can be refused any more.

    Attributes:
        spec: the job as it would be made; an earlier one may take its place.
        dataset: opened.
        broker: made, not connected.
        notes: what the user should know, one sentence each.
    """

    spec: JobSpec
    dataset: DataSet
    broker: Broker
    notes: tuple[str, ...] = ()


class _Faults:
    """Collect faults, so that the user mends all of them at once."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.notes: list[str] = []

    def add(self, *faults: str) -> None:
        self.found.extend(faults)


def check(wanted: Wanted, driving: Driving, place: Place) -> Plan:
    """Return the plan for what is wanted.

    Raises:
        BadInputError: with every fault that was found.
    """
    faults = _Faults()
    dataset = _dataset(wanted, faults)
    _home(place, faults)
    broker = _broker(place, faults)
    embedded = place.embedded
    params = _params(wanted, faults)
    stop = _stop(wanted, dataset, faults)
    method, fingerprint, per_point = _method(wanted, params, embedded, faults)
    if wanted.output is not None:
        faults.add(*check_output(wanted.output, [Path(wanted.data)]))
    _numbers(wanted, driving, place, faults)
    if faults.found or dataset is None or broker is None:
        raise BadInputError(*faults.found)
    job_id = new_job_id()
    spec = JobSpec(
        id=job_id,
        method=method,
        command=wanted.command,
        fingerprint=fingerprint,
        data_uri=dataset.uri,
        data_kind=dataset.kind,
        data_length=len(dataset),
        data_fingerprint=dataset.fingerprint(),
        params=params,
        seed=wanted.seed,
        start=wanted.start,
        stop=stop,
        batch="auto" if wanted.batch == "auto" else int(wanted.batch),
        per_point=per_point,
        # A run with a consumer of its own keeps to a queue of its own: nobody else serves its method.
        queue=wanted.queue or (own_queue(job_id) if embedded and driving.slots != "0" else "default"),
        time_limit_seconds=wanted.time_limit_seconds,
        max_failures=None if wanted.max_failures == "all" else int(wanted.max_failures),
        source=str(wanted.source.absolute()),
        data_by=_data_by(wanted, embedded),
        broker=broker.address,
        epoch=0,
        output=str(wanted.output.absolute()) if wanted.output else None,
        submitted=wanted.submitted,
        on_finish=wanted.on_finish,
    )
    _first_message(spec, dataset, place)
    return Plan(spec, dataset, broker, tuple(faults.notes))


def _dataset(wanted: Wanted, faults: _Faults) -> DataSet | None:
    if not wanted.data:
        faults.add(
            "there is no data set: give --data FILE (.npy, .npz:key, IDX, .csv, .jsonl, .txt), range:N or glob:PATTERN"
        )
        return None
    try:
        return open_dataset(wanted.data)
    except BadInputError as error:
        faults.add(*error.faults)
        return None


def _home(place: Place, faults: _Faults) -> None:
    try:
        refuse_network_share(place.home)
    except BadInputError as error:
        faults.add(*error.faults)


def _broker(place: Place, faults: _Faults) -> Broker | None:
    try:
        return open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
    except BadInputError as error:
        faults.add(*error.faults)
        return None


def _params(wanted: Wanted, faults: _Faults) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for text in wanted.params:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            faults.add(f"--param {text}: write it as name=value, for example --param iterations=100")
            continue
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
        if isinstance(params[name], int) and not -(2**63) <= params[name] < 2**64:
            faults.add(f"--param {name}: {value} does not fit into 64 bits; give it as text")
    return params


def _stop(wanted: Wanted, dataset: DataSet | None, faults: _Faults) -> int:
    if wanted.start < 0:
        faults.add(f"--start {wanted.start}: the first point is number 0")
    if wanted.count is not None and wanted.count < 0:
        faults.add(f"--count {wanted.count}: give 0 or more points")
    if dataset is None:
        return 0
    length = len(dataset)
    if wanted.start > 0 and wanted.start >= length:
        faults.add(
            f"--start {wanted.start}: {wanted.data} has {length} points, so the last one is number {length - 1}"
            if length
            else f"--start {wanted.start}: {wanted.data} has no points"
        )
    return length if wanted.count is None else min(length, max(wanted.start, 0) + max(wanted.count, 0))


def batch_fault(batch: str) -> str | None:
    """Return what is wrong with a number of points per task, or None if it can be used."""
    if batch == "auto" or (batch.isdecimal() and int(batch) >= 1):
        return None
    return f"--batch {batch}: give a number of points from 1 on, or auto"


def _numbers(wanted: Wanted, driving: Driving, place: Place, faults: _Faults) -> None:
    if (fault := batch_fault(wanted.batch)) is not None:
        faults.add(fault)
    if wanted.max_failures != "all" and not (
        wanted.max_failures.isdecimal() and int(wanted.max_failures) >= 1
    ):
        faults.add(f"--max-failures {wanted.max_failures}: give a number from 1 on, or all")
    if wanted.queue is not None and not (
        0 < len(wanted.queue) <= 100 and set(wanted.queue) <= QUEUE_CHARACTERS
    ):
        faults.add(f"--queue {wanted.queue!r}: use letters, digits, '.', '_' and '-', at most 100")
    if wanted.data_by not in (None, "value", "reference"):
        faults.add(f"--data-by {wanted.data_by}: say value or reference")
    if not 0 <= wanted.seed < 2**63:
        faults.add(f"--seed {wanted.seed}: give a number from 0 to 2**63 - 1")
    if wanted.time_limit_seconds is not None:
        faults.add(*_seconds_faults("--time-limit", wanted.time_limit_seconds))
    faults.add(*_driving_faults(driving, place))


def check_driving(driving: Driving, place: Place) -> None:
    """Refuse what nobody can drive by; raises BadInputError with every fault that was found."""
    if faults := _driving_faults(driving, place):
        raise BadInputError(*faults)


def _driving_faults(driving: Driving, place: Place) -> list[str]:
    faults = []
    if driving.slots != "auto" and not driving.slots.isdecimal():
        faults.append(f"--slots {driving.slots}: give a number of slots (0: start no consumer), or auto")
    if driving.window is not None and driving.window < 1:
        faults.append(f"--window {driving.window}: give a number of tasks from 1 on")
    if driving.attempts < 1:
        faults.append(f"--attempts {driving.attempts}: give a number from 1 on")
    if place.max_message_bytes < 1024:
        faults.append(f"--max-message-bytes {place.max_message_bytes}: give 1024 or more")
    return [
        *faults,
        *_seconds_faults("--window-seconds", driving.window_seconds),
        *_seconds_faults("--silence", driving.silence_seconds),
        *_seconds_faults("--no-consumer-timeout", driving.no_consumer_timeout_seconds),
        *_seconds_faults("--broker-timeout", place.broker_timeout_seconds),
    ]


def _seconds_faults(flag: str, seconds: float) -> list[str]:
    if seconds > 0 and math.isfinite(seconds):
        return []
    return [f"{flag} {seconds:g}: give a number of seconds above 0"]


def _method(wanted: Wanted, params: dict[str, Any], embedded: bool, faults: _Faults) -> tuple[str, str, bool]:
    """Return the name, the fingerprint and whether it takes one point."""
    if (wanted.method is None) == (wanted.command is None):
        faults.add(
            "give a method (module:function, or a known name such as shapley) or --command 'program', and not both"
        )
        return "", "", False
    if wanted.command is not None:
        return _command(wanted, embedded, faults)
    assert wanted.method is not None
    if wanted.method_elsewhere:
        if embedded:
            faults.add("--method-elsewhere: on the embedded broker the method has to be on this machine")
        return wanted.method, "", wanted.per_point
    if not wanted.source.is_dir():
        faults.add(f"--source {wanted.source}: there is no such folder")
        return "", "", False
    facts = describe(wanted.method, wanted.source)
    if not facts["ok"]:
        _explain(wanted, facts, embedded, faults)
        return wanted.method, facts.get("fingerprint", ""), wanted.per_point
    _check_names(wanted.method, params, facts, faults)
    if wanted.per_point and facts["per_point"] is False:
        faults.add(f"--per-point: {wanted.method} says of itself that it takes a batch")
    return wanted.method, facts["fingerprint"], wanted.per_point or bool(facts["per_point"])


def _command(wanted: Wanted, embedded: bool, faults: _Faults) -> tuple[str, str, bool]:
    assert wanted.command is not None
    if not wanted.command.strip():
        faults.add("--command is empty: give a program and its arguments, for example 'python job.py'")
    elif embedded and (fault := command_fault(wanted.command, wanted.source)) is not None:
        faults.add(f"--command: {fault}")
    if len(wanted.command) > 4000:
        faults.add("--command is over 4,000 characters: put it into a script")
    if wanted.per_point:
        faults.add("--per-point is for functions; a command is told its range (give --batch 1)")
    return f"command:{wanted.command}", command_fingerprint(wanted.command, wanted.source), False


def _explain(wanted: Wanted, facts: dict[str, Any], embedded: bool, faults: _Faults) -> None:
    """Say why a method cannot be used; on RabbitMQ a package that only the consumers have is no fault."""
    error = str(facts.get("error", ""))
    if (
        not embedded
        and facts.get("missing_module")
        and facts.get("module_found")
        and facts.get("fingerprint")
    ):
        faults.notes.append(
            f"{wanted.method} needs {facts['missing_module']}, which is not on this machine; the consumers must have it"
        )
        return
    way_out = "" if embedded else "; if only the consumers have it, say so with --method-elsewhere"
    traceback = str(facts.get("traceback", "")).strip()
    faults.add(
        f"method {wanted.method} cannot be used: {error}{way_out}" + (f"\n{traceback}" if traceback else "")
    )


def _check_names(method: str, params: dict[str, Any], facts: dict[str, Any], faults: _Faults) -> None:
    known = list(facts["parameters"])
    for name in params:
        if name in facts["wants"]:
            faults.add(f"--param {name}: Overnight itself gives {method} its {name}")
        elif name not in known and not facts["accepts_any"]:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            faults.add(f"--param {name}: {method} takes {', '.join(known) or 'no parameters'}{hint}")
    for name in facts["required"]:
        if name not in params:
            faults.add(f"{method} needs a value for {name}: give --param {name}=...")


def _data_by(wanted: Wanted, embedded: bool) -> Literal["value", "reference"]:
    if wanted.data_by is not None:
        return "reference" if wanted.data_by == "reference" else "value"
    return "reference" if embedded else "value"


def _first_message(spec: JobSpec, dataset: DataSet, place: Place) -> None:
    """Make the first message, as large as it will be: if that one fits, nothing is published in vain."""
    if spec.points == 0:
        return
    maker = TaskMaker(spec, dataset, task_queue("x" * 60), place.max_message_bytes)
    points = 1 if spec.batch == "auto" else min(int(spec.batch), spec.points)
    try:
        maker.make(spec.start, spec.start + points, 1)
    except (PointTooLargeError, EncodeError) as error:
        raise BadInputError(str(error)) from error
