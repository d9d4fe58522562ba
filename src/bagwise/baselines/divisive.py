"""`DivisiveMerger`: flat groups of words that lose little information about classes (DITC)."""

from __future__ import annotations

import heapq
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from bagwise._compat import Interval, _fit_context
from bagwise._utils.checks import reset_fitted
from bagwise._utils.matrices import check_non_negative, class_sums
from bagwise._utils.validation import check_sample_weight, validate_data
from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.criteria.base import class_codes
from bagwise.merging.criteria.information import InformationLoss
from bagwise.merging.grouping import FLOATS, GroupTransformer
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.merge import merge_words
from bagwise.merging.scoring import Information, x_log_x
from bagwise.merging.searches.sums import SumSearch

__all__ = ["DivisiveMerger"]

_STARTS = ("class", "aib")
# Divergences this close are equal up to rounding.
_TIE = 1e-12
# Entries of the matrix of divergences that are formed at a time.
_BLOCK = 2**22


class DivisiveMerger(GroupTransformer, BaseEstimator):
    """Group words so that little information about the classes is lost (DITC).

    Divisive information-theoretic clustering: like k-means, with the distribution of a word over the classes as its
    position.

    1. A group has the distribution over classes of all its words.
    2. Each word moves to the group with the nearest distribution, in Kullback-Leibler divergence.

    Parameters
    ----------
    n_groups : int, default=50
        Number of groups. If there are no more words than that, all are kept.
    start : {"class", "aib"}, default="class"
        Initial groups: each word with the class in which it is most frequent, or the groups that AIB finds. Groups of
        the first are split in halves, or those pairs merged that lose least information, until there are `n_groups`.
    smoothing : float, default=0.0
        Distributions of groups are smoothed to ``(p + a/C) / (1 + a)`` when words are moved, with a = `smoothing` in
        the first iteration, halved in each further one. Without smoothing a word never moves to a group that lacks one
        of its classes.
    max_iter : int, default=100
        Maximum number of iterations.
    tol : float, default=1e-3
        Relative decrease of the objective below which iterations stop.
    pooling : {"sum", "mean", "sqrt"}, default="sum"
        How the words of a group are combined: their sum, their mean, or their sum divided by the square root of the
        group's size.

    Attributes
    ----------
    labels_ : ndarray of shape (n_features_in_,)
        Group of each word. Groups are numbered by their first word; none is empty.
    objective_ : ndarray of shape (n_iter_ + 1,)
        Loss of mutual information with the classes, in nats, of the initial groups and after each iteration. It never
        increases if `smoothing` is 0.
    n_iter_ : int
        Number of iterations; 1 if there are as many groups as words that occur.
    word_totals_ : ndarray of shape (n_features_in_,)
        Sum of each word over the training data; names of groups begin with the most frequent words.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    bagwise.criteria.InformationLoss : The same objective, optimised by merging pairs; gives all sizes at once.
    WordMerger : Merging by any criterion.

    Notes
    -----
    The objective is ``Q = Σ_w p_w KL(p(·|w) || p(·|group of w)) = I(words; classes) - I(groups; classes)``. It reaches
    a local minimum only. Ties go to the lowest group. A group that loses all its words gets the word with the largest
    ``p_w KL``. Words that never occur stay with the first word that does, unless there are more groups than words that
    occur.

    O(C d k) time an iteration for d words, k groups and C classes, O(C d) memory. ``start="aib"`` takes O(C d²) time
    before that.

    References
    ----------
    I. S. Dhillon, S. Mallela, R. Kumar, "A divisive information-theoretic feature clustering algorithm for text
    classification", JMLR 3, 2003.

    Examples
    --------
    >>> from bagwise.baselines import DivisiveMerger
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> merger = DivisiveMerger(n_groups=2).fit(X, ["cat", "cat", "dog", "dog"])
    >>> merger.labels_
    array([0, 0, 1, 1])
    >>> merger.transform(X)
    array([[7., 1.],
           [9., 1.],
           [1., 9.],
           [1., 9.]])
    >>> merger.get_feature_names_out(["paw", "meow", "bark", "bone"])
    array(['paw+meow', 'bark+bone'], dtype=object)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_groups": [Interval(Integral, 1, None, closed="left")],
        "start": [str],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "pooling": [str],
    }

    def __init__(
        self,
        n_groups: int = 50,
        *,
        start: str = "class",
        smoothing: float = 0.0,
        max_iter: int = 100,
        tol: float = 1e-3,
        pooling: str = "sum",
    ) -> None:
        self.n_groups = n_groups
        self.start = start
        self.smoothing = smoothing
        self.max_iter = max_iter
        self.tol = tol
        self.pooling = pooling

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the groups.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Non-negative histograms or counts, one sample a row.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights. A weight of 2 counts as the sample twice, of 0 as no sample.

        Returns
        -------
        self : DivisiveMerger
        """
        reset_fitted(self)
        if self.start not in _STARTS:
            raise unknown_name("start", self.start, _STARTS)
        self._check_pooling()
        if y is None:
            raise BagwiseError("DivisiveMerger requires y to be passed, but the target y is None. Pass labels.")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS, ensure_min_samples=2)
        check_non_negative(X, "DivisiveMerger", "Use counts or histograms.")
        weights: NDArray[np.float64] | None = None
        if sample_weight is not None:
            weights = check_sample_weight(sample_weight, X, ensure_non_negative=True)
            kept = np.flatnonzero(weights)  # samples of weight 0 do not count, nor do classes that have no others
            X, y, weights = X[kept], np.asarray(y)[kept], weights[kept]
        codes = class_codes(y, "ditc")
        with np.errstate(over="ignore"):
            counts = class_sums(X, codes, weights=weights).T
            totals = counts.sum(axis=1)
            total = totals.sum()
        if total == 0:
            raise BagwiseError("DivisiveMerger needs counts, but all of X is zero.")
        if not np.isfinite(total):
            raise BagwiseError("The sum of X is too large to be represented. Scale X: the groups do not depend on it.")

        labels, objective = self._find_groups(X, y, counts / total, weights)
        self.labels_ = _number_by_first_word(labels)
        self.objective_ = np.array(objective)
        self.n_iter_ = len(objective) - 1
        self.word_totals_ = totals
        return self

    def _find_groups(
        self, X: Any, y: ArrayLike, joint: NDArray[np.float64], sample_weight: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.int64], list[float]]:
        n_words, n_groups = len(joint), min(int(self.n_groups), len(joint))
        occurs = joint.sum(axis=1) > 0
        n_occurring = int(occurs.sum())
        labels = np.empty(n_words, dtype=np.int64)
        if n_groups >= n_occurring:
            # Words that occur are alone and nothing is lost; the others fill the groups that are left, if any are.
            labels[occurs] = np.arange(n_occurring)
            others = np.arange(n_words - n_occurring)
            labels[~occurs] = (
                n_occurring + np.minimum(others, n_groups - n_occurring - 1) if n_groups > n_occurring else 0
            )
            return labels, [0.0, 0.0]
        if self.start == "aib":
            chosen = InformationLoss(smoothing=0)
            hierarchy = merge_words(X, y, criterion=chosen, n_groups=n_groups, sample_weight=sample_weight)
            start = hierarchy.cut(n_groups)[occurs]
        else:
            start = joint[occurs].argmax(axis=1)
        # Only words that occur take part: a group of others would have no distribution and never get a word.
        start = _split(_number_by_first_word(start), n_groups)
        start = _merge(joint[occurs], start, n_groups)
        labels[~occurs] = start[0]
        labels[occurs], objective = _improve(joint[occurs], start, self.smoothing, self.max_iter, self.tol)
        return labels, objective

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.target_tags.required = True
        return tags


def _number_by_first_word(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the groups that have words from 0, in the order of their first words."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def _split(labels: NDArray[np.int64], n_groups: int) -> NDArray[np.int64]:
    """Halve the largest group, the lowest of equals, until there are `n_groups`; no more are asked for than words."""
    labels = labels.copy()
    groups = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    queue = [(-len(group), number, group) for number, group in enumerate(groups)]
    heapq.heapify(queue)  # numbers differ, so that arrays are never compared
    for new in range(len(groups), n_groups):
        _, number, group = heapq.heappop(queue)
        kept, moved = np.array_split(group, 2)
        labels[moved] = new
        heapq.heappush(queue, (-len(kept), number, kept))
        heapq.heappush(queue, (-len(moved), new, moved))
    return labels


def _merge(joint: NDArray[np.float64], labels: NDArray[np.int64], n_groups: int) -> NDArray[np.int64]:
    """Merge the groups that lose least information until there are no more than `n_groups`."""
    sums = class_sums(joint, labels)
    n_merges = len(sums) - n_groups
    if n_merges <= 0:
        return labels
    pairs, scores = np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges)
    SumSearch(Information(sums)).advance(pairs, scores)
    return Hierarchy(len(sums), pairs, scores, "aib").cut(n_groups)[labels]


def _improve(
    joint: NDArray[np.float64], labels: NDArray[np.int64], smoothing: float, max_iter: int, tol: float
) -> tuple[NDArray[np.int64], list[float]]:
    """Move words until the objective settles. Every word has a probability, and every group a word."""
    probability = joint.sum(axis=1)
    conditional = joint / probability[:, np.newaxis]
    sums = class_sums(joint, labels)
    objective = [_information_lost(joint, conditional, labels, sums)]
    alpha = smoothing
    for _ in range(max_iter):
        moved, divergences = _nearest(conditional, sums, alpha)
        _reseed(moved, probability * divergences, len(sums))
        moved_sums = class_sums(joint, moved)
        lost, last = _information_lost(joint, conditional, moved, moved_sums), objective[-1]
        if smoothing == 0 and lost > last:  # by rounding only, as ties are given to the lowest group
            objective.append(last)
            break
        labels, sums = moved, moved_sums
        objective.append(lost)
        # Smoothing may raise the objective at first, which is no reason to stop.
        if abs(last - lost) <= tol * last:
            break
        alpha /= 2
    return labels, objective


def _log_distributions(sums: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Logarithms of the groups' distributions over classes; 0 where a group lacks a class."""
    mass = sums.sum(axis=1, keepdims=True)
    if alpha > 0:
        return np.log((sums / mass + alpha / sums.shape[1]) / (1 + alpha))
    logs = np.zeros_like(sums)
    np.log(sums, out=logs, where=sums > 0)
    # not the logarithm of the quotient, which may be zero although the class is there
    return np.where(sums > 0, logs - np.log(mass), 0.0)


def _nearest(
    conditional: NDArray[np.float64], sums: NDArray[np.float64], alpha: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find the group nearest to each word, the lowest of equals, and the divergence from it."""
    logs = _log_distributions(sums, alpha)
    lacks = (sums == 0).astype(np.float64)
    some_lack = alpha == 0 and bool(lacks.any())
    negative_entropies = x_log_x(conditional).sum(axis=1)
    nearest = np.empty(len(conditional), dtype=np.int64)
    divergences = np.empty(len(conditional))
    step = max(_BLOCK // len(sums), 1)
    for start in range(0, len(conditional), step):
        rows = slice(start, start + step)
        block = negative_entropies[rows, np.newaxis] - conditional[rows] @ logs.T
        if some_lack:
            block[(conditional[rows] > 0).astype(np.float64) @ lacks.T > 0] = np.inf
        near = block <= block.min(axis=1, keepdims=True) + _TIE
        nearest[rows] = near.argmax(axis=1)
        divergences[rows] = np.take_along_axis(block, nearest[rows, np.newaxis], axis=1)[:, 0]
    return nearest, np.maximum(divergences, 0.0)


def _reseed(labels: NDArray[np.int64], losses: NDArray[np.float64], n_groups: int) -> None:
    """Give each empty group the word that loses most, out of a group that keeps another. Works in place."""
    sizes = np.bincount(labels, minlength=n_groups)
    for empty in np.flatnonzero(sizes == 0):
        word = int(np.where(sizes[labels] > 1, losses, -1.0).argmax())
        sizes[labels[word]] -= 1
        sizes[empty] = 1
        labels[word] = empty


def _information_lost(
    joint: NDArray[np.float64],
    conditional: NDArray[np.float64],
    labels: NDArray[np.int64],
    sums: NDArray[np.float64],
) -> float:
    """Sum of ``p_w KL(p(·|w) || p(·|group of w))``; a word's own group never lacks one of its classes."""
    logs = np.zeros_like(conditional)
    np.log(conditional, out=logs, where=conditional > 0)
    return max(float((joint * (logs - _log_distributions(sums, 0.0)[labels])).sum()), 0.0)
