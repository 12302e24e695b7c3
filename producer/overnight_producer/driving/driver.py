"""Drive one job: publish its tasks up to a window, read replies, decide, write, acknowledge; in that order.

Everything happens in cycles. A cycle takes what has arrived, puts all that follows from it into one
transaction of the job file, and only when that is committed acks the replies and publishes the next tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from overnight_common.awake import awake_seconds
from overnight_common.brokers.base import DEAD_QUEUE, BrokerState, Delivery, Message, reply_queue
from overnight_common.brokers.patience import AGAIN_SECONDS, patiently
from overnight_common.dead_letters import bury
from overnight_common.errors import BrokerUnreachableError, OvernightError, PublishError
from overnight_producer.driving.batching import Pace, expected_seconds, measured, next_points
from overnight_producer.driving.driver_settings import DriverSettings
from overnight_producer.driving.ending import (
    Ending,
    EndingKind,
    tasks_on_trial,
    why_hopeless,
    why_nobody_works,
)
from overnight_producer.driving.live_window import LiveWindow
from overnight_producer.driving.observer import NOBODY, Cycle, DriveObserver
from overnight_producer.driving.rates import Rates
from overnight_producer.driving.reading import usable_replies
from overnight_producer.driving.reckoning import Observer, Reckoning
from overnight_producer.driving.share import QueueShare
from overnight_producer.driving.silence import Silences
from overnight_producer.driving.snapshot import Snapshot
from overnight_producer.driving.task_maker import TaskMaker
from overnight_producer.driving.worklist import Worklist
from overnight_producer.jobs.ranges import Range, published, recalled
from overnight_producer.jobs.records import PAUSED_BY_REQUEST, JobState
from overnight_producer.letters import reclaim_replies

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker
    from overnight_common.datasets import DataSet
    from overnight_common.messages import Reply
    from overnight_producer.jobs.jobfile import JobFile
    from overnight_producer.jobs.records import Request
    from overnight_producer.jobs.transaction import Transaction

REPLY_PREFETCH = 2000
HOUSEKEEPING_SECONDS = 1.0
# Messages are kept until the broker has confirmed them: this bounds our memory, whatever the window.
MOST_UNSETTLED_BYTES = 16 * 1024 * 1024
FAREWELL_SECONDS = 15.0


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
        share: QueueShare | None = None,
    ) -> None:
        """Prepare to drive `job` (locked by the caller) through the task queue with the full name `queue`.

        With `recall`, tasks that an earlier driver left in the queue are void: they are sent again.
        `share` is what the drivers of one process on that queue have in common; None for a driver alone.
        """
        now = awake_seconds()
        self._job = job
        self._spec = job.spec
        self._broker = broker
        self._dataset = dataset
        self._queue = queue
        self._settings = settings
        self._recall = recall
        self._onlooker = onlooker
        self._cycled = Cycle()
        self._cursor = job.cursor
        self._worklist = Worklist(job.ranges())
        self._rates = Rates(now)
        self._silences = Silences(settings.silence_seconds, number=random.getrandbits(32))
        self._window = LiveWindow(
            self._spec.id, self._rates, share or QueueShare(), settings.window, settings.window_seconds
        )
        self._pace = Pace()
        self._reckoning = Reckoning(self._worklist, settings.policy, self._silences, self._rates, observer)
        self._reply_queue = reply_queue(self._spec.id, self._spec.epoch)
        self._maker = self._new_maker()
        self._arrived: list[Delivery] = []
        self._failed_publishes: list[tuple[Range, PublishError]] = []
        self._unsettled: set[tuple[int, int]] = set()
        self._unsettled_bytes = 0
        self._held_up = False  # by MOST_UNSETTLED_BYTES
        self._wake = asyncio.Event()
        self._ending: Ending | None = None
        self._paused = False
        self._link_broke = False
        self._housekeeping_due = 0.0

    # --- what others may do -------------------------------------------------------------------------

    def end(self, ending: Ending) -> None:
        """End driving soon; what has arrived until then is written."""
        self._ending = self._ending or ending
        self._wake.set()

    def snapshot(self) -> Snapshot:
        """Return the figures of this moment for a view."""
        now = awake_seconds()
        return Snapshot(
            progress=self._job.progress(),
            points_per_second=self._rates.points_per_second(now),
            tasks_per_second=self._rates.tasks_per_second(now),
            slots_busy=self._rates.slots_busy(now),
            slots_seen=self._rates.slots_seen(now),
            running=self._rates.longest_running(now)[:8],
            window=self._window.size,
            tasks_out=self._worklist.out,
            depth=self._window.depth,
            broker=self._broker.state,
            paused=self._paused,
            accused=dict(self._reckoning.accused),
        )

    @property
    def paused(self) -> bool:
        """Tell whether somebody asked for a pause."""
        return self._paused

    def wake(self) -> None:
        """Look soon, for something has changed: whoever owns the broker calls it when its state changes."""
        self._wake.set()

    async def run(self) -> Ending:
        """Drive until the job is done, paused, cancelled, or `end` was called.

        Raises:
            OvernightError: the job file or the data set cannot be used any more.
        """
        looking = asyncio.create_task(
            self._window.keep(
                self._broker,
                self._queue,
                self._tasks_waiting,
                lambda: self._worklist.out,
                lambda: len(self._unsettled),
                lambda: expected_seconds(self._pace, self._batch_points(awake_seconds())),
                self.wake,
            )
        )
        try:
            while self._ending is None:
                try:
                    await self._drive_epoch()
                except BrokerUnreachableError:  # the link broke under a question; it comes back by itself
                    self._hear_nobody(awake_seconds())
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
        # What an earlier driver published, or was killed before it could, is asked for at once.
        long_ago = awake_seconds() - self._settings.silence_seconds - HOUSEKEEPING_SECONDS
        for range_ in self._worklist.in_flight():
            self._silences.published(range_.start, range_.attempt, long_ago)
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
                own = [self._queue] if self._spec.has_own_queue else []
                for queue in (self._reply_queue, *own):
                    with contextlib.suppress(
                        BrokerUnreachableError
                    ):  # an unused queue goes by itself in the end
                        await patiently(partial(self._broker.delete, queue), FAREWELL_SECONDS)

    def _begin_epoch(self) -> None:
        # No reply to what is out can arrive without the old queue: all of it goes back to waiting.
        with self._job.commit() as tx:
            tx.set_epoch(self._spec.epoch + 1)
            for range_ in self._worklist.in_flight():
                tx.put(recalled(range_))
                self._worklist.put(recalled(range_))
                self._silences.forget(range_.start)
                self._rates.gone(range_.start, range_.stop)
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
        now = awake_seconds()
        until = self._housekeeping_due
        due = self._worklist.next_due()
        if due is not None and self._room() > 0 and not self._held_up:
            until = min(until, due)
        if until > now:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), until - now)
        if self._rates.tasks_per_second(now) > 100:
            await asyncio.sleep(self._settings.group_seconds)
        self._wake.clear()

    def _cycle(self) -> None:
        """Write what has arrived and what goes out in one commit; then ack, then publish."""
        now = awake_seconds()
        deliveries, self._arrived = self._arrived, []
        failed, self._failed_publishes = self._failed_publishes, []
        outgoing: list[tuple[Range, Message]] = []
        faults: list[str] = []
        with self._job.commit() as tx:
            for delivery in deliveries:
                replies, fault = usable_replies(delivery.message.body, self._spec)
                faults.append(fault)
                for reply in replies:
                    self._take(tx, reply, now)
            for range_, error in failed:
                if self._worklist.get(range_.start, range_.stop) == range_:
                    self._reckoning.publish_failed(tx, range_, error, now)
            if now >= self._housekeeping_due:
                self._housekeeping_due = now + HOUSEKEEPING_SECONDS
                self._keep_house(tx, now)
            if self._ending is None:
                self._fill_window(tx, now, outgoing)
            ready_at = time.monotonic()
        self._cycled.written = tx.written
        if deliveries or failed or outgoing or tx.written.dropped:
            self._cycled.commit_seconds = time.monotonic() - ready_at
        self._onlooker.cycled(self._cycled)
        self._cycled = Cycle()
        for delivery, fault in zip(deliveries, faults, strict=True):
            if fault:
                bury(self._broker, delivery, fault)
            else:
                self._broker.ack(delivery)
        for range_, message in outgoing:
            self._publish(range_, message)
        self._look_for_the_end()

    def _take_arrived_only(self) -> None:
        self._ending = self._ending or Ending(EndingKind.INTERRUPTED)
        self._housekeeping_due = awake_seconds() + HOUSEKEEPING_SECONDS
        self._cycle()

    def _take(self, tx: Transaction, reply: Reply, now: float) -> None:
        if reply.start == reply.stop:
            self._silences.probe_back(reply.attempt, now)
            return
        self._cycled.replies.append(reply)
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
        if self._link_broke:
            return 0  # the queues may be gone with the broker's disk: first that is asked
        if not self._spec.fingerprint:
            return 1 - self._worklist.out  # the first reply pins the fingerprint of the code
        room = self._window.size - self._worklist.out
        trial = tasks_on_trial(self._spec.max_failures, self._reckoning.failed, self._reckoning.succeeded)
        return room if trial is None else min(room, trial - self._worklist.published)

    def _fill_window(self, tx: Transaction, now: float, outgoing: list[tuple[Range, Message]]) -> None:
        """Put due ranges and newly cut ones on their way, old ones first."""
        room = self._room()
        bytes_left = MOST_UNSETTLED_BYTES - self._unsettled_bytes
        while room > 0 and bytes_left > 0 and (range_ := self._worklist.take_due(now)) is not None:
            out = published(range_)
            message = self._maker.make(out.start, out.stop, out.attempt)
            outgoing.append((out, message))
            tx.put(out)
            self._note_published(out, now)
            room -= 1
            bytes_left -= len(message.body)
        fresh: list[Range] = []
        while room > 0 and bytes_left > 0 and self._cursor < self._spec.stop:
            longest = min(self._cursor + self._batch_points(now), self._spec.stop)
            end, message = self._maker.cut(self._cursor, longest)
            fresh.append(published(Range(self._cursor, end)))
            outgoing.append((fresh[-1], message))
            self._note_published(fresh[-1], now)
            self._cursor = end
            room -= 1
            bytes_left -= len(message.body)
        self._held_up = bytes_left <= 0
        if fresh:
            tx.cut(fresh)
        if outgoing:
            self._maker.check_data()

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
        self._unsettled_bytes += (size := len(message.body))
        sent_at = time.monotonic()

        def settled(error: PublishError | None) -> None:
            self._unsettled.discard(key)
            self._unsettled_bytes -= size
            if self._held_up:
                self._wake.set()
            if error is None:
                self._cycled.confirm_seconds.append(time.monotonic() - sent_at)
            else:
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
        if self._broker.state is not BrokerState.CONNECTED:
            self._hear_nobody(now)
        else:
            depth = self._window.depth
            queue_is_empty = depth is not None and depth.ready == 0
            number = self._silences.probe_due(now, queue_is_empty)
            if number is not None:
                self._publish_probe(number)
            lost = set(self._silences.lost(now))
            for range_ in self._worklist.in_flight() if lost else ():
                if (range_.start, range_.attempt) in lost:
                    self._reckoning.silence(tx, range_, now)
            self._look_for_consumers(now)

    def _look_for_consumers(self, now: float) -> None:
        """Pause a job that nobody works on; whoever waits behind the tasks of other jobs is not forsaken."""
        accused, depth = self._reckoning.accused, self._window.depth
        in_line = not accused and depth is not None and bool(depth.consumers)
        idle_seconds = now - self._window.worked_at(alone=bool(accused))
        patience = self._settings.no_consumer_timeout_seconds
        if idle_seconds > patience and not in_line and not self._paused:
            self.end(Ending(EndingKind.PAUSED, why_nobody_works(patience, self._queue, accused)))

    def _hear_nobody(self, now: float) -> None:
        """Leave out the time in which no consumer could reach us."""
        self._rates.worked_at = now
        self._silences.deaf(now)

    def _grant(self, tx: Transaction, request: Request) -> str:
        """Do what another process asked for, and return what came of it."""
        match request.kind:
            case "cancel":
                self.end(Ending(EndingKind.CANCELLED, "cancelled by request"))
            case "pause":
                self._pause(True)
                tx.set_state(JobState.PAUSED, PAUSED_BY_REQUEST)
            case "resume":
                self._pause(False)
                tx.set_state(JobState.RUNNING)
                self._rates.worked_at = awake_seconds()
            case "retry":
                return f"granted, points tried again: {self._retry(tx)}"
            case "window":
                self._window.fix(request.args.get("tasks"))
            case _:
                return f"unknown request {request.kind}"
        return "granted"

    def _pause(self, paused: bool) -> None:
        self._paused = paused
        self._window.active = not paused

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
        if self._paused and self._settings.leave_when_paused and self._worklist.out == 0:
            self.end(Ending(EndingKind.PAUSED, PAUSED_BY_REQUEST))
            return
        hopeless = why_hopeless(self._spec.max_failures, self._reckoning.given_up, self._reckoning.succeeded)
        if hopeless:
            self.end(Ending(EndingKind.PAUSED, hopeless))
