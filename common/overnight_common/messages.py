"""Define the task and reply messages and turn them into bytes and back (MessagePack, a version, strict).

Nothing here imports NumPy: points and results are opaque bytes to everyone but the child and the driver
(`overnight_common.values`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from overnight_common.errors import DecodeError, EncodeError, NewerVersionError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
DEFAULT_MAX_MESSAGE_BYTES = 8 * 1024 * 1024


class Cause(enum.StrEnum):
    """Name why a task failed; the list is closed."""

    EXCEPTION = "exception"
    BAD_RESULT = "bad_result"
    RESULT_TOO_LARGE = "result_too_large"
    TIME_LIMIT = "time_limit"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED_BY_SIGNAL = "killed_by_signal"
    EXIT_STATUS = "exit_status"
    LOST_CONSUMER = "lost_consumer"
    # These four accuse the consumer, not the task: never charged, never split.
    METHOD_UNAVAILABLE = "method_unavailable"
    WRONG_FINGERPRINT = "wrong_fingerprint"
    DATA_UNAVAILABLE = "data_unavailable"
    START_FAILED = "start_failed"

    @property
    def accuses_consumer(self) -> bool:
        """Tell whether the consumer, and not the task, is at fault."""
        return self in _ACCUSES_CONSUMER


_ACCUSES_CONSUMER = frozenset(
    {Cause.METHOD_UNAVAILABLE, Cause.WRONG_FINGERPRINT, Cause.DATA_UNAVAILABLE, Cause.START_FAILED}
)


class Encoded(msgspec.Struct, frozen=True, tag_field="by", tag="value"):
    """Hold values as bytes: one npy array whose first length is n, or a JSON list of n (see `values`)."""

    kind: Literal["npy", "json"]
    body: bytes


class DataReference(msgspec.Struct, frozen=True, tag_field="by", tag="reference"):
    """Point to a data set that the consumer can open itself."""

    uri: str
    length: int
    fingerprint: str


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Say why a task failed, with the figures a person needs. Text that is no Unicode gets question marks."""

    cause: Cause
    type: str = ""
    message: str = ""
    traceback: str = ""
    stderr_tail: str = ""

    def __post_init__(self) -> None:
        for name in ("type", "message", "traceback", "stderr_tail"):
            _make_encodable(self, name)


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ask for the points `[start, stop)` of a job; `start == stop` is a probe, answered at once.

    Attributes:
        v: schema version.
        job: job id.
        reply_to: name of the reply queue.
        start: index of the first point in the data set.
        stop: index after the last point.
        attempt: number of this publication of the range, from 1, never repeated.
        method: name under which consumers serve the method.
        fingerprint: hash of the method's code; empty if not yet known.
        params: keyword arguments of the method.
        seed: the job's seed; each point's randomness derives from it and the point's index.
        data: the points, or where they are; None for a probe.
        per_point: True if the method takes one point and not a batch.
        time_limit_seconds: None for no limit.
        published_at: when this publication was made, UTC, seconds since 1970; 0 if not told.
    """

    v: int
    job: str
    reply_to: str
    start: int
    stop: int
    attempt: int
    method: str
    fingerprint: str = ""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    seed: int = 0
    data: Encoded | DataReference | None = None
    per_point: bool = False
    time_limit_seconds: float | None = None
    published_at: float = 0.0

    def __post_init__(self) -> None:
        _check_range(self.start, self.stop, self.attempt)

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Identify this publication among all others."""
        return (self.job, self.start, self.stop, self.attempt)


ReplyKind = Literal["running", "done", "failed"]


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Say what became of a task.

    Attributes:
        kind: `running` (with `seconds` so far), `done` (with `result`, None for a probe or points done
            without a value) or `failed` (with `failure`).
        consumer: name of the consumer; `slot`: number of its slot, from 1 (0: no slot took it).
        device: device of the slot, for example `cpu`.
        fingerprint: hash of the code that ran.
        started_at: UTC, seconds since 1970.
        seconds: how long it ran.
        peak_rss_bytes: largest resident memory of the child so far, 0 if unknown.
        delivery_count: how often the broker had handed the task out before.
    """

    v: int
    job: str
    start: int
    stop: int
    attempt: int
    kind: ReplyKind
    consumer: str
    slot: int = 0
    device: str = ""
    fingerprint: str = ""
    started_at: float = 0.0
    seconds: float = 0.0
    peak_rss_bytes: int = 0
    delivery_count: int = 0
    result: Encoded | None = None
    failure: Failure | None = None
    log_tail: str = ""

    def __post_init__(self) -> None:
        _check_range(self.start, self.stop, self.attempt)
        if (self.kind == "failed") != (self.failure is not None):
            raise ValueError("a failed reply, and no other, carries a failure")
        _make_encodable(self, "log_tail")

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Identify the publication that this answers."""
        return (self.job, self.start, self.stop, self.attempt)


class TaskAddress(msgspec.Struct, frozen=True):
    """Read the fields that every version of a task has, so that a newer one can still be answered."""

    v: int
    job: str
    reply_to: str
    start: int
    stop: int
    attempt: int


def _check_range(start: int, stop: int, attempt: int) -> None:
    if not 0 <= start <= stop:
        raise ValueError(f"[{start}, {stop}) is no range")
    if attempt < 1:
        raise ValueError(f"attempt {attempt} is below 1")


def _make_encodable(message: msgspec.Struct, name: str) -> None:
    # A lone surrogate (an undecodable file name in a traceback) must not cost the whole reply.
    text: str = getattr(message, name)
    if not text.isascii():
        msgspec.structs.force_setattr(message, name, text.encode("utf-8", "replace").decode("utf-8"))


_ARRAY_16 = b"\xdc"
# How MessagePack begins an array, with its length or before it; a single reply is a map.
_ARRAYS = frozenset({_ARRAY_16, b"\xdd", *(bytes([first]) for first in range(0x90, 0xA0))})
_encoder = msgspec.msgpack.Encoder()
_task_decoder = msgspec.msgpack.Decoder(Task)
_reply_decoder = msgspec.msgpack.Decoder(Reply)
_bundle_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_address_decoder = msgspec.msgpack.Decoder(TaskAddress)


class _Version(msgspec.Struct):
    v: int


_version_decoder = msgspec.msgpack.Decoder(_Version)


def encode(message: Task | Reply) -> bytes:
    """Return the message as bytes.

    Raises:
        EncodeError: the parameters hold what has no form in a message.
    """
    try:
        return _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EncodeError(f"a message that cannot be encoded: {error}") from error


def _decode(decoder: msgspec.msgpack.Decoder[Any], body: bytes | msgspec.Raw, what: str) -> Any:
    try:
        message = decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if _version_of(body) > VERSION:
            raise NewerVersionError(
                f"{what} of version {_version_of(body)}; this is version {VERSION}: update Overnight here"
            ) from error
        raise DecodeError(f"not a {what}: {error}") from error
    if message.v > VERSION:
        raise NewerVersionError(
            f"{what} of version {message.v}; this is version {VERSION}: update Overnight here"
        )
    if message.v < 1:
        raise DecodeError(f"not a {what}: version {message.v}")
    return message


def _version_of(body: bytes | msgspec.Raw) -> int:
    try:
        return _version_decoder.decode(body).v
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0


def decode_task(body: bytes) -> Task:
    """Return the task in `body`.

    Raises:
        NewerVersionError: it was written by a newer Overnight (`decode_address` still works).
        DecodeError: it is no task.
    """
    return _decode(_task_decoder, body, "task")  # type: ignore[no-any-return]


def decode_reply(body: bytes | msgspec.Raw) -> Reply:
    """Return the reply in `body`; raises as `decode_task` does."""
    return _decode(_reply_decoder, body, "reply")  # type: ignore[no-any-return]


def bundle(replies: Sequence[bytes]) -> bytes:
    """Return the body of one message that carries encoded replies, at most 65,535; a single one stays as it is."""
    if len(replies) == 1:
        return replies[0]
    return _ARRAY_16 + len(replies).to_bytes(2, "big") + b"".join(replies)


def unbundle(body: bytes) -> list[bytes | msgspec.Raw]:
    """Return the encoded replies in a message, one or several, each for `decode_reply`.

    Raises:
        DecodeError: it is a bundle that is broken or empty.
    """
    if body[:1] not in _ARRAYS:
        return [body]
    try:
        replies = _bundle_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DecodeError(f"not a bundle of replies: {error}") from error
    if not replies:
        raise DecodeError("not a bundle of replies: it is empty")
    return list(replies)


def decode_replies(body: bytes) -> list[Reply]:
    """Return all replies in a message; raises as `unbundle` and `decode_reply` do."""
    return [decode_reply(each) for each in unbundle(body)]


def decode_address(body: bytes) -> TaskAddress:
    """Return where an answer to this task goes, whatever its version; raises DecodeError."""
    try:
        return _address_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DecodeError(f"not a task: {error}") from error
