"""Turn what happens while jobs are driven into figures for Prometheus, and answer whether it is live and ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from overnight_common.brokers.base import DEAD_QUEUE, BrokerState, Depth, task_queue
from overnight_common.errors import OvernightError
from overnight_common.messages import Cause
from overnight_common.metrics import (
    ANSWER_BOUNDS,
    COMMON_FAMILIES,
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
from overnight_producer.driving.observer import Cycle, DriveObserver
from overnight_producer.driving.reckoning import PUBLISH_FAILED, SILENT_TASK
from overnight_producer.jobs.ranges import DUPLICATE_RESULT, NOT_IN_FLIGHT, STALE_ATTEMPT, UNKNOWN_RANGE

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.transaction import Written

DEAD_LETTERS_SECONDS = 5.0
_SOON_SECONDS = 0.25

# Counters and durations are sums over all jobs driven here: they outlive a job, so no label names one.
PUBLISHED = Family(
    "overnight_driver_tasks_published_total",
    "counter",
    "Tasks that the broker has confirmed; each attempt counts.",
)
PUBLISH_FAILURES = Family(
    "overnight_driver_publish_failures_total", "counter", "Tasks that the broker did not take.", ("reason",)
)
CONFIRM = Family(
    "overnight_driver_confirm_seconds",
    "histogram",
    "Time from sending a task to the broker's confirm.",
    (),
    ANSWER_BOUNDS,
)
REPLIES = Family(
    "overnight_driver_replies_total",
    "counter",
    "Replies read; the cause of those that are no failure is `none`.",
    ("kind", "cause"),
)
REPLIES_DROPPED = Family(
    "overnight_driver_replies_dropped_total", "counter", "Replies that changed nothing.", ("reason",)
)
SILENT = Family(
    "overnight_driver_silent_tasks_total", "counter", "Tasks published again since nobody spoke of them."
)
TASKS_DONE = Family(
    "overnight_driver_tasks_done_total", "counter", "Replies that brought at least one new result."
)
POINTS_DONE = Family("overnight_driver_points_done_total", "counter", "Points that got a result.")
POINTS_GIVEN_UP = Family("overnight_driver_points_given_up_total", "counter", "Points given up.")
FAILURES = Family(
    "overnight_driver_failures_total", "counter", "Failed attempts noted in job files.", ("cause",)
)
COMMIT = Family(
    "overnight_driver_commit_seconds", "histogram", "Time to commit to a job file.", (), ANSWER_BOUNDS
)
JOBS = Family("overnight_driver_jobs", "gauge", "Jobs driven here now.")
SERVICE_JOBS = Family(
    "overnight_service_jobs",
    "gauge",
    "Submitted jobs by where they are; absent unless `overnight serve` counts them.",
    ("state",),
)
# A sum of windows or of times to go says nothing, so these name the job, but only while it is driven here: there
# are never more series than jobs driven at once. Not called `job`: that is Prometheus' own name for a kind of target.
_JOB = ("job_id",)
JOB_POINTS = Family(
    "overnight_job_points",
    "gauge",
    "Points of the job by where they are; their sum is all.",
    ("job_id", "state"),
)
JOB_RATE = Family(
    "overnight_job_points_per_second",
    "gauge",
    "Points done per second, over 30 s; for tasks of over 10 s what the busy slots do.",
    _JOB,
)
JOB_ETA = Family(
    "overnight_job_eta_seconds", "gauge", "Time to go at that rate; absent while there is no rate.", _JOB
)
JOB_WINDOW = Family("overnight_job_window_tasks", "gauge", "Tasks that may be out at a time.", _JOB)
JOB_OUT = Family("overnight_job_out_tasks", "gauge", "Tasks published and unfinished.", _JOB)
JOB_SLOTS_BUSY = Family("overnight_job_busy_slots", "gauge", "Slots at work on it, mean over 30 s.", _JOB)
JOB_SLOTS_SEEN = Family("overnight_job_seen_slots", "gauge", "Slots heard of within 90 s.", _JOB)
JOB_PAUSED = Family("overnight_job_paused", "gauge", "1 while it is paused by request.", _JOB)
_QUEUE = ("queue",)
QUEUE_READY = Family("overnight_queue_ready_tasks", "gauge", "Tasks waiting in the queue.", _QUEUE)
QUEUE_UNACKED = Family("overnight_queue_unacked_tasks", "gauge", "Tasks handed out and un-acked.", _QUEUE)
QUEUE_CONSUMERS = Family("overnight_queue_consumers", "gauge", "Subscriptions to the queue.", _QUEUE)
QUEUE_READ_AT = Family(
    "overnight_queue_read_timestamp_seconds",
    "gauge",
    "When the depth was last read; it stays when that fails.",
    _QUEUE,
)
DEAD_LETTERS = Family("overnight_dead_letters", "gauge", "Messages in the queue of dead letters.")
DEAD_READ_AT = Family(
    "overnight_dead_letters_read_timestamp_seconds", "gauge", "When they were last counted."
)
FAMILIES = (
    *COMMON_FAMILIES,
    *(PUBLISHED, PUBLISH_FAILURES, CONFIRM, REPLIES, REPLIES_DROPPED, SILENT, TASKS_DONE, POINTS_DONE),
    *(
        POINTS_GIVEN_UP,
        FAILURES,
        COMMIT,
        JOBS,
        SERVICE_JOBS,
        JOB_POINTS,
        JOB_RATE,
        JOB_ETA,
        JOB_WINDOW,
        JOB_OUT,
    ),
    *(JOB_SLOTS_BUSY, JOB_SLOTS_SEEN, JOB_PAUSED, QUEUE_READY, QUEUE_UNACKED, QUEUE_CONSUMERS, QUEUE_READ_AT),
    *(DEAD_LETTERS, DEAD_READ_AT),
)

NO_CAUSE = "none"
JOB_STATES = ("done", "given_up", "waiting", "published", "running")
_PUBLISH_REASONS = {
    "NotConnectedError": "not_connected",
    "UnroutableError": "unroutable",
    "RefusedError": "refused",
    "TooLargeError": "too_large",
}
_DROP_REASONS = (UNKNOWN_RANGE, STALE_ATTEMPT, NOT_IN_FLIGHT, DUPLICATE_RESULT)
_OTHER = "other"


class ProducerMetrics:
    """Be the `DriveObserver` that counts. Hooks come from the loop; `read` and `not_ready` from the server."""

    def __init__(self) -> None:
        self.broker = BrokerFigures()
        self._published = Counter(PUBLISHED, [()])
        self._publish_failures = Counter(PUBLISH_FAILURES, [(each,) for each in _PUBLISH_REASONS.values()])
        self._confirm = Histogram(CONFIRM, [()])
        known = [(kind, NO_CAUSE) for kind in ("running", "done")] + [
            ("failed", cause.value) for cause in Cause
        ]
        self._replies = Counter(REPLIES, known)
        self._dropped = Counter(REPLIES_DROPPED, [(reason,) for reason in _DROP_REASONS])
        self._silent = Counter(SILENT, [()])
        self._tasks_done = Counter(TASKS_DONE, [()])
        self._points_done = Counter(POINTS_DONE, [()])
        self._points_given_up = Counter(POINTS_GIVEN_UP, [()])
        self._failures = Counter(FAILURES, [(cause.value,) for cause in Cause])
        self._commit = Histogram(COMMIT, [()])
        self._jobs: dict[str, tuple[str, Snapshot]] = {}
        self._service_jobs: dict[Labels, float] = {}
        self._read_at: dict[str, float] = {}
        self._dead: Depth | None = None
        self._dead_read_at: float | None = None

    # Hooks

    def cycled(self, cycle: Cycle) -> None:
        """Count what is in the job file now, and nothing before: so both agree to the unit."""
        self._published.add(by=len(cycle.confirm_seconds))
        if cycle.confirm_seconds:
            self._confirm.observe(*cycle.confirm_seconds)
        done = 0
        for reply in cycle.replies:
            if reply.kind == "done":
                done += 1
            else:
                self._replies.add((reply.kind, reply.failure.cause.value if reply.failure else NO_CAUSE))
        self._replies.add(("done", NO_CAUSE), done)
        if cycle.commit_seconds is not None:
            self._commit.observe(cycle.commit_seconds)
        self._add_up(cycle.written)

    def _add_up(self, written: Written) -> None:
        self._tasks_done.add(by=written.tasks_done)
        self._points_done.add(by=written.points_done)
        self._points_given_up.add(by=written.points_given_up)
        for cause, count in written.failures.items():
            self._failures.add((cause,), count)
        for reason, count in written.dropped.items():
            if reason == SILENT_TASK:
                self._silent.add(by=count)
            elif reason.startswith(PUBLISH_FAILED):
                error = reason.removeprefix(PUBLISH_FAILED)
                self._publish_failures.add((_PUBLISH_REASONS.get(error, _OTHER),), count)
            else:
                self._dropped.add((reason if reason in _DROP_REASONS else _OTHER,), count)

    def job_seen(self, spec: JobSpec, snapshot: Snapshot) -> None:
        """Keep how far a job is."""
        queue = queue_label(task_queue(spec.queue))
        self._jobs[spec.id] = (queue, snapshot)
        if snapshot.depth is not None:
            self._read_at[queue] = max(self._read_at.get(queue, 0.0), snapshot.depth.read_at)

    def job_left(self, job_id: str) -> None:
        """Show a job no more, nor its queue if it was the last one on it."""
        queue, _ = self._jobs.pop(job_id, ("", None))
        if all(each != queue for each, _ in self._jobs.values()):
            self._read_at.pop(queue, None)

    def jobs_counted(self, states: Mapping[str, int]) -> None:
        """Keep how many submitted jobs are where."""
        self._service_jobs = {(state,): count for state, count in states.items()}

    async def count_dead_letters(self, broker: Broker) -> None:
        """Look at the queue of dead letters from time to time, until cancelled."""
        while True:
            connected = broker.state is not BrokerState.DISCONNECTED
            depth = None
            if connected:
                with contextlib.suppress(OvernightError):
                    depth = await broker.depth(DEAD_QUEUE)
            self._dead = depth
            if depth is not None:
                self._dead_read_at = depth.read_at
            await asyncio.sleep(DEAD_LETTERS_SECONDS if connected else _SOON_SECONDS)

    # What the server asks

    def not_ready(self) -> str:
        """Return why nothing can be published, or nothing."""
        return "" if self.broker.connected else "not connected to the broker"

    def read(self) -> Iterator[Reading]:
        """Yield every figure as it is now."""
        yield from self.broker.read()
        for counter in (self._published, self._publish_failures, self._replies, self._dropped, self._silent):
            yield counter.read()
        for counter in (self._tasks_done, self._points_done, self._points_given_up, self._failures):
            yield counter.read()
        yield self._confirm.read()
        yield self._commit.read()
        jobs = self._jobs.copy()
        yield one(JOBS, len(jobs))
        yield Reading(SERVICE_JOBS, self._service_jobs)
        yield from _read_jobs({job: snapshot for job, (_, snapshot) in jobs.items()})
        yield from _read_queues(list(jobs.values()))
        yield Reading(QUEUE_READ_AT, {(queue,): at for queue, at in self._read_at.copy().items()})
        dead = self._dead
        yield one(DEAD_LETTERS, None if dead is None else dead.ready)
        yield one(DEAD_READ_AT, self._dead_read_at)


def _read_jobs(jobs: dict[str, Snapshot]) -> Iterator[Reading]:
    points: dict[Labels, float] = {}
    for job, snapshot in jobs.items():
        for state in JOB_STATES:
            points[(job, state)] = getattr(snapshot.progress, state)
    yield Reading(JOB_POINTS, points)
    for family, figures in (
        (JOB_RATE, {job: each.rate for job, each in jobs.items()}),
        (JOB_ETA, {job: each.eta_seconds for job, each in jobs.items()}),
        (JOB_WINDOW, {job: each.window for job, each in jobs.items()}),
        (JOB_OUT, {job: each.tasks_out for job, each in jobs.items()}),
        (JOB_SLOTS_BUSY, {job: each.slots_busy for job, each in jobs.items()}),
        (JOB_SLOTS_SEEN, {job: each.slots_seen for job, each in jobs.items()}),
        (JOB_PAUSED, {job: each.paused for job, each in jobs.items()}),
    ):
        yield Reading(family, {(job,): value for job, value in figures.items() if value is not None})


def _read_queues(jobs: list[tuple[str, Snapshot]]) -> Iterator[Reading]:
    """Show each queue as it was read last by any of its jobs; absent where the latest look failed."""
    latest: dict[str, Depth] = {}
    for queue, snapshot in jobs:
        depth = snapshot.depth
        if depth is not None and (queue not in latest or depth.read_at > latest[queue].read_at):
            latest[queue] = depth
    for family, figures in (
        (QUEUE_READY, {queue: depth.ready for queue, depth in latest.items()}),
        (QUEUE_UNACKED, {queue: depth.unacked for queue, depth in latest.items()}),
        (QUEUE_CONSUMERS, {queue: depth.consumers for queue, depth in latest.items()}),
    ):
        yield Reading(family, {(queue,): value for queue, value in figures.items() if value is not None})


@asynccontextmanager
async def watched(
    broker: Broker, address: str, port: int, say: Callable[[str], None]
) -> AsyncIterator[DriveObserver]:
    """Serve figures and health as long as the context lasts.

    Args:
        broker: not open yet.
        address: of this machine, where to listen.
        port: 0 for any free one.
        say: is told where it is, once.

    Yields:
        The observer to give to each driver of this process.

    Raises:
        BadInputError: nothing can be served there.
    """
    metrics, pulse = ProducerMetrics(), Pulse()
    health = Health(live=pulse.fault, ready=metrics.not_ready)
    with MetricsServer(address, port, Exposition("producer", metrics.read), health) as server:
        say(f"metrics at {server.url}")
        metrics.broker.follow(broker)
        pulse.start()
        counting = asyncio.create_task(metrics.count_dead_letters(broker))
        try:
            yield shielded(metrics)
        finally:
            pulse.stop()
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
