"""Tell processes apart, and tell whether one of them is gone, without ever guessing that it is."""

from __future__ import annotations

import os
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Owner:
    """Name a process so that a later one with the same process id is not taken for it.

    Attributes:
        boot: id of the machine's boot; empty where the system does not tell.
        namespace: process-id namespace; process ids mean something only within one.
        pid: process id there.
        started: when the process started, in the kernel's own count; empty where it does not tell.
    """

    boot: str
    namespace: str
    pid: int
    started: str


def this_process() -> Owner:
    """Return the owner that stands for the calling process."""
    pid = os.getpid()
    _, started = _state_and_start(pid)
    return Owner(_boot_id(), _namespace(), pid, started)


def is_gone(owner: Owner, here: Owner) -> bool:
    """Tell whether `owner` is known to have ended, as seen from `here`; False where that cannot be known."""
    if owner.boot and here.boot and owner.boot != here.boot:
        return True  # the file is never shared between machines, so the machine was started anew since
    if owner.namespace != here.namespace or os.name != "posix":
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it is there, but another user's
    state, started = _state_and_start(owner.pid)
    if state in ("Z", "X"):
        return True  # dead, its parent has just not looked yet
    return bool(owner.started and started) and owner.started != started


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    if sys.platform != "linux":
        return sys.platform
    try:
        return str(_NAMESPACE.readlink())
    except OSError:
        return f"unknown:{uuid.uuid4()}"  # equal to nobody's: only the lease counts


def _state_and_start(pid: int) -> tuple[str, str]:
    """Return state letter and start time of a process, both empty where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", ""
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return fields[0], fields[19]


class Leases:
    """Watch the beats of other owners and say whose work has to be returned.

    No clock is shared: an owner's lease has run out when we ourselves have seen no new beat for that long.
    """

    def __init__(self, here: Owner, lease_seconds: float) -> None:
        self._here = here
        self._lease_seconds = lease_seconds
        self._seen: dict[
            int, tuple[int, float]
        ] = {}  # owner's row -> its beat, and when we first saw that one

    def run_out(self, owners: Iterable[tuple[int, int, Owner]], now: float) -> list[tuple[int, int]]:
        """Return row and beat of the owners that are gone or silent, given row, beat and identity of all.

        `now` is in awake seconds: after a sleep of us all, nobody has lost anything.
        """
        seen, self._seen = self._seen, {}
        lost = []
        for row, beat, owner in owners:
            before = seen.get(row)
            since = before[1] if before is not None and before[0] == beat else now
            self._seen[row] = (beat, since)
            if now - since > self._lease_seconds or is_gone(owner, self._here):
                lost.append((row, beat))
        return lost
