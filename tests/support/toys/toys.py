"""Methods that tests run in real children."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from overnight_common.facts import method

print("toys are imported")  # a method that is noisy on standard output while it is imported
print("and complains", file=sys.stderr)


def double(points):
    return points * 2


def environment(points):
    return [dict(os.environ)] * len(points)


def process(points):
    return [{"pid": os.getpid(), "cwd": str(Path.cwd()), "session": os.getsid(0)}] * len(points)


def sleep(points, seconds=0.1, mark=""):
    if mark:
        Path(mark).write_text(str(os.getpid()))
    time.sleep(seconds)
    return points


def native(points, mark=""):
    """Hold the interpreter's lock in native code for ever, with a grandchild running."""
    child = subprocess.Popen(["sleep", "1000"], start_new_session=False)
    Path(mark).write_text(f"{os.getpid()} {child.pid}")
    ctypes.PyDLL(None).usleep(1_000_000_000)
    return points


def raises(points):
    raise ValueError(f"bad point {points[0]}")


def nasty(points):
    class NastyError(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    raise NastyError


def exits(points, status=3):
    print("last words", file=sys.stderr, flush=True)
    os._exit(status)


def ends(points):
    sys.exit(5)


def writes_anywhere(points, text="hello\n"):
    """Write into every descriptor that is open, as a program does that closes and reuses numbers wrongly."""
    for descriptor in [int(link.name) for link in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2:
            with contextlib.suppress(OSError):
                os.write(descriptor, text.encode())
    return points


def interrupts(points):
    raise KeyboardInterrupt


def returns(points, what="none"):
    return {
        "none": None,
        "short": points[1:],
        "scalar": 1.0,
        "text": "abc",
        "object": [object()] * len(points),
    }[what]


def noise(points):
    print("x" * 100_000)
    print("loud", file=sys.stderr)
    os.write(1, b"raw\n")
    sys.stdout.close()
    os.close(0)
    return points


def large(points, size=9_000_000):
    return np.zeros((len(points), size), dtype=np.uint8)


def one(point, power=2):
    return point**power


def random_of(point, rng, seeds, indices):
    return [float(rng.random()), int(seeds), int(indices)]


def random_batch(points, *, rng, seeds, indices, device, progress):
    progress(1, 2)
    assert device == "cpu"
    return [
        [float(each.random()), int(seed), int(index)]
        for each, seed, index in zip(rng, seeds, indices, strict=True)
    ]


@method(name="marked", per_point=True)
def marked(point):
    return -point


class Model:
    built = 0

    def __init__(self, factor=1):
        type(self).built += 1
        self.factor = factor
        self.device = None

    def load(self, device):
        self.device = device

    def __call__(self, points):
        return [[int(point) * self.factor, type(self).built, self.device, os.getpid()] for point in points]


class SlowToBuild:
    def __init__(self):
        time.sleep(3600)

    def __call__(self, points):
        return points


def threads_left(points):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return points


def count_runs(points, mark, gate):
    """Write down each run, and end when the gate is there."""
    with Path(mark).open("a") as file:
        file.write(f"{points[0]} ")
    while not Path(gate).exists():
        time.sleep(0.01)
    return points


def allocate(points, mebibytes=3000):
    """Take more and more memory; not without end, lest a test that fails take the machine with it."""
    kept = []
    while len(kept) * 8 < mebibytes:
        kept.append(b"x" * (8 * 2**20))
        time.sleep(0.002)
    return points


def allocate_in_grandchild(points, mark=""):
    code = "kept = [b'x' * (8 * 2**20) for _ in range(300) if not __import__('time').sleep(0.002)]"
    child = subprocess.Popen([sys.executable, "-c", code])
    Path(mark).write_text(f"{os.getpid()} {child.pid}")
    child.wait()
    return points


LEAK = []


def leaks(points, mebibytes=8):
    LEAK.append(b"x" * (mebibytes * 2**20))
    return [os.getpid()] * len(points)


def raises_memory_error(points):
    raise MemoryError("no room for the matrix")


def counts(points):
    """Hold the interpreter's lock in one C loop, for hours."""
    return [sum(range(10**12))]


def daemon(points, mark=""):
    """Leave a process behind that has a session of its own and init for a parent, then work on."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(mark).write_text(f"{os.getppid()} {os.getpid()}")
            time.sleep(1000)
        os._exit(0)
    while not Path(mark).exists():
        time.sleep(0.005)
    time.sleep(1000)
    return points


def deaf(points, mark=""):
    """Ignore every signal that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Path(mark).write_text(str(os.getpid()))
    time.sleep(1000)
    return points


def kills_consumer(points, poison=0, mark=""):
    """Kill the consumer itself when the poisonous point comes."""
    with Path(mark).open("a") as file:
        file.write(f"{points[0]}\n")
    if poison in [int(point) for point in points]:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    return points
