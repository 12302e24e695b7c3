"""Do no-op tasks with taskiq over aio-pika: quorum queue, confirms, ack after the result is saved.

Worker: `taskiq worker with_taskiq:broker --workers 2`. Driver: `python with_taskiq.py SECONDS`, with
PEER_IN_FLIGHT publishes at a time. With PEER_RESULTS=1 results come back through its own interface for result
backends, before the ack; see `result_queue`. Without, a task counts as done when it ran.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import aio_pika
from counting import count_one, counted, wait_until_counted
from pace import measure
from result_queue import QUEUE, Results
from taskiq import AsyncResultBackend, TaskiqResult
from taskiq_aio_pika import AioPikaBroker, Queue, QueueType

URL = os.environ["PEER_URL"]
WITH_RESULTS = os.environ.get("PEER_RESULTS") == "1"
IN_FLIGHT = int(os.environ.get("PEER_IN_FLIGHT", "200"))
PAYLOAD = "x" * 200


class OverRabbitMQ(AsyncResultBackend[Any]):
    """Publish each result with a confirm; the caller reads them elsewhere."""

    async def startup(self) -> None:
        self._connection = await aio_pika.connect(URL)
        self._exchange = (await self._connection.channel()).default_exchange

    async def shutdown(self) -> None:
        await self._connection.close()

    async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
        body = result.model_dump_json().encode()
        message = aio_pika.Message(body, message_id=task_id, delivery_mode=2)
        await self._exchange.publish(message, QUEUE)

    async def is_result_ready(self, task_id: str) -> bool:
        raise NotImplementedError

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[Any]:
        raise NotImplementedError


broker = AioPikaBroker(
    URL,
    qos=int(os.environ.get("PEER_PREFETCH", "100")),
    task_queues=[Queue(name="taskiq_bench", type=QueueType.QUORUM)],
)
if WITH_RESULTS:
    broker = broker.with_result_backend(OverRabbitMQ())


@broker.task(task_name="nothing")
async def nothing(_payload: str) -> int:
    """Do nothing."""
    if not WITH_RESULTS:
        count_one()
    return 0


async def _publish(tasks: int) -> None:
    left = iter(range(tasks))

    async def one_after_the_other() -> None:
        for _ in left:
            await nothing.kiq(PAYLOAD)

    await asyncio.gather(*(one_after_the_other() for _ in range(IN_FLIGHT)))


def main() -> None:
    results = Results(URL) if WITH_RESULTS else None
    with asyncio.Runner() as runner:
        runner.run(broker.startup())

        def run(tasks: int) -> None:
            before = results.count if results else counted()
            runner.run(_publish(tasks))
            (results.wait_for if results else wait_until_counted)(before + tasks)

        measure(run, float(sys.argv[1]))
        if results:
            results.close()
        runner.run(broker.shutdown())


if __name__ == "__main__":
    main()
