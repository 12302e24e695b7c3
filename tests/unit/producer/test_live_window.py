"""The window holds some seconds of the work that goes out now, not of that which was measured a while ago."""

import asyncio

import pytest

from overnight_common.awake import awake_seconds
from overnight_common.brokers.base import Depth
from overnight_producer.driving.live_window import LiveWindow
from overnight_producer.driving.rates import Rates
from overnight_producer.driving.share import QueueShare
from support.standings import finished


class Broker:
    async def depth(self, _queue):
        return Depth(30, None, 2)


@pytest.mark.parametrize(("next_task_seconds", "tasks"), [(2.0, 10), (5.0, 4), (0.01, 32), (0.0, 32)])
def test_it_comes_down_as_soon_as_tasks_grow(next_task_seconds, tasks):
    async def settled():
        now = awake_seconds()
        rates = Rates(now - 10.0)
        for number in range(80):  # small ones, eight a second
            rates.done(
                finished(number, number + 1, slot=1 + number % 2, seconds=0.25), now - 9.0 + number / 10
            )
        window = LiveWindow("job", rates, QueueShare(), None, 10.0)
        window.size = 32
        looks = 0
        enough = asyncio.Event()

        def looked():
            nonlocal looks
            looks += 1
            if looks == 20:
                enough.set()

        keeping = asyncio.create_task(
            window.keep(
                Broker(), "queue", lambda: 5, lambda: 99, lambda: 0, lambda: next_task_seconds, looked
            )
        )
        await asyncio.wait_for(enough.wait(), 20)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        return window.size

    assert asyncio.run(settled()) == tasks
