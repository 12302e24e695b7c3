"""Take PromQL apart just far enough to know which metrics an expression asks for."""

from __future__ import annotations

import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS = re.compile(r"\{[^}]*\}")
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"(?<![\w.:$])[A-Za-z_:][\w:]*(?![\w:]|\s*\()")
_WORDS = {"and", "or", "unless", "offset", "bool", "group_left", "group_right", "Inf", "NaN"}
# What Grafana would put in for its variables, for a farm that is scraped each second.
_VARIABLES = {"$__rate_interval": "5s", "$queue": ".*", "$instance": ".*"}


def metric_names(expression: str) -> set[str]:
    """Return the metrics that an expression names."""
    bare = expression
    for pattern in (_STRING, _LABELS, _RANGE, _GROUPING):
        bare = pattern.sub("", bare)
    return set(_NAME.findall(bare)) - _WORDS


def selectors(expression: str) -> set[str]:
    """Return the metrics that an expression names, each with its conditions on labels."""
    found = set()
    for name in metric_names(expression):
        pattern = rf"(?<![\w:]){re.escape(name)}(?![\w:])(?:\{{[^}}]*\}})?"
        found.update(match[0] for match in re.finditer(pattern, expression))
    return found


def filled(expression: str) -> str:
    """Return an expression of a dashboard with a value for each variable."""
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    return expression
