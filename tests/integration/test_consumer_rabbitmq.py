"""The consumer on a real RabbitMQ."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from overnight_common.brokers.base import reply_queue
from support.broker_use import until
from support.farm import alive, farm_in, mark_in, toys


@pytest.mark.rabbitmq
def test_a_running_task_outlives_a_cut_link_and_is_run_once(tmp_path, private_rabbitmq):
    url = private_rabbitmq.vhost()

    async def run():
        async with farm_in(tmp_path, url) as farm:
            farm.start("--slots", "1", "--broker", url, *toys("count_runs"))
            mark, gate = tmp_path / "mark", tmp_path / "gate"
            params = {"mark": str(mark), "gate": str(gate)}
            tasks = [farm.publish("toys:count_runs", start, params=params) for start in range(2)]
            await mark_in(mark)
            await asyncio.to_thread(private_rabbitmq.close_connections)
            await until(
                lambda: "connected again to" in farm.consumers[0].log.split("takes tasks")[1],
                "the link is back",
            )
            gate.touch()
            for task in tasks:
                assert (await farm.reply_to_task(task, 30)).kind == "done"
            await farm.until_empty()
            assert mark.read_text().split() == ["0", "1"]
            farm.consumers[0].send(signal.SIGTERM)
            assert await farm.consumers[0].exit_status() == 0

    asyncio.run(run())


@pytest.mark.rabbitmq
def test_many_short_tasks_all_come_back_once(tmp_path, amqp_url):
    async def run():
        async with farm_in(tmp_path, amqp_url) as farm:
            farm.start("--slots", "2", "--broker", amqp_url, *toys("double"))
            tasks = [farm.publish("toys:double", start) for start in range(1500)]
            await farm.reply_to_task(tasks[-1], 60)
            await until(lambda: len(farm.replies) >= 1500, "all replies", 30)
            await farm.until_empty()
            assert {reply.key for reply in farm.replies} == {task.key for task in tasks}
            assert len(farm.replies) == 1500

    asyncio.run(run())


@pytest.mark.rabbitmq
def test_a_cancel_under_which_the_publishing_connection_breaks_is_seen_at_once(tmp_path, private_rabbitmq):
    url = private_rabbitmq.vhost()

    async def run():
        async with farm_in(tmp_path, url) as farm:
            consumer = farm.start("--slots", "1", "--broker", url, *toys("sleep double"))
            mark = tmp_path / "mark"
            for start in range(3):
                farm.publish("toys:sleep", start, params={"seconds": 1000, "mark": str(mark)})
            pid = (await mark_in(mark))[0]
            await farm.broker.delete(farm.reply_to)
            await asyncio.to_thread(private_rabbitmq.close_connections, only="overnight publishes")
            await until(lambda: not alive(pid), "the running task is killed", 15)
            await farm.until_empty()
            await works_on(farm)
            consumer.send(signal.SIGTERM)
            assert await consumer.exit_status(5) == 0
            assert farm.dead == []

    asyncio.run(run())


@pytest.mark.rabbitmq
def test_jobs_cancelled_in_the_middle_of_many_replies_leave_nothing_behind(tmp_path, amqp_url):
    async def run():
        async with farm_in(tmp_path, amqp_url) as farm:
            consumer = farm.start("--slots", "2", "--broker", amqp_url, *toys("double"))
            # In every third one RabbitMQ 3.10 and 4.0 crash the channel that publishes.
            for number in range(4):
                await cancel_amid_replies(farm, f"cancelled{number}")
            await works_on(farm)
            await farm.until_empty()
            consumer.send(signal.SIGTERM)
            assert await consumer.exit_status(10) == 0
            assert farm.dead == []

    asyncio.run(run())


async def cancel_amid_replies(farm, job):
    """Delete the reply queue of a job of very short tasks while it is being written to."""
    replies = reply_queue(job, 1)
    await farm.broker.declare(replies)
    await farm.broker.subscribe(replies, 1000, farm._take, lambda: None)
    for start in range(1000):
        farm.publish("toys:double", start, job=job, reply_to=replies)
    await until(lambda: sum(reply.job == job for reply in farm.replies) >= 200, "many replies")
    await farm.broker.delete(replies)


async def works_on(farm):
    """See that other jobs are served."""
    other = reply_queue(farm.job, 2)
    await farm.broker.declare(other)
    await farm.broker.subscribe(other, 10, farm._take, lambda: None)
    assert await farm.values("toys:double", 9, reply_to=other) == [18]


def test_a_broker_that_is_not_there_ends_with_status_3_and_without_the_password(tmp_path):
    toys_folder = str(Path(__file__).parent.parent / "support" / "toys")
    words = ["--methods", "toys:double", "--broker", "amqp://me:pigeon@127.0.0.1:1/", "--source", toys_folder]
    run = subprocess.run(
        [sys.executable, "-m", "overnight_consumer", *words, "--broker-timeout", "1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=30,
        check=False,
    )
    assert run.returncode == 3, run.stderr
    assert "127.0.0.1:1" in run.stderr
    assert "pigeon" not in run.stderr
    assert "Traceback" not in run.stderr
