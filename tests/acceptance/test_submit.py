"""`submit` checks as `run` does, leaves a job behind, and finds the one that is there already."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from overnight_producer.jobs.home import job_path
from overnight_producer.jobs.jobfile import JobFile

if TYPE_CHECKING:
    from support.command_line import Desk

SQUARES = ("counted:square", "--data", "range:20")
NOISY = ("counted:noisy", "--data", "range:20", "--batch", "1")  # can be held


def submitted(desk: Desk, *arguments: str) -> tuple[str, str]:
    """Return the two streams of a `submit` that succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", "overnight_producer", "submit", *arguments],
        cwd=desk.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout, done.stderr


def spec_of(desk: Desk, job: str):
    with JobFile.open(job_path(desk.home, job)) as opened:
        return opened.spec


def test_it_prints_the_id_alone_and_says_on_the_other_stream_that_nobody_serves(desk: Desk) -> None:
    out, err = submitted(desk, *SQUARES, "--output", "out.npy", "--on-finish", "true")

    job = out.strip()
    assert desk.jobs() == [job]
    assert "nobody serves" in err
    spec = spec_of(desk, job)
    assert spec.submitted
    assert spec.queue == "default"
    assert spec.on_finish == "true"
    assert spec.output == str(desk.folder / "out.npy")


def test_the_same_job_again_is_the_earlier_one(desk: Desk) -> None:
    first, _ = submitted(desk, *SQUARES)
    again, said = submitted(desk, *SQUARES)
    afresh, _ = submitted(desk, *SQUARES, "--new")

    assert again == first
    assert "waits already" in said
    assert afresh != first
    assert len(desk.jobs()) == 2


def test_a_job_that_is_done_is_found_and_not_done_again(desk: Desk) -> None:
    assert desk.overnight("run", *SQUARES, "--slots", "1").status == 0
    (job,) = desk.jobs()

    out, said = submitted(desk, *SQUARES)

    assert out.strip() == job
    assert "is done: 20 of 20 points done" in said


def test_bad_input_is_refused_and_leaves_nothing(desk: Desk) -> None:
    refused = desk.overnight("submit", "counted:square", "--data", "nowhere.npy", "--batch", "-1")

    assert refused.status == 2, refused
    assert "nowhere.npy" in refused.output
    assert "--batch -1" in refused.output
    assert desk.jobs() == []


def test_changed_code_is_refused_unless_it_is_wanted(desk: Desk) -> None:
    first, _ = submitted(desk, *SQUARES)
    desk.write("counted.py", (desk.folder / "counted.py").read_text() + "\nMORE = 1\n")

    refused = desk.overnight("submit", *SQUARES)
    assert refused.status == 2, refused
    assert "--accept-changes" in refused.output
    accepted, _ = submitted(desk, *SQUARES, "--accept-changes")
    assert accepted == first


def test_a_cancelled_job_stays_so(desk: Desk) -> None:
    job = submitted(desk, *SQUARES)[0].strip()
    assert "is cancelled" in desk.overnight("cancel", job).output

    refused = desk.overnight("submit", *SQUARES)

    assert refused.status == 2, refused
    assert "was cancelled and stays so" in refused.output


def test_no_broker_is_needed_to_submit(desk: Desk) -> None:
    out, err = submitted(desk, *SQUARES, "--broker", "amqp://guest:secret@127.0.0.1:1")
    assert "secret" not in err
    spec = spec_of(desk, out.strip())
    assert spec.data_by == "value"
    assert "secret" not in spec.to_json()


@pytest.mark.parametrize("status", ["running", "paused"])
def test_an_interrupted_run_is_given_to_the_service(desk: Desk, status: str) -> None:
    desk.hold(5)
    runner = desk.start("run", *NOISY, "--slots", "1")
    runner.wait_until(lambda: desk.noted("held"))
    if status == "paused":
        desk.overnight("pause")
    runner.stop()
    (job,) = desk.jobs()

    out, said = submitted(desk, *NOISY)

    assert out.strip() == job
    spec = spec_of(desk, job)
    assert (spec.submitted, spec.queue) == (True, "default")
    assert ("overnight resume" in said) == (status == "paused")
