"""Hundreds of tiny tasks with one among them that dies, or lasts: only that one is any different."""

import asyncio

from overnight_common.messages import Cause
from support.broker_use import until
from support.farm import Farm, farm_in, mark_in, toys

TINY = 400


def run_in(tmp_path, act):
    async def run():
        async with farm_in(tmp_path) as farm:
            await act(farm)

    asyncio.run(run())


async def warmed_up(farm: Farm, names: str) -> None:
    """Start a consumer and let it learn that tasks are tiny."""
    farm.start("--slots", "2", *toys(names))
    for start in range(TINY):
        farm.publish("toys:double", start)
    await until(lambda: len(farm.replies) == TINY, "the tiny tasks are done", 30.0)
    farm.replies.clear()


def test_a_task_that_kills_its_child_costs_its_neighbours_in_that_child_nothing(tmp_path):
    async def act(farm: Farm):
        await warmed_up(farm, "double exits")
        tasks = [farm.publish("toys:exits" if i in (50, 51, 90) else "toys:double", i) for i in range(120)]
        await until(lambda: len(farm.replies) == len(tasks), "all is answered", 30.0)
        failed = {reply.start: reply.failure.cause for reply in farm.replies if reply.failure}
        assert failed == dict.fromkeys((50, 51, 90), Cause.EXIT_STATUS)
        assert sorted(reply.start for reply in farm.replies) == list(range(120))
        await farm.until_empty()

    run_in(tmp_path, act)


def test_tiny_tasks_do_not_wait_in_a_child_for_a_long_one_before_them(tmp_path):
    mark = tmp_path / "mark"

    async def act(farm: Farm):
        await warmed_up(farm, "double sleep")
        for start in range(200):
            if start == 20:
                farm.publish("toys:sleep", start, params={"seconds": 8.0, "mark": str(mark)})
            else:
                farm.publish("toys:double", start)
        await mark_in(mark)
        await until(lambda: len(farm.replies) == 199, "all but the long one are done", 6.0)
        assert 20 not in {reply.start for reply in farm.replies}
        await until(lambda: len(farm.replies) == 200, "the long one is done", 30.0)
        assert sorted(reply.start for reply in farm.replies) == list(range(200))
        await farm.until_empty()

    run_in(tmp_path, act)
