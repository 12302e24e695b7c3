"""Read the text of a command as it will be run.

It is split as a shell would and run directly; `/bin/sh -c` runs it only if it holds a character that asks for
a shell (`| & ; < > ( ) $ * ? [ ] { } ~ #`, a backquote, a new line) or begins with `NAME=value`.
"""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ASK_FOR_A_SHELL = frozenset("|&;<>()$*?[]{}~#`\n")


def command_line(text: str) -> list[str]:
    """Return the words to execute; raises ValueError if a quote is left open."""
    first = text.split(maxsplit=1)[0]
    if _ASK_FOR_A_SHELL.intersection(text) or "=" in first:
        return ["/bin/sh", "-c", text]
    return shlex.split(text)


def command_fault(text: str, folder: Path) -> str | None:
    """Return why a command cannot be run on this machine in `folder`, as far as can be told without running it."""
    try:
        program = command_line(text)[0]
    except ValueError as error:
        return f"{text!r} cannot be read: {error}"
    place = str(folder.absolute() / program) if "/" in program else program
    if shutil.which(place) is None:
        return f"there is no program {program!r} here, or it may not be executed"
    return None
