"""Share a task queue fairly among the jobs that one process drives on it; the callers bring the clock.

A queue is first in, first out: a job gets as much of the slots as it has of the work that lies in the queue. So
each job aims at an equal part of the window, counted in seconds of work and not in tasks, whose lengths differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

# What a task costs beside its run time. It keeps the ratio of two jobs of no-op tasks finite.
TASK_OVERHEAD_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Load:
    """Say what one job has of its queue.

    Attributes:
        active: False while it publishes nothing: paused, or all is done.
        tasks_per_second: measured, 0 before the first.
        busy_slots: run time of its tasks per second.
        slots: slots seen lately.
        worked_at: when a consumer last worked on it (`overnight_common.awake`), None if not lately.
    """

    active: bool
    tasks_per_second: float
    busy_slots: float
    slots: int
    worked_at: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """Say what one job may count on.

    Attributes:
        jobs: active jobs on the queue, this one included; at least 1.
        tasks_per_second: how many of its tasks all slots together would do if it were alone.
        slots: slots seen lately by any of the jobs.
        worked_at: when a consumer last worked on any of them, None if not lately.
    """

    jobs: int
    tasks_per_second: float
    slots: int
    worked_at: float | None


class QueueShare:
    """Know the loads of all jobs that this process drives on one queue."""

    def __init__(self) -> None:
        self._loads: dict[str, Load] = {}

    def report(self, job: str, load: Load) -> None:
        """Note what a job has now."""
        self._loads[job] = load

    def leave(self, job: str) -> None:
        """Forget a job that is no longer driven here."""
        self._loads.pop(job, None)

    def part_of(self, job: str) -> Part:
        """Return what a job that has reported may count on."""
        own, loads = self._loads[job], self._loads.values()
        slots = max(load.slots for load in loads)
        rate = own.tasks_per_second
        if rate > 0 and len(loads) > 1:
            rate *= _work(loads, slots) / _work([own], slots)
        return Part(
            jobs=max(sum(load.active for load in loads), 1),
            tasks_per_second=rate,
            slots=slots,
            worked_at=max((load.worked_at for load in loads if load.worked_at is not None), default=None),
        )


def _work(loads: Collection[Load], slots: int) -> float:
    """Return the seconds of work per second; a job that is new here makes the figures of the others too high."""
    busy = sum(load.busy_slots for load in loads)
    tasks = sum(load.tasks_per_second for load in loads)
    return (min(busy, slots) if slots else busy) + TASK_OVERHEAD_SECONDS * tasks
