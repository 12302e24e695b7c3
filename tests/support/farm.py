"""Run real consumers on the embedded broker, with the test in the driver's place."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight_common.brokers.base import DEAD_QUEUE, Broker, Delivery, Message, reply_queue, task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.messages import VERSION, Reply, Task, decode_replies, encode
from overnight_common.values import decode_values, encode_values
from support.broker_use import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOYS = Path(__file__).with_name("toys")
MAX_MESSAGE_BYTES = 8 * 1024 * 1024


def toys(names: str) -> list[str]:
    """Return the arguments that serve some of the toy methods."""
    return [word for name in names.split() for word in ("--methods", f"toys:{name}")]


class Consumer:
    """Be one consumer process, with its log in a file."""

    def __init__(
        self,
        home: Path,
        number: int,
        arguments: tuple[str, ...],
        environment: dict[str, str],
        prefix: tuple[str, ...] = (),
    ) -> None:
        self._log = home / f"consumer-{number}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *prefix,
                    sys.executable,
                    "-m",
                    "overnight_consumer",
                    "--home",
                    str(home),
                    "--source",
                    str(TOYS),
                    *arguments,
                ],
                stderr=log,
                stdout=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "OVERNIGHT_DEVICE": "cpu", **environment},
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    async def exit_status(self, seconds: float = 20.0) -> int:
        await until(lambda: self.process.poll() is not None, f"the consumer ends\n{self.log}", seconds)
        assert self.process.returncode is not None
        return self.process.returncode

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Farm:
    """Publish tasks and gather replies.

    Attributes:
        broker: the driver's side of the broker.
        replies: all replies but `running`, in order of arrival; `running` has those.
    """

    def __init__(self, home: Path, broker: Broker) -> None:
        self.home = home
        self.broker = broker
        self.job = f"job{time.time_ns()}"
        self.reply_to = reply_queue(self.job, 1)
        self.queue = task_queue("default")
        self.replies: list[Reply] = []
        self.running: list[Reply] = []
        self.consumers: list[Consumer] = []
        self.dead: list[Delivery] = []
        self._attempts = 0

    async def prepare(self) -> None:
        for queue in (self.queue, self.reply_to, DEAD_QUEUE):
            await self.broker.declare(queue)
        await self.broker.subscribe(self.reply_to, 1000, self._take, lambda: None)
        await self.broker.subscribe(DEAD_QUEUE, 1000, self.dead.append, lambda: None)

    def _take(self, delivery: Delivery) -> None:
        for reply in decode_replies(delivery.message.body):
            (self.running if reply.kind == "running" else self.replies).append(reply)
        self.broker.ack(delivery)

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> Consumer:
        consumer = Consumer(self.home, len(self.consumers) + 1, arguments, environment or {})
        self.consumers.append(consumer)
        return consumer

    def start_in_group(self, group: Path, *arguments: str) -> Consumer:
        """Start a consumer in a control group, as in a container."""
        enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        consumer = Consumer(self.home, len(self.consumers) + 1, arguments, {}, enter)
        self.consumers.append(consumer)
        return consumer

    def publish_raw(self, body: bytes) -> None:
        self.broker.publish(self.queue, Message(body, "task"), _must_be_accepted)

    def publish(self, method: str, start: int = 0, count: int = 1, **fields: Any) -> Task:
        self._attempts += 1
        fields.setdefault("data", encode_values(np.arange(start, start + count), count) if count else None)
        fields.setdefault("reply_to", self.reply_to)
        fields.setdefault("job", self.job)
        fields.setdefault("attempt", self._attempts)
        task = Task(v=VERSION, start=start, stop=start + count, method=method, **fields)
        self.publish_raw(encode(task))
        return task

    async def reply_to_task(self, task: Task, seconds: float = 20.0) -> Reply:
        def found() -> list[Reply]:
            return [reply for reply in self.replies if reply.key == task.key]

        def logs() -> str:
            return "\n".join(consumer.log for consumer in self.consumers)

        give_up = time.monotonic() + seconds
        while not found():
            assert time.monotonic() < give_up, f"no reply to {task.key} within {seconds:g} s\n{logs()}"
            await asyncio.sleep(0.002)
        return found()[0]

    async def run(self, method: str, start: int = 0, count: int = 1, **fields: Any) -> Reply:
        return await self.reply_to_task(self.publish(method, start, count, **fields))

    async def values(self, method: str, start: int = 0, count: int = 1, **fields: Any) -> list[Any]:
        reply = await self.run(method, start, count, **fields)
        assert reply.kind == "done", reply.failure
        assert reply.result is not None
        values = decode_values(reply.result)
        return values.tolist() if isinstance(values, np.ndarray) else values

    async def until_empty(self) -> None:
        """Wait until every task is acked."""
        give_up = time.monotonic() + 10
        while True:
            depth = await self.broker.depth(self.queue)
            assert depth is not None
            if depth.ready == 0 and not depth.unacked:
                return
            assert time.monotonic() < give_up, depth
            await asyncio.sleep(0.01)


def _must_be_accepted(error: Exception | None) -> None:
    assert error is None, error


@contextlib.asynccontextmanager
async def farm_in(home: Path, url: str | None = None) -> AsyncIterator[Farm]:
    """Open a farm on a broker, the embedded one if none is named, and end every process of it afterwards."""
    broker = open_broker(url, home, max_message_bytes=MAX_MESSAGE_BYTES)
    await broker.open(10)
    farm = Farm(home, broker)
    try:
        await farm.prepare()
        yield farm
    finally:
        for consumer in farm.consumers:
            consumer.kill()
        await broker.close()


def alive(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


async def mark_in(path: Path) -> list[int]:
    """Wait for a file in which a method wrote process ids."""
    await until(lambda: path.exists() and path.read_text() != "", f"{path} is written")
    return [int(word) for word in path.read_text().split()]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(stat.parent.name))
    return found
