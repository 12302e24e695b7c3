"""What the metrics say is true: while a job runs, with failures and a killed child, and after it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
import urllib.error
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from overnight_common.metrics import BrokerFigures
from overnight_producer.metrics import JOB_STATES
from support.broker_use import opened, until
from support.command_line import Desk, wait_until
from support.rabbitmq_use import broker_at
from support.scraping import base_of, health, scrape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.rabbitmq import RabbitMQNode

WORK = """
import os, pathlib, time

def work(points):
    point = int(points[0])
    mark = pathlib.Path("mark")
    if point in (3, 7):
        raise ValueError(point)
    if point == 5 and not mark.exists():
        mark.with_name("mark.new").write_text(str(os.getpid()))
        mark.with_name("mark.new").rename(mark)
        time.sleep(600)
    while point == 11 and not pathlib.Path("go").exists():
        time.sleep(0.01)
    time.sleep(0.02)
    return points
"""
BAD, KILLED, LAST = (3, 7), 5, 11
TASKS_STARTED = 9 + 3 * len(BAD) + 2  # once, but three times for the bad ones and twice for the killed one


@pytest.fixture(params=["embedded", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    url = request.getfixturevalue("amqp_url") if request.param == "rabbitmq" else None
    desk = Desk(tmp_path, url)
    desk.write("work.py", WORK)
    yield desk
    desk.clear()


def test_figures_agree_with_the_job_file_during_and_after_a_job_with_failures_and_a_killed_child(
    desk: Desk,
) -> None:
    consumer = desk.consumer("--methods", "work:work", "--slots", "2", "--metrics-port", "0")
    at_consumer = base_of(consumer)
    wait_until(lambda: health(at_consumer, "/readyz") == (200, "ok"), lambda: consumer.output)
    run = desk.start(
        *("run", "work:work", "--data", "range:12", "--batch", "1", "--slots", "0", "--queue", "default"),
        *("--metrics-port", "0", "--output", "out.npy"),
    )
    at_driver = base_of(run)
    wait_until(lambda: desk.noted("mark"), lambda: run.output)
    os.kill(desk.noted("mark")[0], signal.SIGKILL)

    def only_the_last_is_left() -> bool:
        with desk.job() as job:
            progress = job.progress()
            return progress.done + progress.given_up == 11

    run.wait_until(only_the_last_is_left)
    id_ = desk.jobs()[0]
    # The figures of a job are those of its latest snapshot, which is taken four times a second.
    settled = {"done": 9, "given_up": 2}
    wait_until(
        lambda: points_by_state(at_driver, id_) | settled == points_by_state(at_driver, id_), "a snapshot"
    )

    check_driver(desk, at_driver, id_)
    check_consumer_at_work(at_consumer)

    desk.write("go", "")
    assert run.wait().status == 1
    with pytest.raises(urllib.error.URLError):
        scrape(at_driver)

    def all_free() -> bool:
        return scrape(at_consumer).by("consumer_slots", "state") == {"free": 2}

    wait_until(all_free, lambda: consumer.output)
    after = scrape(at_consumer)
    assert after.by("consumer_tasks_done_total", "method") == {"work:work": 10}
    assert after.by("consumer_points_done_total", "queue") == {"default": 10}
    assert after.get("consumer_oldest_task_seconds") == after.get("consumer_held_deliveries") == 0
    assert health(at_consumer, "/livez") == (200, "ok")
    assert consumer.stop().status == 0


def points_by_state(base: str, id_: str) -> dict[str, float]:
    figures = scrape(base)
    return {state: figures.get("job_points", job_id=id_, state=state) for state in JOB_STATES}


def check_driver(desk: Desk, base: str, id_: str) -> None:
    """Compare every counter with the job file, which stands still while the last point waits."""
    now = time.time()
    read_at = "queue_read_timestamp_seconds"
    wait_until(lambda: scrape(base).get(read_at, queue="default") > now, "the queue was looked at since")
    figures = scrape(base)
    with desk.job() as job:
        progress = job.progress()
        failures = Counter(row.failure.cause.value for row in job.failures(100))
    assert failures == {"exception": 6, "killed_by_signal": 1}
    assert figures.by("driver_failures_total", "cause") == failures
    assert figures.get("driver_points_done_total") == progress.done == 9
    assert figures.get("driver_tasks_done_total") == progress.tasks_done == 9
    assert figures.get("driver_points_given_up_total") == progress.given_up == len(BAD)
    assert figures.get("driver_tasks_published_total") == TASKS_STARTED
    assert figures.by("driver_replies_total", "cause") == failures | {"none": 9.0}
    assert figures.by("driver_replies_dropped_total", "reason") == {}
    points = points_by_state(base, id_)
    assert points["published"] + points["running"] == progress.published + progress.running == 1
    assert points["waiting"] == progress.waiting == 0
    assert figures.get("queue_ready_tasks", queue="default") == 0
    assert figures.get("queue_consumers", queue="default") >= 1
    assert now < figures.get(read_at, queue="default") <= time.time()
    assert figures.get("driver_jobs") == figures.get("broker_connected") == 1
    assert health(base, "/livez") == health(base, "/readyz") == (200, "ok")


def check_consumer_at_work(base: str) -> None:
    """See that one slot is busy for longer and longer, and that what was before is counted."""
    began = time.monotonic()
    figures = scrape(base)
    assert figures.by("consumer_tasks_done_total", "method") == {"work:work": 9}
    assert figures.by("consumer_tasks_failed_total", "cause") == {"exception": 6, "killed_by_signal": 1}
    assert figures.by("child_exits_total", "reason") == {"killed": 1}
    assert figures.by("child_starts_total", "reason") == {"first": 2, "death": 1}
    assert figures.by("consumer_slots", "state") == {"busy": 1, "free": 1}
    assert figures.get("consumer_held_deliveries") == 1
    assert figures.by("consumer_wait_seconds_count", "queue") == {"default": TASKS_STARTED}
    assert figures.by("consumer_run_seconds_count", "method") == {"work:work": TASKS_STARTED - 1}
    assert figures.get("consumer_confirm_seconds_count") == 9 + 7
    memory = figures.by("slot_memory_bytes", "slot")
    assert set(memory) == {"1", "2"}
    assert all(10e6 < size < 1e9 for size in memory.values())

    def has_grown() -> bool:
        return scrape(base).get("consumer_oldest_task_seconds") > 1.0

    wait_until(has_grown, "the oldest task grows older")
    later = scrape(base)
    elapsed = time.monotonic() - began
    grown = sum(later.by("slot_busy_seconds_total", "slot").values()) - sum(
        figures.by("slot_busy_seconds_total", "slot").values()
    )
    assert 0 < grown <= elapsed
    older = later.get("consumer_oldest_task_seconds") - figures.get("consumer_oldest_task_seconds")
    assert older == pytest.approx(grown, abs=0.05)


def test_a_busy_port_ends_either_program_with_status_two_before_anything_is_published(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.write("work.py", WORK)
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            run = desk.overnight("run", "work:work", "--data", "range:3", OVERNIGHT_METRICS_PORT=str(port))
            consumer = desk.consumer("--methods", "work:work", "--metrics-port", str(port)).wait()
        for done in (run, consumer):
            assert done.status == 2, done
            assert f"--metrics-port {port}" in done.output
        assert desk.jobs() == []
    finally:
        desk.clear()


def test_the_consumer_of_a_run_does_not_fight_for_its_port(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.write("work.py", WORK)
    try:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        done = desk.overnight("run", "work:work", "--data", "range:3", OVERNIGHT_METRICS_PORT=str(port))
        assert done.status == 0, done
        assert f"metrics at http://127.0.0.1:{port}/metrics" in done.output
    finally:
        desk.clear()


@pytest.mark.rabbitmq
def test_a_link_that_the_broker_closes_is_counted_as_such(
    private_rabbitmq: RabbitMQNode, amqp_url: str
) -> None:
    async def go() -> None:
        broker, figures = broker_at(amqp_url), BrokerFigures()
        figures.follow(broker)

        def lost() -> dict[str, float]:
            (reading,) = [each for each in figures.read() if each.family.kind == "counter"]
            return {reason: count for (reason,), count in reading.values.items() if count}

        async with opened(broker):
            assert figures.connected
            await asyncio.to_thread(private_rabbitmq.close_connections)
            await until(lambda: bool(lost()), "the loss is counted")
            await until(lambda: figures.connected, "the link is made again")
        assert lost() == {"closed_by_broker": 1}
        assert not figures.connected

    asyncio.run(go())
