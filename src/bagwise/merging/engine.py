"""The merging engine: how words are merged, whatever the criterion.

A criterion says what a good merge is. The engine checks the data, merges words at no cost first (`fold`), chooses the
store and the search, and runs it in chunks between which progress is shown, callbacks are made and interrupts are
handled.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length

from bagwise._utils.checks import check_integer, check_n_jobs
from bagwise._utils.devices import device_module, is_on_device, to_host
from bagwise._utils.matrices import (
    canonical,
    check_non_negative,
    check_size,
    class_sums,
    constant_words,
    count_unit,
    extremes,
    is_lazy,
)
from bagwise._utils.memory import Limit, check_memory, resolve_limit
from bagwise._utils.progress import ProgressBar
from bagwise._utils.validation import check_array, refuse_dates
from bagwise.errors import BagwiseError, in_python, unknown_name
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.merging.criteria.base import AdditiveScore, Criterion, TraceRatio, check_values_fit, no_labels
from bagwise.merging.criteria.clusters import Clusters
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.pooling import pool
from bagwise.merging.scaling import SCALINGS, Scaling, find_scaling
from bagwise.merging.scoring import Scoring, WeightLoss
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.device import DeviceBoundSearch, DevicePartnerSearch, check_runs_on_device
from bagwise.merging.searches.kernel import KernelSearch, KernelTraces
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.searches.ratios import SEARCHES, FactoredSearch, equal_merges
from bagwise.merging.searches.sums import COMPILED, SumSearch, join_early
from bagwise.merging.searches.weights import SortedSearch
from bagwise.merging.statistics import Statistics
from bagwise.merging.stores.dense import DenseStore, Scatters, bytes_of_pairs, check_fits
from bagwise.merging.stores.device import DeviceStore, check_on_device
from bagwise.merging.stores.factored import FactoredStore, make_factored_store
from bagwise.merging.structures import Structure

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
    data : ndarray, CSR array or Statistics
        What was loaded, checked. Dask collections become `Statistics`.
    scaling : Scaling or None
        How measurements were brought to a common scale; None for counts.
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
        self.kernel = kernel if isinstance(kernel, AdditiveKernel) else AdditiveKernel(kernel)
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
        of_ratios = self.kernel.name != "linear" or search != "bound" or store != "auto"
        self.criterion = resolve_criterion(criterion, has_labels=has_labels, of_ratios=of_ratios)
        if not isinstance(self.criterion, TraceRatio):
            for name, value, usual in (("kernel", self.kernel.name, "linear"), ("store", store, "auto")):
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
        self._device, self._xp = device, device_module(device)
        self._search, self._store, self._scaling, self._limit = search, store, scaling, memory_limit
        self._n_threads = effective_n_jobs(check_n_jobs(n_jobs))
        self._show_progress = verbose > 0
        self._settings: dict[str, Any] = {"n_threads": self._n_threads, "show_progress": self._show_progress}
        self.data: Any = None
        self.scaling: Scaling | None = None
        self.store: str | None = None

    def load(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, *, checked: bool = False) -> Self:
        """Check data and labels, or sum up a Dask collection; `Scatters` are taken as they are.

        X that is `checked` is an array or CSR matrix of finite numbers, which an estimator has checked already.
        """
        criterion = self.criterion
        self._weights: NDArray[np.float64] | None = None
        self._found: tuple[Structure, Structure] | None = None
        if isinstance(X, Scatters):
            self._xp, self.data = np, X
            return self
        self._xp = device_module(self._device, X)
        if self._xp is not np:
            of_ratios = isinstance(criterion, TraceRatio)
            check_runs_on_device(
                criterion.name, of_ratios, kernel=self.kernel.name, search=self._search, store=self._store
            )
        y, sample_weight = to_host(y), to_host(sample_weight)
        if sample_weight is not None and not criterion.takes_sample_weight:
            names = [name for name, known in sorted(NAMED_CRITERIA.items()) if known.takes_sample_weight]
            raise BagwiseError(
                f"The criterion {criterion.name!r} does not support sample_weight. Pass sample_weight=None, or use one "
                f"of {', '.join(map(repr, names))}."
            )
        if is_lazy(X) or isinstance(X, Statistics):
            self.data = self._check_statistics(X, y, sample_weight)
            return self
        # Sums and matrices of pairs are computed where the data are; other things, as clusterings, on the host.
        of_sums = criterion.sums_needed == () and not isinstance(criterion, Clusters)
        stays = self._xp is not np and (isinstance(criterion, TraceRatio) or of_sums)
        if is_on_device(X) and stays:
            X = check_on_device(X, least_samples=2).astype(np.float64, copy=False)
        elif not checked:
            X = to_host(X)
            X = check_array(X, accept_sparse="csr", dtype=np.float64, order="C", ensure_min_samples=2)
        self.data = X = X if is_on_device(X) else _as_float64(X)
        check_size(X)
        self._labels = None if y is None else _check_labels(y, X)
        if criterion.supervised and self._labels is None:
            raise no_labels(criterion.name)
        if sample_weight is not None:
            self._weights = weights = _check_weights(sample_weight, X)
            if not weights.all():  # samples of weight zero do not count at all
                kept = np.flatnonzero(weights)
                self.data, self._weights, self.criterion = X[kept], weights[kept], criterion.of_samples(kept)
                self._labels = None if self._labels is None else self._labels[kept]
        scaling = find_scaling(self.data, self._scaling) if criterion.scales_measurements else None
        if scaling is None:
            if criterion.non_negative:
                self._check_non_negative(X)
            if is_on_device(self.data) and criterion.sums_needed == ():
                self.data = self._sums(self.data)[0]
            return self
        of_classes = criterion.sums_needed == () and criterion.supervised  # which do not depend on the values
        if sp.issparse(X) and not of_classes:
            self._check_non_negative(X, "Dense data may be negative, X.toarray(): their columns are shifted.")
        self._take_scaling(scaling)
        if of_classes:
            self.data = scaling.apply_to_sums(*self._sums(self.data))
            return self
        self.data = scaling.apply(self.data)
        if criterion.sums_needed == ():
            self.data = replace(self._sums(self.data)[0], unit=0.0)
        return self

    def _check_non_negative(self, X: Any, advice: str = "Use counts or histograms.") -> None:
        """Raise for negative values in samples or statistics that a criterion for counts gets."""
        who = f"The criterion {self.criterion.name!r}"
        if self.criterion.scales_measurements and self._scaling is None:
            advice = "Use scaling='auto', which shifts columns of measurements to a minimum of 0."
        if isinstance(X, Statistics):
            X.check_non_negative(who, advice)
        else:
            check_non_negative(X, who, advice)

    def _take_scaling(self, scaling: Scaling) -> None:
        """Keep the scaling, and warn where it is a guess about negative values."""
        self.scaling = scaling
        word = int(np.argmin(scaling.shift))
        if self._scaling == "auto" and scaling.shift[word] < 0:
            advice = " Use scaling='shift' or 'range' if they are, or scaling=None to refuse negative values."
            warnings.warn(
                f"X has negative values, down to {scaling.shift[word]:g} in word {word}, but the criterion "
                f"{self.criterion.name!r} is for counts and histograms: columns are taken as measurements, and "
                f"shifted to a minimum of 0.{in_python(advice)}",
                stacklevel=2,
            )

    def _sums(self, X: Any) -> tuple[Statistics, NDArray[Any]]:
        """Sum up samples over the classes of the criterion; return also the sum of the weights in each class."""
        codes = self.criterion.codes(X, self._labels, **self._settings)
        n, d = X.shape
        smallest, largest = extremes(X)
        weights = np.ones(n) if self._weights is None else self._weights
        statistics = Statistics(
            classes=np.arange(int(codes.max()) + 1),
            class_sizes=np.bincount(codes.ravel()),
            class_sums=to_host(class_sums(X, codes, weights=self._weights)),
            smallest=smallest,
            largest=largest,
            whole=np.zeros(d, dtype=np.bool_),
            stored=np.full(d, n),
            sparse=False,
            unit=count_unit(X),
            n_labels=codes.size // n,
        )
        return statistics, np.bincount(codes.ravel(), np.repeat(weights, codes.size // n))

    def _check_statistics(self, X: Any, y: Any, sample_weight: Any) -> Statistics:
        """Check that sums over samples are enough, and sum up a Dask collection."""
        criterion = self.criterion
        for needs_samples, what in (
            (criterion.sums_needed is None, f"The criterion {criterion.name!r}"),
            (self.kernel.name != "linear", f"kernel={self.kernel.name!r}"),
            (self._store not in ("auto", "dense"), f"store={self._store!r}"),
            (sample_weight is not None, "sample_weight"),
        ):
            if needs_samples:
                names = sorted(name for name, known in NAMED_CRITERIA.items() if known.sums_needed is not None)
                accepted = f"{', '.join(map(repr, names[:-1]))} and {names[-1]!r}"
                raise BagwiseError(
                    f"{what} needs the samples themselves, in memory. Statistics and Dask collections give sums over "
                    f"samples, which are enough for the criteria {accepted} with kernel='linear', store='auto' and "
                    "sample_weight=None. Use these, or X.compute() if it fits."
                )
        if is_lazy(X):
            from bagwise.distributed.sums import clustered_statistics, statistics  # deferred: only Dask data need it

            if isinstance(criterion, Clusters):
                lazy = clustered_statistics(X, criterion, self._limit, self._scaling)
            elif y is None:
                raise no_labels(criterion.name)
            else:
                parts = criterion.sums_needed or ()
                gram, shares = "gram" in parts, "frequencies" in parts
                lazy = statistics(X, y, gram=gram, frequencies=shares, memory_limit=self._limit)
            X = lazy.compute()
        if X.n_samples < 2:
            raise BagwiseError(f"Merging needs at least 2 samples; the statistics are of {X.n_samples}.")
        check_size(np.stack([X.largest, X.smallest]))
        scaling = find_scaling(X, self._scaling) if criterion.scales_measurements else None
        if scaling is not None:
            self._take_scaling(scaling)
            X = scaling.apply_to_sums(X)
        elif criterion.non_negative:
            self._check_non_negative(X)
        X = X.without_empty_classes()
        if len(X.classes) < 2:
            raise BagwiseError(
                f"The criterion {criterion.name!r} needs at least two classes in y; got only one class, "
                f"{X.classes.tolist()}."
            )
        return X

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
        criterion, data = self.criterion, self.data
        if isinstance(criterion, TraceRatio):
            if self.kernel.name != "linear":
                return self._start_in_kernel_space(criterion)
            folded, words, store = self._make_store(criterion)
            search = equal_merges(store, self._n_threads)
            if search is not None:
                return Start(folded, words, search)
            if isinstance(store, DeviceStore):
                return Start(folded, words, DeviceBoundSearch(store))
            if isinstance(store, DenseStore):
                return Start(folded, words, SEARCHES[self._search](store, self._n_threads))
            return Start(folded, words, FactoredSearch(store, self._n_threads, self._show_progress))
        if isinstance(criterion, AdditiveScore):
            who, scoring = type(criterion).__name__, self.scoring()
            other = DevicePartnerSearch if self._xp is not np else None
            return _start_additive(who, scoring, data.shape[1], self._n_threads, self._show_progress, other)
        own = criterion.search(data, self._labels, self._limit)
        if not isinstance(own, Search) or own.n_words != data.shape[1]:
            raise BagwiseError(
                f"{type(criterion).__name__}.search must return a Search over all {data.shape[1]} words; got {own!r}."
            )
        return Start(np.empty((0, 2), dtype=np.int64), np.arange(own.n_words), own)

    def scoring(self) -> Scoring:
        """Return the states of all words before any merge, for additive criteria."""
        criterion, data = self.criterion, self.data
        assert isinstance(criterion, AdditiveScore)
        if isinstance(data, Statistics):
            return criterion.scoring_from_sums(data)
        if criterion.keeps_values:
            check_values_fit(data, self._limit, criterion.name)
        return criterion.scoring(data, self._labels, **self._weighted())

    def matrices_of(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return A and B of groups of words, for trace ratios."""
        assert isinstance(self.criterion, TraceRatio)
        if isinstance(self.data, (Statistics, Scatters)):
            words = np.arange(len(labels))
            join = sp.csr_array((np.ones(len(labels)), (labels, words)))
            A, B = self._from_sums(self.criterion, words)
            return join @ (join @ A).T, join @ (join @ B).T
        X = pool(self.data, labels, int(labels.max()) + 1)
        store = DenseStore.from_structures(_as_float64(X), *self._structures(self.criterion), self._n_threads)
        return store.A, store.B

    def _from_sums(self, criterion: TraceRatio, words: NDArray[np.int64]) -> tuple[Any, Any]:
        sums = isinstance(self.data, Statistics)
        return criterion.matrices_from_sums(self.data, words, self._n_threads) if sums else self.data.of_words(words)

    def _weighted(self) -> dict[str, Any]:
        weights = {} if self._weights is None else {"sample_weight": self._weights}
        return weights | (self._settings if self.criterion.takes_settings else {})

    def _make_store(
        self, criterion: TraceRatio
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], DenseStore | DeviceStore | FactoredStore]:
        """Fold constant words, and form A and B of the others."""
        X, d = self.data, self.data.shape[1]
        on_device = self._xp is not np
        if isinstance(X, (Statistics, Scatters)):
            constant = X.constant_words
            folded, words = fold_words(d, constant)
            check_fits(len(words), self._limit, self._search)
            self.store = "dense"
            matrices = self._from_sums(criterion, words)
            if on_device:
                return folded, words, DeviceStore.from_matrices(*matrices, xp=self._xp)
            return folded, words, DenseStore(*matrices).checked(criterion.name)
        constant = constant_words(X)
        # before neighbours are found, which can take long
        if on_device:
            self.store = "dense"
            if self._limit is not None:
                check_fits(d - len(constant[1:]), self._limit, self._search)
        else:
            self.store = _choose_store(self._store, d - len(constant[1:]), self._search, self._limit)
        structures = self._structures(criterion)
        samples = [structure.samples for structure in structures]
        if not any(some is None for some in samples):
            chosen: NDArray[np.intp] = np.unique(np.concatenate(samples))  # type: ignore[arg-type]
            constant = constant_words(X[chosen]) if len(chosen) else np.arange(d)
        folded, words = fold_words(d, constant)
        if len(constant):
            X = _keep_words(X, words, zero=int(np.searchsorted(words, constant[0])))
        ours = type(criterion).__module__.startswith("bagwise.")
        if on_device:
            who = None if ours else type(criterion).__name__
            return folded, words, DeviceStore.from_structures(X, *structures, xp=self._xp, who=who)
        if self.store == "dense":
            store = DenseStore.from_structures(X, *structures, self._n_threads)
            return folded, words, store if ours else store.checked(type(criterion).__name__)
        return folded, words, make_factored_store(X, structures, self._limit, self._n_threads)

    def _start_in_kernel_space(self, criterion: TraceRatio) -> Start:
        """Start a search with distances in the feature space of an additive kernel."""
        X, kernel = self.data, self.kernel
        check_non_negative(X, f"kernel={kernel.name!r}", "Use kernel='linear', or counts.")
        if self._store not in ("auto", "dense"):
            raise BagwiseError(
                f"store={self._store!r} is for kernel='linear': in the feature space of another kernel the statistics "
                "are not sums. Use store='dense'."
            )
        self.store = "dense"
        # A constant word changes distances when it is added to another, unless it is zero.
        folded, words = fold_words(X.shape[1], np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() == 0))
        check_fits(len(words), self._limit, self._search)
        check_memory(
            4 * 8 * X.shape[0] * len(words),
            self._limit,
            f"kernel={kernel.name!r} keeps the values of {len(words)} words in {X.shape[0]} samples",
            "use kernel='linear', or fewer samples",
        )
        structures = self._structures(criterion)
        values = X[:, words].T
        values = values.toarray() if sp.issparse(values) else values
        smallest = float(values[values > 0].min(initial=np.inf))
        traces = KernelTraces(kernel.name, smallest, float(np.asarray(X.sum(axis=1)).max()), kernel.tolerance)
        search = KernelSearch(
            values,
            lambda rows: (traces.trace(structures[0], rows), traces.trace(structures[1], rows)),
            lambda store: SEARCHES[self._search](store, self._n_threads),
        )
        return Start(folded, words, search)

    def _structures(self, criterion: TraceRatio) -> tuple[Structure, Structure]:
        """Ask the criterion for its structures, once, and check what a user's criterion gives."""
        if self._found is not None:
            return self._found
        data = to_host(self.data) if criterion.looks_at_values else self.data
        found: Any = criterion.structures(data, self._labels, self._n_threads, **self._weighted())
        n = self.data.shape[0]
        if not isinstance(found, tuple) or len(found) != 2 or not all(isinstance(part, Structure) for part in found):
            raise BagwiseError(
                f"{type(criterion).__name__}.structures must return a pair (preferred, undesired) of structures from "
                f"bagwise.merging.structures; got {found!r}."
            )
        for structure in found:
            if structure.n_samples != n:
                raise BagwiseError(
                    f"{type(criterion).__name__}.structures must be over the {n} samples of X; got a "
                    f"{type(structure).__name__} over {structure.n_samples}."
                )
        self._found = found
        return self._found


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


def _as_float64(X: Any) -> Any:
    """Convert to a C-contiguous float64 array or a CSR array in canonical format, copying only where needed."""
    if not sp.issparse(X):
        return np.ascontiguousarray(X, dtype=np.float64)
    return canonical(sp.csr_array(X, dtype=np.float64))


def _check_labels(y: Any, X: Any) -> NDArray[Any]:
    if sp.issparse(y):
        raise BagwiseError("y must be an array of labels, one per sample; got a sparse matrix.")
    refuse_dates(y, "y")
    try:
        labels = np.asarray(y)
    except ValueError as error:  # lists of different lengths
        raise BagwiseError("y must have one label per sample, but some samples have several.") from error
    if labels.ndim > 1 and labels.size == len(labels):
        labels = labels.reshape(-1)
    if labels.ndim != 1:
        raise BagwiseError(f"y must have one label per sample, shape ({X.shape[0]},); got shape {labels.shape}.")
    check_consistent_length(X, labels)
    return labels


def _check_weights(sample_weight: ArrayLike, X: Any) -> NDArray[np.float64]:
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (X.shape[0],) or not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
        raise BagwiseError(
            f"sample_weight must have one finite, non-negative number per sample, shape ({X.shape[0]},), at least one "
            f"of them positive; got {np.array2string(weights, threshold=6)} of shape {weights.shape}."
        )
    return weights


def _keep_words(X: Any, words: NDArray[np.int64], zero: int) -> Any:
    """Select words; the constant one, at place `zero`, becomes 0 so that its statistics are exactly zero."""
    xp = device_module(None, X)
    X = X[:, xp.asarray(words)]
    if sp.issparse(X):
        X.data[X.indices == zero] = 0.0
        X.eliminate_zeros()
        return X
    X = xp.ascontiguousarray(X)
    X[:, zero] = 0.0
    return X
