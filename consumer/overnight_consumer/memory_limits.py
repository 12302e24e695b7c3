"""Find out how much memory each slot may use: what was asked for, or a share of the container's limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from overnight_consumer.cgroups import own_cgroups, read, unified, upwards

if TYPE_CHECKING:
    from collections.abc import Iterable

AUTO, NONE = "auto", "none"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
# What the parent, its keeper and the kernel need beside the children.
_MARGIN_SHARE = 0.1
_MARGIN_LEAST_BYTES = 128 * 2**20
_SLOT_LEAST_BYTES = 64 * 2**20


def parse_size(text: str) -> int | None:
    """Return the bytes of `500M`, `1.5GiB` or `1048576`, all units powers of 1024; None if it is no size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    size = int(float(match[1]) * _UNITS[(match[2] or "").lower()])
    return size or None


def slot_limit_bytes(wanted: str, slots: int, root: Path = Path("/")) -> int | None:
    """Return how much memory each slot may use, None for no limit.

    Args:
        wanted: a size that `parse_size` knows, `none`, or `auto`: a share of the container's limit, or no limit
            where no container has one. A machine's own memory is not divided: a large task may have the room
            that the other slots leave.
        slots: number of slots.
        root: `/`, or a folder that looks like it.
    """
    if wanted == NONE:
        return None
    if wanted != AUTO:
        return parse_size(wanted)
    container = container_limit_bytes(root)
    return None if container is None else share_bytes(container, slots)


def share_bytes(total: int, slots: int) -> int:
    """Return a slot's share of `total` bytes, after a margin of a tenth (at least 128 MiB), at least 64 MiB."""
    margin = max(int(total * _MARGIN_SHARE), _MARGIN_LEAST_BYTES)
    return max((total - margin) // slots, _SLOT_LEAST_BYTES)


def container_limit_bytes(root: Path) -> int | None:
    """Return the smallest memory limit from our cgroup up to the top, or None if none is below the machine."""
    entries = own_cgroups(root)
    texts: list[str] = []
    if "" in entries:
        texts += [read(folder / "memory.max") for folder in unified(root, entries[""])]
    if "memory" in entries:
        folders = upwards(root / "sys/fs/cgroup/memory", entries["memory"])
        texts += [read(folder / "memory.limit_in_bytes") for folder in folders]
    return _smallest(texts, machine_bytes(root))


def _smallest(texts: Iterable[str], machine: int | None) -> int | None:
    """Return the smallest number; version 1 writes a huge one for no limit, version 2 `max`."""
    limits = [int(text) for text in texts if text.isascii() and text.isdigit() and int(text) > 0]
    least = min(limits, default=None)
    if least is None or least > (machine if machine is not None else 2**60):
        return None
    return least


def machine_bytes(root: Path) -> int | None:
    """Return the memory of this machine, or None where /proc does not tell."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", read(root / "proc/meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None
