"""Search in one index by the workers of a cluster, each of which searches some of its blocks."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import check_integer
from bagwise.distributed.executors import Executor, executor_of
from bagwise.errors import BagwiseError
from bagwise.retrieval.bag_index import BagIndex

__all__ = ["SearchedByWorkers", "search"]

_BLOCKS = 4  # that are searched by one task

_Found = tuple[NDArray[np.float64], NDArray[np.int64]]


def search(
    path: str | os.PathLike[str], Q: Any, k: int = 10, *, client: Any = None
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Find the items of an index that are nearest to each query, block by block on the workers of a cluster.

    Parameters
    ----------
    path : path
        File that `BagIndex.save` wrote. Workers map it where it is, so that they must share its folder.
    Q : array-like or sparse matrix of shape (n_queries, n_words)
    k : int, default=10
    client : distributed.Client, default=None
        Whose workers search. None: this process.

    Returns
    -------
    scores : ndarray of float64, shape (n_queries, min(k, n_items))
    ids : ndarray of int64 or of str objects, same shape
        As those of `BagIndex.search`. Each task gives k items per query for four blocks, and results of neighbours are
        merged in pairs.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise import BagIndex, distributed
    >>> path = BagIndex().add([[4, 3, 0], [0, 1, 4]], ["a", "b"]).save(tempfile.mkdtemp() + "/letters.index")
    >>> scores, ids = distributed.search(path, [[0, 1, 3]], k=1)
    >>> ids.tolist()
    [['b']]
    """
    index = BagIndex.load(path)
    scores, numbers = SearchedByWorkers(index, path, BagIndex.load, executor_of(client)).search(Q, k)
    return scores, index.ids[numbers]


class SearchedByWorkers:
    """An index whose blocks are searched by the workers of an executor, which open its file.

    Parameters
    ----------
    index : BagIndex
        As `load` opens it here.
    path : path
        Of its file.
    load : callable
        Opens the file on a worker: a function of a module, which takes the path.
    executor : Executor
    """

    def __init__(
        self, index: BagIndex, path: str | os.PathLike[str], load: Callable[[str], BagIndex], executor: Executor
    ) -> None:
        self.index, self._executor = index, executor
        self._open = partial(_opened, load, str(Path(path).absolute()), os.stat(path).st_mtime_ns)

    @property
    def metric(self) -> str:
        """The metric."""
        return self.index.metric

    @property
    def larger_is_nearer(self) -> bool:
        """Whether scores are similarities rather than distances."""
        return self.index.larger_is_nearer

    def search(self, Q: Any, k: int = 10) -> _Found:
        """Return what `BagIndex.search` does, with the numbers of items in place of their identifiers."""
        k, n = check_integer(k, "k", 1), len(self.index.blocks())
        if not n:
            raise BagwiseError("The index is empty; add histograms before searching.")
        starts, queries = list(range(0, n, _BLOCKS)), self._executor.share(Q)
        shared = [self._open] * len(starts), starts, [queries] * len(starts), [k] * len(starts)
        hits = self._executor.map(_search, *shared, step="Searching", fixed=True)
        nearest = partial(_nearest, k, self.larger_is_nearer)
        return self._executor.gather([self._executor.reduce(nearest, hits)])[0]


@lru_cache(maxsize=4)
def _opened(load: Callable[[str], BagIndex], path: str, changed: int) -> BagIndex:
    """Open an index once in a process, and again when its file has `changed`, a time."""
    try:
        return load(path)
    except (OSError, BagwiseError) as error:
        raise BagwiseError(
            f"The index {path} cannot be opened where it is searched: {str(error).rstrip('.')}. It must be in a folder "
            "that all workers share."
        ) from error


def _search(opened: Callable[[], BagIndex], first: int, Q: Any, k: int) -> _Found:
    return opened().part(first, first + _BLOCKS).search(Q, k)


def _nearest(k: int, larger_is_nearer: bool, one: _Found, other: _Found) -> _Found:
    """Return the k nearest of two lists; of equally near ones, those of the first come first."""
    scores, numbers = (np.hstack(pair) for pair in zip(one, other, strict=True))
    order = np.argsort(-scores if larger_is_nearer else scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(numbers, order, axis=1)
