"""Measure how much memory a child takes, with all that it started."""

from __future__ import annotations

import os
from pathlib import Path

from overnight_consumer.sessions import members


def session_bytes(session: int | None, proc: Path = Path("/proc")) -> int:
    """Return the resident bytes of all processes of a session; 0 if there is none, or no /proc."""
    if session is None:
        return 0
    return sum(_resident_bytes(proc / str(process) / "statm") for process in members(session, proc))


def _resident_bytes(statm: Path) -> int:
    try:
        return int(statm.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0  # it has just ended
