"""A slot with a child that is the test."""

import asyncio
from types import SimpleNamespace

from overnight_consumer.deaths import Death
from overnight_consumer.frames import Answer
from overnight_consumer.held import Held
from overnight_consumer.slots import Slot, SlotState

DONE = Answer("done", "", "", 0.1, b"reply")
KILLED = Death(-9, 0, "")


class FakeChild:
    def __init__(self, pid, voice):
        self.pid, self.voice, self.sent, self.kills, self.stopped = pid, voice, [], 0, False

    def send(self, work):
        self.sent.append(work)

    def kill(self):
        self.kills += 1

    async def stop(self, patience_seconds):
        self.stopped = True


class Desk:
    """Write down what a slot reports, and start its children."""

    def __init__(self):
        self.events, self.children, self.sessions = [], [], set()
        self.slot = Slot(1, self.start_child, self, self.sessions.add, self.sessions.discard)
        self.slot.start()

    def start_child(self, number, voice):
        self.children.append(FakeChild(100 + len(self.children), voice))
        return self.children[-1]

    def on_free(self, slot):
        self.events.append("free")

    def on_answer(self, slot, held, answer):
        self.events.append("answer")

    def on_task_death(self, slot, held, death):
        self.events.append(("death", death.why and death.why.value))

    def on_start_failure(self, slot, death):
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
    desk.children[0].voice.on_started()
    while not desk.children[0].kills:
        await asyncio.sleep(0.001)
    desk.children[0].voice.on_death(KILLED)
    assert desk.events[-1] == ("death", "time_limit")


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
