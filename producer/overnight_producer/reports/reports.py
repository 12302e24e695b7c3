"""Make the reports of the command line, one call each; how they look is in the files that it calls."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO, cast

from overnight_common.brokers.opening import open_broker
from overnight_producer.options import environment
from overnight_producer.reports import failure_report, queue_report, status_report, watching
from overnight_producer.views.view import console_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

    from overnight_producer.jobs.jobfile import JobFile
    from overnight_producer.options import Place


def status(home: Path, job: str | None, as_json: bool, console: Console) -> None:
    """Print all jobs, or the one whose id begins with `job`; raises BadInputError if there is none."""
    status_report.status(home, job, as_json=as_json, console=console)


def failures(home: Path, job: str | None, as_json: bool, full: bool, console: Console) -> None:
    """Print what a job has given up; raises BadInputError if there is no such job."""
    failure_report.failures(home, job, as_json=as_json, full=full, console=console)


def failure_table(job: JobFile, say: Callable[[str], None]) -> None:
    """Say what a run has given up, at its end, in a few lines that fit the terminal."""
    width = None
    if sys.stdout.isatty():
        width = os.get_terminal_size(sys.stdout.fileno()).columns or None
    for line in failure_report.closing_lines(job, width):
        say(line)


def watch(home: Path, job: str | None, console: Console, as_json: bool = False) -> int:
    """Follow a job that another process drives; return the exit status."""
    stream = cast("TextIO", console.file)
    kind = console_kind(stream, as_json=as_json, term=environment().get("TERM"))
    return watching.watch(home, job, kind, stream=stream)


async def queues(place: Place, as_json: bool, console: Console) -> None:
    """Print the depths of the broker's queues.

    Raises:
        BadInputError: the broker's address is of no known kind.
        BrokerUnreachableError: it does not answer in time.
    """
    broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
    names = queue_report.known_queues(place.home)
    if not queue_report.has_begun(broker):
        rows = [queue_report.QueueRow(name, None) for name in names]
        queue_report.print_queues(rows, broker.address, as_json=as_json, console=console)
        return
    await broker.open(place.broker_timeout_seconds)
    try:
        rows = await queue_report.queues(broker, names)
        address = broker.address
    finally:
        await broker.close()
    queue_report.print_queues(rows, address, as_json=as_json, console=console)
