"""Work with the farm of docker-compose.yml as an operator would: up, scale, kill, run, ask."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.docker_engine import FailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from support.docker_engine import Engine

ROOT = Path(__file__).parents[2]
HOME = "/var/lib/overnight"


class ComposeFarm:
    """Own one farm: its containers, networks and volumes.

    Attributes:
        environment: what docker-compose.yml may be told, see .env.example.
    """

    def __init__(self, engine: Engine, files: Sequence[Path], settings: dict[str, str]) -> None:
        self._engine = engine
        self._amqp, management, self._prometheus, grafana = free_ports(4)
        self._files = [word for file in files for word in ("--file", str(file))]
        self.environment = {
            **engine.environment,
            "COMPOSE_ANSI": "never",
            "AMQP_PORT": str(self._amqp),
            "MANAGEMENT_PORT": str(management),
            "PROMETHEUS_PORT": str(self._prometheus),
            "GRAFANA_PORT": str(grafana),
            **settings,
        }

    @property
    def amqp_port(self) -> int:
        """Tell on which port of this machine the farm's broker listens."""
        return self._amqp

    def compose(self, *arguments: str, check: bool = True, seconds: float = 300.0) -> str:
        """Run docker compose and return its standard output."""
        done = subprocess.run(
            self._words(*arguments),
            env=self.environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if check and done.returncode:
            raise FailedError(
                f"docker compose {' '.join(arguments)}: {done.returncode}\n{done.stderr[-3000:]}"
            )
        return done.stdout

    def begin(self, *arguments: str) -> Run:
        """Start `overnight run ...` in a container of its own."""
        return Run(
            self._words("run", "--rm", "-T", "producer", "run", *arguments, "--json"), self.environment
        )

    def scale(self, consumers: int) -> None:
        """Change the number of consumers, and wait until the new are healthy and the old have ended."""
        self.compose(
            "up", "--detach", "--no-recreate", "--wait", "--scale", f"consumer={consumers}", "consumer"
        )

    def containers(self, service: str) -> list[str]:
        """Return the ids of the containers of a service that run."""
        return self.compose("ps", "--quiet", "--status", "running", service).split()

    def inspect(self, container: str) -> Any:
        """Return what the engine knows of a container."""
        return json.loads(self._engine.docker("inspect", container).stdout)[0]

    def kill(self, container: str) -> None:
        """Kill all in a container as a crash would: for the engine it ended by itself, so it starts it again."""
        os.kill(int(self.inspect(container)["State"]["Pid"]), signal.SIGKILL)

    def started_at(self, container: str) -> float:
        """Return when a container was started, in seconds since the epoch."""
        text = self.inspect(container)["State"]["StartedAt"]
        return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()

    def query(self, expression: str) -> float | None:
        """Ask Prometheus for one figure; None if it has none."""
        parameters = urllib.parse.urlencode({"query": expression})
        address = f"http://127.0.0.1:{self._prometheus}/api/v1/query?{parameters}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return float(found[0]["value"][1]) if found else None

    def log(self) -> str:
        """Return the end of what all services said."""
        return self.compose("logs", "--no-color", "--tail", "40", check=False)

    def down(self) -> None:
        """Remove everything at once, volumes too."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "1", check=False)

    def _words(self, *arguments: str) -> list[str]:
        return ["docker", "compose", *self._files, *arguments]


class Run:
    """Be one `overnight run` in a container, followed by what it prints."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            words,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.last: dict[str, Any] = {}

    def follow(self, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read figures until they are enough, or fail when the run ends before."""
        for figures in self._figures():
            if enough(figures):
                return figures
        raise FailedError(f"the run ended early: {self.last}\n{self._said()}")

    def end(self) -> int:
        """Wait for the end, and return the exit status."""
        for _figures in self._figures():
            pass
        status = self._process.wait()
        if status:
            raise FailedError(f"the run ended with {status}: {self.last}\n{self._said()}")
        return status

    def stop(self) -> None:
        """End the run if it still goes on."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def _figures(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] in ("progress", "end"):
                self.last = event
                yield event

    def _said(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read()[-3000:]


def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise FailedError(f"not within {seconds:g} s: {what}")
        time.sleep(0.25)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
