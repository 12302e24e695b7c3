"""Go on with an earlier job: see that its code, data and broker allow that, and take over what may change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from overnight_common.errors import BadInputError
from overnight_producer.describing import present_fingerprint
from overnight_producer.jobs.jobspec import own_queue
from overnight_producer.jobs.records import JobState

if TYPE_CHECKING:
    from overnight_producer.jobs.jobfile import JobFile
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.options import Place, Wanted


def take_up(job: JobFile, wanted_spec: JobSpec, wanted: Wanted) -> bool:
    """Check that an earlier job may go on with today's code and data, and take over what may change.

    Returns:
        True if tasks that are still in a queue are of no use any more.
    """
    spec = job.spec
    progress = job.progress()
    so_far = f"{progress.done} of {progress.total} points done"
    if progress.state is JobState.CANCELLED:
        raise BadInputError(
            f"job {spec.id} for this was cancelled and stays so; go on with `overnight resume {spec.id}`, "
            "or begin afresh with --new"
        )
    if spec.data_fingerprint != wanted_spec.data_fingerprint:
        raise BadInputError(
            f"{spec.data_uri} has changed since job {spec.id} began ({so_far}); "
            "restore the old file, or begin afresh with --new"
        )
    if spec.stop != wanted_spec.stop:
        raise BadInputError(
            f"job {spec.id} for this ends at point {spec.stop}, not {wanted_spec.stop}; "
            "give the same --count, or begin afresh with --new"
        )
    fingerprint, queue = spec.fingerprint, wanted_spec.queue
    if wanted_spec.has_own_queue:
        queue = own_queue(spec.id)
    if wanted_spec.fingerprint and fingerprint and fingerprint != wanted_spec.fingerprint:
        if not wanted.accept_changes:
            raise BadInputError(_code_has_changed(spec, so_far) + " Begin afresh: --new.")
        fingerprint = wanted_spec.fingerprint
    set_spec(
        job,
        replace(
            spec,
            fingerprint=fingerprint,
            batch=wanted_spec.batch,
            output=wanted_spec.output or spec.output,
            max_failures=wanted_spec.max_failures,
            time_limit_seconds=wanted_spec.time_limit_seconds,
            per_point=wanted_spec.per_point,
            source=wanted_spec.source,
            data_by=wanted_spec.data_by,
            broker=wanted_spec.broker,
            queue=queue,
        ),
    )
    return (fingerprint, queue) != (spec.fingerprint, spec.queue)


def compare_code(job: JobFile, place: Place, accept_changes: bool) -> bool:
    """Refuse to go on with other code than before, or take it for the rest of the job if that is wanted.

    Returns:
        True if the code is another now, so that tasks still in a queue are of no use.
    """
    spec, progress = job.spec, job.progress()
    try:
        fingerprint = present_fingerprint(spec)
    except BadInputError:
        if accept_changes or place.embedded:
            raise
        return False  # only the consumers have the method; they compare it themselves
    if fingerprint == spec.fingerprint or not spec.fingerprint:
        return False
    if not accept_changes:
        raise BadInputError(_code_has_changed(spec, f"{progress.done} of {progress.total} points done"))
    set_spec(job, replace(spec, fingerprint=fingerprint))
    return True


def move(job: JobFile, address: str, place: Place) -> None:
    """Take a job to another broker, where a run's own queue has no consumer and its files are not seen."""
    spec = replace(job.spec, broker=address)
    if not place.embedded:
        spec = replace(spec, queue="default" if spec.has_own_queue else spec.queue, data_by="value")
    set_spec(job, spec)


def lift_given_up(job: JobFile) -> None:
    """Give every given-up point a fresh budget."""
    with job.commit() as tx:
        for range_, _why in job.given_up():
            tx.lift(range_)


def set_spec(job: JobFile, spec: JobSpec) -> None:
    """Write a changed spec into the job file."""
    with job.commit() as tx:
        tx.set_spec(spec)


def _code_has_changed(spec: JobSpec, so_far: str) -> str:
    return (
        f"the code of {spec.method} has changed since job {spec.id} began ({so_far}). "
        "Keep those results and do the rest with the new code: --accept-changes."
    )
