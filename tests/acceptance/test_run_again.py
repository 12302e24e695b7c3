"""The same command again does what is missing, and nothing twice."""

from __future__ import annotations

import asyncio
import signal

import numpy as np
import pytest

from overnight_common.brokers.base import task_queue
from overnight_common.brokers.opening import open_broker
from support.broker_use import opened
from support.command_line import Desk, Program, noise

POINTS = 60
HELD_FROM = 10
RUN = ("run", "counted:noisy", "--data", f"range:{POINTS}", "--output", "out.npy")


def run(desk: Desk, *more: str) -> tuple[str, ...]:
    """Return the command; on RabbitMQ its consumer has to be started too."""
    slots = ("--slots", "2") if desk.broker is None else ()
    return (*RUN, *slots, *more)


def start_consumer(desk: Desk) -> Program | None:
    if desk.broker is None:
        return None
    return desk.consumer("--methods", "counted:noisy", "--slots", "2")


def interrupted_in_the_middle(desk: Desk, *more: str) -> str:
    """Interrupt a run whose first points are done and whose next ones have begun; return what it said."""
    desk.hold(HELD_FROM)
    driver = desk.start(*run(desk, *more))
    driver.wait_until(lambda: len(desk.noted("held")) >= 2)
    driver.wait_until(lambda: len(desk.points_done()) >= HELD_FROM)
    ended = driver.stop(signal.SIGINT)
    assert ended.status == 130, ended
    return ended.output


def assert_complete(desk: Desk) -> None:
    assert desk.points_done() == list(range(POINTS))
    assert desk.results().tobytes() == noise(POINTS).tobytes()


def assert_nothing_done_was_done_again(desk: Desk, done_before: list[int]) -> None:
    calls = desk.calls()
    assert {point for point in done_before if calls[point] != 1} == set()


def tasks_queued(desk: Desk, queue: str) -> int | None:
    async def ask() -> int | None:
        broker = open_broker(desk.broker, desk.home, max_message_bytes=1 << 20)
        async with opened(broker):
            depth = await broker.depth(task_queue(queue))
            return None if depth is None else depth.ready + (depth.unacked or 0)

    return asyncio.run(ask())


def test_a_finished_run_started_again_publishes_nothing_and_writes_the_results_again(any_desk: Desk) -> None:
    desk = any_desk
    consumer = desk.consumer("--methods", "counted:noisy", "--slots", "2")
    command = (*RUN, "--slots", "0", "--queue", "default", "--batch", "2")
    assert desk.overnight(*command).status == 0
    assert consumer.stop().status == 0
    (desk.folder / "out.npy").unlink()

    again = desk.overnight(*command)

    assert again.status == 0, again
    assert f"{POINTS} of {POINTS} points done" in again.output
    assert "nothing runs now" in again.output
    assert tasks_queued(desk, "default") == 0
    assert set(desk.calls().values()) == {1}
    assert len(desk.jobs()) == 1
    assert_complete(desk)


def test_a_finished_run_started_again_needs_no_broker(desk: Desk) -> None:
    assert desk.overnight(*run(desk)).status == 0

    again = desk.overnight(*RUN, "--broker", "amqp://127.0.0.1:1/", "--broker-timeout", "1")

    assert again.status == 0, again


def test_another_batch_in_the_middle_goes_on_with_what_is_not_yet_cut(any_desk: Desk) -> None:
    desk = any_desk
    consumer = start_consumer(desk)
    interrupted_in_the_middle(desk, "--batch", "2", "--window", "8")
    done_before = desk.points_done()
    desk.let_go()

    ended = desk.overnight(*run(desk, "--batch", "5"))

    assert ended.status == 0, ended
    with desk.job() as job:
        sizes = [row.stop - row.start for row in job.results()]
    assert set(sizes[: HELD_FROM // 2]) == {2}
    assert set(sizes[-5:]) >= {5}
    assert_complete(desk)
    assert_nothing_done_was_done_again(desk, done_before)
    if consumer is not None:
        assert consumer.stop().status == 0


def test_an_interrupted_run_says_how_to_go_on_and_that_line_completes_it(any_desk: Desk) -> None:
    desk = any_desk
    start_consumer(desk)
    said = interrupted_in_the_middle(desk, "--batch", "2")
    done_before = desk.points_done()
    (job,) = desk.jobs()
    assert f"overnight resume {job}" in said
    desk.let_go()

    ended = desk.overnight("resume", job)

    assert ended.status == 0, ended
    assert_complete(desk)
    assert_nothing_done_was_done_again(desk, done_before)


@pytest.mark.rabbitmq
def test_a_job_over_rabbitmq_is_not_resumed_or_cancelled_somewhere_else_unasked(rabbit_desk: Desk) -> None:
    desk = rabbit_desk
    interrupted_before_any_task(desk)
    address, desk.broker = desk.broker, None

    for words in (("resume",), ("retry",), ("cancel",)):
        refused = desk.overnight(*words)

        assert refused.status == 2, refused
        assert "--broker" in refused.output
        assert "guest:guest" not in refused.output
    assert not desk.noted("calls")

    moved = desk.start("resume", "--broker", "embedded:", "--slots", "2")
    assert moved.wait().status == 0, moved.output
    assert_complete(desk)
    assert address is not None


@pytest.mark.rabbitmq
def test_a_job_of_this_machine_is_resumed_over_rabbitmq_when_that_is_asked(rabbit_desk: Desk) -> None:
    desk = rabbit_desk
    address, desk.broker = desk.broker, None
    assert address is not None
    interrupted_in_the_middle(desk, "--batch", "2")
    done_before = desk.points_done()
    desk.let_go()
    desk.consumer("--broker", address, "--methods", "counted:noisy", "--slots", "2")

    ended = desk.overnight("resume", "--broker", address)

    assert ended.status == 0, ended
    assert_complete(desk)
    assert_nothing_done_was_done_again(desk, done_before)


def interrupted_before_any_task(desk: Desk) -> None:
    driver = desk.start(*run(desk, "--batch", "2"))
    driver.wait_until(lambda: desk.jobs() and tasks_queued(desk, "default"))
    assert driver.stop(signal.SIGINT).status == 130


def test_changed_code_is_refused_with_both_ways_out_and_nothing_runs(desk: Desk) -> None:
    interrupted_in_the_middle(desk, "--batch", "2")
    desk.let_go()
    change_code(desk)
    calls = desk.calls()

    for command in (run(desk), ("resume",)):
        refused = desk.overnight(*command)

        assert refused.status == 2, refused
        assert "counted:noisy has changed" in refused.output
        assert "--accept-changes" in refused.output
        assert desk.calls() == calls
    assert "--new" in desk.overnight(*run(desk)).output


def test_who_mended_the_code_after_failures_is_told_how_they_are_tried_again(desk: Desk) -> None:
    broken = desk.write("fragile.py", "def f(batch): raise ValueError('not yet')\n")
    command = ("run", "fragile:f", "--data", "range:3", "--output", "out.npy", "--slots", "1")
    assert desk.overnight(*command).status == 1
    broken.write_text("def f(batch): return batch\n")

    refused = desk.overnight(*command)

    assert refused.status == 2, refused
    (job,) = desk.jobs()
    assert f"overnight retry {job} --accept-changes" in refused.output
    assert desk.overnight("retry", job, "--accept-changes").status == 0
    assert desk.results().tolist() == [0, 1, 2]


def test_changed_code_that_is_accepted_does_the_rest(desk: Desk) -> None:
    interrupted_in_the_middle(desk, "--batch", "2")
    done_before = desk.points_done()
    desk.let_go()
    change_code(desk)

    ended = desk.overnight(*run(desk, "--accept-changes"))

    assert ended.status == 0, ended
    assert_complete(desk)
    assert_nothing_done_was_done_again(desk, done_before)


def test_new_begins_afresh_and_keeps_the_old_job(desk: Desk) -> None:
    interrupted_in_the_middle(desk, "--batch", "2")
    desk.let_go()
    change_code(desk)
    calls = desk.calls()

    ended = desk.overnight(*run(desk, "--new"))

    assert ended.status == 0, ended
    assert len(desk.jobs()) == 2
    assert all(desk.calls()[point] == calls[point] + 1 for point in range(POINTS))
    assert_complete(desk)


def change_code(desk: Desk) -> None:
    module = desk.folder / "counted.py"
    module.write_text(module.read_text() + "\n# another day\n")


def test_other_params_are_another_job(desk: Desk) -> None:
    assert desk.overnight(*run(desk)).status == 0

    assert desk.overnight(*run(desk, "--seed", "1")).status == 0

    assert len(desk.jobs()) == 2
    assert desk.results().tobytes() == noise(POINTS, seed=1).tobytes()


def test_changed_data_is_refused(desk: Desk) -> None:
    desk.write("points.txt", "one\ntwo\nthree\n")
    command = ("run", "counted:lengths", "--data", "points.txt", "--output", "out.npy")
    assert desk.overnight(*command).status == 0
    desk.write("points.txt", "one\ntwo\nthirteen\n")

    refused = desk.overnight(*command)

    assert refused.status == 2, refused
    assert "points.txt has changed" in refused.output
    assert "--new" in refused.output


@pytest.mark.parametrize("by", ["reference", "value"])
def test_data_that_changes_in_the_middle_pauses_the_job_and_put_back_it_goes_on(desk: Desk, by: str) -> None:
    np.save(desk.folder / "points.npy", np.arange(200))
    desk.hold(0)
    command = ("run", "counted:held_square", "--data", "points.npy", "--output", "out.npy", "--batch", "1")
    driver = desk.start(*command, "--slots", "1", "--data-by", by)
    driver.wait_until(lambda: desk.noted("held"))
    (desk.folder / "kept.npy").hardlink_to(desk.folder / "points.npy")
    np.save(desk.folder / "other.npy", np.arange(300))
    (desk.folder / "other.npy").replace(desk.folder / "points.npy")

    ended = driver.wait(seconds=10)

    assert ended.status == 1, ended
    assert "paused: " in ended.output
    assert "points.npy is not what it was when the job was made: its size is 2528, was 1728" in ended.output
    (desk.folder / "kept.npy").replace(desk.folder / "points.npy")
    desk.let_go()
    again = desk.overnight("resume", "--slots", "2")
    assert again.status == 0, again
    assert np.array_equal(desk.results(), np.arange(200) ** 2)


def test_a_cancelled_job_stays_cancelled_until_it_is_resumed(any_desk: Desk) -> None:
    desk = any_desk
    start_consumer(desk)
    desk.hold(HELD_FROM)
    driver = desk.start(*run(desk, "--batch", "2"))
    driver.wait_until(lambda: len(desk.noted("held")) >= 2)
    driver.wait_until(lambda: len(desk.points_done()) >= HELD_FROM)
    done_before = desk.points_done()
    (job,) = desk.jobs()

    cancelled = desk.overnight("cancel", job)

    assert cancelled.status == 0, cancelled
    assert driver.wait().status == 4
    refused = desk.overnight(*run(desk, "--batch", "2"))
    assert refused.status == 2, refused
    assert f"overnight resume {job}" in refused.output
    desk.let_go()
    ended = desk.overnight("resume", job)
    assert ended.status == 0, ended
    assert_complete(desk)
    assert_nothing_done_was_done_again(desk, done_before)


def test_tasks_of_a_cancelled_run_do_not_hold_up_a_consumer_that_never_saw_it(any_desk: Desk) -> None:
    desk = any_desk
    command = (*RUN, "--slots", "0", "--queue", "default", "--batch", "2", "--window", "16")
    consumer = ("--methods", "counted:noisy", "--slots", "2")
    driver = desk.start(*command)
    driver.wait_until(lambda: desk.jobs() and tasks_queued(desk, "default") == 16)
    assert desk.overnight("cancel").status == 0
    assert driver.wait().status == 4
    assert tasks_queued(desk, "default") == 16

    desk.consumer(*consumer)
    ended = desk.overnight("resume", "--slots", "0")

    assert ended.status == 0, ended
    assert ended.seconds < 30
    assert_complete(desk)


def test_a_second_driver_for_a_job_is_refused_with_the_first_ones_process_id(desk: Desk) -> None:
    desk.hold(0)
    first = desk.start(*run(desk, "--batch", "2"))
    first.wait_until(lambda: desk.noted("held"))

    second = desk.overnight(*run(desk, "--batch", "2"))

    assert second.status == 2, second
    assert f"process {first.pid}" in second.output
    desk.let_go()
    ended = first.wait()
    assert ended.status == 0, ended
    assert_complete(desk)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_stop_signals_interrupt_too(desk: Desk, number: int) -> None:
    desk.hold(0)
    driver = desk.start(*run(desk))
    driver.wait_until(lambda: desk.noted("held"))

    ended = driver.stop(number)

    assert ended.status == 130, ended
    assert "overnight resume" in ended.output


def test_a_job_that_is_done_cannot_be_cancelled_by_mistake(desk):
    assert desk.overnight(*run(desk)).status == 0
    done = desk.overnight("cancel")
    assert (done.status, "nothing to cancel" in done.output) == (0, True), done
    assert desk.overnight(*run(desk)).status == 0


def test_a_job_begun_afresh_takes_the_tasks_of_the_old_one_out_of_the_queue(desk):
    without_consumer = (*RUN, "--slots", "0", "--queue", "default")
    driver = desk.start(*without_consumer)
    driver.wait_until(lambda: desk.jobs() and (tasks_queued(desk, "default") or 0) > 0)
    assert driver.stop(signal.SIGINT).status == 130
    afresh = desk.overnight(*without_consumer, "--new", "--no-consumer-timeout", "1")
    assert "is withdrawn" in afresh.output, afresh
