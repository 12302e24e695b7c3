"""The driver against a real embedded broker, with consumers that answer as each test wants."""

import asyncio
import contextlib
import time
from dataclasses import replace

import pytest

from overnight_common.brokers.base import DEAD_QUEUE, Message, reply_queue, task_queue
from overnight_common.brokers.embedded import EmbeddedBroker
from overnight_common.datasets import open_dataset
from overnight_common.errors import BrokerUnreachableError
from overnight_common.messages import VERSION, Cause, Failure, Reply, decode_task, encode
from overnight_common.values import encode_values
from overnight_producer.driving.driver import Driver, DriverSettings, Ending, EndingKind
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.ranges import Range
from support.broker_use import opened, until
from support.job_files import new_job
from support.memory_broker import MemoryBroker

QUEUE = task_queue("default")
FAST = DriverSettings(max_message_bytes=1 << 20, silence_seconds=0.3, no_consumer_timeout_seconds=30.0)


def make_job(folder, points, **changes):
    data = open_dataset(f"range:{points}")
    return new_job(
        folder, points, data_fingerprint=data.fingerprint(), fingerprint="code", epoch=0, batch=5, **changes
    )


def done(task, consumer="good"):
    values = [float(index) for index in range(task.start, task.stop)]
    return Reply(
        VERSION,
        task.job,
        task.start,
        task.stop,
        task.attempt,
        "done",
        consumer,
        1,
        fingerprint="code",
        seconds=0.01,
        result=encode_values(values, len(values)) if values else None,
    )


def failed(task, cause=Cause.EXCEPTION, consumer="bad"):
    return Reply(
        VERSION,
        task.job,
        task.start,
        task.stop,
        task.attempt,
        "failed",
        consumer,
        1,
        failure=Failure(cause, "ValueError", "no"),
    )


class Farm:
    """A consumer in this process: `answer(task)` returns a reply, several, or None to swallow the task."""

    def __init__(self, broker, answer):
        self.broker, self.answer, self.tasks = broker, answer, []

    def on_task(self, delivery):
        task = decode_task(delivery.message.body)
        self.tasks.append(task)
        replies = done(task) if task.start == task.stop else self.answer(task)
        for reply in replies if isinstance(replies, list) else [replies]:
            if reply is not None:
                self.broker.publish(task.reply_to, Message(encode(reply), "reply"), lambda _error: None)
        self.broker.ack(delivery)


def drive(folder, job, answer, settings=FAST, meanwhile=None):
    """Drive a job to its end and return the ending and the farm."""

    async def main():
        path = folder / "broker.sqlite"
        ours, theirs = EmbeddedBroker(path), EmbeddedBroker(path)
        async with opened(ours), opened(theirs):
            await theirs.declare(QUEUE)
            farm = Farm(theirs, answer)
            await theirs.subscribe(QUEUE, 100, farm.on_task, lambda: None)
            with contextlib.closing(open_dataset(job.spec.data_uri)) as data:
                driver = Driver(job, ours, data, QUEUE, settings)
                aside = asyncio.create_task(meanwhile(driver, ours, farm)) if meanwhile else None
                ending = await asyncio.wait_for(driver.run(), 60)
                if aside is not None:
                    await aside
            return ending, farm

    return asyncio.run(main())


def values_of(job):
    from overnight_common.values import decode_values

    return [value for row in job.results() for value in decode_values(row.encoded)]


def test_a_job_is_cut_into_tasks_and_every_point_gets_its_result(tmp_path):
    with make_job(tmp_path, 23) as job:
        ending, farm = drive(tmp_path, job, done)
        assert ending == Ending(EndingKind.DONE)
        assert values_of(job) == [float(index) for index in range(23)]
        assert [(task.start, task.stop) for task in farm.tasks] == [
            (0, 5),
            (5, 10),
            (10, 15),
            (15, 20),
            (20, 23),
        ]


def test_the_reply_queue_is_gone_after_a_job_is_done(tmp_path):
    with make_job(tmp_path, 3) as job:
        drive(tmp_path, job, done)
        name = reply_queue(job.spec.id, job.spec.epoch)

        async def depth():
            broker = EmbeddedBroker(tmp_path / "broker.sqlite")
            async with opened(broker):
                return await broker.depth(name)

        assert asyncio.run(depth()) is None


def test_a_failed_task_is_tried_again_then_split_until_the_culprit_is_alone(tmp_path):
    def answer(task):
        return failed(task) if task.start <= 7 < task.stop else done(task)

    with make_job(tmp_path, 20) as job:
        ending, farm = drive(tmp_path, job, answer)
        assert ending.kind is EndingKind.DONE
        assert job.progress().given_up == 1
        assert [range_.start for range_, _why in job.given_up()] == [7]
        tried = [(task.start, task.stop, task.attempt) for task in farm.tasks if task.start <= 7 < task.stop]
        assert tried == [(5, 10, 1), (5, 10, 2), (7, 10, 1), (7, 8, 1), (7, 8, 2), (7, 8, 3)]


def test_a_job_in_which_nearly_all_fails_pauses(tmp_path):
    with make_job(tmp_path, 1000) as job:
        ending, _farm = drive(tmp_path, job, failed, replace(FAST, window=16))
        assert ending.kind is EndingKind.PAUSED
        assert "given up" in ending.why
        assert 20 <= job.progress().given_up <= 20 + 16  # what was out is answered too


def test_a_job_in_which_all_fails_pauses_with_few_points_given_up_though_answers_come_in_bursts(tmp_path):
    kept = []

    async def answer_in_bursts(driver, broker, farm):
        while job.progress().given_up < 20:
            await asyncio.sleep(0.2)
            for task in kept:
                reply = Message(encode(failed(task)), "reply")
                farm.broker.publish(task.reply_to, reply, lambda _error: None)
            kept.clear()

    with make_job(tmp_path, 1000, max_failures=20) as job:
        settings = replace(FAST, window=300, silence_seconds=30.0)
        ending, _farm = drive(tmp_path, job, kept.append, settings, answer_in_bursts)
        assert ending.kind is EndingKind.PAUSED
        assert 20 <= job.progress().given_up <= 20 + 20


def test_tasks_that_are_said_to_run_leave_room_for_others_though_the_first_answer_was_a_failure(tmp_path):
    def answer(task):
        return failed(task) if task.start == 0 else running(task)

    def running(task):
        return Reply(
            VERSION, task.job, task.start, task.stop, task.attempt, "running", "good", 1, seconds=6.0
        )

    async def wait_for_all(driver, broker, farm):
        await until(lambda: len({task.start for task in farm.tasks}) >= 60, "all tasks are out")
        driver.end(Ending(EndingKind.INTERRUPTED))

    with make_job(tmp_path, 300, max_failures=5) as job:
        settings = replace(FAST, window=200, silence_seconds=30.0)
        drive(tmp_path, job, answer, settings, wait_for_all)


def test_without_a_limit_on_failures_every_point_is_tried(tmp_path):
    with make_job(tmp_path, 60, max_failures=None) as job:
        ending, _farm = drive(tmp_path, job, failed)
        assert ending.kind is EndingKind.DONE
        assert job.progress().given_up == 60


def test_an_accused_consumer_costs_the_task_nothing_and_is_named(tmp_path):
    refused = []

    def answer(task):
        if len(refused) < 30:
            refused.append(task)
            return failed(task, Cause.DATA_UNAVAILABLE)
        return done(task)

    with make_job(tmp_path, 20) as job:
        ending, _farm = drive(tmp_path, job, answer)
        assert ending.kind is EndingKind.DONE
        assert job.progress().given_up == 0
        assert values_of(job) == [float(index) for index in range(20)]
        accused = next(row for row in job.consumers() if row.name == "bad")
        assert (accused.accusations, accused.cause) == (30, "data_unavailable")


def test_a_job_that_only_accused_consumers_answer_pauses_and_names_them(tmp_path):
    settings = replace(FAST, no_consumer_timeout_seconds=1.0)
    with make_job(tmp_path, 5) as job:
        ending, _farm = drive(tmp_path, job, lambda task: failed(task, Cause.METHOD_UNAVAILABLE), settings)
        assert ending.kind is EndingKind.PAUSED
        assert "bad says method_unavailable" in ending.why


def test_a_task_that_vanishes_is_asked_for_by_a_probe_and_published_again(tmp_path):
    swallowed = []

    def answer(task):
        if task.start == 10 and len(swallowed) < 2:
            swallowed.append(task.attempt)
            return None
        return done(task)

    with make_job(tmp_path, 20) as job:
        ending, farm = drive(tmp_path, job, answer)
        assert ending.kind is EndingKind.DONE
        assert values_of(job) == [float(index) for index in range(20)]
        assert swallowed[0] == 1
        assert any(task.start == task.stop for task in farm.tasks), "a probe went out"


def test_a_task_that_is_said_to_run_is_left_alone_however_long_it_takes(tmp_path):
    def answer(task):
        if task.start != 10:
            return done(task)
        return None

    async def keep_saying(driver, broker, farm):
        while not any(task.start == 10 for task in farm.tasks):
            await asyncio.sleep(0.01)
        task = next(task for task in farm.tasks if task.start == 10)
        for tenth in range(15):
            running = Reply(VERSION, task.job, 10, 15, 1, "running", "slow", 1, seconds=tenth / 10)
            broker.publish(
                task.reply_to, Message(encode(running), "reply", persistent=False), lambda _e: None
            )
            await asyncio.sleep(0.1)
        broker.publish(task.reply_to, Message(encode(done(task)), "reply"), lambda _e: None)

    with make_job(tmp_path, 20) as job:
        ending, farm = drive(tmp_path, job, answer, meanwhile=keep_saying)
        assert ending.kind is EndingKind.DONE
        assert [task.attempt for task in farm.tasks if task.start == 10 and task.stop > 10] == [1]


def test_second_results_are_dropped_and_counted(tmp_path):
    with make_job(tmp_path, 20) as job:
        ending, _farm = drive(tmp_path, job, lambda task: [done(task), done(task), failed(task)])
        assert ending.kind is EndingKind.DONE
        assert values_of(job) == [float(index) for index in range(20)]
        assert job.dropped().get("duplicate_result", 0) >= 1


@pytest.mark.parametrize(
    "strange",
    [
        b"no reply at all",
        encode(Reply(VERSION, "another", 0, 5, 1, "done", "x")),
        "too far",
        "wrong length",
    ],
)
def test_a_reply_that_cannot_be_ours_goes_to_the_dead_letters(tmp_path, strange):
    async def inject(driver, broker, farm):
        while not farm.tasks:
            await asyncio.sleep(0.01)
        task = farm.tasks[0]
        body = strange
        if strange == "too far":
            body = encode(
                Reply(VERSION, task.job, 15, 25, 1, "done", "x", result=encode_values([0.0] * 10, 10))
            )
        if strange == "wrong length":
            body = encode(Reply(VERSION, task.job, 0, 5, 1, "done", "x", result=encode_values([0.0] * 4, 4)))
        broker.publish(task.reply_to, Message(body, "reply"), lambda _e: None)
        until = time.monotonic() + 20
        while (await broker.depth(DEAD_QUEUE)).ready == 0:
            assert time.monotonic() < until, "nothing was buried"
            await asyncio.sleep(0.02)
        release.set()

    release = asyncio.Event()
    held = []

    def answer(task):
        if task.start == 15 and not release.is_set():
            held.append(task)
            return failed(task, Cause.START_FAILED)  # keeps the job alive, at no cost
        return done(task)

    with make_job(tmp_path, 20) as job:
        ending, _farm = drive(tmp_path, job, answer, meanwhile=inject)
        assert ending.kind is EndingKind.DONE
        assert values_of(job) == [float(index) for index in range(20)]


def test_a_deleted_reply_queue_begins_a_new_epoch_and_nothing_is_lost(tmp_path):
    async def delete_it(driver, broker, farm):
        while len(farm.tasks) < 4:
            await asyncio.sleep(0.01)
        await broker.delete(farm.tasks[0].reply_to)
        let_go.set()

    let_go = asyncio.Event()

    def answer(task):
        return done(task) if let_go.is_set() else None

    with make_job(tmp_path, 20) as job:
        ending, farm = drive(tmp_path, job, answer, meanwhile=delete_it)
        assert ending.kind is EndingKind.DONE
        assert values_of(job) == [float(index) for index in range(20)]
        assert job.spec.epoch == 2
        assert len({task.reply_to for task in farm.tasks}) == 2


def test_after_a_break_nothing_is_published_before_the_reply_queue_was_looked_for(tmp_path):
    # A broker that lost its disk has no exchange either: each publish would end the channel for all others.
    class Mute(MemoryBroker):
        mute = False

        async def depth(self, queue):
            if self.mute:
                raise BrokerUnreachableError("no answer")
            return await super().depth(queue)

    async def main():
        broker = Mute()
        broker.hold_confirms = True
        with contextlib.closing(open_dataset(job.spec.data_uri)) as data:
            driver = Driver(job, broker, data, QUEUE, replace(FAST, window=2))
            driving = asyncio.create_task(driver.run())
            await until(lambda: len(broker.published) == 2, "the window is full")
            broker.mute = True
            broker.break_link()
            broker.mend_link()
            driver.wake()
            await until(lambda: driver.snapshot().tasks_out == 0, "both wait again")
            await asyncio.sleep(0.6)  # well over their back-off
            assert len(broker.published) == 2
            broker.mute = False
            await until(lambda: len(broker.published) == 4, "both are published again")
            driver.end(Ending(EndingKind.INTERRUPTED))
            await driving

    with make_job(tmp_path, 10) as job:
        asyncio.run(main())


def test_messages_wait_for_confirms_when_many_bytes_are_on_their_way(tmp_path, monkeypatch):
    monkeypatch.setattr("overnight_producer.driving.driver.MOST_UNSETTLED_BYTES", 1)

    async def main():
        broker = MemoryBroker()
        broker.hold_confirms = True
        with contextlib.closing(open_dataset(job.spec.data_uri)) as data:
            driver = Driver(job, broker, data, QUEUE, replace(FAST, window=10))
            driving = asyncio.create_task(driver.run())
            for number in (1, 2, 3):
                await until(lambda number=number: len(broker.published) == number, "one more is sent")
                await asyncio.sleep(0.1)
                assert len(broker.published) == number
                broker.confirm()
            driver.end(Ending(EndingKind.INTERRUPTED))
            await driving

    with make_job(tmp_path, 10) as job:
        asyncio.run(main())


def test_what_waits_is_published_once_the_bytes_on_their_way_are_confirmed(tmp_path, monkeypatch):
    # Ranges that wait and are due must not keep the loop from hearing the confirms.
    monkeypatch.setattr("overnight_producer.driving.driver.MOST_UNSETTLED_BYTES", 1)

    async def main():
        broker = MemoryBroker()
        with contextlib.closing(open_dataset(job.spec.data_uri)) as data:
            driver = Driver(job, broker, data, QUEUE, replace(FAST, window=10))
            driving = asyncio.create_task(driver.run())
            await until(lambda: len(broker.published) == 3, "all are sent")
            driver.end(Ending(EndingKind.INTERRUPTED))
            await driving

    with make_job(tmp_path, 15) as job:
        with job.commit() as tx:
            tx.cut([Range(0, 5), Range(5, 10), Range(10, 15)])
        asyncio.run(main())


def test_an_outage_longer_than_the_patience_with_consumers_pauses_nothing(tmp_path):
    settings = replace(FAST, window=2, silence_seconds=90.0, no_consumer_timeout_seconds=1.5)

    async def main():
        broker = MemoryBroker()
        with contextlib.closing(open_dataset(job.spec.data_uri)) as data:
            driver = Driver(job, broker, data, QUEUE, settings)
            driving = asyncio.create_task(driver.run())
            await until(lambda: len(broker.published) == 2, "the window is full")
            broker.break_link()
            await asyncio.sleep(2.5)
            broker.mend_link()
            driver.wake()
            await asyncio.sleep(1.2)  # a look at the house at least
            assert not driving.done()
            driver.end(Ending(EndingKind.INTERRUPTED))
            assert await driving == Ending(EndingKind.INTERRUPTED)

    with make_job(tmp_path, 10) as job:
        asyncio.run(main())


def test_a_job_waits_in_line_behind_others_for_as_long_as_a_consumer_is_there(tmp_path):
    async def main():
        path = tmp_path / "broker.sqlite"
        ours, theirs = EmbeddedBroker(path), EmbeddedBroker(path)
        settings = replace(FAST, silence_seconds=90.0, no_consumer_timeout_seconds=1.0)
        async with opened(ours), opened(theirs):
            await theirs.declare(QUEUE)
            held = []  # as by a consumer whose slots run long tasks of somebody else
            busy = await theirs.subscribe(QUEUE, 1, held.append, lambda: None)
            with contextlib.closing(open_dataset(job.spec.data_uri)) as data:
                driving = asyncio.create_task(Driver(job, ours, data, QUEUE, settings).run())
                await asyncio.sleep(3.5)
                assert held
                assert not driving.done()
                await busy.cancel()
                ending = await asyncio.wait_for(driving, 20)
            assert ending.kind is EndingKind.PAUSED
            assert "no consumer answers" in ending.why

    with make_job(tmp_path, 20) as job:
        asyncio.run(main())


def test_a_task_is_not_lost_because_nobody_could_speak_of_it_during_an_outage(tmp_path):
    async def main():
        broker = MemoryBroker()
        farm = Farm(broker, lambda task: None)
        await broker.declare(QUEUE)
        await broker.subscribe(QUEUE, 100, farm.on_task, lambda: None)
        with contextlib.closing(open_dataset(job.spec.data_uri)) as data:
            driver = Driver(job, broker, data, QUEUE, replace(FAST, silence_seconds=3.0))
            driving = asyncio.create_task(driver.run())
            await until(lambda: any(task.start == task.stop for task in farm.tasks), "a probe went out")
            broker.break_link()
            await asyncio.sleep(3.5)
            broker.mend_link()
            driver.wake()
            await asyncio.sleep(1.2)  # a look at the house at least
            assert [task.attempt for task in farm.tasks if task.stop > task.start] == [1]
            driver.end(Ending(EndingKind.INTERRUPTED))
            await driving

    with make_job(tmp_path, 5) as job:
        asyncio.run(main())


def test_a_job_without_a_limit_on_failures_goes_on_however_long_all_of_them_fail(tmp_path):
    def answer(task):
        time.sleep(0.1)
        return failed(task)

    settings = replace(FAST, no_consumer_timeout_seconds=1.0)
    with make_job(tmp_path, 10, max_failures=None) as job:
        ending, _farm = drive(tmp_path, job, answer, settings)
        assert ending.kind is EndingKind.DONE
        assert job.progress().given_up == 10


def test_a_consumer_that_says_that_it_works_has_been_heard_of(tmp_path):
    def answer(task):
        running = Reply(VERSION, task.job, task.start, task.stop, 1, "running", "slow", 1, seconds=9.0)
        return [running, done(task)]

    with make_job(tmp_path, 5) as job:
        drive(tmp_path, job, answer)
        assert [row.name for row in job.consumers()] == ["good", "slow"]


def test_a_cancel_request_ends_driving_and_deletes_the_reply_queue(tmp_path):
    async def cancel(driver, broker, farm):
        while not farm.tasks:
            await asyncio.sleep(0.01)
        with JobFile.open(tmp_path / "job.sqlite") as other:
            other.request("cancel")

    with make_job(tmp_path, 20) as job:
        ending, _farm = drive(tmp_path, job, lambda task: None, meanwhile=cancel)
        assert ending.kind is EndingKind.CANCELLED
        assert list(job.requests_pending()) == []


def test_a_paused_job_publishes_nothing_until_it_is_resumed(tmp_path):
    seen = []

    async def pause_and_resume(driver, broker, farm):
        with JobFile.open(tmp_path / "job.sqlite") as other:
            while len(farm.tasks) < 2:
                await asyncio.sleep(0.01)
            number = other.request("pause")
            while other.find_request(number).outcome is None:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)  # what was out already is answered
            before = len(farm.tasks)
            await asyncio.sleep(1.0)
            seen.append(len(farm.tasks) - before)
            other.request("resume")

    def slowly(task):
        time.sleep(0.02)
        return done(task)

    with make_job(tmp_path, 1500) as job:
        ending, _farm = drive(tmp_path, job, slowly, meanwhile=pause_and_resume)
        assert ending.kind is EndingKind.DONE
        assert seen == [0]
        assert job.progress().done == 1500


def test_a_driver_that_comes_back_reads_what_was_answered_meanwhile(tmp_path):
    async def leave(driver, broker, farm):
        while len(farm.tasks) < 4:
            await asyncio.sleep(0.01)
        driver.end(Ending(EndingKind.INTERRUPTED))

    with make_job(tmp_path, 20) as job:
        held = []
        ending, farm = drive(tmp_path, job, lambda task: held.append(task), meanwhile=leave)
        assert ending.kind is EndingKind.INTERRUPTED

        async def answer_late():
            broker = EmbeddedBroker(tmp_path / "broker.sqlite")
            async with opened(broker):
                for task in held:
                    broker.publish(task.reply_to, Message(encode(done(task)), "reply"), lambda _e: None)

        asyncio.run(answer_late())
        ending, farm = drive(tmp_path, job, done)
        assert ending.kind is EndingKind.DONE
        assert values_of(job) == [float(index) for index in range(20)]
        assert [task for task in farm.tasks if task.stop > task.start] == []


def test_an_unknown_fingerprint_is_pinned_by_the_first_reply_and_one_task_goes_first(tmp_path):
    with make_job(tmp_path, 20) as job:
        with job.commit() as tx:
            tx.set_spec(replace(job.spec, fingerprint=""))
        ending, farm = drive(tmp_path, job, done)
        assert ending.kind is EndingKind.DONE
        assert job.spec.fingerprint == "code"
        assert [task.fingerprint for task in farm.tasks] == ["", "code", "code", "code"]
