"""Open the arrays in .npy and .npz files."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, BinaryIO

from overnight_common.datasets.fingerprinting import Stamp
from overnight_common.datasets.rows import ArrayDataSet, check_shape, read_at
from overnight_common.datasets.unpacking import unpack
from overnight_common.errors import BadInputError, DecodeError
from overnight_common.npy_format import MAX_HEADER_BYTES, Header, read_header

if TYPE_CHECKING:
    from pathlib import Path

_LOOKS_LIKE = {
    b"PK\x03\x04": "a zip archive; if it is a .npz, give it that ending",
    b"\x1f\x8b": "a gzip file; unpack it first",
    b"\x89HDF": "an HDF5 file; save the array with numpy.save",
    b"\x80\x04\x95": "a pickle; load it and save the array with numpy.save",
    b"\x80\x05\x95": "a pickle; load it and save the array with numpy.save",
}
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a zip member: signature, ..., length of name, length of extra


def open_npy(uri: str, path: Path) -> ArrayDataSet:
    """Open a .npy file; raises BadInputError."""
    file = path.open("rb", buffering=0)
    try:
        status = os.fstat(file.fileno())
        header = _checked_header(str(path), file, 0, status.st_size)
    except BaseException:
        file.close()
        raise
    return ArrayDataSet(uri, path, Stamp.of(status), file, header, header.header_bytes)


def open_npz(uri: str, path: Path, key: str | None) -> ArrayDataSet:
    """Open one array of a .npz file: the one called `key`, or the only one; raises BadInputError."""
    file: BinaryIO = path.open("rb", buffering=0)
    try:
        stamp = Stamp.of(os.fstat(file.fileno()))
        with zipfile.ZipFile(path) as archive:
            member = _member(path, archive, key)
            what = f"array {member.filename.removesuffix('.npy')!r} of {path}"
            if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
                start = _data_offset(what, file, member)
                header = _checked_header(what, file, start, member.file_size)
                return ArrayDataSet(uri, path, stamp, file, header, start + header.header_bytes)
            with archive.open(member) as packed:
                unpacked = unpack(packed, what, member.file_size)
        file.close()
        file = unpacked
        header = _checked_header(what, file, 0, member.file_size)
        return ArrayDataSet(uri, path, stamp, file, header, header.header_bytes)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
        file.close()
        raise BadInputError(
            f"{path} cannot be read as .npz: {error}; write it again with numpy.savez"
        ) from error
    except BaseException:
        file.close()
        raise


def _member(path: Path, archive: zipfile.ZipFile, key: str | None) -> zipfile.ZipInfo:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    names = ", ".join(repr(name) for name in sorted(members))
    if not members:
        raise BadInputError(f"{path} holds no array")
    if key is None:
        if len(members) > 1:
            example = f"{path.name}:{min(members)}"
            raise BadInputError(f"{path} holds several arrays: {names}; name one, for example {example!r}")
        return next(iter(members.values()))
    found = members.get(key) or members.get(key.removesuffix(".npy"))
    if found is None:
        raise BadInputError(f"{path} has no array {key!r}; it holds {names}")
    return found


def _data_offset(what: str, file: BinaryIO, member: zipfile.ZipInfo) -> int:
    raw = read_at(file, member.header_offset, _LOCAL_HEADER.size)
    if len(raw) < _LOCAL_HEADER.size or raw[:4] != b"PK\x03\x04":
        raise BadInputError(f"{what} is not where the archive says; write the file again with numpy.savez")
    _, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(raw)
    return int(member.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes)


def _checked_header(what: str, file: BinaryIO, start: int, size_bytes: int) -> Header:
    """Return the header at `start`, having checked that `size_bytes` hold it and the whole array."""
    head = bytes(read_at(file, start, min(size_bytes, MAX_HEADER_BYTES + 12)))
    try:
        header = read_header(head)
    except DecodeError as error:
        raise BadInputError(_why_not(what, head, str(error))) from error
    check_shape(what, header, size_bytes - header.header_bytes)
    return header


def _why_not(what: str, head: bytes, error: str) -> str:
    if "Python objects" in error:
        return (
            f"{what} holds {error}: save it again with a plain dtype, for example "
            "numpy.save(path, array.astype(float)), or as .jsonl where points differ in shape; "
            "nothing in it was unpickled"
        )
    if not head:
        return f"{what} is empty: it is not a .npy file"
    for magic, looks_like in _LOOKS_LIKE.items():
        if head.startswith(magic):
            return f"{what} is not a .npy file (it looks like {looks_like})"
    return f"{what} is not a .npy file ({error}); write it with numpy.save"
