"""Find the file of a module without importing anything."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

_SUFFIXES = (".py", *importlib.machinery.EXTENSION_SUFFIXES)
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))


class ModuleFile(NamedTuple):
    """Hold where a module lies: dotted name, file (None for a folder without code) and source root."""

    name: str
    path: Path | None
    root: Path


def find_in(root: Path, name: str) -> ModuleFile | None:
    """Return the module `name` below the folder `root`, or None.

    As for Python itself, a package comes before a module, and a folder without `__init__.py` is a package
    only where nothing else has the name.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    place = root.joinpath(*name.split("."))
    for candidate in (*(place / f"__init__{suffix}" for suffix in _SUFFIXES), *_files(place)):
        if candidate.is_file():
            return ModuleFile(name, candidate, root)
    return ModuleFile(name, None, root) if place.is_dir() else None


def find_module(name: str, source: Path) -> ModuleFile | None:
    """Return where the module lies: in the folder `source`, else wherever Python would find it, or None."""
    found = find_in(source.absolute(), name)
    if found is not None and (found.path is not None or "." in name):
        return found
    top = name.partition(".")[0]
    if top in sys.builtin_module_names:
        return ModuleFile(name, None, _STANDARD_LIBRARY)
    places = (find_in(root, name) for root in _installed_roots(top))
    return next(filter(None, places), found)


def _files(place: Path) -> list[Path]:
    return [place.with_name(place.name + suffix) for suffix in _SUFFIXES]


def _installed_roots(top: str) -> list[Path]:
    # Looking for a top module imports nothing, but looking for `a.b` would import `a`.
    if not top.isidentifier():
        return []
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    folders = spec.submodule_search_locations
    if folders:  # several where a package without `__init__.py` is spread over folders
        return [Path(folder).absolute().parent for folder in folders]
    if spec.has_location and spec.origin:
        return [Path(spec.origin).absolute().parent]
    return [_STANDARD_LIBRARY]  # a module frozen into the interpreter has its source there
