"""Find out how many cores this process may use: affinity and container quota, not the host."""

from __future__ import annotations

import math
import os
from pathlib import Path

from overnight_consumer.cgroups import own_cgroups, read, unified, upwards


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
    """Return the smallest CPU quota from our cgroup up to the top, in cores, or None if there is none."""
    entries = own_cgroups(root)
    quotas = []
    if "" in entries:
        quotas += [parse_cpu_max(read(folder / "cpu.max")) for folder in unified(root, entries[""])]
    if "cpu" in entries:
        for name in ("cpu", "cpu,cpuacct", "cpuacct,cpu"):
            for folder in upwards(root / "sys/fs/cgroup" / name, entries["cpu"]):
                quota, period = read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us")
                quotas.append(parse_cfs(quota, period))
    return min((quota for quota in quotas if quota is not None), default=None)


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
