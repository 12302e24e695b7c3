"""Hear what a child prints: pass it on line by line, and keep the last of it for the failure report."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TAIL_BYTES = 4096
_LONGEST_LINE_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_MOST_CHUNKS = 64


class Output:
    """Own the two pipes of a child's standard output and standard error.

    Args:
        prefix: written before each line.
        write: takes whole lines.

    Attributes:
        stdout, stderr: write ends, for the child; closed here by `started`.
    """

    def __init__(self, prefix: bytes, write: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._prefix = prefix
        self._write = write
        self._tail = bytearray()
        self._partial: dict[int, bytearray] = {}
        read_out, self.stdout = os.pipe()
        read_err, self.stderr = os.pipe()
        self._errors = read_err
        for descriptor in (read_out, read_err):
            os.set_blocking(descriptor, False)
            self._partial[descriptor] = bytearray()
            self._loop.add_reader(descriptor, self._read, descriptor)

    def started(self) -> None:
        """Close our copies of the write ends."""
        os.close(self.stdout)
        os.close(self.stderr)

    def forget(self) -> None:
        """Begin a new tail: what comes now belongs to the next task."""
        self._tail.clear()

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing has come since `forget`."""
        return not self._tail

    def _read(self, descriptor: int) -> bool:
        """Take one chunk; tells whether there may be more."""
        try:
            chunk = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._end(descriptor)
            return False
        if descriptor == self._errors:
            self._tail += chunk
            del self._tail[:-TAIL_BYTES]
        partial = self._partial[descriptor]
        partial += chunk
        *lines, rest = partial.split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            lines.append(rest)
            rest = bytearray()
        self._partial[descriptor] = rest
        self._pass_on(lines)
        return True

    def _pass_on(self, lines: list[bytearray]) -> None:
        if lines:
            self._write(b"".join([self._prefix + line + b"\n" for line in lines]))

    def _end(self, descriptor: int) -> None:
        rest = self._partial.pop(descriptor, None)
        if rest is None:
            return
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        if rest:
            self._pass_on([rest])

    def tail(self) -> str:
        """Read what lies there and return the end of standard error since `forget`."""
        for _ in range(_MOST_CHUNKS):
            if self._errors not in self._partial or not self._read(self._errors):
                break
        return self._tail.decode("utf-8", "replace")

    def close(self) -> str:
        """Read what is left without waiting, close the pipes, and return the tail of standard error."""
        for descriptor in list(self._partial):
            for _ in range(_MOST_CHUNKS):  # somebody who still writes must not hold us here
                if not self._read(descriptor):
                    break
            self._end(descriptor)
        return self._tail.decode("utf-8", "replace")
