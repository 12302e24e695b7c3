"""Publish replies and keep each one until the broker has confirmed it or its job wants it no more.

Replies to very short tasks travel together: what a job is answered within a few milliseconds is one message.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from overnight_common.brokers.base import BrokerState
from overnight_common.errors import PublishError, TooLargeError, UnroutableError
from overnight_consumer.answers import message_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.brokers.base import Broker
    from overnight_consumer.held import Held

# The first reply after a silence leaves at once, so only who answers hundreds of tasks a second ever waits.
GATHER_SECONDS = 0.004
MOST_TOGETHER = 64
# A larger reply gains nothing by company.
FIRST_MOST_BYTES = 32 * 1024
_AGAIN_SECONDS = 0.5


class Outbox:
    """Send replies.

    Args:
        broker: where to.
        on_confirmed: the broker has these replies safely, which took it so many seconds; now the tasks may be acked.
        on_unroutable: there is no such reply queue.
        on_too_large: the reply is over the limit; called with the broker's words.
    """

    def __init__(
        self,
        broker: Broker,
        on_confirmed: Callable[[list[Held], float], None],
        on_unroutable: Callable[[Held], None],
        on_too_large: Callable[[Held, str], None],
    ) -> None:
        self._broker = broker
        self._on_confirmed = on_confirmed
        self._on_unroutable = on_unroutable
        self._on_too_large = on_too_large
        self._gathered: dict[str, list[Held]] = {}  # by reply queue
        self._not_before = 0.0
        self._most_bytes = FIRST_MOST_BYTES
        self._kept: list[Held] = []
        self._again: asyncio.TimerHandle | None = None

    def send(self, held: Held, reply: bytes) -> None:
        """Publish the reply of a task that has ended."""
        held.reply = reply
        self.publish(held)

    def publish(self, held: Held) -> None:
        """Publish the reply that is noted with the task: soon, or when the link is back."""
        if not self._gathered:
            asyncio.get_running_loop().call_at(self._not_before, self._let_go)
        self._gathered.setdefault(held.task.reply_to, []).append(held)

    def _let_go(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + GATHER_SECONDS
        gathered, self._gathered = self._gathered, {}
        for answered in gathered.values():
            for together in in_bundles(answered, self._most_bytes):
                self._publish(together)

    def _publish(self, together: list[Held]) -> None:
        if self._broker.state is BrokerState.DISCONNECTED:
            self._kept += together
            return
        settled = partial(self._settled, together, time.monotonic())
        self._broker.publish(together[0].task.reply_to, message_of(together), settled)

    def _settled(self, together: list[Held], sent_at: float, error: PublishError | None) -> None:
        if error is None:
            self._on_confirmed(together, time.monotonic() - sent_at)
        elif isinstance(error, UnroutableError):
            for held in together:
                self._on_unroutable(held)
        elif isinstance(error, TooLargeError) and len(together) == 1:
            self._on_too_large(together[0], str(error))
        elif isinstance(error, TooLargeError):
            # The broker's limit is below ours: smaller bundles from here on, until one reply alone is the culprit.
            self._most_bytes = min(self._most_bytes, sum(len(held.reply) for held in together) // 2)
            for held in together:
                self.publish(held)
        else:  # not connected, or refused for now: it may or may not be there, so once more
            self._kept += together
            if self._again is None and self._broker.state is not BrokerState.DISCONNECTED:
                self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.flush)

    def flush(self) -> None:
        """Publish again what was kept; called when the link is back."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        kept, self._kept = self._kept, []
        for held in kept:
            self.publish(held)

    def close(self) -> None:
        """Send what is gathered, and try nothing more."""
        self._let_go()
        if self._again is not None:
            self._again.cancel()


def in_bundles(answered: list[Held], most_bytes: int) -> list[list[Held]]:
    """Divide tasks with replies, in order, into those that travel in one message."""
    bundles: list[list[Held]] = []
    room = 0
    for held in answered:
        size = len(held.reply)
        if not bundles or size > room or len(bundles[-1]) == MOST_TOGETHER:
            bundles.append([])
            room = most_bytes
        bundles[-1].append(held)
        room -= size
    return bundles
