"""Make RabbitMQ brokers in tests and ask the node what it holds."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pika

from overnight_common.brokers.base import task_queue
from overnight_common.brokers.rabbitmq import RabbitMQBroker

if TYPE_CHECKING:
    from support.rabbitmq import RabbitMQNode

QUEUE = task_queue("faults")


def broker_at(url: str, **settings: object) -> RabbitMQBroker:
    return RabbitMQBroker(url, max_message_bytes=1 << 20, **settings)  # type: ignore[arg-type]


def declare_with_timeout(url: str, queue: str, timeout_ms: int | None) -> None:
    """Declare a task queue with another ack timeout than ours, or none (3.10 ignores the argument)."""
    arguments: dict[str, str | int] = {"x-queue-type": "quorum"}
    if timeout_ms is not None:
        arguments["x-consumer-timeout"] = timeout_ms
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as raw:
        channel = raw.channel()
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.queue_bind(queue, "overnight.tasks", queue)


async def is_ready(broker: RabbitMQBroker, queue: str, ready: int) -> bool:
    depth = await broker.depth(queue)
    return depth is not None and depth.ready == ready


async def unacked_is(node: RabbitMQNode, url: str, queue: str, count: int) -> bool:
    return await asyncio.to_thread(unacked, node, url, queue) == count


def unacked(node: RabbitMQNode, url: str, queue: str) -> int:
    """Ask the queue itself: the metrics are seconds behind."""
    vhost = urlsplit(url).path[1:]
    return int(
        node.eval(
            f'{{ok, Q}} = rabbit_amqqueue:lookup({{resource, <<"{vhost}">>, queue, <<"{queue}">>}}), '
            "[{messages_unacknowledged, N}] = rabbit_amqqueue:info(Q, [messages_unacknowledged]), N."
        )
    )
