"""Keep the window of one driver up to date: ask for the depth of its queue, and see who else uses it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from overnight_common.awake import awake_seconds
from overnight_common.errors import OvernightError
from overnight_producer.driving.share import Load
from overnight_producer.driving.window import FIRST_WINDOW, Sight, next_window

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.brokers.base import Broker, Depth
    from overnight_producer.driving.rates import Rates
    from overnight_producer.driving.share import QueueShare

LOOK_SECONDS = 1.0
HASTY_LOOK_SECONDS = 0.1
GROWING_LOOK_SECONDS = 0.03


class LiveWindow:
    """Hold how many tasks may be out, as measured until now.

    Attributes:
        size: tasks that may be published and unfinished.
        depth: of the task queue; None if unknown, which is not zero.
        active: False while the driver publishes nothing; set by the driver.
    """

    def __init__(
        self, job: str, rates: Rates, share: QueueShare, fixed: int | None, window_seconds: float
    ) -> None:
        """Keep the window of `job` at `fixed` tasks, or, if that is None, find it by what `rates` measure."""
        self._job = job
        self._rates = rates
        self._share = share
        self._fixed = fixed
        self._window_seconds = window_seconds
        self.size = fixed or FIRST_WINDOW
        self.depth: Depth | None = None
        self.active = True
        self._report(awake_seconds())

    def fix(self, tasks: int | None) -> None:
        """Hold it at so many tasks, or find it by measuring again."""
        self._fixed = tasks
        self.size = tasks or self.size

    def worked_at(self, alone: bool) -> float:
        """Return when work was last seen: on this job, or (unless `alone`) on any before it in the queue."""
        others = None if alone else self._share.part_of(self._job).worked_at
        return self._rates.worked_at if others is None else max(self._rates.worked_at, others)

    async def keep(
        self,
        broker: Broker,
        queue: str,
        waiting: Callable[[], int],
        out: Callable[[], int],
        unsettled: Callable[[], int],
        next_task_seconds: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        """Look again and again: often while tasks wait, and more often while the window grows.

        Args:
            broker: asked for the depth of `queue`.
            queue: full name of the task queue.
            waiting: tells how many tasks wait at the driver.
            out: tells how many are published and unfinished.
            unsettled: tells how many are on their way to the broker.
            next_task_seconds: tells how long the next task should take, 0 if unknown.
            changed: called after each look.
        """
        try:
            while True:
                try:
                    self.depth = await broker.depth(queue)
                except OvernightError:
                    self.depth = None  # unknown is not zero
                before = self.size
                # A window that is half empty holds nobody up: larger it would only be too large later.
                held_up = waiting() if out() >= self.size // 2 else 0
                self._look(held_up, unsettled(), next_task_seconds())
                changed()
                if self.size > before:
                    await asyncio.sleep(GROWING_LOOK_SECONDS)
                else:
                    await asyncio.sleep(HASTY_LOOK_SECONDS if waiting() else LOOK_SECONDS)
        finally:
            self._share.leave(self._job)

    def _look(self, waiting: int, unsettled: int, next_task_seconds: float) -> None:
        self._report(awake_seconds())
        if self._fixed is not None:
            return
        part = self._share.part_of(self._job)
        # The queue may look empty only because what we sent is still on its way.
        ready = self.depth.ready + unsettled if self.depth is not None else None
        tasks_per_second = part.tasks_per_second
        if next_task_seconds > 0 and part.slots:
            # While batches grow, the tasks that go out now are longer than those whose rate was measured.
            tasks_per_second = min(tasks_per_second, part.slots / next_task_seconds)
        sight = Sight(waiting, ready, tasks_per_second, part.slots, part.jobs)
        self.size = next_window(self.size, sight, self._window_seconds)

    def _report(self, now: float) -> None:
        rates = self._rates
        slots = rates.slots_seen(now)
        load = Load(
            active=self.active,
            tasks_per_second=rates.tasks_per_second(now),
            busy_slots=rates.busy_seconds_per_second(now),
            slots=slots,
            worked_at=rates.worked_at if slots else None,
        )
        self._share.report(self._job, load)
