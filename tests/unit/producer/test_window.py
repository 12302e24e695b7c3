from hypothesis import given
from hypothesis import strategies as st

from overnight_producer.driving.window import FIRST_WINDOW, LARGEST_WINDOW, Sight, SlotsSeen, next_window

COUNTS = st.integers(0, 10**6)
RATES = st.floats(0, 10**6)
SIZES = st.integers(1, LARGEST_WINDOW)


def grown(size, **seen):
    return next_window(
        size, Sight(**({"waiting": 100, "ready": 0, "tasks_per_second": 0.0, "slots": 0} | seen))
    )


def test_it_starts_at_sixteen_and_doubles_while_consumers_find_nothing():
    sizes = [FIRST_WINDOW]
    for _ in range(4):
        sizes.append(grown(sizes[-1]))
    assert sizes == [16, 32, 64, 128, 256]


def test_it_doubles_too_while_the_queue_holds_less_than_a_tenth_of_a_second_of_work():
    assert grown(128, ready=100, tasks_per_second=1000.0, slots=2) == 256
    assert grown(128, ready=101, tasks_per_second=1000.0, slots=2) == 128
    assert grown(16, ready=1, tasks_per_second=5.0, slots=2) == 16


def test_it_does_not_grow_while_tasks_lie_ready_or_none_wait_or_nobody_knows():
    assert grown(16, ready=1) == 16
    assert grown(16, waiting=0) == 16
    assert grown(16, ready=None) == 16


def test_it_never_shrinks_before_any_slot_was_seen():
    assert grown(512, ready=500) == 512


def test_it_comes_down_to_ten_seconds_of_work():
    size = 4096
    for _ in range(100):
        size = grown(size, ready=50, tasks_per_second=20.0, slots=4)
    assert size == 200


def test_it_comes_down_to_two_tasks_for_each_slot_when_tasks_are_long():
    size = 16
    for _ in range(100):
        size = grown(size, ready=3, tasks_per_second=0.001, slots=3)
    assert size == 6


@given(SIZES, COUNTS, COUNTS, RATES, st.integers(0, 1000))
def test_it_never_leaves_its_bounds_nor_shrinks_below_its_target(size, waiting, ready, rate, slots):
    after = next_window(size, Sight(waiting, ready, rate, slots))
    assert 1 <= after <= max(LARGEST_WINDOW, size)
    if after < size:
        assert after >= max(10 * rate, 2 * slots)
    if after > size:
        assert after <= 2 * size


@given(SIZES, RATES, st.integers(0, 1000))
def test_it_comes_to_rest(size, rate, slots):
    sight = Sight(waiting=5, ready=5, tasks_per_second=rate, slots=slots)
    for _ in range(200):
        before, size = size, next_window(size, sight)
    assert size == before


def test_slots_are_counted_once_each_and_forgotten_after_ninety_seconds():
    seen = SlotsSeen()
    seen.note("a", 1, 0.0)
    seen.note("a", 2, 50.0)
    seen.note("b", 1, 60.0)
    seen.note("a", 2, 61.0)
    seen.note("b", 0, 61.0)
    assert seen.count(61.0) == 3
    assert seen.count(90.0) == 3
    assert seen.count(90.1) == 2
    assert seen.count(152.0) == 0
