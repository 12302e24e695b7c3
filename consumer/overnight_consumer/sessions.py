"""Kill everything that a child has started: its session, and what has left it for one of its own.

Every process of a child inherits the variable OVERNIGHT_CHILD, which names the child. A daemon forks twice and
begins a session of its own, but its environment still tells where it comes from.

Imports the standard library only, for the keeper must start fast.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

CHILD_VARIABLE = "OVERNIGHT_CHILD"
_PROC = Path("/proc")
_ROUNDS = 20


def members(session: int, proc: Path = _PROC) -> list[int]:
    """Return the living processes of a session; empty where there is no /proc."""
    return [process for process in _living(proc) if _session_of(proc / str(process) / "stat") == session]


def descendants(mark: str, proc: Path = _PROC) -> list[int]:
    """Return the living processes whose OVERNIGHT_CHILD begins with `mark`, whatever their session."""
    wanted = f"\0{CHILD_VARIABLE}={mark}".encode()
    found = []
    for process in _living(proc):
        folder = proc / str(process)
        with contextlib.suppress(OSError):  # ended meanwhile, or somebody else's
            if wanted in b"\0" + (folder / "environ").read_bytes() and _session_of(folder / "stat"):
                found.append(process)
    return found


def _living(proc: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _session_of(stat: Path) -> int | None:
    """Return the session of a process, None if it is gone or a zombie."""
    try:
        text = stat.read_bytes()
    except OSError:
        return None
    # The name in brackets may hold anything, brackets too; the fields after it are plain.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 4 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[3])


def kill_session(session: int, mark: str) -> None:
    """Send SIGKILL to all processes of a session and to all with this mark, forked meanwhile or not."""
    for _ in range(_ROUNDS):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        if not _kill({*members(session), *descendants(mark)}):
            return


def kill_descendants(mark: str) -> None:
    """Send SIGKILL to all processes with this mark."""
    for _ in range(_ROUNDS):
        if not _kill(set(descendants(mark))):
            return


def _kill(processes: set[int]) -> bool:
    """Kill them, never ourselves; tell whether there were any."""
    processes.discard(os.getpid())
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    return bool(processes)
