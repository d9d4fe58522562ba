"""Private names of scikit-learn, imported in this one place: where a release moves them, only this module changes."""

from sklearn.base import _fit_context
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils._param_validation import HasMethods, Interval, InvalidParameterError, StrOptions
from sklearn.utils.validation import _check_feature_names_in, _check_sample_weight

__all__ = [
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "_check_feature_names_in",
    "_check_sample_weight",
    "_fit_context",
    "is_pandas_na",
    "is_scalar_nan",
]
