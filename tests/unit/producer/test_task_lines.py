import msgspec
import pytest

from overnight_common.messages import Cause, Failure, Reply
from overnight_producer.jobs.ranges import Again, Complete, Drop, GiveUp, Range, Running, Split
from overnight_producer.views.task_lines import LINES_PER_SECOND, TaskLines, left_out_line, line_of
from support.standings import Clock, failed, finished

AGAIN = Again(0.2, charged=True)


def lines_into(shown, left_out, clock, verbose=False):
    return TaskLines(
        lambda reply, _: shown.append(reply), lambda *counts: left_out.append(counts), verbose, clock
    )


def test_of_many_failures_a_few_are_told_and_the_rest_counted():
    shown, left_out, clock = [], [], Clock(5.0)
    lines = lines_into(shown, left_out, clock)
    for start in range(41):
        lines.task(failed(start, start + 1), AGAIN)
    lines.tick()
    assert len(shown) == LINES_PER_SECOND
    assert left_out == []  # their second is not over
    clock.now += 1
    lines.tick()
    assert left_out == [(41 - LINES_PER_SECOND, 0)]
    lines.tick()
    assert len(left_out) == 1


def test_every_failure_is_told_while_they_are_few():
    shown, left_out, clock = [], [], Clock(5.0)
    lines = lines_into(shown, left_out, clock)
    for start in range(10):
        lines.task(failed(start, start + 1), AGAIN)
        clock.now += 0.4
    lines.flush()
    assert len(shown) == 10
    assert left_out == []


def test_finished_tasks_are_told_only_on_request_and_without_looking_at_the_clock():
    def clock():
        raise AssertionError("too dear for what is not shown")

    shown = []
    lines = lines_into(shown, [], clock)
    lines.task(finished(0, 7), Complete())
    assert shown == []


def test_verbose_tells_finished_tasks_but_lets_none_push_out_a_failure():
    shown, left_out, clock = [], [], Clock(5.0)
    lines = lines_into(shown, left_out, clock, verbose=True)
    for start in range(0, 700, 7):
        lines.task(finished(start, start + 7), Complete())
    lines.task(failed(700, 707), AGAIN)
    assert [reply.kind for reply in shown] == ["done", "done", "failed"]
    lines.flush()
    assert left_out == [(0, 98)]


def test_tasks_that_are_still_running_are_never_told():
    shown = []
    lines = lines_into(shown, [], Clock(), verbose=True)
    running = Reply(v=1, job="j", start=0, stop=1, attempt=1, kind="running", consumer="c", slot=1)
    lines.task(running, Running())
    assert shown == []


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Again(0.2, charged=True), "again in 0.2 s"),
        (Again(0.1, charged=False), "again in 0.1 s, not charged"),
        (Split(Range(0, 3), Range(3, 7)), "split in halves"),
        (GiveUp(Failure(Cause.EXCEPTION)), "given up"),
        (Drop("stale_attempt"), "ignored (stale attempt)"),
    ],
)
def test_a_failure_is_told_with_what_follows_from_it(decision, words):
    reply = failed(0, 7, "no such digit")
    assert line_of(reply, decision) == f"slot 1 failed [0, 7): ValueError: no such digit (attempt 1), {words}"


def test_a_finished_task_is_told_with_its_time():
    assert line_of(finished(7, 14), Complete()) == "slot 2 finished [7, 14) in 0.8 s"
    on_gpu = msgspec.structs.replace(finished(7, 14), device="cuda:1")
    assert line_of(on_gpu, Complete()) == "slot 2 on cuda:1 finished [7, 14) in 0.8 s"
    assert line_of(finished(7, 8), Complete()) == "slot 2 finished point 7 in 0.8 s"


def test_a_cause_other_than_an_exception_is_named():
    line = line_of(failed(0, 7, "took over 5 s", Cause.TIME_LIMIT), AGAIN)
    assert line.startswith("slot 1 failed [0, 7): time_limit: ValueError: took over 5 s")


def test_a_failure_that_no_slot_saw_names_the_consumer():
    assert line_of(failed(0, 7, slot=0), AGAIN).startswith("consumer desk-1 failed [0, 7)")


def test_a_long_message_gives_way_where_the_terminal_is_narrow():
    line = line_of(failed(0, 7, "x" * 500), AGAIN, width=80)
    assert len(line) == 80
    assert line.endswith("... (attempt 1), again in 0.2 s")


def test_what_was_left_out_is_counted_in_words():
    assert left_out_line(37, 0) == "and 37 more tasks failed"
    assert left_out_line(1, 2) == "and 1 more task failed, 2 finished"
    assert left_out_line(0, 2) == "and 2 more tasks finished"
