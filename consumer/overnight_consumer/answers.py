"""Write the replies that the parent itself gives: to probes, for dead children, while a task runs; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from overnight_common.brokers.base import Message
from overnight_common.messages import (
    VERSION,
    Cause,
    Failure,
    Reply,
    Task,
    TaskAddress,
    bundle,
    decode_reply,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight_consumer.held import Held

PROGRESS_FIRST_SECONDS = 5.0
PROGRESS_EVERY_SECONDS = 30.0


def reply_to(
    task: Task,
    *,
    consumer: str,
    failure: Failure | None = None,
    running_seconds: float | None = None,
    slot: int = 0,
    device: str = "",
    started_at: float = 0.0,
    seconds: float = 0.0,
    peak_rss_bytes: int = 0,
    delivery_count: int = 0,
) -> bytes:
    """Return an encoded reply: `failed` with a failure, `running` with the seconds so far, else `done`."""
    kind = "failed" if failure is not None else "done" if running_seconds is None else "running"
    return encode(
        Reply(
            v=VERSION,
            job=task.job,
            start=task.start,
            stop=task.stop,
            attempt=task.attempt,
            kind=kind,  # type: ignore[arg-type]
            consumer=consumer,
            slot=slot,
            device=device,
            started_at=started_at,
            seconds=seconds if running_seconds is None else running_seconds,
            peak_rss_bytes=peak_rss_bytes,
            delivery_count=delivery_count,
            failure=failure,
        )
    )


def running(held: Held, consumer: str, device: str, seconds: float) -> bytes:
    """Return an encoded `running` reply to a task that has run for so long."""
    return reply_to(held.task, consumer=consumer, running_seconds=seconds, slot=held.slot, device=device)


def message_of(answered: Sequence[Held]) -> Message:
    """Return the message that carries the replies to tasks of one job."""
    first = answered[0].task
    name = f"{first.job}/{first.start}-{first.stop}/{first.attempt}"
    if len(answered) > 1:
        name += f" and {len(answered) - 1} more"
    return Message(bundle([held.reply for held in answered]), "reply", name)


def dead_letter_of(held: Held, reason: str) -> Message:
    """Return what to put to the dead letters when nobody reads the queue of a reply."""
    reply = message_of([held])
    headers = {"reason": reason, "from_queue": held.task.reply_to, "original_type": "reply"}
    return Message(reply.body, "dead", reply.message_id, headers)


def with_last_words(reply: bytes, stderr_tail: str) -> bytes:
    """Return a child's encoded `failed` reply with the end of its standard error, if it has none of its own."""
    said = decode_reply(reply)
    if said.failure is None or said.failure.stderr_tail or not stderr_tail:
        return reply
    failure = msgspec.structs.replace(said.failure, stderr_tail=stderr_tail)
    return encode(msgspec.structs.replace(said, failure=failure))


def lost_consumer(delivery_count: int, most: int) -> Failure:
    """Return the failure of a task that took too many consumers with it."""
    message = (
        f"Handed out {delivery_count} times before and never answered (the limit is {most}): "
        "it may have killed the consumers that took it. Not run again here."
    )
    return Failure(Cause.LOST_CONSUMER, "LostConsumer", message)


def newer_version(error: str) -> Failure:
    """Return the failure of a task that a newer Overnight has written."""
    return Failure(Cause.METHOD_UNAVAILABLE, "NewerVersionError", error)


def result_too_large(words: str) -> Failure:
    """Return the failure of a task whose reply the broker refused for its size."""
    return Failure(Cause.RESULT_TOO_LARGE, "TooLargeError", words)


def task_of(address: TaskAddress) -> Task:
    """Return as much of a task as can be read of every version, enough to answer it."""
    return Task(
        VERSION, address.job, address.reply_to, address.start, address.stop, address.attempt, method=""
    )


def running_is_due(now: float, dispatched_at: float, said_at: float) -> bool:
    """Tell whether to say that a task runs: after 5 s, then every 30 s."""
    if not said_at:
        return now - dispatched_at >= PROGRESS_FIRST_SECONDS
    return now - said_at >= PROGRESS_EVERY_SECONDS
