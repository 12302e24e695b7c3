"""Write text to a stream that may vanish or know few letters, without ever failing."""

from __future__ import annotations

import contextlib
import io
import os
from typing import TextIO


class Outlet:
    """Stand before a text stream: what the stream cannot take is replaced, and what it refuses is dropped.

    Whoever looks on must not harm the job: a closed pipe or a lost terminal ends the output, not the work.

    Attributes:
        gone: True once the stream has refused something; nothing is written from then on.
    """

    def __init__(self, stream: TextIO | None) -> None:
        """Write to `stream`, which stays open; Python gives None for an output that is closed."""
        self._stream = stream if stream is not None else io.StringIO()
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        self.gone = stream is None

    def write(self, text: str) -> int:
        """Write the text; letters that the stream's encoding lacks become question marks."""
        if not self.gone:
            try:
                self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError):
                self._give_up()
        return len(text)

    def flush(self) -> None:
        """Send what is buffered."""
        if not self.gone:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._give_up()

    def line(self, text: str) -> None:
        """Write one line and send it."""
        self.write(text + "\n")
        self.flush()

    def isatty(self) -> bool:
        """Tell whether a person sits at the other end."""
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def fileno(self) -> int:
        """Return the file descriptor; raises OSError if there is none."""
        return self._stream.fileno()

    def _give_up(self) -> None:
        self.gone = True
        # What is left in the stream's buffer would fail again when Python exits, and spoil the exit status.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
