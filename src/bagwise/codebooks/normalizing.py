"""`BagNormalizer`: scaling histograms to a norm, and powers of them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, _fit_context
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.codebooks.steps import STEPS, resolve_steps

__all__ = ["STEPS", "BagNormalizer", "normalize_rows", "resolve_steps"]

_FLOATS = [np.float64, np.float32]


def normalize_rows(X: Any, steps: Any = ("l1", "power"), power: float = 0.5) -> Any:
    """Carry out steps on each row, one after the other, on a copy.

    Parameters
    ----------
    X : ndarray, or CSR matrix or array, of shape (n, d), float32 or float64
    steps : str, sequence of str, or None, default=("l1", "power")
        "l1" and "l2" divide a row by its norm, "power" is ``sign(x) |x|^power``. Rows of zeros stay.
    power : float, default=0.5

    Returns
    -------
    Z : ndarray or CSR, as X
    """
    result = X.copy()
    values = result.data if sp.issparse(result) else result
    for step in resolve_steps(steps):
        if step == "power":
            np.multiply(np.sign(values), np.abs(values) ** values.dtype.type(power), out=values)
            continue
        norms = _norms(result, step)
        if sp.issparse(result):
            values /= np.repeat(norms, np.diff(result.indptr))
        else:
            values /= norms[:, None]
    return result


def _norms(X: Any, step: str) -> Any:
    """Norms of rows in the type of X, 1 for rows of zeros; sums in float64."""
    values = X.data if sp.issparse(X) else X
    # by the largest number first: squares of the rest neither overflow nor vanish
    sizes = abs(values).astype(np.float64)
    if sp.issparse(X):
        # not by the matrix's own max: that sorts the column numbers in place, but not the values that go with them
        filled = np.diff(X.indptr) > 0
        largest = np.zeros(X.shape[0])
        if filled.any():
            largest[filled] = np.maximum.reduceat(sizes, X.indptr[:-1][filled])
    else:
        largest = sizes.max(axis=1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    scaled = sizes / (np.repeat(scale, np.diff(X.indptr)) if sp.issparse(X) else scale[:, None])
    powers = scaled if step == "l1" else scaled**2
    if sp.issparse(X):
        sums = np.asarray(sp.csr_array((powers, X.indices, X.indptr), shape=X.shape).sum(axis=1)).ravel()
    else:
        sums = powers.sum(axis=1)
    norms = scale * (sums if step == "l1" else np.sqrt(sums))
    return np.where(largest > 0, norms, 1.0).astype(values.dtype)


class BagNormalizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale histograms to unit norm, take powers, or both.

    The default, l1 and then the square root, makes the plain inner product of histograms the Hellinger kernel, and
    gives them length 1. ``("power", "l2")`` is usual for VLAD.

    Parameters
    ----------
    steps : str or sequence of str, default=("l1", "power")
        Done in this order: "l1" and "l2" divide a row by its norm, "power" takes ``sign(x) |x|^power``.
    power : float, default=0.5

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    BagOfFeatures : Its parameter `normalize` does the same.
    sklearn.preprocessing.Normalizer : One norm, no power.

    Notes
    -----
    One pass over the data a step. Sparse stays sparse; rows of zeros stay zero.

    References
    ----------
    F. Perronnin, J. Sánchez, T. Mensink, "Improving the Fisher kernel for large-scale image classification",
    ECCV 2010.

    Examples
    --------
    >>> from bagwise import BagNormalizer
    >>> BagNormalizer().fit_transform([[1, 3], [0, 0]])
    array([[0.5      , 0.8660254],
           [0.       , 0.       ]])
    """

    _parameter_constraints: ClassVar[dict] = {
        "steps": [str, "array-like"],
        "power": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, steps: str | Sequence[str] = ("l1", "power"), *, power: float = 0.5) -> None:
        self.steps = steps
        self.power = power

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> BagNormalizer:
        """Check the data and the parameters; nothing is learned.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self : BagNormalizer
        """
        resolve_steps(self.steps)
        validate_data(self, X, accept_sparse="csr", dtype=_FLOATS)
        return self

    def transform(self, X: Any) -> Any:
        """Normalise histograms.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray or CSR matrix of shape (n_samples, n_features)
            Sparse if X is.
        """
        check_is_fitted(self, "n_features_in_")
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=_FLOATS)
        return normalize_rows(X, self.steps, self.power)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
