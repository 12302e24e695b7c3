"""A broken method costs seconds, a broken point costs one point, and both are named."""

from __future__ import annotations

import numpy as np
import pytest

from support.command_line import Desk


@pytest.mark.parametrize("batch", ["auto", "50"])
def test_a_method_that_always_fails_is_paused_within_seconds(desk: Desk, batch: str) -> None:
    ended = desk.overnight(
        "run", "failing:always", "--data", "range:1797", "--batch", batch, "--output", "out.npy"
    )

    assert ended.status == 1, ended
    assert ended.seconds < 20
    assert "Traceback (most recent call last)" in ended.output
    assert "this never works" in ended.output
    assert f"overnight resume {desk.jobs()[0]}" in ended.output
    assert len(ended.output.splitlines()) < 100
    with desk.job() as job:
        progress = job.progress()
    assert 20 <= progress.given_up <= 60


def test_a_method_of_one_point_called_with_batches_is_told_so_and_completes_when_called_right(
    desk: Desk,
) -> None:
    (desk.folder / "single.py").write_text("def double(point):\n    return float(point) * 2\n")
    words = ("run", "single:double", "--data", "range:200", "--output", "out.npy")

    wrong = desk.overnight(*words)
    assert wrong.status == 1, wrong
    assert "run it again with --per-point" in wrong.output
    assert "waiting for the first result" not in wrong.output.splitlines()[-2]

    right = desk.overnight(*words, "--per-point")
    assert right.status == 0, right
    assert "200 of 200 points done" in right.output
    assert np.array_equal(np.load(desk.folder / "out.npy"), np.arange(200.0) * 2)


def test_max_failures_all_tries_every_point_before_it_gives_up(desk: Desk) -> None:
    ended = desk.overnight(
        "run",
        "failing:always",
        "--data",
        "range:60",
        "--batch",
        "50",
        "--max-failures",
        "all",
        "--attempts",
        "1",
    )

    assert ended.status == 1, ended
    assert "0 of 60 points done, 60 given up" in ended.output
    assert set(desk.calls()) == set(range(60))


def test_one_bad_point_of_500_costs_one_point_and_a_mended_method_completes_it(any_desk: Desk) -> None:
    desk = any_desk
    consumer = ("--methods", "failing:once", "--slots", "2")
    first_consumer = desk.consumer(*consumer) if desk.broker else None

    ended = desk.overnight(
        "run", "failing:once", "--data", "range:500", "--batch", "50", "--output", "out.npz"
    )

    assert ended.status == 1, ended
    assert "499 of 500 points done, 1 given up" in ended.output
    assert "ZeroDivisionError: point 123 divides by nothing" in ended.output
    (job,) = desk.jobs()
    assert f"overnight retry {job}" in ended.output
    with np.load(desk.folder / "out.npz") as out:
        assert (~out["done"]).nonzero()[0].tolist() == [123]
        assert np.isnan(out["results"][123])
        expected = np.arange(500.0) ** 2
        assert np.array_equal(out["results"][out["done"]], np.delete(expected, 123))
    calls_before = desk.calls()
    assert calls_before[123] >= 3

    failures = desk.overnight("failures", job, "--full")
    assert failures.status == 0, failures
    assert "point 123" in failures.output
    assert 'raise ZeroDivisionError("point 123 divides by nothing")' in failures.output

    mend(desk)
    refused = desk.overnight("retry", job)
    assert refused.status == 2, refused
    assert "--accept-changes" in refused.output
    assert desk.calls() == calls_before
    assert "1 point was given up" in desk.overnight("failures", job).output

    if first_consumer is not None:
        assert first_consumer.stop().status == 0
        desk.consumer(*consumer)
    completed = desk.overnight("retry", job, "--accept-changes")

    assert completed.status == 0, completed
    assert desk.calls() - calls_before == {123: 1}
    assert desk.points_done() == list(range(500))
    with np.load(desk.folder / "out.npz") as out:
        assert out["results"].tobytes() == expected.tobytes()
    assert "No point of job" in desk.overnight("failures", job).output


def mend(desk: Desk) -> None:
    module = desk.folder / "failing.py"
    text = module.read_text()
    mended = text.replace("if 123 in indices:", "if False:")
    assert mended != text
    module.write_text(mended)


def test_a_killed_child_costs_its_own_tasks_attempt_and_names_the_signal(desk: Desk) -> None:
    desk.write(
        "deadly.py",
        "import os, signal\n"
        "def square(batch, indices):\n"
        "    if 7 in indices: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return batch * batch\n",
    )

    ended = desk.overnight(
        "run", "deadly:square", "--data", "range:40", "--batch", "4", "--output", "out.jsonl"
    )

    assert ended.status == 1, ended
    assert "39 of 40 points done, 1 given up" in ended.output
    assert "SIGKILL" in ended.output
    lines = (desk.folder / "out.jsonl").read_text().splitlines()
    assert [line for line in range(40) if lines[line] == "null"] == [7]
