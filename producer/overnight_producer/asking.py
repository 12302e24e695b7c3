"""Ask the driver of a job for something, or do it here when nobody drives."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from overnight_common.brokers.base import reply_queue
from overnight_common.brokers.opening import open_broker
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.lock import JobBusyError, driver_of
from overnight_producer.jobs.records import JobState, Request
from overnight_producer.options import Place

ANSWER_SECONDS = 15.0
LOOK_SECONDS = 0.1


def cancel(path: Path, place: Place, say: Callable[[str], None]) -> None:
    """Cancel a job for good: what is queued is dropped, what runs is killed, what is done is kept.

    The request is written first, so that whoever finds the reply queue gone knows why.
    """
    with JobFile.open(path, driving=True) as job:
        if job.progress().finished:
            say(f"job {job.spec.id} is done: there is nothing to cancel")
            return
        alone = driver_of(path) is None
        if alone:
            place.must_be_named_for(job.spec.id, job.spec.broker)
        number = job.request("cancel")
        if alone:
            with contextlib.suppress(JobBusyError), job.lock(), job.commit() as tx:
                tx.set_state(JobState.CANCELLED, "cancelled by request")
                tx.finish_request(number, "granted")
        spec = job.spec
        answer = _answer(job, number, path)
        say(
            f"job {spec.id} is cancelled"
            if answer
            else f"job {spec.id} will be cancelled when its driver looks"
        )
        if spec.epoch > 0 and answer:
            asyncio.run(delete_queue(place, reply_queue(spec.id, spec.epoch)))


def withdraw(path: Path, place: Place, say: Callable[[str], None]) -> None:
    """Take the tasks of an unfinished job that nobody drives out of the queue, for another takes its place.

    The job itself stays as it is and can still be resumed.
    """
    with JobFile.open(path) as job:
        spec = job.spec
        if spec.epoch == 0 or job.progress().finished or driver_of(path) is not None:
            return
    asyncio.run(delete_queue(place, reply_queue(spec.id, spec.epoch)))
    say(
        f"what job {spec.id} still had in the queue is withdrawn; `overnight resume {spec.id}` would send it again"
    )


def ask(path: Path, kind: str, say: Callable[[str], None], **args: object) -> bool:
    """Ask the driver for something; return False if nobody drives the job (nothing is asked then)."""
    if driver_of(path) is None:
        return False
    with JobFile.open(path) as job:
        number = job.request(kind, args)
        answer = _answer(job, number, path)
        say(f"job {job.spec.id}: {kind} {answer.outcome if answer else 'asked; no answer yet'}")
    return True


def _answer(job: JobFile, number: int, path: Path) -> Request | None:
    """Wait a little for the driver's answer to a request; None if none came."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        request = job.find_request(number)
        if request is not None and request.outcome is not None:
            return request
        if driver_of(path) is None and job.find_request(number) == request:
            return None
        time.sleep(LOOK_SECONDS)
    return None


async def delete_queue(place: Place, queue: str) -> None:
    """Delete one queue of the broker, over a link of its own."""
    broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
    await broker.open(place.broker_timeout_seconds)
    try:
        await broker.delete(queue)
    finally:
        await broker.close()
