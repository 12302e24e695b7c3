"""Values survive the trip exactly or are refused by name; any byte string decodes or raises DecodeError."""

import contextlib
import math
import sys
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from overnight_common.errors import DecodeError, EncodeError
from overnight_common.messages import Encoded
from overnight_common.npy_format import write_header
from overnight_common.values import count_values, decode_values, encode_values, slice_values


def there_and_back(value):
    return decode_values(encode_values([value], 1))[0]


def assert_same(back, value):
    """Compare types, NaN, signs of zero and dtypes, not just `==`."""
    if isinstance(value, tuple):
        value = list(value)
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert_same_array(back, value)
    elif isinstance(value, np.str_):
        assert str.__eq__(back, value)
    elif isinstance(value, np.bytes_):
        assert bytes.__eq__(back, value)
    elif isinstance(value, np.generic):
        assert_same_array(np.asarray(back), np.asarray(value))
    elif isinstance(value, list):
        assert len(back) == len(value)
        for one, other in zip(back, value, strict=True):
            assert_same(one, other)
    elif isinstance(value, dict):
        assert list(back) == list(value)
        for key in value:
            assert_same(back[key], value[key])
    elif isinstance(value, float):
        assert (
            math.isnan(back)
            if math.isnan(value)
            else (back, math.copysign(1, back))
            == (
                value,
                math.copysign(1, value),
            )
        )
    else:
        assert back == value


def assert_same_array(back, array):
    assert back.dtype == array.dtype
    assert back.dtype.byteorder == array.dtype.byteorder
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.f_contiguous == (
        array.flags.f_contiguous or (array.flags.c_contiguous and array.ndim < 2)
    )
    assert back.flags.writeable


any_text = st.text(st.characters(codec=None, exclude_categories=()))  # lone surrogates too
whole_numbers = st.integers() | st.integers(-(2**3000), 2**3000)
dtypes = (
    st_numpy.scalar_dtypes()
    | st_numpy.byte_string_dtypes(min_len=1)
    | st_numpy.unicode_string_dtypes(min_len=1)
    | st_numpy.array_dtypes(allow_subarrays=True)
)
arrays = st_numpy.arrays(dtypes, st_numpy.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=4))
leaves = (
    st.none()
    | st.booleans()
    | whole_numbers
    | st.floats()
    | any_text
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
    | arrays
    | st_numpy.scalar_dtypes().flatmap(st_numpy.from_dtype)
)
keys = any_text | st.sampled_from(["$bytes", "$array", "$$bytes", "$", "$x", "$scalar"])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(values)
@settings(deadline=None)
def test_any_value_comes_back_as_it_was(value):
    assert_same(there_and_back(value), value)


@given(
    st_numpy.arrays(dtypes, st_numpy.array_shapes(min_dims=1, min_side=0, max_dims=3, max_side=4)),
    st.booleans(),
)
@settings(deadline=None)
def test_any_array_of_results_comes_back_as_it_was(array, fortran):
    array = np.asarray(array, order="F") if fortran else array

    encoded = encode_values(array, len(array))

    assert encoded.kind == "npy"
    assert count_values(encoded) == len(array)
    assert_same_array(decode_values(encoded), array)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        -0.0,
        2**64,
        -(2**63) - 1,
        10**5000 + 7,
        -(10**5000),
        2**2048,
        "\ud800",
        "\ud83d\ude00",
        "x\ud83d",
        "да 🙂 \x00 \u2028",
        b"\x00\xff",
        b"",
        [],
        {},
        [[], [[]]],
        (),
        (1, (2, [3])),
        {"$bytes": "AAE="},
        {"$": {"$$": [{"$array": 1}]}},
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        np.float64(-0.0),
        np.float16(0.1),
        np.longdouble("1e4000") if np.finfo(np.longdouble).maxexp > 2000 else np.longdouble(1),
        np.int8(-1),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.complex64(1 - 2j),
        np.datetime64("2026-01-01T00:00:00.123456789"),
        np.datetime64("NaT"),
        np.timedelta64(5, "D"),
        np.str_("да\x00"),
        np.bytes_(b"a\x00"),
        np.array(1.5),
        np.array([(1, 2.5)], dtype=[("id", ">i4"), ("величина", "<f8", (2,))])[0],
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([np.nan, -np.nan, np.inf, -0.0]),
        {"w": [np.zeros((0, 3)), (True, None)], "ключ": np.float32(1)},
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:20] if not isinstance(value, int) else 'int'}",
)
def test_what_other_tools_lose_survives(value):
    assert_same(there_and_back(value), value)


def test_a_list_of_results_stays_a_list_and_a_tuple_becomes_one():
    assert decode_values(encode_values((1, (2,)), 2)) == [1, [2]]
    assert decode_values(encode_values([], 0)) == []
    assert encode_values(np.empty((0, 3)), 0).kind == "npy"


def test_children_of_plain_types_are_taken_as_those():
    class Colour(IntEnum):
        RED = 1

    point = namedtuple("point", "x y")

    back = there_and_back([Colour.RED, point(1, 2), OrderedDict(a=1), {np.str_("k"): bytearray(b"x")}])

    assert back == [1, [1, 2], {"a": 1}, {"k": b"x"}]
    assert [type(element) for element in back] == [int, list, dict, dict]


def test_a_time_in_another_zone_comes_back_as_the_same_instant_in_utc():
    time = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=3)))

    back = there_and_back(time)

    assert back == time
    assert back.tzinfo is UTC


@pytest.mark.parametrize(
    ("values", "count", "says"),
    [
        ([1, 2], 3, "a list of length 2 came where 3 results were due"),
        ((1, 2), 1, "a tuple of length 2 came where 1 result was due"),
        (np.zeros((3, 2)), 2, "shape (3, 2) came where 2 results were due"),
        (np.float64(3), 1, "float64 came where an array or a list of 1 result was due"),
        (np.array(3.0), 1, "shape () came where 1 result was due"),
        (None, 5, "nothing (None) came where an array or a list of 5 results were due"),
        ((x for x in ()), 2, "a generator came"),
        ({"a": 1}, 1, "a dict came"),
        ("ab", 2, "a str came"),
        (np.array([{}, None]), 2, ".tolist()"),
        (np.ma.masked_array([1, 2], [True, False]), 2, ".filled("),
        ([1, [{"weights": [{1, 2}]}]], 2, "[1][0]['weights'][0] is of type set"),
        ([{"a": {2: 1}}], 1, "[0]['a'] has the key 2 of type int"),
        ([{None: 1}], 1, "key None of type NoneType"),
        ([{"t": datetime(2026, 1, 1)}], 1, "[0]['t'] is a time without a time zone"),  # noqa: DTZ001
        ([{"o": np.array([object()])}], 1, "[0]['o']: an array of dtype object"),
        ([1 + 2j], 1, "[0] is of type complex"),
        ([object], 1, "[0] is of type type"),
    ],
)
def test_what_cannot_be_encoded_is_refused_naming_place_and_type(values, count, says):
    with pytest.raises(EncodeError) as caught:
        encode_values(values, count)

    assert says in str(caught.value)


def test_a_value_that_contains_itself_or_is_nested_too_deeply_is_refused():
    loop = []
    loop.append(loop)
    deep = "x"
    for _ in range(5000):
        deep = [deep]

    for value in (loop, deep, {"a": loop}, [{1}, loop]):
        with pytest.raises(EncodeError):
            encode_values([value], 1)


def test_the_deepest_value_that_is_taken_comes_back():
    deep = "x"
    for _ in range(198):
        deep = {"a": deep}

    assert there_and_back(deep) == deep


def test_dtypes_that_would_come_back_as_others_are_refused():
    with pytest.raises(EncodeError, match="tolist"):
        encode_values(np.array(["a", "b"], dtype=np.dtypes.StringDType()), 2)


def test_structured_dtypes_with_gaps_and_metadata_survive():
    aligned = np.zeros(3, dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True))
    aligned["b"] = 1, 2, 3
    noted = np.zeros(2, dtype=np.dtype("f8", metadata={"unit": "m"}))

    back = decode_values(encode_values(aligned, 3))

    assert back.dtype == aligned.dtype
    assert back["b"].tolist() == [1, 2, 3]
    assert decode_values(encode_values(noted, 2)).tolist() == [0, 0]


def test_a_tensor_is_taken_as_an_array_without_importing_torch():
    torch = pytest.importorskip("torch")

    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert decode_values(encode_values(tensor, 2)).tolist() == tensor.tolist()
    assert there_and_back({"t": tensor})["t"].dtype == np.float32
    with pytest.raises(EncodeError, match="detach"):
        encode_values(tensor.requires_grad_(), 2)


def test_encoding_numbers_does_not_import_torch():
    import subprocess

    code = "import sys, numpy\nfrom overnight_common.values import encode_values\nencode_values([1], 1)"
    done = subprocess.run(
        [sys.executable, "-c", code + "\nprint('torch' in sys.modules)"], capture_output=True, check=True
    )

    assert done.stdout == b"False\n"


@given(st.lists(values, max_size=6), st.data())
@settings(deadline=None)
def test_a_slice_of_a_list_is_the_list_of_the_slice(items, data):
    start = data.draw(st.integers(0, len(items)))
    stop = data.draw(st.integers(start, len(items)))
    encoded = encode_values(items, len(items))

    part = slice_values(encoded, start, stop)

    assert part == encode_values(items[start:stop], stop - start)
    assert count_values(part) == stop - start


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 0), (5, 2, 2)])
def test_a_slice_of_an_array_is_the_array_of_the_slice(shape, order):
    array = np.arange(np.prod(shape), dtype=">i4").reshape(shape, order=order)

    for start, stop in ((0, 5), (1, 3), (4, 5), (2, 2)):
        part = slice_values(encode_values(array, 5), start, stop)
        assert count_values(part) == stop - start
        assert np.array_equal(decode_values(part), array[start:stop])
        assert decode_values(part).dtype == array.dtype


def test_a_slice_beyond_the_end_is_an_error():
    for encoded in (encode_values([1, 2], 2), encode_values(np.zeros(2), 2)):
        for start, stop in ((0, 3), (-1, 1), (2, 1)):
            with pytest.raises(ValueError, match="no part of 2 values"):
                slice_values(encoded, start, stop)


def decodes_or_raises_one_error(encoded):
    for read in (decode_values, count_values, lambda e: slice_values(e, 0, 0)):
        with contextlib.suppress(DecodeError):
            read(encoded)


@given(st.sampled_from(["npy", "json"]), st.binary(max_size=300))
@settings(deadline=None, max_examples=300)
def test_any_bytes_decode_or_raise_one_named_error(kind, body):
    decodes_or_raises_one_error(Encoded(kind, body))


def npy_header(text):
    raw = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw


descr_texts = st.one_of(
    st.text("<>|=fiucbSUVMmO?0123456789(),[]'\" ", max_size=12).map(repr),
    st.recursive(
        st.sampled_from(
            ["'<f8'", "'|O'", "'a'", "''", "1", "None", "'V9999999999999'", "'<M8[ns]'", "'<U3'"]
        ),
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda parts: f"({', '.join(parts)},)" if parts else "()")
            | st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]")
        ),
        max_leaves=6,
    ),
)
shape_texts = st.sampled_from(
    [
        "(2,)",
        "()",
        "(0, 10**9)",
        "(99999999999,)",
        "(-1,)",
        "(True,)",
        "2",
        "(0, 99999999999999999999)",
        "(1.0,)",
    ]
)


@given(descr_texts, shape_texts, st.sampled_from(["False", "True", "0", "None"]), st.binary(max_size=20))
@example("'|O'", "(2,)", "False", b"0123456789abcdef")
@example("'<f8'", "(99999999999,)", "False", b"")
@settings(deadline=None, max_examples=500)
def test_any_npy_header_decodes_or_raises_one_named_error(descr, shape, fortran, body):
    header = npy_header(f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}")

    decodes_or_raises_one_error(Encoded("npy", header + body))


@given(arrays.filter(lambda array: array.ndim > 0), st.data())
@settings(deadline=None)
def test_a_damaged_array_decodes_or_raises_one_named_error(array, data):
    body = bytearray(encode_values(array, len(array)).body)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    decodes_or_raises_one_error(Encoded("npy", bytes(body)))
    decodes_or_raises_one_error(Encoded("npy", bytes(body[: data.draw(st.integers(0, len(body)))])))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"1",
        b"[1",
        b"[1] x",
        b"\xff",
        b"[" * 100_000,
        b'[{"$bytes": "?"}]',
        b'[{"$bytes": 1}]',
        b'[{"$int": "xyz"}]',
        b'[{"$int": 5}]',
        b'[{"$time": "2026-01-01"}]',
        b'[{"$time": "0001-01-01T00:00:00+20:00"}]',
        b'[{"$array": "AAAA"}]',
        b'[{"$scalar": "AAAA"}]',
        b'[{"$numpy_str": 4}]',
        b'[{"$other": 4}]',
        b'[{"$bytes": "AAAA", "x": 1}]',
        b"[" + b"9" * 5000 + b"]",
    ],
)
def test_broken_lists_raise_one_named_error(body):
    with pytest.raises(DecodeError):
        decode_values(Encoded("json", body))


def test_a_header_that_promises_more_than_there_is_allocates_nothing():
    header = write_header(np.dtype("<f8"), (10**12, 1000), False)

    with pytest.raises(DecodeError, match="promises"):
        decode_values(Encoded("npy", header + b"12345678"))


def test_an_array_of_objects_is_never_unpickled():
    body = (
        npy_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}") + b"cos\nsystem\n(S'exit 1'\ntR."
    )

    with pytest.raises(DecodeError, match="pickle"):
        decode_values(Encoded("npy", body))


def test_numpy_reads_what_we_write_and_we_read_what_numpy_writes(tmp_path):
    array = np.arange(6, dtype=">f4").reshape(2, 3)
    (tmp_path / "ours.npy").write_bytes(encode_values(array, 2).body)
    np.save(tmp_path / "theirs.npy", array)

    assert np.load(tmp_path / "ours.npy", allow_pickle=False).tolist() == array.tolist()
    assert_same_array(decode_values(Encoded("npy", (tmp_path / "theirs.npy").read_bytes())), array)
