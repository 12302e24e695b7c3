"""Apply what replies, silences and failed publishes decide: to the job file and the worklist alike."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight_common.messages import Failure, Reply
from overnight_producer.jobs.ranges import (
    DUPLICATE_RESULT,
    Again,
    Complete,
    Decision,
    Drop,
    GiveUp,
    Policy,
    Range,
    RangeState,
    Running,
    apply,
    decide,
    publish_failed,
    silent,
)

if TYPE_CHECKING:
    from overnight_common.errors import PublishError
    from overnight_producer.driving.rates import Rates
    from overnight_producer.driving.silence import Silences
    from overnight_producer.driving.worklist import Worklist
    from overnight_producer.jobs.transaction import Transaction

# What `Transaction.count` counts beside the reasons why replies are dropped.
SILENT_TASK = "silent_task"
PUBLISH_FAILED = "publish_failed: "

Observer = Callable[[Reply, Decision], None]


class Reckoning:
    """Change ranges as decided, in a transaction that the driver opened.

    Attributes:
        accused: consumer -> the latest thing it reported that accuses itself.
        failed: attempts since driving began that failed by the task's own fault.
        given_up: points given up since driving began, less those lifted.
        succeeded: points that got a result since driving began.
    """

    def __init__(
        self,
        worklist: Worklist,
        policy: Policy,
        silences: Silences,
        rates: Rates,
        observer: Observer | None = None,
    ) -> None:
        """Work on `worklist`; `observer` only looks on."""
        self._worklist = worklist
        self._policy = policy
        self._silences = silences
        self._rates = rates
        self._observer = observer
        self.accused: dict[str, str] = {}
        self.failed = 0
        self.given_up = 0
        self.succeeded = 0

    def reply(self, tx: Transaction, reply: Reply, now: float) -> None:
        """Do what one reply for points of this job asks for; `now` is in seconds of `overnight_common.awake`."""
        range_ = self._worklist.get(reply.start, reply.stop)
        decision = decide(range_, reply, self._policy, random.random())  # noqa: S311 - jitter, no secret
        if reply.kind != "done":  # a result notes its consumer by itself
            tx.saw(reply.consumer)
        match decision:
            case Complete():
                self._complete(tx, range_, reply, now)
            case Running():
                self._rates.running(reply, now)
                self._silences.heard(reply.start, now)
            case Drop(reason):
                tx.count(reason)
            case _:
                assert range_ is not None
                assert reply.failure is not None
                self._failed(tx, range_, reply, decision, now)
        if isinstance(decision, Running) and range_ is not None and range_.state is not RangeState.RUNNING:
            self._replace(tx, range_, decision, now)
        if self._observer is not None:
            self._observer(reply, decision)

    def silence(self, tx: Transaction, range_: Range, now: float) -> None:
        """Publish a vanished task again, on its budget."""
        setback = silent(range_, self._policy, self._silences.limit_seconds)
        tx.count(SILENT_TASK)
        self._rates.gone(range_.start, range_.stop)
        if isinstance(setback, GiveUp):
            tx.add_failure(range_, setback.failure)
        self._replace(tx, range_, setback, now, setback.failure if isinstance(setback, GiveUp) else None)

    def publish_failed(self, tx: Transaction, range_: Range, error: PublishError, now: float) -> None:
        """Put a task that the broker did not take back to waiting."""
        setback = publish_failed(range_, error, self._policy, random.random())  # noqa: S311 - jitter, no secret
        tx.count(f"{PUBLISH_FAILED}{type(error).__name__}")
        if isinstance(setback, GiveUp):
            tx.add_failure(range_, setback.failure)
        self._replace(tx, range_, setback, now, setback.failure if isinstance(setback, GiveUp) else None)

    def _complete(self, tx: Transaction, range_: Range | None, reply: Reply, now: float) -> None:
        filled = tx.add_result(
            reply.start, reply.stop, reply.result, reply.seconds, reply.consumer, reply.slot, time.time()
        )
        self._rates.done(reply, now)
        self.accused.pop(reply.consumer, None)
        self.succeeded += filled
        if filled == 0:
            tx.count(DUPLICATE_RESULT)
        if range_ is not None:
            tx.remove(range_)
            complete = [range_]
        else:  # late, for a range that was split or given up: see what it completes
            complete = tx.settle(reply.start, reply.stop)
        for each in complete:
            if each.state is RangeState.GIVEN_UP:
                self.given_up -= each.points
            self._worklist.remove(each.start)
            self._silences.forget(each.start)

    def _failed(self, tx: Transaction, range_: Range, reply: Reply, decision: Decision, now: float) -> None:
        assert reply.failure is not None
        self._rates.failed(reply, now)
        if reply.failure.cause.accuses_consumer:
            self.accused[reply.consumer] = f"{reply.failure.cause.value}: {reply.failure.message}"
            tx.accuse(reply.consumer, reply.failure)
        else:
            self.failed += 1
        tx.add_failure(range_, reply.failure, reply.consumer, reply.slot, reply.seconds, reply.peak_rss_bytes)
        self._replace(tx, range_, decision, now, reply.failure)

    def _replace(
        self, tx: Transaction, range_: Range, decision: Decision, now: float, failure: Failure | None = None
    ) -> None:
        """Put what the decision makes of a range in its place."""
        self._worklist.remove(range_.start)
        if not isinstance(decision, Running):
            self._silences.forget(range_.start)
        delay_seconds = decision.delay_seconds if isinstance(decision, Again) else 0.0
        successors = apply(range_, decision, failure.cause if failure else None)
        for successor in tx.replace(range_, successors):
            if successor.state is RangeState.GIVEN_UP:
                self.given_up += successor.points
            else:
                self._worklist.put(successor, due=now + delay_seconds)
