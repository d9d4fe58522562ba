"""Statistics, Gram matrices and sketches of Dask collections, and their transformation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array

from bagwise.distributed.chunks import (
    Chunks,
    Limit,
    ResultSize,
    add_up,
    check_finite,
    delayed_function,
    is_dask_array,
    number_labels,
    read_chunk,
)
from bagwise.errors import BagwiseError
from bagwise.merging.pooling import pool
from bagwise.merging.sketching.sketch import Sketch
from bagwise.merging.statistics import Statistics, gram_around
from bagwise.merging.structures import add_sparse_product, mirror

__all__ = ["class_sums", "cooccurrence", "gram", "sketch", "statistics"]

_FLOATS = (np.float64, np.float32)
_GRAM = ResultSize(per_pair=8)


def statistics(
    X: Any,
    y: Any,
    *,
    gram: bool = True,
    frequencies: bool = False,
    classes: Sequence[Any] | NDArray[Any] | None = None,
    memory_limit: Limit = None,
) -> Any:
    """Compute the sums that merging by "csm" (with `gram`), "aib" or "mlt" needs, in one pass over X.

    Parameters
    ----------
    X : Dask array of shape (n_samples, n_words), or list of Delayed
        Chunk sizes must be known. If columns are chunked as well as rows, blocks of the same rows are brought together
        on one worker, which sends all but one of them over the network.
    y : array-like or Dask array of shape (n_samples,), or list
        Labels. For a list of chunks, a list of their labels, each an array or Delayed. An array becomes part of the
        graph; for very many samples use a Dask array.
    gram : bool, default=True
        Whether to sum products of words: dense, or the sparse upper triangle where chunks are sparse.
    frequencies : bool, default=False
        Whether to sum L1-normalised samples.
    classes : sequence, default=None
        All class labels, in order. None: those in y; a lazy y is computed once for that.
    memory_limit : int or str, default=None
        Memory budget for one chunk and its sums. None: the worker's limit divided by its threads, and 80 % of the free
        memory.

    Returns
    -------
    statistics : Delayed
        Of a `bagwise.merging.Statistics`.

    Notes
    -----
    Each of the k chunks gives 8 C d bytes of class sums, and 8 d² of Gram matrix if it is dense; at most k - 1 such
    results cross the network, whatever the number of samples in a chunk. Fewer, larger chunks send less.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from bagwise import distributed
    >>> from bagwise.merging import merge_statistics
    >>> X = da.from_array(np.array([[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]), chunks=(3, 4))
    >>> sums = distributed.statistics(X, ["cat", "cat", "dog", "dog"]).compute()
    >>> sums
    <Statistics: 4 samples of 2 classes, 4 words, gram>
    >>> merge_statistics(sums).groups(2)
    [array([0, 1]), array([2, 3])]
    """
    chunks = Chunks.of(X)
    result = ResultSize(per_pair=8 if gram else 0, sparse_pairs=False)
    chunks.check_fit(result, memory_limit)
    names, codes = number_labels(y, chunks, classes)
    settings = {"names": names, "gram": gram, "frequencies": frequencies}
    return _over_chunks(_statistics_of_chunk, chunks, result, memory_limit, list(enumerate(codes)), **settings)


def class_sums(
    X: Any, y: Any, *, classes: Sequence[Any] | NDArray[Any] | None = None, memory_limit: Limit = None
) -> Any:
    """Sum the samples of each class.

    Parameters are those of `statistics`.

    Returns
    -------
    sums : Delayed
        Of an ndarray of shape (n_classes, n_words), classes in the order of `classes` or sorted.

    Examples
    --------
    >>> import dask.array as da
    >>> from bagwise import distributed
    >>> distributed.class_sums(da.ones((6, 3), chunks=(4, 3)), [0, 0, 0, 0, 1, 1]).compute()
    array([[4., 4., 4.],
           [2., 2., 2.]])
    """
    total = statistics(X, y, gram=False, classes=classes, memory_limit=memory_limit)
    return delayed_function()(operator.attrgetter("class_sums"), pure=False)(total)


def gram(X: Any, *, memory_limit: Limit = None) -> Any:
    """Compute the Gram matrix ``Xᵀ X``, dense.

    Parameters are those of `statistics`.

    Returns
    -------
    gram : Delayed
        Of an ndarray of shape (n_words, n_words), around zero. For data with a large offset use that of `statistics`,
        around the mean.

    Examples
    --------
    >>> import dask.array as da
    >>> from bagwise import distributed
    >>> distributed.gram(da.ones((6, 2), chunks=(4, 1))).compute()
    array([[6., 6.],
           [6., 6.]])
    """
    chunks = Chunks.of(X)
    chunks.check_fit(_GRAM, memory_limit)
    return _over_chunks(_gram_of_chunk, chunks, _GRAM, memory_limit)


def cooccurrence(X: Any, *, memory_limit: Limit = None) -> Any:
    """Compute ``Xᵀ X`` as a sparse matrix of the pairs of words that occur together.

    Parameters are those of `statistics`.

    Returns
    -------
    cooccurrence : Delayed
        Of a CSR array of shape (n_words, n_words): the upper triangle, with the diagonal.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from bagwise import distributed
    >>> X = da.from_array(np.array([[1, 2, 0], [0, 0, 3], [1, 1, 0]]), chunks=(2, 3))
    >>> distributed.cooccurrence(X).compute().toarray()
    array([[2., 3., 0.],
           [0., 5., 0.],
           [0., 0., 9.]])
    """
    chunks = Chunks.of(X)
    chunks.check_fit(ResultSize(), memory_limit)
    return _over_chunks(_cooccurrence_of_chunk, chunks, ResultSize(), memory_limit)


def sketch(
    X: Any,
    *,
    size: int = 256,
    n_hashes: int = 30,
    seed: int = 0,
    first_sample: int = 0,
    dtype: Any = "float32",
    memory_limit: Limit = None,
) -> Any:
    """Sketch the features of X, as `bagwise.merging.Sketch` does with a stream.

    Parameters
    ----------
    X : Dask array of shape (n_samples, n_features)
        Chunk sizes must be known: the hash of a sample depends on its position.
    size, n_hashes, seed, first_sample, dtype
        Those of `Sketch`.
    memory_limit : int or str, default=None
        Memory budget for one chunk and two sketches; as in `statistics`.

    Returns
    -------
    sketch : Delayed
        Of a `Sketch` of all samples. For integer data whose sums are exact in `dtype`, it has the bytes of a sketch
        computed at once.

    Examples
    --------
    >>> import dask.array as da
    >>> from bagwise import distributed
    >>> distributed.sketch(da.ones((6, 3), chunks=(4, 3)), size=8).compute()
    <Sketch: 3 features x 8, samples 0 to 6 (exclusive)>
    """
    chunks = Chunks.of(X)
    if chunks.sizes is None or chunks.width is None:
        raise BagwiseError(
            "A sketch needs the position of each sample, and so the sizes of chunks, but X is a list of chunks. "
            "Make it a Dask array: dask.array.concatenate of dask.array.from_delayed(chunk, shape, dtype)."
        )
    # raises for bad settings
    empty = Sketch(chunks.width, size, n_hashes, seed=seed, first_sample=first_sample, dtype=dtype)
    result = ResultSize(per_word=empty.size * empty.dtype.itemsize)
    chunks.check_fit(result, memory_limit)
    firsts = np.cumsum([empty.first_sample, *chunks.sizes[:-1]]).tolist()
    settings = {"size": empty.size, "n_hashes": empty.n_hashes, "seed": empty.seed, "dtype": empty.dtype.name}
    return _over_chunks(_sketch_of_chunk, chunks, result, memory_limit, [(first,) for first in firsts], **settings)


def _over_chunks(
    function: Callable[..., Any],
    chunks: Chunks,
    result: ResultSize,
    memory_limit: Limit,
    own: Sequence[tuple[Any, ...]] | None = None,
    **common: Any,
) -> Any:
    """Build the graph: a result for each chunk, from the chunk and its entry of `own`; then their sum."""
    leaf = delayed_function()(_of_chunk, pure=False)
    parts = []
    for number, blocks in enumerate(chunks.blocks):
        chunk = (blocks, number, chunks.width, result, memory_limit)
        parts.append(leaf(function, chunk, *(() if own is None else own[number]), **common))
    return add_up(parts)


def _of_chunk(function: Callable[..., Any], chunk: tuple[Any, ...], *own: Any, **common: Any) -> Any:
    return function(read_chunk(*chunk), *own, **common)


def check_can_be_pooled(X: Any) -> None:
    """Raise for collections that `pool_collection` does not support: lists of chunks, data frames and others."""
    delayed_function()
    if is_dask_array(X) and X.ndim == 2:
        return
    got = f"a Dask array of shape {X.shape}" if is_dask_array(X) else f"a {type(X).__name__}"
    raise BagwiseError(
        f"transform takes a Dask array of samples by words, or one chunk that is in memory; got {got}. For "
        "dask.delayed chunks: dask.array.concatenate of dask.array.from_delayed(chunk, shape, dtype), or "
        "dask.delayed(merger.transform)(chunk) for each of them."
    )


def pool_collection(X: Any, labels: NDArray[np.int64], n_groups: int, pooling: str, **weights: Any) -> Any:
    """Sum the words of each group in a Dask array lazily, as `pool` does; see `check_can_be_pooled`."""
    dtype = X.dtype if X.dtype in _FLOATS else np.dtype(np.float64)
    is_sparse = sp.issparse(X._meta)
    form = (sp.csr_array if isinstance(X._meta, sp.sparray) else sp.csr_matrix) if is_sparse else np.empty
    return X.rechunk({1: -1}).map_blocks(
        _pool_chunk,
        labels,
        n_groups,
        pooling,
        weights,
        dtype=dtype,
        chunks=(X.chunks[0], (n_groups,)),
        meta=form((0, 0), dtype=dtype),
    )


def _pool_chunk(
    chunk: Any,
    labels: NDArray[np.int64],
    n_groups: int,
    pooling: str,
    weights: dict[str, Any],
    block_id: tuple[int, int],  # given by Dask
) -> Any:
    chunk = check_array(chunk, accept_sparse="csr", dtype=list(_FLOATS), ensure_min_samples=0, ensure_all_finite=False)
    check_finite(chunk, block_id[0])
    return pool(chunk, labels, n_groups, pooling, **weights)


def _statistics_of_chunk(
    X: Any, number: int, codes: NDArray[np.intp], names: NDArray[Any], gram: bool, frequencies: bool
) -> Statistics:
    if len(codes) != X.shape[0]:
        raise BagwiseError(f"Chunk {number} has {X.shape[0]} samples, but {len(codes)} labels.")
    return Statistics.of(X, codes, len(names), gram, frequencies=frequencies, classes=names)


def _gram_of_chunk(X: Any) -> NDArray[np.float64]:
    if not sp.issparse(X):
        return gram_around(X, np.zeros(X.shape[1]))[0]
    out = np.zeros((X.shape[1], X.shape[1]))
    add_sparse_product(out, X, X)
    mirror(out)
    return out


def _cooccurrence_of_chunk(X: Any) -> sp.csr_array:
    return gram_around(sp.csr_array(X), np.zeros(X.shape[1]))[0]


def _sketch_of_chunk(X: Any, first_sample: int, **settings: Any) -> Sketch:
    return Sketch(X.shape[1], first_sample=first_sample, **settings).update(X)
