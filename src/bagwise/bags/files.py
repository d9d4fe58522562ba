"""The file of `Bags`: a safetensors file whose values come first, so that it can be written in one pass and mapped.

Layout: 8 bytes with the length of the header, the header (JSON, padded with spaces to `_HEADER_SIZE`), then the arrays
``values``, ``positions`` (where there are any) and ``offsets`` without gaps. Any safetensors reader opens it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bagwise._io.atomic import open_atomically
from bagwise._io.tensors import TYPE_NAMES, open_arrays, write_pieces

KIND = "bagwise.Bags"
SCHEMA = 1

# Space kept for the header, which is written last; with the 8 bytes of its length the values start at a multiple of 64.
_HEADER_SIZE = 1024 - 8
_LAYOUT = {"values": (None, 2), "positions": (np.dtype(np.float32), 2), "offsets": (np.dtype(np.int64), 1)}


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
        write_pieces(self._file, values)
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
    mapped = ("values", "positions") if mmap else ()
    _, arrays = open_arrays(path, KIND, SCHEMA, _LAYOUT, mapped, optional=("positions",))
    return arrays["values"], arrays["offsets"], arrays.get("positions")
