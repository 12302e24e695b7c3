"""Publish replies and keep each one until the broker has confirmed it or its job wants it no more."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from overnight_common.brokers.base import BrokerState, Message
from overnight_common.errors import PublishError, TooLargeError, UnroutableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.brokers.base import Broker
    from overnight_consumer.held import Held

_AGAIN_SECONDS = 0.5


class Outbox:
    """Send replies.

    Args:
        broker: where to.
        on_confirmed: the broker has the reply safely; now the task may be acked.
        on_unroutable: there is no such reply queue.
        on_too_large: the reply is over the limit; called with the broker's words.
    """

    def __init__(
        self,
        broker: Broker,
        on_confirmed: Callable[[Held], None],
        on_unroutable: Callable[[Held], None],
        on_too_large: Callable[[Held, str], None],
    ) -> None:
        self._broker = broker
        self._on_confirmed = on_confirmed
        self._on_unroutable = on_unroutable
        self._on_too_large = on_too_large
        self._kept: list[Held] = []
        self._again: asyncio.TimerHandle | None = None

    def send(self, held: Held, body: bytes) -> None:
        """Publish the reply of a task that has ended."""
        task = held.task
        held.reply = Message(body, "reply", f"{task.job}/{task.start}-{task.stop}/{task.attempt}")
        self.publish(held)

    def publish(self, held: Held) -> None:
        """Publish the reply that is noted with the task, now or when the link is back."""
        assert held.reply is not None
        if self._broker.state is BrokerState.DISCONNECTED:
            self._kept.append(held)
        else:
            held.sent_at = time.monotonic()
            self._broker.publish(held.task.reply_to, held.reply, partial(self._settled, held))

    def _settled(self, held: Held, error: PublishError | None) -> None:
        if error is None:
            self._on_confirmed(held)
        elif isinstance(error, UnroutableError):
            self._on_unroutable(held)
        elif isinstance(error, TooLargeError):
            self._on_too_large(held, str(error))
        else:  # not connected, or refused for now: it may or may not be there, so once more
            self._kept.append(held)
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
        """Try nothing more."""
        if self._again is not None:
            self._again.cancel()
