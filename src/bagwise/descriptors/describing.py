"""From items to bags without estimators: what `Descriptor` and models share. It does not import scikit-learn."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bagwise.bags.bags import Bags, offsets_of
from bagwise.descriptors.cache import ArrayCache
from bagwise.descriptors.images import shrink
from bagwise.descriptors.registry import DESCRIPTORS
from bagwise.errors import BagwiseError
from bagwise.sources.collection import as_items
from bagwise.sources.items import ItemIterator, item_errors

__all__ = ["Arrays", "Describer", "RowBuffer", "arrays_of", "compute_each", "describe_items", "join_bags"]
__all__ += ["n_bytes", "unit_rows"]


def unit_rows(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Scale rows to unit L2 norm; zero rows stay zero. Unlike scikit-learn's normalize, takes matrices without rows.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros(rows.shape), where=lengths > 0).astype(np.float32)


# Large enough that the allocator maps it apart from the heap and returns it to the system when freed.
_BLOCK_BYTES = 1 << 26


class RowBuffer:
    """Collect rows of `width` numbers when their number is not known beforehand.

    Rows are copied to blocks. At the end blocks are copied to the result and freed one by one, so that memory never
    exceeds the result and one block. (Many small arrays would leave freed memory with the process.)
    """

    def __init__(self, width: int, dtype: DTypeLike) -> None:
        self._width = width
        self._dtype = np.dtype(dtype)
        self._capacity = max(1, _BLOCK_BYTES // max(1, width * self._dtype.itemsize))
        self._blocks: list[NDArray[Any]] = []
        self._filled = self._capacity  # rows of the last block

    def append(self, rows: NDArray[Any]) -> None:
        """Copy rows to the end."""
        if rows.shape[1] != self._width:
            raise BagwiseError(
                "All items must give vectors of the same width, but one gave vectors of "
                f"{self._width} numbers and another of {rows.shape[1]}."
            )
        while len(rows):
            if self._filled == self._capacity:
                self._blocks.append(np.empty((self._capacity, self._width), self._dtype))
                self._filled = 0
            taken = min(len(rows), self._capacity - self._filled)
            self._blocks[-1][self._filled : self._filled + taken] = rows[:taken]
            self._filled += taken
            rows = rows[taken:]

    def joined(self) -> NDArray[Any]:
        """Return all rows as one array, and empty the buffer."""
        if not self._blocks:
            return np.empty((0, self._width), self._dtype)
        self._blocks[-1] = self._blocks[-1][: self._filled]
        result = np.empty((sum(map(len, self._blocks)), self._width), self._dtype)
        end = len(result)
        while self._blocks:
            block = self._blocks.pop()
            result[end - len(block) : end] = block
            end -= len(block)
        self._filled = self._capacity
        return result


Arrays = dict[str, NDArray[Any]]


def arrays_of(values: NDArray[Any], positions: NDArray[Any] | None) -> Arrays:
    """Return values and positions of an item as arrays of float32 by name."""
    arrays = {"values": np.ascontiguousarray(values, dtype=np.float32)}
    if positions is not None:
        arrays["positions"] = np.ascontiguousarray(positions, dtype=np.float32)
    return arrays


def compute_each(descriptors: Sequence[Any], caches: Sequence[ArrayCache | None], item: Any) -> list[Arrays]:
    """Load the arrays of each descriptor from its cache, or compute them; the item is read once for each size."""
    with item_errors(item.id):
        key = item.fingerprint() if any(cache is not None for cache in caches) else ""
        held = [None if cache is None else cache.load(key) for cache in caches]
        both = list(zip(descriptors, held, strict=True))
        contents = {side: item.load(side) for side in {one._image_side for one, arrays in both if arrays is None}}
        found = [one._arrays(contents[one._image_side]) if arrays is None else arrays for one, arrays in both]
    for cache, arrays, computed in zip(caches, held, found, strict=True):
        if cache is not None and arrays is None:
            cache.save(key, computed)  # a full disk is not an error of the item
    return found


def describe_items(
    descriptors: Sequence[Any], X: Any, *, batch_size: int = 64, on_error: str = "raise"
) -> ItemIterator:
    """Describe items by one or several descriptors, batch by batch; each item is read once for each size.

    The iterator is that of `ItemTransformer.iter_transform`, with `n_jobs` and `verbose` of the first descriptor, and
    yields tuples: what each descriptor makes of the batch.
    """
    for descriptor in descriptors:
        descriptor._check_parameters()
    first = descriptors[0]
    items, source = as_items(X, first.modality)

    def join(described: Iterable[list[Arrays]]) -> tuple[Any, ...]:
        columns = zip(*described, strict=True)
        return tuple(descriptor._join(column) for descriptor, column in zip(descriptors, columns, strict=True))

    compute = partial(compute_each, descriptors, [descriptor._cache() for descriptor in descriptors])
    task = type(first).__name__ if first.verbose else None
    return ItemIterator(
        items,
        compute,
        source,
        on_error=on_error,
        n_jobs=first.n_jobs,
        size=lambda described: sum(map(n_bytes, described)),
        task=task,
        batch_size=batch_size,
        join=join,
    )


def n_bytes(arrays: Arrays) -> int:
    """Return the size of the arrays of an item."""
    return sum(array.nbytes for array in arrays.values())


def join_bags(items: Iterable[Arrays]) -> Bags:
    """Concatenate the arrays ``values`` and ``positions`` of items, one bag per item."""
    lengths: list[int] = []
    rows: dict[str, RowBuffer] = {}
    for arrays in items:
        lengths.append(len(arrays["values"]))
        for name, array in arrays.items():
            if name not in rows:
                rows[name] = RowBuffer(array.shape[1], np.float32)
            rows[name].append(array)
    joined = {name: buffer.joined() for name, buffer in rows.items()}
    return Bags(joined["values"], offsets_of(lengths), joined.get("positions"))


class Describer:
    """A descriptor of the registry that has a function, with sound parameters: the estimator without scikit-learn.

    It gives what the estimator gives, and shares its cache.
    """

    verbose = 0

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, Any],
        n_jobs: int | None = None,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self._name, self._parameters = name, dict(parameters)
        self._known = DESCRIPTORS[name]
        self.modality, self.n_jobs, self.cache = self._known.modality, n_jobs, cache
        self._image_side = self._parameters.get("max_side")
        own = {name: value for name, value in self._parameters.items() if name != "max_side"}
        assert self._known.function is not None
        functions = importlib.import_module("bagwise.descriptors.functions")
        self._describe = partial(getattr(functions, self._known.function), **own)

    def _check_parameters(self) -> None:
        """Do nothing: `DescriptorRecord` has checked them."""

    def _arrays(self, content: Any) -> Arrays:
        return arrays_of(*self._describe(content if self._image_side is None else shrink(content, self._image_side)))

    def _join(self, items: Iterable[Arrays]) -> Bags:
        return join_bags(items)

    def _cache(self) -> ArrayCache | None:
        if self.cache is None:
            return None
        return ArrayCache(
            self.cache, {"name": f"bagwise.descriptors.{self._known.module}.{self._name}", **self._parameters}
        )
