"""Data that estimators and functions are given: the checks of scikit-learn, and what these let through.

Estimators call `validate_data` and functions `check_array` of this module, with the arguments of scikit-learn's. They

1. refuse dates and times in X and y, which NumPy would turn into numbers of seconds or days;
2. refuse CSR and CSC matrices whose indices point outside of them, which compiled code would follow;
3. give a sparse matrix in canonical form: sorted, each entry stored once, without zeros, with 32-bit indices where they
   suffice. It is a copy if it changed;
4. refuse numbers of which products overflow or vanish, above `largest` where that is given. None refuses none.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import validation as sklearn_checks

from bagwise._compat import _check_sample_weight
from bagwise._utils.matrices import as_format, canonical, check_size, is_lazy
from bagwise.errors import BagwiseError

__all__ = ["as_floats", "check_array", "check_sample_weight", "check_single_labels", "narrow_indices", "refuse_dates"]
__all__ += ["validate_data"]

_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
# How names of their types begin in NumPy, pandas, polars and others: datetime64[ns], timedelta64, Duration, period[M].
_DATES_BY_NAME = ("date", "time", "duration", "period")


def validate_data(
    estimator: Any, X: Any, y: Any = "no_validation", *, largest: float | None = np.inf, **checks: Any
) -> Any:
    """Check the data of an estimator as `sklearn.utils.validation.validate_data` does; see above for what it adds."""
    labels = {} if isinstance(y, str) and y == "no_validation" else {"y": y}
    for name, values in {"X": X, **labels}.items():
        refuse_dates(values, name)
    if not checks.get("skip_check_array"):
        X = _well_formed(X, checks.get("accept_sparse"))
    checked = _in_range(sklearn_checks.validate_data, estimator, X, **labels, **checks)
    if largest is not None and not checks.get("skip_check_array"):
        check_size(checked[0] if labels and y is not None else checked, largest=largest)
    return checked


def check_array(array: Any, *, largest: float | None = np.inf, **checks: Any) -> Any:
    """Check a matrix as `sklearn.utils.check_array` does; see above for what it adds."""
    name = checks.get("input_name") or "X"
    refuse_dates(array, name)
    checked = _in_range(sklearn_checks.check_array, _well_formed(array, checks.get("accept_sparse"), name), **checks)
    if largest is not None:
        check_size(checked, name, largest)
    return checked


def check_sample_weight(sample_weight: Any, X: Any, **checks: Any) -> NDArray[np.float64]:
    """Check weights of samples as scikit-learn does, in float64, and refuse dates."""
    refuse_dates(sample_weight, "sample_weight")
    weights: NDArray[np.float64] = _check_sample_weight(sample_weight, X, dtype=np.float64, **checks)
    return weights


def as_floats(values: Any, name: str) -> NDArray[np.float64]:
    """Convert the array-like parameter `name` to float64, or raise an error."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise BagwiseError(f"{name} must be numbers; got {values!r:.100}: {error}.") from error


def check_single_labels(y: Any) -> None:
    """Raise an error if samples have several labels: lists or sets of them, or a matrix of indicators."""
    try:
        shape = tuple(getattr(y, "shape", ()) or np.asarray(y).shape)
    except ValueError:
        came = "lists of different lengths"
    else:
        sets = isinstance(y, (list, tuple, np.ndarray)) and any(isinstance(one, (set, frozenset)) for one in y)
        if shape[1:] <= (1,) and not sets:
            return
        came = "sets" if sets else f"shape {shape}"
    raise BagwiseError(
        f"y must have one label per sample, but has {came}: several labels of a sample, or indicators of them. Fit one "
        "estimator for each label, as sklearn.multiclass.OneVsRestClassifier does with a CompactClassifier or a "
        "pipeline; or make each combination of labels a class of its own."
    )


def _in_range(check: Callable[..., Any], *data: Any, **checks: Any) -> Any:
    try:
        return check(*data, **checks)
    except OverflowError as error:  # integers of Python know no bounds
        raise BagwiseError(f"The data have a number beyond the range of float64: {error}. Scale them.") from error


def refuse_dates(values: Any, name: str) -> None:
    """Raise an error for dates, times and durations: an array, a list or a data frame with some of them."""
    if is_lazy(values):  # workers see its chunks
        return
    frame = hasattr(type(values), "dtypes") and not hasattr(type(values), "dtype")
    types = list(values.dtypes) if frame else [values.dtype] if hasattr(values, "dtype") else []
    dates = next((str(kind) for kind in types if str(kind).lower().startswith(_DATES_BY_NAME)), None)
    listed = isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.dtype == object)
    if listed or any(str(kind) == "object" for kind in types):
        dates = next((type(value).__name__ for value in _single(values) if isinstance(value, _DATES)), dates)
    if dates is not None:
        raise BagwiseError(
            f"{name} has dates or times ({dates}), which are not numbers here. Convert them first to what is meant, "
            "such as days since the first of them, or to strings if they are labels."
        )


def _single(values: Any) -> Any:
    """Yield the values of a list, of a list of lists, or of an array of objects."""
    if not isinstance(values, (list, tuple)):
        yield from np.asarray(values, dtype=object).ravel()
        return
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def _well_formed(X: Any, formats: Any, name: str = "X") -> Any:
    """Give a sparse matrix in canonical form, in the format that is accepted; anything else as it is."""
    if not sp.issparse(X) or X.ndim != 2 or formats not in ("csr", "csc"):
        return X  # scikit-learn says what is wrong, if anything is
    return narrow_indices(canonical(as_format(X, formats, name)))


def narrow_indices(X: Any) -> Any:
    """Give a CSR or CSC matrix 32-bit indices if they suffice: the solvers of scikit-learn take no others."""
    most = np.iinfo(np.int32).max
    if X.indices.dtype == X.indptr.dtype == np.int32 or max(*X.shape, X.nnz) > most:
        return X
    return type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
