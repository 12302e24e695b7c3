"""Change a job file, all or nothing: what one cycle of the driver writes together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from overnight_common.messages import Cause, Encoded, Failure
from overnight_producer.jobs.jobspec import JobSpec
from overnight_producer.jobs.ranges import Range, RangeState, retried
from overnight_producer.jobs.schema import FAILURE_COLUMNS, RANGE_COLUMNS

if TYPE_CHECKING:
    from overnight_producer.jobs.records import JobState

MAX_TEXT_CHARACTERS = 16_000

# Runs one SQL statement and returns its cursor.
Execute = Callable[..., Any]


@dataclass(slots=True)
class Written:
    """Sum up what one transaction adds to a job file.

    Attributes:
        tasks_done: replies that brought at least one new result.
        points_done: points that got a result.
        points_given_up: points given up; a later lift takes nothing off here.
        failures: cause -> failed attempts noted.
        dropped: reason -> what `Transaction.count` counted.
    """

    tasks_done: int = 0
    points_done: int = 0
    points_given_up: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class Transaction:
    """Collect changes to a job file; `JobFile.commit` makes it and ends it."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self.written = Written()
        self._given_up = 0
        self._seconds = 0.0
        self._finished_at: list[float] = []
        self._seen: dict[str, tuple[int, int, float]] = {}

    # Ranges

    def cut(self, ranges: Iterable[Range]) -> None:
        """Add ranges cut from the data set and move the cursor behind the last of them."""
        stop = 0
        for each in ranges:
            self.put(each)
            stop = max(stop, each.stop)
        self._execute("UPDATE job SET cursor = MAX(cursor, ?)", (stop,))

    def put(self, range_: Range) -> None:
        """Write a range as it is now, in place of what was known of it; a given-up one waits again by `lift`."""
        if range_.state is RangeState.GIVEN_UP and not self._is_given_up(range_):
            self._given_up += range_.points
            self.written.points_given_up += range_.points
        self._execute(
            f"INSERT OR REPLACE INTO ranges ({RANGE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a constant
            (
                range_.start,
                range_.stop,
                range_.state.value,
                range_.attempt,
                range_.charged,
                range_.half,
                range_.last_cause.value if range_.last_cause else None,
            ),
        )

    def remove(self, range_: Range) -> None:
        """Take a range, told as it stands there, out of the table: it is done, or was split."""
        if range_.state is RangeState.GIVEN_UP:
            self._given_up -= range_.points
        self._execute("DELETE FROM ranges WHERE start = ? AND stop = ?", (range_.start, range_.stop))

    def replace(self, old: Range, new: Sequence[Range]) -> list[Range]:
        """Put `new` (see `ranges.apply`) in the place of `old`; return those of them not yet done."""
        if [(each.start, each.stop) for each in new] == [(old.start, old.stop)]:
            self.put(new[0])
            return list(new)
        self.remove(old)
        # A half may be complete already, from a result that covers only a part of its parent.
        kept = [each for each in new if self.gaps(each.start, each.stop)]
        for each in kept:
            self.put(each)
        return kept

    def lift(self, range_: Range) -> Range:
        """Let a given-up range wait again with a fresh budget, and return it."""
        lifted = retried(range_)
        if self._is_given_up(range_):
            self._given_up -= range_.points
        self.put(lifted)
        return lifted

    def settle(self, start: int, stop: int) -> list[Range]:
        """Take out every range touching `[start, stop)` that is complete, given-up ones too; return them."""
        complete = [
            each
            for each in touching_ranges(self._execute, start, stop)
            if not self.gaps(each.start, each.stop)
        ]
        for each in complete:
            self.remove(each)
        return complete

    def _is_given_up(self, range_: Range) -> bool:
        row = self._execute(
            "SELECT state FROM ranges WHERE start = ? AND stop = ?", (range_.start, range_.stop)
        ).fetchone()
        return row is not None and row[0] == RangeState.GIVEN_UP.value

    # Results and failures

    def add_result(
        self,
        start: int,
        stop: int,
        encoded: Encoded | None,
        seconds: float,
        consumer: str,
        slot: int,
        finished_at: float,
    ) -> int:
        """Keep the results of `[start, stop)` for those points that have none yet.

        Args:
            start: index of the first point.
            stop: index after the last point; the caller has checked that they belong to the job.
            encoded: `stop - start` results, or None for points that are done without a value.
            seconds: how long the task ran.
            consumer: who ran it.
            slot: in which of its slots.
            finished_at: Unix time.

        Returns:
            How many points were filled: 0 means that the reply was a duplicate.
        """
        filled = 0
        for first, last in self.gaps(start, stop):
            part = encoded
            if encoded is not None and (first, last) != (start, stop):
                from overnight_common.values import (
                    slice_values,
                )  # NumPy, which who only reads a job does not need

                part = slice_values(encoded, first - start, last - start)
            self._execute(
                "INSERT INTO results (start, stop, kind, body, seconds, consumer, slot, finished_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (first, last, part and part.kind, part and part.body, seconds, consumer, slot, finished_at),
            )
            filled += last - first
        if filled:
            self._sum_up(filled, seconds, consumer, finished_at)
        return filled

    def _sum_up(self, filled: int, seconds: float, consumer: str, finished_at: float) -> None:
        self.written.points_done += filled
        self.written.tasks_done += 1
        self._seconds += seconds
        self._finished_at.append(finished_at)
        tasks, points, seen = self._seen.get(consumer, (0, 0, 0.0))
        self._seen[consumer] = (tasks + 1, points + filled, max(seen, finished_at))

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the parts of `[start, stop)` that have no result, in order."""
        return gaps(self._execute, start, stop)

    def add_failure(
        self,
        range_: Range,
        failure: Failure,
        consumer: str = "",
        slot: int = 0,
        seconds: float = 0.0,
        peak_rss_bytes: int = 0,
        at: float | None = None,
    ) -> None:
        """Note why the current attempt of a range failed; very long texts lose their beginning."""
        self.written.failures[failure.cause.value] += 1
        texts = (failure.type, failure.message, failure.traceback, failure.stderr_tail)
        self._execute(
            f"INSERT INTO failures ({FAILURE_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608 - a constant
            (
                *(range_.start, range_.stop, range_.attempt, failure.cause.value),
                *(_storable(each) for each in texts),
                *(consumer, slot, seconds, peak_rss_bytes, time.time() if at is None else at),
            ),
        )

    def accuse(self, consumer: str, failure: Failure, at: float | None = None) -> None:
        """Count a failure that is the consumer's fault and remember what it said."""
        now = time.time() if at is None else at
        self._execute(
            "INSERT INTO consumers (name, last_seen, accusations, cause, message) VALUES (?, ?, 1, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET accusations = accusations + 1, cause = excluded.cause,"
            " message = excluded.message, last_seen = MAX(last_seen, excluded.last_seen)",
            (consumer, now, failure.cause.value, _storable(failure.message or failure.type)),
        )

    def saw(self, consumer: str, at: float | None = None) -> None:
        """Note that a consumer was heard of, without a result."""
        tasks, points, seen = self._seen.get(consumer, (0, 0, 0.0))
        self._seen[consumer] = (tasks, points, max(seen, time.time() if at is None else at))

    def count(self, reason: str) -> None:
        """Count a dropped reply under its reason."""
        self.written.dropped[reason] += 1
        self._execute(
            "INSERT INTO dropped (reason, count) VALUES (?, 1) "
            "ON CONFLICT (reason) DO UPDATE SET count = count + 1",
            (reason,),
        )

    # The job

    def set_spec(self, spec: JobSpec) -> None:
        """Write a changed job, for example another batch size; its id and points stay as they are."""
        changed = self._execute(
            "UPDATE job SET spec = ? WHERE start = ? AND stop = ?", (spec.to_json(), spec.start, spec.stop)
        )
        if changed.rowcount != 1:
            raise ValueError("the points of a job cannot be changed; start another job")

    def set_epoch(self, epoch: int) -> None:
        """Begin a new reply queue."""
        self.set_spec(replace(self._spec(), epoch=epoch))

    def set_fingerprint(self, fingerprint: str) -> None:
        """Pin the method's code."""
        self.set_spec(replace(self._spec(), fingerprint=fingerprint))

    def set_state(self, state: JobState, why: str = "") -> None:
        """Say where the job is, and why in one sentence."""
        self._execute("UPDATE job SET state = ?, why = ?", (state.value, _storable(why)))

    def finish_request(self, request_id: int, outcome: str = "done") -> None:
        """Answer a request, in the same transaction as its effects."""
        self._execute("UPDATE requests SET outcome = ? WHERE id = ?", (_storable(outcome), request_id))

    def flush(self) -> None:
        """Write the sums of this transaction; called once, before the commit."""
        written = self.written
        if written.tasks_done or self._given_up:
            first = min(self._finished_at, default=None)
            last = max(self._finished_at, default=None)
            self._execute(
                "UPDATE job SET points_done = points_done + ?, points_given_up = points_given_up + ?,"
                " tasks_done = tasks_done + ?, seconds = seconds + ?,"
                " first_result_at = COALESCE(first_result_at, ?),"
                " last_result_at = NULLIF(MAX(COALESCE(last_result_at, 0), COALESCE(?, 0)), 0)",
                (written.points_done, self._given_up, written.tasks_done, self._seconds, first, last),
            )
        for name, (tasks, points, seen) in self._seen.items():
            self._execute(
                "INSERT INTO consumers (name, tasks_done, points_done, last_seen) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET tasks_done = tasks_done + excluded.tasks_done,"
                " points_done = points_done + excluded.points_done,"
                " last_seen = MAX(last_seen, excluded.last_seen)",
                (name, tasks, points, seen),
            )

    def _spec(self) -> JobSpec:
        return JobSpec.from_json(self._execute("SELECT spec FROM job").fetchone()[0])


def gaps(execute: Execute, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the parts of `[start, stop)` that no result covers, in order."""
    if start >= stop:
        return []
    last = execute("SELECT stop FROM results WHERE start < ? ORDER BY start DESC LIMIT 1", (stop,)).fetchone()
    if last is None or last[0] <= start:  # the usual case: nothing there at all
        return [(start, stop)]
    found = []
    position = start
    for first, after in execute(
        "SELECT start, stop FROM results WHERE start < :stop AND start >="
        " COALESCE((SELECT MAX(start) FROM results WHERE start <= :start), :start) ORDER BY start",
        {"start": start, "stop": stop},
    ):
        if first > position:
            found.append((position, first))
        position = max(position, after)
    if position < stop:
        found.append((position, stop))
    return found


def touching_ranges(execute: Execute, start: int, stop: int) -> list[Range]:
    """Return the ranges that share a point with `[start, stop)`, in order."""
    rows = execute(
        f"SELECT {RANGE_COLUMNS} FROM ranges WHERE start < :stop AND start >="  # noqa: S608 - a constant
        " COALESCE((SELECT MAX(start) FROM ranges WHERE start <= :start), :start) ORDER BY start",
        {"start": start, "stop": stop},
    ).fetchall()
    return [each for each in map(range_of, rows) if each.stop > start]


def range_of(row: tuple[Any, ...]) -> Range:
    """Return the range in a row of RANGE_COLUMNS."""
    start, stop, state, attempt, charged, half, cause = row
    return Range(
        start,
        stop,
        RangeState(state),
        attempt,
        charged,
        bool(half),
        Cause(cause) if cause else None,
    )


def _storable(text: str) -> str:
    # SQLite takes only text that UTF-8 can hold.
    kept = text.encode("utf-8", "backslashreplace").decode()
    if len(kept) <= MAX_TEXT_CHARACTERS:
        return kept
    left_out = len(kept) - MAX_TEXT_CHARACTERS
    return f"... ({left_out} characters left out)\n{kept[-MAX_TEXT_CHARACTERS:]}"
