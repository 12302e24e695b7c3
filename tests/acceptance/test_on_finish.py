"""The command for a job's end sees how the job ended, and changes nothing about it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.command_line import Desk

SQUARES = ("counted:square", "--data", "range:20", "--slots", "1")
NOISY = ("counted:noisy", "--data", "range:20", "--batch", "1", "--slots", "1")  # can be held
TELL = (
    'echo "$OVERNIGHT_JOB $OVERNIGHT_STATE $OVERNIGHT_POINTS_DONE'
    ' $OVERNIGHT_POINTS_GIVEN_UP $OVERNIGHT_OUTPUT" >> told'
)


def told(desk: Desk) -> list[list[str]]:
    path = desk.folder / "told"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_it_is_told_of_a_job_that_is_done_after_the_results_were_written(desk: Desk) -> None:
    done = desk.overnight("run", *SQUARES, "--output", "out.npy", "--on-finish", f"test -s out.npy && {TELL}")

    assert done.status == 0, done
    (job,) = desk.jobs()
    assert told(desk) == [[job, "done", "20", "0", str(desk.folder / "out.npy")]]
    assert desk.overnight("run", *SQUARES).status == 0
    assert len(told(desk)) == 1  # nothing ended, for nothing was to be done


def test_it_is_told_of_given_up_points_and_of_a_job_that_pauses_for_them(desk: Desk) -> None:
    desk.write("broken.py", "def broken(batch):\n    raise ValueError('no')\n")
    run = ("run", "broken:broken", "--slots", "1", "--on-finish", TELL, "--data")
    few = desk.overnight(*run, "range:3")
    assert few.status == 1, few
    many = desk.overnight(*run, "range:500", "--batch", "1", "--attempts", "1")
    assert many.status == 1, many

    assert [line[1:4] for line in told(desk)] == [["done", "0", "3"], ["paused", "0", told(desk)[1][3]]]
    assert int(told(desk)[1][3]) >= 20


def test_it_is_not_told_of_an_interruption_but_of_a_cancel(desk: Desk) -> None:
    desk.hold(5)
    first = desk.start("run", *NOISY, "--on-finish", TELL)
    first.wait_until(lambda: desk.noted("held"))
    assert first.stop(signal.SIGINT).status == 130
    assert told(desk) == []

    again = desk.start("resume", "--slots", "1")
    again.wait_until(lambda: "is cancelled" in desk.overnight("cancel").output)
    assert again.wait().status == 4
    assert [line[1] for line in told(desk)] == ["cancelled"]


def test_its_failure_is_said_and_the_exit_status_is_that_of_the_job(desk: Desk) -> None:
    done = desk.overnight("run", *SQUARES, "--on-finish", "echo it broke >&2; exit 7")

    assert done.status == 0, done
    assert "it broke" in done.output
    assert "--on-finish ended with status 7" in done.output


def test_resume_may_bring_another_one(desk: Desk) -> None:
    desk.hold(5)
    run = desk.start("run", *NOISY, "--on-finish", "echo wrong > wrong")
    run.wait_until(lambda: desk.noted("held"))
    run.stop(signal.SIGINT)
    desk.let_go()

    done = desk.overnight("resume", "--slots", "1", "--on-finish", TELL)

    assert done.status == 0, done
    assert [line[1] for line in told(desk)] == ["done"]
    assert not (desk.folder / "wrong").exists()


def test_its_output_does_not_mix_with_json(desk: Desk) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "overnight_producer", "run"),
            *SQUARES,
            "--json",
            "--on-finish",
            "echo hello",
        ],
        cwd=desk.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()][-1] == "end"
    assert "hello" in done.stderr


def test_the_service_runs_it_too_and_goes_on(desk: Desk) -> None:
    desk.consumer("--methods", "counted:square", "--slots", "1")
    server = desk.start("serve")
    for seed in ("1", "2"):
        desk.overnight("submit", *SQUARES[:3], "--seed", seed, "--on-finish", f"{TELL}; exit 3")
    server.wait_until(lambda: len(told(desk)) == 2)
    assert {line[1] for line in told(desk)} == {"done"}
    server.wait_until(lambda: server.output.count("--on-finish ended with status 3") == 2)
    assert server.stop().status == 0


def test_a_stop_of_the_service_ends_one_that_takes_long(desk: Desk) -> None:
    desk.consumer("--methods", "counted:square", "--slots", "1")
    server = desk.start("serve")
    desk.overnight("submit", *SQUARES[:3], "--on-finish", f"{TELL}; sleep 600")
    server.wait_until(lambda: told(desk))

    server.process.send_signal(signal.SIGTERM)
    ended = server.wait(seconds=15)

    assert ended.status == 0, ended
    assert "--on-finish was killed" in ended.output
