"""Let a peer's driver warm up, find its rate, and measure it over a given time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

WARM_UP_TASKS = 50
CALIBRATION_TASKS = 400


def measure(run: Callable[[int], None], seconds: float) -> None:
    """Print `{"tasks": n, "seconds": s}` for about `seconds` of work.

    Args:
        run: does so many tasks and returns when the last one has ended.
        seconds: how long the measured part should take.
    """
    run(WARM_UP_TASKS)
    rate = CALIBRATION_TASKS / _timed(run, CALIBRATION_TASKS)
    tasks = int(rate * seconds)
    print(json.dumps({"tasks": tasks, "seconds": _timed(run, tasks)}), flush=True)


def _timed(run: Callable[[int], None], tasks: int) -> float:
    began = time.perf_counter()
    run(tasks)
    return time.perf_counter() - began
