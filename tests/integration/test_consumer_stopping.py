"""How a consumer ends."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time

from support.broker_use import until
from support.farm import Farm, alive, children_of, farm_in, mark_in, toys


def run_in(tmp_path, act):
    async def run():
        async with farm_in(tmp_path) as farm:
            await act(farm)

    asyncio.run(run())


def test_a_stop_signal_lets_running_tasks_end_and_hands_back_the_rest(tmp_path):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "2", *toys("sleep"))
        tasks = [
            farm.publish("toys:sleep", i, params={"seconds": 0.8, "mark": str(tmp_path / str(i))})
            for i in range(5)
        ]
        await mark_in(tmp_path / "0")
        await mark_in(tmp_path / "1")
        consumer.send(signal.SIGTERM)
        assert await consumer.exit_status() == 0
        assert {reply.key for reply in farm.replies} == {task.key for task in tasks[:2]}
        depth = await farm.broker.depth(farm.queue)
        assert depth is not None
        assert (depth.ready, depth.unacked) == (3, 0)

    run_in(tmp_path, act)


def test_a_second_signal_kills_what_runs_and_the_task_goes_back(tmp_path):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "1", *toys("sleep"))
        mark = tmp_path / "mark"
        farm.publish("toys:sleep", params={"seconds": 1000, "mark": str(mark)})
        child = (await mark_in(mark))[0]
        consumer.send(signal.SIGINT)
        await until(lambda: "no more tasks" in consumer.log, "the first signal is noted")
        assert consumer.process.poll() is None
        consumer.send(signal.SIGINT)
        assert await consumer.exit_status(5) == 128 + signal.SIGINT
        assert not alive(child)
        assert children_of(consumer.pid) == []
        assert farm.replies == []
        depth = await farm.broker.depth(farm.queue)
        assert depth is not None
        assert (depth.ready, depth.unacked) == (1, 0)

    run_in(tmp_path, act)


def test_a_locked_broker_file_does_not_hold_who_is_told_twice_to_stop(tmp_path):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "1", *toys("sleep"))
        mark = tmp_path / "mark"
        farm.publish("toys:sleep", params={"seconds": 1000, "mark": str(mark)})
        child = (await mark_in(mark))[0]
        lock = sqlite3.connect(tmp_path / "broker.sqlite", isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        consumer.send(signal.SIGTERM)
        await until(lambda: "no more tasks" in consumer.log, "the first signal is noted")
        consumer.send(signal.SIGTERM)
        assert await consumer.exit_status() == 128 + signal.SIGTERM
        assert not alive(child)
        lock.close()

    run_in(tmp_path, act)


def test_the_grace_period_ends_the_wait(tmp_path):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "1", "--grace", "0.3", *toys("sleep"))
        mark = tmp_path / "mark"
        farm.publish("toys:sleep", params={"seconds": 1000, "mark": str(mark)})
        child = (await mark_in(mark))[0]
        consumer.send(signal.SIGTERM)
        assert await consumer.exit_status(5) == 0
        assert not alive(child)
        depth = await farm.broker.depth(farm.queue)
        assert depth is not None
        assert (depth.ready, depth.unacked) == (1, 0)

    run_in(tmp_path, act)


def test_an_idle_consumer_ends_after_the_time_given_and_not_while_it_works(tmp_path):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "1", "--idle-exit", "0.7", *toys("sleep"))
        task = farm.publish("toys:sleep", params={"seconds": 1.5})
        await farm.reply_to_task(task)
        assert consumer.process.poll() is None
        ended_at = time.monotonic()
        assert await consumer.exit_status(5) == 0
        assert 0.4 < time.monotonic() - ended_at < 3

    run_in(tmp_path, act)


def test_bad_input_ends_with_status_2_and_all_faults_at_once(tmp_path):
    words = [
        "--methods",
        "nowhere:double",
        "--slots",
        "none",
        "--source",
        str(tmp_path / "gone"),
        "--grace",
        "-1",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "overnight_consumer", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 2
    for fault in ("nowhere", "--slots 'none'", "gone", "--grace -1"):
        assert fault in run.stderr
    assert "Traceback" not in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_broker_ends_with_status_2_and_without_the_password(tmp_path):
    words = ["--methods", "toys:double", "--broker", "carrier://me:pigeon@loft"]
    run = subprocess.run(
        [sys.executable, "-m", "overnight_consumer", *words, "--source", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 2
    assert "pigeon" not in run.stderr


def test_a_small_backlog_of_short_tasks_is_shared_by_all_slots(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "3", *toys("sleep process"))
        await asyncio.gather(*(farm.run("toys:process", 100 + i) for i in range(3)))
        began = time.monotonic()
        tasks = [farm.publish("toys:sleep", i, params={"seconds": 0.3}) for i in range(9)]
        replies = [await farm.reply_to_task(task) for task in tasks]
        assert {reply.slot for reply in replies} == {1, 2, 3}
        assert time.monotonic() - began < 1.6

    run_in(tmp_path, act)
