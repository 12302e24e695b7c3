"""Look at a folder of jobs again and again, and read only those files that have changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from overnight_common.errors import DecodeError
from overnight_producer.jobs.jobfile import JobFile, JobFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.records import Progress

_Look = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class FoundJob:
    """Hold a job as its file told when it was read."""

    path: Path
    spec: JobSpec
    progress: Progress


class JobsFolder:
    """Know the jobs in `home` without opening thousands of files each second."""

    def __init__(self, home: Path, on_unreadable: Callable[[Path, str], None]) -> None:
        """Look into `home`; `on_unreadable` gets a file that tells nothing and why, once for each change."""
        self._home = home
        self._on_unreadable = on_unreadable
        self._looks: dict[Path, _Look] = {}
        self._found: dict[Path, FoundJob | None] = {}

    def look(self, without: Collection[Path] = ()) -> list[FoundJob]:
        """Return the jobs that can be read, the oldest first, but for those `without`."""
        paths = [path for path in self._home.glob("jobs/*/job.sqlite") if path not in without]
        for path in paths:
            look = _look_at(path)
            if self._looks.get(path) != look:
                self._looks[path] = look
                self._found[path] = self._read(path)
        for gone in self._looks.keys() - set(paths):
            del self._looks[gone], self._found[gone]
        found = [job for path in paths if (job := self._found[path]) is not None]
        return sorted(found, key=lambda job: (job.spec.created, job.spec.id))

    def _read(self, path: Path) -> FoundJob | None:
        try:
            with JobFile.open(path) as job:
                return FoundJob(path, job.spec, job.progress())
        except (JobFileError, DecodeError) as error:
            self._on_unreadable(path, str(error))
            return None


def _look_at(path: Path) -> _Look:
    """Return what changes whenever the job does: SQLite writes to the second file first."""
    seen = []
    for each in (path, path.with_name(path.name + "-wal")):
        try:
            found = each.stat()
        except OSError:
            continue
        if found.st_size:  # one that is only open for reading leaves an empty file
            seen.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(seen)
