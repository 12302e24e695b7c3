"""Submitted jobs are driven by one service, several at once, whatever happens to it or to one of them."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from overnight_producer.jobs.home import job_path
from overnight_producer.jobs.jobfile import JobFile
from support.command_line import DIGITS, Desk, Program, noise, wait_until
from support.scraping import base_of, scrape

if TYPE_CHECKING:
    from overnight_producer.jobs.records import Progress

POINTS = 40
HELD_FROM = 20
NOISY = ("counted:noisy", "--data", f"range:{POINTS}", "--batch", "2", "--output", "noisy.npy")
SQUARES = (
    "counted:square",
    "--data",
    "range:160",
    "--start",
    "100",
    "--batch",
    "5",
    "--output",
    "squares.npy",
)


def submit(desk: Desk, *arguments: str) -> str:
    """Submit a job and return its id."""
    done = desk.overnight("submit", *arguments)
    assert done.status == 0, done
    return done.output.split()[-1]


def consumer(desk: Desk, slots: int = 2, *methods: str) -> Program:
    given = methods or ("counted:noisy", "counted:square")
    named = [word for method in given for word in ("--methods", method)]
    return desk.consumer(*named, "--slots", str(slots))


def progress(desk: Desk, job: str) -> Progress:
    with JobFile.open(job_path(desk.home, job)) as opened:
        return opened.progress()


def wait_for_state(desk: Desk, job: str, state: str, server: Program, seconds: float = 30.0) -> None:
    server.wait_until(lambda: progress(desk, job).state.value == state, seconds)


def wait_until_held(desk: Desk, server: Program, tasks: int = 2) -> None:
    """Wait until so many tasks are in the middle of their work, and all before them are written down."""
    server.wait_until(lambda: len(desk.noted("held")) >= tasks)
    server.wait_until(lambda: len(desk.points_done()) >= HELD_FROM)


def assert_stops_at_once(server: Program, number: int = signal.SIGTERM) -> None:
    ended = server.stop(number)
    assert ended.status == 0, ended


def test_jobs_submitted_before_and_while_it_serves_are_done_and_exported(any_desk: Desk) -> None:
    desk = any_desk
    first = submit(desk, *NOISY)
    consumer(desk)
    server = desk.start("serve")
    wait_for_state(desk, first, "done", server)
    second = submit(desk, *SQUARES)
    wait_for_state(desk, second, "done", server)

    assert desk.results("noisy.npy").tobytes() == noise(POINTS).tobytes()
    assert np.array_equal(desk.results("squares.npy"), np.arange(100, 160) ** 2)
    assert set(desk.calls().values()) == {1}
    assert_stops_at_once(server)


def test_a_killed_service_takes_up_what_ran_and_runs_nothing_twice(any_desk: Desk) -> None:
    desk = any_desk
    desk.hold(HELD_FROM)
    consumer(desk)
    server = desk.start("serve")
    noisy = submit(desk, *NOISY)
    wait_until_held(desk, server)
    squares = submit(desk, *SQUARES)
    server.wait_until(lambda: progress(desk, squares).published > 0)

    server.kill()
    second = desk.start("serve")
    wait_until(lambda: f"job {noisy}: is driven" in second.output, lambda: second.output)
    desk.let_go()

    wait_for_state(desk, noisy, "done", second)
    wait_for_state(desk, squares, "done", second)
    assert desk.results("noisy.npy").tobytes() == noise(POINTS).tobytes()
    assert np.array_equal(desk.results("squares.npy"), np.arange(100, 160) ** 2)
    assert set(desk.calls().values()) == {1}
    assert_stops_at_once(second)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_within_seconds_and_leaves_jobs_that_go_on_later(any_desk: Desk, number: int) -> None:
    desk = any_desk
    desk.hold(HELD_FROM)
    consumer(desk)
    job = submit(desk, *NOISY)
    server = desk.start("serve")
    wait_until_held(desk, server)

    server.process.send_signal(number)
    ended = server.wait(seconds=10)

    assert ended.status == 0, ended
    assert progress(desk, job).state.value == "running"
    desk.let_go()
    second = desk.start("serve")
    wait_for_state(desk, job, "done", second)
    assert set(desk.calls().values()) == {1}


def test_a_job_is_cancelled_through_its_file_and_the_others_go_on(any_desk: Desk) -> None:
    desk = any_desk
    desk.hold(HELD_FROM)
    consumer(desk)
    server = desk.start("serve")
    doomed = submit(desk, *NOISY)
    wait_until_held(desk, server)
    other = submit(desk, *SQUARES)

    cancelled = desk.overnight("cancel", doomed)

    assert cancelled.status == 0, cancelled
    assert "is cancelled" in cancelled.output
    wait_for_state(desk, other, "done", server)  # in slots that the cancelled job has held for ever
    assert progress(desk, doomed).state.value == "cancelled"
    assert_stops_at_once(server)
    again = desk.start("serve")
    again.wait_until_it_says("serves")
    third = submit(desk, *SQUARES, "--new")
    wait_for_state(desk, third, "done", again)
    assert progress(desk, doomed).state.value == "cancelled"


def test_a_paused_job_stays_paused_over_a_restart_and_goes_on_when_it_is_resumed(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    consumer(desk)
    server = desk.start("serve")
    job = submit(desk, "counted:noisy", "--data", "range:100", "--batch", "1")  # more than a first window
    wait_until_held(desk, server)

    paused = desk.overnight("pause", job)
    assert "pause granted" in paused.output, paused
    assert progress(desk, job).state.value == "paused"
    desk.let_go()
    server.wait_until_it_says("paused: paused by request")  # what was out has been read
    assert_stops_at_once(server)
    second = desk.start("serve")
    other = submit(desk, *SQUARES)
    wait_for_state(desk, other, "done", second)
    assert progress(desk, job).state.value == "paused"

    resumed = desk.overnight("resume", job)

    assert resumed.status == 0, resumed
    assert "goes on under `overnight serve`" in resumed.output
    wait_for_state(desk, job, "done", second)
    assert set(desk.calls().values()) == {1}


def test_a_job_whose_data_has_changed_is_paused_with_the_reason_and_stops_no_other(desk: Desk) -> None:
    np.save(desk.folder / "points.npy", np.arange(6.0))
    broken = submit(desk, "counted:square", "--data", "points.npy")
    np.save(desk.folder / "points.npy", np.arange(7.0))
    good = submit(desk, *SQUARES)
    consumer(desk)
    server = desk.start("serve")

    wait_for_state(desk, good, "done", server)
    wait_for_state(desk, broken, "paused", server)
    assert "points.npy is not what it was" in progress(desk, broken).why
    assert "points.npy is not what it was" in server.output


def test_a_damaged_job_file_is_named_once_and_stops_no_other(desk: Desk) -> None:
    damaged = job_path(desk.home, "damaged")
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"no database" * 1000)
    consumer(desk)
    server = desk.start("serve")
    server.wait_until_it_says("job damaged cannot be read")
    good = submit(desk, *SQUARES)

    wait_for_state(desk, good, "done", server)
    assert server.output.count("job damaged cannot be read") == 1


def test_a_job_that_another_process_drives_is_left_alone_until_that_is_gone(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    consumer(desk)
    job = submit(desk, *NOISY)
    runner = desk.start("resume", job, "--slots", "0")
    wait_until_held(desk, runner)
    server = desk.start("serve")
    other = submit(desk, *SQUARES, "--queue", "other")
    server.wait_until_it_says(f"job {other}: is driven")
    assert f"job {job}: is driven" not in server.output
    again = desk.overnight("submit", *NOISY)
    assert "is being driven" in again.output
    assert again.output.split()[-1] == job

    runner.kill()
    server.wait_until_it_says(f"job {job}: is driven")
    desk.let_go()

    wait_for_state(desk, job, "done", server)
    assert set(desk.calls().values()) == {1}


def test_jobs_over_the_limit_wait_in_line_and_may_be_paused_and_cancelled_there(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    consumer(desk)
    server = desk.start("serve", "--jobs", "1")
    first = submit(desk, *NOISY)
    server.wait_until_it_says(f"job {first}: is driven")
    squares = submit(desk, *SQUARES)
    paused = submit(desk, *SQUARES, "--seed", "1")
    cancelled = submit(desk, *SQUARES, "--seed", "2")
    server.wait_until_it_says(f"job {cancelled} waits in line")
    assert "before its turn" in desk.overnight("pause", paused).output
    assert "is cancelled" in desk.overnight("cancel", cancelled).output
    assert f"job {squares}: is driven" not in server.output

    desk.let_go()

    wait_for_state(desk, squares, "done", server)
    output = server.output
    assert output.index(f"job {first}: {POINTS} of") < output.index(f"job {squares}: is driven")
    assert progress(desk, paused).state.value == "paused"
    assert progress(desk, cancelled).state.value == "cancelled"


def test_given_up_points_are_tried_again_by_the_service(desk: Desk) -> None:
    desk.write("moody.py", "def moody(batch):\n    raise ValueError('bad mood')\n")
    consumer(desk, 1, "moody:moody")
    server = desk.start("serve")
    job = submit(desk, "moody:moody", "--data", "range:3", "--output", "out.npy")
    wait_for_state(desk, job, "done", server)
    assert progress(desk, job).given_up == 3
    desk.write("moody.py", "def moody(batch):\n    return batch + 1\n")

    refused = desk.overnight("retry", job)
    assert refused.status == 2, refused
    retried = desk.overnight("retry", job, "--accept-changes")

    assert retried.status == 0, retried
    server.wait_until(lambda: progress(desk, job).done == 3)
    wait_for_state(desk, job, "done", server)
    assert np.array_equal(desk.results("out.npy"), [1, 2, 3])


def test_one_service_for_a_home_is_enough(desk: Desk) -> None:
    server = desk.start("serve")
    server.wait_until_it_says("serves")

    second = desk.overnight("serve")

    assert second.status == 2
    assert f"process {server.pid} serves" in second.output


def test_a_service_without_its_broker_ends_with_three(desk: Desk) -> None:
    url = "amqp://guest:secret@127.0.0.1:1"
    ended = desk.overnight("serve", "--broker", url, "--broker-timeout", "0.5")
    assert ended.status == 3
    assert "secret" not in ended.output


def test_a_job_for_another_kind_of_broker_is_paused_with_the_way_out(desk: Desk) -> None:
    job = submit(desk, *SQUARES, "--broker", "amqp://guest:secret@127.0.0.1:1")
    server = desk.start("serve")
    wait_for_state(desk, job, "paused", server)
    assert "submit it again with the same --broker" in server.output
    assert "secret" not in server.output


def test_a_second_job_has_its_first_result_soon_although_the_first_is_long(any_desk: Desk) -> None:
    desk = any_desk
    desk.write(
        "slow.py", "import time\ndef slow(batch):\n    time.sleep(0.04 * len(batch))\n    return batch\n"
    )
    consumer(desk, 2, "slow:slow")
    server = desk.start("serve", "--window-seconds", "3")
    long = submit(desk, "slow:slow", "--data", "range:5000", "--batch", "1")
    server.wait_until(lambda: progress(desk, long).done >= 40)
    desk.overnight("window", "150", long)  # alone it keeps less, but it may keep so much
    server.wait_until(lambda: progress(desk, long).published > 140)
    desk.overnight("window", "auto", long)

    short = submit(desk, "slow:slow", "--data", "range:20", "--batch", "1", "--seed", "1")
    server.wait_until(lambda: progress(desk, short).done > 0, seconds=3 + 5)
    server.wait_until(lambda: progress(desk, short).state.value == "done", seconds=15)
    assert progress(desk, long).done < 2000


def test_a_second_digits_job_has_its_first_result_within_fifteen_seconds(any_desk: Desk) -> None:
    desk = any_desk
    digits = ("shapley", "--data", str(DIGITS))
    consumer(desk, 2, "shapley")
    server = desk.start("serve")
    first = submit(desk, *digits)
    # By then tasks have their full size, and the window holds as much as it ever does.
    server.wait_until(lambda: progress(desk, first).done >= 300, seconds=180)

    second = submit(desk, *digits, "--seed", "1")
    before, submitted = progress(desk, first), time.monotonic()
    server.wait_until(lambda: progress(desk, second).done > 0, seconds=90)

    seconds, after = time.monotonic() - submitted, progress(desk, first)
    # Tasks are made to take 2 s; where others want the cores too, they take longer, and so does the wait.
    each = (after.seconds - before.seconds) / max(after.tasks_done - before.tasks_done, 1)
    print(f"the first result came after {seconds:.1f} s, with tasks of {each:.1f} s before it")
    assert seconds <= 15 * max(each / 2, 1)
    assert after.state.value == "running"


def test_one_page_of_figures_shows_all_jobs_while_they_are_driven(desk: Desk) -> None:
    desk.hold(HELD_FROM)
    consumer(desk)
    server = desk.start("serve", "--metrics-port", "0")
    jobs = [submit(desk, *NOISY, "--seed", str(seed)) for seed in range(2)]
    for job in jobs:
        server.wait_until_it_says(f"job {job}: is driven")
    server.wait_until(lambda: scrape(base_of(server)).by("job_out_tasks", "job_id").keys() == set(jobs))
    assert scrape(base_of(server)).get("driver_jobs") == 2
    server.wait_until(lambda: scrape(base_of(server)).by("service_jobs", "state") == {"driven": 2})
    desk.let_go()
    for job in jobs:
        wait_for_state(desk, job, "done", server)
    server.wait_until(lambda: scrape(base_of(server)).get("driver_jobs") == 0)
    server.wait_until(lambda: scrape(base_of(server)).by("service_jobs", "state") == {"done": 2})
    assert scrape(base_of(server)).get("driver_points_done_total") == 2 * POINTS


@pytest.mark.rabbitmq
def test_all_jobs_share_the_two_connections_of_one_service(
    rabbit_desk: Desk, private_rabbitmq: object
) -> None:
    desk = rabbit_desk
    desk.hold(HELD_FROM)
    server = desk.start("serve")
    jobs = [submit(desk, *NOISY, "--seed", str(seed)) for seed in range(4)]
    for job in jobs:
        server.wait_until_it_says(f"job {job}: is driven")
    server.wait_until(lambda: all(progress(desk, job).published for job in jobs))

    links = [str(link.readlink()) for link in Path(f"/proc/{server.pid}/fd").iterdir()]
    sockets = {link[len("socket:[") : -1] for link in links if link.startswith("socket:")}
    with open(f"/proc/{server.pid}/net/tcp") as table:
        lines = [line.split() for line in table][1:]
    assert len([line for line in lines if line[9] in sockets]) == 2
