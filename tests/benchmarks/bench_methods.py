"""Hold the methods that the benchmarks run."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray


def nothing(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first number of each point, `[n]`."""
    return points[:, 0]


def sleep(points: NDArray[np.int64], seconds: float = 1.0) -> NDArray[np.int64]:
    """Sleep `seconds` a point."""
    time.sleep(seconds * len(points))
    return points


def sleep_as_told(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sleep as many seconds as each point says."""
    for seconds in points:
        time.sleep(float(seconds))
    return points


def burn(points: NDArray[np.int64], loops: int = 500_000) -> list[int]:
    """Keep one core busy with `loops` turns of a plain loop for each point."""
    return [burn_once(loops) for _ in points]


def burn_once(loops: int) -> int:
    """Return what `loops` turns of a plain loop come to."""
    total = 0
    for number in range(loops):
        total += number & 7
    return total
