"""Turn the runbooks of the operations page into a dashboard, so that they can be read where an alert is seen."""

from __future__ import annotations

import re
from pathlib import Path

from panels import RUNBOOKS_UID, Dashboard, Note

_PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
_RUNBOOKS = re.compile(r"^## Runbooks\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_RUNBOOK = re.compile(r"^### (\w+)\n(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)


def runbooks() -> Dashboard:
    """Read the page and return a note for each heading below `Runbooks`.

    Raises:
        ValueError: the page has no such heading.
    """
    found = _RUNBOOKS.search(_PAGE.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{_PAGE} has no section Runbooks")
    notes = [Note(name, text.strip()) for name, text in _RUNBOOK.findall(found[1])]
    return Dashboard(
        RUNBOOKS_UID, "Runbooks", "What to do about each alert, from docs/operations.md.", notes=notes
    )
