"""Break the link to RabbitMQ in every way we can think of, and see that nothing is lost and nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pika
import pytest

from overnight_common.brokers.base import DEAD_QUEUE, BrokerState, reply_queue, task_queue
from overnight_common.brokers.rabbitmq import RabbitMQBroker
from overnight_common.errors import (
    BadInputError,
    BrokerError,
    BrokerUnreachableError,
    NotConnectedError,
    QueueMismatchError,
    TooLargeError,
    UnroutableError,
)
from support.broker_use import Inbox, Outcomes, linger, message, opened, put, until, until_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight_common.errors import PublishError
    from support.rabbitmq import RabbitMQNode

pytestmark = pytest.mark.rabbitmq
QUEUE = task_queue("faults")


def broker_at(url: str, **settings: object) -> RabbitMQBroker:
    return RabbitMQBroker(url, max_message_bytes=1 << 20, **settings)  # type: ignore[arg-type]


@pytest.fixture
def node(private_rabbitmq: RabbitMQNode) -> Iterator[RabbitMQNode]:
    yield private_rabbitmq
    private_rabbitmq.set_memory_alarm(False)


@pytest.fixture
def url(node: RabbitMQNode) -> str:
    return node.vhost()


async def is_ready(broker: RabbitMQBroker, queue: str, ready: int) -> bool:
    depth = await broker.depth(queue)
    return depth is not None and depth.ready == ready


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
            for cut in range(6):
                for number in range(300):
                    send(b"%d-%d" % (cut, number))
                    if number % (cut + 2) == 0:
                        await asyncio.sleep(0)
                closed = await asyncio.to_thread(node.close_connections)
                assert closed >= 1
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


async def unacked_is(node: RabbitMQNode, url: str, queue: str, count: int) -> bool:
    return await asyncio.to_thread(unacked, node, url, queue) == count


def unacked(node: RabbitMQNode, url: str, queue: str) -> int:
    """Ask the queue itself: the metrics are seconds behind."""
    vhost = urlsplit(url).path[1:]
    return int(
        node.eval(
            f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{vhost}">>, queue, <<"{queue}">>}}), '
            "[{messages_unacknowledged, N}] = rabbit_amqqueue:info(Q, [messages_unacknowledged]), N."
        )
    )


def test_an_alarm_blocks_publishing_and_lets_acks_through(node: RabbitMQNode, url: str) -> None:
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


def test_a_channel_closed_by_the_broker_alone_is_noticed_and_opened_again(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await broker.declare(QUEUE)
            # Up to 4.2 a delivery that is held too long closes the channel and nothing else.
            node.eval(timeout_setting(500, 1000))
            try:
                inbox = Inbox(broker)
                subscription = await broker.subscribe(QUEUE, 1, inbox, inbox.lost)
                await put(broker, QUEUE, b"1")
                await until(lambda: inbox.losses == 1, "the closed channel")
            finally:
                node.eval(timeout_setting(60_000, 1_800_000))
            assert broker.state is BrokerState.CONNECTED
            await inbox.wait(2)
            inbox.ack()
            await until_async(lambda: unacked_is(node, url, QUEUE, 0), "the ack")
            assert subscription.active

    asyncio.run(scene())


def timeout_setting(tick_ms: int, timeout_ms: int) -> str:
    return (
        f"application:set_env(rabbit, channel_tick_interval, {tick_ms}), "
        f"application:set_env(rabbit, consumer_timeout, {timeout_ms}), ok."
    )


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


def test_a_message_over_the_servers_own_limit_is_too_large_and_costs_only_a_channel(
    node: RabbitMQNode, url: str
) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        node.eval("application:set_env(rabbit, max_message_size, 100000), ok.")
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
            node.eval("application:set_env(rabbit, max_message_size, 134217728), ok.")

    asyncio.run(scene())


def test_what_is_held_never_grows_beyond_the_prefetch_while_it_is_changed_under_load(url: str) -> None:
    async def scene() -> None:
        broker, source = broker_at(url), broker_at(url)
        dice = random.Random(7)
        count = 3000
        limit = 8
        seen: set[bytes] = set()
        held: list[object] = []
        excess: list[tuple[int, int]] = []
        allowed = limit

        def take(delivery: object) -> None:
            nonlocal allowed
            held.append(delivery)
            seen.add(delivery.message.body)  # type: ignore[attr-defined]
            allowed = max(limit, min(allowed, len(held) - 1))
            if len(held) > allowed:
                excess.append((len(held), allowed))

        async with opened(broker, source):
            await source.declare(QUEUE)
            subscription = await broker.subscribe(QUEUE, limit, take, lambda: None)
            outcomes = Outcomes()
            outcomes.publish(source, QUEUE, *(b"%d" % n for n in range(count)))
            while len(seen) < count or held:
                for _ in range(dice.randrange(5)):
                    if held:
                        settle = broker.hand_back if dice.random() < 0.1 else broker.ack
                        settle(held.pop(dice.randrange(len(held))))  # type: ignore[arg-type]
                if dice.random() < 0.1:
                    allowed = max(limit, len(held))
                    limit = dice.choice([0, 1, 2, 3, 8, 30, 100])
                    allowed = max(limit, len(held))
                    subscription.set_prefetch(limit)
                await asyncio.sleep(0)
                if len(seen) == count and not held:
                    break
                if len(held) == 0 and limit == 0:
                    limit = allowed = 4
                    subscription.set_prefetch(limit)
            assert excess == []
            assert await outcomes.wait(count) == [None] * count
            depth = await broker.depth(QUEUE)
            assert depth is not None

    asyncio.run(scene())


def test_raising_and_lowering_the_prefetch_lands_exactly_on_the_new_value(url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await broker.declare(QUEUE)
            await put(broker, QUEUE, *(b"%d" % n for n in range(100)))
            inbox = Inbox(broker)
            subscription = await broker.subscribe(QUEUE, 2, inbox, inbox.lost)
            await inbox.wait(2)
            for prefetch, total in [(7, 7), (20, 20)]:
                subscription.set_prefetch(prefetch)
                await inbox.wait(total)
                await linger(broker, QUEUE)
                assert len(inbox.held) == prefetch
            subscription.set_prefetch(5)
            inbox.ack(*inbox.held[4:])  # four stay held
            await inbox.wait(21)
            await linger(broker, QUEUE)
            assert len(inbox.held) == 5
            subscription.set_prefetch(0)
            inbox.ack()
            await linger(broker, QUEUE)
            assert inbox.held == []
            subscription.set_prefetch(3)
            await until(lambda: len(inbox.held) == 3, "three")
            await linger(broker, QUEUE)
            assert len(inbox.held) == 3

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

    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await asyncio.to_thread(node.close_connections)
            await until(lambda: broker.state is BrokerState.DISCONNECTED, "the loss")
            await until(lambda: broker.state is BrokerState.CONNECTED, "the link again")

    asyncio.run(scene())
    lines = [record.message for record in caplog.records if record.name == "overnight.broker"]
    lines = [line for line in lines if "ack timeout" not in line]
    assert [line.split()[0] for line in lines] == ["connected", "lost", "connected"]
    assert "closed by the test" in lines[1]
