"""`PatternWords`: groups of similar binary patterns."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_non_negative
from threadpoolctl import threadpool_limits

from bagwise._compat import Interval, _fit_context
from bagwise._utils.validation import validate_data
from bagwise.errors import BagwiseError
from bagwise.merging.grouping import FLOATS, GroupTransformer

__all__ = ["PatternWords"]


class PatternWords(GroupTransformer, BaseEstimator):
    """Group similar binary patterns: a lookup table from patterns to groups, by k-means over their bits.

    Column p of the data counts the pattern whose bits are those of p. Patterns are points in {0, 1}^b, whose squared
    distances count the bits that differ. k-means weights them by their frequency in the training data, which is k-means
    over all occurrences. Patterns that never occur are assigned to the nearest centre. Labels are not used: a baseline
    for supervised merging.

    Parameters
    ----------
    n_groups : int, default=100
        Number of groups. If no more patterns occur than that, each of them is a group.
    n_init : int, default=1
        Number of initialisations of k-means; the best result is kept.
    max_iter : int, default=100
        Maximum number of iterations of k-means.
    random_state : int, RandomState or None, default=None
        The same seed gives the same table.

    Attributes
    ----------
    labels_ : ndarray of int, shape (n_features_in_,)
        Group of each pattern. Groups are numbered by their first pattern.
    centers_ : ndarray of shape (n_groups, b)
        Relative frequency of each bit being set, lowest bit first.
    n_iter_ : int
        Iterations of k-means; 1 if each pattern that occurs is a group.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    LBPD5 : Counts the patterns.
    WordMerger : Merges patterns by a criterion, such as the separability of classes.

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

    _name_prefix = "pattern"

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
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the table from counts of patterns.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Non-negative counts of patterns.
        y : ignored

        Returns
        -------
        self : PatternWords
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS)
        check_non_negative(X, "PatternWords.fit")
        weights = np.asarray(X.sum(axis=0), dtype=np.float64).ravel()
        seen = np.flatnonzero(weights)
        if len(seen) == 0:
            raise BagwiseError("X counts no pattern: all entries are 0. Patterns need images of at least 5 x 5 pixels.")
        bits = pattern_bits(X.shape[1])
        if len(seen) <= self.n_groups:
            centers, self.n_iter_ = bits[seen], 1
        else:
            from sklearn.cluster import KMeans  # deferred: slow to import

            means = KMeans(self.n_groups, n_init=self.n_init, max_iter=self.max_iter, random_state=self.random_state)
            with threadpool_limits(1):
                means.fit(bits[seen], sample_weight=weights[seen])
            centers, self.n_iter_ = means.cluster_centers_, means.n_iter_
        labels = nearest_centers(bits, centers)
        firsts = np.full(len(centers), len(labels))
        np.minimum.at(firsts, labels, np.arange(len(labels)))
        order = np.argsort(firsts, kind="stable")
        self.centers_ = centers[order]
        self.labels_ = np.argsort(order)[labels]
        return self

    def _n_groups(self) -> int:
        return len(self.centers_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


# Number of distances that nearest_centers computes at a time.
_DISTANCES = 1 << 22


def pattern_bits(n_patterns: int) -> NDArray[np.float64]:
    """Bits of the numbers 0 to n_patterns - 1, lowest first, one row a number."""
    n_bits = max(1, (n_patterns - 1).bit_length())
    return (np.arange(n_patterns)[:, np.newaxis] >> np.arange(n_bits) & 1).astype(np.float64)


def nearest_centers(bits: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Index of the nearest centre of each row, the lowest of equals."""
    sizes = (centers**2).sum(axis=1)
    step = max(1, _DISTANCES // len(centers))
    parts = [
        np.argmin(sizes - 2 * (bits[start : start + step] @ centers.T), axis=1) for start in range(0, len(bits), step)
    ]
    return np.concatenate(parts).astype(np.int64)
