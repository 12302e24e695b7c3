"""Look at the figures of a running program as Prometheus does."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from support.command_line import Program

_URL = re.compile(r"metrics at (http://\S+)/metrics")


class Figures:
    """Hold one scrape."""

    def __init__(self, text: str) -> None:
        self._samples = {
            (sample.name.removeprefix("overnight_"), frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def get(self, name: str, **labels: str) -> float:
        """Return one figure, whose labels are named in full."""
        return self._samples[name, frozenset(labels.items())]

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the figures of a metric, summed up by one label, those of 0 left out."""
        found: dict[str, float] = {}
        for (each, labels), value in self._samples.items():
            if each == name and value:
                key = dict(labels)[label]
                found[key] = found.get(key, 0.0) + value
        return found

    def names(self) -> set[str]:
        """Return the names of all that is there."""
        return {name for name, _ in self._samples}


def base_of(program: Program) -> str:
    """Wait until a program says where its figures are, and return that address."""
    program.wait_until_it_says("metrics at ")
    found = _URL.search(program.output)
    assert found, program.output
    return found[1]


def scrape(base: str) -> Figures:
    """Read all figures."""
    with urllib.request.urlopen(f"{base}/metrics", timeout=10) as answer:
        return Figures(answer.read().decode())


def health(base: str, path: str) -> tuple[int, str]:
    """Return the status and the words of `/livez` or `/readyz`."""
    try:
        with urllib.request.urlopen(base + path, timeout=10) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()
