"""Decide how many deliveries to hold: no slot must wait, and no task sit behind a long one."""

from __future__ import annotations

SHORT_SECONDS = 0.050
WORK_AHEAD_SECONDS = 0.100
LONG_SECONDS = 1.0
MOST = 512
_WEIGHT = 0.2


def wanted_prefetch(slots: int, mean_seconds: float | None) -> int:
    """Return how many un-acked deliveries to ask for.

    Args:
        slots: number of slots.
        mean_seconds: mean duration of recent tasks as the parent sees it, None if none has ended yet.

    Returns:
        As many as there are slots; while tasks are short, up to 100 ms of work a slot, at most 512 in all.
    """
    if mean_seconds is None or mean_seconds >= SHORT_SECONDS:
        return slots
    ahead = int(WORK_AHEAD_SECONDS / max(mean_seconds, 1e-6))
    return max(slots, min(slots * max(2, ahead), MOST))


def differs_markedly(current: int, wanted: int) -> bool:
    """Tell whether a change is worth a new subscription: half as much again, or half or less."""
    return wanted >= current * 1.5 or wanted <= current * 0.5


def moving_mean(mean_seconds: float | None, seconds: float) -> float:
    """Return the exponentially weighted mean after one more task."""
    if mean_seconds is None:
        return seconds
    return mean_seconds + _WEIGHT * (seconds - mean_seconds)
