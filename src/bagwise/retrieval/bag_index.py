"""`BagIndex`: search for the nearest histograms, exact or approximate."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.backends import backend
from bagwise._utils.checks import check_integer
from bagwise._utils.threads import number_of_threads
from bagwise.errors import BagwiseError, unknown_name
from bagwise.retrieval.blocks import Block
from bagwise.retrieval.candidates import STRUCTURES, Candidates, Cells
from bagwise.retrieval.files import (
    FILE,
    blocks_from_tensors,
    blocks_to_tensors,
    cells_from_tensors,
    cells_to_tensors,
    ids_from_tensors,
    ids_to_tensors,
    plain_metadata,
)
from bagwise.retrieval.histograms import BLOCK_ITEMS, METRICS, NORMS, Queries, check_histograms, prepare
from bagwise.retrieval.identifiers import Identifiers
from bagwise.retrieval.store import Store

__all__ = ["BagIndex"]

METHODS = ("exact", "approximate")
# Queries that are prepared at a time.
_QUERIES = 4096
# Of indexes by their addresses: an index that has a lock could neither be copied nor pickled.
_LOCKS = tuple(RLock() for _ in range(64))


class _State(NamedTuple):
    """Items of an index, and what has changed since they were put into blocks; replaced as a whole by a search."""

    store: Store
    new: list[Any]  # rows that no block has yet
    removed: list[int]  # numbers of items: those of the store, then the new ones


class BagIndex:
    """Index of histograms that finds those nearest to a query.

    1. `add` puts histograms into an inverted index: for each word the items that have it, and its value in them. Where
       most items have most words, rows are kept dense.
    2. `search` goes through the inverted lists of a query's words, or compares dense rows, and keeps the k nearest.
    3. `save` writes one file, and `load` maps it into memory.

    Parameters
    ----------
    metric : {"hellinger", "chi2", "intersection", "euclidean", "inner"}, default="hellinger"
        The score of an item x for a query q:

        ============== ============================== ==========
        "hellinger"    ``Σ sqrt(q x)``                similarity
        "intersection" ``Σ min(q, x)``                similarity
        "inner"        ``Σ q x``                      similarity
        "chi2"         ``Σ (q - x)² / (q + x)``       distance
        "euclidean"    ``sqrt(Σ (q - x)²)``           distance
        ============== ============================== ==========

        Similarities are those of `bagwise.kernels`. "chi2" is scikit-learn's ``additive_chi2_kernel`` without its sign,
        and ``Σq + Σx - 2 k(q, x)`` for `bagwise.kernels.chi2`. "hellinger", "intersection" and "chi2" need non-negative
        histograms.
    method : {"exact", "approximate"}, default="exact"
        "exact" compares with all items. "approximate" gets candidates from faiss (``pip install "bagwise[ann]"``) and
        ranks them by their exact scores.
    normalize : {"l1", "l2"}, default=None
        Norm that items and queries are first divided by. With None, histograms are compared as they are; then items of
        large sums have large similarities to all queries.
    n_candidates : int, default=100
        With method="approximate": number of items per query whose exact scores are computed; at least k.
    structure : {"auto", "flat", "ivf", "hnsw"}, default="auto"
        With method="approximate": faiss compares all vectors ("flat"), those in the cells nearest to the query ("ivf"),
        or searches a graph of neighbours ("hnsw"). "auto" is "flat" up to 10,000 items and "ivf" beyond.
    n_probe : int, default=16
        With structure="ivf": number of cells, of about 2 sqrt(n), that are searched. More cells raise recall and time.
    random_state : int, default=0
    n_jobs : int, default=None
        Number of threads. Results of exact search do not depend on it.
    device : {"cpu", "cuda"}, default=None
        Where exact search compares dense histograms. None is "cpu".
    metadata : dict, default=None
        Data to keep in the file, at most 64 kB of JSON, such as the name of the model that made the histograms.

    Attributes
    ----------
    n_candidates, n_probe, n_jobs, device, metadata
        As given; may be changed at any time.

    See Also
    --------
    bagwise.kernels.additive_kernel : All pairs of two sets of histograms.
    bagwise.metrics.mean_average_precision : Measures the quality of a ranking.

    Notes
    -----
    Values are held as float32: an inverted index takes 6 bytes per non-zero and 8 per item; blocks of items with more
    than 40 % non-zeros are dense. Scores are computed in float64 in the order of the words, wherever items are held.
    Dense rows are first compared in float32; those that can be among the nearest, by a bound on rounding errors, then
    in float64. Results do not depend on `n_jobs`.

    Exact search takes one step per entry in the inverted lists of a query's words. On sparse histograms that is often
    faster than approximate search, whose vectors are dense and take 4 bytes per word and item in addition. Approximate
    search pays for many items with many non-zeros. It misses items in cells that are not searched; see `n_probe`.
    Queries with fewer than k candidates are searched exactly. New items go into existing cells; cells are learned again
    at the next search when there are four times the items, or a quarter was removed. The graph of "hnsw" is not saved,
    but built again after loading.

    Items are in blocks of up to 65,536, which never change. `add` and `remove` are cheap, also of one item at a time:
    the first search after them puts new items into blocks, and writes those anew that have lost some, which takes a few
    hundredths of a second for each. Several threads may search at the same time, but not while items are added or
    removed.

    Examples
    --------
    >>> from bagwise import BagIndex
    >>> index = BagIndex("intersection").add([[4, 3, 0], [0, 1, 4], [2, 2, 2]], ids=["cat", "dog", "both"])
    >>> scores, ids = index.search([[3, 3, 0], [0, 0, 5]], k=2)
    >>> ids
    array([['cat', 'both'],
           ['dog', 'both']], dtype=object)
    >>> scores
    array([[6., 4.],
           [4., 2.]])
    >>> index.remove(["both"]).add([[0, 2, 9]], ids=["dogs"]).search([[0, 0, 5]], k=1)[1]
    array([['dogs']], dtype=object)
    """

    def __init__(
        self,
        metric: str = "hellinger",
        *,
        method: str = "exact",
        normalize: str | None = None,
        n_candidates: int = 100,
        structure: str = "auto",
        n_probe: int = 16,
        random_state: int = 0,
        n_jobs: int | None = None,
        device: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        for name, value, known in (
            ("metric", metric, METRICS),
            ("method", method, METHODS),
            ("structure", structure, STRUCTURES),
        ):
            if not isinstance(value, str) or value not in known:
                raise unknown_name(name, value, known)
        if normalize is not None and normalize not in NORMS:
            raise unknown_name("normalize", normalize, NORMS, also="None")
        self._fixed: dict[str, Any] = {
            "metric": metric,
            "method": method,
            "normalize": normalize,
            "structure": structure,
            "random_state": check_integer(random_state, "random_state", 0, 2**31 - 1),
        }
        self.n_candidates = check_integer(n_candidates, "n_candidates", 1)
        self.n_probe = check_integer(n_probe, "n_probe", 1)
        self.n_jobs = n_jobs
        backend("retrieval", device)  # raises if there is none
        self.device = device
        self.metadata: dict[str, Any] = dict(metadata or {})
        self._metric = METRICS[metric]
        self._ids = Identifiers()
        self._state: _State | None = None
        self._candidates = self._new_candidates()

    def _new_candidates(self, cells: Cells | None = None) -> Candidates | None:
        if self.method == "exact":
            return None
        return Candidates(self._metric, self._fixed["structure"], self._fixed["random_state"], cells)

    @property
    def metric(self) -> str:
        """The metric."""
        return self._fixed["metric"]

    @property
    def method(self) -> str:
        """The method."""
        return self._fixed["method"]

    @property
    def normalize(self) -> str | None:
        """The norm that histograms are divided by."""
        return self._fixed["normalize"]

    @property
    def larger_is_nearer(self) -> bool:
        """Whether scores are similarities rather than distances."""
        return self._metric.larger_is_nearer

    @property
    def n_words(self) -> int | None:
        """Number of words of the histograms; None until some are added."""
        return None if self._state is None else self._state.store.n_words

    @property
    def ids(self) -> NDArray[Any]:
        """The identifiers of all items in the order of adding: int64, or strings as objects. A copy."""
        return self._ids.values.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks and of the vectors of faiss, without identifiers."""
        vectors = 0 if self._candidates is None else self._candidates.n_bytes
        return sum(block.n_bytes for block in self.blocks()) + vectors

    @property
    def _n_threads(self) -> int:
        return number_of_threads(self.n_jobs)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, X: Any, ids: Any = None) -> BagIndex:
        """Add histograms.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_words)
            The first call sets the number of words.
        ids : sequence of n int or n str, default=None
            Identifiers, unique in the index and all of one type. With None, items are numbered, from 0 or from one more
            than the largest number that any item had.

        Returns
        -------
        index : BagIndex
            The index itself. If an error is raised, nothing was added.
        """
        rows = check_histograms(X, self._metric, self.n_words, "Histograms")
        new = self._ids.new(ids, rows.shape[0])
        prepared = [some for some, _ in self._prepared(rows, BLOCK_ITEMS) if some.shape[0]]
        self._extend(prepared, new, rows.shape[1])
        return self

    def _extend(self, prepared: list[Any], ids: NDArray[Any], n_words: int) -> None:
        """Add rows in the form that the index holds; there are blocks of them as soon as they fill one."""
        state = self._state or _State(Store(self._metric, n_words), [], [])
        first = len(self) + len(state.removed)
        if first + len(ids) - len(state.store) < BLOCK_ITEMS:
            state.new.extend(prepared)
            self._state = state
        else:
            first = len(self._write(state._replace(new=state.new + prepared), first + len(ids))) - len(ids)
        self._ids.add(ids, first)

    def append(self, other: BagIndex) -> BagIndex:
        """Add the items of an index of the same metric and normalisation, numbered on. Returns the index itself."""
        if (self.metric, self.normalize) != (other.metric, other.normalize):
            theirs = f"{other.metric!r} and {other.normalize!r}"
            raise BagwiseError(f"Both indexes must have the same metric and normalize, not {self!r} and {theirs}.")
        for block in other.blocks():
            n_words = other.n_words or 0
            if self.n_words not in (None, n_words):
                raise BagwiseError(f"Both indexes must have the same words; one has {self.n_words}, one {n_words}.")
            self._extend([block.rows()], self._ids.new(None, len(block)), n_words)
        return self

    def spill(self, folder: str | os.PathLike[str]) -> None:
        """Move the blocks that are full to files of a folder, and map them: for indexes larger than memory."""
        if self._state is not None:
            self._state = self._state._replace(store=self._state.store.spilled(Path(folder)))

    def part(self, first: int, last: int) -> BagIndex:
        """Return an index of the blocks from `first` up to `last`, whose items are numbered as they are in this one."""
        other, store = self.copy(), self._written()
        assert store is not None
        start, part = sum(map(len, store.blocks[:first])), replace(store, blocks=store.blocks[first:last])
        other._state = _State(part, [], [])
        other._ids = Identifiers(np.arange(start, start + len(part)), start + len(part))
        return other

    def remove(self, ids: Any) -> BagIndex:
        """Remove items.

        Parameters
        ----------
        ids : sequence of int or str
            Unique identifiers of items in the index.

        Returns
        -------
        index : BagIndex
            The index itself. If an error is raised, nothing was removed.
        """
        numbers = self._ids.remove(ids)
        if self._state is not None:
            self._state.removed.extend(numbers)
        return self

    def _write(self, state: _State, n_items: int) -> Store:
        """Put the rows that came into blocks, and leave out those of all `n_items` items that were removed."""
        kept = None
        if state.removed:
            kept = np.ones(n_items, dtype=bool)
            kept[state.removed] = False
        store = state.store.changed(state.new, kept, self._n_threads)
        self._state = _State(store, [], [])
        if kept is not None:
            self._ids.renumber()
            if self._candidates is not None:
                self._candidates.renumber(kept)
        return store

    def _written(self) -> Store | None:
        """Return the items in blocks, after all changes; None until some were added."""
        with self._lock:
            state = self._state
            if state is not None and (state.new or state.removed):
                return self._write(state, len(self) + len(state.removed))
            return state and state.store

    @property
    def _lock(self) -> RLock:
        """What one of several searches holds while it puts changes into blocks and into the vectors of faiss."""
        return _LOCKS[id(self) // 16 % len(_LOCKS)]

    def copy(self) -> BagIndex:
        """Return an index of the same items that changes on its own. Both share the memory of the items."""
        other = copy.copy(self)
        other._fixed, other.metadata, other._ids = dict(self._fixed), dict(self.metadata), self._ids.copy()
        if self._state is not None:
            other._state = _State(self._state.store, self._state.new.copy(), self._state.removed.copy())
        other._candidates = other._new_candidates()
        return other

    def renumber(self) -> BagIndex:
        """Give the items the numbers 0, 1, … in the order of adding for identifiers. Returns the index itself."""
        self._written()
        self._ids = Identifiers(np.arange(len(self)), len(self))
        return self

    def search(self, Q: Any, k: int = 10) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Find the items nearest to each query.

        Parameters
        ----------
        Q : array-like or sparse matrix of shape (n_queries, n_words)
        k : int, default=10
            Number of items per query, at most all of the index.

        Returns
        -------
        scores : ndarray of float64, shape (n_queries, min(k, len(index)))
            Nearest first; see `metric`.
        ids : ndarray of int64 or of str objects, same shape
            Identifiers of these items. Equally near items come in the order of adding.
        """
        k = check_integer(k, "k", 1)
        rows = check_histograms(Q, self._metric, self.n_words, "Queries")
        store = self._written()
        if store is None or len(self) == 0:
            raise BagwiseError("The index is empty; add histograms before searching.")
        k = min(k, len(self))
        ids = np.empty((rows.shape[0], k), dtype=object if self._ids.kind == "str" else np.int64)
        scores = np.empty((rows.shape[0], k))
        for prepared, part in self._prepared(rows, _QUERIES):
            queries = Queries.of(prepared, self._metric)
            if self._candidates is None:
                keys, items = store.search(queries, k, self._n_threads, backend("retrieval", self.device))
            else:
                keys, items = self._search_candidates(self._candidates, store, prepared, queries, k)
            ids[part], scores[part] = self._ids.take(items), self._metric.scores(keys)
        return scores, ids

    def _search_candidates(
        self, candidates: Candidates, store: Store, rows: Any, queries: Queries, k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        n_candidates = max(check_integer(self.n_candidates, "n_candidates", 1), k)
        n_probe = check_integer(self.n_probe, "n_probe", 1)
        with self._lock:
            candidates.update(store, self._n_threads)
        items = candidates.search(rows, n_candidates, n_probe, self._n_threads)
        keys = store.keys(queries, items, self._n_threads)
        order = np.argsort(keys, axis=1, kind="stable")[:, :k]
        keys, items = np.take_along_axis(keys, order, axis=1), np.take_along_axis(items, order, axis=1)
        few = np.flatnonzero((items < 0).any(axis=1))
        if len(few):
            queries = Queries.of(rows[few], self._metric)
            keys[few], items[few] = store.search(queries, k, self._n_threads, backend("retrieval", self.device))
        return keys, items

    def blocks(self) -> list[Block]:
        """Return the items in the form that they are held in, in their order."""
        store = self._written()
        return [] if store is None else list(store.blocks)

    def row(self, number: int) -> sp.csr_array:
        """Return the item with this number, in the order of adding, as a CSR row of what is held.

        That is normalised, and with the metric "hellinger" its square roots.
        """
        first = 0
        for block in self.blocks():
            if number < first + len(block):
                words, values = block.row(number - first)
                starts = np.array([0, len(words)])
                return sp.csr_array((values, words, starts), shape=(1, self.n_words))
            first += len(block)
        raise BagwiseError(f"There is no item {number}: there are {first}, numbered from 0.")

    def contributions(self, query: Any, numbers: Sequence[int]) -> sp.csr_array:
        """Return what each word adds to the scores of items: the terms of the sum that defines the metric.

        Parameters
        ----------
        query : array-like or sparse matrix of shape (1, n_words)
        numbers : sequence of int
            Items by their numbers, in the order of adding.

        Returns
        -------
        terms : CSR array of shape (n_items, n_words)
            Rows add up to the scores that `search` gives; with the metric "euclidean", to their squares.

        Examples
        --------
        >>> index = BagIndex("intersection").add([[4, 3, 0], [0, 1, 4]])
        >>> index.contributions([[1, 5, 2]], [1, 0]).toarray()
        array([[0., 1., 2.],
               [1., 3., 0.]])
        """
        rows = check_histograms(query, self._metric, self.n_words, "Queries")
        one = sp.csr_array(next(self._prepared(rows, 1))[0]).astype(np.float64)
        items = np.asarray(numbers, dtype=np.int64)
        shape = (len(items), one.shape[1])
        if self._metric.difference is not None:  # words of the items that the query does not have count too
            parts = [sp.csr_array((0, shape[1]))]
            for number in items.tolist():
                other = self.row(number).astype(np.float64)
                words = (one != other).indices
                x, z = (row[:, words].toarray()[0] for row in (one, other))
                parts.append(sp.csr_array((self._metric.difference(x, z), words, [0, len(words)]), (1, shape[1])))
            return sp.csr_array(sp.vstack(parts))
        words, query_values = one.indices.astype(np.int64), one.data
        values, first = np.zeros((len(items), len(words))), 0
        for block in self.blocks():
            inside = np.flatnonzero((items >= first) & (items < first + len(block)))
            if len(inside):
                values[inside] = block.values_of(words, items[inside] - first)
            first += len(block)
        terms = self._metric.term(query_values, values)
        places, columns = np.nonzero(terms)
        return sp.csr_array((terms[places, columns], (places, words[columns])), shape=shape)

    def _prepared(self, rows: Any, step: int) -> Iterator[tuple[Any, slice]]:
        """Yield checked rows in the form that the index holds, some at a time."""
        for first in range(0, rows.shape[0], step):
            part = slice(first, first + step)
            some = rows if rows.shape[0] <= step else rows[part]
            yield prepare(some, self._metric, self.normalize), part

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the index to one file (safetensors, no pickle), wholly or not at all. `load` opens it.

        What is in a file already is copied in pieces, so a mapped index larger than memory can be saved. It may replace
        the file that it was loaded from.
        """
        return FILE.save(path, *self.to_parts(), private=True)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = True, verify: bool = False, n_jobs: int | None = None
    ) -> BagIndex:
        """Open a file that `save` wrote. No code in it is run.

        Parameters
        ----------
        path : path
        mmap : bool, default=True
            Map inverted lists, dense rows and identifiers into memory; only sizes and places are checked. With False,
            everything is read and checked. Items can be added and removed either way; the file does not change.
        verify : bool, default=False
            Check what is mapped as well, which reads it once.
        n_jobs : int, default=None

        Returns
        -------
        index : BagIndex
        """
        checked = verify or not mmap

        def make(header: dict[str, Any], tensors: dict[str, Any]) -> BagIndex:
            return cls.from_parts(header, tensors, verify=checked, n_jobs=n_jobs)

        return FILE.load(path, make, mmap=mmap, verify=verify)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return header and tensors of the file, for other files that hold an index."""
        store, cells = self._written(), None
        if store is not None and self._candidates is not None and len(store):
            self._candidates.update(store, self._n_threads)
            cells = self._candidates.cells()
        header = {
            "parameters": self._fixed | {"n_candidates": self.n_candidates, "n_probe": self.n_probe},
            "metadata": plain_metadata(self.metadata),
            "n_words": self.n_words,
            "ids": self._ids.kind,
            "next_number": self._ids.next_number,
        }
        tensors = blocks_to_tensors(self.blocks(), self.n_words or 0)
        return header, tensors | ids_to_tensors(self._ids) | cells_to_tensors(cells)

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], tensors: Mapping[str, Any], *, verify: bool, n_jobs: int | None = None
    ) -> BagIndex:
        """Undo `to_parts`, for a header and tensors that `FILE` accepts; `verify` looks at all values."""
        for name, value in header["parameters"].items():
            if type(value) is int and abs(value) >= 2**63:
                raise BagwiseError(f"its {name!s:.40} is {value!r:.40}; expected an integer of 64 bits")
        index, n_words = cls(**header["parameters"], n_jobs=n_jobs, metadata=header["metadata"]), header["n_words"]
        blocks = blocks_from_tensors(tensors, n_words or 0, verify)
        if n_words is not None:
            index._state = _State(Store(index._metric, n_words, tuple(blocks)), [], [])
        index._ids = ids_from_tensors(header, tensors, verify)
        index._candidates = index._new_candidates(cells_from_tensors(tensors))
        return index

    def __repr__(self) -> str:
        words = "no words yet" if self.n_words is None else f"{self.n_words} words"
        return f"<BagIndex: {len(self)} items, {words}, {self.method} {self.metric}>"
