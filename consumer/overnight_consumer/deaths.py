"""Say why a child died, from what the system tells about it; pure."""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass

from overnight_common.messages import Cause, Failure


class ExitReason(enum.StrEnum):
    """Name how a child came to its end; the list is closed."""

    STOPPED = "stopped"  # we asked it to end
    TIME_LIMIT = "time_limit"
    LOAD_LIMIT = "load_limit"  # it was not ready in time, or the method not loaded
    MEMORY_LIMIT = "memory_limit"
    CANCELLED = "cancelled"  # killed by us, for nobody wants its task any more
    DEVICE_FAILED = "device_failed"  # killed by us after its answer, for its device had fallen over
    KERNEL_OUT_OF_MEMORY = "kernel_out_of_memory"
    KILLED = "killed"  # SIGKILL from elsewhere
    SEGMENTATION_FAULT = "segmentation_fault"
    SIGNAL = "signal"  # any other
    EXIT_STATUS = "exit_status"  # it ended by itself
    START_FAILED = "start_failed"  # it was gone before it was ready


@dataclass(frozen=True, slots=True)
class Death:
    """Describe how a child ended.

    Attributes:
        exit_status: as `Popen.returncode` has it: negative for a signal.
        peak_rss_bytes: its largest memory, or that of its whole session if that was seen to be more.
        stderr_tail: the last lines that it wrote.
        seconds: how long its task had run, 0 if it had none; loading counts only if the child died of it.
        why: `TIME_LIMIT`, `LOAD_LIMIT`, `MEMORY_LIMIT` or `CANCELLED` if we killed it for that,
            `KERNEL_OUT_OF_MEMORY` if the kernel did; None if only the exit status tells.
        time_limit_seconds: how long it was allowed to run, None for no limit.
        load_limit_seconds: how long it was allowed to load.
        memory_limit_bytes: how much memory it was allowed, None for no limit.
        garbled: it was killed, for the method had written into the socket to the parent.
        unborn: why the system did not even start it; empty if it did.
    """

    exit_status: int
    peak_rss_bytes: int
    stderr_tail: str
    seconds: float = 0.0
    why: ExitReason | None = None
    time_limit_seconds: float | None = None
    load_limit_seconds: float = 0.0
    memory_limit_bytes: int | None = None
    garbled: bool = False
    unborn: str = ""

    @classmethod
    def at_birth(cls, error: OSError) -> Death:
        """Return the death of a child that could not be started."""
        return cls(exit_status=1, peak_rss_bytes=0, stderr_tail="", unborn=str(error))


def exit_reason(death: Death) -> ExitReason:
    """Return how a child ended."""
    if death.why is not None:
        return death.why
    if death.exit_status >= 0:
        return ExitReason.EXIT_STATUS
    known = {signal.SIGKILL: ExitReason.KILLED, signal.SIGSEGV: ExitReason.SEGMENTATION_FAULT}
    return known.get(-death.exit_status, ExitReason.SIGNAL)  # type: ignore[call-overload,no-any-return]


def failure_of(death: Death) -> Failure:
    """Return the failure of the task that a child was running when it died."""
    figures = f"after {death.seconds:.1f} s, {memory_words(death.peak_rss_bytes, death.memory_limit_bytes)}"
    cause, type_, words = _told(death)
    return Failure(cause, type_, f"{words} {figures}.", stderr_tail=death.stderr_tail)


def _told(death: Death) -> tuple[Cause, str, str]:
    """Return the cause, its type, and the beginning of a sentence."""
    match death.why:
        case ExitReason.TIME_LIMIT:
            words = f"Killed for the time limit of {death.time_limit_seconds or 0.0:g} s"
            return Cause.TIME_LIMIT, "TimeLimit", words
        case ExitReason.LOAD_LIMIT:
            took = f"took longer than {death.load_limit_seconds:g} s (--load-limit)"
            words = f"Killed, for loading what is served here, or its data, {took},"
            return Cause.METHOD_UNAVAILABLE, "LoadLimit", words
        case ExitReason.MEMORY_LIMIT:
            return Cause.OUT_OF_MEMORY, "MemoryLimit", "Killed for the memory limit of a slot"
        case ExitReason.KERNEL_OUT_OF_MEMORY:
            words = "Killed by the kernel, which had run out of memory,"
            return Cause.OUT_OF_MEMORY, "KernelOutOfMemory", words
    how = _how(death)
    if death.garbled:
        words = "Killed, for the method had written into a file descriptor that it did not open,"
        return Cause.KILLED_BY_SIGNAL, "ForeignDescriptor", words
    if death.exit_status < 0:
        return Cause.KILLED_BY_SIGNAL, how, f"The child was killed by {how}"
    return Cause.EXIT_STATUS, how, f"The child ended with {how}"


def start_failure_of(death: Death) -> Failure:
    """Return the failure of a task that waits while no child can be started."""
    if death.unborn:
        return Failure(Cause.START_FAILED, "OSError", f"No child could be started here: {death.unborn}.")
    how = _how(death)
    message = f"No child could be started here: the last one ended with {how} before it was ready."
    if death.why is ExitReason.LOAD_LIMIT:
        message += (
            f" It was killed, for it was not ready after {death.load_limit_seconds:g} s (--load-limit): does an import"
            " of your code wait for something?"
        )
    if death.why in (ExitReason.MEMORY_LIMIT, ExitReason.KERNEL_OUT_OF_MEMORY):
        words = memory_words(death.peak_rss_bytes, death.memory_limit_bytes)
        message += f" It ran out of memory ({words}): fewer --slots or a larger --memory-limit."
    return Failure(Cause.START_FAILED, how, message, stderr_tail=death.stderr_tail)


def _how(death: Death) -> str:
    if death.exit_status < 0:
        return signal_name(-death.exit_status)
    return f"exit status {death.exit_status}"


def memory_words(peak_bytes: int, limit_bytes: int | None) -> str:
    """Return `peak memory 300 MiB, allowed 500 MiB`."""
    allowed = "no limit" if limit_bytes is None else f"allowed {limit_bytes / 2**20:.0f} MiB"
    return f"peak memory {peak_bytes / 2**20:.0f} MiB, {allowed}"


def signal_name(number: int) -> str:
    """Return a signal's name and number, for example `SIGKILL (9)`."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"
