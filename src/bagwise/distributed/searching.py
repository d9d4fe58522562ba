"""Search in an index of several shards, each of which a worker searches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import check_integer
from bagwise.distributed.executors import executor_of
from bagwise.errors import BagwiseError
from bagwise.retrieval.bag_index import BagIndex

__all__ = ["search"]

_HELD = 64  # shards that a process keeps open; they are mapped, not read

Found = tuple[NDArray[np.float64], NDArray[Any]]


def search(shards: Sequence[Any], Q: Any, k: int = 10, *, client: Any = None) -> Found:
    """Find the items nearest to each query among those of several indexes, as in one index of all items.

    Parameters
    ----------
    shards : sequence of BagIndex or paths
        Indexes of the same metric over the same words, or files that `BagIndex.save` wrote. Workers open files where
        they are, so that these must be readable there; an index itself is sent to a worker.
    Q : array-like or sparse matrix of shape (n_queries, n_words)
    k : int, default=10
    client : distributed.Client, default=None
        Whose workers search. None: this process, one shard after the other.

    Returns
    -------
    scores : ndarray of float64, shape (n_queries, min(k, n_items))
        Nearest first; see `BagIndex`.
    ids : ndarray of int64 or of str objects, same shape
        Identifiers of these items. Equally near items come in the order of the shards, and in each in that of adding.

    Notes
    -----
    Each shard gives k items per query, and results of neighbouring shards are merged in pairs, so that 16 k bytes per
    query (and the identifiers) are moved for each shard.

    Examples
    --------
    >>> from bagwise import BagIndex, distributed
    >>> shards = [BagIndex("hellinger").add([[4, 3, 0]], ["a"]), BagIndex("hellinger").add([[0, 1, 4]], ["b"])]
    >>> scores, ids = distributed.search(shards, [[0, 1, 3]], k=1)
    >>> ids.tolist()
    [['b']]
    """
    k = check_integer(k, "k", 1)
    shards = [shard if isinstance(shard, BagIndex) else os.fspath(shard) for shard in shards]
    if not shards:
        raise BagwiseError("There are no shards to search. Give indexes, or paths of their files.")
    executor = executor_of(client)
    n = len(shards)
    queries = executor.share(Q)
    found = executor.map(_search, shards, [queries] * n, [k] * n, step="Searching")
    scores, ids, _ = executor.gather([executor.reduce(partial(_nearest, k), found)])[0]
    return scores, ids


def _search(shard: Any, Q: Any, k: int) -> tuple[NDArray[np.float64], NDArray[Any], tuple[str, bool]]:
    index = shard if isinstance(shard, BagIndex) else _opened(shard, _changed(shard))
    about = (index.metric, index.larger_is_nearer)
    if not len(index):
        n = np.shape(Q)[0]
        return np.empty((n, 0)), np.empty((n, 0), np.int64), about
    return *index.search(Q, k), about


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError as error:
        raise BagwiseError(f"The shard {path} cannot be read where it is searched: {error.strerror}.") from error


@lru_cache(maxsize=_HELD)
def _opened(path: str, changed: int) -> BagIndex:
    return BagIndex.load(path)


def _nearest(k: int, one: Any, other: Any) -> Any:
    """Return the k nearest of two lists; of equally near ones, those of the first come first."""
    if one[2] != other[2]:
        raise BagwiseError(f"All shards must have one metric; got {one[2][0]!r} and {other[2][0]!r}.")
    kinds = {ids.dtype.kind for _, ids, _ in (one, other) if ids.size}
    if len(kinds) > 1:
        raise BagwiseError("Some shards name items by strings and others by numbers. Use one kind.")
    filled = [ids for _, ids, _ in (one, other) if ids.size] or [one[1]]
    scores = np.hstack([one[0], other[0]])
    ids = np.hstack([part.astype(filled[0].dtype) for _, part, _ in (one, other)])
    order = np.argsort(-scores if one[2][1] else scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1), one[2]
