"""Outlive a consumer's parent that was killed, just long enough to kill what its children had started.

A child dies with its parent by itself, but what it started does not. The parent tells this process of each
session it starts; when the pipe breaks, whatever is left of them is killed and the scratch folder is removed.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys

from overnight_consumer.sessions import kill_descendants, kill_session


class Keeper:
    """Be the parent's side: start the process and tell it which sessions live."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._process = self._start()
        self._sessions: set[int] = set()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "overnight_consumer.keeper", self._scratch]
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def add(self, session: int) -> None:
        """Name a session that must not outlive us."""
        self._sessions.add(session)
        self._tell(f"+{session}\n")

    def remove(self, session: int) -> None:
        """Name a session that has ended."""
        self._sessions.discard(session)
        self._tell(f"-{session}\n")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except (OSError, ValueError):
            self._replace()

    def look(self) -> None:
        """Start another one if somebody killed it."""
        if self._process.poll() is not None:
            self._replace()

    def _replace(self) -> None:
        """Start another one and tell it everything."""
        self.close()
        with contextlib.suppress(OSError):  # the next look tries again
            self._process = self._start()
            assert self._process.stdin is not None
            self._process.stdin.write("".join(f"+{session}\n" for session in self._sessions).encode())
            self._process.stdin.flush()

    def close(self) -> None:
        """Let it remove the scratch folder and end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # what was left to tell it
            self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Read `+session` and `-session` lines until the parent is gone, then clear up."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions: set[int] = set()
    for line in sys.stdin:
        change = sessions.add if line[0] == "+" else sessions.discard
        change(int(line[1:]))
    scratch = sys.argv[1]
    for session in sessions:
        kill_session(session, scratch)
    kill_descendants(scratch)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
