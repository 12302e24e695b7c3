"""Read what this machine allows: cores, memory, shared memory, disk; None where it does not tell."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

# The consumer knows how to count cores, and it is another service: it is asked in a process of its own.
_ASK_CONSUMER = """
import json, os, sqlite3
told = {"sqlite": sqlite3.sqlite_version, "affinity": None, "usable": None}
if hasattr(os, "sched_getaffinity"):
    told["affinity"] = len(os.sched_getaffinity(0))
try:
    from overnight_consumer.cores import available_cores
    told["usable"] = available_cores()
except ImportError:
    pass
print(json.dumps(told))
"""
_ASK_SECONDS = 30.0
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Cores:
    """Count cores: those of the host, those we may run on, and those that a container's quota leaves us."""

    affinity: int | None
    usable: int | None


def ask_consumer() -> tuple[Cores, str]:
    """Return the cores as the consumer counts them, and the version of SQLite (empty if unknown)."""
    try:
        done = subprocess.run(
            # -P: no file of the current folder stands in for a module.
            [sys.executable, "-P", "-c", _ASK_CONSUMER],
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
            check=True,
        )
        told = json.loads(done.stdout)
        return Cores(told["affinity"], told["usable"]), str(told["sqlite"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return Cores(None, None), ""


def memory_available_bytes(root: Path = Path("/")) -> int | None:
    """Return how much memory the kernel can give out without swapping; `root` is `/` or looks like it."""
    for line in _read(root / "proc/meminfo").splitlines():
        words = line.split()
        if words[:1] == ["MemAvailable:"] and len(words) > 1 and words[1].isdigit():
            return int(words[1]) * 1024
    return None


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the smallest memory limit of our control groups (v1 or v2), None if there is none."""
    limits = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        mount = root / "sys/fs/cgroup"
        if controllers == "":
            limits += [_limit(folder / "memory.max") for folder in _upwards(mount, path)]
        elif "memory" in controllers.split(","):
            limits += [
                _limit(folder / "memory.limit_in_bytes") for folder in _upwards(mount / "memory", path)
            ]
    return min((limit for limit in limits if limit is not None), default=None)


def memory_used_bytes(root: Path = Path("/")) -> int | None:
    """Return what our own container uses of its limit; None outside of one."""
    for name in ("memory.current", "memory/memory.usage_in_bytes"):
        text = _read(root / "sys/fs/cgroup" / name)
        if text.isdigit():
            return int(text)
    return None


def free_disk_bytes(folder: Path) -> int | None:
    """Return the free space where `folder` is, or would be made."""
    for place in (folder, *folder.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return None


def shared_memory_bytes(folder: Path = Path("/dev/shm")) -> int | None:  # noqa: S108 - the kernel's, only looked at
    """Return the size of the shared memory, or None if there is none."""
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _upwards(mount: Path, path: str) -> list[Path]:
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _limit(file: Path) -> int | None:
    text = _read(file)
    # Version 1 writes "no limit" as a huge number.
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT_BYTES else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
