"""`HashMerger`: groups of words by a hash of their number, the hashing trick."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from bagwise._compat import Interval, _check_feature_names_in, _fit_context
from bagwise._utils.hashing import FOR_SIGNS, PER_SEED, hashes
from bagwise.errors import BagwiseError
from bagwise.merging.grouping import FLOATS

__all__ = ["HashMerger"]


class HashMerger(TransformerMixin, BaseEstimator):
    """Put words into groups by a hash of their number, with random signs.

    ``z_j = Σ_{i: h(i) = j} ξ(i) x_i``, with a group h(i) and a sign ξ(i) for word i. Nothing is learned: the baseline
    for whatever does learn its groups. With signs, inner products are right on average over seeds.

    Parameters
    ----------
    n_groups : int, default=50
        Number of groups, and of columns after `transform`, whether or not there are as many words.
    signed : bool, default=True
        Whether words are added with random signs. Without them sums stay non-negative, but inner products become too
        large.
    random_state : int, default=0
        Another seed gives other groups and signs. Below 2⁶⁴.

    Attributes
    ----------
    labels_ : ndarray of shape (n_features_in_,)
        Group of each word. Some groups may be empty.
    signs_ : ndarray of int8, shape (n_features_in_,)
        1 or -1 for each word; all 1 if not `signed`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    WordMerger : Groups that are chosen by a criterion.
    sklearn.feature_extraction.FeatureHasher : Hashes names of features, with no table of words at all.

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
    def fit(self, X: Any, y: Any = None) -> HashMerger:
        """Hash the numbers of the words. Of the data only the number of words is used.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self : HashMerger
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=FLOATS)
        first = int(self.random_state) * PER_SEED
        n_words = X.shape[1]
        self.labels_ = (hashes(n_words, first) % np.uint64(self.n_groups)).astype(np.int64)
        self.signs_ = np.ones(n_words, dtype=np.int8)
        if self.signed:
            self.signs_[hashes(n_words, first + FOR_SIGNS) >> np.uint64(63) == 1] = -1
        self._n_groups = int(self.n_groups)  # as fitted: `n_groups` may be set to something else since
        return self

    def transform(self, X: Any) -> Any:
        """Add up the words of each group, with their signs.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray or CSR matrix of shape (n_samples, n_groups)
            Sparse if X is.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS)
        return _times(X, self._to_groups(X.dtype))

    def inverse_transform(self, Z: Any) -> Any:
        """Spread the values of groups evenly over their words, with their signs.

        Transforming the result gives Z again, but for groups without words, which become 0.

        Parameters
        ----------
        Z : array-like or sparse matrix of shape (n_samples, n_groups)

        Returns
        -------
        X : ndarray or CSR matrix of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        Z = check_array(Z, accept_sparse="csr", dtype=FLOATS, input_name="Z")
        if Z.shape[1] != self._n_groups:
            raise BagwiseError(f"Z has {Z.shape[1]} columns, expected one per group: {self._n_groups}.")
        shares = sp.diags_array(1.0 / np.maximum(np.bincount(self.labels_, minlength=self._n_groups), 1))
        return _times(Z, sp.csr_array((shares @ self._to_groups(np.float64).T).astype(Z.dtype)))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Name the groups hash0, hash1 and so on.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Only checked against the words seen in `fit`.

        Returns
        -------
        names : ndarray of str objects, shape (n_groups,)
        """
        check_is_fitted(self)
        _check_feature_names_in(self, input_features, generate_names=False)
        return np.array([f"hash{number}" for number in range(self._n_groups)], dtype=object)

    def _to_groups(self, dtype: Any) -> sp.csr_array:
        """Words x groups: the sign of a word, at its group."""
        n = len(self.labels_)
        return sp.csr_array((self.signs_.astype(dtype), self.labels_, np.arange(n + 1)), shape=(n, self._n_groups))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _times(X: Any, matrix: sp.csr_array) -> Any:
    """Dense times sparse is dense, CSR times sparse is CSR of the same kind."""
    if not sp.issparse(X):
        return np.ascontiguousarray(X @ matrix)
    product = sp.csr_array(X) @ matrix
    product.sort_indices()
    return product if isinstance(X, sp.sparray) else sp.csr_matrix(product)
