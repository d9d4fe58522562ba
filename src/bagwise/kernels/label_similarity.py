"""Similarities of labels, and the gradient of their agreement with a diagonal kernel.

For similarities s of labels and the kernel ``K(x, x') = Σ_d w_d x_d x'_d``, the gradient of
``Σ_{i≠j} s_ij K(x_i, x_j)`` in w is ``g_d = Σ_i Σ_{j≠i} s_ij x_id x_jd``. Where s is an inner product of labels, no
n x n matrix is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from bagwise.errors import BagwiseError, unknown_name

SIMILARITIES = ("auto", "classes", "shared")
# Numbers per block of similarities.
_BLOCK_NUMBERS = 2**22
# A gradient below this fraction of its upper bound is rounding error.
_ROUNDING = 1e-13


class LabelSimilarity(ABC):
    """Similarities s of the labels of samples."""

    def __init__(self, labels: Any) -> None:
        self.labels = labels

    @abstractmethod
    def gradient(self, X: Any) -> NDArray[np.float64]:
        """``g_d = Σ_i Σ_{j≠i} s_ij x_id x_jd`` for a dense or CSR matrix X."""

    def separability(self, X: Any) -> NDArray[np.float64]:
        """How much more of the variance of each feature lies between labels than by chance; see `SharedLabels`."""
        raise BagwiseError(
            "objective='correlation' needs labels, but similarity is a function. Use similarity='auto', 'classes' or "
            "'shared', or another objective."
        )

    @abstractmethod
    def between(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Matrix of s between two sets of samples."""

    def signs_between(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Target signs of the kernel: 1 for similar labels, -1 for others."""
        return self.between(rows, columns)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """The similarity of a subset of the samples."""
        taken = copy(self)
        taken.labels = self.labels[rows]
        return taken


class SharedLabels(LabelSimilarity):
    """``s_ij = scale y_i · y_j + offset`` for the 0/1 rows y of a matrix: by default, the number of shared labels.

    ``g_d = scale Σ_c (Σ_i y_ic x_id)² + offset (Σ_i x_id)² - Σ_i s_ii x_id²``, in one pass over the data.
    """

    def __init__(self, labels: Any, scale: float = 1.0, offset: float = 0.0) -> None:
        super().__init__(sp.csr_array(labels, dtype=np.float64))
        self.scale = scale
        self.offset = offset

    def gradient(self, X: Any) -> NDArray[np.float64]:
        """G from sums over the samples of each label."""
        diagonal = self.scale * np.asarray(self.labels.multiply(self.labels).sum(axis=1)).ravel() + self.offset
        gradient = self.scale * column_squares(self.labels.T @ X) - column_squares(X, diagonal)
        if self.offset:
            gradient += self.offset * np.asarray(X.sum(axis=0, dtype=np.float64)).ravel() ** 2
        return _without_rounding(gradient, X, diagonal.max())

    def separability(self, X: Any) -> NDArray[np.float64]:
        """``n Σ_l (1 - p_l) r_dl² / Σ_l (1 - p_l) - 1``: r_dl correlates feature d with label l of fraction p_l.

        For classes it is ``n η_d² / (c - 1) - 1``, with η² the fraction of the variance between classes: a χ² statistic
        relative to its mean if labels were drawn at random. It depends on neither scale nor mean of the features.
        Constant features have correlation 0; without labels that vary it is 0. One pass over the data; sparse data stay
        sparse.
        """
        n = X.shape[0]
        sizes = np.asarray(self.labels.sum(axis=0)).ravel()
        varies = (sizes > 0) & (sizes < n)
        labels, sizes = self.labels[:, varies], sizes[varies]
        X = X.astype(np.float64, copy=False)
        members = labels.T @ X
        sums, of_labels = (np.asarray(Z.sum(axis=0)).ravel() for Z in (X, members))
        total = column_squares(X)
        deviations = total - sums**2 / n
        # Σ_l (members - p_l sums)² / size_l
        between = column_squares(members, 1 / sizes) - sums * (2 * of_labels - sizes.sum() / n * sums) / n
        varies = deviations > _ROUNDING * n * total
        shares = np.divide(np.maximum(between, 0.0), deviations, out=np.zeros_like(between), where=varies)
        return n * shares / (1 - sizes / n).sum() - 1 if len(sizes) else np.zeros(X.shape[1])

    def between(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """S from inner products of labels."""
        return self.scale * (self.labels[rows] @ self.labels[columns].T).toarray() + self.offset

    def signs_between(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """1 for samples that share a label, -1 for others."""
        return np.where(self.between(rows, columns) > self.offset, 1.0, -1.0)


def class_agreement(codes: NDArray[np.int64]) -> SharedLabels:
    """``s_ij = 1`` for two samples of the same class, -1 for others. `codes` numbers the classes from 0."""
    n = len(codes)
    return SharedLabels(sp.csr_array((np.ones(n), codes, np.arange(n + 1))), scale=2.0, offset=-1.0)


class GivenSimilarity(LabelSimilarity):
    """Similarities from a function, evaluated for all pairs, block by block: O(n² d), or O(n nnz) if X is sparse.

    ``function(a, b)`` returns the matrix of similarities between the labels a and b. It should be symmetric.
    """

    def __init__(self, function: Callable[[Any, Any], Any], labels: Any) -> None:
        super().__init__(labels)
        self.function = function

    def gradient(self, X: Any) -> NDArray[np.float64]:
        """G from blocks of similarities."""
        n, d = X.shape
        everyone = np.arange(n)
        size = max(_BLOCK_NUMBERS // max(n, d), 1)
        gradient, diagonal, largest = np.zeros(d), np.empty(n), 0.0
        for start in range(0, n, size):
            rows = everyone[start : start + size]
            similarities = self.between(rows, everyone)
            diagonal[rows] = similarities[np.arange(len(rows)), rows]
            largest = max(largest, float(np.abs(similarities).max()))
            wanted = similarities @ X
            if sp.issparse(X):
                gradient += np.asarray(X[rows].multiply(wanted).sum(axis=0)).ravel()
            else:
                gradient += np.einsum("ij,ij->j", X[rows], wanted)
        return _without_rounding(gradient - column_squares(X, diagonal), X, largest)

    def between(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Evaluate the function and check its result."""
        computed = self.function(self.labels[rows], self.labels[columns])
        similarities = np.asarray(computed.toarray() if sp.issparse(computed) else computed)
        expected = (len(rows), len(columns))
        if similarities.shape != expected or similarities.dtype.kind not in "fiub":
            raise BagwiseError(
                f"similarity(a, b) must return a numeric matrix of shape {expected} for so many labels a and b; it "
                f"returned shape {similarities.shape} of {similarities.dtype}."
            )
        if not np.isfinite(similarities).all():
            raise BagwiseError("similarity(a, b) returned values that are not finite. All similarities must be finite.")
        return similarities.astype(np.float64, copy=False)


def label_similarity(similarity: str | Callable[[Any, Any], Any], y: Any) -> LabelSimilarity:
    """Create the similarity of labels for a name or a function; see `DiagonalKernelLearner`."""
    if callable(similarity):
        return GivenSimilarity(similarity, y.tocsr() if sp.issparse(y) else y)
    if similarity not in SIMILARITIES:
        raise unknown_name("similarity", similarity, SIMILARITIES, "a function of two arrays of labels")
    if similarity == "auto" and y.ndim == 2 and y.shape[1] == 1:
        raise BagwiseError(
            f"y has shape {y.shape}, which is ambiguous. For the class of each sample give y.ravel(); for an indicator "
            "matrix of one label use similarity='shared'."
        )
    if similarity == "shared" or (similarity == "auto" and y.ndim == 2):
        if y.ndim != 2:
            raise BagwiseError(
                f"similarity='shared' needs a 0/1 indicator matrix with a column per label, got y of shape {y.shape}. "
                "Use 'classes' for one label per sample, or sklearn.preprocessing.MultiLabelBinarizer."
            )
        values = y.data if sp.issparse(y) else y
        if values.dtype.kind not in "fiub" or not np.isin(values, (0, 1)).all():
            raise BagwiseError(
                f"The indicator matrix y must be zeros and ones, but it has other values ({values.dtype})."
            )
        return SharedLabels(y)
    if y.ndim != 1:
        raise BagwiseError(f"similarity='classes' needs one label per sample, got y of shape {y.shape}. Use 'shared'.")
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise BagwiseError(f"y has one class, {classes[0]!s}: at least two are needed.")
    return class_agreement(codes)


def _without_rounding(gradient: NDArray[np.float64], X: Any, largest: float) -> NDArray[np.float64]:
    """Set rounding errors to zero: their signs are meaningless, but weights are scaled by the largest."""
    sizes = np.asarray(abs(X).sum(axis=0, dtype=np.float64)).ravel()
    return np.where(np.abs(gradient) <= _ROUNDING * largest * sizes**2, 0.0, gradient)


def column_squares(X: Any, sample_weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """``Σ_i weight_i x_id²`` for each column d, in float64."""
    if not sp.issparse(X):
        if sample_weights is None:
            return np.einsum("ij,ij->j", X, X, dtype=np.float64)
        return np.einsum("i,ij,ij->j", sample_weights, X, X, dtype=np.float64)
    X = sp.csr_array(X)
    squares = X.data.astype(np.float64) ** 2
    if sample_weights is not None:
        squares *= np.repeat(sample_weights, np.diff(X.indptr))
    return np.bincount(X.indices, weights=squares, minlength=X.shape[1]).astype(np.float64)  # integers if empty
