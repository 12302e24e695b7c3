"""Kill a real process while it writes, again and again, and look for half a cycle."""

import random
import subprocess
import sys
import time

import pytest

from overnight_common.values import decode_values
from overnight_producer.jobs.jobfile import JobFile
from support.job_files import new_job

POINTS_PER_CYCLE = 7
POINTS = 70_000

# Each cycle cuts, publishes, fails and fills seven points; some are large, so that a cycle takes many writes.
WRITER = f"""
import sys
from dataclasses import replace
from pathlib import Path
from overnight_common.messages import Cause, Failure
from overnight_common.values import encode_values
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.ranges import Range, RangeState, published

with JobFile.open(Path(sys.argv[1]), driving=True) as job, job.lock():
    print("writing", flush=True)
    while job.cursor < {POINTS}:
        first = job.cursor
        with job.commit() as tx:
            for each in (Range(at, at + 1) for at in range(first, first + {POINTS_PER_CYCLE})):
                tx.cut([each])
                tx.put(published(each))
                if each.start % {POINTS_PER_CYCLE} == 0:
                    tx.add_failure(each, Failure(cause=Cause.EXCEPTION, message=str(each.start)))
                    tx.put(replace(each, state=RangeState.GIVEN_UP))
                else:
                    value = [each.start, "x" * (200_000 if each.start % 5 == 0 else 10)]
                    tx.add_result(each.start, each.stop, encode_values([value], 1), 1.0, "c", 1, 1.0)
                    tx.settle(each.start, each.stop)
            tx.count("cycle")
        print(first, flush=True)
"""


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_writer_leaves_whole_cycles_only_and_loses_none_that_it_saw_committed(tmp_path, seed):
    chance = random.Random(seed)
    new_job(tmp_path, POINTS).close()
    path = tmp_path / "job.sqlite"
    seen_committed = -POINTS_PER_CYCLE
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout.readline() == "writing\n"
            for _ in range(chance.randrange(1, 20)):
                seen_committed = int(writer.stdout.readline())
            time.sleep(chance.random() * 0.005)  # not to wait: to hit another instruction each time
            writer.kill()
            for line in writer.stdout:
                seen_committed = int(line) if line.endswith("\n") else seen_committed
        with JobFile.open(path, driving=True) as job, job.lock():
            check_whole(job, seen_committed)


def check_whole(job, seen_committed):
    cycles = job.dropped()["cycle"]
    now = job.progress()
    assert job.cursor == cycles * POINTS_PER_CYCLE > seen_committed
    assert now.done == now.tasks_done == cycles * (POINTS_PER_CYCLE - 1)
    assert now.given_up == cycles == len(job.failures())
    assert now.published == now.running == 0
    assert now.waiting == POINTS - job.cursor
    expected = [point for point in range(job.cursor) if point % POINTS_PER_CYCLE]
    assert [decode_values(row.encoded)[0][0] for row in job.results()] == expected
    assert [each.start for each, _ in job.given_up()] == list(range(0, job.cursor, POINTS_PER_CYCLE))
    (health,) = job._connection.execute("PRAGMA integrity_check").fetchone()
    assert health == "ok"
