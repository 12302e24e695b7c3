import pytest

from overnight_common.errors import NotConnectedError, TooLargeError
from overnight_common.messages import Cause, Failure, Reply
from overnight_producer.jobs.ranges import (
    NOT_IN_FLIGHT,
    STALE_ATTEMPT,
    UNKNOWN_RANGE,
    WORTH,
    Again,
    Complete,
    Drop,
    GiveUp,
    Policy,
    Range,
    RangeState,
    Running,
    Split,
    Worth,
    apply,
    decide,
    outside,
    publish_failed,
    published,
    recalled,
    retried,
    silent,
)

POLICY = Policy()
ACCUSING = [cause for cause in Cause if cause.accuses_consumer]
CHARGED = [cause for cause in Cause if WORTH[cause] is Worth.ATTEMPT]
SPLITTING = [Cause.TIME_LIMIT, Cause.OUT_OF_MEMORY, Cause.RESULT_TOO_LARGE]
EVERY_STATE = list(RangeState)


def range_(points=1, **given):
    return Range(10, 10 + points, **({"state": RangeState.PUBLISHED, "attempt": 1} | given))


def reply(to, kind, cause=None, attempt=None):
    failure = Failure(cause=cause, message="because") if cause else None
    return Reply(
        v=1,
        job="j",
        start=to.start,
        stop=to.stop,
        attempt=attempt or to.attempt or 1,
        kind=kind,
        consumer="c",
        failure=failure,
    )


def fail(to, cause, **given):
    return decide(to, reply(to, "failed", cause, **given), POLICY, 0.5)


def test_every_cause_has_its_worth_in_the_one_table():
    assert set(WORTH) == set(Cause)
    assert {cause for cause in Cause if WORTH[cause] is Worth.FREE} == set(ACCUSING)


@pytest.mark.parametrize("state", EVERY_STATE)
@pytest.mark.parametrize("attempt", [1, 2, 7])
def test_done_counts_in_any_state_and_for_any_attempt(state, attempt):
    here = range_(state=state, attempt=2)
    assert decide(here, reply(here, "done", attempt=attempt), POLICY, 0.5) == Complete()


def test_done_counts_for_a_range_that_was_split_long_ago():
    assert decide(None, reply(range_(4), "done"), POLICY, 0.5) == Complete()


@pytest.mark.parametrize("kind", ["running", "failed"])
def test_what_is_said_about_an_unknown_range_is_dropped(kind):
    said = reply(range_(), kind, Cause.EXCEPTION if kind == "failed" else None)
    assert decide(None, said, POLICY, 0.5) == Drop(UNKNOWN_RANGE)


@pytest.mark.parametrize("state", EVERY_STATE)
@pytest.mark.parametrize("cause", list(Cause))
def test_a_failure_of_an_earlier_attempt_is_dropped_in_every_state(state, cause):
    assert fail(range_(state=state, attempt=3), cause, attempt=2) == Drop(STALE_ATTEMPT)


@pytest.mark.parametrize("state", [RangeState.WAITING, RangeState.GIVEN_UP])
@pytest.mark.parametrize("cause", list(Cause))
def test_a_failure_that_comes_twice_counts_once(state, cause):
    assert fail(range_(state=state), cause) == Drop(NOT_IN_FLIGHT)


@pytest.mark.parametrize("state", [RangeState.PUBLISHED, RangeState.RUNNING])
def test_running_is_noted_for_the_current_attempt_only(state):
    here = range_(state=state, attempt=2)
    assert decide(here, reply(here, "running"), POLICY, 0.5) == Running()
    assert decide(here, reply(here, "running", attempt=1), POLICY, 0.5) == Drop(STALE_ATTEMPT)


@pytest.mark.parametrize("cause", ACCUSING)
@pytest.mark.parametrize("points", [1, 8])
@pytest.mark.parametrize("charged", [0, 2])
def test_a_consumer_at_fault_costs_the_task_nothing(cause, points, charged):
    here = range_(points, charged=charged, attempt=50)
    decision = fail(here, cause)
    assert isinstance(decision, Again)
    assert not decision.charged
    (after,) = apply(here, decision, cause)
    assert (after.state, after.charged, after.attempt) == (RangeState.WAITING, charged, 50)


@pytest.mark.parametrize("cause", CHARGED)
def test_several_points_get_two_attempts_before_they_are_split(cause):
    here = range_(9)
    first = fail(here, cause)
    assert isinstance(first, Again)
    assert first.charged
    (again,) = apply(here, first, cause)
    second = fail(published(again), cause)
    assert second == Split(Range(10, 14, half=True), Range(14, 19, half=True))


@pytest.mark.parametrize("cause", CHARGED)
def test_a_half_is_split_at_its_first_failure(cause):
    assert isinstance(fail(range_(2, half=True), cause), Split)


@pytest.mark.parametrize("cause", SPLITTING)
def test_time_memory_and_size_split_at_once(cause):
    assert isinstance(fail(range_(2), cause), Split)


@pytest.mark.parametrize("cause", CHARGED + SPLITTING)
@pytest.mark.parametrize("half", [True, False])
def test_a_single_point_gets_the_whole_budget_and_is_then_given_up(cause, half):
    here = Range(10, 11, half=half)
    for _ in range(2):
        here = published(here)
        decision = fail(here, cause)
        assert isinstance(decision, Again)
        assert decision.charged
        (here,) = apply(here, decision, cause)
    here = published(here)
    decision = fail(here, cause)
    assert decision == GiveUp(Failure(cause=cause, message="because"))
    (here,) = apply(here, decision)
    assert (here.state, here.attempt, here.charged, here.last_cause) == (RangeState.GIVEN_UP, 3, 3, cause)


def test_the_wait_is_at_most_a_fifth_of_a_second_first_then_doubles_up_to_a_minute():
    longest = [
        decide(range_(charged=n), reply(range_(), "failed", Cause.EXCEPTION), Policy(99), 1.0).delay_seconds
        for n in range(12)
    ]
    assert longest[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert max(longest) == 60.0
    shortest = decide(range_(), reply(range_(), "failed", Cause.EXCEPTION), POLICY, 0.0)
    assert shortest.delay_seconds == pytest.approx(0.1)


def test_a_range_that_failed_waits_again_and_remembers_why():
    (after,) = apply(range_(), Again(0.25, charged=True), Cause.EXCEPTION)
    assert (after.state, after.charged, after.last_cause) == (RangeState.WAITING, 1, Cause.EXCEPTION)


def test_a_vanished_task_is_published_again_at_once_on_the_budget():
    decision = silent(range_(), POLICY, 180.0)
    assert decision == Again(0.0, charged=True)
    given_up = silent(range_(charged=2, attempt=3), POLICY, 180.0)
    assert isinstance(given_up, GiveUp)
    assert given_up.failure.cause is Cause.LOST_CONSUMER
    assert "180 s" in given_up.failure.message
    assert isinstance(silent(range_(4, charged=1), POLICY), Split)


def test_a_broken_link_while_publishing_costs_nothing():
    decision = publish_failed(range_(charged=2), NotConnectedError("gone"), POLICY, 0.5)
    assert isinstance(decision, Again)
    assert not decision.charged


def test_a_message_that_is_too_large_is_split_and_a_single_point_given_up():
    error = TooLargeError("9 MB")
    assert isinstance(publish_failed(range_(2), error, POLICY, 0.5), Split)
    decision = publish_failed(range_(), error, POLICY, 0.5)
    assert isinstance(decision, GiveUp)
    assert (decision.failure.type, decision.failure.message) == ("TooLargeError", "9 MB")


def test_a_retry_renews_the_budget_and_never_an_attempt_number():
    given_up = range_(state=RangeState.GIVEN_UP, attempt=3, charged=3)
    again = published(retried(given_up))
    assert (again.attempt, again.charged, again.state) == (4, 0, RangeState.PUBLISHED)


def test_a_new_epoch_recalls_a_task_without_a_charge():
    after = recalled(range_(state=RangeState.RUNNING, attempt=2, charged=1))
    assert (after.state, after.attempt, after.charged) == (RangeState.WAITING, 2, 1)


def test_replies_beyond_the_job_are_told_apart():
    inside = reply(range_(4), "done")
    assert not outside(inside, 10, 14)
    assert outside(inside, 11, 20)
    assert outside(inside, 0, 13)
