"""Keep a subscription to one queue alive over lost links, closed channels and deleted queues."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from overnight_common.brokers.amqp_link import backoff_seconds
from overnight_common.brokers.amqp_session import Session
from overnight_common.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight_common.brokers.amqp_link import Link
    from overnight_common.brokers.base import OnDelivery

_log = logging.getLogger("overnight.broker")


class AmqpSubscription:
    """Hand out deliveries of a queue, session after session."""

    def __init__(
        self, link: Link, queue: str, prefetch: int, on_delivery: OnDelivery, on_lost: Callable[[], None]
    ) -> None:
        self._link = link
        self._queue = queue
        self._prefetch = prefetch
        self._on_delivery = on_delivery
        self._on_lost = on_lost
        self._session: Session | None = None
        self._ended = asyncio.Event()
        self._tried = asyncio.Event()
        self._cancelled = False
        self._said = ""
        self._task = asyncio.get_running_loop().create_task(self._keep_up())

    @property
    def active(self) -> bool:
        """Tell whether the broker is really handing out messages to us now."""
        return not self._cancelled and self._session is not None and self._session.consuming

    @property
    def spent(self) -> bool:
        """Tell whether it is cancelled and all that it held is settled."""
        return self._cancelled and (self._session is None or not self._session.held)

    def set_prefetch(self, prefetch: int, *, keep_late: bool = False) -> None:
        """Change how many deliveries may be held; see `Subscription.set_prefetch`."""
        if prefetch < 0:
            raise ValueError(f"prefetch {prefetch} is below 0")
        if self._cancelled:
            return
        self._prefetch = prefetch
        if self._session is not None:
            self._session.set_prefetch(prefetch, keep_late=keep_late)

    async def first_try(self) -> None:
        """Wait until the broker has answered the first time, with whatever result."""
        await self._tried.wait()

    async def cancel(self) -> None:
        """Stop deliveries; what is held stays held."""
        self._cancelled = True
        session = self._session
        if session is None:
            await self._stop()
            return
        await session.quieten()
        if not session.held:
            await self.close()

    async def close(self) -> None:
        """Send what is acked and let go of the channel; what is held goes back."""
        self._cancelled = True
        if self._session is not None:
            self._session.close()
            self._session = None
        await self._stop()

    async def _stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _keep_up(self) -> None:
        tries = 0
        while not self._cancelled:
            if not self._link.is_up:
                self._tried.set()  # nobody waits for a broker that is away
            await self._link.wait_up()
            self._ended.clear()
            session = Session(self._queue, self._prefetch, self._on_delivery, self._session_ended)
            try:
                await session.start(self._link)
            except BrokerError as error:
                session.close()
                self._report(error)
                self._tried.set()
                tries += 1
                await asyncio.sleep(backoff_seconds(tries))
                continue
            except asyncio.CancelledError:
                session.close()
                raise
            if session.alive:
                self._session = session
                session.set_prefetch(self._prefetch)  # it may have been changed meanwhile
            if self._said:
                _log.info("%s: subscribed again", self._queue)
            tries, self._said = 0, ""
            self._tried.set()
            await self._ended.wait()

    def _session_ended(self, reason: str, consuming: bool) -> None:
        self._session = None
        self._ended.set()
        if not consuming:
            return
        if self._link.is_up and not self._cancelled:
            self._said = reason
            _log.warning("%s: subscription lost, subscribing again: %s", self._queue, reason)
        try:
            self._on_lost()
        except Exception as failure:  # noqa: BLE001 - a listener's fault must not stop us from subscribing again
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"the listener for the loss of {self._queue} failed", "exception": failure}
            )

    def _report(self, error: BrokerError) -> None:
        if str(error) != self._said and self._link.is_up:
            self._said = str(error)
            _log.warning("%s: cannot subscribe, trying again: %s", self._queue, error)
