import csv
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from overnight_common.errors import BadInputError
from overnight_common.values import encode_values
from overnight_producer.exports import export as export_module
from overnight_producer.exports.export import ExportError, check_first_result, check_output, export
from overnight_producer.exports.plain_json import json_line
from support.job_files import add, new_job

FORMATS = [".npy", ".npz", ".jsonl", ".csv"]


def jsonl_of(path):
    def refuse(name):
        raise AssertionError(f"{name} is no standard JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_bytes().split(b"\n")[:-1]]


def csv_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def exported(tmp_path, suffix, points, batches, **changes):
    with new_job(tmp_path, points, **changes) as job:
        for start, values in batches:
            add(job, start, values)
        path = tmp_path / f"results{suffix}"
        return export(job, path), path


# Arrays


def test_an_array_comes_out_in_the_order_of_the_points(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    outcome, path = exported(tmp_path, ".npy", 6, [(4, rows[4:]), (0, rows[:1]), (1, rows[1:4])])
    assert np.load(path).tobytes() == rows.tobytes()
    assert np.load(path).dtype == np.float32
    assert (outcome.points, outcome.missing, outcome.done_mask, outcome.others, outcome.notes) == (
        6,
        0,
        None,
        None,
        (),
    )
    assert sorted(each.name for each in tmp_path.iterdir() if "results" in each.name) == ["results.npy"]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("as_list", [False, True])
def test_a_file_is_the_same_to_the_bit_whatever_the_batch(tmp_path, suffix, as_list):
    values = np.random.default_rng(3).normal(size=(30, 3, 2))
    values[4, 1] = np.nan
    files = []
    for batch in (1, 7, 30):
        folder = tmp_path / str(batch)
        folder.mkdir()
        parts = [(at, values[at : at + batch]) for at in range(0, 30, batch)]
        parts = [(at, part.tolist() if as_list else part) for at, part in parts]
        files.append(exported(folder, suffix, 30, parts)[1].read_bytes())
    assert files[0] == files[1] == files[2]


def test_row_i_of_a_job_over_a_part_is_point_start_plus_i(tmp_path):
    given = {"start": 10, "stop": 13}
    _, path = exported(tmp_path, ".npz", 50, [(10, np.array([1, 2])), (12, np.array([3]))], **given)
    with np.load(path) as loaded:
        assert loaded["results"].tolist() == [1, 2, 3]
        assert loaded["index"].tolist() == [10, 11, 12]


@pytest.mark.parametrize(
    ("values", "filler"),
    [
        (np.array([1.5]), np.nan),
        (np.array([1 + 2j]), complex(np.nan, np.nan)),
        (np.array([7]), 0),
        (np.array([True]), False),
        (np.array(["2020-01-01"], "M8[D]"), np.datetime64("NaT")),
        (np.array([(1, 2.5)], "i4,f8"), np.array((0, 0.0), "i4,f8")[()]),
        (np.array([[1.0, 2.0]], ">f4"), np.full(2, np.nan)),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_point_without_a_result_is_nan_or_zero_and_false_in_the_mask(tmp_path, suffix, values, filler):
    outcome, path = exported(tmp_path, suffix, 4, [(2, values)])
    if suffix == ".npy":
        results, done = np.load(path), np.load(tmp_path / "results.done.npy")
        assert outcome.done_mask == tmp_path / "results.done.npy"
        assert "results.done.npy" in outcome.notes[0]
    else:
        with np.load(path) as loaded:
            results, done = loaded["results"], loaded["done"]
    assert done.tolist() == [False, False, True, False]
    assert results.dtype == values.dtype
    assert results[2].tobytes() == values[0].tobytes()
    for row in (0, 1, 3):
        np.testing.assert_equal(results[row], filler)
    assert outcome.missing == 3
    assert outcome.notes[0].startswith("3 points without a result")


def test_the_mask_of_an_unfinished_export_goes_when_the_job_is_complete(tmp_path):
    with new_job(tmp_path, 2) as job:
        add(job, 0, [1.5])
        path = tmp_path / "results.npy"
        assert export(job, path).done_mask is not None
        add(job, 1, [2.5])
        assert export(job, path).done_mask is None
    assert np.load(path).tolist() == [1.5, 2.5]
    assert not (tmp_path / "results.done.npy").exists()


def test_a_result_of_another_shape_is_kept_beside_and_said(tmp_path):
    batches = [(0, np.zeros((2, 3))), (2, [np.zeros(4), "text"]), (4, np.ones((1, 3)))]
    outcome, path = exported(tmp_path, ".npy", 5, batches)
    assert outcome.misfits == 2
    assert outcome.others == tmp_path / "results.npy.others.jsonl"
    assert jsonl_of(outcome.others) == [
        {"index": 2, "value": [0.0] * 4},
        {"index": 3, "value": "text"},
    ]
    assert np.load(path)[4].tolist() == [1.0, 1.0, 1.0]
    assert np.load(tmp_path / "results.done.npy").tolist() == [True, True, False, False, True]
    assert any("do not fit" in note and "results.npy.others.jsonl" in note for note in outcome.notes)


def test_others_of_an_earlier_export_go_when_everything_fits(tmp_path):
    (tmp_path / "results.npy.others.jsonl").write_text("old")
    outcome, _ = exported(tmp_path, ".npy", 1, [(0, [1.0])])
    assert outcome.others is None
    assert not (tmp_path / "results.npy.others.jsonl").exists()


def test_whole_numbers_among_fractions_fit_but_not_the_other_way_round(tmp_path):
    outcome, path = exported(tmp_path, ".npy", 3, [(0, [0.5, 1, 2**60 + 1])])
    assert np.load(path)[:2].tolist() == [0.5, 1.0]
    assert jsonl_of(outcome.others) == [{"index": 2, "value": 2**60 + 1}]


def test_results_that_make_no_array_all_go_beside(tmp_path):
    outcome, path = exported(tmp_path, ".npy", 2, [(0, [{"a": 1}, {"a": 2}])])
    assert np.isnan(np.load(path)).all()
    assert [each["value"] for each in jsonl_of(outcome.others)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_job_without_any_result_yet_can_be_exported(tmp_path, suffix):
    outcome, path = exported(tmp_path, suffix, 3, [])
    assert outcome.missing == 3
    if suffix == ".npy":
        assert np.load(path).shape == (3,)
    elif suffix == ".npz":
        with np.load(path) as loaded:
            assert loaded["done"].tolist() == [False] * 3
    elif suffix == ".jsonl":
        assert jsonl_of(path) == [None] * 3
    else:
        assert csv_of(path) == [["index", "value"], ["0", ""], ["1", ""], ["2", ""]]


@pytest.mark.parametrize("suffix", FORMATS)
def test_points_done_without_a_value_are_told_from_missing_ones(tmp_path, suffix):
    with new_job(tmp_path, 4) as job:
        add(job, 1, None, stop=3)
        outcome = export(job, tmp_path / f"results{suffix}")
    assert (outcome.missing, outcome.without_value) == (2, 2)
    assert "2 points done without a value" in outcome.notes


def test_an_array_far_larger_than_a_chunk_of_filling_has_every_row(tmp_path):
    row = np.arange(50_000.0)
    _, path = exported(tmp_path, ".npy", 9, [(6, row[np.newaxis])])
    loaded = np.load(path, mmap_mode="r")
    assert loaded.shape == (9, 50_000)
    assert (loaded[6] == row).all()
    assert np.isnan(loaded[:6]).all()
    assert np.isnan(loaded[7:]).all()


# Text


def test_jsonl_is_standard_json_a_line_a_point(tmp_path):
    values = [
        1.5,
        float("nan"),
        -float("inf"),
        2**100,
        10**5000,
        "naïve 漢字 \n\u2028",
        "\ud83d",
        {"a": [None, True, {"b": b"\x00\xff"}], "c": float("inf")},
        np.arange(3.0),
        np.float32(0.5),
        np.datetime64("2024-01-02"),
        np.complex128(1 + 2j),
        datetime(2024, 1, 2, tzinfo=UTC),
        [],
    ]
    _, path = exported(tmp_path, ".jsonl", len(values) + 1, [(1, values)])
    assert jsonl_of(path) == [
        None,
        1.5,
        "NaN",
        "-Infinity",
        2**100,
        {"$int": format(10**5000, "x")},
        "naïve 漢字 \n\u2028",
        "\ud83d",
        {"a": [None, True, {"b": {"$bytes": "AP8="}}], "c": "Infinity"},
        [0.0, 1.0, 2.0],
        0.5,
        "2024-01-02",
        {"$complex": [1.0, 2.0]},
        "2024-01-02T00:00:00+00:00",
        [],
    ]


@pytest.mark.parametrize(
    ("array", "rows"),
    [
        (np.array([[1, 2], [3, 4]], ">i2"), [[1, 2], [3, 4]]),
        (np.array(["2024-01-02", "NaT"], "M8[D]"), ["2024-01-02", "NaT"]),
        (np.array([(1, 2.5), (2, np.nan)], "i4,f8"), [{"f0": 1, "f1": 2.5}, {"f0": 2, "f1": "NaN"}]),
        (np.array([b"a", b"\xff"]), [{"$bytes": "YQ=="}, {"$bytes": "/w=="}]),
        (np.array(["x", "é"]), ["x", "é"]),
        (np.array([1.5, np.inf], np.float16), [1.5, "Infinity"]),
        (np.array([1, 2], "m8[s]"), ["1 seconds", "2 seconds"]),
        (np.array([[1.5 + 1j]]), [[{"$complex": [1.5, 1.0]}]]),
    ],
)
def test_rows_of_every_kind_of_array_have_a_form_in_json(array, rows):
    assert [json.loads(json_line(row)) for row in array] == rows


def test_csv_has_a_column_for_each_key_of_a_record(tmp_path):
    values = [
        {"label": 'a,\n"b"', "score": 0.1, "top": [1, 2], "ok": True},
        {"score": None, "label": "漢"},
    ]
    outcome, path = exported(tmp_path, ".csv", 4, [(1, values)])
    assert csv_of(path) == [
        ["index", "label", "score", "top", "ok"],
        ["0", "", "", "", ""],
        ["1", 'a,\n"b"', "0.1", "[1, 2]", "true"],
        ["2", "漢", "", "", ""],
        ["3", "", "", "", ""],
    ]
    assert outcome.misfits == 0


def test_csv_has_a_column_for_each_number_of_an_array(tmp_path):
    outcome, path = exported(tmp_path, ".csv", 7, [(5, np.array([[0.5, np.nan]]))], start=5)
    assert csv_of(path) == [["index", "v0", "v1"], ["5", "0.5", "nan"], ["6", "", ""]]
    assert outcome.missing == 1


def test_csv_has_one_column_for_single_values(tmp_path):
    values = [3, 0.25, "text", None, [1, [2]], {"a": 1}, 2**70]
    _, path = exported(tmp_path, ".csv", 7, [(0, values)])
    assert [row[1] for row in csv_of(path)] == [
        "value",
        "3",
        "0.25",
        "text",
        "",
        "[1, [2]]",
        '{"a": 1}',
        str(2**70),
    ]


def test_a_record_with_another_key_is_kept_beside(tmp_path):
    outcome, path = exported(tmp_path, ".csv", 2, [(0, [{"a": 1}, {"a": 2, "z": 3}])])
    assert csv_of(path) == [["index", "a"], ["0", "1"], ["1", ""]]
    assert jsonl_of(outcome.others) == [{"index": 1, "value": {"a": 2, "z": 3}}]


# The file


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_export_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"results{suffix}"
    path.write_text("old")

    def fail(encoded):
        raise OSError(28, "No space left on device")

    with new_job(tmp_path, 2) as job:
        add(job, 0, [1.0])
        before = sorted(tmp_path.iterdir())
        monkeypatch.setattr(export_module, "decode_values", fail)
        with pytest.raises(ExportError, match="No space left"):
            export(job, path)
        assert sorted(tmp_path.iterdir()) == before
    assert path.read_text() == "old"


def test_a_killed_export_leaves_the_old_file_and_the_next_one_tidies_up(tmp_path):
    with new_job(tmp_path, 2) as job:
        add(job, 0, [1.0, 2.0])
        path = tmp_path / "results.npy"
        path.write_text("old")
        code = """
import os, signal, sys
from pathlib import Path
from overnight_producer.exports import export as module
from overnight_producer.jobs.jobfile import JobFile
module.decode_values = lambda encoded: os.kill(os.getpid(), signal.SIGKILL)
with JobFile.open(Path(sys.argv[1])) as job:
    module.export(job, Path(sys.argv[2]))
"""
        killed = subprocess.run([sys.executable, "-c", code, str(job.path), str(path)])
        assert killed.returncode == -signal.SIGKILL
        assert path.read_text() == "old"
        assert len(list(tmp_path.glob(".results.npy.*"))) == 1
        export(job, path)
    assert np.load(path).tolist() == [1.0, 2.0]
    assert list(tmp_path.glob(".results*")) == []


def test_an_unknown_ending_is_bad_input(tmp_path):
    with new_job(tmp_path, 2) as job, pytest.raises(BadInputError, match=r"\.jsonl"):
        export(job, tmp_path / "results.xlsx")


def test_damaged_results_are_left_out_and_said(tmp_path):
    with new_job(tmp_path, 3) as job:
        add(job, 0, [1.0, 2.0])
        job._connection.execute("UPDATE results SET body = x'00'")
        add(job, 2, [3.0])
        outcome = export(job, tmp_path / "results.jsonl")
    assert jsonl_of(tmp_path / "results.jsonl") == [None, None, 3.0]
    assert any("damaged" in note for note in outcome.notes)


# Before the run


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_new_file_in_a_folder_speaks_for_itself(tmp_path, suffix):
    assert check_output(tmp_path / f"ergebnis größe{suffix}") == []
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written_is_refused_with_every_reason(tmp_path):
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "data.npy").write_bytes(b"data")
    (tmp_path / "link.npy").symlink_to(tmp_path / "data.npy")
    os.mkfifo(tmp_path / "pipe.csv")
    inputs = [tmp_path / "data.npy"]
    assert "ending" in check_output(tmp_path / "a.txt")[0]
    assert len(check_output(tmp_path / "none" / "a.txt")) == 2
    assert "does not exist" in check_output(tmp_path / "none" / "a.npy")[0]
    assert "is a folder" in check_output(tmp_path / "folder.npy")[0]
    assert "not a regular file" in check_output(tmp_path / "pipe.csv")[0]
    assert "data set itself" in check_output(tmp_path / "data.npy", inputs)[0]
    assert "data set itself" in check_output(tmp_path / "link.npy", inputs)[0]
    assert (tmp_path / "data.npy").read_bytes() == b"data"


def test_a_folder_where_no_file_can_be_made_is_refused():
    faults = check_output(Path("/proc/results.npy"))
    assert "cannot be written" in faults[0]


def test_the_first_result_is_tried_against_the_format(tmp_path):
    text = encode_values(["a"], 1)
    array = encode_values(np.zeros((1, 5)), 1)
    assert "no row of an array" in check_first_result(text, tmp_path / "r.npy", 10)
    assert check_first_result(text, tmp_path / "r.jsonl", 10) is None
    assert check_first_result(text, tmp_path / "r.csv", 10) is None
    assert check_first_result(array, tmp_path / "r.npz", 10) is None
    assert "no values" in check_first_result(None, tmp_path / "r.npz", 10)


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_first_result_is_tried_against_the_free_disk_space(tmp_path, suffix):
    first = encode_values(np.zeros((1, 1000)), 1)
    fault = check_first_result(first, tmp_path / f"r{suffix}", 10**13)
    assert fault is not None
    assert "GB free" in fault


def test_a_first_result_whose_folder_is_gone_is_a_fault_and_no_crash(tmp_path):
    fault = check_first_result(encode_values(np.zeros((1, 2)), 1), tmp_path / "gone" / "r.npy", 10)
    assert "cannot be written" in fault
