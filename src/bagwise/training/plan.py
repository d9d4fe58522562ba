"""`plan_fit`: the steps of a fit, with estimates of time and memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import scipy.sparse as sp

from bagwise._utils.memory import free_memory
from bagwise._utils.text import how_many
from bagwise.codebooks.pyramids import n_cells, resolve_pyramid
from bagwise.errors import BagwiseError
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.criteria.base import AdditiveScore
from bagwise.model.vectorizers import TableVectorizer
from bagwise.model.visual import N_SAMPLED_VECTORS
from bagwise.sources.tables import TableCollection
from bagwise.training.fit import DEFAULT_GROUPS, check_groups
from bagwise.training.forecast import CountedSample, Range, forecast_groups, sample_texts, sample_visual
from bagwise.training.method import adapt_to_table, choose_method, folds_of, sizes_of
from bagwise.training.options import FitOptions, check_options, make_descriptors
from bagwise.training.preparing import class_codes, class_names, enough_for_folds, open_training

__all__ = ["FitPlan", "PlannedStep", "plan_fit"]

_BASE_MEMORY = 500 * 2**20  # Python, the libraries and compiled code
_LARGEST_DENSE = 20_000  # words up to which merging holds two dense matrices
_SPOOLED = 64  # items whose descriptors are held at a time


@dataclass(frozen=True)
class PlannedStep:
    """One step of a fit, its estimated seconds, and between which these should be.

    `stage` is the name of the stage in the times of a fit (`Fit.timings`); "evaluation" is that of the test split.
    """

    what: str
    seconds: float
    low: float = 0.0
    high: float = 0.0
    stage: str = ""


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
    notes : tuple of str
        What the fit would tell as far as it is known before items are read.
    warm_up : float
        Seconds that were spent on compiling or on loading compiled code; not part of the estimates.
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
    notes: tuple[str, ...] = ()
    warm_up: float = 0.0

    @property
    def seconds(self) -> float:
        """Estimated seconds of all steps."""
        return sum(step.seconds for step in self.steps)

    @property
    def low(self) -> float:
        """Seconds that all steps should take at least."""
        return sum(step.low for step in self.steps)

    @property
    def high(self) -> float:
        """Seconds that all steps should take at most."""
        return sum(step.high for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as numbers, strings, lists and mappings."""
        steps = [asdict(step) for step in self.steps]
        more = {name: getattr(self, name) for name in ("seconds", "low", "high")}
        return asdict(self) | {"classes": list(self.classes), "steps": steps, "notes": list(self.notes), **more}


def plan_fit(source: Any, **options: Any) -> FitPlan:
    """Plan what `fit_model` would do, with times measured on a sample of the items; nothing is written.

    1. A sample of the items is described and counted, a few iterations of k-means are run with its descriptors.
    2. Parts of the data of growing size are merged and cross-validated, and the times are continued to all data.

    This takes some seconds, at most about 20, by the same code that the fit runs. Times do not include starting the
    program, compiling, and writing results; a cache is not looked at. Memory is a rough estimate.

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
    >>> import numpy as np
    >>> from bagwise.sources import TableCollection
    >>> from bagwise.training import plan_fit
    >>> rows = TableCollection(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> [step.what for step in plan_fit(rows, n_groups=2, folds=3).steps]
    ['merge 3 words by classifier', 'train 2 classifiers for 2 classes', 'cross-validate 2 sizes in 3 folds']
    """
    opened = open_training(source, FitOptions(**options))
    collection, chosen, log = opened.collection, opened.options.with_changes(cache=None), opened.log
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items to learn from.")
    check_options(chosen, collection.modality)
    n, modality, classes = len(collection), collection.modality, class_names(collection, chosen)
    codes = class_codes(collection, classes) if classes else None
    if isinstance(collection, TableCollection):
        sample = _table(collection)
    elif modality == "texts":
        sample = sample_texts(collection, chosen, bool(classes))
    else:
        sample = sample_visual(collection, chosen)
    if sample.n_words < 2:
        raise BagwiseError(f"{collection.source} has {how_many(sample.n_words, 'words')}; merging needs at least 2.")
    check_groups(chosen, sample.n_words)
    if not classes and any(item.labels for item in collection):
        log.notes.append("All items are of one class, so words were merged without using classes.")
    validated = codes is not None and enough_for_folds(codes, classes, chosen, log)
    method = choose_method(chosen, modality, len(classes), sample.vocabularies)
    if isinstance(collection, TableCollection):
        method = adapt_to_table(method, collection.X, modality, chosen)
    if method.scaling is not None:
        log.notes.append(f"The {method.scaling}.")
    if chosen.n_groups == "auto" and not validated:
        n_default = min(DEFAULT_GROUPS, sample.n_words)
        log.notes.append(f"There are {n_default} groups by default; only cross-validation can choose their number.")
    pyramid = resolve_pyramid(chosen.pyramid)
    times = forecast_groups(sample, codes, n, chosen, modality, pyramid, validated=validated)
    sizes = sizes_of(sample.n_words, chosen, method, len(classes))
    steps = _reading_steps(sample, chosen, modality, n)
    steps.append(_step(f"merge {sample.n_words:,} words by {method.criterion}", times.merging, "merging"))
    if classes:
        steps.append(_step(f"train {len(sizes)} classifiers for {len(classes)} classes", times.classifiers, "merging"))
    if validated and codes is not None:
        what = f"cross-validate {len(sizes)} sizes in {len(folds_of(codes, chosen))} folds"
        steps.append(_step(what, times.validating, "cross-validation"))
    n_test = 0 if opened.test is None else len(opened.test)
    if n_test and classes:
        evaluating = Range.about(sample.per_item * n_test, 1.4)
        steps.append(_step(f"count the words of {n_test:,} test items", evaluating, "evaluation"))
    entries = sample.histograms.nnz if sp.issparse(sample.histograms) else sample.histograms.size
    per_item = entries / max(sample.histograms.shape[0], 1)
    n_groups = chosen.n_groups if chosen.n_groups == "auto" else int(chosen.n_groups)
    reading = 4 * sample.width * (3 * min(N_SAMPLED_VECTORS, sample.n_vectors * n) + _SPOOLED * sample.n_vectors)
    merging = _memory_of_merging(method.criterion, n, sample.n_words, per_item, len(classes))
    return FitPlan(
        source=collection.source,
        modality=modality,
        n_items=n,
        n_test=n_test,
        n_words=sample.n_words,
        n_features=n_cells(pyramid) * (sample.n_words if n_groups == "auto" else int(n_groups)),
        classes=classes,
        criterion=method.criterion,
        n_groups=n_groups,
        steps=tuple(steps),
        memory=int(_BASE_MEMORY + max(reading, merging) + 8 * per_item * n),
        free=free_memory(),
        notes=(*opened.found, *log.notes),
        warm_up=sample.warm_up + times.warm_up,
    )


def _step(what: str, times: Range, stage: str) -> PlannedStep:
    return PlannedStep(what, times.seconds, times.low, times.high, stage)


def _table(collection: TableCollection) -> CountedSample:
    """Return a whole table as a sample."""
    vectorizer = TableVectorizer()
    found = vectorizer.fit_transform(collection)
    return CountedSample(found.matrix, found.kept, (vectorizer.n_words,), {}, 0.0)


def _reading_steps(sample: CountedSample, options: FitOptions, modality: str, n: int) -> list[PlannedStep]:
    """Return the steps before merging."""
    what = {}
    if modality == "texts":
        what = {"counting words": f"count up to {sample.n_words:,} words in {n:,} texts"}
    elif modality != "table":
        names = " and ".join(type(one).__name__ for one in make_descriptors(options, modality))
        n_others = n - sample.n_first
        others = f", after describing the other {n_others:,}" if n_others else ""
        what = {
            "describing": f"describe {sample.n_first:,} {modality} by {names}",
            "learning words": f"learn {' and '.join(map(str, sample.vocabularies))} words",
            "counting words": f"count the words of each item{others}",
        }
    return [_step(what[stage], times, stage) for stage, times in sample.seconds.items()]


def _memory_of_merging(criterion: str, n_items: int, n_words: int, per_item: float, n_classes: int) -> float:
    """Estimate the bytes that merging takes."""
    chosen, d = resolve_criterion(criterion), float(n_words)
    if isinstance(chosen, AdditiveScore):  # one row per word, one column per class or item
        return 24 * d * (n_classes if chosen.supervised else n_items)
    return 2.2 * 8 * d**2 if d <= _LARGEST_DENSE else 24 * per_item * n_items
