"""Read the dead letters, and replay or purge them; nothing leaves the queue but by a person's word.

Reading takes deliveries and hands them back. Up to RabbitMQ 4.2 each hand-back counts, and from 4.0 on a quorum
queue drops a message after 20 of them; so a letter that was read some times is published afresh, confirmed, before
the old copy is acked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from overnight_common.brokers.base import DEAD_QUEUE, Broker, Delivery, Message
from overnight_common.errors import BadInputError, DecodeError, PublishError
from overnight_common.messages import decode_replies, decode_reply, decode_task, unbundle

if TYPE_CHECKING:
    import msgspec

MOST_LETTERS = 10_000
QUIET_SECONDS = 1.0
READ_OFTEN = 5


@dataclass(frozen=True, slots=True)
class Letter:
    """Hold one dead letter while it is un-acked.

    Attributes:
        id: short, from its content, so that it is the same each time it is read.
        reason: why nobody could use it.
        from_queue: where it was taken from, empty if unknown.
        type: what it was: `task`, `probe`, `reply` or something else.
        at: UTC time of its burial, None if the broker itself buried it.
    """

    id: str
    reason: str
    from_queue: str
    type: str
    at: datetime | None
    delivery: Delivery

    @property
    def body(self) -> bytes:
        """Return the bytes of the message."""
        return self.delivery.message.body

    def meaning(self) -> str:
        """Return what the bytes say, for a person."""
        with contextlib.suppress(DecodeError):
            return str(decode_task(self.body))
        with contextlib.suppress(DecodeError):
            replies = unbundle(self.body)
            if len(replies) > 1:
                return "\n".join(f"reply {n}: {_said(each)}" for n, each in enumerate(replies, 1))
            return str(decode_reply(self.body))
        return repr(self.body[:2000])


async def with_letters(broker: Broker, act: Callable[[list[Letter]], Awaitable[list[Letter]]]) -> None:
    """Take all dead letters, ack those that `act` returns, and hand back the others.

    Args:
        broker: open.
        act: gets the letters, the oldest first, and returns those that are dealt with.
    """
    await broker.declare(DEAD_QUEUE)
    letters = await _take_all(broker)
    settled: list[Letter] = []
    try:
        settled = await act(letters)
    finally:
        for letter in letters:
            if letter in settled:
                broker.ack(letter.delivery)
            else:
                await _put_back(broker, letter.delivery)


async def _take_all(broker: Broker) -> list[Letter]:
    depth = await broker.depth(DEAD_QUEUE)
    if depth is None or depth.ready == 0:
        return []
    deliveries: list[Delivery] = []
    arrived = asyncio.Event()

    def on_delivery(delivery: Delivery) -> None:
        deliveries.append(delivery)
        arrived.set()

    subscription = await broker.subscribe(DEAD_QUEUE, MOST_LETTERS, on_delivery, deliveries.clear)
    while len(deliveries) < depth.ready:
        arrived.clear()
        try:
            await asyncio.wait_for(arrived.wait(), QUIET_SECONDS)
        except TimeoutError:
            break
    await subscription.cancel()
    return [_letter(delivery) for delivery in deliveries]


async def _put_back(broker: Broker, delivery: Delivery) -> None:
    if delivery.delivery_count < READ_OFTEN:
        broker.hand_back(delivery)
        return
    if await send(broker, DEAD_QUEUE, delivery.message) is None:
        broker.ack(delivery)
    else:
        broker.hand_back(delivery)


async def send(broker: Broker, queue: str, message: Message) -> PublishError | None:
    """Publish and wait for the confirm; return what went wrong, or None."""
    settled: asyncio.Future[PublishError | None] = asyncio.get_running_loop().create_future()
    broker.publish(queue, message, settled.set_result)
    return await settled


def _letter(delivery: Delivery) -> Letter:
    headers = delivery.message.headers
    digest = hashlib.blake2s(delivery.message.body + str(sorted(headers.items())).encode(), digest_size=4)
    try:
        at = datetime.fromisoformat(str(headers.get("at")))
    except ValueError:
        at = None
    return Letter(
        id=digest.hexdigest(),
        reason=str(headers.get("reason", "unknown")),
        from_queue=str(headers.get("from_queue", "")),
        type=str(headers.get("original_type") or delivery.message.type),
        at=at.astimezone(UTC) if at is not None else None,
        delivery=delivery,
    )


def chosen(letters: list[Letter], ids: list[str], everything: bool) -> list[Letter]:
    """Return the letters that a person named by (the first characters of) their ids, or all.

    Raises:
        BadInputError: an id fits none.
    """
    if everything:
        return letters
    unknown = [name for name in ids if not any(letter.id.startswith(name) for letter in letters)]
    if unknown or not ids:
        known = ", ".join(letter.id for letter in letters[:10]) or "none"
        raise BadInputError(
            f"no dead letter is called {', '.join(unknown) or '(none was named)'}; there are: {known}. Or give --all."
        )
    return [letter for letter in letters if any(letter.id.startswith(name) for name in ids)]


async def replay(broker: Broker, letter: Letter) -> PublishError | None:
    """Publish a letter to the queue that it came from, as it was; return what went wrong, or None."""
    headers = {
        name: value
        for name, value in letter.delivery.message.headers.items()
        if name not in ("reason", "from_queue", "at", "original_type")
    }
    message = Message(letter.body, letter.type, letter.delivery.message.message_id, headers)
    return await send(broker, letter.from_queue, message)


async def reclaim_replies(broker: Broker, job: str, reply_queue: str) -> int:
    """Put buried replies of a job back into its reply queue; return how many.

    A broker buries a reply that was delivered too often, for example because drivers were killed again and
    again before they could ack it. Its result must not be lost for that.
    """
    reclaimed = 0

    async def act(letters: list[Letter]) -> list[Letter]:
        nonlocal reclaimed
        ours = [letter for letter in letters if letter.type == "reply" and _job_of(letter) == job]
        back = []
        for letter in ours:
            message = Message(letter.body, "reply", letter.delivery.message.message_id)
            if await send(broker, reply_queue, message) is None:
                back.append(letter)
        reclaimed = len(back)
        return back

    await with_letters(broker, act)
    return reclaimed


def _said(reply: bytes | msgspec.Raw) -> str:
    try:
        return str(decode_reply(reply))
    except DecodeError as error:
        return str(error)


def _job_of(letter: Letter) -> str | None:
    try:
        return decode_replies(letter.body)[0].job
    except DecodeError:
        return None
