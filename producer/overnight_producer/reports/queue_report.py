"""Report how many messages the broker's queues hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overnight_common.brokers.base import DEAD_QUEUE, reply_queue, task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.errors import BrokerError
from overnight_producer.jobs.records import JobState
from overnight_producer.reports.status_report import standings
from overnight_producer.views.tables import Table, print_json, print_line, print_table
from overnight_producer.views.wording import count, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from overnight_common.brokers.base import Broker, Depth
    from overnight_producer.options import Place

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """Hold the depth of one queue: None where there is no such queue, or `problem` where it was not told."""

    name: str
    depth: Depth | None
    problem: str = ""


async def report_queues(place: Place, *, as_json: bool, console: Console) -> None:
    """Print the depths of the broker's queues.

    Raises:
        BadInputError: the broker's address is of no known kind.
        BrokerUnreachableError: it does not answer in time.
    """
    broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
    names = known_queues(place.home)
    if not has_begun(broker):
        rows = [QueueRow(name, None) for name in names]
        print_queues(rows, broker.address, as_json=as_json, console=console)
        return
    await broker.open(place.broker_timeout_seconds)
    try:
        rows = await queues(broker, names)
        address = broker.address
    finally:
        await broker.close()
    print_queues(rows, address, as_json=as_json, console=console)


def known_queues(home: Path, names: Iterable[str] = ("default",)) -> list[str]:
    """Return the full names of the queues to look at.

    These are the task queues with the short `names`, those of the unfinished jobs in `home` with their reply
    queues, and the dead letters.
    """
    tasks, replies = {task_queue(name) for name in names}, []
    for job in standings(home):
        if job.progress.state in (JobState.RUNNING, JobState.PAUSED):
            tasks.add(task_queue(job.spec.queue))
            replies.append(reply_queue(job.spec.id, job.spec.epoch))
    return [*sorted(tasks), *replies, DEAD_QUEUE]


def has_begun(broker: Broker) -> bool:
    """Tell whether there is something to open: False for an embedded broker whose file was not made yet."""
    kind, _, path = broker.address.partition(":")
    return kind != "embedded" or Path(path).exists()


async def queues(broker: Broker, names: Iterable[str]) -> list[QueueRow]:
    """Return the depths of the queues with these full names; the broker is open."""
    rows = []
    for name in names:
        try:
            rows.append(QueueRow(name, await broker.depth(name)))
        except BrokerError as error:
            rows.append(QueueRow(name, None, one_line(str(error))))
    return rows


def print_queues(rows: list[QueueRow], address: str, *, as_json: bool, console: Console) -> None:
    """Print the depths; unknown is never shown as zero."""
    if as_json:
        print_json(console, {"broker": address, "queues": [_object(row) for row in rows]})
        return
    table = Table(
        ["queue", "ready", "un-acked", "consumers", "note"],
        right=["ready", "un-acked", "consumers"],
        giving=["queue", "note"],
    )
    for row in rows:
        table.add(row.name, *_cells(row), _note(row), style="yellow" if _note(row) and row.depth else "")
    print_line(console, f"broker {one_line(address)}")
    print_table(console, table)


def _cells(row: QueueRow) -> list[str]:
    if row.depth is None:
        return ["-", "-", "-"] if not row.problem else [UNKNOWN] * 3
    counts = (row.depth.ready, row.depth.unacked, row.depth.consumers)
    return [UNKNOWN if number is None else count(number) for number in counts]


def _note(row: QueueRow) -> str:
    if row.problem:
        return row.problem
    if row.depth is None:
        return "no such queue yet"
    if row.name == DEAD_QUEUE:
        return "look at them: `overnight dead list`" if row.depth.ready else ""
    if row.name.startswith(task_queue("")) and row.depth.ready and row.depth.consumers == 0:
        return "tasks wait and no consumer is there"
    return ""


def _object(row: QueueRow) -> dict[str, Any]:
    depth = row.depth
    return {
        "queue": row.name,
        "exists": None if row.problem else depth is not None,
        "ready": depth and depth.ready,
        "unacked": depth and depth.unacked,
        "consumers": depth and depth.consumers,
        "problem": row.problem or None,
    }
