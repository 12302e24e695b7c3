"""Run a real Prometheus on ports and in a folder of its own, and ask it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from support.command_line import wait_until
from support.promql import filled, metric_names, selectors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path


def needed(program: str) -> str:
    """Return the path of `prometheus` or `promtool`; skip loudly without, fail in CI."""
    found = shutil.which(program)
    if found:
        return found
    message = f"{program} is missing: install Debian's package prometheus"
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(f"CI must test on Prometheus: {message}")
    pytest.skip(f"NOT TESTED ON PROMETHEUS: {message}")


class RefusedError(Exception):
    """Say that Prometheus does not understand an expression."""


class Prometheus:
    """Ask a running server.

    Args:
        port: where it answers on this machine.
        log: the file that it writes to.
    """

    def __init__(self, port: int, log: Path) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def get(self, path: str, **parameters: object) -> Any:
        """Return the data of an answer of its API.

        Raises:
            RefusedError: it did not understand.
        """
        try:
            with urllib.request.urlopen(
                f"{self._base}{path}?{urllib.parse.urlencode(parameters)}", timeout=10
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(json.load(error)["error"]) from None

    def is_ready(self) -> bool:
        """Tell whether it answers."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self._base}/-/ready", timeout=1):
            return True
        return False

    def now(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Return the value of an expression at this moment, by labels."""
        return {
            tuple(sorted(each["metric"].items())): float(each["value"][1])
            for each in self.get("/api/v1/query", query=expression)["result"]
        }

    def value(self, expression: str) -> float | None:
        """Return the one value of an expression at this moment, None if it has none."""
        values = list(self.now(expression).values())
        assert len(values) <= 1, f"{expression}: {values}"
        return values[0] if values else None

    def has_shown(self, expression: str, start: float, end: float) -> bool:
        """Tell whether an expression had a value at any time, as a panel would show it."""
        series = self.get("/api/v1/query_range", query=expression, start=start, end=end, step=1)["result"]
        return any(not math.isnan(float(value)) for each in series for _, value in each["values"])


def fault(
    prometheus: Prometheus,
    expression: str,
    known: Collection[str],
    never_matched: Collection[str],
    start: float,
    end: float,
    *,
    always_true: bool = True,
) -> str:
    """Return what is wrong with an expression of a dashboard or an alert, or nothing.

    Args:
        prometheus: has scraped a farm from `start` to `end`, Unix time.
        expression: with Grafana's variables.
        known: the metrics that may be named.
        never_matched: those of them that this farm has not.
        start: of the time that is looked at.
        end: of it.
        always_true: it must have had a value, which an alert needs not.
    """
    unknown = metric_names(expression) - set(known)
    if unknown:
        return f"names metrics that nobody has: {', '.join(sorted(unknown))}"
    asked = filled(expression)
    try:
        prometheus.now(asked)
        shown = prometheus.has_shown(asked, start, end)
    except RefusedError as error:
        return f"refused: {error}"
    for selector in sorted(selectors(asked)):
        if selector.partition("{")[0] not in never_matched and not prometheus.has_shown(selector, start, end):
            return f"nothing has ever matched {selector}"
    return "" if shown or not always_true else "had no value at any time"


@contextlib.contextmanager
def running(folder: Path, targets: dict[str, str], rules: Path) -> Iterator[Prometheus]:
    """Run a server that scrapes each second.

    Args:
        folder: for its files, empty.
        targets: name of a scrape job -> URL of a page of figures.
        rules: file of rules to evaluate each second.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "prometheus.yml").write_text(_configuration(targets, rules))
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                needed("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=folder,
        )
    server = Prometheus(port, log)
    try:
        wait_until(lambda: server.is_ready() or process.poll() is not None, lambda: server.log)
        assert process.poll() is None, server.log
        yield server
    finally:
        process.kill()
        process.wait()


def _configuration(targets: dict[str, str], rules: Path) -> str:
    jobs = []
    for name, url in targets.items():
        host, _, path = url.removeprefix("http://").partition("/")
        path, _, query = path.partition("?")
        job: dict[str, Any] = {
            "job_name": name,
            "metrics_path": f"/{path}",
            "static_configs": [{"targets": [host]}],
        }
        if query:
            job["params"] = urllib.parse.parse_qs(query)
        jobs.append(job)
    whole = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": jobs,
    }
    return json.dumps(whole)  # JSON is YAML too
