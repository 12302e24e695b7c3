"""Follow how long tasks last and how large they are, and say from that how many deliveries to hold."""

from __future__ import annotations

import math

from overnight_consumer.prefetch import (
    bundle_size,
    is_short,
    most_by_size,
    moving_mean,
    steady_mean,
    wanted_prefetch,
)


class Pace:
    """Remember recent durations and sizes.

    Attributes:
        mean_seconds: mean of recent tasks as the parent sees them, None if none has ended yet.
        short: tasks are so short that deliveries are held ahead.
    """

    def __init__(self) -> None:
        self.mean_seconds: float | None = None
        self.short = False
        self._steady_seconds: float | None = None  # the same without outliers
        self._mean_bytes: float | None = None
        self._long_seen_at = -math.inf

    def lasted(self, seconds: float) -> float:
        """Take note of a task that lasted so long, or does so already; returns the mean."""
        self.mean_seconds = moving_mean(self.mean_seconds, seconds)
        self._steady_seconds = steady_mean(self._steady_seconds, seconds)
        return self.mean_seconds

    def weighed(self, body_bytes: int) -> None:
        """Take note of the size of a message."""
        self._mean_bytes = moving_mean(self._mean_bytes, body_bytes)

    @property
    def too_many(self) -> int:
        """Return how many deliveries take too much memory."""
        return 2 * most_by_size(self._mean_bytes or 0.0) + 1

    def bundle(self, slots: int, waiting: int) -> int:
        """Return how many tasks to hand to a child at once."""
        if not self.short or self._steady_seconds is None:
            return 1
        return bundle_size(slots, waiting, self._steady_seconds, self._mean_bytes or 0.0)

    def prefetch(self, slots: int, now: float, *, long_runs: bool) -> int:
        """Return how many deliveries to hold; `long_runs` says that a long task runs now."""
        if long_runs:
            self._long_seen_at = now
        self.short = is_short(self._steady_seconds, now - self._long_seen_at, self.short)
        mean_seconds = self._steady_seconds if self.short else self.mean_seconds
        return wanted_prefetch(slots, mean_seconds, self.short, self._mean_bytes or 0.0)
