"""Tensor files: arrays in the safetensors format with a JSON header, written atomically and read without trust.

All files of bagwise are such files: 8 bytes with the length of a JSON text, the text, then the tensors without gaps.
The metadata of the text hold the header, JSON again: the kind of the file, its schema, and what the writer adds. Any
safetensors reader opens them. `bagwise.runtime` has a reader of its own, because it must not need this package.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from bagwise._io.atomic import open_atomically
from bagwise._utils.checks import TYPE_NAMES
from bagwise.errors import BagwiseError

# The longest JSON text that is written, and read unless a kind of file allows more.
MAX_HEADER = 1 << 20
_DTYPE_NAMES = TYPE_NAMES | {np.dtype(bool): "BOOL"}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}
# Tensors start at a multiple of their item size, because those of wider types come first.
_ALIGNMENT = 64
# No dimension is longer than this, also where another one is 0.
_MAX_LENGTH = 1 << 48
# Arrays are written in pieces of about this many bytes: writing a memory-mapped array must not load all of it.
_PIECE_BYTES = 1 << 24
# Strings of any kind, also file names that are not valid Unicode, are written and read back as they are.
_ENCODING = ("utf-8", "surrogatepass")


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor of a file must be; `tensor` makes one.

    A name in `shape` stands for any length, the same wherever it occurs in the table, and that of the header's field of
    this name if there is one. Values of tensors that are mapped are not checked.
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
    max_header: int = MAX_HEADER,
    size: int | None = None,
) -> bytes:
    """Give all bytes before the tensors, which follow in the order of `forms`; exactly `size` of them if given."""
    metadata = {"bagwise": json.dumps({"kind": kind, "schema": schema} | dict(header))}
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


def array_pieces(array: NDArray[Any]) -> Iterator[bytes]:
    """Yield the bytes of an array of at least one dimension, some rows at a time."""
    row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
    step = max(1, _PIECE_BYTES // max(1, row_bytes))
    for start in range(0, len(array), step):
        yield np.ascontiguousarray(array[start : start + step]).tobytes()


def tensor_pieces(
    kind: str,
    schema: int,
    header: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any] | Chunks],
    max_header: int = MAX_HEADER,
) -> Iterator[bytes]:
    """Yield the content of the file that `write_tensors` writes.

    Tensors are laid out by item size, the widest first, so that each can be mapped where it lies.
    """
    names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    forms = {name: (tensors[name].dtype, tensors[name].shape) for name in names}
    yield header_bytes(kind, schema, header, forms, max_header)
    for name, (dtype, shape) in forms.items():
        content, written = tensors[name], 0
        for part in content.parts if isinstance(content, Chunks) else (content,):
            for piece in array_pieces(part):
                written += len(piece)
                yield piece
        if written != math.prod(shape) * dtype.itemsize:
            raise RuntimeError(f"{name} of shape {shape} came in {written} bytes")


def write_tensors(
    path: str | os.PathLike[str],
    kind: str,
    schema: int,
    header: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any] | Chunks],
    max_header: int = MAX_HEADER,
) -> Path:
    """Write a tensor file, wholly or not at all.

    `kind` is such as ``"bagwise.Hierarchy"``, `schema` the version of the form that files of this kind have; `header`
    holds what JSON can hold.
    """
    target = check_file_path(path)
    with open_atomically(target) as file:
        file.writelines(tensor_pieces(kind, schema, header, tensors, max_header))
    return target


def check_file_path(path: str | os.PathLike[str]) -> Path:
    """Give `path` as a `Path`, or raise an error if it is a folder."""
    target = Path(path)
    if target.is_dir():
        raise BagwiseError(f"{os.fspath(path)} is a folder, but a file is needed. Give the name of a file.")
    return target


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Give the kind of a tensor file, or None for anything else."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            kind = _read_header(file, MAX_HEADER)[0]["kind"]
    except (BagwiseError, KeyError):
        return None
    return kind if isinstance(kind, str) else None


def read_tensors(
    path: str | os.PathLike[str],
    kind: str,
    tables: Mapping[int, Mapping[str, TensorSpec]],
    *,
    mmap: bool = False,
    max_header: int = MAX_HEADER,
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and tensors of a file and check them. Errors name the file, the field, what it has, what is allowed.

    `tables` gives, for each schema that can be read, the tensors that a file must have. With `mmap`, those stay in the
    file that are marked as `mapped`. Fields of the header other than kind and schema are for the caller to check.
    """
    target = check_file_path(path)
    try:
        with open(target, "rb") as file:
            header, entries, start = _read_header(file, max_header)
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
            return header, {
                name: _read_tensor(file, name, table[name], form, start, mmap) for name, form in forms.items()
            }
    except _NotATensorFile as error:
        raise BagwiseError(
            f"{os.fspath(path)} is not a file written by {kind.removeprefix('bagwise.')}.save: {error}"
        ) from error
    except BagwiseError as error:
        raise BagwiseError(f"{os.fspath(path)} {error}") from error


class _NotATensorFile(BagwiseError):
    """The file is of another format."""


def _read_header(file: BinaryIO, max_header: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Give the header, the entries of tensors, and where the tensors begin."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, max_header):
        raise _NotATensorFile(
            f"its header would take {length} bytes of {size}; at most {max_header} are accepted. Or it was cut short."
        )
    try:
        entries = json.loads(file.read(length))
        header = json.loads(entries.pop("__metadata__")["bagwise"])
        if not isinstance(header, dict):
            raise TypeError(f"a JSON object is expected, got {type(header).__name__}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _NotATensorFile(f"its header cannot be read ({error!r:.200}).") from error
    return header, entries, 8 + length


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
    if [first for first, _ in spans] != [0, *(last for _, last in spans)][:-1] or spans[-1][1] != n_bytes:
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


def _read_tensor(file: BinaryIO, name: str, spec: TensorSpec, form: _Form, start: int, mmap: bool) -> NDArray[Any]:
    dtype, shape, first = form
    count = math.prod(shape)
    if mmap and spec.mapped and count:
        # by the open file, not by its name, which may be that of another file by now
        array = np.memmap(file, dtype, "r", start + first, shape).view(np.ndarray)
    else:
        file.seek(start + first)
        array = np.fromfile(file, dtype, count).reshape(shape)
        if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
            _damaged(f"its {name} holds the byte {array.view(np.uint8).max()}", "0 and 1")
        if spec.finite and not np.isfinite(array).all():
            _damaged(f"its {name} holds {array[~np.isfinite(array)].flat[0]}", "finite numbers")
        if spec.low is not None and array.size and array.min() < spec.low:
            _damaged(f"its {name} holds {array.min()}", f"at least {spec.low}")
        if spec.high is not None and array.size and array.max() > spec.high:
            _damaged(f"its {name} holds {array.max()}", f"at most {spec.high}")
    if spec.mapped:
        array.flags.writeable = False
    return array


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
