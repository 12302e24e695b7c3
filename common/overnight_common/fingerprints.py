"""Compute the fingerprints of methods and commands: the same code gives the same text on every machine."""

from __future__ import annotations

import ast
import hashlib
import shlex
import warnings
from typing import TYPE_CHECKING

from overnight_common.errors import MethodUnavailableError
from overnight_common.modules import ModuleFile, find_in, find_module
from overnight_common.sampling import sample_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DIGEST_BYTES = 16


def method_fingerprint(module: str, source: Path) -> str:
    """Return a hash over a module and all modules it imports, directly or not, from the same source folder.

    Nothing is imported. Neither the folder's own path nor any time goes into the hash. Of a module that
    does not lie in `source`, what it imports from its own top-level package counts.

    Args:
        module: dotted name.
        source: the user's source folder.

    Raises:
        MethodUnavailableError: there is no such module.
    """
    start = find_module(module, source)
    if start is None:
        raise MethodUnavailableError(
            f"no module {module!r} in {source.absolute()} or installed", missing_module=module
        )
    inside = start.root == source.absolute()
    seen: dict[str, ModuleFile] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen or not (inside or _top(name) == _top(module)):
            continue
        found = find_in(start.root, name)
        if found is None:
            continue
        seen[name] = found
        waiting.extend(_parents(name))
        waiting.extend(_imports(found))
    digest = hashlib.blake2b(module.encode(), digest_size=_DIGEST_BYTES)
    for name, file in sorted(seen.items()):
        if file.path is not None:
            content = hashlib.blake2b(file.path.read_bytes()).digest()
            digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()


def command_fingerprint(command: str, folder: Path) -> str:
    """Return a hash over a command's text and the content of the existing files that it names.

    Args:
        command: as the user wrote it.
        folder: what relative paths in it are relative to.
    """
    digest = hashlib.blake2b(command.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES)
    try:
        words = shlex.split(command)
    except ValueError:  # an open quote: the shell will say so
        words = command.split()
    for word in words:
        path = folder / word
        try:
            if path.is_file():
                digest.update(b"\0" + sample_file(path))
        except (OSError, ValueError):  # a word that can be no path, or a file that we may not read
            continue
    return digest.hexdigest()


def _top(name: str) -> str:
    return name.partition(".")[0]


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _imports(file: ModuleFile) -> Iterator[str]:
    """Yield every name that the file imports and that may be a module."""
    if file.path is None or file.path.suffix != ".py":
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's code, and said where that is imported
            tree = ast.parse(file.path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return  # it cannot be imported either, which is said where that is tried
    is_package = file.path.stem == "__init__"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(file.name, node, is_package)
            if base is not None:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _base(importer: str, node: ast.ImportFrom, is_package: bool) -> str | None:
    """Return the absolute name of what stands behind `from`, or None if it leads out of the top package."""
    if not node.level:
        return node.module
    parts = importer.split(".")
    dropped = node.level - 1 if is_package else node.level
    if dropped >= len(parts):
        return None
    return ".".join([*parts[: len(parts) - dropped], *([node.module] if node.module else [])])
