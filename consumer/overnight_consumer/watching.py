"""Ask the broker about reply queues, as seldom as the rules allow, and remember what it said."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from overnight_common.errors import BrokerError, BrokerUnreachableError, NotConnectedError
from overnight_consumer.reply_queues import ReplyQueue, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from overnight_common.brokers.base import Broker

log = logging.getLogger("overnight.consumer")
_ASK_SECONDS = 30.0
_FORGET_SECONDS = 3600.0


class ReplyWatch:
    """Watch the reply queues of the jobs whose tasks come here.

    Args:
        broker: who is asked.
        on_news: called with the queue's name after each look.
    """

    def __init__(self, broker: Broker, on_news: Callable[[str], None]) -> None:
        self._broker = broker
        self._on_news = on_news
        self._connection = broker.connection
        self._queues: dict[str, ReplyQueue] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def verdict(self, name: str, now: float) -> Verdict:
        """Say what to do with a task of this queue; asks the broker if nobody has lately."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = ReplyQueue()
        queue.used_at = now
        verdict = queue.verdict(now)
        if verdict is Verdict.ASK:
            self.ask(name)
        return verdict

    def is_read(self, name: str) -> bool:
        """Tell whether somebody consumed the queue at the last look."""
        queue = self._queues.get(name)
        return queue is None or queue.read

    def is_missing(self, name: str) -> bool:
        """Tell whether the queue was looked for on this connection and not found."""
        queue = self._queues.get(name)
        return queue is not None and queue.missed_at is not None

    def tick(self, now: float, held: Mapping[str, bool]) -> None:
        """Look where it is time to; `held`: the queues of the tasks that we have -> whether one runs."""
        self._follow()
        for name, running in held.items():
            queue = self._queues.setdefault(name, ReplyQueue())
            if queue.looked_at is None or queue.look_due(now, running=running):
                self.ask(name)
        stale = [
            name
            for name, queue in self._queues.items()
            if name not in held and now - max(queue.used_at, queue.looked_at or 0.0) > _FORGET_SECONDS
        ]
        for name in stale:
            del self._queues[name]

    def ask(self, name: str) -> None:
        """Look now, unless a look is under way."""
        if name not in self._asking:
            self._asking[name] = asyncio.get_running_loop().create_task(self._look(name))

    async def _look(self, name: str) -> None:
        connection = self._broker.connection
        try:
            depth = await asyncio.wait_for(self._broker.depth(name), _ASK_SECONDS)
        except (BrokerUnreachableError, NotConnectedError, TimeoutError):
            return  # the link is down or slow: the next tick asks again
        except BrokerError as error:
            queue = self._queues.setdefault(name, ReplyQueue())
            if not queue.refused:
                queue.refused = True
                log.error(
                    "the reply queue %s cannot be looked at, so its tasks have to wait: %s", name, error
                )
            return
        finally:
            del self._asking[name]
        if connection != self._broker.connection:
            return  # that one is gone: the next tick asks again
        self._follow()
        queue = self._queues.setdefault(name, ReplyQueue())
        now = time.monotonic()
        if depth is None:
            queue.missed(now)
        else:
            queue.found(now, read=depth.consumers is None or depth.consumers > 0)
        self._on_news(name)

    def _follow(self) -> None:
        """Forget what was seen on an earlier connection: on the next one all must be seen anew.

        The one that publishes is not meant: RabbitMQ 3.10 and 4.0 break it when a queue is deleted under a publish.
        """
        if self._connection != self._broker.connection:
            self._connection = self._broker.connection
            for queue in self._queues.values():
                queue.disconnected()

    async def close(self) -> None:
        """Stop asking."""
        asks = list(self._asking.values())
        for ask in asks:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)
