"""`BagsWriter`, which writes the files that `Bags.load` opens.

The values come first in a file of `BagsWriter`, so that it can be written in one pass and mapped. The header, of a
fixed number of bytes, is written last. The tensors ``values``, ``positions`` (if there are any) and ``offsets`` follow.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bagwise._io.atomic import open_atomically
from bagwise._io.tensors import TensorWriter, check_file_path
from bagwise._utils.checks import as_dtype, as_values, check_integer
from bagwise.bags.bags import FILE, Bags, offsets_of
from bagwise.errors import BagwiseError

__all__ = ["BagsWriter"]

# With the 8 bytes of its length; the values start at a multiple of 64.
_HEADER_SIZE = 1024


class BagsWriter:
    """Write bags to a file one after the other, for collections whose vectors do not fit in memory.

    Use it in a ``with`` block. The file appears under its name when the block ends without an exception; until then,
    and after one, nothing is there (or what was there before).

    Parameters
    ----------
    path : path
        File to write, for `Bags.load`.
    n_features : int
        Width of all vectors.
    positions : bool, default=False
        Whether bags come with positions. They are kept in memory until the end, 8 bytes a vector.
    dtype : data type, default=float32
        Type the values are held in.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from bagwise.bags import Bags, BagsWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "descriptors.bags")
    ...     with BagsWriter(path, n_features=2) as writer:
    ...         for n in (2, 0, 1):
    ...             writer.append(np.ones((n, 2)))
    ...     Bags.load(path, mmap=False)
    <Bags: 3 bags, 3 rows x 2 features of float32>
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_features: int,
        *,
        positions: bool = False,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.path = check_file_path(path)
        self.n_features = check_integer(n_features, "n_features", 0)
        self._dtype = as_dtype(np.float32 if dtype is None else dtype, np.empty(0))
        self._positions: list[NDArray[np.float32]] | None = [] if positions else None
        self._lengths: list[NDArray[np.int64]] = []
        self._writer: TensorWriter | None = None

    def __enter__(self) -> BagsWriter:
        self._opened = open_atomically(self.path)
        self._writer = TensorWriter(self._opened.__enter__(), FILE.name, {}, _HEADER_SIZE)
        self._writer.write("values", np.empty((0, self.n_features), self._dtype))
        return self

    def append(self, values: Any, positions: Any = None) -> None:
        """Write one bag, a matrix of shape (length of the bag, n_features)."""
        self.extend(Bags.from_list([values], None if positions is None else [positions], dtype=self._dtype))

    def extend(self, bags: Bags) -> None:
        """Write several bags."""
        if self._writer is None:
            raise BagwiseError("Bags are written in a with block: with BagsWriter(path, n_features) as writer: ...")
        if bags.n_rows and bags.n_features != self.n_features:
            raise BagwiseError(f"{self.path} takes {self.n_features} features, got bags with {bags.n_features}.")
        if bags.n_rows and (bags.positions is None) != (self._positions is None):
            needs = "needs positions" if bags.positions is None else "was opened without positions (positions=True)"
            raise BagwiseError(f"{self.path} {needs}.")
        same = bags.values.dtype == self._dtype
        if bags.n_rows:
            self._writer.write("values", bags.values if same else as_values(bags.values, self._dtype))
        self._lengths.append(bags.lengths)
        if self._positions is not None and bags.positions is not None:
            self._positions.append(bags.positions)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        writer, self._writer = self._writer, None
        if kind is None and writer is not None:
            try:
                if self._positions is not None:
                    writer.write("positions", np.concatenate([np.empty((0, 2), np.float32), *self._positions]))
                writer.write("offsets", offsets_of(np.concatenate([np.empty(0, np.int64), *self._lengths])))
                writer.finish()
            except BaseException as failure:  # a full disk, for instance: nothing half-written is left
                self._opened.__exit__(type(failure), failure, failure.__traceback__)
                raise
        self._opened.__exit__(kind, error, trace)
