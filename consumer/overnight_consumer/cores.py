"""Find out how many cores this process may use: affinity and container quota, not the host."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_cores(root: Path = Path("/")) -> int:
    """Return the usable cores, at least 1: the affinity mask, cut by a cgroup quota (rounded down)."""
    quota = quota_cores(root)
    cores = _affinity_cores()
    if quota is not None:
        cores = min(cores, max(1, math.floor(quota + 1e-9)))
    return max(1, cores)


def _affinity_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def quota_cores(root: Path) -> float | None:
    """Return the smallest CPU quota from our cgroup up to the top, in cores, or None if there is none.

    `root` is `/`, or a folder that looks like it. In a container the path that the kernel tells may not exist
    under the mount; then the mount itself is our cgroup.
    """
    entries = parse_cgroups(_read(root / "proc/self/cgroup"))
    quotas = []
    if "" in entries:
        mount = root / "sys/fs/cgroup"
        folders = _upwards(mount, entries[""]) + _upwards(mount / "unified", entries[""])
        quotas += [parse_cpu_max(_read(folder / "cpu.max")) for folder in folders]
    if "cpu" in entries:
        for name in ("cpu", "cpu,cpuacct", "cpuacct,cpu"):
            for folder in _upwards(root / "sys/fs/cgroup" / name, entries["cpu"]):
                quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
                quotas.append(parse_cfs(quota, period))
    return min((quota for quota in quotas if quota is not None), default=None)


def parse_cgroups(text: str) -> dict[str, str]:
    """Return controller -> path of `/proc/self/cgroup`; the key of cgroup v2 is the empty string."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found.setdefault(controller, parts[2])
    return found


def parse_cpu_max(text: str) -> float | None:
    """Return the cores of a `cpu.max` file such as `150000 100000`; None for `max`, empty or broken text."""
    words = text.split()
    if not words:
        return None
    return parse_cfs(words[0], words[1] if len(words) > 1 else "100000")


def parse_cfs(quota: str, period: str) -> float | None:
    """Return quota divided by period, or None where no quota is set (`max`, -1) or the text is broken."""
    try:
        quota_us, period_us = float(quota), float(period)
    except ValueError:
        return None
    if not (math.isfinite(quota_us) and math.isfinite(period_us)) or quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


def _upwards(mount: Path, path: str) -> list[Path]:
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
