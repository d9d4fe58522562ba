"""When and with what a model was made."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import bagwise

__all__ = ["now", "versions"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "opencv-python-headless", "pillow")


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions of bagwise, of Python and of the packages that results may depend on, where they are installed."""
    found = {"bagwise": bagwise.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
