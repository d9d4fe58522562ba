"""Files of fitted `ManifoldBagOfFeatures`: parameters, words and curves, without pickle."""

from __future__ import annotations

import os
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import read_tensors, write_tensors
from bagwise.errors import BagwiseError

__all__ = ["read_model", "write_model"]

_KIND = "bagwise.ManifoldBagOfFeatures"
_SCHEMA = 1
_ARRAYS = ("codebook_", "initial_codebook_", "objective_", "held_out_objective_", "embedding_")
_NUMBERS = {"scale_": float, "sigma_histogram_": float, "n_iter_": int, "n_features_in_": int}
# nothing: no embedding, or a target that is a name
_NOTHING = np.empty((0, 0))


def write_model(path: str | os.PathLike[str], parameters: dict[str, Any], learned: dict[str, Any]) -> Path:
    """Write parameters of an estimator, and its attributes that end in an underscore.

    A target matrix is kept as an array. A callback, and a random state that is an object, become None.
    """
    target = parameters["target"]
    settings = {name: _plain(value) for name, value in parameters.items() if name not in ("target", "callback")}
    settings["target"] = target if isinstance(target, str) else None
    header = {"parameters": settings, "numbers": {name: kind(learned[name]) for name, kind in _NUMBERS.items()}}
    arrays = {name: _NOTHING if learned[name] is None else np.ascontiguousarray(learned[name]) for name in _ARRAYS}
    arrays["target"] = _NOTHING if isinstance(target, str) else np.array(target, dtype=np.float64, order="C")
    return write_tensors(path, _KIND, _SCHEMA, header, arrays)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read parameters and attributes, as `write_model` takes them. Arrays are checked, parameters are not."""
    header, arrays = read_tensors(path, _KIND, _SCHEMA, (*_ARRAYS, "target"))
    try:
        parameters = dict(header["parameters"])
        learned: dict[str, Any] = {name: kind(header["numbers"][name]) for name, kind in _NUMBERS.items()}
        learned |= {name: arrays[name] for name in _ARRAYS}
        _check(learned)
    except (BagwiseError, KeyError, TypeError, ValueError) as error:
        raise BagwiseError(
            f"{os.fspath(path)} is not a whole file written by ManifoldBagOfFeatures.save: {error}"
        ) from error
    if learned["embedding_"].size == 0:
        learned["embedding_"] = None
    if parameters.get("target") is None:
        parameters["target"] = arrays["target"]
    return parameters, learned


def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it; None for objects."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def _check(learned: dict[str, Any]) -> None:
    words: NDArray[Any] = learned["codebook_"]
    if words.ndim != 2 or words.shape[0] < 1 or words.shape[1] != learned["n_features_in_"]:
        raise BagwiseError(f"its words have the shape {words.shape}, for {learned['n_features_in_']} features")
    if learned["initial_codebook_"].shape != words.shape:
        raise BagwiseError(f"it holds words of shape {words.shape}, but {learned['initial_codebook_'].shape} at first")
    for name, ndim in {"objective_": 1, "held_out_objective_": 1, "embedding_": 2}.items():
        if learned[name].ndim != ndim:
            raise BagwiseError(f"its {name} has {learned[name].ndim} dimensions, expected {ndim}")
    for name in _ARRAYS:
        if learned[name].dtype.kind != "f" or not np.isfinite(learned[name]).all():
            raise BagwiseError(f"its {name} must hold finite floating-point numbers")
    for name in ("scale_", "sigma_histogram_"):
        if not (np.isfinite(learned[name]) and learned[name] > 0):
            raise BagwiseError(f"its {name} is {learned[name]}, expected a number above 0")
