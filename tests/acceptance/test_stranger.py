"""A task that somebody takes out of the queue for good is missed, and its job still ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from overnight_common.brokers.base import task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.messages import decode_task
from support.broker_use import opened, until
from support.command_line import Desk, noise

if TYPE_CHECKING:
    from overnight_common.brokers.base import Delivery

POINTS = 5


async def steal_last_task(desk: Desk) -> int:
    """Take the last task out of the queue, give the others back, and return where it starts."""
    taken: list[Delivery] = []
    stranger = open_broker(desk.broker, desk.home, max_message_bytes=1 << 20)
    async with opened(stranger):
        await stranger.declare(task_queue("default"))
        subscription = await stranger.subscribe(task_queue("default"), POINTS, taken.append, lambda: None)
        await until(lambda: len(taken) == POINTS, "all tasks are published", 30)
        last = max(taken, key=lambda delivery: decode_task(delivery.message.body).start)
        await subscription.cancel()
        stranger.ack(last)
        for delivery in taken:
            if delivery is not last:
                stranger.hand_back(delivery)
    return decode_task(last.message.body).start


def test_a_job_ends_although_a_stranger_took_its_last_task(any_desk: Desk) -> None:
    desk = any_desk
    driver = desk.start(
        *("run", "counted:noisy", "--data", f"range:{POINTS}", "--batch", "1", "--output", "out.npy"),
        *("--slots", "0", "--queue", "default", "--silence", "1"),
    )
    driver.wait_until(desk.jobs)

    stolen = asyncio.run(steal_last_task(desk))
    desk.consumer("--methods", "counted:noisy", "--slots", "1")
    ended = driver.wait()

    assert stolen == POINTS - 1
    assert ended.status == 0, ended
    assert desk.results().tobytes() == noise(POINTS).tobytes()
    assert set(desk.calls().values()) == {1}
    with desk.job() as job:
        assert job.dropped() == {"silent_task": 1}
