"""Define what every data set can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from overnight_common.datasets.fingerprinting import explain_change
from overnight_common.errors import DataChangedError

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["array", "records", "text", "paths", "range"]


class DataSet(Protocol):
    """Represent an ordered collection of points; `len()` says how many."""

    @property
    def uri(self) -> str:
        """Return what opens it again from any folder; always text that UTF-8 can hold."""

    @property
    def kind(self) -> Kind:
        """Tell what a point is: a row of an array, a record, a line of text, a path or a number."""

    def __len__(self) -> int:
        """Return how many points there are."""

    def read(self, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]] | list[Any]:
        """Return the points `[start, stop)`: an array in C order (array, range), else a list.

        Raises:
            IndexError: that is no range of it.
            DataChangedError: the file is no longer what it was when it was opened.
        """

    def fingerprint(self) -> str:
        """Return a text that changes when the data does; looks at the files as they are now.

        Raises:
            DataChangedError: they are gone.
        """

    def is_current(self) -> bool:
        """Tell, by a cheap look, whether the file is still the one that was opened."""

    def close(self) -> None:
        """Let go of the file; closing twice does no harm."""


def check_unchanged(dataset: DataSet, fingerprint: str) -> None:
    """Raise DataChangedError, saying what changed, unless the data still has this fingerprint."""
    now = dataset.fingerprint()
    if now != fingerprint:
        raise DataChangedError(
            f"{dataset.uri} is not what it was when the job was made: {explain_change(fingerprint, now)}; "
            "put the earlier data back, or start a new job for the new data"
        )


def check_current(dataset: DataSet, fingerprint: str) -> None:
    """Do what `check_unchanged` does, but only if a cheap look tells that the file is another one now."""
    if not dataset.is_current():
        check_unchanged(dataset, fingerprint)


def check_range(start: int, stop: int, length: int) -> None:
    """Raise IndexError unless `[start, stop)` lies within `length` points."""
    if not 0 <= start <= stop <= length:
        raise IndexError(f"[{start}, {stop}) is no range of {length} points")
