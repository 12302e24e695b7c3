"""Whoever is killed, each point ends with exactly one result, and what was done is not done again."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from support.command_line import Desk, Program, noise, wait_until

POINTS = 60
BATCH = 3
HELD_FROM = 30
RUN = ("run", "counted:noisy", "--data", f"range:{POINTS}", "--batch", str(BATCH), "--output", "out.npy")


def wait_until_held(desk: Desk, tasks: int, program: Program) -> list[int]:
    """Wait until so many tasks are in the middle of their work, and return the points they are at."""
    program.wait_until(lambda: len(desk.noted("held")) >= tasks)
    return desk.noted("held")


def wait_until_done(desk: Desk, points: int, program: Program) -> list[int]:
    """Wait until the job file holds so many results, and return the points that have one."""
    program.wait_until(lambda: desk.jobs() and len(desk.points_done()) >= points)
    time.sleep(0.5)  # a consumer acks a task a moment after the driver has its result
    return desk.points_done()


def assert_one_result_each(desk: Desk) -> None:
    assert desk.points_done() == list(range(POINTS))
    assert desk.results().tobytes() == noise(POINTS).tobytes()


def points_of_tasks_at(points: list[int]) -> set[int]:
    return {point for held in points for point in range(held - held % BATCH, held + 1)}


@pytest.mark.rabbitmq
def test_a_killed_consumer_and_a_killed_driver_cost_only_what_the_consumer_ran(rabbit_desk: Desk) -> None:
    desk = rabbit_desk
    desk.hold(HELD_FROM)
    driver = desk.start(*RUN)
    consumer = ("--methods", "counted:noisy", "--slots", "1", "--name")
    doomed = desk.consumer(*consumer, "doomed")
    (killed_at,) = wait_until_held(desk, 1, driver)
    survivor = desk.consumer(*consumer, "survivor")
    wait_until_held(desk, 2, driver)
    done_before = wait_until_done(desk, HELD_FROM, driver)

    doomed.kill()
    driver.kill()
    second = desk.start(*RUN)
    desk.let_go()
    ended = second.wait()

    assert ended.status == 0, ended
    assert survivor.stop().status == 0
    assert_one_result_each(desk)
    calls = desk.calls()
    assert all(calls[point] == 1 for point in done_before)
    assert {point for point in calls if calls[point] > 1} <= points_of_tasks_at([killed_at])
    assert calls[killed_at] == 2


def test_what_runs_when_the_driver_is_killed_is_finished_and_counted(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    driver = desk.start(*RUN, "--slots", "2")
    wait_until_held(desk, 2, driver)
    wait_until_done(desk, HELD_FROM, driver)

    driver.kill()
    second = desk.start(*RUN, "--slots", "2")
    wait_until_held(desk, 4, second)
    desk.let_go()
    ended = second.wait()

    assert ended.status == 0, ended
    assert_one_result_each(desk)
    assert set(desk.calls().values()) == {1}
    wait_until(lambda: not desk.processes(), "the consumer of the killed driver ends too")


def test_a_power_cut_costs_only_what_ran(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    driver = desk.start(*RUN, "--slots", "2")
    killed_at = wait_until_held(desk, 2, driver)
    done_before = wait_until_done(desk, HELD_FROM, driver)

    for pid in desk.processes():
        os.kill(pid, signal.SIGKILL)
    driver.kill()
    desk.let_go()
    ended = desk.overnight(*RUN, "--slots", "2")

    assert ended.status == 0, ended
    assert_one_result_each(desk)
    calls = desk.calls()
    assert all(calls[point] == 1 for point in done_before)
    assert {point for point in calls if calls[point] > 1} <= points_of_tasks_at(killed_at)


def test_a_driver_killed_again_and_again_ends_with_the_right_bits(desk: Desk) -> None:
    run = (
        "run",
        "counted:noisy",
        "--data",
        "range:400",
        "--batch",
        "2",
        "--output",
        "out.npy",
        "--slots",
        "2",
        "--silence",  # a task that was written down but not yet sent is missed only by its silence
        "1",
    )
    for points in (40, 120, 200):
        driver = desk.start(*run)
        driver.wait_until(lambda points=points: len(desk.calls()) >= points)
        driver.kill()

    ended = desk.overnight(*run)

    assert ended.status == 0, ended
    assert desk.points_done() == list(range(400))
    assert np.array_equal(desk.results(), noise(400))


def test_a_forked_copy_of_a_method_never_answers_in_its_name(desk):
    desk.write(
        "forking.py",
        """
import os, sys

def waits(points):
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    return [float(point) for point in points]

def goes_on(points):
    if os.fork() == 0:
        return [-1.0] * len(points)  # the copy: nobody may hear this
    return [float(point) for point in points]
""",
    )
    for method in ("waits", "goes_on"):
        done = desk.overnight(
            "run",
            f"forking:{method}",
            "--data",
            "range:12",
            "--batch",
            "2",
            "--slots",
            "1",
            "--output",
            "out.npy",
        )
        assert done.status == 0, done
        assert desk.results().tolist() == [float(point) for point in range(12)]


def test_a_job_whose_files_are_removed_ends_with_an_error_and_not_with_success(desk):
    desk.hold(HELD_FROM)
    driver = desk.start(*RUN, "--slots", "2")
    driver.wait_until(lambda: len(desk.noted("held")) >= 2)
    shutil.rmtree(desk.home)
    desk.let_go()
    ended = driver.wait()
    assert ended.status == 1, ended
    assert "removed or replaced" in ended.output


def test_a_closed_standard_output_stops_no_run(desk):
    command = shlex.join([sys.executable, "-m", "overnight_producer", *RUN, "--slots", "1"])
    done = subprocess.run(["sh", "-c", f"{command} >&-"], cwd=desk.folder, check=False, timeout=120)
    assert done.returncode == 0
    assert desk.results().tobytes() == noise(POINTS).tobytes()


@pytest.mark.rabbitmq
@pytest.mark.timeout(300)
def test_replies_survive_25_drivers_that_are_killed_before_they_ack_them(rabbit_desk: Desk) -> None:
    # From 4.0 on a quorum queue buries what was delivered 20 times: the drivers have to fetch it from there.
    desk = rabbit_desk
    desk.hold(HELD_FROM)
    consumer = desk.consumer("--methods", "counted:noisy", "--slots", "2")
    driver = desk.disturbed("without-acks", "overnight_producer", *RUN)
    for killed in range(25):
        driver.wait_until_it_says("a reply has come")
        driver.kill()
        driver = (
            desk.disturbed("without-acks", "overnight_producer", *RUN) if killed < 24 else desk.start(*RUN)
        )
    desk.let_go()
    ended = driver.wait()

    assert ended.status == 0, ended
    assert consumer.stop().status == 0
    assert_one_result_each(desk)
    assert set(desk.calls().values()) == {1}
    assert desk.overnight("dead", "list").output.splitlines()[-1] == "0 dead letters"
