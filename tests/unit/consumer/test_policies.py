"""The pure decisions of the consumer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight_common.messages import Cause
from overnight_consumer.answers import running_is_due
from overnight_consumer.backoff import backoff_seconds
from overnight_consumer.commands import CommandEnd
from overnight_consumer.commands import failure_of as command_failure
from overnight_consumer.deaths import Death, ExitReason, failure_of, start_failure_of
from overnight_consumer.failures import exception_failure
from overnight_consumer.frames import (
    Answer,
    FrameReader,
    GarbledError,
    Ready,
    Work,
    decode_from_child,
    decode_order,
    pack,
)
from overnight_consumer.limits import Limits
from overnight_consumer.prefetch import (
    MOST,
    is_short,
    moving_mean,
    steady_mean,
    wanted_prefetch,
    worth_lowering,
    worth_raising,
)
from overnight_consumer.recycling import Age, RecycleReason, Recycling
from overnight_consumer.threads import thread_environment, threads_per_slot


def test_backoff_doubles_from_the_first_to_the_longest():
    assert [backoff_seconds(n, 1, 60) for n in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff_seconds(10_000, 1, 60) == 60


@pytest.mark.parametrize(
    ("mean", "wanted"),
    [
        (None, 4),
        (3600.0, 4),
        (0.25, 4),
        (0.05, 5),
        (0.049, 8),
        (0.010, 40),
        (0.001, 400),
        (0.0001, MOST),
        (0.0, MOST),
    ],
)
def test_prefetch_is_the_slots_for_long_tasks_and_100_ms_of_work_for_short_ones(mean, wanted):
    assert wanted_prefetch(4, mean, is_short(mean, 99.0, was_short=False)) == wanted


@given(st.integers(1, 1000), st.none() | st.floats(0, 1e6))
def test_prefetch_never_leaves_a_slot_without_a_task(slots, mean):
    for short in (True, False):
        assert slots <= wanted_prefetch(slots, mean, short) <= max(2 * slots, MOST)


def test_what_is_held_ahead_is_bounded_in_bytes_too():
    assert wanted_prefetch(2, 0.0001, short=True, mean_bytes=200) == MOST
    assert wanted_prefetch(2, 0.0001, short=True, mean_bytes=256 * 1024) == 16
    assert wanted_prefetch(2, 0.0001, short=True, mean_bytes=8 * 1024 * 1024) == 3


def test_prefetch_is_changed_only_when_it_differs_markedly():
    assert not worth_raising(100, 120)
    assert worth_raising(100, 150)
    assert not worth_lowering(100, 20)
    assert worth_lowering(100, 12)


def test_after_a_long_task_nothing_is_held_behind_a_slot_for_half_a_minute():
    assert not is_short(0.001, calm_seconds=29.0, was_short=True)
    assert is_short(0.001, calm_seconds=31.0, was_short=False)
    assert wanted_prefetch(2, 0.001, short=False) == 3


def test_tasks_near_the_limit_do_not_change_the_prefetch_to_and_fro():
    assert not is_short(0.06, calm_seconds=99.0, was_short=False)
    assert is_short(0.06, calm_seconds=99.0, was_short=True)
    assert not is_short(0.11, calm_seconds=99.0, was_short=True)


def test_a_few_slow_tasks_among_short_ones_are_forgotten_and_many_are_not():
    mean = 0.001
    for _ in range(5):
        mean = steady_mean(mean, 0.9)
    assert mean < 0.005
    for _ in range(20):
        mean = steady_mean(mean, 0.9)
    assert not is_short(mean, calm_seconds=99.0, was_short=True)


def test_large_messages_are_not_taken_for_outliers():
    assert moving_mean(100.0, 1e6) > 1e5


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
    assert [decode_order(frame).body for frame in found] == bodies


def test_what_a_child_says_survives_the_trip():
    answer = Answer("failed", "exception", "why", 1.5, b"reply")
    came = FrameReader().feed(pack(answer) + pack(Ready()))
    assert [decode_from_child(body) for body in came] == [answer, Ready()]


@pytest.mark.parametrize("foreign", [b"hello", b"\0\0\0\x09", b"\n", b"\xff" * 9])
def test_what_is_no_frame_is_found_out_at_once_and_what_came_before_it_counts(foreign):
    came = FrameReader().feed(pack(Ready()) + foreign)
    assert decode_from_child(next(came)) == Ready()
    with pytest.raises(GarbledError):
        next(came)


def test_a_death_is_told_with_its_figures():
    killed = failure_of(Death(-11, 300 * 2**20, "tail", 2.0))
    assert (killed.cause, killed.type, killed.stderr_tail) == (Cause.KILLED_BY_SIGNAL, "SIGSEGV (11)", "tail")
    assert "300 MiB" in killed.message
    assert failure_of(Death(3, 0, "")).cause is Cause.EXIT_STATUS
    assert "no limit" in killed.message
    slow = Death(-9, 0, "", 7.25, ExitReason.TIME_LIMIT, time_limit_seconds=7)
    assert failure_of(slow).cause is Cause.TIME_LIMIT
    assert "limit of 7 s after 7.2 s" in failure_of(slow).message
    assert start_failure_of(Death(-64, 0, "")).type == "SIGRTMAX (64)"
    assert start_failure_of(Death(-40, 0, "")).type == "signal 40"


@pytest.mark.parametrize("why", [ExitReason.MEMORY_LIMIT, ExitReason.KERNEL_OUT_OF_MEMORY])
def test_a_death_for_want_of_memory_is_told_with_peak_limit_and_seconds(why):
    death = Death(-9, 800 * 2**20, "tail", 3.0, why, memory_limit_bytes=500 * 2**20)
    failure = failure_of(death)
    assert failure.cause is Cause.OUT_OF_MEMORY
    assert "3.0 s, peak memory 800 MiB, allowed 500 MiB" in failure.message
    assert failure.stderr_tail == "tail"
    assert "SIGKILL" not in failure.type
    assert "larger --memory-limit" in start_failure_of(death).message
    assert start_failure_of(death).cause is Cause.START_FAILED


def test_a_command_that_the_kernel_killed_for_memory_is_out_of_memory_and_not_signal_9():
    end = CommandEnd(-9, 2.0, 300 * 2**20, out_of_memory=True, stderr_tail="tail")
    assert command_failure(end, None).cause is Cause.OUT_OF_MEMORY
    assert "2.0 s, peak memory 300 MiB" in command_failure(end, None).message
    assert command_failure(end._replace(out_of_memory=False), None).cause is Cause.KILLED_BY_SIGNAL
    assert command_failure(end._replace(out_of_memory=False, status=3), None).type == "exit status 3"


class OutOfMemoryError(RuntimeError):
    """Stands for torch's, which is known by its name alone."""


def raised_from(cause):
    error = ValueError("the batch cannot be done")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
            True,
        ),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), True),
        (raised_from(MemoryError()), True),
        (raised_from(KeyError("x")), False),
        (ValueError("out of memory"), False),
        (RuntimeError("shapes do not fit"), False),
        (SystemExit(1), False),
    ],
)
def test_memory_errors_are_known_by_name_and_the_rest_are_exceptions(error, is_memory):
    expected = Cause.OUT_OF_MEMORY if is_memory else Cause.EXCEPTION
    assert exception_failure(error, ()).cause is expected


def test_a_message_may_lower_the_time_limit_and_never_raise_it():
    bound = Limits(time_limit_seconds=60.0)
    assert [bound.time_limit_of(asked) for asked in (None, 5.0, 600.0)] == [60.0, 5.0, 60.0]
    assert [Limits().time_limit_of(asked) for asked in (None, 600.0)] == [None, 600.0]


def test_a_child_is_old_after_its_number_of_tasks():
    age = Age(Recycling(tasks=3))
    assert [age.after_task(now, lambda: 0) for now in range(4)] == [
        None,
        None,
        RecycleReason.TASKS,
        RecycleReason.TASKS,
    ]


def test_growth_counts_from_the_first_task_and_not_from_a_bare_child():
    age, sizes = Age(Recycling(growth_bytes=100)), iter([900, 950, 1000])
    assert [age.after_task(now, lambda: next(sizes)) for now in (1, 2, 3)] == [
        None,
        None,
        RecycleReason.GROWTH,
    ]


def test_short_tasks_are_not_slowed_by_measuring_each():
    measured = []
    age = Age(Recycling(growth_bytes=100))
    for step in range(100):
        age.after_task(10 + step * 0.01, lambda: measured.append(1) or 0)
    assert len(measured) <= 4


def test_without_recycling_nothing_is_measured():
    assert Age(Recycling()).after_task(1.0, pytest.fail) is None
