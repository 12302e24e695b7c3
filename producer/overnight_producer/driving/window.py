"""Decide how many tasks the driver keeps published and unfinished; pure, the caller brings the clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

FIRST_WINDOW = 16
LARGEST_WINDOW = 100_000
SLOT_MEMORY_SECONDS = 90.0
# With less work than that in the queue, consumers that hold as much ahead (100 ms a slot) find it empty now and then.
STOCK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Sight:
    """Hold what the driver sees when it looks at its window, about once a second.

    Attributes:
        waiting: tasks that wait at the driver, cut or not.
        ready: messages in the task queue that no consumer has, None if the queue could not be asked.
        tasks_per_second: measured rate of tasks done, 0 before the first.
        slots: slots seen in the last 90 s (`SlotsSeen.count`).
        jobs: how many jobs share the queue, this one included.
    """

    waiting: int
    ready: int | None
    tasks_per_second: float
    slots: int
    jobs: int = 1


def next_window(size: int, sight: Sight, window_seconds: float = 10.0) -> int:
    """Return the new size of the window, in tasks.

    While tasks wait here and the queue has none ready, or work for less than `STOCK_SECONDS`, somebody may be
    idle: it doubles. Otherwise it comes down, a quarter of the way each time, to the work of `window_seconds`
    or two tasks per slot, divided by the number of jobs that share the queue.
    """
    stock = STOCK_SECONDS * sight.tasks_per_second
    if sight.ready is not None and sight.ready <= stock and sight.waiting > 0:
        return min(size * 2, LARGEST_WINDOW)
    whole = max(window_seconds * sight.tasks_per_second, 2 * sight.slots)
    target = math.ceil(whole / sight.jobs)
    if sight.ready is None or target == 0:
        return size
    if size <= target:
        # Alone, a window that is too small shows by an empty queue; beside other jobs the queue never is.
        return min(size * 2, target) if sight.jobs > 1 and sight.waiting > 0 else size
    return max(target, size - max(1, (size - target) // 4))


@dataclass(slots=True)
class SlotsSeen:
    """Remember which slots were heard of lately."""

    _seen: dict[tuple[str, int], float] = field(default_factory=dict)

    def note(self, consumer: str, slot: int, now_seconds: float) -> None:
        """Note a reply from a slot; slot 0 (none took the task) is no slot. The clock is `overnight_common.awake`."""
        if slot > 0:
            self._seen[consumer, slot] = now_seconds

    def count(self, now_seconds: float) -> int:
        """Return how many slots were heard of in the last 90 s."""
        oldest = now_seconds - SLOT_MEMORY_SECONDS
        self._seen = {slot: at for slot, at in self._seen.items() if at >= oldest}
        return len(self._seen)
