"""Find the control groups that this process is in, and read their files."""

from __future__ import annotations

from pathlib import Path


def parse_cgroups(text: str) -> dict[str, str]:
    """Return controller -> path of `/proc/self/cgroup`; the key of cgroup v2 is the empty string."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found.setdefault(controller, parts[2])
    return found


def own_cgroups(root: Path) -> dict[str, str]:
    """Return controller -> path for this process; `root` is `/`, or a folder that looks like it."""
    return parse_cgroups(read(root / "proc/self/cgroup"))


def upwards(mount: Path, path: str) -> list[Path]:
    """Return the folders from a group up to the mount.

    In a container the path that the kernel tells may not exist under the mount; then the mount itself, the
    last of the list, is our group.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def unified(root: Path, path: str) -> list[Path]:
    """Return the folders of a group of version 2 and of those above it, wherever that is mounted."""
    mount = root / "sys/fs/cgroup"
    return upwards(mount, path) + upwards(mount / "unified", path)


def read(path: Path) -> str:
    """Return the text of a file without blanks around it; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
