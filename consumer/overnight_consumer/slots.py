"""Be one slot: a number, a child in it, and at most one task that it runs."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import time
from typing import TYPE_CHECKING, Protocol

from overnight_consumer.backoff import backoff_seconds
from overnight_consumer.deaths import ExitReason, exit_reason
from overnight_consumer.frames import Work
from overnight_consumer.held import Held, Stage
from overnight_consumer.observer import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_consumer.child_process import ChildListener, ChildProcess
    from overnight_consumer.deaths import Death
    from overnight_consumer.frames import Answer
    from overnight_consumer.observer import Observer

_START_BACKOFF_FIRST = 0.1
_START_BACKOFF_LONGEST = 10.0
_SETTLED_IN_SECONDS = 1.0
_STOP_PATIENCE_SECONDS = 1.0


class SlotState(enum.Enum):
    """Say what a slot does."""

    STARTING = "starting"
    FREE = "free"
    BUSY = "busy"
    ENDING = "ending"  # its child answered while we killed it for the time limit
    BACKOFF = "backoff"  # its child died while starting
    STOPPED = "stopped"


class StartReason(enum.StrEnum):
    """Name why a child is started; the list is closed."""

    FIRST = "first"
    DEATH = "death"  # the one before died, of itself or by us
    RENEWAL = "renewal"  # fresh code is wanted
    BACKOFF = "backoff"  # the one before died while starting


class SlotListener(Protocol):
    """Hear from the slots."""

    def on_free(self, slot: Slot) -> None:
        """A child is warm and waits for a task."""

    def on_answer(self, slot: Slot, held: Held, answer: Answer) -> None:
        """A task was answered; the slot is free again but for `renew`."""

    def on_task_death(self, slot: Slot, held: Held, death: Death) -> None:
        """The child died with a task; a new one is on its way."""

    def on_start_failure(self, slot: Slot, death: Death) -> None:
        """The child died while starting; another is started after a back-off."""


class Slot:
    """Keep one warm child, and start another whenever it is gone.

    Args:
        number: from 1.
        start_child: starts a child that reports to the given listener.
        listener: who hears of what happens.
        keep, forget: called with the session of each child that starts and ends.
        observer: looks on.
    """

    def __init__(
        self,
        number: int,
        start_child: Callable[[int, ChildListener], ChildProcess],
        listener: SlotListener,
        keep: Callable[[int], None],
        forget: Callable[[int], None],
        observer: Observer = NOBODY,
    ) -> None:
        self.number = number
        self.state = SlotState.STOPPED
        self.held: Held | None = None
        self.start_failures = 0
        self._start_child = start_child
        self._listener = listener
        self._keep = keep
        self._forget = forget
        self._observer = observer
        self._child: ChildProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._limit_passed = False
        self._abandoned = False
        self._ready_at = 0.0
        self._stops: set[asyncio.Task[None]] = set()

    def start(self, why: StartReason = StartReason.FIRST) -> None:
        """Start a child."""
        self._become(SlotState.STARTING)
        voice = _Voice(self)
        child = self._start_child(self.number, voice)
        voice.child = self._child = child
        self._keep(child.pid)
        self._observer.child_started(self.number, child.pid, why)

    def _become(self, state: SlotState) -> None:
        self.state = state
        self._observer.slot_is(self.number, state)

    @property
    def child_pid(self) -> int | None:
        """Return the process id of the child."""
        return self._child.pid if self._child else None

    def run(self, held: Held) -> None:
        """Run a task; the slot must be free."""
        assert self._child is not None
        assert self.state is SlotState.FREE
        self.state = SlotState.BUSY
        self.held = held
        held.stage = Stage.RUNNING
        held.slot = self.number
        held.dispatched_at = time.monotonic()
        self._child.send(Work(held.delivery_count, held.body))
        self._observer.started(held)

    def abandon(self) -> None:
        """Kill the child with the task that it runs; nobody wants it any more."""
        self.held = None
        self._abandoned = True
        self.kill()

    def kill(self) -> None:
        """Kill the child and what it started."""
        if self._child is not None:
            self._child.kill()

    def renew(self) -> None:
        """Replace the child, so that the next task finds fresh code."""
        child, self._child = self._child, None
        if child is not None:
            self._stop_later(child)
        self.start(StartReason.RENEWAL)

    def _stop_later(self, child: ChildProcess) -> None:
        task = asyncio.get_running_loop().create_task(child.stop(_STOP_PATIENCE_SECONDS))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def stop(self) -> None:
        """End the child, at once if it runs something."""
        was = self.state
        self._become(SlotState.STOPPED)
        self._cancel_timer()
        child, self._child = self._child, None
        if child is not None:
            if was is SlotState.BUSY:
                child.kill()
            self._stop_later(child)
        if self._stops:
            await asyncio.wait(self._stops)

    # What the child says, by way of its voice.

    def child_ready(self) -> None:
        """Take note that the child is warm."""
        if self.state is SlotState.STARTING:
            self._ready_at = time.monotonic()
            self._become(SlotState.FREE)
            self._listener.on_free(self)

    def child_started(self) -> None:
        """Begin to count the time limit: loading is over."""
        limit = self.held.task.time_limit_seconds if self.held else None
        if limit is not None:
            self._timer = asyncio.get_running_loop().call_later(limit, self._pass_limit)

    def _pass_limit(self) -> None:
        self._limit_passed = True
        self.kill()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def child_answered(self, answer: Answer) -> None:
        """Pass the answer on; one that comes after the limit has passed counts too."""
        held, self.held = self.held, None
        self._cancel_timer()
        if held is None or self.state is not SlotState.BUSY:
            return
        self.start_failures = 0
        held.outcome = answer.cause or answer.kind
        held.run_seconds = answer.seconds
        self._become(SlotState.ENDING if self._limit_passed else SlotState.FREE)
        self._listener.on_answer(self, held, answer)

    def child_died(self, child: ChildProcess, death: Death) -> None:
        """Report the death and start another child."""
        self._forget(child.pid)
        self._observer.child_ended(self.number, child.pid, self._why_ended(child, death))
        if child is not self._child:
            return
        self._child = None
        self._cancel_timer()
        held, self.held = self.held, None
        passed, self._limit_passed, self._abandoned = self._limit_passed, False, False
        now = time.monotonic()
        if self.state is SlotState.STARTING or (
            self.state is SlotState.FREE and now - self._ready_at < _SETTLED_IN_SECONDS and not passed
        ):
            self._back_off(death)
            return
        self.start(StartReason.DEATH)
        if held is not None:
            limit = held.task.time_limit_seconds if passed else None
            seconds = now - held.dispatched_at
            held.run_seconds = seconds
            self._listener.on_task_death(
                self, held, dataclasses.replace(death, seconds=seconds, limit_seconds=limit)
            )

    def _why_ended(self, child: ChildProcess, death: Death) -> ExitReason:
        if child is not self._child:
            return ExitReason.STOPPED
        if self.state is SlotState.STARTING:
            return ExitReason.START_FAILED
        if self._limit_passed:
            return ExitReason.TIME_LIMIT
        return ExitReason.CANCELLED if self._abandoned else exit_reason(death.exit_status)

    def _back_off(self, death: Death) -> None:
        self.start_failures += 1
        self._become(SlotState.BACKOFF)
        delay = backoff_seconds(self.start_failures, _START_BACKOFF_FIRST, _START_BACKOFF_LONGEST)
        asyncio.get_running_loop().call_later(delay, self._start_again)
        self._listener.on_start_failure(self, death)

    def _start_again(self) -> None:
        if self.state is SlotState.BACKOFF:
            self.start(StartReason.BACKOFF)


class _Voice:
    """Pass on what one child says, as long as it is the one in the slot."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.child: ChildProcess | None = None

    def _current(self) -> bool:
        return self.child is not None and self.child is self._slot._child

    def on_ready(self) -> None:
        if self._current():
            self._slot.child_ready()

    def on_started(self) -> None:
        if self._current():
            self._slot.child_started()

    def on_answer(self, answer: Answer) -> None:
        if self._current():
            self._slot.child_answered(answer)

    def on_death(self, death: Death) -> None:
        assert self.child is not None
        self._slot.child_died(self.child, death)
