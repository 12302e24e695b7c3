"""Turn what went wrong in a child into the failure that a reply carries."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from overnight_common.messages import Cause, Failure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_MOST_CHARACTERS = 16_000
_DEEPEST_CAUSE = 8
_MEMORY_ERRORS = frozenset({"MemoryError", "OutOfMemoryError", "ResourceExhaustedError"})
_HOST_WORDS = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")
_MEMORY_WORDS = (
    *_HOST_WORDS,
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED",
)


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
    cause = Cause.OUT_OF_MEMORY if is_out_of_memory(error) else Cause.EXCEPTION
    return Failure(cause, type(error).__qualname__, _shortened(message), _shortened(text))


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception, or one that it was raised from, says that memory ran out, also on a device.

    Libraries are known by the names of their classes (torch, CuPy, TensorFlow), so that none is imported; where
    torch and JAX raise a RuntimeError, by its text.
    """
    return any(_says_memory(each) for each in chain_of(error))


def is_memory_of_device(error: BaseException) -> bool:
    """Tell of an exception that says that memory ran out whether it was that of a device."""
    which = next(each for each in chain_of(error) if _says_memory(each))
    return not isinstance(which, MemoryError) and not any(words in text_of(which) for words in _HOST_WORDS)


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from."""
    for _ in range(_DEEPEST_CAUSE):
        if error is None:
            return
        yield error
        error = error.__cause__


def _says_memory(error: BaseException) -> bool:
    if _MEMORY_ERRORS & {each.__name__ for each in type(error).__mro__}:
        return True
    return isinstance(error, RuntimeError) and any(words in text_of(error) for words in _MEMORY_WORDS)


def text_of(error: BaseException) -> str:
    """Return an exception's text, empty if it has none."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - `__str__` of an exception is user code
        return ""


def _shortened(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
