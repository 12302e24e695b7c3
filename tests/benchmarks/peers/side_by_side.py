"""Start a peer's two worker processes on a virtual host, let its driver measure, and end them again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
STOP_SECONDS = 3


@dataclass(frozen=True)
class Peer:
    """Say how a peer is run.

    Attributes:
        name: of its module here, without `with_`.
        worker: arguments after `python -m`.
        settings: what it was configured to do, for the printed table.
        environment: variables for worker and driver.
    """

    name: str
    worker: str
    settings: str
    environment: dict[str, str] = field(default_factory=dict)


_OVER_RABBITMQ = (
    "a result backend of our own over RabbitMQ (it has none): persistent, confirmed, before the ack"
)
PEERS = (
    Peer(
        "celery",
        "celery -A with_celery worker --pool prefork --concurrency 2 --loglevel ERROR"
        " --without-gossip --without-mingle --without-heartbeat",
        "quorum queue, confirms, acks_late, prefetch 256, 4 publishing threads, results over its rpc:// (transient)",
        {"PEER_THREADS": "4", "PEER_PREFETCH": "128"},
    ),
    Peer(
        "dramatiq",
        "dramatiq with_dramatiq --processes 2 --threads 1",
        "classic queue (it has no other), confirms, ack after run, prefetch 64, 16 publishing threads, "
        + _OVER_RABBITMQ,
        {"PEER_THREADS": "16", "PEER_RESULTS": "1", "dramatiq_queue_prefetch": "64"},
    ),
    Peer(
        "taskiq",
        "taskiq worker with_taskiq:broker --workers 2 --ack-type when_saved --log-level ERROR",
        "quorum queue, confirms, ack when saved, prefetch 100, 200 publishes in flight, async task, "
        + _OVER_RABBITMQ,
        {"PEER_RESULTS": "1"},
    ),
)


def tasks_per_second(peer: Peer, url: str, seconds: float) -> float:
    """Return no-op tasks per second of a peer over about `seconds` of work, on an empty virtual host."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            **peer.environment,
            "PEER_URL": url,
            "PEER_COUNT_FILE": str(Path(folder) / "count"),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
        log = Path(folder) / "worker.log"
        with log.open("wb") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", *peer.worker.split()],
                cwd=HERE,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            driver = subprocess.run(
                [sys.executable, str(HERE / f"with_{peer.name}.py"), f"{seconds:g}"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
        finally:
            _end(worker)
        if driver.returncode != 0:
            raise RuntimeError(f"{peer.name}: {driver.stderr}\n{log.read_text(errors='replace')}")
        measured = json.loads(driver.stdout.splitlines()[-1])
    return float(measured["tasks"] / measured["seconds"])


def _end(worker: subprocess.Popen[bytes]) -> None:
    """End the worker with its children, which share its session."""
    worker.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
