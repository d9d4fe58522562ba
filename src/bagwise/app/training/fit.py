"""`fit_model`: from a folder, an archive or a table to a model."""

from __future__ import annotations

import copy
import dataclasses
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.text import agree, how_many
from bagwise.app.model import Model, PathErrors
from bagwise.app.model.vectorizers import Progress, no_progress
from bagwise.app.options import FitOptions
from bagwise.app.training.baselines import measure_baselines, with_pooled
from bagwise.app.training.item_answers import TopClasses
from bagwise.app.training.learning import cross_validate, learn_groups, merged_blocks
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
from bagwise.app.training.seen import distinct_hashes
from bagwise.descriptors.registry import split_names, without_folder
from bagwise.distributed.executors import executor_of
from bagwise.errors import OptionError
from bagwise.sources.collection import Collection

__all__ = ["Fit", "FittedModel", "check_groups", "fit_model", "run_fit"]

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
    codes : ndarray of shape (n_items,), or None
        Their classes, as indices into ``model.classes``; None without classes.
    held_out : ndarray of shape (n_sizes, n_items), or None
        Predictions of cross-validation at each size of ``model.path``, as indices into ``model.classes``.
    held_out_top : TopClasses or None
        The same with scores, the second best classes and margins.
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
    held_out: NDArray[np.int64] | None
    held_out_top: TopClasses | None
    test: Collection | None
    timings: dict[str, float]
    notes: tuple[str, ...]
    cached: tuple[str, ...] = ()


class FittedModel(Model):
    """A model as `fit_model` returns it: with the data it was fitted to, until it is saved and loaded.

    Attributes
    ----------
    result : Fit
        Training data, predictions of cross-validation, test split, timings and notes.
    """

    result: Fit

    @classmethod
    def of(cls, result: Fit) -> FittedModel:
        """Build the model of a fit."""
        names = [one.name for one in dataclasses.fields(Model) if one.init]
        model = cls(**{name: getattr(result.model, name) for name in names})
        model._set(result=result)
        return model

    def __copy__(self) -> FittedModel:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> FittedModel:
        other = object.__new__(type(self))
        memo[id(self)] = other
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        # a plain model: training data, and credentials of their storage, do not belong into files
        names = [one.name for one in dataclasses.fields(Model) if one.init]
        return partial(Model, **{name: getattr(self, name) for name in names}), ()

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a report of the fit, one HTML page. Needs ``bagwise[app]``.

        The confusion matrix and the examples are those of the split "test", if there is one, otherwise those of
        cross-validation.
        """
        from bagwise.app.report import write_report
        from bagwise.app.training.evaluate import evaluate_model
        from bagwise.app.training.report_data import fit_report_data

        test, evaluation = self.result.test, None
        if test is not None and self.heads:
            evaluation = evaluate_model(self, test)
        return Path(write_report(fit_report_data(self.result, evaluation), path))


def fit_model(
    source: Any,
    *,
    n_groups: int | str = "auto",
    criterion: str = "auto",
    client: Any = None,
    progress: Progress | None = None,
    **options: Any,
) -> FittedModel:
    r"""Learn a vocabulary, merge its words into groups, and train a classifier on the groups.

    1. Words are learned by k-means from descriptors of images or videos, or are the words of texts, or the columns of a
       table. A source with splits train and test is learned from its split train. Of more than 5000 images, or 500
       videos, as many are chosen by hashes of their ids to learn words from, unless these have fewer than 100,000
       descriptors; words are counted in all.
    2. They are merged level by level; see `merge_words`.
    3. If there are classes, there are linear classifiers at several sizes along the merging path, and the errors of
       all sizes are estimated by cross-validation, with one hierarchy per fold. (Words of images and weights of words
       are learned once, without using classes.) With the criterion "classifier" they are fitted to the scores of an SVM
       on all words, otherwise they are SVMs on groups.

    Words of texts have sublinear TF-IDF weights. Words of images and tables are L1 normalised, and square roots are
    taken after their groups are summed, or before (`root`).

    Parameters
    ----------
    source : Collection or path
        See `open_collection`.
    n_groups : int or "auto", default="auto"
        Number of groups. "auto": the smallest number whose error in cross-validation is within one standard error of
        the best; 50 if there is no cross-validation.
    criterion : str, default="auto"
        A name from `bagwise.criteria`. "auto": "classifier" if there are at least as many groups as classes, or
        their number is chosen by cross-validation; with fewer groups or a pyramid "csm" for two classes of images or
        videos, "aib" for others and for measurements; without classes "clusters".
    client : distributed.Client, default=None
        Workers of this Dask cluster read, describe and count the items, and cross-validate. The model is the same.
        Needs ``bagwise[dask]``.
    progress : callable, default=None
        Called with the name of a step, the number of items done, and the number of all items (0: unknown).
    **options
        Other parameters of `FitOptions`: `n_words`, `descriptor`, `n_frames`, `step`, `patch`, `max_side`, `pyramid`,
        `root`, `min_count`, `stop_words`, `ngrams`, `C`, `folds`, `modality`, `text`, `label`, `keep`,
        `encoding`, `on_error`, `cache`, `storage_options`, `memory_limit`, `partition`, `random_state`, `n_jobs`.

    Returns
    -------
    model : FittedModel
        A `Model` with a method `report`, and more about the fit in ``model.result``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bagwise import fit_model
    >>> texts = {"fruit": ["ripe apple", "ripe pear", "sweet pear", "sweet apple"],
    ...          "tools": ["steel hammer", "steel saw", "sharp saw", "heavy hammer"]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "things.csv")
    ...     rows = [f"{text},{label}" for label, some in texts.items() for text in some]
    ...     _ = path.write_text("text,label\n" + "\n".join(rows))
    ...     model = fit_model(path, n_groups=2, folds=2, min_count=1)
    >>> model.predict(["sweet ripe pear", "sharp steel"]).tolist()
    ['fruit', 'tools']
    """
    chosen = FitOptions(n_groups=n_groups, criterion=criterion, **options)
    return FittedModel.of(run_fit(source, chosen, progress=progress, client=client))


def run_fit(
    source: Any,
    options: FitOptions,
    *,
    use_classes: bool = True,
    n_components: int | None = None,
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
    progress : callable, default=None
    client : distributed.Client, default=None

    Returns
    -------
    fit : Fit
    """
    report = progress or no_progress
    executor = None if client is None else executor_of(client, report)
    prepared = prepare(source, options, report, executor, use_classes, n_components)
    data, classes, codes, log = prepared.data, prepared.classes, prepared.codes, prepared.log
    options = prepared.options
    check_groups(options, data.n_words)
    validated = codes is not None and prepared.enough_for_folds(options)
    modality = data.collection.modality
    method = choose_method(options, modality, len(classes), data.vocabularies)
    rows = data.rows
    facts = None if rows is None else rows.facts
    method = adapt_to_table(method, data.whole() if facts is None else facts.statistics, modality, options)
    method = dataclasses.replace(method, in_blocks=rows is not None)
    if method.scaling is not None:
        log.notes.append(f"The {method.scaling}.")
    weighting = choose_weighting(method, data.whole(), None if facts is None else facts.idf)
    sizes = sizes_of(data.n_words, options, method, len(classes))
    with log.timed("merging"):
        learned = (data, codes, sizes, method, weighting, options, report, prepared.steps)
        hierarchy, heads, statistics = learn_groups(*learned)
        if rows is not None and method.compares_items:
            log.notes.append(_merged_on_sample(method, data, codes, options))
    path, held_out, top = None, None, None
    calibration: dict[int, float] = {}
    baselines: list[dict[str, Any]] = []
    if codes is not None and validated:
        with log.timed("cross-validation"):
            found = cross_validate(data, codes, sizes, method, options, report, prepared.steps, executor, weighting)
            path, held_out, top, calibration = found
            baselines = measure_baselines(data, codes, path, method, options)
        if data.pooled is not None:
            with log.timed("baseline of pooled features"):
                baselines = with_pooled(baselines, data.pooled, codes, options)
    if options.n_groups != "auto":
        n_groups = int(options.n_groups)
    elif path is not None:
        n_groups = path.one_se
    else:
        n_groups = data.n_words if n_components is not None else min(max(DEFAULT_GROUPS, len(classes)), data.n_words)
        if use_classes:
            log.notes.append(f"There are {n_groups} groups by default; only cross-validation can choose their number.")
    if n_groups < len(classes):
        log.notes.append(_fewer_than_classes(n_groups, len(classes), method, path))
    totals = _totals(data.whole(), weighting.shift) if facts is None else facts.totals(weighting.shift)
    hashes = distinct_hashes(data.histograms) if facts is None else facts.hashes
    origin = provenance_of(data, codes, classes)
    if rows is not None and facts is not None:
        origin |= {"n_items": rows.n_items, "n_sampled": len(data.collection), "n_hashed": facts.n_hashed}
        origin["class_counts"] = dict(zip(classes, facts.statistics.class_sizes.tolist(), strict=False))
        del origin["content_hash"]  # of the sample
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
    notes = (*prepared.found, *log.notes, *([] if unequal is None else [unequal]))
    cached = () if prepared.steps is None else tuple(prepared.steps.used)
    return Fit(model, data, codes, held_out, top, prepared.test, dict(log.timings), notes, cached)


def _fewer_than_classes(n_groups: int, n_classes: int, method: Method, path: PathErrors | None) -> str:
    """Say what fewer groups than classes cost, where that was measured."""
    few = f"{how_many(n_groups, 'groups')} {agree(n_groups, 'is', 'are')} fewer than {n_classes} classes"
    note = f"{few}: words were merged by {method.criterion}"
    if path is None:
        return f"{note}. Groups as many as classes, or more, tell classes apart better."
    found = dict(zip(path.sizes, path.errors, strict=True))
    enough = min(size for size in path.sizes if size >= min(n_classes, path.sizes[-1]))
    measured = f"an error of {found[n_groups]:.1%} in cross-validation, {found[enough]:.1%} with {enough} groups"
    return f"{note}, with {measured}."


def _merged_on_sample(method: Method, data: WordData, codes: NDArray[np.int64] | None, options: FitOptions) -> str:
    blocks = merged_blocks(data, codes, method, options)
    n, apart = sum(map(len, blocks)), ""
    if len(blocks) > 1:
        apart = f", in {len(blocks)} random blocks; the neighbours of an item are those in its block"
    return (
        f"The criterion {method.criterion} compares items with each other, so words were merged on {n:,} items of the "
        f"sample{apart}. The criteria classifier, aib, clusters, mlt and csm use all items."
    )


def _kept_options(options: FitOptions) -> dict[str, Any]:
    """Return the options that a model keeps: none of this machine, and no limits, which others have to choose."""
    kept = options.to_dict() | {"cache": None, "labels": None, "partition": None}
    kept["descriptor"] = "+".join(map(without_folder, split_names(options.descriptor)))
    del kept["limits"], kept["n_jobs"]
    return kept


def check_groups(options: FitOptions, n_words: int) -> None:
    """Raise an error if there are fewer words than groups."""
    if options.n_groups != "auto" and int(options.n_groups) > n_words:
        message = f"n_groups={options.n_groups}, but there are only {n_words} words. Set at most {n_words}."
        raise OptionError("n_groups", message)


def _totals(X: Any, shift: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the occurrences of each word, or the sum of each column of measurements above its minimum."""
    totals = np.asarray(X.sum(axis=0), dtype=np.float64).ravel()
    return totals if shift is None else np.maximum(totals - X.shape[0] * shift, 0.0)
