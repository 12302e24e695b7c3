"""Do a task in a child: load what it names, run it, and write the reply."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from overnight_common.errors import EncodeError, MethodUnavailableError
from overnight_common.fingerprints import command_fingerprint
from overnight_common.messages import VERSION, Cause, Encoded, Failure, Reply, Task, decode_task, encode
from overnight_common.values import encode_values
from overnight_consumer import calling, device_faults
from overnight_consumer.calling import Caller
from overnight_consumer.catalogue import Catalogue
from overnight_consumer.commands import CommandRun, run_command
from overnight_consumer.deaths import memory_words
from overnight_consumer.devices import CUDA, kind_of
from overnight_consumer.failures import (
    TaskFailedError,
    UnusableTaskError,
    exception_failure,
    failed,
    is_memory_of_device,
)
from overnight_consumer.frames import Answer, FromChild, Loading, Progress, Setup, Started, Work
from overnight_consumer.points import PointSource

if TYPE_CHECKING:
    from collections.abc import Callable


_OURS = (__file__, calling.__file__)
_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
_MOST_CALLERS = 2
_PROGRESS_SECONDS = 1.0


class Worker:
    """Answer tasks, one after the other.

    Args:
        setup: what is served.
        say: sends a frame to the parent.
    """

    def __init__(self, setup: Setup, say: Callable[[FromChild], None]) -> None:
        self._setup = setup
        self._say = say
        self._pid = os.getpid()
        self._catalogue = Catalogue(setup)
        self._points = PointSource()
        self._callers: dict[tuple[str, bytes, bool], tuple[Caller, str]] = {}
        self._progress_at = 0.0
        self._loads = False
        self._kind = kind_of(setup.device)
        self._device_tried = self._kind != CUDA

    def preload(self) -> dict[str, str]:
        """Import what will surely be needed, and return what cannot be imported and why.

        Raises:
            TaskFailedError: cause start_failed: the device of this slot does not work.
        """
        faults = self._catalogue.preload(self._kind)
        self._hold_torch()
        self._try_device()
        return faults

    def answer(self, work: Work) -> Answer:
        """Run a task and return its answer; never raises for what the user's code does."""
        task = decode_task(work.body)
        run = _Run(task, self._setup, work.delivery_count)
        try:
            command = self._catalogue.command(task.method)
            if command is None:
                self._run_method(task, run)
            else:
                self._run_command(command, task, run)
            return run.done()
        except TaskFailedError as error:
            return run.failed(error.failure, error.log_tail)
        except UnusableTaskError as error:
            return Answer("unusable", "", str(error), run.seconds, b"")
        except MethodUnavailableError as error:
            failure = Failure(
                Cause.METHOD_UNAVAILABLE, type(error).__name__, str(error), error.traceback_text
            )
            return run.failed(failure)
        except EncodeError as error:
            return run.failed(Failure(Cause.BAD_RESULT, type(error).__name__, str(error)))
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit too
            return self._raised(error, run)

    def _raised(self, error: BaseException, run: _Run) -> Answer:
        """Answer for an exception of the user's code; it may have cost us the device."""
        failure = exception_failure(error, _OURS)
        if failure.cause is not Cause.OUT_OF_MEMORY:
            return run.failed(failure, last=device_faults.has_fallen_over(error))
        if self._kind == CUDA and is_memory_of_device(error):
            words = device_faults.memory_words(self._setup.device)
        else:
            words = memory_words(_peak_rss_bytes(), self._setup.memory_limit_bytes)
        return run.failed(msgspec.structs.replace(failure, message=f"{failure.message} ({words})"))

    def _run_method(self, task: Task, run: _Run) -> None:
        caller, run.fingerprint = self._caller(task)
        _check_fingerprint(task, run.fingerprint)
        points = self._points.read(task)
        self._begin(task, run)
        try:
            results = caller(points, task, self._progress)
        except BaseException as error:
            self._leave_if_forked(error)
            raise
        finally:
            run.end()
        self._leave_if_forked(None)
        run.result = encode_values(results, task.stop - task.start)

    def _leave_if_forked(self, error: BaseException | None) -> None:
        """End a process that the method forked and let come back to us: it must not answer in our name."""
        if os.getpid() == self._pid:
            return
        status = 0
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            traceback.print_exception(error)
            status = 1
        for standard in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                standard.flush()
        os._exit(status)

    def _run_command(self, command: str, task: Task, run: _Run) -> None:
        source = Path(self._setup.source)
        run.fingerprint = command_fingerprint(command, source)
        _check_fingerprint(task, run.fingerprint)
        points = self._points.read(task)
        self._begin(task, run)
        try:
            output = run_command(
                CommandRun(
                    command, task, points, source, Path(self._setup.scratch), self._setup.memory_limit_bytes
                )
            )
        finally:
            run.end()
        run.log_tail = output.log_tail
        if output.values is not None:
            run.result = encode_values(output.values, task.stop - task.start)

    def _begin(self, task: Task, run: _Run) -> None:
        if self._loads or self._setup.timed or task.time_limit_seconds is not None:
            self._loads = False
            self._say(Started())
        run.begin()

    def _caller(self, task: Task) -> tuple[Caller, str]:
        """Return what calls the method with these parameters, and its fingerprint; kept for the next task."""
        per_point = task.per_point or self._setup.per_point
        key = (task.method, msgspec.msgpack.encode(task.params), per_point)
        known = self._callers.get(key)
        if known is not None:
            return known
        self._loads = True
        self._say(Loading())
        method = self._catalogue.method(task.method)
        _check_fingerprint(task, method.fingerprint)
        target = self._catalogue.variant(method, self._kind)
        self._try_device()
        while len(self._callers) >= _MOST_CALLERS:  # models are large: one goes before the next is loaded
            del self._callers[next(iter(self._callers))]
        # It sees one device only: a number would be neither ours nor that of NVIDIA's tools.
        caller = Caller(target, task.params, self._kind, per_point=per_point)
        self._callers[key] = (caller, method.fingerprint)
        self._hold_torch()
        return self._callers[key]

    def _try_device(self) -> None:
        """Make sure, once the method has loaded torch, that it can use the device; else we are at fault."""
        torch = device_faults.loaded_torch()
        if self._device_tried or torch is None:
            return
        fault = device_faults.trial(torch, self._kind)
        if fault:
            message = f"{self._setup.device} cannot be used: {fault}"
            raise failed(Cause.START_FAILED, "DeviceError", message)
        self._device_tried = True

    def _hold_torch(self) -> None:
        """Hold torch to the slot's threads; it is not imported for that."""
        torch = device_faults.loaded_torch()
        if torch is not None and hasattr(torch, "set_num_threads"):
            torch.set_num_threads(self._setup.threads)

    def _progress(self, done: float, total: float = 1.0) -> None:
        now = time.monotonic()
        if now - self._progress_at >= _PROGRESS_SECONDS:
            self._progress_at = now
            self._say(Progress(float(done), float(total)))


class _Run:
    """Collect what the reply to one task says."""

    def __init__(self, task: Task, setup: Setup, delivery_count: int) -> None:
        self._task = task
        self._setup = setup
        self._delivery_count = delivery_count
        self._began = 0.0
        self._started_at = time.time()
        self.seconds = 0.0
        self.fingerprint = ""
        self.result: Encoded | None = None
        self.log_tail = ""

    def begin(self) -> None:
        self._started_at = time.time()
        self._began = time.perf_counter()

    def end(self) -> None:
        self.seconds = time.perf_counter() - self._began

    def done(self) -> Answer:
        body = self._reply(None)
        most = self._setup.max_message_bytes
        if len(body) > most:
            size = len(body)
            message = f"the reply takes {size:,} bytes; the limit is {most:,}: make the batch smaller"
            self.result, self.log_tail = None, ""
            return self.failed(Failure(Cause.RESULT_TOO_LARGE, "ResultTooLarge", message))
        return Answer("done", "", "", self.seconds, body)

    def failed(self, failure: Failure, log_tail: str = "", *, last: bool = False) -> Answer:
        self.result, self.log_tail = None, log_tail
        note = f"{failure.type}: {failure.message}"[:500]
        return Answer("failed", failure.cause.value, note, self.seconds, self._reply(failure), last)

    def _reply(self, failure: Failure | None) -> bytes:
        task = self._task
        return encode(
            Reply(
                v=VERSION,
                job=task.job,
                start=task.start,
                stop=task.stop,
                attempt=task.attempt,
                kind="done" if failure is None else "failed",
                consumer=self._setup.consumer,
                slot=self._setup.slot,
                device=self._setup.device,
                fingerprint=self.fingerprint,
                started_at=self._started_at,
                seconds=self.seconds,
                peak_rss_bytes=_peak_rss_bytes(),
                delivery_count=self._delivery_count,
                result=self.result,
                failure=failure,
                log_tail=self.log_tail,
            )
        )


def _peak_rss_bytes() -> int:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in who) * _RSS_UNIT_BYTES


def _check_fingerprint(task: Task, fingerprint: str) -> None:
    if task.fingerprint and task.fingerprint != fingerprint:
        message = (
            f"the job was made for code {task.fingerprint}, here it is {fingerprint}: use the same files"
        )
        raise failed(Cause.WRONG_FINGERPRINT, "WrongFingerprint", message)
