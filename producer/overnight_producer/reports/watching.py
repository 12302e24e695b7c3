"""Watch a job that another process drives."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

from overnight_producer.jobs.home import resolve
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.lock import driver_of
from overnight_producer.jobs.records import JobState
from overnight_producer.jobs.service import server_of
from overnight_producer.live_figures import figures_of
from overnight_producer.views.view import make_view
from overnight_producer.views.wording import counted, duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.records import Progress
    from overnight_producer.views.view import ConsoleKind

LOOK_SECONDS = 1.0


def watch(
    home: Path,
    prefix: str | None,
    kind: ConsoleKind,
    *,
    stream: TextIO | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Show a job (the newest if `prefix` is None) until it ends or nobody drives it any more.

    Ctrl-C ends the watching, never the job.

    Returns:
        the exit status: 0 all done, 1 points were given up or nobody goes on with it, 4 cancelled.

    Raises:
        BadInputError: no job, or more than one, begins with `prefix`.
        JobFileError: the job's file cannot be read.
    """
    path = resolve(home, prefix)
    with JobFile.open(path) as job:
        spec = job.spec
        view = make_view(kind, spec, stream=stream)
        view.start()
        text, status = "", 1
        try:
            while True:
                # The driver first: if it is gone now, the figures read afterwards are its last ones.
                driver = driver_of(path)
                snapshot = figures_of(job)
                view.show(snapshot)
                served = spec.submitted and server_of(home) is not None
                if (ending := ending_of(spec, snapshot.progress, driver, time.time(), served)) is not None:
                    text, status = ending
                    break
                sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            text, status = f"no longer watching; job {spec.id} goes on", 0
        finally:
            view.finish(text, status)
    return status


def ending_of(
    spec: JobSpec, progress: Progress, driver_pid: int | None, now: float, served: bool = False
) -> tuple[str, int] | None:
    """Return what to say at the end and the exit status, or None while the job is being driven.

    `now` is Unix time; with `served` the service will come to the job. One that has ended but is still being
    driven (it exports its results) goes on.
    """
    if driver_pid is not None:
        return None
    job, why = spec.id, f" ({progress.why})" if progress.why else ""
    if progress.state is JobState.CANCELLED:
        return f"job {job} was cancelled{why}", 4
    if progress.state is JobState.DONE:
        if progress.given_up:
            were = f"{counted(progress.given_up, 'point')} given up"
            return f"job {job} is done, {were}: `overnight failures {job}`", 1
        return f"job {job} is done", 0
    if progress.state is JobState.PAUSED:
        return f"job {job} is paused{why}; go on with `overnight resume {job}`", 1
    if served:
        return None
    last = progress.last_result_at
    since = f", its last result came {duration(now - last)} ago" if last is not None else ""
    return f"nobody drives job {job}{since}; go on with `overnight resume {job}`", 1
