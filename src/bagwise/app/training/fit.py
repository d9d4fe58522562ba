"""From a folder, an archive or a table to a model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from bagwise._utils.text import agree, how_many, percent
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.vectorizers import Progress, no_progress
from bagwise.app.model import Model, PathErrors
from bagwise.app.options import FitOptions
from bagwise.app.training.baselines import measure_baselines, with_pooled
from bagwise.app.training.few_labels import few_labels_notes, groups_help, unlabelled_of
from bagwise.app.training.item_answers import TopClasses
from bagwise.app.training.known_items import KnownItems
from bagwise.app.training.learning import learn_groups
from bagwise.app.training.method import (
    Method,
    adapt_to_table,
    choose_method,
    choose_weighting,
    sizes_of,
    unequal_groups,
)
from bagwise.app.training.preparing import WordData, prepare
from bagwise.app.training.provenance import provenance_of
from bagwise.app.training.rows import Rows
from bagwise.app.training.seen import distinct_hashes, notes_on_copies
from bagwise.app.training.validating import Fold, validate
from bagwise.descriptors.registry import split_names, without_folder
from bagwise.distributed.executors import executor_of
from bagwise.errors import BagwiseError, OptionError, argument, in_python
from bagwise.sources.collection import Collection

__all__ = ["Fit", "check_groups", "run_fit"]

# Groups, if their number is not given and cannot be chosen by cross-validation.
DEFAULT_GROUPS = 50


@dataclass(frozen=True)
class Fit:
    """A fitted model, and what else a fit gives.

    Attributes
    ----------
    model : Model
    data : WordData
        The training items, as histograms over the full vocabulary.
    codes : ndarray of shape (n_labelled,), or None
        Classes of the items that have one, the first ones, as indices into ``model.classes``; None without classes.
    held_out_top : TopClasses or None
        Predictions of cross-validation at each size of ``model.path``, as indices into ``model.classes``, with scores,
        the second best classes and margins.
    folds : tuple of Fold
        What each fold of cross-validation learned; () without.
    test : Collection or None
        The split "test", if the source has one; with classes, its labelled items.
    timings : dict
        Seconds per stage.
    notes : tuple of str
        Messages for the user: skipped items, classes with too few items.
    cached : tuple of str
        What was taken from the cache, in words.
    """

    model: Model
    data: WordData
    codes: NDArray[np.int64] | None
    held_out_top: TopClasses | None
    folds: tuple[Fold, ...]
    test: Collection | None
    timings: dict[str, float]
    notes: tuple[str, ...]
    cached: tuple[str, ...] = ()

    @property
    def held_out(self) -> NDArray[np.int64] | None:
        """Predictions of cross-validation at each size of ``model.path``, as indices into ``model.classes``."""
        return None if self.held_out_top is None else self.held_out_top.predicted.astype(np.int64)

    def confusion(self, size: int) -> NDArray[np.int64]:
        """Return the confusion matrix of cross-validation at one of its sizes: true classes in rows."""
        path, held_out = self.model.path, self.held_out
        if path is None or held_out is None or size not in path.sizes:
            sizes = "none" if path is None else ", ".join(map(str, path.sizes))
            raise BagwiseError(f"There are no held-out answers for {size} groups. Sizes: {sizes}.")
        predicted = held_out[path.sizes.index(size)]
        return np.asarray(confusion_matrix(self.codes, predicted, labels=np.arange(len(self.model.classes))))

    def report(self, path: str | os.PathLike[str], model: Model | None = None) -> Path:
        """Write the report of the fit, at the groups of a model that was cut from its model; see `Model.report`."""
        from bagwise.app.report import write_report
        from bagwise.app.training.evaluate import evaluate_model
        from bagwise.app.training.report_data import fit_report_data

        fit = self if model is None else dataclasses.replace(self, model=model)
        if fit.model.hierarchy is not self.model.hierarchy:
            raise BagwiseError(
                "A report of a fit shows its groups, but those of this model were edited. Write that of the model "
                "before its edits, or evaluate this one: bagwise evaluate."
            )
        if fit.model.path is not None and fit.model.n_groups not in fit.model.path.sizes:
            sizes = ", ".join(map(str, fit.model.path.sizes))
            raise BagwiseError(f"Errors were measured at {sizes} groups, not at {fit.model.n_groups}. Cut it there.")
        tested = evaluate_model(fit.model, self.test) if self.test is not None and fit.model.heads else None
        return Path(write_report(fit_report_data(fit, tested), path))


def run_fit(
    source: Any,
    options: FitOptions,
    *,
    use_classes: bool = True,
    n_components: int | None = None,
    add: KnownItems | None = None,
    progress: Progress | None = None,
    client: Any = None,
) -> Fit:
    """Fit a model as `fit_model` does.

    Parameters
    ----------
    source : Collection or path
    options : FitOptions
    use_classes : bool, default=True
        False: learn from all items as if none had a label or a split.
    n_components : int, default=None
        Move the words of images or videos by `ManifoldBagOfFeatures` with so many components.
    add : KnownItems, default=None
        Keep the words of a model, and those of its items, see `ItemIndex.known_items`.
    progress : callable, default=None
    client : distributed.Client, default=None

    Returns
    -------
    fit : Fit
    """
    report = progress or no_progress
    executor = executor_of(client, report, options.memory_limit)
    prepared = prepare(source, options, executor, use_classes, n_components, unlabelled=True, known=add)
    data, classes, codes, log = prepared.data, prepared.classes, prepared.codes, prepared.log
    options = prepared.options
    check_groups(options, data.n_words)
    validated = codes is not None and prepared.enough_for_folds(options)
    modality = data.collection.modality
    method = choose_method(options, modality, len(classes), data.layout.vocabularies)
    rows = data.rows
    if rows is not None and not use_classes:
        raise BagwiseError(
            f"Items are clustered in this process, and the histograms of {rows.n_items:,} take more than "
            f"{argument('memory_limit', options.memory_limit)}. Leave it out, or fit a model within it, whose index "
            f"can be clustered by: {in_python('ItemIndex.with_clusters', 'bagwise cluster INDEX')}"
        )
    facts = None if rows is None else rows.facts
    method = adapt_to_table(method, data.whole() if facts is None else facts.statistics, modality, options)
    method = dataclasses.replace(method, in_blocks=rows is not None)
    if method.scaling is not None:
        log.notes.append(f"The {method.scaling}.")
    weighting = choose_weighting(method, data.whole(), None if facts is None else facts.idf)
    sizes = sizes_of(data.n_words, options, method, len(classes))
    known = data if codes is None or rows is not None else data.first(len(codes))
    with log.timed("merging"):
        weighted = Rows.of(known, codes, method, weighting)
        if codes is not None and known is not data:
            log.notes += few_labels_notes(codes, classes, len(data.collection))
            if groups_help(len(codes), len(data.collection)):
                weighted = weighted.learning_from(
                    unlabelled_of(data, len(codes), weighting, len(classes), options, report, prepared.steps)
                )
        hierarchy, heads, statistics = learn_groups(weighted, sizes, method, options, report, prepared.steps)
        if rows is not None and method.compares_items:
            log.notes.append(_merged_on_sample(method, weighted.compared(method, options.random_state)))
    path, top = None, None
    folds: tuple[Fold, ...] = ()
    calibration: dict[int, float] = {}
    baselines: list[dict[str, Any]] = []
    if codes is not None and validated:
        with log.timed("cross-validation"):
            validation = validate(executor, weighted, sizes, method, options, prepared.steps)
            path, top, calibration, folds = validation.path, validation.top, validation.calibration, validation.folds
            baselines = measure_baselines(known, codes, path, method, options)
        if known.pooled is not None:
            with log.timed("baseline of pooled features"):
                baselines = with_pooled(baselines, known.pooled, codes, options)
    if options.asked_groups is not None:
        n_groups = options.asked_groups
    elif path is not None:
        n_groups = path.auto if options.n_groups == "auto" else path.best
    else:
        n_groups = data.n_words if n_components is not None else min(max(DEFAULT_GROUPS, len(classes)), data.n_words)
        if use_classes:
            log.notes.append(f"There are {n_groups} groups by default; only cross-validation can choose their number.")
    if n_groups < len(classes):
        log.notes.append(_fewer_than_classes(n_groups, len(classes), method, path))
    totals = _totals(data.whole(), weighting.shift) if facts is None else facts.totals(weighting.shift)
    origin = provenance_of(data, codes, classes)
    hashes: NDArray[np.int64] | None
    if data.known_hashes is not None:
        hashes, origin["n_hashed"] = data.known_hashes
    elif facts is None:
        hashes, n_copies, n_empty = distinct_hashes(data.item_hashes)
        if not MODALITIES[modality].rows:  # of few columns, equal rows are no copies
            log.notes += notes_on_copies(n_copies, n_empty, len(data.collection), modality, path is not None)
    else:
        hashes = facts.hashes
    if rows is not None and facts is not None:
        origin |= {"n_items": rows.n_items, "n_sampled": len(data.collection), "n_hashed": facts.n_hashed}
        origin["class_counts"] = dict(zip(classes, facts.statistics.class_sizes.tolist(), strict=False))
    model = Model(
        modality=modality,
        hierarchy=hierarchy,
        n_groups=n_groups,
        **data.vectorizer.parameters(),
        word_totals=totals,
        term=weighting.term,
        word_weights=weighting.weights,
        column_shift=weighting.shift,
        norm=weighting.norm,
        normalize=method.normalize,
        classes=classes,
        heads=heads,
        calibration={size: sharpness for size, sharpness in calibration.items() if size in heads},
        path=path,
        options=_kept_options(options) | {"criterion": method.criterion, "root": method.root},
        provenance={"n_hashed": len(hashes)} | origin | {"criterion_reason": method.reason, "baselines": baselines},
        item_hashes=hashes,
        group_statistics=statistics,
    )
    unequal = unequal_groups(model.lookup, totals) if method.scaling is None else None
    notes = (*prepared.notes, *log.notes, *([] if unequal is None else [unequal]))
    cached = () if prepared.steps is None else tuple(prepared.steps.used)
    fit = Fit(model, data, codes, top, folds, prepared.test, dict(log.timings), notes, cached)
    model._set(fit_=fit)
    return fit


def _fewer_than_classes(n_groups: int, n_classes: int, method: Method, path: PathErrors | None) -> str:
    """Say what fewer groups than classes cost, where that was measured."""
    few = f"{how_many(n_groups, 'groups')} {agree(n_groups, 'is', 'are')} fewer than {n_classes} classes"
    note = f"{few}: words were merged by {method.criterion}"
    if path is None:
        return f"{note}. Groups as many as classes, or more, tell classes apart better."
    errors = dict(zip(path.sizes, path.errors, strict=True))
    enough = min(size for size in path.sizes if size >= min(n_classes, path.sizes[-1]))
    measured = (
        f"an error of {percent(errors[n_groups])} in cross-validation, {percent(errors[enough])} with {enough} groups"
    )
    return f"{note}, with {measured}."


def _merged_on_sample(method: Method, blocks: Sequence[NDArray[np.intp]]) -> str:
    n, apart = sum(map(len, blocks)), ""
    if len(blocks) > 1:
        apart = f", in {len(blocks)} random blocks; the neighbours of an item are those in its block"
    return (
        f"The criterion {method.criterion} compares items with each other, so words were merged on {n:,} items of the "
        f"sample{apart}. The criteria classifier, aib, clusters, mlt and csm use all items."
    )


def _kept_options(options: FitOptions) -> dict[str, Any]:
    """Return the options that a model keeps, without the folder of a network."""
    descriptor = "+".join(map(without_folder, split_names(options.descriptor)))
    return options.kept() | {"descriptor": descriptor}


def check_groups(options: FitOptions, n_words: int) -> None:
    """Raise an error if there are fewer words than groups."""
    if options.asked_groups is not None and options.asked_groups > n_words:
        message = f"n_groups={options.n_groups}, but there are only {n_words} words. Set at most {n_words}."
        raise OptionError("n_groups", message)


def _totals(X: Any, shift: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the occurrences of each word, or the sum of each column of measurements above its minimum."""
    totals = np.asarray(X.sum(axis=0), dtype=np.float64).ravel()
    return totals if shift is None else np.maximum(totals - X.shape[0] * shift, 0.0)
