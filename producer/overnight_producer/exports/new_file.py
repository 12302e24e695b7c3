"""Write a file beside its place and put it there only when it is whole."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SUFFIX = ".part"


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path` at the end, or is gone if the block raises.

    Readers see the old file or the new one, never a part, even after a power cut.
    """
    remove_left_overs(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def remove_left_overs(path: Path) -> None:
    """Remove what processes that were killed left beside `path`."""
    start = f".{path.name}."
    for other in path.parent.iterdir():
        if other.name.startswith(start) and other.name.endswith(_SUFFIX):
            pid = other.name[len(start) :].partition(".")[0]
            if pid.isdigit() and not _alive(int(pid)):
                other.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder permanent."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot do it for a folder
            os.fsync(fd)
    finally:
        os.close(fd)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
