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
    CANCELLED = "cancelled"  # killed by us, for nobody wants its task any more
    KILLED = "killed"  # SIGKILL from elsewhere, perhaps for memory
    SEGMENTATION_FAULT = "segmentation_fault"
    SIGNAL = "signal"  # any other
    EXIT_STATUS = "exit_status"  # it ended by itself
    START_FAILED = "start_failed"  # it was gone before it was ready


@dataclass(frozen=True, slots=True)
class Death:
    """Describe how a child ended.

    Attributes:
        exit_status: as `Popen.returncode` has it: negative for a signal.
        peak_rss_bytes: its largest resident memory.
        stderr_tail: the last lines that it wrote.
        seconds: how long its task had run, 0 if it had none.
        limit_seconds: the time limit for which we killed it, or None.
    """

    exit_status: int
    peak_rss_bytes: int
    stderr_tail: str
    seconds: float = 0.0
    limit_seconds: float | None = None


def exit_reason(exit_status: int) -> ExitReason:
    """Return how a child ended that we did not end; `exit_status` as in `Death`."""
    if exit_status >= 0:
        return ExitReason.EXIT_STATUS
    known = {int(signal.SIGKILL): ExitReason.KILLED, int(signal.SIGSEGV): ExitReason.SEGMENTATION_FAULT}
    return known.get(-exit_status, ExitReason.SIGNAL)


def failure_of(death: Death) -> Failure:
    """Return the failure of the task that a child was running when it died."""
    figures = f"after {death.seconds:.1f} s, peak memory {death.peak_rss_bytes / 2**20:.0f} MiB"
    if death.limit_seconds is not None:
        message = f"Ran {death.seconds:.1f} s; the limit is {death.limit_seconds:g} s. Killed, {figures}."
        return Failure(Cause.TIME_LIMIT, "TimeLimit", message, stderr_tail=death.stderr_tail)
    if death.exit_status < 0:
        name = signal_name(-death.exit_status)
        message = f"The child was killed by {name} {figures}."
        return Failure(Cause.KILLED_BY_SIGNAL, name, message, stderr_tail=death.stderr_tail)
    message = f"The child ended with exit status {death.exit_status} {figures}."
    return Failure(
        Cause.EXIT_STATUS, f"exit status {death.exit_status}", message, stderr_tail=death.stderr_tail
    )


def start_failure_of(death: Death) -> Failure:
    """Return the failure of a task that waits while no child can be started."""
    how = signal_name(-death.exit_status) if death.exit_status < 0 else f"exit status {death.exit_status}"
    message = f"No child could be started here: the last one ended with {how} before it was ready."
    return Failure(Cause.START_FAILED, how, message, stderr_tail=death.stderr_tail)


def signal_name(number: int) -> str:
    """Return a signal's name and number, for example `SIGKILL (9)`."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"
