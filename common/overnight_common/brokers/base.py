"""Define what a broker does for Overnight: one small protocol with two implementations.

Everything runs in one asyncio event loop and is called from its thread only. A broker reconnects by itself,
for ever; its users see that through `on_state` and through errors given to `on_settled`. A question that the
link breaks under raises BrokerUnreachableError; ask again, for example with `patience.patiently`. Tests in
tests/contract hold both implementations to every word on this page.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from overnight_common.errors import PublishError

TASKS_PREFIX = "overnight.tasks."
REPLIES_PREFIX = "overnight.replies."
DEAD_QUEUE = "overnight.dead"


def task_queue(name: str) -> str:
    """Return the full name of a task queue, for example of `default`."""
    return TASKS_PREFIX + name


def reply_queue(job: str, epoch: int) -> str:
    """Return the full name of a job's reply queue."""
    return f"{REPLIES_PREFIX}{job}.{epoch}"


@dataclass(frozen=True, slots=True)
class Message:
    """Carry bytes and the few properties that a person wants to see in the broker's own page.

    Attributes:
        body: an encoded task or reply.
        type: `task`, `probe`, `reply` or `dead`.
        message_id: job, range and attempt, readable; need not be unique.
        headers: small strings and integers; on a dead letter `reason`, `from_queue` and `at` (UTC, ISO).
        persistent: False only for `running` replies.
    """

    body: bytes
    type: str
    message_id: str = ""
    headers: Mapping[str, str | int] = field(default_factory=dict)
    persistent: bool = True


@dataclass(slots=True, eq=False)
class Delivery:
    """Hold one hand-over of a message; settle it once, with `Broker.ack` or `Broker.hand_back`.

    Attributes:
        queue: full name of the queue that it came from.
        message: what was published.
        delivery_count: how often it was handed out before and came back (0 the first time).
        tag: the broker's own handle; only the broker looks at it.
    """

    queue: str
    message: Message
    delivery_count: int
    tag: object


@dataclass(frozen=True, slots=True)
class Depth:
    """Count the messages of a queue; None where the broker does not tell. `read_at` is Unix time."""

    ready: int
    unacked: int | None
    consumers: int | None
    read_at: float = field(default_factory=time.time, compare=False)


class BrokerState(enum.Enum):
    """Tell how the link is."""

    CONNECTED = "connected"
    BLOCKED = "blocked"  # connected, but the broker takes no publishes (memory or disk alarm)
    DISCONNECTED = "disconnected"


class LossReason(enum.StrEnum):
    """Name why a link to a broker was lost; the list is closed."""

    CLOSED_BY_BROKER = "closed_by_broker"  # it stops, or somebody closed the connection over there
    HEARTBEAT = "heartbeat"  # nothing was heard for too long
    STREAM = "stream"  # the socket broke
    CHANNEL = "channel"  # the broker closed the channel that publishes
    NO_CONFIRM = "no_confirm"  # we broke it, for a message was not confirmed in time
    FILE = "file"  # the embedded broker's file cannot be used
    OTHER = "other"


OnSettled = Callable[[PublishError | None], None]
OnDelivery = Callable[[Delivery], None]


class Subscription(Protocol):
    """Represent a running subscription to one queue."""

    @property
    def active(self) -> bool:
        """Tell whether the broker is really handing out messages to us now."""

    def set_prefetch(self, prefetch: int, *, keep_late: bool = False) -> None:
        """Change how many deliveries may be held un-acked.

        Exact: what is held never grows beyond the new value by this change. With 0 nothing new comes.
        The way down is for the caller: hand back what has not started. What is on its way meanwhile goes
        back by itself, which may count as a failed delivery; with `keep_late` it is handed out all the same.
        """

    async def cancel(self) -> None:
        """Stop deliveries; those already held stay held and can still be settled."""


class Broker(Protocol):
    """Hand messages from publishers to consumers, and lose none."""

    @property
    def state(self) -> BrokerState:
        """Tell how the link is now."""

    @property
    def address(self) -> str:
        """Return where the broker is, without any password."""

    @property
    def server(self) -> str:
        """Return name and version of the server, for example `RabbitMQ 4.0.5`."""

    @property
    def loss(self) -> LossReason | None:
        """Tell why the link was lost last; None if it never was, or if we closed it."""

    @property
    def connection(self) -> int:
        """Return the number of the connection that answers questions: what an earlier one saw may be gone."""

    def on_state(self, listener: Callable[[BrokerState], None]) -> None:
        """Call `listener` at each change of state."""

    async def open(self, deadline_seconds: float) -> None:
        """Connect.

        Raises:
            BrokerUnreachableError: nobody answered within `deadline_seconds`, or credentials were refused.
        """

    async def close(self) -> None:
        """Send what is buffered (acks too), then let go. Held deliveries go back to their queues."""

    async def declare(self, queue: str) -> None:
        """Make sure a task, reply or dead-letter queue exists, by the full name; its prefix says its kind.

        Raises:
            QueueMismatchError: it exists with other arguments.
            BrokerError: it does not exist and we have no right to make it.
        """

    async def delete(self, queue: str) -> None:
        """Delete a queue with all it holds; no error if there is none."""

    async def depth(self, queue: str) -> Depth | None:
        """Return how many messages a queue holds, or None if there is no such queue."""

    def publish(self, queue: str, message: Message, on_settled: OnSettled) -> None:
        """Put a message into a queue and call `on_settled` exactly once, never from within this call.

        It gets None when the broker has the message safely (a confirm), else the reason: UnroutableError
        (no such queue), TooLargeError, RefusedError, NotConnectedError (the outcome is unknown).
        Messages of one publisher to one queue arrive in the order of the calls.
        """

    async def subscribe(
        self, queue: str, prefetch: int, on_delivery: OnDelivery, on_lost: Callable[[], None]
    ) -> Subscription:
        """Hand deliveries of a queue to `on_delivery`, at most `prefetch` un-acked at a time, in order.

        `on_lost` is called when the link breaks, the broker cancels us or the queue goes: everything held
        from this subscription is void (it will come again, here or elsewhere). The broker subscribes
        again by itself as soon as it can.
        """

    def ack(self, delivery: Delivery) -> None:
        """Say that a delivery is dealt with. Grouped and sent soon; does nothing if the delivery is void."""

    def hand_back(self, delivery: Delivery) -> None:
        """Give an untouched delivery back to its queue; does nothing if the delivery is void."""
