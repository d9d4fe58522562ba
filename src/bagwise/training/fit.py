"""`fit_model`: from a folder, an archive or a table to a model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bagwise.codebooks.normalizing import WordWeighting
from bagwise.errors import OptionError
from bagwise.merging.constrained import statistics_of
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.engine import Engine
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.path import score_path
from bagwise.model import Head, Model, PathErrors
from bagwise.model.steps import StepCache, from_json, to_json
from bagwise.model.vectorizers import Progress, group_features, no_progress, normalize_features
from bagwise.sources.collection import Collection
from bagwise.training.baselines import measure_baselines
from bagwise.training.calibration import HeldOutScores
from bagwise.training.item_answers import TopClasses
from bagwise.training.method import (
    FollowedPath,
    Method,
    TablesPath,
    adapt_to_size,
    adapt_to_table,
    choose_method,
    choose_weighting,
    classifier_of,
    folds_of,
    head_of,
    make_svm,
    no_convergence_warnings,
    refined_size,
    score_followed,
    sizes_of,
    unequal_groups,
)
from bagwise.training.options import FitOptions
from bagwise.training.preparing import WordData, prepare
from bagwise.training.provenance import provenance_of
from bagwise.training.seen import distinct_hashes

__all__ = ["Fit", "FittedModel", "check_groups", "cross_validate", "fit_model", "learn_groups", "run_fit"]

# Groups, if their number is not given and cannot be chosen by cross-validation.
DEFAULT_GROUPS = 50
# Numbers of groups that have a classifier as well if it follows one on all words, which costs next to nothing:
# those that `Model.cut` derives lose most with few groups.
_FREE_SIZES = (*range(2, 21), *range(25, 51, 5))
_TOP = ("top_class", "runner_up", "top_score", "margin")  # of answers of cross-validation, in the cache


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


class LearnedGroups(NamedTuple):
    """Merged words: the hierarchy, classifiers by their number of groups, and what merging again needs, if kept."""

    hierarchy: Hierarchy
    heads: dict[int, Head]
    statistics: GroupStatistics | None


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

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a report of the fit, one HTML page. Needs ``bagwise[report]``.

        The confusion matrix and the examples are those of the split "test", if there is one, otherwise those of
        cross-validation.
        """
        from bagwise.report import write_report
        from bagwise.training.evaluate import evaluate_model
        from bagwise.training.report_data import fit_report_data

        test, evaluation = self.result.test, None
        if test is not None and self.heads:
            evaluation = evaluate_model(self, test)
        return Path(write_report(fit_report_data(self.result, evaluation), path))


def fit_model(
    source: Any,
    *,
    n_groups: int | str = "auto",
    criterion: str = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> FittedModel:
    r"""Learn a vocabulary, merge its words into groups, and train a classifier on the groups.

    1. Words are learned by k-means from descriptors of images or videos, or are the words of texts, or the columns of a
       table. A source with splits train and test is learned from its split train.
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
        A name from `bagwise.criteria`. "auto": "classifier" if there are at least twice as many groups as classes, or
        their number is chosen by cross-validation; with fewer groups or a pyramid "csm" for two classes of images or
        videos, "aib" for others and for measurements; without classes "mmi", or "lpp" if that would take too long.
    progress : callable, default=None
        Called with the name of a step, the number of items done, and the number of all items (0: unknown).
    **options
        Other parameters of `FitOptions`: `n_words`, `descriptor`, `step`, `patch`, `max_side`, `pyramid`, `root`,
        `n_tables`, `min_count`, `stop_words`, `ngrams`, `C`, `folds`, `modality`, `text`, `label`, `keep`, `encoding`,
        `on_error`, `cache`, `memory_limit`, `random_state`, `n_jobs`.

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
    return FittedModel.of(run_fit(source, chosen, progress=progress))


def run_fit(source: Any, options: FitOptions, *, progress: Progress | None = None) -> Fit:
    """Fit a model as `fit_model` does.

    Parameters
    ----------
    source : Collection or path
    options : FitOptions
    progress : callable, default=None

    Returns
    -------
    fit : Fit
    """
    report = progress or no_progress
    prepared = prepare(source, options, report)
    data, classes, codes, log = prepared.data, prepared.classes, prepared.codes, prepared.log
    options = prepared.options
    check_groups(options, data.n_words)
    validated = codes is not None and prepared.enough_for_folds(options)
    modality = data.collection.modality
    method = choose_method(options, modality, len(classes), data.vocabularies)
    method = adapt_to_size(method, options, *data.whole().shape)
    method = adapt_to_table(method, data.whole(), modality, options)
    if method.scaling is not None:
        log.notes.append(f"The {method.scaling}.")
    weighting = choose_weighting(method, data.whole())
    sizes = sizes_of(data.n_words, options)
    statistics = None
    if method.n_tables == 1:
        with log.timed("merging"):
            hierarchy, heads, statistics = learn_groups(
                data, codes, sizes, method, weighting, options, report, prepared.steps
            )
    path, held_out, top = None, None, None
    calibration: dict[int, float] = {}
    baselines: list[dict[str, Any]] = []
    if codes is not None and validated:
        with log.timed("cross-validation"):
            found = cross_validate(data, codes, sizes, method, options, report, prepared.steps)
            path, held_out, top, calibration = found
            baselines = measure_baselines(data, codes, path, method, options)
    if options.n_groups != "auto":
        n_groups = int(options.n_groups)
    elif path is not None:
        n_groups = path.one_se
    else:
        n_groups = min(DEFAULT_GROUPS, data.n_words)
        log.notes.append(f"There are {n_groups} groups by default; only cross-validation can choose their number.")
    tables = None
    if method.n_tables > 1:
        with log.timed("merging"):
            hierarchy, heads, tables = _learn_tables(data, codes, n_groups, method, weighting, options, report)
    totals = _totals(data.whole(), weighting.shift)
    hashes = distinct_hashes(data.histograms)
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
        tables=tables,
        classes=classes,
        heads=heads,
        calibration={size: sharpness for size, sharpness in calibration.items() if size in heads},
        path=path,
        options=_kept_options(options) | {"criterion": method.criterion, "root": method.root},
        provenance=provenance_of(data, codes, classes, log)
        | {"criterion_reason": method.reason, "n_hashed": len(hashes), "baselines": baselines},
        item_hashes=hashes,
        group_statistics=statistics,
    )
    counted = tables is None and method.scaling is None
    unequal = unequal_groups(model.lookup, totals) if counted else None
    notes = (*prepared.found, *log.notes, *([] if unequal is None else [unequal]))
    cached = () if prepared.steps is None else tuple(prepared.steps.used)
    return Fit(model, data, codes, held_out, top, prepared.test, dict(log.timings), notes, cached)


def _kept_options(options: FitOptions) -> dict[str, Any]:
    """Return the options that a model keeps: none of this machine, and no limits, which others have to choose."""
    kept = options.to_dict() | {"cache": None, "labels": None}
    del kept["limits"]
    return kept


def check_groups(options: FitOptions, n_words: int) -> None:
    """Raise an error if there are fewer words than groups."""
    if options.n_groups != "auto" and int(options.n_groups) > n_words:
        message = f"n_groups={options.n_groups}, but there are only {n_words} words. Set at most {n_words}."
        raise OptionError("n_groups", message)


def _learn_tables(
    data: WordData,
    codes: NDArray[np.int64] | None,
    n_groups: int,
    method: Method,
    weighting: WordWeighting,
    options: FitOptions,
    progress: Progress,
) -> tuple[Hierarchy, dict[int, Head], NDArray[np.int64] | None]:
    """Group words in several tables, and fit the classifier of these groups."""
    assert codes is not None  # `choose_method` has checked it
    progress("Merging words", 0, 0)
    with no_convergence_warnings():
        path = TablesPath.fit(weighting.apply(data.histograms), codes, make_svm(options), n_groups, method.n_tables)
    tables = path.compact.tables_ if path.compact.n_tables_ > 1 else None  # one where all words are groups
    return path.compact.hierarchy_, {n_groups: path.head()}, tables


def learn_groups(
    data: WordData,
    codes: NDArray[np.int64] | None,
    sizes: Sequence[int],
    method: Method,
    weighting: WordWeighting,
    options: FitOptions,
    progress: Progress,
    steps: StepCache | None = None,
) -> LearnedGroups:
    """Merge the words of whole items down to one group, and fit a classifier at each size if there are classes.

    Taken from `steps` if an earlier run has done the same.
    """
    given, settings = _inputs(data, codes), _settings(sizes, method, options) | {"statistics": True}
    held = None if steps is None else steps.load("groups", given, settings, f"groups by {method.criterion}")
    if held is not None:
        hierarchy = Hierarchy(data.n_words, held["merges"], held["scores"], from_json(held["criterion"]))
        sizes_held = from_json(held["sizes"])
        heads = {size: Head(held[f"coef {size}"], held[f"intercept {size}"]) for size in sizes_held}
        kept = GroupStatistics(hierarchy.criterion, held["statistics"]) if "statistics" in held else None
        return LearnedGroups(hierarchy, heads, kept)
    learned = _learn_groups(data, codes, sizes, method, weighting, options, progress)
    hierarchy, heads, statistics = learned
    if steps is not None:
        arrays = {f"coef {size}": head.coef for size, head in heads.items()}
        arrays |= {f"intercept {size}": head.intercept for size, head in heads.items()}
        merges: dict[str, NDArray[Any]] = {
            "merges": hierarchy.merges,
            "scores": hierarchy.scores,
            "criterion": to_json(hierarchy.criterion),
        }
        merges |= {} if statistics is None else {"statistics": statistics.values}
        steps.save("groups", given, settings, merges | arrays | {"sizes": to_json(sorted(heads))})
    return learned


def _inputs(data: WordData, codes: NDArray[np.int64] | None) -> tuple[Any, ...]:
    """Return the arrays that groups and errors depend on."""
    return (data.histograms,) if codes is None else (data.histograms, codes)


def _settings(sizes: Sequence[int], method: Method, options: FitOptions) -> dict[str, Any]:
    """Return the parameters that groups and errors depend on."""
    names = ("n_groups", "pyramid", "C", "folds", "random_state")
    return {name: getattr(options, name) for name in names} | {
        "sizes": list(sizes),
        "method": [method.criterion, method.root, method.vocabularies, method.n_tables, method.scaling is None],
    }


def _learn_groups(
    data: WordData,
    codes: NDArray[np.int64] | None,
    sizes: Sequence[int],
    method: Method,
    weighting: WordWeighting,
    options: FitOptions,
    progress: Progress,
) -> LearnedGroups:
    weighted = weighting.apply(data.histograms, data.n_cells)
    n_merges = data.n_words - 1
    with no_convergence_warnings():
        if method.follows:
            assert codes is not None  # `class_names` has checked it
            whole, refined = weighting.apply(data.whole()), refined_size(options, int(codes.max()) + 1)
            kept = sorted({*sizes, *(size for size in _FREE_SIZES if size < data.n_words)})
            path = FollowedPath.fit(weighted, codes, kept, make_svm(options), whole, data.n_cells, refined, progress)
            return LearnedGroups(path.hierarchy, {size: path.head(size) for size in kept}, path.statistics())

        y = codes if resolve_criterion(method.criterion).supervised else None
        merged = method.merging_input(data.whole(), weighting.apply(data.whole()))

        progress("Merging words", 0, n_merges)
        engines: list[Engine] = []

        def merge_part(part: slice) -> Hierarchy:
            def follow(level: int, pair: tuple[int, int], score: float) -> None:
                if level % 64 == 0 or level == 1:
                    progress("Merging words", part.stop - level, n_merges)

            engines.append(Engine(method.criterion, n_jobs=options.n_jobs).load(merged[:, part], y))
            return engines[-1].run(1, follow)

        hierarchy = method.merge(merged, merge_part)
        heads: dict[int, Head] = {}
        for k, size in enumerate(sizes if codes is not None else ()):
            features = group_features(weighted, hierarchy.cut(size), size, data.n_cells, method.normalize)
            heads[size] = head_of(classifier_of(method, make_svm(options)).fit(features.astype(np.float64), codes))
            progress("Training classifiers", k + 1, len(sizes))
    # vocabularies that were merged apart have no statistics in common
    return LearnedGroups(hierarchy, heads, statistics_of(engines[0], hierarchy) if len(engines) == 1 else None)


def _totals(X: Any, shift: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the occurrences of each word, or the sum of each column of measurements above its minimum."""
    totals = np.asarray(X.sum(axis=0), dtype=np.float64).ravel()
    return totals if shift is None else np.maximum(totals - X.shape[0] * shift, 0.0)


def cross_validate(
    data: WordData, codes: NDArray[np.int64], sizes: tuple[int, ...], method: Method, options: FitOptions,
    progress: Progress, steps: StepCache | None = None,
) -> tuple[PathErrors, NDArray[np.int64], TopClasses, dict[int, float]]:  # fmt: skip
    """Estimate the error at each size, with one hierarchy per fold; see `score_path`.

    Each of the classes `codes` needs at least two items. Also returns the prediction for each item by the
    fold that did not train on it, shape (n_sizes, n_items), the same with scores and second best classes, and the
    calibration of each size, see `HeldOutScores`.
    Weights of words, which do not depend on classes, are learned from all items. Taken from `steps` if an earlier run
    has done the same.
    """
    given, settings = _inputs(data, codes), _settings(sizes, method, options) | {"margins": True}
    held = None if steps is None else steps.load("errors", given, settings, f"errors of {method.criterion}")
    if held is not None:
        factors = zip(sizes, held["calibration"].tolist(), strict=True)
        top = TopClasses(*(held[name] for name in _TOP))
        return PathErrors(**from_json(held["path"])), held["predicted"], top, dict(factors)
    splits, observe = folds_of(codes, options), HeldOutScores(codes, int(codes.max()) + 1, sizes)
    weighting, whole = choose_weighting(method, data.whole()), data.whole()
    weighted, weighted_whole = weighting.apply(data.histograms, data.n_cells), weighting.apply(whole)
    follow = partial(progress, f"Cross-validating {method.criterion} at {len(sizes)} sizes")
    common: dict[str, Any] = {"splits": splits, "n_jobs": options.n_jobs, "progress": follow, "observe": observe}
    with no_convergence_warnings():
        if method.follows:
            refined = refined_size(options, int(codes.max()) + 1)

            def fit(X: Any, y: NDArray[np.int64], whole: Any) -> FollowedPath | TablesPath:
                if method.n_tables > 1:
                    return TablesPath.fit(X, y, make_svm(options), max(sizes), method.n_tables)
                return FollowedPath.fit(X, y, sizes, make_svm(options), whole, data.n_cells, refined)

            found = score_followed(weighted, codes, sizes, fit=fit, whole=weighted_whole, **common)
        else:
            normalizer = FunctionTransformer(normalize_features, kw_args={"normalize": method.normalize})
            found = score_path(
                weighted,
                codes,
                sizes,
                merger=method.merger(),
                estimator=make_pipeline(normalizer, classifier_of(method, make_svm(options))),
                predict=True,
                merge_on=method.merging_input(whole, weighted_whole),
                n_cells=data.n_cells,
                **common,
            )
    assert found.predicted is not None
    tables = "" if method.n_tables == 1 else f", {method.n_tables} tables at each size"
    protocol = f"{len(splits)}-fold cross-validation{tables}"
    path = PathErrors(sizes, tuple(found.errors), tuple(found.standard_errors), protocol)
    calibration = observe.calibration()
    if steps is not None:
        kept = {"path": to_json(dataclasses.asdict(path)), "predicted": found.predicted}
        kept |= dict(zip(_TOP, observe.top.arrays, strict=True))
        steps.save("errors", given, settings, kept | {"calibration": np.array(list(calibration.values()))})
    return path, found.predicted, observe.top, calibration
