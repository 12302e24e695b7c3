"""Hold one channel's deliveries of one queue: the prefetch, kept exactly, and the acks, sent in groups."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from overnight_common.brokers.amqp_foreign import delivery_count, own_headers, text_of
from overnight_common.brokers.amqp_link import ASK_DEADLINE_SECONDS
from overnight_common.brokers.base import Delivery, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from overnight_common.brokers.amqp_link import Channel, ChannelClosedError, Link
    from overnight_common.brokers.base import OnDelivery

ACK_FLUSH_SECONDS = 0.002
ACK_GROUP_MAX = 64
# A large window is filled again in a few steps, lest each ack should add an AMQP consumer; but no slot waits longer.
TOP_UP_STEPS = 4
TOP_UP_SECONDS = 0.02
_PRECONDITION_FAILED = 406
_PREFETCH_MAX = 65535  # AMQP counts in 16 bits


@dataclass(slots=True, eq=False)
class Consumer:
    """Be one AMQP consumer; a subscription may need several, since none can change its prefetch.

    Attributes:
        limit: its prefetch.
        held: how many of its deliveries are not settled.
        active: False once its cancel has been sent.
        cancelling: True between the cancel and its answer.
        tag: consumer tag.
        deadline: when the answer to the cancel is overdue.
    """

    limit: int
    held: int = 0
    active: bool = True
    cancelling: bool = False
    tag: str = ""
    deadline: asyncio.TimerHandle | None = None


def plan_consumers(target: int, consumers: Sequence[Consumer]) -> tuple[list[Consumer], int]:
    """Return which consumers to cancel, and the prefetch of one to add (0 for none), to reach `target`.

    What a cancelled consumer still holds counts; what an active one may hold counts in full. Nothing is
    added while a cancel is unanswered, because deliveries may still be on their way.
    """
    room = target - sum(one.limit if one.active else one.held for one in consumers)
    cancel: list[Consumer] = []
    for one in reversed(consumers):
        if room >= 0:
            break
        if one.active:
            cancel.append(one)
            room += one.limit - one.held
    if cancel or any(one.cancelling for one in consumers):
        return cancel, 0
    return [], min(max(room, 0), _PREFETCH_MAX)


def split_acks(settled: list[int], lowest_held: int | None) -> tuple[int, list[int]]:
    """Return the tag up to which one cumulative ack covers (0 for none), and the tags that need their own."""
    settled.sort()
    cut = len(settled) if lowest_held is None else bisect_left(settled, lowest_held)
    return (settled[cut - 1] if cut else 0), settled[cut:]


class Session:
    """Own one channel from its opening to its end; a delivery tag means something only in its session.

    Args:
        queue: full name.
        prefetch: how many deliveries may be held.
        on_delivery: gets each delivery.
        on_end: called once when the session ends for another reason than `close`, with the reason and
            whether deliveries had been asked for.
    """

    def __init__(
        self, queue: str, prefetch: int, on_delivery: OnDelivery, on_end: Callable[[str, bool], None]
    ) -> None:
        self.alive = True
        self.consuming = False
        self._queue = queue
        self._target = prefetch
        self._keeps_late = False
        self._on_delivery = on_delivery
        self._on_end = on_end
        self._channel: Channel | None = None
        self._consumers: list[Consumer] = []
        self._held: dict[int, Consumer] = {}  # by delivery tag, which is also the order of arrival
        self._settled: list[int] = []  # acked by the user, not yet told to the broker
        self._flush_timer: asyncio.TimerHandle | None = None
        self._top_up_timer: asyncio.TimerHandle | None = None
        self._first_answer: asyncio.Future[Any] | None = None
        self._quiet = asyncio.Event()  # no cancel is unanswered
        self._quiet.set()

    @property
    def held(self) -> int:
        """Tell how many deliveries are not settled."""
        return len(self._held)

    async def start(self, link: Link) -> None:
        """Open the channel and ask for deliveries.

        Raises:
            BrokerError: no link, no such queue, no right.
        """
        self._channel = await link.open_channel(self._closed)
        self._channel.raw.add_on_cancel_callback(self._cancelled_by_broker)
        await self._channel.call("queue_declare", queue=self._queue, passive=True)
        with self._channel.expecting() as answer:
            self._first_answer = answer
            self._reconcile()
            if self._consumers:
                await self._channel.answer(answer)
            else:
                self.consuming = True

    def set_prefetch(self, prefetch: int, *, keep_late: bool = False) -> None:
        """Change the limit; takes effect with the next answers of the broker, never above it."""
        self._target, self._keeps_late = prefetch, keep_late
        self._reconcile()

    async def quieten(self) -> None:
        """Stop deliveries and wait until the broker has confirmed that."""
        self.set_prefetch(0)
        await self._quiet.wait()

    def ack(self, number: int) -> None:
        """Note an ack; it leaves with the next group."""
        consumer = self._forget(number)
        if consumer is None:
            return
        self._settled.append(number)
        # A quarter of the window: the broker is never kept waiting for room. With few slots that is each ack.
        if len(self._settled) >= min(ACK_GROUP_MAX, max(1, self._target // 4)):
            self.flush()
        elif self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(ACK_FLUSH_SECONDS, self.flush)
        if not consumer.active:
            self._after_leftover()

    def hand_back(self, number: int) -> None:
        """Give a delivery back to the queue."""
        consumer = self._forget(number)
        if consumer is None or self._channel is None:
            return
        self._channel.raw.basic_nack(number, multiple=False, requeue=True)
        if not consumer.active:
            self._after_leftover()

    def flush(self) -> None:
        """Send the acks that are waiting."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if not self._settled or not self.alive or self._channel is None:
            return
        settled, self._settled = self._settled, []
        up_to, others = split_acks(settled, next(iter(self._held), None))
        raw = self._channel.raw
        if up_to:
            raw.basic_ack(up_to, multiple=True)
        for number in others:
            raw.basic_ack(number)

    def close(self) -> None:
        """End the session on our own wish; what is held goes back to the queue."""
        self.flush()
        self._end()
        if self._channel is not None:
            self._channel.close()

    def _forget(self, number: int) -> Consumer | None:
        consumer = self._held.pop(number, None) if self.alive else None
        if consumer is not None:
            consumer.held -= 1
        return consumer

    def _after_leftover(self) -> None:
        """Use the room that a cancelled consumer's delivery leaves, soon."""
        if self._room() >= self._target // TOP_UP_STEPS:
            self._top_up()
        elif self._top_up_timer is None:
            self._top_up_timer = asyncio.get_running_loop().call_later(TOP_UP_SECONDS, self._top_up)

    def _top_up(self) -> None:
        if self._top_up_timer is not None:
            self._top_up_timer.cancel()
            self._top_up_timer = None
        self.flush()  # the broker must hear of the acks before it gets room
        self._reconcile()

    def _reconcile(self) -> None:
        if not self.alive or self._first_answer is None or self._channel is None:
            return
        self._consumers = [one for one in self._consumers if one.active or one.cancelling or one.held]
        cancel, limit = plan_consumers(self._target, self._consumers)
        for one in cancel:
            one.active, one.cancelling = False, True
            self._quiet.clear()
            one.deadline = self._deadline()
            self._channel.raw.basic_cancel(one.tag, callback=self._cancelled)
        if limit:
            consumer = Consumer(limit)
            self._consumers.append(consumer)
            self._channel.raw.basic_qos(prefetch_count=limit)
            consumer.tag = self._channel.raw.basic_consume(
                self._queue,
                partial(self._arrived, consumer),
                callback=partial(self._accepted, self._deadline()),
            )

    def _deadline(self) -> asyncio.TimerHandle:
        """Bound the wait for an answer: connected but deaf is the worst failure."""
        return asyncio.get_running_loop().call_later(ASK_DEADLINE_SECONDS, self._unanswered)

    def _unanswered(self) -> None:
        self._break(f"the broker did not answer for {self._queue} in {ASK_DEADLINE_SECONDS:g} s")

    def _accepted(self, deadline: asyncio.TimerHandle, _frame: Any) -> None:
        deadline.cancel()
        self.consuming = True
        if self._first_answer is not None and not self._first_answer.done():
            self._first_answer.set_result(None)

    def _arrived(self, consumer: Consumer, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        number = method.delivery_tag
        if not self.alive or self._channel is None:
            return
        if not consumer.active and not self._keeps_late and self._room() <= 0:
            self._channel.raw.basic_nack(number, multiple=False, requeue=True)
            return
        self._held[number] = consumer
        consumer.held += 1
        headers = properties.headers or {}
        message = Message(
            body,
            text_of(properties.type),
            text_of(properties.message_id),
            own_headers(headers) if headers else {},
            properties.delivery_mode != 1,
        )
        try:
            self._on_delivery(Delivery(self._queue, message, delivery_count(headers), (self, number)))
        except Exception as failure:  # noqa: BLE001 - a listener's fault must not break the link for all
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"the listener for {self._queue} failed", "exception": failure}
            )

    def _room(self) -> int:
        return self._target - sum(one.limit if one.active else one.held for one in self._consumers)

    def _cancelled(self, frame: Any) -> None:
        # pika calls this for each answer without regard to whose it is: only the tag tells.
        for one in self._consumers:
            if one.tag == frame.method.consumer_tag and one.deadline is not None:
                one.deadline.cancel()
                one.cancelling = False
        if not any(one.cancelling for one in self._consumers):
            self._quiet.set()
        self._reconcile()

    def _cancelled_by_broker(self, frame: Any) -> None:
        if any(one.active and one.tag == frame.method.consumer_tag for one in self._consumers):
            self._break("the broker cancelled the consumer (queue deleted, or held longer than it allows)")

    def _break(self, reason: str) -> None:
        self._end(reason)
        if self._channel is not None:
            self._channel.close()

    def _closed(self, error: ChannelClosedError) -> None:
        self._end(_with_way_out(error))

    def _end(self, reason: str | None = None) -> None:
        if not self.alive:
            return
        self.alive = False
        self._quiet.set()
        self._held.clear()
        for timer in (self._flush_timer, self._top_up_timer):
            if timer is not None:
                timer.cancel()
        self._flush_timer = self._top_up_timer = None
        if reason is not None:
            self._on_end(reason, self.consuming)


def _with_way_out(error: ChannelClosedError) -> str:
    """Return the broker's words; where a task outlived the ack timeout, with what to do about it."""
    if error.code == _PRECONDITION_FAILED and "timed out" in error.text:
        way_out = "set consumer_timeout in the server's configuration above the longest task"
        return f"{error}. What runs goes on, but another consumer may run it too: {way_out}"
    return str(error)
