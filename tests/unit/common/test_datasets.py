"""Data sets: names in any script, damage, change, and reading in place."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight_common.datasets import check_unchanged, open_dataset
from overnight_common.errors import BadInputError, DataChangedError
from overnight_common.messages import DataReference, Task, decode_task, encode


def refusal(uri):
    with pytest.raises(BadInputError) as caught:
        open_dataset(str(uri))
    return str(caught.value)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_same_file_has_the_same_uri_however_it_is_named(here):
    np.save(here / "x.npy", np.zeros(3))
    (here / "folder").mkdir()
    names = ["x.npy", "./x.npy", str(here / "x.npy"), "folder/../x.npy"]

    uris = set()
    for name in names:
        dataset = open_dataset(name)
        uris.add(dataset.uri)
        dataset.close()

    assert uris == {str(here / "x.npy")}


def test_two_dots_behind_a_link_lead_where_the_system_says(here):
    (here / "deep" / "er").mkdir(parents=True)
    np.save(here / "deep" / "x.npy", np.arange(5))
    np.save(here / "x.npy", np.arange(3))
    (here / "link").symlink_to(here / "deep" / "er")

    dataset = open_dataset("link/../x.npy")

    assert len(dataset) == 5
    dataset.close()
    again = open_dataset(dataset.uri)
    assert len(again) == 5
    again.close()


@pytest.mark.parametrize(
    "name",
    [os.fsdecode(b"caf\xe9 %20.npy"), "x:y.npy", "range.npy", " lead.npy", "line\nbreak.npy", "#?.npy"],
)
def test_any_file_name_works_and_its_uri_fits_into_a_message(here, name):
    np.save(here / name, np.arange(3))

    dataset = open_dataset(name)
    task = Task(1, "j", "r", 0, 1, 1, "m", data=DataReference(dataset.uri, 3, dataset.fingerprint()))
    again = open_dataset(decode_task(encode(task)).data.uri)

    assert again.read(0, 3).tolist() == [0, 1, 2]
    assert again.uri == dataset.uri
    dataset.close()
    again.close()


def test_a_file_with_a_colon_in_its_name_comes_before_a_key(here):
    np.savez(here / "x.npz", a=np.zeros(2), b=np.zeros(3))
    np.savez(here / "x.npz:a.npz", only=np.zeros(5))

    for uri, count in (("x.npz:a", 2), ("x.npz:b", 3), ("x.npz:a.npz", 5)):
        dataset = open_dataset(uri)
        assert len(dataset) == count
        dataset.close()


def test_a_missing_file_is_named_with_the_folder_and_the_near_names(here):
    np.save(here / "points.npy", np.zeros(3))

    message = refusal("point.npy")

    assert str(here / "point.npy") in message
    assert f"current folder is {here}" in message
    assert "'points.npy'" in message


def test_what_is_no_file_or_of_no_known_format_is_refused_with_the_way_out(here):
    (here / "folder").mkdir()
    (here / "x.parquet").write_bytes(b"PAR1")
    (here / "x.bin").write_bytes(b"something")
    (here / "table.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    os.mkfifo(here / "pipe.npy")

    assert "glob:folder/*" in refusal("folder")
    assert "later version" in refusal("x.parquet")
    assert ".jsonl" in refusal("x.bin")
    assert "not an IDX file" in refusal("table.csv.gz")
    assert "no file that can be read twice" in refusal("pipe.npy")
    assert "glob:./*" in refusal("")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(here):
    np.save(here / "x.npy", np.zeros(3))
    (here / "x.npy").chmod(0)

    assert "cannot be read" in refusal("x.npy")


def test_a_pattern_gives_sorted_absolute_paths_and_works_in_folders_with_odd_names(tmp_path, monkeypatch):
    folder = tmp_path / "a[b]*"
    (folder / "images" / "deep").mkdir(parents=True)
    names = ["b.png", "a10.png", "a9.png", "é.png", os.fsdecode(b"\xe9.png"), "deep/c.png"]
    for name in [*names, "x.txt"]:
        (folder / "images" / name).write_bytes(b"")
    monkeypatch.chdir(folder)

    dataset = open_dataset("glob:images/**/*.png")
    monkeypatch.chdir(tmp_path)

    paths = dataset.read(0, len(dataset))
    assert paths == sorted(str(folder / "images" / name) for name in names)
    again = open_dataset(dataset.uri)
    assert again.read(0, len(again)) == paths
    check_unchanged(again, dataset.fingerprint())


def test_a_pattern_notices_a_file_that_came_went_or_changed(here):
    for name in ("a.png", "b.png"):
        (here / name).write_bytes(b"1")
    dataset = open_dataset("glob:*.png")
    before = dataset.fingerprint()
    check_unchanged(dataset, before)

    (here / "c.png").write_bytes(b"1")
    with pytest.raises(DataChangedError, match="number of files is 3, was 2"):
        check_unchanged(dataset, before)
    (here / "c.png").unlink()
    check_unchanged(dataset, before)
    (here / "a.png").write_bytes(b"12")
    with pytest.raises(DataChangedError, match="content"):
        check_unchanged(dataset, before)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("x.txt", b"one\ntwo\n", b"one\ntwo\nthree\n"),
        ("x.csv", b"a\n1\n2\n", b"a\n1\n3\n"),
        ("x.jsonl", b"1\n2\n", b"1\n22\n"),
    ],
)
def test_a_changed_file_is_noticed_and_what_changed_is_said(here, name, before, after):
    (here / name).write_bytes(before)
    dataset = open_dataset(name)
    fingerprint = dataset.fingerprint()
    assert dataset.is_current()

    (here / name).write_bytes(after)
    os.utime(here / name, ns=(0, 1234567890))

    assert not dataset.is_current()
    with pytest.raises(DataChangedError, match="time of last change is 1234567890"):
        check_unchanged(dataset, fingerprint)
    (here / name).unlink()
    assert not dataset.is_current()
    with pytest.raises(DataChangedError, match="can no longer be read"):
        check_unchanged(dataset, fingerprint)
    dataset.close()


def test_a_change_in_the_last_bytes_of_a_large_file_with_the_old_time_is_noticed(here):
    array = np.zeros(1_000_000)
    np.save(here / "x.npy", array)
    dataset = open_dataset("x.npy")
    before, status = dataset.fingerprint(), (here / "x.npy").stat()
    array[-1] = 1
    np.save(here / "x.npy", array)
    os.utime(here / "x.npy", ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(DataChangedError, match="content"):
        check_unchanged(dataset, before)
    dataset.close()


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_is_cut_short_while_in_use_is_an_error_and_not_a_crash(here, order):
    np.save(here / "x.npy", np.zeros((1000, 100), order=order))
    dataset = open_dataset("x.npy")
    os.truncate(here / "x.npy", 1000)

    with pytest.raises(DataChangedError, match="cut short"):
        dataset.read(500, 600)
    dataset.close()


@pytest.mark.parametrize("name", ["x.txt", "x.csv", "x.jsonl"])
def test_lines_that_change_while_in_use_are_an_error(here, name):
    (here / name).write_bytes(b'"a"\n' * 100)
    dataset = open_dataset(name)
    os.truncate(here / name, 200)

    with pytest.raises(DataChangedError):
        dataset.read(60, 70)
    dataset.close()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_an_archive_are_those_that_numpy_reads(here, save, order):
    array = np.random.default_rng(1).normal(size=(50, 4, 3)).astype(">f8")
    save(here / "x.npz", first=np.zeros(2), **{"пары/x": np.asarray(array, order=order)})

    dataset = open_dataset("x.npz:пары/x")

    assert len(dataset) == 50
    assert dataset.read(7, 31).tobytes() == array[7:31].tobytes()
    assert dataset.read(7, 31).flags.c_contiguous
    assert dataset.read(7, 31).flags.writeable
    dataset.close()


def test_an_archive_leaves_no_temporary_file_even_while_open(here, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(here / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (here / "tmp").mkdir()
    np.savez_compressed(here / "x.npz", a=np.zeros((1000, 10)))

    dataset = open_dataset("x.npz")

    assert list((here / "tmp").iterdir()) == []
    assert dataset.read(0, 1).shape == (1, 10)
    dataset.close()


def test_damaged_archives_are_refused(here):
    np.savez_compressed(here / "x.npz", a=np.arange(1000.0))
    whole = (here / "x.npz").read_bytes()
    (here / "cut.npz").write_bytes(whole[:-30])
    (here / "rotten.npz").write_bytes(whole[:200] + bytes(100) + whole[300:])
    (here / "no.npz").write_bytes(b"no archive")
    np.savez(here / "objects.npz", a=np.array([None, {}]))

    for name in ("cut.npz", "rotten.npz", "no.npz"):
        assert "cannot be read as .npz" in refusal(name)
    assert "dtype object" in refusal("objects.npz")


def test_a_gzipped_idx_file_that_holds_more_than_it_says_is_not_unpacked_to_the_end(here):
    head = bytes([0, 0, 8, 1, 0, 0, 0, 2])
    (here / "x-idx1-ubyte.gz").write_bytes(gzip.compress(head + bytes(10_000_000)))

    assert "longer than its header says: 2 bytes" in refusal("x-idx1-ubyte.gz")


def test_an_idx_file_is_known_by_its_first_bytes_and_rows_come_in_native_byte_order(here):
    rows = np.array([[1.5, 2.5]], dtype=">f4")
    (here / "anything.data").write_bytes(bytes([0, 0, 13, 2, 0, 0, 0, 1, 0, 0, 0, 2]) + rows.tobytes())

    dataset = open_dataset("anything.data")

    assert dataset.read(0, 1).dtype == np.dtype("=f4")
    assert dataset.read(0, 1).dtype.isnative
    assert dataset.read(0, 1).tolist() == [[1.5, 2.5]]
    dataset.close()


def test_a_table_takes_other_delimiters_when_told(here):
    (here / "x.csv").write_text("a;b\n1,5;2\n")
    (here / "t.csv").write_text("a\tb\n1,5\t2\n")

    for uri in ("x.csv:delimiter=;", "t.csv:delimiter=tab", "t.csv:delimiter=\\t", "t.csv:delimiter=\t"):
        dataset = open_dataset(uri)
        assert dataset.read(0, 1) == [{"a": "1,5", "b": "2"}]
        dataset.close()
    assert "one character" in refusal("x.csv:delimiter=")


def test_a_field_of_a_megabyte_is_read(here):
    long = "x" * 1_000_000
    (here / "x.csv").write_text(f'a,b\n1,"{long}\n{long}"\n2,y\n')

    dataset = open_dataset("x.csv")

    assert dataset.read(0, 2) == [{"a": "1", "b": f"{long}\n{long}"}, {"a": "2", "b": "y"}]
    dataset.close()


def test_text_after_a_closing_quote_is_refused_with_its_line(here):
    (here / "x.csv").write_text('a,b\n1,2\n3,"x"y\n')

    assert "row at line 3 is no CSV" in refusal("x.csv")


fields = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=6)


@given(st.lists(st.tuples(fields, fields), max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_table_that_pythons_writer_wrote_is_read_back(tmp_path_factory, rows, line_end, last_line_ends):
    import csv
    import io

    buffer = io.StringIO()
    csv.writer(buffer, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows([("a", "жук"), *rows])
    content = buffer.getvalue().encode()
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(content if last_line_ends else content.removesuffix(line_end.encode()))

    dataset = open_dataset(str(path))

    expected = [{"a": first, "жук": second} for first, second in rows]
    assert dataset.read(0, len(dataset)) == expected
    assert [dataset.read(i, i + 1)[0] for i in range(len(dataset))] == expected
    dataset.close()


@given(st.lists(fields.filter(lambda text: "\n" not in text and not text.endswith("\r")), max_size=8))
@settings(deadline=None, max_examples=60)
def test_any_lines_are_read_back_as_text_and_as_json(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("lines")
    lines = [line.removeprefix("\ufeff") for line in lines]
    (folder / "x.txt").write_bytes("".join(f"{line}\n" for line in lines).encode())
    (folder / "x.jsonl").write_bytes("".join(f" {json.dumps(line)} \r\n\n" for line in lines).encode())

    for name in ("x.txt", "x.jsonl"):
        dataset = open_dataset(str(folder / name))
        assert dataset.read(0, len(dataset)) == lines
        assert [dataset.read(i, i + 1)[0] for i in range(len(dataset))] == lines
        dataset.close()


def test_json_lines_keep_integers_beyond_pythons_own_limit_and_refuse_endless_nesting(here):
    (here / "big.jsonl").write_text("-" + "7" * 6000 + "\n[" + "1" * 5000 + ', 0.5, "9"]\n')
    (here / "deep.jsonl").write_text("1\n" + "[" * 300 + "]" * 300 + "\n")
    (here / "deeper.jsonl").write_text("1\n" + "[" * 100_000 + "\n")

    dataset = open_dataset("big.jsonl")
    first, second = dataset.read(0, 2)

    assert first == -7 * (10**6000 - 1) // 9
    assert second == [(10**5000 - 1) // 9, 0.5, "9"]
    dataset.close()
    assert "line 2" in refusal("deep.jsonl")
    assert "line 2" in refusal("deeper.jsonl")


def test_a_byte_order_mark_is_no_part_of_the_first_line(here):
    (here / "x.txt").write_bytes(b"\xef\xbb\xbfone\ntwo")
    (here / "x.jsonl").write_bytes(b"\xef\xbb\xbf1\n2")

    for name, points in (("x.txt", ["one", "two"]), ("x.jsonl", [1, 2])):
        dataset = open_dataset(name)
        assert dataset.read(0, 2) == points
        dataset.close()


def test_a_range_is_counted_and_never_stored():
    dataset = open_dataset("range:1000000000000")

    assert len(dataset) == 10**12
    assert dataset.read(10**12 - 2, 10**12).tolist() == [10**12 - 2, 10**12 - 1]
    assert dataset.read(0, 1).dtype == np.int64
    assert "no range" in refusal("range:1e3")
    assert "no range" in refusal("range:" + "9" * 19)


def test_a_file_larger_than_the_memory_allowed_is_read(here):
    rows = 400_000
    with (here / "x.txt").open("w") as file:
        file.writelines(f"line {i} {'x' * 500}\n" for i in range(rows))
    np.lib.format.open_memmap(here / "x.npy", "w+", "f8", (2_000_000, 64)).flush()
    code = """if True:
        import resource, sys
        from overnight_common.datasets import open_dataset
        free = 150 * 1024 * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (free, free))
        text, array = open_dataset("x.txt"), open_dataset("x.npy")
        print(len(text), text.read(399_999, 400_000)[0][:11], array.read(1_999_000, 2_000_000).shape)
    """

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )

    assert done.stderr == ""
    assert done.stdout == "400000 line 399999 (1000, 64)\n"
