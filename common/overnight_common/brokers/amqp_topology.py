"""Say which exchanges and queues Overnight has on RabbitMQ, with which arguments, and declare them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from overnight_common.brokers.amqp_link import ChannelClosedError
from overnight_common.brokers.base import DEAD_QUEUE, REPLIES_PREFIX, TASKS_PREFIX
from overnight_common.errors import BrokerError, BrokerUnreachableError, QueueMismatchError

if TYPE_CHECKING:
    from overnight_common.brokers.amqp_link import Link

_NO_RIGHT, _MISSING, _OTHER_ARGUMENTS = 403, 404, 406

DEAD_EXCHANGE = "overnight.dead"
_NAME_MAX_BYTES = 255
_DAY_MS = 24 * 60 * 60 * 1000
CONSUMER_TIMEOUT_MS = 30 * _DAY_MS
REPLIES_EXPIRE_MS = 14 * _DAY_MS


@dataclass(frozen=True, slots=True)
class Exchange:
    """Describe a durable exchange."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class QueueShape:
    """Describe a durable queue; it is bound to its exchange by its own full name."""

    exchange: Exchange
    arguments: dict[str, str | int] = field(default_factory=dict)


TASKS = Exchange("overnight.tasks", "direct")
REPLIES = Exchange("overnight.replies", "direct")
# What the broker itself buries keeps the name of the queue that it lay in: only a fanout catches them all.
DEAD = Exchange(DEAD_EXCHANGE, "fanout")
EXCHANGES = (DEAD, TASKS, REPLIES)

_QUORUM: dict[str, str | int] = {"x-queue-type": "quorum"}
_WORK = {**_QUORUM, "x-dead-letter-exchange": DEAD_EXCHANGE, "x-consumer-timeout": CONSUMER_TIMEOUT_MS}
_TASK_QUEUE = QueueShape(TASKS, _WORK)
_REPLY_QUEUE = QueueShape(REPLIES, {**_WORK, "x-expires": REPLIES_EXPIRE_MS})
_DEAD_QUEUE = QueueShape(DEAD, _QUORUM)


def shape_of(queue: str) -> QueueShape:
    """Return exchange and arguments of a queue by its full name.

    Raises:
        BrokerError: the name is none of ours.
    """
    if len(queue.encode()) <= _NAME_MAX_BYTES:
        if queue.startswith(TASKS_PREFIX):
            return _TASK_QUEUE
        if queue.startswith(REPLIES_PREFIX):
            return _REPLY_QUEUE
    if queue == DEAD_QUEUE:
        return _DEAD_QUEUE
    raise BrokerError(
        f"{queue[:80]!r} is not the full name of an Overnight queue for tasks, replies or dead letters"
    )


class Topology:
    """Declare, delete and count over one link, each question on a throw-away channel.

    Every question raises BrokerUnreachableError when the link is down or breaks under it.

    Attributes:
        known: names of the exchanges seen on this connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.known: set[str] = set()
        self._not_ours: set[str] = set()  # what we may not declare, as we were told

    async def declare(self, queue: str) -> None:
        """Make sure that a queue of ours exists and is bound, and that dead letters have a place.

        Raises:
            QueueMismatchError: it exists with other arguments.
            BrokerError: it does not exist and we have no right to make it.
        """
        if queue != DEAD_QUEUE:
            await self.declare_exchange(DEAD)
            await self._declare_queue(DEAD_QUEUE)
        await self.declare_exchange(shape_of(queue).exchange)
        await self._declare_queue(queue)

    async def delete(self, queue: str) -> None:
        """Delete a queue with all it holds; no error if there is none."""
        try:
            async with self._link.asking() as channel:
                await channel.call("queue_delete", queue=queue)
        except ChannelClosedError as error:
            if error.code != _MISSING:
                raise _failed(f"cannot delete {queue}", error) from None

    async def counts(self, queue: str) -> tuple[int, int] | None:
        """Return how many messages are ready and how many AMQP consumers there are; None without a queue."""
        if len(queue.encode()) > _NAME_MAX_BYTES:
            return None
        try:
            async with self._link.asking() as channel:
                found = await channel.call("queue_declare", queue=queue, passive=True)
        except ChannelClosedError as error:
            if error.code == _MISSING:
                return None
            raise _failed(f"cannot look at {queue}", error) from None
        return found.message_count, found.consumer_count

    async def declare_exchange(self, exchange: Exchange) -> None:
        """Make sure that an exchange is there; raises as `declare` does."""
        await self._make_or_find(
            f"exchange {exchange.name}",
            "exchange_declare",
            {"exchange": exchange.name},
            {"exchange_type": exchange.kind, "durable": True},
        )
        self.known.add(exchange.name)

    async def _declare_queue(self, queue: str) -> None:
        shape = shape_of(queue)
        made = await self._make_or_find(
            f"queue {queue}",
            "queue_declare",
            {"queue": queue},
            {"durable": True, "arguments": shape.arguments},
        )
        if made:
            try:
                async with self._link.asking() as channel:
                    await channel.call(
                        "queue_bind", queue=queue, exchange=shape.exchange.name, routing_key=queue
                    )
            except ChannelClosedError as error:
                raise _failed(f"cannot bind {queue} to exchange {shape.exchange.name}", error) from None

    async def _make_or_find(
        self, what: str, method: str, name: dict[str, str], wanted: dict[str, object]
    ) -> bool:
        """Declare, or where we have no right to, see whether it is there; True if we had the right."""
        # Each refusal is an error in the broker's log: ask for the right only once, unless the thing is gone.
        if what in self._not_ours and await self._exists(what, method, name):
            return False
        try:
            async with self._link.asking() as channel:
                await channel.call(method, **name, **wanted)
        except ChannelClosedError as error:
            if error.code == _OTHER_ARGUMENTS:
                raise _mismatch(what, wanted, error) from None
            if error.code != _NO_RIGHT:
                raise _failed(f"cannot declare {what}", error) from None
            self._not_ours.add(what)
            if not await self._exists(what, method, name):
                why = f"{what} does not exist and we have no right to make it"
                raise BrokerError(f"{why}: let an operator declare it, or give us the right") from None
            return False
        self._not_ours.discard(what)
        return True

    async def _exists(self, what: str, method: str, name: dict[str, str]) -> bool:
        try:
            async with self._link.asking() as channel:
                await channel.call(method, **name, passive=True)
        except ChannelClosedError as error:
            if error.code == _MISSING:
                return False
            # From 4.3 on, whoever may do nothing with an exchange may not look at it either, and needs not to.
            if error.code == _NO_RIGHT and method == "exchange_declare":
                return True
            raise _failed(f"cannot find {what}", error) from None
        return True


def _failed(what: str, error: ChannelClosedError) -> BrokerError:
    """Return the error to raise: a link that broke under the question is no answer to it."""
    kind = BrokerError if error.code else BrokerUnreachableError
    return kind(f"{what}: {error}")


def _mismatch(what: str, wanted: dict[str, object], error: ChannelClosedError) -> QueueMismatchError:
    return QueueMismatchError(
        f"{what} exists with other arguments: {error.text}. Ours are {wanted}. They cannot be changed: "
        "use another name, or empty and delete it (rabbitmqctl delete_queue) and let us declare it again"
    )
