"""Run Overnight as its users do: real processes on a folder of their own, whose output is kept in files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from overnight_producer.jobs.home import all_jobs
from overnight_producer.jobs.jobfile import JobFile
from support.plain_loop import point_seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

PROJECT = Path(__file__).with_name("project")
DIGITS = Path(__file__).parents[2] / "data" / "digits" / "digits.npy"
PATIENCE_SECONDS = 60.0


def wait_until(condition: Callable[[], object], what: Callable[[], str] | str, seconds: float = 30.0) -> None:
    """Wait until a condition holds."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, (
            f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"
        )
        time.sleep(0.005)


@dataclass(frozen=True)
class Done:
    """Hold the exit status and the whole output of a command."""

    status: int
    output: str
    seconds: float

    def __str__(self) -> str:
        return f"exit status {self.status} after {self.seconds:.1f} s\n{self.output}"


class Program:
    """Be one process of ours, with standard output and standard error in one file."""

    def __init__(self, arguments: list[str], folder: Path, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        self._began = time.monotonic()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> Done:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> Done:
        """Wait until it ends by itself."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"not at its end after {seconds:g} s:\n{self.output}") from None
        return Done(status, self.output, time.monotonic() - self._began)

    def wait_until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until something has come about; it must do so before the process ends."""
        wait_until(lambda: condition() or self.process.poll() is not None, lambda: self.output, seconds)
        assert condition(), f"it ended too early, with status {self.process.poll()}:\n{self.output}"

    def wait_until_it_says(self, text: str) -> None:
        """Wait until it has said something."""
        self.wait_until(lambda: text in self.output)


class Desk:
    """Be a user's folder: modules, data sets, jobs, and the commands run in it.

    Attributes:
        folder: where all of it lies.
        broker: address for `--broker`, None for the embedded one.
    """

    def __init__(self, folder: Path, broker: str | None = None) -> None:
        self.folder = folder
        self.broker = broker
        self.home = folder / ".overnight"
        self._programs: list[Program] = []
        self._logs = folder / "logs"
        self._logs.mkdir()
        for module in PROJECT.glob("*.py"):
            shutil.copy(module, folder)

    # What the user types

    def start(self, *arguments: str, **variables: str) -> Program:
        """Start `overnight` and leave it running."""
        return self._start("overnight_producer", arguments, variables)

    def overnight(self, *arguments: str, **variables: str) -> Done:
        """Run `overnight` to its end."""
        return self.start(*arguments, **variables).wait()

    def consumer(self, *arguments: str, folder: Path | None = None, **variables: str) -> Program:
        """Start `overnight-consumer`, in another folder if that is given, and leave it running."""
        home = ("--home", str(self.home))
        variables = {"OVERNIGHT_DEVICE": "cpu", **variables}
        return self._start("overnight_consumer", (*home, *arguments), variables, folder)

    def disturbed(self, how: str, program: str, *arguments: str, **variables: str) -> Program:
        """Start one of our programs in a world that `support.disturbed` has disturbed."""
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        home = ("--home", str(self.home)) if program == "overnight_consumer" else ()
        words = (how, program, *home, *arguments)
        return self._start("support.disturbed", words, {"PYTHONPATH": path, **variables})

    def _start(
        self, module: str, arguments: tuple[str, ...], variables: dict[str, str], folder: Path | None = None
    ) -> Program:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OVERNIGHT_")}
        if self.broker is not None:
            environment["OVERNIGHT_BROKER"] = self.broker
        environment |= {"COLUMNS": "200", **variables}
        log = self._logs / f"{len(self._programs)}.log"
        program = Program([module, *arguments], folder or self.folder, log, environment)
        self._programs.append(program)
        return program

    # What lies in the folder

    def write(self, name: str, text: str) -> Path:
        """Write a file of the user's."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def hold(self, first: int) -> None:
        """Let the methods wait at point `first` and all after it."""
        new = self.write("hold.new", str(first))
        new.replace(self.folder / "hold")

    def let_go(self) -> None:
        """Let the methods go on."""
        (self.folder / "hold").unlink()

    def noted(self, name: str) -> list[int]:
        """Return the numbers that methods wrote into a file, one a line."""
        path = self.folder / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def calls(self) -> Counter[int]:
        """Return how often the method was called for each point."""
        return Counter(self.noted("calls"))

    def results(self, name: str = "out.npy") -> NDArray[np.generic]:
        """Return the exported results."""
        found: NDArray[np.generic] = np.load(self.folder / name)
        return found

    def jobs(self) -> list[str]:
        """Return the ids of the jobs here, the oldest first."""
        return [spec.id for _path, spec in all_jobs(self.home)]

    @contextlib.contextmanager
    def job(self) -> Iterator[JobFile]:
        """Open the newest job's file to look into it."""
        path, _spec = all_jobs(self.home)[-1]
        with JobFile.open(path) as job:
            yield job

    def points_done(self) -> list[int]:
        """Return the points that have a result in the newest job, each as often as it has one."""
        with self.job() as job:
            return [point for row in job.results() for point in range(row.start, row.stop)]

    # The end

    def clear(self) -> None:
        """Kill every process that was started here, and every one that works in this folder."""
        for program in self._programs:
            if program.process.poll() is None:
                program.kill()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Return the processes whose working folder is this one, children of children too."""
        found = []
        for link in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if link.readlink().is_relative_to(self.folder):
                    found.append(int(link.parent.name))
        return found


def noise(count: int, start: int = 0, seed: int = 0) -> NDArray[np.float64]:
    """Return what `counted.noisy` must give for `count` points, computed in one plain loop."""
    seeds = point_seeds(seed, start, start + count)
    return np.array([np.random.Generator(np.random.PCG64(int(one))).standard_normal(4) for one in seeds])
