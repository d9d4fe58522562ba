"""What all mergers share: applying groups of words to data, and naming them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from bagwise._compat import _check_feature_names_in
from bagwise._utils.matrices import is_lazy
from bagwise.errors import BagwiseError
from bagwise.merging.pooling import pool, spread

__all__ = ["FLOATS", "GroupTransformer", "name_groups"]

FLOATS = [np.float64, np.float32]
_WORDS_IN_NAME = 3


class GroupTransformer(TransformerMixin):
    """Transform, inverse and names of an estimator that has `labels_`, `word_totals_` and `pooling`."""

    labels_: Any
    word_totals_: Any
    pooling: str

    def _n_groups(self) -> int:
        """Number of groups that `labels_` has."""
        return int(self.labels_.max()) + 1

    def _weights(self) -> dict[str, Any]:
        """`signs` and `sizes` for `pool` and `spread`, where they are not plain."""
        return {}

    def transform(self, X: Any) -> Any:
        """Add up the words of each group.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask array of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray, CSR matrix or Dask array of shape (n_samples, n_groups)
            Sparse if X is. A Dask array is transformed chunk by chunk when it is computed.
        """
        check_is_fitted(self)
        if is_lazy(X):
            # a step up the house, taken only with Dask data
            from bagwise.distributed.sums import check_can_be_pooled, pool_collection

            check_can_be_pooled(X)
            validate_data(self, X, reset=False, skip_check_array=True)
            return pool_collection(X, self.labels_, self._n_groups(), self.pooling, **self._weights())
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS)
        return pool(X, self.labels_, self._n_groups(), self.pooling, **self._weights())

    def inverse_transform(self, Z: Any) -> Any:
        """Spread the values of groups evenly over their words.

        Transforming the result gives Z again.

        Parameters
        ----------
        Z : array-like or sparse matrix of shape (n_samples, n_groups)

        Returns
        -------
        X : ndarray or CSR matrix of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        Z = check_array(Z, accept_sparse="csr", dtype=FLOATS, input_name="Z")
        if Z.shape[1] != self._n_groups():
            raise BagwiseError(f"Z has {Z.shape[1]} columns, expected one per group: {self._n_groups()}.")
        return spread(Z, self.labels_, self.pooling, **self._weights())

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Name each group after its heaviest words, such as ``car+auto+truck…(17)``.

        Parameters
        ----------
        input_features : array-like of str, default=None
            The words. None: the column names seen in `fit`, or x0, x1, …

        Returns
        -------
        names : ndarray of str objects, shape (n_groups,)
            Words in the order of their totals in the training data; beyond three, the number of words follows.
        """
        check_is_fitted(self)
        words = _check_feature_names_in(self, input_features)
        return name_groups(words, self.word_totals_, self.labels_, self._n_groups())


def name_groups(
    words: NDArray[Any], totals: NDArray[np.float64], labels: NDArray[np.int64], n_groups: int
) -> NDArray[Any]:
    """Name each group after its heaviest words, such as ``car+auto+truck…(17)``.

    Parameters
    ----------
    words : ndarray of shape (n_words,)
    totals : ndarray of shape (n_words,)
        Weight of each word; equal ones stand in the order of their columns.
    labels : ndarray of shape (n_words,)
        Group of each word.
    n_groups : int

    Returns
    -------
    names : ndarray of str objects, shape (n_groups,)
        Beyond three words, their number follows.
    """
    order = np.lexsort((-totals, labels))  # stable: by group, then by weight, then by column
    groups = np.split(order, np.cumsum(np.bincount(labels, minlength=n_groups))[:-1])
    names = np.empty(n_groups, dtype=object)
    for number, group in enumerate(groups):
        name = "+".join(str(word) for word in words[group[:_WORDS_IN_NAME]])
        names[number] = name if len(group) <= _WORDS_IN_NAME else f"{name}…({len(group)})"
    return names
