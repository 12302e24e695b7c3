"""What happens to a task between its delivery and its ack, on a broker that breaks on command."""

import asyncio
import time
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from overnight_common.brokers.base import DEAD_QUEUE, BrokerState, Delivery, Message
from overnight_common.errors import BrokerError, BrokerUnreachableError, NotConnectedError, RefusedError
from overnight_common.messages import VERSION, Cause, Encoded, Task, decode_replies, encode
from overnight_consumer import intake as intake_module
from overnight_consumer import reply_queues, suspects
from overnight_consumer import tasks as tasks_module
from overnight_consumer.answers import reply_to
from overnight_consumer.deaths import Death
from overnight_consumer.frames import Answer
from overnight_consumer.held import Stage
from overnight_consumer.intake import Intake
from overnight_consumer.settings import RawSettings, validated
from overnight_consumer.slot_states import SlotState
from overnight_consumer.tasks import Tasks
from support.memory_broker import MemoryBroker

QUEUE, REPLIES = "overnight.tasks.default", "overnight.replies.job.1"


class FakeSlot:
    """A slot whose child is the test."""

    def __init__(self, number):
        self.number, self.state, self.held, self.start_failures = number, SlotState.FREE, None, 0
        self.abandoned = self.renewed = 0
        self.is_quiet, self.is_usable, self.given = True, True, []

    def run(self, held, *behind):
        self.state, self.held, self.given = SlotState.BUSY, held, list(behind)
        held.stage, held.slot, held.dispatched_at = Stage.RUNNING, self.number, time.monotonic()
        for each in behind:
            each.stage, each.slot = Stage.GIVEN, self.number

    def next(self):
        self.held = self.given.pop(0) if self.given else None
        if self.held is None:
            self.state = SlotState.FREE
        elif self.held.stage is Stage.GIVEN:
            self.held.stage, self.held.dispatched_at = Stage.RUNNING, time.monotonic()

    def recall(self):
        return list(self.given)

    def renew(self):
        self.renewed += 1
        self.state = SlotState.STARTING

    def abandon(self):
        self.abandoned += 1
        self.held = None


class Bench:
    """Tasks, slots and one intake on a memory broker."""

    def __init__(self, tmp_path, slots=1, max_message_bytes=8 * 2**20):
        raw = RawSettings(commands=("true",), source=tmp_path, slots=str(slots), name="me")
        self.broker = MemoryBroker(max_message_bytes)
        self.tasks = Tasks(validated(raw), self.broker)
        self.slots = [FakeSlot(number) for number in range(1, slots + 1)]
        self.intake = Intake(QUEUE, self.tasks.on_delivery, self.tasks.on_lost)
        self.tasks.serve(self.slots, [self.intake])
        self.prefetch = slots

    async def open(self, prefetch=None):
        for queue in (QUEUE, REPLIES, DEAD_QUEUE):
            await self.broker.declare(queue)
        self.broker.on_state(self.tasks.on_state)
        await self.intake.open(self.broker, prefetch or self.prefetch)
        for slot in self.slots:
            self.tasks.on_free(slot)

    def publish(self, start=0, attempt=1, reply=REPLIES, **fields):
        task = Task(
            VERSION, "job", reply, start, start + 1, attempt, "m", data=Encoded("json", b"[1]"), **fields
        )
        self.broker.publish(QUEUE, Message(encode(task), "task"), lambda _: None)
        return task

    def answer(self, slot, kind="done", cause=""):
        held = slot.held
        slot.next()
        body = reply_to(held.task, consumer="me", slot=slot.number)
        self.tasks.on_answer(slot, held, Answer(kind, cause, "note", 0.1, body))

    def delivery(self, start=0, count=0):
        """Return a delivery that was handed out so often before."""
        task = Task(VERSION, "job", REPLIES, start, start + 1, 1, "m", data=Encoded("json", b"[1]"))
        return Delivery(QUEUE, Message(encode(task), "task"), count, (self.intake._subscription, -1))

    @property
    def replies(self):
        return [reply for body in self.broker.bodies(REPLIES) for reply in decode_replies(body)]


async def settle():
    for _ in range(12):
        await asyncio.sleep(0)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_a_delivery_that_comes_before_the_subscription_is_returned_leaves_no_slot_idle(tmp_path):
    bench = Bench(tmp_path, slots=2)
    subscribe = bench.broker.subscribe

    async def slowly(*arguments):
        subscription = await subscribe(*arguments)
        await settle()
        return subscription

    async def run():
        bench.broker.subscribe = slowly
        await bench.broker.declare(QUEUE)
        for start in range(3):
            bench.publish(start)
        await bench.open()
        await settle()
        assert [slot.held is not None for slot in bench.slots] == [True, True]

    asyncio.run(run())


def test_a_task_is_acked_only_after_its_reply_is_confirmed(bench):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        bench.broker.hold_confirms = True
        bench.answer(bench.slots[0])
        await settle()
        assert len(bench.replies) == 1
        assert bench.broker.acked == []
        bench.broker.confirm()
        assert len(bench.broker.acked) == 1
        assert len(bench.tasks) == 0

    asyncio.run(run())


@pytest.mark.parametrize("error", [NotConnectedError("broke"), RefusedError("full")])
def test_a_reply_that_was_not_confirmed_is_published_again(bench, error):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        bench.broker.hold_confirms = True
        bench.answer(bench.slots[0])
        await settle()
        bench.broker.confirm(error)
        bench.broker.hold_confirms = False
        assert bench.broker.acked == []
        bench.tasks.outbox.flush()
        await settle()
        assert len(bench.replies) == 2
        assert len(bench.broker.acked) == 1

    asyncio.run(run())


def test_a_running_task_outlives_a_break_and_its_copy_is_acked_when_its_reply_is_confirmed(bench):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        bench.broker.break_link()
        assert bench.slots[0].state is SlotState.BUSY
        bench.broker.mend_link()
        await settle()
        assert len(bench.tasks) == 1
        bench.answer(bench.slots[0])
        await settle()
        assert [reply.kind for reply in bench.replies] == ["done"]
        assert [delivery.delivery_count for delivery in bench.broker.acked] == [1]
        assert bench.slots[0].held is None

    asyncio.run(run())


def test_a_reply_that_waits_for_the_link_goes_out_when_it_is_back_and_settles_the_copy(bench):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        bench.broker.break_link()
        bench.answer(bench.slots[0])
        await settle()
        assert bench.replies == []
        bench.broker.mend_link()
        await settle()
        assert len(bench.replies) == 1
        assert bench.slots[0].held is None or bench.slots[0].held.delivery_count == 1
        await settle()

    asyncio.run(run())


def test_what_has_not_started_is_dropped_at_a_break_and_comes_again(bench):
    async def run():
        await bench.open(prefetch=3)
        keys = [bench.publish(start).key for start in range(3)]
        await settle()
        assert len(bench.tasks) == 3
        bench.broker.break_link()
        assert len(bench.tasks) == 1
        bench.broker.mend_link()
        await settle()
        done = []
        while bench.slots[0].held is not None:
            done.append(bench.slots[0].held.task.key)
            bench.answer(bench.slots[0])
            await settle()
        assert done == keys
        assert len(bench.broker.acked) == 3

    asyncio.run(run())


def test_a_look_at_the_reply_queue_does_not_cost_a_round_trip_for_each_task(bench):
    async def run():
        await bench.open()
        for start in range(100):
            bench.publish(start)
        await settle()
        while bench.slots[0].held is not None:
            bench.answer(bench.slots[0])
            await settle()
        assert len(bench.broker.acked) == 100
        assert bench.broker.looks <= 3

    asyncio.run(run())


def test_a_deleted_reply_queue_drops_its_tasks_and_kills_the_running_one(bench, monkeypatch):
    monkeypatch.setattr(reply_queues, "MISS_APART_SECONDS", 0.0)

    async def run():
        await bench.open(prefetch=3)
        for start in range(3):
            bench.publish(start)
        await settle()
        await bench.broker.delete(REPLIES)
        for _ in range(2):
            bench.tasks.watch.ask(REPLIES)
            await settle()
        assert bench.slots[0].abandoned == 1
        assert len(bench.broker.acked) == 3
        assert len(bench.tasks) == 0
        assert bench.broker.bodies(DEAD_QUEUE) == []

    asyncio.run(run())


def test_a_cancel_under_which_only_the_publishing_connection_broke_is_still_a_cancel(bench, monkeypatch):
    monkeypatch.setattr(reply_queues, "MISS_APART_SECONDS", 0.0)

    async def run():
        await bench.open(prefetch=3)
        for start in range(3):
            bench.publish(start)
        await settle()
        bench.broker.hold_confirms = True
        bench.answer(bench.slots[0])
        await bench.broker.delete(REPLIES)
        bench.broker.set_state(BrokerState.DISCONNECTED)
        bench.broker.confirm(NotConnectedError("the server broke it"))
        bench.broker.set_state(BrokerState.CONNECTED)
        for _ in range(2):
            await settle()
            bench.tasks.watch.ask(REPLIES)
        await settle()
        assert bench.slots[0].abandoned == 1
        assert len(bench.broker.acked) == 3
        assert len(bench.tasks) == 0
        assert bench.broker.bodies(DEAD_QUEUE) == []

    asyncio.run(run())


def test_a_reply_queue_that_was_not_seen_on_this_connection_is_looked_for_at_once_and_is_no_cancel(
    bench, monkeypatch
):
    monkeypatch.setattr(reply_queues, "MISS_APART_SECONDS", 0.0)

    async def run():
        await bench.open()
        bench.publish()
        await settle()
        bench.broker.break_link()
        await bench.broker.delete(REPLIES)
        bench.broker.mend_link()
        looks = bench.broker.looks
        for _ in range(3):
            bench.tasks.tick(time.monotonic())
            await settle()
        assert bench.broker.looks > looks
        assert bench.slots[0].abandoned == 0
        await bench.broker.declare(REPLIES)
        bench.answer(bench.slots[0])
        await settle()
        assert len(bench.replies) == 1

    asyncio.run(run())


def test_a_reply_queue_that_we_may_not_look_at_is_told_once_and_its_tasks_wait(bench, caplog):
    async def refuse(queue):
        raise BrokerError(f"cannot look at {queue}: ACCESS_REFUSED")

    async def run():
        await bench.open()
        depth, bench.broker.depth = bench.broker.depth, refuse
        bench.publish()
        for _ in range(3):
            await settle()
            bench.tasks.tick(time.monotonic())
        assert bench.slots[0].held is None
        assert len(bench.tasks) == 1
        bench.broker.depth = depth
        await settle()
        bench.tasks.tick(time.monotonic())
        await settle()
        assert bench.slots[0].held is not None

    asyncio.run(run())
    (said,) = [each.message for each in caplog.records if "ACCESS_REFUSED" in each.message]
    assert REPLIES in said


def test_a_task_without_a_reply_queue_is_held_and_then_a_dead_letter(bench, monkeypatch):
    async def run():
        await bench.open(prefetch=2)
        lost = bench.publish(0, reply="overnight.replies.stranger.1")
        await settle()
        good = bench.publish(1)
        await settle()
        assert bench.slots[0].held.task.key == good.key
        assert bench.broker.bodies(DEAD_QUEUE) == []
        monkeypatch.setattr(reply_queues, "HOLD_SECONDS", 0.0)
        bench.tasks.watch.ask("overnight.replies.stranger.1")
        await settle()
        assert bench.broker.bodies(DEAD_QUEUE) == [encode(lost)]
        assert [delivery.message.body for delivery in bench.broker.acked] == [encode(lost)]

    asyncio.run(run())


def test_a_reply_without_a_queue_on_a_new_connection_becomes_a_dead_letter(bench, monkeypatch):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        bench.broker.break_link()
        await bench.broker.delete(REPLIES)
        bench.broker.mend_link()
        await settle()
        bench.answer(bench.slots[0])
        await settle()
        assert bench.broker.acked == []
        monkeypatch.setattr(reply_queues, "HOLD_SECONDS", 0.0)
        bench.tasks.watch.ask(REPLIES)
        await settle()
        (letter,) = bench.broker.bodies(DEAD_QUEUE)
        assert [reply.kind for reply in decode_replies(letter)] == ["done"]
        assert len(bench.broker.acked) == 1

    asyncio.run(run())


def test_a_reply_waits_for_its_queue_and_is_sent_when_it_is_there(bench):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        await bench.broker.delete(REPLIES)
        bench.answer(bench.slots[0])
        await settle()
        await bench.broker.declare(REPLIES)
        bench.tasks.watch.ask(REPLIES)
        await settle()
        bench.tasks.tick(time.monotonic())
        await settle()
        assert len(bench.replies) == 1
        assert len(bench.broker.acked) == 1

    asyncio.run(run())


def test_an_accusation_pauses_the_queue_hands_back_the_rest_and_replaces_the_child(bench):
    async def run():
        await bench.open(prefetch=3)
        keys = [bench.publish(start).key for start in range(3)]
        await settle()
        bench.answer(bench.slots[0], "failed", Cause.WRONG_FINGERPRINT.value)
        await settle()
        assert bench.slots[0].renewed == 1
        assert len(bench.broker.acked) == 1
        assert len(bench.broker.handed_back) == 2
        assert len(bench.tasks) == 0
        assert not bench.intake.ready
        now = time.monotonic()
        bench.tasks.tick(now + 0.9)
        await settle()
        assert len(bench.tasks) == 0
        bench.tasks.tick(now + 1.1)
        await settle()
        bench.slots[0].state = SlotState.FREE
        bench.tasks.on_free(bench.slots[0])
        await settle()
        assert bench.slots[0].held.task.key == keys[1]
        bench.answer(bench.slots[0], "failed", Cause.WRONG_FINGERPRINT.value)
        bench.tasks.tick(now + 1.5)
        await settle()
        assert not bench.intake.ready  # 2 s this time

    asyncio.run(run())


def test_a_long_task_sends_what_waits_behind_it_back_once(bench):
    async def run():
        await bench.open(prefetch=4)
        for start in range(6):
            bench.publish(start)
        await settle()
        assert len(bench.tasks) == 4
        now = time.monotonic()
        bench.tasks.tick(now + 0.9)
        assert len(bench.tasks) == 4
        bench.tasks.tick(now + 1.1)
        await settle()
        assert len(bench.tasks) == 1
        assert len(bench.broker.handed_back) == 3
        bench.tasks.tick(now + 1.4)
        await settle()
        assert len(bench.broker.handed_back) == 3

    asyncio.run(run())


def test_a_low_mean_brings_the_prefetch_down_only_when_it_stays(bench):
    async def run():
        await bench.open(prefetch=512)
        intake = bench.intake
        bench.tasks.on_delivery(intake, bench.delivery())
        assert intake.sight.prefetch == 512
        for now, wanted, prefetch in (
            (100.0, 6, 512),
            (104.9, 6, 512),
            (105.0, 100, 512),
            (106.0, 6, 512),
            (110.9, 6, 512),
            (111.0, 6, 6),
            (111.1, 512, 512),
        ):
            intake.want(wanted, now)
            assert (now, intake.sight.prefetch) == (now, prefetch)

    asyncio.run(run())


def test_deliveries_that_have_grown_heavy_are_fewer_at_once(bench):
    async def run():
        await bench.open(prefetch=512)
        intake = bench.intake
        bench.tasks.on_delivery(intake, bench.delivery())
        intake.want(100, 100.0, too_many=600)
        assert intake.sight.prefetch == 512
        intake.want(100, 100.1, too_many=300)
        assert intake.sight.prefetch == 100

    asyncio.run(run())


def test_what_waits_stays_while_a_slot_is_left_that_takes_it_soon(tmp_path):
    async def run():
        bench = Bench(tmp_path, slots=2)
        await bench.open(prefetch=6)
        for start in range(6):
            bench.publish(start)
        await settle()
        first, second = bench.slots
        began = time.monotonic()
        second.held.dispatched_at = began + 0.9
        bench.tasks.tick(began + 0.9)
        bench.tasks.tick(began + 1.1)
        assert first.held.long
        assert bench.broker.handed_back == []
        bench.tasks.tick(began + 1.5)
        bench.tasks.tick(began + 1.95)
        assert len(bench.broker.handed_back) == 4

    asyncio.run(run())


def test_a_consumer_that_was_held_up_itself_takes_no_task_for_a_long_one(bench):
    async def run():
        await bench.open(prefetch=4)
        for start in range(4):
            bench.publish(start)
        await settle()
        bench.tasks.tick(time.monotonic() + 3.0)  # its answer may lie in the socket
        assert bench.broker.handed_back == []
        bench.tasks.tick(time.monotonic() + 3.2)  # it does not
        assert len(bench.broker.handed_back) == 3

    asyncio.run(run())


def test_short_tasks_raise_the_prefetch(bench):
    async def run():
        await bench.open()
        for start in range(200):
            bench.publish(start)
        await settle()
        for _ in range(40):
            bench.answer(bench.slots[0])
            await settle()
        assert len(bench.tasks) > 20

    asyncio.run(run())


def test_a_running_task_is_reported_while_somebody_reads_and_the_link_is_up(bench):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        now = time.monotonic()
        for seconds in (4.8, 5.1, 20.0, 34.0, 35.2):
            bench.tasks.tick(now + seconds)
        assert [(reply.kind, round(reply.seconds)) for reply in bench.replies] == [
            ("running", 5),
            ("running", 35),
        ]
        assert not bench.broker.published[-1][1].persistent
        bench.broker.set_state(BrokerState.DISCONNECTED)
        bench.tasks.tick(now + 90)
        assert len(bench.replies) == 2

    asyncio.run(run())


def test_a_reply_that_the_broker_finds_too_large_becomes_a_failure(tmp_path):
    bench = Bench(tmp_path, max_message_bytes=900)

    async def run():
        await bench.open()
        bench.publish()
        await settle()
        slot = bench.slots[0]
        held = slot.held
        slot.next()
        bench.tasks.on_answer(slot, held, Answer("done", "", "", 0.1, b"x" * 1000))
        await settle()
        (reply,) = bench.replies
        assert reply.failure is not None
        assert reply.failure.cause is Cause.RESULT_TOO_LARGE
        assert "1000" in reply.failure.message
        assert "900" in reply.failure.message
        assert len(bench.broker.acked) == 1

    asyncio.run(run())


def test_when_no_child_can_be_started_tasks_are_answered_and_not_held(bench):
    async def run():
        await bench.open(prefetch=2)
        bench.tasks._free.clear()
        bench.publish(0)
        bench.publish(1)
        await settle()
        bench.slots[0].start_failures = 1
        bench.slots[0].state = SlotState.BACKOFF
        bench.tasks.on_start_failure(bench.slots[0], Death(1, 0, "no library"))
        await settle()
        (reply,) = bench.replies
        assert reply.failure is not None
        assert reply.failure.cause is Cause.START_FAILED
        assert reply.failure.stderr_tail == "no library"
        assert len(bench.broker.handed_back) == 1

    asyncio.run(run())


def test_the_death_of_a_child_is_answered_and_acked(bench):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        slot = bench.slots[0]
        held, slot.held, slot.state = slot.held, None, SlotState.STARTING
        bench.tasks.on_task_death(slot, held, Death(-9, 5 * 2**20, "", seconds=1.0))
        await settle()
        (reply,) = bench.replies
        assert (reply.kind, reply.slot, reply.peak_rss_bytes) == ("failed", 1, 5 * 2**20)
        assert len(bench.broker.acked) == 1

    asyncio.run(run())


def test_while_stopping_everything_that_still_comes_is_handed_back(bench):
    async def run():
        await bench.open(prefetch=2)
        bench.publish(0)
        bench.publish(1)
        await settle()
        bench.tasks.stop_taking()
        late = bench.broker.deliver_one(QUEUE, Message(encode(bench.publish(2)), "task"))
        await settle()
        bench.tasks.tick(time.monotonic() + 100)
        await settle()
        assert late in bench.broker.handed_back
        assert len(bench.broker.handed_back) == 2
        assert len(bench.tasks) == 1

    asyncio.run(run())


def test_a_consumer_that_stops_is_not_told_to_be_at_fault(bench):
    async def run():
        await bench.open()
        bench.tasks.stop_taking()
        bench.intake.resume_if_due(time.monotonic() + 1000, 1)
        sight = bench.intake.sight
        assert (sight.consuming, sight.paused, sight.prefetch) == (False, False, 0)

    asyncio.run(run())


def test_a_broker_that_cannot_hear_of_the_end_of_a_subscription_does_not_hold_us(bench, monkeypatch):
    async def run():
        await bench.open()
        monkeypatch.setattr(intake_module, "_CLOSE_SECONDS", 0.01)
        for cancel in (asyncio.Event().wait, partial(refuse, BrokerUnreachableError("the disk is full"))):
            bench.intake._subscription = SimpleNamespace(cancel=cancel)
            await bench.intake.close()

    async def refuse(error):
        raise error

    asyncio.run(run())


def test_a_copy_of_a_task_of_a_newer_version_takes_the_place_of_the_one_whose_link_broke(bench):
    async def run():
        await bench.open(prefetch=10)
        bench.broker.hold_confirms = True
        body = msgspec.msgpack.encode(
            {"v": VERSION + 1, "job": "job", "reply_to": REPLIES, "start": 0, "stop": 1, "attempt": 1}
        )
        bench.broker.publish(QUEUE, Message(body, "task"), lambda _: None)
        await settle()
        bench.tasks.on_lost(bench.intake)
        assert (len(bench.tasks), bench.tasks.deliveries) == (1, 0)
        copy = Delivery(QUEUE, Message(body, "task"), 1, (bench.intake._subscription, -1))
        bench.tasks.on_delivery(bench.intake, copy)
        assert (len(bench.tasks), bench.tasks.deliveries) == (1, 1)
        acked = []
        bench.broker.ack = acked.append
        bench.broker.confirm()
        assert acked == [copy]
        assert len(bench.tasks) == 0

    asyncio.run(run())


def test_a_task_that_wants_its_reply_in_a_queue_of_others_is_a_dead_letter_at_once(bench):
    async def run():
        await bench.open()
        stranger = Task(VERSION, "job", "amq.direct", 0, 1, 1, "m", data=Encoded("json", b"[1]"))
        bench.broker.publish(QUEUE, Message(encode(stranger), "task"), lambda _: None)
        await settle()
        assert len(bench.tasks) == 0
        assert len(bench.broker.bodies(DEAD_QUEUE)) == 1
        assert bench.slots[0].held is None

    asyncio.run(run())


def test_nothing_is_held_for_a_slot_that_cannot_start_a_child(tmp_path):
    async def run():
        bench = Bench(tmp_path, slots=2)
        await bench.open()
        for start in range(3):
            bench.publish(start)
        await settle()
        assert bench.intake.sight.prefetch == 2
        bench.slots[1].is_usable = False
        bench.slots[0].held.dispatched_at -= 1000
        bench.tasks.tick(time.monotonic())
        assert bench.intake.sight.prefetch == 1

    asyncio.run(run())


def test_tasks_start_in_the_order_of_the_queue(tmp_path):
    bench = Bench(tmp_path, slots=2)
    started = []

    async def run():
        await bench.open(prefetch=10)
        keys = [bench.publish(start).key for start in range(10)]
        await settle()
        while any(slot.held for slot in bench.slots):
            for slot in bench.slots:
                if slot.held:
                    started.append(slot.held.task.key)
                    bench.answer(slot)
                    await settle()
        assert sorted(started) == keys
        assert started[:2] == keys[:2]
        assert all(abs(started.index(key) - place) <= 1 for place, key in enumerate(keys))

    asyncio.run(run())


def test_a_task_is_named_in_the_log_when_it_starts_and_ends(bench, caplog):
    async def run():
        await bench.open()
        bench.publish(7)
        await settle()
        bench.slots[0].held.dispatched_at -= 2
        bench.answer(bench.slots[0])

    with caplog.at_level("INFO", "overnight.consumer"):
        asyncio.run(run())
    assert "slot 1 starts m [7, 8) of job job, attempt 1" in caplog.text
    assert "slot 1 finished m [7, 8)" in caplog.text
    assert tasks_module.log.name == "overnight.consumer"


def test_a_consumer_begins_with_one_delivery_and_takes_more_when_that_is_no_suspect(tmp_path):
    async def run():
        bench = Bench(tmp_path, slots=3)
        await bench.open()
        for start in range(5):
            bench.publish(start)
        assert bench.intake.sight.prefetch == 1
        await settle()
        assert bench.intake.sight.prefetch == 3
        assert [slot.state for slot in bench.slots] == [SlotState.BUSY] * 3

    asyncio.run(run())


def test_a_suspect_is_held_alone_until_others_come_and_then_twice_as_many_each_time(tmp_path):
    async def run():
        bench = Bench(tmp_path, slots=3)
        await bench.open()
        bench.tasks.on_delivery(bench.intake, bench.delivery(count=3))
        assert bench.intake.sight.prefetch == 1
        bench.tasks.tick(time.monotonic())
        assert bench.intake.sight.prefetch == 1
        bench.tasks.on_delivery(bench.intake, bench.delivery(start=1, count=2))
        assert bench.intake.sight.prefetch == 2
        bench.tasks.on_delivery(bench.intake, bench.delivery(start=2))
        assert bench.intake.sight.prefetch >= 3

    asyncio.run(run())


def test_suspects_among_short_tasks_bring_back_no_more_than_was_dealt_with_since_the_last(tmp_path):
    async def run():
        bench = Bench(tmp_path, slots=1)
        await bench.open(prefetch=512)
        allowed = []
        for start in range(200):
            suspect = start in (100, 110, 150)
            bench.tasks.on_delivery(bench.intake, bench.delivery(start, count=3 if suspect else 0))
            allowed.append(bench.intake.sight.prefetch)
        assert allowed[0] == allowed[99] == 512
        assert [allowed[start] for start in (100, 101, 102, 104, 108)] == [1, 2, 4, 8, 16]
        for last, until in ((100, 109), (110, 149), (150, 199)):
            assert allowed[last] == 1
            assert all(allowed[at] <= 2 * max(1, at - last) for at in range(last, until))

    asyncio.run(run())


async def answered_in_order(bench):
    """Answer what runs until nothing runs any more, and return the first points in that order."""
    order = []
    while bench.slots[0].held is not None:
        order.append(bench.slots[0].held.task.start)
        bench.answer(bench.slots[0])
        await settle()
    return order


def test_a_suspect_runs_when_all_else_is_done_and_the_one_lost_most_often_last(bench):
    async def run():
        await bench.open(prefetch=10)
        bench.tasks.on_delivery(bench.intake, bench.delivery(0))
        await settle()
        for start, count in ((1, 4), (2, 0), (3, 3), (4, 3), (5, 1)):
            bench.tasks.on_delivery(bench.intake, bench.delivery(start, count))
        assert await answered_in_order(bench) == [0, 2, 5, 3, 4, 1]
        assert bench.broker.handed_back == []

    asyncio.run(run())


@pytest.mark.parametrize("count", [3, 5])
def test_what_is_left_of_a_cancelled_job_keeps_no_other_task_waiting(tmp_path, count):
    async def run():
        bench = Bench(tmp_path, slots=2)
        await bench.open()
        for start in range(4):  # nobody has the queue for their replies any more
            task = Task(
                VERSION,
                "old",
                "overnight.replies.old.1",
                start,
                start + 1,
                1,
                "m",
                data=Encoded("json", b"[1]"),
            )
            bench.broker.leave(QUEUE, Message(encode(task), "task"), count)
        bench.publish(7)
        for _ in range(8):
            await settle()
        assert [slot.held.task.start for slot in bench.slots if slot.held] == [7]
        bench.answer(next(slot for slot in bench.slots if slot.held))
        await settle()
        bench.tasks.stop_taking()
        assert len(bench.tasks) == 0
        assert len(bench.broker.handed_back) == 4
        assert bench.broker.bodies(DEAD_QUEUE) == []

    asyncio.run(run())


def test_no_two_suspects_run_at_a_time(tmp_path):
    async def run():
        bench = Bench(tmp_path, slots=2)
        await bench.open(prefetch=10)
        for start in range(2):
            bench.tasks.on_delivery(bench.intake, bench.delivery(start, count=3))
            await settle()
        assert [slot.state for slot in bench.slots].count(SlotState.BUSY) == 1

    asyncio.run(run())


def test_a_suspect_does_not_wait_for_long_tasks(tmp_path, monkeypatch):
    async def run():
        bench = Bench(tmp_path, slots=2)
        await bench.open(prefetch=10)
        bench.tasks.on_delivery(bench.intake, bench.delivery(0))
        await settle()
        bench.tasks.on_delivery(bench.intake, bench.delivery(1, count=3))
        assert bench.slots[1].held is None
        monkeypatch.setattr(suspects, "_PATIENCE_SECONDS", 0.0)
        bench.tasks.tick(time.monotonic())
        assert bench.slots[1].held.task.start == 1

    asyncio.run(run())


def test_a_suspect_whose_delivery_is_void_is_forgotten(bench):
    async def run():
        await bench.open(prefetch=10)
        bench.tasks.on_delivery(bench.intake, bench.delivery(0))
        await settle()
        bench.tasks.on_delivery(bench.intake, bench.delivery(1, count=3))
        bench.tasks.on_lost(bench.intake)
        assert await answered_in_order(bench) == [0]
        assert len(bench.tasks) == 0

    asyncio.run(run())


def test_what_is_on_its_way_when_a_suspect_comes_is_not_sent_back(bench):
    async def run():
        await bench.open(prefetch=10)
        asked = []
        bench.intake._subscription.set_prefetch = lambda prefetch, *, keep_late: asked.append(
            (prefetch, keep_late)
        )
        bench.tasks.on_delivery(bench.intake, bench.delivery(0))
        await settle()
        bench.tasks.on_delivery(bench.intake, bench.delivery(1, count=3))
        bench.intake.stop()
        assert asked == [(10, False), (1, True), (0, False)]

    asyncio.run(run())


def test_a_suspect_that_has_run_for_a_minute_keeps_no_slot_idle(tmp_path):
    async def run():
        bench = Bench(tmp_path, slots=3)
        await bench.open()
        bench.tasks.on_delivery(bench.intake, bench.delivery(count=3))
        bench.tasks.tick(time.monotonic() + 59)
        assert bench.intake.sight.prefetch == 1
        bench.tasks.tick(time.monotonic() + 61)
        assert bench.intake.sight.prefetch >= 3

    asyncio.run(run())


def test_a_copy_of_what_runs_here_is_no_suspect(tmp_path):
    async def run():
        bench = Bench(tmp_path, slots=3)
        await bench.open()
        bench.tasks.on_delivery(bench.intake, bench.delivery())
        bench.tasks.on_delivery(bench.intake, bench.delivery(count=4))
        assert bench.intake.sight.prefetch == 3

    asyncio.run(run())


def test_what_ran_is_handed_back_when_the_slots_have_stopped(bench):
    async def run():
        await bench.open()
        bench.publish()
        await settle()
        bench.tasks.hand_back_running()
        assert len(bench.broker.handed_back) == 1
        assert len(bench.tasks) == 0

    asyncio.run(run())
