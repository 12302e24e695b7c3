"""Count: the data set `range:N` is the numbers 0 to N - 1, for methods that find their own data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight_common.datasets.base import check_range
from overnight_common.errors import BadInputError

if TYPE_CHECKING:
    from overnight_common.datasets.base import Kind

PREFIX = "range:"


class RangeDataSet:
    """Hold the numbers 0 to N - 1."""

    kind: Kind = "range"

    def __init__(self, length: int) -> None:
        """Make the data set of `length` numbers."""
        self.uri = f"{PREFIX}{length}"
        self._length = length

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the numbers `[start, stop)` as int64."""
        check_range(start, stop, self._length)
        return np.arange(start, stop, dtype=np.int64)

    def fingerprint(self) -> str:
        """Return the URI: nothing else can change."""
        return self.uri

    def is_current(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Do nothing."""


def open_range(uri: str) -> RangeDataSet:
    """Open `range:N`; raises BadInputError."""
    text = uri.removeprefix(PREFIX).strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise BadInputError(f"{uri!r} is no range: write how many points, for example range:1000")
    length = int(text)
    if length < 0:
        raise BadInputError(f"{uri!r} is no range: a range needs 0 or more points")
    if length > np.iinfo(np.int64).max:
        raise BadInputError(f"{uri!r} is no range: more than {np.iinfo(np.int64).max} points")
    return RangeDataSet(length)
