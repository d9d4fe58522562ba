"""Times of the steps of a fit, measured on a sample of its items by the code that the fit runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from bagwise.codebooks.kmeans import kmeans
from bagwise.codebooks.pyramids import n_cells
from bagwise.errors import BagwiseError
from bagwise.merging.compact import MOST_FITTED
from bagwise.model.vectorizers import no_progress
from bagwise.model.visual import MOST_SAMPLED, N_SAMPLED_VECTORS, VisualVectorizer
from bagwise.sources.collection import Collection
from bagwise.training.learning import cross_validate, learn_groups
from bagwise.training.method import adapt_to_table, choose_method, choose_weighting, sizes_of
from bagwise.training.options import FitOptions, make_vectorizer
from bagwise.training.preparing import WordData

__all__ = ["CountedSample", "Range", "forecast_groups", "sample_texts", "sample_visual"]

_TEACHER = "Training a classifier on all words"
# Seconds that are spent on describing or counting a sample, on one run of merging, and on cross-validation.
_READING, _MERGING, _VALIDATING = 1.0, 0.8, 2.5
_FIRST_ITEMS, _MOST_ITEMS = 8, 2000
_TIMED_VECTORS = 12_000  # that iterations of k-means are timed with
_FEW_WORDS = 64  # of the k-means whose iterations are counted
_GROWTH = 0.2  # exponent of the number of iterations in the number of words, for as many vectors per word
_MOST_ITERATIONS = 25
_FIRST_ROWS, _FIRST_WORDS = 200, 1000  # of the smallest part that is merged
# Powers of the numbers of items and of words that steps usually take, where groups follow a classifier and for other
# criteria; how much they weigh against what is measured, since short times say little of powers; and the largest.
_FOLLOWING = {"Merging words": (0.0, 2.2), _TEACHER: (1.0, 0.4), "Training classifiers": (0.6, 1.0)}
_OTHERS = {"Merging words": (0.7, 2.0), "Training classifiers": (1.1, 1.0)}
_CAUTION, _STEEPEST = 1.0, 2.5
_FOLD = 1.3  # times as long as all data that a fold takes beside others, with its predictions


@dataclass(frozen=True)
class Range:
    """An estimate of seconds, and between which it should be."""

    seconds: float
    low: float
    high: float

    @classmethod
    def about(cls, seconds: float, factor: float) -> Range:
        """Seconds that may be wrong by a factor."""
        return cls(seconds, seconds / factor, seconds * factor)

    def __mul__(self, times: float) -> Range:
        return Range(self.seconds * times, self.low * times, self.high * times)

    def __add__(self, other: Range) -> Range:
        return Range(self.seconds + other.seconds, self.low + other.low, self.high + other.high)


_NOTHING = Range(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class CountedSample:
    """Histograms of a sample, what takes how long for all items, and the size of the vocabulary.

    `per_item` are seconds of describing and counting one item; `warm_up` were spent on compiling or loading code.
    """

    histograms: Any
    kept: NDArray[np.intp]  # indices of the items
    vocabularies: tuple[int, ...]
    seconds: dict[str, Range]  # by stage
    per_item: float
    n_vectors: float = 0.0  # descriptors of an item
    width: int = 0  # numbers of a descriptor
    warm_up: float = 0.0
    n_first: int = 0  # items that are described before there are words

    @property
    def n_words(self) -> int:
        """Size of the vocabulary of all items."""
        return sum(self.vocabularies)


def spread(n: int, n_sampled: int) -> NDArray[np.intp]:
    """Return the indices of evenly spaced items."""
    return np.unique(np.linspace(0, n - 1, max(n_sampled, 1)).astype(np.intp))


def sample_texts(collection: Collection, options: FitOptions, has_classes: bool) -> CountedSample:
    """Count the words of a sample of texts; the vocabulary grows with a power of the number of texts."""
    n = len(collection)

    def count(indices: NDArray[np.intp]) -> tuple[Any, Any, float]:
        vectorizer = make_vectorizer(options, "texts", n_classes=2 * has_classes)
        started = time.perf_counter()
        found = vectorizer.fit_transform(collection[indices], on_error=options.on_error)
        return vectorizer, found, time.perf_counter() - started

    first = spread(n, 4 * _FIRST_ITEMS)
    warm_up = count(first)[2]  # imports scikit-learn's tokenizer
    again = count(first)[2]
    indices = spread(n, max(len(first), min(_MOST_ITEMS, int(_READING * len(first) / max(again, 1e-6)))))
    vectorizer, found, seconds = count(indices)
    per_item = seconds / len(indices)
    half = found.matrix[::2]
    n_half, n_all = len(np.unique(half.indices)), found.matrix.shape[1]
    growth = np.clip(np.log2(n_all / max(n_half, 1)), 0.0, 1.0) if len(indices) > 1 else 0.0
    d = int(min(vectorizer.max_words, n_all * (n / len(indices)) ** growth))
    stages = {"counting words": Range.about(per_item * n, 1.3)}
    return CountedSample(
        found.matrix, indices[found.kept], (max(d, 1),), stages, per_item, warm_up=max(warm_up - again, 0.0)
    )


def sample_visual(collection: Collection, options: FitOptions) -> CountedSample:
    """Describe a sample of images or videos, and time k-means and counting with its descriptors."""
    n, threads = len(collection), options.n_jobs
    vectorizer = make_vectorizer(options.with_changes(cache=None), collection.modality)
    assert isinstance(vectorizer, VisualVectorizer)

    def describe(indices: NDArray[np.intp]) -> tuple[list[Any], NDArray[np.intp], float]:
        started = time.perf_counter()
        describing = vectorizer.describe(collection[indices], on_error=options.on_error, n_jobs=threads)
        batches = list(describing)
        return batches, indices[describing.kept], time.perf_counter() - started

    first = spread(n, _FIRST_ITEMS)
    warm_up = describe(first[:2])[2]
    again = describe(first)[2]
    warm_up = max(warm_up - again / len(first) * len(first[:2]), 0.0)
    wanted = int(_READING * len(first) / max(again, 1e-6))
    indices = spread(n, max(len(first), min(_MOST_ITEMS, wanted)))
    batches, kept, seconds = describe(indices)
    describing = seconds / len(indices)
    learning, vectors_of, widths = _NOTHING, 0.0, []
    codebooks = []
    n_first = min(n, MOST_SAMPLED[collection.modality])  # others are described when words are counted
    n_again = 0
    for k, size in enumerate(vectorizer.vocabularies):
        vectors = np.concatenate([np.asarray(batch[k].values) for batch in batches])
        vectors = vectors[np.any(vectors != 0, axis=1)]
        if not len(vectors):
            raise BagwiseError(
                f"The first items of {collection.source} have no descriptors, so nothing can be planned."
            )
        vectors_of += len(vectors) / len(kept)
        if n_first < n and len(vectors) / len(kept) * n_first < N_SAMPLED_VECTORS:  # too few, see `VisualVectorizer`
            n_first, n_again = n, n_first
        widths.append(vectors.shape[1])
        learning += _forecast_kmeans(vectors, size, min(N_SAMPLED_VECTORS, len(vectors) / len(kept) * n), threads)
        codebooks.append(np.resize(vectors, (size, vectors.shape[1])))
    counter = VisualVectorizer(collection.modality, vectorizer.descriptor, codebooks, vectorizer.pyramid)
    pieces: list[Any] = [batch[0] if len(batch) == 1 else batch for batch in batches]
    counter.transform(pieces[:1], n_jobs=threads)
    started = time.perf_counter()
    found = counter.transform(pieces, n_jobs=threads)
    counting = (time.perf_counter() - started) / len(kept)
    stages = {
        "describing": Range.about(describing * (n_first + n_again), 1.3),
        "learning words": learning,
        "counting words": Range.about(counting * n + describing * (n - n_first), 1.4),
    }
    per_item = describing + counting
    return CountedSample(
        found.matrix, kept, vectorizer.vocabularies, stages, per_item, vectors_of, max(widths), warm_up, n_first
    )


def _forecast_kmeans(vectors: NDArray[Any], n_words: int, n_vectors: float, n_jobs: int) -> Range:
    """Time the seeds and a few iterations of k-means, and count the iterations of a small one like it."""
    threads, random = effective_n_jobs(n_jobs), np.random.default_rng(0)
    points = vectors if len(vectors) <= _TIMED_VECTORS else vectors[spread(len(vectors), _TIMED_VECTORS)]
    points = points - points.mean(axis=0, dtype=np.float64).astype(points.dtype)
    few = max(2, min(n_words, len(points) // 2))
    if len(points) <= few:
        return Range.about(0.1, 2.0)
    stamps: list[tuple[int, float]] = []

    def stamp(done: int, total: int) -> None:
        stamps.append((done, time.perf_counter()))

    kmeans(points, few, max_iter=1, n_threads=threads)  # compiles
    kmeans(points, few, max_iter=3, tol=0.0, random_state=random, n_threads=threads, progress=stamp)
    at = dict(stamps)
    seeded = min(at[done] for done in at if done >= 2)
    seeding, iteration = seeded - stamps[0][1], (stamps[-1][1] - seeded) / max(len([k for k in at if k > 2]), 1)
    more = n_vectors / len(points) * n_words / few  # an iteration takes vectors times words
    ratio = n_vectors / n_words
    small = max(2, min(_FEW_WORDS, n_words, int(len(points) / ratio)))
    some = points[random.permutation(len(points))[: max(small, int(small * ratio))]]
    runs = [
        kmeans(some, small, max_iter=_MOST_ITERATIONS, tol=1e-3, random_state=k, n_threads=threads).n_iter
        for k in range(2)
    ]
    expected = min(float(np.mean(runs)) * (n_words / small) ** _GROWTH, _MOST_ITERATIONS)
    fixed = (seeding + iteration) * more  # equal vectors are found, and inertia is computed
    low, high = max(expected / 1.6, 1.0), min(expected * 1.6, _MOST_ITERATIONS)
    return Range(
        fixed + expected * iteration * more,
        (fixed + low * iteration * more) / 1.2,
        (fixed + high * iteration * more) * 1.2,
    )


@dataclass
class _Stopwatch:
    """Seconds of each step, as its progress is reported."""

    seconds: dict[str, float] = field(default_factory=dict)
    _step: str | None = None
    _since: float = 0.0

    def __call__(self, step: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if self._step is not None:
            self.seconds[self._step] = self.seconds.get(self._step, 0.0) + now - self._since
        self._step, self._since = step, now

    def stop(self) -> dict[str, float]:
        """Return the seconds of all steps."""
        if self._step is not None:
            self(self._step, 0, 0)
        return self.seconds


@dataclass(frozen=True)
class _Part:
    """A part of the items and words."""

    data: WordData
    codes: NDArray[np.int64] | None
    options: FitOptions
    method: Any
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class GroupTimes:
    """Seconds of merging, of classifiers and of cross-validation."""

    merging: Range
    classifiers: Range
    validating: Range
    warm_up: float


def forecast_groups(
    sample: CountedSample,
    codes: NDArray[np.int64] | None,
    n_items: int,
    options: FitOptions,
    modality: str,
    pyramid: tuple[tuple[int, int], ...] = ((1, 1),),
    *,
    validated: bool,
) -> GroupTimes:
    """Merge parts of the data of growing size, with classifiers, and continue the times to all data.

    Items or words are doubled, whichever is the smaller fraction of all, until a part takes too long or is all; if the
    sample has too few items, more are drawn by the frequencies of its words. What each step takes is continued by
    powers of the numbers of items and words that fit the parts. Cross-validation is run once, and takes as many times
    longer for all data as merging does. `codes` are the classes of all items.
    """
    d = sample.n_words
    rows, words = min(n_items, _FIRST_ROWS), min(d, _FIRST_WORDS)
    measured: list[_Measured] = []
    parts: list[_Part] = []
    while True:
        parts = [*parts[-1:], _part_of(sample, codes, n_items, rows, words, options, modality, pyramid)]
        if not measured:  # the first run compiles, or loads compiled code
            started = time.perf_counter()
            _learn(parts[-1])
            warm_up = time.perf_counter() - started
        measured.append(_Measured(rows, words, _learn(parts[-1])))
        total = measured[-1].total
        if (rows, words) == (n_items, d) or total > (_MERGING if len(measured) > 2 else 4 * _MERGING):
            break
        if words / d <= rows / n_items:
            words = min(2 * words, d)
        else:
            rows = min(2 * rows, n_items)
    validating = 0.0
    if validated:
        which = -1 if len(parts) == 1 or options.folds * total < _VALIDATING else -2
        part = parts[which]
        assert part.codes is not None
        started = time.perf_counter()
        cross_validate(part.data, part.codes, part.sizes, part.method, part.options, no_progress)
        validating = (time.perf_counter() - started) / max(measured[which].total, 1e-6)
        # a single short run tells little, and folds take about as long as what they are part of
        rounds = np.ceil(options.folds / effective_n_jobs(options.n_jobs))
        validating = float(np.sqrt(validating * _FOLD * rounds))
    merged = list(measured)  # and more words, without classifiers, which take longest
    while words < d and merged[-1].seconds["Merging words"] < _MERGING / 4:
        words = min(2 * words, d)
        larger = _part_of(sample, codes, n_items, min(rows, _FIRST_ROWS), words, options, modality, pyramid)
        larger = replace(larger, sizes=larger.sizes[-1:])
        merged.append(_Measured(min(rows, _FIRST_ROWS), words, _learn(larger)))
    reached = rows / n_items * measured[-1].n_words / d
    doubt = float(np.clip(reached**-0.2, 1.25, 2.5))
    times = {
        step: _continued(merged if step == "Merging words" else measured, step, n_items, d)
        for step in measured[-1].seconds
    }
    steps = {step: Range.about(seconds, doubt) for step, seconds in times.items()}
    classifiers = steps.pop("Training classifiers", _NOTHING)
    merging = sum(steps.values(), start=_NOTHING)
    warm_up = max(warm_up - measured[0].total, 0.0)
    return GroupTimes(merging, classifiers, (merging + classifiers) * validating, warm_up)


@dataclass(frozen=True)
class _Measured:
    """What the steps of merging take for so many items and words."""

    n_items: int
    n_words: int
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        """Seconds of all steps."""
        return sum(self.seconds.values())

    def depends_on(self, step: str) -> NDArray[np.float64]:
        """Logarithms of what the seconds of a step depend on. Weights are fitted to a limited number of groups."""
        fitted = step == "Training classifiers" and _TEACHER in self.seconds
        return np.log([self.n_items, min(self.n_words, MOST_FITTED) if fitted else self.n_words])


def _continued(measured: Sequence[_Measured], step: str, n_items: int, n_words: int) -> float:
    """Seconds of a step for all data, by the powers of items and words that fit the parts best.

    Little is known from a few short times, so powers keep close to the usual ones without evidence.
    """
    last = measured[-1]
    seconds = np.array([max(one.seconds.get(step, 0.0), 1e-3) for one in measured])
    sizes = np.array([one.depends_on(step) for one in measured])
    usual = np.array((_FOLLOWING if _TEACHER in last.seconds else _OTHERS).get(step, (1.0, 1.0)))
    weights = np.sqrt(seconds / seconds.max())[:, np.newaxis]
    apart = (sizes - sizes[-1]) * weights
    grown = np.log(seconds / seconds[-1]) * weights.ravel()
    known = np.vstack([apart, _CAUTION * np.eye(2)]), np.concatenate([grown, _CAUTION * usual])
    powers = lsq_linear(*known, bounds=(0.0, _STEEPEST)).x
    more = _Measured(n_items, n_words, last.seconds).depends_on(step) - sizes[-1]
    return float(last.seconds[step] * np.exp(more @ powers))


def _learn(part: _Part) -> dict[str, float]:
    watch = _Stopwatch()
    watch("Merging words", 0, 1)
    weighting = choose_weighting(part.method, part.data.whole())
    learn_groups(part.data, part.codes, part.sizes, part.method, weighting, part.options, watch)
    return watch.stop()


def _part_of(
    sample: CountedSample,
    codes: NDArray[np.int64] | None,
    n_items: int,
    n_rows: int,
    n_words: int,
    options: FitOptions,
    modality: str,
    pyramid: tuple[tuple[int, int], ...],
) -> _Part:
    """Take some of the items, of all classes, and some of the words of each vocabulary."""
    random = np.random.default_rng(0)
    labels = None
    if n_rows <= len(sample.kept):
        own = None if codes is None else codes[sample.kept]
        chosen = _rows(len(sample.kept), own, n_rows, random)
        histograms, labels = sample.histograms[chosen], None if own is None else own[chosen]
    else:
        chosen = _rows(n_items, codes, n_rows, random)
        own, labels = (None, None) if codes is None else (codes[sample.kept], codes[chosen])
        histograms = _drawn(sample.histograms, own, labels, len(chosen), random)
    if labels is not None:
        labels = np.unique(labels, return_inverse=True)[1]
    cells = n_cells(pyramid)
    n_sampled = histograms.shape[1] // cells
    words, sizes = [], []
    first = 0
    for size in sample.vocabularies:
        own_size = min(size, n_sampled - first) if len(sample.vocabularies) > 1 else n_sampled
        wanted = max(2, min(own_size, round(n_words / sample.n_words * size)))
        words.append(first + np.sort(random.choice(own_size, wanted, replace=False)))
        sizes.append(wanted)
        first += own_size
    chosen_words = np.concatenate(words)
    columns = (np.arange(cells)[:, np.newaxis] * n_sampled + chosen_words).ravel()
    d = len(chosen_words)
    changed = options
    if options.n_groups != "auto":
        changed = options.with_changes(n_groups=min(int(options.n_groups), d))
    stand_in: Any = SimpleNamespace(n_words=d, vocabularies=tuple(sizes), pyramid=pyramid)
    nothing: Any = None
    data = WordData(nothing, histograms[:, columns], stand_in)
    n_classes = 0 if labels is None else int(labels.max()) + 1
    method = choose_method(changed, modality, n_classes, tuple(sizes))
    method = adapt_to_table(method, data.whole(), modality, changed)
    return _Part(data, labels, changed, method, sizes_of(d, changed, method, n_classes))


def _rows(n_items: int, codes: NDArray[np.int64] | None, n_rows: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Choose items: of each class as many as it has of all, and two at least; classes of one item are left out."""
    if n_rows >= n_items and (codes is None or np.bincount(codes)[codes].min() >= 2):
        return np.arange(n_items)
    if codes is None:
        return np.sort(random.choice(n_items, n_rows, replace=False))
    found = []
    for code in np.flatnonzero(np.bincount(codes) >= 2):
        own = np.flatnonzero(codes == code)
        found.append(random.choice(own, min(len(own), max(2, round(n_rows / n_items * len(own)))), replace=False))
    if len(found) < 2:  # the sample says nothing of classes
        return np.arange(n_items)
    return np.sort(np.concatenate(found))


def _drawn(
    histograms: Any,
    own: NDArray[np.int64] | None,
    wanted: NDArray[np.int64] | None,
    n_rows: int,
    random: np.random.Generator,
) -> sp.csr_array:
    """Draw items by the frequencies of words in three items of the sample, of the same class where there are some."""
    dense = histograms.toarray() if sp.issparse(histograms) else np.asarray(histograms)
    dense = np.maximum(dense.astype(np.float64), 0.0)
    totals, rows = dense.sum(axis=1), []
    for k in range(n_rows):
        among = np.arange(len(dense)) if own is None or wanted is None else np.flatnonzero(own == wanted[k])
        among = among if len(among) else np.arange(len(dense))
        mixed = dense[random.choice(among, 3)].sum(axis=0)
        n = int(totals[random.choice(among)])
        chances = mixed / mixed.sum() if mixed.sum() > 0 else np.full(len(mixed), 1 / len(mixed))
        rows.append(sp.csr_array(random.multinomial(n, chances)[np.newaxis].astype(np.float32)))
    return sp.csr_array(sp.vstack(rows, format="csr"))
