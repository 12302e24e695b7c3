"""Say what a slot's child may use, and for how long it serves."""

from __future__ import annotations

from dataclasses import dataclass, field

from overnight_consumer.recycling import Recycling

# A large model may come over a slow network.
DEFAULT_LOAD_LIMIT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hold the limits that a consumer sets to each of its slots.

    Attributes:
        load_limit_seconds: the longest that a child may take to be ready, and later to load a method.
        time_limit_seconds: the longest that any task may run, None for what its message says.
        memory_limit_bytes: for the child and all that it starts, together; None for no limit.
        recycling: when a child is replaced between two tasks.
    """

    load_limit_seconds: float = DEFAULT_LOAD_LIMIT_SECONDS
    time_limit_seconds: float | None = None
    memory_limit_bytes: int | None = None
    recycling: Recycling = field(default_factory=Recycling)

    def time_limit_of(self, asked_seconds: float | None) -> float | None:
        """Return how long a task may run: a message may ask for less than we allow, never for more."""
        given = [limit for limit in (asked_seconds, self.time_limit_seconds) if limit is not None]
        return min(given, default=None)
