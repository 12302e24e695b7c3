"""What metrics cost: CPU time per no-op task of driver, consumer and children together, with them and without.

Gate: under 3 %, the median of 11 paired runs. Two whole processes differ by more than that on a busy machine, so
driver and consumer's parent run in this process, on the embedded broker, with real children; within each pair
the observers are switched on, off, off and on again for a quarter of a second each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from overnight_common.brokers.base import task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.datasets import open_dataset
from overnight_common.observing import shielded
from overnight_consumer.metrics import ConsumerMetrics
from overnight_consumer.observer import NOBODY as NO_CONSUMER_OBSERVER
from overnight_consumer.service import Service
from overnight_producer.driving.driver import Driver, DriverSettings, Ending, EndingKind
from overnight_producer.driving.observer import NOBODY as NO_DRIVE_OBSERVER
from overnight_producer.metrics import ProducerMetrics
from support.consumer_settings import settings_of
from support.farm import children_of
from support.job_files import new_job

if TYPE_CHECKING:
    from overnight_producer.jobs.jobfile import JobFile

PAIRS = 11
PART_SECONDS = 0.25
WARM_UP_TASKS = 3000
POINTS = 10_000_000  # more than can be done in time
MAX_MESSAGE_BYTES = 8 * 2**20
MOST = 1.03
NOOP = "def noop(points):\n    return points\n"


class Switch:
    """Pass every hook on to one of two observers."""

    def __init__(self, on: object, off: object) -> None:
        self._observers = {True: on, False: off}
        self.turn(False)

    def turn(self, on: bool) -> None:
        observer = self._observers[on]
        for name in dir(type(self._observers[False])):
            if not name.startswith("_"):
                setattr(self, name, getattr(observer, name))


def cpu_seconds(children: list[int]) -> float:
    """Return the CPU time so far of this process and of the children that run the method."""
    files = [file for pid in children for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return time.process_time() + sum(int(file.read_text().split()[0]) for file in files) / 1e9


@contextlib.asynccontextmanager
async def working(job: JobFile, home: Path, consumer: Any, drive: Any) -> Any:
    """Drive a job of no-op tasks and serve it, as long as the context lasts."""
    settings = settings_of(home, methods=("nothing:noop",), source=home, slots=2, log_level="error")
    serving = Service(settings, open_broker(None, home, max_message_bytes=MAX_MESSAGE_BYTES), consumer)
    broker = open_broker(None, home, max_message_bytes=MAX_MESSAGE_BYTES)
    await broker.open(10)
    driver_settings = DriverSettings(max_message_bytes=MAX_MESSAGE_BYTES)
    with contextlib.closing(open_dataset(job.spec.data_uri)) as dataset:
        driver = Driver(job, broker, dataset, task_queue("default"), driver_settings, onlooker=drive)
        tasks = [asyncio.create_task(serving.run()), asyncio.create_task(driver.run())]
        try:
            yield
        finally:
            driver.end(Ending(EndingKind.INTERRUPTED))
            await tasks[1]
            os.kill(os.getpid(), signal.SIGTERM)
            await tasks[0]
            await broker.close()


async def measure(folder: Path) -> list[tuple[float, float]]:
    """Return pairs of CPU seconds per task, without metrics and with them."""
    consumer = Switch(shielded(ConsumerMetrics(settings_of(slots=2))), NO_CONSUMER_OBSERVER)
    drive = Switch(shielded(ProducerMetrics()), NO_DRIVE_OBSERVER)
    pairs = []
    fingerprint = open_dataset(f"range:{POINTS}").fingerprint()
    spec = {"method": "nothing:noop", "batch": 1, "source": str(folder), "data_fingerprint": fingerprint}
    with new_job(folder, POINTS, **spec) as job, job.lock():
        async with working(job, folder, consumer, drive):
            while job.progress().done < WARM_UP_TASKS:
                await asyncio.sleep(0.05)
            children = children_of(os.getpid())
            for _ in range(PAIRS):
                spent = {True: 0.0, False: 0.0}
                done = {True: 0, False: 0}
                for on in (True, False, False, True):
                    consumer.turn(on)
                    drive.turn(on)
                    before = job.progress().done, cpu_seconds(children)
                    await asyncio.sleep(PART_SECONDS)
                    after = job.progress().done, cpu_seconds(children)
                    done[on] += after[0] - before[0]
                    spent[on] += after[1] - before[1]
                pairs.append((spent[False] / done[False], spent[True] / done[True]))
    return pairs


@pytest.mark.benchmarks
def test_metrics_cost_less_than_three_percent_of_a_no_op_task(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(NOOP)
    pairs = asyncio.run(measure(tmp_path))
    for off, on in pairs:
        print(f"off {off * 1e6:.0f} us, on {on * 1e6:.0f} us of CPU a task, ratio {on / off:.3f}")
    median = statistics.median(on / off for off, on in pairs)
    usual = statistics.median(off for off, _ in pairs)
    print(f"median ratio {median:.3f}; without metrics a no-op task costs {usual * 1e6:.0f} us of CPU")
    assert median < MOST
