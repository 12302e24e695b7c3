"""Hold the figures of one moment of a job, for every view of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from overnight_common.brokers.base import BrokerState, Depth
from overnight_producer.jobs.records import Progress


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Say how far a driven job is.

    Attributes:
        progress: points and tasks by state, as the job file has them.
        points_per_second: over the last 30 s.
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
    def eta_seconds(self) -> float | None:
        """Return how long it takes at the present rate, or None if there is no rate yet."""
        if self.points_left == 0:
            return 0.0
        if self.points_per_second <= 0 or not math.isfinite(self.points_per_second):
            return None
        return self.points_left / self.points_per_second
