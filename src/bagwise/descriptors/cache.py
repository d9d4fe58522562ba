"""A folder that remembers what was computed from items, so that the second run need not compute it again."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.atomic import write_atomically
from bagwise.errors import BagwiseError

__all__ = ["ArrayCache", "DamagedCacheWarning"]

# Part of every key. To be raised whenever any descriptor gives other numbers for the same parameters.
SCHEMA = 1
_DIGEST = 16


class DamagedCacheWarning(UserWarning):
    """Warns that a file of a cache could not be used and was computed again."""


class ArrayCache:
    """Arrays by content: one file per item in a folder, named by a hash of all that its arrays depend on.

    A file is written wholly or not at all, so a run may be killed at any time, and several may share a folder. It
    begins with a hash of the rest: damaged files are noticed, told by a `DamagedCacheWarning`, and replaced. Files are
    never removed; delete the folder to forget everything.

    Parameters
    ----------
    folder : path
        Made where it does not exist.
    made_by : mapping
        What the arrays depend on besides the item: the name and the parameters of what computes them.
    """

    def __init__(self, folder: str | os.PathLike[str], made_by: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BagwiseError(f"cache={os.fspath(folder)!r} is not a folder that can be made: {error}.") from error
        about = json.dumps({"schema": SCHEMA, **made_by}, sort_keys=True, default=_plain)
        self._made_by = hashlib.blake2b(about.encode(), digest_size=_DIGEST).digest()

    def path_of(self, fingerprint: str) -> Path:
        """The file of an item."""
        key = hashlib.blake2b(self._made_by + fingerprint.encode(), digest_size=_DIGEST).hexdigest()
        return self.folder / key[:2] / f"{key[2:]}.arrays"

    def load(self, fingerprint: str) -> dict[str, NDArray[Any]] | None:
        """Give the arrays of an item, or None if they are not there or damaged."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        path = self.path_of(fingerprint)
        try:
            with open(path, "rb") as file:
                digest, content = file.read(_DIGEST), file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            return _damaged(path, error.strerror or str(error))
        if hashlib.blake2b(content, digest_size=_DIGEST).digest() != digest:
            return _damaged(path, f"its {len(digest) + len(content)} bytes are not those that were written")
        try:
            return load(content)
        except SafetensorError as error:
            return _damaged(path, str(error))

    def save(self, fingerprint: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep the arrays of an item."""
        from safetensors.numpy import save

        content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        path = self.path_of(fingerprint)
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, hashlib.blake2b(content, digest_size=_DIGEST).digest() + content)
        except OSError as error:
            raise BagwiseError(
                f"Cannot write to the cache folder {self.folder}: {error}. "
                "Make room there, choose another folder, or pass cache=None."
            ) from error


def _damaged(path: Path, reason: str) -> dict[str, NDArray[Any]] | None:
    warnings.warn(f"{path} cannot be used and is computed again: {reason}.", DamagedCacheWarning, stacklevel=3)
    return None


def _plain(value: Any) -> Any:
    """Write NumPy's numbers as numbers, so that step=8 and step=np.int64(8) share their files."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise BagwiseError(f"A cache needs parameters that can be written down, got {value!r}. Pass cache=None.")
