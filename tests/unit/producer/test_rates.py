import pytest

from overnight_common.messages import VERSION, Cause, Failure, Reply
from overnight_producer.driving.rates import Rates


def reply(start, stop, kind="done", seconds=1.0, slot=1, cause=Cause.EXCEPTION):
    failure = Failure(cause) if kind == "failed" else None
    return Reply(VERSION, "job", start, stop, 1, kind, "consumer", slot, seconds=seconds, failure=failure)


def test_there_is_no_rate_before_the_first_reply():
    rates = Rates(100.0)
    assert rates.points_per_second(100.0) == 0
    assert rates.slots_seen(100.0) == 0


def test_a_steady_pace_is_measured_as_it_is():
    rates = Rates(0.0)
    for second in range(1, 61):
        rates.done(reply(0, 5), second + 0.5)
        rates.done(reply(5, 10, slot=2), second + 0.5)
    assert rates.points_per_second(60.9) == pytest.approx(10, rel=0.05)
    assert rates.tasks_per_second(60.9) == pytest.approx(2, rel=0.05)
    assert rates.slots_busy(60.9) == pytest.approx(2, rel=0.05)


def test_the_rate_falls_when_nothing_is_done_any_more_and_comes_back():
    rates = Rates(0.0)
    for second in range(10):
        rates.done(reply(0, 100), float(second))
    assert rates.points_per_second(10.0) == pytest.approx(100, rel=0.15)
    assert rates.points_per_second(30.0) < 40
    assert rates.points_per_second(100.0) == 0
    rates.done(reply(0, 100), 100.0)
    rates.done(reply(0, 100), 101.0)
    assert rates.points_per_second(102.0) > 50


@pytest.mark.parametrize("waited", [1, 40])
def test_replies_that_waited_for_the_driver_make_no_rate_that_its_slots_cannot_keep(waited):
    rates = Rates(100.0)
    for task in range(2 * waited):
        rates.done(reply(10 * task, 10 * task + 10, seconds=2.0, slot=1 + task % 2), 100.5)
    assert rates.points_per_second(101.0) == pytest.approx(10)


def test_failed_tasks_count_as_work_and_not_as_points():
    rates = Rates(0.0)
    rates.failed(reply(0, 50, "failed"), 1.0)
    assert rates.points_per_second(2.0) == 0
    assert rates.tasks_per_second(2.0) > 0


def test_whoever_fails_a_task_has_worked_but_not_who_accuses_itself():
    rates = Rates(0.0)
    rates.failed(reply(0, 50, "failed", cause=Cause.START_FAILED), 1.0)
    assert rates.worked_at == 0.0
    rates.failed(reply(0, 50, "failed"), 2.0)
    assert rates.worked_at == 2.0


def test_a_task_that_has_vanished_runs_nowhere():
    rates = Rates(0.0)
    rates.running(reply(0, 5, "running", seconds=40.0), 50.0)
    rates.gone(0, 5)
    assert rates.longest_running(60.0) == []
    assert rates.slots_busy(60.0) == 0


def test_long_tasks_keep_their_slots_busy_and_are_listed_the_longest_first():
    rates = Rates(0.0)
    rates.running(reply(0, 5, "running", seconds=40.0), 50.0)
    rates.running(reply(5, 10, "running", seconds=5.0, slot=2), 50.0)
    assert rates.slots_busy(51.0) == 2
    assert [(row[0], row[3], row[4]) for row in rates.longest_running(60.0)] == [(0, 1, 50.0), (5, 2, 15.0)]
    rates.done(reply(0, 5, seconds=60.0), 70.0)
    assert [row[0] for row in rates.longest_running(70.0)] == [5]


def test_a_slot_that_has_said_nothing_for_90_s_is_no_longer_seen():
    rates = Rates(0.0)
    rates.done(reply(0, 1), 1.0)
    rates.done(reply(1, 2, slot=2), 60.0)
    assert rates.slots_seen(61.0) == 2
    assert rates.slots_seen(95.0) == 1
    assert rates.slots_seen(200.0) == 0


def test_a_reply_that_no_slot_gave_is_no_slot():
    rates = Rates(0.0)
    rates.failed(reply(0, 1, "failed", slot=0), 1.0)
    assert rates.slots_seen(1.0) == 0
