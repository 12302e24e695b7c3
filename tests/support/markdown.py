"""Read the tables and code blocks of our own documents, so that tests can hold them to the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"`([^`]+)`")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """Hold one fenced block: the word behind the fence, and what is in it."""

    language: str
    text: str


def document(name: str) -> str:
    """Return a document by its path from the root of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def documents() -> list[Path]:
    """Return every document that is held to the code."""
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def tables(text: str) -> list[list[dict[str, str]]]:
    """Return the tables in a text, each as rows by the names of the columns."""
    found: list[list[dict[str, str]]] = []
    lines = _FENCE.sub("", text).splitlines()
    for i, line in enumerate(lines):
        if re.fullmatch(r"\|(-+:?\|)+", line):
            names = _cells(lines[i - 1])
            rows = []
            for row in lines[i + 1 :]:
                if not row.startswith("|"):
                    break
                cells = _cells(row)
                assert len(cells) == len(names), f"{len(cells)} cells for {names}: {row}"
                rows.append(dict(zip(names, cells, strict=True)))
            found.append(rows)
    return found


def table(text: str, heading: str) -> list[dict[str, str]]:
    """Return the first table below a heading."""
    return tables(section(text, heading))[0]


def section(text: str, heading: str) -> str:
    """Return what stands below a heading, up to the next one of the same or a higher level."""
    start = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert start, f"no heading {heading!r}"
    rest = text[start.end() :]
    end = re.search(rf"^#{{1,{len(start[1])}}} ", _FENCE.sub(lambda m: "x" * len(m[0]), rest), re.MULTILINE)
    return rest[: end.start()] if end else rest


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a text."""
    return [Block(*match.groups()) for match in _FENCE.finditer(text)]


def code(cell: str) -> list[str]:
    """Return what stands in code marks."""
    return _CODE.findall(cell)


def _cells(row: str) -> list[str]:
    # A bar inside code marks is written as \| in our tables.
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])]
