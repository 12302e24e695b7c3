"""Try out with bare AMQP what the farm's users may do: all that they must, and nothing beyond it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pika
import pika.exceptions

from overnight_common.brokers.amqp_topology import DEAD, REPLIES, TASKS, shape_of
from overnight_common.brokers.base import DEAD_QUEUE, reply_queue, task_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Act = Callable[[Any], Any]

_REFUSED = 403
TASK_QUEUE = task_queue("default")
REPLY_QUEUE = reply_queue("rights", 1)


def _publish(exchange: str, key: str) -> Act:
    def act(channel: Any) -> None:
        channel.confirm_delivery()
        channel.basic_publish(exchange, key, b"rights", mandatory=True)

    return act


def _take(queue: str) -> Act:
    return lambda channel: channel.basic_get(queue, auto_ack=True)


def _look(queue: str) -> Act:
    return lambda channel: channel.queue_declare(queue, passive=True)


def _declare(queue: str) -> Act:
    return lambda channel: channel.queue_declare(queue, durable=True, arguments=shape_of(queue).arguments)


def _bind(queue: str, exchange: str) -> Act:
    return lambda channel: channel.queue_bind(queue, exchange, queue)


def _find_exchange(name: str) -> Act:
    return lambda channel: channel.exchange_declare(name, passive=True)


def _delete(queue: str) -> Act:
    return lambda channel: channel.queue_delete(queue)


def _purge(queue: str) -> Act:
    return lambda channel: channel.queue_purge(queue)


# In this order: the first makes the reply queue, the last deletes it.
PRODUCER_MUST: Mapping[str, Act] = {
    "declare a reply queue": _declare(REPLY_QUEUE),
    "bind it": _bind(REPLY_QUEUE, REPLIES.name),
    "find the exchange of tasks": _find_exchange(TASKS.name),
    "look at a task queue": _look(TASK_QUEUE),
    "look at the dead letters": _look(DEAD_QUEUE),
    "publish a task": _publish(TASKS.name, TASK_QUEUE),
    "bury a message": _publish(DEAD.name, TASK_QUEUE),
    "read the dead letters": _take(DEAD_QUEUE),
}
CONSUMER_MUST: Mapping[str, Act] = {
    "find the exchange of replies": _find_exchange(REPLIES.name),
    "look at a task queue": _look(TASK_QUEUE),
    "look at a reply queue": _look(REPLY_QUEUE),
    "look at the dead letters": _look(DEAD_QUEUE),
    "take a task": _take(TASK_QUEUE),
    "publish a reply": _publish(REPLIES.name, REPLY_QUEUE),
    "bury a message": _publish(DEAD.name, REPLY_QUEUE),
}
PRODUCER_AFTERWARDS: Mapping[str, Act] = {
    "read a reply": _take(REPLY_QUEUE),
    "delete its reply queue": _delete(REPLY_QUEUE),
}
PRODUCER_MUST_NOT: Mapping[str, Act] = {
    "read a task": _take(TASK_QUEUE),
    "purge a task queue": _purge(TASK_QUEUE),
    "delete a task queue": _delete(TASK_QUEUE),
    "delete the dead letters": _delete(DEAD_QUEUE),
    "declare a task queue": _declare(task_queue("other")),
    "declare a queue of another name": lambda channel: channel.queue_declare("other"),
    "declare an exchange": lambda channel: channel.exchange_declare("other"),
    "delete an exchange": lambda channel: channel.exchange_delete(REPLIES.name),
    "copy tasks to itself": _bind(REPLY_QUEUE, TASKS.name),
    "publish past our exchanges": _publish("", TASK_QUEUE),
}
CONSUMER_MUST_NOT: Mapping[str, Act] = {
    "publish a task": _publish(TASKS.name, TASK_QUEUE),
    "publish past our exchanges": _publish("", TASK_QUEUE),
    "read a reply": _take(REPLY_QUEUE),
    "read the dead letters": _take(DEAD_QUEUE),
    "purge a reply queue": _purge(REPLY_QUEUE),
    "purge the dead letters": _purge(DEAD_QUEUE),
    "delete a reply queue": _delete(REPLY_QUEUE),
    "delete a task queue": _delete(TASK_QUEUE),
    "delete the dead letters": _delete(DEAD_QUEUE),
    "declare a reply queue": _declare(reply_queue("other", 1)),
    "declare a task queue": _declare(task_queue("other")),
    "declare a queue of another name": lambda channel: channel.queue_declare("other"),
    "declare an exchange": lambda channel: channel.exchange_declare("other"),
    "copy tasks elsewhere": _bind(REPLY_QUEUE, TASKS.name),
    "copy replies elsewhere": _bind(DEAD_QUEUE, REPLIES.name),
}


def refused(url: str, act: Act) -> bool:
    """Tell whether the broker refuses to let a user do something; any other fault is raised."""
    with _channel(url) as channel:
        try:
            act(channel)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != _REFUSED:
                raise
            return True
    return False


def wrong_rights(producer: str, consumer: str) -> list[str]:
    """Return what two users, named by their URLs, can do against the rule, or cannot do that they must."""
    wrong = []
    for who, url, acts, allowed in (
        ("producer", producer, PRODUCER_MUST, True),
        ("consumer", consumer, CONSUMER_MUST, True),
        ("producer", producer, PRODUCER_MUST_NOT, False),
        ("consumer", consumer, CONSUMER_MUST_NOT, False),
        ("producer", producer, PRODUCER_AFTERWARDS, True),
    ):
        for what, act in acts.items():
            if refused(url, act) is allowed:
                wrong.append(f"the {who} {'cannot' if allowed else 'can'} {what}")
    return wrong


def farm_url(file: Path, port: int) -> str:
    """Return the URL of a farm's client, as it is reached from this machine."""
    parts = urlsplit(file.read_text().strip())
    return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}").geturl()


@contextlib.contextmanager
def _channel(url: str) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()
