"""What dies, what it costs, and that nothing is left behind."""

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path

from overnight_common.messages import Cause
from support.broker_use import until
from support.farm import Farm, alive, children_of, farm_in, kill, mark_in, toys


def run_in(tmp_path, act):
    async def run():
        async with farm_in(tmp_path) as farm:
            await act(farm)

    asyncio.run(run())


def test_a_killed_child_costs_only_its_own_task_and_is_replaced_at_once(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "2", *toys("sleep double"))
        marks = [tmp_path / "a", tmp_path / "b"]
        tasks = [
            farm.publish("toys:sleep", i, params={"seconds": 1.5, "mark": str(mark)})
            for i, mark in enumerate(marks)
        ]
        pids = [(await mark_in(mark))[0] for mark in marks]
        waiting = farm.publish("toys:double", 5)
        killed_at = time.monotonic()
        kill(pids[0])
        lost = await farm.reply_to_task(tasks[0])
        assert lost.failure is not None
        assert lost.failure.cause is Cause.KILLED_BY_SIGNAL
        assert "SIGKILL (9)" in lost.failure.message
        assert lost.peak_rss_bytes > 1_000_000
        assert lost.seconds > 0
        assert (await farm.reply_to_task(waiting)).kind == "done"
        assert time.monotonic() - killed_at < 1.0
        assert (await farm.reply_to_task(tasks[1])).kind == "done"
        await farm.until_empty()

    run_in(tmp_path, act)


def test_a_folder_for_scratch_that_somebody_cleared_away_is_made_again(tmp_path):
    """As systems do with what has lain in /tmp for days."""
    place = tmp_path / "tmp"
    place.mkdir()

    def clear():
        for folder in place.iterdir():
            shutil.rmtree(folder)

    async def act(farm: Farm):
        words = ("--slots", "1", "--command", "cat", *toys("double exits"))
        farm.start(*words, environment={"TMPDIR": str(place)})
        assert await farm.values("toys:double") == [0]
        clear()
        assert (await farm.run("command:cat", 1)).kind == "done"
        clear()
        assert (await farm.run("toys:exits", 2)).failure is not None
        assert await farm.values("toys:double", 3) == [6]

    run_in(tmp_path, act)


def test_an_exit_in_the_method_is_told_with_status_and_last_words(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "1", *toys("exits double"))
        failure = (await farm.run("toys:exits", params={"status": 3})).failure
        assert failure is not None
        assert failure.cause is Cause.EXIT_STATUS
        assert "exit status 3" in failure.message
        assert "last words" in failure.stderr_tail
        assert await farm.values("toys:double", 2) == [4]

    run_in(tmp_path, act)


def test_a_method_that_writes_into_our_socket_is_told_so_and_nothing_hangs(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "1", *toys("writes_anywhere double"))
        for start, text in enumerate(("hello\n", "\0\0\0\5hello", "\0\7\0\0")):
            failure = (await farm.run("toys:writes_anywhere", start, params={"text": text})).failure
            assert failure is not None
            assert failure.cause is Cause.KILLED_BY_SIGNAL
            assert "file descriptor" in failure.message
        assert await farm.values("toys:double", 9) == [18]

    run_in(tmp_path, act)


def test_a_time_limit_ends_native_code_and_its_grandchild(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "1", *toys("native double"))
        mark = tmp_path / "pids"
        task = farm.publish("toys:native", params={"mark": str(mark)}, time_limit_seconds=0.7)
        pids = await mark_in(mark)
        failure = (await farm.reply_to_task(task)).failure
        assert failure is not None
        assert failure.cause is Cause.TIME_LIMIT
        assert "0.7 s" in failure.message
        assert not any(alive(pid) for pid in pids)
        assert await farm.values("toys:double", 2, time_limit_seconds=5.0) == [4]

    run_in(tmp_path, act)


def test_nothing_outlives_a_parent_that_is_killed(tmp_path):
    script = f"sh -c 'sleep 1000 & sleep 1001 & echo $$ > {tmp_path}/command.pid; wait'"

    async def act(farm: Farm):
        arguments = ("--slots", "2", *toys("native"), "--command", script)
        consumer = farm.start(*arguments)
        mark = tmp_path / "pids"
        farm.publish("toys:native", params={"mark": str(mark)})
        farm.publish(f"command:{script}", 1)
        pids = await mark_in(mark)
        shell = (await mark_in(tmp_path / "command.pid"))[0]
        await until(lambda: len(children_of(shell)) == 2, "the command has started its own")
        pids += [shell, *children_of(shell), *children_of(consumer.pid)]
        environment = Path(f"/proc/{shell}/environ").read_bytes()
        output = Path(environment.split(b"OVERNIGHT_OUTPUT=")[1].split(b"\0")[0].decode())
        scratch = output.parent.parent.parent
        assert scratch.name.startswith("overnight-")
        assert len(pids) == 8
        assert all(alive(pid) for pid in pids)
        consumer.kill()
        await until(lambda: not any(alive(pid) for pid in pids), "all processes are gone", 5)
        await until(lambda: not scratch.exists(), "the scratch folder is gone", 5)

    run_in(tmp_path, act)


def test_a_child_that_cannot_start_is_answered_with_its_last_words(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "2", "--methods", "deadly:double")
        failure = (await farm.run("deadly:double")).failure
        assert failure is not None
        assert failure.cause is Cause.START_FAILED
        assert "exit status 7" in failure.message
        assert "deadly import" in failure.stderr_tail

    run_in(tmp_path, act)


def test_a_task_that_was_lost_with_its_consumer_too_often_is_not_run_again(tmp_path):
    async def act(farm: Farm):
        mark = tmp_path / "mark"
        task = farm.publish("toys:sleep", params={"seconds": 1000, "mark": str(mark)})
        for _ in range(2):
            consumer = farm.start("--slots", "1", "--max-deliveries", "2", *toys("sleep"))
            await mark_in(mark)
            consumer.kill()
            mark.unlink()
        farm.start("--slots", "1", "--max-deliveries", "2", *toys("sleep"))
        reply = await farm.reply_to_task(task)
        assert reply.failure is not None
        assert reply.failure.cause is Cause.LOST_CONSUMER
        assert reply.delivery_count == 2
        assert "2 times" in reply.failure.message
        assert not mark.exists()

    run_in(tmp_path, act)


def test_a_cancelled_job_is_dropped_and_what_runs_is_killed(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "1", *toys("sleep double"))
        mark = tmp_path / "mark"
        farm.publish("toys:sleep", params={"seconds": 1000, "mark": str(mark)})
        for start in range(1, 4):
            farm.publish("toys:sleep", start, params={"seconds": 1000, "mark": str(mark)})
        pid = (await mark_in(mark))[0]
        await farm.broker.delete(farm.reply_to)
        await until(lambda: not alive(pid), "the running task is killed", 15)
        await farm.until_empty()
        other = farm.reply_to.removesuffix(".1") + ".2"
        await farm.broker.declare(other)
        await farm.broker.subscribe(other, 10, farm._take, lambda: None)
        assert await farm.values("toys:double", 9, reply_to=other) == [18]
        assert farm.dead == []

    run_in(tmp_path, act)


def test_the_parent_imports_no_numpy_and_stays_small(tmp_path):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "1", *toys("double"))
        assert await farm.values("toys:double", 2) == [4]
        maps = Path(f"/proc/{consumer.pid}/maps").read_text()
        assert "numpy" not in maps
        assert "numpy" in Path(f"/proc/{children_of(consumer.pid)[-1]}/maps").read_text()
        status = Path(f"/proc/{consumer.pid}/status").read_text()
        resident_kib = int(status.split("VmRSS:")[1].split()[0])
        assert resident_kib < 60 * 1024

    run_in(tmp_path, act)


def test_a_stop_signal_to_a_child_alone_changes_nothing(tmp_path):
    async def act(farm: Farm):
        farm.start("--slots", "1", *toys("sleep"))
        mark = tmp_path / "mark"
        task = farm.publish("toys:sleep", params={"seconds": 0.5, "mark": str(mark)})
        pid = (await mark_in(mark))[0]
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        assert (await farm.reply_to_task(task)).kind == "done"

    run_in(tmp_path, act)
