"""Tensor files: arrays in the safetensors format with a JSON header, written atomically and read without trust.

All files of bagwise are such files: 8 bytes with the length of a JSON text, the text, then the tensors without gaps.
The metadata of the text hold the header, JSON again: the kind of the file, its schema, and what the writer adds; and
``crc32.NAME`` for each tensor, its checksum in hexadecimal digits. Any safetensors reader opens them. `bagwise.runtime`
has a reader of its own, because it must not need this package.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from bagwise._io.atomic import open_atomically
from bagwise._utils.checks import TYPE_NAMES
from bagwise._utils.json_text import parse_json
from bagwise.errors import BagwiseError

# The longest JSON text that is written, and read unless a kind of file allows more.
MAX_HEADER = 1 << 20
# No kind of file allows more.
_LONGEST_HEADER = 1 << 22
_DTYPE_NAMES = TYPE_NAMES | {np.dtype(bool): "BOOL"}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}
_DEEPEST = 64  # lists and objects inside each other in a header
# Tensors start at a multiple of their item size, because those of wider types come first.
_ALIGNMENT = 64
# No dimension is longer than this, also where another one is 0.
_MAX_LENGTH = 1 << 48
# Arrays are written in pieces of about this many bytes: writing a memory-mapped array must not load all of it.
_PIECE_BYTES = 1 << 24
_CHECKSUM = "crc32."  # names of checksums in the metadata begin so
# Strings of any kind, also file names that are not valid Unicode, are written and read back as they are.
_ENCODING = ("utf-8", "surrogatepass")


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor of a file must be; `tensor` makes one.

    A name in `shape` stands for any length, the same wherever it occurs in the table, and that of the header's field of
    this name if there is one. Values of tensors that are mapped are checked only if the caller asks for it.
    """

    dtypes: tuple[np.dtype[Any], ...]  # all if empty
    shape: tuple[int | str, ...] | None  # None accepts any shape
    finite: bool = False  # whether NaN and infinities are refused
    low: float | None = None
    high: float | None = None
    optional: bool = False
    mapped: bool = False  # stays in the file if the caller asks for it; such tensors are read-only


def tensor(dtypes: str, *shape: int | str, **options: Any) -> TensorSpec:
    """Make a `TensorSpec`, such as ``tensor("float32 float64", "n_words", 2)``; no lengths accept any shape."""
    return TensorSpec(tuple(np.dtype(name) for name in dtypes.split()), shape or None, **options)


@dataclass(frozen=True)
class Chunks:
    """An array to write of which the parts, one after the other, are given."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[NDArray[Any]]


def header_bytes(
    kind: str,
    schema: int,
    header: Mapping[str, Any],
    forms: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    checksums: Mapping[str, int],
    max_header: int = MAX_HEADER,
    size: int | None = None,
) -> bytes:
    """Give all bytes before the tensors, which follow in the order of `forms`; exactly `size` of them if given.

    Their number does not depend on the checksums, so that these can be written last.
    """
    try:
        check_depth(dict(header))
    except BagwiseError as error:
        raise BagwiseError(f"The header of {kind} cannot be written: {error}. Simplify options or metadata.") from error
    metadata = {"bagwise": json.dumps({"kind": kind, "schema": schema} | dict(header))}
    metadata |= {f"{_CHECKSUM}{name}": f"{checksums[name]:08x}" for name in forms}
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape) in forms.items():
        start, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text = text.ljust((-(-(8 + len(text)) // _ALIGNMENT) * _ALIGNMENT if size is None else size) - 8)
    if len(text) > max_header:
        raise BagwiseError(
            f"The header of {kind} would take {len(text)} bytes, but at most {max_header} are accepted. Shorten names, "
            "options or metadata."
        )
    return len(text).to_bytes(8, "little") + text


def row_pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array of at least one dimension, some rows at a time."""
    row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
    step = max(1, _PIECE_BYTES // max(1, row_bytes))
    for start in range(0, len(array), step):
        yield array[start : start + step]


def write_array(file: BinaryIO, array: NDArray[Any], checksum: int = 0) -> int:
    """Write an array, some rows at a time; return the checksum of all that was written since it was `checksum`."""
    for rows in row_pieces(array):
        content = np.ascontiguousarray(rows).tobytes()
        checksum = zlib.crc32(content, checksum)
        file.write(content)
    return checksum


def _write_tensors_to(
    file: BinaryIO,
    kind: str,
    schema: int,
    header: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any] | Chunks],
    max_header: int,
) -> None:
    """Write the content of a tensor file.

    Tensors are laid out by item size, the widest first, so that each can be mapped where it lies.
    """
    names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    forms = {name: (tensors[name].dtype, tensors[name].shape) for name in names}
    checksums = dict.fromkeys(names, 0)
    file.write(header_bytes(kind, schema, header, forms, checksums, max_header))
    for name, (dtype, shape) in forms.items():
        content, first = tensors[name], file.tell()
        for part in content.parts if isinstance(content, Chunks) else (content,):
            checksums[name] = write_array(file, part, checksums[name])
        if file.tell() - first != math.prod(shape) * dtype.itemsize:
            raise RuntimeError(f"{name} of shape {shape} came in {file.tell() - first} bytes")
    file.seek(0)
    file.write(header_bytes(kind, schema, header, forms, checksums, max_header))


def tensor_bytes(
    kind: str,
    schema: int,
    header: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any] | Chunks],
    max_header: int = MAX_HEADER,
) -> bytes:
    """Give the content of the file that `write_tensors` writes."""
    content = io.BytesIO()
    _write_tensors_to(content, kind, schema, header, tensors, max_header)
    return content.getvalue()


def write_tensors(
    path: str | os.PathLike[str],
    kind: str,
    schema: int,
    header: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any] | Chunks],
    max_header: int = MAX_HEADER,
    *,
    private: bool = False,
) -> Path:
    """Write a tensor file, wholly or not at all; if `private`, a new one is for this user only.

    `kind` is such as ``"bagwise.Hierarchy"``, `schema` the version of the form that files of this kind have; `header`
    holds what JSON can hold.
    """
    target = check_file_path(path)
    with open_atomically(target, private=private) as file:
        _write_tensors_to(file, kind, schema, header, tensors, max_header)
    return target


def check_file_path(path: str | os.PathLike[str]) -> Path:
    """Give `path` as a `Path`, or raise an error if it is a folder, a device or a pipe, which might never end."""
    target = Path(path)
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "a pipe or a device"
        raise BagwiseError(f"{os.fspath(path)} is {what}, but a file is needed. Give the name of a file.")
    return target


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Give the kind of a tensor file, or None for anything else."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            kind = _read_header(file, _LONGEST_HEADER)[0]["kind"]
    except (BagwiseError, KeyError):
        return None
    return kind if isinstance(kind, str) else None


def read_tensors(
    path: str | os.PathLike[str],
    kind: str,
    tables: Mapping[int, Mapping[str, TensorSpec]],
    *,
    mmap: bool = False,
    verify: bool = False,
    max_header: int = MAX_HEADER,
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and tensors of a file and check them. Errors name the file, the field, what it has, what is allowed.

    `tables` gives, for each schema that can be read, the tensors that a file must have. With `mmap`, those stay in the
    file that are marked as `mapped`; their values are checked with `verify` only, which reads them once, in pieces.
    Fields of the header other than kind and schema are for the caller to check.
    """
    target = check_file_path(path)
    try:
        with open(target, "rb") as file:
            header, entries, metadata, start = _read_header(file, max_header)
            schema = header.get("schema")
            if header.get("kind") != kind:
                raise BagwiseError(f"holds {header.get('kind')!r:.100}, not {kind!r}.")
            if type(schema) is not int or schema not in tables:
                raise BagwiseError(
                    f"has schema {schema!r:.100}, this version of bagwise reads {', '.join(map(str, tables))}. "
                    "Upgrade bagwise."
                )
            table = tables[schema]
            forms = _check_forms(entries, table, header, os.fstat(file.fileno()).st_size - start)
            checksums, tensors = _read_checksums(metadata, entries), {}
            for name, (dtype, shape, first) in forms.items():
                mapped = mmap and table[name].mapped
                tensors[name] = array = _read_tensor(file, (dtype, shape, start + first), mapped)
                if verify or not mapped:
                    _check_values(name, table[name], array, checksums[name])
                array.flags.writeable = not table[name].mapped
            return header, tensors
    except _NotATensorFile as error:
        raise BagwiseError(
            f"{os.fspath(path)} is not a file written by {kind.removeprefix('bagwise.')}.save: {error}"
        ) from error
    except BagwiseError as error:
        raise BagwiseError(f"{os.fspath(path)} {error}") from error


@dataclass(frozen=True)
class TensorEntry:
    """What a file says of one of its tensors; `found` is the checksum of its bytes, if they were read."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int
    checksum: int
    found: int | None


def tensor_entries(path: str | os.PathLike[str], *, read: bool = False) -> tuple[dict[str, Any], list[TensorEntry]]:
    """Give the header of a file of any kind, and its tensors in the order of the file; `read` reads their bytes."""
    target = check_file_path(path)
    try:
        with open(target, "rb") as file:
            header, entries, metadata, start = _read_header(file, _LONGEST_HEADER)
            table = dict.fromkeys(entries, tensor(""))
            forms = _check_forms(entries, table, {}, os.fstat(file.fileno()).st_size - start)
            checksums, listed = _read_checksums(metadata, entries), []
            for name, (dtype, shape, first) in sorted(forms.items(), key=lambda one: one[1][2]):
                n_bytes = math.prod(shape) * dtype.itemsize
                found = _file_checksum(file, start + first, n_bytes) if read else None
                listed.append(TensorEntry(name, dtype.name, shape, n_bytes, checksums[name], found))
            return header, listed
    except BagwiseError as error:
        raise BagwiseError(f"{os.fspath(path)} is not a file of bagwise: {error}") from error


def _file_checksum(file: BinaryIO, first: int, n_bytes: int) -> int:
    """Give the checksum of some bytes of a file, without holding all of them."""
    file.seek(first)
    found = 0
    for done in range(0, n_bytes, _PIECE_BYTES):
        found = zlib.crc32(file.read(min(_PIECE_BYTES, n_bytes - done)), found)
    return found


class _NotATensorFile(BagwiseError):
    """The file is of another format."""


def _read_header(file: BinaryIO, max_header: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], int]:
    """Give the header, the entries of tensors, all metadata, and where the tensors begin."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, max_header):
        raise _NotATensorFile(
            f"its header would take {length} bytes of {size}; at most {max_header} are accepted. Or it was cut short."
        )
    try:
        entries = parse_json(file.read(length))
        metadata = entries.pop("__metadata__")
        header = parse_json(metadata["bagwise"])
        if not isinstance(header, dict):
            raise TypeError(f"a JSON object is expected, got {type(header).__name__}")
        check_depth(header)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _NotATensorFile(f"its header cannot be read ({error!r:.200}).") from error
    return header, entries, metadata, 8 + length


def check_depth(value: Any) -> None:
    """Raise an error for JSON that is nested deeper than headers may be."""
    level = [value]
    for _ in range(_DEEPEST):
        inside = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for held in inside for one in held if isinstance(one, (dict, list, tuple))]
        if not level:
            return
    raise BagwiseError(f"it is nested in more than {_DEEPEST} lists and objects")


def _read_checksums(metadata: dict[str, Any], entries: dict[str, Any]) -> dict[str, int]:
    """Give the checksums of all tensors."""
    found = {name.removeprefix(_CHECKSUM): text for name, text in metadata.items() if name.startswith(_CHECKSUM)}
    if found.keys() != entries.keys():
        _damaged(f"it has checksums of {sorted(found)!s:.500}", f"one of each tensor: {sorted(entries)!s:.500}")
    for name, text in found.items():
        if not isinstance(text, str) or re.fullmatch("[0-9a-f]{8}", text) is None:
            _damaged(f"the checksum of its {name!s:.100} is {text!r:.100}", "8 hexadecimal digits")
    return {name: int(text, 16) for name, text in found.items()}


_Form = tuple[np.dtype[Any], tuple[int, ...], int]


def _check_forms(
    entries: dict[str, Any], table: Mapping[str, TensorSpec], header: dict[str, Any], n_bytes: int
) -> dict[str, _Form]:
    """Give dtype, shape and first byte of each tensor, all as the table has them and inside the file."""
    required = {name for name, spec in table.items() if not spec.optional}
    if not required <= entries.keys() <= table.keys():
        _damaged(f"it holds the tensors {sorted(entries)!s:.500}", f"{sorted(table)}")
    lengths = {name: value for name, value in header.items() if type(value) is int}
    forms, spans = {}, []
    for name, entry in entries.items():
        dtype, shape, first, last = _check_entry(name, entry, table[name])
        for length, wanted in zip(shape, table[name].shape or shape, strict=True):
            known = lengths.setdefault(wanted, length) if isinstance(wanted, str) else wanted
            if length != known:
                expected = " x ".join(
                    str(lengths.get(n, n) if isinstance(n, str) else n) for n in table[name].shape or ()
                )
                _damaged(f"its {name} has shape {shape}", f"{expected}, because {wanted} is {known}")
        if last > n_bytes or last - first != math.prod(shape) * dtype.itemsize:
            _damaged(
                f"its {name} of shape {shape} lies in the bytes {first} to {last} of {n_bytes}",
                f"{math.prod(shape) * dtype.itemsize} bytes; it may have been cut short",
            )
        forms[name] = (dtype, shape, first)
        spans.append((first, last))
    spans.sort()
    ends = [0, *(last for _, last in spans)]
    if [first for first, _ in spans] != ends[:-1] or ends[-1] != n_bytes:
        _damaged(f"its tensors do not fill the {n_bytes} bytes after the header", "tensors without gaps")
    return forms


def _check_entry(name: str, entry: Any, spec: TensorSpec) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Give dtype, shape, first byte and end of a tensor, if an entry has them."""
    known = entry if isinstance(entry, dict) else {}
    code: Any = known.get("dtype")
    shape: Any = known.get("shape")
    span: Any = known.get("data_offsets")
    numbers = all(
        isinstance(held, list) and all(type(n) is int and 0 <= n < _MAX_LENGTH for n in held) for held in (shape, span)
    )
    if not isinstance(code, str) or not numbers or len(span) != 2 or len(shape) > 8:
        _damaged(f"its {name} cannot be {entry!r:.200}", "a dtype, a shape and two offsets")
    allowed = [str(dtype) for dtype in spec.dtypes or _DTYPES.values()]
    found = str(_DTYPES.get(code, code))
    if code not in _DTYPES or found not in allowed:
        _damaged(f"its {name} has dtype {found:.50}", ", ".join(allowed))
    if spec.shape is not None and len(shape) != len(spec.shape):
        _damaged(f"its {name} has shape {tuple(shape)}", f"{len(spec.shape)} dimensions")
    return _DTYPES[code], tuple(shape), *span


def _read_tensor(file: BinaryIO, form: _Form, mapped: bool) -> NDArray[Any]:
    """Read a tensor, or map it."""
    dtype, shape, first = form
    count = math.prod(shape)
    if mapped and count:
        # by the open file, not by its name, which may be that of another file by now
        return np.memmap(file, dtype, "r", first, shape).view(np.ndarray)
    file.seek(first)
    return np.fromfile(file, dtype, count).reshape(shape)


def _check_values(name: str, spec: TensorSpec, array: NDArray[Any], checksum: int) -> None:
    """Check the values of a tensor, some rows at a time, and its checksum."""
    found = 0
    for rows in row_pieces(np.atleast_1d(array)):
        if array.dtype.kind == "b" and rows.view(np.uint8).max(initial=0) > 1:
            _damaged(f"its {name} holds the byte {rows.view(np.uint8).max()}", "0 and 1")
        if spec.finite and not np.isfinite(rows).all():
            _damaged(f"its {name} holds {rows[~np.isfinite(rows)].flat[0]}", "finite numbers")
        if spec.low is not None and rows.size and rows.min() < spec.low:
            _damaged(f"its {name} holds {rows.min()}", f"at least {spec.low}")
        if spec.high is not None and rows.size and rows.max() > spec.high:
            _damaged(f"its {name} holds {rows.max()}", f"at most {spec.high}")
        found = zlib.crc32(rows.data, found)
    if found != checksum:
        _damaged(f"the checksum of its {name} is {found:08x}", f"{checksum:08x}; its bytes are not those written")


def _damaged(found: str, allowed: str) -> NoReturn:
    raise BagwiseError(f"is damaged: {found}; expected {allowed}.")


class PackedStrings:
    """Strings in one array of bytes, as they lie in a file: UTF-8, one after the other.

    `offsets` are where each begins, and where the last ends.
    """

    def __init__(self, text: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(text) or (offsets[1:] < offsets[:-1]).any():
            raise BagwiseError(f"The offsets of strings must rise from 0 to {len(text)}, the number of their bytes.")
        self.text = text
        self.offsets = offsets

    @classmethod
    def of(cls, strings: Iterable[str]) -> PackedStrings:
        """Pack strings."""
        encoded = [string.encode(*_ENCODING) for string in strings]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, numbers: NDArray[np.int64]) -> NDArray[np.object_]:
        """Give some of the strings, reading no others."""
        strings = np.empty(numbers.shape, dtype=object)
        for place, number in np.ndenumerate(numbers):
            strings[place] = _decode(bytes(self.text[self.offsets[number] : self.offsets[number + 1]]), number)
        return strings

    def tolist(self) -> list[str]:
        """Give all strings."""
        text, offsets = self.text.tobytes(), self.offsets.tolist()
        return [_decode(text[start:end], number) for number, (start, end) in enumerate(pairwise(offsets))]


def _decode(part: bytes, number: Any) -> str:
    try:
        return part.decode(*_ENCODING)
    except UnicodeDecodeError as error:
        raise BagwiseError(f"String {number} is not UTF-8: {error}.") from error
