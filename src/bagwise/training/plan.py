"""`plan_fit`: the steps of a fit, with estimates of time and memory."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs

from bagwise._utils.memory import free_memory
from bagwise.codebooks.pyramids import n_cells, resolve_pyramid
from bagwise.errors import BagwiseError
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.criteria.base import AdditiveScore
from bagwise.merging.path import path_sizes
from bagwise.sources.collection import Collection
from bagwise.sources.items import ItemError
from bagwise.sources.tables import TableCollection
from bagwise.training.fit import check_groups
from bagwise.training.method import adapt_to_size, adapt_to_table, choose_method
from bagwise.training.options import (
    FitOptions,
    check_options,
    choose_descriptor,
    make_descriptors,
    open_source,
    text_words,
    visual_words,
)
from bagwise.training.preparing import class_names, split_source

__all__ = ["FitPlan", "PlannedStep", "plan_fit"]

_SAMPLE = 8
_SAMPLED_VECTORS = 100_000  # what BagOfFeatures learns words from
# Rough values, for estimates within a factor of a few: iterations of k-means until convergence; seconds of a search
# per squared number of words; seconds of an additive score per squared number of words and column; passes of the SVM
# over the data, and entries it handles per second.
_KMEANS_ITERATIONS = 40
_SEARCH_SECONDS = 5e-9
_SCORE_SECONDS = 4e-9
_SVM_PASSES = 60
_SVM_SPEED = 1e8
_BASE_MEMORY = 250 * 2**20  # Python and the libraries
_LARGEST_DENSE = 20_000  # words up to which merging holds two dense matrices


@dataclass(frozen=True)
class PlannedStep:
    """One step of a fit, and its estimated seconds."""

    what: str
    seconds: float


@dataclass(frozen=True)
class FitPlan:
    """The plan of a fit.

    Attributes
    ----------
    source, modality : str
        Origin and modality of the items.
    n_items, n_words, n_features : int
        Training items; size of the vocabulary (an upper limit for texts); features per item.
    n_test : int
        Items of the test split.
    classes : tuple of str
    criterion : str
    n_groups : int or "auto"
    steps : tuple of PlannedStep
    memory : int
        Estimated peak memory in bytes.
    free : int or None
        Free memory in bytes, if the system tells.
    """

    source: str
    modality: str
    n_items: int
    n_test: int
    n_words: int
    n_features: int
    classes: tuple[str, ...]
    criterion: str
    n_groups: int | str
    steps: tuple[PlannedStep, ...]
    memory: int
    free: int | None

    @property
    def seconds(self) -> float:
        """Estimated seconds of all steps."""
        return sum(step.seconds for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as numbers, strings, lists and mappings."""
        steps = [asdict(step) for step in self.steps]
        return asdict(self) | {"classes": list(self.classes), "steps": steps, "seconds": self.seconds}


@dataclass(frozen=True)
class _Words:
    """An estimate of the vocabulary: its size, distinct words per item, memory and steps to learn it."""

    n_words: int
    per_item: float
    memory: int
    steps: tuple[PlannedStep, ...]


def plan_fit(source: Any, **options: Any) -> FitPlan:
    """Plan what `fit_model` would do: a few items are read and timed, nothing is written.

    Times and memory are estimates, right within a factor of a few; they do not include compilation.

    Parameters
    ----------
    source : Collection or path
    **options
        Parameters of `FitOptions`.

    Returns
    -------
    plan : FitPlan

    Examples
    --------
    >>> from bagwise.sources import TableCollection
    >>> from bagwise.training import plan_fit
    >>> rows = TableCollection(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> [step.what for step in plan_fit(rows, n_groups=2, folds=3).steps]
    ['merge 3 words by aib', 'cross-validate 2 sizes in 3 folds', 'train 2 classifiers for 2 classes']
    """
    chosen = FitOptions(**options)
    collection, test = split_source(open_source(source, chosen))
    chosen, collection, _ = choose_descriptor(chosen, collection)
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items to learn from.")
    check_options(chosen, collection.modality)
    threads = effective_n_jobs(chosen.n_jobs)
    speed = _multiplications_per_second()
    words = _forecast_words(collection, chosen, threads, speed)
    check_groups(chosen, words.n_words)
    classes = class_names(collection, chosen)
    method = choose_method(chosen, collection.modality, len(classes))
    method = adapt_to_size(method, chosen, len(collection), words.n_words)
    if isinstance(collection, TableCollection):
        method = adapt_to_table(method, collection.X, collection.modality, chosen)
    criterion = method.criterion
    n, d, cells = len(collection), words.n_words, n_cells(resolve_pyramid(chosen.pyramid))
    entries = words.per_item * n
    merging, merging_memory = _forecast_merging(criterion, n, words, len(classes), speed)
    steps = [*words.steps, PlannedStep(f"merge {d:,} words by {criterion}", merging)]
    sizes = path_sizes(d, *(() if chosen.n_groups == "auto" else (int(chosen.n_groups),)))
    if classes:
        rows = len(resolve_pyramid(chosen.pyramid))  # a word counts once in each grid
        heads = len(sizes) * len(classes) * entries * rows * _SVM_PASSES / _SVM_SPEED
        if chosen.folds:
            what = f"cross-validate {len(sizes)} sizes in {chosen.folds} folds"
            steps.append(PlannedStep(what, chosen.folds * (merging + heads) / min(threads, chosen.folds)))
        steps.append(PlannedStep(f"train {len(sizes)} classifiers for {len(classes)} classes", heads))
    n_groups = chosen.n_groups if chosen.n_groups == "auto" else int(chosen.n_groups)
    return FitPlan(
        source=collection.source,
        modality=collection.modality,
        n_items=n,
        n_test=0 if test is None else len(test),
        n_words=d,
        n_features=cells * (d if n_groups == "auto" else int(n_groups)),
        classes=classes,
        criterion=criterion,
        n_groups=n_groups,
        steps=tuple(steps),
        memory=int(_BASE_MEMORY + max(words.memory, merging_memory) + 8 * entries),
        free=free_memory(),
    )


def _forecast_merging(criterion: str, n_items: int, words: _Words, n_classes: int, speed: float) -> tuple[float, float]:
    """Estimate seconds and bytes of merging."""
    d, entries = float(words.n_words), words.per_item * n_items
    chosen = resolve_criterion(criterion)
    if isinstance(chosen, AdditiveScore):  # one row per word, one column per class or item
        width = n_classes if chosen.supervised else n_items
        return _SCORE_SECONDS * d**2 * width, 24 * d * width
    gram = min(n_items * d**2, entries * words.per_item) / speed
    memory = 2.2 * 8 * d**2 if d <= _LARGEST_DENSE else 24 * entries
    return gram + _SEARCH_SECONDS * d**2, memory


def _forecast_words(collection: Collection, options: FitOptions, threads: int, speed: float) -> _Words:
    n = len(collection)
    if isinstance(collection, TableCollection):
        X = collection.X
        return _Words(X.shape[1], (X.nnz if sp.issparse(X) else X.size) / n, 0, ())
    sample = [collection[i] for i in np.unique(np.linspace(0, n - 1, _SAMPLE).astype(int)).tolist()]
    if collection.modality == "texts":
        started = time.perf_counter()
        texts = [text.split() for text in _contents(sample, options)]
        seconds = (time.perf_counter() - started) / len(texts) * n
        distinct = float(np.mean([len(set(text)) for text in texts]))
        d = text_words(options, bool(class_names(collection, options)))
        return _Words(d, distinct, int(100 * d), (PlannedStep(f"count up to {d:,} words in {n:,} texts", 4 * seconds),))
    descriptors = make_descriptors(options, collection.modality)
    sizes = visual_words(options, len(descriptors))
    started = time.perf_counter()
    contents = _contents(sample, options, descriptors[0].max_side if collection.modality == "images" else None)
    describing = time.perf_counter() - started
    learning = counting = entries = memory = 0.0
    for descriptor, size in zip(descriptors, sizes, strict=True):
        descriptor.describe(contents[0])  # compiling does not count
        started = time.perf_counter()
        described = [descriptor.describe(content)[0] for content in contents]
        describing += time.perf_counter() - started
        vectors, width = float(np.mean([len(values) for values in described])), described[0].shape[1]
        sampled = min(_SAMPLED_VECTORS, vectors * n)
        learning += _KMEANS_ITERATIONS * sampled * size * width / speed
        counting += vectors * n * size * width / speed
        entries += min(vectors, size)
        memory += 4 * width * (3 * sampled + 64 * vectors)
    names, numbers = (" and ".join(map(str, some)) for some in ([type(one).__name__ for one in descriptors], sizes))
    steps = (
        PlannedStep(f"describe {n:,} {collection.modality} by {names}", describing / len(contents) * n / threads),
        PlannedStep(f"learn {numbers} words", learning),
        PlannedStep("count the words of each item", counting),
    )
    return _Words(sum(sizes), entries, int(memory), steps)


def _contents(sample: list[Any], options: FitOptions, max_side: int | None = None) -> list[Any]:
    """Load a few items; those that cannot be read are skipped if the fit would do so too."""
    contents = []
    error: ItemError | None = None
    for item in sample:
        try:
            contents.append(item.load(max_side))
        except ItemError as found:
            if options.on_error == "raise":
                raise
            error = found
    if not contents:
        raise BagwiseError(f"None of {len(sample)} items that were tried can be read. {error}")
    return contents


def _multiplications_per_second() -> float:
    """Measure how fast this machine multiplies matrices."""
    A = np.ones((512, 512), np.float32)
    A @ A  # threads start
    started = time.perf_counter()
    for _ in range(3):
        A @ A
    return 3 * 512**3 / max(time.perf_counter() - started, 1e-6)
