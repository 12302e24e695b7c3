"""A task that kills every consumer that takes it."""

import asyncio

import pytest

from overnight_common.messages import Cause
from support.broker_use import until
from support.farm import Farm, farm_in, toys


@pytest.fixture(params=["embedded", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def url(request):
    return None if request.param == "embedded" else request.getfixturevalue("amqp_url")


@pytest.mark.parametrize("slots", ["1", "4"])
def test_a_task_that_kills_its_consumers_is_given_up_and_its_neighbours_come_to_no_harm(tmp_path, url, slots):
    points, poison = 30, 7
    mark = tmp_path / "mark"
    arguments = ("--slots", slots, *(("--broker", url) if url else ()), *toys("kills_consumer"))

    async def act(farm: Farm):
        params = {"poison": poison, "mark": str(mark)}
        for start in range(points):
            farm.publish("toys:kills_consumer", start, params=params)
        consumer = farm.start(*arguments)
        while len(answered(farm)) < points:
            assert len(farm.consumers) < 12, answered(farm)
            await until(
                lambda now=consumer: now.process.poll() is not None or len(answered(farm)) == points,
                "the consumer dies or all is answered",
                30,
            )
            if len(answered(farm)) < points:
                consumer = farm.start(*arguments)
        failures = {reply.start: reply.failure for reply in farm.replies if reply.kind == "failed"}
        assert list(failures) == [poison], failures
        assert failures[poison].cause is Cause.LOST_CONSUMER
        assert mark.read_text().split().count(str(poison)) == 5
        assert len(farm.consumers) == 6
        await farm.until_empty()

    async def run():
        async with farm_in(tmp_path, url) as farm:
            await act(farm)

    asyncio.run(run())


def answered(farm: Farm):
    """Return the points with an answer; one whose ack was lost with a consumer has two, which is no harm."""
    return {reply.start for reply in farm.replies}
