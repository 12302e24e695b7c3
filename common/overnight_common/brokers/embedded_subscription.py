"""Keep one subscription at the embedded broker: what it holds, and how much more it may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from overnight_common.brokers.base import Delivery, Message, OnDelivery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from overnight_common.brokers.embedded_tables import Row

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(tuple[str, str, dict[str, str | int], bool])


def properties_of(message: Message) -> bytes:
    """Return all of a message but its body, as bytes."""
    return _encode((message.type, message.message_id, message.headers, message.persistent))


class Host(Protocol):
    """Name what a subscription needs of its broker."""

    def flush_soon(self) -> None:
        """Run a transaction at the next turn of the loop."""

    def cancel(self, subscription: EmbeddedSubscription, /) -> Awaitable[None]:
        """Stop a subscription; what it holds stays held."""


@dataclass(slots=True, eq=False)
class EmbeddedSubscription:
    """Count what one subscription holds and may still take.

    Attributes:
        queue_id: id of the queue, None while the queue does not exist.
        row: our row among the subscriptions, None likewise.
        held: message id -> tag of the deliveries not settled yet.
    """

    host: Host
    queue: str
    prefetch: int
    on_delivery: OnDelivery
    on_lost: Callable[[], None]
    queue_id: int | None = None
    row: int | None = None
    held: dict[int, tuple[int, EmbeddedSubscription]] = field(default_factory=dict)
    cancelled: bool = False

    @property
    def active(self) -> bool:
        """Tell whether messages are handed out to us now."""
        return self.queue_id is not None and not self.cancelled

    @property
    def room(self) -> int:
        """Return how many messages may be taken now, 0 or less for none."""
        return 0 if self.cancelled else self.prefetch - len(self.held)

    def set_prefetch(self, prefetch: int, *, keep_late: bool = False) -> None:  # noqa: ARG002 - nothing is ever late
        """Change how many deliveries may be held un-acked."""
        self.prefetch = prefetch
        self.host.flush_soon()

    async def cancel(self) -> None:
        """Stop deliveries; those already held stay held and can still be settled."""
        await self.host.cancel(self)

    def hold(self, row: Row) -> Delivery:
        """Return what was taken as a delivery that counts as held."""
        message_id, delivery_count, properties, body = row
        kind, name, headers, persistent = _decoder.decode(properties)
        tag = self.held[message_id] = (message_id, self)
        return Delivery(self.queue, Message(body, kind, name, headers, persistent), delivery_count, tag)

    def lose(self) -> bool:
        """Void all that is held; return True if the loss is news."""
        was_active = self.active
        self.held.clear()
        self.queue_id = self.row = None
        return was_active


def settle(delivery: Delivery) -> int | None:
    """Let go of a delivery and return its message's id, or None if it is void or settled already."""
    tag = cast("tuple[int, EmbeddedSubscription]", delivery.tag)
    message_id, subscription = tag
    if subscription.held.get(message_id) is not tag:
        return None
    del subscription.held[message_id]
    return message_id
