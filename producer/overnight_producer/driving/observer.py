"""Define who may look on while jobs are driven, and what they hear; they decide nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from overnight_producer.jobs.transaction import Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from overnight_common.messages import Reply
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec


@dataclass(slots=True)
class Cycle:
    """Hold what one cycle brought.

    Attributes:
        replies: those for points of the job, in order; the job file has them safely.
        confirm_seconds: for each task confirmed since the cycle before, how long that took.
        written: what was added to the job file.
        commit_seconds: how long it took to get that onto the disk; None if there was nothing to write.
    """

    replies: list[Reply] = field(default_factory=list)
    confirm_seconds: list[float] = field(default_factory=list)
    written: Written = field(default_factory=Written)
    commit_seconds: float | None = None


class DriveObserver(Protocol):
    """Hear what happens; every call comes from the loop, and what it raises goes no further (`shielded`).

    One observer may look on at several drivers.
    """

    def cycled(self, cycle: Cycle) -> None:
        """A cycle of a driver is over, and the job file has what came of it."""

    def job_seen(self, spec: JobSpec, snapshot: Snapshot) -> None:
        """A job is driven here and this is how far it is; called a few times a second."""

    def job_left(self, job_id: str) -> None:
        """A job is driven here no more."""

    def jobs_counted(self, states: Mapping[str, int]) -> None:
        """So many submitted jobs are in each state; said once a second by the service."""


class Nobody:
    """Be the observer when nobody looks on."""

    def cycled(self, cycle: Cycle) -> None:
        """Do nothing."""

    def job_seen(self, spec: JobSpec, snapshot: Snapshot) -> None:
        """Do nothing."""

    def job_left(self, job_id: str) -> None:
        """Do nothing."""

    def jobs_counted(self, states: Mapping[str, int]) -> None:
        """Do nothing."""


NOBODY: DriveObserver = Nobody()
