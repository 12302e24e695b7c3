"""Define every error that crosses a room of Overnight; each one tells the user what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class OvernightError(Exception):
    """Be the root of all errors that Overnight raises on purpose."""


class BadInputError(OvernightError):
    """Say that the user's input cannot be used; the command ends with status 2 and publishes nothing.

    Attributes:
        faults: one sentence per fault, each naming the thing and the way out.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults: Sequence[str] = faults


class EncodeError(OvernightError):
    """Say that a value cannot be put into a message; names the place in the value and its type."""


class DecodeError(OvernightError):
    """Say that bytes are no message or no value of ours."""


class NewerVersionError(DecodeError):
    """Say that a message was written by a newer Overnight; its address fields are still readable."""


class DataChangedError(OvernightError):
    """Say that a data set is no longer the one that the job was made for."""


class DataUnavailableError(OvernightError):
    """Say that a data set cannot be read on this machine."""


class MethodUnavailableError(OvernightError):
    """Say that a method cannot be imported here.

    Attributes:
        traceback_text: the traceback from the user's own code on, or empty.
        missing_module: the module that was looked for in vain (for example `torch`), or None.
    """

    def __init__(self, message: str, traceback_text: str = "", missing_module: str | None = None) -> None:
        super().__init__(message)
        self.traceback_text = traceback_text
        self.missing_module = missing_module


class BrokerError(OvernightError):
    """Be the root of what goes wrong between us and a broker."""


class BrokerUnreachableError(BrokerError):
    """Say that no broker answered in time; carries the address without the password."""


class QueueMismatchError(BrokerError):
    """Say that a queue exists with other arguments than ours; shows both and the way out."""


class PublishError(BrokerError):
    """Be the root of the reasons why a message was not accepted; given to `on_settled`."""


class NotConnectedError(PublishError):
    """Say that the link was down, or broke before the confirm: the message may or may not be in the queue."""


class UnroutableError(PublishError):
    """Say that the queue does not exist: the message is nowhere."""


class RefusedError(PublishError):
    """Say that the broker refused the message (a full queue, a limit by policy)."""


class TooLargeError(PublishError):
    """Say that the message is over the size limit and was not sent; gives both sizes."""
