"""Define what is read back from a job file: its state, its figures, results, failures and requests."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overnight_common.messages import Encoded, Failure

# Why a job is paused that somebody paused; whoever goes on with jobs by itself leaves such a one alone.
PAUSED_BY_REQUEST = "paused by request"


class JobState(enum.StrEnum):
    """Say where a job is."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Progress:
    """Tell how far a job is; all but the last five count points.

    Attributes:
        total: points of the job.
        done: with a result (or done without a value).
        given_up: given up, and no result came later.
        waiting: to be published, cut or not.
        published: in a queue or with a consumer.
        running: reported running.
        tasks_done: tasks that brought at least one new result.
        seconds: run time of those tasks, summed over all slots.
        first_result_at: Unix time of the first result, None before it.
        last_result_at: Unix time of the latest result, None before the first.
        state: where the job is, and `why` if somebody asked or something went wrong.
        why: one sentence, or empty.
    """

    total: int
    done: int
    given_up: int
    waiting: int
    published: int
    running: int
    tasks_done: int
    seconds: float
    first_result_at: float | None
    last_result_at: float | None
    state: JobState
    why: str

    @property
    def finished(self) -> bool:
        """Tell whether every point has a result or was given up."""
        return self.done + self.given_up >= self.total


@dataclass(frozen=True, slots=True)
class ResultRow:
    """Hold the results of the points `[start, stop)`; `encoded` is None if they are done without a value.

    `seconds` is the run time of the whole task, `finished_at` Unix time.
    """

    start: int
    stop: int
    encoded: Encoded | None
    seconds: float
    consumer: str
    slot: int
    finished_at: float


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Hold one failed attempt: which, why, where, and when (Unix time)."""

    start: int
    stop: int
    attempt: int
    failure: Failure
    consumer: str
    slot: int
    seconds: float
    peak_rss_bytes: int
    at: float


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """Hold what one consumer did for the job: tasks and points done, last heard of (Unix time), accusations.

    `accusations` counts failures whose cause accuses the consumer; `cause` and `message` are the latest.
    """

    name: str
    tasks_done: int
    points_done: int
    last_seen: float
    accusations: int
    cause: str
    message: str


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what some process asked of the driver; `outcome` is None while it is pending."""

    id: int
    kind: str
    args: dict[str, Any]
    asked_at: float
    asked_by: int
    outcome: str | None
