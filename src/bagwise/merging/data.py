"""What merging begins with: samples, sums over them, or matrices over pairs of words.

`load` alone asks what X is: dense or sparse, in chunks of Dask, on a device, or sums that were made before. All that
comes later asks the loaded data, which have the same methods whatever they are.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length

from bagwise._utils.backends import backend
from bagwise._utils.devices import check_on_device, device_module, is_on_device, to_host
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
from bagwise._utils.memory import Limit, check_memory
from bagwise._utils.validation import check_array, check_sample_weight, check_single_labels, refuse_dates, validate_data
from bagwise.errors import BagwiseError, in_python
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria import NAMED_CRITERIA
from bagwise.merging.criteria.base import AdditiveScore, Criterion, TraceRatio, check_values_fit, no_labels
from bagwise.merging.criteria.clusters import Clusters
from bagwise.merging.kernel_rows import KernelRows, KernelTraces
from bagwise.merging.pooling import pool
from bagwise.merging.rows import DenseRows, RatioRows, check_fits, choose_store
from bagwise.merging.scaling import Scaling, find_scaling
from bagwise.merging.scoring import Scoring
from bagwise.merging.statistics import Statistics
from bagwise.merging.structures import Structure

__all__ = ["Data", "Options", "Pairs", "Samples", "Sums", "fold_ties", "load"]

Words = NDArray[np.int64]
# Merges that cost nothing, the words that are left, and A and B over these.
Folded = tuple[Words, Words, RatioRows]
Matrices = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Options:
    """What `merge_words` was asked for, checked."""

    criterion: Criterion
    kernel: AdditiveKernel
    search: str
    store: str
    scaling: str | None
    limit: Limit
    device: str | None
    n_threads: int
    show_progress: bool

    @property
    def of_scoring(self) -> dict[str, Any]:
        """What criteria with `takes_settings` get."""
        return {"n_threads": self.n_threads, "show_progress": self.show_progress}


class RawSamples(NamedTuple):
    """All samples as they came, with those of weight zero: X in float64, labels and weights on the host."""

    X: Any
    labels: Any
    weights: Any

    def word_totals(self) -> NDArray[np.float64]:
        """Sum of each word over all samples."""
        one_class = np.zeros(self.X.shape[0], dtype=np.intp)
        return to_host(class_sums(self.X, one_class, weights=self.weights))[0]

    def on_host(self) -> RawSamples:
        """The same, all of it on the host."""
        return self._replace(X=to_host(self.X))


@dataclass(eq=False)
class Samples:
    """Samples in memory, or on a device.

    Attributes
    ----------
    X : ndarray, CSR array or array on a device
        In float64; measurements on a common scale, samples of weight zero left out.
    labels, weights : ndarray of shape (n_samples,) or None
    options : Options
        With the criterion for these samples.
    raw : RawSamples
    on_device : bool
        Whether X is an array on a device.
    scaling : Scaling or None
        How measurements were brought to a common scale; None for counts.
    """

    X: Any
    labels: NDArray[Any] | None
    weights: NDArray[np.float64] | None
    options: Options
    raw: RawSamples
    on_device: bool = False
    scaling: Scaling | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and of words."""
        return self.X.shape

    @property
    def word_totals(self) -> NDArray[np.float64]:
        """Sum of each word over all samples, as they came."""
        return self.raw.word_totals()

    @cached_property
    def constant_words(self) -> Words:
        """The words that are the same in all samples."""
        return constant_words(self.X)

    def scoring(self) -> Scoring:
        """Return the states of all words before any merge, for additive criteria."""
        criterion = self.options.criterion
        assert isinstance(criterion, AdditiveScore)
        if criterion.keeps_values:
            check_values_fit(self.X, self.options.limit, criterion.name)
        return criterion.scoring(self.X, self.labels, **self._weighted())

    @cached_property
    def structures(self) -> tuple[Structure, Structure]:
        """The structures of a trace ratio; what a user's criterion gives is checked."""
        criterion = self.options.criterion
        assert isinstance(criterion, TraceRatio)
        X = to_host(self.X) if criterion.looks_at_values else self.X
        structures: Any = criterion.structures(X, self.labels, self.options.n_threads, **self._weighted())
        n = self.X.shape[0]
        is_pair = isinstance(structures, tuple) and len(structures) == 2
        if not is_pair or not all(isinstance(part, Structure) for part in structures):
            raise BagwiseError(
                f"{type(criterion).__name__}.structures must return a pair (preferred, undesired) of structures from "
                f"bagwise.merging.structures; got {structures!r}."
            )
        for structure in structures:
            if structure.n_samples != n:
                raise BagwiseError(
                    f"{type(criterion).__name__}.structures must be over the {n} samples of X; got a "
                    f"{type(structure).__name__} over {structure.n_samples}."
                )
        return structures

    def _weighted(self) -> dict[str, Any]:
        weights = {} if self.weights is None else {"sample_weight": self.weights}
        return weights | (self.options.of_scoring if self.options.criterion.takes_settings else {})

    def of_words(self, constant: Words, words: Words) -> Any:
        """Select words; the constant one among them becomes 0, so that its statistics are exactly zero."""
        if not len(constant):
            return self.X
        zero = int(np.searchsorted(words, constant[0]))
        X = self.X[:, device_module(None, self.X).asarray(words)]
        if sp.issparse(X):
            X.data[X.indices == zero] = 0.0
            X.eliminate_zeros()
            return X
        X = device_module(None, X).ascontiguousarray(X)
        X[:, zero] = 0.0
        return X

    def constant_for_pairs(self) -> Words:
        """The words that are the same in all samples that the structures look at."""
        samples = [structure.samples for structure in self.structures]
        if any(some is None for some in samples):
            return self.constant_words
        chosen: NDArray[np.intp] = np.unique(np.concatenate(samples))  # type: ignore[arg-type]
        return constant_words(self.X[chosen]) if len(chosen) else np.arange(self.X.shape[1])

    def rows(self, module: Any, how: Options) -> Folded:
        """Fold constant words, and form A and B of the others where they are merged."""
        if how.kernel.name != "linear":
            return self._kernel_rows(how)
        n_left, store = self.shape[1] - len(self.constant_words[1:]), "dense"
        if module.ON_DEVICE:
            _check_fits(n_left, module, how)
        else:  # before neighbours are found, which can take long
            store = choose_store(how.store, n_left, how.search, how.limit)
        constant, who = self.constant_for_pairs(), type(how.criterion)
        folded, words = fold_words(self.shape[1], constant)
        name = None if who.__module__.startswith("bagwise.") else who.__name__  # its numbers need no check
        X = self.of_words(constant, words)
        return folded, words, module.rows_of_samples(X, self.structures, store, how.limit, how.n_threads, name)

    def _kernel_rows(self, how: Options) -> Folded:
        """Fold words that never occur, and form A and B of the others in the feature space of an additive kernel."""
        X, kernel = self.X, how.kernel
        check_non_negative(X, f"kernel={kernel.name!r}", "Use kernel='linear', or counts.")
        if how.store not in ("auto", "dense"):
            raise BagwiseError(
                f"store={how.store!r} is for kernel='linear': in the feature space of another kernel the statistics "
                "are not sums. Use store='dense'."
            )
        # A constant word changes distances when it is added to another, unless it is zero.
        folded, words = fold_words(X.shape[1], np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() == 0))
        check_fits(len(words), how.limit, how.search)
        check_memory(
            4 * 8 * X.shape[0] * len(words),
            how.limit,
            f"kernel={kernel.name!r} keeps the values of {len(words)} words in {X.shape[0]} samples",
            "use kernel='linear', or fewer samples",
        )
        structures = self.structures
        values = X[:, words].T
        values = values.toarray() if sp.issparse(values) else values
        smallest = float(values[values > 0].min(initial=np.inf))
        traces = KernelTraces(kernel.name, smallest, float(np.asarray(X.sum(axis=1)).max()), kernel.tolerance)
        return folded, words, KernelRows(values, lambda some: [traces.trace(one, some) for one in structures])

    def matrices_of(self, labels: Words) -> Matrices:
        """Return A and B of groups of words, for trace ratios."""
        X = as_float64(pool(self.X, labels, int(labels.max()) + 1))
        rows = DenseRows.of(X, *self.structures, self.options.n_threads)
        return rows.A, rows.B


def _check_fits(n_words: int, module: Any, how: Options) -> None:
    if not module.ON_DEVICE or how.limit is not None:
        check_fits(n_words, how.limit, how.search)


class _Summed:
    """What data that are sums have in common: A and B of some words, and of groups of words."""

    @property
    def shape(self) -> tuple[int, int]:
        raise NotImplementedError

    @property
    def constant_words(self) -> Words:
        raise NotImplementedError

    def rows(self, module: Any, how: Options) -> Folded:
        """Fold constant words, and form A and B of the others where they are merged."""
        d = self.shape[1]
        _check_fits(d - len(self.constant_words[1:]), module, how)
        folded, words = fold_words(d, self.constant_words)
        rows = DenseRows(*self.matrices(words)).checked(how.criterion.name)
        return folded, words, module.rows_of_matrices(rows.A, rows.B)

    def matrices(self, words: Words) -> Matrices:
        raise NotImplementedError

    def matrices_of(self, labels: Words) -> Matrices:
        """Return A and B of groups of words, for trace ratios."""
        words = np.arange(len(labels))
        join = sp.csr_array((np.ones(len(labels)), (labels, words)))
        A, B = self.matrices(words)
        return join @ (join @ A).T, join @ (join @ B).T


@dataclass(eq=False)
class Sums(_Summed):
    """Sums over samples, which some criteria need alone."""

    statistics: Statistics
    options: Options
    word_totals: NDArray[np.float64]  # sum of each word over all samples, as they came
    scaling: Scaling | None = None
    raw: RawSamples | None = None  # if the samples are there

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and of words."""
        return self.statistics.shape

    @property
    def constant_words(self) -> Words:
        """The words that are the same in all samples."""
        return self.statistics.constant_words

    def scoring(self) -> Scoring:
        """Return the states of all words before any merge, for additive criteria."""
        assert isinstance(self.options.criterion, AdditiveScore)
        return self.options.criterion.scoring_from_sums(self.statistics)

    def matrices(self, words: Words) -> Matrices:
        """Return A and B of some words, for trace ratios."""
        assert isinstance(self.options.criterion, TraceRatio)
        return self.options.criterion.matrices_from_sums(self.statistics, words, self.options.n_threads)


@dataclass(frozen=True, eq=False)
class Pairs(_Summed):
    """A and B of all words, of one block of samples or the sum over several, each with neighbours of its own.

    Examples
    --------
    >>> from bagwise.criteria import LocalityPreserving
    >>> X = np.array([[4.0, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]])
    >>> one = Pairs.of(LocalityPreserving(1), X)
    >>> (one + one).n_samples, bool(np.all((one + one).A == 2 * one.A))
    (8, True)
    """

    A: NDArray[np.float64]
    B: NDArray[np.float64]
    smallest: NDArray[np.float64]  # value of each word
    largest: NDArray[np.float64]
    n_samples: int
    scaling: None = None

    @classmethod
    def of(cls, criterion: Any, X: Any, y: Any = None, n_threads: int = 1) -> Pairs:
        """Sum up a block of samples, dense or CSR in float64, by the structures of a trace ratio criterion."""
        preferred, undesired = criterion.structures(X, y, n_threads)
        rows = DenseRows.of(X, preferred, undesired, n_threads)
        return cls(rows.A, rows.B, *extremes(X), X.shape[0])

    def __add__(self, other: Pairs) -> Pairs:
        ends = np.minimum(self.smallest, other.smallest), np.maximum(self.largest, other.largest)
        return Pairs(self.A + other.A, self.B + other.B, *ends, self.n_samples + other.n_samples)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and of words."""
        return self.n_samples, len(self.A)

    @property
    def constant_words(self) -> Words:
        """The words that are the same in all samples."""
        return np.flatnonzero(self.largest == self.smallest).astype(np.int64)

    def matrices(self, words: Words) -> Matrices:
        """Return copies of A and B of some words."""
        return self.A[np.ix_(words, words)], self.B[np.ix_(words, words)]


Data = Samples | Sums | Pairs


def load(
    X: Any,
    y: Any,
    sample_weight: ArrayLike | None,
    options: Options,
    estimator: BaseEstimator | None = None,
) -> tuple[Data, Any]:
    """Check data and labels, or sum up a Dask collection; `Pairs` are taken as they are.

    `estimator` gets the number and the names of columns, as scikit-learn does it. Returns the data, and the module of
    searches where they are merged.
    """
    if isinstance(X, Pairs):
        return X, backend("merging", "cpu")
    criterion, module = options.criterion, backend("merging", options.device, X)
    if module.ON_DEVICE:
        _check_runs_on_device(options)
    y, sample_weight = to_host(y), to_host(sample_weight)
    if is_lazy(X) or isinstance(X, Statistics):
        sums = _load_sums(X, y, sample_weight, options)
        if estimator is not None:
            validate_data(estimator, sums.statistics.class_sums)  # sets n_features_in_
        return sums, module
    # Sums and matrices of pairs are computed where the data are; other things, as clusterings, on the host.
    of_sums = criterion.sums_needed == () and not isinstance(criterion, Clusters)
    stays = False
    if is_on_device(X):
        raw = check_on_device(X, least_samples=2).astype(np.float64, copy=False)
        if estimator is not None:
            validate_data(estimator, raw, skip_check_array=True)
        stays = module.ON_DEVICE and (isinstance(criterion, TraceRatio) or of_sums)
        X = raw if stays else as_float64(to_host(raw))
    else:
        X, y, sample_weight = _checked(X, y, sample_weight, criterion, estimator)
        raw = X
    if sample_weight is not None and not criterion.takes_sample_weight:
        names = [name for name, known in sorted(NAMED_CRITERIA.items()) if known.takes_sample_weight]
        raise BagwiseError(
            f"The criterion {criterion.name!r} does not support sample_weight. Pass sample_weight=None, or use one of "
            f"{', '.join(map(repr, names))}."
        )
    check_size(X)
    labels = None if y is None or (estimator is not None and not criterion.supervised) else _check_labels(y, X)
    if criterion.supervised and labels is None:
        raise no_labels(criterion.name)
    weights = None if sample_weight is None else _check_weights(sample_weight, X)
    samples = Samples(X, labels, weights, options, RawSamples(raw, y, weights), stays)
    if weights is not None and not weights.all():  # samples of weight zero do not count at all
        kept = np.flatnonzero(weights)
        samples.X, samples.weights = X[kept], weights[kept]
        samples.labels = None if labels is None else labels[kept]
        samples.options = replace(options, criterion=criterion.of_samples(kept))
    return _scaled(samples), module


# What the options of trace ratios may be on a device.
_ON_DEVICE = {"kernel": ("linear",), "search": ("bound",), "store": ("auto", "dense")}


def _check_runs_on_device(options: Options) -> None:
    """Raise if a criterion does not run on a device with these options."""
    values = {"kernel": options.kernel.name, "search": options.search, "store": options.store}
    for name, value in values.items():
        if value not in _ON_DEVICE[name]:
            raise BagwiseError(
                f"{name}={value!r} does not run on a CUDA device, which has {name}="
                f"{' or '.join(map(repr, _ON_DEVICE[name]))}. Use that, or device='cpu'."
            )
    if not options.criterion.runs_on_device:
        names = ", ".join(repr(name) for name, known in NAMED_CRITERIA.items() if known.runs_on_device)
        raise BagwiseError(
            f"The criterion {options.criterion.name!r} does not run on a CUDA device; {names} do. Use one of these, or "
            "device='cpu'."
        )


def _checked(
    X: Any, y: Any, sample_weight: Any, criterion: Criterion, estimator: BaseEstimator | None
) -> tuple[Any, Any, Any]:
    """Check data on the host, as an estimator does if there is one."""
    checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64, "order": "C", "ensure_min_samples": 2}
    if estimator is None:
        return as_float64(check_array(X, **checks)), y, sample_weight
    if criterion.supervised and y is not None and not criterion.takes_missing_labels:
        check_single_labels(y)
        X, y = validate_data(estimator, X, y, **checks)
    else:
        X = validate_data(estimator, X, **checks)
    return as_float64(X), y, None if sample_weight is None else check_sample_weight(sample_weight, X)


def _scaled(samples: Samples) -> Samples | Sums:
    """Bring measurements to a common scale, and check that there are no negative counts."""
    options, criterion, X = samples.options, samples.options.criterion, samples.X
    scaling = find_scaling(X, options.scaling, samples.weights) if criterion.scales_measurements else None
    if scaling is None:
        if criterion.non_negative:
            _refuse_negative(X, options)
        if samples.on_device and criterion.sums_needed == ():
            return Sums(_sums_of(samples)[0], options, samples.word_totals, raw=samples.raw)
        return samples
    of_classes = criterion.sums_needed == () and criterion.supervised  # which do not depend on the values
    if sp.issparse(X) and not of_classes:
        _refuse_negative(X, options, "Dense data may be negative, X.toarray(): their columns are shifted.")
    _warn_of_guess(scaling, options)
    if of_classes:
        sums = scaling.apply_to_sums(*_sums_of(samples))
        return Sums(sums, options, samples.word_totals, scaling, samples.raw)
    samples.scaling, samples.X = scaling, scaling.apply(X)
    if criterion.sums_needed == ():  # measurements have no smallest unit to smooth class sums by
        sums = replace(_sums_of(samples)[0], unit=0.0)
        return Sums(sums, options, samples.word_totals, scaling, samples.raw)
    return samples


def _sums_of(samples: Samples) -> tuple[Statistics, NDArray[Any]]:
    """Sum up samples over the classes of the criterion; return also the sum of the weights in each class."""
    X, options = samples.X, samples.options
    codes = options.criterion.codes(X, samples.labels, **options.of_scoring)
    n, d = X.shape
    smallest, largest = extremes(X)
    weights = np.ones(n) if samples.weights is None else samples.weights
    statistics = Statistics(
        classes=np.arange(int(codes.max()) + 1),
        class_sizes=np.bincount(codes.ravel()),
        class_sums=to_host(class_sums(X, codes, weights=samples.weights)),
        smallest=smallest,
        largest=largest,
        whole=np.zeros(d, dtype=np.bool_),
        stored=np.full(d, n),
        sparse=False,
        unit=count_unit(X),
        n_labels=codes.size // n,
    )
    return statistics, np.bincount(codes.ravel(), np.repeat(weights, codes.size // n))


def _refuse_negative(X: Any, options: Options, advice: str = "Use counts or histograms.") -> None:
    """Raise for negative values in samples or statistics that a criterion for counts gets."""
    who = f"The criterion {options.criterion.name!r}"
    if options.criterion.scales_measurements and options.scaling is None:
        advice = "Use scaling='auto', which shifts columns of measurements to a minimum of 0."
    if isinstance(X, Statistics):
        X.check_non_negative(who, advice)
    else:
        check_non_negative(X, who, advice)


def _warn_of_guess(scaling: Scaling, options: Options) -> None:
    """Warn where columns are taken as measurements although the criterion may have been meant for what they are."""
    if options.scaling != "auto":
        return
    who, word = f"The criterion {options.criterion.name!r} is for counts and histograms", int(np.argmin(scaling.shift))
    if scaling.shift[word] < 0:
        advice = " Use scaling='shift' or 'range' if they are, or scaling=None to refuse negative values."
        warnings.warn(
            f"X has negative values, down to {scaling.shift[word]:g} in word {word}. {who}: columns are taken as "
            f"measurements, and shifted to a minimum of 0.{in_python(advice)}",
            stacklevel=2,
        )
    elif scaling.scale is not None and np.median(scaling.shift[scaling.scale > 0]) == 0:
        advice = (
            " Use scaling=None if they are counts that were weighted or divided, or scaling='range' if they are "
            "measurements."
        )
        warnings.warn(
            "X has fractions, zeros in most columns, and some columns whose ranges are more than 100 times the median. "
            f"{who}: columns are taken as measurements, and divided by their ranges.{in_python(advice)}",
            stacklevel=2,
        )


def _load_sums(X: Any, y: Any, sample_weight: Any, options: Options) -> Sums:
    """Check that sums over samples are enough, and sum up a Dask collection."""
    criterion = options.criterion
    for needs_samples, what in (
        (criterion.sums_needed is None, f"The criterion {criterion.name!r}"),
        (options.kernel.name != "linear", f"kernel={options.kernel.name!r}"),
        (options.store not in ("auto", "dense"), f"store={options.store!r}"),
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
    if not isinstance(X, Statistics):
        from bagwise.distributed.sums import clustered_statistics, statistics  # deferred: only Dask data need it

        if isinstance(criterion, Clusters):
            lazy = clustered_statistics(X, criterion, options.limit, options.scaling)
        elif y is None:
            raise no_labels(criterion.name)
        else:
            parts = criterion.sums_needed or ()
            gram, shares = "gram" in parts, "frequencies" in parts
            lazy = statistics(X, y, gram=gram, frequencies=shares, memory_limit=options.limit)
        X = lazy.compute()
    if X.n_samples < 2:
        raise BagwiseError(f"Merging needs at least 2 samples; the statistics are of {X.n_samples}.")
    check_size(np.stack([X.largest, X.smallest]))
    totals = X.word_totals
    scaling = find_scaling(X, options.scaling) if criterion.scales_measurements else None
    if scaling is not None:
        _warn_of_guess(scaling, options)
        X = scaling.apply_to_sums(X)
    elif criterion.non_negative:
        _refuse_negative(X, options)
    X = X.without_empty_classes()
    if len(X.classes) < 2:
        raise BagwiseError(
            f"The criterion {criterion.name!r} needs at least two classes in y; got only one class, "
            f"{X.classes.tolist()}."
        )
    return Sums(X, options, totals, scaling)


def as_float64(X: Any) -> Any:
    """Convert to a C-contiguous float64 array or a CSR array in canonical format, copying only where needed."""
    if not sp.issparse(X):
        return np.ascontiguousarray(X, dtype=np.float64)
    return canonical(sp.csr_array(X, dtype=np.float64))


def _check_labels(y: Any, X: Any) -> NDArray[Any]:
    check_single_labels(y)
    if sp.issparse(y):
        raise BagwiseError("y must be an array of labels, one per sample; got a sparse matrix.")
    refuse_dates(y, "y")
    labels = np.asarray(y)
    labels = labels.reshape(-1) if labels.ndim == 2 else labels
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


def fold_ties(who: str, scoring: Scoring, n_words: int) -> tuple[Words, Words]:
    """Check what a user's criterion gives, and join the states of words that it says are alike, as `fold` does."""
    if not isinstance(scoring, Scoring) or len(scoring.states) != n_words:
        raise BagwiseError(
            f"{who}.scoring must return a scoring from bagwise.merging.scoring with one state for "
            f"each of the {n_words} words; got {scoring!r}."
        )
    if np.ndim(scoring.states) != 2 or not np.isfinite(scoring.states).all():
        why = " with NaN or infinity" if np.ndim(scoring.states) == 2 else ""
        raise BagwiseError(
            f"The states of {type(scoring).__name__} must be finite numbers, one row for each word; got an array "
            f"of shape {np.shape(scoring.states)}{why}."
        )
    numbers = np.asarray(scoring.ties())
    if numbers.shape != (n_words,):
        raise BagwiseError(
            f"{type(scoring).__name__}.ties must give one number for each of the {n_words} words; got shape "
            f"{numbers.shape}."
        )
    folded, words = fold(numbers)
    if len(folded):
        slot = np.searchsorted(words, np.arange(n_words))
        slot[folded[:, 1]] = np.searchsorted(words, folded[:, 0])
        joined = np.zeros((len(words), scoring.states.shape[1]))
        np.add.at(joined, slot, scoring.states)
        scoring.states = joined
    return folded, words
