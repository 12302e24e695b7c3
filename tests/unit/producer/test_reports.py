"""What `status`, `failures` and `queues` print."""

import asyncio
import io
import json
import os

import pytest

from overnight_common.brokers.base import BrokerState, Depth, Message
from overnight_common.brokers.opening import open_broker
from overnight_common.errors import BadInputError, BrokerError
from overnight_common.messages import Cause, Failure
from overnight_producer.jobs.home import job_path
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.ranges import Range, RangeState
from overnight_producer.jobs.records import JobState
from overnight_producer.options import Place
from overnight_producer.reports import failure_report, queue_report, status_report
from overnight_producer.views.tables import make_console
from support.job_files import add, spec_of


def make(home, points=100, **changes):
    spec = spec_of(points, **changes)
    return JobFile.create(job_path(home, spec.id), spec)


def give_up(
    job, start, message="no such digit", attempts=3, cause=Cause.EXCEPTION, traceback="Traceback\n  x"
):
    range_ = Range(start, start + 1, RangeState.GIVEN_UP, attempt=attempts, charged=attempts)
    failure = Failure(cause, "ValueError", message, traceback, "last words")
    with job.commit() as tx:
        tx.cut([Range(start, start + 1)])
        tx.add_failure(range_, failure, "desk-1", 2, 0.5, 1000)
        tx.replace(Range(start, start + 1), [range_])


def printed(report, *args, **named):
    stream = io.StringIO()
    report(*args, console=make_console(stream), **named)
    return stream.getvalue()


def status_of(home, job=None):
    return printed(status_report.status, home, job, as_json=False)


def status_object(home, job=None):
    return json.loads(printed(status_report.status, home, job, as_json=True))


# --- status ---------------------------------------------------------------------------------------


def test_a_folder_without_jobs_says_how_to_start_one(tmp_path):
    assert "start one with `overnight run`" in status_of(tmp_path)
    assert status_object(tmp_path) == {"jobs": [], "unreadable": []}


def test_each_job_has_a_line_with_what_matters(tmp_path):
    with make(tmp_path, id="aaaaaaaaaaaa", data_uri="/data/digits.npy") as job:
        add(job, 0, list(range(40)))
    heading, line = status_of(tmp_path).splitlines()
    assert heading.split() == ["job", "method", "data", "points", "done", "state", "left", "rate"]
    assert line.split() == ["aaaaaaaaaaaa", "lib:slow", "digits.npy", "100", "40", "%", "stopped"]


def test_a_job_that_is_driven_names_its_driver(tmp_path):
    with make(tmp_path) as job:
        with job.lock():
            assert f"running by {os.getpid()}" in status_of(tmp_path)
            assert status_object(tmp_path)["jobs"][0]["driver_pid"] == os.getpid()
        assert "stopped" in status_of(tmp_path)


def test_the_state_tells_of_points_that_were_given_up(tmp_path):
    with make(tmp_path) as job:
        assert "given up" not in status_of(tmp_path)
        give_up(job, 0)
        assert "stopped, 1 given up" in status_of(tmp_path)
        with job.commit() as tx:
            tx.set_state(JobState.DONE)
        assert "done, 1 given up" in status_of(tmp_path)
        assert "done, 1 given up\n" in status_of(tmp_path, job.spec.id)  # and nobody has to drive it


def test_a_broken_job_file_is_named_and_hides_no_other(tmp_path):
    make(tmp_path).close()
    broken = job_path(tmp_path, "broken")
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no database at all" * 100)
    text = status_of(tmp_path)
    assert "lib:slow" in text
    assert str(broken) in text
    assert status_object(tmp_path)["unreadable"][0]["path"] == str(broken)


def test_the_rate_without_a_driver_is_the_mean_from_the_first_to_the_latest_result(tmp_path):
    with make(tmp_path) as job:
        add(job, 0, [0.0] * 10)  # at 1000 s
        add(job, 10, [0.0] * 40)  # at 1010 s
    (figures,) = status_object(tmp_path)["jobs"]
    assert "points/s" not in status_of(tmp_path)  # beside the rates of jobs that go, it would be read as one
    assert figures["points_per_second"] == pytest.approx(5.0)
    assert figures["eta_seconds"] is None  # nobody goes on with it


def test_one_job_is_told_in_detail(tmp_path):
    with make(tmp_path, id="aaaaaaaaaaaa", params={"depth": 3}, broker="amqp://rabbit/", queue="gpu") as job:
        add(job, 0, list(range(40)), consumer="desk-1")
        with job.commit() as tx:
            tx.accuse("desk-2", Failure(Cause.METHOD_UNAVAILABLE, "", "no torch\nhere"))
            for _ in range(2):
                tx.count("stale_attempt")
            for reason in ("duplicate_result", "silent_task", "publish_failed: NotConnectedError"):
                tx.count(reason)
            tx.set_state(JobState.PAUSED, "nobody works")
    text = status_of(tmp_path, "aaa")
    for words in (
        "paused, nobody drives it: nobody works",
        "40 of 100 done (40 %)",
        "amqp://rabbit/, queue gpu",
        "depth=3",
        "went wrong 1 time nobody spoke of a task, 1 time the broker did not take one (NotConnectedError)",
        "set aside  replies: 1 duplicate_result, 2 stale_attempt",
        "overnight resume aaaaaaaaaaaa",
        "method_unavailable: no torch here",
    ):
        assert words in text
    told = status_object(tmp_path, "aaa")
    assert told["consumers"][0]["points_done"] == 40
    assert told["consumers"][1]["accusations"] == 1
    assert told["dropped_replies"] == {
        "duplicate_result": 1,
        "publish_failed: NotConnectedError": 1,
        "silent_task": 1,
        "stale_attempt": 2,
    }


def test_a_job_that_does_not_exist_is_bad_input(tmp_path):
    make(tmp_path).close()
    with pytest.raises(BadInputError, match="begins with 'zzz'"):
        status_of(tmp_path, "zzz")


# --- failures -------------------------------------------------------------------------------------


def failures_of(home, job=None, full=False):
    return printed(failure_report.failures, home, job, as_json=False, full=full)


def test_no_failure_is_said_so(tmp_path):
    with make(tmp_path) as job:
        assert failures_of(tmp_path) == f"No point of job {job.spec.id} was given up.\n"


def test_given_up_points_are_told_with_cause_error_and_consumer(tmp_path):
    with make(tmp_path) as job:
        give_up(job, 7, "no such\n\x1b[31mdigit")
    text = failures_of(tmp_path)
    assert text.startswith("1 point was given up:\n")
    row = text.splitlines()[2]
    assert row.split("  ")[0] == "point 7"
    assert "ValueError: no such digit" in row
    assert row.endswith("3  desk-1")
    assert "1 exception" in text
    assert "overnight retry" in text


def test_neighbours_that_failed_alike_share_a_row(tmp_path):
    with make(tmp_path) as job:
        for start in (3, 4, 5, 9):
            give_up(job, start)
        give_up(job, 6, "another")
        found = [(loss.start, loss.stop) for loss in failure_report.losses(job)]
    assert found == [(3, 6), (6, 7), (9, 10)]
    assert "[3, 6)" in failures_of(tmp_path)


def test_neighbours_that_differ_only_in_what_was_measured_share_a_row(tmp_path):
    with make(tmp_path) as job:
        for start in range(3):
            give_up(job, start, f"ran {2.1 + start:.1f} s; the limit is 2 s", cause=Cause.TIME_LIMIT)
            give_up(job, 3 + start, f"no digit {start}")  # the method's own words: each may matter
            give_up(job, 6 + start, f"no room for {start}", cause=Cause.OUT_OF_MEMORY)
        found = [(loss.start, loss.stop) for loss in failure_report.losses(job)]
    assert found == [(0, 3), *((point, point + 1) for point in range(3, 9))]


def test_tracebacks_are_told_in_full_when_asked_for(tmp_path):
    with make(tmp_path) as job:
        give_up(job, 7, traceback='Traceback:\n  File "lib.py"\nValueError: no')
    assert "lib.py" not in failures_of(tmp_path)
    text = failures_of(tmp_path, full=True)
    assert 'Traceback:\n  File "lib.py"\nValueError: no\n' in text
    assert "last words" in text


def test_failures_as_json_keep_every_point_apart(tmp_path):
    with make(tmp_path) as job:
        give_up(job, 3)
        give_up(job, 4, cause=Cause.TIME_LIMIT)
    told = json.loads(printed(failure_report.failures, tmp_path, None, as_json=True, full=False))
    assert told["points_given_up"] == 2
    assert told["failed_attempts_by_cause"] == {"exception": 1, "time_limit": 1}
    assert [each["start"] for each in told["given_up"]] == [3, 4]
    assert "traceback" not in told["given_up"][0]
    full = json.loads(printed(failure_report.failures, tmp_path, None, as_json=True, full=True))
    assert full["given_up"][0]["stderr_tail"] == "last words"


def test_the_table_at_the_end_has_twenty_rows_at_most_and_fits(tmp_path):
    with make(tmp_path) as job:
        assert failure_report.closing_lines(job, 80) == []
        for start in range(0, 60, 2):
            give_up(job, start, "long " * 40)
        lines = failure_report.closing_lines(job, 80)
        assert lines[0] == "30 points were given up:"
        assert lines[-2] == "and 10 more rows"
        assert len(lines) == 1 + 1 + 20 + 2
        assert max(len(line) for line in lines) <= 80
        said = []
        failure_report.failure_table(job, said.append)
        assert len(said) == len(lines)


# --- queues ---------------------------------------------------------------------------------------


def test_queues_are_looked_at_without_making_any(tmp_path):
    stream = io.StringIO()
    asyncio.run(
        queue_report.report_queues(Place(home=tmp_path / "none"), as_json=False, console=make_console(stream))
    )
    assert "no such queue yet" in stream.getvalue()
    assert not (tmp_path / "none").exists()


def test_depths_are_told_for_the_queues_of_unfinished_jobs(tmp_path):
    make(tmp_path, id="aaaaaaaaaaaa", queue="gpu").close()
    with make(tmp_path, id="bbbbbbbbbbbb", queue="old") as job, job.commit() as tx:
        tx.set_state(JobState.DONE)

    async def fill_and_look():
        broker = open_broker(None, tmp_path, max_message_bytes=1 << 20)
        await broker.open(5.0)
        await broker.declare("overnight.tasks.gpu")
        done = asyncio.get_running_loop().create_future()
        broker.publish("overnight.tasks.gpu", Message(b"x", "task"), done.set_result)
        assert await done is None
        await broker.close()
        await queue_report.report_queues(Place(home=tmp_path), as_json=True, console=make_console(stream))

    stream = io.StringIO()
    asyncio.run(fill_and_look())
    told = {each["queue"]: each for each in json.loads(stream.getvalue())["queues"]}
    assert list(told) == [
        "overnight.tasks.default",
        "overnight.tasks.gpu",
        "overnight.replies.aaaaaaaaaaaa.1",
        "overnight.dead",
    ]
    assert told["overnight.tasks.gpu"]["ready"] == 1
    assert told["overnight.tasks.gpu"]["consumers"] == 0
    assert told["overnight.dead"]["exists"] is False


def test_what_the_broker_does_not_tell_is_unknown_and_not_zero():
    rows = [
        queue_report.QueueRow("overnight.tasks.gpu", Depth(3, None, None)),
        queue_report.QueueRow("overnight.tasks.cpu", None, "the link broke"),
        queue_report.QueueRow("overnight.tasks.big", Depth(1234, 0, 0)),
    ]
    lines = printed(queue_report.print_queues, rows, "amqp://rabbit/", as_json=False).splitlines()[2:]
    assert lines[0].split() == ["overnight.tasks.gpu", "3", "unknown", "unknown"]
    assert lines[1].split()[1:4] == ["unknown"] * 3
    assert lines[1].endswith("the link broke")
    assert lines[2].split()[1:4] == ["1,234", "0", "0"]
    assert lines[2].endswith("tasks wait and no consumer is there")


def test_a_queue_that_cannot_be_looked_at_does_not_hide_the_others():
    class Broker:
        state = BrokerState.CONNECTED

        async def depth(self, queue):
            if queue == "a":
                raise BrokerError("no right to look at a")
            return Depth(1, 2, 3)

    rows = asyncio.run(queue_report.queues(Broker(), ["a", "b"]))
    assert [(row.depth, row.problem) for row in rows] == [
        (None, "no right to look at a"),
        (Depth(1, 2, 3), ""),
    ]
