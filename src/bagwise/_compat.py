"""Private names of scikit-learn, imported in this one place: where a release moves them, only this module changes."""

import sys
from numbers import Integral
from typing import Any

from sklearn.base import _fit_context
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils._param_validation import HasMethods, InvalidParameterError, StrOptions
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.metadata_routing import _raise_for_params, _routing_enabled
from sklearn.utils.validation import _check_feature_names_in, _check_method_params, _check_sample_weight

__all__ = [
    "LARGEST_COUNT",
    "N_JOBS",
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "_check_feature_names_in",
    "_check_method_params",
    "_check_sample_weight",
    "_fit_context",
    "_get_output_config",
    "_raise_for_params",
    "_routing_enabled",
    "is_pandas_na",
    "is_scalar_nan",
    "metadata_request",
]


# The largest number of iterations, groups, columns and so on that a parameter may ask for.
LARGEST_COUNT = 2**31 - 1


class Interval(_Interval):
    """That of scikit-learn, with an end: integers at `LARGEST_COUNT` where no other is given, reals as float64 do.

    What is larger overflows in compiled code, or never ends.
    """

    def __init__(self, type: Any, left: Any, right: Any, *, closed: str) -> None:
        if type is Integral and right is None:
            right, closed = LARGEST_COUNT, {"left": "both", "neither": "right"}[closed]
        super().__init__(type, left, right, closed=closed)

    def __contains__(self, value: Any) -> bool:
        in_range: bool = super().__contains__(value)
        return in_range and (not isinstance(value, Integral) or abs(int(value)) <= sys.float_info.max)


# Constraints of the parameter n_jobs, the same as of `_utils.checks.check_n_jobs`.
N_JOBS = (Interval(Integral, -1024, 1024, closed="both"), None)


def metadata_request(estimator: Any, method: str, name: str) -> bool | str | None:
    """What an estimator requests of some metadata for itself, apart from the estimators it routes them to."""
    return getattr(estimator._get_metadata_request(), method).requests.get(name)
