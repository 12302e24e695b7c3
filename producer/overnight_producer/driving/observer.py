"""Define who may look on while jobs are driven, and what they hear; they decide nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight_common.errors import PublishError
    from overnight_common.messages import Reply
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.transaction import Written


class DriveObserver(Protocol):
    """Hear what happens; every call comes from the loop, and what it raises goes no further (`shielded`).

    One observer may look on at several drivers.
    """

    def published(self, seconds: float, error: PublishError | None) -> None:
        """A task was settled `seconds` after it was sent: confirmed, or not accepted for this reason."""

    def replied(self, reply: Reply) -> None:
        """A reply for a job driven here was read; probes are left out."""

    def committed(self, written: Written, seconds: float) -> None:
        """The job file has this safely; the commit took `seconds`."""

    def job_seen(self, spec: JobSpec, snapshot: Snapshot) -> None:
        """A job is driven here and this is how far it is; called a few times a second."""

    def job_left(self, job_id: str) -> None:
        """A job is driven here no more."""


class Nobody:
    """Be the observer when nobody looks on."""

    def published(self, seconds: float, error: PublishError | None) -> None:
        """Do nothing."""

    def replied(self, reply: Reply) -> None:
        """Do nothing."""

    def committed(self, written: Written, seconds: float) -> None:
        """Do nothing."""

    def job_seen(self, spec: JobSpec, snapshot: Snapshot) -> None:
        """Do nothing."""

    def job_left(self, job_id: str) -> None:
        """Do nothing."""


NOBODY: DriveObserver = Nobody()
