"""Run a command on a task: what it is given, and where its results are looked for."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from overnight_common.command_lines import command_line
from overnight_common.messages import Cause, Failure
from overnight_consumer.deaths import memory_words, signal_name
from overnight_consumer.failures import TaskFailedError, failed
from overnight_consumer.kernel_kills import KernelKills
from overnight_consumer.settings import inherited_environment

if TYPE_CHECKING:
    from overnight_common.messages import Task
    from overnight_consumer.calling import Points

_TAIL_BYTES = 4096
_MOST_STDOUT_BYTES = 64 * 1024 * 1024
_NPY_MAGIC = b"\x93NUMPY"
# Killed, or a shell says that what it ran was killed.
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


class CommandRun(NamedTuple):
    """Say what to run, on what, and where."""

    text: str
    task: Task
    points: Points
    source: Path
    scratch: Path
    memory_limit_bytes: int | None = None


class CommandOutput(NamedTuple):
    """Hold what a command left that succeeded: results (None if it saved its own), the end of its log."""

    values: Points | None
    log_tail: str


def run_command(run: CommandRun) -> CommandOutput:
    """Run it and return its results.

    It reads `start,count` on standard input and has CONSUMER_WORKER and OVERNIGHT_START, _COUNT, _SEED,
    _PARAMS (JSON), _INPUT (a .npy or .jsonl file) and _OUTPUT in its environment. Results are the file that
    it wrote at OVERNIGHT_OUTPUT (also with .npy or .jsonl added), else its standard output if that has one
    non-empty line for each point.

    Raises:
        TaskFailedError: it failed, or what it left is no list of results.
    """
    # Systems clear what lay unused in /tmp for days.
    run.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=run.scratch, ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        end = _execute(run, place)
        stdout, stderr_tail = place / "stdout", end.stderr_tail
        if end.status != 0:
            raise TaskFailedError(failure_of(end, run.memory_limit_bytes), _tail(stdout))
        count = run.task.stop - run.task.start
        values = _from_files(place, count)
        if values is not None:
            return CommandOutput(values, _tail(stdout) or stderr_tail)
        values = _from_lines(stdout, count)
        return CommandOutput(values, stderr_tail if values is not None else _tail(stdout) or stderr_tail)


class CommandEnd(NamedTuple):
    """Say how a command ended.

    Attributes:
        status: negative for a signal.
        seconds: how long it ran.
        peak_rss_bytes: largest memory of it, or of one of those that it started and waited for.
        out_of_memory: the kernel has killed for want of memory while it ran.
        stderr_tail: its last words.
    """

    status: int
    seconds: float
    peak_rss_bytes: int
    out_of_memory: bool
    stderr_tail: str


def _execute(run: CommandRun, place: Path) -> CommandEnd:
    task = run.task
    environment = {
        **inherited_environment(),
        "OVERNIGHT_START": str(task.start),
        "OVERNIGHT_COUNT": str(task.stop - task.start),
        "OVERNIGHT_SEED": str(task.seed),
        "OVERNIGHT_PARAMS": json.dumps(task.params, default=_plain),
        "OVERNIGHT_INPUT": str(_write_input(run.points, place)),
        "OVERNIGHT_OUTPUT": str(place / "output"),
    }
    kernel, began = KernelKills(), time.monotonic()
    given = place / "stdin"
    given.write_text(f"{task.start},{task.stop - task.start}\n")
    with given.open("rb") as stdin, (place / "stdout").open("wb") as stdout:
        try:
            process = subprocess.Popen(
                command_line(run.text),
                cwd=run.source,
                env=environment,
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except (OSError, ValueError) as error:
            message = f"the command cannot be started here: {error}"
            raise failed(Cause.METHOD_UNAVAILABLE, type(error).__name__, message) from error
    tee = _Tee(process)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # what it left running in the background
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    out_of_memory = process.returncode in _KILLED and kernel.explain(kernel.count)
    return CommandEnd(process.returncode, seconds, peak_bytes, out_of_memory, tee.finish())


class _Tee(threading.Thread):
    """Pass a command's standard error on while it runs, and keep the end of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        assert process.stderr is not None
        self._stream = process.stderr
        self._kept = bytearray()
        self.start()

    def run(self) -> None:
        while chunk := os.read(self._stream.fileno(), 65536):
            self._kept += chunk
            del self._kept[:-_TAIL_BYTES]
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.buffer.write(chunk)
                sys.stderr.buffer.flush()

    def finish(self) -> str:
        """Return the end of it; somebody who still holds the pipe is not waited for."""
        self.join(1.0)
        if not self.is_alive():
            self._stream.close()
        return self._kept.decode("utf-8", "replace")


def failure_of(end: CommandEnd, memory_limit_bytes: int | None) -> Failure:
    """Return the failure of a task whose command did not end well."""
    figures = f"after {end.seconds:.1f} s, {memory_words(end.peak_rss_bytes, memory_limit_bytes)}"
    if end.out_of_memory:
        cause, type_ = Cause.OUT_OF_MEMORY, "KernelOutOfMemory"
        words = "the command was killed by the kernel, which had run out of memory,"
    elif end.status < 0:
        cause, type_ = Cause.KILLED_BY_SIGNAL, signal_name(-end.status)
        words = f"the command was killed by {type_}"
    else:
        cause, type_ = Cause.EXIT_STATUS, f"exit status {end.status}"
        words = f"the command ended with {type_}"
    return Failure(cause, type_, f"{words} {figures}", stderr_tail=end.stderr_tail)


def _write_input(points: Points, place: Path) -> Path:
    if isinstance(points, np.ndarray):
        path = place / "input.npy"
        np.save(path, points, allow_pickle=False)
        return path
    path = place / "input.jsonl"
    lines = [json.dumps(point, ensure_ascii=False, default=_plain) + "\n" for point in points]
    path.write_bytes("".join(lines).encode("utf-8", "surrogatepass"))
    return path


def _plain(value: Any) -> Any:
    """Return what JSON has no form for as the nearest thing that it has."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _from_files(place: Path, count: int) -> Points | None:
    for name in ("output", "output.npy", "output.jsonl"):
        path = place / name
        if path.is_file():
            return _from_file(path, count)
    return None


def _from_file(path: Path, count: int) -> Points:
    with path.open("rb") as file:
        is_npy = file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
    try:
        if is_npy:
            results: Points = np.load(path, allow_pickle=False)
            length = len(results) if results.ndim else 0  # type: ignore[union-attr]
        else:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            results = [json.loads(line) for line in lines if line.strip()]
            length = len(results)
    except (ValueError, EOFError, OSError) as error:
        message = f"the output file is neither .npy nor .jsonl: {error}"
        raise failed(Cause.BAD_RESULT, type(error).__name__, message) from error
    if length != count:
        raise failed(
            Cause.BAD_RESULT, "BadResult", f"the output file holds {length} results for {count} points"
        )
    return results


def _from_lines(stdout: Path, count: int) -> list[Any] | None:
    if stdout.stat().st_size > _MOST_STDOUT_BYTES:
        return None
    text = stdout.read_bytes().decode("utf-8", "replace")
    lines = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    return [_value_of(line) for line in lines] if len(lines) == count else None


def _value_of(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
