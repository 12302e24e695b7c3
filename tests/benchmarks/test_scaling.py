"""Measure that two slots on two cores do twice the work, as far as two plain processes do."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from benchmarks.bench_methods import burn_once
from benchmarks.overnight_runs import HERE, Place, consumer, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.benchmarks, pytest.mark.timeout(600)]

ROUNDS, POINTS, POINT_SECONDS = 3, 100, 0.050
# What two plain processes gain tells what the machine can give; where that is nearly 2, we must give 1.7.
QUIET_GAIN, QUIET_LIMIT, SHARE_OF_PLAIN = 1.9, 1.7, 0.88


def test_two_slots_do_nearly_twice_the_work_of_one(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("NOT MEASURED: needs two cores")
    loops = _loops_of(POINT_SECONDS)
    places = {}
    for slots in (1, 2):
        home = tmp_path / str(slots)
        home.mkdir()
        places[slots] = Place("embedded", home)
    plain_gains, gains = [], []
    with consumer(places[1], "burn", slots=1), consumer(places[2], "burn", slots=2):
        options = ("--param", f"loops={loops}")
        for place in places.values():
            run(place, "burn", "range:8", *options)
        for _ in range(ROUNDS):
            plain_gains.append(2 * _plain_seconds(1, loops) / _plain_seconds(2, loops))
            one, two = (run(places[slots], "burn", f"range:{POINTS}", *options).seconds for slots in (1, 2))
            gains.append(one / two)
    gain, plain = statistics.median(gains), statistics.median(plain_gains)
    print(
        f"\nscaling: {POINTS} points of {POINT_SECONDS * 1000:.0f} ms: 2 slots are {gain:.2f} times as fast as 1 "
        f"(each round {', '.join(f'{one:.2f}' for one in gains)}); plain processes {plain:.2f}"
    )
    assert gain >= SHARE_OF_PLAIN * plain
    if plain >= QUIET_GAIN:
        assert gain >= QUIET_LIMIT


def _loops_of(seconds: float) -> int:
    """Return how many turns take so long on this machine."""
    loops = 200_000
    took = []
    for _ in range(5):
        began = time.perf_counter()
        burn_once(loops)
        took.append(time.perf_counter() - began)
    return int(loops * seconds / min(took))


def _plain_seconds(processes: int, loops: int) -> float:
    """Return how long so many plain processes take at once, each for half of the points."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from bench_methods import burn_once\n"
        "print('ready', flush=True); input()\n"
        f"for _ in range({POINTS // 2}): burn_once({loops})\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(HERE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        process.wait(120)
    took = time.perf_counter() - began
    for process in started:
        process.communicate()
    return took
