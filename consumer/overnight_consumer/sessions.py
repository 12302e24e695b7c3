"""Kill everything that belongs to a child's session: the child, its commands, and what those started.

Imports the standard library only, for the keeper must start fast.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_ROUNDS = 20


def members(session: int, proc: Path = Path("/proc")) -> list[int]:
    """Return the living processes of a session; empty where there is no /proc."""
    try:
        processes = [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    except OSError:
        return []
    return [process for process in processes if _session_of(proc / str(process) / "stat") == session]


def _session_of(stat: Path) -> int | None:
    try:
        text = stat.read_bytes()
    except OSError:
        return None
    # The name in brackets may hold anything, brackets too; the fields after it are plain.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 4 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[3])


def kill_session(session: int) -> None:
    """Send SIGKILL to all processes of a session until none is left, forked meanwhile or not."""
    for _ in range(_ROUNDS):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        left = members(session)
        if not left:
            return
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
