"""Run a job with real processes, and do to them what the schedule says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chaos.explaining import Happened
from chaos.schedule import Fault, Kind, batches
from overnight_common.brokers.opening import FILE_NAME
from support.command_line import Desk, Program
from support.forwarder import Forwarder

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from support.rabbitmq import RabbitMQNode

CONSUMERS, SLOTS = 3, 2
BATCHES = (1, 1, 2, 3)
SILENCE_SECONDS = 8
HEARTBEAT_SECONDS = 4
STOP_SECONDS = 40.0


class Kept:
    """Keep one program running: whenever it is killed it is started again, and no other end of it is right.

    Attributes:
        program: what runs now.
        link: its own way to the broker, None for the embedded one.
        starts: how often it was started.
    """

    def __init__(self, name: str, start: Callable[[], Program], link: Forwarder | None) -> None:
        self.name = name
        self.link = link
        self.starts = 0
        self._start = start
        self.start()

    def start(self) -> None:
        """Start it."""
        self.starts += 1
        self.program = self._start()

    @property
    def status(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self.program.process.poll()


class Stage:
    """Own the processes, the links and the faults of one chaos run.

    Attributes:
        desk: the folder in which all of it happens.
        happened: what was really done, in order.
        node: the RabbitMQ that it may kill, None on the embedded broker.
        scratch: where everybody's temporary files lie.
        there_before: the names in the folder before anything ran.
    """

    def __init__(self, desk: Desk, seed: int, points: int, node: RabbitMQNode | None) -> None:
        self.desk = desk
        self.happened: list[Happened] = []
        self.scratch = desk.folder / "scratch"
        self.scratch.mkdir()
        self.there_before = {path.name for path in desk.folder.iterdir()}
        self._seed = seed
        self._points = points
        self.node = node
        self._batches = batches(seed)
        self._links: list[Forwarder] = []
        self._broker_at_work = asyncio.Lock()
        self._mending: list[asyncio.Task[None]] = []

    # --- beginning and end --------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Start the driver and the consumers."""
        self.driver = Kept("driver", self._start_driver, await self._link())
        self.consumers = [
            Kept(f"consumer {number}", self._consumer_starter(number), await self._link())
            for number in range(1, CONSUMERS + 1)
        ]

    async def _link(self) -> Forwarder | None:
        if self.node is None:
            return None
        link = Forwarder("127.0.0.1", self.node.port)
        await link.start()
        self._links.append(link)
        return link

    def _variables(self, link: Forwarder | None) -> dict[str, str]:
        variables = {"TMPDIR": str(self.scratch)}
        if link is not None:
            assert self.desk.broker is not None
            direct = urlsplit(self.desk.broker)
            through = direct._replace(netloc=f"guest:guest@127.0.0.1:{link.port}")
            variables["OVERNIGHT_BROKER"] = f"{through.geturl()}?heartbeat={HEARTBEAT_SECONDS}"
        return variables

    async def tear_down(self) -> None:
        """Kill whatever is left, whatever happened."""
        for task in self._mending:
            task.cancel()
        await asyncio.gather(*self._mending, return_exceptions=True)
        self.desk.clear()
        for link in self._links:
            await link.close()

    async def stop_consumers(self) -> list[str]:
        """Ask every consumer to end, and return what was not right about that."""
        for kept in self.consumers:  # one that is just starting cannot end in good order yet
            await asyncio.to_thread(kept.program.wait_until_it_says, "takes tasks")
        for kept in self.consumers:
            kept.program.process.send_signal(signal.SIGTERM)
        give_up = time.monotonic() + STOP_SECONDS
        while any(kept.status is None for kept in self.consumers) and time.monotonic() < give_up:
            await asyncio.sleep(0.05)
        return [
            f"{kept.name} ended with {kept.status} after SIGTERM\n{kept.program.output[-2000:]}"
            for kept in self.consumers
            if kept.status != 0
        ]

    # --- the faults ---------------------------------------------------------------------------------

    def do(self, fault: Fault) -> None:
        """Let one thing go wrong now, and mend it when it has lasted long enough."""
        self._mending.append(asyncio.get_running_loop().create_task(self._deed(fault)))

    async def mended(self) -> None:
        """Wait until everything that went wrong is mended; from then on all runs."""
        await asyncio.gather(*self._mending)

    async def broker_is_there(self) -> None:
        """Wait while the broker is being started: without it nobody else can come to harm."""
        await asyncio.sleep(0)  # what has just been told to go wrong begins
        async with self._broker_at_work:
            pass

    def work_begun(self) -> int:
        """Return how much work was begun so far; only good to compare with another time."""
        noted = self.desk.folder / "begun"
        return noted.stat().st_size if noted.exists() else 0

    def _deed(self, fault: Fault) -> Coroutine[Any, Any, None]:
        consumer = self.consumers[fault.victim % CONSUMERS]
        match fault.kind:
            case Kind.CHILD:
                return self._kill_child(fault)
            case Kind.CONSUMER:  # the first one is never killed: it must not grow
                return self._kill(self.consumers[1 + fault.victim % (CONSUMERS - 1)], fault, consumers=1)
            case Kind.DRIVER:
                return self._kill(self.driver, fault, consumers=0)
            case Kind.BROKER:
                return self._kill_broker(fault)
            case Kind.CUT | Kind.STALL:
                own = fault.victim % (CONSUMERS + 1) == CONSUMERS
                return self._break_link(self.driver if own else consumer, fault)
            case Kind.LOCK:
                return self._lock_file(fault)
            case Kind.ALARM:
                return self._alarm(fault)
            case Kind.WIPED:
                return self._kill_broker(fault, wiped=True)

    async def _kill_child(self, fault: Fault) -> None:
        children = [pid for kept in self.consumers for pid in _children(kept.program.pid)]
        if children:
            pid = children[fault.victim % len(children)]
            began = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._note(fault, f"child {pid}", began, 0)

    async def _kill(self, kept: Kept, fault: Fault, consumers: int) -> None:
        if kept.status is not None:
            return  # it lies killed already, or is done
        began = time.monotonic()
        kept.program.kill()
        self._note(fault, kept.name, began, consumers)
        await asyncio.sleep(fault.lasts)
        kept.start()

    async def _kill_broker(self, fault: Fault, wiped: bool = False) -> None:
        assert self.node is not None
        assert self.desk.broker is not None
        async with self._broker_at_work:
            began = time.monotonic()
            await asyncio.to_thread(self.node.kill)
            unread = 0
            if wiped:
                self.node.wipe(self.desk.broker)
                unread = await asyncio.to_thread(self._begun_and_not_done)
            await asyncio.sleep(fault.lasts)
            await asyncio.to_thread(self.node.start)
            self._note(fault, "RabbitMQ", began, CONSUMERS, unread)

    def _begun_and_not_done(self) -> int:
        """Count the points whose reply may have been lost with the queues; those that still run are among them."""
        begun = {int(line.split()[0]) for line in (self.desk.folder / "begun").read_text().splitlines()}
        return len(begun - set(self.desk.points_done()))

    async def _alarm(self, fault: Fault) -> None:
        assert self.node is not None
        async with self._broker_at_work:
            began = time.monotonic()
            await asyncio.to_thread(self.node.set_memory_alarm, True)
            await asyncio.sleep(fault.lasts)
            await asyncio.to_thread(self.node.set_memory_alarm, False)
            self._note(fault, "RabbitMQ", began, 0)

    async def _break_link(self, kept: Kept, fault: Fault) -> None:
        assert kept.link is not None
        began = time.monotonic()
        if fault.kind is Kind.CUT:
            kept.link.cut()
        else:
            kept.link.stall()
        await asyncio.sleep(fault.lasts)
        kept.link.restore()
        self._note(fault, kept.name, began, 0 if kept is self.driver else 1)

    async def _lock_file(self, fault: Fault) -> None:
        with contextlib.closing(
            sqlite3.connect(self.desk.home / FILE_NAME, timeout=0, isolation_level=None)
        ) as file:
            while not _began_to_write(file):
                await asyncio.sleep(0.001)
            began = time.monotonic()
            await asyncio.sleep(fault.lasts)
            file.execute("ROLLBACK")
        self._note(fault, FILE_NAME, began, 0)

    def _note(self, fault: Fault, whom: str, began: float, consumers: int, unread: int = 0) -> None:
        self.happened.append(Happened(fault.kind, whom, began, time.monotonic(), consumers, unread))

    # --- what runs ----------------------------------------------------------------------------------

    def troubles(self) -> list[str]:
        """Return which programs ended by themselves though nobody killed them."""
        return [
            f"{kept.name} ended by itself with {kept.status}\n{kept.program.output[-3000:]}"
            for kept in [*self.consumers, self.driver]
            if kept.status not in (None, -signal.SIGKILL) and not (kept is self.driver and kept.status == 0)
        ]

    def _start_driver(self) -> Program:
        words = (
            *("run", "chaotic:noisy", "--data", f"range:{self._points}", "--seed", str(self._seed)),
            *("--batch", str(self._batches.choice(BATCHES)), "--output", "out.npy"),
            *("--slots", "0", "--queue", "default", "--broker-timeout", "90"),
            *("--silence", str(SILENCE_SECONDS), "--attempts", "10"),
        )
        return self.desk.start(*words, **self._variables(self._links[0] if self._links else None))

    def _consumer_starter(self, number: int) -> Callable[[], Program]:
        words = (
            *("--methods", "chaotic:noisy", "--slots", str(SLOTS), "--name", f"consumer-{number}"),
            *("--broker-timeout", "90", "--grace", "30"),
        )

        def start() -> Program:
            return self.desk.consumer(*words, **self._variables(self._links[number] if self._links else None))

        return start


def _began_to_write(file: sqlite3.Connection) -> bool:
    try:
        file.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:  # somebody else writes just now
        return False
    return True


def descriptors(pid: int) -> int:
    """Return how many files a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _children(pid: int) -> list[int]:
    """Return the slots' processes of a consumer."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if (
                int(fields[1]) == pid
                and b"overnight_consumer.child" in (stat.parent / "cmdline").read_bytes()
            ):
                found.append(int(stat.parent.name))
    return sorted(found)
