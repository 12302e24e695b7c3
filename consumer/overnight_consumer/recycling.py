"""Decide when a child has served long enough and is to be replaced, between two tasks."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# To measure costs more than the shortest tasks do.
MEASURE_EVERY_SECONDS = 0.25


class RecycleReason(enum.StrEnum):
    """Name why a child is replaced; the list is closed."""

    TASKS = "tasks"
    GROWTH = "growth"


@dataclass(frozen=True, slots=True)
class Recycling:
    """Say how long a child serves.

    Attributes:
        tasks: replaced after so many, None for never.
        growth_bytes: replaced when it holds so much more than after its first task, None for never.
    """

    tasks: int | None = None
    growth_bytes: int | None = None


class Age:
    """Follow one child's age; its size is first taken after its first task, for models are loaded by then."""

    def __init__(self, policy: Recycling) -> None:
        self._policy = policy
        self._tasks = 0
        self._warm_bytes: int | None = None
        self._measured_at = 0.0

    def after_task(self, now: float, measure: Callable[[], int]) -> RecycleReason | None:
        """Count a task and tell why the child is to be replaced, if it is.

        Args:
            now: monotonic seconds.
            measure: returns the bytes that the child holds; called a few times a second at most.
        """
        self._tasks += 1
        policy = self._policy
        if policy.tasks is not None and self._tasks >= policy.tasks:
            return RecycleReason.TASKS
        if policy.growth_bytes is None or now - self._measured_at < MEASURE_EVERY_SECONDS:
            return None
        self._measured_at = now
        size = measure()
        if self._warm_bytes is None:
            self._warm_bytes = size
        return RecycleReason.GROWTH if size - self._warm_bytes >= policy.growth_bytes else None
