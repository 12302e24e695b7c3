"""Read rows of an array that lies in a file, without loading it."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from overnight_common.datasets.base import check_range
from overnight_common.datasets.fingerprinting import Stamp, fingerprint_file, is_current
from overnight_common.errors import BadInputError, DataChangedError

if TYPE_CHECKING:
    from pathlib import Path

    from overnight_common.datasets.base import Kind
    from overnight_common.npy_format import Header


class ArrayDataSet:
    """Hold an array `[n, ...]` in a file, in C or Fortran order; a point is a row.

    Rows in C order are read where they stand, not memory-mapped: a file that somebody cuts short is then an
    error that can be named, and not a bus error that kills the process. Fortran order, where a row is
    scattered over the whole file, is mapped.
    """

    kind: Kind = "array"

    def __init__(
        self, uri: str, path: Path, stamp: Stamp, file: BinaryIO, header: Header, offset_bytes: int
    ) -> None:
        """Take over `file`, in which the array's own bytes begin at `offset_bytes`.

        Args:
            uri: as of `DataSet`.
            path: the file that the user named; `file` may be an unpacked copy.
            stamp: of that file when it was opened.
            file: what to read from; closed by `close`.
            header: dtype, shape and order.
            offset_bytes: where the first row begins in `file`.
        """
        self.uri = uri
        self._path = path
        self._stamp = stamp
        self._file = file
        self._dtype = header.dtype
        self._shape = header.shape
        self._offset_bytes = offset_bytes
        self._row_bytes = math.prod(header.shape[1:]) * header.dtype.itemsize
        self._mapped: np.ndarray[Any, np.dtype[Any]] | None = None
        if header.fortran and header.body_bytes:
            self._mapped = np.memmap(file, header.dtype, "r", offset_bytes, header.shape, "F")

    def __len__(self) -> int:
        return self._shape[0]

    def read(self, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the rows `[start, stop)` as a new array in C order."""
        check_range(start, stop, len(self))
        if self._mapped is not None:
            if os.fstat(self._file.fileno()).st_size < self._offset_bytes + self._mapped.nbytes:
                raise DataChangedError(f"{self._path} was cut short while in use")
            return np.array(self._mapped[start:stop], order="C")
        due_bytes = (stop - start) * self._row_bytes
        raw = read_at(self._file, self._offset_bytes + start * self._row_bytes, due_bytes)
        if len(raw) != due_bytes:
            raise DataChangedError(f"{self._path} was cut short while in use")
        return np.ndarray((stop - start, *self._shape[1:]), self._dtype, raw)

    def fingerprint(self) -> str:
        """Return the fingerprint of the file as it is now."""
        return fingerprint_file(self._path)

    def is_current(self) -> bool:
        """Tell whether the file is still the one that was opened."""
        return is_current(self._path, self._stamp)

    def close(self) -> None:
        """Let go of the file."""
        self._mapped = None
        self._file.close()


def read_at(file: BinaryIO, offset_bytes: int, count_bytes: int) -> bytearray:
    """Return up to `count_bytes` bytes from a place in the file: fewer only at its end."""
    raw = bytearray(count_bytes)
    view = memoryview(raw)
    done = 0
    while done < count_bytes:
        got = os.preadv(file.fileno(), [view[done:]], offset_bytes + done)
        if got == 0:
            view.release()
            del raw[done:]
            break
        done += got
    return raw


def check_shape(what: str, header: Header, available_bytes: int) -> None:
    """Raise BadInputError unless an array has rows and its bytes are all there, and no more.

    Args:
        what: the file, and the array in it, in words.
        header: what is promised.
        available_bytes: what follows the header.
    """
    if not header.shape:
        raise BadInputError(
            f"{what} is a single value and has no points (0 dimensions): save an array [n, ...]"
        )
    if available_bytes < header.body_bytes:
        raise BadInputError(
            f"{what} is shorter than its header says: {header.body_bytes} bytes of data were due for shape "
            f"{header.shape} of {header.dtype}, {available_bytes} are there; copy or write it again"
        )
    if available_bytes > header.body_bytes:
        raise BadInputError(
            f"{what} is longer than its header says: {header.body_bytes} bytes of data were due for shape "
            f"{header.shape} of {header.dtype}, {available_bytes} are there; save one array in one file"
        )
