"""Make snapshots and replies for tests of what a person sees."""

from typing import Any

from overnight_common.brokers.base import BrokerState, Depth
from overnight_common.messages import Cause, Failure, Reply
from overnight_producer.driving.snapshot import Snapshot
from overnight_producer.jobs.records import JobState, Progress


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def progress_of(done: int, total: int = 1797, given_up: int = 0, out: int = 0, **changes: Any) -> Progress:
    figures: dict[str, Any] = {
        "total": total,
        "done": done,
        "given_up": given_up,
        "waiting": total - done - given_up - out,
        "published": out - out // 2,
        "running": out // 2,
        "tasks_done": done // 7,
        "seconds": done * 0.16,
        "first_result_at": None,
        "last_result_at": None,
        "state": JobState.RUNNING,
        "why": "",
    }
    return Progress(**(figures | changes))


def snapshot_of(done: int, total: int = 1797, given_up: int = 0, out: int = 0, **changes: Any) -> Snapshot:
    figures: dict[str, Any] = {
        "progress": progress_of(done, total, given_up, out),
        "points_per_second": 12.4,
        "tasks_per_second": 2.0,
        "slots_busy": 1.9,
        "slots_seen": 2,
        "running": [],
        "window": 16,
        "tasks_out": 12,
        "depth": Depth(ready=8, unacked=4, consumers=1),
        "broker": BrokerState.CONNECTED,
    }
    return Snapshot(**(figures | changes))


def finished(start: int, stop: int, **changes: Any) -> Reply:
    given: dict[str, Any] = {
        "v": 1,
        "job": "j",
        "attempt": 1,
        "consumer": "desk-1",
        "slot": 2,
        "seconds": 0.8,
    }
    return Reply(start=start, stop=stop, kind="done", **(given | changes))


def failed(
    start: int, stop: int, message: str = "no", cause: Cause = Cause.EXCEPTION, **changes: Any
) -> Reply:
    given: dict[str, Any] = {
        "v": 1,
        "job": "j",
        "attempt": 1,
        "consumer": "desk-1",
        "slot": 1,
        "seconds": 0.1,
    }
    failure = Failure(cause=cause, type="ValueError", message=message, traceback="Traceback\n  somewhere")
    return Reply(start=start, stop=stop, kind="failed", failure=failure, **(given | changes))
