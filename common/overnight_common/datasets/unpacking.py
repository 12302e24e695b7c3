"""Unpack compressed data once, into a file that has no name and so cannot be left behind."""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from overnight_common.errors import BadInputError

if TYPE_CHECKING:
    from typing import Protocol

    class Readable(Protocol):
        """Represent what gives bytes."""

        def read(self, size: int, /) -> bytes:
            """Return up to `size` bytes, none at the end."""


_CHUNK_BYTES = 1024 * 1024


def unpack(packed: Readable, what: str, limit_bytes: int) -> BinaryIO:
    """Return a nameless temporary file with what `packed` gives.

    Args:
        packed: where to read from.
        what: its name, in words.
        limit_bytes: how much is due; one byte more is read, to be noticed by the caller, and then no more.

    Raises:
        BadInputError: there is no room.
    """
    file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
    try:
        left = limit_bytes + 1
        while left and (chunk := packed.read(min(left, _CHUNK_BYTES))):
            _write_all(file, chunk)
            left -= len(chunk)
    except OSError as error:
        file.close()
        if error.errno is None:  # not the disk but the packed file itself is at fault
            raise
        raise BadInputError(
            f"{what} cannot be unpacked into {tempfile.gettempdir()} ({error.strerror}): it needs "
            f"{limit_bytes} bytes there; make room or set TMPDIR to a larger disk"
        ) from error
    except BaseException:
        file.close()
        raise
    return cast("BinaryIO", file)


def _write_all(file: IO[bytes], chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[file.write(view) :]
