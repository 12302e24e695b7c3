"""Time in which this process could not look does not count."""

from overnight_common.awake import LONGEST_LOOK_SECONDS, AwakeClock


def test_awake_seconds_are_monotonic_seconds_while_somebody_looks():
    now = [1000.0]
    clock = AwakeClock(lambda: now[0])
    began = clock()
    for _ in range(100):
        now[0] += 1.0
        clock()
    assert clock() - began == 100.0


def test_an_hour_of_sleep_counts_as_one_look():
    now = [1000.0]
    clock = AwakeClock(lambda: now[0])
    began = clock()
    now[0] += 3600.0
    assert clock() - began == LONGEST_LOOK_SECONDS
    now[0] += 0.5
    assert clock() - began == LONGEST_LOOK_SECONDS + 0.5
