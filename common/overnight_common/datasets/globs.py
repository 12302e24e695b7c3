"""List the paths that match a pattern: the data set `glob:PATTERN`, whose points are paths."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING

from overnight_common.datasets.base import check_range
from overnight_common.datasets.fingerprinting import fingerprint_paths
from overnight_common.errors import BadInputError, DataChangedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight_common.datasets.base import Kind

PREFIX = "glob:"


class GlobDataSet:
    """Hold the absolute paths that match a pattern, sorted by code point."""

    kind: Kind = "paths"

    def __init__(self, uri: str, pattern: str, paths: list[str]) -> None:
        """Hold `paths`, which matched the absolute `pattern`."""
        self.uri = uri
        self._pattern = pattern
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, start: int, stop: int) -> list[str]:
        """Return the paths `[start, stop)`."""
        check_range(start, stop, len(self))
        return self._paths[start:stop]

    def fingerprint(self) -> str:
        """Return a hash over the paths that match now, with sizes and times."""
        paths = matching(self._pattern)
        return fingerprint_paths(paths, _sizes_and_times(paths))

    def is_current(self) -> bool:
        """Return True: a look at every file would not be cheap."""
        return True

    def close(self) -> None:
        """Do nothing."""


def absolute_pattern(pattern: str) -> str:
    """Return a pattern that matches the same from any folder."""
    if os.path.isabs(pattern):  # noqa: PTH117 - a pattern is no path: Path would fold its parts
        return pattern
    return os.path.join(glob.escape(os.getcwd()), pattern.removeprefix("./"))  # noqa: PTH109, PTH118


def open_glob(uri: str, pattern: str) -> GlobDataSet:
    """List what matches the absolute `pattern`; raises BadInputError if that is nothing."""
    paths = matching(pattern)
    if not paths:
        folder, name = os.path.split(pattern)
        raise BadInputError(
            f"no file matches {name!r} in {folder}: look at the spelling, or give a pattern such as "
            "'glob:images/**/*.png' in quotes"
        )
    return GlobDataSet(uri, pattern, paths)


def matching(pattern: str) -> list[str]:
    """Return the paths that match now, sorted by code point; `**` goes through folders."""
    return sorted(set(glob.glob(pattern, recursive=True)))  # noqa: PTH207 - Path.glob takes no absolute pattern


def _sizes_and_times(paths: list[str]) -> Iterator[tuple[int, int]]:
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - a million times
        except OSError as error:
            raise DataChangedError(f"{path} can no longer be read: {error.strerror}") from error
        yield status.st_size, status.st_mtime_ns
