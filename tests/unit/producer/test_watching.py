import io
import json

import pytest

from overnight_producer.jobs.home import job_path
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.records import JobState
from overnight_producer.reports.watching import ending_of, watch
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
