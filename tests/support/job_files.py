"""Make small jobs and results for tests."""

from pathlib import Path
from typing import Any

from overnight_common.values import encode_values
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.jobspec import JobSpec, new_job_id
from overnight_producer.jobs.ranges import Range


def spec_of(points: int, **changes: Any) -> JobSpec:
    given: dict[str, Any] = {
        "id": new_job_id(),
        "method": "lib:slow",
        "data_uri": f"range:{points}",
        "data_kind": "range",
        "data_length": points,
        "data_fingerprint": "data",
        "stop": points,
    }
    return JobSpec(**(given | changes))


def new_job(folder: Path, points: int, **changes: Any) -> JobFile:
    return JobFile.create(folder / "job.sqlite", spec_of(points, **changes))


def add(job: JobFile, start: int, values: Any, stop: int | None = None, consumer: str = "desk-1") -> int:
    """Add results of points from `start` on; None and a `stop` for points done without a value."""
    encoded = None if values is None else encode_values(values, len(values))
    after = start + len(values) if stop is None else stop
    with job.commit() as tx:
        return tx.add_result(start, after, encoded, 0.5, consumer, 1, 1000.0 + start)


def cut(start: int, stop: int, points: int) -> list[Range]:
    """Return `[start, stop)` in ranges of `points` points; the last one may be shorter."""
    return [Range(first, min(first + points, stop)) for first in range(start, stop, points)]
