"""Be a user's own module: methods that note each point they are called for, and wait where a test says so."""

import os
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def note(name, line):
    """Append a line to a file beside this module, whole even when many processes do it."""
    file = os.open(HERE / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def wait_if_held(index):
    """Wait while the file `hold` is there and names this point or one before it."""
    noted = False
    while True:
        try:
            first = int((HERE / "hold").read_text())
        except FileNotFoundError:
            return
        if index < first:
            return
        if not noted:
            note("held", index)
            noted = True
        time.sleep(0.01)


def noisy(batch, seeds, indices):
    """Return four random numbers for each point, `[n, 4]`."""
    rows = []
    for seed, index in zip(seeds, indices, strict=True):
        note("calls", index)
        wait_if_held(index)
        rows.append(np.random.Generator(np.random.PCG64(int(seed))).standard_normal(4))
    return np.array(rows)


def square(batch, indices):
    """Return the square of each point."""
    for index in indices:
        note("calls", index)
    return batch * batch


def held_square(batch, indices):
    """Return the square of each point, when the test lets it go on."""
    for index in indices:
        wait_if_held(index)
    return batch * batch


def lengths(batch):
    """Return how many letters each point has."""
    return [len(text) for text in batch]


def wide(batch, indices):
    """Return each point's index 5,000 times: 40 kB a point."""
    for index in indices:
        note("calls", index)
    return np.repeat(np.asarray(batch, dtype=float)[:, np.newaxis], 5_000, axis=1)
