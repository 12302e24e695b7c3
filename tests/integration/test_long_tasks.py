"""A task that outlives the server's ack timeout many times over is run once and acked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from overnight_common.brokers.base import task_queue
from support.broker_use import Inbox, put, until
from support.farm import farm_in, mark_in, toys
from support.rabbitmq_use import declare_with_timeout, unacked_is

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.rabbitmq import RabbitMQNode

pytestmark = pytest.mark.rabbitmq

TIMEOUT_SECONDS = 1.0
TIMES = 6  # more often than a task may be handed out before a consumer refuses to run it
OTHER = task_queue("without-our-argument")
OLD = (3, 12)  # from here on a queue's own argument beats the server's setting


@pytest.fixture
def short_timeout(node: RabbitMQNode) -> Iterator[None]:
    """Let the server take deliveries back after a second; not by a policy, for that would beat our argument."""
    node.set_ack_timeout(TIMEOUT_SECONDS)
    yield
    node.set_ack_timeout(None)


def version_of(node: RabbitMQNode) -> tuple[int, ...]:
    return tuple(int(part) for part in node.version().split(".")[:2])


@pytest.mark.usefixtures("short_timeout")
def test_a_task_that_outlives_the_servers_ack_timeout_is_run_once_and_acked(
    node: RabbitMQNode, url: str, tmp_path: Path
) -> None:
    """With two consumers where our argument counts; with one where the server takes the delivery back."""
    old = version_of(node) < OLD

    async def scene() -> None:
        async with farm_in(tmp_path, url) as farm:
            declare_with_timeout(url, OTHER, None)
            inbox = Inbox(farm.broker)
            await farm.broker.subscribe(OTHER, 1, inbox, inbox.lost)
            await put(farm.broker, OTHER, b"held for ever")
            for name in ("one",) if old else ("one", "two"):
                farm.start("--slots", "1", "--broker", url, "--name", name, *toys("count_runs"))
            mark, gate = tmp_path / "mark", tmp_path / "gate"
            task = farm.publish("toys:count_runs", params={"mark": str(mark), "gate": str(gate)})
            await mark_in(mark)

            # The same server takes this one back again and again meanwhile: the timeout is really short.
            losses = inbox.losses
            await until(lambda: inbox.losses >= losses + TIMES, "the timeout, many times over", 60)
            gate.touch()

            assert (await farm.reply_to_task(task, 30)).kind == "done"
            await until(lambda: len(farm.replies) == 1, "one reply")
            give_up = asyncio.get_running_loop().time() + 15
            while not await unacked_is(node, url, farm.queue, 0):
                assert asyncio.get_running_loop().time() < give_up, "it is never acked"
            depth = await farm.broker.depth(farm.queue)
            assert depth is not None
            assert depth.ready == 0
            assert mark.read_text().split() == ["0"]
            logs = "".join(consumer.log for consumer in farm.consumers)
            assert ("subscription lost" in logs) == old, logs
            assert ("set consumer_timeout" in logs) == old, logs

    asyncio.run(scene())
