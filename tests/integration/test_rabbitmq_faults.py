"""Break the link to RabbitMQ in every way we can think of, and see that nothing is lost and nothing hangs."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from overnight_common.brokers.base import BrokerState, reply_queue
from overnight_common.errors import (
    BadInputError,
    BrokerUnreachableError,
    NotConnectedError,
    UnroutableError,
)
from support.broker_use import Inbox, Outcomes, linger, message, opened, put, until, until_async
from support.rabbitmq_use import QUEUE, broker_at, declare_with_timeout, is_ready, unacked_is

if TYPE_CHECKING:
    from overnight_common.errors import PublishError
    from support.rabbitmq import RabbitMQNode


pytestmark = pytest.mark.rabbitmq


def test_a_subscription_goes_on_by_itself_after_the_broker_was_killed_and_started(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        states: list[BrokerState] = []
        broker.on_state(states.append)
        async with opened(broker):
            await broker.declare(QUEUE)
            inbox = Inbox(broker)
            subscription = await broker.subscribe(QUEUE, 2, inbox, inbox.lost)
            await put(broker, QUEUE, b"1", b"2", b"3")
            old = list(await inbox.wait(2))

            await asyncio.to_thread(node.kill)
            await until(lambda: inbox.losses == 1, "the loss")
            assert not subscription.active
            assert broker.state is BrokerState.DISCONNECTED
            await asyncio.to_thread(node.start)

            await inbox.wait(4, seconds=60)
            assert sorted(inbox.bodies[2:]) == [b"1", b"2"]
            assert [one.delivery_count for one in inbox.deliveries[2:]] == [1, 1]
            for void in old:
                broker.ack(void)
                broker.hand_back(void)
            await linger(broker, QUEUE)
            assert len(inbox.deliveries) == 4, "an ack of before the restart must not make room now"
            inbox.ack()
            await inbox.wait(5)
            inbox.ack()
            await until_async(lambda: is_ready(broker, QUEUE, 0), "an empty queue")
            assert subscription.active
            await until(lambda: broker.state is BrokerState.CONNECTED, "both connections", seconds=30)
            assert states == [BrokerState.CONNECTED, BrokerState.DISCONNECTED, BrokerState.CONNECTED]

    asyncio.run(scene())


def test_every_publish_is_answered_once_when_the_server_closes_connections_at_any_moment(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        answers: dict[bytes, list[PublishError | None]] = {}
        accepted: set[bytes] = set()

        def send(body: bytes) -> None:
            answers[body] = []
            broker.publish(QUEUE, message(body), lambda error: settle(body, error))

        def settle(body: bytes, error: PublishError | None) -> None:
            answers[body].append(error)
            if error is None:
                accepted.add(body)

        async with opened(broker):
            await broker.declare(QUEUE)
            for cut in range(60):
                # Six times at least, and until a publish was really caught between its sending and its confirm.
                caught = any(
                    isinstance(error, NotConnectedError) for one in answers.values() for error in one
                )
                if cut >= 6 and caught:
                    break
                closing = asyncio.create_task(asyncio.to_thread(node.close_connections))
                for number in count():
                    if broker.state is not BrokerState.CONNECTED:
                        break
                    send(b"%d-%d" % (cut, number))
                    if number % (3 * cut + 2) == 0:
                        await asyncio.sleep(0.005)
                send(b"%d-late" % cut)  # whatever was caught on its way, this one surely meets no link
                assert await closing >= 1
                await until(lambda: all(answers.values()), "all answers")
                await until(lambda: broker.state is BrokerState.CONNECTED, "the link again")
            assert all(len(one) == 1 for one in answers.values())
            assert any(isinstance(one[0], NotConnectedError) for one in answers.values())

            inbox = Inbox(broker, ack=True)
            await broker.subscribe(QUEUE, 100, inbox, inbox.lost)
            await until(lambda: accepted <= set(inbox.bodies), "all that was confirmed")

    asyncio.run(scene())


def test_what_was_held_comes_again_when_the_server_closes_the_connection(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await broker.declare(QUEUE)
            inbox = Inbox(broker)
            subscription = await broker.subscribe(QUEUE, 10, inbox, inbox.lost)
            await put(broker, QUEUE, *(b"%d" % n for n in range(10)))
            await inbox.wait(10)
            inbox.ack(*inbox.held[:3])
            await until_async(lambda: unacked_is(node, url, QUEUE, 7), "three acks")

            await asyncio.to_thread(node.close_connections)

            await inbox.wait(17)
            assert inbox.losses == 1
            assert sorted(inbox.bodies[10:]) == [b"%d" % n for n in range(3, 10)]
            inbox.ack()
            await until_async(lambda: unacked_is(node, url, QUEUE, 0), "the rest acked")
            assert subscription.active

    asyncio.run(scene())


def test_an_alarm_blocks_publishing_and_lets_acks_through(
    node: RabbitMQNode, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        # The deadline is far shorter than the alarm lasts: it must not run meanwhile.
        broker = broker_at(url, publish_deadline_seconds=0.5)
        async with opened(broker):
            await broker.declare(QUEUE)
            inbox = Inbox(broker)
            await broker.subscribe(QUEUE, 1, inbox, inbox.lost)
            await put(broker, QUEUE, b"1", b"2")
            await inbox.wait(1)

            await asyncio.to_thread(node.set_memory_alarm, True)
            outcomes = Outcomes()
            outcomes.publish(broker, QUEUE, b"3")
            await until(lambda: broker.state is BrokerState.BLOCKED, "blocked")
            inbox.ack()
            await inbox.wait(2)
            await asyncio.sleep(0.8)
            assert outcomes.errors == []
            assert broker.state is BrokerState.BLOCKED
            assert await broker.depth(QUEUE) is not None

            await asyncio.to_thread(node.set_memory_alarm, False)
            assert await outcomes.wait(1) == [None]
            assert broker.state is BrokerState.CONNECTED
            assert inbox.losses == 0
            assert f"{broker.address} takes messages again" in caplog.messages

    asyncio.run(scene())


def test_closing_under_an_alarm_ends_soon_and_answers_what_is_open(node: RabbitMQNode, url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        await broker.open(15)
        await broker.declare(QUEUE)
        await asyncio.to_thread(node.set_memory_alarm, True)
        outcomes = Outcomes()
        outcomes.publish(broker, QUEUE, b"1")
        await until(lambda: broker.state is BrokerState.BLOCKED, "blocked")
        async with asyncio.timeout(12):
            await broker.close()
        (error,) = await outcomes.wait(1)
        assert isinstance(error, NotConnectedError)

    asyncio.run(scene())


def test_a_frozen_broker_costs_the_deadline_and_then_all_goes_on(node: RabbitMQNode, url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url, publish_deadline_seconds=0.5, heartbeat_seconds=1)
        async with opened(broker):
            await broker.declare(QUEUE)
            inbox = Inbox(broker, ack=True)
            await broker.subscribe(QUEUE, 5, inbox, inbox.lost)
            node.freeze()
            try:
                outcomes = Outcomes()
                outcomes.publish(broker, QUEUE, b"1", b"2")
                errors = await outcomes.wait(2)
                assert all(isinstance(error, NotConnectedError) for error in errors)
                assert broker.state is BrokerState.DISCONNECTED
                await until(lambda: inbox.losses == 1, "the missed heartbeats of the other connection")
            finally:
                node.thaw()
            await until(lambda: broker.state is BrokerState.CONNECTED, "the link again", seconds=60)
            await put(broker, QUEUE, b"3")
            await until(lambda: b"3" in inbox.bodies, "the message after it", seconds=60)

    asyncio.run(scene())


def test_a_link_that_hangs_on_a_deleted_queue_is_broken_when_that_is_noticed(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        broker, replies = broker_at(url), reply_queue("hangs", 1)
        async with opened(broker):
            await broker.declare(replies)
            await put(broker, replies, b"1")
            # As 3.10 does by itself, sometimes, when a queue holds a link up and is deleted.
            await asyncio.to_thread(node.hang_channel, url, "overnight publishes")
            outcomes = Outcomes()
            outcomes.publish(broker, replies, b"2")
            await broker.delete(replies)
            began = asyncio.get_running_loop().time()

            async def is_broken() -> bool:
                assert await broker.depth(replies) is None
                return bool(outcomes.errors)

            await until_async(is_broken, "the end of the link")
            assert asyncio.get_running_loop().time() - began < 5
            assert isinstance(outcomes.errors[0], NotConnectedError)
            await until(lambda: broker.state is BrokerState.CONNECTED, "the link again")
            outcomes.publish(broker, replies, b"2")
            assert isinstance((await outcomes.wait(2))[1], UnroutableError)

    asyncio.run(scene())


def test_a_server_that_accepts_and_says_nothing_costs_the_deadline_only() -> None:
    async def scene() -> None:
        kept: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _reader, writer: kept.append(writer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        broker = broker_at(f"amqp://guest:secret@127.0.0.1:{port}/")
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(BrokerUnreachableError, match=f"127.0.0.1:{port}"):
            await broker.open(0.5)
        assert loop.time() - began < 5
        for writer in kept:
            writer.close()
        server.close()
        await server.wait_closed()

    asyncio.run(scene())


def test_nobody_there_is_said_after_the_deadline_with_the_address_and_without_the_password() -> None:
    broker = broker_at("amqp://guest:hushhush@127.0.0.1:1/")
    with pytest.raises(BrokerUnreachableError) as caught:
        asyncio.run(broker.open(0.5))
    assert "127.0.0.1:1" in str(caught.value)
    assert "hushhush" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda url: url.replace("guest:guest", "guest:hushhush"), "ACCESS_REFUSED"),
        (lambda url: url + "-missing", "vhost"),
    ],
    ids=["wrong password", "wrong virtual host"],
)
def test_a_refusal_is_said_at_once_with_its_reason(url: str, change: object, word: str) -> None:
    async def scene() -> None:
        broker = broker_at(change(url))  # type: ignore[operator]
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(BrokerUnreachableError, match=word) as caught:
            await broker.open(30)
        assert loop.time() - began < 10
        assert "hushhush" not in str(caught.value)
        assert broker.state is BrokerState.DISCONNECTED

    asyncio.run(scene())


def test_a_queue_deleted_under_a_consumer_is_noticed_and_taken_up_again_when_it_is_back(url: str) -> None:
    async def scene() -> None:
        broker, other = broker_at(url), broker_at(url)
        async with opened(broker, other):
            await broker.declare(QUEUE)
            inbox = Inbox(broker)
            subscription = await broker.subscribe(QUEUE, 3, inbox, inbox.lost)
            await put(broker, QUEUE, b"1")
            (void,) = await inbox.wait(1)

            await other.delete(QUEUE)
            await until(lambda: inbox.losses == 1, "the loss")
            assert not subscription.active
            assert broker.state is BrokerState.CONNECTED
            outcomes = Outcomes()
            outcomes.publish(broker, QUEUE, b"nowhere")
            (error,) = await outcomes.wait(1)
            assert isinstance(error, UnroutableError)

            await other.declare(QUEUE)
            broker.ack(void)
            await put(other, QUEUE, b"2")
            await inbox.wait(2)
            assert inbox.bodies == [b"1", b"2"]
            assert subscription.active

    asyncio.run(scene())


def test_a_delivery_that_the_broker_takes_back_after_its_timeout_is_noticed_and_comes_again(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            declare_with_timeout(url, QUEUE, 1000)
            # Up to 4.2 the timeout closes the channel and nothing else, later it cancels the consumer only.
            node.set_ack_timeout(1.0)
            try:
                inbox = Inbox(broker)
                subscription = await broker.subscribe(QUEUE, 1, inbox, inbox.lost)
                await put(broker, QUEUE, b"1")
                await until(lambda: inbox.losses == 1, "the closed channel, or the cancelled consumer")
            finally:
                node.set_ack_timeout(None)
            assert broker.state is BrokerState.CONNECTED
            await inbox.wait(2)
            inbox.ack()
            await until_async(lambda: unacked_is(node, url, QUEUE, 0), "the ack")
            assert subscription.active

    asyncio.run(scene())


def test_a_listener_that_fails_harms_nobody_else(url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        failures: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))

        def fail(_anything: object) -> None:
            raise RuntimeError("a listener's own fault")

        async with opened(broker):
            await broker.declare(QUEUE)
            outcomes = Outcomes()
            broker.publish(QUEUE, message(b"1"), fail)
            outcomes.publish(broker, QUEUE, b"2")
            assert await outcomes.wait(1) == [None]
            await broker.subscribe(QUEUE, 2, fail, lambda: None)
            await until(lambda: len(failures) == 3, "three failures")
            assert broker.state is BrokerState.CONNECTED

    asyncio.run(scene())


def test_no_password_is_in_any_message_or_log_line(
    node: RabbitMQNode, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("pika").setLevel(logging.DEBUG)
    secret_url = node.user(url, configure=".*")
    secret = urlsplit(secret_url).password
    assert secret

    async def scene() -> None:
        broker = broker_at(secret_url)
        assert secret not in broker.address + repr(broker)
        async with opened(broker):
            await broker.declare(QUEUE)
            await asyncio.to_thread(node.close_connections)
            await until(lambda: broker.state is BrokerState.DISCONNECTED, "the loss")
            await until(lambda: broker.state is BrokerState.CONNECTED, "the link again")

    try:
        asyncio.run(scene())
    finally:
        logging.getLogger("pika").setLevel(logging.CRITICAL)
    with pytest.raises(BadInputError) as caught:
        broker_at(f"amqp://user:{secret}@host:notaport/")
    assert secret not in str(caught.value)
    assert "overnight.broker" in {record.name for record in caplog.records}
    assert secret not in caplog.text


def test_each_change_of_state_is_one_line_in_the_log(
    node: RabbitMQNode, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="overnight.broker")

    async def scene() -> str:
        broker = broker_at(url)
        async with opened(broker):
            await asyncio.to_thread(node.close_connections)
            await until(lambda: broker.state is BrokerState.DISCONNECTED, "the loss")
            await until(lambda: broker.state is BrokerState.CONNECTED, "the link again")
            return f"{broker.address},"

    host = asyncio.run(scene())
    lines = [record.message for record in caplog.records if record.name == "overnight.broker"]
    lines = [line for line in lines if "consumer_timeout" not in line]
    assert [" ".join(line.split()[:2]) for line in lines] == [
        "connected to",
        f"lost {host}",
        "connected again",
    ]
    assert "closed by the test" in lines[1]


@pytest.mark.parametrize("role", ["consumes", "publishes"])
def test_a_service_works_again_when_only_one_of_its_two_connections_was_lost(
    node: RabbitMQNode, url: str, role: str
) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await broker.declare(QUEUE)
            inbox = Inbox(broker, ack=True)
            await broker.subscribe(QUEUE, 1, inbox, inbox.lost)

            assert await asyncio.to_thread(node.close_connections, only=f"overnight {role}") == 1

            await until(lambda: broker.state is BrokerState.DISCONNECTED, "the loss")
            await until(lambda: broker.state is BrokerState.CONNECTED, "both connections")
            await put(broker, QUEUE, b"1")
            await inbox.wait(1)

    asyncio.run(scene())
