"""Encoding bags: the codes of their vectors, pooled by bag and by cell of a spatial pyramid."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.backends import backend
from bagwise._utils.threads import number_of_threads, one_blas_thread
from bagwise.bags import Bags
from bagwise.codebooks.encoders import Encoder, as_encoder
from bagwise.codebooks.pyramids import Grids, cell_numbers, n_cells, resolve_pyramid
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["POOLINGS", "encode_bags", "histogram_width", "pooled", "resolve_pooling"]

POOLINGS = ("sum", "mean", "max")
# One task of a thread: about this many vectors, and histograms of about this many numbers (float64).
_TASK_ROWS = 1 << 14
_TASK_NUMBERS = 1 << 21


def encode_bags(
    bags: Bags,
    codebook: Any,
    *,
    assignment: str | Encoder = "hard",
    pooling: str = "auto",
    pyramid: Any = None,
    sparse_output: bool = False,
    n_jobs: int | None = None,
    device: str | None = None,
) -> Any:
    """Turn bags of vectors into histograms of words.

    Parameters
    ----------
    bags : Bags
    codebook : array-like of shape (K, D)
    assignment : {"hard", "soft", "localized", "sparse", "vlad"} or encoder, default="hard"
        As in `BagOfFeatures`, which explains it and the next two.
    pooling : {"auto", "sum", "mean", "max"}, default="auto"
    pyramid : None, 5, 8, 21 or list of (rows, columns), default=None
    sparse_output : bool, default=False
        Whether to return a CSR array.
    n_jobs : int, default=None
    device : {"cpu", "cuda"}, default=None
        None: where the codebook is.

    Returns
    -------
    histograms : ndarray or CSR array of shape (n_bags, n_cells * K), or (n_bags, n_cells * K * D) for "vlad"
        In the type of the codebook. Nothing is normalised. Empty bags give zeros.

    Examples
    --------
    >>> from bagwise import Bags
    >>> from bagwise.codebooks import encode_bags
    >>> bags = Bags.from_list([[[0.1], [0.9], [1.2]], []], n_features=1)
    >>> encode_bags(bags, [[0.0], [1.0]])
    array([[1., 2.],
           [0., 0.]])
    """
    module = backend("codebooks", device, codebook)
    encoder = as_encoder(assignment).on(module.codebook(codebook), module.Distances)
    if bags.n_rows and bags.n_features != encoder.codebook.shape[1]:
        raise BagwiseError(
            f"The bags have {bags.n_features} features, but the words of the codebook {encoder.codebook.shape[1]}."
        )
    how = resolve_pooling(pooling, encoder), resolve_pyramid(pyramid), sparse_output
    return module.pooled(bags, encoder, *how, number_of_threads(n_jobs))


def resolve_pooling(pooling: str, encoder: Encoder) -> str:
    """Turn the `pooling` parameter into one of `POOLINGS`."""
    if pooling == "auto":
        return encoder.pooling
    if pooling not in POOLINGS:
        raise unknown_name("pooling", pooling, ("auto", *POOLINGS))
    if pooling == "max" and encoder.adds_only:
        raise BagwiseError(
            f"Codes of {encoder.name!r} add up, so pooling='max' has no meaning. Accepted: 'sum', 'mean', 'auto'."
        )
    return pooling


def histogram_width(encoder: Encoder, grids: Grids) -> int:
    """Numbers in a histogram of all cells."""
    n_words, n_features = encoder.codebook.shape
    return n_cells(grids) * n_words * encoder.numbers_of_word(n_features)


def pooled(bags: Bags, encoder: Encoder, pooling: str, grids: Grids, sparse_output: bool, n_threads: int) -> Any:
    """`encode_bags` with an encoder that is bound to words, and parameters that are known to be sound."""
    width, dtype = histogram_width(encoder, grids), encoder.codebook.dtype
    tasks = list(_tasks(bags, max(1, _TASK_NUMBERS // width)))
    out = None if sparse_output else np.zeros((len(bags), width), dtype)

    def encode(task: slice) -> sp.csr_array | None:
        pooled = _pool_task(bags[task], encoder, pooling, grids).reshape(-1, width).astype(dtype)
        if out is None:
            return sp.csr_array(pooled)
        out[task] = pooled
        return None

    with one_blas_thread():
        if n_threads <= 1 or len(tasks) <= 1:
            parts = [encode(task) for task in tasks]
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                parts = list(pool.map(encode, tasks))
    if out is not None:
        return out
    return sp.vstack(parts, format="csr") if parts else sp.csr_array((0, width), dtype=dtype)


def _tasks(bags: Bags, most_bags: int) -> Iterator[slice]:
    """Cut bags into pieces of about as much work."""
    for part, _ in bags.blocks(_TASK_ROWS):
        for first in range(part.start, part.stop, most_bags):
            yield slice(first, min(first + most_bags, part.stop))


def _pool_task(bags: Bags, encoder: Encoder, pooling: str, grids: Grids) -> NDArray[np.float64]:
    """Pool some bags: one row per bag and cell. Vectors are added one after the other, whatever else is in the task."""
    cells = n_cells(grids)
    groups = cell_numbers(bags.positions, bags.n_rows, grids)
    groups += np.repeat(np.arange(len(bags)) * cells, bags.lengths)[:, None]
    out = np.zeros((len(bags) * cells, histogram_width(encoder, grids) // cells))
    encoder.pool(bags.values, groups, pooling == "max", out)
    if pooling == "mean":  # over the bag, not the cell, so that finer cells still add up to coarser ones
        by_bag = out.reshape(len(bags), -1)
        by_bag /= np.maximum(bags.lengths, 1)[:, None]
    return out
