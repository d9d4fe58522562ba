"""Quadratic forms over samples, from which the matrices A and B of trace ratio criteria are made.

A structure stands for a symmetric matrix L, samples by samples, whose rows sum to zero, and gives ``Xᵀ L X`` without
building L. The pair (preferred, undesired) of a criterion is a pair of structures.

Functions named ``add_…`` fill the upper triangle of a words-by-words matrix in place; `mirror` completes it once, so
that results are symmetric to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr2k, dsyrk

from bagwise._utils.devices import device_module, to_device
from bagwise._utils.matrices import centre_full_words, class_sums
from bagwise._utils.threads import run_over_ranges
from bagwise.merging._kernels import add_low_rank_block, add_sparse_block, mirror_rows

__all__ = [
    "BetweenClasses",
    "Combination",
    "Factor",
    "GraphLaplacian",
    "Residuals",
    "Structure",
    "TotalScatter",
    "between_classes_factor",
]


# Size of temporary copies of dense data, in bytes.
_BLOCK_BYTES = 32 * 2**20
# Up to this rank a plain loop is as fast as BLAS, and equal words get equal sums.
_LOW_RANK = 16


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Split the rows of a dense matrix into blocks of limited size."""
    step = max(_BLOCK_BYTES // max(8 * n_columns, 1), 1)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def add_gram(out: NDArray[np.float64], F: NDArray[np.float64], scale: float = 1.0, n_threads: int = 1) -> None:
    """``out += scale * F.T @ F`` (upper triangle), F dense."""
    F = np.ascontiguousarray(F, dtype=np.float64)
    if len(F) <= _LOW_RANK:
        run_over_ranges(lambda start, stop: add_low_rank_block(out, F, F, scale, 0, start, stop), len(out), n_threads)
    elif F.size:
        dsyrk(scale, F.T, beta=1.0, c=out.T, lower=1, overwrite_c=1)


def add_symmetric_product(
    out: NDArray[np.float64], F: NDArray[np.float64], G: NDArray[np.float64], scale: float = 1.0
) -> None:
    """``out += scale * (F.T @ G + G.T @ F) / 2`` (upper triangle), both dense."""
    if F.size:
        F, G = np.ascontiguousarray(F, dtype=np.float64), np.ascontiguousarray(G, dtype=np.float64)
        dsyr2k(0.5 * scale, F.T, G.T, beta=1.0, c=out.T, lower=1, overwrite_c=1)


def add_sparse_product(out: NDArray[np.float64], left: Any, right: Any, scale: float = 1.0, n_threads: int = 1) -> None:
    """``out += scale * left.T @ right`` (upper triangle) for sparse matrices, samples x words.

    The product must be a symmetric matrix.
    """
    left, right = sp.csr_array(sp.csc_array(left).T), sp.csr_array(right)
    left.sort_indices()
    right.sort_indices()
    lists = (left.indptr, left.indices, left.data, right.indptr, right.indices, right.data)
    run_over_ranges(lambda start, stop: add_sparse_block(out, *lists, scale, 0, start, stop), len(out), n_threads)


def mirror(out: NDArray[np.float64], n_threads: int = 1) -> None:
    """Copy the upper triangle to the lower one."""
    run_over_ranges(lambda start, stop: mirror_rows(out, start, stop), len(out), n_threads)


def is_integer_valued(X: NDArray[np.float64], n_samples: float) -> bool:
    """Whether sums of products of two columns over `n_samples` are integers that float64 holds exactly."""
    if X.size == 0:
        return True
    largest = max(abs(float(X.max())), abs(float(X.min())))
    if not largest**2 * n_samples < 2.0**53:
        return False
    return all(bool((X[rows] == np.rint(X[rows])).all()) for rows in row_blocks(*X.shape))


# Fraction of a block that must be filled for it to be made dense, block by block.
_CROWDED = 0.1
Matrix = Any  # a dense float64 array or a SciPy sparse matrix, samples x words


@dataclass(frozen=True, eq=False)
class Factor:
    """A part of ``Xᵀ L X`` in the form ``weight * leftᵀ right``: symmetric, though left and right may differ.

    Both have one column a word, so merging two words adds two columns. Each is dense, or CSR; both live on a device if
    X does.
    """

    left: Matrix
    right: Matrix
    weight: float = 1.0


class Structure(ABC):
    """A quadratic form L over samples with ``L 1 = 0``."""

    def scatter(self, X: Matrix, n_threads: int = 1) -> NDArray[np.float64]:
        """Form ``Xᵀ L X``, words by words, symmetric to the last bit. A sparse X is not made dense."""
        out = np.zeros((X.shape[1], X.shape[1]))
        self.add_scatter(centre_full_words(X) if sp.issparse(X) else X, out, 1.0, n_threads)
        mirror(out, n_threads)
        return out

    @abstractmethod
    def add_scatter(self, X: Matrix, out: NDArray[np.float64], scale: float, n_threads: int) -> None:
        """Add ``scale * Xᵀ L X`` to the upper triangle of `out`."""

    @abstractmethod
    def factors(self, X: Matrix) -> list[Factor]:
        """Write ``Xᵀ L X`` as a sum of products. Factors of a sparse X are sparse, or have few rows.

        Dense factors are new arrays, which the caller may overwrite.
        """

    def scatter_factors(self, X: Matrix) -> list[Factor]:
        """`factors` of a dense X whose products have as little rounding as `scatter`, none for integers."""
        return self.factors(X)

    @abstractmethod
    def n_factor_rows(self) -> int:
        """Number of rows of all `factors` of a dense X, which is the number of values kept for each word."""

    @abstractmethod
    def trace(self, X: Matrix) -> float:
        """Compute the trace of ``Xᵀ L X`` in O(n d)."""

    n_samples: int

    @property
    def samples(self) -> NDArray[np.intp] | None:
        """The samples that matter to L, None for all: a word that is constant on them adds nothing."""
        return None


@dataclass(frozen=True, eq=False)
class TotalScatter(Structure):
    """Scatter around the weighted mean: ``L = diag(w) - w wᵀ / (1ᵀ w)``, with positive weights w."""

    weights: NDArray[np.float64]

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # noqa: D102
        return len(self.weights)

    def add_scatter(self, X: Matrix, out: NDArray[np.float64], scale: float, n_threads: int) -> None:  # noqa: D102
        w = self.weights
        if sp.issparse(X):
            add_sparse_product(out, X, self._weighted(X), scale, n_threads)
            add_gram(out, (w @ X)[np.newaxis], -scale / w.sum(), n_threads)
        elif np.array_equal(w, np.rint(w)) and is_integer_valued(X, w.sum()):
            # Counts: exact sums of products around an integer near the mean, then one rounding. Equal words keep
            # exactly equal entries, and a weight of 2 is the same as a repeated sample.
            shift = np.rint((w @ X) / w.sum())
            for rows in row_blocks(*X.shape):
                block = X[rows] - shift
                if np.all(w[rows] == 1.0):
                    add_gram(out, block, scale)
                else:
                    add_symmetric_product(out, block, w[rows, np.newaxis] * block, scale)
            add_gram(out, (w @ X - w.sum() * shift)[np.newaxis], -scale / w.sum(), n_threads)
        else:
            for _, deviations in self._deviations(X):
                add_gram(out, deviations, scale)

    def factors(self, X: Matrix) -> list[Factor]:  # noqa: D102
        w = self.weights
        if sp.issparse(X):
            X = centre_full_words(X)
            sums = (w @ X)[np.newaxis]
            return [Factor(X, self._weighted(X)), Factor(sums, sums, -1.0 / w.sum())]
        w = to_device(w, device_module(None, X))
        deviations = X - (w @ X) / w.sum()
        deviations *= np.sqrt(w)[:, np.newaxis]
        return [Factor(deviations, deviations)]

    def scatter_factors(self, X: Matrix) -> list[Factor]:  # noqa: D102
        w = to_device(self.weights, device_module(None, X))
        total = float(w.sum())
        if not (bool((w == np.rint(w)).all()) and is_integer_valued(X, total)):
            return self.factors(X)
        moved = X - np.rint((w @ X) / total)  # as in `add_scatter`
        sums = (w @ moved)[np.newaxis]
        right = moved if bool((w == 1.0).all()) else w[:, np.newaxis] * moved
        return [Factor(moved, right), Factor(sums, sums, -1.0 / total)]

    def n_factor_rows(self) -> int:  # noqa: D102
        return self.n_samples

    def _weighted(self, X: sp.csr_array) -> sp.csr_array:
        """The rows of a sparse X times their weights; X itself where all of them are 1."""
        if np.all(self.weights == 1.0):
            return X
        data = X.data * np.repeat(self.weights, np.diff(X.indptr))
        return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)

    def _deviations(self, X: NDArray[np.float64]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        mean = (self.weights @ X) / self.weights.sum()
        root = np.sqrt(self.weights)[:, np.newaxis]
        for rows in row_blocks(*X.shape):
            yield rows, (X[rows] - mean) * root[rows]

    def trace(self, X: Matrix) -> float:  # noqa: D102
        if sp.issparse(X):
            X = centre_full_words(X)
            sums = self.weights @ X
            return float(self.weights @ X.power(2).sum(axis=1) - sums @ sums / self.weights.sum())
        return float(sum(np.vdot(deviations, deviations) for _, deviations in self._deviations(X)))


@dataclass(frozen=True, eq=False)
class BetweenClasses(Structure):
    """Between-class scatter: L is the projection on class means minus that on the overall mean.

    `codes` gives the class of each sample as 0 … C-1, `weights` what it counts (None: 1). Rank C - 1; O(n d + C d²)
    time, nothing of samples by samples.
    """

    codes: NDArray[np.intp]
    weights: NDArray[np.float64] | None = None

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # noqa: D102
        return len(self.codes)

    def _factor(self, X: Matrix) -> NDArray[np.float64]:
        """Class means minus the overall mean, times the root of the class size: classes x words."""
        sums = class_sums(X, self.codes, weights=self.weights)
        return between_classes_factor(sums, np.bincount(self.codes, self.weights))

    def add_scatter(self, X: Matrix, out: NDArray[np.float64], scale: float, n_threads: int) -> None:  # noqa: D102
        add_gram(out, self._factor(X), scale, n_threads)

    def factors(self, X: Matrix) -> list[Factor]:  # noqa: D102
        factor = self._factor(X)
        return [Factor(factor, factor)]

    def n_factor_rows(self) -> int:  # noqa: D102
        return int(self.codes.max()) + 1

    def trace(self, X: Matrix) -> float:  # noqa: D102
        factor = self._factor(X)
        return float(np.vdot(factor, factor))


def between_classes_factor(sums: NDArray[np.float64], sizes: NDArray[Any]) -> NDArray[np.float64]:
    """Compute F, classes x words, with ``FᵀF`` the scatter of the class means, from the sums over classes."""
    weights = to_device(sizes, device_module(None, sums), np.float64)[:, np.newaxis]
    return np.sqrt(weights) * (sums / weights - sums.sum(axis=0) / float(sizes.sum()))


@dataclass(frozen=True, eq=False)
class Residuals(Structure):
    """Squares of contrasts between samples: ``L = Rᵀ R`` with R sparse, one contrast a row, each summing to zero."""

    rows: sp.csr_array

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # noqa: D102
        return self.rows.shape[1]

    def add_scatter(self, X: Matrix, out: NDArray[np.float64], scale: float, n_threads: int) -> None:  # noqa: D102
        for rows in row_blocks(self.rows.shape[0], X.shape[1]):
            contrasts = self.rows[rows] @ X
            if sp.issparse(contrasts) and not _is_crowded(contrasts):
                add_sparse_product(out, contrasts, contrasts, scale, n_threads)
            else:
                add_gram(out, contrasts.toarray() if sp.issparse(contrasts) else contrasts, scale)

    def factors(self, X: Matrix) -> list[Factor]:  # noqa: D102
        contrasts = _beside(self.rows, X) @ (centre_full_words(X) if sp.issparse(X) else X)
        return [Factor(contrasts, contrasts)]

    def n_factor_rows(self) -> int:  # noqa: D102
        return self.rows.shape[0]

    def trace(self, X: Matrix) -> float:  # noqa: D102
        total = 0.0
        for rows in row_blocks(self.rows.shape[0], X.shape[1]):
            contrasts = self.rows[rows] @ X
            values = contrasts.data if sp.issparse(contrasts) else contrasts
            total += float(np.vdot(values, values))
        return total


@dataclass(frozen=True, eq=False)
class GraphLaplacian(Structure):
    """The Laplacian of a weighted graph over samples, ``L = diag(W 1) - W``; W symmetric, dense or sparse."""

    weights: Any

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # noqa: D102
        return self.weights.shape[0]

    def form(self) -> Any:
        """L in the form W has."""
        degrees = np.asarray(self.weights.sum(axis=1)).ravel()
        if sp.issparse(self.weights):
            return sp.csr_array(sp.diags_array(degrees) - self.weights)
        return np.diag(degrees) - self.weights

    def add_scatter(self, X: Matrix, out: NDArray[np.float64], scale: float, n_threads: int) -> None:  # noqa: D102
        form = self.form()
        X = X if sp.issparse(X) else _near_zero(X)
        for rows in row_blocks(*X.shape):
            left, right = X[rows], form[rows] @ X
            if sp.issparse(left) and sp.issparse(right) and not _is_crowded(right):
                add_sparse_product(out, left, right, scale, n_threads)
            else:
                left, right = (M.toarray() if sp.issparse(M) else M for M in (left, right))
                add_symmetric_product(out, left, right, scale)

    def factors(self, X: Matrix) -> list[Factor]:  # noqa: D102
        form = self.form()
        X = centre_full_words(X) if sp.issparse(X) else _near_zero(X)
        if sp.issparse(X) and not sp.issparse(form):
            form = sp.csr_array(form)
        return [Factor(X, _beside(form, X) @ X)]

    def n_factor_rows(self) -> int:  # noqa: D102
        return 2 * self.n_samples

    def trace(self, X: Matrix) -> float:  # noqa: D102
        form = self.form()
        X = centre_full_words(X) if sp.issparse(X) else X - X.mean(axis=0)
        total = 0.0
        for rows in row_blocks(*X.shape):
            left, right = X[rows], form[rows] @ X
            total += float(left.multiply(right).sum() if sp.issparse(left) else np.vdot(left, right))
        return total


def _near_zero(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Subtract the mean, which L ignores, to reduce rounding errors. Integers stay integers."""
    mean = X.mean(axis=0)
    return X - (np.rint(mean) if is_integer_valued(X, len(X)) else mean)


def _beside(form: Any, X: Matrix) -> Any:
    """Copy a matrix over samples to the device that X lives on, if it does."""
    xp = device_module(None, X)
    if xp is np:
        return form
    if not sp.issparse(form):
        return xp.asarray(form)
    from cupyx.scipy.sparse import csr_matrix  # deferred: there is a device

    return csr_matrix(sp.csr_matrix(form))


def _is_crowded(block: sp.csr_array) -> bool:
    """Whether a block of rows has so many non-zeros that it is cheaper as a dense one."""
    return block.nnz > _CROWDED * block.shape[0] * block.shape[1]


@dataclass(frozen=True, eq=False)
class Combination(Structure):
    """A weighted sum of structures, each over all samples or over some of them.

    `terms` holds (weight, structure, samples); samples is an index array, or None for all.
    """

    terms: Sequence[tuple[float, Structure, NDArray[np.intp] | None]]
    n_samples: int

    def add_scatter(self, X: Matrix, out: NDArray[np.float64], scale: float, n_threads: int) -> None:  # noqa: D102
        for weight, structure, samples in self.terms:
            structure.add_scatter(X if samples is None else X[samples], out, scale * weight, n_threads)

    def factors(self, X: Matrix) -> list[Factor]:  # noqa: D102
        return [
            replace(factor, weight=weight * factor.weight)
            for weight, structure, samples in self.terms
            for factor in structure.factors(X if samples is None else X[samples])
        ]

    def scatter_factors(self, X: Matrix) -> list[Factor]:  # noqa: D102
        return [
            replace(factor, weight=weight * factor.weight)
            for weight, structure, samples in self.terms
            for factor in structure.scatter_factors(X if samples is None else X[samples])
        ]

    def n_factor_rows(self) -> int:  # noqa: D102
        return sum(structure.n_factor_rows() for _, structure, _ in self.terms)

    def trace(self, X: Matrix) -> float:  # noqa: D102
        return sum(
            weight * structure.trace(X if samples is None else X[samples]) for weight, structure, samples in self.terms
        )

    @property
    def samples(self) -> NDArray[np.intp] | None:  # noqa: D102
        chosen = [samples for _, _, samples in self.terms]
        if any(samples is None for samples in chosen):
            return None
        return np.unique(np.concatenate([np.empty(0, dtype=np.intp), *chosen]))
