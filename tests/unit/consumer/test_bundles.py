"""Very short tasks go to a child several at a time; what that changes when something goes wrong."""

import asyncio
import socket
import threading

import pytest

from overnight_consumer.child import Inbox
from overnight_consumer.deaths import Death
from overnight_consumer.frames import Answer, FrameReader, Recall, Recalled, Work, decode_from_child, pack
from overnight_consumer.held import Stage
from overnight_consumer.prefetch import BUNDLE_MOST, bundle_size
from overnight_consumer.slot_states import SlotState
from unit.consumer.test_slots import DONE, KILLED, Desk, held, on_a_loop
from unit.consumer.test_tasks import Bench, settle

DEVICE_LOST = Answer("failed", "exception", "lost", 0.1, b"reply", last=True)


# How many


@pytest.mark.parametrize(
    ("slots", "waiting", "mean_seconds", "mean_bytes", "size"),
    [
        (2, 100, 0.0001, 600, BUNDLE_MOST),
        (2, 100, 0.004, 600, 2),
        (2, 100, 0.011, 600, 1),
        (2, 3, 0.0001, 600, 2),  # the other slot is to have something too
        (2, 0, 0.0001, 600, 1),
        (2, 100, 0.0001, 30_000, 2),
        (2, 100, 0.0001, 8_000_000, 1),
        (1, 100, 0.0, 0.0, BUNDLE_MOST),
    ],
)
def test_a_child_gets_at_once_what_takes_no_longer_than_to_hand_it_over(
    slots, waiting, mean_seconds, mean_bytes, size
):
    assert bundle_size(slots, waiting, mean_seconds, mean_bytes) == size


# In a slot


def slot_with(*tasks):
    desk = Desk()
    desk.children[0].voice.on_ready()
    desk.slot.run(*tasks)
    return desk


@on_a_loop
async def test_a_slot_is_free_when_the_last_of_its_tasks_is_answered():
    tasks = [held(), held(), held()]
    desk = slot_with(*tasks)
    assert len(desk.children[0].sent) == 3
    assert [each.stage for each in tasks] == [Stage.RUNNING, Stage.GIVEN, Stage.GIVEN]
    for number, task in enumerate(tasks):
        assert desk.slot.held is task
        assert task.stage is Stage.RUNNING
        assert desk.slot.state is SlotState.BUSY
        desk.children[0].voice.on_answer(DONE)
        assert desk.events.count("answer") == number + 1
    assert (desk.slot.held, desk.slot.state) == (None, SlotState.FREE)


@on_a_loop
async def test_a_death_is_charged_to_the_task_that_ran_and_to_no_other():
    tasks = [held() for _ in range(4)]
    desk = slot_with(*tasks)
    desk.children[0].voice.on_answer(DONE)
    desk.children[0].voice.on_death(Death(-11, 0, ""))
    assert len(desk.deaths) == 1
    assert desk.unbegun == tasks[2:]
    assert desk.slot.state is SlotState.STARTING


@on_a_loop
async def test_who_comes_next_is_not_blamed_for_a_limit_that_passed_before():
    tasks = [held(limit=0.001), held(), held()]
    desk = slot_with(*tasks)
    desk.children[0].voice.on_started()
    while not desk.children[0].kills:
        await asyncio.sleep(0.001)
    desk.children[0].voice.on_answer(DONE)
    desk.children[0].voice.on_death(KILLED)
    assert desk.deaths == []
    assert desk.unbegun == tasks[1:]


@on_a_loop
async def test_what_lies_behind_the_last_answer_of_a_child_waits_again():
    tasks = [held(), held()]
    desk = slot_with(*tasks)
    desk.children[0].voice.on_answer(DEVICE_LOST)
    assert desk.children[0].kills == 1
    desk.children[0].voice.on_death(KILLED)
    assert desk.deaths == []
    assert desk.unbegun == tasks[1:]


@on_a_loop
async def test_a_renewed_child_gives_back_what_it_was_given():
    tasks = [held(), held(), held()]
    desk = slot_with(*tasks)
    desk.children[0].voice.on_answer(DONE)
    desk.slot.renew()
    assert desk.children[0].kills == 1
    assert desk.unbegun == tasks[1:]
    assert (desk.slot.held, desk.slot.state) == (None, SlotState.STARTING)


@on_a_loop
async def test_recalled_tasks_leave_the_slot_when_the_child_says_so():
    tasks = [held(), held(), held()]
    desk = slot_with(*tasks)
    assert desk.slot.recall() == tasks[1:]
    for each in tasks[1:]:
        each.stage = Stage.SETTLED  # handed back to the broker
    desk.children[0].voice.on_answer(DONE)
    assert desk.slot.state is SlotState.BUSY
    desk.children[0].voice.on_recalled(2)
    assert (desk.slot.held, desk.slot.state) == (None, SlotState.FREE)
    assert desk.events == ["free", "answer", "free"]
    assert all(each.stage is Stage.SETTLED for each in tasks[1:])


@on_a_loop
async def test_a_recall_that_comes_too_late_for_one_task_leaves_the_others_in_order():
    tasks = [held(), held(), held()]
    desk = slot_with(*tasks)
    desk.slot.recall()
    for _ in range(2):  # the second had begun when the recall came
        desk.children[0].voice.on_answer(DONE)
    desk.children[0].voice.on_recalled(1)
    assert desk.slot.state is SlotState.FREE


# Among the tasks


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path, slots=1)
    bench.tasks._pace.bundle = lambda slots, waiting: min(4, 1 + waiting)
    return bench


async def given(bench, points=4):
    """Let the slot's child have so many tasks: it had to finish one to be free for the others."""
    await bench.open(prefetch=10)
    for start in range(points + 1):
        bench.publish(start)
    await settle()
    bench.answer(bench.slots[0])
    await settle()


def starts(tasks):
    return [each.task.start for each in tasks]


def test_tasks_behind_another_are_answered_and_acked_in_their_turn(bench):
    async def run():
        await given(bench)
        assert bench.slots[0].held.task.start == 1
        assert starts(bench.slots[0].given) == [2, 3]
        for _ in range(4):
            bench.answer(bench.slots[0])
            await settle()
        assert [reply.start for reply in bench.replies] == [0, 1, 2, 3, 4]
        assert len(bench.tasks) == 0

    asyncio.run(run())


def test_a_chatty_child_gets_one_task_at_a_time_so_that_its_last_words_are_told_apart(bench):
    async def run():
        bench.slots[0].is_quiet = False
        await given(bench)
        assert bench.slots[0].given == []

    asyncio.run(run())


def test_unbegun_tasks_run_next_and_in_order(bench):
    async def run():
        await given(bench)
        slot = bench.slots[0]
        unbegun, slot.given = slot.given, []
        slot.held, slot.state = None, SlotState.STARTING
        bench.publish(5)
        await settle()
        bench.tasks.on_unbegun(unbegun)
        slot.state = SlotState.FREE
        bench.tasks.on_free(slot)
        assert slot.held.task.start == 2
        assert starts(slot.given) == [3, 4, 5]

    asyncio.run(run())


def test_an_unbegun_task_whose_delivery_is_void_is_forgotten(bench):
    async def run():
        await given(bench)
        slot = bench.slots[0]
        unbegun, slot.given = slot.given, []
        bench.tasks.on_lost(bench.intake)
        bench.tasks.on_unbegun(unbegun)
        assert len(bench.tasks) == 1  # what runs

    asyncio.run(run())


def test_what_lies_behind_a_long_task_in_a_child_goes_back_to_the_queue(bench):
    async def run():
        await given(bench)
        slot = bench.slots[0]
        slot.held.dispatched_at -= 60
        bench.tasks.tick(slot.held.dispatched_at + 60)
        await settle()
        assert len(bench.broker.handed_back) == 3
        assert len(bench.tasks) == 1

    asyncio.run(run())


def test_a_cancelled_job_leaves_nothing_in_a_child_to_be_replied_to(bench):
    async def run():
        await given(bench)
        behind = list(bench.slots[0].given)
        bench.tasks._cancel(bench.slots[0].held.task.reply_to)
        assert bench.slots[0].abandoned == 1
        assert len(bench.broker.acked) == 5
        bench.tasks.on_unbegun(behind)
        assert len(bench.tasks) == 0

    asyncio.run(run())


def test_a_task_that_nobody_wants_any_more_and_that_lasts_is_ended(bench):
    async def run():
        await given(bench)
        slot = bench.slots[0]
        bench.tasks._drop(slot.given[0])  # as when another job is cancelled
        bench.answer(slot)
        await settle()
        begun = slot.held.dispatched_at
        bench.tasks.tick(begun + 0.4)
        assert slot.abandoned == 0
        bench.tasks.tick(begun + 0.8)
        bench.tasks.tick(begun + 1.2)
        assert slot.abandoned == 1

    asyncio.run(run())


def test_what_a_stopped_slot_was_given_is_handed_back_too(bench):
    async def run():
        await given(bench)
        bench.tasks.stop_taking()
        bench.tasks.hand_back_running()
        assert len(bench.tasks) == 0
        assert len(bench.broker.handed_back) == 4

    asyncio.run(run())


# In the child


def work(number):
    return Work(0, bytes([number]))


def said(link):
    reader = FrameReader()
    return [decode_from_child(body) for body in reader.feed(link.recv(65536))]


@pytest.fixture
def ends():
    parent, child = socket.socketpair()
    with parent, child:
        yield parent, Inbox(child)


def test_a_child_takes_its_tasks_in_order_and_ends_with_the_socket(ends):
    parent, inbox = ends
    parent.sendall(b"".join(pack(work(number)) for number in range(3)))
    parent.shutdown(socket.SHUT_WR)
    assert [inbox.next_work().body for _ in range(3)] == [b"\0", b"\1", b"\2"]
    assert inbox.next_work() is None


def test_a_recall_takes_back_all_that_was_not_begun_and_nothing_that_comes_after_it(ends, monkeypatch):
    monkeypatch.setattr("overnight_consumer.child._LOOK_SECONDS", 0.0)
    parent, inbox = ends
    parent.sendall(b"".join(pack(work(number)) for number in range(4)))
    assert inbox.next_work().body == b"\0"
    parent.sendall(pack(Recall()) + pack(work(9)))
    assert inbox.next_work().body == b"\x09"
    assert said(parent) == [Recalled(3)]


def test_a_recall_that_finds_nothing_is_answered_too(ends):
    parent, inbox = ends
    taken = []
    thread = threading.Thread(target=lambda: taken.append(inbox.next_work()))
    thread.start()
    parent.sendall(pack(Recall()) + pack(work(1)))
    thread.join()
    assert [each.body for each in taken] == [b"\1"]
    assert said(parent) == [Recalled(0)]
