"""Measure tasks that do nothing, end to end with all guarantees, beside Celery, Dramatiq, taskiq and raw pika.

Every contender is measured once a round, one after the other, so that a busy machine hits all alike; what is
compared are ratios within a round, and of those the median. A task has one point of 200 bytes.

Our time runs from the first publish to the last result that is safe on the disk. So the peers are compared when
they too give a result back for each task; Dramatiq and taskiq cannot do that over RabbitMQ alone, and get a
result backend through their own interface for it. What they do without results is printed beside it.

Raw pika is the plain loop: one way only, a window of 1,000 confirms, an ack for each message. Grouped acks are
printed beside it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import statistics
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks import rabbitmq_throughput
from benchmarks.overnight_runs import Place, consumer, peak_rss_bytes, run
from benchmarks.peers.side_by_side import PEERS, tasks_per_second

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.benchmarks, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("OVERNIGHT_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("OVERNIGHT_BENCH_SECONDS", "10"))
SLOTS, WARM_UP_TASKS = 2, 4000
WARM_UP_SHORTFALL = (
    1.5  # the warm-up is that much slower than what follows: its window and prefetch must grow
)
PIKA_MESSAGES = 30_000

TIMES_THE_BEST_PEER, SHARE_OF_PIKA, PARENT_MB = 2.3, 0.4, 60
AIM_TASKS = {"rabbitmq": 2000, "embedded": 2500}
AIM_POINTS = 50_000


def test_no_op_tasks_beside_the_peers(
    tmp_path: Path, points_file: Path, fresh_vhost: Callable[[], str]
) -> None:
    for package in ("celery", "dramatiq", "taskiq_aio_pika"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(
                f"NOT MEASURED: no {package} here; `make bench` installs the dependency group `bench`"
            )
    rates: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(ROUNDS):
        for name in ("rabbitmq", "embedded"):
            home = tmp_path / f"{name}-{number}"
            home.mkdir()
            place = Place(name, home, fresh_vhost() if name == "rabbitmq" else None)
            rate, *megabytes = _overnight(place, points_file)
            rates[name].append(rate)
            memory[name].append((megabytes[0], megabytes[1]))
        for peer in PEERS:
            rates[peer.name].append(tasks_per_second(peer, fresh_vhost(), SECONDS))
        for who in ("pika", "pika, acks grouped"):
            rates[who].append(_pika(who, fresh_vhost()))
    for peer in PEERS:  # once, for the record: without the way back, which is half of the work
        if "PEER_RESULTS" in peer.environment:
            bare = replace(peer, environment={**peer.environment, "PEER_RESULTS": "0"})
            rates[f"{peer.name}, no results"] += [tasks_per_second(bare, fresh_vhost(), SECONDS)]
    _report(rates, memory)
    compared = [peer.name for peer in PEERS]
    to_best = _median_ratio(rates, "rabbitmq", compared)
    to_pika = _median_ratio(rates, "rabbitmq", ["pika"])
    print(
        f"RabbitMQ: {to_best:.2f} times the best peer (gate {TIMES_THE_BEST_PEER}), "
        f"{to_pika:.2f} of raw pika with an ack each (gate {SHARE_OF_PIKA}), "
        f"{_median_ratio(rates, 'rabbitmq', ['pika, acks grouped']):.2f} of raw pika with grouped acks"
    )
    bare_best = max(found[0] for name, found in rates.items() if name.endswith("no results"))
    print(f"RabbitMQ: {rates['rabbitmq'][-1] / bare_best:.2f} times the best peer that gives no results back")
    assert max(parent for found in memory.values() for parent, _driver in found) < PARENT_MB
    assert to_pika >= SHARE_OF_PIKA
    assert to_best >= TIMES_THE_BEST_PEER


def test_automatic_batches_carry_many_points_a_second(place: Place, points_file: Path) -> None:
    with consumer(place, "nothing", slots=SLOTS) as process:
        run(place, "nothing", str(points_file), "--count", "60000", batch="auto")
        timed = run(place, "nothing", str(points_file), batch="auto")
        parent = peak_rss_bytes(process.pid) / 1e6
    rate = 600_000 / timed.seconds
    print(
        f"\n{place.name}: --batch auto, 600,000 points of 200 bytes in {timed.seconds:.1f} s: {rate:,.0f} points/s "
        f"(aim {AIM_POINTS:,}); consumer's parent {parent:.0f} MB, driver {timed.peak_rss_bytes / 1e6:.0f} MB"
    )


def _overnight(place: Place, points_file: Path) -> tuple[float, float, float]:
    """Return tasks per second, and the peak memory of the consumer's parent and of the driver in MB."""
    with consumer(place, "nothing", slots=SLOTS) as process:
        warm_up = run(place, "nothing", str(points_file), "--count", str(WARM_UP_TASKS))
        tasks = int(WARM_UP_TASKS / warm_up.seconds * WARM_UP_SHORTFALL * SECONDS)
        timed = run(place, "nothing", str(points_file), "--count", str(tasks))
        return tasks / timed.seconds, peak_rss_bytes(process.pid) / 1e6, timed.peak_rss_bytes / 1e6


def _pika(who: str, url: str) -> float:
    asyncio.run(rabbitmq_throughput.declare(url))
    return rabbitmq_throughput.measure(who, url, PIKA_MESSAGES)


def _median_ratio(rates: dict[str, list[float]], ours: str, others: list[str]) -> float:
    """Return the median over the rounds of our rate to the best of the others in the same round."""
    return statistics.median(
        mine / max(rates[other][number] for other in others) for number, mine in enumerate(rates[ours])
    )


def _report(rates: dict[str, list[float]], memory: dict[str, list[tuple[float, float]]]) -> None:
    settings = {peer.name: peer.settings for peer in PEERS} | {
        "rabbitmq": f"Overnight, quorum queues, results stored; aim {AIM_TASKS['rabbitmq']:,}",
        "embedded": f"Overnight, embedded broker, results stored; aim {AIM_TASKS['embedded']:,}",
        "pika": "messages one way only: window of 1,000 confirms, quorum queue, an ack each",
        "pika, acks grouped": "the same with an ack for each 50",
    }
    print(f"\nno-op tasks/s, {SLOTS} slots or worker processes, median of {ROUNDS} rounds (each round)")
    for name, found in rates.items():
        each = ", ".join(f"{rate:,.0f}" for rate in found)
        print(f"  {name:22} {statistics.median(found):8,.0f}  ({each})  {settings.get(name, '')}")
    for name, found_memory in memory.items():
        parent, driver = (max(column) for column in zip(*found_memory, strict=True))
        print(
            f"  {name}: the consumer's parent took at most {parent:.0f} MB (gate {PARENT_MB}), "
            f"the driver {driver:.0f} MB"
        )
