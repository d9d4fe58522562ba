"""The merging engine: how words are merged, whatever the criterion.

A criterion says what a good merge is. The engine loads the data (`bagwise.merging.data`), merges words at no cost
first (`fold`), chooses the store and the search, and runs it in chunks between which progress is shown, callbacks are
made and interrupts are handled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from bagwise._utils.checks import check_integer, check_n_jobs
from bagwise._utils.devices import device_module
from bagwise._utils.matrices import (
    check_non_negative,
)
from bagwise._utils.memory import Limit, check_memory, resolve_limit
from bagwise._utils.progress import ProgressBar
from bagwise.errors import BagwiseError, in_python, unknown_name
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.merging.criteria.base import AdditiveScore, Criterion, TraceRatio
from bagwise.merging.data import Options, Samples, load
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.scaling import SCALINGS
from bagwise.merging.scoring import Scoring, WeightLoss
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.device import DeviceBoundSearch, DevicePartnerSearch
from bagwise.merging.searches.kernel import KernelSearch, KernelTraces
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.searches.ratios import SEARCHES, FactoredSearch, equal_merges
from bagwise.merging.searches.sums import COMPILED, SumSearch, join_early
from bagwise.merging.searches.weights import SortedSearch
from bagwise.merging.stores.dense import DenseStore, bytes_of_pairs, check_fits
from bagwise.merging.stores.device import DeviceStore
from bagwise.merging.stores.factored import FactoredStore, make_factored_store

__all__ = ["Callback", "Engine", "MergingInterrupted", "merge_scoring"]

Callback = Callable[[int, tuple[int, int], float], Any]
STORES = ("auto", "dense", "sparse")
# Compiled code runs for about this long between two checks of progress, callbacks and Ctrl-C.
_CHUNK_SECONDS = 0.05
# Merges between two reports, where there is no time to be looked at.
_REPORTED = 256


def _no_report(done: int) -> None:
    """Report nothing."""


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
        self._xp: Any = np

    def load(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        estimator: BaseEstimator | None = None,
    ) -> Self:
        """Load the data; an `estimator` gets the number and the names of their columns."""
        self.data, self._xp = load(X, y, sample_weight, self.options, estimator)
        return self

    def run(self, n_groups: int = 1, callback: Callback | None = None) -> Hierarchy:
        """Merge down to `n_groups`."""
        d, name = self.data.shape[1], self.criterion.name
        n_merges = max(d - int(n_groups), 0)
        merges, scores = np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges)
        if n_merges == 0:
            return Hierarchy(d, merges, scores, name)
        folded, words, search, early = self.start()
        done = min(len(folded), n_merges)
        merges[:done], scores[:done] = folded[:done], search.start_score if early is None else early[:done]
        reported, chunk = 0, 16
        with ProgressBar("merging words", n_merges, enabled=self._show_progress) as bar:
            try:
                while True:
                    while callback is not None and reported < done:
                        s, t = merges[reported].tolist()
                        reported += 1
                        answer = callback(d - reported, (s, t), float(scores[reported - 1]))
                        if isinstance(answer, (bool, np.bool_)) and answer:
                            return Hierarchy(d, merges[:reported], scores[:reported], name)
                    bar.update(done)
                    if done == n_merges:
                        return Hierarchy(d, merges, scores, name)
                    stop = min(done + chunk, n_merges)
                    started = time.perf_counter()
                    search.advance(merges[done:stop], scores[done:stop])
                    merges[done:stop] = words[merges[done:stop]]
                    done = stop
                    chunk = chunk * 2 if time.perf_counter() - started < _CHUNK_SECONDS else max(chunk // 2, 1)
            except KeyboardInterrupt as interrupt:
                raise MergingInterrupted(Hierarchy(d, merges[:done], scores[:done], name)) from interrupt

    def start(self) -> Start:
        """Find the merges that cost nothing, the words that are left, and start the search over these."""
        criterion, data, d = self.criterion, self.data, self.data.shape[1]
        if isinstance(criterion, TraceRatio):
            if self.options.kernel.name != "linear":
                return self._start_in_kernel_space()
            folded, words, store = self._make_store()
            search = equal_merges(store, self._n_threads)
            if search is not None:
                return Start(folded, words, search)
            if isinstance(store, DeviceStore):
                return Start(folded, words, DeviceBoundSearch(store))
            if isinstance(store, DenseStore):
                return Start(folded, words, SEARCHES[self.options.search](store, self._n_threads))
            return Start(folded, words, FactoredSearch(store, self._n_threads, self._show_progress))
        if isinstance(criterion, AdditiveScore):
            other = DevicePartnerSearch if self._xp is not np else None
            who = type(criterion).__name__
            return _start_additive(who, data.scoring(), d, self._n_threads, self._show_progress, other)
        own = criterion.search(data.X, data.labels, self.options.limit)
        if not isinstance(own, Search) or own.n_words != d:
            raise BagwiseError(
                f"{type(criterion).__name__}.search must return a Search over all {d} words; got {own!r}."
            )
        return Start(np.empty((0, 2), dtype=np.int64), np.arange(own.n_words), own)

    def _make_store(self) -> tuple[NDArray[np.int64], NDArray[np.int64], DenseStore | DeviceStore | FactoredStore]:
        """Fold constant words, and form A and B of the others."""
        data, d, how = self.data, self.data.shape[1], self.options
        on_device = self._xp is not np
        n_left = d - len(data.constant_words[1:])
        if isinstance(data, Samples) and not on_device:  # before neighbours are found, which can take long
            self.store = _choose_store(how.store, n_left, how.search, how.limit)
        else:
            self.store = "dense"
            if not on_device or how.limit is not None:
                check_fits(n_left, how.limit, how.search)
        if not isinstance(data, Samples):
            folded, words = fold_words(d, data.constant_words)
            matrices = data.matrices(words)
            if on_device:
                return folded, words, DeviceStore.from_matrices(*matrices, xp=self._xp)
            return folded, words, DenseStore(*matrices).checked(self.criterion.name)
        constant = data.constant_for_pairs()
        folded, words = fold_words(d, constant)
        X = data.of_words(constant, words)
        who = None if type(self.criterion).__module__.startswith("bagwise.") else type(self.criterion).__name__
        if on_device:
            return folded, words, DeviceStore.from_structures(X, *data.structures, xp=self._xp, who=who)
        if self.store == "dense":
            store = DenseStore.from_structures(X, *data.structures, self._n_threads)
            return folded, words, store if who is None else store.checked(who)
        return folded, words, make_factored_store(X, data.structures, how.limit, self._n_threads)

    def _start_in_kernel_space(self) -> Start:
        """Start a search with distances in the feature space of an additive kernel."""
        X, how, kernel = self.data.X, self.options, self.options.kernel
        check_non_negative(X, f"kernel={kernel.name!r}", "Use kernel='linear', or counts.")
        if how.store not in ("auto", "dense"):
            raise BagwiseError(
                f"store={how.store!r} is for kernel='linear': in the feature space of another kernel the statistics "
                "are not sums. Use store='dense'."
            )
        self.store = "dense"
        # A constant word changes distances when it is added to another, unless it is zero.
        folded, words = fold_words(X.shape[1], np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() == 0))
        check_fits(len(words), how.limit, how.search)
        check_memory(
            4 * 8 * X.shape[0] * len(words),
            how.limit,
            f"kernel={kernel.name!r} keeps the values of {len(words)} words in {X.shape[0]} samples",
            "use kernel='linear', or fewer samples",
        )
        structures = self.data.structures
        values = X[:, words].T
        values = values.toarray() if sp.issparse(values) else values
        smallest = float(values[values > 0].min(initial=np.inf))
        traces = KernelTraces(kernel.name, smallest, float(np.asarray(X.sum(axis=1)).max()), kernel.tolerance)
        search = KernelSearch(
            values,
            lambda rows: (traces.trace(structures[0], rows), traces.trace(structures[1], rows)),
            lambda store: SEARCHES[how.search](store, self._n_threads),
        )
        return Start(folded, words, search)


def fold(numbers: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List the merges that join words with equal numbers, and the words that are left.

    Pairs come in the order of their indices, as equally good pairs always do.
    """
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    leader = first[inverse.reshape(-1)]
    gone = np.flatnonzero(leader != np.arange(len(numbers)))
    merges = np.stack([leader[gone], gone], axis=1).astype(np.int64)
    return merges[np.lexsort((merges[:, 1], merges[:, 0]))], np.sort(first).astype(np.int64)


def fold_words(n_words: int, alike: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`fold` where all words of one list are alike, and no others."""
    numbers = np.arange(n_words)
    numbers[alike] = alike[:1]
    return fold(numbers)


def _start_additive(
    who: str, scoring: Scoring, n_words: int, n_threads: int = 1, show_progress: bool = False, search: Any = None
) -> Start:
    """Check what a user's criterion gives, fold the words that it says are alike, and search over the others.

    `search` makes another search than the usual one.
    """
    if not isinstance(scoring, Scoring) or len(scoring.states) != n_words:
        raise BagwiseError(
            f"{who}.scoring must return a scoring from bagwise.merging.scoring with one state for "
            f"each of the {n_words} words; got {scoring!r}."
        )
    if np.ndim(scoring.states) != 2 or not np.isfinite(scoring.states).all():
        found = " with NaN or infinity" if np.ndim(scoring.states) == 2 else ""
        raise BagwiseError(
            f"The states of {type(scoring).__name__} must be finite numbers, one row for each word; got an array "
            f"of shape {np.shape(scoring.states)}{found}."
        )
    numbers = np.asarray(scoring.ties())
    if numbers.shape != (n_words,):
        raise BagwiseError(
            f"{type(scoring).__name__}.ties must give one number for each of the {n_words} words; got shape "
            f"{numbers.shape}."
        )
    folded, words = fold(numbers)
    if len(folded):
        place = np.searchsorted(words, np.arange(n_words))
        place[folded[:, 1]] = np.searchsorted(words, folded[:, 0])
        joined = np.zeros((len(words), scoring.states.shape[1]))
        np.add.at(joined, place, scoring.states)
        scoring.states = joined
    early = scoring.early_merges()
    begun: Search
    scores: NDArray[np.float64] | None = None
    if early is not None:
        free = len(folded)
        lost = join_early(scoring, early)
        early, words = _named(early, words, scoring)
        folded = np.concatenate([folded, early])
    if search is not None:
        begun = search(scoring)
    elif type(scoring) not in COMPILED:
        begun = PartnerSearch(scoring)
    elif isinstance(scoring, WeightLoss) and scoring.states.shape[1] == 2:
        begun = SortedSearch(scoring)
    else:
        begun = SumSearch(scoring, n_threads, show_progress)
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


def merge_scoring(
    scoring: Scoring, name: str, n_groups: int = 1, report: Callable[[int], None] = _no_report
) -> Hierarchy:
    """Merge words down to `n_groups` from their states alone; `name` is that of the criterion.

    `report` is called with the number of merges done, some at a time.
    """
    d = len(scoring.states)
    folded, words, search, early = _start_additive(name, scoring, d)
    n_merges = max(d - n_groups, 0)
    merges, scores = np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges)
    done = min(len(folded), n_merges)
    merges[:done], scores[:done] = folded[:done], search.start_score if early is None else early[:done]
    while done < n_merges:
        part = slice(done, min(done + _REPORTED, n_merges))
        search.advance(merges[part], scores[part])
        merges[part] = words[merges[part]]
        done = part.stop
        report(done)
    return Hierarchy(d, merges, scores, name)


def check_request(n_groups: Any, callback: Any) -> None:
    """Raise unless `n_groups` is a positive integer and `callback` a function or None."""
    check_integer(n_groups, "n_groups", 1)
    if callback is not None and not callable(callback):
        raise BagwiseError(f"callback must be callable, got {callback!r}.")


def _choose_store(name: str, n_words: int, search: str, memory_limit: Limit) -> str:
    """Choose between "dense" and "sparse" for data of which `n_words` columns vary: "auto" is dense if that fits."""
    if name == "auto" and search == "bound":
        limit = resolve_limit(memory_limit)
        return "dense" if limit is None or bytes_of_pairs(n_words, search) <= limit else "sparse"
    if name in ("auto", "dense"):
        others = "use store='sparse', or " if search == "bound" else "use search='bound', or "
        check_fits(n_words, memory_limit, search, in_python(others))
        return "dense"
    return name
