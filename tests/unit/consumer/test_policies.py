"""The pure decisions of the consumer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight_common.messages import Cause
from overnight_consumer.answers import running_is_due
from overnight_consumer.backoff import backoff_seconds
from overnight_consumer.commands import command_line
from overnight_consumer.deaths import Death, failure_of, start_failure_of
from overnight_consumer.frames import Answer, FrameReader, Ready, Work, decode_from_child, decode_work, pack
from overnight_consumer.prefetch import MOST, differs_markedly, is_short, moving_mean, wanted_prefetch
from overnight_consumer.threads import thread_environment, threads_per_slot


def test_backoff_doubles_from_the_first_to_the_longest():
    assert [backoff_seconds(n, 1, 60) for n in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff_seconds(10_000, 1, 60) == 60


@pytest.mark.parametrize(
    ("mean", "wanted"),
    [(None, 4), (3600.0, 4), (0.05, 4), (0.049, 8), (0.010, 40), (0.001, 400), (0.0001, MOST), (0.0, MOST)],
)
def test_prefetch_is_the_slots_for_long_tasks_and_100_ms_of_work_for_short_ones(mean, wanted):
    assert wanted_prefetch(4, mean, is_short(mean, 99.0, was_short=False)) == wanted


@given(st.integers(1, 1000), st.none() | st.floats(0, 1e6))
def test_prefetch_never_leaves_a_slot_without_a_task(slots, mean):
    for short in (True, False):
        assert slots <= wanted_prefetch(slots, mean, short) <= max(2 * slots, MOST)


def test_prefetch_is_changed_only_when_it_differs_markedly():
    assert not differs_markedly(100, 120)
    assert not differs_markedly(100, 20)
    assert differs_markedly(100, 150)
    assert differs_markedly(100, 12)


def test_after_a_long_task_nothing_is_held_behind_a_slot_for_half_a_minute():
    assert not is_short(0.001, calm_seconds=29.0, was_short=True)
    assert is_short(0.001, calm_seconds=31.0, was_short=False)
    assert wanted_prefetch(2, 0.001, short=False) == 2


def test_tasks_near_the_limit_do_not_change_the_prefetch_to_and_fro():
    assert not is_short(0.06, calm_seconds=99.0, was_short=False)
    assert is_short(0.06, calm_seconds=99.0, was_short=True)
    assert not is_short(0.11, calm_seconds=99.0, was_short=True)


def test_one_slow_task_among_short_ones_is_forgotten_and_many_are_not():
    mean = 0.001
    mean = moving_mean(mean, 0.9)
    assert is_short(mean, calm_seconds=99.0, was_short=True)
    for _ in range(3):
        mean = moving_mean(mean, 0.9)
    assert not is_short(mean, calm_seconds=99.0, was_short=True)


def test_each_slot_gets_its_share_of_the_cores_and_at_least_one_thread():
    assert [threads_per_slot(8, slots) for slots in (1, 3, 8, 9)] == [8, 2, 1, 1]
    assert set(thread_environment(3).values()) == {"3"}


def test_a_running_task_is_reported_after_5_s_and_then_every_30_s():
    assert not running_is_due(104.9, 100.0, 0.0)
    assert running_is_due(105.0, 100.0, 0.0)
    assert not running_is_due(134.0, 100.0, 105.0)
    assert running_is_due(135.0, 100.0, 105.0)


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 50))
def test_frames_are_cut_right_however_the_bytes_arrive(bodies, step):
    stream = b"".join(pack(Work(number, body)) for number, body in enumerate(bodies))
    reader = FrameReader()
    found = [frame for at in range(0, len(stream), step) for frame in reader.feed(stream[at : at + step])]
    assert [decode_work(frame).body for frame in found] == bodies


def test_what_a_child_says_survives_the_trip():
    answer = Answer("failed", "exception", "why", 1.5, b"reply")
    assert [decode_from_child(pack(said)[4:]) for said in (answer, Ready())] == [answer, Ready()]


def test_a_death_is_told_with_its_figures():
    killed = failure_of(Death(-11, 300 * 2**20, "tail", 2.0))
    assert (killed.cause, killed.type, killed.stderr_tail) == (Cause.KILLED_BY_SIGNAL, "SIGSEGV (11)", "tail")
    assert "300 MiB" in killed.message
    assert failure_of(Death(3, 0, "")).cause is Cause.EXIT_STATUS
    limited = failure_of(Death(-9, 0, "", seconds=7.25, limit_seconds=7))
    assert limited.cause is Cause.TIME_LIMIT
    assert "7.2 s" in limited.message
    assert "7 s" in limited.message
    assert start_failure_of(Death(-64, 0, "")).type == "SIGRTMAX (64)"
    assert start_failure_of(Death(-40, 0, "")).type == "signal 40"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python job.py 'a b'", ["python", "job.py", "a b"]),
        ("a | b", ["/bin/sh", "-c", "a | b"]),
        ("X=1 a", ["/bin/sh", "-c", "X=1 a"]),
        ("a --x=1", ["a", "--x=1"]),
    ],
)
def test_a_command_gets_a_shell_only_if_it_asks_for_one(text, words):
    assert command_line(text) == words
