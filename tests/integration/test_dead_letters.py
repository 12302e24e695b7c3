"""Dead letters on both brokers: read without loss, however often; replayed, purged and reclaimed."""

import asyncio

import pytest

from overnight_common.brokers.base import DEAD_QUEUE, Delivery, Message, reply_queue, task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.errors import BadInputError
from overnight_common.messages import VERSION, Reply, bundle, encode
from overnight_producer.letters import READ_OFTEN, chosen, reclaim_replies, replay, send, with_letters
from support.broker_use import opened

QUEUE = task_queue("default")


@pytest.fixture(params=["embedded", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def broker(request, tmp_path):
    url = request.getfixturevalue("amqp_url") if request.param == "rabbitmq" else None
    return open_broker(url, tmp_path, max_message_bytes=1 << 20)


def dead(body, reason="no task", from_queue=QUEUE, original_type="task"):
    headers = {
        "reason": reason,
        "from_queue": from_queue,
        "original_type": original_type,
        "at": "2026-01-02T03:04:05+00:00",
    }
    return Message(body, "dead", "name", headers)


def on(broker, *bodies, act):
    """Bury bodies, then run `act(broker)`."""

    async def main():
        async with opened(broker):
            for queue in (QUEUE, DEAD_QUEUE):
                await broker.declare(queue)
            for body in bodies:
                assert await send(broker, DEAD_QUEUE, dead(body)) is None
            return await act(broker)

    return asyncio.run(main())


async def read(broker, settle=lambda letters: []):
    seen = []

    async def act(letters):
        seen.extend(letters)
        return settle(letters)

    await with_letters(broker, act)
    return seen


async def read_until(broker, count):
    """Read again until the queue shows `count` letters: what was handed back takes a moment."""
    for _ in range(50):
        letters = await read(broker)
        if len(letters) == count:
            return letters
        await asyncio.sleep(0.1)
    raise AssertionError(f"{len(letters)} letters instead of {count}")


def test_letters_tell_where_they_came_from_and_why(broker):
    async def act(broker):
        (letter,) = await read_until(broker, 1)
        assert (letter.body, letter.reason, letter.from_queue, letter.type) == (
            b"x",
            "no task",
            QUEUE,
            "task",
        )
        assert letter.at.isoformat() == "2026-01-02T03:04:05+00:00"
        assert letter.meaning() == "b'x'"

    on(broker, b"x", act=act)


def test_of_replies_that_travelled_together_each_is_told_and_which_one_is_broken(broker):
    good = encode(Reply(VERSION, "ours", 0, 5, 1, "done", "c"))

    async def act(broker):
        (letter,) = await read_until(broker, 1)
        first, second, third = letter.meaning().splitlines()
        assert first.startswith("reply 1: Reply(")
        assert second.startswith("reply 2: not a reply: ")
        assert third.startswith("reply 3: Reply(")

    on(broker, bundle([good, good.replace(b"done", b"gone"), good]), act=act)


def test_reading_takes_nothing_away_however_often_it_is_done(broker):
    async def act(broker):
        first = await read_until(broker, 3)
        for _ in range(
            3 * READ_OFTEN + 10
        ):  # well over the 20 deliveries after which RabbitMQ 4 drops a message
            last = await read_until(broker, 3)
        assert {letter.id for letter in first} == {letter.id for letter in last}
        assert sorted(letter.body for letter in last) == [b"a", b"b", b"c"]
        assert all(letter.delivery.delivery_count <= READ_OFTEN + 1 for letter in last)

    on(broker, b"a", b"b", b"c", act=act)


def test_a_replayed_letter_is_in_its_queue_as_it_was_and_no_longer_dead(broker):
    async def act(broker):
        async def settle(letters):
            letter = next(each for each in letters if each.body == b"a")
            assert await replay(broker, letter) is None
            return [letter]

        await with_letters(broker, settle)
        assert [letter.body for letter in await read_until(broker, 1)] == [b"b"]
        deliveries: list[Delivery] = []
        await broker.subscribe(QUEUE, 10, deliveries.append, lambda: None)
        while not deliveries:
            await asyncio.sleep(0.01)
        message = deliveries[0].message
        assert (message.body, message.type, dict(message.headers)) == (b"a", "task", {})

    on(broker, b"a", b"b", act=act)


def test_a_letter_whose_queue_is_gone_stays_dead(broker):
    async def act(broker):
        gone = dead(b"x", from_queue=reply_queue("gone", 1))
        assert await send(broker, DEAD_QUEUE, gone) is None

        async def settle(letters):
            assert await replay(broker, letters[0]) is not None
            return []

        await with_letters(broker, settle)
        assert len(await read_until(broker, 1)) == 1

    on(broker, act=act)


def test_purged_letters_are_gone_and_the_others_stay(broker):
    async def act(broker):
        await read_until(broker, 2)
        await read(broker, lambda letters: [each for each in letters if each.body == b"a"])
        assert [letter.body for letter in await read_until(broker, 1)] == [b"b"]

    on(broker, b"a", b"b", act=act)


def test_an_unknown_id_is_refused_with_those_that_there_are(broker):
    async def act(broker):
        (letter,) = await read_until(broker, 1)
        assert chosen([letter], [letter.id[:3]], everything=False) == [letter]
        with pytest.raises(BadInputError, match=letter.id):
            chosen([letter], ["nothing"], everything=False)
        with pytest.raises(BadInputError):
            chosen([letter], [], everything=False)

    on(broker, b"x", act=act)


def test_buried_replies_of_a_job_are_reclaimed_and_nothing_else_is(broker):
    def reply(job):
        return encode(Reply(VERSION, job, 0, 5, 1, "done", "c"))

    async def act(broker):
        queue = reply_queue("ours", 1)
        await broker.declare(queue)
        for body, kind in (
            (reply("ours"), "reply"),
            (bundle([reply("ours"), reply("ours")]), "reply"),
            (reply("other"), "reply"),
            (b"x", "reply"),
            (b"y", "task"),
        ):
            assert await send(broker, DEAD_QUEUE, dead(body, "delivered too often", queue, kind)) is None
        assert await reclaim_replies(broker, "ours", queue) == 2
        assert (await broker.depth(queue)).ready == 2
        assert len(await read_until(broker, 3)) == 3
        assert await reclaim_replies(broker, "ours", queue) == 0

    on(broker, act=act)
