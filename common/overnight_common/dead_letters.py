"""Put a message that nobody can use to the dead letters, and only then let go of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from overnight_common.brokers.base import DEAD_QUEUE, Broker, Delivery, Message

if TYPE_CHECKING:
    from overnight_common.errors import PublishError


def bury(broker: Broker, delivery: Delivery, reason: str) -> None:
    """Publish the message to `overnight.dead` with the reason, and ack it once that is confirmed.

    If that fails, the delivery is handed back: it is never dropped.
    """
    message = Message(
        body=delivery.message.body,
        type="dead",
        message_id=delivery.message.message_id,
        headers={
            **delivery.message.headers,
            "reason": reason,
            "from_queue": delivery.queue,
            "original_type": delivery.message.type,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )

    def settled(error: PublishError | None) -> None:
        if error is None:
            broker.ack(delivery)
        else:
            broker.hand_back(delivery)

    broker.publish(DEAD_QUEUE, message, settled)
