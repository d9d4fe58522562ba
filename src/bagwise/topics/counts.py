"""Counts of words in documents, as topic models read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from bagwise._utils.matrices import check_non_negative, is_whole
from bagwise.errors import BagwiseError

__all__ = ["Corpus", "CountReader", "check_whole", "to_counts", "with_small_indices"]


def to_counts(X: Any, who: str) -> sp.csr_array:
    """Documents x words as CSR in float64, words in order, without zeros and repeats; X stays as it came."""
    check_non_negative(
        X, who, "Negative values in data cannot be counts: give counts, or other weights such as TF-IDF."
    )
    counts = sp.csr_array(X, dtype=np.float64)
    if not counts.has_canonical_format or (counts.data == 0).any():
        counts = counts.copy()
        counts.sum_duplicates()
        counts.eliminate_zeros()
    # One kind of arrays, so that kernels are compiled once.
    return with_small_indices(counts)


def with_small_indices(X: sp.csr_array) -> sp.csr_array:
    """The same matrix with 32-bit indices where they suffice, and nothing read-only.

    Linear models of scikit-learn refuse 64-bit indices, which SciPy's products and stacks often give.
    """
    index = np.int32 if max(X.nnz, *X.shape) < 2**31 else np.int64
    indices = np.require(X.indices, dtype=index, requirements=["C", "W"])
    starts = np.require(X.indptr, dtype=index, requirements=["C", "W"])
    return sp.csr_array((np.require(X.data, requirements=["C", "W"]), indices, starts), shape=X.shape)


class CountReader:
    """An estimator of documents x words, sparse or dense, none below 0."""

    def _counts(self, X: Any, reset: bool) -> sp.csr_array:
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        return to_counts(X, type(self).__name__)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


def check_whole(X: Any, who: str) -> None:
    """Raise where counts are not whole numbers."""
    if not is_whole(X):
        values = X.data if sp.issparse(X) else np.ravel(X)
        first = values[values != np.rint(values)][0]
        raise BagwiseError(
            f"{who} goes through single tokens, so it needs whole numbers; there is a count of {first:g}. "
            "Give counts as they are, neither weighted nor normalised."
        )


@dataclass(frozen=True)
class Corpus:
    """Counts listed both ways: the words of each document, and the documents of each word.

    Parameters
    ----------
    X : csr_array of shape (n_documents, n_words)
        As `to_counts` gives it.
    starts : ndarray of shape (n_words + 1,)
        The documents of word v are ``documents[starts[v]:starts[v + 1]]``, in order.
    documents : ndarray of shape (nnz,)
    places : ndarray of shape (nnz,)
        Where each of these entries is in ``X.data``.
    """

    X: sp.csr_array
    starts: NDArray[np.integer]
    documents: NDArray[np.integer]
    places: NDArray[np.integer]

    @classmethod
    def of(cls, X: sp.csr_array) -> Corpus:
        """List the documents of each word. Cost O(nnz)."""
        numbered = sp.csr_array((np.arange(X.nnz, dtype=X.indices.dtype), X.indices, X.indptr), shape=X.shape)
        by_word = numbered.tocsc()
        return cls(X, by_word.indptr, by_word.indices, by_word.data)
