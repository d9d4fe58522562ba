"""`BagNormalizer`: scaling histograms to a norm, and powers of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, _fit_context
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.codebooks.steps import STEPS, resolve_steps

__all__ = ["STEPS", "BagNormalizer", "normalize_rows", "resolve_steps"]

_FLOATS = [np.float64, np.float32]
_BLOCK = 1 << 15  # numbers that are worked on at a time, so that all that is made of them stays in a core's cache


def normalize_rows(X: Any, steps: Any = ("l1", "power"), power: float = 0.5) -> Any:
    """Carry out steps on each row, one after the other, on a copy.

    Parameters
    ----------
    X : ndarray, or CSR matrix or array, of shape (n, d), float32 or float64
    steps : str, sequence of str, or None, default=("l1", "power")
        "l1" and "l2" divide a row by its norm, "power" is ``sign(x) |x|^power``. Rows of zeros stay.
    power : float, default=0.5
        Greater than 0.

    Returns
    -------
    Z : ndarray or CSR, as X
    """
    result = X.copy()
    if sp.issparse(result):
        values, starts = result.data, result.indptr.astype(np.int64, copy=False)
    else:
        values, starts = result.reshape(-1), result.shape[1] * np.arange(result.shape[0] + 1)  # copies are in C order
    names = resolve_steps(steps)
    for low, high in _blocks(starts):
        begin, end = starts[low], starts[high]
        _carry_out(names, power, values[begin:end], starts[low : high + 1] - begin)
    return result


def _blocks(starts: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Rows from and to, with at most `_BLOCK` numbers, or a single row with more."""
    low, n = 0, len(starts) - 1
    while low < n:
        high = int(np.searchsorted(starts, starts[low] + _BLOCK, side="right")) - 1
        high = max(high, low + 1)
        yield low, high
        low = high


def _carry_out(names: Sequence[str], power: float, values: NDArray[Any], starts: NDArray[Any]) -> None:
    """Change some rows in place: row i is ``values[starts[i] : starts[i + 1]]``. Sums are taken in float64."""
    lengths = np.diff(starts)
    filled = lengths > 0
    if not filled.any():
        return
    firsts, lengths = starts[:-1][filled], lengths[filled]
    for name in names:
        if name == "power":
            sizes = np.abs(values)
            powers = np.sqrt(sizes) if power == 0.5 else sizes ** values.dtype.type(power)
            np.copysign(powers, values, out=values)
            continue
        sizes = np.abs(values, dtype=np.float64)
        largest = np.maximum.reduceat(sizes, firsts)
        # by the largest number first: squares of the rest neither overflow nor vanish
        scale = np.where(largest > 0, largest, 1.0)
        sizes /= np.repeat(scale, lengths)
        if name == "l1":
            norms = scale * np.add.reduceat(sizes, firsts)
        else:
            norms = scale * np.sqrt(np.add.reduceat(np.square(sizes, out=sizes), firsts))
        values /= np.repeat(np.where(largest > 0, norms, 1.0).astype(values.dtype), lengths)


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
    One pass over the data, some rows at a time. Sparse stays sparse; rows of zeros stay zero.

    References
    ----------
    F. Perronnin, J. Sánchez, T. Mensink, "Improving the Fisher kernel for large-scale image classification",
    ECCV 2010.

    Examples
    --------
    >>> from bagwise.codebooks import BagNormalizer
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
