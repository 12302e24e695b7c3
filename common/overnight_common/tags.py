"""Give every value that JSON lacks a form in JSON, and take it back; see `overnight_common.values`."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight_common.errors import DecodeError, EncodeError
from overnight_common.npy_format import read_header, write_header

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]

MAX_DEPTH = 200  # levels of lists and dicts in a value; far below what Python's JSON reader can take
# Integers up to this are written as digits. Beyond, Python may refuse to print them and printing is slow.
_LARGEST_DIGITS = 1 << 2048
_PLAIN = frozenset({str, float, bool, type(None)})


def is_plain(value: object, depth: int) -> bool:
    """Tell whether JSON keeps `value` as it is; `depth` levels may be nested."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is int:
        return -_LARGEST_DIGITS < value < _LARGEST_DIGITS  # type: ignore[operator]
    if depth == 0:
        return False
    depth -= 1
    if kind is list or kind is tuple:
        for element in value:  # type: ignore[attr-defined]  # noqa: SIM110 - all() costs twice
            if type(element) not in _PLAIN and not is_plain(element, depth):
                return False
        return True
    if kind is dict:
        for key, element in value.items():  # type: ignore[attr-defined]
            if type(key) is not str or key[:1] == "$":
                return False
            if type(element) not in _PLAIN and not is_plain(element, depth):
                return False
        return True
    return False


def tag(value: Any, place: str, depth: int) -> Any:
    """Return `value` as something that JSON keeps, with tags where needed.

    Args:
        value: what a method returned, or a part of it.
        place: where it stands, for example `[3]['weights']`.
        depth: how many more levels may be nested.

    Raises:
        EncodeError: it cannot be encoded; names the place and the type.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, np.generic):
        return _tag_scalar(value, place)
    if isinstance(value, list | tuple | dict):
        return _tag_container(value, place, depth)
    if isinstance(value, int):
        small = -_LARGEST_DIGITS < value < _LARGEST_DIGITS
        return int(value) if small else {"$int": format(int(value), "x")}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes | bytearray):
        return {"$bytes": _to_base64(value)}
    if kind is datetime:
        return {"$time": _utc_text(value, place)}
    array = as_array(value, place)
    if array is None:
        raise EncodeError(
            f"{_at(place)} is of type {_type_name(value)}, which has no form in a message: "
            "give an array, a number, text, bytes, a UTC time, or lists and dicts of these"
        )
    try:
        return {"$array": _to_base64(array_to_bytes(array))}
    except EncodeError as error:
        raise EncodeError(f"{_at(place)}: {error}") from error


def _tag_container(value: Any, place: str, depth: int) -> Any:
    if depth == 0:
        raise EncodeError(f"a value is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if not isinstance(value, dict):
        return [tag(element, f"{place}[{i}]", depth - 1) for i, element in enumerate(value)]
    tagged = {}
    for key, element in value.items():
        if not isinstance(key, str):
            raise EncodeError(
                f"{_at(place)} has the key {key!r} of type {_type_name(key)}: only text can be a key"
            )
        text = str.__str__(key)
        tagged["$" + text if text[:1] == "$" else text] = tag(element, f"{place}[{text!r}]", depth - 1)
    return tagged


def _tag_scalar(value: np.generic, place: str) -> dict[str, str]:
    # Arrays of text drop zeros at the end, so text does not go by way of an array.
    if isinstance(value, np.str_):
        return {"$numpy_str": str.__str__(value)}
    if isinstance(value, np.bytes_):
        return {"$numpy_bytes": _to_base64(value)}
    try:
        return {"$scalar": _to_base64(array_to_bytes(np.asarray(value)))}
    except EncodeError as error:
        raise EncodeError(f"{_at(place)}: {error}") from error


def untag(found: dict[str, Any]) -> Any:
    """Return what a JSON object stands for, a tagged value or a dict with its own keys; or DecodeError."""
    if len(found) == 1:
        ((key, value),) = found.items()
        if key in _READERS:
            try:
                return _READERS[key](value)
            except (ValueError, TypeError, AttributeError, OverflowError) as error:
                raise DecodeError(f"{key} cannot be read: {error}") from error
    if any(key[:1] == "$" for key in found):
        return {_own_key(key): value for key, value in found.items()}
    return found


def _own_key(key: str) -> str:
    if key[:1] != "$":
        return key
    if key[:2] != "$$":
        raise DecodeError(f"an unknown tag {key!r}")
    return key[1:]


def as_array(value: object, place: str) -> Array | None:
    """Return `value` as an array, or None if it does not offer to be one; raises EncodeError."""
    if isinstance(value, np.ma.MaskedArray):
        raise EncodeError(f"{_at(place)} is a masked array, whose mask would be lost: use .filled(...) first")
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic) or not hasattr(type(value), "__array__"):
        return None
    try:
        return np.asarray(value)
    except Exception as error:  # a tensor's own conversion may raise anything
        raise EncodeError(
            f"{_at(place)} of type {_type_name(value)} gives no array ({error}): "
            "for a tensor return .detach().cpu().numpy()"
        ) from error


def array_to_bytes(array: Array) -> bytes:
    """Return an array as npy bytes; raises EncodeError for dtypes that need pickle."""
    flags = array.flags
    fortran = bool(flags.f_contiguous and not flags.c_contiguous)
    return write_header(array.dtype, array.shape, fortran) + array.tobytes("F" if fortran else "C")


def array_from_bytes(body: bytes) -> Array:
    """Return the array in npy bytes, as a writable copy; raises DecodeError."""
    header = read_header(body)
    if header.header_bytes + header.body_bytes != len(body):
        raise DecodeError(
            f"an array whose header promises {header.body_bytes} bytes and which has "
            f"{len(body) - header.header_bytes}"
        )
    try:
        view: Array = np.ndarray(
            header.shape, header.dtype, body, header.header_bytes, order="F" if header.fortran else "C"
        )
        return view.copy(order="K")
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise DecodeError(f"an array of an impossible shape {header.shape}: {error}") from error


def _to_base64(raw: bytes | bytearray) -> str:
    return base64.b64encode(raw).decode("ascii")


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _utc_text(value: datetime, place: str) -> str:
    if value.tzinfo is None or value.utcoffset() is None:
        raise EncodeError(f"{_at(place)} is a time without a time zone: say which, for example tzinfo=UTC")
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError as error:
        raise EncodeError(f"{_at(place)} is a time that UTC cannot name: {error}") from error


def _read_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("no time zone")
    return time.astimezone(UTC)


def _read_scalar(text: str) -> Any:
    array = array_from_bytes(_from_base64(text))
    if array.ndim:
        raise ValueError("more than one value")
    return array[()]


def _at(place: str) -> str:
    return f"the value at {place}" if place else "the value"


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_READERS: dict[str, Callable[[str], Any]] = {
    "$array": lambda text: array_from_bytes(_from_base64(text)),
    "$scalar": _read_scalar,
    "$bytes": _from_base64,
    "$numpy_bytes": lambda text: np.bytes_(_from_base64(text)),
    "$numpy_str": lambda text: np.str_(str.__str__(text)),
    "$time": _read_time,
    "$int": lambda text: int(text, 16),
}
