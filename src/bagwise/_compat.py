"""Private names of scikit-learn, imported in this one place: where a release moves them, only this module changes."""

from typing import Any

from sklearn.base import _fit_context
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils._param_validation import HasMethods, Interval, InvalidParameterError, StrOptions
from sklearn.utils.metadata_routing import _raise_for_params, _routing_enabled
from sklearn.utils.validation import _check_feature_names_in, _check_method_params, _check_sample_weight

__all__ = [
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "_check_feature_names_in",
    "_check_method_params",
    "_check_sample_weight",
    "_fit_context",
    "_raise_for_params",
    "_routing_enabled",
    "is_pandas_na",
    "is_scalar_nan",
    "metadata_request",
]


def metadata_request(estimator: Any, method: str, name: str) -> bool | str | None:
    """What an estimator requests of some metadata for itself, apart from the estimators it routes them to."""
    return getattr(estimator._get_metadata_request(), method).requests.get(name)
