"""What a model says of its origin: data and versions."""

from __future__ import annotations

import os
import platform
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import bagwise
from bagwise.app.training.seen import content_hash
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.training.preparing import WordData

__all__ = ["provenance_of", "versions"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "opencv-python-headless", "pillow")


def versions() -> dict[str, str]:
    """Return the versions of bagwise, Python, and installed packages that results may depend on."""
    installed = {"bagwise": bagwise.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def provenance_of(data: WordData, codes: NDArray[np.int64] | None, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return facts about the data of a fit, as JSON values: the same for the same data and versions, at any time.

    There is no hash of the content of a sample, and of items of a model, whose counts are not known any more.
    """
    counted = data.rows is None and data.known_hashes is None
    counts = {} if codes is None else {classes[k]: n for k, n in sorted(Counter(codes.tolist()).items())}
    return {
        "source": data.collection.source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1],
        "n_items": len(data.collection),
        "n_skipped": len(data.skipped),
        "class_counts": counts,
        **({"content_hash": content_hash(data.collection, data.item_hashes)} if counted else {}),
        "versions": versions(),
        **_date(),
    }


def _date() -> dict[str, str]:
    """Return the date that the environment asks for, as https://reproducible-builds.org/specs/source-date-epoch/ says.

    No other date is in a model: the time of day would make two fits of the same data different.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return {}
    try:
        return {"created": datetime.fromtimestamp(int(epoch), UTC).isoformat(timespec="seconds")}
    except (ValueError, OverflowError, OSError) as error:
        raise BagwiseError(
            f"The environment variable SOURCE_DATE_EPOCH must be a number of seconds since 1970, got {epoch!r:.50}. "
            "Correct or unset it."
        ) from error
