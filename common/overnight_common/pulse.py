"""Tell from another thread whether an event loop still turns."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LIVE_SECONDS = 60.0
_BEAT_SECONDS = 1.0


class Pulse:
    """Note each second that the loop turns.

    Args:
        limit_seconds: after so long without a beat the loop counts as stuck.
        monotonic: the clock.
    """

    def __init__(
        self, limit_seconds: float = LIVE_SECONDS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_seconds = limit_seconds
        self._monotonic = monotonic
        self._at = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Beat from now on in the running loop."""
        self._at = self._monotonic()
        self._timer = asyncio.get_running_loop().call_later(_BEAT_SECONDS, self.start)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()

    def fault(self) -> str:
        """Return what is wrong, or nothing."""
        silent_seconds = self._monotonic() - self._at
        if silent_seconds <= self._limit_seconds:
            return ""
        return f"the event loop has not turned for {silent_seconds:.0f} s"
