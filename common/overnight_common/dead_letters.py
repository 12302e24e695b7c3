"""Put a message that nobody can use to the dead letters, and only then let go of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from overnight_common.brokers.base import DEAD_QUEUE, Broker, Delivery, Message

if TYPE_CHECKING:
    from overnight_common.errors import PublishError

_REASON_CHARACTERS = 2000  # all headers have to fit in one frame
_RETRY_SECONDS = 2.0  # the queue of dead letters is missing or full: that takes a person, or another process


def bury(broker: Broker, delivery: Delivery, reason: str) -> None:
    """Publish the message to `overnight.dead` with the reason, and ack it once that is confirmed.

    If that fails, the delivery is handed back after a pause: it is never dropped, and never spins.
    """
    message = Message(
        body=delivery.message.body,
        type="dead",
        message_id=delivery.message.message_id,
        headers={
            **delivery.message.headers,
            "reason": reason[:_REASON_CHARACTERS],
            "from_queue": delivery.queue,
            "original_type": delivery.message.type,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )

    def settled(error: PublishError | None) -> None:
        if error is None:
            broker.ack(delivery)
        else:
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, broker.hand_back, delivery)

    broker.publish(DEAD_QUEUE, message, settled)
