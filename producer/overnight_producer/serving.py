"""Be the service that drives submitted jobs, or drive all unfinished jobs once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from overnight_common.brokers.base import BrokerState
from overnight_common.brokers.opening import open_broker
from overnight_common.errors import BadInputError
from overnight_producer import earlier
from overnight_producer.jobs.folder import JobsFolder
from overnight_producer.jobs.lock import driver_of
from overnight_producer.jobs.records import PAUSED_BY_REQUEST, JobState
from overnight_producer.jobs.service import become_server, server_of
from overnight_producer.onlooking import onlooking
from overnight_producer.preflight import check_driving
from overnight_producer.reports.machine import ask_consumer
from overnight_producer.side_by_side import SideBySide
from overnight_producer.statuses import DONE, INTERRUPTED, SOME_GIVEN_UP
from overnight_producer.stopping import stop_signals

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from overnight_common.datasets import DataSet
    from overnight_producer.driving.observer import DriveObserver
    from overnight_producer.jobs.folder import FoundJob
    from overnight_producer.jobs.jobfile import JobFile
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.records import Progress
    from overnight_producer.options import Driving, Place, Renewal

LOOK_SECONDS = 1.0
JOB_STATES = ("in_line", "driven", "paused", "paused_by_request", "done", "cancelled")
_log = logging.getLogger("overnight.serve")


def serve(driving: Driving, place: Place, jobs_at_once: int) -> int:
    """Drive the jobs that are submitted to `place.home` until a signal comes; return the exit status.

    Raises:
        BadInputError: another process serves there.
        BrokerUnreachableError: the broker did not answer in time.
    """
    _check(driving, place, jobs_at_once)
    _set_up_log(driving)
    with become_server(place.home):
        return asyncio.run(_Service(driving, place, jobs_at_once).run())


def resume_all(driving: Driving, place: Place, jobs_at_once: int, renewal: Renewal) -> int:
    """Go on with every unfinished job that nobody drives and nobody paused; return when all have ended.

    Returns:
        1 if any of them gave points up or paused, else 4 if any was cancelled, else 0; 130 if interrupted.
    """
    _check(driving, place, jobs_at_once)
    _set_up_log(driving)
    served = server_of(place.home) is not None
    paths = [
        job.path
        for job in JobsFolder(place.home, _say_unreadable).look()
        if unfinished(job.spec, job.progress) and not (served and job.spec.submitted)
    ]
    paths = [path for path in paths if driver_of(path) is None]
    if not paths:
        _log.info("no job in %s waits to be gone on with", place.home.absolute())
        return DONE
    if place.embedded and driving.slots == "auto":
        jobs_at_once, driving = _divided(driving, min(jobs_at_once, len(paths)))
    return asyncio.run(_resume(paths, driving, place, jobs_at_once, renewal))


def submitted(spec: JobSpec, progress: Progress) -> bool:
    """Tell whether a job is for `serve` to drive."""
    return spec.submitted and progress.state is JobState.RUNNING


def unfinished(_spec: JobSpec, progress: Progress) -> bool:
    """Tell whether a job is to go on without anybody naming it."""
    paused = progress.state is JobState.PAUSED and progress.why != PAUSED_BY_REQUEST
    return paused or progress.state is JobState.RUNNING


def states_of(found: Iterable[FoundJob], driven: int) -> dict[str, int]:
    """Count the submitted jobs by where they are: those `found` that nobody drives here, and the `driven` ones."""
    states = dict.fromkeys(JOB_STATES, 0)
    states["driven"] = driven
    for job in found:
        if job.spec.submitted:
            by_request = job.progress.why == PAUSED_BY_REQUEST
            match job.progress.state:
                case JobState.RUNNING:
                    states["in_line"] += 1
                case JobState.PAUSED:
                    states["paused_by_request" if by_request else "paused"] += 1
                case ended:
                    states[ended.value] += 1
    return states


def next_in_line(waiting: Iterable[FoundJob], places_taken: int, jobs_at_once: int) -> list[FoundJob]:
    """Return the jobs to begin with now: the oldest ones, as many as there are places."""
    oldest_first = sorted(waiting, key=lambda job: (job.spec.created, job.spec.id))
    return oldest_first[: max(jobs_at_once - places_taken, 0)]


class _Service:
    """Look for submitted jobs and drive them, until a signal comes."""

    def __init__(self, driving: Driving, place: Place, jobs_at_once: int) -> None:
        self._place = place
        self._driving = driving
        self._jobs_at_once = jobs_at_once
        self._broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
        self._folder = JobsFolder(place.home, _say_unreadable)
        self._stopping = asyncio.Event()
        self._in_line: set[Path] = set()

    async def run(self) -> int:
        """Serve, and return the exit status."""
        place, broker = self._place, self._broker
        with stop_signals(self._stopping.set):
            async with onlooking(self._driving, broker, _log.info) as onlooker:
                jobs = SideBySide(broker, self._driving, place, onlooker, submitted, self._prepare)
                await broker.open(place.broker_timeout_seconds)
                try:
                    await self._serve(jobs, onlooker)
                finally:
                    await broker.close()
        return DONE

    async def _serve(self, jobs: SideBySide, onlooker: DriveObserver) -> None:
        _log.info(
            "serves %s on %s (%s), up to %d jobs at once",
            *(self._place.home.absolute(), self._broker.address, self._broker.server, self._jobs_at_once),
        )
        while not self._stopping.is_set():
            await self._look(jobs, onlooker)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_SECONDS)
        _log.info("stops; jobs go on when it runs again")
        await jobs.stop()

    async def _look(self, jobs: SideBySide, onlooker: DriveObserver) -> None:
        """Begin with the jobs that may begin."""
        if self._broker.state is BrokerState.DISCONNECTED:
            return
        found = await asyncio.to_thread(self._folder.look, jobs.at_work)
        waiting = [
            job
            for job in found
            if submitted(job.spec, job.progress) and jobs.may_take(job.path) and driver_of(job.path) is None
        ]
        now = next_in_line(waiting, jobs.places_taken, self._jobs_at_once)
        for job in now:
            jobs.take(job.path)
        in_line = {job.path for job in waiting} - {job.path for job in now}
        for path in in_line - self._in_line:
            _log.info("job %s waits in line: %d jobs are driven", path.parent.name, jobs.places_taken)
        self._in_line = in_line
        at_work = jobs.at_work  # those that have just been taken were found as well
        onlooker.jobs_counted(states_of((job for job in found if job.path not in at_work), len(at_work)))

    def _prepare(self, job: JobFile) -> tuple[DataSet, bool]:
        spec = job.spec
        if spec.broker and spec.broker.startswith("embedded:") is not self._place.embedded:
            raise BadInputError(
                f"it was submitted for {spec.broker}, and `overnight serve` uses {self._broker.address}; "
                "submit it again with the same --broker and --new"
            )
        return earlier.open_unchanged(spec), False


async def _resume(
    paths: list[Path], driving: Driving, place: Place, jobs_at_once: int, renewal: Renewal
) -> int:
    broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
    stopping = asyncio.Event()
    async with onlooking(driving, broker, _log.info) as onlooker:
        jobs = SideBySide(
            broker, driving, place, onlooker, unfinished, lambda job: earlier.renew(job, place, renewal)
        )

        def stop() -> None:
            stopping.set()
            jobs.changed.set()

        with stop_signals(stop):
            await broker.open(place.broker_timeout_seconds)
            try:
                while not stopping.is_set():
                    if _all_have_ended(paths, jobs, jobs_at_once):
                        return _worst(jobs.statuses.values())
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(jobs.changed.wait(), LOOK_SECONDS)
                await jobs.stop()
            finally:
                await broker.close()
    return INTERRUPTED


def _all_have_ended(paths: list[Path], jobs: SideBySide, jobs_at_once: int) -> bool:
    """Begin with as many jobs as there are places; return True if none is left."""
    jobs.changed.clear()
    waiting = [path for path in paths if path.parent.name not in jobs.statuses]
    ready = [path for path in waiting if jobs.may_take(path)]
    for path in ready[: max(jobs_at_once - jobs.places_taken, 0)]:
        jobs.take(path)
    return not waiting and not jobs.at_work


def _worst(statuses: Iterable[int]) -> int:
    """Return one status for all: that points were given up says more than that a job was cancelled."""
    found = set(statuses)
    return SOME_GIVEN_UP if SOME_GIVEN_UP in found else max(found, default=DONE)


def _divided(driving: Driving, jobs: int) -> tuple[int, Driving]:
    """Divide the cores among the consumers that so many jobs start; return how many jobs at once, and how."""
    cores, _sqlite = ask_consumer()
    usable = cores.usable or 1
    at_once = max(min(jobs, usable), 1)
    return at_once, replace(driving, slots=str(max(usable // at_once, 1)))


def _check(driving: Driving, place: Place, jobs_at_once: int) -> None:
    check_driving(driving, place)
    if jobs_at_once < 1:
        raise BadInputError(f"--jobs {jobs_at_once}: give a number from 1 on")


def _say_unreadable(path: Path, reason: str) -> None:
    _log.error("job %s cannot be read: %s", path.parent.name, reason)


def _set_up_log(driving: Driving) -> None:
    """Write the log to standard error, with UTC times."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=logging.DEBUG if driving.verbose else logging.INFO,
        format="%(asctime)sZ %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
