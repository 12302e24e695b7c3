"""Read files with one point a line: .txt and .jsonl. Only a line feed, or CR LF, ends a line."""

from __future__ import annotations

import json
import os
from array import array
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

from overnight_common.datasets.base import check_range
from overnight_common.datasets.fingerprinting import Stamp, fingerprint_file, is_current
from overnight_common.datasets.rows import read_at
from overnight_common.errors import BadInputError, DataChangedError, EncodeError
from overnight_common.tags import MAX_DEPTH
from overnight_common.values import encode_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from overnight_common.datasets.base import Kind

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 64 * 1024 * 1024
_NUMBER_TO_BIG = json.JSONDecoder(parse_int=lambda digits: int(Decimal(digits)))
_PLAIN = json.JSONDecoder()


class LinesDataSet:
    """Hold a text file by the offsets of its points; a point is what `parse` makes of its line."""

    def __init__(
        self, uri: str, path: Path, kind: Kind, parse: Callable[[str], Any], *, blank_is_point: bool
    ) -> None:
        """Open `path`, and read it once to find and check every line.

        Args:
            uri: as of `DataSet`.
            path: an existing file.
            kind: as of `DataSet`.
            parse: turns a line, without its end, into a point; raises ValueError or RecursionError.
            blank_is_point: False if blank lines are passed over.

        Raises:
            BadInputError: a line is not UTF-8, or cannot be parsed; says which.
        """
        self.uri = uri
        self.kind = kind
        self._path = path
        self._parse = parse
        self._blank_is_point = blank_is_point
        self._file: BinaryIO = path.open("rb")
        try:
            self._stamp = Stamp.of(os.fstat(self._file.fileno()))
            self._offsets = array("Q", self._index())
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, start: int, stop: int) -> list[Any]:
        """Return the points `[start, stop)`."""
        check_range(start, stop, len(self))
        if start == stop:
            return []
        first, end = self._offsets[start], self._offsets[stop]
        lines = bytes(read_at(self._file, first, end - first)).removesuffix(b"\n").split(b"\n")
        try:
            texts = [_without_end(line).decode("utf-8") for line in lines]
            points = [self._parse(text) for text in texts if self._blank_is_point or text.strip()]
        except (ValueError, RecursionError) as error:
            raise DataChangedError(f"{self._path} was changed while in use: {error}") from error
        if len(points) != stop - start:
            raise DataChangedError(f"{self._path} was changed while in use")
        return points

    def fingerprint(self) -> str:
        """Return the fingerprint of the file as it is now."""
        return fingerprint_file(self._path)

    def is_current(self) -> bool:
        """Tell whether the file is still the one that was opened."""
        return is_current(self._path, self._stamp)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _index(self) -> Iterator[int]:
        """Yield the offset of each point, and then of the end."""
        offset = 0
        for number, line, start in numbered_lines(self._file, self._path):
            offset = start + len(line)
            text = decode_line(line, number, self._path)
            if text.strip() or self._blank_is_point:
                self._check(text, number)
                yield start
        yield offset

    def _check(self, text: str, number: int) -> None:
        try:
            self._parse(text)
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise BadInputError(
                f"{self._path}: line {number} is not JSON ({why}): give one whole JSON value on each line"
            ) from error


def open_text(uri: str, path: Path) -> LinesDataSet:
    """Open a .txt file, whose points are its lines, blank ones too; raises BadInputError."""
    return LinesDataSet(uri, path, "text", str, blank_is_point=True)


def open_json_lines(uri: str, path: Path) -> LinesDataSet:
    """Open a .jsonl file, whose points are JSON values; blank lines are none; raises BadInputError."""
    return LinesDataSet(uri, path, "records", _parse_json, blank_is_point=False)


def numbered_lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes, int]]:
    """Yield number (from 1), bytes with line end, and offset of each line; a byte-order mark is left out."""
    offset = len(BYTE_ORDER_MARK) if file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
    file.seek(offset)
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise BadInputError(
                f"{path}: line {number} is longer than {MAX_LINE_BYTES} bytes; is this a text file?"
            )
        yield number, line, offset
        offset += len(line)


def decode_line(line: bytes, number: int, path: Path) -> str:
    """Return a line as text without its end; raises BadInputError if it is not UTF-8."""
    try:
        return _without_end(line).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{path}: not UTF-8 at line {number}, byte {error.start} (counted from 0): convert it first, for "
            f"example with `iconv -f latin1 -t utf-8 {path.name} > utf8-{path.name}`"
        ) from error


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _parse_json(text: str) -> Any:
    try:
        value = _PLAIN.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # Python's own limit of 4300 digits
        value = _NUMBER_TO_BIG.decode(text)
    if text.count("[") + text.count("{") > MAX_DEPTH:
        try:
            encode_values([value], 1)
        except EncodeError as error:
            raise ValueError(str(error)) from error
    return value
