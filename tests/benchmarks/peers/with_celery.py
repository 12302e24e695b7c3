"""Do no-op tasks with Celery: quorum queue, publisher confirms, late ack, every result back to the caller.

Worker: `celery -A with_celery worker`, prefork pool of two processes. Driver: `python with_celery.py SECONDS`.
Each publish of Celery waits for its confirm, so the driver publishes from several threads, and each thread
then gathers the results of its own tasks over the `rpc://` backend.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from celery import Celery
from celery.result import ResultSet
from pace import measure

THREADS = int(os.environ.get("PEER_THREADS", "4"))
PAYLOAD = "x" * 200

app = Celery("with_celery", broker=os.environ["PEER_URL"], backend="rpc://")
app.conf.update(
    task_default_queue="celery_bench",
    task_default_queue_type="quorum",
    task_default_exchange_type="topic",
    task_acks_late=True,
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
    broker_pool_limit=THREADS + 2,
    worker_prefetch_multiplier=int(os.environ.get("PEER_PREFETCH", "32")),
)


@app.task(name="nothing")
def nothing(_payload: str) -> int:
    """Do nothing."""
    return 0


def _share(tasks: int) -> list[Any]:
    results: list[Any] = ResultSet([nothing.delay(PAYLOAD) for _ in range(tasks)]).join_native(timeout=120)
    return results


def main() -> None:
    with ThreadPoolExecutor(THREADS) as pool:

        def run(tasks: int) -> None:
            shares = [tasks // THREADS + (n < tasks % THREADS) for n in range(THREADS)]
            assert sum(len(got) for got in pool.map(_share, shares)) == tasks

        measure(run, float(sys.argv[1]))


if __name__ == "__main__":
    main()
