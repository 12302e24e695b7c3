"""Open the data set that a URI names."""

from __future__ import annotations

import difflib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from overnight_common.datasets import globs, ranges
from overnight_common.datasets.idx import GZIP_MAGIC, looks_like_idx, open_idx
from overnight_common.datasets.lines import open_json_lines, open_text
from overnight_common.datasets.npy import open_npy, open_npz
from overnight_common.datasets.tables import open_table
from overnight_common.errors import BadInputError

if TYPE_CHECKING:
    from overnight_common.datasets.base import DataSet

# A path that is no text (a file name in some old encoding) is written as percent-encoded bytes.
_BYTES_PREFIX = "bytes:"
_KEY = re.compile(r"(?P<path>.+?\.npz):(?P<option>.+)", re.DOTALL | re.IGNORECASE)
_DELIMITER = re.compile(r"(?P<path>.+?\.csv):(?P<option>delimiter=.*)", re.DOTALL | re.IGNORECASE)
FORMATS = (
    ".npy, .npz (file.npz:key), IDX (also gzipped), .csv (file.csv:delimiter=;), .jsonl, .txt, "
    "glob:PATTERN, range:N"
)


def open_dataset(uri: str) -> DataSet:
    """Open a data set.

    Args:
        uri: a path, `file.npz:key`, `file.csv:delimiter=;` (one character, or `tab`), `glob:PATTERN` or
            `range:N`.

    Raises:
        BadInputError: it is missing, of no known format, or damaged; says which and what to do.
    """
    if uri.startswith(_BYTES_PREFIX):
        uri = os.fsdecode(unquote_to_bytes(uri.removeprefix(_BYTES_PREFIX)))
    if uri.startswith(ranges.PREFIX):
        return ranges.open_range(uri)
    if uri.startswith(globs.PREFIX):
        pattern = globs.absolute_pattern(uri.removeprefix(globs.PREFIX))
        return globs.open_glob(_as_text(globs.PREFIX + pattern), pattern)
    name, option = _split(uri)
    path = _absolute(name)
    _check_file(name, path)
    try:
        return _open_file(_as_text(f"{path}:{option}" if option else str(path)), path, option)
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from error


def _split(uri: str) -> tuple[str, str | None]:
    """Return the path and what follows it: a key or an option. A file of exactly that name comes first."""
    for pattern in (_KEY, _DELIMITER):
        match = pattern.fullmatch(uri)
        if match and not os.path.lexists(uri):
            return match["path"], match["option"]
    return uri, None


def _open_file(uri: str, path: Path, option: str | None) -> DataSet:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return open_npz(uri, path, option)
    if suffix == ".csv":
        return open_table(uri, path, _delimiter(option))
    if suffix == ".npy":
        return open_npy(uri, path)
    if suffix == ".jsonl":
        return open_json_lines(uri, path)
    if suffix == ".txt":
        return open_text(uri, path)
    with path.open("rb") as file:
        head = file.read(4)
    if looks_like_idx(head) or head.startswith(GZIP_MAGIC):
        return open_idx(uri, path)
    if suffix == ".parquet":
        raise BadInputError(f"{path}: Parquet comes with a later version; for now write it as .csv or .npy")
    raise BadInputError(f"{path} is of no known format; known are {FORMATS}")


def _delimiter(option: str | None) -> str:
    if option is None:
        return ","
    given = option.partition("=")[2]
    delimiter = "\t" if given in ("tab", "\\t") else given
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise BadInputError(f"{option!r}: a delimiter is one character, or `tab`; for example delimiter=;")
    return delimiter


def _absolute(name: str) -> Path:
    """Return an absolute path without `.` and, unless a link stands before it, without `..`."""
    plain = Path(os.path.abspath(name))  # noqa: PTH100 - Path.absolute keeps `..`
    unfolded = Path.cwd() / name
    try:
        return plain if plain.samefile(unfolded) else unfolded
    except (OSError, ValueError):
        return plain


def _check_file(name: str, path: Path) -> None:
    """Raise BadInputError unless there is such a file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise BadInputError(_missing(name, path)) from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from error
    if stat.S_ISDIR(mode):
        raise BadInputError(f"{path} is a folder: name a file in it, or take all with 'glob:{name or '.'}/*'")
    if not stat.S_ISREG(mode):
        raise BadInputError(f"{path} is no file that can be read twice: save what it gives in a file first")


def _missing(name: str, path: Path) -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", name)
    text = f"there is no file {path} (the current folder is {Path.cwd()})"
    try:
        near = difflib.get_close_matches(path.name, os.listdir(path.parent))  # noqa: PTH208 - names are enough
    except OSError:
        near = []
    if near:
        text += f"; near it: {', '.join(map(repr, near))}"
    if scheme and scheme[1].lower() not in ("c", "d"):
        text += f"; if {scheme[1]!r} is meant as a kind of data set: known are {FORMATS}"
    return text


def _as_text(uri: str) -> str:
    try:
        uri.encode("utf-8")
    except UnicodeEncodeError:
        return _BYTES_PREFIX + quote(os.fsencode(uri))
    return uri
