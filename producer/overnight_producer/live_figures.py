"""Leave the figures of a driven job beside its file each second, so that every command shows the same ones."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from overnight_common.brokers.base import BrokerState
from overnight_producer.driving.snapshot import Snapshot
from overnight_producer.jobs.lock import driver_of
from overnight_producer.jobs.records import JobState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from overnight_producer.jobs.jobfile import JobFile

WRITE_SECONDS = 1.0
OLD_SECONDS = 15.0  # a driver that hangs for so long says nothing that is true now
_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(Snapshot).decode


class LiveFigures:
    """Write them as the driver of a job; what fails here harms no job."""

    def __init__(self, job_path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Write beside the job file at `job_path`."""
        self._path = _path_of(job_path)
        self._new = self._path.with_name(self._path.name + ".new")
        self._monotonic = monotonic
        self._due = 0.0

    def show(self, snapshot: Snapshot) -> None:
        """Write the figures, at most once a second."""
        now = self._monotonic()
        if now < self._due:
            return
        self._due = now + WRITE_SECONDS
        with contextlib.suppress(OSError):
            self._new.write_bytes(_write(snapshot))
            self._new.replace(self._path)

    def clear(self) -> None:
        """Take them away: nobody drives any more."""
        for each in (self._new, self._path):
            with contextlib.suppress(OSError):
                each.unlink(missing_ok=True)


def live_figures(job: JobFile) -> Snapshot | None:
    """Return what the driver of a job said last, with the progress as its file has it now.

    None if nobody drives it, or its driver has said nothing lately.
    """
    path = _path_of(job.path)
    try:
        if driver_of(job.path) is None or time.time() - path.stat().st_mtime > OLD_SECONDS:
            return None
        return replace(_read(path.read_bytes()), progress=job.progress())
    except (OSError, msgspec.MsgspecError):  # it has just gone, or another version wrote it
        return None


def figures_of(job: JobFile) -> Snapshot:
    """Return where a job stands; without a driver that says so, all but its progress is unknown."""
    if (live := live_figures(job)) is not None:
        return live
    progress = job.progress()
    return Snapshot(
        progress=progress,
        points_per_second=0.0,
        tasks_per_second=0.0,
        slots_busy=0.0,
        slots_seen=0,
        running=[],
        window=0,
        tasks_out=sum(range_.in_flight for range_ in job.ranges()),
        depth=None,
        broker=BrokerState.CONNECTED,
        paused=progress.state is JobState.PAUSED,
    )


def _path_of(job_path: Path) -> Path:
    return job_path.with_name("live.json")
