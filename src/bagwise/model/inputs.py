"""From what a model is given, items, bags or matrices, to histograms of words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.base import clone

from bagwise._utils.matrices import first_not_finite
from bagwise.bags import Bags
from bagwise.codebooks.batches import batches_of_width
from bagwise.codebooks.encoding import pooled
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection

__all__ = ["as_histograms", "word_histograms"]

# Items described before they are counted; descriptors of more are never held.
_BATCH = 64


def word_histograms(model: Any, X: Any, n_jobs: int | None) -> Any:
    """Count the words of items, see `Model.histograms`."""
    if isinstance(X, Collection) and X.modality != model.modality:
        raise BagwiseError(f"This model takes {model.modality}, got a collection of {X.modality} from {X.source}.")
    if model.modality == "table" or sp.issparse(X) or len(getattr(X, "shape", ())) == 2:
        return as_histograms(X, model.n_cells * model.hierarchy.n_words, model.word_names, model.modality)
    if model.modality == "texts":
        return sp.csr_array(model.counter.transform(X)).astype(np.float32)
    return _pooled_words(model, X, n_jobs)


def _pooled_words(model: Any, X: Any, n_jobs: int | None) -> sp.csr_array:
    """Count the words of images or videos: described here, or bags or counts that were made before."""
    first = None
    if isinstance(X, (list, tuple)) and len(X):
        first = X[0]
    elif isinstance(X, Iterator):
        first = next(X, None)
        X = [] if first is None else itertools.chain([first], X)
    batches: Any = X
    if not (isinstance(X, Bags) or isinstance(first, Bags) or sp.issparse(first)):
        batches = _described(model, X, n_jobs)
    if model.codebook is None:
        if isinstance(X, Bags) or isinstance(first, Bags):
            raise BagwiseError("This model has no codebook: it takes images or counts of patterns, got Bags.")
        parts = [as_histograms(batch, model.hierarchy.n_words) for batch in batches]
    else:
        words, n_threads = model.codebook, effective_n_jobs(n_jobs)
        parts = [
            pooled(batch, model.encoder, "sum", model.pyramid, True, n_threads)
            for batch in batches_of_width(batches, words.shape[1], words.dtype, "this model")
        ]
    return sp.csr_array(sp.vstack(parts, format="csr"))


def _described(model: Any, X: Any, n_jobs: int | None) -> Iterator[Any]:
    if model.descriptor is None:
        raise BagwiseError(
            f"This model has no descriptor: it takes Bags of the vectors of {model.modality}, got {type(X).__name__}. "
            "Describe the items first as it was done for its codebook."
        )
    descriptor = model.descriptor if n_jobs is None else clone(model.descriptor).set_params(n_jobs=n_jobs)
    return descriptor.iter_transform(X, batch_size=_BATCH)


def as_histograms(X: Any, n_columns: int, names: tuple[str, ...] | None = None, items: str = "table") -> Any:
    """Give a matrix of finite numbers, dense or CSR, float32 if it is, otherwise float64.

    Parameters
    ----------
    X : sparse matrix, TableCollection, data frame, or array-like of shape (n, n_columns)
    n_columns : int
    names : tuple of str, default=None
        What the columns are called. Names of the columns of X, where it has any, must be the same.
    items : str, default="table"
        What the model takes, for the message of an error.
    """
    columns = getattr(X, "columns", getattr(X, "feature_names", None))
    if names is not None and columns is not None and tuple(map(str, columns)) != names:
        missing = next((name for name in names if name not in set(map(str, columns))), None)
        what = f"{missing!r} is missing" if missing is not None else "their order or number differs"
        raise BagwiseError(f"The columns of X are not those the model was made from: {what}.")
    if isinstance(X, Collection):
        X = X.X  # type: ignore[attr-defined]
    if sp.issparse(X):
        matrix = sp.csr_array(X)
    else:
        matrix = np.asarray(X)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise BagwiseError(
            f"X must be a matrix of real numbers with {n_columns} columns, one per word; "
            f"got {type(X).__name__} of shape {matrix.shape} and type {matrix.dtype}."
        )
    if matrix.shape[1] != n_columns:
        hint = "" if items == "table" else f" For one of the {items} itself pass a list: [it]."
        raise BagwiseError(f"X has {matrix.shape[1]} columns, but the histograms of this model {n_columns}.{hint}")
    matrix = matrix.astype(np.float32 if matrix.dtype == np.float32 else np.float64, copy=False)
    if not sp.issparse(matrix):
        matrix = np.ascontiguousarray(matrix)
    found = first_not_finite(matrix)
    if found is not None:
        row, column, value = found
        raise BagwiseError(f"X must hold finite numbers, but row {row}, column {column} is {value}.")
    return matrix
