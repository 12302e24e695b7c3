"""A client finds what it may not declare, also on a broker that tells it nothing without a right (4.3)."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from overnight_common.brokers.amqp_link import ChannelClosedError
from overnight_common.brokers.amqp_topology import DEAD, REPLIES, TASKS, Topology
from overnight_common.brokers.base import DEAD_QUEUE, task_queue
from overnight_common.errors import BrokerError

QUEUE = task_queue("default")


class StrictLink:
    """Answer like RabbitMQ 4.3 to somebody who may declare nothing and look only at what is `visible`."""

    def __init__(self, visible: set[tuple[str, str]]) -> None:
        self._visible = visible
        self.declared: list[str] = []

    @contextlib.asynccontextmanager
    async def asking(self) -> Any:
        yield SimpleNamespace(call=self._call)

    async def _call(self, method: str, *, passive: bool = False, **arguments: Any) -> None:
        name = arguments.get("queue") or arguments["exchange"]
        if not passive:
            self.declared.append(name)
        if not passive or (method.partition("_")[0], name) not in self._visible:
            raise ChannelClosedError(403, f"ACCESS_REFUSED - {name}")


def test_a_consumer_finds_its_queue_without_a_right_on_the_exchange_before_it() -> None:
    link = StrictLink({("exchange", DEAD.name), ("queue", DEAD_QUEUE), ("queue", QUEUE)})
    topology = Topology(link)  # type: ignore[arg-type]
    asyncio.run(topology.declare(QUEUE))
    assert TASKS.name not in topology.known, "to publish there would cost the channel"
    assert DEAD.name in topology.known


def test_a_queue_without_any_right_on_it_is_an_error() -> None:
    link = StrictLink({("exchange", DEAD.name), ("queue", DEAD_QUEUE), ("exchange", TASKS.name)})
    with pytest.raises(BrokerError, match=f"queue {QUEUE}.*ACCESS_REFUSED"):
        asyncio.run(Topology(link).declare(QUEUE))  # type: ignore[arg-type]


def test_an_exchange_to_publish_to_without_any_right_on_it_is_an_error() -> None:
    with pytest.raises(BrokerError, match=f"exchange {REPLIES.name}.*ACCESS_REFUSED"):
        asyncio.run(Topology(StrictLink(set())).declare_exchange(REPLIES))  # type: ignore[arg-type]


def test_what_may_not_be_declared_is_asked_for_once_and_then_only_looked_for() -> None:
    link = StrictLink(
        {("exchange", DEAD.name), ("queue", DEAD_QUEUE), ("exchange", TASKS.name), ("queue", QUEUE)}
    )
    topology = Topology(link)  # type: ignore[arg-type]

    async def scene() -> None:
        for _ in range(3):
            await topology.declare(QUEUE)

    asyncio.run(scene())
    assert sorted(link.declared) == sorted([DEAD.name, DEAD_QUEUE, TASKS.name, QUEUE])
