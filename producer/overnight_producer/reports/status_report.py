"""Report on the jobs in a folder: all in a table, or one in detail."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from overnight_producer.jobs.home import all_jobs, resolve, unreadable
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.lock import driver_of
from overnight_producer.jobs.records import JobState
from overnight_producer.views.standing import data_name
from overnight_producer.views.tables import Table, print_json, print_line, print_table
from overnight_producer.views.wording import clock, count, duration, one_line, pace, percent

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.records import ConsumerRow, Progress


@dataclass(frozen=True, slots=True)
class JobStanding:
    """Hold what a job file and its lock tell; `driver_pid` is None if nobody drives it, 0 if unknown."""

    path: Path
    spec: JobSpec
    progress: Progress
    driver_pid: int | None

    @classmethod
    def of(cls, path: Path, job: JobFile) -> JobStanding:
        """Read the standing of an open job file."""
        return cls(path, job.spec, job.progress(), driver_of(path))

    @property
    def in_line(self) -> bool:
        """Tell whether it is for the service to begin with."""
        return self.spec.submitted and self.progress.state is JobState.RUNNING and self.driver_pid is None

    @property
    def state_words(self) -> str:
        """Return the state as a person wants to know it: a running job that nobody drives has stopped."""
        if self.driver_pid is not None:
            who = f"by {self.driver_pid}" if self.driver_pid else "by another process"
            return f"{self.progress.state.value} {who}"
        if self.in_line:
            return "in line"
        return "stopped" if self.progress.state is JobState.RUNNING else self.progress.state.value

    @property
    def points_per_second(self) -> float | None:
        """Return the mean rate from the first result to the latest, pauses included; None before that."""
        first, last = self.progress.first_result_at, self.progress.last_result_at
        if first is None or last is None or last <= first:
            return None
        return self.progress.done / (last - first)

    @property
    def eta_seconds(self) -> float | None:
        """Return how long a driven job takes at that rate; None if nobody drives it."""
        left = self.progress.total - self.progress.done - self.progress.given_up
        if left <= 0:
            return 0.0
        rate = self.points_per_second
        return left / rate if rate and self.driver_pid is not None else None


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
        standing = JobStanding.of(path, job)
        consumers, dropped = job.consumers(), job.dropped()
    if as_json:
        print_json(console, _detail_object(standing, consumers, dropped))
    else:
        _print_detail(standing, consumers, dropped, console)


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
    """Return the jobs as a table; how many points were given up is a column only if any were."""
    lost = any(job.progress.given_up for job in jobs)
    table = Table(
        ["job", "method", "data", "points", "done", *(["given up"] if lost else []), "state", "left", "rate"],
        right=["points", "done", "given up", "left", "rate"],
        giving=["method", "data"],
        leaving=["left", "rate"],
    )
    for job in jobs:
        progress = job.progress
        left = duration(job.eta_seconds) if job.eta_seconds else ""
        table.add(
            job.spec.id,
            one_line(job.spec.command or job.spec.method, 40),
            one_line(data_name(job.spec), 40),
            count(progress.total),
            percent(progress.done, progress.total),
            *([count(progress.given_up) if progress.given_up else ""] if lost else []),
            job.state_words,
            left,
            pace(job.points_per_second) if job.points_per_second else "",
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
    }


def _print_detail(
    job: JobStanding, consumers: list[ConsumerRow], dropped: dict[str, int], console: Console
) -> None:
    now = time.time()
    lines = [line for line in _facts(job, now) if line[1]]
    if dropped:
        lines.append(
            ("set aside", ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in dropped.items()))
        )
    for name, value in lines:
        print_line(console, f"{name:<10} {value}")
    if consumers:
        print_line(console)
        print_table(console, _consumer_table(consumers, now))


def _facts(job: JobStanding, now: float) -> list[tuple[str, str]]:
    spec, progress = job.spec, job.progress
    params = ", ".join(f"{name}={value!r}" for name, value in spec.params.items())
    state = job.state_words
    if job.driver_pid is None:
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
        ("tasks", tasks + (f", batch {spec.batch}" if spec.batch else "")),
        ("broker", f"{one_line(spec.broker) or 'embedded'}, queue {spec.queue}, epoch {spec.epoch}"),
        ("output", one_line(spec.output or "")),
        ("file", str(job.path)),
        ("go on with", _next_command(job)),
    ]


def _rate_words(job: JobStanding, now: float) -> str:
    rate = job.points_per_second
    if rate is None:
        return ""
    words = f"{pace(rate)} from the first result to the latest"
    if job.eta_seconds:
        words += f"; {duration(job.eta_seconds)} left, done about {clock(now + job.eta_seconds, now)}"
    return words


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
