"""Be the broker that needs no server: queues in one SQLite file that several processes of a machine share.

Whatever is asked for within one turn of the event loop (publishes, acks, hand-backs, calls) is written in
one transaction at the next turn, and the same transaction takes what has become due. What other processes
write is noticed by asking SQLite for its data version, often while there is traffic and rarely otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import sqlite3
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from overnight_common.awake import awake_seconds
from overnight_common.brokers import embedded_tables as tables
from overnight_common.brokers.base import BrokerState, Delivery, Depth, LossReason, Message
from overnight_common.brokers.embedded_subscription import EmbeddedSubscription, properties_of, settle
from overnight_common.brokers.embedded_work import Effect, Pending, Work
from overnight_common.errors import (
    BrokerError,
    BrokerUnreachableError,
    NotConnectedError,
    PublishError,
    RefusedError,
    TooLargeError,
)
from overnight_common.file_systems import refuse_network_share
from overnight_common.messages import DEFAULT_MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from overnight_common.brokers.base import OnDelivery, OnSettled

T = TypeVar("T")

_LOCK_SECONDS = 0.002  # how long SQLite itself waits for the lock; after that the loop gets its turn
_RETRY_SECONDS = 0.001
_FULL_RETRY_SECONDS = 0.5
_REOPEN_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
# To look again takes a fiftieth of the silence so far: prompt after work, and cheap through the night.
_POLL_MIN_SECONDS, _POLL_MAX_SECONDS, _POLL_GROWTH = 0.002, 0.05, 1.02
_CHECK_SECONDS = 0.5
_WAL_PAGES = 4000  # between checkpoints, the only writes that wait for the disk

_log = logging.getLogger(__name__)


class EmbeddedBroker:
    """Implement `brokers.base.Broker` in one SQLite file."""

    def __init__(
        self,
        path: Path,
        *,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        lease_seconds: float = 30.0,
        renew_seconds: float = 2.0,
    ) -> None:
        self._path = path
        self._max_message_bytes = max_message_bytes
        self._state = BrokerState.DISCONNECTED
        self.loss: LossReason | None = LossReason.FILE  # nothing else can happen to it
        self._reason = "the broker is not open"
        self._listeners: list[Callable[[BrokerState], None]] = []
        self._db: sqlite3.Connection | None = None
        self._file = (0, 0)  # device and inode
        self._closed = False
        self._connection = 0
        self._work = Work(self, lease_seconds, renew_seconds)
        self._check_at = 0.0
        self._refused_bytes = 0
        self._data_version = -1
        self._interval = _POLL_MIN_SECONDS
        self._flush_handle: asyncio.Handle | None = None
        self._poll_handle: asyncio.TimerHandle | None = None
        self._full_handle: asyncio.TimerHandle | None = None

    @property
    def state(self) -> BrokerState:
        """Tell whether the file can be used."""
        return self._state

    @property
    def address(self) -> str:
        """Return where the file is."""
        return f"embedded:{self._path}"

    @property
    def server(self) -> str:
        """Return the version of SQLite."""
        return f"embedded (SQLite {sqlite3.sqlite_version})"

    @property
    def connection(self) -> int:
        """Tell how often the file was opened: it may be another one each time."""
        return self._connection

    def on_state(self, listener: Callable[[BrokerState], None]) -> None:
        """Call `listener` at each change of state."""
        self._listeners.append(listener)

    async def open(self, deadline_seconds: float) -> None:
        """Open or make the file.

        Raises:
            BadInputError: it is on a network share.
            BrokerUnreachableError: the folder cannot be used, or the file stayed locked.
            BrokerError: the file is damaged, or is not of this version.
        """
        refuse_network_share(self._path)
        self._loop = asyncio.get_running_loop()
        until = self._loop.time() + deadline_seconds
        while True:
            try:
                self._connect()
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or self._loop.time() >= until:
                    raise BrokerUnreachableError(
                        f"{self._path} cannot be opened: {error}; {_way_out(error)}"
                    ) from error
            except OSError as error:
                raise BrokerUnreachableError(f"{self._path} cannot be opened: {error}") from error
            except sqlite3.DatabaseError as error:
                raise BrokerError(_damage(self._path, error)) from error
            await asyncio.sleep(0.02)
        self._set_state(BrokerState.CONNECTED)

    async def close(self) -> None:
        """Write what is pending, hand back what is held, and let go of the file."""
        if self._closed:
            return
        self._closed, self.loss = True, None
        for subscription in self._work.subscriptions:
            subscription.cancelled = True
        try:
            if self._db is not None:
                await asyncio.wait_for(self._call(self._work.leave), _CLOSE_SECONDS)
        except (TimeoutError, BrokerError) as error:
            _log.warning("%s was closed without its last writes: %s", self.address, error or "it is locked")
        finally:
            self._reason = "the broker is closed"
            self._disconnect()
            self._work.fail(NotConnectedError(f"{self.address}: {self._reason}"))

    async def declare(self, queue: str) -> None:
        """Make sure a queue exists."""
        if not queue.isprintable():  # a terminal may pass on bytes that are no text
            raise BrokerError(f"{queue!r} cannot be the name of a queue; use letters and digits")
        await self._call(lambda db: tables.declare(db, queue, time.time()))

    async def delete(self, queue: str) -> None:
        """Delete a queue with all it holds; no error if there is none."""

        def delete(db: tables.Database) -> None:
            queue_id = tables.find_queue(db, queue)
            if queue_id is not None:
                tables.delete_queue(db, queue_id)

        await self._call(delete)

    async def depth(self, queue: str) -> Depth | None:
        """Return how many messages a queue holds, or None if there is no such queue."""
        return await self._call(lambda db: self._work.depth(db, queue, awake_seconds()))

    def publish(self, queue: str, message: Message, on_settled: OnSettled) -> None:
        """Put a message into a queue and call `on_settled` once it is committed, or cannot be."""
        if self._state is BrokerState.DISCONNECTED or self._closed:
            self._settle_soon(on_settled, NotConnectedError(f"{self.address}: {self._reason}"))
        elif len(message.body) > self._max_message_bytes:
            size = f"{len(message.body)} bytes, over the limit of {self._max_message_bytes} bytes"
            self._settle_soon(on_settled, TooLargeError(f"the message has {size}"))
        else:
            pending = (queue, properties_of(message), message.body, on_settled)
            self._work.pending.publishes.append(pending)
            self.flush_soon()

    async def subscribe(
        self, queue: str, prefetch: int, on_delivery: OnDelivery, on_lost: Callable[[], None]
    ) -> EmbeddedSubscription:
        """Hand deliveries of a queue to `on_delivery`; inactive until the queue exists."""
        subscription = EmbeddedSubscription(self, queue, prefetch, on_delivery, on_lost)
        self._work.subscriptions.append(subscription)
        try:
            await self._call(lambda _: None)  # every transaction looks at all subscriptions
        except BaseException:
            self._work.subscriptions.remove(subscription)
            raise
        return subscription

    async def cancel(self, subscription: EmbeddedSubscription) -> None:
        """Stop a subscription; what it holds stays held."""
        if subscription.cancelled:
            return
        subscription.cancelled = True
        work = self._work
        work.subscriptions = [other for other in work.subscriptions if other.held or not other.cancelled]
        row = subscription.row
        if row is not None and self._db is not None:
            await self._call(lambda db: tables.unsubscribe(db, row, time.time()))

    def ack(self, delivery: Delivery) -> None:
        """Say that a delivery is dealt with; does nothing if it is void."""
        self._settle(delivery, self._work.pending.acks)

    def hand_back(self, delivery: Delivery) -> None:
        """Give a delivery back to its old place; does nothing if it is void."""
        self._settle(delivery, self._work.pending.hand_backs)

    def flush_soon(self) -> None:
        """Run a transaction at the next turn of the loop."""
        if self._flush_handle is None and self._db is not None:
            self._flush_handle = self._loop.call_soon(self._flush)

    def _settle(self, delivery: Delivery, pending: list[int]) -> None:
        message = settle(delivery)
        if message is not None:
            pending.append(message)
            self.flush_soon()

    def _settle_soon(self, on_settled: OnSettled, error: PublishError) -> None:
        asyncio.get_running_loop().call_soon(on_settled, error)

    async def _call(self, call: Callable[[tables.Database], T]) -> T:
        """Run `call` within the next transaction, after all that was asked for before it."""
        if self._db is None:
            raise BrokerUnreachableError(f"{self.address}: {self._reason}")
        return await self._call_soon(call)

    def _unwatched(self, call: Callable[[tables.Database], T]) -> None:
        """Do it soon; if it fails, the next occasion does it, and nobody need hear of it."""
        self._call_soon(call).add_done_callback(lambda future: future.cancelled() or future.exception())

    def _call_soon(self, call: Callable[[tables.Database], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._work.pending.calls.append((call, future))
        self.flush_soon()
        return future

    # The one place that writes.

    def _flush(self) -> None:
        self._flush_handle = None
        if self._db is None:
            return
        try:
            effects = self._transact(self._db)
        except sqlite3.Error as error:
            self._failed(error)
            return
        # First, for whoever hears of our state may ask for more at once.
        written, self._work.pending = self._work.pending, Pending()
        if self._state is BrokerState.BLOCKED:
            self._unblock()
        for effect in effects:
            self.run(effect)
        if written.acks or len(effects) > len(written.calls):
            self._hurry()

    def _transact(self, db: sqlite3.Connection) -> list[Effect]:
        db.execute("BEGIN IMMEDIATE")
        try:
            effects = self._work.write(db, self._loop.time())
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        return effects

    def run(self, effect: Effect) -> None:
        """Call code of the broker's user, which may fail without harm to us."""
        try:
            effect()
        except Exception as error:  # noqa: BLE001 - code of the broker's user; the next callback must still run
            self._loop.call_exception_handler(
                {"message": "a callback of the broker failed", "exception": error}
            )

    # Noticing what others do.

    def _hurry(self) -> None:
        """Look soon and often, for something is going on."""
        if self._poll_handle is not None and self._interval > 2 * _POLL_MIN_SECONDS:
            self._poll_handle.cancel()
            self._poll_handle = self._loop.call_later(_POLL_MIN_SECONDS, self._poll)
        self._interval = _POLL_MIN_SECONDS

    def _poll(self) -> None:
        if self._db is None:
            return
        longest = _POLL_MAX_SECONDS if self._work.subscriptions else _CHECK_SECONDS
        self._interval = min(self._interval * _POLL_GROWTH, longest)
        self._poll_handle = self._loop.call_later(self._interval, self._poll)
        try:
            self._look(self._db)
        except sqlite3.Error as error:
            self._failed(error)

    def _look(self, db: sqlite3.Connection) -> None:
        now = self._loop.time()
        if now >= self._check_at:
            self._check_at = now + _CHECK_SECONDS
            if _identity(self._path) != self._file:
                self._give_up_file(f"{self._path} was removed or replaced")
                return
            self._return_lost_work(db)
        if self._work.beat_is_due(now):
            self.flush_soon()
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:
            self._data_version = version
            if self._work.take_is_due(db):
                self.flush_soon()

    def _return_lost_work(self, db: tables.Database) -> None:
        lost = self._work.lost_owners(db, awake_seconds())
        if lost:
            self._unwatched(lambda db: self._work.return_lost(db, lost))

    # Losing the file, and finding it again.

    def _failed(self, error: sqlite3.Error) -> None:
        """Wait for a lock, or for room on the disk; give up the file on all else."""
        if _is_busy(error):
            if self._flush_handle is None:
                self._flush_handle = self._loop.call_later(_RETRY_SECONDS, self._flush)
        elif _code(error) == sqlite3.SQLITE_FULL:
            self._block(f"{self._path}: {error}; make room on that disk")
        elif isinstance(error, sqlite3.OperationalError):
            self._give_up_file(f"{self._path} cannot be used: {error}")
        else:
            self._give_up_file(_damage(self._path, error))

    def _block(self, reason: str) -> None:
        """Refuse what is to be published, keep the acks, and try again soon whether there is room."""
        self._refused_bytes = sum(len(body) for _, _, body, _ in self._work.pending.publishes)
        if self._state is BrokerState.CONNECTED:
            _log.error("%s; it goes on by itself", reason)
        self._set_state(BrokerState.BLOCKED)
        acks, hand_backs = self._work.pending.acks, self._work.pending.hand_backs
        self._work.fail(RefusedError(reason))
        self._work.pending.acks[:0], self._work.pending.hand_backs[:0] = acks, hand_backs
        self._try_soon()

    def _try_soon(self) -> None:
        if self._full_handle is None:
            self._full_handle = self._loop.call_later(_FULL_RETRY_SECONDS, self._try_for_room)

    def _try_for_room(self) -> None:
        self._full_handle = None
        self._work.beat_soon()  # so that something is written
        self.flush_soon()

    def _unblock(self) -> None:
        """Go on if there is room for what was refused; what has just been written may have been much smaller."""
        if _free_bytes(self._path) < self._refused_bytes:
            self._try_soon()
            return
        _log.warning("%s: there is room on the disk again", self._path)
        self._set_state(BrokerState.CONNECTED)

    def _give_up_file(self, reason: str) -> None:
        self._reason = reason
        _log.error("%s; trying again every %g s", self._reason, _REOPEN_SECONDS)
        self._disconnect()
        self._work.fail(NotConnectedError(self._reason))
        owner = self._work.owner
        self._work.lose_everything()
        self._loop.call_later(_REOPEN_SECONDS, self._reopen, owner)

    def _reopen(self, owner: int | None) -> None:
        if self._closed:
            return
        try:
            self._connect()
        except (sqlite3.Error, BrokerError, OSError):
            self._loop.call_later(_REOPEN_SECONDS, self._reopen, owner)
            return
        _log.warning("%s can be used again", self._path)
        if owner is not None:
            self._unwatched(lambda db: self._work.drop_former(db, owner))
        self._set_state(BrokerState.CONNECTED)
        self.flush_soon()

    def _set_state(self, state: BrokerState) -> None:
        if state is not self._state:
            self._state = state
            for listener in self._listeners:
                self.run(partial(listener, state))

    def _disconnect(self) -> None:
        for handle in (self._flush_handle, self._poll_handle, self._full_handle):
            if handle is not None:
                handle.cancel()
        self._flush_handle = self._poll_handle = self._full_handle = None
        if self._db is not None:
            self._db.close()
            self._db = None
        self._set_state(BrokerState.DISCONNECTED)

    def _connect(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, timeout=_LOCK_SECONDS, isolation_level=None)
        try:
            tables.prepare(db, str(self._path))
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            self._file = _identity(self._path)
        except BaseException:
            db.close()
            raise
        self._db = db
        self._connection += 1
        self._data_version = -1
        self._poll_handle = self._loop.call_later(0, self._poll)


def _free_bytes(path: Path) -> float:
    """Return how much room the disk has, without an end if that cannot be told."""
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return math.inf


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def _damage(path: Path, error: sqlite3.Error) -> str:
    way_out = "results are safe in the job files: move it away, then `overnight resume` each job"
    return f"{path} is damaged ({error}); {way_out}"


def _way_out(error: sqlite3.Error) -> str:
    if _code(error) == sqlite3.SQLITE_FULL:
        return "make room on that disk"
    return "see that its folder can be written and that no other program locks it"


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # without SQLite's finer distinctions


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
