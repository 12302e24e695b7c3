"""Measure from replies how fast a job goes and who works on it."""

from __future__ import annotations

from collections import deque

from overnight_common.messages import Reply
from overnight_producer.driving.window import SlotsSeen

RATE_SECONDS = 30.0


class Rates:
    """Keep one bucket a second of what was done; all times are seconds of `overnight_common.awake`.

    Attributes:
        worked_at: when a consumer was last seen at work on the job, whatever came of it.
    """

    def __init__(self, now: float) -> None:
        """Begin to measure at `now`."""
        self._began = now
        self._buckets: deque[list[float]] = deque()  # [second, points, tasks, busy seconds]
        self._slots = SlotsSeen()
        self._running: dict[tuple[int, int], tuple[str, int, float]] = {}
        self.worked_at = now

    def done(self, reply: Reply, now: float) -> None:
        """Note a task with results."""
        self.worked_at = now
        self._count(reply, reply.stop - reply.start, now)

    def failed(self, reply: Reply, now: float) -> None:
        """Note a failed task: its slot worked all the same, unless the consumer accuses itself."""
        if reply.failure is not None and not reply.failure.cause.accuses_consumer:
            self.worked_at = now
        self._count(reply, 0, now)

    def _count(self, reply: Reply, points: int, now: float) -> None:
        self._slots.note(reply.consumer, reply.slot, now)
        second = float(int(now))
        if not self._buckets or self._buckets[-1][0] != second:
            self._buckets.append([second, 0.0, 0.0, 0.0])
            while self._buckets[0][0] < now - RATE_SECONDS:
                self._buckets.popleft()
        bucket = self._buckets[-1]
        bucket[1] += points
        bucket[2] += 1
        bucket[3] += reply.seconds
        self._running.pop((reply.start, reply.stop), None)

    def running(self, reply: Reply, now: float) -> None:
        """Note a task that is said to run."""
        self.worked_at = now
        self._slots.note(reply.consumer, reply.slot, now)
        self._running[(reply.start, reply.stop)] = (reply.consumer, reply.slot, now - reply.seconds)

    def gone(self, start: int, stop: int) -> None:
        """Note that nobody runs the task any more that was said to run."""
        self._running.pop((start, stop), None)

    def _per_second(self, column: int, now: float) -> float:
        if not self._buckets:
            return 0.0
        # The span reaches from the first bucket, or from the begin where that came later, up to now.
        span = now - max(self._began, self._buckets[0][0], now - RATE_SECONDS)
        recent = sum(b[column] for b in self._buckets if b[0] >= now - RATE_SECONDS)
        return recent / max(span, 0.1)

    def points_per_second(self, now: float) -> float:
        """Return points done per second over the last 30 s.

        Replies that came all at once, having waited for us or for a first batch to end, took their slots
        longer than we have been looking.
        """
        slots = self.slots_seen(now)
        too_many_times = self.busy_seconds_per_second(now) / slots if slots else 0.0
        return self._per_second(1, now) / max(too_many_times, 1.0)

    def tasks_per_second(self, now: float) -> float:
        """Return tasks answered per second over the last 30 s."""
        return self._per_second(2, now)

    def busy_seconds_per_second(self, now: float) -> float:
        """Return how much run time per second the tasks took that were answered over the last 30 s."""
        return self._per_second(3, now)

    def slots_busy(self, now: float) -> float:
        """Return how many slots were busy on average over the last 30 s, those with long tasks too."""
        return min(self.busy_seconds_per_second(now) + len(self._running), float(self.slots_seen(now)))

    def slots_seen(self, now: float) -> int:
        """Return how many slots said something in the last 90 s."""
        return self._slots.count(now)

    def longest_running(self, now: float) -> list[tuple[int, int, str, int, float]]:
        """Return (start, stop, consumer, slot, seconds) of tasks that are said to run, the longest first."""
        rows = [(a, b, who, slot, now - began) for (a, b), (who, slot, began) in self._running.items()]
        return sorted(rows, key=lambda row: -row[4])
