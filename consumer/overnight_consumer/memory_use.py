"""Measure how much memory processes use that nobody else can have."""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_PROC = Path("/proc")
# Pages of files are left out: a mapped data set is no burden, for the kernel drops it when it needs the room.
_OWN = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", re.MULTILINE)


def processes_of(sessions: Collection[int], proc: Path = _PROC) -> dict[int, list[int]]:
    """Return the processes of each session; without a /proc a session is the process that leads it."""
    found: dict[int, list[int]] = defaultdict(list)
    try:
        names = os.listdir(proc)  # noqa: PTH208 - ten times a second: names are enough
    except OSError:
        names = []
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError):
                session = os.getsid(int(name))
                if session in sessions:
                    found[session].append(int(name))
    return found


def used_bytes(processes: Iterable[int], enough: int | None = None, proc: Path = _PROC) -> int:
    """Return the memory of some processes together, swapped-out pages included.

    What a forked process shares with its parent counts for each of them, which is quick to find out. Only if
    the sum is above `enough`, shared pages are divided among those who share them, which takes longer.
    """
    processes = list(processes)
    total = sum(_sum_of(_OWN, proc / str(process) / "status") for process in processes)
    if enough is None or total <= enough or len(processes) == 1:
        return total
    exact = sum(_sum_of(_PROPORTIONAL, proc / str(process) / "smaps_rollup") for process in processes)
    return min(total, exact) if exact else total


def _sum_of(fields: re.Pattern[bytes], path: Path) -> int:
    try:
        text = path.read_bytes()
    except OSError:  # it has ended meanwhile
        return 0
    return sum(int(kib) for kib in fields.findall(text)) * 1024
