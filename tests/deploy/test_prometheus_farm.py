"""A real Prometheus scrapes a real farm of `serve`, two consumers and RabbitMQ; every expression is asked there."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from overnight_common.brokers.base import DEAD_QUEUE, task_queue
from support.broker_use import opened, put
from support.command_line import Desk, wait_until
from support.dashboards import RULES, alerts, expression_of, queries
from support.known_metrics import KNOWN
from support.prometheus import Prometheus, fault, needed, running
from support.rabbitmq_use import broker_at
from support.scraping import base_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.command_line import Program
    from support.rabbitmq import RabbitMQNode

pytestmark = pytest.mark.rabbitmq

WORK = """
import os, signal, time
from counted import wait_if_held

def work(batch, indices):
    point = int(indices[0])
    wait_if_held(point)
    time.sleep(0.2)
    if point in (10, 20):
        raise ZeroDivisionError(f"point {point} divides by nothing")
    if point == 100:
        os.kill(os.getpid(), signal.SIGSEGV)
    return batch
"""
# The consumer is killed before point 100, so that the deaths there are all of the other one, and all are seen.
POINTS, HELD_FROM, BAD = 150, 146, {10, 20, 100}
FAILURES = {"exception": 6, "killed_by_signal": 3}
# What the two slots of the killed consumer may have answered after its last scrape, of 2 s ago at most.
UNSEEN_REPLIES = 2 * int(2 / 0.2)
# Selectors that match nothing here, and why that is right.
NEVER_MATCHED = {
    "overnight_queue_unacked_tasks": "RabbitMQ tells a driver only what is ready",
    "overnight_gpu_busy_ratio": "no GPU here",
    "overnight_gpu_memory_used_bytes": "no GPU here",
    "overnight_gpu_memory_bytes": "no GPU here",
}


@dataclass
class Farm:
    """Be the farm at the moment when only held points are left, with one of its two consumers killed."""

    desk: Desk
    server: Program
    prometheus: Prometheus
    dead: str
    alive: str
    start: float
    end: float

    def fault(self, expression: str, *, always_true: bool = True) -> str:
        return fault(
            self.prometheus, expression, KNOWN, NEVER_MATCHED, self.start, self.end, always_true=always_true
        )


@pytest.fixture(scope="module")
def farm(private_rabbitmq: RabbitMQNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    needed("prometheus")
    desk = Desk(tmp_path_factory.mktemp("desk"), private_rabbitmq.vhost())
    try:
        desk.write("work.py", WORK)
        desk.hold(0)
        consumers = [
            desk.consumer("--methods", "work:work", "--slots", "2", "--metrics-port", "0") for _ in range(2)
        ]
        server = desk.start("serve", "--metrics-port", "0")
        submitted = desk.overnight(
            *("submit", "work:work", "--data", f"range:{POINTS}", "--batch", "1", "--max-failures", "all"),
            *("--output", "out.npy"),
        )
        assert submitted.status == 0, submitted
        bases = {name: base_of(each) for name, each in zip("ab", consumers, strict=True)}
        targets = {
            **{f"consumer-{name}": f"{base}/metrics" for name, base in bases.items()},
            "producer": f"{base_of(server)}/metrics",
            **pages_of(private_rabbitmq, desk),
        }
        with running(tmp_path_factory.mktemp("prometheus"), targets, RULES) as prometheus:
            yield work_until_held(desk, server, consumers[0], prometheus, bases)
    finally:
        desk.clear()


def pages_of(node: RabbitMQNode, desk: Desk) -> dict[str, str]:
    """Return the pages of RabbitMQ's figures: of the whole node, and of each queue of ours."""
    assert desk.broker is not None
    vhost = desk.broker.rpartition("/")[2]
    wanted = f"family=queue_coarse_metrics&family=queue_consumer_count&vhost={vhost}"
    return {
        "rabbitmq": node.metrics_url.removesuffix("/detailed"),
        "rabbitmq-queues": f"{node.metrics_url}?{wanted}",
    }


def work_until_held(
    desk: Desk, server: Program, victim: Program, prometheus: Prometheus, bases: dict[str, str]
) -> Farm:
    """Let the farm work, kill a consumer in the middle, put a dead letter, and wait until all stands still."""
    start = time.time()
    wait_until(lambda: (prometheus.value("min(count_over_time(up[1m]))") or 0) >= 3, lambda: prometheus.log)
    wait_until(lambda: prometheus.value("sum(up)") == 5, lambda: str(prometheus.now("up")))
    desk.hold(HELD_FROM)
    server.wait_until(lambda: points_ended(desk) > POINTS // 3)
    victim.kill()
    asyncio.run(put_a_foreign_message(desk))
    server.wait_until(lambda: points_ended(desk) == HELD_FROM, seconds=90)
    ended = time.time()
    wait_until(
        lambda: (prometheus.value("min(timestamp(overnight_driver_jobs))") or 0) > ended + 1,
        "a scrape of the driver since",
    )
    dead, alive = (base.removeprefix("http://") for base in bases.values())
    return Farm(desk, server, prometheus, dead, alive, start, time.time())


def points_ended(desk: Desk) -> int:
    with desk.job() as job:
        progress = job.progress()
        return progress.done + progress.given_up


async def put_a_foreign_message(desk: Desk) -> None:
    assert desk.broker is not None
    broker = broker_at(desk.broker)
    async with opened(broker):
        await put(broker, task_queue("default"), b"not ours")
        while not (depth := await broker.depth(DEAD_QUEUE)) or not depth.ready:
            await asyncio.sleep(0.05)


def test_every_expression_of_every_panel_is_valid_and_has_had_a_value(farm: Farm) -> None:
    faults = {}
    for query in queries():
        said = farm.fault(query.expression, always_true=not query.may_be_empty)
        if said:
            faults[str(query)] = said
    assert faults == {}


def test_panels_that_may_be_empty_are_empty_here(farm: Farm) -> None:
    for query in queries():
        if query.may_be_empty:
            assert "no value" in farm.fault(query.expression), str(query)


def test_every_alert_is_evaluated_and_asks_for_figures_that_there_are(farm: Farm) -> None:
    groups = farm.prometheus.get("/api/v1/rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(rules) == set(alerts())
    for name, rule in alerts().items():
        assert rules[name]["health"] == "ok", rules[name]
        assert farm.fault(expression_of(rule), always_true=False) == "", name


def test_alerts_show_what_went_wrong_and_nothing_else(farm: Farm) -> None:
    found = farm.prometheus.get("/api/v1/alerts")["alerts"]
    names = {alert["labels"]["alertname"] for alert in found}
    assert names == {"OvernightSlotsDie", "OvernightDeadLetters", "OvernightTargetDown"}
    down = [alert["labels"] for alert in found if alert["labels"]["alertname"] == "OvernightTargetDown"]
    assert [labels["instance"] for labels in down] == [farm.dead]


def test_counters_agree_with_the_job_file_to_the_unit(farm: Farm) -> None:
    ask = farm.prometheus.value
    with farm.desk.job() as job:
        progress = job.progress()
        failures = Counter(row.failure.cause.value for row in job.failures())
    assert (progress.done, progress.given_up) == (HELD_FROM - len(BAD), len(BAD))
    assert ask("overnight_driver_points_done_total") == progress.done
    assert ask("overnight_driver_tasks_done_total") == progress.tasks_done == progress.done
    assert ask("overnight_driver_points_given_up_total") == progress.given_up
    assert failures == FAILURES
    shown = farm.prometheus.now("overnight_driver_failures_total > 0")
    assert {dict(labels)["cause"]: value for labels, value in shown.items()} == failures
    states = farm.prometheus.now("sum by (state) (overnight_job_points)")
    points = {dict(labels)["state"]: value for labels, value in states.items()}
    assert sum(points.values()) == progress.total == POINTS
    assert points["done"] == progress.done
    assert points["given_up"] == progress.given_up
    assert points["published"] + points["running"] + points["waiting"] == POINTS - HELD_FROM


def test_what_the_consumers_counted_is_what_the_driver_got(farm: Farm) -> None:
    counted = farm.prometheus.value(
        "sum(max_over_time(overnight_consumer_tasks_done_total[1h])) + "
        "sum(max_over_time(overnight_consumer_tasks_failed_total[1h]))"
    )
    got = farm.prometheus.value('sum(overnight_driver_replies_total{kind!="running"})')
    assert counted is not None
    assert got is not None
    assert got - UNSEEN_REPLIES <= counted <= got


def test_the_killed_consumer_is_seen_no_more(farm: Farm) -> None:
    def series_of(consumer: str) -> dict[tuple[tuple[str, str], ...], float]:
        return farm.prometheus.now(f'{{__name__=~"overnight_.+", instance="{consumer}"}}')

    assert farm.prometheus.has_shown(
        f'overnight_consumer_slots{{instance="{farm.dead}"}}', farm.start, farm.end
    )
    assert series_of(farm.dead) == {}
    assert farm.prometheus.value(f'up{{instance="{farm.dead}"}}') == 0
    assert series_of(farm.alive) != {}
    up = next(query.expression for query in queries() if query.panel == "Consumers" and query.letter == "A")
    assert farm.prometheus.value(up) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sum(", "sum((", "refused: "),
        ("rate(", "rat(", "refused: "),
        (
            "overnight_driver_points",
            "overnight_driver_pionts",
            "nobody has: overnight_driver_pionts_done_total",
        ),
        (
            "overnight_driver_points_done_total",
            "overnight_job_points{state='gone'}",
            "nothing has ever matched",
        ),
        ("sum(rate", "1e99 < sum(rate", "had no value at any time"),
        ("[$__rate_interval]", "", "refused: "),
    ],
)
def test_a_broken_expression_is_noticed(farm: Farm, old: str, new: str, said: str) -> None:
    right = next(query.expression for query in queries() if query.panel == "Throughput")
    assert farm.fault(right) == ""
    assert old in right
    assert said in farm.fault(right.replace(old, new, 1))


def test_what_the_list_of_unmatched_selectors_names_is_really_not_there(farm: Farm) -> None:
    for name in NEVER_MATCHED:
        assert not farm.prometheus.has_shown(name, farm.start, farm.end), name


def test_a_job_is_seen_no_more_when_it_has_ended_and_its_service_goes_on(farm: Farm) -> None:
    # The last test: it ends the farm that the others look at.
    farm.desk.let_go()
    farm.server.wait_until_it_says(f"{POINTS - len(BAD)} of {POINTS} points done, {len(BAD)} given up")
    wait_until(lambda: not farm.prometheus.now("overnight_job_points"), "the series of the job end")
    wait_until(lambda: farm.prometheus.value("overnight_driver_jobs") == 0, "it drives nothing now")
    assert farm.prometheus.value("overnight_driver_points_done_total") == POINTS - len(BAD)
    assert farm.server.stop().status == 0, farm.server.output
    wait_until(lambda: farm.prometheus.value("absent(overnight_driver_jobs)") == 1, "the service is gone")
