"""Publish with confirms and the mandatory flag, many in flight, and account for every message."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from overnight_common.brokers.amqp_link import properties_of
from overnight_common.errors import (
    NotConnectedError,
    PublishError,
    RefusedError,
    TooLargeError,
    UnroutableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.brokers.amqp_link import Channel, ChannelClosedError, Link
    from overnight_common.brokers.base import Message, OnSettled

# How long a confirm may take on a channel that has published to a queue which is gone now: RabbitMQ 3.10 may
# read nothing more from it, for ever, if the queue held it up while it was deleted.
_SUSPECT_SECONDS = 3.0
_TOO_LARGE = re.compile(r"message size (\d+) .*?larger than.*? (\d+)")


class _Pending(NamedTuple):
    on_settled: OnSettled
    queue: str
    message: Message
    sent_at: float


class Publisher:
    """Own the channel that publishes and the messages on it that are not confirmed yet.

    Args:
        link: the publishing connection.
        deadline_seconds: how long a confirm may take; then the link is broken and made again.
        on_lost: called when the channel ends without the link.
    """

    def __init__(self, link: Link, deadline_seconds: float, on_lost: Callable[[str], None]) -> None:
        self._link = link
        self._deadline_seconds = self._patience = deadline_seconds
        self._on_lost = on_lost
        self._channel: Channel | None = None
        self._used: set[str] = set()  # queues that this channel has published to
        self._sent = 0
        self._oldest = 1  # no pending message has a lower number
        self._pending: dict[int, _Pending] = {}
        self._returned: dict[int, UnroutableError] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._blocked = False
        self._not_before = 0.0  # the deadline counts from here at the earliest: no time runs while blocked
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def ready(self) -> bool:
        """Tell whether messages can be published now."""
        return self._channel is not None

    async def attach(self) -> None:
        """Open the channel on the link that has just come up; raises BrokerError."""
        channel = await self._link.open_channel(self._closed)
        await channel.call("confirm_delivery", ack_nack_callback=self._confirmed)
        channel.raw.add_on_return_callback(self._came_back)
        self._sent, self._oldest = 0, 1
        self._used.clear()
        self._patience = self._deadline_seconds
        self._channel = channel

    def publish(self, exchange: str, queue: str, message: Message, on_settled: OnSettled) -> None:
        """Send a message; `on_settled` is called later, once."""
        loop = asyncio.get_running_loop()
        if self._channel is None:
            error = NotConnectedError("not connected to the broker; the message was not sent")
            loop.call_soon(on_settled, error)
            return
        self._channel.raw.basic_publish(exchange, queue, message.body, properties_of(message), True)
        self._used.add(queue)
        self._sent += 1
        self._pending[self._sent] = _Pending(on_settled, queue, message, loop.time())
        if self._watch is None and not self._blocked:
            self._watch = loop.call_later(self._patience, self._look_at_deadline)
        if len(self._pending) == 1:
            self._idle.clear()

    def block(self, blocked: bool) -> None:
        """Stop or restart the deadline: under an alarm the broker takes nothing, and that is no fault."""
        self._blocked = blocked
        self._stop_watch()
        if not blocked and self._pending:
            loop = asyncio.get_running_loop()
            self._not_before = loop.time()
            self._watch = loop.call_later(self._patience, self._look_at_deadline)

    def missed(self, queue: str) -> None:
        """Have less patience with this channel if it has published to that queue, which is gone."""
        if queue in self._used:
            self._used.remove(queue)
            self._patience = min(self._deadline_seconds, _SUSPECT_SECONDS)
            if self._watch is not None:
                self._stop_watch()
                self._look_at_deadline()

    async def drain(self, grace_seconds: float) -> None:
        """Wait until all is confirmed, at most `grace_seconds`."""
        if not self._blocked:
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._idle.wait()
            except TimeoutError:
                return

    def _confirmed(self, frame: Any) -> None:
        confirm = frame.method
        accepted = confirm.NAME == "Basic.Ack"
        last = confirm.delivery_tag
        first = min(self._oldest, last) if confirm.multiple else last
        pending, returned = self._pending, self._returned
        for number in range(first, last + 1):
            entry = pending.pop(number, None)
            if entry is None:
                continue
            error: PublishError | None = None
            if not accepted:
                error = RefusedError(
                    f"the broker refused a message for {entry.queue} (queue full, or a policy)"
                )
            elif returned:
                error = returned.pop(number, None)
            _tell(entry.on_settled, error)
        if confirm.multiple or last == self._oldest:
            self._oldest = last + 1
        if not pending:
            self._idle.set()

    def _came_back(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        # Returns come in the order of publishing and before the confirm. Where several waiting messages look
        # alike it does not matter which of them is meant: they were for the same missing queue.
        message_id = properties.message_id or ""
        for number in range(self._oldest, self._sent + 1):
            entry = self._pending.get(number)
            if entry is None or number in self._returned or entry.queue != method.routing_key:
                continue
            if entry.message.message_id.startswith(message_id) and entry.message.body == body:
                self._returned[number] = UnroutableError(f"no queue {entry.queue}: the message is nowhere")
                return

    def _closed(self, error: ChannelClosedError) -> None:
        self._channel = None
        self._stop_watch()
        pending, self._pending = self._pending, {}
        self._returned.clear()
        self._idle.set()
        too_large = _TOO_LARGE.search(error.text)
        for entry in pending.values():
            _tell(entry.on_settled, _fate(entry, too_large, error))
        if error.code:
            self._on_lost(str(error))

    def _look_at_deadline(self) -> None:
        loop = asyncio.get_running_loop()
        self._watch = None
        while self._oldest <= self._sent and self._oldest not in self._pending:
            self._oldest += 1
        entry = self._pending.get(self._oldest)
        if entry is None:
            return
        left = max(entry.sent_at, self._not_before) + self._patience - loop.time()
        if left > 0:
            self._watch = loop.call_later(left, self._look_at_deadline)
        else:
            self._link.abort(f"no confirm from the broker in {self._patience:g} s")

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


def _tell(on_settled: OnSettled, error: PublishError | None) -> None:
    try:
        on_settled(error)
    except Exception as failure:  # noqa: BLE001 - one listener's fault must not cost the others their answer
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a listener for a publish failed", "exception": failure}
        )


def _fate(entry: _Pending, too_large: re.Match[str] | None, error: ChannelClosedError) -> PublishError:
    """Say what became of a message that was on the way when its channel ended."""
    if too_large is not None and len(entry.message.body) == int(too_large[1]):
        return TooLargeError(
            f"{too_large[1]} bytes are over the broker's own limit of {too_large[2]}; send less"
        )
    return NotConnectedError(f"{error}; the message may or may not be in {entry.queue}")
