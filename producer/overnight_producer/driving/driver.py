"""Drive one job: publish its tasks up to a window, read replies, decide, write, acknowledge; in that order.

Everything happens in cycles. A cycle takes what has arrived, puts all that follows from it into one
transaction of the job file, and only when that is committed acks the replies and publishes the next tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from overnight_common.brokers.base import DEAD_QUEUE, BrokerState, Delivery, Depth, Message, reply_queue
from overnight_common.brokers.patience import AGAIN_SECONDS, patiently
from overnight_common.dead_letters import bury
from overnight_common.errors import BrokerUnreachableError, DecodeError, OvernightError, PublishError
from overnight_common.messages import Encoded, decode_reply
from overnight_common.values import count_values
from overnight_producer.driving.batching import Pace, measured, next_points
from overnight_producer.driving.observer import NOBODY, DriveObserver
from overnight_producer.driving.rates import Rates
from overnight_producer.driving.reckoning import Observer, Reckoning
from overnight_producer.driving.silence import Silences
from overnight_producer.driving.snapshot import Snapshot
from overnight_producer.driving.task_maker import TaskMaker
from overnight_producer.driving.window import FIRST_WINDOW, Sight, next_window
from overnight_producer.driving.worklist import Worklist
from overnight_producer.jobs.ranges import Policy, Range, outside, published, recalled
from overnight_producer.letters import reclaim_replies

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker
    from overnight_common.datasets import DataSet
    from overnight_producer.jobs.jobfile import JobFile
    from overnight_producer.jobs.records import Request
    from overnight_producer.jobs.transaction import Transaction

REPLY_PREFETCH = 2000
HOUSEKEEPING_SECONDS = 1.0
FAREWELL_SECONDS = 15.0
SUCCESS_SHARE_TO_GO_ON = 0.1


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Hold what can be tuned about driving; all times in seconds.

    Attributes:
        max_message_bytes: limit of one message.
        window_seconds: how much work the window aims to hold.
        window: fixed number of tasks out, or None to find it by measuring.
        silence_seconds: after how long a silent task is asked for, and again until it is called lost.
        no_consumer_timeout_seconds: after how long without a working consumer the job pauses.
        group_seconds: replies that arrive within it share a commit.
        policy: attempts and back-off.
    """

    max_message_bytes: int
    window_seconds: float = 10.0
    window: int | None = None
    silence_seconds: float = 90.0
    no_consumer_timeout_seconds: float = 600.0
    group_seconds: float = 0.004
    policy: Policy = field(default_factory=Policy)


class EndingKind(enum.Enum):
    """Name how driving can end."""

    DONE = "done"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Ending:
    """Say how driving ended, and why."""

    kind: EndingKind
    why: str = ""


class Driver:
    """Own a job file while it is driven."""

    def __init__(
        self,
        job: JobFile,
        broker: Broker,
        dataset: DataSet,
        queue: str,
        settings: DriverSettings,
        observer: Observer | None = None,
        recall: bool = False,
        onlooker: DriveObserver = NOBODY,
    ) -> None:
        """Prepare to drive `job` (locked by the caller) through the task queue with the full name `queue`.

        With `recall`, tasks that an earlier driver left in the queue are void: they are sent again.
        """
        now = time.monotonic()
        self._job = job
        self._spec = job.spec
        self._broker = broker
        self._dataset = dataset
        self._queue = queue
        self._settings = settings
        self._recall = recall
        self._onlooker = onlooker
        self._cursor = job.cursor
        self._worklist = Worklist(job.ranges())
        self._rates = Rates(now)
        self._silences = Silences(settings.silence_seconds)
        self._fixed_window = settings.window
        self._window = settings.window or FIRST_WINDOW
        self._pace = Pace()
        self._reckoning = Reckoning(self._worklist, settings.policy, self._silences, self._rates, observer)
        self._reply_queue = reply_queue(self._spec.id, self._spec.epoch)
        self._maker = self._new_maker()
        self._arrived: list[Delivery] = []
        self._failed_publishes: list[tuple[Range, PublishError]] = []
        self._unsettled: set[tuple[int, int]] = set()
        self._wake = asyncio.Event()
        self._ending: Ending | None = None
        self._paused = False
        self._depth: Depth | None = None
        self._link_broke = False
        self._housekeeping_due = 0.0

    # --- what others may do -------------------------------------------------------------------------

    def end(self, ending: Ending) -> None:
        """End driving soon; what has arrived until then is written."""
        self._ending = self._ending or ending
        self._wake.set()

    def snapshot(self) -> Snapshot:
        """Return the figures of this moment for a view."""
        now = time.monotonic()
        return Snapshot(
            progress=self._job.progress(),
            points_per_second=self._rates.points_per_second(now),
            tasks_per_second=self._rates.tasks_per_second(now),
            slots_busy=self._rates.slots_busy(now),
            slots_seen=self._rates.slots_seen(now),
            running=self._rates.longest_running(now)[:8],
            window=self._window,
            tasks_out=self._worklist.out,
            depth=self._depth,
            broker=self._broker.state,
            paused=self._paused,
            accused=dict(self._reckoning.accused),
        )

    async def run(self) -> Ending:
        """Drive until the job is done, paused, cancelled, or `end` was called.

        Raises:
            OvernightError: the job file or the data set cannot be used any more.
        """
        self._broker.on_state(lambda _state: self._wake.set())
        looking = asyncio.create_task(self._look_at_depth())
        try:
            while self._ending is None:
                try:
                    await self._drive_epoch()
                except BrokerUnreachableError:  # the link broke under a question; it comes back by itself
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        return self._ending

    async def _drive_epoch(self) -> None:
        """Drive through one reply queue, until the end or until that queue is gone."""
        if self._recall:
            await self._broker.delete(self._reply_queue)
            self._recall = False
        is_new = self._spec.epoch == 0 or await self._broker.depth(self._reply_queue) is None
        if is_new and self._spec.has_own_queue:
            await self._broker.delete(self._queue)  # only void tasks are in it
        for queue in (self._queue, DEAD_QUEUE):
            await self._broker.declare(queue)
        taken_up = self._spec.epoch > 0
        if is_new:
            self._begin_epoch()
        await self._broker.declare(self._reply_queue)
        if taken_up:
            await reclaim_replies(self._broker, self._spec.id, self._reply_queue)
        now = time.monotonic()
        for range_ in self._worklist.in_flight():
            self._silences.published(range_.start, range_.attempt, now)
        subscription = await self._broker.subscribe(
            self._reply_queue, REPLY_PREFETCH, self._on_reply, self._on_lost
        )
        try:
            while self._ending is None and not await self._reply_queue_is_gone():
                self._cycle()
                await self._rest()
        finally:
            await subscription.cancel()
        if self._ending is not None:
            self._take_arrived_only()
            if self._ending.kind in (EndingKind.DONE, EndingKind.CANCELLED):
                with contextlib.suppress(BrokerUnreachableError):  # an unused queue goes by itself in the end
                    await patiently(partial(self._broker.delete, self._reply_queue), FAREWELL_SECONDS)

    def _begin_epoch(self) -> None:
        # No reply to what is out can arrive without the old queue: all of it goes back to waiting.
        with self._job.commit() as tx:
            tx.set_epoch(self._spec.epoch + 1)
            for range_ in self._worklist.in_flight():
                tx.put(recalled(range_))
                self._worklist.put(recalled(range_))
                self._silences.forget(range_.start)
        self._spec = self._job.spec
        self._reply_queue = reply_queue(self._spec.id, self._spec.epoch)
        self._maker = self._new_maker()

    async def _reply_queue_is_gone(self) -> bool:
        """Look whether our queue is still there, after the link or the subscription broke."""
        if not self._link_broke or self._broker.state is BrokerState.DISCONNECTED:
            return False
        self._link_broke = False
        try:
            return await self._broker.depth(self._reply_queue) is None
        except OvernightError:
            self._link_broke = True  # the link broke again meanwhile
            return False

    def _new_maker(self) -> TaskMaker:
        return TaskMaker(self._spec, self._dataset, self._reply_queue, self._settings.max_message_bytes)

    async def _look_at_depth(self) -> None:
        """Ask for the depth of the task queue, often while the window may have to grow."""
        while True:
            try:
                self._depth = await self._broker.depth(self._queue)
            except OvernightError:
                self._depth = None  # unknown is not zero
            if self._fixed_window is None:
                self._window = next_window(self._window, self._sight(), self._settings.window_seconds)
                self._wake.set()
            await asyncio.sleep(0.1 if self._tasks_waiting() else HOUSEKEEPING_SECONDS)

    def _sight(self) -> Sight:
        now = time.monotonic()
        # The queue may look empty only because what we sent is still on its way.
        ready = self._depth.ready + len(self._unsettled) if self._depth is not None else None
        return Sight(
            self._tasks_waiting(), ready, self._rates.tasks_per_second(now), self._rates.slots_seen(now)
        )

    def _tasks_waiting(self) -> int:
        """Return how many tasks wait here at least; points that were not cut yet count as one."""
        return self._worklist.waiting + (self._cursor < self._spec.stop)

    # --- events of the broker: they only note -------------------------------------------------------

    def _on_reply(self, delivery: Delivery) -> None:
        self._arrived.append(delivery)
        self._wake.set()

    def _on_lost(self) -> None:
        self._arrived.clear()  # void now; the broker hands them out again
        self._link_broke = True
        self._wake.set()

    # --- the cycle ----------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Wait until there is something to do, then a moment longer, so that replies share a commit."""
        now = time.monotonic()
        until = self._housekeeping_due
        due = self._worklist.next_due()
        if due is not None and self._room() > 0:
            until = min(until, due)
        if until > now:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), until - now)
        if self._rates.tasks_per_second(now) > 100:
            await asyncio.sleep(self._settings.group_seconds)
        self._wake.clear()

    def _cycle(self) -> None:
        """Write what has arrived and what goes out in one commit; then ack, then publish."""
        now = time.monotonic()
        deliveries, self._arrived = self._arrived, []
        failed, self._failed_publishes = self._failed_publishes, []
        outgoing: list[tuple[Range, Message]] = []
        acks: list[Delivery] = []
        with self._job.commit() as tx:
            for delivery in deliveries:
                self._take(tx, delivery, now, acks)
            for range_, error in failed:
                if self._worklist.get(range_.start, range_.stop) == range_:
                    self._reckoning.publish_failed(tx, range_, error, now)
            if now >= self._housekeeping_due:
                self._housekeeping_due = now + HOUSEKEEPING_SECONDS
                self._keep_house(tx, now)
            if self._ending is None:
                self._fill_window(tx, now, outgoing)
            written_at = time.monotonic()
        if deliveries or failed or outgoing or tx.written.dropped:
            self._onlooker.committed(tx.written, time.monotonic() - written_at)
        for delivery in acks:
            self._broker.ack(delivery)
        for range_, message in outgoing:
            self._publish(range_, message)
        self._look_for_the_end()

    def _take_arrived_only(self) -> None:
        self._ending = self._ending or Ending(EndingKind.INTERRUPTED)
        self._housekeeping_due = time.monotonic() + HOUSEKEEPING_SECONDS
        self._cycle()

    def _take(self, tx: Transaction, delivery: Delivery, now: float, acks: list[Delivery]) -> None:
        spec = self._spec
        try:
            reply = decode_reply(delivery.message.body)
        except DecodeError as error:
            bury(self._broker, delivery, str(error))
            return
        if reply.job != spec.id or outside(reply, spec.start, spec.stop):
            bury(self._broker, delivery, f"a reply for [{reply.start}, {reply.stop}) of job {reply.job}")
            return
        if reply.result is not None and not _fits(reply.result, reply.stop - reply.start):
            bury(self._broker, delivery, f"a reply with other than {reply.stop - reply.start} results")
            return
        acks.append(delivery)
        if reply.start == reply.stop:
            self._silences.probe_back(reply.attempt, now)
            return
        self._onlooker.replied(reply)
        if reply.kind == "done":
            size = len(reply.result.body) if reply.result is not None else 0
            self._pace = measured(self._pace, reply.stop - reply.start, reply.seconds, size)
            if not self._spec.fingerprint:
                tx.set_fingerprint(reply.fingerprint)
                self._spec = replace(self._spec, fingerprint=reply.fingerprint)
                self._maker = self._new_maker()
        self._reckoning.reply(tx, reply, now)

    # --- publishing ---------------------------------------------------------------------------------

    def _room(self) -> int:
        """Return how many tasks may go out now."""
        if self._paused or self._ending is not None or self._broker.state is not BrokerState.CONNECTED:
            return 0
        if not self._spec.fingerprint:
            return 1 - self._worklist.out  # the first reply pins the fingerprint of the code
        return self._window - self._worklist.out

    def _fill_window(self, tx: Transaction, now: float, outgoing: list[tuple[Range, Message]]) -> None:
        """Put due ranges and newly cut ones on their way, old ones first."""
        room = self._room()
        while room > 0 and (range_ := self._worklist.take_due(now)) is not None:
            out = published(range_)
            outgoing.append((out, self._maker.make(out.start, out.stop, out.attempt)))
            tx.put(out)
            self._note_published(out, now)
            room -= 1
        fresh: list[Range] = []
        while room > 0 and self._cursor < self._spec.stop:
            longest = min(self._cursor + self._batch_points(now), self._spec.stop)
            end, message = self._maker.cut(self._cursor, longest)
            fresh.append(published(Range(self._cursor, end)))
            outgoing.append((fresh[-1], message))
            self._note_published(fresh[-1], now)
            self._cursor = end
            room -= 1
        if fresh:
            tx.cut(fresh)

    def _batch_points(self, now: float) -> int:
        batch = self._spec.batch
        if batch != "auto":
            return int(batch)
        return next_points(self._pace, self._spec.stop - self._cursor, self._rates.slots_seen(now))

    def _note_published(self, out: Range, now: float) -> None:
        self._worklist.put(out)
        self._silences.published(out.start, out.attempt, now)

    def _publish(self, range_: Range, message: Message) -> None:
        self._unsettled.add(key := (range_.start, range_.attempt))
        sent_at = time.monotonic()

        def settled(error: PublishError | None) -> None:
            self._unsettled.discard(key)
            self._onlooker.published(time.monotonic() - sent_at, error)
            if error is not None:
                self._failed_publishes.append((range_, error))
                self._wake.set()

        self._broker.publish(self._queue, message, settled)

    def _publish_probe(self, number: int) -> None:
        def settled(error: PublishError | None) -> None:
            if error is not None:
                self._silences.probe_failed(number)

        self._broker.publish(self._queue, self._maker.probe(number), settled)

    # --- once a second ------------------------------------------------------------------------------

    def _keep_house(self, tx: Transaction, now: float) -> None:
        for request in self._job.requests_pending():
            tx.finish_request(request.id, self._grant(tx, request))
        if self._broker.state is BrokerState.CONNECTED:
            queue_is_empty = self._depth is not None and self._depth.ready == 0
            number = self._silences.probe_due(now, queue_is_empty)
            if number is not None:
                self._publish_probe(number)
            for start, attempt in self._silences.lost(now):
                self._silences.forget(start)
                for range_ in self._worklist.in_flight():
                    if (range_.start, range_.attempt) == (start, attempt):
                        self._reckoning.silence(tx, range_, now)
            if now - self._rates.last_done > self._settings.no_consumer_timeout_seconds and not self._paused:
                self.end(Ending(EndingKind.PAUSED, self._why_nobody_works()))

    def _why_nobody_works(self) -> str:
        seconds = self._settings.no_consumer_timeout_seconds
        who = [f"{name} says {what}" for name, what in self._reckoning.accused.items()]
        if not who:
            who = [f"no consumer answers on {self._queue}"]
        return f"no task was done for {seconds:.0f} s: " + "; ".join(who)

    def _grant(self, tx: Transaction, request: Request) -> str:
        """Do what another process asked for, and return what came of it."""
        match request.kind:
            case "cancel":
                self.end(Ending(EndingKind.CANCELLED, "cancelled by request"))
            case "pause":
                self._paused = True
            case "resume":
                self._paused = False
                self._rates.last_done = time.monotonic()
            case "retry":
                return f"{self._retry(tx)} points wait again"
            case "window":
                self._fixed_window = request.args.get("tasks")
                self._window = self._fixed_window or self._window
            case _:
                return f"unknown request {request.kind}"
        return "granted"

    def _retry(self, tx: Transaction) -> int:
        points = 0
        for range_, _why in self._job.given_up():
            self._worklist.put(tx.lift(range_))
            points += range_.points
        self._reckoning.given_up = 0
        return points

    # --- the end ------------------------------------------------------------------------------------

    def _look_for_the_end(self) -> None:
        if self._cursor >= self._spec.stop and self._worklist.waiting == 0 and self._worklist.out == 0:
            self.end(Ending(EndingKind.DONE))
            return
        limit = self._spec.max_failures
        given_up, succeeded = self._reckoning.given_up, self._reckoning.succeeded
        if (
            limit is not None
            and given_up >= limit
            and succeeded < SUCCESS_SHARE_TO_GO_ON * (given_up + succeeded)
        ):
            self.end(Ending(EndingKind.PAUSED, f"{given_up} points were given up and {succeeded} succeeded"))


def _fits(result: Encoded, points: int) -> bool:
    try:
        return count_values(result) == points
    except DecodeError:
        return False
