"""A stop signal that reaches every process at once, as an init or a service manager sends it."""

import asyncio
import contextlib
import os
import signal
import time

import pytest

from overnight_common.brokers.base import task_queue
from support.broker_use import Inbox, until
from support.farm import Farm, alive, children_of, farm_in, mark_in, toys


@pytest.fixture(params=["embedded", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def url(request):
    return None if request.param == "embedded" else request.getfixturevalue("amqp_url")


def run_in(tmp_path, url, act):
    async def run():
        async with farm_in(tmp_path, url) as farm:
            await act(farm)

    asyncio.run(run())


def on(url):
    return () if url is None else ("--broker", url)


def everybody(pid):
    """Return a process and all that descend from it."""
    return [pid, *(each for child in children_of(pid) for each in everybody(child))]


def send_to_everybody(pid, number):
    for each in everybody(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)


def test_running_tasks_survive_a_signal_to_every_process_and_are_answered(tmp_path, url):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "2", *on(url), *toys("sleep"))
        marks = [tmp_path / "0", tmp_path / "1"]
        tasks = [
            farm.publish("toys:sleep", i, params={"seconds": 1.0, "mark": str(mark)})
            for i, mark in enumerate(marks)
        ]
        for mark in marks:
            await mark_in(mark)
        send_to_everybody(consumer.pid, signal.SIGTERM)
        assert await consumer.exit_status() == 0
        assert [(await farm.reply_to_task(task)).kind for task in tasks] == ["done", "done"]
        await farm.until_empty()

    run_in(tmp_path, url, act)


def test_a_signal_to_the_process_group_leaves_the_children_to_their_parent(tmp_path, url):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "1", *on(url), *toys("sleep"))
        mark = tmp_path / "mark"
        task = farm.publish("toys:sleep", params={"seconds": 0.7, "mark": str(mark)})
        await mark_in(mark)
        os.killpg(consumer.pid, signal.SIGTERM)
        assert await consumer.exit_status() == 0
        assert (await farm.reply_to_task(task)).kind == "done"

    run_in(tmp_path, url, act)


def test_after_the_grace_period_what_runs_goes_back_to_its_queue_and_is_not_charged_where_the_broker_can(
    tmp_path, url
):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "1", "--grace", "0.3", *on(url), *toys("sleep"))
        mark = tmp_path / "mark"
        task = farm.publish("toys:sleep", params={"seconds": 1000, "mark": str(mark)})
        child = (await mark_in(mark))[0]
        send_to_everybody(consumer.pid, signal.SIGTERM)
        assert await consumer.exit_status(8) == 0
        assert not alive(child)
        assert farm.replies == []
        inbox = Inbox(farm.broker)
        await farm.broker.subscribe(task_queue("default"), 1, inbox, inbox.lost)
        (delivery,) = await inbox.wait(1)
        assert task.key[1] == 0
        assert delivery.delivery_count == counted_hand_backs(farm.broker.server)
        inbox.ack()
        await farm.until_empty()

    run_in(tmp_path, url, act)


def counted_hand_backs(server):
    """Return what one hand-back adds to the count: RabbitMQ up to 4.2 counts it, 4.3 and the file do not."""
    name, _, version = server.rpartition(" ")
    if "RabbitMQ" not in name:
        return 0
    major, minor = version.split(".")[:2]
    return 0 if (int(major), int(minor)) >= (4, 3) else 1


def test_a_second_signal_kills_at_once_and_nothing_is_left(tmp_path, url):
    async def act(farm: Farm):
        consumer = farm.start("--slots", "1", *on(url), *toys("deaf"))
        mark = tmp_path / "mark"
        farm.publish("toys:deaf", params={"mark": str(mark)})
        child = (await mark_in(mark))[0]
        send_to_everybody(consumer.pid, signal.SIGTERM)
        await until(lambda: "no more tasks" in consumer.log, "the first signal is noted")
        second_at = time.monotonic()
        send_to_everybody(consumer.pid, signal.SIGTERM)
        assert await consumer.exit_status(8) == 128 + signal.SIGTERM
        assert time.monotonic() - second_at < 5
        assert not alive(child)

    run_in(tmp_path, url, act)
