"""A slot with a child that is the test."""

import asyncio
import time
from types import SimpleNamespace

from overnight_consumer.deaths import Death, ExitReason, failure_of, start_failure_of
from overnight_consumer.frames import Answer
from overnight_consumer.held import Held
from overnight_consumer.limits import Limits
from overnight_consumer.recycling import Recycling
from overnight_consumer.slot_states import SlotState
from overnight_consumer.slots import Slot

DONE = Answer("done", "", "", 0.1, b"reply")
KILLED = Death(-9, 0, "")


class FakeChild:
    def __init__(self, pid, voice):
        self.pid, self.voice, self.sent, self.kills, self.stopped = pid, voice, [], 0, False
        self.recalls, self.is_quiet = 0, True

    def send(self, *works):
        self.sent.extend(works)

    def recall(self):
        self.recalls += 1

    def kill(self):
        self.kills += 1

    async def stop(self, patience_seconds):
        self.stopped = True


def no_more_processes(number, voice):
    raise BlockingIOError(11, "Resource temporarily unavailable")


class Desk:
    """Write down what a slot reports, and start its children."""

    def __init__(self, limits=None):
        self.events, self.children, self.deaths, self.sessions, self.unbegun = [], [], [], set(), []
        self.start_deaths = []
        self.reasons = Reasons()
        keep = (self.sessions.add, self.sessions.discard)
        self.slot = Slot(1, self.start_child, self, *keep, self.reasons, limits or Limits())
        self.slot.start()

    def start_child(self, number, voice):
        self.children.append(FakeChild(100 + len(self.children), voice))
        return self.children[-1]

    def on_free(self, slot):
        self.events.append("free")

    def on_answer(self, slot, held, answer):
        self.events.append("answer")

    def on_task_death(self, slot, held, death):
        self.deaths.append(death)
        self.events.append(("death", death.why and death.why.value))

    def on_unbegun(self, tasks):
        self.unbegun.extend(tasks)

    def on_start_failure(self, slot, death):
        self.start_deaths.append(death)
        self.events.append("start failure")


def held(limit=None):
    return Held(SimpleNamespace(time_limit_seconds=limit), None, None, b"task", 0)


def on_a_loop(test):
    def run():
        async def main():
            await test()

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@on_a_loop
async def test_a_dead_child_is_replaced_before_its_task_is_reported():
    desk = Desk()
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.children[0].voice.on_death(KILLED)
    assert desk.events == ["free", ("death", None)]
    assert len(desk.children) == 2
    assert desk.sessions == {101}
    assert desk.slot.state is SlotState.STARTING


@on_a_loop
async def test_a_child_whose_device_has_fallen_over_answers_and_is_replaced_before_the_next_task():
    desk = Desk()
    first = desk.children[0]
    first.voice.on_ready()
    desk.slot.run(held())
    first.voice.on_answer(Answer("failed", "exception", "", 0.1, b"reply", last=True))
    assert desk.events == ["free", "answer"]
    assert desk.slot.state is SlotState.ENDING, "no task goes to it"
    assert first.kills == 1
    first.voice.on_death(KILLED)
    assert desk.deaths == [], "the task was answered"
    assert desk.slot.state is SlotState.STARTING
    desk.children[1].voice.on_ready()
    assert desk.events == ["free", "answer", "free"]
    assert desk.reasons.ends == ["device_failed"]


@on_a_loop
async def test_an_answer_that_comes_as_the_limit_passes_counts_and_no_task_goes_to_the_dying_child():
    desk = Desk()
    desk.children[0].voice.on_ready()
    desk.slot.run(held(limit=0.001))
    desk.children[0].voice.on_started()
    while not desk.children[0].kills:
        await asyncio.sleep(0.001)
    desk.children[0].voice.on_answer(DONE)
    assert desk.events == ["free", "answer"]
    assert desk.slot.state is not SlotState.FREE
    desk.children[0].voice.on_death(KILLED)
    desk.children[1].voice.on_ready()
    assert desk.events == ["free", "answer", "free"]


@on_a_loop
async def test_the_limit_counts_only_from_the_end_of_loading():
    desk = Desk()
    desk.children[0].voice.on_ready()
    desk.slot.run(held(limit=0.001))
    await asyncio.sleep(0.03)
    assert desk.children[0].kills == 0
    started_at = time.monotonic()
    desk.children[0].voice.on_started()
    while not desk.children[0].kills:
        await asyncio.sleep(0.001)
    desk.children[0].voice.on_death(KILLED)
    assert desk.events[-1] == ("death", "time_limit")
    assert desk.deaths[0].seconds <= time.monotonic() - started_at, "loading is no part of what it ran"


LATE = Death(-9, 0, "", why=ExitReason.LOAD_LIMIT, load_limit_seconds=7.0)


@on_a_loop
async def test_a_child_that_did_not_get_ready_in_time_counts_as_one_that_cannot_start():
    desk = Desk()
    desk.children[0].voice.on_death(LATE)
    assert desk.events == ["start failure"]
    assert desk.reasons.ends == ["start_failed"]
    assert "not ready after 7 s (--load-limit)" in start_failure_of(desk.start_deaths[0]).message


@on_a_loop
async def test_loading_a_method_for_too_long_is_the_fault_of_the_consumer():
    desk = Desk()
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.children[0].voice.on_death(LATE)
    assert desk.events[-1] == ("death", "load_limit")
    assert failure_of(desk.deaths[0]).cause.accuses_consumer


@on_a_loop
async def test_a_successor_that_did_not_get_ready_in_time_is_given_up_and_the_old_child_goes_on():
    desk = Desk(Limits(recycling=Recycling(tasks=1)))
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.children[0].voice.on_answer(DONE)
    desk.children[1].voice.on_death(LATE)
    assert desk.children[0].kills == 0
    assert desk.slot.state is SlotState.FREE


@on_a_loop
async def test_what_a_replaced_child_still_says_is_not_heard():
    desk = Desk()
    desk.children[0].voice.on_ready()
    desk.slot.renew()
    await asyncio.sleep(0)
    assert desk.children[0].stopped
    desk.children[0].voice.on_ready()
    desk.children[0].voice.on_answer(DONE)
    desk.children[0].voice.on_death(KILLED)
    assert desk.events == ["free"]
    desk.children[1].voice.on_ready()
    assert desk.events == ["free", "free"]
    assert desk.sessions == {101}


@on_a_loop
async def test_a_child_that_dies_while_starting_is_started_again_after_a_back_off():
    desk = Desk()
    desk.children[0].voice.on_death(KILLED)
    assert desk.events == ["start failure"]
    assert (desk.slot.state, len(desk.children)) == (SlotState.BACKOFF, 1)
    while len(desk.children) == 1:
        await asyncio.sleep(0.01)
    assert desk.slot.start_failures == 1
    desk.children[1].voice.on_ready()
    desk.slot.run(held())
    desk.children[1].voice.on_answer(DONE)
    assert desk.slot.start_failures == 0


@on_a_loop
async def test_where_the_system_starts_no_process_the_task_is_reported_all_the_same_and_a_child_comes_later():
    desk, behind = Desk(), held()
    desk.children[0].voice.on_ready()
    desk.slot.run(held(), behind)
    desk.slot._start_child = no_more_processes
    desk.children[0].voice.on_death(KILLED)
    assert desk.events == ["free", "start failure", ("death", None)]
    assert desk.unbegun == [behind]
    assert "Resource temporarily unavailable" in start_failure_of(desk.start_deaths[-1]).message
    assert desk.slot.state is SlotState.BACKOFF
    desk.slot._start_child = desk.start_child
    while len(desk.children) < 2:
        await asyncio.sleep(0.01)
    desk.children[1].voice.on_ready()
    assert desk.slot.state is SlotState.FREE


@on_a_loop
async def test_an_abandoned_task_is_not_reported():
    desk = Desk()
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.slot.abandon()
    assert desk.children[0].kills == 1
    desk.children[0].voice.on_answer(DONE)
    desk.children[0].voice.on_death(KILLED)
    assert desk.events == ["free"]
    assert len(desk.children) == 2


@on_a_loop
async def test_a_stopped_slot_starts_nothing_more():
    desk = Desk()
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    await desk.slot.stop()
    desk.children[0].voice.on_death(KILLED)
    assert desk.children[0].kills == 1
    assert len(desk.children) == 1
    assert desk.events == ["free"]


class Reasons:
    """Write down why children start and how they end."""

    def __init__(self):
        self.starts, self.ends = [], []

    def child_started(self, number, pid, why):
        self.starts.append(why.value)

    def child_ended(self, number, pid, how):
        self.ends.append(how.value)

    def __getattr__(self, name):
        return lambda *arguments: None


@on_a_loop
async def test_a_child_over_its_memory_is_killed_once_and_its_task_is_told_why():
    desk = Desk(limits=Limits(memory_limit_bytes=100))
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    for used in (100, 101, 150):
        desk.slot.note_memory(used)
    assert desk.children[0].kills == 1
    desk.children[0].voice.on_death(KILLED)
    assert desk.events[-1] == ("death", "memory_limit")
    assert desk.deaths[0].peak_rss_bytes == 150
    assert desk.deaths[0].memory_limit_bytes == 100


@on_a_loop
async def test_an_idle_child_is_not_killed_for_its_memory():
    desk = Desk(limits=Limits(memory_limit_bytes=100))
    desk.children[0].voice.on_ready()
    assert not desk.slot.is_watched
    desk.slot.note_memory(1000)
    assert desk.children[0].kills == 0


@on_a_loop
async def test_a_limit_that_has_killed_one_child_does_not_hold_back_the_next():
    desk = Desk(limits=Limits(memory_limit_bytes=100))
    for number in range(2):
        desk.children[number].voice.on_ready()
        desk.slot.run(held())
        desk.slot.note_memory(101)
        desk.children[number].voice.on_answer(DONE)
        desk.slot.renew()
        desk.children[number].voice.on_death(KILLED)
    assert [child.kills for child in desk.children] == [1, 1, 0]


@on_a_loop
async def test_an_old_child_serves_until_its_successor_is_warm():
    desk = Desk(limits=Limits(recycling=Recycling(tasks=2)))
    first = desk.children[0]
    first.voice.on_ready()
    for _ in range(3):
        desk.slot.run(held())
        first.voice.on_answer(DONE)
    assert len(desk.children) == 2
    assert desk.slot.state is SlotState.FREE
    desk.slot.run(held())
    second = desk.children[1]
    second.voice.on_ready()
    assert (desk.slot.state, first.stopped) == (SlotState.BUSY, False)
    first.voice.on_answer(DONE)
    await asyncio.sleep(0)
    assert first.stopped
    desk.slot.run(held())
    assert (len(first.sent), len(second.sent)) == (4, 1)
    first.voice.on_death(Death(0, 0, ""))
    assert desk.events == ["free", *["answer"] * 4]
    assert desk.reasons.starts == ["first", "recycled_tasks"]
    assert desk.reasons.ends == ["stopped"]


@on_a_loop
async def test_a_free_slot_changes_its_child_as_soon_as_the_new_one_is_warm():
    desk = Desk(limits=Limits(recycling=Recycling(tasks=1)))
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.children[0].voice.on_answer(DONE)
    desk.children[1].voice.on_ready()
    await asyncio.sleep(0)
    assert desk.children[0].stopped
    assert desk.slot.state is SlotState.FREE
    assert desk.events == ["free", "answer"]


@on_a_loop
async def test_a_successor_that_cannot_start_leaves_the_old_child_at_work():
    desk = Desk(limits=Limits(recycling=Recycling(tasks=1)))
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.children[0].voice.on_answer(DONE)
    desk.children[1].voice.on_death(Death(7, 0, "no room"))
    for _ in range(2):
        desk.slot.run(held())
        desk.children[0].voice.on_answer(DONE)
    assert len(desk.children) == 2
    assert desk.slot.start_failures == 0
    assert "start failure" not in desk.events


@on_a_loop
async def test_where_the_system_starts_no_successor_the_old_child_stays_at_work():
    desk = Desk(Limits(recycling=Recycling(tasks=1)))
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.slot._start_child = no_more_processes
    desk.children[0].voice.on_answer(DONE)
    assert desk.events == ["free", "answer"]
    assert desk.slot.state is SlotState.FREE
    desk.slot.run(held())
    assert len(desk.children[0].sent) == 2


@on_a_loop
async def test_a_successor_takes_over_when_the_old_child_dies():
    desk = Desk(limits=Limits(recycling=Recycling(tasks=1)))
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.children[0].voice.on_answer(DONE)
    desk.slot.run(held())
    desk.children[1].voice.on_ready()
    desk.children[0].voice.on_death(KILLED)
    assert desk.events == ["free", "answer", "free", ("death", None)]
    assert len(desk.children) == 2
    desk.slot.run(held())
    assert len(desk.children[1].sent) == 1


@on_a_loop
async def test_a_stopped_slot_ends_the_successor_too():
    desk = Desk(limits=Limits(recycling=Recycling(tasks=1)))
    desk.children[0].voice.on_ready()
    desk.slot.run(held())
    desk.children[0].voice.on_answer(DONE)
    await desk.slot.stop()
    assert [child.stopped for child in desk.children] == [True, True]
