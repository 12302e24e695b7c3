"""What metrics cost: CPU time per no-op task of driver, consumer and children together, with them and without.

Gate: under 3 %, the median of 11 paired runs. The processes' start is left out: CPU time is read at two moments
in the middle of each run, beside the number of points done.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.command_line import Desk
from support.farm import children_of
from support.scraping import base_of, scrape

if TYPE_CHECKING:
    from support.command_line import Program

PAIRS = 11
TASKS = 6000
FIRST, LAST = 1500, 5500
MOST = 1.03
NOOP = "def noop(points):\n    return points\n"


def cpu_seconds(*programs: Program) -> float:
    """Return the CPU time so far of all threads of some programs and of their children."""
    pids = [pid for program in programs for pid in (program.pid, *children_of(program.pid))]
    nanoseconds = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            nanoseconds += int(thread.read_text().split()[0])
    return nanoseconds / 1e9


def seconds_per_task(folder: Path, *flags: str) -> float:
    """Run a job of no-op tasks and return what one costs."""
    folder.mkdir()
    desk = Desk(folder)
    desk.write("nothing.py", NOOP)
    try:
        consumer = desk.consumer("--methods", "nothing:noop", "--slots", "2", "--log-level", "info", *flags)
        consumer.wait_until_it_says("takes tasks")
        run = desk.start(
            *("run", "nothing:noop", "--data", f"range:{TASKS}", "--batch", "1", "--slots", "0"),
            *("--queue", "default", *flags),
        )
        run.wait_until(lambda: bool(desk.jobs()))
        with desk.job() as job:
            seen = []
            for wanted in (FIRST, LAST):
                while (done := job.progress().done) < wanted:
                    assert run.process.poll() is None, run.output
                    time.sleep(0.002)
                seen.append((done, cpu_seconds(run, consumer)))
                if flags and wanted is FIRST:  # as Prometheus does, though it comes less often
                    scrape(base_of(run))
                    scrape(base_of(consumer))
        assert run.wait().status == 0
        (done, cpu), (done_later, cpu_later) = seen
        return (cpu_later - cpu) / (done_later - done)
    finally:
        desk.clear()


@pytest.mark.benchmarks
@pytest.mark.timeout(600)
def test_metrics_cost_less_than_three_percent_of_a_no_op_task(tmp_path: Path) -> None:
    ratios, without = [], []
    for pair in range(PAIRS):
        order = [(), ("--metrics-port", "0")]
        costs = {
            flags: seconds_per_task(tmp_path / f"{pair}-{len(flags)}", *flags)
            for flags in (order if pair % 2 else reversed(order))
        }
        off, on = costs[()], costs["--metrics-port", "0"]
        ratios.append(on / off)
        without.append(off)
        print(
            f"pair {pair + 1:2}: off {off * 1e6:.0f} us, on {on * 1e6:.0f} us of CPU a task, ratio {on / off:.3f}"
        )
    median = statistics.median(ratios)
    print(
        f"median ratio {median:.3f}; a task costs {statistics.median(without) * 1e6:.0f} us of CPU without metrics"
    )
    assert median < MOST
