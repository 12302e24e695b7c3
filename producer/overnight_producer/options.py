"""Hold what a person asked for on the command line, before it is checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from overnight_common.addresses import LOOPBACK
from overnight_common.errors import BadInputError
from overnight_common.messages import DEFAULT_MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Say where jobs live and how to reach the broker.

    Attributes:
        home: folder of the job files and the embedded broker.
        broker: URL, or None for the embedded broker in `home`.
        broker_timeout_seconds: how long to wait for the broker at the start.
        max_message_bytes: limit of one message.
    """

    home: Path
    broker: str | None = None
    broker_timeout_seconds: float = 30.0
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES

    def must_be_named_for(self, job_id: str, job_broker: str) -> None:
        """Refuse to look on this machine for a job that runs elsewhere; addresses are kept without passwords.

        Raises:
            BadInputError: no broker was named, and the job's own is not the embedded one.
        """
        if self.broker is None and job_broker.startswith(("amqp:", "amqps:")):
            raise BadInputError(
                f"job {job_id} runs over {job_broker}: name that again, by --broker or OVERNIGHT_BROKER "
                "(passwords are not kept); or name another, such as --broker embedded: for this machine alone"
            )

    @property
    def embedded(self) -> bool:
        """Tell whether the broker is the embedded one."""
        return self.broker is None or not self.broker.lower().startswith(("amqp:", "amqps:"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Driving:
    """Say how a job is driven; none of this changes its results. All times are in seconds.

    Attributes:
        slots: number of slots of the consumer that the run starts itself, `auto`, or `0` for none.
        window: fixed number of tasks out, None to find it.
        verbose: say each finished task too.
        json: print figures as JSON lines.
        metrics_port: where figures and health are served, 0 for any free port, None for nowhere.
        metrics_address: on which address of this machine.
    """

    slots: str = "auto"
    window: int | None = None
    window_seconds: float = 10.0
    silence_seconds: float = 90.0
    no_consumer_timeout_seconds: float = 600.0
    attempts: int = 3
    verbose: bool = False
    json: bool = False
    metrics_port: int | None = None
    metrics_address: str = LOOPBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Say what a job is to compute, in the user's own words.

    Attributes:
        method: name of a method, or None if `command` is given.
        data: URI of the data set.
        params: `name=value` texts.
        count: number of points from `start`, None for all.
        batch: points per task or `auto`.
        queue: short name, or None for the usual one.
        source: folder in which the method is found.
        max_failures: number or `all`.
        new: begin afresh even if there is such a job already.
        accept_changes: go on although the method or the data set has changed.
        method_elsewhere: the method cannot be looked at here; the first reply pins its fingerprint.
        on_finish: command to run at the job's end.
        submitted: the job is left to `overnight serve`.
    """

    method: str | None = None
    command: str | None = None
    data: str = ""
    params: Sequence[str] = ()
    seed: int = 0
    start: int = 0
    count: int | None = None
    batch: str = "auto"
    per_point: bool = False
    queue: str | None = None
    source: Path = field(default_factory=Path.cwd)
    output: Path | None = None
    time_limit_seconds: float | None = None
    max_failures: str = "20"
    data_by: str | None = None
    new: bool = False
    accept_changes: bool = False
    method_elsewhere: bool = False
    on_finish: str | None = None
    submitted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Say what changes when an earlier job goes on.

    Attributes:
        accept_changes: go on although the method's code has changed.
        batch: points per task for what is not yet cut, or `auto`; None as before.
        retrying: give the given-up points a fresh budget.
        on_finish: command to run at the job's end; None as before.
    """

    accept_changes: bool = False
    batch: str | None = None
    retrying: bool = False
    on_finish: str | None = None


def environment() -> Mapping[str, str]:
    """Return the environment that the programs we start inherit."""
    return os.environ
