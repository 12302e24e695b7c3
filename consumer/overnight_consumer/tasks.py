"""Lead every task from its delivery to its ack; the one place that says what happens next to it."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from overnight_common.brokers.base import DEAD_QUEUE, REPLIES_PREFIX, BrokerState, Delivery, Message
from overnight_common.dead_letters import bury
from overnight_common.errors import DecodeError, NewerVersionError
from overnight_common.messages import Cause, Failure, decode_address, decode_task
from overnight_consumer import answers
from overnight_consumer.deaths import failure_of, start_failure_of
from overnight_consumer.held import DONE, IN_A_SLOT, Held, Stage
from overnight_consumer.journal import Journal, name_of
from overnight_consumer.observer import NOBODY
from overnight_consumer.outbox import Outbox
from overnight_consumer.pace import Pace
from overnight_consumer.parked import Parked
from overnight_consumer.prefetch import LONG_SECONDS
from overnight_consumer.reply_queues import Verdict
from overnight_consumer.slot_states import SlotState
from overnight_consumer.suspects import Suspects
from overnight_consumer.watching import ReplyWatch

if TYPE_CHECKING:
    from overnight_common.brokers.base import Broker
    from overnight_common.errors import PublishError
    from overnight_consumer.deaths import Death
    from overnight_consumer.frames import Answer
    from overnight_consumer.intake import Intake
    from overnight_consumer.observer import Observer
    from overnight_consumer.settings import Settings
    from overnight_consumer.slots import Slot

log = logging.getLogger("overnight.consumer")
_MOST_PARKED_AHEAD = 256
_ACCUSING = frozenset(cause.value for cause in Cause if cause.accuses_consumer)


class Tasks:
    """Hold the tasks of one consumer; each leaves by an ack, a hand-back, or as its delivery is void."""

    def __init__(self, settings: Settings, broker: Broker, observer: Observer = NOBODY) -> None:
        self._settings = settings
        self._broker = broker
        self._observer = observer
        self._held: dict[tuple[str, int, int, int], Held] = {}
        self._waiting: deque[Held] = deque()
        self._suspects = Suspects(settings.max_deliveries)
        self._parked = Parked()
        self._free: deque[Slot] = deque()
        self._slots: list[Slot] = []
        self._intakes: list[Intake] = []
        self._start_death: Death | None = None
        self._stopping = False
        self._pace = Pace()
        self._answers = 0
        self._journal = Journal()
        self._ticked_at = self.active_at = time.monotonic()
        self.outbox = Outbox(broker, self._confirmed, self._unroutable, self._too_large)
        self.watch = ReplyWatch(broker, self._reply_queue_seen)

    def serve(self, slots: list[Slot], intakes: list[Intake]) -> None:
        """Take note of the slots to use and of the queues that tasks come from."""
        self._slots, self._intakes = slots, intakes

    def __len__(self) -> int:
        return len(self._held)

    @property
    def deliveries(self) -> int:
        """Return how many deliveries are held un-acked."""
        return sum(held.delivery is not None for held in self._held.values())

    @property
    def _usable_slots(self) -> int:
        """Return how many slots take tasks: those whose child cannot be started keep nothing from others."""
        return sum(slot.is_usable for slot in self._slots) or 1

    # Deliveries

    def on_delivery(self, intake: Intake, delivery: Delivery) -> None:
        """Take a delivery."""
        self.active_at = time.monotonic()
        if self._stopping:
            self._broker.hand_back(delivery)
            return
        body, count = delivery.message.body, delivery.delivery_count
        self._pace.weighed(len(body))
        try:
            task = decode_task(body)
        except NewerVersionError as error:
            self._refuse_newer(intake, delivery, str(error))
            return
        except DecodeError as error:
            self._bury(delivery, str(error))
            return
        if not task.reply_to.startswith(REPLIES_PREFIX):
            self._bury(delivery, f"{task.reply_to!r} is no reply queue of Overnight")
            return
        if self._is_copy(task.key, intake, delivery):
            return
        held = self._held[task.key] = Held(task, delivery, intake, body, count)
        if task.start == task.stop:
            self._reply(held)
        elif count >= self._settings.max_deliveries:
            intake.heed(self.active_at, suspect=False)  # it is not run, so it kills nobody
            self._reply(held, answers.lost_consumer(count, self._settings.max_deliveries))
        else:
            suspect = self._suspects.suspected(count)
            intake.heed(self.active_at, suspect=suspect)
            if suspect:
                self._suspects.add(held, self.active_at)
            else:
                self._waiting.append(held)
            self._dispatch()

    def _is_copy(self, key: tuple[str, int, int, int], intake: Intake, delivery: Delivery) -> bool:
        """Let a copy of what still runs here, or whose reply is on its way, take the place of the old delivery."""
        known = self._held.get(key)
        if known is None:
            return False
        if known.delivery is not None:
            self._broker.ack(known.delivery)
        known.delivery, known.intake = delivery, intake
        return True

    def _refuse_newer(self, intake: Intake, delivery: Delivery, words: str) -> None:
        try:
            task = answers.task_of(decode_address(delivery.message.body))
        except (DecodeError, ValueError) as error:
            self._bury(delivery, str(error))
            return
        if self._is_copy(task.key, intake, delivery):
            return
        held = self._held[task.key] = Held(task, delivery, intake, b"", delivery.delivery_count)
        self._reply(held, answers.newer_version(words))
        self._accused(held, words)

    def _bury(self, delivery: Delivery, reason: str) -> None:
        log.warning("a message of %s goes to the dead letters: %s", delivery.queue, reason)
        bury(self._broker, delivery, reason)

    def on_lost(self, intake: Intake) -> None:
        """Forget what has not started: it comes again. What runs goes on, without a delivery to settle."""
        for held in [held for held in self._held.values() if held.intake is intake]:
            held.delivery = None
            if held.stage is Stage.WAITING:
                self._forget(held)
        self._sweep()

    def hand_back_waiting(self, intake: Intake | None = None) -> None:
        """Give back what has not started, of one queue or of all."""
        self._hand_back((Stage.WAITING,), intake)

    def hand_back_running(self) -> None:
        """Give back what ran in slots that have been stopped; to lose it would cost more (RabbitMQ 4.3)."""
        self._hand_back(IN_A_SLOT)

    def _hand_back(self, stages: tuple[Stage, ...], intake: Intake | None = None) -> None:
        for held in list(self._held.values()):
            if held.stage in stages and (intake is None or held.intake is intake):
                self._return(held)
        self._sweep()

    def _return(self, held: Held) -> None:
        if held.delivery is not None:
            self._broker.hand_back(held.delivery)
        self._forget(held)

    def _sweep(self) -> None:
        self._waiting = deque(held for held in self._waiting if held.stage is Stage.WAITING)
        self._suspects.sweep()
        self._parked.sweep()

    # To the slots

    def on_free(self, slot: Slot) -> None:
        """Use a slot whose child is warm."""
        self._start_death = None
        self._free.append(slot)
        self._dispatch()

    def _dispatch(self) -> None:
        if self._suspects and not self._waiting:
            others = len(self._held) - len(self._parked.stranded(self.watch.is_missing))
            suspect = self._suspects.next(others, time.monotonic())
            if suspect is not None:
                self._waiting.append(suspect)
        free = self._free
        while self._waiting and (free or self._cannot_start()):
            held = self._waiting.popleft()
            if not self._may_start(held):
                continue
            if free:
                self._run(free.popleft(), held)
            else:
                assert self._start_death is not None
                self._reply(held, start_failure_of(self._start_death))
                self._accused(held, "no child could be started")

    def _may_start(self, held: Held) -> bool:
        """Tell whether somebody waits for the reply; else the task is put where it belongs."""
        if held.stage is not Stage.WAITING:
            return False
        verdict = self.watch.verdict(held.task.reply_to, time.monotonic())
        if verdict is Verdict.GONE:
            self._drop(held)
        elif verdict is not Verdict.GO:
            self._parked.add(held)
            if verdict is Verdict.HOLD:
                self._set_prefetch()  # others need not wait for it
        return verdict is Verdict.GO

    def _run(self, slot: Slot, held: Held) -> None:
        if slot.state is not SlotState.FREE:  # its child has died meanwhile; it reports when it is free again
            self._waiting.appendleft(held)
            return
        bundle = [held]
        if slot.is_quiet:
            most = self._pace.bundle(len(self._slots), len(self._waiting))
            while len(bundle) < most and self._waiting:
                if self._may_start(another := self._waiting.popleft()):
                    bundle.append(another)
        self._journal.started(slot.number, bundle)
        slot.run(*bundle)

    def _cannot_start(self) -> bool:
        return self._start_death is not None and all(slot.start_failures for slot in self._slots)

    # From the slots

    def on_answer(self, slot: Slot, held: Held, answer: Answer) -> None:
        """Pass an answer on to the job."""
        self._ended(time.monotonic() - held.dispatched_at)
        self._journal.answered(slot.number, held.task, answer)
        accusing = answer.cause in _ACCUSING
        if not accusing and slot.held is None:
            self._free.append(slot)
            self._dispatch()
        if held.stage is not Stage.RUNNING:
            pass  # dropped while it ran
        elif answer.kind == "unusable":
            self._give_up_on(held, answer.note)
        else:
            held.stage = Stage.ANSWERED
            self.outbox.send(held, answer.reply)
        if accusing:
            slot.renew()
            self._accused(held, answer.note)
        elif answer.kind == "done":
            held.intake.succeeded()

    def on_task_death(self, slot: Slot, held: Held, death: Death) -> None:
        """Say why the child died."""
        self._ended(death.seconds)
        failure = failure_of(death)
        log.warning("slot %d failed %s: %s", slot.number, name_of(held.task), failure.message)
        if held.stage is Stage.RUNNING:
            self._reply(held, failure, seconds=death.seconds, peak_rss_bytes=death.peak_rss_bytes)
        if failure.cause.accuses_consumer:
            self._accused(held, failure.message)

    def on_unbegun(self, tasks: list[Held]) -> None:
        """Let tasks wait again that a child was given and will not run."""
        for held in reversed(tasks):
            if held.stage not in IN_A_SLOT:
                continue  # handed back or dropped meanwhile
            if held.delivery is None:
                self._forget(held)  # it comes again
            else:
                held.stage = Stage.WAITING
                self._waiting.appendleft(held)
        self._dispatch()

    def on_start_failure(self, slot: Slot, death: Death) -> None:
        """Answer what waits if no slot has a child."""
        self._start_death = death
        log.warning("slot %d: %s\n%s", slot.number, start_failure_of(death).message, death.stderr_tail)
        if slot in self._free:
            self._free.remove(slot)
        self._dispatch()

    def _ended(self, seconds: float) -> None:
        self._answers += 1
        self._journal.pace(self._pace.lasted(seconds))
        if self._answers % 16 == 0:
            self._set_prefetch()

    def _accused(self, held: Held, words: str) -> None:
        delay = held.intake.accused(time.monotonic())
        if delay:
            queue = held.intake.queue
            log.error("this consumer is at fault (%s): %s is left alone for %g s", words, queue, delay)
            self._observer.accused(queue)
        self.hand_back_waiting(held.intake)

    # To the broker

    def _reply(
        self, held: Held, failure: Failure | None = None, *, seconds: float = 0.0, peak_rss_bytes: int = 0
    ) -> None:
        held.stage = Stage.ANSWERED
        held.outcome = failure.cause.value if failure else DONE
        body = answers.reply_to(
            held.task,
            consumer=self._settings.name,
            failure=failure,
            slot=held.slot,
            device=self._settings.devices.of_slot(held.slot),
            started_at=time.time() - seconds,
            seconds=seconds,
            peak_rss_bytes=peak_rss_bytes,
            delivery_count=held.delivery_count,
        )
        self.outbox.send(held, body)

    def _confirmed(self, answered: list[Held], seconds: float) -> None:
        wanted = [held for held in answered if held.stage is Stage.ANSWERED]
        for held in wanted:
            self._drop(held)
        if wanted:
            self._observer.confirmed(wanted, seconds)
        if self._suspects:
            self._dispatch()

    def _too_large(self, held: Held, words: str) -> None:
        self._reply(held, answers.result_too_large(words))

    def _unroutable(self, held: Held) -> None:
        if held.stage is Stage.ANSWERED:
            self._parked.add(held)
            self.watch.ask(held.task.reply_to)

    def _drop(self, held: Held) -> None:
        """Ack a task that needs nothing more."""
        if held.delivery is not None:
            self._broker.ack(held.delivery)
        self._forget(held)

    def _forget(self, held: Held) -> None:
        held.stage = Stage.SETTLED
        if self._held.get(held.task.key) is held:
            del self._held[held.task.key]
        self.active_at = time.monotonic()

    def _give_up_on(self, held: Held, reason: str) -> None:
        if held.delivery is not None:
            self._bury(held.delivery, reason)
        self._forget(held)

    # Reply queues

    def _reply_queue_seen(self, name: str) -> None:
        verdict = self.watch.verdict(name, time.monotonic())
        if verdict is Verdict.GO:
            # The replies are sent by the next tick, lest a broken queue be asked without end.
            self._waiting.extendleft(reversed(self._parked.take(name, Stage.WAITING)))
            self._dispatch()
        elif verdict is Verdict.HOLD:
            self._set_prefetch()  # others need not wait for it
            self._dispatch()
        elif verdict is Verdict.GONE:
            self._cancel(name)
        elif verdict is Verdict.LOST:
            for held in self._parked.take(name):
                self._lose(held)

    def _cancel(self, reply_to: str) -> None:
        dropped = [held for held in self._held.values() if held.task.reply_to == reply_to]
        for held in dropped:
            running = held.stage is Stage.RUNNING
            self._drop(held)
            if running:
                self._slots[held.slot - 1].abandon()
        self._sweep()
        if dropped:
            log.info(
                "job %s is done or cancelled: dropped %d of its tasks", dropped[0].task.job, len(dropped)
            )

    def _lose(self, held: Held) -> None:
        reason = f"nobody has seen its reply queue {held.task.reply_to} for a minute"
        if held.stage is Stage.WAITING:
            self._give_up_on(held, reason)
        elif held.stage is Stage.ANSWERED:
            log.warning("the reply to %s goes to the dead letters: %s", name_of(held.task), reason)
            letter = answers.dead_letter_of(held, reason)
            self._broker.publish(DEAD_QUEUE, letter, partial(self._buried, held))

    def _buried(self, held: Held, error: PublishError | None) -> None:
        if error is None:
            self._drop(held)
        else:
            self._unroutable(held)

    # Time passes

    def tick(self, now: float) -> None:
        """Do what time asks for: looks, `running` replies, prefetch, pauses that end."""
        running: dict[str, bool] = {}
        # If we were held up ourselves, the answers of tasks that seem long may lie unread.
        late, self._ticked_at = now - self._ticked_at > LONG_SECONDS / 2, now
        for held in list(self._held.values()):
            is_running = held.stage is Stage.RUNNING
            running[held.task.reply_to] = running.get(held.task.reply_to, False) or is_running
            if is_running:
                self._tick_running(held, now)
                if not late:
                    self._judge_length(held, now)
        if not late:
            self._end_unwanted(now)
        for name in self._parked:
            if self.watch.verdict(name, now) is Verdict.GO:
                for held in self._parked.take(name, Stage.ANSWERED):
                    self.outbox.publish(held)
        self._sweep()
        self.watch.tick(now, running)
        self._set_prefetch()
        for intake in self._intakes:
            intake.resume_if_due(now, self._prefetch())
        self._dispatch()

    def _end_unwanted(self, now: float) -> None:
        """End what was dropped or handed back while it lay in a child, and has begun there all the same."""
        for slot in self._slots:
            held = slot.held
            if held is not None and held.stage is Stage.SETTLED and now - held.dispatched_at >= LONG_SECONDS:
                slot.abandon()

    def _judge_length(self, held: Held, now: float) -> None:
        """Let nothing wait behind a task that has turned out to be long."""
        if held.long or now - held.dispatched_at < LONG_SECONDS:
            return
        held.long = True
        self._pace.lasted(now - held.dispatched_at)
        for intake in self._intakes:
            intake.want(self._usable_slots, now, exactly=True)
        for given in self._slots[held.slot - 1].recall():
            if given.stage is Stage.GIVEN:
                self._return(given)
        # What a hand-back costs (up to RabbitMQ 4.2 an attempt) is not worth it while another slot will take it.
        if not any(_is_quick(slot) for slot in self._slots):
            self.hand_back_waiting()

    def _tick_running(self, held: Held, now: float) -> None:
        due = answers.running_is_due(now, held.dispatched_at, held.running_said_at)
        if due and self._broker.state is BrokerState.CONNECTED and self.watch.is_read(held.task.reply_to):
            held.running_said_at = now
            seconds = now - held.dispatched_at
            device = self._settings.devices.of_slot(held.slot)
            body = answers.running(held, self._settings.name, device, seconds)
            self._broker.publish(held.task.reply_to, Message(body, "reply", persistent=False), lambda _: None)

    def _prefetch(self) -> int:
        long_runs = any(slot.held is not None and slot.held.long for slot in self._slots)
        return self._pace.prefetch(self._usable_slots, time.monotonic(), long_runs=long_runs)

    def _set_prefetch(self) -> None:
        parked = len(self._parked)
        # What is parked must not keep others out; twice as much, so that a long queue is passed in few steps.
        least = len(self._slots) + min(parked, _MOST_PARKED_AHEAD) if parked else 0
        wanted = self._prefetch() + min(2 * parked, _MOST_PARKED_AHEAD)
        now = time.monotonic()
        stranded = self._parked.stranded(self.watch.is_missing)
        for intake in self._intakes:
            intake.set_aside(sum(held.intake is intake for held in stranded))
            intake.want(
                wanted,
                now,
                exactly=not self._pace.short and not parked,
                least=least,
                too_many=math.inf if parked else self._pace.too_many,
            )

    def on_state(self, state: BrokerState) -> None:
        """Follow the link."""
        if state is BrokerState.CONNECTED:
            self.outbox.flush()

    def stop_taking(self) -> None:
        """Give back what has not started and whatever still comes."""
        self._stopping = True
        for intake in self._intakes:
            intake.stop()  # first, or what is handed back comes again at once
        for held in self._parked.stranded(self.watch.is_missing):
            if not held.slot:  # it was not run: nothing is lost with its reply
                self._return(held)
        self.hand_back_waiting()


def _is_quick(slot: Slot) -> bool:
    """Tell whether a slot will take another task soon."""
    if slot.held is None:
        return slot.state is SlotState.FREE
    return not slot.held.long
