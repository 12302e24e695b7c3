from datetime import UTC, datetime, timedelta

import pytest

from overnight_common.errors import BadInputError
from overnight_producer.jobs.home import all_jobs, find_job, job_path, resolve, unreadable
from overnight_producer.jobs.jobfile import JobFile
from overnight_producer.jobs.jobspec import new_job_id
from support.job_files import spec_of

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def make(home, job_id, minutes=0, **changes):
    spec = spec_of(5, id=job_id, created=NOON + timedelta(minutes=minutes), **changes)
    JobFile.create(job_path(home, spec.id), spec).close()
    return job_path(home, spec.id)


def test_job_ids_differ_and_need_no_quoting():
    ids = {new_job_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(each) == 12 and each.isalnum() and each[0].isalpha() and each.islower() for each in ids)


def test_jobs_are_listed_from_the_oldest_and_broken_files_apart(tmp_path):
    late, early = make(tmp_path, "aaa", 5), make(tmp_path, "bbb", 1)
    broken = job_path(tmp_path, "ccc")
    broken.parent.mkdir()
    broken.write_text("not a job")
    assert [path for path, _ in all_jobs(tmp_path)] == [early, late]
    ((path, why),) = unreadable(tmp_path)
    assert path == broken
    assert "not a job file" in why


def test_there_are_no_jobs_in_a_folder_that_does_not_exist(tmp_path):
    assert all_jobs(tmp_path / "none") == []
    assert find_job(tmp_path / "none", "m", "d", {}, 0, 0) is None


def test_the_same_work_is_found_again_and_other_work_is_not(tmp_path):
    params = {"n": 3, "m": (1.5, float("nan"))}
    given = {"method": "lib:slow", "data_uri": "é.npy", "params": params, "seed": 4, "start": 1}
    path = make(tmp_path, "abc", **given)
    assert find_job(tmp_path, **given) == path
    others = {"method": "lib:fast", "data_uri": "e.npy", "params": {"n": 3}, "seed": 5, "start": 0}
    others["command"] = "x"
    for name, value in others.items():
        assert find_job(tmp_path, **(given | {name: value})) is None


def test_of_two_jobs_for_the_same_work_the_newest_is_found(tmp_path):
    make(tmp_path, "old", 0)
    new = make(tmp_path, "new", 9)
    assert find_job(tmp_path, "lib:slow", "range:5", {}, 0, 0) == new


def test_a_few_letters_name_a_job(tmp_path):
    first, second = make(tmp_path, "kate", 0), make(tmp_path, "karl", 3)
    assert resolve(tmp_path, "kat") == first
    assert resolve(tmp_path, None) == second
    with pytest.raises(BadInputError, match="more than one job: kate, karl"):
        resolve(tmp_path, "ka")
    with pytest.raises(BadInputError, match="latest are kate, karl"):
        resolve(tmp_path, "z")


def test_a_whole_id_wins_over_a_longer_one_that_begins_with_it(tmp_path):
    short = make(tmp_path, "kat", 0)
    make(tmp_path, "kate", 1)
    assert resolve(tmp_path, "kat") == short


def test_without_any_job_the_way_on_is_shown(tmp_path):
    with pytest.raises(BadInputError, match="overnight run"):
        resolve(tmp_path, None)
