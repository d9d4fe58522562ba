"""A folder, local or by URL, that caches the arrays computed from items for later runs."""

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

from bagwise._io.atomic import sweep, write_atomically
from bagwise._io.storage import Storage, Url, as_place
from bagwise.errors import BagwiseError, argument, in_python

__all__ = ["ArrayCache", "DamagedCacheWarning"]

# Part of every key. Raise it when any descriptor gives other numbers for the same parameters.
SCHEMA = 1
_DIGEST = 16


class DamagedCacheWarning(UserWarning):
    """A file of a cache could not be used and was computed again."""


class ArrayCache:
    """A content-addressed cache: one file per item, named by a hash of all that its arrays depend on.

    That is the item, and `made_by`: name and parameters of what computes the arrays. Files are written atomically, so
    that several processes may share a folder. A file begins with a hash of the rest: damaged files raise a
    `DamagedCacheWarning` and are replaced. Nothing is ever removed; delete the folder to clear the cache.
    """

    def __init__(self, folder: str | os.PathLike[str], made_by: Mapping[str, Any]) -> None:
        location = as_place(folder)
        self._storage = Storage(location) if isinstance(location, Url) else None  # by URL, for several machines
        self.folder = Path(location)
        try:
            if self._storage is None:
                self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parameter = argument("cache", os.fspath(folder))
            reason = error.strerror or error
            raise BagwiseError(f"{parameter} is not a folder that can be made: {reason}. Choose another.") from error
        about = json.dumps({"schema": SCHEMA, **made_by}, sort_keys=True, default=_plain)
        self._made_by = _digest(about.encode())
        self._swept: set[Path] = set()  # folders

    def _path(self, fingerprint: str) -> Path:
        return self.folder / self._name(fingerprint)

    def _name(self, fingerprint: str) -> str:
        key = _digest(self._made_by + fingerprint.encode()).hex()
        return f"{key[:2]}/{key[2:]}.arrays"

    def load(self, fingerprint: str) -> dict[str, NDArray[Any]] | None:
        """Load the arrays of an item, or return None if they are missing or damaged."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        path, name = self._path(fingerprint), self._name(fingerprint)
        try:
            if self._storage is not None:
                if not self._storage.exists(name):
                    return None
                stored = self._storage.read(name)
                digest, content = stored[:_DIGEST], stored[_DIGEST:]
            else:
                with open(path, "rb") as file:
                    digest, content = file.read(_DIGEST), file.read()
            if _digest(content) == digest:
                return load(content)
            reason = f"its {len(digest) + len(content)} bytes are not those that were written"
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = error.strerror or str(error)
        except SafetensorError as error:
            reason = str(error)
        shown = path if self._storage is None else self._storage.file(name)
        warnings.warn(f"{shown} cannot be used and is computed again: {reason}.", DamagedCacheWarning, stacklevel=2)
        return None

    def save(self, fingerprint: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the arrays of an item."""
        from safetensors.numpy import save

        content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        if self._storage is not None:
            self._storage.write(self._name(fingerprint), _digest(content) + content)
            return
        path = self._path(fingerprint)
        try:
            path.parent.mkdir(exist_ok=True)
            if path.parent not in self._swept:  # once, as a folder may have very many files
                sweep(path.parent)
                self._swept.add(path.parent)
            write_atomically(path, _digest(content) + content, lasting=False)
        except OSError as error:
            raise BagwiseError(
                f"Cannot write to the cache folder {self.folder}: {error}. "
                "Free disk space, choose another folder, or "
                + in_python("pass cache=None.", f"leave {argument('cache')} out.")
            ) from error


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def _plain(value: Any) -> Any:
    """Convert NumPy scalars and arrays, so that step=8 and step=np.int64(8) share their files."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise BagwiseError(f"A cache needs parameters that can be written down, got {value!r}. Pass cache=None.")
