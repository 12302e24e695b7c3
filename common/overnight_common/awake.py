"""Tell the time that this process was awake for: a laptop's sleep, a frozen container and Ctrl-Z do not count.

Whoever waits for word from others has to leave out the time in which it could not have heard it. The system's
monotonic clock stands still while the machine sleeps, but runs on while only the process is stopped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Everybody who asks does so each second or more often.
LONGEST_LOOK_SECONDS = 2.0


class AwakeClock:
    """Count monotonic seconds, but at most two from one look to the next.

    Args:
        monotonic: the clock that is looked at.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._looked_at = self._seconds = monotonic()

    def __call__(self) -> float:
        """Return seconds; only good to compare with another time of the same clock."""
        now = self._monotonic()
        self._seconds += min(now - self._looked_at, LONGEST_LOOK_SECONDS)
        self._looked_at = now
        return self._seconds


# One for the whole process: its jobs and its broker compare their times.
awake_seconds = AwakeClock()
