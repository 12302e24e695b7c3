"""Be one slot: a number, a child in it, the task that it runs, and the short ones that it has behind that."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from overnight_consumer.backoff import backoff_seconds
from overnight_consumer.deaths import Death, ExitReason, exit_reason, start_failure_of
from overnight_consumer.frames import Work
from overnight_consumer.held import Held, Stage
from overnight_consumer.kernel_kills import KernelKills
from overnight_consumer.limits import Limits
from overnight_consumer.memory_use import used_bytes
from overnight_consumer.observer import NOBODY, SlotSight
from overnight_consumer.recycling import Age, RecycleReason
from overnight_consumer.slot_states import SlotState, StartReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_consumer.child_process import ChildListener, ChildProcess
    from overnight_consumer.frames import Answer
    from overnight_consumer.observer import Observer
    from overnight_consumer.slot_states import SlotListener

_START_BACKOFF_FIRST = 0.1
_START_BACKOFF_LONGEST = 10.0
_SETTLED_IN_SECONDS = 1.0
_STOP_PATIENCE_SECONDS = 1.0
_SUCCESSOR_AGAIN_SECONDS = 10.0
log = logging.getLogger("overnight.consumer")


_RECYCLED = {
    RecycleReason.TASKS: StartReason.RECYCLED_TASKS,
    RecycleReason.GROWTH: StartReason.RECYCLED_GROWTH,
}


@dataclass(slots=True, eq=False)
class _Successor:
    """Be a child that warms up while the one before it still serves."""

    child: ChildProcess
    ready: bool = False


class Slot:
    """Keep one warm child, and start another whenever it is gone or has served long enough.

    Args:
        number: from 1.
        start_child: starts a child that reports to the given listener.
        listener: who hears of what happens.
        keep, forget: called with the session of each child that starts and ends.
        observer: looks on.
        limits: for each child here.
        kernel: tells whether a child was killed for want of memory.
    """

    def __init__(
        self,
        number: int,
        start_child: Callable[[int, ChildListener], ChildProcess],
        listener: SlotListener,
        keep: Callable[[int], None],
        forget: Callable[[int], None],
        observer: Observer = NOBODY,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        kernel: KernelKills | None = None,
    ) -> None:
        self.number = number
        self.state = SlotState.STOPPED
        self.held: Held | None = None
        self._given: deque[Held] = deque()  # what the child has behind the task that it runs
        self.start_failures = 0
        self._start_child = start_child
        self._listener = listener
        self._keep = keep
        self._forget = forget
        self._observer = observer
        self._child: ChildProcess | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._limits = limits
        self._kernel = kernel or KernelKills()
        self._kills_before = 0
        self._peak_bytes = 0
        self._why: ExitReason | None = None  # for what we have killed the child
        self._age = Age(limits.recycling)
        self._successor: _Successor | None = None
        self._successor_not_before = 0.0
        self._ready_at = 0.0
        self._running_since = 0.0  # since the end of loading, where the child tells of that
        self._busy_since = 0.0
        self._busy_seconds = 0.0
        self._stops: set[asyncio.Task[None]] = set()

    def start(self, why: StartReason = StartReason.FIRST) -> None:
        """Start a child, or try again later where the system lets us start none."""
        child = self._new_child(why)
        if isinstance(child, Death):
            self._back_off(child)
        else:
            self._install(child)
            self._become(SlotState.STARTING)

    def _new_child(self, why: StartReason) -> ChildProcess | Death:
        """Return a child, or why there is none: too many processes, no file descriptor, a full disk."""
        voice = _Voice(self)
        try:
            child = voice.child = self._start_child(self.number, voice)
        except OSError as error:
            return Death.at_birth(error)
        self._keep(child.pid)
        self._observer.child_started(self.number, child.pid, why)
        return child

    def _install(self, child: ChildProcess) -> None:
        self._child = child
        self._why = None
        self._age = Age(self._limits.recycling)
        self._begin_count()

    def _begin_count(self) -> None:
        """Count memory and the kernel's kills from here on."""
        self._peak_bytes = 0
        self._kills_before = self._kernel.count

    def _become(self, state: SlotState) -> None:
        if self.state is SlotState.BUSY:
            self._busy_seconds += time.monotonic() - self._busy_since
        self.state = state

    def sight(self, now: float) -> SlotSight:
        """Return how things are, for who looks on; `now` is monotonic seconds."""
        busy_seconds = self._busy_seconds
        if self.state is SlotState.BUSY:
            busy_seconds += now - self._busy_since
        task_seconds = now - self.held.dispatched_at if self.held is not None else 0.0
        return SlotSight(self.state, busy_seconds, task_seconds, self.held)

    @property
    def child_pid(self) -> int | None:
        """Return the process id of the child."""
        return self._child.pid if self._child else None

    def run(self, *tasks: Held) -> None:
        """Run tasks, one after the other; the slot must be free."""
        assert self._child is not None
        assert self.state is SlotState.FREE
        self.state = SlotState.BUSY
        self._busy_since = time.monotonic()
        for held in tasks:
            held.stage, held.slot = Stage.GIVEN, self.number
        self._given.extend(tasks)
        self._next()
        self._child.send(*(Work(held.delivery_count, held.body) for held in tasks))

    def _next(self) -> None:
        """Go on to the next of the tasks that the child was given, if there is one."""
        self.held = self._given.popleft() if self._given else None
        if self.held is not None:
            if self.held.stage is Stage.GIVEN:  # and not recalled
                self.held.stage = Stage.RUNNING
            self.held.dispatched_at = self._running_since = time.monotonic()
            self._begin_count()

    @property
    def is_usable(self) -> bool:
        """Tell whether it has a child, or has had none that failed to start since its last answer."""
        return not self.start_failures or self.state not in (SlotState.STARTING, SlotState.BACKOFF)

    @property
    def is_quiet(self) -> bool:
        """Tell whether the child prints nothing that would have to be told apart by tasks."""
        return self._child is None or self._child.is_quiet

    def recall(self) -> list[Held]:
        """Let the child begin nothing more of what it was given, and return that; it may have begun the first."""
        if self._child is not None and self._given:
            self._child.recall()
        return list(self._given)

    def _take_back(self) -> list[Held]:
        given, self._given = list(self._given), deque()
        return given

    def abandon(self) -> None:
        """Kill the child with the task that it runs; nobody wants it any more."""
        self.held = None
        self._kill(ExitReason.CANCELLED)  # what lay behind it is reported with its death

    def _kill(self, why: ExitReason) -> None:
        """Kill the child and what it started; the first reason counts."""
        if self._child is not None and self._why is None:
            self._why = why
            self._child.kill()

    @property
    def is_watched(self) -> bool:
        """Tell whether the child's memory matters: it starts, or runs a task."""
        return self.state in (SlotState.STARTING, SlotState.BUSY)

    def note_memory(self, used: int) -> None:
        """Take note of the bytes that the child uses now with all that it started; too many kill it."""
        self._peak_bytes = max(self._peak_bytes, used)
        limit = self._limits.memory_limit_bytes
        if limit is not None and used > limit and self.is_watched:
            self._kill(ExitReason.MEMORY_LIMIT)

    def renew(self) -> None:
        """Replace the child, so that the next task finds fresh code."""
        held, self.held, unbegun = self.held, None, self._take_back()
        if held is not None:
            unbegun.insert(0, held)
            if self._child is not None:
                self._child.kill()  # or it would run them all before it sees that nobody listens
        self._dismiss()
        self.start(StartReason.RENEWAL)
        self._listener.on_unbegun(unbegun)

    def _dismiss(self) -> None:
        """Let go of the child and of its successor; both are idle."""
        child, self._child = self._child, None
        successor, self._successor = self._successor, None
        for each in (child, None if successor is None else successor.child):
            if each is not None:
                self._stop_later(each)

    def _stop_later(self, child: ChildProcess) -> None:
        task = asyncio.get_running_loop().create_task(child.stop(_STOP_PATIENCE_SECONDS))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def stop(self) -> None:
        """End the child, at once if it runs something."""
        was = self.state
        self._become(SlotState.STOPPED)
        self._cancel_timer()
        if was is SlotState.BUSY and self._child is not None:
            self._child.kill()
        self._dismiss()
        if self._stops:
            await asyncio.wait(self._stops)

    # What the child says, by way of its voice.

    def child_ready(self, child: ChildProcess) -> None:
        """Take note that a child is warm."""
        if self._successor is not None and child is self._successor.child:
            self._successor.ready = True
            if self.state is SlotState.FREE:
                self._succeed()
        elif child is self._child and self.state is SlotState.STARTING:
            self._free()

    def _free(self) -> None:
        self._ready_at = time.monotonic()
        self._become(SlotState.FREE)
        self._listener.on_free(self)

    def child_started(self) -> None:
        """Begin to count the time limit: loading is over."""
        self._running_since = time.monotonic()
        limit = self._limits.time_limit_of(self.held.task.time_limit_seconds) if self.held else None
        self._cancel_timer()
        if limit is not None:
            self._timer = asyncio.get_running_loop().call_later(limit, self._kill, ExitReason.TIME_LIMIT)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def child_answered(self, answer: Answer) -> None:
        """Pass the answer on; one that comes after a limit has passed counts too."""
        held, child = self.held, self._child
        self._cancel_timer()
        if held is None or child is None or self.state is not SlotState.BUSY:
            return
        if answer.last:
            self._kill(ExitReason.DEVICE_FAILED)
        if self._why is None:
            self._next()
        else:
            self.held = None  # the next one is not to blame for the death that follows
        self.start_failures = 0
        held.outcome = answer.cause or answer.kind
        held.run_seconds = answer.seconds
        old_for = self._age.after_task(time.monotonic(), lambda: used_bytes([child.pid]))
        if self.held is None:
            self._rest()
        self._listener.on_answer(self, held, answer)
        if old_for is not None and self._child is child:
            self._raise_successor(_RECYCLED[old_for])

    def _rest(self) -> None:
        """Be free again, or wait for the end of a child that is being killed."""
        if self._why is None and self._successor is not None and self._successor.ready:
            self._succeed()
        self._become(SlotState.FREE if self._why is None else SlotState.ENDING)

    def child_recalled(self, count: int) -> None:
        """Forget the next tasks, which the child will not run."""
        for _ in range(count):
            self._next()
        if self.held is None and self.state is SlotState.BUSY:
            self._rest()
            if self._why is None:
                self._listener.on_free(self)

    # Recycling: the old child serves until the new one is warm, so no slot is idle meanwhile.

    def _raise_successor(self, why: StartReason) -> None:
        serves = self.state in (SlotState.FREE, SlotState.BUSY)
        if serves and self._successor is None and time.monotonic() >= self._successor_not_before:
            child = self._new_child(why)
            if isinstance(child, Death):
                self._lose_successor(child)
                return
            self._successor = _Successor(child)

    def _succeed(self) -> None:
        """Let the successor take the place of the child, which is idle."""
        old, successor, self._successor = self._child, self._successor, None
        assert old is not None and successor is not None  # noqa: PT018 - one state
        self._stop_later(old)
        self._install(successor.child)
        self._ready_at = time.monotonic()
        log.info("slot %d has a fresh child", self.number)

    def _lose_successor(self, death: Death) -> None:
        """Go on with the old child, and try again later."""
        self._successor = None
        self._successor_not_before = time.monotonic() + _SUCCESSOR_AGAIN_SECONDS
        log.warning("slot %d keeps its child: %s", self.number, start_failure_of(death).message)

    def child_died(self, child: ChildProcess, death: Death) -> None:
        """Report the death and start another child."""
        self._forget(child.pid)
        if self._successor is not None and child is self._successor.child:
            self._observer.child_ended(self.number, child.pid, ExitReason.START_FAILED)
            self._lose_successor(death)
            return
        if child is not self._child:
            self._observer.child_ended(self.number, child.pid, ExitReason.STOPPED)
            return
        self._child = None
        self._cancel_timer()
        held, self.held, unbegun = self.held, None, self._take_back()
        death = self._told_in_full(death, held)
        self._why = None
        starting = self.state is SlotState.STARTING
        how = ExitReason.START_FAILED if starting else exit_reason(death)
        self._observer.child_ended(self.number, child.pid, how)
        if starting or (
            self.state is SlotState.FREE and time.monotonic() - self._ready_at < _SETTLED_IN_SECONDS
        ):
            self._back_off(death)
            return
        self._replace_dead()
        if held is not None:
            held.run_seconds = death.seconds
            self._listener.on_task_death(self, held, death)
        self._listener.on_unbegun(unbegun)

    def _told_in_full(self, death: Death, held: Held | None) -> Death:
        """Add to a death what only the slot knows."""
        why = death.why or self._why
        if why is None and death.exit_status == -signal.SIGKILL and self._kernel.explain(self._kills_before):
            why = ExitReason.KERNEL_OUT_OF_MEMORY
        return dataclasses.replace(
            death,
            why=why,
            peak_rss_bytes=max(death.peak_rss_bytes, self._peak_bytes),
            seconds=time.monotonic() - self._running_since if held else 0.0,
            time_limit_seconds=self._limits.time_limit_of(held.task.time_limit_seconds) if held else None,
            memory_limit_bytes=self._limits.memory_limit_bytes,
        )

    def _replace_dead(self) -> None:
        successor, self._successor = self._successor, None
        if successor is None:
            self.start(StartReason.DEATH)
            return
        self._install(successor.child)
        if successor.ready:
            self._free()
        else:
            self._become(SlotState.STARTING)

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
        if self.child is not None:
            self._slot.child_ready(self.child)

    def on_started(self) -> None:
        if self._current():
            self._slot.child_started()

    def on_answer(self, answer: Answer) -> None:
        if self._current():
            self._slot.child_answered(answer)

    def on_recalled(self, count: int) -> None:
        if self._current():
            self._slot.child_recalled(count)

    def on_death(self, death: Death) -> None:
        assert self.child is not None
        self._slot.child_died(self.child, death)
