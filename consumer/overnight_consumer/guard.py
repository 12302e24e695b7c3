"""Look at the memory of all slots several times a second, and let none take more than its share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from overnight_consumer.memory_use import processes_of, used_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight_consumer.kernel_kills import KernelKills
    from overnight_consumer.slots import Slot

LOOK_SECONDS = 0.1


class Guard:
    """Watch the slots whose child starts or runs a task; each decides itself what its use means.

    Args:
        slots: all slots.
        limit_bytes: what each may use, None for no limit; then the peaks are noted all the same.
        kernel: its counter is read at each look, so that a slot need not do it at each task.
    """

    def __init__(self, slots: Sequence[Slot], limit_bytes: int | None, kernel: KernelKills) -> None:
        self._slots = slots
        self._limit_bytes = limit_bytes
        self._kernel = kernel
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on in the running loop."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.start()
        self._kernel.look()
        watched = {slot.child_pid: slot for slot in self._slots if slot.is_watched}
        found = processes_of({pid for pid in watched if pid is not None}) if watched else {}
        for session, processes in found.items():
            watched[session].note_memory(used_bytes(processes, self._limit_bytes))
