"""Read .csv files: a header, then one record of text fields per row; nothing is guessed and nothing typed."""

from __future__ import annotations

import csv
import io
import os
from array import array
from typing import TYPE_CHECKING, BinaryIO

from overnight_common.datasets.base import check_range
from overnight_common.datasets.fingerprinting import Stamp, fingerprint_file, is_current
from overnight_common.datasets.lines import decode_line, numbered_lines
from overnight_common.datasets.rows import read_at
from overnight_common.errors import BadInputError, DataChangedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from overnight_common.datasets.base import Kind

MAX_FIELD_CHARS = 16 * 1024 * 1024


class TableDataSet:
    """Hold a .csv file by the offsets of its rows; a point is a dict of column -> text."""

    kind: Kind = "records"

    def __init__(self, uri: str, path: Path, delimiter: str) -> None:
        """Open `path`, and read it once to find and check every row.

        Raises:
            BadInputError: there is no header, or a row does not fit it; says which.
        """
        self.uri = uri
        self._path = path
        self._delimiter = delimiter
        self._file: BinaryIO = path.open("rb")
        try:
            self._stamp = Stamp.of(os.fstat(self._file.fileno()))
            scan = _Scan(self._file, path, delimiter)
            self._columns = scan.columns()
            self._offsets = array("Q", scan.row_offsets(self._columns))
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, start: int, stop: int) -> list[dict[str, str]]:
        """Return the records `[start, stop)`."""
        check_range(start, stop, len(self))
        first, end = self._offsets[start], self._offsets[stop]
        try:
            text = read_at(self._file, first, end - first).decode("utf-8")
            rows = [row for row in _reader(io.StringIO(text, newline="\n"), self._delimiter) if row]
        except (ValueError, csv.Error) as error:
            raise DataChangedError(f"{self._path} was changed while in use: {error}") from error
        if len(rows) != stop - start or any(len(row) != len(self._columns) for row in rows):
            raise DataChangedError(f"{self._path} was changed while in use")
        return [dict(zip(self._columns, row, strict=True)) for row in rows]

    def fingerprint(self) -> str:
        """Return the fingerprint of the file as it is now."""
        return fingerprint_file(self._path)

    def is_current(self) -> bool:
        """Tell whether the file is still the one that was opened."""
        return is_current(self._path, self._stamp)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def open_table(uri: str, path: Path, delimiter: str) -> TableDataSet:
    """Open a .csv file; raises BadInputError."""
    return TableDataSet(uri, path, delimiter)


class _Scan:
    """Go through a file once, row by row, knowing at which byte and line each row begins."""

    def __init__(self, file: BinaryIO, path: Path, delimiter: str) -> None:
        self._path = path
        self._delimiter = delimiter
        self._source = numbered_lines(file, path)
        self._rows = _reader(self._lines(), delimiter)
        self._pending: list[str] = []  # the lines of the row that is being read
        self._line = 0
        self._end = 0  # offset of what has not been read

    def columns(self) -> list[str]:
        """Return the names in the header."""
        for _, _, row in self._each():
            twice = sorted({name for name in row if row.count(name) > 1})
            if twice:
                raise BadInputError(
                    f"{self._path}: the header names column {twice[0]!r} more than once; rename one"
                )
            return row
        raise BadInputError(f"{self._path} is an empty file: a header with the names of the columns was due")

    def row_offsets(self, columns: list[str]) -> Iterator[int]:
        """Yield the offset of each row, and then of the end."""
        due = len(columns)
        for number, (offset, line, row) in enumerate(self._each(), start=1):
            if len(row) != due:
                were = "was" if due == 1 else "were"
                raise BadInputError(
                    f"{self._path}: row {number} (line {line}) has {_fields(len(row))} where {due} {were} "
                    f"due; if {self._delimiter!r} is not what separates fields, name the delimiter: "
                    f"{self._path.name}:delimiter=;"
                )
            yield offset
        yield self._end

    def _each(self) -> Iterator[tuple[int, int, list[str]]]:
        """Yield offset, line and fields of each row that is not blank."""
        while True:
            offset, line = self._end, self._line + 1
            self._pending.clear()
            try:
                row = next(self._rows, None)
            except csv.Error as error:
                raise BadInputError(self._explain(error, line)) from error
            if row is None:
                return
            if row:
                yield offset, line, row

    def _lines(self) -> Iterator[str]:
        for number, raw, offset in self._source:
            self._line = number
            self._end = offset + len(raw)
            text = decode_line(raw, number, self._path)
            if raw.endswith(b"\n"):
                text += "\r\n" if raw.endswith(b"\r\n") else "\n"
            self._pending.append(text)
            yield text

    def _explain(self, error: csv.Error, first_line: int) -> str:
        opened = first_line + _line_of_open_quote("".join(self._pending), self._delimiter)
        if "unexpected end of data" in str(error):
            return f"{self._path}: a quote opened on line {opened} never closes"
        if "field limit" in str(error):
            return (
                f"{self._path}: a field that begins on line {opened} has more than {MAX_FIELD_CHARS} "
                "characters; does a quote there never close?"
            )
        return f"{self._path}: row at line {first_line} is no CSV: {error}"


def _reader(lines: Iterator[str] | io.StringIO, delimiter: str) -> Iterator[list[str]]:
    # The limit is the whole process's; Python's own of 128 KiB is too small for a text as a field.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    return csv.reader(lines, delimiter=delimiter, strict=True)


def _line_of_open_quote(text: str, delimiter: str) -> int:
    """Return how many lines below the start of `text` the quote stands that is open at its end."""
    opened, is_open, at_field_start = 0, False, True
    i = 0
    while i < len(text):
        character = text[i]
        if is_open:
            if character == '"':
                if text[i + 1 : i + 2] == '"':
                    i += 1
                else:
                    is_open = False
        elif character == '"' and at_field_start:
            is_open, opened = True, i
        at_field_start = not is_open and character in (delimiter, "\n")
        i += 1
    return text.count("\n", 0, opened)


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"
