"""Open IDX files, MNIST's own format, plain or gzipped."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from overnight_common.datasets.fingerprinting import Stamp
from overnight_common.datasets.rows import ArrayDataSet, check_shape
from overnight_common.datasets.unpacking import unpack
from overnight_common.errors import BadInputError
from overnight_common.npy_format import Header

if TYPE_CHECKING:
    from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class IdxDataSet(ArrayDataSet):
    """Hold the array of an IDX file; its rows are given in this machine's byte order."""

    def read(self, start: int, stop: int) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the rows `[start, stop)` as a new array in C order."""
        rows = super().read(start, stop)
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def looks_like_idx(head: bytes) -> bool:
    """Tell whether a file that begins with these bytes (4 or more) is an IDX file."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _DTYPES


def open_idx(uri: str, path: Path) -> ArrayDataSet:
    """Open an IDX file, or a gzip file with one in it; raises BadInputError."""
    file: BinaryIO = path.open("rb", buffering=0)
    try:
        status = os.fstat(file.fileno())
        available_bytes = status.st_size
        if file.read(2) == GZIP_MAGIC:
            file.close()
            file, available_bytes = _unpacked(path)
        file.seek(0)
        header = _read_header(str(path), file)
        check_shape(str(path), header, available_bytes - header.header_bytes)
        return IdxDataSet(uri, path, Stamp.of(status), file, header, header.header_bytes)
    except BaseException:
        file.close()
        raise


def _unpacked(path: Path) -> tuple[BinaryIO, int]:
    """Return an unpacked copy and its size in bytes."""
    try:
        with gzip.open(path) as packed:
            header = _read_header(str(path), packed)
            packed.seek(0)
            file = unpack(packed, str(path), header.header_bytes + header.body_bytes)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadInputError(f"{path} is a damaged gzip file: {error}; copy or fetch it again") from error
    return file, os.fstat(file.fileno()).st_size


def _read_header(what: str, file: BinaryIO | gzip.GzipFile) -> Header:
    head = file.read(4)
    if not looks_like_idx(head):
        raise BadInputError(f"{what} is not an IDX file (it does not begin with two zeros and a type)")
    raw = file.read(4 * head[3])
    if len(raw) < 4 * head[3]:
        raise BadInputError(f"{what} is an IDX file that ends within its header; copy or fetch it again")
    shape = struct.unpack(f">{head[3]}I", raw)
    if len(shape) > 32:
        raise BadInputError(f"{what} is an IDX file of {len(shape)} dimensions, more than NumPy takes (32)")
    return Header(np.dtype(_DTYPES[head[2]]), shape, False, 4 + len(raw))
