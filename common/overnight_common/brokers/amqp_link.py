"""Keep one AMQP connection up, for ever, and translate pika's errors; the only file that imports pika."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import struct
from typing import TYPE_CHECKING, Any

import pika
import pika.channel
import pika.exceptions
import pika.frame
import pika.spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.utils import connection_workflow

from overnight_common.brokers.amqp_writes import GroupedWrites
from overnight_common.brokers.base import LossReason
from overnight_common.errors import BadInputError, BrokerError, BrokerUnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from overnight_common.brokers.amqp_address import Address
    from overnight_common.brokers.base import Message

# One attempt to connect: a server that accepts and says nothing costs this long.
ATTEMPT_DEADLINE_SECONDS = 10.0
# One question on a channel.
ASK_DEADLINE_SECONDS = 10.0
# A link that lived this long was a good one: the next back-off starts afresh.
STEADY_SECONDS = 5.0
_ABORT_GRACE_SECONDS = 2.0
_UnknownType = pika.exceptions.InvalidFieldTypeException
_LOSSES = {
    pika.exceptions.AMQPHeartbeatTimeout: LossReason.HEARTBEAT,
    pika.exceptions.ConnectionClosedByBroker: LossReason.CLOSED_BY_BROKER,
    pika.exceptions.StreamLostError: LossReason.STREAM,
}

_pika_log = logging.getLogger("pika")
if _pika_log.level == logging.NOTSET:
    # pika reports each lost link in a dozen lines; ours says it in one.
    _pika_log.setLevel(logging.CRITICAL)


class AccessRefusedError(BrokerUnreachableError):
    """Say that the broker answered and refused the credentials or the virtual host."""


class ChannelClosedError(BrokerError):
    """Say that a channel is gone.

    Attributes:
        code: AMQP reply code (403 no right, 404 missing, 406 other arguments), 0 if the connection broke.
        text: the broker's own words.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}" if code else text)
        self.code = code
        self.text = text


def backoff_seconds(tries: int, chance: Callable[[], float] = random.random) -> float:
    """Return how long to wait after `tries` failures in a row: 0.1 s doubling to 15 s, less up to half."""
    longest = min(15.0, 0.1 * 2.0 ** min(tries, 10))
    return longest * (0.5 + 0.5 * chance())


def properties_of(message: Message) -> pika.BasicProperties:
    """Return what a person sees in RabbitMQ's own page about a message."""
    return pika.BasicProperties(
        content_type="application/msgpack",
        type=message.type,
        message_id=_short(message.message_id),
        delivery_mode=2 if message.persistent else 1,
        headers=dict(message.headers) if message.headers else None,
    )


def _short(text: str) -> str:
    """Cut a text to the 255 bytes that AMQP allows a property."""
    return text if len(text) < 64 else text.encode()[:255].decode(errors="ignore")


class _RawChannel(pika.channel.Channel):  # type: ignore[misc]  # pika has no types
    """Hand every delivery to its consumer, also while that is being cancelled.

    pika rejects those by itself, which counts as a failed delivery; we decide about each one.
    """

    def _on_deliver(self, method_frame: Any, header_frame: Any, body: bytes) -> None:
        deliver = self._consumers.get(method_frame.method.consumer_tag)
        if deliver is not None:
            deliver(self, method_frame.method, header_frame.properties, body)
        elif self.is_open:
            self.basic_nack(method_frame.method.delivery_tag, requeue=True)


def frame_of(buffer: bytes) -> tuple[int, Any]:
    """Return how many bytes the first frame takes and the frame; 0 and None while it is not all there.

    A message's header that pika cannot read (a NaN, a time after the year 9999) becomes one without properties: an
    error would end the connection, and the message would come again on the next one, for ever.
    """
    try:
        found: tuple[int, Any] = pika.frame.decode_frame(buffer)
    except (struct.error, LookupError, ValueError, OverflowError, OSError, _UnknownType) as error:
        kind, channel, size = struct.unpack_from(">BHL", buffer)
        if kind != pika.spec.FRAME_HEADER:
            raise pika.exceptions.InvalidFrameError("a frame that cannot be read") from error
        (body_bytes,) = struct.unpack_from(">Q", buffer, pika.spec.FRAME_HEADER_SIZE + 4)
        end = pika.spec.FRAME_HEADER_SIZE + size + pika.spec.FRAME_END_SIZE
        return end, pika.frame.Header(channel, body_bytes, pika.BasicProperties())
    return found


class _RawConnection(AsyncioConnection):  # type: ignore[misc]  # pika has no types
    """Send the frames of a few milliseconds in one write, and end without asking the peer."""

    def __init__(self, *arguments: Any, custom_ioloop: asyncio.AbstractEventLoop) -> None:
        self._writes = GroupedWrites(custom_ioloop, self._write)
        super().__init__(*arguments, custom_ioloop=custom_ioloop)

    def _create_channel(self, channel_number: int, on_open_callback: Any) -> _RawChannel:
        return _RawChannel(self, channel_number, on_open_callback)

    def _read_frame(self) -> tuple[int, Any]:
        return frame_of(self._frame_buffer)

    def _adapter_emit_data(self, data: bytes) -> None:
        self._writes.add(data)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def abort(self, reason: str) -> None:
        """Break the connection now; the usual callbacks follow."""
        if not self.is_closed and self._transport is not None:
            self._terminate_stream(pika.exceptions.StreamLostError(reason))


class Channel:
    """Wrap one channel: questions can be awaited, and its end is told once."""

    def __init__(self, raw: Any, on_close: Callable[[ChannelClosedError], None]) -> None:
        self.raw = raw
        self._on_close = on_close
        self._waiting: set[asyncio.Future[Any]] = set()
        raw.add_on_close_callback(self._closed)

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of pika's channel that has an answer, and return the answer.

        Raises:
            ChannelClosedError: the broker closed the channel instead, or the connection broke.
            BrokerUnreachableError: no answer in `ASK_DEADLINE_SECONDS`.
        """
        with self.expecting() as answer:
            try:
                getattr(self.raw, method)(**arguments, callback=lambda frame: _resolve(answer, frame.method))
            except pika.exceptions.AMQPError as error:
                raise ChannelClosedError(0, f"the channel is closed ({type(error).__name__})") from None
            return await self.answer(answer)

    @contextlib.contextmanager
    def expecting(self) -> Any:
        """Give a future that fails when the channel ends."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            yield answer
        finally:
            self._waiting.discard(answer)
            answer.cancel()

    async def answer(self, future: asyncio.Future[Any]) -> Any:
        """Await an expected answer, but not for ever."""
        try:
            async with asyncio.timeout(ASK_DEADLINE_SECONDS):
                return await future
        except TimeoutError:
            raise BrokerUnreachableError(f"the broker gave no answer in {ASK_DEADLINE_SECONDS:g} s") from None

    def close(self) -> None:
        """Let go of the channel, if it is still there; what it holds un-acked goes back to the queue."""
        if self.raw.is_open:
            self.raw.close()

    def _closed(self, _raw: Any, error: BaseException) -> None:
        reason = _channel_error(error)
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(reason)
        self._on_close(reason)


class Link:
    """Own one connection: make it, notice its loss, make it again.

    Everything is called back from the loop: `on_up()`, `on_down(reason)`, `on_blocked(blocked)`, and
    `on_refused(reason)` for each new reason why it cannot be made again.
    """

    def __init__(
        self,
        address: Address,
        role: str,
        *,
        on_up: Callable[[], None],
        on_down: Callable[[str], None],
        on_blocked: Callable[[bool], None],
        on_refused: Callable[[str], None],
    ) -> None:
        self._address = address
        self._role = role
        self._on_up, self._on_down = on_up, on_down
        self._on_blocked, self._on_refused = on_blocked, on_refused
        try:
            self._parameters()
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise BadInputError(f"broker address {address.text}: {error}") from None
        self._connection: _RawConnection | None = None
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._ended: asyncio.Future[BaseException] | None = None
        self._aborted = False
        self.server_properties: dict[str, Any] = {}
        self.number = 0  # of the connection that stands, or stood last
        self.loss = LossReason.OTHER

    @property
    def is_up(self) -> bool:
        """Tell whether the connection stands."""
        return self._connection is not None

    async def wait_up(self) -> None:
        """Wait until the connection stands."""
        await self._up.wait()

    async def connect(self, deadline_seconds: float) -> None:
        """Try once.

        Raises:
            AccessRefusedError: the broker answered and refused us.
            BrokerUnreachableError: anything else, also a server that accepts and then says nothing.
        """
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[BaseException | None] = loop.create_future()
        ended: asyncio.Future[BaseException] = loop.create_future()

        def failed(_connection: Any, error: BaseException) -> None:
            _resolve(opened, error)
            _resolve(ended, error)

        connection = _RawConnection(
            self._parameters(),
            lambda _connection: _resolve(opened, None),
            failed,
            self._closed,
            custom_ioloop=loop,
        )
        try:
            async with asyncio.timeout(deadline_seconds):
                error = await opened
        except TimeoutError:
            await _give_up(connection, ended)
            raise BrokerUnreachableError(
                f"{self._address.text} gave no AMQP answer in {deadline_seconds:.3g} s"
            ) from None
        except asyncio.CancelledError:
            await _give_up(connection, ended)
            raise
        if error is not None:
            raise _connect_error(self._address.text, error)
        self._stands(connection)

    async def keep_up(self) -> None:
        """Reconnect for ever; ends only by being cancelled."""
        loop = asyncio.get_running_loop()
        tries, said = 0, ""
        while True:
            if self._connection is None:
                try:
                    await self.connect(ATTEMPT_DEADLINE_SECONDS)
                except BrokerUnreachableError as error:
                    if str(error) != said:
                        said = str(error)
                        self._on_refused(said)
                    tries += 1
                    await asyncio.sleep(backoff_seconds(tries))
                    continue
            since, said = loop.time(), ""
            await self._down.wait()
            tries = 0 if loop.time() - since > STEADY_SECONDS else tries + 1
            await asyncio.sleep(backoff_seconds(tries))

    async def open_channel(self, on_close: Callable[[ChannelClosedError], None]) -> Channel:
        """Open a channel; `on_close` is called once when it ends, whoever ends it.

        Raises:
            BrokerUnreachableError: the link is down or silent.
            ChannelClosedError: the link broke meanwhile.
        """
        if self._connection is None:
            raise BrokerUnreachableError(f"not connected to {self._address.text}")
        opened: list[Callable[[Any], None]] = []
        channel = Channel(self._connection.channel(on_open_callback=lambda raw: opened[0](raw)), on_close)
        with channel.expecting() as answer:
            opened.append(lambda raw: _resolve(answer, raw))
            await channel.answer(answer)
        return channel

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[Channel]:
        """Give a throw-away channel: a refusal closes it and nothing else."""
        channel = await self.open_channel(lambda _error: None)
        try:
            yield channel
        finally:
            channel.close()

    def abort(self, reason: str) -> None:
        """Break the link; it is then made again."""
        if self._connection is not None:
            self._aborted = True
            self._connection.abort(reason)

    async def close(self, grace_seconds: float) -> None:
        """Close in order, or by force after `grace_seconds`."""
        connection, ended = self._connection, self._ended
        if connection is None or ended is None:
            return
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()
        await asyncio.wait([ended], timeout=grace_seconds)
        if not ended.done():
            connection.abort("closed by us")
            await asyncio.wait([ended], timeout=_ABORT_GRACE_SECONDS)

    def _parameters(self) -> Any:
        parameters = pika.URLParameters(self._address.url)
        if not self._address.sets_heartbeat:
            parameters.heartbeat = self._address.heartbeat_seconds
        parameters.connection_attempts = 1
        parameters.blocked_connection_timeout = None  # a blocked link is reported, not broken
        parameters.socket_timeout = ATTEMPT_DEADLINE_SECONDS
        parameters.stack_timeout = ATTEMPT_DEADLINE_SECONDS
        parameters.client_properties = {"connection_name": f"overnight {self._role}", "product": "Overnight"}
        return parameters

    def _stands(self, connection: _RawConnection) -> None:
        self._connection = connection
        self.number += 1
        self._aborted = False
        self._ended = asyncio.get_running_loop().create_future()
        self.server_properties = dict(connection.server_properties or {})
        connection.add_on_connection_blocked_callback(lambda *_: self._on_blocked(True))
        connection.add_on_connection_unblocked_callback(lambda *_: self._on_blocked(False))
        self._down.clear()
        self._up.set()
        self._on_up()

    def _closed(self, connection: Any, error: BaseException) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._up.clear()
        self._down.set()
        if self._ended is not None:
            _resolve(self._ended, error)
        self.loss = LossReason.NO_CONFIRM if self._aborted else _LOSSES.get(type(error), LossReason.OTHER)
        self._on_down(_sentence(error))


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


async def _give_up(connection: _RawConnection, ended: asyncio.Future[BaseException]) -> None:
    """Abort a connection that is still opening and wait until its socket is closed."""
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()
    await asyncio.wait([ended], timeout=_ABORT_GRACE_SECONDS)


def _connect_error(address: str, error: BaseException) -> BrokerUnreachableError:
    root = _root(error)
    said = _sentence(root)
    refused = isinstance(
        root, pika.exceptions.ProbableAuthenticationError | pika.exceptions.ProbableAccessDeniedError
    )
    if refused and "ClosedByBroker" in said:
        return AccessRefusedError(f"{address} refused us: {said}; check user, password and virtual host")
    return BrokerUnreachableError(f"{address} cannot be reached: {said}")


def _root(error: BaseException) -> BaseException:
    """Dig the first cause out of pika's wrappings."""
    if isinstance(error, connection_workflow.AMQPConnectionWorkflowFailed) and error.exceptions:
        return _root(error.exceptions[-1])
    if isinstance(error, connection_workflow.AMQPConnectorPhaseErrorBase):
        return _root(error.exception)
    if (
        type(error) is pika.exceptions.AMQPConnectionError
        and error.args
        and isinstance(error.args[0], Exception)
    ):
        return _root(error.args[0])
    return error


def _sentence(error: BaseException) -> str:
    if isinstance(error, pika.exceptions.ConnectionClosed):
        return f"{error.reply_code} {error.reply_text}"
    return str(error) or type(error).__name__


def _channel_error(error: BaseException) -> ChannelClosedError:
    if isinstance(error, pika.exceptions.ChannelClosed):
        return ChannelClosedError(error.reply_code, error.reply_text)
    return ChannelClosedError(0, f"the connection broke: {_sentence(error)}")
