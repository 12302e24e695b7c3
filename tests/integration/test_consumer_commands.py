"""The command contract, with real commands."""

import asyncio
import stat
from pathlib import Path

import numpy as np

from overnight_common.fingerprints import command_fingerprint
from overnight_common.messages import Cause
from overnight_common.values import encode_values
from support.farm import Farm, alive, farm_in, mark_in

STORY = """#!/bin/sh
read range
start=${range%,*}
count=${range#*,}
echo "worker $CONSUMER_WORKER does $range" >&2
[ "$start" -eq 6 ] && { echo "no luck with $start" >&2; exit 4; }
echo "$start,$count" >> done.txt
"""
PYTHON = """
import json, os, sys
import numpy as np
start, count = map(int, sys.stdin.readline().split(","))
points = np.load(os.environ["OVERNIGHT_INPUT"])
assert len(points) == count == int(os.environ["OVERNIGHT_COUNT"])
assert start == int(os.environ["OVERNIGHT_START"])
factor = json.loads(os.environ["OVERNIGHT_PARAMS"])["factor"]
print("this is only noise")
np.save(os.environ["OVERNIGHT_OUTPUT"], points * factor + int(os.environ["OVERNIGHT_SEED"]))
"""


def with_command(tmp_path, text, act, **files):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(stat.S_IRWXU)

    async def run():
        async with farm_in(tmp_path) as farm:
            farm.start("--slots", "1", "--command", text, "--source", str(tmp_path))
            await act(farm, f"command:{text}")
            await farm.until_empty()
            assert farm.dead == []

    asyncio.run(run())


def test_the_script_of_the_story_reads_its_range_and_its_exit_status_is_read(tmp_path):
    async def act(farm: Farm, name: str):
        replies = [await farm.run(name, start, 3) for start in (0, 3, 6)]
        assert [reply.kind for reply in replies] == ["done", "done", "failed"]
        assert replies[0].result is None
        assert replies[0].fingerprint == command_fingerprint("./story", tmp_path)
        failure = replies[2].failure
        assert failure is not None
        assert failure.cause is Cause.EXIT_STATUS
        assert "exit status 4" in failure.message
        assert "no luck with 6" in failure.stderr_tail
        assert (tmp_path / "done.txt").read_text().split() == ["0,3", "3,3"]
        assert "worker 1 does 0,3" in replies[0].log_tail
        assert "slot 1: worker 1 does 3,3" in farm.consumers[0].log

    with_command(tmp_path, "./story", act, story=STORY)


def test_a_command_that_writes_its_output_file_has_those_results(tmp_path):
    async def act(farm: Farm, name: str):
        assert await farm.values(name, 5, 3, params={"factor": 10}, seed=1) == [51, 61, 71]
        assert "only noise" in farm.replies[0].log_tail

    with_command(tmp_path, "python job.py", act, **{"job.py": PYTHON})


def test_one_line_for_each_point_on_standard_output_are_the_results(tmp_path):
    async def act(farm: Farm, name: str):
        points = encode_values([{"text": "\N{GREEK SMALL LETTER ALPHA}"}, "plain", None], 3)
        assert await farm.values(name, 0, 3, data=points) == [
            {"text": "\N{GREEK SMALL LETTER ALPHA}"},
            "plain",
            None,
        ]

    with_command(tmp_path, "cat $OVERNIGHT_INPUT", act)


def test_lines_that_are_no_json_are_text(tmp_path):
    async def act(farm: Farm, name: str):
        assert await farm.values(name, 0, 2) == ["one word", 2]

    with_command(tmp_path, "echo 'one word'; echo; echo 2", act)


def test_a_wrong_number_of_results_in_the_file_is_a_bad_result(tmp_path):
    async def act(farm: Farm, name: str):
        failure = (await farm.run(name, 0, 3)).failure
        assert failure is not None
        assert failure.cause is Cause.BAD_RESULT
        assert "1 results for 3 points" in failure.message

    with_command(tmp_path, "echo 5 > $OVERNIGHT_OUTPUT", act)


def test_a_broken_output_file_is_a_bad_result(tmp_path):
    async def act(farm: Farm, name: str):
        failure = (await farm.run(name, 0, 3)).failure
        assert failure is not None
        assert failure.cause is Cause.BAD_RESULT

    with_command(tmp_path, "echo '{' > $OVERNIGHT_OUTPUT", act)


def test_a_time_limit_kills_the_command_and_what_it_started_and_leaves_no_files(tmp_path):
    async def act(farm: Farm, name: str):
        mark = tmp_path / "pids"
        task = farm.publish(name, 0, 1, time_limit_seconds=0.6)
        pids = await mark_in(mark)
        scratch = (tmp_path / "scratch").read_text().strip()
        failure = (await farm.reply_to_task(task)).failure
        assert failure is not None
        assert failure.cause is Cause.TIME_LIMIT
        assert not any(alive(pid) for pid in pids)
        assert not Path(scratch).parent.exists()

    with_command(tmp_path, "sleep 1000 & echo $OVERNIGHT_OUTPUT > scratch; echo $$ $! > pids; wait", act)


def test_what_a_command_leaves_in_the_background_is_ended_with_it(tmp_path):
    async def act(farm: Farm, name: str):
        assert (await farm.run(name, 0, 1)).kind == "done"
        assert not alive((await mark_in(tmp_path / "pid"))[0])

    with_command(tmp_path, "sleep 1000 & echo $! > pid", act)


def test_a_command_that_is_not_there_accuses_the_consumer(tmp_path):
    async def act(farm: Farm, name: str):
        failure = (await farm.run(name, 0, 1)).failure
        assert failure is not None
        assert failure.cause is Cause.METHOD_UNAVAILABLE
        assert "no-such-program" in failure.message
        failure = (await farm.run("command:rm -rf precious", 0, 1)).failure
        assert failure is not None
        assert failure.cause is Cause.METHOD_UNAVAILABLE
        assert "not served" in failure.message

    with_command(tmp_path, "no-such-program", act)


def test_a_command_killed_by_a_signal_is_told_so(tmp_path):
    async def act(farm: Farm, name: str):
        failure = (await farm.run(name, 0, 1)).failure
        assert failure is not None
        assert failure.cause is Cause.KILLED_BY_SIGNAL
        assert "SIGSEGV" in failure.message

    with_command(tmp_path, "kill -SEGV $$", act)


def test_arrays_of_any_shape_reach_the_command_as_they_are(tmp_path):
    async def act(farm: Farm, name: str):
        points = np.arange(12, dtype=">f4").reshape(3, 2, 2)
        assert await farm.values(name, 0, 3, data=encode_values(points, 3)) == points.tolist()

    with_command(tmp_path, "cp $OVERNIGHT_INPUT $OVERNIGHT_OUTPUT.npy", act)
