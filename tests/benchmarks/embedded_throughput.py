"""Measure the embedded broker alone: tasks per second between two processes, a reply to each.

Run it as `python tests/benchmarks/embedded_throughput.py [TASKS] [PREFETCH] [WINDOW]`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from overnight_common.brokers.base import Delivery, Message, reply_queue, task_queue
from overnight_common.brokers.embedded import EmbeddedBroker
from overnight_common.errors import PublishError

TASKS, REPLIES = task_queue("default"), reply_queue("bench", 1)
BODY = bytes(200)


async def consume(path: Path, prefetch: int) -> None:
    """Answer every task, and ack it once the answer is confirmed, until the task queue is deleted."""
    broker = EmbeddedBroker(path)
    await broker.open(10)
    done = asyncio.Event()

    def settled(delivery: Delivery, error: PublishError | None) -> None:
        assert error is None
        broker.ack(delivery)

    def deliver(delivery: Delivery) -> None:
        reply = Message(BODY, "reply", delivery.message.message_id)
        broker.publish(REPLIES, reply, partial(settled, delivery))

    await broker.subscribe(TASKS, prefetch, deliver, done.set)
    await done.wait()
    await broker.close()
    print(f"  consumer: {time.process_time():.2f} s of CPU")


async def drive(path: Path, tasks: int, prefetch: int, window: int) -> float:
    """Publish tasks within a window, read all replies, and return how long that took in seconds."""
    broker = EmbeddedBroker(path)
    await broker.open(10)
    await broker.declare(TASKS)
    await broker.declare(REPLIES)
    script = [sys.executable, __file__, "consume", str(path), str(prefetch)]
    with subprocess.Popen(script) as consumer:
        while (await broker.depth(TASKS)).consumers == 0:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        seen: set[str] = set()
        done = asyncio.Event()
        published = 0

        def confirmed(error: PublishError | None) -> None:
            assert error is None

        def fill() -> None:
            nonlocal published
            while published < tasks and published - len(seen) < window:
                broker.publish(TASKS, Message(BODY, "task", f"bench {published}"), confirmed)
                published += 1

        def reply(delivery: Delivery) -> None:
            seen.add(delivery.message.message_id)
            broker.ack(delivery)
            fill()
            if len(seen) == tasks:
                done.set()

        await broker.subscribe(REPLIES, 1000, reply, done.set)
        started = time.perf_counter()
        fill()
        await done.wait()
        seconds = time.perf_counter() - started
        await broker.delete(TASKS)
        await broker.close()
        assert consumer.wait(10) == 0
    return seconds


def main(tasks: int = 20_000, prefetch: int = 64, window: int = 1000) -> None:
    """Print the measured speed."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = asyncio.run(drive(Path(folder) / "broker.sqlite", tasks, prefetch, window))
    print(f"  driver:   {time.process_time():.2f} s of CPU")
    print(f"{tasks} tasks, prefetch {prefetch}, window {window}: {tasks / seconds:.0f} tasks/s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["consume"]:
        asyncio.run(consume(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        main(*map(int, sys.argv[1:]))
