"""Write any result as one line of standard JSON, which every reader of JSON takes.

NaN and the infinities become the texts "NaN", "Infinity" and "-Infinity"; arrays and NumPy scalars become
lists and numbers; times ISO texts; complex numbers `{"$complex": [re, im]}`; bytes `{"$bytes": base64}`;
integers of thousands of digits `{"$int": hexadecimal}`. Big integers stay digits and text stays text.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime
from typing import Any

import numpy as np

_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, check_circular=False).encode
# Python prints integers of up to 4,300 digits; this is 4,000.
_LARGEST_DIGITS = 10**4000


def json_line(value: Any) -> bytes:
    """Return `value` as JSON in UTF-8, without a line break."""
    try:
        text = _strict(value)
    except (TypeError, ValueError):
        value = plain(value)
        text = _strict(value)
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: only an escape can hold it
        return _ascii(value).encode()


def plain(value: Any) -> Any:
    """Return `value` in terms of what standard JSON has."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_LARGEST_DIGITS < value < _LARGEST_DIGITS else {"$int": format(value, "x")}
        case np.generic() | np.ndarray():
            return _plain_array(value)
        case float():
            return value if math.isfinite(value) else _name_of(value)
        case dict():
            return {key: plain(element) for key, element in value.items()}
        case list() | tuple():
            return [plain(element) for element in value]
        case bytes():
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        case complex():
            return {"$complex": [plain(value.real), plain(value.imag)]}
        case datetime():
            return value.isoformat()
    return str(value)


def _plain_array(value: np.generic | np.ndarray[Any, Any]) -> Any:
    if value.dtype.names is not None and value.ndim == 0:
        return {name: plain(value[name]) for name in value.dtype.names}  # type: ignore[index]
    if value.dtype.kind in "mM":
        return np.asarray(value).astype(str).tolist()
    if value.dtype.kind == "V" and value.ndim == 0:
        return plain(value.tobytes())
    if value.dtype.kind == "V" or value.dtype.char in "gG":
        # These have no Python type: element by element.
        return str(value[()]) if value.ndim == 0 else [_plain_array(element) for element in value]  # type: ignore[index, union-attr]
    return plain(value.tolist())


def _name_of(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
