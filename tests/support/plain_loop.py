"""What every distributed run must equal: one plain process that loops over the points."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overnight_consumer.methods.shapley import shapley


def point_seeds(seed: int, start: int, stop: int) -> NDArray[np.uint64]:
    """Derive the seeds of the points `[start, stop)` from a job's seed, as the consumer's child must."""
    sequences = (np.random.SeedSequence(entropy=seed, spawn_key=(index,)) for index in range(start, stop))
    return np.array([sequence.generate_state(1, np.uint64)[0] for sequence in sequences], dtype=np.uint64)


def plain_shapley(points: NDArray[Any], seed: int, permutations: int, start: int = 0) -> NDArray[np.float64]:
    """Return `[n, 64]` for points `[n, 64]`, whose first has the index `start` in its data set."""
    from threadpoolctl import threadpool_limits  # an image that computes the same loop does not have it

    with threadpool_limits(limits=1):
        return np.concatenate(list(one_by_one(points, seed, permutations, start)))


def one_by_one(
    points: NDArray[Any], seed: int, permutations: int, start: int
) -> Iterator[NDArray[np.float64]]:
    seeds = point_seeds(seed, start, start + len(points))
    for i in range(len(points)):
        yield shapley(points[i : i + 1], seeds=seeds[i : i + 1], permutations=permutations)
