"""Conclude a job when driving has ended: write down how, export the results, say it, run what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from overnight_common.errors import OvernightError
from overnight_producer.driving.ending import Ending, EndingKind
from overnight_producer.exports.export import export
from overnight_producer.jobs.records import PAUSED_BY_REQUEST, JobState
from overnight_producer.on_finish import run_on_finish
from overnight_producer.reports.failure_report import failure_table
from overnight_producer.statuses import CANCELLED, DONE, INTERRUPTED, SOME_GIVEN_UP
from overnight_producer.views.wording import count, points_done

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_producer.jobs.jobfile import JobFile
    from overnight_producer.views.view import View


def record(job: JobFile, state: JobState, why: str = "") -> None:
    """Write down where the job is."""
    with job.commit() as tx:
        tx.set_state(state, why)


def conclude(job: JobFile, ending: Ending, view: View) -> int:
    """Write down how driving ended, export, say it, and return the exit status. Blocks while it exports."""
    spec, progress = job.spec, job.progress()
    so_far = f"{points_done(progress.done, progress.total)} are done and kept"
    go_on = f"Go on with: overnight resume {spec.id}"
    match ending.kind:
        case EndingKind.INTERRUPTED:
            if spec.submitted:
                go_on = "It goes on when `overnight serve` runs again"
            view.finish(f"interrupted; {so_far}. {go_on}", INTERRUPTED)
            return INTERRUPTED
        case EndingKind.CANCELLED:
            record(job, JobState.CANCELLED, ending.why)
            view.finish(f"cancelled; {so_far}", CANCELLED, JobState.CANCELLED.value)
            return CANCELLED
        case EndingKind.PAUSED:
            record(job, JobState.PAUSED, ending.why)
            _say_failures(job, view)
            if progress.given_up and not progress.done and not spec.per_point and spec.command is None:
                view.say(
                    "Not one batch went well: if the method takes one point and not a batch, "
                    "run it again with --per-point."
                )
            if progress.given_up:
                go_on += f"; or, to try what was given up again: overnight retry {spec.id} --accept-changes"
            words = f"paused: {ending.why.removesuffix('.')}. {so_far}. {go_on}"
            view.finish(words, SOME_GIVEN_UP, JobState.PAUSED.value)
            return SOME_GIVEN_UP
    return _conclude_done(job, view)


async def announce(job: JobFile, ending: Ending, say: Callable[[str], None]) -> None:
    """Run the command that the job has for its end; not for one that was only interrupted or is to wait."""
    spec, progress = job.spec, job.progress()
    by_request = ending == Ending(EndingKind.PAUSED, PAUSED_BY_REQUEST)
    if spec.on_finish is None or ending.kind is EndingKind.INTERRUPTED or by_request:
        return
    facts = {
        "OVERNIGHT_JOB": spec.id,
        "OVERNIGHT_STATE": progress.state.value,
        "OVERNIGHT_POINTS_DONE": str(progress.done),
        "OVERNIGHT_POINTS_GIVEN_UP": str(progress.given_up),
        "OVERNIGHT_OUTPUT": spec.output or "",
    }
    await run_on_finish(spec.on_finish, facts, say)


def _conclude_done(job: JobFile, view: View) -> int:
    spec, progress = job.spec, job.progress()
    done = f"{points_done(progress.done, progress.total)} done"
    try:
        written = _export(job, view)
    except OvernightError as error:
        words = f"{done}, but not exported: {error}. Export them: overnight export FILE {spec.id}"
        view.finish(words, SOME_GIVEN_UP, JobState.DONE.value)
        return SOME_GIVEN_UP
    finally:
        # Only now: whoever is killed while it exports does so again.
        with job.commit() as tx:
            tx.set_state(JobState.DONE)
            for request in job.requests_pending():  # or it would meet a later retry
                tx.finish_request(request.id, "came too late: the job was done")
    if not progress.given_up:
        view.finish(f"{done}{written}", DONE, JobState.DONE.value)
        return DONE
    _say_failures(job, view)
    view.finish(
        f"{done}, {count(progress.given_up)} given up{written}. Mend the method, "
        f"then: overnight retry {spec.id} --accept-changes",
        SOME_GIVEN_UP,
        JobState.DONE.value,
    )
    return SOME_GIVEN_UP


def _say_failures(job: JobFile, view: View) -> None:
    failure_table(job, view.say)
    for latest in job.failures(1):
        view.say(latest.failure.traceback or latest.failure.message)


def _export(job: JobFile, view: View) -> str:
    if job.spec.output is None:
        first = next(job.results(), None)
        has_values = first is not None and first.encoded is not None
        return f"; write the results out with: overnight export FILE {job.spec.id}" if has_values else ""
    exported = export(job, Path(job.spec.output))
    for note in exported.notes:
        view.say(note)
    others = f" and {exported.others}" if exported.others is not None else ""
    return f"; results in {exported.path}{others}"
