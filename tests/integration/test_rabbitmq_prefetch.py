"""Hold the prefetch on RabbitMQ exactly, also while it changes."""

from __future__ import annotations

import asyncio
import random

import pytest

from overnight_common.brokers.base import Delivery
from support.broker_use import Inbox, Outcomes, linger, opened, put, until
from support.rabbitmq_use import QUEUE, broker_at
from support.raw_amqp import publish_raw

pytestmark = pytest.mark.rabbitmq


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
            # After a lowering, what was held before may stay; it may shrink, and never grow again.
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


def test_a_slot_that_gets_free_after_a_lowering_is_filled_although_the_others_are_long_busy(url: str) -> None:
    async def scene() -> None:
        broker = broker_at(url)
        async with opened(broker):
            await broker.declare(QUEUE)
            await put(broker, QUEUE, *(b"%d" % n for n in range(60)))
            inbox = Inbox(broker)
            subscription = await broker.subscribe(QUEUE, 40, inbox, inbox.lost)
            await inbox.wait(40)
            subscription.set_prefetch(8)
            inbox.hand_back(*inbox.held[8:])
            await linger(broker, QUEUE)
            assert len(inbox.held) == 8

            delivered = len(inbox.deliveries)
            inbox.ack(inbox.held[0])

            await inbox.wait(delivered + 1, seconds=2)
            assert len(inbox.held) == 8

    asyncio.run(scene())


@pytest.mark.parametrize("keep_late", [False, True])
def test_what_is_on_its_way_at_a_lowering_goes_back_unless_it_is_to_be_kept(
    url: str, keep_late: bool
) -> None:
    async def scene() -> None:
        broker, source = broker_at(url), broker_at(url)
        got: list[int] = []

        def take(delivery: Delivery) -> None:
            got.append(delivery.delivery_count)
            if len(got) == 1:
                subscription.set_prefetch(1, keep_late=keep_late)

        async with opened(broker, source):
            await source.declare(QUEUE)
            subscription = await broker.subscribe(QUEUE, 50, take, lambda: None)
            publish_raw(
                url, [(QUEUE, b"%d" % n, {}) for n in range(50)]
            )  # our loop stands: they come all at once
            await until(lambda: len(got) >= 1, "the first")
            await linger(broker, QUEUE)
            depth = await source.depth(QUEUE)
            assert depth is not None
            assert len(got) + depth.ready == 50
            assert (len(got) > 1) == keep_late

    asyncio.run(scene())
