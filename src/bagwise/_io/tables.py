"""Matrices with labels and names in .npz files."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise._io.atomic import write_atomically


def write_npz(path: str | os.PathLike[str], X: Any, **columns: Any) -> None:
    """Write a matrix, which stays sparse, and lists of strings such as labels and feature_names; None is left out.

    `open_collection` reads the file; SciPy's `load_npz` reads a sparse matrix from it.
    """
    arrays = {name: np.array(values) for name, values in columns.items() if values is not None}
    if sp.issparse(X):  # the names of scipy.sparse.save_npz
        rows = sp.csr_array(X)
        arrays |= {"format": np.array(b"csr"), "shape": np.array(rows.shape), "data": rows.data}
        arrays |= {"indices": rows.indices, "indptr": rows.indptr, "_is_array": np.array(True)}
    else:
        arrays["X"] = np.asarray(X)
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_atomically(path, content.getvalue())
