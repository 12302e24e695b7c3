"""Measure that slots are never left waiting: nine calls of a second on three, and 200 tasks of unequal length."""

from __future__ import annotations

import heapq
import statistics
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.overnight_runs import Place, consumer, run

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = [pytest.mark.benchmarks, pytest.mark.timeout(600)]

ROUNDS = 3
NINE_CALLS_LIMIT_SECONDS = 3.2
TASKS, SLOTS, MEAN_SECONDS, SIGMA, SEED = 200, 4, 0.120, 1.0, 20261130
UNEQUAL_LIMIT = 1.05


def unequal_durations() -> NDArray[np.float64]:
    """Return the seconds of 200 tasks: log-normal, and their mean is exactly 120 ms."""
    drawn = np.random.default_rng(SEED).lognormal(0.0, SIGMA, TASKS)
    seconds: NDArray[np.float64] = drawn * (MEAN_SECONDS / drawn.mean())
    return seconds


def list_schedule_seconds(durations: NDArray[np.float64], slots: int) -> float:
    """Return when the last task ends if each slot takes the next one at the moment that it is free."""
    free_at = [0.0] * slots
    for duration in durations:
        heapq.heapreplace(free_at, free_at[0] + float(duration))
    return max(free_at)


def test_nine_calls_of_a_second_take_three_on_three_slots(place: Place) -> None:
    with consumer(place, "sleep", slots=3):
        run(place, "sleep", "range:60", "--param", "seconds=0.02")
        took = [run(place, "sleep", "range:9", "--param", "seconds=1.0").seconds for _ in range(ROUNDS)]
    print(f"\n{place.name}: nine calls of a second on three slots: {_all(took)}; best {min(took):.3f} s")
    assert min(took) < NINE_CALLS_LIMIT_SECONDS


def test_unequal_tasks_keep_every_slot_busy(place: Place, tmp_path: Path) -> None:
    durations = unequal_durations()
    ideal = list_schedule_seconds(durations, SLOTS)
    data = tmp_path / "durations.npy"
    np.save(data, durations)
    with consumer(place, "sleep", "sleep_as_told", slots=SLOTS):
        run(place, "sleep", "range:60", "--param", "seconds=0.02")
        took = [run(place, "sleep_as_told", str(data)).seconds for _ in range(ROUNDS)]
    median = statistics.median(took)
    print(
        f"\n{place.name}: {TASKS} unequal tasks on {SLOTS} slots: {_all(took)}; median {median:.3f} s is "
        f"{median / ideal:.3f} of the simulated {ideal:.3f} s (longest task {durations.max():.2f} s)"
    )
    assert median < UNEQUAL_LIMIT * ideal


def _all(took: list[float]) -> str:
    return ", ".join(f"{seconds:.3f}" for seconds in took) + " s"
