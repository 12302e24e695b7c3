"""Take tasks from one queue: hold the subscription, its prefetch, and what makes it careful.

After an accusation nothing is taken for a while. A task that was lost with its consumers several times may
be what killed them; the broker charges that to all that they held. So that its neighbours come to no harm,
such a task is held alone, and a consumer that has just started, perhaps after such a death, begins with one.
After a suspect the number doubles as harmless ones come: up to RabbitMQ 4.2 what is handed back counts as if it
had been lost, so who may come upon another suspect must not hold much more than he has just dealt with.
What is on its way when a suspect comes is kept for that reason: it runs before the suspect (`tasks.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from overnight_common.errors import BrokerError
from overnight_consumer.backoff import backoff_seconds
from overnight_consumer.observer import IntakeSight
from overnight_consumer.prefetch import LOWER_SECONDS, worth_lowering, worth_raising

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.brokers.base import Broker, Delivery, Subscription

_PAUSE_FIRST = 1.0
_PAUSE_LONGEST = 60.0
# What has not killed us by then does not keep the other slots idle any longer.
_ALONE_SECONDS = 60.0
_CLOSE_SECONDS = 5.0


class Intake:
    """Be one subscription.

    Args:
        queue: full name of the task queue.
        on_delivery, on_lost: called with this intake.
    """

    def __init__(
        self,
        queue: str,
        on_delivery: Callable[[Intake, Delivery], None],
        on_lost: Callable[[Intake], None],
    ) -> None:
        self.queue = queue
        self._on_delivery = on_delivery
        self._on_lost = on_lost
        self._subscription: Subscription | None = None
        self._prefetch = 0
        self._cap: int | None = 1  # of the prefetch; None when there is nothing to be careful about
        self._careful_until = math.inf
        self._suspected = False
        self._harmless = 0  # deliveries since the last suspect
        self._aside = 0  # deliveries that are held and cannot run
        self._low_since = math.inf  # since when much less would do
        self._accusations = 0
        self._paused_until: float | None = None
        self._stopped = False

    async def open(self, broker: Broker, prefetch: int) -> None:
        """Subscribe, for one delivery at first."""
        self._prefetch = prefetch
        asked = self._allowed
        self._subscription = await broker.subscribe(
            self.queue,
            asked,
            lambda delivery: self._on_delivery(self, delivery),
            lambda: self._on_lost(self),
        )
        if self._allowed != asked:  # deliveries have come before we could say what follows from them
            self._set(self._prefetch)

    def stop(self) -> None:
        """Take nothing more from now on; `close` follows."""
        self._set(0)
        self._stopped = True

    async def close(self) -> None:
        """End the subscription; a broker that cannot hear that now is not waited for: what runs here goes on."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(BrokerError, TimeoutError):
                await asyncio.wait_for(subscription.cancel(), _CLOSE_SECONDS)

    @property
    def sight(self) -> IntakeSight:
        """Return how things are, for who looks on."""
        return IntakeSight(self.queue, self.ready, self.paused, self._allowed)

    @property
    def paused(self) -> bool:
        """Tell whether nothing is taken because this consumer was accused."""
        return self._paused_until is not None

    @property
    def ready(self) -> bool:
        """Tell whether tasks would really come."""
        taking = not self.paused and not self._stopped
        return taking and self._subscription is not None and self._subscription.active

    def accused(self, now: float) -> float:
        """Take nothing for 1, 2, 4 ... 60 s; returns for how long."""
        if self.paused or self._stopped:
            return 0.0
        self._accusations += 1
        delay = backoff_seconds(self._accusations, _PAUSE_FIRST, _PAUSE_LONGEST)
        self._paused_until = now + delay
        self._set(self._prefetch)
        return delay

    def succeeded(self) -> None:
        """Forget the accusations: this consumer can do it."""
        if not self.paused:
            self._accusations = 0

    def resume_if_due(self, now: float, prefetch: int) -> None:
        """Take tasks again when the pause is over, and several when a suspect has run for long."""
        if now >= self._careful_until:
            self._raise_cap(None)
        if self._paused_until is not None and now >= self._paused_until and not self._stopped:
            self._paused_until = None
            self._set(prefetch)

    def heed(self, now: float, *, suspect: bool) -> None:
        """Hold a task alone that may kill us, and more again, step by step, as others come."""
        if suspect:
            self._careful_until = now + _ALONE_SECONDS
            self._suspected, self._harmless = True, 0
            if self._cap != 1:
                self._cap = 1
                self._set(self._prefetch)
        elif self._cap is not None:
            self._harmless += 1
            if not self._suspected:
                self._raise_cap(None)
            elif self._harmless >= self._cap:
                self._raise_cap(self._cap * 2)

    def set_aside(self, deliveries: int) -> None:
        """Take as many more as cannot run now: they kill nobody, and must not keep others out."""
        changed, self._aside = deliveries != self._aside, deliveries
        if changed and self._cap is not None and not self.paused and not self._stopped:
            self._set(self._prefetch)

    def _raise_cap(self, cap: int | None) -> None:
        self._cap = None if cap is None or cap >= self._prefetch else cap
        if self._cap is None:
            self._careful_until, self._suspected = math.inf, False
        if not self.paused:
            self._set(self._prefetch)

    def want(
        self, prefetch: int, now: float, *, exactly: bool = False, least: int = 0, too_many: float = math.inf
    ) -> None:
        """Change the prefetch if that is worth it.

        Args:
            prefetch: how many deliveries to hold.
            now: monotonic seconds.
            exactly: that many, and at once.
            least: at once if fewer are held now.
            too_many: at once if so many are held now.
        """
        if not worth_lowering(self._prefetch, prefetch):
            self._low_since = math.inf
        elif self._low_since == math.inf:
            self._low_since = now
        if self.paused or self._stopped or prefetch == self._prefetch:
            return
        low_for_long = now - self._low_since >= LOWER_SECONDS
        at_once = exactly or not least <= self._prefetch < too_many
        if at_once or low_for_long or worth_raising(self._prefetch, prefetch):
            self._set(prefetch)

    @property
    def _allowed(self) -> int:
        if self.paused:
            return 0
        return self._prefetch if self._cap is None else min(self._prefetch, self._cap + self._aside)

    def _set(self, prefetch: int) -> None:
        self._prefetch = prefetch
        if self._subscription is not None:
            # What is on its way to us when a suspect comes is better run before it than handed back.
            allowed = self._allowed
            self._subscription.set_prefetch(allowed, keep_late=self._cap is not None and allowed > 0)
