"""Export the results of a job to one file, in the order of its points, also while it runs."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from overnight_common.errors import BadInputError, DecodeError, OvernightError
from overnight_common.values import decode_values
from overnight_producer.exports.export_arrays import ArrayRows, ZippedRows, row_type, write_mask
from overnight_producer.exports.export_text import CsvRows, JsonLines, cell
from overnight_producer.exports.new_file import new_file
from overnight_producer.exports.plain_json import json_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from overnight_common.messages import Encoded
    from overnight_producer.jobs.jobfile import JobFile

FORMATS = (".npy", ".npz", ".jsonl", ".csv")
_ARRAYS = (".npy", ".npz")


class ExportError(OvernightError):
    """Say that the results could not be written; they are still in the job file."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Tell what an export wrote.

    Attributes:
        path: the file that was asked for.
        points: rows in it.
        missing: points without a result, given-up ones too.
        without_value: points that are done but gave no value.
        misfits: results that do not fit the file and are in `others`.
        done_mask: file of the mask, None if every row is a result or the format needs none.
        others: `.jsonl` file of the misfits, None if there are none.
        notes: what the user must be told, a sentence each.
    """

    path: Path
    points: int
    missing: int
    without_value: int
    misfits: int
    done_mask: Path | None
    others: Path | None
    notes: tuple[str, ...]


class Rows(Protocol):
    """Take every point of a job in order, with a result or without."""

    def missing(self, count: int) -> None:
        """Take `count` points that have no result to show."""

    def values(self, start: int, values: np.ndarray[Any, Any] | list[Any]) -> None:
        """Take the results of the points from `start` on."""

    def finish(self) -> None:
        """Write what is still due."""


def check_output(path: Path, inputs: Sequence[Path] = ()) -> list[str]:
    """Return what speaks against exporting to `path`, a sentence each; empty if nothing does.

    Args:
        path: where the results are to go.
        inputs: files that must not be overwritten, such as the data set.
    """
    faults = []
    if path.suffix not in FORMATS:
        faults.append(f"{path}: the format is not known by its ending; use one of {', '.join(FORMATS)}")
    if path.is_dir():
        faults.append(f"{path} is a folder; give the name of a file in it")
    elif path.exists() and not path.is_file():
        faults.append(f"{path} is not a regular file; give the name of a new one")
    if path.exists() and any(each.exists() and path.samefile(each) for each in inputs):
        faults.append(f"{path} is the data set itself; give another name for the results")
    if not path.parent.is_dir():
        faults.append(f"the folder {path.parent.absolute()} does not exist; make it, or give another")
    elif not faults:
        try:
            with new_file(path.with_name(f".{path.name}.check")):
                pass
            path.with_name(f".{path.name}.check").unlink()
        except OSError as error:
            faults.append(f"{path} cannot be written: {error.strerror or error}")
    return faults


def check_first_result(encoded: Encoded | None, path: Path, points: int) -> str | None:
    """Return why a job's results will not fit into `path`, judged by the first of them, or None.

    Args:
        encoded: results of the first task that was done; None if it gave no values.
        path: where the results are to go.
        points: how many points the job has.
    """
    if encoded is None:
        return f"the method gives no values (it saves its own results?), so {path.name} would hold none"
    values = decode_values(encoded)
    if len(values) == 0:
        return None
    first = values[0]
    if path.suffix in _ARRAYS:
        found = row_type(first)
        if found is None:
            kind = type(first).__name__
            return (
                f"a result is a {kind}, which is no row of an array; export to .jsonl or .csv instead of"
                f" {path.suffix}"
            )
        row_bytes = found[0].itemsize * int(np.prod(found[1], dtype=np.int64))
    else:
        row_bytes = len(json_line(first)) if path.suffix == ".jsonl" else len(cell(first)) + 8
    try:
        free_bytes = shutil.disk_usage(path.parent).free
    except OSError as error:
        return f"{path} cannot be written: {error.strerror or error}"
    if row_bytes * points > free_bytes:
        return (
            f"{path.name} will need about {row_bytes * points / 1e9:.1f} GB, and {path.parent.absolute()} has"
            f" {free_bytes / 1e9:.1f} GB free"
        )
    return None


def export(job: JobFile, path: Path) -> Exported:
    """Write the results that the job has now; row i is point `start + i`.

    The file appears when it is whole. A point without a result is null (`.jsonl`), empty cells (`.csv`), or
    NaN, NaT or zero (`.npy`, `.npz`) with a mask of done rows beside it. Results that do not fit go to
    `<name>.others.jsonl`.

    Raises:
        BadInputError: the ending of `path` is not known.
        ExportError: it cannot be written.
        JobFileError: the job file cannot be read.
    """
    if path.suffix not in FORMATS:
        raise BadInputError(f"{path}: the format is not known; use one of {', '.join(FORMATS)}")
    try:
        return _Export(job, path).write()
    except OSError as error:
        raise ExportError(
            f"{path} cannot be written: {error.strerror or error}; the results are safe in the job file,"
            " export again with `overnight export`"
        ) from error


class _Export:
    def __init__(self, job: JobFile, path: Path) -> None:
        self._job = job
        self._path = path
        self._mask_path = path.with_name(f"{path.stem}.done.npy")
        self._others_path = path.with_name(f"{path.name}.others.jsonl")
        self._others: IO[bytes] | None = None
        self._missing = self._without_value = self._misfits = self._damaged = 0

    def write(self) -> Exported:
        mask = None
        with ExitStack() as stack:
            rows = self._open_rows(stack)
            self._copy(rows)
            rows.finish()
            if type(rows) is ArrayRows and not rows.done.all():
                mask = self._mask_path
                write_mask(stack.enter_context(new_file(mask)), rows.done)
        # What an earlier export left beside it would now be wrong.
        if mask is None and self._path.suffix == ".npy":
            self._mask_path.unlink(missing_ok=True)
        if not self._misfits:
            self._others_path.unlink(missing_ok=True)
        return Exported(
            path=self._path,
            points=self._job.spec.points,
            missing=self._missing,
            without_value=self._without_value,
            misfits=self._misfits,
            done_mask=mask,
            others=self._others_path if self._misfits else None,
            notes=tuple(self._notes(mask)),
        )

    def _open_rows(self, stack: ExitStack) -> Rows:
        spec = self._job.spec

        def on_misfit(index: int, value: Any) -> None:
            if self._others is None:
                self._others = stack.enter_context(new_file(self._others_path))
            self._others.write(b'{"index": %d, "value": %s}\n' % (index, json_line(value)))
            self._misfits += 1

        file = stack.enter_context(new_file(self._path))
        match self._path.suffix:
            case ".npy":
                return ArrayRows(file, spec.start, spec.points, on_misfit)
            case ".npz":
                zipped = ZippedRows(file, spec.start, spec.points, on_misfit)
                stack.callback(zipped.abandon)
                return zipped
            case ".csv":
                return CsvRows(file, spec.start, on_misfit)
        return JsonLines(file)

    def _copy(self, rows: Rows) -> None:
        spec = self._job.spec
        position = spec.start
        for result in self._job.results():
            self._skip(rows, result.start - position)
            position = result.stop
            if result.encoded is None:
                self._without_value += result.stop - result.start
                rows.missing(result.stop - result.start)
                continue
            try:
                values = decode_values(result.encoded)
            except DecodeError:
                values = []
            if len(values) == result.stop - result.start:
                rows.values(result.start, values)
            else:
                self._damaged += result.stop - result.start
                self._skip(rows, result.stop - result.start)
        self._skip(rows, spec.stop - position)

    def _skip(self, rows: Rows, count: int) -> None:
        if count:
            self._missing += count
            rows.missing(count)

    def _notes(self, mask: Path | None) -> list[str]:
        notes = []
        if self._missing:
            empty = {".jsonl": "null", ".csv": "left empty"}.get(self._path.suffix, "NaN or zero")
            where = f"; {mask.name} tells which rows are results" if mask else ""
            notes.append(f"{_points(self._missing)} without a result: {empty}{where}")
        if self._without_value:
            notes.append(f"{_points(self._without_value)} done without a value")
        if self._misfits:
            notes.append(
                f"the results of {_points(self._misfits)} do not fit {self._path.name}, whose shape and type are those"
                f" of the first number or array: they are in {self._others_path.name}"
            )
        if self._damaged:
            notes.append(f"the results of {_points(self._damaged)} in the job file are damaged")
        return notes


def _points(count: int) -> str:
    return "1 point" if count == 1 else f"{count:,} points"
