"""The rate and the time to go are reckoned in one place."""

import pytest

from support.standings import progress_of, snapshot_of


def test_the_rate_of_short_tasks_is_what_was_measured():
    assert snapshot_of(700).rate == 12.4


def test_the_rate_of_long_tasks_follows_from_the_busy_slots():
    # 15 minutes a point: hardly any half minute sees one finish.
    progress = progress_of(8, tasks_done=8, seconds=8 * 900.0)
    snapshot = snapshot_of(0, progress=progress, points_per_second=0.0, slots_busy=32.0)
    assert snapshot.rate == pytest.approx(32 / 900)
    assert snapshot.eta_seconds == pytest.approx((1797 - 8) * 900 / 32)


def test_there_is_no_time_to_go_before_there_is_a_rate():
    assert snapshot_of(0, points_per_second=0.0).eta_seconds is None


def test_given_up_points_are_not_waited_for():
    assert snapshot_of(1790, given_up=7).eta_seconds == 0.0
