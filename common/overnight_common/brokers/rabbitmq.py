"""Be the RabbitMQ side of the broker protocol: two connections, quorum queues, confirms, grouped acks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from overnight_common.brokers.amqp_address import Address
from overnight_common.brokers.amqp_link import AccessRefusedError, Link, backoff_seconds
from overnight_common.brokers.amqp_publisher import Publisher
from overnight_common.brokers.amqp_subscription import AmqpSubscription
from overnight_common.brokers.amqp_topology import EXCHANGES, Exchange, Topology, shape_of
from overnight_common.brokers.base import BrokerState, Delivery, Depth, LossReason
from overnight_common.brokers.queue_metrics import read_unacked
from overnight_common.errors import (
    BrokerError,
    BrokerUnreachableError,
    TooLargeError,
    UnroutableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from overnight_common.brokers.amqp_session import Session
    from overnight_common.brokers.base import Message, OnDelivery, OnSettled

_log = logging.getLogger("overnight.broker")
_CLOSE_GRACE_SECONDS = 3.0


class RabbitMQBroker:
    """Speak AMQP 0-9-1 with RabbitMQ 3.10 or later; see `Broker` for what each method promises.

    Args:
        url: `amqp://user:password@host:5672/vhost` or `amqps://...`.
        max_message_bytes: a body over this is not sent.
        publish_deadline_seconds: how long a confirm may take before the link is broken and made again;
            does not run while the broker blocks publishers.
        heartbeat_seconds: how long the link may be silent.
        metrics_url: address of rabbitmq_prometheus' `/metrics/detailed`; without it `depth` tells no
            un-acked.
    """

    def __init__(
        self,
        url: str,
        *,
        max_message_bytes: int,
        publish_deadline_seconds: float = 30.0,
        heartbeat_seconds: int = 30,
        metrics_url: str | None = None,
    ) -> None:
        self._address = Address(url, heartbeat_seconds)
        self._max_message_bytes = max_message_bytes
        self._metrics_url = metrics_url
        self._state = BrokerState.DISCONNECTED
        self._listeners: list[Callable[[BrokerState], None]] = []
        self._blocked = False
        self._loss: LossReason | None = None
        self._said_lost = False
        self._server = ""
        self._subscriptions: list[AmqpSubscription] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparing: asyncio.Task[None] | None = None
        self._closing = False
        self._consuming = self._link("consumes")
        self._publishing = self._link("publishes", self._block)
        self._topology = Topology(self._consuming)
        self._publisher = Publisher(self._publishing, publish_deadline_seconds, self._publisher_lost)

    @property
    def state(self) -> BrokerState:
        """Tell how the link is now; connected means that both connections stand."""
        return self._state

    @property
    def address(self) -> str:
        """Return where the broker is, without any password."""
        return self._address.text

    @property
    def server(self) -> str:
        """Return name and version of the server; empty before `open`."""
        return self._server

    @property
    def loss(self) -> LossReason | None:
        """Tell why the link was lost last; None if it never was, or if we closed it."""
        return None if self._closing else self._loss

    @property
    def connection(self) -> int:
        """Return the number of the connection that answers questions: the one that consumes."""
        return self._consuming.number

    def on_state(self, listener: Callable[[BrokerState], None]) -> None:
        """Call `listener` at each change of state."""
        self._listeners.append(listener)

    async def open(self, deadline_seconds: float) -> None:
        """Connect; raises BrokerUnreachableError, at once when the broker refuses us."""
        self._closing = False
        try:
            async with asyncio.timeout(deadline_seconds):
                while self._state is BrokerState.DISCONNECTED:
                    await asyncio.gather(self._connect(self._consuming), self._connect(self._publishing))
                    self._prepare_soon()
                    if self._preparing is not None:  # else one of them broke again already
                        await asyncio.shield(self._preparing)
        except TimeoutError:
            await self.close()
            raise BrokerUnreachableError(
                f"{self.address} did not answer within {deadline_seconds:g} s; is RabbitMQ running there?"
            ) from None
        except BaseException:
            await self.close()
            raise
        for link in (self._consuming, self._publishing):
            self._spawn(link.keep_up())

    async def close(self) -> None:
        """Send what is buffered, then let go of both connections."""
        self._closing = True
        for subscription in self._subscriptions:
            await subscription.close()
        self._subscriptions.clear()
        await self._publisher.drain(_CLOSE_GRACE_SECONDS)
        tasks = [*self._tasks, *([self._preparing] if self._preparing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(
            self._consuming.close(_CLOSE_GRACE_SECONDS), self._publishing.close(_CLOSE_GRACE_SECONDS)
        )
        self._set_state(BrokerState.DISCONNECTED)

    async def declare(self, queue: str) -> None:
        """Make sure that a queue of ours exists, is bound, and that dead letters have a place."""
        await self._topology.declare(queue)

    async def delete(self, queue: str) -> None:
        """Delete a queue with all it holds; no error if there is none."""
        await self._topology.delete(queue)

    async def depth(self, queue: str) -> Depth | None:
        """Return how many messages a queue holds, or None if there is no such queue."""
        counts = await self._topology.counts(queue)
        if counts is None:
            self._publisher.missed(queue)
            return None
        unacked = None
        if self._metrics_url is not None:
            unacked = await asyncio.to_thread(
                read_unacked, self._metrics_url, self._address.vhost, queue, 5.0
            )
        return Depth(ready=counts[0], unacked=unacked, consumers=counts[1])

    def publish(self, queue: str, message: Message, on_settled: OnSettled) -> None:
        """Publish with a confirm and the mandatory flag; `on_settled` is called later, exactly once."""
        if len(message.body) > self._max_message_bytes:
            error = TooLargeError(
                f"a message of {len(message.body)} bytes is over the limit of {self._max_message_bytes}; "
                "use a smaller batch or raise the limit"
            )
            asyncio.get_running_loop().call_soon(on_settled, error)
            return
        try:
            exchange = shape_of(queue).exchange
        except BrokerError as foreign:  # reply_to comes from a message: anything may stand there
            asyncio.get_running_loop().call_soon(on_settled, UnroutableError(str(foreign)))
            return
        if exchange.name not in self._topology.known and self._publisher.ready:
            # To publish to a missing exchange would close the channel and cost all that is in flight on it.
            self._spawn(self._publish_after_look(exchange, queue, message, on_settled))
            return
        self._publisher.publish(exchange.name, queue, message, on_settled)

    async def subscribe(
        self, queue: str, prefetch: int, on_delivery: OnDelivery, on_lost: Callable[[], None]
    ) -> AmqpSubscription:
        """Hand deliveries of a queue to `on_delivery`; returns when the broker has answered once."""
        await self._close_spent()
        subscription = AmqpSubscription(self._consuming, queue, prefetch, on_delivery, on_lost)
        self._subscriptions.append(subscription)
        await subscription.first_try()
        return subscription

    def ack(self, delivery: Delivery) -> None:
        """Say that a delivery is dealt with; void deliveries are ignored."""
        session, number = _tag(delivery)
        session.ack(number)

    def hand_back(self, delivery: Delivery) -> None:
        """Give an untouched delivery back to its queue; void deliveries are ignored."""
        session, number = _tag(delivery)
        session.hand_back(number)

    # Links and state

    def _link(self, role: str, on_blocked: Callable[[bool], None] = lambda _blocked: None) -> Link:
        return Link(
            self._address,
            role,
            on_up=self._prepare_soon,
            on_down=self._down,
            on_blocked=on_blocked,
            on_refused=lambda reason: _log.warning("still not connected: %s", reason),
        )

    async def _connect(self, link: Link) -> None:
        tries = 0
        while not link.is_up:
            try:
                await link.connect(3600.0)  # the caller's deadline ends it earlier
            except AccessRefusedError:
                raise
            except BrokerUnreachableError:
                tries += 1
                await asyncio.sleep(backoff_seconds(tries))

    def _prepare_soon(self) -> None:
        """Start to get ready when both connections stand, whichever was lost; then the state changes."""
        both_up = self._consuming.is_up and self._publishing.is_up
        is_ready = self._publisher.ready and self._state is not BrokerState.DISCONNECTED
        if both_up and self._preparing is None and not is_ready and not self._closing:
            self._preparing = asyncio.get_running_loop().create_task(self._prepare())
            self._preparing.add_done_callback(self._prepared)

    async def _prepare(self) -> None:
        tries = 0
        self._note_server()
        while self._consuming.is_up and self._publishing.is_up:
            try:
                self._topology.known.clear()
                for exchange in EXCHANGES:
                    with contextlib.suppress(BrokerError):
                        await self._topology.declare_exchange(exchange)
                if not self._publisher.ready:
                    await self._publisher.attach()
                return
            except BrokerError as error:
                _log.debug("not ready yet: %s", error)
                tries += 1
                await asyncio.sleep(backoff_seconds(tries))

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing = None
        if task.cancelled():
            return
        task.result()
        if self._publisher.ready and self._consuming.is_up:
            self._set_state(BrokerState.BLOCKED if self._blocked else BrokerState.CONNECTED)
        else:
            self._prepare_soon()

    def _down(self, reason: str) -> None:
        if not self._publishing.is_up:
            self._blocked = False
            self._publisher.block(False)
        self._loss = (self._consuming if self._publishing.is_up else self._publishing).loss
        self._set_state(BrokerState.DISCONNECTED, reason)

    def _publisher_lost(self, reason: str) -> None:
        self._loss = LossReason.CHANNEL
        self._set_state(BrokerState.DISCONNECTED, f"the publishing channel ended: {reason}")
        asyncio.get_running_loop().call_soon(self._prepare_soon)

    def _block(self, blocked: bool) -> None:
        self._blocked = blocked
        self._publisher.block(blocked)
        if self._state is not BrokerState.DISCONNECTED:
            self._set_state(BrokerState.BLOCKED if blocked else BrokerState.CONNECTED)

    def _set_state(self, state: BrokerState, reason: str = "") -> None:
        if state is self._state:
            return
        was, self._state = self._state, state
        if was is BrokerState.BLOCKED and state is BrokerState.CONNECTED:
            _log.warning("%s takes messages again", self.address)
        elif state is BrokerState.CONNECTED and self._said_lost:
            self._said_lost = False
            _log.warning("connected again to %s (%s)", self.address, self._server)
        elif state is BrokerState.CONNECTED:
            _log.info("connected to %s (%s)", self.address, self._server)
        elif state is BrokerState.BLOCKED:
            _log.warning("%s takes no messages for now: it is out of memory or disk", self.address)
        elif not self._closing:
            self._said_lost = True
            _log.warning("lost %s, connecting again: %s", self.address, reason)
        for listener in self._listeners:
            try:
                listener(state)
            except Exception as failure:  # noqa: BLE001 - a listener's fault must not stop the reconnecting
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a listener for the broker's state failed", "exception": failure}
                )

    def _note_server(self) -> None:
        found = self._consuming.server_properties
        server = f"{found.get('product', 'AMQP server')} {found.get('version', '')}".strip()
        if server != self._server and _version(str(found.get("version", ""))) < (3, 12):
            _log.warning(
                "%s: before 3.12, tasks over 30 min need a longer consumer_timeout in the server's configuration",
                server,
            )
        self._server = server

    async def _publish_after_look(
        self, exchange: Exchange, queue: str, message: Message, on_settled: OnSettled
    ) -> None:
        try:
            await self._topology.declare_exchange(exchange)
        except BrokerError:
            on_settled(
                UnroutableError(f"no exchange {exchange.name}, so no queue {queue}: the message is nowhere")
            )
            return
        self._publisher.publish(exchange.name, queue, message, on_settled)

    async def _close_spent(self) -> None:
        """Let go of cancelled subscriptions: a long-lived service must not gather their channels."""
        spent = [subscription for subscription in self._subscriptions if subscription.spent]
        self._subscriptions = [other for other in self._subscriptions if other not in spent]
        for subscription in spent:
            await subscription.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _tag(delivery: Delivery) -> tuple[Session, int]:
    return delivery.tag  # type: ignore[return-value]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
