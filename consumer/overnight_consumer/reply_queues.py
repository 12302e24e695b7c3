"""Decide from looks at a reply queue whether its job still wants results; pure, others ask the broker."""

from __future__ import annotations

import enum
from dataclasses import dataclass

FRESH_SECONDS = 1.0
REFRESH_SECONDS = 0.5
MISS_APART_SECONDS = 2.0
RUNNING_LOOK_SECONDS = 10.0
HOLD_SECONDS = 60.0


class Verdict(enum.Enum):
    """Say what to do with a task, or an unroutable reply, of this reply queue."""

    GO = "go"
    ASK = "ask"  # nobody has looked lately: look, then decide
    HOLD = "hold"  # missed, but not yet sure
    GONE = "gone"  # cancelled: drop its tasks, kill what runs
    LOST = "lost"  # never seen for a minute: dead letters


@dataclass(slots=True)
class ReplyQueue:
    """Remember what was seen of one reply queue on the present connection.

    Times are monotonic seconds. A queue counts as deleted only if it was seen on this connection and then
    missed twice, two seconds apart: a broker that lost its disk must not look like a cancel.
    """

    seen: bool = False
    gone: bool = False
    found_at: float | None = None
    missed_at: float | None = None
    looked_at: float | None = None
    used_at: float = 0.0
    read: bool = True
    refused: bool = False  # we may not look at it, and have said so

    def found(self, now: float, read: bool) -> None:
        """Note that the queue is there; `read` tells whether somebody consumes it."""
        self.seen, self.gone, self.missed_at = True, False, None
        self.found_at = self.looked_at = now
        self.read = read

    def missed(self, now: float) -> None:
        """Note that the queue is not there."""
        self.looked_at, self.found_at = now, None
        if self.missed_at is None:
            self.missed_at = now
        elif self.seen and now - self.missed_at >= MISS_APART_SECONDS:
            self.gone = True

    def disconnected(self) -> None:
        """Forget what was seen; a cancel that was certain stays certain."""
        self.seen = False
        self.found_at = self.missed_at = self.looked_at = None

    def verdict(self, now: float) -> Verdict:
        """Say what to do with a task of this queue now."""
        if self.gone:
            return Verdict.GONE
        if self.found_at is not None:
            return Verdict.GO if now - self.found_at <= FRESH_SECONDS else Verdict.ASK
        if self.missed_at is None:
            return Verdict.ASK
        if not self.seen and now - self.missed_at >= HOLD_SECONDS:
            return Verdict.LOST
        return Verdict.HOLD

    def look_due(self, now: float, *, running: bool) -> bool:
        """Tell whether to look again: soon after a miss, while in use, every 10 s while a task runs."""
        if self.gone or self.looked_at is None:
            return False
        since = now - self.looked_at
        if self.missed_at is not None:
            return since >= MISS_APART_SECONDS
        if now - self.used_at <= FRESH_SECONDS:
            return since >= REFRESH_SECONDS
        return running and since >= RUNNING_LOOK_SECONDS
