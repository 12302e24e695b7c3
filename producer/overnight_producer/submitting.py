"""Put jobs into the folder that `overnight serve` drives, and give earlier ones back to it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from overnight_common.brokers.base import reply_queue
from overnight_common.errors import BadInputError
from overnight_producer import asking, earlier
from overnight_producer.conclusion import record
from overnight_producer.jobs.home import find_job, job_path
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.lock import driver_of
from overnight_producer.jobs.records import PAUSED_BY_REQUEST, JobState
from overnight_producer.jobs.service import server_of
from overnight_producer.options import Driving
from overnight_producer.preflight import check
from overnight_producer.views.wording import points_done

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.options import Place, Renewal, Wanted


def submit(wanted: Wanted, place: Place, say: Callable[[str], None]) -> str:
    """Leave a job to `overnight serve` and return its id; the same job again is found, not made twice.

    `wanted.submitted` must be True. `say` gets what the user should know.

    Raises:
        BadInputError: with every fault that was found, or why an earlier job cannot go on as it was.
    """
    # `serve` starts no consumer, so there is no queue of the job's own either.
    plan = check(wanted, Driving(slots="0"), place)
    for note in plan.notes:
        say(note)
    spec = plan.spec
    with contextlib.closing(plan.dataset):
        found = None
        if not wanted.new:
            found = find_job(
                place.home, spec.method, spec.data_uri, spec.params, spec.seed, spec.start, spec.command
            )
        if found is not None:
            return _submit_again(found, spec, wanted, place, say)
        JobFile.create(job_path(place.home, spec.id), spec).close()
    if server_of(place.home) is None:
        say(f"nobody serves {place.home.absolute()} now; it begins when `overnight serve` runs")
    return spec.id


def give_to_serve(path: Path, place: Place, renewal: Renewal, say: Callable[[str], None]) -> bool:
    """Let the service go on with a job that was submitted to it; return False if there is no service.

    Raises:
        BadInputError: the job cannot go on as it was.
        JobBusyError: another process has just begun to drive it.
    """
    with JobFile.open(path, driving=True) as job:
        if not job.spec.submitted or server_of(place.home) is None:
            return False
        with job.lock():
            dataset, recall = earlier.renew(job, place, renewal)
            dataset.close()
            if recall:
                _void_tasks(job.spec, place)
            record(job, JobState.RUNNING)
        say(f"job {job.spec.id} goes on under `overnight serve`; follow it: overnight watch {job.spec.id}")
    return True


def pause_in_line(path: Path, say: Callable[[str], None]) -> bool:
    """Pause a job that waits for its turn; return False if it does not wait for any."""
    with JobFile.open(path, driving=True) as job:
        if not job.spec.submitted:
            return False
        with job.lock():
            if job.progress().state is not JobState.RUNNING:
                return False
            record(job, JobState.PAUSED, PAUSED_BY_REQUEST)
        say(f"job {job.spec.id} is paused before its turn")
    return True


def _submit_again(path: Path, spec: JobSpec, wanted: Wanted, place: Place, say: Callable[[str], None]) -> str:
    """Find out what an earlier job for the same work needs, and say it."""
    if driver_of(path) is not None:
        with JobFile.open(path) as job:
            found, progress = job.spec, job.progress()
        _compare(found, spec)
        say(f"job {found.id} for this is being driven: {points_done(progress.done, progress.total)} done")
        return found.id
    with JobFile.open(path, driving=True) as job, job.lock():
        if earlier.take_up(job, spec, wanted):
            _void_tasks(job.spec, place)
        found, progress = job.spec, job.progress()
        so_far = f"{points_done(progress.done, progress.total)} done"
        match progress.state:
            case JobState.DONE:
                write_out = f"write the results out with: overnight export {spec.output or 'FILE'} {found.id}"
                say(f"job {found.id} for this is done: {so_far}; {write_out}; or begin afresh with --new")
            case JobState.PAUSED:
                why = f" ({progress.why})" if progress.why else ""
                say(f"job {found.id} for this is paused{why}: {so_far}; overnight resume {found.id}")
            case _:
                say(f"job {found.id} for this waits already: {so_far}")
    return found.id


def _void_tasks(spec: JobSpec, place: Place) -> None:
    """Take back what is still in a queue: without its reply queue a task is dropped, and published again."""
    if spec.epoch > 0:
        asyncio.run(asking.delete_queue(place, reply_queue(spec.id, spec.epoch)))


def _compare(found: JobSpec, spec: JobSpec) -> None:
    """Refuse work that only looks like that of a job which is being driven."""
    code = found.fingerprint and spec.fingerprint and found.fingerprint != spec.fingerprint
    if code or found.data_fingerprint != spec.data_fingerprint or found.stop != spec.stop:
        raise BadInputError(
            f"job {found.id} is being driven for other code, data or points than these; wait for its end, "
            "or begin another one with --new"
        )
