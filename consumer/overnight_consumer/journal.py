"""Tell in the log which slot starts, finishes or fails which task."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from overnight_consumer.prefetch import SHORT_SECONDS

if TYPE_CHECKING:
    from overnight_common.messages import Task
    from overnight_consumer.frames import Answer
    from overnight_consumer.held import Held

log = logging.getLogger("overnight.consumer")


class Journal:
    """Write a line for each start and end, unless tasks are too short for that."""

    def __init__(self) -> None:
        self._level = logging.INFO

    def pace(self, mean_seconds: float) -> None:
        """Take note of how long tasks last."""
        self._level = logging.DEBUG if mean_seconds < SHORT_SECONDS else logging.INFO

    def started(self, slot: int, bundle: list[Held]) -> None:
        """Say that a slot starts tasks, one after the other."""
        if log.isEnabledFor(self._level):
            names = ", then ".join(name_of(held.task) for held in bundle)
            log.log(self._level, "slot %d starts %s", slot, names)

    def answered(self, slot: int, task: Task, answer: Answer) -> None:
        """Say how a slot ended a task; a failure is always said."""
        if answer.kind != "done":
            why = f"{answer.cause}: {answer.note}" if answer.cause else answer.note
            log.warning("slot %d failed %s after %.3f s (%s)", slot, name_of(task), answer.seconds, why)
        elif log.isEnabledFor(self._level):
            log.log(self._level, "slot %d finished %s after %.3f s", slot, name_of(task), answer.seconds)


def name_of(task: Task) -> str:
    """Return a task in words."""
    return f"{task.method} [{task.start}, {task.stop}) of job {task.job}, attempt {task.attempt}"
