"""Report which points of a job were given up, and why."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from overnight_common.messages import Cause
from overnight_producer.jobs.home import resolve
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.views.tables import Table, print_json, print_line, print_table
from overnight_producer.views.wording import block, count, counted, one_line, points_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

    from overnight_producer.jobs.ranges import Range
    from overnight_producer.jobs.records import FailureRow

ROWS_AT_THE_END = 20
# Their messages are ours and tell what was measured, which is a little different for every point.
_MEASURED = (Cause.TIME_LIMIT, Cause.KILLED_BY_SIGNAL, Cause.EXIT_STATUS, Cause.LOST_CONSUMER)
_MEASURED_TYPES = ("MemoryLimit", "KernelOutOfMemory")
_FIGURE = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Loss:
    """Hold neighbouring points that were given up for one reason; `last` is the latest failure of one."""

    start: int
    stop: int
    attempts: int
    last: FailureRow | None

    @property
    def cause(self) -> str:
        """Return the name of the cause, or `unknown`."""
        return self.last.failure.cause.value if self.last else "unknown"

    @property
    def error(self) -> str:
        """Return type and message in one line."""
        if self.last is None:
            return ""
        failure = self.last.failure
        return ": ".join(part for part in (one_line(failure.type, 60), one_line(failure.message)) if part)


def losses(job: JobFile) -> list[Loss]:
    """Return what was given up, in the order of the points, neighbours with one reason as one."""
    found: list[Loss] = []
    for range_, last in job.given_up():
        before = found[-1] if found else None
        if before and before.stop == range_.start and _reason(before.last) == _reason(last):
            found[-1] = Loss(before.start, range_.stop, max(before.attempts, range_.attempt), before.last)
        else:
            found.append(Loss(range_.start, range_.stop, range_.attempt, last))
    return found


def failures(home: Path, prefix: str | None, *, as_json: bool, full: bool, console: Console) -> None:
    """Print the given-up points of a job (the newest if `prefix` is None); `full` adds the tracebacks.

    Raises:
        BadInputError: no job, or more than one, begins with `prefix`.
        JobFileError: the job's file cannot be read.
    """
    with JobFile.open(resolve(home, prefix)) as job:
        if as_json:
            print_json(console, _object(job, full))
            return
        spec, lost, causes = job.spec, losses(job), _causes(job)
    if not lost:
        print_line(console, f"No point of job {spec.id} was given up.")
    else:
        print_line(console, _heading(lost), style="bold red")
        print_table(console, _table(lost))
    if causes:
        counts = ", ".join(f"{count(n)} {cause}" for cause, n in causes.most_common())
        print_line(console, f"Failed attempts by cause, those made good later included: {counts}.")
    if full:
        for loss in lost:
            _print_full(console, loss)
    elif lost:
        print_line(console, f"Tracebacks: `overnight failures {spec.id} --full`.")
    if lost:
        print_line(
            console,
            f"Once the reason is gone: `overnight retry {spec.id}`, with --accept-changes if you mended the code.",
        )


def failure_table(job: JobFile, say: Callable[[str], None]) -> None:
    """Say what a run has given up, at its end, in a few lines that fit the terminal."""
    width = None
    if sys.stdout.isatty():
        width = os.get_terminal_size(sys.stdout.fileno()).columns or None
    for line in closing_lines(job, width):
        say(line)


def closing_lines(job: JobFile, width: int | None, rows: int = ROWS_AT_THE_END) -> list[str]:
    """Return what a run has given up, at most `rows` rows, for its end; nothing if nothing was.

    No line is wider than `width` cells, if one is given.
    """
    lost = losses(job)
    if not lost:
        return []
    lines = [_heading(lost), *(line.plain for line in _table(lost[:rows]).lines(width))]
    more = len(lost) - rows
    if more > 0:
        lines.append(f"and {counted(more, 'more row')}")
    return [*lines, f"Tracebacks: overnight failures {job.spec.id} --full"]


def _heading(lost: list[Loss]) -> str:
    points = sum(loss.stop - loss.start for loss in lost)
    return f"{counted(points, 'point')} {'was' if points == 1 else 'were'} given up:"


def _table(lost: list[Loss]) -> Table:
    table = Table(
        ["points", "cause", "error", "attempts", "consumer"],
        right=["attempts"],
        giving=["error", "consumer"],
        leaving=["consumer"],
    )
    for loss in lost:
        consumer = one_line(loss.last.consumer, 40) if loss.last else ""
        table.add(points_of(loss.start, loss.stop), loss.cause, loss.error, count(loss.attempts), consumer)
    return table


def _print_full(console: Console, loss: Loss) -> None:
    print_line(console)
    print_line(console, f"{points_of(loss.start, loss.stop)}, {loss.cause}", style="bold")
    if loss.last is None:
        print_line(console, "nothing more is known")
        return
    failure = loss.last.failure
    print_line(console, block(failure.traceback) if failure.traceback else loss.error)
    if failure.stderr_tail.strip():
        print_line(console, "last lines of its standard error:", style="bold")
        print_line(console, block(failure.stderr_tail))


def _object(job: JobFile, full: bool) -> dict[str, Any]:
    given_up = job.given_up()
    return {
        "job": job.spec.id,
        "points": job.spec.points,
        "points_given_up": sum(range_.points for range_, _ in given_up),
        "given_up": [_loss_object(range_, last, full) for range_, last in given_up],
        "failed_attempts_by_cause": dict(_causes(job)),
    }


def _loss_object(range_: Range, last: FailureRow | None, full: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"start": range_.start, "stop": range_.stop, "attempts": range_.attempt}
    if last is None:
        return told
    failure = last.failure
    told |= {
        "cause": failure.cause.value,
        "error_type": failure.type,
        "error_message": failure.message,
        "consumer": last.consumer,
        "slot": last.slot,
        "task_seconds": last.seconds,
        "peak_rss_bytes": last.peak_rss_bytes,
        "at": datetime.fromtimestamp(last.at, UTC).isoformat(timespec="milliseconds"),
    }
    if full:
        told |= {"traceback": failure.traceback, "stderr_tail": failure.stderr_tail}
    return told


def _causes(job: JobFile) -> Counter[str]:
    return Counter(row.failure.cause.value for row in job.failures())


def _reason(row: FailureRow | None) -> tuple[str, str, str] | None:
    if row is None:
        return None
    failure = row.failure
    measured = failure.cause in _MEASURED or failure.type in _MEASURED_TYPES
    message = _FIGURE.sub("", failure.message) if measured else failure.message
    return failure.cause.value, failure.type, message
