"""Search in an index of several shards, each of which a worker searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._io.storage import Url, as_place
from bagwise._utils.checks import check_integer
from bagwise.distributed.executors import executor_of
from bagwise.distributed.opened import OpenShards, naming
from bagwise.errors import BagwiseError
from bagwise.retrieval.bag_index import BagIndex

__all__ = ["search", "search_labelled"]

Found = tuple[NDArray[np.float64], NDArray[Any]]

_open_shards = OpenShards()


def search(
    shards: Sequence[Any],
    Q: Any,
    k: int = 10,
    *,
    client: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Found:
    """Find the items nearest to each query among those of several indexes, as in one index of all items.

    Parameters
    ----------
    shards : sequence of BagIndex, paths or URLs
        Indexes of the same metric over the same words, or files that `BagIndex.save` wrote. Workers open files where
        they are, so that these must be readable there; an index itself is sent to a worker. A worker copies a file by
        URL to a temporary one, keeps it for the next search, and copies it again if it has changed.
    Q : array-like or sparse matrix of shape (n_queries, n_words)
    k : int, default=10
    client : distributed.Client, default=None
        Whose workers search. None: this process, one shard after the other.
    storage_options : mapping, default=None
        For URLs, see `bagwise.open_collection`.

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
    given = [shard if isinstance(shard, BagIndex) else _place(shard, storage_options) for shard in shards]
    hits = _search_all(given, [None] * len(given), Q, k, client)
    return hits.scores, hits.ids


def search_labelled(
    shards: Sequence[Any], labels: Sequence[Any], Q: Any, k: int, client: Any = None
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[Any]]:
    """Search as `search` does, and return the labels of items as well.

    `labels` are the files with those of each shard, see `bagwise.distributed.opened`; None has none.
    """
    places = [None if one is None else _place(one) for one in labels]
    hits = _search_all([_place(shard) for shard in shards], places, Q, k, client)
    return hits.scores, hits.ids, hits.labels


def _place(shard: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return a `Url`, or the absolute path of a file: workers may run in other folders."""
    place = as_place(shard, storage_options)
    return place if isinstance(place, Url) else str(Path(place).absolute())


class _Hits(NamedTuple):
    """Items that were found for each query, with the name of the metric, and whether larger scores are nearer."""

    scores: NDArray[np.float64]
    ids: NDArray[Any]
    labels: NDArray[Any]
    metric: tuple[str, bool]


def _search_all(shards: Sequence[Any], labels: Sequence[Any], Q: Any, k: int, client: Any) -> _Hits:
    k, n = check_integer(k, "k", 1), len(shards)
    if not n:
        raise BagwiseError("There are no shards to search. Give indexes, or paths of their files.")
    executor = executor_of(client)
    queries = executor.share(Q)
    found = executor.map(_search, shards, labels, [queries] * n, [k] * n, step="Searching", fixed=True)
    return executor.gather([executor.reduce(partial(_nearest, k), found)])[0]


def _search(shard: Any, labels: Any, Q: Any, k: int) -> _Hits:
    index, label_of = (shard, {}) if isinstance(shard, BagIndex) else _open_shards.get(shard, labels)
    about = (index.metric, index.larger_is_nearer)
    if not len(index):
        n = np.shape(Q)[0]
        return _Hits(np.empty((n, 0)), np.empty((n, 0), np.int64), np.empty((n, 0), object), about)
    with nullcontext() if isinstance(shard, BagIndex) else naming(shard):  # of damaged parts, which are read now
        scores, ids = index.search(Q, k)
    labels_found = [label_of.get(id) for id in ids.ravel().tolist()]
    return _Hits(scores, ids, np.array(labels_found, object).reshape(ids.shape), about)


def _nearest(k: int, one: _Hits, other: _Hits) -> _Hits:
    """Return the k nearest of two lists; of equally near ones, those of the first come first."""
    if one.metric != other.metric:
        raise BagwiseError(f"All shards must have one metric; got {one.metric[0]!r} and {other.metric[0]!r}.")
    filled = [hits.ids for hits in (one, other) if hits.ids.size] or [one.ids]
    if len({ids.dtype.kind for ids in filled}) > 1:
        raise BagwiseError("Some shards name items by strings and others by numbers. Use one kind.")
    scores = np.hstack([one.scores, other.scores])
    ids = np.hstack([hits.ids.astype(filled[0].dtype) for hits in (one, other)])
    labels = np.hstack([one.labels, other.labels])
    order = np.argsort(-scores if one.metric[1] else scores, axis=1, kind="stable")[:, :k]
    scores, ids, labels = (np.take_along_axis(array, order, axis=1) for array in (scores, ids, labels))
    return _Hits(scores, ids, labels, one.metric)
