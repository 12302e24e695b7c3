"""Run one job in the foreground, from its plan to its exit status."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from overnight_common.brokers.opening import open_broker
from overnight_producer import asking, earlier
from overnight_producer.conclusion import announce, conclude, record
from overnight_producer.driven import DrivenJob
from overnight_producer.driving.ending import Ending, EndingKind
from overnight_producer.jobs.home import find_job, job_path
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.records import JobState
from overnight_producer.onlooking import onlooking
from overnight_producer.options import environment
from overnight_producer.preflight import check, check_driving
from overnight_producer.stopping import stop_signals
from overnight_producer.views.view import console_kind, make_view

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from overnight_common.brokers.base import Broker
    from overnight_common.datasets import DataSet
    from overnight_producer.options import Driving, Place, Renewal, Wanted
    from overnight_producer.views.view import View


def run(wanted: Wanted, driving: Driving, place: Place) -> int:
    """Run what is wanted, or go on with an earlier job for it; return the exit status."""
    plan = check(wanted, driving, place)
    spec = plan.spec
    found = find_job(place.home, spec.method, spec.data_uri, spec.params, spec.seed, spec.start, spec.command)
    if found is not None and wanted.new:
        notes: list[str] = []
        asking.withdraw(found, place, notes.append)
        plan, found = replace(plan, notes=(*plan.notes, *notes)), None
    if found is None:
        path = job_path(place.home, spec.id)
        job = JobFile.create(path, spec)
    else:
        job = JobFile.open(found, driving=True)
    with job, contextlib.closing(plan.dataset):
        try:
            with job.lock():
                recall = found is not None and earlier.take_up(job, spec, wanted)
                return _drive(job, plan.dataset, plan.broker, driving, place, plan.notes, recall)
        finally:
            if found is None and job.spec.epoch == 0 and job.progress().done == 0:
                earlier.forget(job)


def resume(path: Path, driving: Driving, place: Place, renewal: Renewal) -> int:
    """Go on with a job; what is done stays done. Return the exit status."""
    check_driving(driving, place)
    with JobFile.open(path, driving=True) as job, job.lock():
        dataset, recall = earlier.renew(job, place, renewal)
        with contextlib.closing(dataset):
            broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
            if broker.address != job.spec.broker:
                earlier.move(job, broker.address, place)
            return _drive(job, dataset, broker, driving, place, recall=recall)


def _drive(
    job: JobFile,
    dataset: DataSet,
    broker: Broker,
    driving: Driving,
    place: Place,
    notes: Sequence[str] = (),
    recall: bool = False,
) -> int:
    """Drive the job to some end, then write the results and say how it went; `recall` is for the driver."""
    view = make_view(
        console_kind(as_json=driving.json, term=environment().get("TERM")), job.spec, verbose=driving.verbose
    )
    view.start()
    for note in notes:
        view.say(note)
    progress = job.progress()
    ending = Ending(EndingKind.DONE)
    if progress.finished:
        before = "every point was tried before, so nothing runs now; `overnight run` with --new begins afresh"
        view.say(before if progress.total else "there are no points, so nothing runs")
    else:
        record(job, JobState.RUNNING)
        try:
            ending = asyncio.run(_drive_alone(job, dataset, broker, driving, place, view, recall))
        except BaseException:
            view.finish("")  # gives the terminal back before the error is told
            raise
    status = conclude(job, ending, view)
    if progress.state is not JobState.DONE:
        asyncio.run(_announce(job, ending, view))
    return status


async def _drive_alone(
    job: JobFile,
    dataset: DataSet,
    broker: Broker,
    driving: Driving,
    place: Place,
    view: View,
    recall: bool,
) -> Ending:
    async with onlooking(driving, broker, view.say) as onlooker:
        driven = DrivenJob(job, dataset, broker, driving, place, view, onlooker, recall)
        broker.on_state(lambda _state: driven.wake())
        await broker.open(place.broker_timeout_seconds)
        try:
            with stop_signals(driven.interrupt):
                return await driven.run()
        finally:
            await broker.close()


async def _announce(job: JobFile, ending: Ending, view: View) -> None:
    announcing = asyncio.create_task(announce(job, ending, view.say))
    with stop_signals(announcing.cancel), contextlib.suppress(asyncio.CancelledError):
        await announcing
