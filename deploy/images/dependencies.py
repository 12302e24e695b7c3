"""Print what pyproject.toml depends on, one a line, so that an image installs it before it sees any code.

Usage: python dependencies.py pyproject.toml [EXTRA ...]
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def dependencies(text: str, extras: list[str]) -> list[str]:
    """Return the requirements of a pyproject.toml, those of some extras included.

    Raises:
        SystemExit: there is no such extra; the message lists those that are.
    """
    project = tomllib.loads(text)["project"]
    optional = project["optional-dependencies"]
    unknown = sorted(set(extras) - set(optional))
    if unknown:
        sys.exit(f"EXTRAS: no extra {', '.join(unknown)}; there are {', '.join(sorted(optional))}")
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


if __name__ == "__main__":
    print("\n".join(dependencies(Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:])))  # noqa: T201
