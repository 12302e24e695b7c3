"""Go on with an earlier job: check that its data and code are still the same, and take over what may change."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from overnight_common.datasets import check_unchanged, open_dataset
from overnight_common.errors import BadInputError, DataChangedError
from overnight_producer.describing import present_fingerprint
from overnight_producer.jobs.jobspec import own_queue
from overnight_producer.jobs.records import JobState
from overnight_producer.preflight import batch_fault
from overnight_producer.views.wording import points_done

if TYPE_CHECKING:
    from overnight_common.datasets import DataSet
    from overnight_producer.jobs.jobfile import JobFile
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.options import Place, Renewal, Wanted


def take_up(job: JobFile, wanted_spec: JobSpec, wanted: Wanted) -> bool:
    """Let an earlier job do what is wanted now.

    Returns:
        True if tasks that are still in a queue are of no use any more.

    Raises:
        BadInputError: it was cancelled, or its data, its code or its last point are not the same any more.
    """
    spec = job.spec
    progress = job.progress()
    so_far = f"{points_done(progress.done, progress.total)} done"
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
            ways = [_code_has_changed(spec, so_far)]
            if progress.given_up:
                ways.append(f"To try what was given up too: overnight retry {spec.id} --accept-changes.")
            raise BadInputError(" ".join([*ways, "Begin afresh: --new."]))
        fingerprint = wanted_spec.fingerprint
    if wanted_spec.per_point != spec.per_point:  # called so, what was given up has never been tried
        _lift_given_up(job)
    _write(
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
            submitted=wanted_spec.submitted,  # whoever runs it in the foreground takes it from the service
            on_finish=wanted_spec.on_finish or spec.on_finish,
        ),
    )
    before = (spec.fingerprint, spec.queue, spec.per_point)
    return (fingerprint, queue, wanted_spec.per_point) != before


def renew(job: JobFile, place: Place, renewal: Renewal) -> tuple[DataSet, bool]:
    """Let a job go on as it was, but for what `renewal` changes.

    Returns:
        its data set, opened, and whether tasks that are still in a queue are of no use any more.

    Raises:
        BadInputError: its data set or its code has changed, it runs over a broker that was not named, or the
            renewal cannot be used.
    """
    if renewal.batch is not None and (fault := batch_fault(renewal.batch)) is not None:
        raise BadInputError(fault)
    place.must_be_named_for(job.spec.id, job.spec.broker)
    dataset = open_unchanged(job.spec)
    try:
        recall = _compare_code(job, place, renewal.accept_changes)
        if renewal.retrying:
            _lift_given_up(job)
        spec = job.spec
        if renewal.batch is not None:
            spec = replace(spec, batch="auto" if renewal.batch == "auto" else int(renewal.batch))
        _write(job, replace(spec, on_finish=renewal.on_finish or spec.on_finish))
    except BaseException:
        dataset.close()
        raise
    return dataset, recall


def open_unchanged(spec: JobSpec) -> DataSet:
    """Open the data set of a job.

    Raises:
        BadInputError: it has changed since the job was made.
        DataUnavailableError: it cannot be read here.
    """
    dataset = open_dataset(spec.data_uri)
    try:
        check_unchanged(dataset, spec.data_fingerprint)
    except DataChangedError as error:
        dataset.close()
        raise BadInputError(f"{error}; start another job for it with `overnight run`") from error
    except BaseException:
        dataset.close()
        raise
    return dataset


def move(job: JobFile, address: str, place: Place) -> None:
    """Take a job to another broker, where a run's own queue has no consumer and its files are not seen."""
    spec = replace(job.spec, broker=address)
    if not place.embedded:
        spec = replace(spec, queue="default" if spec.has_own_queue else spec.queue, data_by="value")
    _write(job, spec)


def forget(job: JobFile) -> None:
    """Take away a job of which nothing was ever published, so that a failed start leaves nothing behind."""
    folder = job.path.parent
    for file in folder.iterdir():
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _compare_code(job: JobFile, place: Place, accept_changes: bool) -> bool:
    """Refuse to go on with other code than before, or take it for the rest of the job if that is wanted.

    Returns:
        True if the code is another now.
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
        raise BadInputError(_code_has_changed(spec, f"{points_done(progress.done, progress.total)} done"))
    _write(job, replace(spec, fingerprint=fingerprint))
    return True


def _code_has_changed(spec: JobSpec, so_far: str) -> str:
    return (
        f"the code of {spec.method} has changed since job {spec.id} began ({so_far}). "
        "Keep those results and do the rest with the new code: --accept-changes."
    )


def _lift_given_up(job: JobFile) -> None:
    with job.commit() as tx:
        for range_, _why in job.given_up():
            tx.lift(range_)


def _write(job: JobFile, spec: JobSpec) -> None:
    with job.commit() as tx:
        tx.set_spec(spec)
