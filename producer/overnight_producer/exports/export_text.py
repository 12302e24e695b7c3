"""Write results as text, one line per point: `.jsonl` (see `plain_json`) and `.csv`, in order."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from overnight_producer.exports.plain_json import json_line, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Array = np.ndarray[Any, np.dtype[Any]]


class JsonLines:
    """Write each result as one line of JSON; a point without a result is `null`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def missing(self, count: int) -> None:
        """Write `count` points that have no result to show."""
        for done in range(0, count, 10_000):
            self._file.write(b"null\n" * min(10_000, count - done))

    def values(self, start: int, values: Array | list[Any]) -> None:  # noqa: ARG002 - the line says which point
        """Write the results of the points from `start` on."""
        self._file.writelines(json_line(value) + b"\n" for value in values)

    def finish(self) -> None:
        """Do nothing: there is no end mark."""


class CsvRows:
    """Write each result as one row that begins with `index`; a point without a result has empty cells.

    The first result fixes the columns: the keys of a record, `v0` ... of a one-dimensional array, else
    `value`. What is nested in a cell is JSON text. A record may leave keys out.
    """

    def __init__(self, file: IO[bytes], start: int, on_misfit: Callable[[int, Any], None]) -> None:
        # Half a surrogate pair has no bytes in UTF-8; its escape is better than no export.
        self._text = io.TextIOWrapper(
            file, "utf-8", errors="backslashreplace", newline="", write_through=False
        )
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._next = start
        self._on_misfit = on_misfit
        self._kind = ""
        self._columns: list[str] = []
        self._before = 0

    def missing(self, count: int) -> None:
        """Write `count` points that have no result to show."""
        if not self._kind:
            self._before += count
            return
        empty = [""] * len(self._columns)
        self._writer.writerows([index, *empty] for index in range(self._next, self._next + count))
        self._next += count

    def values(self, start: int, values: Array | list[Any]) -> None:
        """Write the results of the points from `start` on."""
        for index, value in enumerate(values, start):
            if not self._kind:
                self._begin(*_layout(value))
            cells = self._cells(value)
            if cells is None:
                self._on_misfit(index, value)
                self.missing(1)
            else:
                self._writer.writerow([self._next, *cells])
                self._next += 1

    def finish(self) -> None:
        """Write what is still due."""
        if not self._kind:
            self._begin("value", ["value"])
        self._text.flush()
        self._text.detach()

    def _begin(self, kind: str, columns: list[str]) -> None:
        self._kind, self._columns = kind, columns
        self._writer.writerow(["index", *columns])
        self.missing(self._before)

    def _cells(self, value: Any) -> Sequence[str] | None:
        kind, columns = _layout(value)
        if self._kind == "value":
            return [cell(value)]
        if kind != self._kind:
            return None
        if kind == "record":
            known = set(columns) <= set(self._columns)
            return [cell(_field(value, name)) for name in self._columns] if known else None
        return [cell(each) for each in value] if columns == self._columns else None


def cell(value: Any) -> str:
    """Return a value as the text of one cell: plain where it is plain, else JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, np.floating):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    simple = plain(value)
    return simple if isinstance(simple, str) else json_line(simple).decode()


def _layout(value: Any) -> tuple[str, list[str]]:
    if isinstance(value, dict) and value:
        return "record", list(value)
    if isinstance(value, np.void) and value.dtype.names:
        return "record", list(value.dtype.names)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.names is None:
        return "vector", [f"v{i}" for i in range(len(value))]
    return "value", ["value"]


def _field(record: Any, name: str) -> Any:
    if isinstance(record, dict):
        return record.get(name)
    return record[name] if name in record.dtype.names else None
