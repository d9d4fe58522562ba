"""The file of `Bags`: a safetensors file whose values come first, so that it can be written in one pass and mapped.

Layout: 8 bytes with the length of the header, the header (JSON, padded with spaces to `_HEADER_SIZE`), then the arrays
``values``, ``positions`` (where there are any) and ``offsets`` without gaps. Any safetensors reader opens it. Nothing
in it is code, and every number in the header is checked against the size of the file before it is believed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bagwise._files import open_atomically
from bagwise.errors import BagwiseError

KIND = "bagwise.Bags"
SCHEMA = 1

# The names safetensors gives to the types that bags may have.
TYPE_NAMES = {
    np.dtype(code): name
    for code, name in [
        ("<f2", "F16"),
        ("<f4", "F32"),
        ("<f8", "F64"),
        ("|u1", "U8"),
        ("|i1", "I8"),
        ("<u2", "U16"),
        ("<i2", "I16"),
        ("<u4", "U32"),
        ("<i4", "I32"),
        ("<u8", "U64"),
        ("<i8", "I64"),
    ]
}
_TYPES = {name: dtype for dtype, name in TYPE_NAMES.items()}
# Space kept for the header, which is written last; with the 8 bytes of its length the values start at a multiple of 64.
_HEADER_SIZE = 1024 - 8
# Values are written in pieces of about this size: writing a memory-mapped array must not load all of it.
_PIECE_BYTES = 1 << 24


class BagsFile:
    """An open file that takes bags one after the other; made by `create_bags_file`."""

    def __init__(self, file: BinaryIO, n_features: int, dtype: np.dtype[Any]) -> None:
        self._file = file
        self._dtype = dtype
        self.n_features = n_features
        self.n_rows = 0
        file.write(bytes(8 + _HEADER_SIZE))

    def write_rows(self, values: NDArray[Any]) -> None:
        """Append rows of values, of the right width and type."""
        step = max(1, _PIECE_BYTES // max(1, self.n_features * self._dtype.itemsize))
        for start in range(0, len(values), step):
            self._file.write(np.ascontiguousarray(values[start : start + step]).tobytes())
        self.n_rows += len(values)

    def finish(self, offsets: NDArray[np.int64], positions: NDArray[np.float32] | None) -> None:
        """Write what comes after the values, then the header."""
        header: dict[str, Any] = {"__metadata__": {"bagwise": json.dumps({"kind": KIND, "schema": SCHEMA})}}
        end = 0
        shapes = {"values": ((self.n_rows, self.n_features), self._dtype)}
        if positions is not None:
            shapes["positions"] = (positions.shape, np.dtype(np.float32))
            self._file.write(positions.tobytes())
        shapes["offsets"] = (offsets.shape, np.dtype(np.int64))
        self._file.write(offsets.tobytes())
        for name, (shape, dtype) in shapes.items():
            start, end = end, end + math.prod(shape) * dtype.itemsize
            header[name] = {"dtype": TYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        self._file.seek(0)
        self._file.write(_HEADER_SIZE.to_bytes(8, "little"))
        self._file.write(json.dumps(header).encode().ljust(_HEADER_SIZE))


@contextmanager
def create_bags_file(path: str | os.PathLike[str], n_features: int, dtype: np.dtype[Any]) -> Iterator[BagsFile]:
    """Open a new file for bags. It appears under its name when the block ends well, and not at all otherwise."""
    with open_atomically(path) as file:
        yield BagsFile(file, n_features, dtype)


def read_bags_file(
    path: str | os.PathLike[str], mmap: bool
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float32] | None]:
    """Give values, offsets and positions of a file, values and positions mapped into memory or read.

    The arrays have the types and shapes they should have; what the offsets say is not checked here.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _read_header(file, size, name)
        if not {"values", "offsets"} <= set(header) <= {"values", "offsets", "positions"}:
            raise BagwiseError(
                f"{name} holds the arrays {sorted(header)}, expected values, offsets and maybe positions."
            )
        arrays, spans = {}, []
        for key, entry in header.items():
            dtype, shape, first, last = _check_entry(key, entry, size - start, name)
            spans.append((first, last))
            if last == first:
                arrays[key] = np.empty(shape, dtype)
            elif mmap and key != "offsets":
                arrays[key] = np.memmap(path, dtype, "r", start + first, shape).view(np.ndarray)
            else:
                file.seek(start + first)
                arrays[key] = np.frombuffer(file.read(last - first), dtype).reshape(shape)
    spans.sort()
    if [first for first, _ in spans] != [0, *(last for _, last in spans[:-1])] or spans[-1][1] != size - start:
        raise BagwiseError(f"{name} is damaged: its arrays do not fill the file of {size} bytes. Write it again.")
    return arrays["values"], arrays["offsets"], arrays.get("positions")


def _read_header(file: BinaryIO, size: int, name: str) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(file.read(8), "little")
    # Other writers of safetensors may make longer headers; those of bags have three entries, so 64 kB is plenty.
    if size < 8 or length > min(size - 8, 1 << 16):
        raise BagwiseError(f"{name} is not a file written by Bags.save, or was cut short ({size} bytes).")
    try:
        header = json.loads(file.read(length))
        about = json.loads(header.pop("__metadata__")["bagwise"])
        kind, schema = about["kind"], about["schema"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BagwiseError(
            f"{name} is not a file written by Bags.save: its header cannot be read ({error})."
        ) from error
    if kind != KIND:
        raise BagwiseError(f"{name} holds {kind!r}, not {KIND!r}.")
    if schema != SCHEMA:
        raise BagwiseError(f"{name} has schema {schema!r}, this version of bagwise reads {SCHEMA}. Upgrade bagwise.")
    return header, 8 + length


def _check_entry(key: str, entry: Any, n_bytes: int, name: str) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    try:
        dtype, shape, (first, last) = _TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, first, last))
    except (KeyError, TypeError, ValueError) as error:
        raise BagwiseError(f"{name} is damaged: it does not say what {key} is ({error!r}).") from error
    if not whole or len(shape) != (1 if key == "offsets" else 2):
        raise BagwiseError(f"{name} is damaged: {key} cannot have shape {shape} and bytes {first} to {last}.")
    wanted = {"offsets": np.dtype(np.int64), "positions": np.dtype(np.float32)}.get(key, dtype)
    if dtype != wanted:
        raise BagwiseError(f"{name} is damaged: {key} are {dtype}, expected {wanted}.")
    if last > n_bytes or last - first != math.prod(shape) * dtype.itemsize:
        raise BagwiseError(
            f"{name} is damaged or was cut short: {key} of shape {shape} should be bytes {first} to {last}, "
            f"of {n_bytes} that are there."
        )
    return dtype, shape, first, last


def file_of(path: str | os.PathLike[str]) -> Path:
    """Give the path as a `Path`, refusing what is a folder."""
    target = Path(path)
    if target.is_dir():
        raise BagwiseError(f"{os.fspath(path)} is a folder; bags are saved as one file. Give the name of a file in it.")
    return target
