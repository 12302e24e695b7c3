"""Read the dashboards and alerts that deploy/ ships."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.markdown import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ROOT / "deploy" / "grafana" / "dashboards"
RULES = ROOT / "deploy" / "prometheus" / "rules" / "overnight.yml"
_ALERT = re.compile(r"^      - alert: (\w+)\n", re.MULTILINE)
_EXPRESSION = re.compile(r"^        expr: (?:>-\n((?:          .*\n)+)|(.*)\n)", re.MULTILINE)


@dataclass(frozen=True)
class Query:
    """Be one expression of a panel."""

    dashboard: str
    panel: str
    letter: str
    expression: str
    may_be_empty: bool

    def __str__(self) -> str:
        return f"{self.dashboard} / {self.panel} / {self.letter}"


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the dashboards by the names of their files."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every panel, rows too."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def queries() -> list[Query]:
    """Return every expression of every panel; a panel says in its description when it is empty."""
    return [
        Query(name, panel["title"], target["refId"], target["expr"], " Empty " in panel["description"])
        for name, dashboard in dashboards().items()
        for panel in panels(dashboard)
        for target in panel.get("targets", [])
    ]


def alerts() -> dict[str, str]:
    """Return the rules of the alerts by name, each as it is written."""
    head, *parts = _ALERT.split(RULES.read_text(encoding="utf-8"))
    assert "alert:" not in head
    return dict(zip(parts[::2], parts[1::2], strict=True))


def expression_of(rule: str) -> str:
    """Return the expression of an alert on one line."""
    found = _EXPRESSION.search(rule)
    assert found, rule
    return " ".join((found[1] or found[2]).split())
