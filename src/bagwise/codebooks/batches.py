"""Bags in whatever form they come, as batches; and samples drawn from batches that pass by once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.backends import backend
from bagwise._utils.checks import as_numpy, check_integer
from bagwise.bags import Bags
from bagwise.errors import BagwiseError

__all__ = ["Reservoir", "as_batches", "batches_of_width", "sample_vectors"]

# Arrays that come one by one are put into batches of about this many vectors, and no more than this many bags.
_BATCH_ROWS = 1 << 16
_BATCH_BAGS = 1 << 12


def as_batches(bags: Any) -> Iterator[Bags]:
    """Iterate over bags in batches, none of which is kept.

    `Bags`, alone or from an iterable, are yielded as they are. Matrices of an iterable, one per bag, are put together
    a few at a time. The rows of one matrix of shape (N, D) are N bags of one vector each.
    """
    if isinstance(bags, Bags):
        yield bags
        return
    bags = backend("codebooks", None, bags).to_host(bags)
    if sp.issparse(bags):
        yield _rows_as_bags(bags)  # raises: sparse matrices are not accepted
        return
    if isinstance(bags, (str, bytes, dict)) or not (isinstance(bags, Iterable) or hasattr(bags, "__array__")):
        raise BagwiseError(
            f"Bags were expected, got {type(bags).__name__}. Accepted: Bags, a list of matrices (one a bag), an "
            "iterable of Bags, or one matrix whose rows are bags of one vector."
        )
    if hasattr(bags, "__array__") and np.asarray(bags).ndim < 3:
        yield _rows_as_bags(bags)
        return
    things = iter(bags)
    first = next(things, None)
    if first is None:
        return
    batched = isinstance(first, Bags)
    rows = (
        isinstance(bags, (list, tuple)) and isinstance(first, (list, tuple)) and isinstance((*first, None)[0], Number)
    )
    things = _resumed(first, things)
    del first  # a batch that is done with is let go
    if batched:
        for i, batch in enumerate(things):
            if not isinstance(batch, Bags):
                raise BagwiseError(f"Batch {i} is {type(batch).__name__}, but the ones before are Bags.")
            yield batch
    elif rows:
        yield _rows_as_bags(bags)
    else:
        yield from _gathered(things)


def batches_of_width(bags: Any, n_features: int, dtype: Any, who: str) -> Iterator[Bags]:
    """Iterate as `as_batches` does; raise BagwiseError unless vectors have the number of features `who` expects."""
    for i, batch in enumerate(as_batches(bags)):
        if batch.n_features != n_features and (batch.n_rows or batch.n_features):
            raise BagwiseError(
                f"X has {batch.n_features} features, but {who} is expecting {n_features} features as input (batch {i})."
            )
        if batch.n_features != n_features:  # only empty bags, without a number of features
            batch = Bags(np.empty((0, n_features), dtype), batch.offsets, dtype=None)
        yield batch


def _resumed(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    """The first item of an iterator, then the others. Keeps no reference to an item that was yielded."""
    yield first
    del first
    yield from others


def _rows_as_bags(X: Any) -> Bags:
    from bagwise._utils.validation import check_array  # deferred: scikit-learn takes long to import

    matrix = check_array(X, dtype="numeric", input_name="X")  # the one case that is scikit-learn's: its own messages
    return Bags(matrix, np.arange(len(matrix) + 1), dtype=None)


def _gathered(arrays: Iterator[Any]) -> Iterator[Bags]:
    waiting: list[NDArray[Any]] = []
    n_rows, width = 0, None
    for array in arrays:
        part = as_numpy(array)
        waiting.append(part)
        n_rows += len(part) if part.ndim else 0
        if part.ndim == 2 and part.shape[1]:
            width = part.shape[1]
        if n_rows >= _BATCH_ROWS or len(waiting) >= _BATCH_BAGS:
            yield Bags.from_list(waiting, n_features=width, dtype=None)
            waiting, n_rows = [], 0
    if waiting:
        yield Bags.from_list(waiting, n_features=width, dtype=None)


def sample_vectors(bags: Any, n_samples: int, random: np.random.Generator) -> tuple[NDArray[Any], int, int]:
    """Read bags once; return at most `n_samples` of their vectors, and the numbers of bags and of vectors read."""
    reservoir = Reservoir(n_samples, random)
    n_bags = 0
    for i, batch in enumerate(as_batches(bags)):
        if reservoir.n_features not in (None, batch.n_features):
            raise BagwiseError(
                f"Batch {i} has {batch.n_features} features, but batch 0 has {reservoir.n_features}. "
                "All need the same number."
            )
        reservoir.add(batch.values)
        n_bags += len(batch)
    return reservoir.vectors(), n_bags, reservoir.n_seen


class Reservoir:
    """A uniform sample, without replacement, of at most k vectors from batches that are read once.

    Each vector gets a random number, in order of arrival; those with the k smallest are kept. So the sample does not
    depend on how vectors are split into batches. Vectors of zeros (flat patches) are left out.
    """

    def __init__(self, k: int, random: np.random.Generator) -> None:
        self._k = check_integer(k, "n_samples", 1)
        self._random = random
        self._held: list[tuple[NDArray[np.float64], NDArray[Any]]] = []  # random numbers, and vectors
        self._n_held = 0
        self._limit = 1.0
        self.n_seen = 0
        self.n_features: int | None = None

    def add(self, values: NDArray[Any]) -> None:
        """Offer vectors, shape (n, D). Only those that may be kept are read."""
        if self.n_features is None:
            self.n_features = values.shape[1]
        for start in range(0, len(values), _BATCH_ROWS):
            part = values[start : start + _BATCH_ROWS]
            keys = self._random.random(len(part))
            rows = np.flatnonzero(keys < self._limit)
            vectors = np.asarray(part[rows])
            filled = vectors.any(axis=1)
            self._held.append((keys[rows][filled], vectors[filled]))
            self._n_held += int(filled.sum())
            self.n_seen += len(part)
            if self._n_held > self._k + self._k // 4:
                self._shrink()

    def _shrink(self) -> None:
        keys = np.concatenate([part_keys for part_keys, _ in self._held])
        kept = np.arange(len(keys))
        if len(keys) > self._k:
            kept = np.sort(np.argpartition(keys, self._k - 1)[: self._k])
            self._limit = float(keys[kept].max())
        ends = np.cumsum([len(part_keys) for part_keys, _ in self._held])
        parts = np.searchsorted(ends, kept, side="right")
        chosen = kept - np.concatenate([[0], ends])[parts]
        # from part to part, so that all are not held twice
        dtype = np.result_type(*(vectors.dtype for _, vectors in self._held))
        vectors = np.empty((len(kept), self._held[0][1].shape[1]), dtype)
        for number in range(len(self._held)):
            here = parts == number
            vectors[here] = self._held[number][1][chosen[here]]
        self._held, self._n_held = [(keys[kept], vectors)], len(kept)

    def vectors(self) -> NDArray[Any]:
        """Return the sample, in order of arrival."""
        if not self._held:
            return np.empty((0, self.n_features or 0), np.float32)
        self._shrink()
        return self._held[0][1]
