"""Be a user's own module: a method whose points take unequal time and are noted as they begin."""

import os
import time

import numpy as np
from counted import note


def noisy(batch, seeds, indices):
    """Return four random numbers for each point, `[n, 4]`, after 1 to 200 ms a point."""
    rows = []
    for seed, index in zip(seeds, indices, strict=True):
        note("begun", f"{index} {time.monotonic():.4f} {os.getppid()}")
        random = np.random.Generator(np.random.PCG64(int(seed)))
        time.sleep(0.001 * 200.0 ** random.random())
        rows.append(random.standard_normal(4))
    return np.array(rows)
