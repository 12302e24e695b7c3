"""Run a job from its plan to its exit status: job file, broker, consumer, driver, view, export."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from overnight_common.brokers.base import task_queue
from overnight_common.brokers.opening import open_broker
from overnight_common.datasets import check_unchanged, open_dataset
from overnight_common.errors import BadInputError, DataChangedError
from overnight_producer.describing import present_fingerprint
from overnight_producer.driving.driver import Driver, DriverSettings, Ending, EndingKind
from overnight_producer.driving.observer import NOBODY
from overnight_producer.exports.export import check_first_result, export
from overnight_producer.jobs.home import find_job, job_path
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.jobspec import own_queue
from overnight_producer.jobs.ranges import Policy
from overnight_producer.jobs.records import JobState
from overnight_producer.local_consumer import ConsumerGoneError, LocalConsumer
from overnight_producer.options import environment
from overnight_producer.preflight import batch_fault, check
from overnight_producer.reports.reports import failure_table
from overnight_producer.views.view import console_kind, make_view

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker
    from overnight_common.datasets import DataSet
    from overnight_producer.driving.observer import DriveObserver
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.options import Driving, Place, Wanted
    from overnight_producer.views.view import View

DONE, SOME_GIVEN_UP, BAD_INPUT, UNREACHABLE, CANCELLED, INTERRUPTED = 0, 1, 2, 3, 4, 130
CONSUMER_GRACE_SECONDS = 5.0
VIEW_SECONDS = 0.25


def run(wanted: Wanted, driving: Driving, place: Place) -> int:
    """Run what is wanted, or go on with an earlier job for it; return the exit status."""
    plan = check(wanted, driving, place)
    spec = plan.spec
    found = None
    if not wanted.new:
        found = find_job(
            place.home, spec.method, spec.data_uri, spec.params, spec.seed, spec.start, spec.command
        )
    if found is None:
        path = job_path(place.home, spec.id)
        job = JobFile.create(path, spec)
    else:
        job = JobFile.open(found, driving=True)
    with job, contextlib.closing(plan.dataset):
        try:
            with job.lock():
                recall = found is not None and _take_up(job, spec, wanted)
                return _drive(job, plan.dataset, plan.broker, driving, place, plan.notes, recall)
        finally:
            if found is None and job.spec.epoch == 0 and job.progress().done == 0:
                _forget(job)


def resume(
    path: Path,
    driving: Driving,
    place: Place,
    accept_changes: bool,
    batch: str | None = None,
    retrying: bool = False,
) -> int:
    """Go on with a job; what is done stays done. Return the exit status."""
    if batch is not None and (fault := batch_fault(batch)) is not None:
        raise BadInputError(fault)
    with JobFile.open(path, driving=True) as job, job.lock():
        spec = job.spec
        try:
            dataset = open_dataset(spec.data_uri)
            check_unchanged(dataset, spec.data_fingerprint)
        except DataChangedError as error:
            raise BadInputError(f"{error}; start another job for it with `overnight run`") from error
        with contextlib.closing(dataset):
            recall = _compare_code(job, place, accept_changes)
            if retrying:
                _lift_given_up(job)
            if batch is not None:
                _set(job, replace(job.spec, batch="auto" if batch == "auto" else int(batch)))
            broker = open_broker(place.broker, place.home, max_message_bytes=place.max_message_bytes)
            return _drive(job, dataset, broker, driving, place, recall=recall)


def retry(path: Path, driving: Driving, place: Place, accept_changes: bool) -> int:
    """Give every given-up point a fresh budget and go on; return the exit status."""
    return resume(path, driving, place, accept_changes, retrying=True)


def _lift_given_up(job: JobFile) -> None:
    with job.commit() as tx:
        for range_, _why in job.given_up():
            tx.lift(range_)


def _take_up(job: JobFile, wanted_spec: JobSpec, wanted: Wanted) -> bool:
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
    _set(
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


def _set(job: JobFile, spec: JobSpec) -> None:
    with job.commit() as tx:
        tx.set_spec(spec)


def _forget(job: JobFile) -> None:
    """Take away a job of which nothing was ever published, so that a failed start leaves nothing behind."""
    folder = job.path.parent
    for file in folder.iterdir():
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _compare_code(job: JobFile, place: Place, accept_changes: bool) -> bool:
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
    _set(job, replace(spec, fingerprint=fingerprint))
    return True


def _code_has_changed(spec: JobSpec, so_far: str) -> str:
    return (
        f"the code of {spec.method} has changed since job {spec.id} began ({so_far}). "
        "Keep those results and do the rest with the new code: --accept-changes."
    )


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
    if progress.finished:
        ending = Ending(EndingKind.DONE)
    else:
        _record(job, JobState.RUNNING)
        try:
            ending = asyncio.run(
                _watched(
                    driving,
                    broker,
                    view,
                    lambda onlooker: _Drive(
                        job, dataset, broker, driving, place, view, recall, onlooker
                    ).run(),
                )
            )
        except BaseException:
            view.finish("")  # gives the terminal back before the error is told
            raise
    return _conclude(job, ending, view)


def _record(job: JobFile, state: JobState, why: str = "") -> None:
    with job.commit() as tx:
        tx.set_state(state, why)


def _conclude(job: JobFile, ending: Ending, view: View) -> int:
    """Write down how driving ended, export, and return the exit status."""
    spec, progress = job.spec, job.progress()
    so_far = f"{progress.done} of {progress.total} points are done and kept"
    go_on = f"Go on with: overnight resume {spec.id}"
    match ending.kind:
        case EndingKind.INTERRUPTED:
            view.finish(f"interrupted; {so_far}. {go_on}", INTERRUPTED)
            return INTERRUPTED
        case EndingKind.CANCELLED:
            _record(job, JobState.CANCELLED, ending.why)
            view.finish(f"cancelled; {so_far}", CANCELLED)
            return CANCELLED
        case EndingKind.PAUSED:
            _record(job, JobState.PAUSED, ending.why)
            _say_failures(job, view)
            view.finish(f"paused: {ending.why}. {so_far}. {go_on}", SOME_GIVEN_UP)
            return SOME_GIVEN_UP
    _record(job, JobState.DONE)
    written = _export(job, view)
    if not progress.given_up:
        view.finish(f"{progress.done} of {progress.total} points done{written}", DONE)
        return DONE
    _say_failures(job, view)
    view.finish(
        f"{progress.done} of {progress.total} points done, {progress.given_up} given up{written}. "
        f"Mend the method, then: overnight retry {spec.id}",
        SOME_GIVEN_UP,
    )
    return SOME_GIVEN_UP


def _say_failures(job: JobFile, view: View) -> None:
    failure_table(job, view.say)
    for latest in job.failures(1):
        view.say(latest.failure.traceback or latest.failure.message)


def _export(job: JobFile, view: View) -> str:
    if job.spec.output is None:
        return ""
    exported = export(job, Path(job.spec.output))
    for note in exported.notes:
        view.say(note)
    return f"; results in {exported.path}"


async def _watched(
    driving: Driving, broker: Broker, view: View, drive: Callable[[DriveObserver], Awaitable[Ending]]
) -> Ending:
    """Drive with somebody looking on, if that is wanted."""
    if driving.metrics_port is None:
        return await drive(NOBODY)
    from overnight_producer.metrics import watched  # who is not watched pays nothing

    async with watched(broker, driving.metrics_address, driving.metrics_port, view.say) as onlooker:
        return await drive(onlooker)


class _Drive:
    """Hold together the tasks of one run: the driver, its consumer on this machine and the view."""

    def __init__(
        self,
        job: JobFile,
        dataset: DataSet,
        broker: Broker,
        driving: Driving,
        place: Place,
        view: View,
        recall: bool,
        onlooker: DriveObserver,
    ) -> None:
        self._job = job
        self._broker = broker
        self._driving = driving
        self._place = place
        self._view = view
        self._onlooker = onlooker
        self._spec = spec = job.spec
        self._driver = Driver(
            job,
            broker,
            dataset,
            task_queue(spec.queue),
            DriverSettings(
                max_message_bytes=place.max_message_bytes,
                window_seconds=driving.window_seconds,
                window=driving.window,
                silence_seconds=driving.silence_seconds,
                no_consumer_timeout_seconds=driving.no_consumer_timeout_seconds,
                policy=Policy(point_attempts=driving.attempts),
            ),
            view.task,
            recall,
            onlooker,
        )
        self._consumer = self._own_consumer(spec)

    async def run(self) -> Ending:
        """Drive, with signals handled, and let go of everything at the end."""
        await self._broker.open(self._place.broker_timeout_seconds)
        tasks = [asyncio.create_task(self._show())]
        if self._consumer is not None:
            tasks.append(asyncio.create_task(self._keep_consumer(self._consumer)))
        try:
            with self._signals():
                ending = await self._driver.run()
                if self._consumer is not None:
                    # What it still runs is void or interrupted: nothing waits for it but a little courtesy.
                    await self._consumer.stop(
                        CONSUMER_GRACE_SECONDS if ending.kind is EndingKind.DONE else 1.0
                    )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._view.show(self._driver.snapshot())
            self._onlooker.job_left(self._spec.id)
            if self._consumer is not None:
                await self._consumer.stop(0.0)
            await self._broker.close()
        return ending

    async def _keep_consumer(self, consumer: LocalConsumer) -> None:
        try:
            await consumer.keep_running()
        except ConsumerGoneError as error:
            self._driver.end(Ending(EndingKind.PAUSED, str(error)))

    async def _show(self) -> None:
        checked = self._job.spec.output is None
        while True:
            snapshot = self._driver.snapshot()
            self._view.show(snapshot)
            self._onlooker.job_seen(self._spec, snapshot)
            if not checked and (first := next(self._job.results(), None)) is not None:
                checked = True
                fault = check_first_result(
                    first.encoded, Path(str(self._job.spec.output)), self._job.spec.points
                )
                if fault is not None:
                    self._view.say(fault)
            await asyncio.sleep(VIEW_SECONDS)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        stopping = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in stopping:
            loop.add_signal_handler(number, self._interrupt)
        try:
            yield
        finally:
            for number in stopping:
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        self._driver.end(Ending(EndingKind.INTERRUPTED))

    def _own_consumer(self, spec: JobSpec) -> LocalConsumer | None:
        if self._driving.slots == "0" or not self._place.embedded:
            return None
        what = ["--command", spec.command] if spec.command is not None else ["--methods", spec.method]
        arguments = [
            *("--home", str(self._place.home.absolute())),
            *(("--broker", self._place.broker) if self._place.broker else ()),
            *("--queue", spec.queue),
            *what,
            *("--source", spec.source),
            *("--slots", self._driving.slots),
            *("--name", "local"),
            *("--parent", str(os.getpid())),
            *("--max-message-bytes", str(self._place.max_message_bytes)),
            *("--log-level", "info" if self._driving.verbose else "error"),
        ]
        # Two programs cannot listen at one port: the consumer of a run shows no figures of its own.
        inherited = {name: value for name, value in environment().items() if name != "OVERNIGHT_METRICS_PORT"}
        return LocalConsumer(arguments, inherited, self._results_so_far, self._view.say)

    def _results_so_far(self) -> int:
        return self._job.progress().done
