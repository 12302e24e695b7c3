"""Show a job in plain lines: for a log file, a pipe or a very simple terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight_producer.views import standing
from overnight_producer.views.line_view import LineView
from overnight_producer.views.task_lines import left_out_line, line_of

if TYPE_CHECKING:
    from overnight_common.messages import Reply
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.ranges import Decision
    from overnight_producer.jobs.records import Progress

LINE_SECONDS = 10.0
STEP_PERCENT = 10
REPEAT_TROUBLE_SECONDS = 60.0


class PlainView(LineView):
    """Print one line every 10 s and at each tenth of the way; a trouble when it comes and each minute."""

    _due = 0.0
    _step = -1
    _told_of: Progress | None = None
    _latest: Snapshot | None = None

    def start(self) -> None:
        """Say what the job is."""
        self._told: dict[str, float] = {}  # kind of trouble -> when it was told
        self._due = self._monotonic() + LINE_SECONDS
        self.say(standing.title(self._spec))

    def show(self, snapshot: Snapshot) -> None:
        """Print a line if it is time for one."""
        self._latest = snapshot
        self._tasks.tick()
        now = self._monotonic()
        self._tell_troubles(self._troubles(snapshot), now)
        step = 100 * snapshot.progress.done // max(snapshot.progress.total, 1) // STEP_PERCENT
        if self._step < 0:
            self._step = (
                step  # a job that is joined in the middle begins with where it stands, and that is no step
            )
            self._due = now if snapshot.progress.done else self._due
        # A fast job passes several steps in one look: one line, and never more than one a second.
        if now >= self._due or (step > self._step and now >= self._due - LINE_SECONDS + 1.0):
            self._due = now + LINE_SECONDS
            self._step = step
            self._told_of = snapshot.progress
            self.say(standing.status_line(snapshot, self._clock()))

    def say(self, text: str) -> None:
        """Print the text."""
        self._tasks.flush()
        self._outlet.line(text)

    def finish(self, ending_text: str, exit_status: int | None = None, state: str = "") -> None:  # noqa: ARG002 - part of the protocol
        """Print the last figures and the ending."""
        if self._finished:
            return
        self._finished = True
        self._tasks.flush()
        if self._latest is not None and self._latest.progress != self._told_of:
            self.say(standing.status_line(self._latest, self._clock()))
        self.say(ending_text)

    def _tell_troubles(self, lines: list[str], now: float) -> None:
        kinds = [line.split(":", 1)[0] for line in lines]
        for kind, line in zip(kinds, lines, strict=True):
            told = self._told.get(kind)
            if told is None or now - told >= REPEAT_TROUBLE_SECONDS:
                self._told[kind] = now
                self.say(line)
        # One that comes and goes every second is not told every second.
        self._told = {k: t for k, t in self._told.items() if k in kinds or now - t < LINE_SECONDS}

    def _say_task(self, reply: Reply, decision: Decision) -> None:
        self._outlet.line(line_of(reply, decision))

    def _say_left_out(self, failed: int, finished: int) -> None:
        self._outlet.line(left_out_line(failed, finished))
