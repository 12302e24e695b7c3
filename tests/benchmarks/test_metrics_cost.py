"""What metrics cost: CPU time per no-op task of driver, consumer and children together, with them and without.

Gate: under 3 %, the median of 11 paired runs. The two runs of a pair go on at the same time, so that whatever
else this machine does falls on both. The start of the processes is left out: CPU time is read at two moments in
the middle of each run, beside the number of points done.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.command_line import Desk
from support.farm import children_of
from support.scraping import base_of, scrape

if TYPE_CHECKING:
    from support.command_line import Program

PAIRS = 11
TASKS = 8000
FIRST, LAST = 1000, 7500
MOST = 1.03
OFF: tuple[str, ...] = ()
ON = ("--metrics-port", "0")
NOOP = "def noop(points):\n    return points\n"


def cpu_seconds(*programs: Program) -> float:
    """Return the CPU time so far of all threads of some programs and of their children."""
    pids = [pid for program in programs for pid in (program.pid, *children_of(program.pid))]
    threads = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in threads) / 1e9


def seconds_per_task(folder: Path, flags: tuple[str, ...]) -> float:
    """Run a job of no-op tasks and return what one costs."""
    folder.mkdir()
    desk = Desk(folder)
    desk.write("nothing.py", NOOP)
    try:
        consumer = desk.consumer("--methods", "nothing:noop", "--slots", "1", *flags)
        consumer.wait_until_it_says("takes tasks")
        run = desk.start(
            *("run", "nothing:noop", "--data", f"range:{TASKS}", "--batch", "1", "--slots", "0"),
            *("--queue", "default", *flags),
        )
        run.wait_until(lambda: bool(desk.jobs()))
        seen = []
        with desk.job() as job:
            for wanted in (FIRST, LAST):
                while (done := job.progress().done) < wanted:
                    assert run.process.poll() is None, run.output
                    time.sleep(0.01)
                seen.append((done, cpu_seconds(run, consumer)))
                if flags and wanted == FIRST:  # as Prometheus does
                    scrape(base_of(run))
                    scrape(base_of(consumer))
        done = run.wait(120)
        assert done.status == 0, done
        (first, cpu), (last, cpu_later) = seen
        return (cpu_later - cpu) / (last - first)
    finally:
        desk.clear()


@pytest.mark.benchmarks
@pytest.mark.timeout(900)
def test_metrics_cost_less_than_three_percent_of_a_no_op_task(tmp_path: Path) -> None:
    ratios, without = [], []
    with ThreadPoolExecutor(2) as pool:
        for pair in range(PAIRS):
            order = (OFF, ON) if pair % 2 else (ON, OFF)
            runs = {
                flags: pool.submit(seconds_per_task, tmp_path / f"{pair}-{len(flags)}", flags)
                for flags in order
            }
            off, on = runs[OFF].result(), runs[ON].result()
            ratios.append(on / off)
            without.append(off)
            print(
                f"pair {pair + 1:2}: off {off * 1e6:.0f} us, on {on * 1e6:.0f} us of CPU, ratio {on / off:.3f}"
            )
    median = statistics.median(ratios)
    usual = statistics.median(without)
    print(f"median ratio {median:.3f}; without metrics a no-op task costs {usual * 1e6:.0f} us of CPU")
    assert median < MOST
