"""The consumer on a real RabbitMQ."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker_use import until
from support.farm import farm_in, mark_in, toys


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
                lambda: "connected to" in farm.consumers[0].log.split("takes tasks")[1], "the link is back"
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
