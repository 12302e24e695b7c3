"""The command for a job's end is bounded and ends with all that it started."""

from __future__ import annotations

import asyncio

import pytest

from overnight_producer.on_finish import run_on_finish
from support.broker_use import until
from support.farm import alive, mark_in


def run(command, limit_seconds=30.0):
    said = []
    asyncio.run(run_on_finish(command, {"OVERNIGHT_JOB": "j"}, said.append, limit_seconds))
    return said


def test_success_is_not_worth_a_word():
    assert run('test "$OVERNIGHT_JOB" = j') == []


def test_a_signal_is_named():
    assert run("kill -9 $$") == ["--on-finish ended by signal 9; the job is as it was"]


def test_one_that_takes_too_long_is_killed_with_its_children(tmp_path):
    async def go():
        said = []
        task = asyncio.create_task(
            run_on_finish(f"sleep 600 & echo $! > {tmp_path}/pid; wait", {}, said.append, 2.0)
        )
        (child,) = await mark_in(tmp_path / "pid")
        await task
        await until(lambda: not alive(child), "its child is gone")
        assert said == ["--on-finish was killed: it took over 2 s"]

    asyncio.run(go())


def test_a_cancelled_one_is_killed_too(tmp_path):
    async def go():
        said = []
        task = asyncio.create_task(run_on_finish(f"echo $$ > {tmp_path}/pid; sleep 600", {}, said.append))
        (pid,) = await mark_in(tmp_path / "pid")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(pid)
        assert "asked to stop" in said[0]

    asyncio.run(go())


def test_what_cannot_be_started_is_said():
    assert run("\0")[0].startswith("--on-finish could not be started")
