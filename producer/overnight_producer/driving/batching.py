"""Choose how many points go into the next task, from how long the latest ones took; pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace

_LATEST = 9  # tasks: enough that one slow start or one quick failure does not sway the median


@dataclass(frozen=True, slots=True)
class Limits:
    """Bound the size of a task.

    Attributes:
        target_seconds: how long a task should take.
        max_points: most points in a task.
        max_result_bytes: most bytes of results expected in a reply.
        growth: a task has at most this many times the points of the largest one measured.
    """

    target_seconds: float = 2.0
    max_points: int = 1_000
    max_result_bytes: int = 4 * 1024 * 1024
    growth: int = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """Hold what is known of a method's speed.

    Attributes:
        seconds_per_point: of the latest tasks, the oldest first.
        largest_points: points of the largest task measured, 0 before the first.
        result_bytes_per_point: largest seen.
    """

    seconds_per_point: tuple[float, ...] = ()
    largest_points: int = 0
    result_bytes_per_point: float = 0.0


def measured(pace: Pace, points: int, seconds: float, result_bytes: int = 0) -> Pace:
    """Return the pace after one more task was done.

    Args:
        pace: as it was.
        points: points of the task; 0 (a probe) tells nothing.
        seconds: how long the method ran.
        result_bytes: size of its results.
    """
    if points <= 0:
        return pace
    return replace(
        pace,
        seconds_per_point=(*pace.seconds_per_point, max(seconds, 0.0) / points)[-_LATEST:],
        largest_points=max(pace.largest_points, points),
        result_bytes_per_point=max(pace.result_bytes_per_point, result_bytes / points),
    )


def next_points(pace: Pace, remaining: int, slots: int, limits: Limits | None = None) -> int:
    """Return how many points the next task gets: at least 1, at most `remaining`.

    Args:
        pace: what is known; with nothing known a task has one point.
        remaining: points not yet cut, at least 1.
        slots: slots seen; the last tasks stay small enough that none of them is idle at the end.
        limits: bounds; None for the usual ones.
    """
    limits = limits or Limits()
    bounds = [
        _points_of_target(pace, limits),
        limits.max_points,
        _fitting(pace.result_bytes_per_point, limits),
        math.ceil(remaining / (2 * max(slots, 1))),
        remaining,
    ]
    return max(1, min(bounds))


def expected_seconds(pace: Pace, points: int) -> float:
    """Return how long a task of so many points should take; 0 while nothing is known."""
    return points * statistics.median(pace.seconds_per_point) if pace.seconds_per_point else 0.0


def _points_of_target(pace: Pace, limits: Limits) -> int:
    if not pace.seconds_per_point:
        return 1
    each = statistics.median(pace.seconds_per_point)
    proven = limits.growth * pace.largest_points
    if each * proven <= limits.target_seconds:  # also when a point takes no measurable time at all
        return proven
    return int(limits.target_seconds / each)


def _fitting(result_bytes_per_point: float, limits: Limits) -> int:
    if result_bytes_per_point <= 0:
        return limits.max_points
    # As a float first: a tiny size per point would make a number that no int conversion likes.
    return int(min(limits.max_result_bytes / result_bytes_per_point, limits.max_points))
