"""Replies that travel together: which do, and that each is accounted for by itself."""

import asyncio
from functools import partial

import pytest

from overnight_common.errors import RefusedError
from overnight_common.messages import VERSION, Encoded, Task, decode_replies
from overnight_consumer.answers import reply_to
from overnight_consumer.held import Held
from overnight_consumer.outbox import MOST_BYTES, MOST_TOGETHER, Outbox, in_bundles
from support.memory_broker import MemoryBroker

REPLIES = "overnight.replies.job.1"


def answered(start, reply_queue=REPLIES, size=0):
    task = Task(VERSION, "job", reply_queue, start, start + 1, 1, "m", data=Encoded("json", b"[1]"))
    held = Held(task, None, None, b"", 0)
    held.reply = b"x" * size or reply_to(task, consumer="me")
    return held


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ([], []),
        ([10], [1]),
        ([10] * 200, [MOST_TOGETHER, MOST_TOGETHER, MOST_TOGETHER, 200 - 3 * MOST_TOGETHER]),
        ([MOST_BYTES // 2, MOST_BYTES // 2, 1], [2, 1]),
        ([10, 8 * MOST_BYTES, 10, 10], [1, 1, 2]),
    ],
)
def test_replies_travel_together_up_to_a_number_and_a_size(sizes, together):
    tasks = [answered(start, size=size) for start, size in enumerate(sizes)]
    bundles = in_bundles(tasks)
    assert [len(bundle) for bundle in bundles] == together
    assert [held for bundle in bundles for held in bundle] == tasks


class Told:
    """Note what becomes of each reply."""

    def __init__(self, broker):
        self.of = {}
        note = partial(partial, self._note)
        self.outbox = Outbox(broker, self._confirmed, note("unroutable"), note("too large"))

    def _confirmed(self, together, seconds):
        assert 0 <= seconds < 10
        for held in together:
            self._note("confirmed", held)

    def _note(self, what, held, *_words):
        assert held.task.start not in self.of
        self.of[held.task.start] = what


def sent(broker, tasks, *, during=None):
    """Send the replies at once and return what became of them."""

    async def run():
        told = Told(broker)
        for held in tasks:
            told.outbox.send(held, held.reply)
        for _ in range(10):
            await asyncio.sleep(0)
        if during is not None:
            await during(told)
        return told.of

    return asyncio.run(run())


@pytest.fixture
def broker():
    broker = MemoryBroker(max_message_bytes=2000)
    asyncio.run(broker.declare(REPLIES))
    return broker


def test_replies_that_leave_together_are_one_message_and_each_is_confirmed(broker):
    told = sent(broker, [answered(start) for start in range(5)])
    assert told == dict.fromkeys(range(5), "confirmed")
    (message,) = [message for _queue, message in broker.published]
    assert [reply.start for reply in decode_replies(message.body)] == [0, 1, 2, 3, 4]
    assert message.message_id == "job/0-1/1 and 4 more"


def test_replies_to_different_jobs_travel_apart(broker):
    told = sent(broker, [answered(0), answered(1, "overnight.replies.other.1"), answered(2)])
    assert told == {0: "confirmed", 1: "unroutable", 2: "confirmed"}
    assert len(broker.published) == 1


def test_replies_that_are_too_large_together_are_sent_one_by_one(broker):
    told = sent(broker, [answered(0, size=900), answered(1, size=2500), answered(2, size=900)])
    assert told == {0: "confirmed", 1: "too large", 2: "confirmed"}


def test_replies_that_were_refused_together_are_all_sent_again(broker):
    async def let_them_go(told):
        broker.confirm(RefusedError("full"))
        broker.hold_confirms = False
        assert told.of == {}
        told.outbox.flush()
        for _ in range(10):
            await asyncio.sleep(0)
        told.outbox.close()

    broker.hold_confirms = True
    told = sent(broker, [answered(start) for start in range(3)], during=let_them_go)
    assert told == dict.fromkeys(range(3), "confirmed")
