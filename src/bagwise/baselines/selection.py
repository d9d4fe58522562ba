"""`MinRedundancyMaxRelevance`: feature selection by mutual information (mRMR)."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import Interval, _fit_context
from bagwise._utils.checks import reset_fitted
from bagwise._utils.validation import validate_data
from bagwise.baselines._kernels import distinct_states, expand, information, partition, three_states
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["MinRedundancyMaxRelevance"]

_SCHEMES = ("MID", "MIQ")
_QUOTIENT_FLOOR = 1e-12
# Scores this near the best are ties: rounding differs with the order of the sums, and the floor of the quotient
# separates equal quotients by about its own size.
_TIE = 1e-10
_BLOCK = 64  # columns of a dense array copied at once: single columns of a row-major array are slow to read


class _Partitions(NamedTuple):
    """Each feature as lists of the samples in each state; the most frequent state is omitted."""

    samples: NDArray[np.int32]  # of list g: samples[group_starts[g] : group_starts[g + 1]]
    group_starts: NDArray[np.int64]
    feature_starts: NDArray[np.int64]  # lists of feature f: feature_starts[f] to feature_starts[f + 1]


def _columns(X: Any) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int32]]]:
    """Yield the non-zero entries of each column, and their rows in ascending order."""
    if sp.issparse(X):
        for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            values = X.data[start:stop]
            stored = np.flatnonzero(values)
            yield values[stored].astype(np.float64), X.indices[start:stop][stored].astype(np.int32)
    else:
        for start in range(0, X.shape[1], _BLOCK):
            for values in np.ascontiguousarray(X[:, start : start + _BLOCK].T, dtype=np.float64):
                rows = np.flatnonzero(values)
                yield values[rows], rows.astype(np.int32)


def _partitions(X: Any, width: float, discretize: bool) -> _Partitions:
    n_samples = X.shape[0]
    samples, sizes = [], []
    for column, (values, rows) in enumerate(_columns(X)):
        if discretize:
            states = three_states(values, n_samples, width)
        else:
            states = distinct_states(values)
            if not len(states):
                raise BagwiseError(
                    f"discretize=False needs integers, but column {column} of X has other values. Use discretize=True, "
                    "or round X first."
                )
        listed, group_sizes = partition(states, rows, n_samples)
        samples.append(listed)
        sizes.append(group_sizes)
    return _Partitions(
        np.concatenate(samples),
        np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64),
        np.cumsum([0, *map(len, sizes)], dtype=np.int64),
    )


class MinRedundancyMaxRelevance(SelectorMixin, BaseEstimator):
    """Feature selection by minimum redundancy and maximum relevance (mRMR).

    1. Discretise each feature into three states: low, middle and high.
    2. Select the feature with the largest mutual information with the class.
    3. Select further features by the best trade-off of relevance I(f; y) and redundancy R(f), the mean mutual
       information with the features selected before.

    Parameters
    ----------
    n_features : int, default=50
        Number of features to select; all if there are fewer.
    scheme : {"MID", "MIQ"}, default="MID"
        The trade-off: "MID" is the difference I(f; y) - R(f), "MIQ" the quotient I(f; y) / (R(f) + 1e-12).
    width : float, default=1.0
        A feature is low below mean - width * std and high above mean + width * std; 0.5 is also common.
    discretize : bool, default=True
        False: features are integers, and each distinct value is a state.

    Attributes
    ----------
    ranking_ : ndarray of shape (min(n_features, n_features_in_),)
        Indices of the selected features in the order of selection.
    relevance_ : ndarray of shape (n_features_in_,)
        Mutual information of each feature with the class, in nats.
    scores_ : ndarray of shape (min(n_features, n_features_in_),)
        Score of each feature of `ranking_` at its selection. The first is its relevance under both schemes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    WordMerger : Merges words instead of dropping them.
    sklearn.feature_selection.SelectKBest : Selects by relevance alone.

    Notes
    -----
    Selecting k of d features from n samples takes O(k d n) time: redundancies are running sums, so each step compares
    one feature with all. A feature is stored as lists of the samples in each of its states except the most frequent
    one. Sparse X stays sparse: if zero is in the most frequent state, the lists take at most four bytes per stored
    entry. Dense and sparse X give the same result.

    Ties, scores within 1e-10 of the best, go to the lowest index. Constant features come last. At width 1 that includes
    0/1 features with as many ones as zeros, all of whose values lie on the borders: use a smaller `width`, or
    ``discretize=False``, for these.

    `transform` keeps the columns in the order of X; ``X[:, selector.ranking_]`` has them in the order of selection.

    References
    ----------
    H. Peng, F. Long, C. Ding, "Feature selection based on mutual information: criteria of max-dependency,
    max-relevance, and min-redundancy", IEEE TPAMI 27(8), 2005.

    Examples
    --------
    The second column repeats the first, so the third is selected before it, though it is less relevant.

    >>> from bagwise.baselines import MinRedundancyMaxRelevance
    >>> X = [[9, 9, 0], [8, 8, 0], [0, 0, 0], [0, 0, 0], [0, 0, 7], [0, 0, 0]]
    >>> y = ["cat", "cat", "dog", "dog", "owl", "dog"]
    >>> selector = MinRedundancyMaxRelevance(n_features=2).fit(X, y)
    >>> selector.ranking_
    array([0, 2])
    >>> selector.relevance_.round(2)
    array([0.64, 0.64, 0.45])
    >>> selector.get_feature_names_out(["paw", "claw", "beak"])
    array(['paw', 'beak'], dtype=object)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_features": [Interval(Integral, 1, None, closed="left")],
        "scheme": [str],
        "width": [Interval(Real, 0, None, closed="left")],
        "discretize": ["boolean"],
    }

    def __init__(
        self, n_features: int = 50, *, scheme: str = "MID", width: float = 1.0, discretize: bool = True
    ) -> None:
        self.n_features = n_features
        self.scheme = scheme
        self.width = width
        self.discretize = discretize

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Select the features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Class of each sample.

        Returns
        -------
        self : MinRedundancyMaxRelevance
        """
        reset_fitted(self)
        if self.scheme not in _SCHEMES:
            raise unknown_name("scheme", self.scheme, _SCHEMES)
        X, y = validate_data(self, X, y, accept_sparse="csc", dtype=[np.float64, np.float32], ensure_min_samples=2)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise BagwiseError(
                f"y has one class, {classes[0]!s}: no feature is relevant to it. At least two are needed."
            )
        partitions = _partitions(X, float(self.width), self.discretize)
        self.relevance_ = information(labels.astype(np.int32), *partitions)
        self.ranking_, self.scores_ = self._rank(partitions, X.shape[0])
        return self

    def _rank(self, partitions: _Partitions, n_samples: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        relevance = self.relevance_
        n_features = len(relevance)
        n_selected = min(self.n_features, n_features)
        ranking = np.empty(n_selected, dtype=np.int64)
        scores = np.empty(n_selected)
        constant = np.diff(partitions.feature_starts) == 0
        n_varying = n_features - np.count_nonzero(constant)
        excluded = constant.copy()  # without redundancy, constant features would precede redundant ones
        redundancy = np.zeros(n_features)  # sums over the selected features
        trade_off = relevance
        for step in range(n_selected):
            if step == n_varying:
                excluded = ~constant
            if step > 0:
                if not constant[ranking[step - 1]]:
                    states = expand(ranking[step - 1], *partitions, n_samples)
                    redundancy += information(states, *partitions)
                mean = redundancy / step
                trade_off = relevance - mean if self.scheme == "MID" else relevance / (mean + _QUOTIENT_FLOOR)
            candidates = np.where(excluded, -np.inf, trade_off)
            best = candidates.max()
            selected = np.argmax(candidates >= best - _TIE * max(1.0, abs(best)))
            ranking[step], scores[step] = selected, trade_off[selected]
            excluded[selected] = True
        return ranking, scores

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.ranking_] = True
        return mask

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ranking_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags
