"""Decide what the embedded broker writes in its next transaction, and whom it tells when that is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from overnight_common.brokers import embedded_tables as tables
from overnight_common.brokers.owners import Leases, this_process
from overnight_common.errors import BrokerUnreachableError, PublishError, UnroutableError

if TYPE_CHECKING:
    import asyncio

    from overnight_common.brokers.base import Depth, OnSettled
    from overnight_common.brokers.embedded_subscription import EmbeddedSubscription

Effect = Callable[[], object]
Call = Callable[[tables.Database], Any]


class Host(Protocol):
    """Name what the work needs of its broker."""

    def flush_soon(self) -> None:
        """Run a transaction at the next turn of the loop."""

    def run(self, effect: Effect) -> None:
        """Call code of the broker's user, which may fail without harm to us."""


@dataclass(slots=True)
class Pending:
    """Collect what the next transaction writes.

    Attributes:
        publishes: queue, properties, body and whom to tell.
        acks: ids of messages; `hand_backs` likewise.
        calls: what else is to be done, and the future that gets its result.
    """

    publishes: list[tuple[str, bytes, bytes, OnSettled]] = field(default_factory=list)
    acks: list[int] = field(default_factory=list)
    hand_backs: list[int] = field(default_factory=list)
    calls: list[tuple[Call, asyncio.Future[Any]]] = field(default_factory=list)


class Work:
    """Hold what one broker has been asked for, and carry it out inside a transaction.

    Attributes:
        pending: what is not written yet.
        subscriptions: all that run, and cancelled ones that still hold something.
        owner: our row among the owners; None until we subscribe, or when somebody has dropped it.
    """

    def __init__(self, host: Host, lease_seconds: float, renew_seconds: float) -> None:
        self.pending = Pending()
        self.subscriptions: list[EmbeddedSubscription] = []
        self.owner: int | None = None
        self._host = host
        self._here = this_process()
        self._leases = Leases(self._here, lease_seconds)
        self._renew_seconds = renew_seconds
        self._beat_at = 0.0

    def beat_is_due(self, now: float) -> bool:
        """Tell whether our lease has to be renewed; `now` is monotonic, in seconds, here and below."""
        return self.owner is not None and now >= self._beat_at

    def beat_soon(self) -> None:
        """Renew our lease with the next transaction."""
        self._beat_at = 0.0

    def take_is_due(self, db: tables.Database) -> bool:
        """Tell, without writing, whether others left us something to do: messages, a queue, a lost lease."""
        if self.owner is not None and not tables.owner_exists(db, self.owner):
            return True
        for subscription in self.subscriptions:
            if not subscription.cancelled:
                queue = tables.find_queue(db, subscription.queue)
                if queue != subscription.queue_id:
                    return True
                if queue is not None and subscription.room > 0 and tables.any_ready(db, queue):
                    return True
        return False

    def write(self, db: tables.Database, now: float) -> list[Effect]:
        """Write what is pending, take what is due, and return what to do once that is committed."""
        pending, effects = self.pending, list[Effect]()
        holds = self._renew(db, now)
        if pending.acks:
            tables.ack(db, pending.acks, self.owner)
        if pending.hand_backs:
            tables.hand_back(db, pending.hand_backs, self.owner)
        if pending.publishes:
            _publish(db, pending.publishes, effects)
        for call, future in pending.calls:
            effects.append(partial(_resolve, future, call(db)))
        if not holds:
            return [self.lose_everything, *effects]
        if self.subscriptions:
            owner = self.owner
            if owner is None:
                owner = tables.add_owner(db, self._here)
                effects.append(partial(setattr, self, "owner", owner))
            for subscription in self.subscriptions:
                self._serve(db, owner, subscription, effects)
        return effects

    def _renew(self, db: tables.Database, now: float) -> bool:
        """Return False if our row is gone: somebody has returned what we held."""
        if self.owner is None:
            return True
        if now < self._beat_at:
            return tables.owner_exists(db, self.owner)
        self._beat_at = now + self._renew_seconds
        return tables.beat(db, self.owner)

    def _serve(
        self, db: tables.Database, owner: int, subscription: EmbeddedSubscription, effects: list[Effect]
    ) -> None:
        """Follow the queue's coming and going, and take as many messages as there is room for."""
        if subscription.cancelled:
            return
        queue = tables.find_queue(db, subscription.queue)
        if subscription.queue_id is not None and queue != subscription.queue_id:
            effects.append(partial(self._lose, subscription))
        elif queue is not None and subscription.queue_id is None:
            row = tables.subscribe(db, queue, owner, time.time())
            effects.append(partial(self._activated, subscription, queue, row))
        elif queue is not None and subscription.room > 0:
            taken = tables.take(db, queue, owner, subscription.room)
            effects.extend([partial(self._deliver, subscription, row) for row in taken])

    def _activated(self, subscription: EmbeddedSubscription, queue: int, row: int) -> None:
        subscription.queue_id, subscription.row = queue, row
        self._host.flush_soon()  # to take comes one turn later: first the caller gets its subscription

    def _deliver(self, subscription: EmbeddedSubscription, row: tables.Row) -> None:
        if subscription.room > 0:
            subscription.on_delivery(subscription.hold(row))
        else:  # cancelled or lowered by a callback just before this one
            self.pending.hand_backs.append(row[0])
            self._host.flush_soon()

    def depth(self, db: tables.Database, queue: str, now: float) -> Depth | None:
        """Count a queue, after the work of owners that are gone has come back to it; `now` is awake seconds."""
        self.return_lost(db, self.lost_owners(db, now))
        return tables.count(db, queue)

    def lost_owners(self, db: tables.Database, now: float) -> list[tuple[int, int]]:
        """Return row and beat of the owners whose work has to be returned; `now` is awake seconds."""
        others = [owner for owner in tables.owners(db) if owner[0] != self.owner]
        return self._leases.run_out(others, now)

    def return_lost(self, db: tables.Database, lost: list[tuple[int, int]]) -> None:
        """Return the work of owners, unless they have renewed their lease just now."""
        for owner, beat in lost:
            tables.drop_owner(db, owner, beat, failed=True, now=time.time())

    def leave(self, db: tables.Database) -> None:
        """Hand back all we hold."""
        if self.owner is not None:
            tables.drop_owner(db, self.owner, None, failed=False, now=time.time())

    def drop_former(self, db: tables.Database, owner: int) -> None:
        """Return what we held before we lost the file; in a new file that row is somebody else's, or nobody's."""
        if any(row == owner and who == self._here for row, _, who in tables.owners(db)):
            tables.drop_owner(db, owner, None, failed=True, now=time.time())

    def lose_everything(self) -> None:
        """Void all we hold, and forget our row."""
        self.owner = None
        for subscription in list(self.subscriptions):
            self._lose(subscription)

    def _lose(self, subscription: EmbeddedSubscription) -> None:
        if subscription.lose():
            self._host.run(subscription.on_lost)
        self._host.flush_soon()  # the queue may be there again already

    def fail(self, error: PublishError) -> None:
        """Settle all that is pending with an error."""
        pending, self.pending = self.pending, Pending()
        for _, _, _, on_settled in pending.publishes:
            self._host.run(partial(on_settled, error))
        for _, future in pending.calls:
            if not future.done():
                future.set_exception(BrokerUnreachableError(str(error)))


def _publish(
    db: tables.Database, publishes: list[tuple[str, bytes, bytes, OnSettled]], effects: list[Effect]
) -> None:
    queues = {name: tables.find_queue(db, name) for name in {publish[0] for publish in publishes}}
    rows = []
    for name, properties, body, on_settled in publishes:
        queue = queues[name]
        if queue is None:
            effects.append(partial(on_settled, UnroutableError(f"there is no queue {name}")))
        else:
            rows.append((queue, properties, body))
            effects.append(partial(on_settled, None))
    tables.publish(db, rows)


def _resolve(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)
