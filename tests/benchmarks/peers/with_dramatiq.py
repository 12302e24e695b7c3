"""Do no-op tasks with Dramatiq: classic durable queue (it has no other), confirms, ack after the run.

Worker: `dramatiq with_dramatiq --processes 2 --threads 1`. Driver: `python with_dramatiq.py SECONDS`.
With PEER_RESULTS=1 results come back through its own `Results` middleware, before the ack; see `result_queue`.
Without, a task counts as done when it ran. Each publish waits for its confirm: PEER_THREADS publish at once.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dramatiq
import pika
from counting import count_one, counted, wait_until_counted
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.results import ResultBackend
from dramatiq.results import Results as ResultsMiddleware
from pace import measure
from result_queue import QUEUE, Results

URL = os.environ["PEER_URL"]
WITH_RESULTS = os.environ.get("PEER_RESULTS") == "1"
THREADS = int(os.environ.get("PEER_THREADS", "1"))
PAYLOAD = "x" * 200


class OverRabbitMQ(ResultBackend):
    """Publish each result with a confirm, on a connection for each worker thread."""

    _mine = threading.local()

    def _store(self, message_key: str, result: Any, _ttl: int) -> None:
        channel = getattr(self._mine, "channel", None)
        if channel is None:
            channel = self._mine.channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
            channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2, message_id=message_key)
        channel.basic_publish("", QUEUE, self.encoder.encode(result), properties, mandatory=True)


broker = RabbitmqBroker(url=URL, confirm_delivery=True)
if WITH_RESULTS:
    broker.add_middleware(ResultsMiddleware(backend=OverRabbitMQ(), store_results=True))
dramatiq.set_broker(broker)


@dramatiq.actor
def nothing(_payload: str) -> int | None:
    """Do nothing."""
    if WITH_RESULTS:
        return 0
    count_one()
    return None


def _share(tasks: int) -> None:
    for _ in range(tasks):
        nothing.send(PAYLOAD)


def main() -> None:
    results = Results(URL) if WITH_RESULTS else None
    with ThreadPoolExecutor(THREADS) as pool:

        def run(tasks: int) -> None:
            before = results.count if results else counted()
            list(pool.map(_share, [tasks // THREADS + (n < tasks % THREADS) for n in range(THREADS)]))
            (results.wait_for if results else wait_until_counted)(before + tasks)

        measure(run, float(sys.argv[1]))
    if results:
        results.close()
    broker.close()


if __name__ == "__main__":
    main()
