"""Notice tasks that went out and of which nobody says anything: first ask by a probe, then call them lost.

A queue is first in, first out. So when a probe that was published after a task has come back, the task has
left the queue too, and whoever runs it says so every 30 s. Silence after that means that it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Watch:
    attempt: int
    heard: float
    probed: bool = False  # the latest probe went out after it
    cleared: bool = False  # a probe that went out after it has come back


@dataclass(slots=True)
class Silences:
    """Follow the published tasks of one job; all times are seconds of `overnight_common.awake`.

    Attributes:
        limit_seconds: how long a task may be silent.
        number: of the latest probe. Who begins at a random one takes no answer to an earlier driver's probe,
            which says nothing of what was published since, for that to its own.
    """

    limit_seconds: float = 90.0
    number: int = 0
    _watched: dict[int, _Watch] = field(default_factory=dict)
    _sent: float = 0.0
    _outstanding: bool = False

    def published(self, start: int, attempt: int, now: float) -> None:
        """Note that the range beginning at `start` was published."""
        self._watched[start] = _Watch(attempt, now)

    def heard(self, start: int, now: float) -> None:
        """Note that somebody reported the range as running."""
        watch = self._watched.get(start)
        if watch is not None:
            watch.heard = now

    def deaf(self, now: float) -> None:
        """Note that nobody could be heard until now: that they were silent says nothing."""
        for watch in self._watched.values():
            watch.heard = max(watch.heard, now)

    def forget(self, start: int) -> None:
        """Stop following a range: it is answered, or waits again."""
        self._watched.pop(start, None)

    def probe_back(self, number: int, now: float) -> None:
        """Note that probe `number` was answered: what was published before it has left the queue."""
        if number != self.number:
            return
        self._outstanding = False
        for watch in self._watched.values():
            if watch.probed and not watch.cleared:
                watch.cleared = True
                watch.heard = max(watch.heard, now)

    def probe_due(self, now: float, queue_is_empty: bool) -> int | None:
        """Return the number of a probe to publish now, or None.

        A probe that is out is waited for as long as the queue has tasks before it; when the queue is empty
        and it has not come back, it is lost itself and another goes out.
        """
        if self._outstanding and not (queue_is_empty and now - self._sent > self.limit_seconds):
            return None
        silent = [w for w in self._watched.values() if not w.cleared and now - w.heard > self.limit_seconds]
        if not silent:
            return None
        self.number += 1
        self._sent = now
        self._outstanding = True
        for watch in self._watched.values():
            if not watch.cleared:
                watch.probed = True
        return self.number

    def probe_failed(self, number: int) -> None:
        """Note that probe `number` could not be published; the next look sends another."""
        if number == self.number:
            self._outstanding = False

    def lost(self, now: float) -> list[tuple[int, int]]:
        """Return (start, attempt) of the tasks that stayed silent after their probe had come back."""
        return [
            (start, w.attempt)
            for start, w in self._watched.items()
            if w.cleared and now - w.heard > self.limit_seconds
        ]
