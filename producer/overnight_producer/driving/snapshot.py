"""Hold the figures of one moment of a job, for every view of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from overnight_common.brokers.base import BrokerState, Depth
from overnight_producer.jobs.records import Progress

LONG_TASK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Say how far a driven job is.

    Attributes:
        progress: points and tasks by state, as the job file has them.
        points_per_second: over the last 30 s; `rate` is what people are told.
        slots_busy: how many slots worked on average over the last 30 s.
        slots_seen: how many said something in the last 90 s.
        running: (start, stop, consumer, slot, seconds) of the longest running tasks.
        depth: of the task queue; None if unknown.
        accused: consumer -> what it reported that accuses itself.
    """

    progress: Progress
    points_per_second: float
    tasks_per_second: float
    slots_busy: float
    slots_seen: int
    running: list[tuple[int, int, str, int, float]]
    window: int
    tasks_out: int
    depth: Depth | None
    broker: BrokerState
    paused: bool = False
    accused: dict[str, str] = field(default_factory=dict)

    @property
    def points_left(self) -> int:
        """Return how many points have neither a result nor been given up."""
        return self.progress.total - self.progress.done - self.progress.given_up

    @property
    def rate(self) -> float:
        """Return points per second as everybody is told it.

        Tasks that take long answer too seldom for a rate over the last half minute; for them it is what the
        busy slots do at the mean time per point so far.
        """
        progress = self.progress
        if progress.tasks_done and progress.seconds / progress.tasks_done > LONG_TASK_SECONDS:
            return max(self.slots_busy, 0.0) * progress.done / progress.seconds
        return max(self.points_per_second, 0.0)

    @property
    def eta_seconds(self) -> float | None:
        """Return how long the job takes at that rate, or None while there is no rate."""
        if self.points_left <= 0:
            return 0.0
        rate = self.rate
        return self.points_left / rate if rate > 0 else None
