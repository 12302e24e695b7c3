"""Tell which task finished or failed in few lines, however many there are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from overnight_common.messages import Cause
from overnight_producer.jobs.ranges import Again, Decision, Drop, GiveUp, Split
from overnight_producer.views.wording import counted, duration, one_line, points_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.messages import Failure, Reply

LINES_PER_SECOND = 4
LONGEST_MESSAGE = 200
SHORTEST_MESSAGE = 24


class TaskLines:
    """Pass on at most a few lines a second, and count what is left out.

    Called for every reply, thousands of times a second: what is not shown costs a comparison or two.
    """

    def __init__(
        self,
        say: Callable[[Reply, Decision], None],
        left_out: Callable[[int, int], None],
        verbose: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Give what is shown to `say`, and (failed, finished) counts of the rest to `left_out`."""
        self._say = say
        self._left_out = left_out
        self._verbose = verbose
        self._monotonic = monotonic
        self._second = -1
        self._shown = 0
        self._failed = 0
        self._finished = 0

    def task(self, reply: Reply, decision: Decision) -> None:
        """Take one reply and what was decided about it."""
        if reply.kind == "running" or (reply.kind == "done" and not self._verbose):
            return
        second = int(self._monotonic())
        if second != self._second:
            self.flush()
            self._second, self._shown = second, 0
        # Failures may use all lines, finishes only half of them: they must not push a failure out.
        if self._shown < (LINES_PER_SECOND if reply.kind == "failed" else LINES_PER_SECOND // 2):
            self._shown += 1
            self._say(reply, decision)
        elif reply.kind == "failed":
            self._failed += 1
        else:
            self._finished += 1

    def tick(self) -> None:
        """Tell what was left out, once its second is over."""
        if (self._failed or self._finished) and int(self._monotonic()) != self._second:
            self.flush()

    def flush(self) -> None:
        """Tell now what was left out."""
        if self._failed or self._finished:
            failed, self._failed = self._failed, 0
            finished, self._finished = self._finished, 0
            self._left_out(failed, finished)


def line_of(reply: Reply, decision: Decision, width: int | None = None) -> str:
    """Return what became of a task in one sentence.

    For example `slot 2 finished [7, 14) in 0.8 s`, or
    `slot 1 failed [0, 7): ValueError: no (attempt 1), again in 0.2 s`. If it is wider than `width`, the
    message gives way, but not beyond recognition.
    """
    where = f"slot {reply.slot}" if reply.slot else f"consumer {one_line(reply.consumer, 60)}"
    if reply.device not in ("", "cpu"):
        where += f" on {one_line(reply.device, 20)}"
    points = points_of(reply.start, reply.stop)
    if reply.failure is None:
        late = ", but its points had results" if isinstance(decision, Drop) else ""
        return f"{where} finished {points} in {duration(reply.seconds)}{late}"
    head = f"{where} failed {points}: "
    tail = f" (attempt {reply.attempt}), {consequence(decision)}"
    limit = LONGEST_MESSAGE if width is None else max(width - len(head) - len(tail), SHORTEST_MESSAGE)
    return head + one_line(_what_failed(reply.failure), limit) + tail


def _what_failed(failure: Failure) -> str:
    what = ": ".join(part for part in (failure.type, failure.message) if part)
    if failure.cause is Cause.EXCEPTION and what:
        return what
    return f"{failure.cause.value}: {what}" if what else failure.cause.value


def consequence(decision: Decision) -> str:
    """Return what a failure leads to."""
    match decision:
        case Again(delay_seconds, charged):
            return f"again in {duration(delay_seconds)}" + ("" if charged else ", not charged")
        case Split():
            return "split in halves"
        case GiveUp():
            return "given up"
        case Drop(reason):
            return f"ignored ({reason.replace('_', ' ')})"
    return "noted"


def left_out_line(failed: int, finished: int) -> str:
    """Return the line that stands for those that were left out."""
    if not failed:
        return f"and {counted(finished, 'more task')} finished"
    more = f"and {counted(failed, 'more task')} failed"
    return f"{more}, {finished:,} finished" if finished else more
