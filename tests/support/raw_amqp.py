"""Put into RabbitMQ what no program of ours would, property by property."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pika
from pika.exceptions import AMQPError

if TYPE_CHECKING:
    from collections.abc import Iterable


def publish_raw(url: str, messages: Iterable[tuple[str, bytes, dict[str, Any]]]) -> int:
    """Publish (queue, body, properties); texts may be bytes of any kind. Return how many the broker took."""
    taken, raw = 0, pika.BlockingConnection(pika.URLParameters(url))
    channel = None
    for queue, body, properties in messages:
        if raw.is_closed:
            raw = pika.BlockingConnection(pika.URLParameters(url))
            channel = None
        if channel is None or channel.is_closed:
            channel = raw.channel()
            channel.confirm_delivery()
        try:
            channel.basic_publish("", queue, body, pika.BasicProperties(**properties), mandatory=True)
            taken += 1
        except AMQPError:
            continue  # what the broker itself refuses meets nobody
    if raw.is_open:
        raw.close()
    return taken
