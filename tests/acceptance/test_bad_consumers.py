"""A consumer that cannot do the tasks of a job is named, and another does the whole job."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from support.command_line import Desk, noise

if TYPE_CHECKING:
    from pathlib import Path

POINTS = 30
RUN = ("run", "counted:noisy", "--batch", "3", "--output", "out.npy", "--slots", "0", "--queue", "default")
CONSUMER = ("--methods", "counted:noisy", "--slots", "1", "--name")


def elsewhere(desk: Desk, module_text: str) -> Path:
    """Make another machine's folder, where the module is not the same."""
    folder = desk.folder / "elsewhere"
    folder.mkdir()
    (folder / "counted.py").write_text(module_text)
    return folder


def assert_good_did_all_and_bad_is_named(desk: Desk, output: str, cause: str) -> None:
    assert desk.points_done() == list(range(POINTS))
    with desk.job() as job:
        assert job.progress().given_up == 0
        done = {row.name: row.points_done for row in job.consumers() if row.points_done}
        accused = {row.name: row.cause for row in job.consumers() if row.accusations}
    assert done == {"good": POINTS}
    assert accused == {"bad": cause}
    assert "consumer bad cannot do these tasks" in output
    status = desk.overnight("status", desk.jobs()[-1], "--json")
    (bad,) = [row for row in json.loads(status.output)["consumers"] if row["consumer"] == "bad"]
    assert bad["accusations"] >= 1
    assert bad["tasks_done"] == 0
    assert bad["cause"] == cause


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        pytest.param("\n# other code\n", "wrong_fingerprint", id="other-code"),
        pytest.param("\nimport a_package_that_is_not_here\n", "method_unavailable", id="missing-package"),
        pytest.param(
            "\nraise SystemExit('not on this machine')\n", "method_unavailable", id="ends-at-import"
        ),
    ],
)
def test_a_consumer_with_other_or_broken_code_costs_no_point(any_desk: Desk, change: str, cause: str) -> None:
    desk = any_desk
    folder = elsewhere(desk, (desk.folder / "counted.py").read_text() + change)
    driver = desk.start(*RUN, "--data", f"range:{POINTS}")
    desk.consumer(*CONSUMER, "bad", "--source", str(folder))
    driver.wait_until_it_says("consumer bad cannot do these tasks")

    desk.consumer(*CONSUMER, "good")
    ended = driver.wait()

    assert ended.status == 0, ended
    assert desk.results().tobytes() == noise(POINTS).tobytes()
    assert set(desk.calls().values()) == {1}
    assert_good_did_all_and_bad_is_named(desk, ended.output, cause)


@pytest.mark.parametrize("other", [None, "other"])
def test_a_consumer_without_the_data_costs_no_point(any_desk: Desk, other: str | None) -> None:
    desk = any_desk
    points = np.arange(POINTS, dtype=np.int64)
    np.save(desk.folder / "points.npy", points)
    # The same path leads each process into the folder it was started in, as with two machines.
    data = "/proc/self/cwd/points.npy"
    another_machine = desk.folder / "elsewhere"
    another_machine.mkdir()
    if other:
        np.save(another_machine / "points.npy", points + 1)
    shutil.copy(desk.folder / "counted.py", another_machine)
    driver = desk.start(*RUN, "--data", data, "--data-by", "reference")
    desk.consumer(*CONSUMER, "bad", folder=another_machine)
    driver.wait_until_it_says("consumer bad cannot do these tasks")

    desk.consumer(*CONSUMER, "good")
    ended = driver.wait()

    assert ended.status == 0, ended
    assert_good_did_all_and_bad_is_named(desk, ended.output, "data_unavailable")


def test_when_no_consumer_can_do_it_the_job_pauses_and_names_them(desk: Desk) -> None:
    folder = elsewhere(desk, (desk.folder / "counted.py").read_text() + "\n# other code\n")
    driver = desk.start(*RUN, "--data", f"range:{POINTS}", "--no-consumer-timeout", "4")
    desk.consumer(*CONSUMER, "bad", "--source", str(folder))

    ended = driver.wait()

    assert ended.status == 1, ended
    assert "no task was done for 4 s: bad says wrong_fingerprint" in ended.output
    with desk.job() as job:
        assert job.progress().given_up == 0


def test_when_there_is_no_consumer_the_job_says_how_to_start_one(desk: Desk) -> None:
    ended = desk.overnight(*RUN, "--data", f"range:{POINTS}", "--no-consumer-timeout", "5")

    assert ended.status == 1, ended
    assert "overnight-consumer --queue default --methods counted:noisy" in ended.output
    assert "no consumer answers" in ended.output
