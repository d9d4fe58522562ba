"""What all mergers have in common: applying groups of words to data, and naming groups."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import _check_feature_names_in, _get_output_config
from bagwise._utils.devices import check_on_device, is_on_device
from bagwise._utils.matrices import is_lazy
from bagwise._utils.validation import check_array, validate_data
from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.display import FittedView
from bagwise.merging.naming import name_groups
from bagwise.merging.pooling import POOLINGS, pool, spread

__all__ = ["FLOATS", "GroupTransformer", "copy_fitted", "in_container"]

FLOATS = [np.float64, np.float32]
Estimator = TypeVar("Estimator")


class GroupTransformer(FittedView, TransformerMixin):
    """Transform, inverse transform and names for an estimator with `labels_`."""

    labels_: Any
    word_totals_: Any  # order of the words in names of groups; not needed with `_name_prefix`
    pooling: str = "sum"
    _name_prefix: str | None = None  # if set, groups are named by this and their number

    def _n_groups(self) -> int:
        """Number of groups."""
        return int(self.labels_.max()) + 1

    def _weights(self) -> dict[str, Any]:
        """`weights`, `shift` and `sizes` for `pool` and `spread`, if any."""
        return {}

    def _check_pooling(self) -> None:
        if self.pooling not in POOLINGS:
            raise unknown_name("pooling", self.pooling, POOLINGS)

    def transform(self, X: Any) -> Any:
        """Add up the words of each group.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask array of shape (n_samples, n_features)
            Arrays of CuPy, and tensors of PyTorch on a CUDA device, are transformed there.

        Returns
        -------
        Z : ndarray, CSR matrix, Dask array or CuPy array of shape (n_samples, n_groups)
            Sparse if X is; by ``set_output(transform="pandas")`` a frame of sparse columns. A Dask array is transformed
            lazily, chunk by chunk.
        """
        check_is_fitted(self)
        if is_lazy(X):
            from bagwise.distributed.sums import check_can_be_pooled, pool_collection  # deferred: needs Dask

            check_can_be_pooled(X)
            validate_data(self, X, reset=False, skip_check_array=True)
            return pool_collection(X, self.labels_, self._n_groups(), self.pooling, **self._weights())
        if is_on_device(X):
            X = check_on_device(X)
            validate_data(self, X, reset=False, skip_check_array=True)
        else:
            X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS)
        return in_container(self, pool(X, self.labels_, self._n_groups(), self.pooling, **self._weights()))

    def inverse_transform(self, Z: Any) -> Any:
        """Distribute the value of each group evenly over its words.

        Transforming the result gives Z again, except for groups without words.

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
        """Name the groups.

        Parameters
        ----------
        input_features : array-like of str, default=None
            The words. None: the column names seen in `fit`, or x0, x1, …

        Returns
        -------
        names : ndarray of str objects, shape (n_groups,)
            Unique names. See `name_groups` for mergers that name groups after their words.
        """
        check_is_fitted(self)
        if self._name_prefix is not None:
            _check_feature_names_in(self, input_features, generate_names=False)
            return np.array([f"{self._name_prefix}{number}" for number in range(self._n_groups())], dtype=object)
        words = _check_feature_names_in(self, input_features)
        return name_groups(words, self.word_totals_, self.labels_, self._n_groups())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def in_container(estimator: Any, Z: Any) -> Any:
    """Return sparse groups as `set_output` asks for: in pandas a frame of sparse columns, which others have not."""
    asked = _get_output_config("transform", estimator)["dense"]
    if not sp.issparse(Z) or asked == "default":
        return Z
    if asked != "pandas":
        raise BagwiseError(
            f"Groups of sparse data are sparse, and {asked} has no sparse columns. Use set_output(transform='pandas') "
            "or 'default', or pass dense data."
        )
    import pandas  # deferred: optional

    return pandas.DataFrame.sparse.from_spmatrix(Z, columns=estimator.get_feature_names_out())


def copy_fitted(estimator: Estimator, **changes: Any) -> Estimator:
    """Copy a fitted estimator with other parameters. What was fitted is shared, not copied."""
    copy: Any = clone(estimator)
    parameters = copy.get_params(deep=False)
    vars(copy).update({name: value for name, value in vars(estimator).items() if name not in parameters})
    return copy.set_params(**changes)
