"""Report on the jobs in a folder: all in a table, or one in detail."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from overnight_producer.driving.reckoning import PUBLISH_FAILED, SILENT_TASK
from overnight_producer.jobs.home import all_jobs, resolve, unreadable
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.lock import driver_of
from overnight_producer.jobs.records import JobState
from overnight_producer.live_figures import live_figures
from overnight_producer.views import standing
from overnight_producer.views.tables import Table, print_json, print_line, print_table
from overnight_producer.views.view_json import figures
from overnight_producer.views.wording import (
    clock,
    count,
    counted,
    duration,
    one_line,
    pace,
    percent,
    points_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.records import ConsumerRow, Progress


RUNNING_SHOWN = 3


@dataclass(frozen=True, slots=True)
class JobStanding:
    """Hold what a job file, its lock and its driver tell.

    Attributes:
        driver_pid: None if nobody drives it, 0 if unknown.
        live: what the driver said last, None if it said nothing.
    """

    path: Path
    spec: JobSpec
    progress: Progress
    driver_pid: int | None
    live: Snapshot | None = None

    @classmethod
    def of(cls, path: Path, job: JobFile) -> JobStanding:
        """Read the standing of an open job file."""
        # The driver first: if it is gone now, the figures read afterwards are its last ones.
        driver = driver_of(path)
        live = live_figures(job)
        progress = job.progress() if live is None else live.progress
        return cls(path, job.spec, progress, driver, live)

    @property
    def in_line(self) -> bool:
        """Tell whether it is for the service to begin with."""
        return self.spec.submitted and self.progress.state is JobState.RUNNING and self.driver_pid is None

    @property
    def state_words(self) -> str:
        """Return the state as a person wants to know it: a running job that nobody drives has stopped."""
        state, given_up = self.progress.state, self.progress.given_up
        words = state.value
        if self.driver_pid is not None:
            words += ", driven" if state is JobState.PAUSED else ""
            words += f" by {self.driver_pid}" if self.driver_pid else " by another process"
        elif state is JobState.RUNNING:
            words = "in line" if self.in_line else "stopped"
        return f"{words}, {count(given_up)} given up" if given_up else words

    @property
    def points_per_second(self) -> float | None:
        """Return what the driver says, without one the mean from the first result to the latest; None before."""
        if self.live is not None:
            return self.live.rate or None
        first, last = self.progress.first_result_at, self.progress.last_result_at
        if first is None or last is None or last <= first:
            return None
        return self.progress.done / (last - first)

    @property
    def eta_seconds(self) -> float | None:
        """Return how long the job takes as its driver reckons; None if nobody drives it."""
        if self.progress.finished:
            return 0.0
        return self.live.eta_seconds if self.live is not None else None


def status(home: Path, prefix: str | None, *, as_json: bool, console: Console) -> None:
    """Print the jobs in `home`, or the one whose id begins with `prefix`.

    Raises:
        BadInputError: no job, or more than one, begins with `prefix`.
        JobFileError: the job's file cannot be read.
    """
    if prefix is None:
        _all(home, as_json, console)
        return
    path = resolve(home, prefix)
    with JobFile.open(path) as job:
        found = JobStanding.of(path, job)
        consumers, dropped = job.consumers(), job.dropped()
    if as_json:
        print_json(console, _detail_object(found, consumers, dropped))
    else:
        _print_detail(found, consumers, dropped, console)


def standings(home: Path) -> list[JobStanding]:
    """Return where each job in `home` stands, the oldest first."""
    found = []
    for path, _ in all_jobs(home):
        with JobFile.open(path) as job:
            found.append(JobStanding.of(path, job))
    return found


def _all(home: Path, as_json: bool, console: Console) -> None:
    jobs, broken = standings(home), unreadable(home)
    if as_json:
        broken_objects = [{"path": str(path), "reason": reason} for path, reason in broken]
        print_json(console, {"jobs": [job_object(job) for job in jobs], "unreadable": broken_objects})
        return
    if jobs:
        print_table(console, job_table(jobs))
    elif not broken:
        print_line(console, f"There are no jobs in {home.absolute()}; start one with `overnight run`.")
    for _, reason in broken:
        print_line(console, f"unreadable: {reason}", style="yellow")


def job_table(jobs: list[JobStanding]) -> Table:
    """Return the jobs as a table."""
    table = Table(
        ["job", "method", "data", "points", "done", "state", "left", "rate"],
        right=["points", "done", "left", "rate"],
        giving=["method", "data"],
        leaving=["left", "rate"],
    )
    for job in jobs:
        progress = job.progress
        left = duration(job.eta_seconds) if job.eta_seconds else ""
        table.add(
            job.spec.id,
            one_line(job.spec.command or job.spec.method, 40),
            one_line(standing.data_name(job.spec), 40),
            count(progress.total),
            percent(progress.done, progress.total),
            job.state_words,
            left,
            pace(job.live.rate)
            if job.live is not None and job.live.rate
            else "",  # a mean over pauses says nothing
            style="green" if job.driver_pid is not None else "",
        )
    return table


def job_object(job: JobStanding) -> dict[str, Any]:
    """Return a job for JSON, figures raw."""
    spec, progress = job.spec, job.progress
    return {
        "job": spec.id,
        "method": spec.method,
        "command": spec.command,
        "data": spec.data_uri,
        "created_at": spec.created.isoformat(),
        "state": progress.state.value,
        "why": progress.why,
        "driver_pid": job.driver_pid,
        "points": progress.total,
        "points_done": progress.done,
        "points_given_up": progress.given_up,
        "points_waiting": progress.waiting,
        "points_published": progress.published,
        "points_running": progress.running,
        "tasks_done": progress.tasks_done,
        "task_seconds": progress.seconds,
        "first_result_at": _utc(progress.first_result_at),
        "last_result_at": _utc(progress.last_result_at),
        "points_per_second": job.points_per_second,
        "eta_seconds": job.eta_seconds,
    }


def _detail_object(job: JobStanding, consumers: list[ConsumerRow], dropped: dict[str, int]) -> dict[str, Any]:
    spec = job.spec
    return job_object(job) | {
        "params": spec.params,
        "seed": spec.seed,
        "start": spec.start,
        "stop": spec.stop,
        "batch": spec.batch,
        "broker": spec.broker,
        "queue": spec.queue,
        "epoch": spec.epoch,
        "output": spec.output,
        "path": str(job.path),
        "consumers": [
            {
                "consumer": row.name,
                "tasks_done": row.tasks_done,
                "points_done": row.points_done,
                "last_seen_at": _utc(row.last_seen),
                "accusations": row.accusations,
                "cause": row.cause or None,
                "message": row.message or None,
            }
            for row in consumers
        ],
        "dropped_replies": dropped,
        "live": None if job.live is None else figures(job.live),
    }


def _print_detail(
    job: JobStanding, consumers: list[ConsumerRow], dropped: dict[str, int], console: Console
) -> None:
    now = time.time()
    lines = [line for line in (*_facts(job, now), *_mishaps(dropped)) if line[1]]
    for name, value in lines:
        print_line(console, f"{name:<10} {value}")
    if consumers:
        print_line(console)
        print_table(console, _consumer_table(consumers, now))


def _mishaps(counts: dict[str, int]) -> list[tuple[str, str]]:
    """Say what went wrong on the way; `counts` is what `Transaction.count` has counted."""
    silences = counts.get(SILENT_TASK, 0)
    wrong = [counted(silences, "time") + " nobody spoke of a task"] if silences else []
    aside = []
    for reason, number in counts.items():
        if reason.startswith(PUBLISH_FAILED):
            times = counted(number, "time")
            wrong.append(f"{times} the broker did not take one ({reason.removeprefix(PUBLISH_FAILED)})")
        elif reason != SILENT_TASK:
            aside.append(f"{number:,} {reason}")
    return [("went wrong", ", ".join(wrong)), ("set aside", f"replies: {', '.join(aside)}" if aside else "")]


def _facts(job: JobStanding, now: float) -> list[tuple[str, str]]:
    spec, progress = job.spec, job.progress
    params = ", ".join(f"{name}={value!r}" for name, value in spec.params.items())
    state = job.state_words
    if job.driver_pid is None and progress.state in (JobState.RUNNING, JobState.PAUSED):
        state += ", waits for `overnight serve`" if job.in_line else ", nobody drives it"
    on_their_way = progress.published + progress.running
    points = [
        f"{count(progress.done)} of {count(progress.total)} done ({percent(progress.done, progress.total)})",
        f"{count(progress.given_up)} given up" if progress.given_up else "",
        f"{count(on_their_way)} on their way" if on_their_way else "",
        f"{count(progress.waiting)} waiting" if progress.waiting else "",
    ]
    tasks = f"{count(progress.tasks_done)} done"
    if progress.tasks_done:
        tasks += f", {duration(progress.seconds / progress.tasks_done)} each on average"
    return [
        ("job", f"{spec.id}, made {clock(spec.created.timestamp(), now)}"),
        ("command" if spec.command else "method", one_line(spec.command or spec.method)),
        ("params", one_line(params)),
        ("data", f"{one_line(spec.data_uri)}, points [{spec.start}, {spec.stop})"),
        ("state", state + (f": {one_line(progress.why)}" if progress.why else "")),
        ("points", ", ".join(part for part in points if part)),
        ("rate", _rate_words(job, now)),
        ("longest", _running_words(job)),
        *(("trouble", line) for line in _troubles(job)),
        ("tasks", tasks + (f", batch {spec.batch}" if spec.batch else "")),
        ("broker", f"{one_line(spec.broker) or 'embedded'}, queue {spec.queue}, epoch {spec.epoch}"),
        ("output", one_line(spec.output or "")),
        ("file", str(job.path)),
        ("go on with", _next_command(job)),
    ]


def _rate_words(job: JobStanding, now: float) -> str:
    rate = job.points_per_second
    if job.live is None:
        return "" if rate is None else f"{pace(rate)} from the first result to the latest"
    words = [
        pace(rate) if rate else "",
        standing.slots_phrase(job.live),
        standing.ending_phrase(job.live, now),
    ]
    return ", ".join(each for each in words if each)


def _troubles(job: JobStanding) -> list[str]:
    if job.live is None:
        return []
    lines = standing.troubles(job.live, job.spec, standing.nobody_takes(job.live))
    return [line for line in lines if line not in standing.stragglers(job.live)]


def _running_words(job: JobStanding) -> str:
    rows = job.live.running[:RUNNING_SHOWN] if job.live is not None else []
    return "; ".join(
        f"{points_of(start, stop)} on {one_line(consumer, 40)} slot {slot} for {duration(seconds)}"
        for start, stop, consumer, slot, seconds in rows
    )


def _next_command(job: JobStanding) -> str:
    if job.driver_pid is not None:
        return f"overnight watch {job.spec.id}"
    if job.progress.state in (JobState.RUNNING, JobState.PAUSED):
        return f"overnight resume {job.spec.id}"
    if job.progress.given_up:
        return f"overnight failures {job.spec.id}"
    return ""


def _consumer_table(consumers: list[ConsumerRow], now: float) -> Table:
    table = Table(
        ["consumer", "tasks", "points", "last heard", "refused", "why it refused"],
        right=["tasks", "points", "refused"],
        giving=["consumer", "why it refused"],
    )
    for row in consumers:
        table.add(
            one_line(row.name, 60),
            count(row.tasks_done),
            count(row.points_done),
            f"{duration(now - row.last_seen)} ago",
            count(row.accusations) if row.accusations else "",
            one_line(f"{row.cause}: {row.message}") if row.cause else "",
            style="yellow" if row.accusations and not row.tasks_done else "",
        )
    return table


def _utc(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
