"""Find jobs in the folder that Overnight keeps its files in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from overnight_common.errors import BadInputError, DecodeError
from overnight_producer.jobs.jobfile import JobFile, JobFileError
from overnight_producer.jobs.jobspec import JobSpec

if TYPE_CHECKING:
    from pathlib import Path


def job_path(home: Path, job_id: str) -> Path:
    """Return where the file of a job lies: `jobs/<id>/job.sqlite`."""
    return home / "jobs" / job_id / "job.sqlite"


def all_jobs(home: Path) -> list[tuple[Path, JobSpec]]:
    """Return the jobs in `home`, the oldest first; see `unreadable` for files that tell nothing."""
    found = [(path, spec) for path, spec in _scan(home) if isinstance(spec, JobSpec)]
    return sorted(found, key=lambda each: (each[1].created, each[1].id))


def unreadable(home: Path) -> list[tuple[Path, str]]:
    """Return the job files in `home` that cannot be read, each with the reason."""
    return [(path, spec) for path, spec in _scan(home) if isinstance(spec, str)]


def find_job(
    home: Path,
    method: str,
    data_uri: str,
    params: dict[str, Any],
    seed: int,
    start: int,
    command: str | None = None,
) -> Path | None:
    """Return the newest job for this work, or None; fingerprints are for the caller to compare."""
    wanted = (method, command, data_uri, _text_of(params), seed, start)
    for path, spec in reversed(all_jobs(home)):
        found = (spec.method, spec.command, spec.data_uri, _text_of(spec.params), spec.seed, spec.start)
        if found == wanted:
            return path
    return None


def resolve(home: Path, prefix: str | None) -> Path:
    """Return the one job whose id begins with `prefix`; the newest one if it is None.

    Raises:
        BadInputError: there is no such job, or more than one.
    """
    jobs = all_jobs(home)
    if not jobs:
        broken = _unreadable_words(home)
        start = "" if broken else "; start one with `overnight run`"
        raise BadInputError(
            f"there are no jobs {'that can be read ' if broken else ''}in {home.absolute()}{start}{broken}"
        )
    if prefix is None:
        return jobs[-1][0]
    matching = [(path, spec) for path, spec in jobs if spec.id.startswith(prefix)]
    exact = [(path, spec) for path, spec in matching if spec.id == prefix]
    if len(exact or matching) == 1:
        return (exact or matching)[0][0]
    if not matching:
        known = ", ".join(spec.id for _, spec in jobs[-5:])
        raise BadInputError(
            f"no job in {home.absolute()} begins with {prefix!r}; the latest are {known}{_unreadable_words(home)}"
        )
    several = ", ".join(spec.id for _, spec in matching)
    raise BadInputError(f"{prefix!r} fits more than one job: {several}; give more of its letters")


def _unreadable_words(home: Path) -> str:
    # Reads every job file once more, so only where an error is due.
    return "".join(f"\n{reason}" for _path, reason in unreadable(home))


def _text_of(params: dict[str, Any]) -> str:
    # As text, since a NaN does not equal itself and a tuple comes back as a list.
    return json.dumps(params, sort_keys=True)


def _scan(home: Path) -> list[tuple[Path, JobSpec | str]]:
    found: list[tuple[Path, JobSpec | str]] = []
    for path in sorted(home.glob("jobs/*/job.sqlite")):
        try:
            with JobFile.open(path) as job:
                found.append((path, job.spec))
        except (JobFileError, DecodeError) as error:
            found.append((path, str(error)))
    return found
