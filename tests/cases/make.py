"""Write the awkward data sets in data/, and expected.json: for each the points, or what the refusal must say.

Run from anywhere: `python tests/cases/make.py`. In expected.json a value that is no JSON is written as Python
shows it, as text: NaN is "nan".
"""

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
DATA = HERE / "data"
SEVENTHS = np.arange(12.0).reshape(4, 3) / 7
EXPECTED: dict[str, dict[str, Any]] = {}


def points(name: str, count: int, values: Any = None) -> None:
    """Expect `count` points, and these values where they can be written down."""
    EXPECTED[name] = {"points": count} if values is None else {"points": count, "values": values}


def refused(name: str, *says: str) -> None:
    """Expect a refusal whose message has all of these words in it."""
    EXPECTED[name] = {"says": list(says)}


def raw(name: str, content: bytes | str) -> str:
    """Write a file and return its name."""
    (DATA / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def npy(name: str, array: np.ndarray, version: tuple[int, int] | None = None) -> str:
    """Write an array and return the file's name."""
    with (DATA / name).open("wb") as file:
        np.lib.format.write_array(file, array, version=version, allow_pickle=True)
    return name


def idx(type_code: int, array: np.ndarray) -> bytes:
    """Return an array, already big-endian, as IDX."""
    sizes = np.array(array.shape, dtype=">u4").tobytes()
    return bytes([0, 0, type_code, array.ndim]) + sizes + array.tobytes()


def tables() -> None:
    points(
        raw(
            "bom_crlf_quoted.csv",
            '\ufeffid,text,score\r\n1,"two\r\nlines, one field",0.5\r\n2,"said ""no""",1e-3\r\n3,"",-0\r\n',
        ),
        3,
        [
            {"id": "1", "text": "two\r\nlines, one field", "score": "0.5"},
            {"id": "2", "text": 'said "no"', "score": "1e-3"},
            {"id": "3", "text": "", "score": "-0"},
        ],
    )
    blank_lines = raw("blank_lines_no_end.csv", "a,b\n\n1,2\n\n\n3,4\n\n5,6")
    points(blank_lines, 3, [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}, {"a": "5", "b": "6"}])
    points(raw("header_only.csv", "a,b\n"), 0, [])
    refused(raw("empty.csv", ""), "empty file", "header")
    refused(raw("ragged.csv", "a,b\n1,2\n3\n4,5,6\n"), "row 2 (line 3) has 1 field where 2 were due")
    semicolon = raw("semicolon.csv", "a;b\n1,5;2\n")
    refused(semicolon, "row 1", "has 2 fields where 1 was due", "semicolon.csv:delimiter=;")
    points(f"{semicolon}:delimiter=;", 1, [{"a": "1,5", "b": "2"}])
    refused(f"{semicolon}:delimiter=;;", "one character")
    refused(raw("unclosed_quote.csv", 'a,b\n1,"open\n2,3\n'), "quote opened on line 2 never closes")
    late_quote = 'a,b\n"x\ny","""z\n1,2\n'
    refused(raw("unclosed_later.csv", late_quote), "quote opened on line 3 never closes")
    refused(raw("same_name_twice.csv", "a,b,a\n1,2,3\n"), "'a'", "more than once")


def lines() -> None:
    separators = '{"t": "a\u2028b"}\n{"t": "c\u0085d"}\r\n{"t": "e\\u000bf"}\n\n'
    points(raw("separators.jsonl", separators), 3, [{"t": "a\u2028b"}, {"t": "c\u0085d"}, {"t": "e\x0bf"}])
    infinite = '{"x": NaN, "y": Infinity}\n{"x": -0.0, "y": 1e400}\n'
    points(raw("nan.jsonl", infinite), 2, [{"x": "nan", "y": "inf"}, {"x": -0.0, "y": "inf"}])
    large = 123456789012345678901234567890
    points(
        raw("big_int.jsonl", f'{{"id": {2**53 + 1}}}\n{{"id": {large}}}\n'),
        2,
        [{"id": 2**53 + 1}, {"id": large}],
    )
    points(raw("any_json.jsonl", '[1, "x"]\nnull\n7'), 3, [[1, "x"], None, 7])
    refused(raw("bad_line.jsonl", '{"a": 1}\n{"a": \n{"a": 3}\n'), "line 2 is not JSON")
    points(raw("duplicate_key.jsonl", '{"a": 1, "a": 2}\n'), 1, [{"a": 2}])
    odd_lines = ["one\x0bstill one", "two\x0cstill two", "three\u2028still three", "", "five\x1cstill five"]
    points(raw("controls.txt", "\n".join(odd_lines)), 5, odd_lines)
    points(raw("empty.txt", ""), 0, [])
    refused(raw("latin1.txt", b"caf\xe9\n"), "not UTF-8", "line 1, byte 3", "iconv")


def arrays() -> None:
    points(npy("fortran.npy", np.asfortranarray(SEVENTHS)), 4, SEVENTHS.tolist())
    for name, dtype in (("big_endian.npy", ">f4"), ("half.npy", "<f2")):
        points(npy(name, SEVENTHS.astype(dtype)), 4, SEVENTHS.astype(dtype).tolist())
    points(npy("bool.npy", np.eye(2, dtype=bool) & [[True], [False]]), 2, [[True, False], [False, False]])
    points(npy("complex.npy", np.array([1 + 2j, np.nan - 1j])), 2, ["(1+2j)", "(nan-1j)"])
    times = np.array(["2026-12-03T18:00", "NaT"], dtype="datetime64[m]")
    points(npy("datetime.npy", times), 2, ["datetime.datetime(2026, 12, 3, 18, 0)", None])
    words = ["да", "нет", "🙂"]
    points(npy("unicode.npy", np.array(words)), 3, words)
    pairs = np.array([(1, 2.5), (3, 4.5)], dtype=[("id", "<i4"), ("x", "<f8")])
    points(npy("structured.npy", pairs), 2, [[1, 2.5], [3, 4.5]])
    named = np.array([(1,), (2,)], dtype=[("величина", "<i4")])
    points(npy("field_names.npy", named, version=(3, 0)), 2, [[1], [2]])
    points(npy("zero_rows.npy", np.empty((0, 3))), 0, [])
    points(npy("zero_width.npy", np.empty((3, 0))), 3, [[], [], []])
    refused(npy("scalar.npy", np.array(3.0)), "a single value", "0 dimensions")
    objects = np.array([[1, 2], None], dtype=object)
    refused(
        npy("object.npy", objects),
        "object.npy",
        "dtype object",
        "save it again",
        "nothing in it was unpickled",
    )
    whole = (DATA / "fortran.npy").read_bytes()
    refused(raw("truncated.npy", whole[:-9]), "shorter than its header says", "96 bytes", "87 are there")
    refused(raw("lengthened.npy", whole + b"123"), "longer than its header says", "96 bytes", "99 are there")
    refused(raw("not_npy.npy", b"PK\x03\x04 this is no array"), "not a .npy file", "zip archive")


def archives() -> None:
    np.savez(DATA / "two.npz", **{"train x": SEVENTHS, "test": SEVENTHS[:1]})
    refused("two.npz", "several arrays: 'test', 'train x'", "two.npz:test")
    refused("two.npz:absent", "no array 'absent'", "'test', 'train x'")
    points("two.npz:train x", 4, SEVENTHS.tolist())
    np.savez_compressed(DATA / "one.npz", only=SEVENTHS)
    points("one.npz", 4, SEVENTHS.tolist())
    points("one.npz:only", 4, SEVENTHS.tolist())
    with zipfile.ZipFile(DATA / "nothing.npz", "w"):
        refused("nothing.npz", "holds no array")


def idx_files() -> None:
    images = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    points(raw("tiny-images-idx3-ubyte", idx(0x08, images)), 2, images.tolist())
    packed = gzip.compress(idx(0x08, images), mtime=0)
    points(raw("tiny-images-idx3-ubyte.gz", packed), 2, images.tolist())
    points(raw("shorts-idx1-short", idx(0x0B, np.array([-2, 300], dtype=">i2"))), 2, [-2, 300])
    points(
        raw("doubles-idx2-double", idx(0x0E, np.array([[0.5], [-1.25]], dtype=">f8"))), 2, [[0.5], [-1.25]]
    )
    short = "shorter than its header says"
    refused(raw("truncated-idx3-ubyte", idx(0x08, images)[:-4]), short, "18 bytes", "14 are there")
    refused(raw("truncated-idx3-ubyte.gz", packed[:-10]), "damaged gzip file")


def names_and_ranges() -> None:
    for name in ("данные точек.npy", "a b%20c.npy", "emoji 🙂.npy", "-dash.npy"):
        points(npy(name, SEVENTHS), 4, SEVENTHS.tolist())
    points("range:0", 0, [])
    points("range:5", 5, [0, 1, 2, 3, 4])
    refused("range:-1", "needs 0 or more")
    refused("range:many", "range:1000")
    refused("glob:nothing-*.png", "no file matches 'nothing-*.png'", "data")
    refused("big_endain.npy", "no file", "'big_endian.npy'", "current folder")
    refused("s3://bucket/x.npy", "no file", "range:N")


def main() -> None:
    DATA.mkdir(exist_ok=True)
    for family in (tables, lines, arrays, archives, idx_files, names_and_ranges):
        family()
    text = json.dumps(EXPECTED, ensure_ascii=False, indent=1, sort_keys=True)
    (HERE / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
