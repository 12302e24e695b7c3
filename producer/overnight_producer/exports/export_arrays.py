"""Write results as rows of one array, `.npy` or `.npz`, in order, without holding them all.

The first result that is an array or a number fixes dtype and shape. A row that is not the point's result
(no result yet, given up, done without a value, another shape) is NaN, NaT or zero, and False in the mask.
"""

from __future__ import annotations

import io
import zipfile
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from overnight_common.npy_format import write_header

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]

_CHUNK_BYTES = 1 << 20
_NUMBERS = "biufcmM"
# What a row without a result holds, by kind of dtype; zero where the kind has nothing for it.
_NOTHING: dict[str, Any] = {"f": np.nan, "c": complex(np.nan, np.nan), "m": "NaT", "M": "NaT"}


def row_type(value: object) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return dtype and shape of the row that a result makes, or None if it makes none (text, records)."""
    item = _as_row(value)
    return None if item is None else (item.dtype, item.shape)


class ArrayRows:
    """Take results in order and write them as one .npy stream of `points` rows."""

    def __init__(
        self, file: IO[bytes], start: int, points: int, on_misfit: Callable[[int, Any], None]
    ) -> None:
        self._file = file
        self._start = start
        self._points = points
        self._on_misfit = on_misfit
        self._type: tuple[np.dtype[Any], tuple[int, ...]] | None = None
        self._before = 0  # rows without a result that came before the type was known
        self.done = np.zeros(points, dtype=bool)

    def missing(self, count: int) -> None:
        """Write rows for `count` points that have no result to show."""
        if self._type is None:
            self._before += count
        else:
            self._fill(count)

    def values(self, start: int, values: Array | list[Any]) -> None:
        """Write the results of the points from `start` on, one row each."""
        if self._type is None:
            self._fix_type(values)
        if self._type is None:
            self._refuse(start, values)
        elif isinstance(values, np.ndarray) and (values.dtype, values.shape[1:]) == self._type:
            self._file.write(values.tobytes())
            self._mark(start, len(values))
        else:
            for index, value in enumerate(values, start):
                self._write_one(index, value)

    def finish(self) -> None:
        """Write what is still due; without any fitting result all rows are NaN."""
        if self._type is None:
            self._begin((np.dtype(np.float64), ()))

    def _fix_type(self, values: Array | list[Any]) -> None:
        for value in values:
            found = row_type(value)
            if found is not None:
                self._begin(found)
                return

    def _begin(self, type_: tuple[np.dtype[Any], tuple[int, ...]]) -> None:
        self._type = type_
        dtype, shape = type_
        self._file.write(write_header(dtype, (self._points, *shape), False))
        self._fill(self._before)

    def _fill(self, count: int) -> None:
        assert self._type is not None
        dtype, shape = self._type
        row = np.zeros(shape, dtype)
        if dtype.kind in _NOTHING:
            row[...] = _NOTHING[dtype.kind]
        at_once = max(1, min(count, _CHUNK_BYTES // max(row.nbytes, 1)))
        block = row.tobytes() * at_once
        for done in range(0, count, at_once):
            self._file.write(block[: (min(at_once, count - done)) * row.nbytes])

    def _write_one(self, index: int, value: object) -> None:
        item = _as_row(value)
        fitting = None if item is None else _fitted(item, self._type)
        if fitting is None:
            self._refuse(index, [value])
        else:
            self._file.write(fitting.tobytes())
            self._mark(index, 1)

    def _mark(self, start: int, count: int) -> None:
        self.done[start - self._start : start - self._start + count] = True

    def _refuse(self, start: int, values: Array | list[Any]) -> None:
        for index, value in enumerate(values, start):
            self._on_misfit(index, value)
        self.missing(len(values))


def write_mask(file: IO[bytes], done: Array) -> None:
    """Write the mask of done rows as .npy."""
    file.write(write_header(done.dtype, done.shape, False))
    file.write(done.tobytes())


class ZippedRows(ArrayRows):
    """Write the rows as `results` of an .npz, beside `done` (the mask) and `index` (each its point)."""

    def __init__(
        self, file: IO[bytes], start: int, points: int, on_misfit: Callable[[int, Any], None]
    ) -> None:
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        self._member = self._archive.open(_entry("results"), "w", force_zip64=True)
        super().__init__(self._member, start, points, on_misfit)

    def finish(self) -> None:
        """Write what is still due, then the other members."""
        super().finish()
        self._member.close()
        index = np.arange(self._start, self._start + self._points, dtype=np.int64)
        for name, array in (("done", self.done), ("index", index)):
            body = io.BytesIO()
            write_mask(body, array)
            self._archive.writestr(_entry(name), body.getvalue())
        self._archive.close()

    def abandon(self) -> None:
        """Let go of the archive after an error; the file is thrown away by its owner."""
        self._member.close()
        self._archive.close()


def _entry(name: str) -> zipfile.ZipInfo:
    # A fixed time: the same results make the same bytes.
    return zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))


def _as_row(value: object) -> Array | None:
    if not isinstance(value, bool | int | float | complex | list | np.generic | np.ndarray):
        return None
    try:
        item = np.asarray(value)
    except (ValueError, OverflowError):  # a ragged list
        return None
    structured = item.dtype.names is not None and not item.dtype.hasobject
    return item if item.dtype.kind in _NUMBERS or structured else None


def _fitted(row: Array, type_: tuple[np.dtype[Any], tuple[int, ...]] | None) -> Array | None:
    assert type_ is not None
    dtype, shape = type_
    if row.shape != shape:
        return None
    if row.dtype == dtype:
        return row
    alike = row.dtype.kind == dtype.kind or {row.dtype.kind, dtype.kind} <= set("biufc")
    if not alike or not np.can_cast(row.dtype, dtype, "safe"):
        return None
    cast = row.astype(dtype)
    # "Safe" is not exact for large integers in floats.
    with np.errstate(invalid="ignore"):
        exact = row.dtype.kind not in "iu" or bool((cast.astype(row.dtype) == row).all())
    return cast if exact else None
