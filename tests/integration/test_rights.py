"""The farm's users can do what their service must, and nothing more."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pika
import pytest

from overnight_common.brokers.amqp_topology import EXCHANGES, shape_of
from overnight_common.brokers.base import DEAD_QUEUE
from support.broker_use import opened, until
from support.deploy_files import DEPLOY, script
from support.rabbitmq_use import broker_at
from support.rights import CONSUMER_MUST_NOT, TASK_QUEUE, refused, wrong_rights

if TYPE_CHECKING:
    from support.rabbitmq import RabbitMQNode

pytestmark = pytest.mark.rabbitmq


def prepared(node: RabbitMQNode) -> str:
    """Return the URL of a virtual host that holds what the farm's definitions declare."""
    url = node.vhost()
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as operator:
        channel = operator.channel()
        for exchange in EXCHANGES:
            channel.exchange_declare(exchange.name, exchange.kind, durable=True)
        for queue in (DEAD_QUEUE, TASK_QUEUE):
            shape = shape_of(queue)
            channel.queue_declare(queue, durable=True, arguments=shape.arguments)
            channel.queue_bind(queue, shape.exchange.name, queue)
    return url


def test_the_farms_users_can_do_what_they_must_and_nothing_more(private_rabbitmq: RabbitMQNode) -> None:
    rights = script(DEPLOY / "make_secrets.py").RIGHTS
    url = prepared(private_rabbitmq)
    producer, consumer = (
        private_rabbitmq.user(
            url, configure=rights[name].configure, write=rights[name].write, read=rights[name].read
        )
        for name in ("producer", "consumer")
    )
    assert wrong_rights(producer, consumer) == []


def test_a_user_with_more_rights_is_found_out(private_rabbitmq: RabbitMQNode) -> None:
    url = prepared(private_rabbitmq)
    everything = private_rabbitmq.user(url, configure=".*", write=".*", read=".*")
    assert not refused(everything, CONSUMER_MUST_NOT["publish a task"])
    assert not refused(everything, CONSUMER_MUST_NOT["purge the dead letters"])


def test_a_client_that_may_not_declare_asks_for_each_thing_once(private_rabbitmq: RabbitMQNode) -> None:
    """Each refusal is an error in RabbitMQ's log, which an operator must be able to read."""
    url = prepared(private_rabbitmq)
    client, last = (private_rabbitmq.user(url, configure="^$") for _ in range(2))

    def refusals(of: str) -> int:
        name = of.partition("://")[2].partition(":")[0]
        return private_rabbitmq.log().count(f"refused for user '{name}'")

    async def scene() -> None:
        broker = broker_at(client)
        for _connection in range(2):
            async with opened(broker):
                for _time in range(3):
                    await broker.declare(TASK_QUEUE)
        assert await asyncio.to_thread(refused, last, CONSUMER_MUST_NOT["declare an exchange"])
        await until(lambda: refusals(last) > 0, "the log is written up to here")

    asyncio.run(scene())
    assert 0 < refusals(client) <= len(EXCHANGES) + len((TASK_QUEUE, DEAD_QUEUE))
