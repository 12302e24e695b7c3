"""Use a broker in tests: open and close it, gather what it says, and wait for what should come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from overnight_common.brokers.base import Broker, Delivery, Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from overnight_common.errors import PublishError

PATIENCE_SECONDS = 15.0


def message(body: bytes = b"x", **fields: Any) -> Message:
    """Return a message of which only the body matters."""
    return Message(body, fields.pop("type", "task"), **fields)


@contextlib.asynccontextmanager
async def opened(*brokers: Broker) -> AsyncIterator[None]:
    """Open brokers, and close them all whatever happens."""
    try:
        for broker in brokers:
            await broker.open(PATIENCE_SECONDS)
        yield
    finally:
        for broker in brokers:
            await broker.close()


async def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition holds."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.002)


async def until_async(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until a condition that has to ask somebody holds."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not await condition():
        assert time.monotonic() < give_up, f"not within {PATIENCE_SECONDS:g} s: {what}"
        await asyncio.sleep(0.02)


class Outcomes:
    """Gather what `on_settled` was told; `inside` shows whether that came from within `publish`."""

    def __init__(self) -> None:
        self.errors: list[PublishError | None] = []
        self.inside = False
        self._publishing = False

    def __call__(self, error: PublishError | None) -> None:
        self.inside = self.inside or self._publishing
        self.errors.append(error)

    def publish(self, broker: Broker, queue: str, *bodies: bytes, **fields: Any) -> None:
        """Publish messages without waiting."""
        self._publishing = True
        for body in bodies:
            broker.publish(queue, message(body, **fields), self)
        self._publishing = False

    async def wait(self, count: int) -> list[PublishError | None]:
        """Wait for so many outcomes and return all there are."""
        await until(lambda: len(self.errors) >= count, f"{count} outcomes, there are {len(self.errors)}")
        return self.errors


async def put(broker: Broker, queue: str, *bodies: bytes, **fields: Any) -> None:
    """Publish messages and wait until the broker has them all."""
    outcomes = Outcomes()
    outcomes.publish(broker, queue, *bodies, **fields)
    assert await outcomes.wait(len(bodies)) == [None] * len(bodies)


class Inbox:
    """Gather deliveries, and settle them when told to."""

    def __init__(self, broker: Broker, *, ack: bool = False) -> None:
        self.broker = broker
        self.deliveries: list[Delivery] = []
        self.losses = 0
        self.most_held = 0
        self._held: list[Delivery] = []
        self._ack = ack

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self._held.append(delivery)
        self.most_held = max(self.most_held, len(self._held))
        if self._ack:
            self.ack(delivery)

    def lost(self) -> None:
        """Note that all held is void."""
        self.losses += 1
        self._held.clear()

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies in the order of arrival."""
        return [delivery.message.body for delivery in self.deliveries]

    @property
    def held(self) -> list[Delivery]:
        """Return what is not settled."""
        return list(self._held)

    def ack(self, *deliveries: Delivery) -> None:
        """Ack these, or all held."""
        for delivery in deliveries or self.held:
            self._held.remove(delivery)
            self.broker.ack(delivery)

    def hand_back(self, *deliveries: Delivery) -> None:
        """Hand back these, or all held."""
        for delivery in deliveries or self.held:
            self._held.remove(delivery)
            self.broker.hand_back(delivery)

    async def wait(self, count: int, seconds: float = PATIENCE_SECONDS) -> list[Delivery]:
        """Wait for so many deliveries in all, and return them."""
        await until(
            lambda: len(self.deliveries) >= count, f"{count} deliveries, not {len(self.deliveries)}", seconds
        )
        return self.deliveries


async def linger(broker: Broker, queue: str) -> None:
    """Give what must not come a fair chance to come: several round trips and a moment."""
    for _ in range(3):
        await broker.depth(queue)
    await asyncio.sleep(0.15)
