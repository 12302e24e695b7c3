"""Look after queues on RabbitMQ: arguments, rights, limits, dead letters, depth."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pika
import pytest

from overnight_common.brokers.base import DEAD_QUEUE, BrokerState, reply_queue, task_queue
from overnight_common.errors import (
    BrokerError,
    QueueMismatchError,
    TooLargeError,
    UnroutableError,
)
from support.broker_use import Inbox, Outcomes, opened, put, until, until_async
from support.rabbitmq_use import QUEUE, broker_at

if TYPE_CHECKING:
    from support.rabbitmq import RabbitMQNode


pytestmark = pytest.mark.rabbitmq


def test_a_queue_with_other_arguments_is_an_error_that_shows_both_and_the_way_out(url: str) -> None:
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as raw:
        raw.channel().queue_declare(QUEUE, durable=True)

    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            with pytest.raises(QueueMismatchError) as caught:
                await broker.declare(QUEUE)
            said = str(caught.value)
            assert "received" in said
            assert "current is" in said
            assert "delete" in said
            await broker.declare(task_queue("other"))
            assert broker.state is BrokerState.CONNECTED

    asyncio.run(scene())


def test_without_the_right_to_declare_a_queue_is_found_and_a_missing_one_is_named(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        owner, guest = broker_at(url), broker_at(node.user(url))
        async with opened(guest):
            missing = Outcomes()
            missing.publish(guest, QUEUE, b"no exchange yet")
            (error,) = await missing.wait(1)
            assert isinstance(error, UnroutableError)
            with pytest.raises(BrokerError, match="no right to make it"):
                await guest.declare(QUEUE)
            async with opened(owner):
                await owner.declare(QUEUE)
            await put(guest, QUEUE, b"the exchange has come")
            await guest.declare(QUEUE)
            with pytest.raises(BrokerError, match=r"overnight\.tasks\.other.*no right to make it"):
                await guest.declare(task_queue("other"))
            inbox = Inbox(guest, ack=True)
            await guest.subscribe(QUEUE, 1, inbox, inbox.lost)
            await put(guest, QUEUE, b"1")
            await inbox.wait(2)

    asyncio.run(scene())


def test_a_reply_to_that_is_no_queue_of_ours_is_unroutable_and_harms_nothing(url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await broker.declare(QUEUE)
            outcomes = Outcomes()
            names = ["", "somebody.else", reply_queue("x" * 300, 1), reply_queue("job\n\u2603", 1)]
            for name in names:
                outcomes.publish(broker, name, b"1", message_id="\u2603" * 200)
                assert await broker.depth(name) is None or not name
            errors = await outcomes.wait(len(names))
            assert [type(error) for error in errors] == [UnroutableError] * len(names)
            assert broker.state is BrokerState.CONNECTED
            await put(broker, QUEUE, b"2")

    asyncio.run(scene())


def test_a_message_over_the_servers_own_limit_is_too_large_and_costs_only_a_channel(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        node.eval(size_setting(100_000))
        try:
            async with opened(broker):
                await broker.declare(QUEUE)
                outcomes = Outcomes()
                outcomes.publish(broker, QUEUE, b"x" * 100_001)
                (error,) = await outcomes.wait(1)
                assert isinstance(error, TooLargeError)
                await until(lambda: broker.state is BrokerState.CONNECTED, "the channel again")
                await put(broker, QUEUE, b"small")
        finally:
            node.eval(size_setting(16 << 20))

    asyncio.run(scene())


def size_setting(size_bytes: int) -> str:
    # 3.10 looks into its settings each time, later ones have read them at the start.
    return (
        f"application:set_env(rabbit, max_message_size, {size_bytes}), "
        f"persistent_term:put(max_message_size, {size_bytes}), ok."
    )


def test_what_the_broker_buries_lies_in_the_dead_letters_with_its_reason(url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await broker.declare(QUEUE)
            await put(broker, QUEUE, b"1", headers={"kept": 1})
            with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as raw:
                channel = raw.channel()
                method, _, _ = channel.basic_get(QUEUE)
                channel.basic_reject(method.delivery_tag, requeue=False)
            inbox = Inbox(broker, ack=True)
            await broker.subscribe(DEAD_QUEUE, 1, inbox, inbox.lost)
            (dead,) = await inbox.wait(1)
            assert dead.message.headers == {"kept": 1, "reason": "the broker: rejected", "from_queue": QUEUE}

    asyncio.run(scene())


def test_queues_have_the_arguments_that_are_fixed_for_ever(node: RabbitMQNode, url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        replies = reply_queue("job", 1)
        async with opened(broker):
            await broker.declare(QUEUE)
            await broker.declare(replies)
        vhost = urlsplit(url).path[1:]
        found = await asyncio.to_thread(
            node.ctl, "list_queues", "-p", vhost, "name", "type", "durable", "arguments", "--no-table-headers"
        )
        for line in found.strip().splitlines():
            name, kind, durable, arguments = line.split("\t")
            assert (kind, durable) == ("quorum", "true")
            assert ("x-dead-letter-exchange" in arguments) == (name != DEAD_QUEUE)
            assert ("2592000000" in arguments) == (name != DEAD_QUEUE)
            assert ("1209600000" in arguments) == (name == replies)
        assert len(found.strip().splitlines()) == 3

    asyncio.run(scene())


def test_depth_tells_the_unacked_where_the_metrics_address_is_known(node: RabbitMQNode, url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url, metrics_url=node.metrics_url)
        async with opened(broker):
            await broker.declare(QUEUE)
            await put(broker, QUEUE, b"1", b"2", b"3")
            inbox = Inbox(broker)
            await broker.subscribe(QUEUE, 2, inbox, inbox.lost)
            await inbox.wait(2)

            async def seen() -> bool:
                depth = await broker.depth(QUEUE)
                return depth is not None and (depth.ready, depth.unacked) == (1, 2)

            await until_async(seen, "the server's metrics, which are seconds behind")

    asyncio.run(scene())


def test_a_service_that_subscribes_for_each_job_gathers_no_channels(url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await broker.declare(QUEUE)
            counts = []
            for number in range(4):
                inbox = Inbox(broker)
                subscription = await broker.subscribe(QUEUE, 5, inbox, inbox.lost)
                await put(broker, QUEUE, str(number).encode())
                await until(lambda inbox=inbox: inbox.held, "the message has come")
                await subscription.cancel()
                inbox.ack(inbox.held[0])  # as a driver does with the replies that came while it stopped
                counts.append(len(broker._consuming._connection._channels))  # type: ignore[union-attr,attr-defined]
            assert counts[3] == counts[1]

    asyncio.run(scene())
