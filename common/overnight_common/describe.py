"""Import a method in a process of its own and print one line of JSON about it.

`python -P -m overnight_common.describe NAME --source DIR` keeps user code out of the driver. Whatever that
code prints goes to standard error, so that standard output holds the line and nothing else. Without `-P` a
file of the user's, such as `random.py`, would take the place of Python's own before anything can be said.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from overnight_common.errors import BadInputError, MethodUnavailableError
from overnight_common.fingerprints import method_fingerprint
from overnight_common.loading import find_method, load_method
from overnight_common.signatures import call_shape


def describe(name: str, source: Path) -> dict[str, Any]:
    """Return what the driver wants to know about a method, or why it cannot be had; runs the user's code."""
    try:
        loaded = load_method(name, source)
    except (BadInputError, MethodUnavailableError) as error:
        missing = error.missing_module if isinstance(error, MethodUnavailableError) else None
        text = error.traceback_text if isinstance(error, MethodUnavailableError) else ""
        found = _fingerprint_without_import(name, source)
        return {
            "ok": False,
            "error": str(error),
            "traceback": text,
            "missing_module": missing,
            "module_found": found is not None,
            "fingerprint": found,
        }
    shape = call_shape(loaded.target)
    return {
        "ok": True,
        "fingerprint": loaded.fingerprint,
        "per_point": loaded.facts.per_point,
        "is_class": loaded.is_class,
        "parameters": list(shape.parameters),
        "required": list(shape.required),
        "accepts_any": shape.accepts_any,
        "wants": list(shape.wants),
        "variants": dict(loaded.facts.variants),
    }


def _fingerprint_without_import(name: str, source: Path) -> str | None:
    try:
        return method_fingerprint(find_method(name, source).module, source)
    except (BadInputError, MethodUnavailableError):
        return None


def main() -> None:
    """Describe the method named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m overnight_common.describe", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--source", type=Path, default=Path())
    arguments = parser.parse_args()
    answer = os.dup(1)
    os.dup2(2, 1)
    line = json.dumps(describe(arguments.name, arguments.source)) + "\n"
    sys.stdout.flush()
    with open(answer, "wb") as file:
        file.write(line.encode())
    sys.stderr.flush()
    os._exit(0)  # threads that the user's module has left running must not keep us


if __name__ == "__main__":
    main()
