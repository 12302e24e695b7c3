"""Turn what went wrong in a child into the failure that a reply carries."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from overnight_common.messages import Cause, Failure

if TYPE_CHECKING:
    from collections.abc import Collection

_MOST_CHARACTERS = 16_000


class TaskFailedError(Exception):
    """Carry the failure of a task out of the depths of a child."""

    def __init__(self, failure: Failure, log_tail: str = "") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.log_tail = log_tail


class UnusableTaskError(Exception):
    """Say that no consumer can ever use this task: its message is broken."""


def failed(cause: Cause, type_: str, message: str, traceback_text: str = "") -> TaskFailedError:
    """Return the error to raise for a failure without an exception of the user's."""
    return TaskFailedError(Failure(cause, type_, message, _shortened(traceback_text)))


def exception_failure(error: BaseException, ours: Collection[str]) -> Failure:
    """Return the failure for an exception of the user's code.

    Args:
        error: what was raised, SystemExit and KeyboardInterrupt included.
        ours: file names whose frames are left out at the beginning of the traceback.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
        message = str(error)
    except Exception as second:  # noqa: BLE001 - `__str__` of an exception is user code too
        text, message = f"(its text cannot be had: {type(second).__name__})", ""
    if isinstance(error, SystemExit):
        message = f"the method ended the program (SystemExit: {error.code})"
    return Failure(Cause.EXCEPTION, type(error).__qualname__, _shortened(message), _shortened(text))


def _shortened(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
