from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from overnight_producer.driving.batching import Limits, Pace, expected_seconds, measured, next_points

MANY = 10_000_000


def after(*tasks, **given):
    pace = Pace()
    for points, seconds in tasks:
        pace = measured(pace, points, seconds, **given)
    return pace


def test_the_first_task_has_one_point():
    assert next_points(Pace(), MANY, 4) == 1


def test_a_method_that_takes_no_time_reaches_the_cap_in_five_rounds():
    pace, sizes = Pace(), []
    for _ in range(6):
        sizes.append(next_points(pace, MANY, 4))
        pace = measured(pace, sizes[-1], 0.0)
    assert sizes == [1, 4, 16, 64, 256, 1000]


def test_a_task_grows_to_about_two_seconds():
    pace = Pace()
    for _ in range(10):
        points = next_points(pace, MANY, 4)
        pace = measured(pace, points, 0.01 * points)
    assert next_points(pace, MANY, 4) == 200


def test_a_point_longer_than_the_target_stays_alone():
    assert next_points(after((1, 900.0)), MANY, 4) == 1


def test_one_slow_start_or_one_early_failure_does_not_sway_it():
    usual = [(20, 2.0)] * 6
    assert next_points(after((1, 60.0), *usual), MANY, 4) == 20
    assert next_points(after((20, 0.0), *usual), MANY, 4) == 20


def test_it_follows_points_that_become_slower():
    fast = after(*[(1000, 0.1)] * 20)
    assert next_points(fast, MANY, 4) == 1000
    slow = fast
    for _ in range(9):
        slow = measured(slow, 1000, 1000.0)
    assert next_points(slow, MANY, 4) == 2


def test_the_last_tasks_leave_no_slot_idle():
    pace = after((1000, 0.01))
    assert next_points(pace, 400, 4) == 50
    assert next_points(pace, 9, 4) == 2
    assert next_points(pace, 8, 4) == 1
    assert next_points(pace, 1, 0) == 1


def test_results_fit_into_a_message():
    large = after((1, 0.0), result_bytes=1024 * 1024)
    assert next_points(measured(large, 1000, 0.0), MANY, 4) == 4
    assert next_points(after((1000, 0.01), result_bytes=10**12), MANY, 4) == 1
    assert next_points(replace(after((1000, 0.01)), result_bytes_per_point=1e-300), MANY, 4) == 1000


def test_a_probe_tells_nothing():
    assert after((0, 1.0)) == Pace()


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.floats(-1.0, 1e6)), max_size=20),
    st.integers(1, MANY),
    st.integers(0, 1000),
    st.integers(0, 10**9),
)
def test_a_task_is_never_empty_and_never_over_any_bound(tasks, remaining, slots, result_bytes):
    pace = after(*tasks, result_bytes=result_bytes)
    limits = Limits()
    points = next_points(pace, remaining, slots, limits)
    assert 1 <= points <= min(remaining, 1000)
    assert points <= max(1, 4 * max((each for each, _ in tasks), default=0))
    if points > 1:
        assert points * pace.result_bytes_per_point <= limits.max_result_bytes
        assert (points - 1) * 2 * max(slots, 1) < remaining


def test_a_task_should_take_what_its_points_took_before():
    assert expected_seconds(Pace(), 7) == 0.0
    assert expected_seconds(after((10, 1.0), (10, 3.0), (1, 0.2)), 5) == 1.0
