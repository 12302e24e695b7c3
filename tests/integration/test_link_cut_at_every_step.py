"""The link is cut at each single answer of RabbitMQ, from the first connect to the last ack; nothing is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from overnight_common.brokers.base import DEAD_QUEUE
from overnight_common.brokers.patience import patiently
from overnight_common.errors import NotConnectedError
from support.broker_use import Inbox, message, opened, until, until_async
from support.forwarder import Forwarder
from support.rabbitmq_use import QUEUE, broker_at, is_ready, unacked_is

if TYPE_CHECKING:
    from overnight_common.brokers.rabbitmq import RabbitMQBroker
    from overnight_common.errors import PublishError
    from support.rabbitmq import RabbitMQNode

pytestmark = pytest.mark.rabbitmq

BODIES = {b"1", b"2", b"3"}
MOST_STEPS = 200


class Sender:
    """Publish each message until the broker has it, as a driver does."""

    def __init__(self, broker: RabbitMQBroker) -> None:
        self._broker = broker
        self.accepted: set[bytes] = set()

    def send(self, body: bytes) -> None:
        self._broker.publish(QUEUE, message(body), partial(self._settled, body))

    def _settled(self, body: bytes, error: PublishError | None) -> None:
        if error is None:
            self.accepted.add(body)
        else:
            assert isinstance(error, NotConnectedError)
            asyncio.get_running_loop().call_later(0.02, self.send, body)


async def work_through(link: Forwarder, node: RabbitMQNode, url: str, step: int) -> bool:
    """Do all that a service does, with the link cut at one answer; return whether it was."""
    through = urlsplit(url)._replace(netloc=f"guest:guest@127.0.0.1:{link.port}").geturl()
    broker, direct = broker_at(through), broker_at(url)
    link.cut_once_at(step)
    async with opened(direct, broker):
        for queue in (QUEUE, DEAD_QUEUE):
            await patiently(partial(broker.declare, queue), 15)
        inbox = Inbox(broker, ack=True)
        subscription = await broker.subscribe(QUEUE, 1, inbox, inbox.lost)
        sender = Sender(broker)
        for body in BODIES:
            sender.send(body)
        at = f", with a cut at answer {step}"
        await until(lambda: sender.accepted == BODIES, "all accepted" + at)
        await until(lambda: set(inbox.bodies) == BODIES, "all delivered" + at)
        was_cut = not link.is_armed
        await until(lambda: subscription.active, "active again" + at)
        await until_async(lambda: is_ready(direct, QUEUE, 0), "empty" + at)  # of what came twice, too
        await until_async(lambda: unacked_is(node, url, QUEUE, 0), "acked" + at)
        await direct.delete(QUEUE)
    return was_cut


def test_a_link_cut_at_any_answer_of_the_broker_loses_nothing(node: RabbitMQNode, url: str) -> None:
    async def scene() -> None:
        link = Forwarder("127.0.0.1", node.port)
        await link.start()
        try:
            steps = 1
            while steps < MOST_STEPS and await work_through(link, node, url, steps):
                link.restore()
                steps += 1
        finally:
            await link.close()
        assert 20 < steps < MOST_STEPS, "the cut has gone through everything"

    asyncio.run(scene())
