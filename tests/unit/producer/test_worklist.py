from dataclasses import replace

from overnight_producer.driving.worklist import Worklist
from overnight_producer.jobs.ranges import Range, RangeState, published


def test_a_range_comes_out_when_it_is_due_and_not_before():
    worklist = Worklist()
    worklist.put(Range(0, 5), due=3.0)
    worklist.put(Range(5, 10), due=1.0)
    worklist.put(Range(10, 15), due=2.0)

    assert worklist.next_due() == 1.0
    assert worklist.take_due(0.5) is None
    assert worklist.take_due(1.5).start == 5
    assert worklist.next_due() == 2.0
    assert [worklist.take_due(9.0).start for _ in range(2)] == [0, 10]
    assert worklist.take_due(9.0) is None


def test_of_those_that_are_due_the_smallest_comes_first():
    worklist = Worklist([Range(0, 50), Range(50, 75), Range(75, 76), Range(76, 126)])
    assert [worklist.take_due(0.0).start for _ in range(2)] == [75, 50]
    worklist.put(Range(75, 76), due=5.0)
    assert worklist.take_due(4.0).start == 0
    assert worklist.take_due(5.0).start == 75
    assert worklist.next_due() == 0.0


def test_ranges_due_at_the_same_time_come_first_in_first_out():
    worklist = Worklist([Range(start, start + 1) for start in (7, 3, 9)])
    assert [worklist.take_due(0.0).start for _ in range(3)] == [7, 3, 9]


def test_a_range_that_was_finished_meanwhile_is_not_taken():
    worklist = Worklist([Range(0, 5), Range(5, 10)])
    worklist.remove(0)
    assert worklist.take_due(0.0) == Range(5, 10)
    assert worklist.next_due() is None


def test_a_range_that_waits_again_is_due_at_its_new_time_only():
    worklist = Worklist([Range(0, 5)])
    taken = worklist.take_due(0.0)
    worklist.put(published(taken))
    worklist.put(replace(published(taken), state=RangeState.WAITING), due=8.0)
    assert worklist.take_due(7.0) is None
    assert worklist.take_due(8.0).attempt == 1


def test_what_waits_and_what_is_out_are_counted_through_every_change():
    worklist = Worklist(
        [Range(0, 5), Range(5, 10, RangeState.PUBLISHED, 1), Range(10, 15, RangeState.RUNNING, 1)]
    )
    assert (worklist.waiting, worklist.out, len(worklist)) == (1, 2, 3)

    worklist.put(published(worklist.take_due(0.0)))
    assert (worklist.waiting, worklist.out, len(worklist)) == (0, 3, 3)

    worklist.remove(5)
    worklist.remove(5)
    assert (worklist.waiting, worklist.out, len(worklist)) == (0, 2, 2)
    assert sorted(range_.start for range_ in worklist.in_flight()) == [0, 10]


def test_a_range_is_found_by_both_of_its_ends():
    worklist = Worklist([Range(0, 5)])
    assert worklist.get(0, 5) == Range(0, 5)
    assert worklist.get(0, 4) is None
    assert worklist.get(1, 5) is None


def test_what_is_out_is_counted_with_and_without_what_is_said_to_run():
    worklist = Worklist([published(Range(start, start + 1)) for start in range(3)])
    assert (worklist.out, worklist.published) == (3, 3)
    worklist.put(replace(published(Range(1, 2)), state=RangeState.RUNNING))
    assert (worklist.out, worklist.published) == (3, 2)
    worklist.put(replace(published(Range(1, 2)), state=RangeState.RUNNING))
    worklist.remove(0)
    assert (worklist.out, worklist.published) == (2, 1)
    worklist.put(Range(1, 2))
    assert (worklist.out, worklist.published, worklist.waiting) == (1, 1, 1)
