"""Metrics of `BagIndex`, and histograms as it takes and holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.checks import as_numpy
from bagwise._utils.matrices import as_format, canonical, check_non_negative, first_not_finite, is_lazy
from bagwise.errors import BagwiseError, argument
from bagwise.retrieval import _plain as plain


@dataclass(frozen=True)
class Metric:
    """A metric: its code in compiled functions, and how keys become scores."""

    name: str
    kind: int  # constant of bagwise.retrieval._plain
    larger_is_nearer: bool  # scores are similarities rather than distances
    non_negative: bool  # histograms must not be negative
    square_root: bool = False  # histograms are replaced by their square roots

    @property
    def power(self) -> int:
        """Whether totals of rows are sums (1) or squared norms (2)."""
        return 2 if self.kind in (plain.INNER, plain.EUCLIDEAN) else 1

    def scores(self, keys: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn keys, of which the smaller is nearer, into scores."""
        if self.larger_is_nearer:
            return 0.0 - keys  # without negative zeros
        return np.sqrt(keys) if self.kind == plain.EUCLIDEAN else keys

    def totals(self, rows: Any) -> NDArray[np.float64]:
        """Totals of the rows of a CSR or dense matrix."""
        return row_totals(rows, self.power)


METRICS = {
    metric.name: metric
    for metric in [
        Metric("chi2", plain.CHI2, larger_is_nearer=False, non_negative=True),
        Metric("intersection", plain.INTERSECTION, larger_is_nearer=True, non_negative=True),
        Metric("hellinger", plain.INNER, larger_is_nearer=True, non_negative=True, square_root=True),
        Metric("euclidean", plain.EUCLIDEAN, larger_is_nearer=False, non_negative=False),
        Metric("inner", plain.INNER, larger_is_nearer=True, non_negative=False),
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
    found = first_not_finite(rows)
    if found is not None:
        raise BagwiseError(f"{what} must be finite, but row {found[0]}, word {found[1]} is {found[2]}.")
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
        held = sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape) if sparse else values
        sizes = row_totals(held, NORMS[normalize])
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
        held = sp.csr_array(rows)
        starts, words = held.indptr.astype(np.int64), held.indices.astype(np.int64)
        return cls(metric, held.shape[1], starts, words, held.data, metric.totals(held))

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
