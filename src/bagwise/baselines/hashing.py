"""`HashMerger`: groups of words by a hash of their index, the hashing trick."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from bagwise._compat import Interval, _fit_context
from bagwise._utils.hashing import FOR_SIGNS, PER_SEED, hashes
from bagwise._utils.memory import check_memory
from bagwise._utils.validation import validate_data
from bagwise.merging.grouping import FLOATS, GroupTransformer

__all__ = ["HashMerger"]


class HashMerger(GroupTransformer, BaseEstimator):
    """Assign words to groups by a hash of their index, with random signs (feature hashing).

    ``z_j = Σ_{i: h(i) = j} ξ(i) x_i``, with a group h(i) and a sign ξ(i) for word i. Nothing is learned: a baseline for
    mergers that learn their groups. With signs, inner products are unbiased over seeds.

    Parameters
    ----------
    n_groups : int, default=50
        Number of groups, and of columns after `transform`, whether or not there are as many words.
    signed : bool, default=True
        Whether words are added with random signs. Without them sums stay non-negative, but inner products are biased
        upwards.
    random_state : int, default=0
        Seed of the hash, below 2⁶⁴. Another seed gives other groups and signs.

    Attributes
    ----------
    labels_ : ndarray of shape (n_features_in_,)
        Group of each word. Some groups may be empty.
    signs_ : ndarray of int8, shape (n_features_in_,)
        1 or -1 for each word; all 1 if not `signed`.
    n_groups_ : int
        Number of groups as fitted; empty groups count.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    WordMerger : Groups that are chosen by a criterion.
    sklearn.feature_extraction.FeatureHasher : Hashes the names of features, without a vocabulary.

    Notes
    -----
    The hash is SplitMix64's output function in 64-bit integers, the same on every platform: h(i) is
    ``mix(i + 0x6A09E667F3BCC909 random_state) mod n_groups``, and ξ(i) is the highest bit of
    ``mix(i + 0x6A09E667F3BCC909 random_state + 0x243F6A8885A308D3)``: 0 for 1, 1 for -1.

    Fitting takes O(d) time for d words, transforming one pass over the data.

    References
    ----------
    K. Weinberger, A. Dasgupta, J. Langford, A. Smola, J. Attenberg, "Feature hashing for large scale multitask
    learning", ICML 2009. Q. Shi et al., "Hash kernels for structured data", JMLR 10, 2009. G. L. Steele, D. Lea,
    C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

    Examples
    --------
    >>> from bagwise.baselines import HashMerger
    >>> X = [[1, 2, 3, 4], [0, 0, 0, 5]]
    >>> merger = HashMerger(n_groups=3, signed=False).fit(X)
    >>> merger.labels_
    array([1, 2, 1, 0])
    >>> merger.transform(X)
    array([[4., 4., 2.],
           [5., 0., 0.]])
    >>> merger.get_feature_names_out()
    array(['hash0', 'hash1', 'hash2'], dtype=object)
    """

    _name_prefix = "hash"

    _parameter_constraints: ClassVar[dict] = {
        "n_groups": [Interval(Integral, 1, None, closed="left")],
        "signed": ["boolean"],
        "random_state": [Interval(Integral, 0, 2**64, closed="left")],
    }

    def __init__(self, n_groups: int = 50, *, signed: bool = True, random_state: int = 0) -> None:
        self.n_groups = n_groups
        self.signed = signed
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Hash the indices of the words. Only the number of columns of X is used.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self : HashMerger
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS)
        check_memory(
            8 * int(self.n_groups) * (1 if sp.issparse(X) else X.shape[0]),
            None,
            f"n_groups={self.n_groups}: groups of {X.shape[0]} samples",
            "choose fewer groups",
        )
        first = int(self.random_state) * PER_SEED
        n_words = X.shape[1]
        self.labels_ = (hashes(n_words, first) % np.uint64(self.n_groups)).astype(np.int64)
        self.signs_ = np.ones(n_words, dtype=np.int8)
        if self.signed:
            self.signs_[hashes(n_words, first + FOR_SIGNS) >> np.uint64(63) == 1] = -1
        self.n_groups_ = int(self.n_groups)
        return self

    def _n_groups(self) -> int:
        return self.n_groups_

    def _weights(self) -> dict[str, Any]:
        return {"weights": self.signs_}
