"""Write and read the header of the .npy format, strictly: nothing unpickled, nothing allocated on trust."""

from __future__ import annotations

import ast
import functools
import math
import warnings
from typing import TYPE_CHECKING, NamedTuple

from numpy.lib import format as numpy_format

from overnight_common.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 64 * 1024  # room for a structured dtype of a thousand fields
_ALIGNMENT_BYTES = 64
# What literal_eval and NumPy's dtype constructor raise for nonsense; warnings count where they are errors.
_NONSENSE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,
)


class Header(NamedTuple):
    """Describe an array: its dtype and shape, whether it is in Fortran order, and its header's own size."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    fortran: bool
    header_bytes: int

    @property
    def body_bytes(self) -> int:
        """Return how many bytes must follow the header."""
        return math.prod(self.shape) * self.dtype.itemsize


@functools.lru_cache(maxsize=256)
def write_header(dtype: np.dtype[np.generic], shape: tuple[int, ...], fortran: bool) -> bytes:
    """Return the header of an array, ready to be followed by its bytes.

    Raises:
        EncodeError: the dtype cannot be written without pickle, or would come back as another.
    """
    if dtype.hasobject:
        raise EncodeError(
            f"an array of dtype {dtype} holds Python objects and would need pickle: "
            "give it a plain dtype with .astype(...), or make it a list with .tolist()"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # metadata of a dtype is not kept, as everywhere in NumPy
            descr = numpy_format.dtype_to_descr(dtype)
            survives = numpy_format.descr_to_dtype(descr) == dtype
    except (TypeError, ValueError) as error:
        raise EncodeError(f"an array of dtype {dtype} cannot be written as .npy: {error}") from error
    if not survives:
        raise EncodeError(
            f"an array of dtype {dtype} cannot be written as .npy: convert it with .astype(...) or .tolist()"
        )
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran!r}, 'shape': {shape!r}, }}"
    try:
        raw, version = text.encode("latin-1"), b"\x01\x00"
    except UnicodeEncodeError:
        raw, version = text.encode("utf-8"), b"\x03\x00"
    if len(raw) > MAX_HEADER_BYTES - _ALIGNMENT_BYTES:
        raise EncodeError(f"the dtype of an array has {len(raw)} bytes of description, too many for a header")
    length_bytes = 2 if version == b"\x01\x00" else 4
    if length_bytes == 2 and len(raw) > 65535 - 2 * _ALIGNMENT_BYTES:
        version, length_bytes = b"\x02\x00", 4
    unpadded = len(MAGIC) + 2 + length_bytes + len(raw) + 1
    raw += b" " * (-unpadded % _ALIGNMENT_BYTES) + b"\n"
    return MAGIC + version + len(raw).to_bytes(length_bytes, "little") + raw


def read_header(body: bytes) -> Header:
    """Return what the header at the start of `body` says.

    Args:
        body: the first bytes of a file or message; more than the header does no harm.

    Raises:
        DecodeError: this is no header, or its dtype holds Python objects.
    """
    if body[:6] != MAGIC:
        raise DecodeError("no .npy header")
    version = body[6:8]
    length_bytes = 2 if version == b"\x01\x00" else 4
    if version not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise DecodeError("a .npy header of an unknown version")
    start = 8 + length_bytes
    stop = start + int.from_bytes(body[8:start], "little")
    if stop - start > MAX_HEADER_BYTES:
        raise DecodeError(f"a .npy header of {stop - start} bytes is over the limit of {MAX_HEADER_BYTES}")
    if len(body) < stop:
        raise DecodeError("a .npy header that is cut off")
    dtype, shape, fortran = _parse(body[start:stop], "utf-8" if version == b"\x03\x00" else "latin-1")
    return Header(dtype, shape, fortran, stop)


@functools.lru_cache(maxsize=256)
def _parse(raw: bytes, encoding: str) -> tuple[np.dtype[np.generic], tuple[int, ...], bool]:
    try:
        fields = ast.literal_eval(raw.decode(encoding).strip())
        if fields.keys() != {"descr", "fortran_order", "shape"}:
            raise ValueError("other keys than descr, fortran_order and shape")
        dtype = numpy_format.descr_to_dtype(fields["descr"])
    except _NONSENSE as error:
        raise DecodeError(f"a .npy header that says nothing: {error}") from error
    shape, fortran = fields["shape"], fields["fortran_order"]
    if type(shape) is not tuple or not all(type(length) is int and length >= 0 for length in shape):
        raise DecodeError(f"a .npy header with the shape {shape!r}")
    if type(fortran) is not bool:
        raise DecodeError(f"a .npy header with fortran_order {fortran!r}")
    if dtype.hasobject:
        raise DecodeError(f"an array of Python objects (dtype {dtype}), which would need pickle")
    return dtype, shape, fortran
