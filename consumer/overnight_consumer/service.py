"""Run a consumer: put the rooms together, follow the signals, and end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from overnight_common.brokers.base import DEAD_QUEUE, task_queue
from overnight_common.brokers.patience import patiently
from overnight_consumer.child_process import ChildProcess
from overnight_consumer.frames import Setup
from overnight_consumer.guard import Guard
from overnight_consumer.intake import Intake
from overnight_consumer.keeper import Keeper
from overnight_consumer.kernel_kills import KernelKills
from overnight_consumer.observer import NOBODY, Sight
from overnight_consumer.settings import inherited_environment
from overnight_consumer.slots import Slot
from overnight_consumer.tasks import Tasks
from overnight_consumer.threads import thread_environment, threads_per_slot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from overnight_common.brokers.base import Broker
    from overnight_consumer.child_process import ChildListener
    from overnight_consumer.observer import Observer
    from overnight_consumer.settings import Settings

log = logging.getLogger("overnight.consumer")
_TICK_SECONDS = 0.25


class Service:
    """Be one consumer from start to end."""

    def __init__(self, settings: Settings, broker: Broker, observer: Observer = NOBODY) -> None:
        self._settings = settings
        self._broker = broker
        self._observer = observer
        self._threads = threads_per_slot(settings.cores, settings.slots)
        self._environment = {
            **inherited_environment(),
            **thread_environment(self._threads),
            "PYTHONUNBUFFERED": "1",
        }
        self._signals: list[int] = []
        self._wake = asyncio.Event()

    async def run(self) -> int:
        """Serve until a signal or idleness, and return the exit status.

        Raises:
            BrokerUnreachableError: the broker did not answer in time.
            BrokerError: a queue is not as it must be.
        """
        patience = self._settings.broker_timeout_seconds
        await self._broker.open(patience)
        try:
            queues = [task_queue(name) for name in self._settings.queues]
            for queue in [*queues, DEAD_QUEUE]:
                await patiently(partial(self._broker.declare, queue), patience)
            return await self._serve(queues)
        finally:
            await self._broker.close()

    async def _serve(self, queues: list[str]) -> int:
        tasks = Tasks(self._settings, self._broker, self._observer)
        intakes = [Intake(queue, tasks.on_delivery, tasks.on_lost) for queue in queues]
        with tempfile.TemporaryDirectory(prefix="overnight-", ignore_cleanup_errors=True) as scratch:
            keeper = Keeper(scratch)
            kernel = KernelKills()
            slots = self._slots(scratch, keeper, tasks, kernel)
            guard = Guard(slots, self._settings.limits.memory_limit_bytes, kernel)
            self._catch_signals()
            try:
                tasks.serve(slots, intakes)
                self._broker.on_state(tasks.on_state)
                guard.start()
                for slot in slots:
                    slot.start()
                for intake in intakes:
                    await intake.open(self._broker, self._settings.slots)
                log.info("%s", self._settings.devices.why)
                log.info("%s takes tasks from %s", self._settings.name, ", ".join(queues))
                spread = self._settings.devices.spread(len(slots))
                words = (len(slots), spread, self._threads, self._memory_words())
                log.info("slots: %d%s, threads of each: %d, %s", *words)
                await self._loop(tasks, intakes, slots, keeper)
                await self._drain(tasks, intakes, slots, keeper)
            finally:
                self._release_signals()
                guard.stop()
                tasks.outbox.close()
                await tasks.watch.close()
                await asyncio.gather(*(slot.stop() for slot in slots))
                tasks.hand_back_running()
                keeper.close()
        return 128 + self._signals[1] if len(self._signals) > 1 else 0

    def _slots(self, scratch: str, keeper: Keeper, tasks: Tasks, kernel: KernelKills) -> list[Slot]:
        starter = _ChildStarter(self._settings, self._environment, self._threads, scratch)
        watchers = (tasks, keeper.add, keeper.remove, self._observer)
        return [
            Slot(number, starter, *watchers, self._settings.limits, kernel)
            for number in range(1, self._settings.slots + 1)
        ]

    def _memory_words(self) -> str:
        limit = self._settings.limits.memory_limit_bytes
        return "no memory limit" if limit is None else f"at most {limit / 2**20:,.0f} MiB of memory each"

    # Signals

    def _catch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    def _release_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        self._signals.append(number)
        name = signal.Signals(number).name
        if len(self._signals) == 1:
            log.info(
                "%s: no more tasks are taken; what still runs gets %g s", name, self._settings.grace_seconds
            )
        else:
            log.warning("%s again: what runs is killed", name)
        self._wake.set()

    # The loop

    async def _loop(self, tasks: Tasks, intakes: list[Intake], slots: list[Slot], keeper: Keeper) -> None:
        """Let time pass until it is time to stop."""
        idle = self._settings.idle_exit_seconds
        while not self._signals and not self._orphaned():
            now = time.monotonic()
            if idle is not None and not len(tasks) and now - tasks.active_at >= idle:
                log.info("no task for %g s: ends", idle)
                return
            await self._beat(tasks, intakes, slots, keeper, draining=False)

    def _orphaned(self) -> bool:
        """Tell whether the process that we belong to is gone."""
        parent = self._settings.parent
        if parent is None or os.getppid() == parent:
            return False
        log.warning("process %d, which started this consumer, is gone: no more tasks are taken", parent)
        return True

    async def _drain(self, tasks: Tasks, intakes: list[Intake], slots: list[Slot], keeper: Keeper) -> None:
        """Stop taking tasks, then let what runs end within the grace period."""
        deadline = time.monotonic() + self._settings.grace_seconds
        tasks.stop_taking()
        self._show(tasks, intakes, slots, draining=True)
        await asyncio.gather(*(intake.close() for intake in intakes))
        while len(tasks) and len(self._signals) < 2 and time.monotonic() < deadline:
            await self._beat(tasks, intakes, slots, keeper, draining=True)
        if len(tasks):
            log.warning("%d tasks are not finished and go back to their queues", len(tasks))

    async def _beat(
        self, tasks: Tasks, intakes: list[Intake], slots: list[Slot], keeper: Keeper, *, draining: bool
    ) -> None:
        """Do what time asks for, show how things are, and wait for the next time or a signal."""
        tasks.tick(time.monotonic())
        keeper.look()
        self._show(tasks, intakes, slots, draining=draining)
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _TICK_SECONDS)

    def _show(self, tasks: Tasks, intakes: list[Intake], slots: list[Slot], *, draining: bool) -> None:
        now = time.monotonic()
        sights = tuple(intake.sight for intake in intakes), tuple(slot.sight(now) for slot in slots)
        self._observer.seen(Sight(*sights, tasks.deliveries, draining=draining))


class _ChildStarter:
    """Start a child for a slot."""

    def __init__(self, settings: Settings, environment: dict[str, str], threads: int, scratch: str) -> None:
        self._settings = settings
        self._environment = environment
        self._threads = threads
        self._scratch = scratch
        self._said: set[str] = set()

    def __call__(self, number: int, listener: ChildListener) -> ChildProcess:
        settings = self._settings
        setup = Setup(
            methods=settings.methods,
            commands=settings.commands,
            per_point=settings.per_point,
            source=str(settings.source),
            device=settings.devices.of_slot(number),
            consumer=settings.name,
            slot=number,
            threads=self._threads,
            max_message_bytes=settings.max_message_bytes,
            scratch=self._folder(number),
            timed=settings.limits.time_limit_seconds is not None,
            memory_limit_bytes=settings.limits.memory_limit_bytes,
        )
        own_device = settings.devices.environment_of_slot(number)
        environment = {**self._environment, **own_device, "CONSUMER_WORKER": str(number)}
        load_limit_seconds = settings.limits.load_limit_seconds
        return ChildProcess(setup, environment, listener, _write, self._warn, load_limit_seconds)

    def _warn(self, faults: Mapping[str, str]) -> None:
        """Say what a child could not import, once and not for each child; tasks that ask for it are answered."""
        for method, why in faults.items():
            if method not in self._said:
                self._said.add(method)
                log.warning("--methods %s cannot be used here, and its tasks are refused: %s", method, why)

    def _folder(self, number: int) -> str:
        Path(self._scratch).mkdir(mode=0o700, exist_ok=True)  # systems clear what lay unused in /tmp for days
        return tempfile.mkdtemp(prefix=f"slot-{number}-", dir=self._scratch)


def _write(lines: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads our standard error any more
        sys.stderr.buffer.write(lines)
        sys.stderr.buffer.flush()
