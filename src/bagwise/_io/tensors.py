"""Arrays in files: written whole or not at all, and read without trusting the file."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bagwise._io.atomic import open_atomically, write_atomically
from bagwise._utils.checks import TYPE_NAMES
from bagwise.errors import BagwiseError

__all__ = [
    "ArraySource",
    "about_file",
    "file_of",
    "open_arrays",
    "read_tensors",
    "write_arrays",
    "write_pieces",
    "write_tensors",
]


def write_tensors(
    path: str | os.PathLike[str], kind: str, schema: int, header: dict[str, Any], tensors: dict[str, NDArray[Any]]
) -> Path:
    """Write contiguous arrays to a safetensors file, atomically, with what they are in its metadata."""
    from safetensors.numpy import save as save_tensors  # deferred: mapped files do without

    metadata = {"bagwise": json.dumps({"kind": kind, "schema": schema} | header)}
    return write_atomically(path, save_tensors(tensors, metadata=metadata))


def read_tensors(
    path: str | os.PathLike[str], kind: str, schema: int, names: Iterable[str]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the header and the arrays that `write_tensors` wrote; what they hold is for the caller to check."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_tensors

    content = Path(path).read_bytes()
    shown, names = os.fspath(path), sorted(names)
    try:
        header = _header_of(content)
        tensors = load_tensors(content)
    except (SafetensorError, ValueError, KeyError, TypeError, struct.error) as error:
        writer = f"{kind.removeprefix('bagwise.')}.save"
        raise BagwiseError(f"{shown} is not a file written by {writer}: {error}") from error
    if header.get("kind") != kind:
        raise BagwiseError(f"{shown} holds {header.get('kind')!r}, not {kind!r}.")
    if header.get("schema") != schema:
        raise BagwiseError(
            f"{shown} has schema {header.get('schema')!r}, this version of bagwise reads {schema}. "
            "Upgrade bagwise to read it."
        )
    if sorted(tensors) != names:
        raise BagwiseError(f"{shown} holds the arrays {sorted(tensors)}, expected {names}.")
    return header, tensors


def _header_of(content: bytes) -> dict[str, Any]:
    """Read the metadata of a safetensors file without trusting the sizes it declares."""
    (length,) = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise ValueError(f"its header declares {length} bytes, the file has {len(content)}")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["bagwise"])
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    return header


_TYPES = {name: dtype for dtype, name in TYPE_NAMES.items()}
# Arrays start at a multiple of this, if those of wider types come first.
_ALIGNMENT = 64
# The largest header that is read.
_LONGEST_HEADER = 1 << 20
# No dimension is longer than this, also where another one is 0.
_LONGEST = 1 << 48
# Arrays are written in pieces of about this size: writing a memory-mapped array must not load all of it.
_PIECE_BYTES = 1 << 24


@dataclass(frozen=True)
class ArraySource:
    """An array that is to be written: its type and shape, and arrays that make it up one after the other."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[NDArray[Any]]

    @classmethod
    def of(cls, array: NDArray[Any]) -> ArraySource:
        """An array that is there."""
        return cls(array.dtype, array.shape, (array,))


def write_pieces(file: BinaryIO, array: NDArray[Any]) -> int:
    """Write an array of at least one dimension in pieces; give the number of bytes."""
    row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
    step = max(1, _PIECE_BYTES // max(1, row_bytes))
    for start in range(0, len(array), step):
        file.write(np.ascontiguousarray(array[start : start + step]).tobytes())
    return len(array) * row_bytes


def write_arrays(
    path: str | os.PathLike[str], kind: str, schema: int, header: dict[str, Any], arrays: Mapping[str, ArraySource]
) -> Path:
    """Write arrays to a file, wholly or not at all, with what they are in its header.

    They are laid out by the size of their numbers, the widest first, so that each can be mapped where it lies.
    """
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    entries: dict[str, Any] = {"__metadata__": {"bagwise": json.dumps({"kind": kind, "schema": schema} | header)}}
    end = 0
    for name in names:
        source = arrays[name]
        start, end = end, end + math.prod(source.shape) * source.dtype.itemsize
        entries[name] = {"dtype": TYPE_NAMES[source.dtype], "shape": list(source.shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text = text.ljust(-(-(8 + len(text)) // _ALIGNMENT) * _ALIGNMENT - 8)
    if len(text) > _LONGEST_HEADER:
        raise BagwiseError(
            f"What is to be written beside the arrays takes {len(text)} bytes, at most {_LONGEST_HEADER} are accepted."
        )
    with open_atomically(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in names:
            source = arrays[name]
            written = sum(write_pieces(file, part) for part in source.parts)
            if written != math.prod(source.shape) * source.dtype.itemsize:
                raise RuntimeError(f"{name} of shape {source.shape} came in {written} bytes")
    return Path(path)


def open_arrays(
    path: str | os.PathLike[str],
    kind: str,
    schema: int,
    layout: Mapping[str, tuple[np.dtype[Any] | None, int]],
    mapped: Iterable[str] = (),
    optional: Iterable[str] = (),
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Give the header of a file and its arrays; what they hold is for the caller to check.

    Parameters
    ----------
    path : path
    kind, schema : str, int
        What the file must say of itself.
    layout : mapping from names to (dtype, dimensions)
        The arrays that are expected; a dtype of None accepts any.
    mapped : iterable of str
        Names of arrays that stay in the file; the others are read. Both are read-only.
    optional : iterable of str
        Names in `layout` that may be missing.
    """
    name, mapped = os.fspath(path), set(mapped)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, entries, start = _read_header(file, size, name, kind, schema)
        if not set(layout) - set(optional) <= set(entries) <= set(layout):
            raise BagwiseError(f"{name} holds the arrays {sorted(entries)}, expected {sorted(layout)}.")
        arrays, spans = {}, []
        for key, entry in entries.items():
            dtype, shape, first, last = _check_entry(key, entry, layout[key], size - start, name)
            spans.append((first, last))
            if last == first:
                arrays[key] = np.empty(shape, dtype)
            elif key in mapped:
                # by the open file, not by its name, which may be that of another one by now
                arrays[key] = np.memmap(file, dtype, "r", start + first, shape).view(np.ndarray)
            else:
                file.seek(start + first)
                arrays[key] = np.frombuffer(file.read(last - first), dtype).reshape(shape)
            arrays[key].flags.writeable = False
    spans.sort()
    if [first for first, _ in spans] != [0, *(last for _, last in spans[:-1])] or spans[-1][1] != size - start:
        raise BagwiseError(f"{name} is damaged: its arrays do not fill the file of {size} bytes. Write it again.")
    return header, arrays


def about_file(kind: str) -> str:
    """What writes files of a kind, such as ``Bags.save``."""
    return f"{kind.removeprefix('bagwise.')}.save"


def _read_header(
    file: BinaryIO, size: int, name: str, kind: str, schema: int
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Give what `write_arrays` was told, the entries of arrays, and where the arrays begin."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise BagwiseError(f"{name} is not a file written by {about_file(kind)}, or was cut short ({size} bytes).")
    try:
        entries = json.loads(file.read(length))
        header = json.loads(entries.pop("__metadata__")["bagwise"])
        found, version = header.pop("kind"), header.pop("schema")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BagwiseError(
            f"{name} is not a file written by {about_file(kind)}: its header cannot be read ({error})."
        ) from error
    if found != kind:
        raise BagwiseError(f"{name} holds {found!r}, not {kind!r}.")
    if version != schema:
        raise BagwiseError(f"{name} has schema {version!r}, this version of bagwise reads {schema}. Upgrade bagwise.")
    return header, entries, 8 + length


def _check_entry(
    key: str, entry: Any, expected: tuple[np.dtype[Any] | None, int], n_bytes: int, name: str
) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Give type, shape and place of an array, which lies inside the file."""
    try:
        dtype, shape, (first, last) = _TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        whole = all(type(number) is int and 0 <= number < _LONGEST for number in (*shape, first, last))
    except (KeyError, TypeError, ValueError) as error:
        raise BagwiseError(f"{name} is damaged: it does not say what {key} is ({error!r}).") from error
    wanted, n_dimensions = expected
    if not whole or len(shape) != n_dimensions:
        raise BagwiseError(f"{name} is damaged: {key} cannot have shape {shape} and bytes {first} to {last}.")
    if wanted is not None and dtype != wanted:
        raise BagwiseError(f"{name} is damaged: {key} are {dtype}, expected {wanted}.")
    if last > n_bytes or last - first != math.prod(shape) * dtype.itemsize:
        raise BagwiseError(
            f"{name} is damaged or was cut short: {key} of shape {shape} should be bytes {first} to {last}, "
            f"of {n_bytes} that are there."
        )
    return dtype, shape, first, last


def file_of(path: str | os.PathLike[str], what: str) -> Path:
    """Give the path as a `Path`, refusing what is a folder; `what` is saved there."""
    target = Path(path)
    if target.is_dir():
        raise BagwiseError(f"{os.fspath(path)} is a folder; {what} saved as one file. Give the name of a file in it.")
    return target
