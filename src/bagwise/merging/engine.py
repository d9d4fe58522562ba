"""The merging engine: how words are merged, whatever the criterion.

A criterion says what a good merge is. The engine loads the data (`bagwise.merging.data`), merges words at no cost
first (`fold`), chooses the search, and runs it in chunks between which progress is shown, callbacks are made and
interrupts are handled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from bagwise._utils.checks import check_integer, check_n_jobs
from bagwise._utils.devices import device_module
from bagwise._utils.memory import Limit, resolve_limit
from bagwise._utils.progress import ProgressBar
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.merging.criteria.base import AdditiveScore, Criterion, TraceRatio
from bagwise.merging.data import Options, fold_ties, load
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.rows import DenseRows
from bagwise.merging.scaling import SCALINGS
from bagwise.merging.scoring import Scoring
from bagwise.merging.searches import SEARCHES, sum_search
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.ratios import BoundSearch, equal_merges
from bagwise.merging.searches.sums import SumSearch, join_early

__all__ = ["Callback", "Engine", "MergingInterrupted", "merge"]

Callback = Callable[[int, tuple[int, int], float], Any]
STORES = ("auto", "dense", "sparse")
# Compiled code runs for about this long between two checks of progress, callbacks and Ctrl-C.
_CHUNK_SECONDS = 0.05


class MergingInterrupted(KeyboardInterrupt):
    """Raised when merging is interrupted (Ctrl-C); a ``KeyboardInterrupt`` that holds the merges done so far.

    Attributes
    ----------
    hierarchy : Hierarchy
        The merges done so far.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__("merging was interrupted; the merges done so far are in this exception's .hierarchy")
        self.hierarchy = hierarchy


class Start(NamedTuple):
    """Merging about to begin: merges that need no search, then a search over the words that are left."""

    folded: NDArray[np.int64]  # (f, 2); the first of them do not change the score
    words: NDArray[np.int64]  # the words that the search knows as 0, 1, …
    search: Search
    scores: NDArray[np.float64] | None = None  # (f,) after these merges; None: none of them changes the score


class Engine:
    """One run of merging: check the options, `load` the data, `run`.

    The parameters are those of `merge_words`; `has_labels` says whether "auto" stands for a supervised criterion.

    Attributes
    ----------
    criterion : Criterion
    options : Options
    data : Samples, Sums or Pairs
        What was loaded.
    store : str or None
        The store in use, once `run` has chosen it. None for criteria that are not trace ratios.
    """

    def __init__(
        self,
        criterion: str | Criterion = "auto",
        *,
        has_labels: bool = True,
        kernel: str | AdditiveKernel = "linear",
        search: str = "bound",
        store: str = "auto",
        memory_limit: Limit = None,
        n_jobs: int | None = None,
        scaling: str | None = "auto",
        device: str | None = None,
        verbose: int = 0,
    ) -> None:
        kernel = kernel if isinstance(kernel, AdditiveKernel) else AdditiveKernel(kernel)
        for name, value, known in (("search", search, SEARCHES), ("store", store, STORES)):
            if value not in known:
                raise unknown_name(name, value, known)
        if scaling is not None and scaling not in SCALINGS:
            raise unknown_name("scaling", scaling, SCALINGS, "None")
        if search != "bound" and store not in ("auto", "dense"):
            raise BagwiseError(
                f"store={store!r} computes rows when they are needed, which search={search!r} does not support. Use "
                "search='bound', or store='dense'."
            )
        of_ratios = kernel.name != "linear" or search != "bound" or store != "auto"
        self.criterion = resolve_criterion(criterion, has_labels=has_labels, of_ratios=of_ratios)
        if not isinstance(self.criterion, TraceRatio):
            for name, value, usual in (("kernel", kernel.name, "linear"), ("store", store, "auto")):
                if value != usual:
                    raise BagwiseError(
                        f"{name}={value!r} is for trace ratio criteria, and {self.criterion.name!r} is not one. Use "
                        f"{name}={usual!r}."
                    )
        elif search == "polar" and self.criterion.may_be_indefinite:
            raise BagwiseError(
                "search='polar' needs a preferred graph without negative eigenvalues; use search='bound'."
            )
        if scaling not in ("auto", None) and not self.criterion.scales_measurements:
            names = [repr(name) for name, known in NAMED_CRITERIA.items() if known.scales_measurements]
            raise BagwiseError(
                f"scaling={scaling!r} is for the criteria {', '.join(names)}, and {self.criterion.name!r} takes data "
                "as they are. Use scaling='auto', or scale the columns of X."
            )
        resolve_limit(memory_limit)  # raises where it is not a size
        device_module(device)  # raises where there is none
        self._n_threads = effective_n_jobs(check_n_jobs(n_jobs))
        self._show_progress = verbose > 0
        self.options = Options(
            self.criterion, kernel, search, store, scaling, memory_limit, device, self._n_threads, self._show_progress
        )
        self.data: Any = None
        self.store: str | None = None
        self._module: Any = None

    def load(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        estimator: BaseEstimator | None = None,
    ) -> Self:
        """Load the data; an `estimator` gets the number and the names of their columns."""
        self.data, self._module = load(X, y, sample_weight, self.options, estimator)
        return self

    def run(self, n_groups: int = 1, callback: Callback | None = None) -> Hierarchy:
        """Merge down to `n_groups`."""
        d, name = self.data.shape[1], self.criterion.name
        if d <= n_groups:
            return Hierarchy(d, np.empty((0, 2), dtype=np.int64), np.empty(0), name)
        return _advance(self.start(), d, n_groups, callback, name, self._show_progress)

    def start(self) -> Start:
        """Find the merges that cost nothing, the words that are left, and start the search over these."""
        criterion, data, d = self.criterion, self.data, self.data.shape[1]
        how = (self._n_threads, self._show_progress)
        if isinstance(criterion, TraceRatio):
            folded, words, rows = data.rows(self._module, self.options)
            self.store = rows.store
            equal = equal_merges(rows, self._n_threads) if self.options.kernel.name == "linear" else None
            return Start(folded, words, equal or self._module.ratio_search(rows, self.options.search, *how))
        if isinstance(criterion, AdditiveScore):
            who = type(criterion).__name__
            return _start_additive(who, data.scoring(), d, lambda scoring: self._module.sum_search(scoring, *how))
        search = criterion.search(data.X, data.labels, self.options.limit)
        if not isinstance(search, Search) or search.n_words != d:
            raise BagwiseError(
                f"{type(criterion).__name__}.search must return a Search over all {d} words; got {search!r}."
            )
        return _unfolded(search)


def _start_additive(who: str, scoring: Scoring, n_words: int, search: Callable[[Scoring], Search]) -> Start:
    """Check what a user's criterion gives, fold the words that it says are alike, and search over the others."""
    folded, words = fold_ties(who, scoring, n_words)
    early = scoring.early_merges()
    scores: NDArray[np.float64] | None = None
    if early is not None:
        free = len(folded)
        lost = join_early(scoring, early)
        early, words = _named(early, words, scoring)
        folded = np.concatenate([folded, early])
    begun = search(scoring)
    if early is not None:  # backwards from the score that the search begins with
        left = np.append(np.cumsum(lost[::-1])[::-1], 0.0)
        scores = begun.start_score + np.concatenate([np.full(free, left[0]), left[1:]])
    return Start(folded, words, begun, scores)


def _named(
    early: NDArray[np.int64], words: NDArray[np.int64], scoring: Scoring
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Name the groups of early merges by their smallest words, and order the states that are left by these names.

    Returns the merges, and the words that are left.
    """
    name, merges = words.copy(), np.empty_like(early)
    for k, (kept, other) in enumerate(early.tolist()):
        merges[k] = sorted((name[kept], name[other]))
        name[kept] = merges[k, 0]
    left = np.delete(np.arange(len(words)), early[:, 1])
    left = left[np.argsort(name[left], kind="stable")]
    scoring.states = scoring.states[left]
    return merges, name[left]


def _unfolded(search: Search) -> Start:
    return Start(np.empty((0, 2), dtype=np.int64), np.arange(search.n_words), search)


def merge(
    problem: Scoring | DenseRows,
    n_groups: int = 1,
    callback: Callback | None = None,
    *,
    name: str = "",
    refused: NDArray[np.bool_] | None = None,
    unmerged: NDArray[np.bool_] | None = None,
) -> Hierarchy:
    """Merge words, or groups, down to `n_groups` from their states or from A and B alone.

    Parameters
    ----------
    problem : Scoring or DenseRows
        Searches write to it, unless there are pairs that are refused.
    n_groups : int, default=1
    callback : callable, default=None
        As in `merge_words`.
    name : str, default=""
        That of the criterion.
    refused : ndarray of bool, shape (n_words, n_words), default=None
        Pairs that may not become parts of one group; symmetric. Merging ends where only such pairs are left.
    unmerged : ndarray of bool, shape (n_words,), default=None
        Words that are not merged.
    """
    n = problem.size
    if n <= n_groups:
        return Hierarchy(n, np.empty((0, 2), dtype=np.int64), np.empty(0), name)
    if refused is not None or unmerged is not None:
        barred = np.zeros((n, n), dtype=np.bool_) if refused is None else refused.copy()
        if unmerged is not None:
            barred[unmerged] = barred[:, unmerged] = True
        np.fill_diagonal(barred, False)
        start = _unfolded(_search_allowed(problem, barred))
    elif isinstance(problem, Scoring):
        start = _start_additive(name, problem, n, sum_search)
    else:
        start = _unfolded(equal_merges(problem) or BoundSearch(problem))
    return _advance(start, n, n_groups, callback, name)


def _search_allowed(problem: Scoring | DenseRows, refused: NDArray[np.bool_]) -> Search:
    """Start a search over a copy of a problem, for pairs that are not refused; these are written to."""
    if isinstance(problem, DenseRows):
        return BoundSearch(DenseRows(np.where(refused, -np.inf, problem.A), problem.B.copy()))
    copied = copy(problem)
    copied.states = problem.states.copy()
    return SumSearch(copied, refused=refused)


def _advance(
    start: Start, d: int, n_groups: int, callback: Callback | None, name: str, show_progress: bool = False
) -> Hierarchy:
    """Merge `d` words in chunks down to `n_groups`, or until no pair is left that may be merged."""
    folded, words, search, early = start
    n_merges = max(d - int(n_groups), 0)
    merges, scores = np.full((n_merges, 2), -1, dtype=np.int64), np.empty(n_merges)
    done = min(len(folded), n_merges)
    merges[:done], scores[:done] = folded[:done], search.start_score if early is None else early[:done]
    reported, chunk, ended = 0, 16, False
    with ProgressBar("merging words", n_merges, enabled=show_progress) as bar:
        try:
            while True:
                while callback is not None and reported < done:
                    s, t = merges[reported].tolist()
                    reported += 1
                    answer = callback(d - reported, (s, t), float(scores[reported - 1]))
                    if isinstance(answer, (bool, np.bool_)) and answer:
                        return Hierarchy(d, merges[:reported], scores[:reported], name)
                bar.update(done)
                if ended or done == n_merges:
                    return Hierarchy(d, merges[:done], scores[:done], name)
                stop = min(done + chunk, n_merges)
                started = time.perf_counter()
                search.advance(merges[done:stop], scores[done:stop])
                n_found = int(np.count_nonzero(merges[done:stop, 0] >= 0))
                ended = n_found < stop - done
                stop = done + n_found
                merges[done:stop] = words[merges[done:stop]]
                done = stop
                chunk = chunk * 2 if time.perf_counter() - started < _CHUNK_SECONDS else max(chunk // 2, 1)
        except KeyboardInterrupt as interrupt:
            raise MergingInterrupted(Hierarchy(d, merges[:done], scores[:done], name)) from interrupt


def check_request(n_groups: Any, callback: Any) -> None:
    """Raise unless `n_groups` is a positive integer and `callback` a function or None."""
    check_integer(n_groups, "n_groups", 1)
    if callback is not None and not callable(callback):
        raise BagwiseError(f"callback must be callable, got {callback!r}.")
