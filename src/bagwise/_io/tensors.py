"""Files of bagwise: tensors in the safetensors format with a JSON header, written atomically and read without trust.

A file is 8 bytes with the length of a JSON text, the text, then the tensors without gaps. The metadata of the text hold
the header, JSON again: the kind of the file, its schema, and the fields of the kind; and ``crc32.NAME`` for each
tensor, its checksum in hexadecimal digits. Any safetensors reader opens it. A `FileKind` describes the files of a kind,
and writes, reads and checks them.

The package `safetensors` reads headers. It does not write the files: it takes all tensors at once, and orders
metadata differently in each process. `bagwise.runtime` has a reader of its own, because it must not need this package.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise._io.atomic import open_atomically
from bagwise._utils.checks import TYPE_NAMES
from bagwise._utils.json_text import check_depth, parse_json
from bagwise.errors import BagwiseError

SCHEMA = 1
MAX_HEADER = 1 << 22  # bytes of the longest JSON text that is written and read
_DTYPE_NAMES = TYPE_NAMES | {np.dtype(bool): "BOOL"}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}
# Tensors start at a multiple of their item size, because those of wider types come first.
_ALIGNMENT = 64
# No dimension is longer than this, also where another one is 0.
_MAX_LENGTH = 1 << 48
# Arrays are written in pieces of about this many bytes: writing a memory-mapped array must not load all of it.
_PIECE_BYTES = 1 << 24
_CHECKSUM = "crc32."  # names of checksums in the metadata begin so
# Strings of any kind, also file names that are not valid Unicode, are written and read back as they are.
_ENCODING = ("utf-8", "surrogatepass")
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "list": (list, tuple),
    "object": (dict,),
    "null": (NoneType,),
}
_T = TypeVar("_T")
_Form = tuple[np.dtype[Any], tuple[int, ...]]


@dataclass(frozen=True)
class FieldSpec:
    """What a field of a header must be; `header_field` makes one. Numbers are finite."""

    types: tuple[str, ...]  # names of `_JSON_TYPES`
    low: float = -sys.float_info.max
    high: float = sys.float_info.max
    choices: Collection[Any] = ()  # strings that are accepted, all if empty
    optional: bool = False

    def accepts(self, value: Any) -> bool:
        """Whether a field may have this value."""
        types = tuple(kind for name in self.types for kind in _JSON_TYPES[name])
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            return False
        if isinstance(value, (int, float)):
            return bool(self.low <= value <= self.high)
        return not isinstance(value, str) or not self.choices or value in self.choices

    def __str__(self) -> str:
        parts = [" or ".join(self.types), *self.choices]
        parts += [f"at least {self.low}"] * (self.low != FieldSpec.low)
        parts += [f"at most {self.high}"] * (self.high != FieldSpec.high)
        return ", ".join(parts)


def header_field(types: str, **options: Any) -> FieldSpec:
    """Make a `FieldSpec`, such as ``header_field("integer null", low=1)``."""
    return FieldSpec(tuple(types.split()), **options)


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor of a file must be; `tensor` makes one.

    A name in `shape` stands for any length, the same wherever it occurs in a `FileKind`, and that of the header's field
    of this name if there is one. Values of tensors that are mapped are checked only if the caller asks for it.
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


_ANY = tensor("")


@dataclass(frozen=True)
class Pieces:
    """An array to write of which the parts, one after the other, are given."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[NDArray[Any]]


@dataclass(frozen=True)
class FileKind:
    """A kind of file: its name, such as ``"bagwise.Hierarchy"``, the fields of its header, and its tensors.

    Fields or tensors that are None are described, and checked, elsewhere.
    """

    name: str
    fields: Mapping[str, FieldSpec] | None
    tensors: Mapping[str, TensorSpec] | None

    def save(
        self,
        path: str | os.PathLike[str],
        header: Mapping[str, Any],
        tensors: Mapping[str, NDArray[Any] | Pieces],
        *,
        private: bool = False,
    ) -> Path:
        """Write a file, wholly or not at all; if `private`, a new one is for this user only."""
        target = check_file_path(path)
        with open_atomically(target, private=private) as file:
            self._write(file, header, tensors)
        return target

    def to_bytes(self, header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any] | Pieces]) -> bytes:
        """Return the content of the file that `save` writes."""
        content = io.BytesIO()
        self._write(content, header, tensors)
        return content.getvalue()

    def load(
        self,
        path: str | os.PathLike[str],
        make: Callable[[dict[str, Any], dict[str, Any]], _T],
        *,
        mmap: bool = False,
        verify: bool = False,
    ) -> _T:
        """Read a file, check it, and return what `make` makes of its header and its tensors.

        With `mmap`, those tensors stay in the file that are marked as `mapped`; their values are checked with `verify`
        only, which reads them once, in pieces. Errors name the file, the field, what it has and what is accepted; those
        that `make` raises for what is damaged are named in the same way.
        """
        with _naming(path):
            with _opened(path) as (file, start):
                kind, schema = start.header.pop("kind", None), start.header.pop("schema", None)
                if kind != self.name:
                    raise _OtherFileError(f"holds {kind!r:.100}, not {self.name!r}.")
                if type(schema) is not int or schema != SCHEMA:
                    raise _OtherFileError(
                        f"was written by another version of bagwise: it has schema {schema!r:.100}, this version reads "
                        f"{SCHEMA}. Make it again with this version."
                    )
                if start.checksums.keys() != start.forms.keys():
                    raise BagwiseError(
                        f"it has checksums of {sorted(start.checksums)!s:.500}; expected one of each tensor, "
                        f"{sorted(start.forms)!s:.500}."
                    )
                self._check(start.header, start.forms)
                tensors, first = {}, start.first
                for name, (dtype, shape) in start.forms.items():
                    spec = (self.tensors or {}).get(name, _ANY)
                    mapped = mmap and spec.mapped
                    tensors[name] = array = _read_tensor(file, dtype, shape, first, mapped)
                    if verify or not mapped:
                        _check_values(name, spec, array, start.checksums[name])
                    array.flags.writeable = not spec.mapped
                    first += array.nbytes
            return make(start.header, tensors)

    def _write(self, file: BinaryIO, header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any] | Pieces]) -> None:
        """Write the content of a file.

        Tensors are laid out by item size, the widest first, so that each can be mapped where it lies.
        """
        names = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
        forms = {name: (tensors[name].dtype, tensors[name].shape) for name in names}
        self._check(header, forms)
        size = len(_start_of_file(self.name, header, forms, dict.fromkeys(forms, 0)))
        writer = TensorWriter(file, self.name, header, size)
        for name, (dtype, shape) in forms.items():
            content = tensors[name]
            parts = (np.empty((0, *shape[1:]), dtype), *content.parts) if isinstance(content, Pieces) else (content,)
            for part in parts:
                writer.write(name, part)
        if writer.forms != forms:
            raise RuntimeError(f"The parts of tensors make up {writer.forms}; expected {forms}.")
        writer.finish()

    def _check(self, header: Mapping[str, Any], forms: Mapping[str, _Form]) -> None:
        """Check fields, and types and shapes of tensors."""
        if self.fields is not None:
            _check_fields(self.fields, header)
        if self.tensors is not None:
            _check_forms(self.tensors, header, forms)


def _check_fields(specs: Mapping[str, FieldSpec], header: Mapping[str, Any]) -> None:
    for name in sorted(specs.keys() | header.keys()):
        if name not in specs:
            raise BagwiseError(f"its header has the unknown field {name!r:.100}; expected {sorted(specs)}.")
        if name in header and not specs[name].accepts(header[name]):
            raise BagwiseError(f"its {name} is {header[name]!r:.100}; expected {specs[name]}.")
        if name not in header and not specs[name].optional:
            raise BagwiseError(f"its header has no {name}; expected {specs[name]}.")


def _check_forms(specs: Mapping[str, TensorSpec], header: Mapping[str, Any], forms: Mapping[str, _Form]) -> None:
    required = {name for name, spec in specs.items() if not spec.optional}
    if not required <= forms.keys() <= specs.keys():
        raise BagwiseError(f"it holds the tensors {sorted(forms)!s:.500}; expected {sorted(specs)}.")
    lengths: dict[Any, Any] = {name: value for name, value in header.items() if type(value) is int}
    for name, (dtype, shape) in forms.items():
        spec = specs[name]
        if spec.dtypes and dtype not in spec.dtypes:
            raise BagwiseError(f"its {name} has dtype {dtype}; expected {', '.join(map(str, spec.dtypes))}.")
        if spec.shape is None:
            continue
        if len(shape) != len(spec.shape):
            raise BagwiseError(f"its {name} has shape {shape}; expected {len(spec.shape)} dimensions.")
        for length, wanted in zip(shape, spec.shape, strict=True):
            if length != (lengths.setdefault(wanted, length) if isinstance(wanted, str) else wanted):
                why = f", because {wanted} is {lengths[wanted]}" if wanted in lengths else ""
                raise BagwiseError(f"its {name} has shape {shape}; expected {' x '.join(map(str, spec.shape))}{why}.")


class TensorWriter:
    """Writes tensors to a file in pieces, one after the other, and last what comes before them.

    `size` bytes are kept for that, which takes the same number of bytes whatever the checksums are.
    """

    def __init__(self, file: BinaryIO, kind: str, header: Mapping[str, Any], size: int) -> None:
        self.forms: dict[str, _Form] = {}
        self._file, self._kind, self._header, self._size = file, kind, header, size
        self._checksums: dict[str, int] = {}
        file.write(bytes(size))

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Write an array, or further rows of the tensor that was written last, some rows at a time."""
        n_rows = self.forms[name][1][0] if name in self.forms else 0
        self.forms[name] = array.dtype, (n_rows + len(array), *array.shape[1:]) if array.ndim else ()
        checksum = self._checksums.get(name, 0)
        for rows in _row_pieces(array):
            content = np.ascontiguousarray(rows).tobytes()
            checksum = zlib.crc32(content, checksum)
            self._file.write(content)
        self._checksums[name] = checksum

    def finish(self) -> None:
        """Write what comes before the tensors."""
        self._file.seek(0)
        self._file.write(_start_of_file(self._kind, self._header, self.forms, self._checksums, self._size))


def _start_of_file(
    kind: str, header: Mapping[str, Any], forms: Mapping[str, _Form], checksums: Mapping[str, int], size: int = 0
) -> bytes:
    """Return all bytes before the tensors, which follow in the order of `forms`; exactly `size` of them if given."""
    try:
        check_depth(dict(header))
    except ValueError as error:
        raise BagwiseError(f"The header of {kind} cannot be written: {error}. Simplify options or metadata.") from error
    metadata = {"bagwise": json.dumps({"kind": kind, "schema": SCHEMA} | dict(header))}
    metadata |= {f"{_CHECKSUM}{name}": f"{checksums[name]:08x}" for name in forms}
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape) in forms.items():
        start, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text = text.ljust((size or -(-(8 + len(text)) // _ALIGNMENT) * _ALIGNMENT) - 8)
    if len(text) > MAX_HEADER:
        raise BagwiseError(
            f"The header of {kind} would take {len(text)} bytes, but at most {MAX_HEADER} are accepted. Shorten names, "
            "options or metadata."
        )
    return len(text).to_bytes(8, "little") + text


def _row_pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield an array, some rows at a time."""
    array = np.atleast_1d(array)
    row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
    step = max(1, _PIECE_BYTES // max(1, row_bytes))
    for start in range(0, len(array), step):
        yield array[start : start + step]


def check_file_path(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a `Path`, or raise an error if it is a folder, a device or a pipe, which might never end."""
    target = Path(path)
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "a pipe or a device"
        raise BagwiseError(f"{os.fspath(path)} is {what}, but a file is needed. Give the name of a file.")
    return target


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a file, also if it is damaged; None for anything that is no file of bagwise."""
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= MAX_HEADER else b""
    try:
        kind = parse_json(parse_json(text)["__metadata__"]["bagwise"])["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return kind if isinstance(kind, str) else None


def file_parts(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, _Form]]:
    """Return the header of a file of any kind, and type and shape of its tensors in the order of the file."""
    with _naming(path), _opened(path) as (_, start):
        return start.header, start.forms


class _OtherFileError(BagwiseError):
    """The file is of another format, kind or version."""


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors about what it holds."""
    try:
        yield
    except _OtherFileError as error:
        raise BagwiseError(f"{os.fspath(path)} {error}") from error
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BagwiseError(f"{os.fspath(path)} is damaged: {error}") from error


class _Start(NamedTuple):
    """What is before the tensors of a file."""

    header: dict[str, Any]
    forms: dict[str, _Form]  # in the order of the file
    checksums: dict[str, str]
    first: int  # where the tensors begin


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, _Start]]:
    """Open a file and read what is before its tensors."""
    target = check_file_path(path)
    while True:
        with open(target, "rb") as file:
            start = _read_start(file, target)
            # safetensors opens a path: if another program replaced the file meanwhile, this one is the old file
            if os.path.samestat(os.fstat(file.fileno()), os.stat(target)):
                yield file, start
                return


def _read_start(file: BinaryIO, path: Path) -> _Start:
    from safetensors import SafetensorError, safe_open  # deferred: who writes files needs no reader

    size, length = os.fstat(file.fileno()).st_size, int.from_bytes(file.read(8), "little")
    try:
        if size < 8 or length > MAX_HEADER:
            raise ValueError(f"it would take {length} bytes of {size}; at most {MAX_HEADER} are accepted")
        with safe_open(path, framework="numpy") as entries:
            metadata = entries.metadata() or {}
            listed = {name: entries.get_slice(name) for name in entries.offset_keys()}
            forms = {name: (entry.get_dtype(), tuple(entry.get_shape())) for name, entry in listed.items()}
        header = parse_json(metadata["bagwise"])
        if not isinstance(header, dict):
            raise TypeError(f"a JSON object is expected, got {type(header).__name__}")
        check_depth(header)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _OtherFileError(
            f"is not a file of bagwise, or was cut short: its header cannot be read ({error!r:.200})."
        ) from error
    for name, (code, shape) in forms.items():
        if code not in _DTYPES or len(shape) > 8 or max(shape, default=0) >= _MAX_LENGTH:
            raise BagwiseError(f"its {name} cannot have the type {code:.40} and the shape {shape!s:.200}.")
    checksums = {name.removeprefix(_CHECKSUM): text for name, text in metadata.items() if name.startswith(_CHECKSUM)}
    return _Start(
        header, {name: (_DTYPES[code], shape) for name, (code, shape) in forms.items()}, checksums, 8 + length
    )


def _read_tensor(
    file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...], first: int, mapped: bool
) -> NDArray[Any]:
    """Read a tensor, or map it."""
    count = math.prod(shape)
    if mapped and count:
        # by the open file, not by its name, which may be that of another file by now
        return np.memmap(file, dtype, "r", first, shape).view(np.ndarray)
    file.seek(first)
    return np.fromfile(file, dtype, count).reshape(shape)


def _check_values(name: str, spec: TensorSpec, array: NDArray[Any], checksum: str) -> None:
    """Check the values of a tensor, some rows at a time, and its checksum."""
    computed = 0
    for rows in _row_pieces(array):
        if array.dtype.kind == "b" and rows.view(np.uint8).max(initial=0) > 1:
            raise BagwiseError(f"its {name} holds the byte {rows.view(np.uint8).max()}; expected 0 and 1.")
        if spec.finite and not np.isfinite(rows).all():
            raise BagwiseError(f"its {name} holds {rows[~np.isfinite(rows)].flat[0]}; expected finite numbers.")
        if spec.low is not None and rows.size and rows.min() < spec.low:
            raise BagwiseError(f"its {name} holds {rows.min()}; expected at least {spec.low}.")
        if spec.high is not None and rows.size and rows.max() > spec.high:
            raise BagwiseError(f"its {name} holds {rows.max()}; expected at most {spec.high}.")
        computed = zlib.crc32(rows.data, computed)
    if f"{computed:08x}" != checksum:
        raise BagwiseError(
            f"the checksum of its {name} is {computed:08x}; expected {checksum:.40}: its bytes are not those written."
        )


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
        """Return some of the strings, reading no others."""
        strings = np.empty(numbers.shape, dtype=object)
        for position, number in np.ndenumerate(numbers):
            strings[position] = _decode(bytes(self.text[self.offsets[number] : self.offsets[number + 1]]), number)
        return strings

    def tolist(self) -> list[str]:
        """Return all strings."""
        text, offsets = self.text.tobytes(), self.offsets.tolist()
        return [_decode(text[start:end], number) for number, (start, end) in enumerate(pairwise(offsets))]


def _decode(part: bytes, number: Any) -> str:
    try:
        return part.decode(*_ENCODING)
    except UnicodeDecodeError as error:
        raise BagwiseError(f"String {number} is not UTF-8: {error}.") from error
