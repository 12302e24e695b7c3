"""Measure messages per second through one quorum queue: Overnight's broker beside raw pika, paired runs.

    python tests/benchmarks/rabbitmq_throughput.py [MESSAGES] [ROUNDS]

One process publishes 200 bytes with confirms, another takes and acks; the clock runs from the first publish
to the last ack. Raw pika is a SelectConnection loop with a window of 1,000 confirms, prefetch 100 and an ack
for each message, or acks in groups of 50. Needs RabbitMQ (or OVERNIGHT_TEST_AMQP_URL).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
QUEUE = "overnight.tasks.throughput"
BODY = b"x" * 200
WINDOW, PREFETCH, ACK_GROUP = 1000, 100, 50


async def ours_publish(url: str, count: int) -> None:
    from overnight_common.brokers.base import Message
    from overnight_common.brokers.rabbitmq import RabbitMQBroker

    broker = RabbitMQBroker(url, max_message_bytes=1 << 20)
    await broker.open(10)
    done = asyncio.get_running_loop().create_future()
    sent = confirmed = 0

    def fill() -> None:
        nonlocal sent
        while sent < count and sent - confirmed < WINDOW:
            sent += 1
            broker.publish(QUEUE, Message(BODY, "task", f"job-{sent}"), settled)

    def settled(error: object) -> None:
        nonlocal confirmed
        assert error is None, error
        confirmed += 1
        if confirmed == count:
            done.set_result(None)
        fill()

    print(time.monotonic(), flush=True)
    fill()
    await done
    await broker.close()


async def ours_consume(url: str, count: int) -> None:
    from overnight_common.brokers.rabbitmq import RabbitMQBroker

    broker = RabbitMQBroker(url, max_message_bytes=1 << 20)
    await broker.open(10)
    done = asyncio.get_running_loop().create_future()
    taken = 0

    def take(delivery: Any) -> None:
        nonlocal taken
        broker.ack(delivery)
        taken += 1
        if taken == count:
            done.set_result(None)

    await broker.subscribe(QUEUE, PREFETCH, take, lambda: None)
    print("ready", flush=True)
    await done
    await broker.close()
    print(time.monotonic(), flush=True)


def pika_publish(url: str, count: int) -> None:
    import pika

    properties = pika.BasicProperties(delivery_mode=2)
    sent = confirmed = 0

    def fill(channel: Any) -> None:
        nonlocal sent
        while sent < count and sent - confirmed < WINDOW:
            sent += 1
            channel.basic_publish("overnight.tasks", QUEUE, BODY, properties, mandatory=True)

    def on_open(channel: Any) -> None:
        def settled(frame: Any) -> None:
            nonlocal confirmed
            confirmed = frame.method.delivery_tag if frame.method.multiple else confirmed + 1
            if confirmed >= count:
                connection.close()
            else:
                fill(channel)

        channel.confirm_delivery(settled, callback=lambda _frame: fill(channel))
        print(time.monotonic(), flush=True)

    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=lambda opened: opened.channel(on_open_callback=on_open),
        on_close_callback=lambda closed, _error: closed.ioloop.stop(),
    )
    connection.ioloop.start()


def pika_consume(url: str, count: int, group: int) -> None:
    import pika

    taken = 0

    def on_message(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        nonlocal taken
        taken += 1
        if group == 1:
            channel.basic_ack(method.delivery_tag)
        elif taken % group == 0 or taken == count:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if taken == count:
            connection.close()

    def on_open(channel: Any) -> None:
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(QUEUE, on_message, callback=lambda _frame: print("ready", flush=True))

    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=lambda opened: opened.channel(on_open_callback=on_open),
        on_close_callback=lambda closed, _error: closed.ioloop.stop(),
    )
    connection.ioloop.start()
    print(time.monotonic(), flush=True)


ROLES = {
    "ours publish": lambda url, count: asyncio.run(ours_publish(url, count)),
    "ours consume": lambda url, count: asyncio.run(ours_consume(url, count)),
    "pika publish": pika_publish,
    "pika consume": lambda url, count: pika_consume(url, count, 1),
    "pika, acks grouped publish": pika_publish,
    "pika, acks grouped consume": lambda url, count: pika_consume(url, count, ACK_GROUP),
}


def measure(who: str, url: str, count: int) -> float:
    """Return messages per second; both processes tell their times on the clock that all processes share."""
    command = [sys.executable, str(HERE), "role"]
    consumer = subprocess.Popen(
        [*command, f"{who} consume", url, str(count)], stdout=subprocess.PIPE, text=True
    )
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "ready\n"
    publisher = subprocess.run(
        [*command, f"{who} publish", url, str(count)], check=True, stdout=subprocess.PIPE, text=True
    )
    ended, _ = consumer.communicate(timeout=120)
    return count / (float(ended) - float(publisher.stdout))


async def declare(url: str) -> None:
    from overnight_common.brokers.rabbitmq import RabbitMQBroker

    broker = RabbitMQBroker(url, max_message_bytes=1 << 20)
    await broker.open(10)
    await broker.delete(QUEUE)
    await broker.declare(QUEUE)
    await broker.close()


def compare(url: str, count: int, rounds: int) -> None:
    names = [role.removesuffix(" publish") for role in ROLES if role.endswith("publish")]
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:  # paired: all in each round, so that a busy machine hits all alike
            asyncio.run(declare(url))
            rates[name].append(measure(name, url, count))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, median in medians.items():
        print(f"{name:22} {median:8.0f} messages/s   {median / medians['pika']:.2f} of pika")
    print(json.dumps(rates))


def main() -> None:
    if sys.argv[1:2] == ["role"]:
        _, _, role, url, count_text = sys.argv
        ROLES[role](url, int(count_text))
        return
    count, rounds = (int(given) for given in (*sys.argv[1:], *("20000", "3")[len(sys.argv) - 1 :]))
    if url := os.environ.get("OVERNIGHT_TEST_AMQP_URL"):
        compare(url, count, rounds)
        return
    from support.rabbitmq import private_node

    with private_node() as node:
        compare(node.vhost(), count, rounds)


if __name__ == "__main__":
    main()
