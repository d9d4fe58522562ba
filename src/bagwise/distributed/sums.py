"""Statistics, Gram matrices and sketches of Dask collections: chunks and their labels, sums over them, pooling."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from bagwise._utils.extras import require
from bagwise._utils.matrices import as_format, canonical, check_non_negative, first_not_finite, is_lazy
from bagwise._utils.memory import readable_size, resolve_limit
from bagwise._utils.validation import check_array, check_single_labels, refuse_dates
from bagwise.errors import BagwiseError
from bagwise.merging.clusterings import Clusterings, sampled_rows
from bagwise.merging.criteria import NAMED_CRITERIA
from bagwise.merging.criteria.clusters import Clusters
from bagwise.merging.pooling import pool
from bagwise.merging.scaling import find_scaling
from bagwise.merging.sketching.sketch import Sketch
from bagwise.merging.statistics import Statistics, gram_around
from bagwise.merging.structures import add_sparse_product, mirror

__all__ = ["class_sums", "cooccurrence", "gram", "sketch", "statistics"]

Limit = int | float | str | None
# Results in memory while two are added: both, and both moved to a common centre.
_ALIVE = 4


class ResultSize(NamedTuple):
    """Bytes that the result of one chunk takes."""

    per_word: int = 0
    per_pair: int = 0  # of words
    sparse_pairs: bool = True  # whether the result of a sparse chunk has dense pairs as well


@dataclass(frozen=True)
class Chunks:
    """Chunks of samples, each a list of its blocks of columns."""

    blocks: list[list[Any]]
    sizes: tuple[int, ...] | None  # number of samples in each; None where unknown before computing
    width: int | None  # number of words; the same
    dense: bool  # whether the chunks are dense arrays, by their metadata

    @classmethod
    def of(cls, X: Any) -> Chunks:
        """List the chunks of a Dask array, or of a list of delayed matrices."""
        if isinstance(X, (list, tuple)):
            strange = next((k for k, chunk in enumerate(X) if not is_lazy(chunk)), None)
            if strange is not None or not X:
                strange_one = (
                    f"a {type(X[strange]).__name__} as chunk {strange}" if strange is not None else "an empty list"
                )
                raise BagwiseError(f"A list of chunks must have dask.delayed objects only; got {strange_one}.")
            return cls([[chunk] for chunk in X], None, None, dense=False)
        if not is_dask_array(X):
            raise BagwiseError(
                f"X must be a Dask array or a list of dask.delayed chunks; got {type(X).__name__}. Data in memory go "
                "to merge_words or Statistics.of; dask.array.from_array makes a Dask array."
            )
        if X.ndim != 2:
            raise BagwiseError(f"X must have two dimensions, samples by words; got shape {X.shape}.")
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            raise BagwiseError(
                f"The chunks of X have unknown sizes, its shape is {X.shape}. Call X.compute_chunk_sizes() first, or "
                "frame.to_dask_array(lengths=True) if X comes from a data frame."
            )
        if 0 in X.shape:
            raise BagwiseError(f"X must have samples and words; got shape {X.shape}.")
        return cls(X.to_delayed().tolist(), X.chunks[0], X.shape[1], dense=not sp.issparse(X._meta))

    def check_fit(self, result: ResultSize, memory_limit: Limit) -> None:
        """Raise before anything is read if the largest chunk is known to be too large for a worker."""
        if self.sizes is None or self.width is None or not self.dense:
            return
        number = int(np.argmax(self.sizes))
        n_rows = self.sizes[number]
        _check_fits(number, (n_rows, self.width), 8 * n_rows * self.width, result, memory_limit)


def _n_rows(X: Any) -> int:
    return int(X.shape[0])


def is_dask_array(X: Any) -> bool:
    """Whether X is a Dask array, and no other Dask collection. Does not import Dask."""
    # looks at the class, as objects of dask.delayed have any attribute
    return is_lazy(X) and hasattr(type(X), "map_blocks")


def _check_fits(number: int, shape: tuple[int, int], chunk_bytes: int, result: ResultSize, memory_limit: Limit) -> None:
    """Raise if a chunk with its result, or adding two results, takes more memory than a worker has."""
    result_bytes = result.per_word * shape[1] + result.per_pair * shape[1] ** 2
    need = max(chunk_bytes + result_bytes, _ALIVE * result_bytes)
    limit, origin = _limit(memory_limit)
    if limit is None or need <= limit:
        return
    matrices = f", with {_ALIVE} matrices of {shape[1]} x {shape[1]} words," if result.per_pair else ""
    needs = {name: known.sums_needed for name, known in NAMED_CRITERIA.items()}
    without = [repr(name) for name, parts in needs.items() if parts is not None and "gram" not in parts]
    fewer = f" fewer words, sparse chunks, a criterion that needs no Gram matrix ({', '.join(without)}),"
    fewer = fewer if result.per_pair else ""
    raise BagwiseError(
        f"Chunk {number}, {shape[0]} samples of {shape[1]} words{matrices} takes {readable_size(need)} in float64; the "
        f"limit is {readable_size(limit)} ({origin}). Ways out: smaller chunks, X.rechunk({{0: n}}),{fewer} workers "
        "with more memory, or a higher memory_limit."
    )


def _limit(memory_limit: Limit) -> tuple[int | None, str]:
    """Bytes that a chunk may take, None if unknown, and where that comes from.

    In a worker: its limit divided by its threads, or its free memory if that is less. Elsewhere: the same for the
    workers of the current client, or the free memory if there is no client.
    """
    free = resolve_limit(memory_limit), "memory_limit" if memory_limit is not None else "80 % of the free memory"
    if memory_limit is not None or "distributed" not in sys.modules:  # neither worker nor client
        return free
    from distributed import default_client, get_worker

    origin = "the limit of a worker divided by its threads"
    try:
        worker = get_worker()
    except ValueError:  # not in a worker
        try:
            client = default_client()
        except ValueError:  # nor is there a client
            return free
        # Dask lists only some of very many workers; each checks again for itself
        workers = client.scheduler_info()["workers"].values()
        limits = [worker["memory_limit"] / max(worker["nthreads"], 1) for worker in workers if worker["memory_limit"]]
        return int(min(limits)) if limits else None, origin
    if not worker.memory_manager.memory_limit:
        return free
    of_thread = int(worker.memory_manager.memory_limit / max(worker.state.nthreads, 1))
    return (of_thread, origin) if free[0] is None or of_thread < free[0] else free


def number_labels(y: Any, chunks: Chunks, classes: Any) -> tuple[NDArray[Any], list[Any]]:
    """Find the classes, and the class codes of each chunk's samples."""
    delayed = delayed_function()
    n_chunks = len(chunks.blocks)
    if y is None:
        raise BagwiseError("y is None; pass the labels of all samples.")
    if chunks.sizes is None:
        is_list = isinstance(y, (list, tuple)) and len(y) == n_chunks
        if not is_list or not all(is_lazy(part) or np.ndim(part) > 0 for part in y):
            raise BagwiseError(
                f"X is a list of {n_chunks} chunks, so y must be a list of {n_chunks} arrays of labels (or "
                f"dask.delayed of such), one for each; got {_describe(y)}."
            )
        parts = list(y)
    elif is_lazy(y):
        if not is_dask_array(y) or any(np.isnan(size) for size in y.chunks[0]):
            raise BagwiseError(
                f"y must be an array or a Dask array with known chunk sizes; got {_describe(y)}. Call "
                "y.compute_chunk_sizes() first; dask.array.from_delayed makes an array of a delayed one."
            )
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        _check_labels_shape(y.shape, sum(chunks.sizes))
        parts = y.rechunk((chunks.sizes,)).to_delayed().tolist()
    else:
        labels = _as_labels(y)
        _check_labels_shape(labels.shape, sum(chunks.sizes))
        names = _check_classes(_different(labels) if classes is None else np.asarray(classes))
        numbers = _class_numbers(labels, names, None)
        numbers = numbers.astype(np.min_scalar_type(len(names)))  # they are part of the graph
        return names, np.split(numbers, np.cumsum(chunks.sizes)[:-1])
    if classes is None:
        find = delayed(_different, pure=False)
        classes = add_up([find(part) for part in parts], join=_join_classes).compute()
    names = _check_classes(np.asarray(classes))
    number = delayed(_class_numbers, pure=False)
    return names, [number(part, names, k) for k, part in enumerate(parts)]


def _as_labels(y: Any) -> NDArray[Any]:
    refuse_dates(y, "y")
    labels = np.asarray(y)
    if labels.size == 0:
        return labels.reshape(-1)
    check_single_labels(labels)
    return column_or_1d(labels)


def _describe(y: Any) -> str:
    if isinstance(getattr(y, "shape", None), tuple):  # not for Delayed, whose shape is a Delayed
        return f"{type(y).__name__} of shape {y.shape}"
    return f"{type(y).__name__} of length {len(y)}" if isinstance(y, (list, tuple)) else type(y).__name__


def _check_labels_shape(shape: tuple[int, ...], n_samples: int) -> None:
    if shape != (n_samples,):
        raise BagwiseError(f"y must have one label for each of the {n_samples} samples of X; got shape {shape}.")


def _different(labels: Any) -> NDArray[Any]:
    """`np.unique` with an error for labels of mixed types, and missing ones."""
    labels = _as_labels(labels)
    try:
        return np.unique(labels)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise BagwiseError(
            f"Labels must be all numbers or all strings; got {' and '.join(kinds)}. Samples without a label must be "
            "left out, or get a name of their own."
        ) from error


def _join_classes(left: NDArray[Any], right: NDArray[Any], *_: int) -> NDArray[Any]:
    if len(left) == 0 or len(right) == 0:  # without samples the type is arbitrary
        return right if len(left) == 0 else left
    return _different(np.concatenate([left, right]))


def _check_classes(names: NDArray[Any]) -> NDArray[Any]:
    if names.ndim != 1 or len(names) == 0 or len(_different(names)) != len(names):
        raise BagwiseError(f"classes must be different names, at least one; got {names!r}.")
    if names.dtype.kind == "f" and not np.array_equal(names, np.rint(names)):
        raise BagwiseError(
            f"y must have class labels, but there are values such as {names[names != np.rint(names)][0]}. Bin "
            "continuous targets first, for example by np.digitize."
        )
    return names


def _class_numbers(labels: Any, names: NDArray[Any], number: int | None) -> NDArray[np.intp]:
    """Give the class code of each label; `number` is that of the chunk, for the message."""
    values = _as_labels(labels)
    if len(values) == 0:
        return np.empty(0, dtype=np.intp)
    if (names.dtype.kind in "USO") != (values.dtype.kind in "USO"):
        raise BagwiseError(f"y has labels of type {values.dtype}, but `classes` are {names.dtype}. Use the same names.")
    if "O" in (names.dtype.kind, values.dtype.kind):
        _different(np.concatenate([names, values]))  # raises for labels that cannot be compared
    order = np.argsort(names)
    nearest = np.minimum(np.searchsorted(names, values, sorter=order), len(names) - 1)
    codes = order[nearest]
    unknown = names[codes] != values
    if np.any(unknown):
        where = "" if number is None else f" (chunk {number})"
        raise BagwiseError(f"y has the label {values[unknown].tolist()[0]!r}{where}, which is not one of `classes`.")
    return codes.astype(np.intp)


def add_up(parts: list[Any], join: Callable[..., Any] | None = None) -> Any:
    """Add neighbours in pairs, repeatedly: a tree in the order of the chunks."""
    task = delayed_function()(_join if join is None else join, pure=False)
    numbers = list(range(len(parts)))  # the first chunk in each part
    while len(parts) > 1:
        pairs = range(0, len(parts) - 1, 2)
        joined = [task(parts[k], parts[k + 1], numbers[k], numbers[k + 1]) for k in pairs]
        parts = joined + parts[2 * len(joined) :]
        numbers = numbers[::2]
    return parts[0]


def _join(left: Any, right: Any, left_number: int, right_number: int) -> Any:
    widths = [part.shape[1] if hasattr(part, "shape") else part.n_features for part in (left, right)]
    if widths[0] != widths[1]:
        raise BagwiseError(
            f"Chunk {right_number} has {widths[1]} words, but chunk {left_number} has {widths[0]}. All chunks must "
            "have the same columns."
        )
    return left + right


def read_chunk(
    blocks: list[Any], number: int, n_rows: int | None, width: int | None, result: ResultSize, memory_limit: Limit
) -> Any:
    """Assemble a chunk in float64, and check its shape, memory, NaN and infinity."""
    if any(sp.issparse(block) for block in blocks):
        blocks = [as_format(one, "csr", f"Chunk {number}") if sp.issparse(one) else one for one in blocks]
        X = canonical(sp.csr_array(blocks[0] if len(blocks) == 1 else sp.hstack(blocks, format="csr")))
    else:
        X = np.asarray(blocks[0]) if len(blocks) == 1 else np.hstack(blocks)
    if X.ndim != 2:
        raise BagwiseError(f"Chunk {number} must have two dimensions, samples by words; got shape {X.shape}.")
    if width is not None and X.shape[1] != width:
        raise BagwiseError(
            f"Chunk {number} has {X.shape[1]} words, but X has {width} by its metadata. All chunks must have the "
            "same columns."
        )
    _check_rows(X.shape[0], n_rows, number)
    if X.dtype.kind not in "biuf":
        raise BagwiseError(f"Chunk {number} must be numeric; got {X.dtype}.")
    if sp.issparse(X):
        chunk_bytes = X.data.nbytes + X.indices.nbytes
        result = result if result.sparse_pairs else result._replace(per_pair=0)
    else:
        chunk_bytes = 8 * X.size
    _check_fits(number, X.shape, chunk_bytes, result, memory_limit)
    X = X.astype(np.float64, copy=False)
    check_finite(X, number)
    return X


def _check_rows(n_rows: int, declared: float | None, number: int) -> None:
    """Raise if a chunk has other rows than declared; None and NaN declare nothing."""
    if declared is not None and not np.isnan(declared) and n_rows != declared:
        raise BagwiseError(
            f"Chunk {number} has {n_rows} samples, but X says that it has {declared} (X.chunks). Give the shape that "
            "chunks really have, such as to dask.array.from_delayed, or call X.compute_chunk_sizes()."
        )


def check_finite(X: Any, number: int) -> None:
    """Raise if a dense or CSR chunk has NaN or infinity, naming the first."""
    if (strange := first_not_finite(X)) is not None:
        row, word, value = strange
        raise BagwiseError(
            f"Chunk {number} has {value} in its row {row}, word {word}. Only finite numbers can be summed: drop the "
            "sample or impute the value."
        )


def delayed_function() -> Any:
    """Give `dask.delayed`, or raise an error that says how to install Dask."""
    return require("dask", "dask", "A Dask collection").delayed


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


def clustered_statistics(X: Any, criterion: Clusters, memory_limit: Limit = None, scaling: str | None = "auto") -> Any:
    """Compute the sums that merging by "clusters" needs, over clusters of the samples.

    Clusterings are learned in this process from the samples that `sampled_rows` draws, as of data in memory; each chunk
    assigns its samples to them.

    Parameters
    ----------
    X, memory_limit
        As in `statistics`.
    criterion : Clusters
    scaling : {"auto", "shift", "range"} or None, default="auto"
        As in `merge_words`.

    Returns
    -------
    statistics : Delayed
        Of a `bagwise.merging.Statistics`.
    """
    chunks, result = Chunks.of(X), ResultSize()
    chunks.check_fit(result, memory_limit)
    if criterion.clusterings is not None:
        raise BagwiseError("The samples of a Dask collection are clustered chunk by chunk; leave clusterings=None.")
    delayed = delayed_function()
    sizes, parts = chunks.sizes, []
    read = delayed(read_chunk, pure=False)
    for number, blocks in enumerate(chunks.blocks):
        n_rows = None if sizes is None else sizes[number]
        parts.append(read(blocks, number, n_rows, chunks.width, result, memory_limit))
    if sizes is None:
        sizes = delayed([delayed(_n_rows, pure=False)(part) for part in parts]).compute()
    ends = np.cumsum(sizes)
    chosen = sampled_rows(int(ends[-1]), criterion.random_state)
    cuts = np.searchsorted(chosen, np.concatenate([[0], ends]))
    of_each = [chosen[a:b] - (end - size) for a, b, end, size in zip(cuts[:-1], cuts[1:], ends, sizes, strict=True)]
    take = delayed(operator.getitem, pure=False)
    taken = delayed([take(part, rows) for part, rows in zip(parts, of_each, strict=True)]).compute()
    sample = canonical(sp.csr_array(sp.vstack(taken, format="csr"))) if sp.issparse(taken[0]) else np.vstack(taken)
    if sample.shape[0] == 0:
        raise BagwiseError("X has no samples.")
    if sp.issparse(sample):
        check_non_negative(sample, "The criterion 'clusters'", "Dense chunks may be negative: columns are shifted.")
    learned = delayed(criterion.learn(sample, scaling=find_scaling(sample, scaling)))
    return _over_chunks(_statistics_of_clusters, chunks, result, memory_limit, learned=learned)


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
    of_each: Sequence[tuple[Any, ...]] | None = None,
    **common: Any,
) -> Any:
    """Build the graph: a result for each chunk, from the chunk and its entry of `of_each`; then their sum."""
    leaf = delayed_function()(_of_chunk, pure=False)
    parts = []
    for number, blocks in enumerate(chunks.blocks):
        n_rows = None if chunks.sizes is None else chunks.sizes[number]
        chunk = (blocks, number, n_rows, chunks.width, result, memory_limit)
        parts.append(leaf(function, chunk, *(() if of_each is None else of_each[number]), **common))
    return add_up(parts)


def _of_chunk(function: Callable[..., Any], chunk: tuple[Any, ...], *arguments: Any, **common: Any) -> Any:
    return function(read_chunk(*chunk), *arguments, **common)


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
        X.chunks[0],
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
    sizes: tuple[float, ...],  # of all chunks; NaN where unknown
    block_id: tuple[int, int],  # given by Dask
) -> Any:
    _check_rows(chunk.shape[0], sizes[block_id[0]], block_id[0])
    chunk = check_array(chunk, accept_sparse="csr", dtype=list(_FLOATS), ensure_min_samples=0, ensure_all_finite=False)
    check_finite(chunk, block_id[0])
    return pool(chunk, labels, n_groups, pooling, **weights)


def _statistics_of_chunk(
    X: Any, number: int, codes: NDArray[np.intp], names: NDArray[Any], gram: bool, frequencies: bool
) -> Statistics:
    if len(codes) != X.shape[0]:
        raise BagwiseError(f"Chunk {number} has {X.shape[0]} samples, but {len(codes)} labels.")
    return Statistics.of(X, codes, len(names), gram, frequencies=frequencies, classes=names)


def _statistics_of_clusters(X: Any, learned: Clusterings) -> Statistics:
    return Statistics.of(X, learned.codes(X), learned.n_clusters, gram=False)


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
