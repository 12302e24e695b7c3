import io
import json

import pytest

from overnight_common.messages import Cause, Failure
from overnight_producer.jobs.home import job_path
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.ranges import Range, RangeState
from overnight_producer.jobs.records import JobState
from overnight_producer.reports.watching import Watcher, ending_of, watch
from overnight_producer.views.view import ConsoleKind
from support.job_files import add, spec_of
from support.standings import progress_of


@pytest.fixture
def job(tmp_path):
    spec = spec_of(100)
    with JobFile.create(job_path(tmp_path, spec.id), spec) as made:
        yield made


class Steps:
    """Stands for the seconds between two looks: each takes the next step of the driver."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, _seconds):
        self.steps.pop(0)()


def watched(tmp_path, steps):
    stream = io.StringIO()
    status = watch(tmp_path, None, ConsoleKind.JSON, stream=stream, sleep=steps)
    return status, [json.loads(line) for line in stream.getvalue().splitlines()]


def set_state(job, state, why=""):
    with job.commit() as tx:
        tx.set_state(state, why)


def test_a_watcher_follows_the_driver_until_all_is_done(tmp_path, job):
    lock = job.lock()
    steps = Steps(
        lambda: add(job, 0, [0.0] * 60),
        lambda: add(job, 60, [0.0] * 40),
        lambda: set_state(job, JobState.DONE),  # it still exports
        lock.close,
    )
    status, events = watched(tmp_path, steps)
    assert status == 0
    assert events[-1]["points_done"] == 100
    assert events[-1]["text"] == f"job {job.spec.id} is done"
    assert steps.steps == []


def test_a_driver_that_dies_ends_the_watching_and_the_way_on_is_told(tmp_path, job):
    lock = job.lock()
    status, events = watched(tmp_path, Steps(lambda: add(job, 0, [0.0] * 60), lock.close))
    assert status == 1
    assert "nobody drives job" in events[-1]["text"]
    assert f"overnight resume {job.spec.id}" in events[-1]["text"]


def test_ctrl_c_ends_the_watching_and_not_the_job(tmp_path, job):
    def interrupt():
        raise KeyboardInterrupt

    with job.lock():
        status, events = watched(tmp_path, Steps(interrupt))
    assert status == 0
    assert "goes on" in events[-1]["text"]


def test_the_rate_is_measured_between_looks(job):
    watcher = Watcher(job)
    assert watcher.look(0.0, 5000.0).points_per_second == 0.0
    add(job, 0, [0.0] * 20)
    snapshot = watcher.look(10.0, 5010.0)
    assert snapshot.points_per_second == pytest.approx(2.0)
    assert snapshot.slots_busy == pytest.approx(0.05)  # one task of 0.5 s in 10 s
    for second in range(11, 60):
        snapshot = watcher.look(float(second), 5000.0 + second)
    add(job, 20, [0.0] * 30)
    assert watcher.look(60.0, 5060.0).points_per_second == pytest.approx(1.0)  # 30 in the last 30 s


def test_a_watcher_that_came_late_begins_with_the_mean_rate(job):
    add(job, 0, [0.0] * 20)  # at 1000 s
    assert Watcher(job).look(0.0, 1010.0).points_per_second == pytest.approx(2.0)


def test_a_watcher_names_consumers_that_never_did_a_task(job):
    add(job, 0, [0.0] * 20, consumer="good")
    with job.commit() as tx:
        for name in ("good", "bad"):
            tx.accuse(name, Failure(Cause.METHOD_UNAVAILABLE, "", "no torch"), at=5000.0)
    assert Watcher(job).look(0.0, 5010.0).accused == {"bad": "method_unavailable: no torch"}
    assert Watcher(job).look(0.0, 5200.0).accused == {}


def test_tasks_out_are_those_in_flight(job):
    with job.commit() as tx:
        tx.cut([Range(0, 7, RangeState.PUBLISHED, attempt=1), Range(7, 14, RangeState.RUNNING, attempt=1)])
        tx.cut([Range(14, 21)])
    assert Watcher(job).look(0.0, 0.0).tasks_out == 2


@pytest.mark.parametrize(
    ("state", "given_up", "status", "words"),
    [
        (JobState.DONE, 0, 0, "is done"),
        (JobState.DONE, 3, 1, "3 points given up: `overnight failures"),
        (JobState.CANCELLED, 0, 4, "was cancelled"),
        (JobState.PAUSED, 0, 1, "is paused (20 failed); go on with `overnight resume"),
        (JobState.RUNNING, 0, 1, "its last result came 1 min ago"),
    ],
)
def test_each_ending_has_its_status_and_its_words(state, given_up, status, words):
    why = "20 failed" if state is JobState.PAUSED else ""
    progress = progress_of(10, given_up=given_up, state=state, why=why, last_result_at=940.0)
    text, found = ending_of(spec_of(1797), progress, None, 1000.0)
    assert found == status
    assert words in text
    assert ending_of(spec_of(1797), progress, 123, 1000.0) is None
    served = ending_of(spec_of(1797), progress, None, 1000.0, served=True)
    assert (served is None) == (state is JobState.RUNNING)  # its turn will come
