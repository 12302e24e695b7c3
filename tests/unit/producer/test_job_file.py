import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight_common.messages import Cause, Failure
from overnight_common.values import decode_values, encode_values
from overnight_producer.jobs.jobfile import JobFile, JobFileError
from overnight_producer.jobs.jobspec import JobSpec
from overnight_producer.jobs.lock import JobBusyError, driver_of
from overnight_producer.jobs.ranges import Range, RangeState, Split, apply, published
from overnight_producer.jobs.records import JobState
from support.job_files import add, cut, new_job, spec_of


@pytest.fixture
def job(tmp_path):
    with new_job(tmp_path, 20) as opened:
        yield opened


def results_of(job):
    found = {}
    for row in job.results():
        values = [None] * (row.stop - row.start) if row.encoded is None else decode_values(row.encoded)
        assert len(values) == row.stop - row.start
        found |= {row.start + i: value for i, value in enumerate(values)}
    return found


def failure(message="broken"):
    return Failure(cause=Cause.EXCEPTION, type="ValueError", message=message, traceback="line 1")


# The job itself


def test_a_job_comes_back_as_it_was_made(tmp_path):
    spec = spec_of(
        7,
        params={"größe": 2**70, "rate": 0.1, "names": ["a", None, True]},
        seed=2**63,
        start=2,
        stop=5,
        batch=3,
        time_limit_seconds=1.5,
        max_failures=None,
        source="/a/folder \udcff",
        command="sh job.sh",
    )
    with JobFile.create(tmp_path / "job.sqlite", spec) as job:
        assert job.spec == spec
        assert job.cursor == 2
    with JobFile.open(tmp_path / "job.sqlite") as again:
        assert again.spec == spec


def test_a_spec_of_a_later_minor_version_with_more_fields_is_read():
    text = json.dumps(json.loads(spec_of(3).to_json()) | {"colour": "blue"})
    assert JobSpec.from_json(text).stop == 3


def test_epoch_fingerprint_and_batch_can_change_but_never_the_points(job):
    spec = job.spec
    with job.commit() as tx:
        tx.set_epoch(2)
        tx.set_fingerprint("code")
    assert (job.spec.epoch, job.spec.fingerprint) == (2, "code")
    with pytest.raises(ValueError, match="another job"), job.commit() as tx:
        tx.set_spec(spec_of(21, id=spec.id))
    assert job.spec.stop == 20


def test_a_second_job_never_overwrites_a_job_file(job):
    with pytest.raises(JobFileError, match="exists already"):
        JobFile.create(job.path, spec_of(3))
    assert job.spec.stop == 20


def test_the_state_is_kept_with_the_reason(job):
    with job.commit() as tx:
        tx.set_state(JobState.PAUSED, "20 points failed \ud800")
    assert job.progress().state is JobState.PAUSED
    assert job.progress().why == "20 points failed \\ud800"


# Results


def test_a_result_fills_its_points_once(job):
    assert add(job, 3, [1, 2, 3]) == 3
    assert add(job, 3, [7, 8, 9]) == 0
    assert results_of(job) == {3: 1, 4: 2, 5: 3}
    assert job.progress().done == 3
    assert job.progress().tasks_done == 1


def test_a_result_fills_only_the_points_that_have_none(job):
    add(job, 4, [4])
    add(job, 7, [7, 8])
    assert add(job, 2, [-2, -3, -4, -5, -6, -7, -8, -9]) == 5
    assert results_of(job) == {2: -2, 3: -3, 4: 4, 5: -5, 6: -6, 7: 7, 8: 8, 9: -9}
    with job.commit() as tx:
        assert tx.gaps(2, 10) == []
        assert tx.gaps(1, 10) == [(1, 2)]
        assert tx.gaps(0, 20) == [(0, 2), (10, 20)]


def test_points_can_be_done_without_a_value(job):
    assert add(job, 0, None, stop=20) == 20
    assert job.progress().finished
    assert [(row.start, row.stop, row.encoded) for row in job.results()] == [(0, 20, None)]


def test_a_probe_has_no_points_and_fills_none(job):
    with job.commit() as tx:
        assert tx.add_result(5, 5, None, 0.0, "c", 0, 1.0) == 0
    assert job.progress().tasks_done == 0


def test_a_result_of_one_array_is_sliced_like_the_list(job):
    import numpy as np

    add(job, 1, np.array([[1.0, 2.0]]))
    assert add(job, 0, np.arange(6.0).reshape(3, 2)) == 2
    kept = {point: value.tolist() for point, value in results_of(job).items()}
    assert kept == {0: [0.0, 1.0], 1: [1.0, 2.0], 2: [4.0, 5.0]}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 20)), max_size=12))
def test_whatever_results_come_the_first_of_each_point_is_kept(tmp_path_factory, ranges):
    expected = {}
    with new_job(tmp_path_factory.mktemp("job"), 20) as job:
        for number, (start, length) in enumerate(ranges):
            stop = min(start + length, 20)
            new = [point for point in range(start, stop) if point not in expected]
            expected |= {point: [number, point] for point in new}
            assert add(job, start, [[number, point] for point in range(start, stop)]) == len(new)
        assert results_of(job) == expected
        assert job.progress().done == len(expected)
        with job.commit() as tx:
            for first in range(20):
                missing = {point for start, stop in tx.gaps(first, 20) for point in range(start, stop)}
                assert missing == set(range(first, 20)) - set(expected)
    rows = sorted(results_of(job))
    assert rows == sorted(set(rows))


def test_progress_counts_points_by_where_they_are(job):
    ranges = list(cut(0, 12, 3))
    with job.commit() as tx:
        tx.cut(ranges)
        tx.put(published(ranges[1]))
        tx.put(Range(6, 9, RangeState.RUNNING, attempt=1))
        tx.remove(ranges[3])
        tx.add_result(9, 12, encode_values([1, 2, 3], 3), 2.0, "c", 1, 50.0)
    now = job.progress()
    assert (now.total, now.done, now.waiting, now.published, now.running) == (20, 3, 8 + 3, 3, 3)
    assert (now.first_result_at, now.last_result_at, now.seconds) == (50.0, 50.0, 2.0)
    assert not now.finished
    assert job.cursor == 12
    assert [each.start for each in job.ranges()] == [0, 3, 6]


def test_the_clock_set_back_never_moves_the_last_result_back(job):
    with job.commit() as tx:
        tx.add_result(0, 1, None, 1.0, "c", 1, 100.0)
    with job.commit() as tx:
        tx.add_result(1, 2, None, 1.0, "c", 1, 40.0)
    assert (job.progress().first_result_at, job.progress().last_result_at) == (100.0, 100.0)


# Ranges


def test_a_range_is_kept_with_all_it_knows(job):
    known = Range(3, 5, RangeState.WAITING, 4, 1, True, Cause.TIME_LIMIT)
    with job.commit() as tx:
        tx.put(known)
    assert job.ranges() == [known]


def test_a_late_result_of_a_split_range_settles_its_halves(job):
    whole = Range(0, 4, RangeState.RUNNING, attempt=2, charged=1)
    left, right = Range(0, 2, half=True), Range(2, 4, half=True)
    with job.commit() as tx:
        tx.cut([whole, Range(4, 6)])
        assert tx.replace(whole, apply(whole, Split(left, right))) == [left, right]
    with job.commit() as tx:
        tx.add_result(0, 4, encode_values([0, 1, 2, 3], 4), 1.0, "c", 1, 1.0)
        assert [(each.start, each.stop) for each in tx.settle(0, 4)] == [(0, 2), (2, 4)]
    assert job.ranges() == [Range(4, 6)]


def test_a_half_that_is_done_already_is_not_put_back(job):
    whole = Range(0, 4, RangeState.RUNNING, attempt=1)
    with job.commit() as tx:
        tx.cut([whole])
        tx.add_result(0, 2, None, 1.0, "c", 1, 1.0)
        kept = tx.replace(whole, [Range(0, 2, half=True), Range(2, 4, half=True)])
    assert kept == job.ranges() == [Range(2, 4, half=True)]


def test_a_partly_done_range_stays(job):
    with job.commit() as tx:
        tx.cut([Range(0, 4)])
        tx.add_result(3, 5, None, 1.0, "c", 1, 1.0)
        assert tx.settle(3, 5) == []
    assert job.ranges() == [Range(0, 4)]


def test_a_giving_up_is_listed_with_its_last_failure_until_a_result_lifts_it(job):
    point = Range(5, 6, RangeState.RUNNING, attempt=3, charged=2)
    with job.commit() as tx:
        tx.cut([point])
        tx.add_failure(point, failure("first"))
        tx.add_failure(point, failure("last"), consumer="c", slot=2, seconds=1.5, peak_rss_bytes=10, at=7.0)
        for _ in range(2):
            tx.put(replace(point, state=RangeState.GIVEN_UP))
    assert job.progress().given_up == 1
    assert job.ranges() == []
    ((given_up, why),) = job.given_up()
    assert (given_up.start, given_up.state) == (5, RangeState.GIVEN_UP)
    assert why == job.failures(limit=1)[0]
    assert (why.failure.message, why.consumer, why.slot, why.at) == ("last", "c", 2, 7.0)
    with job.commit() as tx:
        tx.add_result(5, 6, None, 1.0, "c", 1, 1.0)
        assert tx.settle(5, 6) == [given_up]
    assert job.progress().given_up == 0
    assert job.given_up() == []
    assert [each.failure.message for each in job.failures()] == ["last", "first"]


def test_a_retry_lifts_a_giving_up_and_goes_on_counting_attempts(job):
    point = Range(5, 6, RangeState.GIVEN_UP, attempt=3, charged=3)
    with job.commit() as tx:
        tx.put(point)
    with job.commit() as tx:
        lifted = tx.lift(point)
    assert job.ranges() == [lifted]
    assert (lifted.attempt, lifted.charged, lifted.state) == (3, 0, RangeState.WAITING)
    assert job.progress().given_up == 0


def test_a_very_long_traceback_keeps_its_end(job):
    with job.commit() as tx:
        tx.add_failure(Range(0, 1), Failure(cause=Cause.EXCEPTION, traceback="x" * 50_000 + "the end"))
    (kept,) = job.failures()
    assert kept.failure.traceback.endswith("the end")
    assert len(kept.failure.traceback) < 20_000
    assert "34007 characters left out" in kept.failure.traceback


def test_consumers_are_known_by_what_they_did_and_what_is_wrong_with_them(job):
    with job.commit() as tx:
        tx.add_result(0, 3, None, 1.0, "good", 1, 10.0)
        tx.add_result(3, 4, None, 1.0, "good", 2, 11.0)
        tx.accuse("bad", Failure(cause=Cause.METHOD_UNAVAILABLE, message="no torch"), at=12.0)
        tx.accuse("bad", Failure(cause=Cause.DATA_UNAVAILABLE, message="no disk"), at=13.0)
        tx.saw("quiet", at=14.0)
    bad, good, quiet = job.consumers()
    assert (good.name, good.tasks_done, good.points_done, good.last_seen) == ("good", 2, 4, 11.0)
    assert (bad.accusations, bad.cause, bad.message, bad.tasks_done) == (2, "data_unavailable", "no disk", 0)
    assert (quiet.last_seen, quiet.accusations) == (14.0, 0)


def test_dropped_replies_are_counted_by_reason(job):
    with job.commit() as tx:
        tx.count("stale_attempt")
        tx.count("stale_attempt")
        tx.count("unknown_range")
    assert job.dropped() == {"stale_attempt": 2, "unknown_range": 1}


# Transactions


def test_a_cycle_that_fails_changes_nothing(job):
    def fail_in_the_middle():
        with job.commit() as tx:
            tx.cut([Range(0, 4)])
            tx.add_result(1, 3, None, 1.0, "c", 1, 1.0)
            tx.count("x")
            raise RuntimeError("in the middle")

    add(job, 0, [1])
    with pytest.raises(RuntimeError):
        fail_in_the_middle()
    assert job.progress().done == 1
    assert (job.ranges(), job.dropped(), job.cursor) == ([], {}, 0)
    assert add(job, 1, [2]) == 1


def test_a_full_disk_is_said_and_costs_no_committed_result(job):
    add(job, 0, [1])
    limit = job._connection.execute("PRAGMA page_count").fetchone()[0]
    job._connection.execute(f"PRAGMA max_page_count = {limit + 2}")
    with pytest.raises(JobFileError, match="disk is full"), job.commit() as tx:
        tx.add_result(1, 2, encode_values(["x" * 100_000], 1), 1.0, "c", 1, 1.0)
    assert results_of(job) == {0: 1}
    job._connection.execute("PRAGMA max_page_count = 1000000")
    assert add(job, 1, ["x" * 100_000]) == 1


def test_results_stream_in_order_while_the_driver_goes_on_writing(job):
    add(job, 10, [10])
    add(job, 0, [0])
    seen = []
    for row in job.results():
        seen.append(row.start)
        if row.start == 0:
            add(job, 15, [15])
    assert seen[:2] == [0, 10]
    assert list(results_of(job)) == [0, 10, 15]


def test_more_results_than_a_page_come_in_order(tmp_path):
    with new_job(tmp_path, 1300) as job:
        with job.commit() as tx:
            for point in reversed(range(1300)):
                tx.add_result(point, point + 1, encode_values([point], 1), 0.1, "c", 1, 1.0)
        assert [row.start for row in job.results()] == list(range(1300))


# Other processes


def in_another_process(code, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_another_process_reads_while_the_driver_is_in_the_middle_of_a_cycle(job):
    add(job, 0, [1, 2])
    code = """
import sys
from pathlib import Path
from overnight_producer.jobs.jobfile import JobFile
with JobFile.open(Path(sys.argv[1])) as job:
    print(job.progress().done, sum(row.stop - row.start for row in job.results()))
"""
    with job.commit() as tx:
        tx.add_result(2, 9, None, 1.0, "c", 1, 1.0)
        assert in_another_process(code, job.path) == "2 2"
    assert in_another_process(code, job.path) == "9 9"


def test_any_process_may_ask_for_something_and_sees_the_answer(job):
    code = """
import sys
from pathlib import Path
from overnight_producer.jobs.jobfile import JobFile
with JobFile.open(Path(sys.argv[1])) as job:
    print(job.request("retry", {"points": [3, 4]}))
"""
    number = int(in_another_process(code, job.path))
    (asked,) = job.requests_pending()
    assert (asked.id, asked.kind, asked.args, asked.outcome) == (number, "retry", {"points": [3, 4]}, None)
    assert asked.asked_by != os.getpid()
    with job.commit() as tx:
        tx.finish_request(number, "2 points wait again")
    assert job.requests_pending() == []
    answered = job.find_request(number)
    assert answered is not None
    assert answered.outcome == "2 points wait again"
    assert job.find_request(999) is None


def test_a_request_waits_for_the_cycle_that_is_being_written(job):
    asked = threading.Event()

    def ask():
        with JobFile.open(job.path) as other:
            other.request("pause")
        asked.set()

    with job.commit() as tx:
        thread = threading.Thread(target=ask)
        thread.start()
        tx.add_result(0, 1, None, 1.0, "c", 1, 1.0)
        assert not asked.wait(0.1)
    thread.join(30)
    assert [each.kind for each in job.requests_pending()] == ["pause"]


def test_a_second_driver_is_refused_and_told_who_drives(job):
    assert driver_of(job.path) is None
    with job.lock():
        assert driver_of(job.path) == os.getpid()
        code = """
import sys
from pathlib import Path
from overnight_producer.jobs.lock import DrivingLock, JobBusyError
try:
    DrivingLock(Path(sys.argv[1]))
except JobBusyError as error:
    print(error.pid, str(error.pid) in str(error))
"""
        assert in_another_process(code, job.path) == f"{os.getpid()} True"
        with pytest.raises(JobBusyError):
            job.lock()
    assert driver_of(job.path) is None
    job.lock().close()


def test_a_killed_driver_leaves_the_job_free(job):
    code = """
import sys
from pathlib import Path
from overnight_producer.jobs.lock import DrivingLock
lock = DrivingLock(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(job.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as driver:
        assert driver.stdout.readline() == b"locked\n"
        assert driver_of(job.path) == driver.pid
        with pytest.raises(JobBusyError, match=str(driver.pid)):
            job.lock()
        driver.kill()
        driver.wait(30)
    assert driver_of(job.path) is None
    job.lock().close()


# Files that are not ours


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a job file"),
        (b"SQLite? no, a diary " * 200, "not a job file"),
        (None, "there is no job file"),
    ],
)
def test_what_is_no_job_file_is_refused_by_name(tmp_path, content, says):
    path = tmp_path / "job.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(JobFileError, match=says) as caught:
        JobFile.open(path)
    assert str(path) in str(caught.value)
    assert content is None or path.read_bytes() == content


def test_the_sqlite_file_of_a_stranger_is_refused(tmp_path):
    path = tmp_path / "job.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE job (id)")
    connection.close()
    with pytest.raises(JobFileError, match="not a job file"):
        JobFile.open(path)


def test_a_newer_job_file_asks_for_an_update(job):
    job._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(JobFileError, match="update Overnight"):
        JobFile.open(job.path)


def test_an_older_job_file_is_left_to_the_program_that_wrote_it(job):
    job._connection.execute("PRAGMA user_version = 1")
    with pytest.raises(JobFileError, match="finish and export the job with that one"):
        JobFile.open(job.path)


def test_a_damaged_job_file_is_said_to_be_damaged(tmp_path):
    with new_job(tmp_path, 2000) as job:
        for start in range(0, 2000, 10):
            add(job, start, ["x" * 100] * 10)
    size = job.path.stat().st_size
    with open(job.path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with pytest.raises(JobFileError, match="damaged"), JobFile.open(job.path) as again:
        list(again.results())


def test_a_file_that_a_killed_process_was_making_is_no_obstacle(tmp_path):
    (tmp_path / "job.sqlite.new").write_bytes(b"half a file")
    with new_job(tmp_path, 3) as job:
        assert job.progress().total == 3
    assert not (tmp_path / "job.sqlite.new").exists()


# Speed


def test_a_million_points_cost_no_more_per_cycle_than_a_thousand(tmp_path):
    def seconds_of_cycles(job, first):
        times = []
        for start in range(first, first + 2000, 200):
            before = time.perf_counter()
            with job.commit() as tx:
                for each in cut(start, start + 200, 1):
                    tx.cut([each])
                    tx.add_result(each.start, each.stop, None, 0.1, "c", 1, 1.0)
                    tx.settle(each.start, each.stop)
            job.progress()
            times.append(time.perf_counter() - before)
        return min(times)

    with new_job(tmp_path, 1_000_000) as job:
        early = seconds_of_cycles(job, 0)
        # Half a million rows at once, as if they had come one by one.
        job._connection.execute(
            "INSERT INTO results SELECT value, value + 1, NULL, NULL, 0.1, 'c', 1, 1.0"
            " FROM (WITH RECURSIVE n(value) AS"
            " (SELECT 2000 UNION ALL SELECT value + 1 FROM n WHERE value < 501999) SELECT value FROM n)"
        )
        late = seconds_of_cycles(job, 502_000)
    assert late < 5 * early
