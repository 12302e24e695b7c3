"""Hold in memory the ranges of a job that wait, each until it is due, and those that are out."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator

from overnight_producer.jobs.ranges import Range, RangeState


class Worklist:
    """Know every range that waits or is in flight by its start; ranges never overlap.

    Of those that are due the smallest comes first: when batches fail, one is split down to its culprit before
    the next is tried again, so that a broken method is found out early. Due times are seconds of
    `overnight_common.awake`: a clock that is set back delays nothing.
    """

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        """Take the ranges of a job file; all that wait are due now."""
        self._by_start: dict[int, Range] = {}
        self._later: list[tuple[float, int, int]] = []  # (due, order, start)
        self._ready: list[tuple[int, int, int]] = []  # (points, order, start)
        self._order = itertools.count()
        self._waiting = 0
        self._out = self._running = 0
        for range_ in ranges:
            self.put(range_, due=0.0)

    def __len__(self) -> int:
        return len(self._by_start)

    @property
    def waiting(self) -> int:
        """Count the ranges that wait to be published."""
        return self._waiting

    @property
    def out(self) -> int:
        """Count the ranges that are published and unfinished: what the window limits."""
        return self._out

    @property
    def published(self) -> int:
        """Count those of them that nobody has said to run."""
        return self._out - self._running

    def get(self, start: int, stop: int) -> Range | None:
        """Return the unfinished range `[start, stop)`, or None."""
        found = self._by_start.get(start)
        return found if found is not None and found.stop == stop else None

    def in_flight(self) -> Iterator[Range]:
        """Yield the ranges that are published or running."""
        yield from [r for r in self._by_start.values() if r.in_flight]

    def put(self, range_: Range, due: float = 0.0) -> None:
        """Add a range or put a new state in place of its old one; a waiting one is due at `due`."""
        self.remove(range_.start)
        self._by_start[range_.start] = range_
        if range_.state is RangeState.WAITING:
            self._waiting += 1
            heapq.heappush(self._later, (due, next(self._order), range_.start))
        elif range_.in_flight:
            self._out += 1
            self._running += range_.state is RangeState.RUNNING

    def remove(self, start: int) -> None:
        """Forget the range that begins at `start`, if there is one."""
        old = self._by_start.pop(start, None)
        if old is None:
            return
        if old.state is RangeState.WAITING:
            self._waiting -= 1
        elif old.in_flight:
            self._out -= 1
            self._running -= old.state is RangeState.RUNNING

    def take_due(self, now: float) -> Range | None:
        """Return the smallest waiting range that is due, or None; it stays in the list as it is."""
        while self._later and self._later[0][0] <= now:
            _due, order, start = heapq.heappop(self._later)
            if (range_ := self._waiting_at(start)) is not None:
                heapq.heappush(self._ready, (range_.points, order, start))
        while self._ready:
            _points, _order, start = heapq.heappop(self._ready)
            if (range_ := self._waiting_at(start)) is not None:
                return range_
        return None

    def next_due(self) -> float | None:
        """Return when the next waiting range is due, or None if none waits."""
        if any(self._waiting_at(start) for _points, _order, start in self._ready):
            return 0.0
        while self._later and self._waiting_at(self._later[0][2]) is None:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def _waiting_at(self, start: int) -> Range | None:
        # An entry is stale when its range was finished or published since, by a late result say.
        range_ = self._by_start.get(start)
        return range_ if range_ is not None and range_.state is RangeState.WAITING else None
