"""Metrics of `BagIndex`, and histograms as it takes and holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.checks import as_numpy
from bagwise._utils.matrices import as_format, canonical, check_non_negative, first_not_finite, is_lazy
from bagwise.errors import BagwiseError, argument

# Kinds of metrics that compiled code knows, see `_shared_term` and `_key` of `bagwise.retrieval._kernels`.
INNER, EUCLIDEAN, INTERSECTION, CHI2 = range(4)
# Items of a block: as many as the 16 bits of a list's entries can name, so that no entry points outside.
BLOCK_ITEMS = 1 << 16


@dataclass(frozen=True)
class Metric:
    """A metric: a sum over the words that query and item share, turned into a key of which the smaller is nearer.

    `term` and `key` define it, in NumPy. With a `kind` of compiled code, which adds the same terms and makes the same
    keys, large searches are fast; without one, all searches go by the definition.
    """

    name: str
    term: Callable[[Any, Any], Any]  # what a word adds, from its values in query and item; 0 if one of them is
    key: Callable[[Any, Any], Any]  # from the sum of terms, and the totals of query and item together
    difference: Callable[[Any, Any], Any] | None = None  # what a word adds to a distance; None: scores are similarities
    squared: bool = False  # keys are squares of scores
    non_negative: bool = True  # histograms must not be negative
    square_root: bool = False  # histograms are replaced by their square roots
    power: int = 1  # totals of rows are sums of values (1), or of their squares (2)
    kind: int | None = None

    @property
    def larger_is_nearer(self) -> bool:
        """Whether scores are similarities rather than distances."""
        return self.difference is None

    def scores(self, keys: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn keys into scores."""
        if self.larger_is_nearer:
            return 0.0 - keys  # without negative zeros
        return np.sqrt(keys) if self.squared else keys

    def totals(self, rows: Any) -> NDArray[np.float64]:
        """Totals of the rows of a CSR or dense matrix."""
        return row_totals(rows, self.power)


def _harmonic(x: Any, z: Any) -> Any:
    return x * z / (x + z)


def _minus(shared: Any, totals: Any) -> Any:
    return -shared


def _euclidean(shared: Any, totals: Any) -> Any:
    return np.maximum(totals - 2.0 * shared, 0.0)


def _square(x: Any, z: Any) -> Any:
    return (x - z) ** 2


def _chi2(shared: Any, totals: Any) -> Any:
    return np.maximum(totals - 4.0 * shared, 0.0)


def _relative_square(x: Any, z: Any) -> Any:
    return (x - z) ** 2 / (x + z)


# Adding one takes a row.
METRICS = {
    metric.name: metric
    for metric in [
        Metric("chi2", _harmonic, _chi2, _relative_square, kind=CHI2),
        Metric("intersection", np.minimum, _minus, kind=INTERSECTION),
        Metric("hellinger", np.multiply, _minus, square_root=True, power=2, kind=INNER),
        Metric(
            "euclidean", np.multiply, _euclidean, _square, squared=True, non_negative=False, power=2, kind=EUCLIDEAN
        ),
        Metric("inner", np.multiply, _minus, non_negative=False, power=2, kind=INNER),
    ]
}


def row_totals(rows: Any, power: int) -> NDArray[np.float64]:
    """Sum the absolute values (1) or squares (2) of rows of a CSR or dense matrix, in the order of the words.

    Zeros add nothing, so that dense and CSR rows have the same totals to the last bit.
    """
    if sp.issparse(rows):
        sizes = np.abs(rows.data.astype(np.float64)) ** power
        return sp.csr_array((sizes, rows.indices, rows.indptr), shape=rows.shape) @ np.ones(rows.shape[1])
    totals, step = np.empty(len(rows)), max(_TOTALLED // rows.shape[1], 1)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        totals[part] = np.cumsum(np.abs(rows[part].astype(np.float64)) ** power, axis=1)[:, -1]
    return totals


NORMS = {"l1": 1, "l2": 2}
_LARGEST = float(np.finfo(np.float32).max)
_TOTALLED = 1 << 18  # numbers of dense rows that are added up at a time: they fit into the cache


def check_histograms(X: Any, metric: Metric, n_words: int | None, what: str) -> Any:
    """Return `X` as a CSR or dense matrix of its dtype, or raise an error unless the metric accepts its values.

    `n_words` is that of the index, None before it has any. `what` is "Histograms" or "Queries", for errors.
    """
    if is_lazy(X):
        raise BagwiseError(f"{what} must be in memory, got a Dask collection. Call its compute() first.")
    rows = sp.csr_array(as_format(X, "csr")) if sp.issparse(X) and X.ndim == 2 else X
    if not sp.issparse(X):
        try:
            rows = as_numpy(X)
        except ValueError as error:
            raise BagwiseError(
                f"{what} must be a matrix, one row for each; got a {type(X).__name__} of rows that differ in length."
            ) from error
    if rows.ndim != 2:
        raise BagwiseError(
            f"{what} must be a matrix, one row for each; got {type(X).__name__} of shape {rows.shape}."
            + (" Give a single one as [histogram]." if rows.ndim == 1 else "")
        )
    if rows.dtype.kind not in "fiub":
        raise BagwiseError(
            f"{what} must be real numbers, such as counts of words; got {type(X).__name__} of {rows.dtype}. "
            "Images, texts and bags become histograms by BagOfFeatures or WordCounts."
        )
    if n_words is not None and rows.shape[1] != n_words:
        raise BagwiseError(
            f"{what} have {rows.shape[1]} words, but this index {n_words}. "
            "They must come from the same model, with the same words in the same order."
        )
    if rows.shape[1] == 0:
        raise BagwiseError(f"{what} must have at least one word, got shape {rows.shape}.")
    bad = first_not_finite(rows)
    if bad is not None:
        raise BagwiseError(f"{what} must be finite, but row {bad[0]}, word {bad[1]} is {bad[2]}.")
    if metric.non_negative:
        check_non_negative(
            rows, f"The metric {metric.name!r}", f"Use {argument('metric', 'euclidean')} or 'inner', or counts."
        )
    values = rows.data if sp.issparse(rows) else rows
    largest = max(-float(values.min(initial=0)), float(values.max(initial=0)))
    if largest > _LARGEST:
        raise BagwiseError(f"{what} are held as float32, of at most {_LARGEST:.3g}; got {largest:.3g}. Scale them.")
    return rows


def prepare(rows: Any, metric: Metric, normalize: str | None) -> Any:
    """Copy checked rows into the form that the index holds: normalised, float32, canonical CSR without zeros, or dense.

    Dense and CSR rows give the same numbers, to the last bit.
    """
    sparse = sp.issparse(rows)
    if sparse:
        rows = canonical(rows)
    values = rows.data if sparse else rows
    if normalize is not None or metric.square_root:
        values = values.astype(np.float64)
    if normalize is not None:
        matrix = sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape) if sparse else values
        sizes = row_totals(matrix, NORMS[normalize])
        sizes = np.sqrt(sizes) if normalize == "l2" else sizes
        sizes[sizes == 0] = 1.0
        values /= np.repeat(sizes, np.diff(rows.indptr)) if sparse else sizes[:, np.newaxis]
    if metric.square_root:
        np.sqrt(values, out=values)
    values = np.array(values, dtype=np.float32, order="C")
    if not sparse:
        return values
    kept = sp.csr_array((values, rows.indices.copy(), rows.indptr.copy()), shape=rows.shape)
    if not values.all():
        kept.eliminate_zeros()
    return kept


@dataclass(frozen=True)
class Queries:
    """Prepared rows as compiled functions take them, in CSR form, and the metric they are compared by."""

    metric: Metric
    n_words: int
    starts: NDArray[np.int64]
    words: NDArray[np.int64]
    values: NDArray[np.float32]
    totals: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Any, metric: Metric) -> Queries:
        """Take rows that `prepare` gave."""
        matrix = sp.csr_array(rows)
        starts, words = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
        return cls(metric, matrix.shape[1], starts, words, matrix.data, metric.totals(matrix))

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]:
        """The argument `queries` of compiled functions."""
        return self.starts, self.words, self.values, self.totals

    def dense(self, first: int, last: int) -> NDArray[np.float32]:
        """Give some queries as dense rows."""
        starts = self.starts[first : last + 1]
        part = slice(starts[0], starts[-1])
        rows = sp.csr_array(
            (self.values[part], self.words[part], starts - starts[0]), shape=(last - first, self.n_words)
        )
        return rows.toarray()
