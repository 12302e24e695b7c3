"""A long job of short tasks takes no more memory at its end than at its beginning.

The window is fixed: left to itself it holds ten seconds of work, and the memory for the tasks that are out grows with
the speed that is measured (some 0.2 kB a task), which is no leak and would hide one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.overnight_runs import HERE, Place, consumer
from overnight_producer.jobs.home import all_jobs
from overnight_producer.jobs.jobfile import JobFile

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.benchmarks, pytest.mark.timeout(900)]

TASKS, WARM_TASKS, WINDOW = 200_000, 10_000, 4_000
GROWTH_MB = 5.0
LOOK_SECONDS = 0.25


@dataclass
class Memory:
    """Follow one process.

    Attributes:
        warm_mb: the most until it was warm.
        most_mb: the most afterwards.
        course: (tasks done, megabytes) at each look.
    """

    pid: int
    warm_mb: float = 0.0
    most_mb: float = 0.0
    course: list[tuple[int, float]] = field(default_factory=list)

    def look(self, done: int) -> None:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        if found is None:
            return  # it has just ended
        megabytes = int(found[1]) / 1000
        self.course.append((done, megabytes))
        if done < WARM_TASKS:
            self.warm_mb = max(self.warm_mb, megabytes)
        else:
            self.most_mb = max(self.most_mb, megabytes)

    @property
    def growth_mb(self) -> float:
        return self.most_mb - self.warm_mb

    def __str__(self) -> str:
        steps = [self.course[number * (len(self.course) - 1) // 10] for number in range(11)]
        return ", ".join(f"{megabytes:.1f} at {done:,}" for done, megabytes in steps)


def test_memory_of_driver_and_parent_is_flat_over_200_000_tasks(place: Place, points_file: Path) -> None:
    with consumer(place, "nothing", slots=2) as parent:
        command = [
            *(sys.executable, "-m", "overnight_producer", "run", "bench_methods:nothing", "--batch", "1"),
            *("--data", str(points_file), "--count", str(TASKS), "--slots", "0", "--source", str(HERE)),
            *("--window", str(WINDOW)),
            *place.options,
        ]
        with (place.home / "run.log").open("wb") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=log)
        followed = {"driver": Memory(driver.pid), "consumer's parent": Memory(parent.pid)}
        began = time.monotonic()
        try:
            follow(place, driver, lambda done: [each.look(done) for each in followed.values()])
        finally:
            driver.kill()
        seconds = time.monotonic() - began
    log_text = (place.home / "run.log").read_text(errors="replace")
    assert driver.returncode == 0, log_text[-4000:]
    print(f"\n{place.name}: {TASKS:,} no-op tasks in {seconds:.0f} s, {TASKS / seconds:,.0f} tasks/s")
    for name, memory in followed.items():
        print(f"  {name}: {memory.growth_mb:+.1f} MB after the first {WARM_TASKS:,} tasks ({memory} tasks)")
    assert max(memory.growth_mb for memory in followed.values()) < GROWTH_MB


def follow(place: Place, driver: subprocess.Popen[bytes], look: Callable[[int], object]) -> None:
    """Look again and again, with the number of tasks done, until the driver has ended."""
    while driver.poll() is None:
        jobs = all_jobs(place.home)
        if jobs:
            with JobFile.open(jobs[-1][0]) as job:
                look(job.progress().done)
        time.sleep(LOOK_SECONDS)
