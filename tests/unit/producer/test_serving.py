"""Which jobs go on by themselves, in which order, and how the folder of jobs is looked at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from overnight_producer.conclusion import record
from overnight_producer.jobs import folder as folder_module
from overnight_producer.jobs.folder import FoundJob, JobsFolder
from overnight_producer.jobs.home import job_path
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.records import PAUSED_BY_REQUEST, JobState, Progress
from overnight_producer.serving import JOB_STATES, next_in_line, states_of, submitted, unfinished
from support.job_files import add, spec_of

MORNING = datetime(2026, 1, 1, tzinfo=UTC)


def progress(state="running", why=""):
    return Progress(9, 0, 0, 9, 0, 0, 0, 0.0, None, None, JobState(state), why)


def found(name, minutes):
    spec = spec_of(9, id=name, created=MORNING + timedelta(minutes=minutes))
    return FoundJob(Path(name), spec, progress())


@pytest.mark.parametrize(
    ("state", "why", "goes_on"),
    [
        ("running", "", True),
        ("paused", "20 points were given up and 0 succeeded", True),
        ("paused", PAUSED_BY_REQUEST, False),
        ("cancelled", "cancelled by request", False),
        ("done", "", False),
    ],
)
def test_resume_all_takes_what_nobody_stopped(state, why, goes_on):
    assert unfinished(spec_of(9), progress(state, why)) is goes_on


def test_the_service_takes_only_what_was_submitted_and_is_to_run():
    assert submitted(spec_of(9, submitted=True), progress())
    assert not submitted(spec_of(9), progress())
    for state in ("paused", "cancelled", "done"):
        assert not submitted(spec_of(9, submitted=True), progress(state))


def test_the_oldest_jobs_get_the_places_that_are_free():
    jobs = [found("new", 9), found("old", 1), found("middle", 5)]
    names = [[job.spec.id for job in next_in_line(jobs, taken, 3)] for taken in range(5)]
    assert names == [["old", "middle", "new"], ["old", "middle"], ["old"], [], []]


def test_submitted_jobs_are_counted_by_where_they_are():
    def job(state="running", why="", submitted=True):
        return FoundJob(Path("j"), spec_of(9, submitted=submitted), progress(state, why))

    jobs = [
        *(job(), job(submitted=False), job("paused", submitted=False)),
        *(job("paused", "20 given up"), job("paused", "no consumer"), job("paused", PAUSED_BY_REQUEST)),
        *(job("done"), job("cancelled")),
    ]
    counted = {"in_line": 1, "driven": 3, "paused": 2, "paused_by_request": 1, "done": 1, "cancelled": 1}
    assert states_of(jobs, 3) == counted
    assert tuple(states_of([], 0)) == JOB_STATES


@pytest.fixture
def reads(monkeypatch):
    """Count how often a job file is read."""
    paths = []
    read = JobsFolder._read

    def counted(self, path):
        paths.append(path)
        return read(self, path)

    monkeypatch.setattr(folder_module.JobsFolder, "_read", counted)
    return paths


def new(home, **changes):
    spec = spec_of(9, **changes)
    return JobFile.create(job_path(home, spec.id), spec)


def test_only_changed_files_are_read_again(tmp_path, reads):
    folder = JobsFolder(tmp_path, lambda path, why: pytest.fail(f"{path}: {why}"))
    with new(tmp_path) as first, new(tmp_path, created=MORNING):
        assert [job.spec.created == MORNING for job in folder.look()] == [True, False]
        del reads[:]
        folder.look()
        assert reads == []

        record(first, JobState.PAUSED, "why not")
        assert [job.progress.why for job in folder.look()] == ["", "why not"]
        add(first, 0, [1.0])
        assert [job.progress.done for job in folder.look()] == [0, 1]
        assert reads == [first.path, first.path]
    folder.look()
    del reads[:]
    folder.look()  # closing a file moves what it holds, but that is over now
    assert reads == []


def test_a_job_that_is_left_out_is_read_when_it_comes_back(tmp_path, reads):
    folder = JobsFolder(tmp_path, lambda path, why: pytest.fail(f"{path}: {why}"))
    with new(tmp_path) as job:
        folder.look()
        assert folder.look(without=[job.path]) == []
        del reads[:]
        assert len(folder.look()) == 1
        assert reads == [job.path]


def test_a_file_that_tells_nothing_is_named_once_for_each_change(tmp_path):
    said = []
    folder = JobsFolder(tmp_path, lambda path, why: said.append((path, why)))
    path = job_path(tmp_path, "broken")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"nothing of ours")
    for _ in range(3):
        assert folder.look() == []
    assert len(said) == 1
    path.write_bytes(b"still nothing of ours")
    folder.look()
    assert [each for each, _ in said] == [path, path]
    path.unlink()
    assert folder.look() == []
    with JobFile.create(path, replace(spec_of(9), id="broken")):
        assert len(folder.look()) == 1
