"""A further run of a point is explained by a fault between the two runs, and by no more runs than it can cost."""

from __future__ import annotations

from itertools import islice

from chaos.explaining import HELD_TASKS, NOTICED_SECONDS, Happened, Rerun, reruns, unexplained
from chaos.schedule import EMBEDDED, RABBITMQ, Kind, schedule


def killed_child(at: float) -> Happened:
    return Happened(Kind.CHILD, "a child", at, at, 0)


def cut(began: float, ended: float) -> Happened:
    return Happened(Kind.CUT, "a link", began, ended, 1)


def test_the_runs_after_the_first_are_the_further_ones() -> None:
    assert reruns({5: [3.0, 1.0, 2.0], 6: [1.0]}) == [Rerun(5, 1.0, 2.0), Rerun(5, 2.0, 3.0)]


def test_a_run_again_without_any_fault_is_unexplained() -> None:
    assert unexplained([Rerun(1, 10, 11)], [], 3, 0) == [Rerun(1, 10, 11)]


def test_a_killed_child_explains_one_task_and_no_more() -> None:
    again = [Rerun(point, 10, 12) for point in range(4)]
    assert len(unexplained(again, [killed_child(11)], 3, 0)) == 1


def test_a_fault_long_before_or_after_the_two_runs_explains_nothing() -> None:
    again = [Rerun(1, 10, 12)]
    assert unexplained(again, [killed_child(12.5)], 1, 0) == again
    assert unexplained(again, [killed_child(9.9 - NOTICED_SECONDS)], 1, 0) == again
    assert unexplained(again, [cut(8, 9)], 1, 0) == []


def test_a_cut_consumer_explains_what_it_may_have_held() -> None:
    again = [Rerun(point, 10, 12) for point in range(HELD_TASKS + 2)]
    assert len(unexplained(again, [cut(11, 11)], 1, 0)) == 2


def test_a_wiped_broker_explains_the_replies_that_were_lost_with_it_too() -> None:
    again = [Rerun(point, 10, 12) for point in range(3 * HELD_TASKS + 5)]
    wiped = Happened(Kind.WIPED, "RabbitMQ", 11, 11, 3, unread=4)
    assert len(unexplained(again, [wiped], 1, 0)) == 1


def test_an_alarm_explains_nothing() -> None:
    alarm = Happened(Kind.ALARM, "RabbitMQ", 10, 12, 0)
    assert unexplained([Rerun(1, 10, 12)], [alarm], 1, 0) == [Rerun(1, 10, 12)]


def test_a_driver_whose_fate_has_no_effect_on_runs_explains_none() -> None:
    driver = Happened(Kind.DRIVER, "driver", 11, 11, 0)
    assert unexplained([Rerun(1, 10, 12)], [driver], 1, 0) == [Rerun(1, 10, 12)]


def test_what_was_published_again_in_doubt_explains_as_many_tasks_at_any_time() -> None:
    again = [Rerun(point, 10, 12) for point in range(7)]
    assert len(unexplained(again, [], 3, 2)) == 1


def test_faults_are_shared_out_so_that_all_that_can_be_is_explained() -> None:
    either, first_only = Rerun(1, 10, 20), Rerun(2, 10, 12)
    assert unexplained([either, first_only], [killed_child(11), killed_child(15)], 1, 0) == []


def test_the_same_seed_gives_the_same_faults_and_another_one_others() -> None:
    first = list(islice(schedule(1, RABBITMQ), 60))
    assert first == list(islice(schedule(1, RABBITMQ), 60))
    assert first != list(islice(schedule(2, RABBITMQ), 60))


def test_every_kind_comes_up_in_the_first_minute() -> None:
    for deck in (RABBITMQ, EMBEDDED):
        for seed in range(20):
            assert {fault.kind for fault in islice(schedule(seed, deck), 20)} == set(deck)
