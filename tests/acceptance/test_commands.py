"""A command is given its range on standard input, and its exit status is really read."""

from __future__ import annotations

import json

import numpy as np

from support.command_line import Desk

STORY = """#!/bin/sh
IFS=, read -r start count
echo "$CONSUMER_WORKER $start $count" >> "$HERE/ranges"
[ "$start" = 20 ] && { echo "cannot do $start" >&2; exit 3; }
i=$start
while [ "$i" -lt "$((start + count))" ]; do
    echo "result $i" > "$HERE/saved-$i"
    i=$((i + 1))
done
"""


def story(desk: Desk) -> str:
    script = desk.write("job.sh", STORY.replace("$HERE", str(desk.folder)))
    script.chmod(0o755)
    return "./job.sh"


def test_the_storys_own_script_saves_its_results_and_fails_for_one_range(any_desk: Desk) -> None:
    desk = any_desk
    command = story(desk)
    if desk.broker is not None:
        desk.consumer("--command", command, "--slots", "2")

    ended = desk.overnight(
        *("run", "--command", command, "--data", "range:43", "--batch", "5", "--attempts", "1"),
        *(("--slots", "2") if desk.broker is None else ()),
    )

    assert ended.status == 1, ended
    assert "42 of 43 points done, 1 given up" in ended.output
    assert "cannot do 20" in desk.overnight("failures", "--full").output
    saved = {int(path.name.removeprefix("saved-")) for path in desk.folder.glob("saved-*")}
    assert saved == set(range(43)) - {20}
    lines = [line.split() for line in (desk.folder / "ranges").read_text().splitlines()]
    assert {worker for worker, _, _ in lines} <= {"1", "2"}
    assert ("40", "3") in {(start, count) for _, start, count in lines}


def test_the_storys_own_script_completes_on_retry_once_it_is_mended(desk: Desk) -> None:
    command = story(desk)
    run = ("run", "--command", command, "--data", "range:43", "--batch", "5", "--attempts", "1")
    assert desk.overnight(*run).status == 1
    script = desk.folder / "job.sh"
    script.write_text(script.read_text().replace('[ "$start" = 20 ]', "false"))

    assert desk.overnight("retry").status == 2
    ended = desk.overnight("retry", "--accept-changes")

    assert ended.status == 0, ended
    assert (desk.folder / "saved-20").exists()


def test_a_command_that_prints_a_line_a_point_gives_results(desk: Desk) -> None:
    desk.write(
        "lines.py",
        "import json\n"
        "start, count = map(int, input().split(','))\n"
        "for i in range(start, start + count): print(json.dumps({'point': i, 'half': i / 2}))\n",
    )

    ended = desk.overnight(
        *(
            "run",
            "--command",
            "python3 lines.py",
            "--data",
            "range:20",
            "--batch",
            "6",
            "--output",
            "out.jsonl",
        )
    )

    assert ended.status == 0, ended
    lines = (desk.folder / "out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"point": i, "half": i / 2} for i in range(20)]


def test_a_command_reads_its_batch_and_writes_arrays_through_files(desk: Desk) -> None:
    rng = np.random.default_rng(1)
    points = rng.standard_normal((17, 3))
    np.save(desk.folder / "points.npy", points)
    desk.write(
        "halve.py",
        "import os, numpy as np\n"
        "batch = np.load(os.environ['OVERNIGHT_INPUT'])\n"
        "assert len(batch) == int(os.environ['OVERNIGHT_COUNT'])\n"
        "np.save(os.environ['OVERNIGHT_OUTPUT'], batch / 2)\n"
        "print('this is only log')\n",
    )

    ended = desk.overnight(
        *(
            "run",
            "--command",
            "python3 halve.py",
            "--data",
            "points.npy",
            "--batch",
            "5",
            "--output",
            "out.npy",
        )
    )

    assert ended.status == 0, ended
    assert desk.results().tobytes() == (points / 2).tobytes()


def test_text_on_standard_output_becomes_text_results(desk: Desk) -> None:
    desk.write("points.txt", "alpha\nbeta\n日本語\n")

    ended = desk.overnight(
        *(
            "run",
            "--command",
            "tr a-z A-Z < $OVERNIGHT_INPUT",
            "--data",
            "points.txt",
            "--output",
            "out.jsonl",
        )
    )

    assert ended.status == 0, ended
    assert [json.loads(line) for line in (desk.folder / "out.jsonl").read_text().splitlines()] == [
        "ALPHA",
        "BETA",
        "日本語",
    ]
