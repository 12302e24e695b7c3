"""Results are those of one plain process that loops over the points, bit by bit."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from support.command_line import DIGITS, Desk, Done
from support.plain_loop import plain_shapley

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

POINTS = 40
PERMUTATIONS = 3
SEED = 7
SLOTS = ("1", "2", "5")
BATCHES = ("1", "7", "auto")


@pytest.fixture(autouse=True)
def _on_one_core() -> Iterator[None]:
    """Hold all that is started to one core: then every slot computes with one BLAS thread, like the plain loop."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@cache
def plain(start: int) -> NDArray[np.float64]:
    return plain_shapley(np.load(DIGITS)[start : start + POINTS], SEED, PERMUTATIONS, start)


def run_shapley(desk: Desk, batch: str, *more: str, start: int = 0) -> Done:
    return desk.overnight(
        "run",
        "shapley",
        *("--data", str(DIGITS), "--param", f"permutations={PERMUTATIONS}", "--seed", str(SEED)),
        *("--start", str(start), "--count", str(POINTS), "--batch", batch, "--output", f"out-{batch}.npy"),
        *more,
    )


def assert_same_bits(desk: Desk, batch: str, start: int = 0) -> None:
    results = desk.results(f"out-{batch}.npy")
    expected = plain(start)
    assert results.dtype == expected.dtype
    assert results.shape == expected.shape
    assert results.tobytes() == expected.tobytes()


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("slots", SLOTS)
def test_the_embedded_broker_gives_the_bits_of_a_plain_loop(desk: Desk, slots: str, batch: str) -> None:
    done = run_shapley(desk, batch, "--slots", slots)

    assert done.status == 0, done
    assert_same_bits(desk, batch)


@pytest.mark.rabbitmq
@pytest.mark.parametrize("slots", SLOTS)
def test_rabbitmq_gives_the_bits_of_a_plain_loop_for_every_batch(rabbit_desk: Desk, slots: str) -> None:
    rabbit_desk.consumer("--methods", "shapley", "--slots", slots)

    for batch in BATCHES:
        done = run_shapley(rabbit_desk, batch, "--new")

        assert done.status == 0, done
        assert_same_bits(rabbit_desk, batch)


def test_a_part_of_the_data_set_gives_the_bits_that_it_has_in_the_whole(desk: Desk) -> None:
    done = run_shapley(desk, "7", start=1000)

    assert done.status == 0, done
    assert_same_bits(desk, "7", start=1000)
