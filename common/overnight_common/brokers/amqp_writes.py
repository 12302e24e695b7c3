"""Gather what is written within a few milliseconds into one write."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# The first frame after a silence leaves at once, so only who writes hundreds of times a second ever waits;
# for him the broker wakes that much less often.
WRITE_SECONDS = 0.004


class GroupedWrites:
    """Pass on what is added, in order: soon, but not more often than every `WRITE_SECONDS`.

    Args:
        loop: whose time counts.
        write: takes the gathered bytes; called from the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, write: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._write = write
        self._gathered: list[bytes] = []
        self._not_before = 0.0

    def add(self, data: bytes) -> None:
        """Send this with what was added before it."""
        if not self._gathered:
            self._loop.call_at(self._not_before, self._flush)
        self._gathered.append(data)

    def _flush(self) -> None:
        self._not_before = self._loop.time() + WRITE_SECONDS
        gathered, self._gathered = self._gathered, []
        self._write(b"".join(gathered))
