"""What a model says of its origin: data, versions, times."""

from __future__ import annotations

import platform
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import bagwise
from bagwise.training.seen import content_hash

if TYPE_CHECKING:
    from bagwise.model import Model
    from bagwise.training.preparing import FitLog, WordData

__all__ = ["baselines_of", "provenance_of", "versions"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "opencv-python-headless", "pillow")


def versions() -> dict[str, str]:
    """Return the versions of bagwise, Python, and installed packages that results may depend on."""
    found = {"bagwise": bagwise.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def provenance_of(
    data: WordData, codes: NDArray[np.int64] | None, classes: tuple[str, ...], log: FitLog
) -> dict[str, Any]:
    """Return facts about the data of a fit, as JSON values."""
    counts = {} if codes is None else {classes[k]: n for k, n in sorted(Counter(codes.tolist()).items())}
    return {
        "source": data.collection.source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1],
        "n_items": len(data.collection),
        "n_skipped": len(data.skipped),
        "class_counts": counts,
        "content_hash": content_hash(data.collection, data.histograms),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "seconds": {stage: round(seconds, 3) for stage, seconds in log.timings.items()},
    }


def baselines_of(model: Model) -> dict[str, dict[str, Any]]:
    """Return the errors of simple methods that were measured on the folds of a model's own errors, by their names.

    The largest size of a path is that of all words, where nothing is merged: a linear classifier on TF-IDF features of
    texts, on standardised measurements, or on square roots of relative frequencies. What ``provenance["baselines"]``
    has besides is added.

    Returns
    -------
    baselines : dict
        Each with `error`, `standard_error`, `n_features` and `protocol`.

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.model import PathErrors
    >>> path = PathErrors([2, 3], [0.3, 0.2], [0.01, 0.02], "5-fold cross-validation")
    >>> model = Model(modality="table", hierarchy=Hierarchy(3, [[0, 2]], [0.5]), n_groups=2, path=path)
    >>> baselines_of(model)["all words, Hellinger"]
    {'error': 0.2, 'standard_error': 0.02, 'n_features': 3, 'protocol': '5-fold cross-validation'}
    """
    found: dict[str, dict[str, Any]] = {}
    path = model.path
    if path is not None and path.sizes[-1] == model.hierarchy.n_words:
        if model.column_shift is not None:
            name = "standardised"
        else:
            name = "TF-IDF" if (model.term, model.norm) == ("log", "l2") else "Hellinger"
        found[f"all words, {name}"] = {
            "error": path.errors[-1],
            "standard_error": path.standard_errors[-1],
            "n_features": model.n_cells * model.hierarchy.n_words,
            "protocol": path.protocol,
        }
    told = model.provenance.get("baselines")
    return found | (told if isinstance(told, dict) else {})
