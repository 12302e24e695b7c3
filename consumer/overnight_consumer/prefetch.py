"""Decide how many deliveries to hold and to hand to a child: no slot must wait, no task sit behind a long one."""

from __future__ import annotations

SHORT_SECONDS = 0.050
WORK_AHEAD_SECONDS = 0.100
LONG_SECONDS = 1.0
MOST = 512
MOST_BYTES = 4 * 1024 * 1024
# Below this, one task waits at the door: a slot need not stand idle through confirm, ack and delivery. That
# it may wait there while a slot elsewhere is free costs less than a round trip to the broker for every task.
DOOR_SECONDS = 0.250
# Among short tasks a long one may come at any time; for so long after one, nothing is held behind a slot.
CALM_SECONDS = 30.0
# A child gets so much work at once: to hand over the shortest tasks one by one costs more than to run them.
BUNDLE_SECONDS = 0.010
BUNDLE_MOST = 8
BUNDLE_MOST_BYTES = 64 * 1024
LOWER_SECONDS = 5.0
_WEIGHT = 0.1
_OUTLIER = 4
_OUTLIER_LEAST_SECONDS = 0.001


def is_short(mean_seconds: float | None, calm_seconds: float, was_short: bool) -> bool:
    """Tell whether tasks are so short that deliveries are held ahead; twice the limit ends it again."""
    if mean_seconds is None or calm_seconds < CALM_SECONDS:
        return False
    return mean_seconds < SHORT_SECONDS * (2 if was_short else 1)


def wanted_prefetch(slots: int, mean_seconds: float | None, short: bool, mean_bytes: float = 0.0) -> int:
    """Return how many un-acked deliveries to ask for.

    Args:
        slots: number of slots.
        mean_seconds: mean duration of recent tasks as the parent sees it, None if none has ended yet.
        short: what `is_short` says.
        mean_bytes: mean size of recent messages.

    Returns:
        As many as there are slots, and one more for tasks of under 250 ms; while tasks are short, up to 100 ms
        of work a slot, at most 512 and 4 MiB in all.
    """
    if mean_seconds is None:
        return slots
    if not short:
        return slots + (mean_seconds < DOOR_SECONDS)
    ahead = int(WORK_AHEAD_SECONDS / max(mean_seconds, 1e-6))
    most = most_by_size(mean_bytes)
    return max(slots + 1, min(slots * max(2, ahead), most))


def most_by_size(mean_bytes: float) -> int:
    """Return how many messages of such a size may be held."""
    return min(MOST, int(MOST_BYTES / max(mean_bytes, 1.0)))


def bundle_size(slots: int, waiting: int, mean_seconds: float, mean_bytes: float) -> int:
    """Return how many tasks a child gets at once, at least 1.

    Args:
        slots: number of slots; each is to get as much.
        waiting: how many tasks wait beside the one that is to be run.
        mean_seconds: mean duration of recent tasks as the parent sees it.
        mean_bytes: mean size of recent messages.
    """
    by_time = int(BUNDLE_SECONDS / max(mean_seconds, 1e-6))
    by_size = int(BUNDLE_MOST_BYTES / max(mean_bytes, 1.0))
    return max(1, min(BUNDLE_MOST, 1 + waiting // slots, by_time, by_size))


def worth_raising(current: int, wanted: int) -> bool:
    """Tell whether more deliveries are worth a new subscription: half as many again."""
    return wanted >= current * 1.5


def worth_lowering(current: int, wanted: int) -> bool:
    """Tell whether fewer deliveries are worth it: an eighth or less, and that for `LOWER_SECONDS` without a break.

    Going down hands back what is on its way, and up to RabbitMQ 4.2 each hand-back counts as a failed delivery. So
    neither a task that is a little slower than the others nor a busy machine must bring the prefetch down.
    """
    return wanted <= current / 8


def moving_mean(mean: float | None, value: float) -> float:
    """Return the exponentially weighted mean after one more value."""
    return value if mean is None else mean + _WEIGHT * (value - mean)


def steady_mean(mean_seconds: float | None, seconds: float) -> float:
    """Return the exponentially weighted mean of durations after one more task.

    An outlier counts as four times the mean: when a busy machine lets one task wait, nothing is to be concluded from
    that, while twenty slow tasks in a row still take the mean from a millisecond to where it belongs.
    """
    if mean_seconds is not None:
        seconds = min(seconds, _OUTLIER * max(mean_seconds, _OUTLIER_LEAST_SECONDS))
    return moving_mean(mean_seconds, seconds)
