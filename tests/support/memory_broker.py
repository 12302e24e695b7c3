"""A broker in memory, honest to the protocol, that breaks when a test says so."""

from __future__ import annotations

import asyncio
from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from overnight_common.brokers.base import (
    BrokerState,
    Delivery,
    Depth,
    LossReason,
    Message,
    OnDelivery,
    OnSettled,
)
from overnight_common.errors import NotConnectedError, PublishError, TooLargeError, UnroutableError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(eq=False)
class MemorySubscription:
    broker: MemoryBroker
    queue: str
    prefetch: int
    on_delivery: OnDelivery
    on_lost: Callable[[], None]
    held: list[Delivery] = field(default_factory=list)
    active: bool = True

    def set_prefetch(self, prefetch: int, *, keep_late: bool = False) -> None:
        self.prefetch = prefetch
        self.broker.soon()

    async def cancel(self) -> None:
        self.active = False


class MemoryBroker:
    """Keep queues in memory.

    Attributes:
        hold_confirms: True to keep publishers waiting; `confirm` lets them go.
        acked, handed_back: the deliveries that were settled so, void ones left out.
        published: every (queue, message) that was accepted.
    """

    address = server = "memory"
    loss: LossReason | None = LossReason.OTHER

    def __init__(self, max_message_bytes: int = 8 * 2**20) -> None:
        self.state = BrokerState.CONNECTED
        self.connection = 1
        self.hold_confirms = False
        self.acked: list[Delivery] = []
        self.handed_back: list[Delivery] = []
        self.published: list[tuple[str, Message]] = []
        self.looks = 0
        self._number = 0
        self._max = max_message_bytes
        self._queues: dict[str, list[tuple[int, Message, int]]] = {}
        self._subscriptions: list[MemorySubscription] = []
        self._listeners: list[Callable[[BrokerState], None]] = []
        self._unconfirmed: list[OnSettled] = []

    def on_state(self, listener: Callable[[BrokerState], None]) -> None:
        self._listeners.append(listener)

    def set_state(self, state: BrokerState) -> None:
        self.state = state
        for listener in self._listeners:
            listener(state)

    async def open(self, deadline_seconds: float) -> None:
        pass

    async def close(self) -> None:
        pass

    async def declare(self, queue: str) -> None:
        self._queues.setdefault(queue, [])

    async def delete(self, queue: str) -> None:
        self._queues.pop(queue, None)

    async def depth(self, queue: str) -> Depth | None:
        self.looks += 1
        await asyncio.sleep(0)
        if self.state is BrokerState.DISCONNECTED:
            raise NotConnectedError("the link is down")
        waiting = self._queues.get(queue)
        return None if waiting is None else Depth(len(waiting), None, 1)

    def publish(self, queue: str, message: Message, on_settled: OnSettled) -> None:
        error: PublishError | None = None
        if self.state is BrokerState.DISCONNECTED:
            error = NotConnectedError("the link is down")
        elif len(message.body) > self._max:
            error = TooLargeError(f"{len(message.body)} bytes, the limit is {self._max}")
        elif queue not in self._queues:
            error = UnroutableError(queue)
        else:
            self._number += 1
            self._queues[queue].append((self._number, message, 0))
            self.published.append((queue, message))
            self.soon()
        if error is None and self.hold_confirms:
            self._unconfirmed.append(on_settled)
        else:
            asyncio.get_running_loop().call_soon(on_settled, error)

    def leave(self, queue: str, message: Message, delivery_count: int) -> None:
        """Let a message lie in a queue that has been handed out so often."""
        self._number += 1
        self._queues[queue].append((self._number, message, delivery_count))
        self.soon()

    def confirm(self, error: PublishError | None = None) -> None:
        """Settle all that waits for a confirm."""
        waiting, self._unconfirmed = self._unconfirmed, []
        for on_settled in waiting:
            on_settled(error)

    async def subscribe(
        self, queue: str, prefetch: int, on_delivery: OnDelivery, on_lost: Callable[[], None]
    ) -> MemorySubscription:
        subscription = MemorySubscription(self, queue, prefetch, on_delivery, on_lost)
        self._subscriptions.append(subscription)
        self.soon()
        return subscription

    def soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        for subscription in self._subscriptions:
            waiting = self._queues.get(subscription.queue)
            while waiting and subscription.active and len(subscription.held) < subscription.prefetch:
                number, message, count = waiting.pop(0)
                delivery = Delivery(subscription.queue, message, count, (subscription, number))
                subscription.held.append(delivery)
                subscription.on_delivery(delivery)

    def deliver_one(self, queue: str, message: Message) -> Delivery:
        """Hand out a message that was on its way when the prefetch was lowered."""
        subscription = next(each for each in self._subscriptions if each.queue == queue)
        self._number += 1
        delivery = Delivery(queue, message, 0, (subscription, self._number))
        subscription.held.append(delivery)
        subscription.on_delivery(delivery)
        return delivery

    def _settle(self, delivery: Delivery) -> bool:
        subscription = delivery.tag[0]  # type: ignore[index]
        if delivery not in subscription.held:
            return False
        subscription.held.remove(delivery)
        self.soon()
        return True

    def ack(self, delivery: Delivery) -> None:
        if self._settle(delivery):
            self.acked.append(delivery)

    def hand_back(self, delivery: Delivery) -> None:
        if self._settle(delivery):
            self.handed_back.append(delivery)
            self._return(delivery, delivery.delivery_count)

    def _return(self, delivery: Delivery, count: int) -> None:
        """Put a message back to its old place."""
        number = delivery.tag[1]  # type: ignore[index]
        insort(self._queues[delivery.queue], (number, delivery.message, count), key=lambda entry: entry[0])

    def break_link(self) -> None:
        """Lose the link: what is held is void and comes again after `mend_link`."""
        self.set_state(BrokerState.DISCONNECTED)
        self.connection += 1
        for subscription in self._subscriptions:
            for delivery in subscription.held:
                self._return(delivery, delivery.delivery_count + 1)
            subscription.held.clear()
            subscription.active = False
            subscription.on_lost()
        self.confirm(NotConnectedError("the link broke"))

    def mend_link(self) -> None:
        """Be connected again."""
        for subscription in self._subscriptions:
            subscription.active = True
        self.set_state(BrokerState.CONNECTED)
        self.soon()

    def bodies(self, queue: str) -> list[bytes]:
        """Return what was ever accepted for a queue."""
        return [message.body for name, message in self.published if name == queue]
