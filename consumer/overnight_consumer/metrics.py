"""Turn what happens in a consumer into figures for Prometheus, and answer whether it is live and ready."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from overnight_common.loading import known_methods
from overnight_common.messages import Cause
from overnight_common.metrics import (
    ANSWER_BOUNDS,
    COMMON_FAMILIES,
    RUN_BOUNDS,
    WAIT_BOUNDS,
    BrokerFigures,
    Counter,
    Exposition,
    Family,
    Histogram,
    Labels,
    Reading,
    one,
    queue_label,
)
from overnight_common.metrics_server import Health, MetricsServer
from overnight_common.observing import shielded
from overnight_common.pulse import Pulse
from overnight_consumer import gpus
from overnight_consumer.catalogue import COMMAND_PREFIX
from overnight_consumer.deaths import ExitReason
from overnight_consumer.held import DONE
from overnight_consumer.memory_use import processes_of, used_bytes
from overnight_consumer.observer import Sight, SlotSight
from overnight_consumer.slot_states import SlotState, StartReason
from overnight_consumer.threads import threads_per_slot

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker
    from overnight_consumer.held import Held
    from overnight_consumer.observer import Observer
    from overnight_consumer.settings import Settings

_log = logging.getLogger("overnight.consumer")
_QUEUE = ("queue",)
_TASK = ("queue", "method")

TASKS_DONE = Family(
    "overnight_consumer_tasks_done_total", "counter", "Tasks whose results the broker has confirmed.", _TASK
)
POINTS_DONE = Family("overnight_consumer_points_done_total", "counter", "Points of those tasks.", _TASK)
TASKS_FAILED = Family(
    "overnight_consumer_tasks_failed_total",
    "counter",
    "Tasks answered with a failure, the reply confirmed.",
    ("queue", "cause"),
)
RUN = Family(
    "overnight_consumer_run_seconds",
    "histogram",
    "Time in the method, well or not; loading is not counted, unless the child died of it. "
    "Seen when the reply is confirmed.",
    _TASK,
    RUN_BOUNDS,
)
WAIT = Family(
    "overnight_consumer_wait_seconds",
    "histogram",
    "Time from a task's publication to its start in a slot; 0 where clocks disagree.",
    _QUEUE,
    WAIT_BOUNDS,
)
CONFIRM = Family(
    "overnight_consumer_confirm_seconds",
    "histogram",
    "Time from sending a reply to the broker's confirm.",
    (),
    ANSWER_BOUNDS,
)
SLOTS = Family(
    "overnight_consumer_slots", "gauge", "Slots by what they do; their sum is the number chosen.", ("state",)
)
THREADS = Family("overnight_consumer_threads_per_slot", "gauge", "Threads that a slot's libraries may use.")
CORES = Family("overnight_consumer_cores", "gauge", "Cores found by affinity and container quota.")
BUSY = Family(
    "overnight_slot_busy_seconds_total", "counter", "Time with a task; grows while it runs.", ("slot",)
)
DEVICE = Family(
    "overnight_slot_device_info", "gauge", "Always 1; the device that a slot uses.", ("slot", "device")
)
MEMORY = Family(
    "overnight_slot_memory_bytes",
    "gauge",
    "Memory of the child and all it started, as its limit counts it.",
    ("slot",),
)
OLDEST = Family(
    "overnight_consumer_oldest_task_seconds", "gauge", "Age of the task that runs longest; 0 if none runs."
)
CHILD_STARTS = Family("overnight_child_starts_total", "counter", "Children started.", ("reason",))
CHILD_EXITS = Family("overnight_child_exits_total", "counter", "Children that are gone.", ("reason",))
CONSUMING = Family("overnight_consumer_consuming", "gauge", "1 while tasks would really come.", _QUEUE)
PAUSED = Family(
    "overnight_consumer_paused", "gauge", "1 while nothing is taken since this consumer is at fault.", _QUEUE
)
PAUSES = Family("overnight_consumer_pauses_total", "counter", "Such pauses begun.", _QUEUE)
PREFETCH = Family(
    "overnight_consumer_prefetch_deliveries", "gauge", "Deliveries that may be held un-acked.", _QUEUE
)
HELD = Family("overnight_consumer_held_deliveries", "gauge", "Deliveries held un-acked.")
DRAINING = Family("overnight_consumer_draining", "gauge", "1 while it stops: no more tasks are taken.")
FAMILIES = (
    *COMMON_FAMILIES,
    *(TASKS_DONE, POINTS_DONE, TASKS_FAILED, RUN, WAIT, CONFIRM, SLOTS, THREADS, CORES, BUSY, DEVICE, MEMORY),
    *(OLDEST, CHILD_STARTS, CHILD_EXITS, CONSUMING, PAUSED, PAUSES, PREFETCH, HELD, DRAINING),
    *gpus.FAMILIES,
)

UNKNOWN_METHOD = "unknown"
COMMAND_METHOD = "command"
_ALIKE = attrgetter("intake.queue", "task.method", "outcome")


class ConsumerMetrics:
    """Be the `Observer` that counts. Hooks come from the loop; `read` and `not_ready` from the server.

    Args:
        settings: of the consumer.
        monotonic: a clock.
        wall: Unix time.
    """

    def __init__(
        self,
        settings: Settings,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._threads = threads_per_slot(settings.cores, settings.slots)
        self._cores = settings.cores
        self._served = {name for name in settings.methods if ":" in name or name in known_methods()}
        self._pids: dict[int, int] = {}  # of each child -> number of its slot
        self._sight = Sight(slots=(SlotSight(SlotState.STOPPED, 0.0, 0.0, None),) * settings.slots)
        self._read_gpus = gpus.reader()
        numbers = range(1, settings.slots + 1)
        self._devices: dict[Labels, float] = {
            (str(number), settings.devices.of_slot(number)): 1.0 for number in numbers
        }
        self.broker = BrokerFigures()
        queues = [(queue_label(name),) for name in settings.queues]
        methods = [*self._served, *([COMMAND_METHOD] if settings.commands else [])]
        tasks = [(*queue, method) for queue in queues for method in methods]
        self._tasks_done = Counter(TASKS_DONE, tasks)
        self._points_done = Counter(POINTS_DONE, tasks)
        self._tasks_failed = Counter(
            TASKS_FAILED, [(*queue, cause.value) for queue in queues for cause in Cause]
        )
        self._run = Histogram(RUN, tasks)
        self._wait = Histogram(WAIT, queues)
        self._confirm = Histogram(CONFIRM, [()])
        self._starts = Counter(CHILD_STARTS, [(reason.value,) for reason in StartReason])
        self._exits = Counter(CHILD_EXITS, [(reason.value,) for reason in ExitReason])
        self._pauses = Counter(PAUSES, queues)

    # Hooks

    def confirmed(self, answered: Sequence[Held], seconds: float) -> None:
        """Count tasks; what is alike is counted together, for a task may take no longer than to be counted."""
        self._confirm.observe_alike(seconds, len(answered))
        wall_ahead = self._wall() - self._monotonic()
        tasks = [held for held in answered if held.task.start != held.task.stop]  # a probe is no task
        for (queue, method, outcome), alike in groupby(tasks, _ALIKE):
            self._count(queue_label(queue), self._method(method, outcome), outcome, alike, wall_ahead)

    def child_started(self, number: int, pid: int, why: StartReason) -> None:
        """Count a start."""
        self._starts.add((why.value,))
        self._pids[pid] = number

    def child_ended(self, number: int, pid: int, how: ExitReason) -> None:  # noqa: ARG002 - as observers have it
        """Count an end; the next child may be there already."""
        self._exits.add((how.value,))
        self._pids.pop(pid, None)

    def accused(self, queue: str) -> None:
        """Count a pause."""
        self._pauses.add((queue_label(queue),))

    def seen(self, sight: Sight) -> None:
        """Keep how things are, and count how long those waited that run now."""
        wall_ahead = self._wall() - self._monotonic()
        for slot in sight.slots:
            if slot.held is not None and (wait := _wait_of(slot.held, wall_ahead)) is not None:
                self._wait.observe(wait, labels=(queue_label(slot.held.intake.queue),))
        self._sight = sight

    def _count(self, queue: str, method: str, outcome: str, alike: Iterator[Held], wall_ahead: float) -> None:
        waits, runs = [], []
        tasks = points = 0
        for held in alike:
            task = held.task
            tasks += 1
            points += task.stop - task.start
            if (wait := _wait_of(held, wall_ahead)) is not None:
                waits.append(wait)
            if held.run_seconds > 0:
                runs.append(held.run_seconds)
        if waits:
            self._wait.observe(*waits, labels=(queue,))
        if runs:
            self._run.observe(*runs, labels=(queue, method))
        if outcome == DONE:
            self._tasks_done.add((queue, method), tasks)
            self._points_done.add((queue, method), points)
        else:
            self._tasks_failed.add((queue, outcome), tasks)

    def _method(self, name: str, outcome: str) -> str:
        """Return the label of a task's method: a closed set, whatever messages say."""
        if name in self._served:
            return name
        if name.startswith(COMMAND_PREFIX):
            return COMMAND_METHOD
        if outcome == DONE:
            self._served.add(name)  # marked in a module that is served: it did a task, so it is one of ours
            return name
        return UNKNOWN_METHOD

    # What the server asks

    def not_ready(self) -> str:
        """Return why no tasks would come, or nothing."""
        if not self.broker.connected:
            return "not connected to the broker"
        if self._sight.draining:
            return "stopping"
        if not self._sight.intakes:
            return "not yet subscribed"
        for intake in self._sight.intakes:
            if intake.paused:
                return f"takes nothing from {intake.queue}: this consumer is at fault, see its log"
            if not intake.consuming:
                return f"no tasks come from {intake.queue}"
        return ""

    def read(self) -> Iterator[Reading]:
        """Yield every figure as it is now."""
        yield from self.broker.read()
        for figure in (self._tasks_done, self._points_done, self._tasks_failed, self._pauses):
            yield figure.read()
        for histogram in (self._run, self._wait, self._confirm):
            yield histogram.read()
        yield self._starts.read()
        yield self._exits.read()
        yield one(THREADS, self._threads)
        yield one(CORES, self._cores)
        yield from self._read_slots()
        yield from self._read_sight()
        yield from self._read_gpus()

    def _read_slots(self) -> Iterator[Reading]:
        slots = self._sight.slots
        states: dict[Labels, float] = {(state.value,): 0.0 for state in SlotState}
        for slot in slots:
            states[(slot.state.value,)] += 1
        yield Reading(SLOTS, states)
        yield Reading(BUSY, {(str(number),): slot.busy_seconds for number, slot in enumerate(slots, 1)})
        yield Reading(DEVICE, self._devices)
        yield one(OLDEST, max((slot.task_seconds for slot in slots), default=0.0))
        memory: dict[Labels, float] = {}
        pids = self._pids.copy()
        for pid, processes in processes_of(pids).items():
            number = (str(pids[pid]),)
            memory[number] = memory.get(number, 0) + used_bytes(processes)
        yield Reading(MEMORY, memory)

    def _read_sight(self) -> Iterator[Reading]:
        sight = self._sight
        connected = self.broker.connected
        consuming: dict[Labels, float] = {}
        paused: dict[Labels, float] = {}
        prefetch: dict[Labels, float] = {}
        for intake in sight.intakes:
            queue = (queue_label(intake.queue),)
            consuming[queue] = intake.consuming and connected
            paused[queue] = intake.paused
            prefetch[queue] = intake.prefetch
        yield from (Reading(CONSUMING, consuming), Reading(PAUSED, paused), Reading(PREFETCH, prefetch))
        yield one(HELD, sight.held)
        yield one(DRAINING, sight.draining)


@contextmanager
def watched(settings: Settings, broker: Broker, port: int) -> Iterator[Observer]:
    """Serve figures and health as long as the context lasts; within a running loop.

    Args:
        settings: of the consumer.
        broker: not open yet.
        port: where to listen at `settings.metrics_address`; 0 for any free one.

    Yields:
        The observer to give to the service.

    Raises:
        BadInputError: nothing can be served there.
    """
    metrics, pulse = ConsumerMetrics(settings), Pulse()
    health = Health(live=pulse.fault, ready=metrics.not_ready)
    exposition = Exposition("consumer", metrics.read)
    with MetricsServer(settings.metrics_address, port, exposition, health) as server:
        _log.info("metrics at %s", server.url)
        metrics.broker.follow(broker)
        pulse.start()
        try:
            yield shielded(metrics)
        finally:
            pulse.stop()


def _wait_of(held: Held, wall_ahead: float) -> float | None:
    """Return how long a task had waited when its turn came; None if that is not known, or was told before.

    The wall clock is ahead of the monotonic one by `wall_ahead`.
    """
    published_at = held.task.published_at
    if held.wait_noted or not published_at or not held.dispatched_at:
        return None
    held.wait_noted = True
    return max(0.0, held.dispatched_at + wall_ahead - published_at)
