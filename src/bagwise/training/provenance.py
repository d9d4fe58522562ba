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
    from bagwise.training.preparing import FitLog, WordData

__all__ = ["provenance_of", "versions"]

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
