"""Files of fitted `ManifoldBagOfFeatures`: parameters, words and curves, without pickle."""

from __future__ import annotations

import os
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import read_tensors, tensor, write_tensors
from bagwise.errors import BagwiseError

__all__ = ["read_model", "write_model"]

_KIND = "bagwise.ManifoldBagOfFeatures"
_SCHEMA = 1
_FLOATS = "float32 float64"
_TENSORS = {
    "codebook_": tensor(_FLOATS, "n_words", "n_features", finite=True),
    "initial_codebook_": tensor(_FLOATS, "n_words", "n_features", finite=True),
    "objective_": tensor(_FLOATS, "n_iter", finite=True),
    "held_out_objective_": tensor(_FLOATS, "n_held_out", finite=True),
    "embedding_": tensor(_FLOATS, "n_objects", "n_components", finite=True),
    "target": tensor("float64", "n_rows", "n_columns"),
}
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
    arrays = {name: learned[name] for name in _TENSORS if name != "target"}
    arrays["target"] = None if isinstance(target, str) else np.asarray(target, dtype=np.float64)
    arrays = {name: _NOTHING if array is None else np.asarray(array) for name, array in arrays.items()}
    return write_tensors(path, _KIND, _SCHEMA, header, arrays)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read parameters and attributes, as `write_model` takes them. Arrays are checked, parameters are not."""
    header, learned = read_tensors(path, _KIND, {_SCHEMA: _TENSORS})
    target = learned.pop("target")
    try:
        parameters = dict(header["parameters"])
        numbers = {name: kind(header["numbers"][name]) for name, kind in _NUMBERS.items()}
        _check(numbers, learned["codebook_"])
    except (BagwiseError, KeyError, TypeError, ValueError) as error:
        raise BagwiseError(
            f"{os.fspath(path)} is not a whole file written by ManifoldBagOfFeatures.save: {error}"
        ) from error
    if parameters.get("target") is None:
        parameters["target"] = target
    return parameters, learned | numbers | ({} if learned["embedding_"].size else {"embedding_": None})


def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it; None for objects."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def _check(numbers: dict[str, Any], words: NDArray[Any]) -> None:
    if words.shape[0] < 1 or words.shape[1] != numbers["n_features_in_"]:
        raise BagwiseError(f"its words have the shape {words.shape}, for {numbers['n_features_in_']} features")
    for name in ("scale_", "sigma_histogram_"):
        if not (np.isfinite(numbers[name]) and numbers[name] > 0):
            raise BagwiseError(f"its {name} is {numbers[name]}, expected a number above 0")
