"""Be the menu of `overnight` alone on a terminal: ask, look at the answers as they come, run what was chosen."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from overnight_common.datasets import open_dataset
from overnight_common.errors import BadInputError
from overnight_producer import running
from overnight_producer.describing import describe
from overnight_producer.jobs.home import resolve
from overnight_producer.jobs.records import JobState
from overnight_producer.options import Driving, Renewal, Wanted
from overnight_producer.questions import MenuLeft, ask_what_to_run
from overnight_producer.reports.status_report import JobStanding, standings
from overnight_producer.statuses import INTERRUPTED

if TYPE_CHECKING:
    from overnight_producer.options import Place
    from overnight_producer.questions import Ask, MenuChoice, Say


def run_menu(place: Place, ask: Ask, say: Say) -> int:
    """Ask what to run and run it; return the exit status: 0 if nothing was wanted, 130 if the person left.

    Raises:
        OvernightError: what was chosen cannot be run.
    """
    try:
        choice = ask_what_to_run(ask, say, _latest_unfinished(place.home), _method, _data, _start)
    except MenuLeft:
        say("")
        return INTERRUPTED
    return 0 if choice is None else _run(choice, place)


def _run(choice: MenuChoice, place: Place) -> int:
    if choice.resume is not None:
        return running.resume(resolve(place.home, choice.resume), Driving(), place, Renewal())
    wanted = Wanted(
        method=choice.method,
        command=choice.command,
        data=choice.data,
        start=choice.start,
        batch=str(choice.batch),
    )
    return running.run(wanted, Driving(slots=str(choice.slots)), place)


def _latest_unfinished(home: Path) -> JobStanding | None:
    open_states = (JobState.RUNNING, JobState.PAUSED)
    found = [job for job in standings(home) if job.progress.state in open_states and job.driver_pid is None]
    return found[-1] if found else None


def _method(name: str) -> str | None:
    facts = describe(name, Path.cwd())
    if facts["ok"]:
        return None
    return f"Method {name} cannot be used: {facts.get('error', 'no reason was given')}"


def _data(uri: str) -> str | None:
    try:
        with contextlib.closing(open_dataset(uri)):
            return None
    except BadInputError as error:
        return str(error)


def _start(uri: str, start: int) -> str | None:
    with contextlib.closing(open_dataset(uri)) as dataset:
        points = len(dataset)
    if start < points:
        return None
    return f"Start index {start} lies beyond the last point: type a number from 0 to {max(points - 1, 0)}."
