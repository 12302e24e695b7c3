"""Run Overnight as a user would, consumer and driver in processes of their own, and say how long it took."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUEUE = "bench"
STOP_SECONDS = 20


@dataclass(frozen=True)
class Place:
    """Say where a run takes place.

    Attributes:
        name: `embedded` or `rabbitmq`.
        home: folder of job files, of the embedded broker and of logs.
        url: of RabbitMQ, None for the embedded broker.
    """

    name: str
    home: Path
    url: str | None = None

    @property
    def options(self) -> list[str]:
        """Return what both programs must be told."""
        broker = [] if self.url is None else ["--broker", self.url]
        return ["--home", str(self.home), "--queue", QUEUE, *broker]


@dataclass(frozen=True)
class Timed:
    """Hold what a run took.

    Attributes:
        seconds: from the first publish to the last commit.
        peak_rss_bytes: largest resident memory of the driver.
    """

    seconds: float
    peak_rss_bytes: int


@contextlib.contextmanager
def consumer(place: Place, *methods: str, slots: int) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a consumer running; its log is printed when the block fails."""
    served = [word for name in methods for word in ("--methods", f"bench_methods:{name}")]
    log = place.home / "consumer.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "overnight_consumer", *place.options, *served),
                *("--slots", str(slots), "--source", str(HERE)),
            ],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield process
    except BaseException:
        print(log.read_text(errors="replace")[-4000:])
        raise
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run(place: Place, method: str, data: str, *options: str, batch: int | str = 1) -> Timed:
    """Run one job to its end beside the consumer that runs already, and return what it took."""
    times = place.home / "times.json"
    times.unlink(missing_ok=True)
    done = subprocess.run(
        [
            *(sys.executable, str(HERE / "timed_overnight.py"), str(times), "run", f"bench_methods:{method}"),
            *("--data", data, "--batch", str(batch), "--slots", "0", "--source", str(HERE), "--new"),
            *(*place.options, *options),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    seen = json.loads(times.read_text())
    return Timed(seen["last_commit"] - seen["first_publish"], seen["peak_rss_bytes"])


def peak_rss_bytes(pid: int) -> int:
    """Return the largest resident memory that a running process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
