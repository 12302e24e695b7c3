"""A real child, as its parent sees it: how long it may load."""

import asyncio
import os

import pytest

from overnight_common.messages import VERSION, Encoded, Task, encode
from overnight_consumer.child_process import ChildProcess
from overnight_consumer.deaths import ExitReason
from overnight_consumer.frames import Setup, Work

LOADS = """
import time

class Model:
    def __init__(self, seconds):
        time.sleep(seconds)

    def __call__(self, points):
        return points
"""
HANGS = "import time\ntime.sleep(600)\n"
LIMIT_SECONDS = 2.0


class Ear:
    """Keep what a child says until it is asked for."""

    def __init__(self):
        self.heard = asyncio.Queue()

    def on_ready(self):
        self.heard.put_nowait("ready")

    def on_started(self):
        self.heard.put_nowait("started")

    def on_answer(self, answer):
        self.heard.put_nowait(answer.kind)

    def on_death(self, death):
        self.heard.put_nowait(death)

    async def next(self):
        return await asyncio.wait_for(self.heard.get(), 60)


def with_child(folder, code, act):
    (folder / "served_here.py").write_text(code)
    scratch = folder / "scratch"
    scratch.mkdir()
    given = ("served_here:Model",)
    setup = Setup(given, (), False, str(folder), "cpu", "desk", 1, 1, 1 << 20, str(scratch))

    async def run():
        ear = Ear()
        child = ChildProcess(setup, os.environ, ear, lambda _: None, lambda _: None, LIMIT_SECONDS)
        try:
            await act(child, ear)
        finally:
            await child.stop(0.1)

    asyncio.run(run())


def model(seconds):
    params = {"seconds": seconds}
    body = encode(
        Task(VERSION, "j", "r", 0, 1, 1, "served_here:Model", params=params, data=Encoded("json", b"[1]"))
    )
    return Work(0, body)


def test_a_child_that_is_not_ready_in_time_is_killed_for_that(tmp_path):
    async def act(_child, ear):
        death = await ear.next()
        assert death.why is ExitReason.LOAD_LIMIT
        assert death.load_limit_seconds == LIMIT_SECONDS

    with_child(tmp_path, HANGS, act)


def test_a_child_that_loads_for_too_long_is_killed_for_that_and_not_one_that_has_loaded(tmp_path):
    async def act(child, ear):
        assert await ear.next() == "ready"
        child.send(model(0.0))
        assert [await ear.next(), await ear.next()] == ["started", "done"]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ear.heard.get(), LIMIT_SECONDS + 0.5)
        child.send(model(600.0))
        assert (await ear.next()).why is ExitReason.LOAD_LIMIT

    with_child(tmp_path, LOADS, act)


def test_what_kills_a_child_first_is_the_reason(tmp_path):
    async def act(child, ear):
        child.kill()
        assert (await ear.next()).why is None

    with_child(tmp_path, HANGS, act)
