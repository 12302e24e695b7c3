"""Say how driving a job ended, and decide when it has to."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

SUCCESS_SHARE_TO_GO_ON = 0.1


class EndingKind(enum.Enum):
    """Name how driving can end."""

    DONE = "done"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Ending:
    """Say how driving ended, and why."""

    kind: EndingKind
    why: str = ""


def why_hopeless(limit: int | None, given_up: int, succeeded: int) -> str:
    """Return why a method is not worth going on with; empty if it is. Points are counted; no limit is None."""
    tried = given_up + succeeded
    if limit is None or given_up < limit or succeeded >= SUCCESS_SHARE_TO_GO_ON * tried:
        return ""
    return f"of the first {tried} points that were tried, {given_up} were given up"


def tasks_on_trial(limit: int | None, failed: int, succeeded: int) -> int | None:
    """Return how many tasks may wait or have just begun of a method that has only failed; None if any number.

    Those that are out when the job pauses may be given up all the same, when their answers come: `limit` of them
    at most, however fast it fails. A task that is said to run is none of them: it does not fail fast.
    """
    return limit if failed and not succeeded else None


def why_nobody_works(seconds: float, queue: str, accused: Mapping[str, str]) -> str:
    """Return why no task was done for so long: what the consumers say of themselves, if any does."""
    who = [f"{name} says {what}" for name, what in accused.items()] or [f"no consumer answers on {queue}"]
    return f"no task was done for {seconds:.0f} s: " + "; ".join(who)
