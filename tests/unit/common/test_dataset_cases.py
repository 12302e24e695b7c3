"""Every awkward file in tests/cases: the right points after a trip through task and reply, or a refusal."""

import json
from pathlib import Path

import numpy as np
import pytest

from overnight_common.datasets import check_unchanged, open_dataset
from overnight_common.errors import BadInputError
from overnight_common.messages import Reply, Task, decode_reply, decode_task, encode
from overnight_common.values import decode_values, encode_values

CASES = Path(__file__).parents[2] / "cases"
EXPECTED = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))
READABLE = sorted(name for name, case in EXPECTED.items() if "points" in case)
REFUSED = sorted(name for name, case in EXPECTED.items() if "says" in case)


@pytest.fixture(autouse=True)
def in_the_folder_of_the_cases(monkeypatch):
    monkeypatch.chdir(CASES / "data")


def through_task_and_reply(values, count):
    task = Task(1, "job", "replies", 0, count, 1, "m", data=encode_values(values, count))
    there = decode_values(decode_task(encode(task)).data)
    result = encode_values(there, count)
    reply = Reply(1, "job", 0, count, 1, "done", "c", result=result)
    return decode_values(decode_reply(encode(reply)).result)


def as_written_in_expected(value):
    if isinstance(value, np.ndarray):
        return as_written_in_expected(value.tolist())
    if isinstance(value, list | tuple):
        return [as_written_in_expected(element) for element in value]
    if isinstance(value, dict):
        return {key: as_written_in_expected(element) for key, element in value.items()}
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    return value if isinstance(value, int | str | None) else repr(value)


@pytest.mark.parametrize("name", READABLE)
def test_every_point_arrives_as_it_is(name):
    dataset = open_dataset(name)
    count = len(dataset)
    values = dataset.read(0, count)
    back = through_task_and_reply(values, count)
    dataset.close()

    assert count == EXPECTED[name]["points"]
    assert as_written_in_expected(back) == EXPECTED[name]["values"]
    assert type(back) is type(values)
    if isinstance(values, np.ndarray):
        assert back.dtype == values.dtype
        assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize("name", READABLE)
def test_points_read_one_by_one_and_in_parts_are_those_read_at_once(name):
    dataset = open_dataset(name)
    count = len(dataset)
    whole = as_written_in_expected(dataset.read(0, count))

    one_by_one = [as_written_in_expected(dataset.read(i, i + 1))[0] for i in range(count)]
    halves = as_written_in_expected(dataset.read(0, count // 2)) + as_written_in_expected(
        dataset.read(count // 2, count)
    )

    assert one_by_one == whole == halves
    assert as_written_in_expected(dataset.read(count, count)) == []
    for start, stop in ((0, count + 1), (-1, 0), (1, 0)):
        with pytest.raises(IndexError):
            dataset.read(start, stop)
    dataset.close()
    dataset.close()


@pytest.mark.parametrize("name", READABLE)
def test_a_data_set_opens_again_by_its_uri_from_any_folder(name, monkeypatch, tmp_path):
    first = open_dataset(name)
    monkeypatch.chdir(tmp_path)
    second = open_dataset(first.uri)

    assert second.uri == first.uri
    assert second.kind == first.kind
    assert len(second) == len(first)
    check_unchanged(second, first.fingerprint())
    assert first.is_current()
    first.close()
    second.close()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_with_the_reason(name):
    with pytest.raises(BadInputError) as caught:
        open_dataset(name)

    for words in EXPECTED[name]["says"]:
        assert words in str(caught.value)


def test_every_file_of_the_cases_is_expected_to_do_something():
    spoken_for = {name.partition(":")[0] for name in EXPECTED}

    assert {path.name for path in (CASES / "data").iterdir()} <= spoken_for
