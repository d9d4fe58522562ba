"""Estimate errors: of a model on labelled items, and of criteria by cross-validation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from bagwise._utils.text import percent, quoted
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.vectorizers import Progress, WordSample, no_progress
from bagwise.app.model import Model, PathErrors
from bagwise.app.options import FitOptions
from bagwise.app.training.baselines import POOLED, pooled_baseline
from bagwise.app.training.items import count_words, open_items
from bagwise.app.training.method import (
    Method,
    adapt_to_table,
    choose_method,
    choose_weighting,
    fitting_svms,
    folds_of,
    make_svm,
)
from bagwise.app.training.preparing import Prepared, prepare
from bagwise.app.training.references import references_for, score_reference
from bagwise.app.training.rows import Rows
from bagwise.app.training.seen import SeenItems, seen_items
from bagwise.app.training.validating import path_errors, validate
from bagwise.distributed.executors import LocalExecutor, executor_of
from bagwise.errors import BagwiseError, OptionError, argument
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.merging.criteria.base import TraceRatio
from bagwise.merging.criteria.posterior import MultinomialPosterior
from bagwise.merging.sizes import path_sizes
from bagwise.sources.collection import Collection
from bagwise.sources.items import Skipped, SkippedItemsWarning

__all__ = ["ComparedCriterion", "Evaluation", "compare_criteria", "evaluate_model"]


@dataclass(frozen=True)
class Evaluation:
    """Errors of a model along its merging path.

    Attributes
    ----------
    collection : Collection
        The classified items.
    n_skipped : int
        Items that could not be read, or have no label.
    histograms : CSR array or ndarray of shape (n_items, n_cells * d)
        Their histograms over the full vocabulary.
    classes : tuple of str
    sizes : tuple of int
        Sizes at which the model has a classifier.
    errors : tuple of float
        Fraction of wrongly classified items, at each size.
    codes : ndarray of shape (n_items,)
        True classes, as indices into `classes`.
    predicted : ndarray of shape (n_sizes, n_items)
        Predicted classes.
    samples : dict
        Words of the descriptors of some images by their row, for the patches of a report.
    seen : SeenItems or None
        Which of the items the model was learned from, if that is known.
    skipped : tuple of Skipped
        Items that could not be read, and why.
    """

    collection: Collection
    n_skipped: int
    histograms: Any
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    errors: tuple[float, ...]
    codes: NDArray[np.int64]
    predicted: NDArray[np.int64]
    samples: Mapping[int, WordSample] = field(default_factory=dict)
    seen: SeenItems | None = None
    skipped: tuple[Skipped, ...] = ()

    def at(self, size: int) -> NDArray[np.int64]:
        """Return the predictions at one of the sizes, as indices into `classes`."""
        if size not in self.sizes:
            raise BagwiseError(f"There is no classifier for {size} groups. Sizes: {', '.join(map(str, self.sizes))}.")
        return self.predicted[self.sizes.index(size)]

    def about_seen(self, model: Model, where: str = "") -> str | None:
        """Say how many of the items the model was learned from; None if there are none, or it is not known."""
        if self.seen is None:
            return None
        wrong, validated = None, ""
        if model.n_groups in self.sizes:
            wrong = self.at(model.n_groups) != self.codes
        if model.path is not None and model.n_groups in model.path.sizes:
            error = model.path.errors[model.path.sizes.index(model.n_groups)]
            validated = f" For new items, {model.path.protocol} gave {percent(error)}."
        return self.seen.sentence(wrong, validated, where)

    def confusion(self, size: int) -> NDArray[np.int64]:
        """Return the confusion matrix at one of the sizes: true classes in rows, predictions in columns."""
        return confusion_matrix(self.codes, self.at(size), labels=np.arange(len(self.classes)))


def evaluate_model(
    model: Model, source: Any, *, client: Any = None, progress: Progress | None = None, **options: Any
) -> Evaluation:
    """Classify labelled items along the path: at 2, 5, 10, 20, … groups, as far as the model has classifiers for them.

    Parameters
    ----------
    model : Model
    source : Collection or path
        With labels the model knows; items without a label are not used. Of a source with splits, "test" is used.
    client : distributed.Client, default=None
        Workers of this Dask cluster read the items and count their words.
    progress : callable, default=None
        See `fit_model`.
    **options
        Parameters of `FitOptions`: those that say how a source is read, `on_error`, `n_jobs` and `cache` are used.

    Returns
    -------
    evaluation : Evaluation

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import evaluate_model, fit_model
    >>> rows = Collection.from_matrix(np.array([[3, 1], [0, 1], [2, 0], [1, 2]]), list("1234"), [("a",), ("b",)] * 2)
    >>> evaluate_model(fit_model(rows, n_groups=2, folds=0), rows).confusion(2)
    array([[2, 0],
           [0, 2]])
    """
    chosen = FitOptions(**options).for_source(source)
    if not model.heads:
        raise BagwiseError(
            f"This model {'' if model.classes else 'was fitted without classes and '}has no classifier, so there is no "
            "error to estimate. Fit a model to items with labels: one folder per class, or a column of labels."
        )
    collection = open_items(model, source, chosen, None if client is None else executor_of(client, progress))
    skipped = () if isinstance(source, Collection) else collection.skipped
    if "test" in collection.splits:
        collection = collection.split("test")[0]
    n_items, collection = len(collection), _labelled(collection, model)
    n_samples = MODALITIES[model.modality].n_sampled
    counted = count_words(model, collection, chosen, n_samples=n_samples, progress=progress, client=client)
    collection = collection[counted.kept]
    codes = collection.codes_in(model.classes)
    n_words, path = model.hierarchy.n_words, model.path
    usual = {model.n_groups, *(path_sizes(n_words) if path is None else path.sizes)}
    sizes = tuple(size for size in model.heads if size in usual) or tuple(model.heads)
    scores = (model.heads[size].scores(model.group(counted.matrix, size)) for size in sizes)
    predicted = np.stack([np.argmax(some, axis=1) for some in scores])
    return Evaluation(
        collection=collection,
        n_skipped=n_items - len(collection) + len(skipped),
        histograms=counted.matrix,
        classes=model.classes,
        sizes=sizes,
        errors=tuple((predicted != codes).mean(axis=1).tolist()),
        codes=codes,
        predicted=predicted,
        samples=counted.samples,
        seen=seen_items(model, collection, counted.matrix),
        skipped=(*skipped, *counted.skipped),
    )


def _labelled(collection: Collection, model: Model) -> Collection:
    """Return the items with a label; raise an error for labels that the model does not know."""
    has = collection.n_labels > 0
    if not has.any():
        raise BagwiseError(
            f"The {len(collection)} items of {collection.source} have no labels, so there is no error to estimate. "
            f"Put items into one folder per class, give a file of labels by {argument('labels')}, or name the column "
            f"by {argument('label')}." + "".join(f" {note}" for note in collection.notes)
        )
    labelled = collection if has.all() else collection[has]
    unknown = sorted(set(labelled.labels.tolist()) - set(model.classes))
    if unknown:
        raise BagwiseError(
            f"{collection.source} has items labelled {', '.join(map(repr, unknown[:3]))}, which the model does not "
            f"know. It knows: {', '.join(map(repr, model.classes[:20]))}."
        )
    return labelled


@dataclass(frozen=True)
class ComparedCriterion:
    """Errors of one criterion along its merging path, and the seconds that its cross-validation took.

    A `reference` is not merging: all words, components or selected words, see `bagwise.app.training.references`.
    """

    name: str
    path: PathErrors
    seconds: float
    reference: bool = False


class ComparedCriteria(list[ComparedCriterion]):
    """The compared criteria and references; `left_out` says why others are not among them, by name."""

    left_out: dict[str, str]


def compare_criteria(
    source: Any,
    criteria: Sequence[str] | None = None,
    *,
    sizes: Sequence[int] | None = None,
    references: bool | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> ComparedCriteria:
    """Cross-validate several criteria on the same words and the same folds, beside what else could be done.

    Parameters
    ----------
    source : Collection or path
        With labels.
    criteria : sequence of str, default=None
        Names from `bagwise.criteria`. None: those that are advised for such data, the default of `fit_model` first; see
        `advised_criteria`.
    sizes : sequence of int, default=None
        Numbers of groups; None: 2, 5, 10, 20 and so on up to all words.
    references : bool, default=None
        Whether to add a linear SVM on all words, on as many singular vectors, and on as many words selected by chi² and
        mRMR, and for network words a logistic regression on pooled features of the network; those that would take too
        long are left out. None: if `criteria` is None.
    progress : callable, default=None
        See `fit_model`.
    **options
        Parameters of `FitOptions`. `criterion` and `n_groups` are not used.

    Returns
    -------
    compared : list of ComparedCriterion
        In the order of `criteria`, then the references. Its attribute `left_out` is a dict with the criteria and
        references that are not compared by default, and why.

    Warns
    -----
    SkippedItemsWarning
        If items could not be read, have no label, or are the only one of their class, which are not used.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import compare_criteria
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> [(one.name, one.path.errors) for one in compare_criteria(rows, ["csm", "aib"], folds=3, sizes=[2])]
    [('csm', (0.0,)), ('aib', (0.0,))]
    """
    chosen = FitOptions(**options)
    if criteria is not None and not criteria:
        raise BagwiseError(f"There are no criteria to compare. Choose from {', '.join(sorted(NAMED_CRITERIA))}.")
    for name in criteria or ():
        resolve_criterion(name)
    if chosen.folds < 2:
        raise OptionError("folds", f"Comparing criteria needs at least 2 folds, got folds={chosen.folds}.")
    report = progress or no_progress
    executor = LocalExecutor(report, chosen.memory_limit)
    prepared = prepare(source, chosen, executor)
    prepared = _without_lone_items(prepared)
    if prepared.codes is None or not prepared.enough_for_folds(chosen):
        advice = "Put items into one folder per class, or name the column of labels."
        raise BagwiseError(
            "Comparing criteria means comparing errors, which needs at least two classes of two items or more. "
            f"{' '.join([*prepared.log.notes, advice])} Without labels, fit models with the criteria clusters and mmi, "
            "and look at their groups."
        )
    n_words = prepared.data.n_words
    if sizes is not None and (not sizes or any(not 1 <= size <= n_words for size in sizes)):
        raise OptionError("sizes", f"sizes must be from 1 to {n_words}, the number of words; got {list(sizes)}.")
    tried = path_sizes(n_words) if sizes is None else tuple(sorted(set(sizes)))
    for note in prepared.log.notes:
        warnings.warn(SkippedItemsWarning(note, prepared.data.skipped), stacklevel=2)
    data, codes, compared = prepared.data, prepared.codes, ComparedCriteria()
    compared.left_out = {}

    def method_of(criterion: str) -> Method:
        root = "auto" if criterion == "classifier" else chosen.root  # it takes no roots after merging
        asked, modality = chosen.with_changes(criterion=criterion, root=root), data.collection.modality
        method = choose_method(asked, modality, len(prepared.classes), data.layout.vocabularies)
        return adapt_to_table(method, data.whole(), modality, asked)

    default = method_of("auto")
    if criteria is None:
        criteria, compared.left_out = advised_criteria(default, data.collection.modality, len(prepared.classes))
        references = True if references is None else references
    for name in criteria:
        started = time.perf_counter()
        method = method_of(name)
        weighting = choose_weighting(method, data.whole())
        rows = Rows.of(data, codes, method, weighting)
        validation = validate(executor, rows, tried, method, chosen, prepared.steps)
        compared.append(ComparedCriterion(name, validation.path, time.perf_counter() - started))
    if not references:
        return compared
    # as the default weights words, but Hellinger normalisation is the same before and after for single words
    usual = default if default.root != "before" else replace(default, root="after")
    splits, svm = folds_of(codes, chosen), make_svm(chosen)
    with fitting_svms():
        widths = [data.layout.width(size) for size in tried]
        affordable, too_large = references_for(data.histograms, usual, widths, data.layout)
        compared.left_out |= too_large
        for one in affordable:
            started = time.perf_counter()
            follow = partial(report, f"Cross-validating {one.name}")
            scored = score_reference(one, codes, widths, splits, usual, svm, follow)
            path = path_errors(scored, len(splits))
            compared.append(ComparedCriterion(one.name, path, time.perf_counter() - started, reference=True))
    if data.pooled is not None:
        started = time.perf_counter()
        report(f"Cross-validating {POOLED}", 0, 0)
        pooled, n = pooled_baseline(data.pooled, codes, chosen), len(tried)
        errors, deviations = (pooled["error"],) * n, (pooled["standard_error"],) * n
        path = PathErrors(tried, errors, deviations, compared[0].path.protocol, (0.0,) * n)
        compared.append(ComparedCriterion(POOLED, path, time.perf_counter() - started, reference=True))
    return compared


def advised_criteria(default: Method, modality: str, n_classes: int) -> tuple[list[str], dict[str, str]]:
    """Return the criteria that are advised for labelled data, the default of a fit first, and why others are not.

    >>> from bagwise.app.training.method import choose_method
    >>> names, left_out = advised_criteria(choose_method(FitOptions(), "texts", 6), "texts", 6)
    >>> names, left_out["csm"]
    (['classifier', 'aib', 'mlt'], 'a trace ratio, for two classes of images or videos')
    >>> advised_criteria(choose_method(FitOptions(), "images", 2), "images", 2)[0]
    ['classifier', 'aib', 'mlt', 'csm']
    """
    names = [default.criterion, "classifier", "aib"]
    if default.scaling is None:
        names.append(MultinomialPosterior.name)
    by_pairs = MODALITIES[modality].two_classes_by
    if n_classes == 2 and by_pairs is not None:
        names.append(by_pairs)
    left_out = {}
    for name, criterion in sorted(NAMED_CRITERIA.items()):
        if name in names:
            continue
        if not criterion.supervised:
            left_out[name] = "uses no labels"
        elif criterion is MultinomialPosterior:
            left_out[name] = "for counts, not for measurements"
        elif issubclass(criterion, TraceRatio):
            is_like = "like csm" if "csm" in names else "for two classes of images or videos"
            left_out[name] = f"a trace ratio, {is_like}"
        else:
            left_out[name] = "not advised for any data"
    return list(dict.fromkeys(names)), left_out


def _without_lone_items(prepared: Prepared) -> Prepared:
    """Leave out classes of one item, which cannot be both trained on and tested; adds a note."""
    if prepared.codes is None:
        return prepared
    counts = np.bincount(prepared.codes)
    lone = np.flatnonzero(counts == 1)
    if not len(lone) or (counts > 1).sum() < 2:
        return prepared
    names = quoted([prepared.classes[k] for k in lone.tolist()])
    more = (
        f"{len(lone)} classes of one item each ({names}) were"
        if len(lone) > 1
        else f"The class {names} of one item was"
    )
    prepared.log.notes.append(f"{more} left out: a class needs two items for its errors to be estimated.")
    rows = np.flatnonzero(counts[prepared.codes] > 1)
    classes = tuple(name for k, name in enumerate(prepared.classes) if counts[k] > 1)
    data = replace(
        prepared.data,
        collection=prepared.data.collection[rows],
        histograms=prepared.data.histograms[rows],
        samples={},
        pooled=None if prepared.data.pooled is None else prepared.data.pooled[rows],
    )
    return replace(prepared, data=data, classes=classes, codes=np.unique(prepared.codes[rows], return_inverse=True)[1])
