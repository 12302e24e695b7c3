"""Hold what the views that print lines have in common."""

from __future__ import annotations

import abc
import time
from typing import TYPE_CHECKING

from overnight_producer.views import standing
from overnight_producer.views.task_lines import TaskLines

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.messages import Reply
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.ranges import Decision
    from overnight_producer.views.outlet import Outlet


class LineView(abc.ABC):
    """Print lines about one job to an outlet, of its tasks only as many as a person can read."""

    def __init__(
        self,
        spec: JobSpec,
        outlet: Outlet,
        verbose: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Print about the job `spec`; `clock` gives Unix time, and tasks that went well are told if `verbose`."""
        self._spec = spec
        self._outlet = outlet
        self._monotonic = monotonic
        self._clock = clock
        self._tasks = TaskLines(self._say_task, self._say_left_out, verbose, monotonic)
        self._patience = standing.Patience(monotonic=monotonic)
        self._finished = False

    def task(self, reply: Reply, decision: Decision) -> None:
        """Print what became of a task, as far as a few lines a second allow."""
        self._tasks.task(reply, decision)

    def _troubles(self, snapshot: Snapshot) -> list[str]:
        lonely = self._patience.over(standing.nobody_takes(snapshot))
        return standing.troubles(snapshot, self._spec, lonely)

    @abc.abstractmethod
    def _say_task(self, reply: Reply, decision: Decision) -> None:
        """Print a line about one task."""

    @abc.abstractmethod
    def _say_left_out(self, failed: int, finished: int) -> None:
        """Print how many tasks got no line."""
