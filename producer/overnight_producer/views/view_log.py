"""Show a job among others in a log: a line when its standing changes, none while it just goes on."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from overnight_producer.views import standing
from overnight_producer.views.task_lines import TaskLines, left_out_line, line_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.messages import Reply
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.ranges import Decision

REPEAT_TROUBLE_SECONDS = 600.0
_log = logging.getLogger("overnight.jobs")


class LogView:
    """Log what becomes of one job; may be called from several threads, one at a time."""

    def __init__(
        self, spec: JobSpec, verbose: bool = False, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Log about the job `spec`; about its tasks only if `verbose`."""
        self._spec = spec
        self._verbose = verbose
        self._monotonic = monotonic
        self._tasks = TaskLines(self._say_task, self._say_left_out, verbose, monotonic)
        self._patience = standing.Patience(monotonic=monotonic)
        self._told: dict[str, float] = {}  # kind of trouble -> when it was told
        self._paused = False
        self._results = False

    def start(self) -> None:
        """Log that the job is driven now."""
        what = standing.title(self._spec).removesuffix(f", job {self._spec.id}")
        self.say(f"is driven on queue {self._spec.queue}: {what}")

    def show(self, snapshot: Snapshot) -> None:
        """Log what has changed: the first result, a pause, a new trouble."""
        self._tasks.tick()
        if snapshot.paused is not self._paused:
            self._paused = snapshot.paused
            self.say("is paused by request" if self._paused else "goes on")
        if snapshot.progress.done and not self._results:
            self._results = True
            self.say(f"has results: {standing.points_phrase(snapshot)}")
        lonely = self._patience.over(standing.nobody_takes(snapshot))
        now = self._monotonic()
        for line in standing.troubles(snapshot, self._spec, lonely):
            kind = line.split(":", 1)[0]
            if now - self._told.get(kind, -REPEAT_TROUBLE_SECONDS) >= REPEAT_TROUBLE_SECONDS:
                self._told[kind] = now
                self._write(logging.WARNING, line)

    def say(self, text: str) -> None:
        """Log the text."""
        self._write(logging.INFO, text)

    def task(self, reply: Reply, decision: Decision) -> None:
        """Log what became of a task, as far as a few lines a second allow."""
        if self._verbose:
            self._tasks.task(reply, decision)

    def finish(self, ending_text: str, exit_status: int | None = None, state: str = "") -> None:  # noqa: ARG002 - part of the protocol
        """Log how it ended."""
        self._tasks.flush()
        self._write(logging.WARNING if exit_status == 1 else logging.INFO, ending_text)

    def _write(self, level: int, text: str) -> None:
        _log.log(level, "job %s: %s", self._spec.id, text)

    def _say_task(self, reply: Reply, decision: Decision) -> None:
        self.say(line_of(reply, decision))

    def _say_left_out(self, failed: int, finished: int) -> None:
        self.say(left_out_line(failed, finished))
