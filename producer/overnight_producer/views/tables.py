"""Print tables and JSON: fitted to a terminal, plain and whole elsewhere."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from overnight_producer.views.outlet import Outlet

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "
NARROWEST = 8


def make_console(stream: TextIO | None = None, *, width: int | None = None) -> Console:
    """Return a console on a stream (standard output if None) that takes any text as it is."""
    outlet = Outlet(stream or sys.stdout)
    terminal = outlet.isatty()
    return Console(
        file=cast("IO[str]", outlet),
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )


@dataclass
class Table:
    """Hold rows of text, to be printed in columns; no cell ever takes two lines.

    Attributes:
        headings: of the columns.
        right: headings of the columns that stand at the right: numbers.
        giving: headings of the columns that are cut short where the terminal is narrow.
        leaving: headings of the columns that are left out, the last first, where that does not do.
        rows: the cells.
        styles: one for each row.
    """

    headings: Sequence[str]
    right: Sequence[str] = ()
    giving: Sequence[str] = ()
    leaving: Sequence[str] = ()
    rows: list[list[str]] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)

    def add(self, *cells: str, style: str = "") -> None:
        """Add a row."""
        assert len(cells) == len(self.headings)
        self.rows.append(list(cells))
        self.styles.append(style)

    def lines(self, width: int | None) -> list[Text]:
        """Return the heading and the rows, none wider than `width` cells (None: as wide as they are)."""
        if width is not None and self.leaving and self._narrowest() > width:
            return self._without(self.leaving[-1]).lines(width)
        texts = [[Text(cell) for cell in row] for row in [list(self.headings), *self.rows]]
        widths = self._widths(width)
        lines = []
        for row, style in zip(texts, ["bold", *self.styles], strict=True):
            for cell, heading, cells in zip(row, self.headings, widths, strict=True):
                cell.truncate(cells, overflow="ellipsis")
                cell.align("right" if heading in self.right else "left", cells)
            line = Text(GAP).join(row)
            line.rstrip()
            line.stylize(style)
            if width is not None:
                line.truncate(width)
            lines.append(line)
        return lines

    def _column_widths(self) -> list[int]:
        rows = [list(self.headings), *self.rows]
        return [max(cell_len(row[i]) for row in rows) for i in range(len(self.headings))]

    def _narrowest(self) -> int:
        widths = zip(self.headings, self._column_widths(), strict=True)
        cells = [min(cells, NARROWEST) if heading in self.giving else cells for heading, cells in widths]
        return sum(cells) + len(GAP) * (len(cells) - 1)

    def _without(self, heading: str) -> Table:
        gone = list(self.headings).index(heading)
        return replace(
            self,
            headings=[each for each in self.headings if each != heading],
            leaving=[each for each in self.leaving if each != heading],
            rows=[row[:gone] + row[gone + 1 :] for row in self.rows],
        )

    def _widths(self, width: int | None) -> list[int]:
        widths = self._column_widths()
        if width is None:
            return widths
        giving = [i for i, heading in enumerate(self.headings) if heading in self.giving]
        while sum(widths) + len(GAP) * (len(widths) - 1) > width:
            widest = max(giving, key=lambda i: widths[i], default=None)
            if widest is None or widths[widest] <= NARROWEST:
                break
            widths[widest] -= 1
        return widths


def print_table(console: Console, table: Table) -> None:
    """Print a table, fitted to a terminal's width; elsewhere every cell is whole."""
    for line in table.lines(console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True)


def print_line(console: Console, text: str = "", style: str = "") -> None:
    """Print a line of text as it is, however long."""
    console.print(Text(text, style=style), soft_wrap=True)


def print_json(console: Console, value: Any) -> None:
    """Print a value as indented JSON in plain ASCII."""
    console.file.write(json.dumps(value, indent=2) + "\n")
    console.file.flush()
