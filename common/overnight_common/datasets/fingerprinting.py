"""Make and compare the fingerprints of files: size, time of change and a hash of sampled blocks."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from overnight_common.errors import DataChangedError
from overnight_common.sampling import sample_file

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

_FIELDS = {
    "bytes": "size",
    "mtime_ns": "time of last change",
    "content": "content",
    "files": "number of files",
}


class Stamp(NamedTuple):
    """Hold what a cheap look at a file tells; another file under the same name has another one."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp in what `stat` said."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def is_current(path: Path, stamp: Stamp) -> bool:
    """Tell whether the file at `path` still has this stamp."""
    try:
        return Stamp.of(path.stat()) == stamp
    except OSError:
        return False


def fingerprint_file(path: Path) -> str:
    """Return the fingerprint of a file as it is now; raises DataChangedError if it is gone."""
    try:
        status = path.stat()
        content = sample_file(path).hex()
    except OSError as error:
        raise DataChangedError(f"{path} can no longer be read: {error.strerror}") from error
    return f"bytes={status.st_size} mtime_ns={status.st_mtime_ns} content={content}"


def fingerprint_paths(paths: Iterable[str], sizes_and_times: Iterable[tuple[int, int]]) -> str:
    """Return the fingerprint of a list of files: their paths, sizes in bytes and times in nanoseconds."""
    digest = hashlib.blake2b(digest_size=16)
    count = 0
    for path, (size_bytes, mtime_ns) in zip(paths, sizes_and_times, strict=True):
        digest.update(f"{path}\0{size_bytes}\0{mtime_ns}\n".encode("utf-8", "surrogateescape"))
        count += 1
    return f"files={count} content={digest.hexdigest()}"


def explain_change(before: str, after: str) -> str:
    """Say in words which parts of two fingerprints differ."""
    old, new = _fields(before), _fields(after)
    parts = [
        f"its {words} is {new[name]}, was {old[name]}"
        for name, words in _FIELDS.items()
        if name in old and name in new and old[name] != new[name]
    ]
    return ", ".join(parts) or f"{after}, was {before}"


def _fields(fingerprint: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in fingerprint.split(" ") if "=" in part)
