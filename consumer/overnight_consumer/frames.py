"""Define what the consumer's parent and a child say to each other, and put it into frames and back.

A frame is four bytes that no text begins with, four bytes of length (big-endian) and a MessagePack body. A
method may write into any open file descriptor, ours too: what does not begin like that is found out at once.
The task goes to the child as the bytes that came from the broker; the reply comes back as the bytes that go
to the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = b"\xffov\xfe"
_HEADER_BYTES = len(_MARK) + 4


class GarbledError(ValueError):
    """Say that what came is none of our frames."""


class Setup(msgspec.Struct, frozen=True, tag="setup"):
    """Tell a new child what it serves; the first frame it gets.

    Attributes:
        methods: as given to `--methods`: `module:function`, a bare name, or a module.
        commands: texts of the commands that may be run.
        per_point: what holds for methods that do not say.
        source: folder where the user's modules are looked for.
        device: of this slot, for example `cpu` or `cuda:1`; the child sees no other CUDA device.
        consumer: name of the consumer, for replies.
        slot: number of the slot, from 1.
        threads: threads per slot, for libraries that read no environment.
        max_message_bytes: the largest reply that may be sent.
        timed: the parent counts the run time of every task, not only of those with a limit of their own.
        memory_limit_bytes: what the child may use, to be named when memory runs out; None for no limit.
        scratch: folder for files of commands; the parent removes it when the child is gone.
    """

    methods: tuple[str, ...]
    commands: tuple[str, ...]
    per_point: bool
    source: str
    device: str
    consumer: str
    slot: int
    threads: int
    max_message_bytes: int
    scratch: str
    timed: bool = False
    memory_limit_bytes: int | None = None


class Work(msgspec.Struct, frozen=True, tag="work", array_like=True):
    """Hand a task to the child: the bytes from the broker, and how often they had been handed out before."""

    delivery_count: int
    body: bytes


class Recall(msgspec.Struct, frozen=True, tag="recall", array_like=True):
    """Take back the tasks that were handed over and not begun; answered with `Recalled`."""


class Ready(msgspec.Struct, frozen=True, tag="ready", array_like=True):
    """Say that the child is warm.

    Attributes:
        faults: what it could not import, as given to `--methods` -> why.
    """

    faults: dict[str, str] = {}


class Loading(msgspec.Struct, frozen=True, tag="loading", array_like=True):
    """Say that a method is loaded now, for the task that runs; `Started` or an answer follows."""


class Started(msgspec.Struct, frozen=True, tag="started", array_like=True):
    """Say that loading is over and the method runs; sent after `Loading`, or if a time limit is to be counted."""


class Recalled(msgspec.Struct, frozen=True, tag="recalled", array_like=True):
    """Say how many tasks were recalled: the next ones in the order in which they came."""

    count: int


class Progress(msgspec.Struct, frozen=True, tag="progress", array_like=True):
    """Pass on what the method said about how far it is."""

    done: float
    total: float


class Answer(msgspec.Struct, frozen=True, tag="answer", array_like=True):
    """Answer a task.

    Attributes:
        kind: `done`, `failed`, or `unusable` (the task cannot be used by anybody: a dead letter).
        cause: the failure's cause, else empty.
        note: the reason, for the log and for a dead letter.
        seconds: how long the method ran.
        reply: the encoded reply; empty if unusable.
        last: the child can do no more, for its device has fallen over.
    """

    kind: Literal["done", "failed", "unusable"]
    cause: str
    note: str
    seconds: float
    reply: bytes
    last: bool = False


FromChild = Ready | Loading | Started | Progress | Answer | Recalled
Order = Work | Recall
ToChild = Setup | Order

_encoder = msgspec.msgpack.Encoder()
_from_child = msgspec.msgpack.Decoder(FromChild)
_to_child_setup = msgspec.msgpack.Decoder(Setup)
_to_child_order = msgspec.msgpack.Decoder(Order)


def pack(message: FromChild | ToChild) -> bytes:
    """Return the message as one frame."""
    body = _encoder.encode(message)
    return _MARK + len(body).to_bytes(4, "big") + body


def decode_from_child(body: bytes | memoryview) -> FromChild:
    """Return what a child said; raises msgspec.MsgspecError if it is none of our frames."""
    return _from_child.decode(body)


def decode_setup(body: bytes) -> Setup:
    """Return the setup in the first frame that a child gets."""
    return _to_child_setup.decode(body)


def decode_order(body: bytes) -> Order:
    """Return the order in any later frame that a child gets."""
    return _to_child_order.decode(body)


class FrameReader:
    """Cut a stream of bytes into the bodies of its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add what came from the socket and give the bodies that are complete now.

        Raises:
            GarbledError: what follows the bodies given so far is no frame.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) > at:
                head = bytes(buffer[at : at + _HEADER_BYTES])
                if not _MARK.startswith(head[: len(_MARK)]):
                    raise GarbledError(f"no frame begins with {head!r}")
                end = at + _HEADER_BYTES + int.from_bytes(head[len(_MARK) :], "big")
                if len(head) < _HEADER_BYTES or len(buffer) < end:
                    break
                body = bytes(buffer[at + _HEADER_BYTES : end])
                at = end
                yield body
        finally:
            del buffer[:at]
