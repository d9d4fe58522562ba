"""`PatternWords`: binary patterns grouped by how they look."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from bagwise._compat import Interval, _check_feature_names_in, _fit_context
from bagwise.errors import BagwiseError

__all__ = ["PatternWords"]


class PatternWords(TransformerMixin, BaseEstimator):
    """Group binary patterns that look alike: a lookup table from patterns to words, by k-means over their bits.

    Column number p of the data counts the pattern whose bits are those of p. Patterns are points in {0, 1}^b, whose
    squared distances count the bits that differ; k-means weighs them by how often they occur in the training data,
    which is k-means over all occurrences. Patterns that never occurred go to the nearest centre. Labels are not used:
    the baseline for merging that does use them.

    Parameters
    ----------
    n_groups : int, default=100
        Number of words. If no more patterns occur than that, each of them is a word.
    n_init : int, default=1
        Starts of k-means, of which the best is kept.
    max_iter : int, default=100
        Most iterations of k-means.
    random_state : int, RandomState or None, default=None
        The same seed gives the same table.

    Attributes
    ----------
    labels_ : ndarray of int, shape (n_features_in_,)
        Word of each pattern. Words are numbered by their first pattern.
    centers_ : ndarray of shape (words, b)
        Share of occurrences in which each bit is set, lowest bit first.
    n_iter_ : int
        Iterations of k-means; 1 if each pattern that occurs is a word.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    LBPD5 : Counts the patterns.
    WordMerger : Merges patterns by what tells classes apart.

    Notes
    -----
    The data have d columns, and ``b = ⌈log₂ d⌉``: 65,536 patterns of `LBPD5` have 16 bits. Fitting takes
    O(p · n_groups · b) per iteration for the p patterns that occur, whatever the number of images; transforming takes
    one pass over the data. k-means is scikit-learn's, on one thread, because the sums of several threads differ in
    their last bits.

    References
    ----------
    S. ul Hussain, B. Triggs, "Visual recognition using local quantized patterns", ECCV 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.merging import PatternWords
    >>> X = np.array([[9, 5, 0, 0, 0, 0, 4, 7], [8, 6, 0, 0, 0, 0, 2, 9]])
    >>> words = PatternWords(n_groups=2, random_state=0).fit(X)
    >>> words.labels_                             # 000, 001, 010, 100 look like one another, so do the others
    array([0, 0, 0, 1, 0, 1, 1, 1])
    >>> words.transform(X)
    array([[14., 11.],
           [14., 11.]])
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_groups": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, n_groups: int = 100, *, n_init: int = 1, max_iter: int = 100, random_state: Any = None) -> None:
        self.n_groups = n_groups
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> PatternWords:
        """Learn the table from counts of patterns.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Counts of patterns, not negative.
        y : ignored

        Returns
        -------
        self : PatternWords
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=_FLOATS)
        check_non_negative(X, "PatternWords.fit")
        weights = np.asarray(X.sum(axis=0), dtype=np.float64).ravel()
        seen = np.flatnonzero(weights)
        if len(seen) == 0:
            raise BagwiseError("X counts no pattern at all: every entry is 0. Give images with at least 5 x 5 pixels.")
        bits = pattern_bits(X.shape[1])
        if len(seen) <= self.n_groups:
            centers, self.n_iter_ = bits[seen], 1
        else:
            centers, self.n_iter_ = self._cluster(bits[seen], weights[seen])
        labels = nearest_centers(bits, centers)
        firsts = np.full(len(centers), len(labels))
        np.minimum.at(firsts, labels, np.arange(len(labels)))
        order = np.argsort(firsts, kind="stable")
        self.centers_ = centers[order]
        self.labels_ = np.argsort(order)[labels]
        return self

    def _cluster(self, bits: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        means = KMeans(self.n_groups, n_init=self.n_init, max_iter=self.max_iter, random_state=self.random_state)
        with threadpool_limits(1):
            means.fit(bits, sample_weight=weights)
        return means.cluster_centers_, means.n_iter_

    def transform(self, X: Any) -> Any:
        """Add up the counts of each word's patterns.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray or CSR matrix of shape (n_samples, words)
            Sparse if X is.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=_FLOATS)
        n = len(self.labels_)
        member = sp.csr_array((np.ones(n, X.dtype), self.labels_, np.arange(n + 1)), shape=(n, len(self.centers_)))
        if not sp.issparse(X):
            return np.ascontiguousarray(X @ member)
        product = sp.csr_array(X) @ member
        product.sort_indices()
        return product if isinstance(X, sp.sparray) else sp.csr_matrix(product)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Name the words pattern0, pattern1 and so on.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Only checked against the columns seen in `fit`.

        Returns
        -------
        names : ndarray of str objects
        """
        check_is_fitted(self)
        _check_feature_names_in(self, input_features, generate_names=False)
        return np.array([f"pattern{number}" for number in range(len(self.centers_))], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


_FLOATS = (np.float64, np.float32)
# nearest_centers takes about this many distances at a time.
_DISTANCES = 1 << 22


def pattern_bits(n_patterns: int) -> NDArray[np.float64]:
    """Bits of the numbers 0 to n_patterns - 1, lowest first, one row a number."""
    n_bits = max(1, (n_patterns - 1).bit_length())
    return (np.arange(n_patterns)[:, np.newaxis] >> np.arange(n_bits) & 1).astype(np.float64)


def nearest_centers(bits: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number of the nearest centre of each row, the first one of several that are equally near."""
    sizes = (centers**2).sum(axis=1)
    step = max(1, _DISTANCES // len(centers))
    parts = [
        np.argmin(sizes - 2 * (bits[start : start + step] @ centers.T), axis=1) for start in range(0, len(bits), step)
    ]
    return np.concatenate(parts).astype(np.int64)
