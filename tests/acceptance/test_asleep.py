"""Time that nobody was awake for, and clocks that are set, cost no result and start no work a second time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

from support.command_line import Desk, Program, noise
from support.disturbed import SHORT_LEASE_SECONDS

POINTS = 60
BATCH = 3
HELD_FROM = 30
RUN = (
    *("run", "counted:noisy", "--data", f"range:{POINTS}", "--batch", str(BATCH), "--output", "out.npy"),
    *("--slots", "0", "--queue", "default"),
)
CONSUMER = ("--methods", "counted:noisy")
# RabbitMQ gives up who is silent for two of them; the embedded broker here after 6 s.
HEARTBEAT_SECONDS = 4
ASLEEP_SECONDS = 3 * HEARTBEAT_SECONDS


def with_short_patience(desk: Desk) -> dict[str, str]:
    """Return the variables under which a broker soon gives up who is silent."""
    return {"OVERNIGHT_BROKER": f"{desk.broker}?heartbeat={HEARTBEAT_SECONDS}"} if desk.broker else {}


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def wait_until_only_held(desk: Desk, driver: Program, tasks: int) -> list[int]:
    """Wait until so many tasks are held and all before them have ended for everybody; return where they are."""
    driver.wait_until(lambda: len(desk.noted("held")) >= tasks)
    driver.wait_until(lambda: len(desk.points_done()) >= HELD_FROM)
    time.sleep(0.5)  # a consumer acks a task a moment after the driver has its result
    return desk.noted("held")


def assert_one_result_each(desk: Desk) -> None:
    assert desk.points_done() == list(range(POINTS))
    assert desk.results().tobytes() == noise(POINTS).tobytes()


def test_a_machine_that_slept_goes_on_where_it_was(any_desk: Desk) -> None:
    desk = any_desk
    desk.hold(HELD_FROM)
    impatient = with_short_patience(desk)
    timeout = ("--no-consumer-timeout", str(ASLEEP_SECONDS / 2))
    driver = desk.disturbed("short-leases", "overnight_producer", *RUN, *timeout, **impatient)
    consumer = desk.disturbed("short-leases", "overnight_consumer", *CONSUMER, "--slots", "2", **impatient)
    held_at = wait_until_only_held(desk, driver, 2)
    everybody = desk.processes()

    signal_all(everybody, signal.SIGSTOP)
    time.sleep(ASLEEP_SECONDS)
    os.kill(driver.pid, signal.SIGCONT)  # it must not judge the others before they are awake too
    time.sleep(1)
    signal_all(everybody, signal.SIGCONT)
    desk.let_go()
    ended = driver.wait()

    assert ended.status == 0, ended
    assert consumer.stop().status == 0
    assert_one_result_each(desk)
    calls = desk.calls()
    # RabbitMQ was awake and gave back what was held: what ends before its copy comes is run again.
    taken_away = {first + n for first in held_at for n in range(BATCH)} if desk.broker else set()
    assert {point for point in calls if calls[point] > 1} <= taken_away
    assert max(calls.values()) <= 2
    with desk.job() as job:
        assert set(job.dropped()) <= ({"duplicate_result"} if desk.broker else set())
        assert job.failures() == []


def test_the_work_of_a_consumer_that_fell_asleep_goes_elsewhere_and_its_late_result_changes_nothing(
    any_desk: Desk,
) -> None:
    desk = any_desk
    desk.hold(HELD_FROM)
    impatient = with_short_patience(desk)
    driver = desk.disturbed("short-leases", "overnight_producer", *RUN, **impatient)
    sleeper = desk.disturbed("short-leases", "overnight_consumer", *CONSUMER, "--slots", "1", **impatient)
    (slept_at,) = wait_until_only_held(desk, driver, 1)
    before = set(desk.processes()) - {driver.pid}
    signal_all(before, signal.SIGSTOP)
    desk.hold(POINTS - BATCH)  # the last task keeps the job open

    began = time.monotonic()
    other = desk.disturbed("short-leases", "overnight_consumer", *CONSUMER, "--slots", "2", **impatient)
    driver.wait_until(lambda: len(desk.points_done()) == POINTS - BATCH, 60)
    took_seconds = time.monotonic() - began
    signal_all(before, signal.SIGCONT)
    driver.wait_until(lambda: duplicates(desk) == 1)
    desk.let_go()
    ended = driver.wait()

    assert ended.status == 0, ended
    assert [each.stop().status for each in (sleeper, other)] == [0, 0]
    assert_one_result_each(desk)
    calls = desk.calls()
    twice = {point for point in calls if calls[point] == 2}
    assert twice == set(range(slept_at, slept_at + BATCH))
    assert max(calls.values()) == 2
    assert took_seconds > SHORT_LEASE_SECONDS / 2, (
        "nothing was taken from a consumer that had just been heard"
    )


def duplicates(desk: Desk) -> int:
    with desk.job() as job:
        return job.dropped().get("duplicate_result", 0)


def test_a_clock_that_jumps_by_hours_both_ways_changes_nothing(any_desk: Desk) -> None:
    desk = any_desk
    desk.hold(HELD_FROM)
    driver = desk.disturbed("jumping-clock", "overnight_producer", *RUN, "--silence", "4")
    consumer = desk.disturbed("jumping-clock", "overnight_consumer", *CONSUMER, "--slots", "2")
    driver.wait_until(lambda: len(desk.noted("held")) >= 2)
    watched = desk.disturbed("jumping-clock", "overnight_producer", "watch")
    time.sleep(3)  # the clock jumps each second
    desk.let_go()
    ended = driver.wait()

    assert ended.status == 0, ended
    assert watched.wait().status == 0
    assert consumer.stop().status == 0
    assert_one_result_each(desk)
    assert set(desk.calls().values()) == {1}
    with desk.job() as job:
        assert job.dropped() == {}
        assert job.failures() == []
