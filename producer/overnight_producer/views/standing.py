"""Say in words where a job stands, from the figures of one moment; pure but for one small clock."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

from overnight_common.brokers.base import BrokerState
from overnight_producer.views.wording import (
    clock,
    count,
    counted,
    duration,
    one_line,
    pace,
    percent,
    points_done,
    points_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec

STRAGGLER_SECONDS = 60.0
ACCUSED_SHOWN = 3
LONELY_SECONDS = 3.0


def title(spec: JobSpec) -> str:
    """Return what the job is, in one line."""
    what = f"`{one_line(spec.command, 60)}`" if spec.command else one_line(spec.method, 60)
    return f"{what} over {one_line(data_name(spec), 40)}: {counted(spec.points, 'point')}, job {spec.id}"


def data_name(spec: JobSpec) -> str:
    """Return the end of the data set's name, which says most."""
    return spec.data_uri.rstrip("/").rsplit("/", 1)[-1] or spec.data_uri


def points_phrase(snapshot: Snapshot) -> str:
    """Return for example `812 of 1,797 points`."""
    return points_done(snapshot.progress.done, snapshot.progress.total)


def percent_phrase(snapshot: Snapshot) -> str:
    """Return the share of points done, for example `45 %`."""
    return percent(snapshot.progress.done, snapshot.progress.total)


def slots_phrase(snapshot: Snapshot) -> str:
    """Return for example `1.9 of 2 slots busy`; without the second number where nobody knows it."""
    busy = f"{snapshot.slots_busy:.1f}".removesuffix(".0")
    if snapshot.slots_seen == 0:
        return f"about {busy} slots busy" if busy != "0" else ""
    return f"{busy} of {counted(snapshot.slots_seen, 'slot')} busy"


def ending_phrase(snapshot: Snapshot, now: float) -> str:
    """Return for example `1 min 19 s left, done about Thu 17:40`; `now` is Unix time."""
    if snapshot.paused:
        return "paused"
    seconds = snapshot.eta_seconds
    if seconds is None:
        untouched = not snapshot.progress.done and not snapshot.progress.given_up
        return "waiting for the first result" if untouched else ""
    if seconds == 0:
        return ""
    if seconds > 100 * 365 * 86_400:
        return "more than a hundred years left"
    return f"{duration(seconds)} left, done about {clock(now + seconds, now)}"


def given_up_phrase(snapshot: Snapshot) -> str:
    """Return for example `3 given up`, or nothing if none was."""
    return f"{count(snapshot.progress.given_up)} given up" if snapshot.progress.given_up else ""


def tasks_phrase(snapshot: Snapshot) -> str:
    """Return for example `window 16, 12 tasks out, 8 in the queue`, or nothing if nobody told."""
    if snapshot.window == 0:
        return ""
    parts = [f"window {count(snapshot.window)}", f"{counted(snapshot.tasks_out, 'task')} out"]
    if snapshot.depth is not None:
        parts.append(f"{count(snapshot.depth.ready)} in the queue")
    return ", ".join(parts)


def nobody_takes(snapshot: Snapshot) -> bool:
    """Tell whether tasks wait in the queue and no consumer is there to take them."""
    depth = snapshot.depth
    if depth is None or depth.ready == 0 or snapshot.paused:
        return False
    if depth.consumers is None:
        return snapshot.slots_seen == 0
    return depth.consumers == 0


def troubles(snapshot: Snapshot, spec: JobSpec, lonely: bool) -> list[str]:
    """Return a line for each thing that keeps the job from going at its best, the worst first.

    Args:
        snapshot: the figures.
        spec: the job.
        lonely: whether nobody has been taking tasks for a while.
    """
    lines = []
    if snapshot.broker is BrokerState.DISCONNECTED:
        lines.append(f"no link to the broker{_at(spec)}; trying again, nothing is lost")
    if snapshot.broker is BrokerState.BLOCKED:
        lines.append(_blocked(spec))
    if lonely and snapshot.broker is not BrokerState.DISCONNECTED:
        lines.append(f"no consumer on queue {spec.queue}: start one with `{consumer_command(spec)}`")
    accused = sorted(snapshot.accused.items())
    lines += [
        f"consumer {one_line(name, 40)} cannot do these tasks: {one_line(why, 200)}"
        for name, why in accused[:ACCUSED_SHOWN]
    ]
    if len(accused) > ACCUSED_SHOWN:
        lines.append(f"and {counted(len(accused) - ACCUSED_SHOWN, 'more consumer')} like that")
    return lines + stragglers(snapshot)


def _blocked(spec: JobSpec) -> str:
    if spec.broker.startswith("embedded"):
        return f"the disk of the broker's file is full{_at(spec)}; make room, then it goes on by itself"
    return "the broker takes no tasks now (memory or disk alarm); goes on by itself once that is over"


def stragglers(snapshot: Snapshot) -> list[str]:
    """Return a line about the task that has been running longest, if that is long."""
    long = [row for row in snapshot.running if row[4] > STRAGGLER_SECONDS]
    if not long:
        return []
    start, stop, consumer, slot, seconds = max(long, key=lambda row: row[4])
    others = f" ({len(long) - 1} more over 1 min)" if len(long) > 1 else ""
    where = f"{one_line(consumer, 40)} slot {slot}"
    return [f"longest: {points_of(start, stop)} on {where} for {duration(seconds)}{others}"]


def consumer_command(spec: JobSpec) -> str:
    """Return the command that starts a consumer for the job, with PASSWORD where that of the broker is due."""
    where = ""
    if spec.broker and not spec.broker.startswith("embedded"):
        where = f"OVERNIGHT_BROKER={spec.broker.replace('@', ':PASSWORD@', 1)} "
    what = (
        f"--command {shlex.quote(spec.command)}" if spec.command else f"--methods {shlex.quote(spec.method)}"
    )
    return f"{where}overnight-consumer --queue {spec.queue} {what}"


class Patience:
    """Tell whether something has been so for a while: a consumer may need a moment to come."""

    def __init__(
        self, seconds: float = LONELY_SECONDS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._since: float | None = None

    def over(self, so: bool) -> bool:
        """Note whether it is so now, and tell whether it has been for long enough."""
        if not so:
            self._since = None
            return False
        now = self._monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since >= self._seconds


def status_line(snapshot: Snapshot, now: float) -> str:
    """Return the whole standing in one line, for where no bar can be drawn; `now` is Unix time."""
    running = not snapshot.paused and snapshot.progress.done > 0
    parts = [
        f"{points_phrase(snapshot)} ({percent_phrase(snapshot)})",
        given_up_phrase(snapshot),
        pace(snapshot.rate) if running else "",
        slots_phrase(snapshot),
        ending_phrase(snapshot, now),
    ]
    return ", ".join(part for part in parts if part)


def _at(spec: JobSpec) -> str:
    return f" at {spec.broker}" if spec.broker else ""
