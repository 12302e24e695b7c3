"""Know whether the kernel has killed for want of memory: it counts that, per container or for the machine."""

from __future__ import annotations

import re
from pathlib import Path

from overnight_consumer.cgroups import own_cgroups, read, unified, upwards

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


class KernelKills:
    """Follow the kernel's counter.

    Each kill explains one death: what is left over of the count explains the next one.

    Attributes:
        count: as of the last look.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._path = counter_file(root)
        self.count = self.look()
        self._explained = self.count

    def look(self) -> int:
        """Read the counter."""
        match = _COUNT.search(read(self._path)) if self._path is not None else None
        self.count = int(match[1]) if match else 0
        return self.count

    def explain(self, since: int) -> bool:
        """Tell whether the kernel has killed since the count was `since`, if that explains no other death."""
        known = max(since, self._explained)
        if self.look() <= known:
            return False
        self._explained = known + 1
        return True


def counter_file(root: Path) -> Path | None:
    """Return the file with the count of our own control group, else of the machine, or None."""
    entries = own_cgroups(root)
    candidates = []
    if "" in entries:
        candidates += [folder / "memory.events" for folder in unified(root, entries[""])]
    if "memory" in entries:
        folders = upwards(root / "sys/fs/cgroup/memory", entries["memory"])
        candidates += [folder / "memory.oom_control" for folder in folders]
    candidates.append(root / "proc/vmstat")
    return next((path for path in candidates if _COUNT.search(read(path))), None)
