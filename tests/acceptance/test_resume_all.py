"""`resume --all` goes on with all that was interrupted, side by side, and with nothing that somebody stopped."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from overnight_producer.jobs.home import job_path
from overnight_producer.jobs.jobfile import JobFile
from support.command_line import Desk, noise

if TYPE_CHECKING:
    from collections.abc import Sequence

HELD_FROM = 10


def interrupted(desk: Desk, seed: int) -> str:
    """Begin a run, end it in the middle with nothing written down but the first results, and return its id."""
    before = set(desk.jobs())
    held = len(desk.noted("held"))
    slots = () if desk.broker else ("--slots", "1")
    run = desk.start(
        *("run", "counted:noisy", "--data", "range:30", "--seed", str(seed), "--batch", "2"),
        *("--output", f"out-{seed}.npy", *slots),
    )
    run.wait_until(lambda: len(desk.noted("held")) > held)
    (job,) = set(desk.jobs()) - before
    run.wait_until(lambda: done(desk, job) >= HELD_FROM)
    run.kill()
    return job


def done(desk: Desk, job: str) -> int:
    with JobFile.open(job_path(desk.home, job)) as opened:
        return opened.progress().done


def states(desk: Desk, jobs: Sequence[str]) -> list[str]:
    found = []
    for job in jobs:
        with JobFile.open(job_path(desk.home, job)) as opened:
            found.append(opened.progress().state.value)
    return found


def test_two_killed_runs_are_finished_side_by_side_with_consumers_of_their_own(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    jobs = [interrupted(desk, 1), interrupted(desk, 2)]

    all_of_them = desk.start("resume", "--all", "--silence", "1")
    for job in jobs:
        all_of_them.wait_until_it_says(f"job {job}: is driven")
    assert states(desk, jobs) == ["running", "running"]  # both at once, while nobody may go on
    desk.let_go()
    ended = all_of_them.wait()

    assert ended.status == 0, ended
    for seed in (1, 2):
        assert desk.results(f"out-{seed}.npy").tobytes() == noise(30, seed=seed).tobytes()
    assert states(desk, jobs) == ["done", "done"]


@pytest.mark.rabbitmq
def test_killed_drivers_on_rabbitmq_are_taken_up_over_one_broker(rabbit_desk: Desk) -> None:
    desk = rabbit_desk
    desk.hold(HELD_FROM)
    consumer = desk.consumer("--methods", "counted:noisy", "--slots", "2")
    jobs = [interrupted(desk, 1)]
    desk.let_go()
    ended = desk.overnight("resume", "--all")
    assert ended.status == 0, ended
    assert states(desk, jobs) == ["done"]
    assert desk.results("out-1.npy").tobytes() == noise(30, seed=1).tobytes()
    assert set(desk.calls().values()) == {1}
    consumer.stop()


def test_paused_and_cancelled_jobs_are_left_alone(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    paused, cancelled = interrupted(desk, 1), interrupted(desk, 2)
    driver = desk.start("resume", paused, "--slots", "0")
    driver.wait_until(lambda: "granted" in desk.overnight("pause", paused).output)
    driver.stop(signal.SIGINT)
    desk.overnight("cancel", cancelled)

    ended = desk.overnight("resume", "--all")

    assert ended.status == 0, ended
    assert "no job" in ended.output
    assert states(desk, [paused, cancelled]) == ["paused", "cancelled"]


def test_it_ends_with_one_when_points_were_given_up(desk: Desk) -> None:
    desk.write(
        "moody.py",
        "def moody(batch):\n    if 7 in batch:\n        raise ValueError('seven')\n    return batch\n",
    )
    good = desk.overnight("submit", "counted:square", "--data", "range:9")
    bad = desk.overnight("submit", "moody:moody", "--data", "range:9", "--output", "out.npy")
    desk.consumer("--methods", "counted:square", "--methods", "moody:moody", "--slots", "2")

    ended = desk.overnight("resume", "--all")

    assert ended.status == 1, ended
    assert states(desk, [good.output.split()[-1], bad.output.split()[-1]]) == ["done", "done"]
    assert "1 given up" in ended.output
    assert list(desk.results()) == [0, 1, 2, 3, 4, 5, 6, 0, 8]


def test_ctrl_c_interrupts_all_of_them(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    jobs = [interrupted(desk, 1)]
    all_of_them = desk.start("resume", "--all", "--silence", "1")
    all_of_them.wait_until_it_says("is driven")

    ended = all_of_them.stop(signal.SIGINT)

    assert ended.status == 130, ended
    assert states(desk, jobs) == ["running"]


def test_submitted_jobs_are_left_to_a_service_that_runs(desk: Desk) -> None:
    server = desk.start("serve")
    server.wait_until_it_says("serves")
    desk.overnight("submit", "counted:square", "--data", "range:9")

    ended = desk.overnight("resume", "--all")

    assert ended.status == 0
    assert "no job" in ended.output


def test_a_job_cannot_be_named_beside_all(desk: Desk) -> None:
    assert desk.overnight("resume", "some", "--all").status == 2
