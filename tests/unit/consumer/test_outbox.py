"""Replies that travel together: which do, and that each is accounted for by itself."""

import asyncio
from functools import partial

import pytest

from overnight_common.errors import NotConnectedError, RefusedError, TooLargeError
from overnight_common.messages import VERSION, Encoded, Task, decode_replies
from overnight_consumer import outbox
from overnight_consumer.answers import reply_to
from overnight_consumer.held import Held
from overnight_consumer.outbox import FIRST_MOST_BYTES, MOST_TOGETHER, Outbox, in_bundles
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
        ([FIRST_MOST_BYTES // 2, FIRST_MOST_BYTES // 2, 1], [2, 1]),
        ([10, 8 * FIRST_MOST_BYTES, 10, 10], [1, 1, 2]),
    ],
)
def test_replies_travel_together_up_to_a_number_and_a_size(sizes, together):
    tasks = [answered(start, size=size) for start, size in enumerate(sizes)]
    bundles = in_bundles(tasks, FIRST_MOST_BYTES)
    assert [len(bundle) for bundle in bundles] == together
    assert [held for bundle in bundles for held in bundle] == tasks


class Told:
    """Note what becomes of each reply."""

    def __init__(self, broker):
        self.all = []
        note = partial(partial, self._note)
        self.outbox = Outbox(broker, self._confirmed, note("unroutable"), note("too large"))

    def _confirmed(self, together, seconds):
        assert 0 <= seconds < 10
        for held in together:
            self._note("confirmed", held)

    def _note(self, what, held, *_words):
        self.all.append((held.task.start, what))

    @property
    def of(self):
        """Return what became of each, having been told once."""
        assert len(dict(self.all)) == len(self.all)
        return dict(sorted(self.all))


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


class NarrowBroker(MemoryBroker):
    """Refuse what is over a limit of its own as RabbitMQ does: by closing the channel with all that is on it."""

    closed = 0

    def publish(self, queue, message, on_settled):
        if self.closed and self.again is not None:  # the channel comes back in a moment
            asyncio.get_running_loop().call_soon(on_settled, NotConnectedError("no channel"))
        elif len(message.body) > 600:
            self.closed += 1
            self.again = asyncio.get_running_loop().call_later(0.01, self.mend)
            asyncio.get_running_loop().call_soon(on_settled, TooLargeError("over 600"))
        else:
            super().publish(queue, message, on_settled)

    def mend(self):
        self.again = None


def test_bundles_over_a_limit_that_only_the_broker_knows_become_smaller_until_one_is_the_culprit(monkeypatch):
    monkeypatch.setattr(outbox, "_AGAIN_SECONDS", 0.02)
    broker = NarrowBroker()
    asyncio.run(broker.declare(REPLIES))

    async def wait(told):
        async with asyncio.timeout(20):
            while len(told.all) < 10:
                await asyncio.sleep(0.01)
        told.outbox.close()

    tasks = [answered(start, size=700 if start == 4 else 100) for start in range(10)]
    told = sent(broker, tasks, during=wait)
    assert told == {start: "too large" if start == 4 else "confirmed" for start in range(10)}
    assert broker.closed <= 6


def test_the_first_reply_leaves_at_once_and_those_within_milliseconds_of_it_together(broker, monkeypatch):
    monkeypatch.setattr(outbox, "GATHER_SECONDS", 0.05)

    async def go_on(told):
        assert told.of == {0: "confirmed"}
        for held in (answered(1), answered(2)):
            told.outbox.send(held, held.reply)
        for _ in range(20):
            await asyncio.sleep(0)
        assert told.of == {0: "confirmed"}
        await asyncio.sleep(0.1)

    told = sent(broker, [answered(0)], during=go_on)
    assert told == dict.fromkeys(range(3), "confirmed")
    assert [len(decode_replies(message.body)) for _, message in broker.published] == [1, 2]


def test_what_is_gathered_when_the_link_breaks_is_sent_when_it_is_back(broker, monkeypatch):
    monkeypatch.setattr(outbox, "GATHER_SECONDS", 0.05)

    async def break_and_mend(told):
        held = answered(1)
        told.outbox.send(held, held.reply)
        broker.break_link()
        await asyncio.sleep(0.1)
        assert told.of == {0: "confirmed"}
        broker.mend_link()
        told.outbox.flush()
        await asyncio.sleep(0.1)

    told = sent(broker, [answered(0)], during=break_and_mend)
    assert told == {0: "confirmed", 1: "confirmed"}


def test_what_is_gathered_leaves_when_nothing_more_is_tried(broker, monkeypatch):
    monkeypatch.setattr(outbox, "GATHER_SECONDS", 60.0)

    async def close(told):
        held = answered(1)
        told.outbox.send(held, held.reply)
        told.outbox.close()
        for _ in range(10):
            await asyncio.sleep(0)

    assert sent(broker, [answered(0)], during=close) == {0: "confirmed", 1: "confirmed"}


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
