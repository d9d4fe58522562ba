"""Results of the steps of a fit, kept in a folder for later runs: words, histograms, groups, errors."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.storage import Url, as_place
from bagwise._utils.json_text import parse_json
from bagwise.descriptors.cache import ArrayCache
from bagwise.sources.collection import Collection
from bagwise.sources.items import ItemError

__all__ = ["StepCache", "from_json", "hash_arrays", "pack_matrix", "to_json", "unpack_matrix"]

# Part of every key. Raise it when a step gives other results for the same data and parameters.
SCHEMA = 3
_EVERY = 64  # items between two reports of progress

Arrays = dict[str, NDArray[Any]]


class StepCache:
    """A folder with results of steps, each in a file named by a hash of all that it depends on.

    That is the content of the items (or of arrays), the parameters of the step, and `made_by`: versions of packages.
    Files are written, checked and replaced as those of `ArrayCache`. There is a folder per step, such as ``words``;
    each may be deleted at any time, and its results are computed again.

    Parameters
    ----------
    folder : path or URL
    made_by : mapping
        Versions, as JSON values.
    progress : callable
        Called as the `progress` of `fit_model`, also with what is read.

    Attributes
    ----------
    used : list of str
        What was taken from the cache, in words.
    """

    def __init__(
        self, folder: str | os.PathLike[str], made_by: Mapping[str, Any], progress: Callable[[str, int, int], None]
    ) -> None:
        self.folder = as_place(folder)
        self.used: list[str] = []
        self._made_by = {"steps": SCHEMA, **made_by}
        self._progress = progress

    def load(self, step: str, content: str, settings: Mapping[str, Any], what: str) -> Arrays | None:
        """Load the result of a step, or return None if there is none or it is damaged.

        `content` is the `fingerprint` of items, or the `hash_arrays` of arrays; `settings` are the parameters of the
        step, and `what` names the result.
        """
        arrays = self._files(step, settings).load(content)
        if arrays is not None:
            self.used.append(what)
            self._progress(f"Reading {what} from the cache", 1, 1)
        return arrays

    def save(self, step: str, content: str, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the result of a step."""
        self._files(step, settings).save(content, arrays)

    def _files(self, step: str, settings: Mapping[str, Any]) -> ArrayCache:
        inside = self.folder.inside(step) if isinstance(self.folder, Url) else Path(self.folder) / step
        return ArrayCache(inside, {"step": step, **self._made_by, "settings": dict(settings)})

    def fingerprint(self, items: Collection) -> str:
        """Hash the content of items in their order, which are read for that."""
        digest = hashlib.blake2b(digest_size=16)
        for k, item in enumerate(items):
            if k % _EVERY == 0:
                self._progress("Looking for items in the cache", k, len(items))
            try:
                digest.update(f"{item.fingerprint()}\n".encode())
            except ItemError as error:  # told, or raised, when it is read
                digest.update(f"cannot be read: {error.reason}\n".encode("utf-8", "surrogatepass"))
        self._progress("Looking for items in the cache", len(items), len(items))
        return digest.hexdigest()


def hash_arrays(arrays: Any) -> str:
    """Hash the values, types and shapes of arrays and CSR arrays."""
    import scipy.sparse as sp

    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        parts = [array.indptr, array.indices, array.data] if sp.issparse(array) else [np.asarray(array)]
        digest.update(f"{[part.dtype.str for part in parts]} {array.shape}\n".encode())
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def to_json(value: Any) -> NDArray[np.uint8]:
    """Return a JSON value as an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def from_json(array: NDArray[np.uint8]) -> Any:
    """Return the value of `to_json`.

    >>> from_json(to_json(["one", None]))
    ['one', None]
    """
    return parse_json(array.tobytes())


def pack_matrix(matrix: Any) -> Arrays:
    """Return an array or a CSR array as arrays."""
    import scipy.sparse as sp

    if not sp.issparse(matrix):
        return {"matrix": np.asarray(matrix)}
    shape = np.array(matrix.shape, dtype=np.int64)
    return {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": shape}


def unpack_matrix(arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the matrix of `pack_matrix`."""
    import scipy.sparse as sp

    if "matrix" in arrays:
        return arrays["matrix"]
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    return sp.csr_array(parts, shape=tuple(arrays["shape"].tolist()))
