"""Say how long to wait after failures in a row."""

from __future__ import annotations


def backoff_seconds(failures: int, first: float, longest: float) -> float:
    """Return `first` after one failure, twice as much after each more, at most `longest`; 0 after none."""
    if failures < 1:
        return 0.0
    return float(min(longest, first * 2.0 ** min(failures - 1, 60)))
