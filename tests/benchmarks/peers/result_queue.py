"""Carry results of Dramatiq and taskiq back over RabbitMQ, which neither can do by itself.

The worker's side is in their two files: a result backend that publishes each result, persistent and confirmed,
to the quorum queue named here. This is the caller's side: a thread that takes them and acks in groups.
"""

from __future__ import annotations

import threading
from typing import Any

import pika

QUEUE = "bench_results"
PREFETCH, ACK_GROUP = 500, 50
PATIENCE_SECONDS = 120.0


class Results:
    """Count the results that have come back."""

    def __init__(self, url: str) -> None:
        self._count = 0
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda opened: opened.channel(on_open_callback=self._declare),
            on_close_callback=lambda closed, _error: closed.ioloop.stop(),
        )
        self._thread = threading.Thread(target=self._connection.ioloop.start, daemon=True)
        self._thread.start()
        assert self._ready.wait(20)

    def wait_for(self, count: int) -> None:
        """Wait until so many results have come since the beginning."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= count, PATIENCE_SECONDS):
                raise TimeoutError(f"{self._count} of {count} results came in {PATIENCE_SECONDS:g} s")

    @property
    def count(self) -> int:
        """Return how many results have come."""
        return self._count

    def close(self) -> None:
        """End the thread."""
        self._connection.ioloop.add_callback_threadsafe(self._connection.close)
        self._thread.join(10)

    def _declare(self, channel: Any) -> None:
        channel.queue_declare(
            QUEUE,
            durable=True,
            arguments={"x-queue-type": "quorum"},
            callback=lambda _frame: self._consume(channel),
        )

    def _consume(self, channel: Any) -> None:
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(QUEUE, self._take, callback=lambda _frame: self._ready.set())

    def _take(self, channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        if method.delivery_tag % ACK_GROUP == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        with self._changed:
            self._count += 1
            self._changed.notify()
