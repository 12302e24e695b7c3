"""What the driver says of a job is what every command shows."""

import io
import json
import os
import time

import pytest

from overnight_common.brokers.base import BrokerState, Depth
from overnight_producer.jobs.home import job_path
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.ranges import Range, RangeState
from overnight_producer.live_figures import OLD_SECONDS, LiveFigures, figures_of, live_figures
from overnight_producer.reports import status_report
from overnight_producer.reports.watching import watch
from overnight_producer.views.tables import make_console
from overnight_producer.views.view import ConsoleKind
from support.job_files import add, spec_of
from support.standings import Clock, snapshot_of

SAID = snapshot_of(
    0,
    total=100,
    points_per_second=2.0,
    running=[(3, 9, "desk", 2, 192.0)],
    depth=Depth(8, None, 1),
    broker=BrokerState.BLOCKED,
    accused={"bad": "method_unavailable: no torch"},
)


@pytest.fixture
def job(tmp_path):
    spec = spec_of(100)
    with JobFile.create(job_path(tmp_path, spec.id), spec) as made:
        add(made, 0, [0.0] * 20)
        yield made


def test_what_was_said_is_read_with_the_progress_of_the_file(job):
    with job.lock():
        LiveFigures(job.path).show(SAID)
        found = live_figures(job)
    assert found.progress == job.progress()
    assert found.progress.done == 20
    for name in ("running", "depth", "broker", "accused", "window", "slots_busy", "slots_seen", "tasks_out"):
        assert getattr(found, name) == getattr(SAID, name), name
    assert found.eta_seconds == 40.0


def test_what_a_dead_a_silent_or_a_foreign_driver_said_is_not_taken_for_true(job):
    live = LiveFigures(job.path)
    live.show(SAID)
    assert live_figures(job) is None  # nobody drives
    with job.lock():
        path = job.path.with_name("live.json")
        path.write_text("{}")
        assert live_figures(job) is None
        LiveFigures(job.path).show(SAID)
        assert live_figures(job) is not None
        long_ago = time.time() - OLD_SECONDS - 1.0
        os.utime(path, (long_ago, long_ago))
        assert live_figures(job) is None
        LiveFigures(job.path).show(SAID)
        live.clear()
        assert live_figures(job) is None
    assert {each.name for each in job.path.parent.glob("live*")} == set()


def test_they_are_written_once_a_second(job):
    clock = Clock()
    live = LiveFigures(job.path, clock)
    with job.lock():
        live.show(SAID)
        live.show(snapshot_of(0, window=99))
        assert live_figures(job).window == 16
        clock.now += 1.0
        live.show(snapshot_of(0, window=99))
        assert live_figures(job).window == 99


def test_a_disk_that_takes_nothing_harms_no_driver(job, tmp_path):
    LiveFigures(tmp_path / "gone" / "job.sqlite").show(SAID)


def test_without_a_driver_only_the_progress_is_known(job):
    with job.commit() as tx:
        tx.cut([Range(20, 27, RangeState.PUBLISHED, attempt=1), Range(27, 34, RangeState.RUNNING, attempt=1)])
        tx.cut([Range(34, 41)])
    found = figures_of(job)
    assert (found.progress.done, found.tasks_out) == (20, 2)
    assert (found.rate, found.eta_seconds, found.depth, found.running) == (0.0, None, None, [])


def test_status_and_watch_tell_the_same_rate_and_time_to_go_as_the_run(tmp_path, job):
    def interrupt(_seconds):
        raise KeyboardInterrupt

    stream = io.StringIO()
    with job.lock():
        LiveFigures(job.path).show(SAID)
        watch(tmp_path, None, ConsoleKind.JSON, stream=stream, sleep=interrupt)
        progress = json.loads(stream.getvalue().splitlines()[1])
        told = io.StringIO()
        status_report.status(tmp_path, job.spec.id, as_json=True, console=make_console(told))
        text = io.StringIO()
        status_report.status(tmp_path, job.spec.id, as_json=False, console=make_console(text))
    status = json.loads(told.getvalue())
    for name in ("points_per_second", "eta_seconds"):
        assert progress[name] == status[name] == status["live"][name]
    assert (status["points_per_second"], status["eta_seconds"]) == (2.0, 40.0)
    for words in (
        "2 points/s, 1.9 of 2 slots busy, 40 s left, done about",
        "longest    [3, 9) on desk slot 2 for 3 min 12 s",
        "trouble    the broker takes no tasks now",
        "trouble    consumer bad cannot do these tasks: method_unavailable: no torch",
    ):
        assert words in text.getvalue()
