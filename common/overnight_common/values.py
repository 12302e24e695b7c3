"""Turn points and results into bytes and back: arrays as npy, lists as JSON with tags for what JSON lacks.

A tag is an object with one key that begins with `$`, for example `{"$bytes": "AAE="}`. A user's own key
that begins with `$` gets one more `$`, so that nothing is ever taken for a tag. NaN and the infinities are
written as JavaScript writes them. Runs in the child and in the driver, never in a consumer's parent.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from overnight_common import tags
from overnight_common.errors import DecodeError, EncodeError
from overnight_common.messages import Encoded
from overnight_common.npy_format import read_header
from overnight_common.tags import array_from_bytes, array_to_bytes

Array = np.ndarray[Any, np.dtype[Any]]

_write_json = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_read_json = json.JSONDecoder().decode
_read_tagged_json = json.JSONDecoder(object_hook=tags.untag).decode


def encode_values(values: object, count: int) -> Encoded:
    """Encode one value per point.

    Args:
        values: an array `[count, ...]`, what NumPy can make one of without objects (a tensor), or a list or
            tuple of `count` values of any plain kind; tuples come back as lists.
        count: how many values are due.

    Raises:
        EncodeError: another number of values came, or one cannot be encoded; names the place and the type.
    """
    if isinstance(values, list | tuple):
        if len(values) != count:
            kind = type(values).__name__
            raise EncodeError(
                f"a {kind} of length {len(values)} came where {_results(count)} due, one for each point"
            )
        return Encoded("json", _list_to_bytes(values))
    array = tags.as_array(values, "")
    if array is None:
        what = "nothing (None)" if values is None else f"a {type(values).__name__}"
        raise EncodeError(f"{what} came where an array or a list of {_results(count)} due")
    if array.ndim == 0 or len(array) != count:
        raise EncodeError(
            f"an array of shape {array.shape} came where {_results(count)} due, one for each point"
        )
    return Encoded("npy", array_to_bytes(array))


def decode_values(encoded: Encoded) -> Array | list[Any]:
    """Return the values: a writable array, or a list.

    Raises:
        DecodeError: the bytes are no values of ours.
    """
    if encoded.kind == "npy":
        array = array_from_bytes(encoded.body)
        if array.ndim == 0:
            raise DecodeError("an array without a first length")
        return array
    return _list_from_bytes(encoded.body, with_tags=True)


def slice_values(encoded: Encoded, start: int, stop: int) -> Encoded:
    """Return the values `[start, stop)` of what is encoded, of the same kind; raises DecodeError."""
    if encoded.kind == "npy":
        array = decode_values(encoded)
        _check_slice(start, stop, len(array))
        return Encoded("npy", array_to_bytes(np.asarray(array)[start:stop]))
    values = _list_from_bytes(encoded.body, with_tags=False)
    _check_slice(start, stop, len(values))
    return Encoded("json", _write_json(values[start:stop]).encode("utf-8", "surrogatepass"))


def count_values(encoded: Encoded) -> int:
    """Return how many values are encoded; raises DecodeError."""
    if encoded.kind == "json":
        return len(_list_from_bytes(encoded.body, with_tags=False))
    header = read_header(encoded.body)
    if not header.shape:
        raise DecodeError("an array without a first length")
    if header.header_bytes + header.body_bytes != len(encoded.body):
        raise DecodeError("an array whose header promises another number of bytes")
    return header.shape[0]


def _results(count: int) -> str:
    return "1 result was" if count == 1 else f"{count} results were"


def _list_to_bytes(values: list[Any] | tuple[Any, ...]) -> bytes:
    try:
        if not tags.is_plain(values, tags.MAX_DEPTH):
            values = tags.tag(values, "", tags.MAX_DEPTH)
        return _write_json(values).encode("utf-8", "surrogatepass")
    except RecursionError as error:
        raise EncodeError("a result is nested too deeply, or contains itself") from error


def _list_from_bytes(body: bytes, *, with_tags: bool) -> list[Any]:
    # Ill-paired surrogates pass both ways as they are: escapes would join two of them into one character.
    read = _read_tagged_json if with_tags and b'"$' in body else _read_json
    try:
        values = read(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not a list of values: {error}") from error
    if type(values) is not list:
        raise DecodeError(f"not a list of values but a {type(values).__name__}")
    return values


def _check_slice(start: int, stop: int, count: int) -> None:
    if not 0 <= start <= stop <= count:
        raise ValueError(f"[{start}, {stop}) is no part of {count} values")
