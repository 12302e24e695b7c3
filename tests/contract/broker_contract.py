"""Say what every broker must do; a subclass names the backend by its `broker_url` fixture."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from overnight_common.brokers.base import DEAD_QUEUE, Broker, BrokerState, reply_queue, task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.dead_letters import bury
from overnight_common.errors import NotConnectedError, TooLargeError, UnroutableError
from support.broker_use import (
    PATIENCE_SECONDS,
    Inbox,
    Outcomes,
    linger,
    message,
    opened,
    put,
    until,
    until_async,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    MakeBroker = Callable[[], Broker]

TASKS = task_queue("contract")
OTHER = task_queue("contract-other")
REPLIES = reply_queue("job", 1)
TESTS_FOLDER = Path(__file__).parents[1]
MAX_BYTES = 8 * 1024 * 1024


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@contextlib.contextmanager
def holding_consumer(url: str, prefetch: int, home: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a real consumer process that holds `prefetch` messages of TASKS; kill it at the end."""
    call = [sys.executable, "-m", "support.holding_consumer", url, TASKS, str(prefetch), str(home)]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True, cwd=TESTS_FOLDER)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None

    def read() -> None:
        assert process.stdout is not None
        for found in process.stdout:
            if found.strip() == line:
                return
        raise AssertionError(f"the consumer ended before it said {line!r}")

    await asyncio.wait_for(asyncio.to_thread(read), PATIENCE_SECONDS)


class BrokerContract:
    """Hold a broker to the words of `brokers.base`."""

    @pytest.fixture
    def broker_url(self, tmp_path: Path) -> str:
        """Return an address at which nothing exists yet."""
        raise NotImplementedError

    @pytest.fixture
    def make_broker(self, broker_url: str, tmp_path: Path) -> MakeBroker:
        """Return a function that gives one more broker, not opened, to the same backend."""
        return lambda: open_broker(broker_url, tmp_path, max_message_bytes=MAX_BYTES)

    # Opening and closing.

    def test_state_and_listeners_follow_opening_and_closing(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker = make_broker()
            heard: list[BrokerState] = []
            broker.on_state(heard.append)
            assert broker.state is BrokerState.DISCONNECTED
            async with opened(broker):
                assert broker.state is BrokerState.CONNECTED
                assert broker.server
                assert broker.address
            assert broker.state is BrokerState.DISCONNECTED
            assert heard == [BrokerState.CONNECTED, BrokerState.DISCONNECTED]

        asyncio.run(run())

    def test_closing_twice_or_before_opening_is_harmless(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            await make_broker().close()
            broker = make_broker()
            await broker.open(PATIENCE_SECONDS)
            await broker.close()
            await broker.close()

        asyncio.run(run())

    def test_a_publish_without_a_link_is_settled_as_not_connected(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker, outcomes = make_broker(), Outcomes()
            outcomes.publish(broker, TASKS, b"before")
            assert isinstance((await outcomes.wait(1))[0], NotConnectedError)
            async with opened(broker):
                await broker.declare(TASKS)
            outcomes.publish(broker, TASKS, b"after")
            assert isinstance((await outcomes.wait(2))[1], NotConnectedError)
            assert not outcomes.inside

        asyncio.run(run())

    def test_a_publish_still_unconfirmed_at_close_is_settled_exactly_once(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            broker, reader, outcomes = make_broker(), make_broker(), Outcomes()
            async with opened(reader):
                async with opened(broker):
                    await broker.declare(TASKS)
                    outcomes.publish(broker, TASKS, *numbered(200))
                    assert outcomes.errors == []
                await asyncio.sleep(0.2)
                assert len(outcomes.errors) == 200
                assert all(error is None or isinstance(error, NotConnectedError) for error in outcomes.errors)
                depth = await reader.depth(TASKS)
                assert depth is not None
                assert depth.ready >= outcomes.errors.count(None)  # what was confirmed is there

        asyncio.run(run())

    def test_close_sends_acks_and_gives_back_what_is_held(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            first, second = make_broker(), make_broker()
            async with opened(second):
                async with opened(first):
                    await first.declare(TASKS)
                    await put(first, TASKS, *numbered(10))
                    inbox = Inbox(first)
                    await first.subscribe(TASKS, 8, inbox, inbox.lost)
                    await inbox.wait(8)
                    inbox.ack(*inbox.held[:5])
                again = Inbox(second, ack=True)
                await second.subscribe(TASKS, 10, again, again.lost)
                await again.wait(5)
                await linger(second, TASKS)
                assert sorted(again.bodies, key=int) == numbered(5, start=5)

        asyncio.run(run())

    # Queues.

    def test_declaring_twice_keeps_what_is_there(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            first, second = make_broker(), make_broker()
            async with opened(first, second):
                for queue in (TASKS, REPLIES, DEAD_QUEUE):
                    await first.declare(queue)
                    await put(first, queue, b"1")
                    await first.declare(queue)
                    await second.declare(queue)
                    depth = await second.depth(queue)
                    assert depth is not None
                    assert depth.ready == 1

        asyncio.run(run())

    def test_a_deleted_queue_is_gone_with_all_it_held(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker, outcomes = make_broker(), Outcomes()
            async with opened(broker):
                await broker.declare(REPLIES)
                await put(broker, REPLIES, b"1")
                await broker.delete(REPLIES)
                assert await broker.depth(REPLIES) is None
                outcomes.publish(broker, REPLIES, b"2")
                assert isinstance((await outcomes.wait(1))[0], UnroutableError)
                await broker.declare(REPLIES)
                depth = await broker.depth(REPLIES)
                assert depth is not None
                assert depth.ready == 0

        asyncio.run(run())

    def test_deleting_what_is_not_there_is_no_error_and_its_depth_is_none(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.delete(TASKS)
                assert await broker.depth(TASKS) is None
                await broker.declare(TASKS)  # the failed looks have harmed nothing
                await put(broker, TASKS, b"1")

        asyncio.run(run())

    def test_depth_counts_ready_and_where_it_is_told_unacked_and_consumers(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            consumer, looker = make_broker(), make_broker()
            async with opened(consumer, looker):
                await consumer.declare(TASKS)
                await put(consumer, TASKS, *numbered(10))
                inbox = Inbox(consumer)
                subscription = await consumer.subscribe(TASKS, 4, inbox, inbox.lost)
                await inbox.wait(4)

                async def seen(ready: int, unacked: int, consumers: int) -> bool:
                    depth = await looker.depth(TASKS)
                    assert depth is not None
                    return (
                        depth.ready == ready
                        and depth.unacked in (None, unacked)
                        and depth.consumers in (None, consumers)
                    )

                await until_async(lambda: seen(6, 4, 1), "6 ready, 4 un-acked, 1 consumer")
                subscription.set_prefetch(0)
                inbox.ack(*inbox.held[:3])
                await until_async(lambda: seen(6, 1, 1), "6 ready, 1 un-acked, 1 consumer")
                await subscription.cancel()
                inbox.ack()  # a quorum queue counts a consumer as long as it holds something
                await until_async(lambda: seen(6, 0, 0), "no consumer")

        asyncio.run(run())

    # Publishing.

    def test_messages_survive_whole_and_in_order(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            publisher, consumer = make_broker(), make_broker()
            bodies = [b"", bytes(range(256)), b"\x00" * 1000, "Ωλ".encode(), *numbered(50)]
            headers = {"reason": "a b ü 漢", "count": 7, "big": 2**40, "below": -1, "empty": ""}
            async with opened(publisher, consumer):
                await publisher.declare(TASKS)
                await put(publisher, TASKS, *bodies, type="probe", message_id="job 0-5 ü", headers=headers)
                inbox = Inbox(consumer, ack=True)
                await consumer.subscribe(TASKS, 100, inbox, inbox.lost)
                await inbox.wait(len(bodies))
                assert inbox.bodies == bodies
                for delivery in inbox.deliveries:
                    assert delivery.queue == TASKS
                    assert delivery.delivery_count == 0
                    assert delivery.message.type == "probe"
                    assert delivery.message.message_id == "job 0-5 ü"
                    assert dict(delivery.message.headers) == headers

        asyncio.run(run())

    def test_five_thousand_messages_in_one_go_are_all_confirmed_and_arrive_in_order(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            broker, outcomes = make_broker(), Outcomes()
            async with opened(broker):
                await broker.declare(TASKS)
                outcomes.publish(broker, TASKS, *numbered(5000))
                assert outcomes.errors == []
                inbox = Inbox(broker, ack=True)
                await broker.subscribe(TASKS, 200, inbox, inbox.lost)
                assert await outcomes.wait(5000) == [None] * 5000
                await inbox.wait(5000)
                assert inbox.bodies == numbered(5000)
                await linger(broker, TASKS)
                assert len(outcomes.errors) == 5000

        asyncio.run(run())

    def test_a_message_that_is_not_persistent_arrives_too(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.declare(REPLIES)
                await put(broker, REPLIES, b"still running", type="reply", persistent=False)
                inbox = Inbox(broker, ack=True)
                await broker.subscribe(REPLIES, 1, inbox, inbox.lost)
                await inbox.wait(1)

        asyncio.run(run())

    def test_a_message_for_no_queue_is_unroutable_and_harms_no_other(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker, lost, fine = make_broker(), Outcomes(), Outcomes()
            async with opened(broker):
                await broker.declare(TASKS)
                fine.publish(broker, TASKS, b"1")
                lost.publish(broker, OTHER, b"nowhere")
                lost.publish(broker, reply_queue("no-such-job", 3), b"nowhere")
                fine.publish(broker, TASKS, b"2")
                assert await fine.wait(2) == [None, None]
                assert [type(error) for error in await lost.wait(2)] == [UnroutableError] * 2
                assert await broker.depth(OTHER) is None

        asyncio.run(run())

    def test_the_largest_message_passes_and_one_byte_more_is_refused(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker, outcomes = make_broker(), Outcomes()
            largest = bytes(range(256)) * (MAX_BYTES // 256)
            async with opened(broker):
                await broker.declare(TASKS)
                outcomes.publish(broker, TASKS, largest + b"x")
                (error,) = await outcomes.wait(1)
                assert isinstance(error, TooLargeError)
                assert str(MAX_BYTES) in str(error)
                assert str(MAX_BYTES + 1) in str(error)
                assert not outcomes.inside
                await put(broker, TASKS, largest)
                inbox = Inbox(broker, ack=True)
                await broker.subscribe(TASKS, 1, inbox, inbox.lost)
                await inbox.wait(1)
                assert inbox.bodies == [largest]

        asyncio.run(run())

    def test_callbacks_never_come_from_within_a_call(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker = make_broker()
            inside = [False]
            faults: list[str] = []

            def check(what: str) -> None:
                if inside[0]:
                    faults.append(what)

            async with opened(broker):
                await broker.declare(TASKS)
                inbox = Inbox(broker)

                def deliver(delivery: object) -> None:
                    check("on_delivery")
                    inbox(delivery)  # type: ignore[arg-type]

                subscription = await broker.subscribe(TASKS, 1, deliver, inbox.lost)
                for number in range(20):
                    inside[0] = True
                    broker.publish(TASKS, message(b"%d" % number), lambda _: check("on_settled"))
                    broker.publish(OTHER, message(), lambda _: check("on_settled"))
                    inside[0] = False
                for number in range(20):
                    await inbox.wait(number + 1)
                    inside[0] = True
                    inbox.ack()
                    subscription.set_prefetch(2)
                    subscription.set_prefetch(1)
                    inside[0] = False
                assert faults == []

        asyncio.run(run())

    def test_what_is_published_later_arrives_promptly_from_here_and_from_elsewhere(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            broker, other = make_broker(), make_broker()
            async with opened(broker, other):
                await broker.declare(TASKS)
                inbox = Inbox(broker, ack=True)
                subscription = await broker.subscribe(TASKS, 5, inbox, inbox.lost)
                assert subscription.active
                await asyncio.sleep(0.5)  # long enough for an idle broker to look around less often
                for number, publisher in enumerate((broker, other, broker, other), start=1):
                    started = time.monotonic()
                    await put(publisher, TASKS, b"%d" % number)
                    await inbox.wait(number, seconds=1)
                    assert time.monotonic() - started < 1

        asyncio.run(run())

    def test_a_subscriber_in_another_process_gets_what_is_published_here(
        self, make_broker: MakeBroker, broker_url: str, tmp_path: Path
    ) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.declare(TASKS)
                with holding_consumer(broker_url, 1, tmp_path) as process:
                    await read_until(process, "subscribed")
                    await asyncio.sleep(0.5)
                    started = time.monotonic()
                    await put(broker, TASKS, b"1")
                    await read_until(process, "holding 1")
                    assert time.monotonic() - started < 1

        asyncio.run(run())

    # Taking, holding and settling.

    def test_prefetch_is_held_exactly(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.declare(TASKS)
                inbox = Inbox(broker)
                await broker.subscribe(TASKS, 3, inbox, inbox.lost)
                await put(broker, TASKS, *numbered(30))
                for settled in range(10):
                    await inbox.wait(3 + settled)
                    await linger(broker, TASKS)
                    assert inbox.bodies == numbered(3 + settled)
                    inbox.ack(inbox.held[settled % 3])
                assert inbox.most_held == 3

        asyncio.run(run())

    def test_prefetch_can_be_raised_and_lowered_while_deliveries_are_held(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.declare(TASKS)
                await put(broker, TASKS, *numbered(40))
                inbox = Inbox(broker)
                subscription = await broker.subscribe(TASKS, 2, inbox, inbox.lost)
                await inbox.wait(2)
                subscription.set_prefetch(6)
                await inbox.wait(6)
                await linger(broker, TASKS)
                assert len(inbox.held) == 6
                subscription.set_prefetch(3)
                await linger(broker, TASKS)
                inbox.ack(*inbox.held[:3])
                await linger(broker, TASKS)
                assert len(inbox.deliveries) == 6  # three are still held: nothing new
                inbox.ack(inbox.held[0])
                await inbox.wait(7)
                await linger(broker, TASKS)
                assert len(inbox.held) == 3
                subscription.set_prefetch(0)
                inbox.ack()
                await linger(broker, TASKS)
                assert len(inbox.deliveries) == 7
                subscription.set_prefetch(4)
                await inbox.wait(11)
                await linger(broker, TASKS)
                assert len(inbox.held) == 4
                assert inbox.bodies == numbered(11)
                assert inbox.losses == 0

        asyncio.run(run())

    def test_a_message_handed_back_comes_again(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker, other = make_broker(), make_broker()
            async with opened(broker, other):
                await broker.declare(TASKS)
                await put(broker, TASKS, *numbered(6))
                inbox = Inbox(broker)
                subscription = await broker.subscribe(TASKS, 4, inbox, inbox.lost)
                await inbox.wait(4)
                subscription.set_prefetch(0)
                inbox.hand_back(*inbox.held[2:])
                again = Inbox(other)
                await other.subscribe(TASKS, 10, again, again.lost)
                await again.wait(4)
                await linger(other, TASKS)
                assert sorted(again.bodies, key=int) == numbered(4, start=2)
                # Up to RabbitMQ 4.2 a hand-back is counted as a failed delivery.
                assert {delivery.delivery_count for delivery in again.deliveries} <= {0, 1}
                assert [delivery.message.body for delivery in inbox.held] == numbered(2)

        asyncio.run(run())

    def test_settling_twice_changes_nothing(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.declare(TASKS)
                await put(broker, TASKS, *numbered(3))
                inbox = Inbox(broker)
                subscription = await broker.subscribe(TASKS, 2, inbox, inbox.lost)
                first, second = (await inbox.wait(2))[:2]
                subscription.set_prefetch(1)
                for _ in range(3):
                    broker.ack(first)
                    broker.hand_back(first)
                await linger(broker, TASKS)
                assert inbox.bodies == numbered(2)  # the second is held, and prefetch is one
                broker.ack(second)
                broker.ack(second)
                await inbox.wait(3)
                await linger(broker, TASKS)
                assert inbox.bodies == numbered(3)
                assert subscription.active

        asyncio.run(run())

    def test_after_a_cancel_nothing_comes_and_what_is_held_can_be_settled(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            broker, other = make_broker(), make_broker()
            async with opened(broker, other):
                await broker.declare(TASKS)
                await put(broker, TASKS, *numbered(6))
                inbox = Inbox(broker)
                subscription = await broker.subscribe(TASKS, 3, inbox, inbox.lost)
                await inbox.wait(3)
                await subscription.cancel()
                assert not subscription.active
                inbox.ack(inbox.held[0])
                inbox.hand_back(inbox.held[0])
                await linger(broker, TASKS)
                assert inbox.bodies == numbered(3)
                again = Inbox(other)
                await other.subscribe(TASKS, 10, again, again.lost)
                await again.wait(4)
                await linger(other, TASKS)
                assert sorted(again.bodies, key=int) == [b"1", b"3", b"4", b"5"]
                broker.ack(inbox.held[0])
                await broker.depth(TASKS)
            assert inbox.losses == 0

        asyncio.run(run())

    def test_one_broker_subscribes_to_several_queues_with_a_limit_each(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                for queue in (TASKS, OTHER):
                    await broker.declare(queue)
                    await put(broker, queue, *numbered(10))
                one, two = Inbox(broker), Inbox(broker)
                await broker.subscribe(TASKS, 2, one, one.lost)
                await broker.subscribe(OTHER, 5, two, two.lost)
                await one.wait(2)
                await two.wait(5)
                await linger(broker, TASKS)
                assert (len(one.held), len(two.held)) == (2, 5)
                assert {delivery.queue for delivery in two.deliveries} == {OTHER}

        asyncio.run(run())

    def test_two_consumers_share_fairly(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            publisher, *consumers = (make_broker() for _ in range(3))
            async with opened(publisher, *consumers):
                await publisher.declare(TASKS)
                inboxes = [Inbox(consumer, ack=True) for consumer in consumers]
                for consumer, inbox in zip(consumers, inboxes, strict=True):
                    await consumer.subscribe(TASKS, 4, inbox, inbox.lost)
                await put(publisher, TASKS, *numbered(2000))
                await until(lambda: sum(len(inbox.bodies) for inbox in inboxes) >= 2000, "2000 deliveries")
                await linger(publisher, TASKS)
                assert sorted(inboxes[0].bodies + inboxes[1].bodies, key=int) == numbered(2000)
                assert min(len(inbox.bodies) for inbox in inboxes) >= 400
                for inbox in inboxes:
                    assert inbox.bodies == sorted(inbox.bodies, key=int)

        asyncio.run(run())

    # Losing.

    def test_a_killed_consumer_loses_nothing_and_its_deliveries_are_counted(
        self, make_broker: MakeBroker, broker_url: str, tmp_path: Path
    ) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.declare(TASKS)
                await put(broker, TASKS, *numbered(5))
                with holding_consumer(broker_url, 3, tmp_path) as process:
                    await read_until(process, "holding 3")
                    inbox = Inbox(broker, ack=True)
                    await broker.subscribe(TASKS, 10, inbox, inbox.lost)
                    await inbox.wait(2)
                    await linger(broker, TASKS)
                    assert sorted(inbox.bodies) == [b"3", b"4"]
                    process.send_signal(signal.SIGKILL)
                    started = time.monotonic()
                    await inbox.wait(5)
                    assert time.monotonic() - started < 2
                counts = {d.message.body: d.delivery_count for d in inbox.deliveries}
                assert counts == {b"0": 1, b"1": 1, b"2": 1, b"3": 0, b"4": 0}

        asyncio.run(run())

    def test_the_delivery_count_grows_with_each_consumer_that_dies(
        self, make_broker: MakeBroker, broker_url: str, tmp_path: Path
    ) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.declare(TASKS)
                await put(broker, TASKS, b"poison")
                for _ in range(3):
                    with holding_consumer(broker_url, 1, tmp_path) as process:
                        await read_until(process, "holding 1")
                inbox = Inbox(broker, ack=True)
                await broker.subscribe(TASKS, 1, inbox, inbox.lost)
                await inbox.wait(1)
                assert inbox.deliveries[0].delivery_count == 3

        asyncio.run(run())

    def test_a_queue_deleted_under_a_consumer_is_told_and_taken_up_again_when_it_is_back(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            driver, consumer = make_broker(), make_broker()
            async with opened(driver, consumer):
                await driver.declare(REPLIES)
                await driver.declare(TASKS)
                await put(driver, REPLIES, *numbered(3))
                inbox, others = Inbox(consumer), Inbox(consumer, ack=True)
                subscription = await consumer.subscribe(REPLIES, 2, inbox, inbox.lost)
                await consumer.subscribe(TASKS, 2, others, others.lost)
                held = list(await inbox.wait(2))
                await driver.delete(REPLIES)
                await until(lambda: inbox.losses == 1, "on_lost")
                assert not subscription.active
                for delivery in held:  # void now: must harm neither the link nor a later message
                    consumer.ack(delivery)
                    consumer.hand_back(delivery)
                outcomes = Outcomes()
                outcomes.publish(consumer, REPLIES, b"too late")
                assert isinstance((await outcomes.wait(1))[0], UnroutableError)
                assert await consumer.depth(REPLIES) is None
                await put(driver, TASKS, b"unharmed")
                await others.wait(1)
                await driver.declare(REPLIES)
                await put(driver, REPLIES, b"new")
                await inbox.wait(3)
                assert inbox.bodies[2:] == [b"new"]
                assert subscription.active
                for delivery in held:
                    consumer.ack(delivery)
                await linger(consumer, REPLIES)
                assert inbox.losses == 1
                assert others.losses == 0
                depth = await driver.depth(REPLIES)
                assert depth is not None
                assert depth.unacked in (None, 1)

        asyncio.run(run())

    def test_a_callback_that_raises_does_not_stop_the_others(self, make_broker: MakeBroker) -> None:
        async def run() -> None:
            broker = make_broker()
            faults: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
            async with opened(broker):
                await broker.declare(TASKS)
                inbox = Inbox(broker)

                def deliver(delivery: object) -> None:
                    inbox(delivery)  # type: ignore[arg-type]
                    if len(inbox.deliveries) == 1:
                        raise ValueError("a fault in the user's code")

                await broker.subscribe(TASKS, 5, deliver, inbox.lost)
                outcomes = Outcomes()
                broker.publish(TASKS, message(b"0"), lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
                outcomes.publish(broker, TASKS, b"1", b"2")
                assert await outcomes.wait(2) == [None, None]
                await inbox.wait(3)
                inbox.ack()
            assert inbox.losses == 0
            assert len(faults) == 2

        asyncio.run(run())

    # Dead letters.

    def test_a_buried_message_is_kept_with_the_reason_and_leaves_its_queue(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            broker, person = make_broker(), make_broker()
            async with opened(broker, person):
                await broker.declare(TASKS)
                await broker.declare(DEAD_QUEUE)
                await put(broker, TASKS, b"\xc1 not ours", headers={"origin": "elsewhere"}, type="strange")
                inbox = Inbox(broker)
                subscription = await broker.subscribe(TASKS, 1, inbox, inbox.lost)
                (delivery,) = await inbox.wait(1)
                bury(broker, delivery, "not a task: it does not decode")
                dead = Inbox(person, ack=True)
                await person.subscribe(DEAD_QUEUE, 1, dead, dead.lost)
                (letter,) = await dead.wait(1)
                assert letter.message.body == b"\xc1 not ours"
                assert letter.message.type == "dead"
                headers = dict(letter.message.headers)
                assert headers.pop("at")
                assert headers == {
                    "reason": "not a task: it does not decode",
                    "from_queue": TASKS,
                    "original_type": "strange",
                    "origin": "elsewhere",
                }
                await subscription.cancel()
                await linger(broker, TASKS)
                depth = await person.depth(TASKS)
                assert depth is not None
                assert (depth.ready, depth.unacked or 0) == (0, 0)

        asyncio.run(run())

    def test_a_message_that_cannot_be_buried_is_kept_without_a_hot_loop(
        self, make_broker: MakeBroker
    ) -> None:
        async def run() -> None:
            broker = make_broker()
            async with opened(broker):
                await broker.declare(TASKS)
                await put(broker, TASKS, b"strange")
                inbox = Inbox(broker)

                def deliver(delivery: object) -> None:
                    inbox(delivery)  # type: ignore[arg-type]
                    bury(broker, inbox.deliveries[-1], "no dead queue yet")

                await broker.subscribe(TASKS, 1, deliver, inbox.lost)
                await inbox.wait(1)
                await asyncio.sleep(0.5)
                assert len(inbox.deliveries) <= 2
                await broker.declare(DEAD_QUEUE)
                dead = Inbox(broker, ack=True)
                await broker.subscribe(DEAD_QUEUE, 5, dead, dead.lost)
                await dead.wait(1)
                assert dead.bodies == [b"strange"]

        asyncio.run(run())
