"""Merging, classifiers and cross-validation of a fit: from histograms of words to groups, heads and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bagwise.app.model import Head, PathErrors
from bagwise.app.model.steps import StepCache, from_json, to_json
from bagwise.app.model.vectorizers import Progress, group_features, normalize_features
from bagwise.app.options import FitOptions
from bagwise.app.training.calibration import HeldOutScores
from bagwise.app.training.item_answers import TopClasses
from bagwise.app.training.method import (
    FollowedPath,
    Method,
    choose_weighting,
    classifier_of,
    fitting_svms,
    folds_of,
    head_of,
    make_svm,
    merge_vocabularies,
    refined_size,
    score_followed,
    two_sided,
)
from bagwise.app.training.preparing import WordData
from bagwise.app.training.sums import add_scatters, blocks_to_merge, weighted_by
from bagwise.codebooks.normalizing import WordWeighting
from bagwise.distributed.executors import Executor
from bagwise.merging.criteria import Criterion, resolve_criterion
from bagwise.merging.edits import statistics_of
from bagwise.merging.engine import Engine
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.path import PathScores, score_path

__all__ = ["LearnedGroups", "cross_validate", "learn_groups", "merge_parts", "merged_blocks"]

# Numbers of groups that have a classifier as well if it follows one on all words, which costs next to nothing:
# those that `Model.cut` derives lose most with few groups.
_FREE_SIZES = (*range(2, 21), *range(25, 51, 5))
_TOP = ("top_class", "runner_up", "top_score", "margin")  # of answers of cross-validation, in the cache


class LearnedGroups(NamedTuple):
    """Merged words: the hierarchy, classifiers by their number of groups, and what merging again needs, if kept."""

    hierarchy: Hierarchy
    heads: dict[int, Head]
    statistics: GroupStatistics | None


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
    given, settings = _inputs(data, codes), _settings(data, sizes, method, options) | {"statistics": True}
    if data.rows is not None:
        facts = data.rows.facts
        given = (*given, facts.statistics.class_sums, facts.n_items_with, facts.hashes)
        if method.compares_items:
            given = (*given, *merged_blocks(data, codes, method, options))
    held = None if steps is None else steps.load("groups", given, settings, f"groups by {method.criterion}")
    if held is not None:
        hierarchy = Hierarchy(data.n_words, held["merges"], held["scores"], from_json(held["criterion"]))
        sizes_held = from_json(held["sizes"])
        heads = {size: Head(held[f"coef {size}"], held[f"intercept {size}"]) for size in sizes_held}
        kept = GroupStatistics(hierarchy.criterion, held["statistics"]) if "statistics" in held else None
        return LearnedGroups(hierarchy, heads, kept)
    learn = _learn_groups if data.rows is None else _learn_from_sums
    learned = learn(data, codes, sizes, method, weighting, options, progress)
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


def _weighted(data: WordData, weighting: WordWeighting) -> tuple[Any, Any]:
    """Return weighted histograms, and those of whole items, which are the same if there is one cell."""
    weighted = weighting.apply(data.histograms, data.n_cells)
    return weighted, weighted if data.n_cells == 1 else weighting.apply(data.whole())


def _settings(data: WordData, sizes: Sequence[int], method: Method, options: FitOptions) -> dict[str, Any]:
    """Return the parameters that groups and errors depend on."""
    return options.of_stage("groups") | {
        "sizes": list(sizes),
        "n_cells": data.n_cells,
        "method": [method.criterion, method.root, method.vocabularies, method.scaling is None],
        "in_blocks": method.in_blocks,
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
    weighted, weighted_whole = _weighted(data, weighting)
    with fitting_svms():
        if method.follows:
            assert codes is not None  # `class_names` has checked it
            refined = refined_size(options, int(codes.max()) + 1)
            kept = sorted({*sizes, *(size for size in _FREE_SIZES if size < data.n_words)})
            how: tuple[Any, ...] = (make_svm(options), weighted_whole, data.n_cells, refined, progress)
            path = FollowedPath.fit(weighted, codes, kept, *how)
            return LearnedGroups(path.hierarchy, {size: path.head(size) for size in kept}, path.statistics())

        y = codes if resolve_criterion(method.criterion).supervised else None
        merged = method.merging_input(data.whole(), weighted_whole)
        criterion = method.criterion_for(merged, options.n_jobs, progress)
        hierarchy, statistics = merge_parts(
            lambda part: (merged[:, part], y), data.n_words, method, options, progress, criterion
        )
        heads: dict[int, Head] = {}
        for k, size in enumerate(sizes if codes is not None else ()):
            features = group_features(weighted, hierarchy.cut(size), size, data.n_cells, method.normalize)
            heads[size] = head_of(classifier_of(method, make_svm(options)).fit(features.astype(np.float64), codes))
            progress("Training classifiers", k + 1, len(sizes))
    return LearnedGroups(hierarchy, heads, statistics)


def merge_parts(
    input_of: Callable[[slice], tuple[Any, Any]],
    n_words: int,
    method: Method,
    options: FitOptions,
    progress: Progress,
    criterion: Criterion | None = None,
) -> tuple[Hierarchy, GroupStatistics | None]:
    """Merge the words of each vocabulary; `input_of` returns the data of its columns, or their sums, and classes.

    The criterion is that of the method unless it is given.
    """
    n_merges = n_words - 1
    progress("Merging words", 0, n_merges)
    engines: list[Engine] = []

    def merge_part(part: slice) -> Hierarchy:
        def follow(level: int, pair: tuple[int, int], score: float) -> None:
            if level % 64 == 0 or level == 1:
                progress("Merging words", part.stop - level, n_merges)

        engines.append(Engine(criterion or method.criterion, n_jobs=options.n_jobs).load(*input_of(part)))
        return engines[-1].run(1, follow)

    hierarchy = merge_vocabularies(method.vocabularies or (n_words,), merge_part)
    # vocabularies that were merged apart have no statistics in common
    return hierarchy, statistics_of(engines[0], hierarchy) if len(engines) == 1 else None


def _learn_from_sums(
    data: WordData,
    codes: NDArray[np.int64] | None,
    sizes: Sequence[int],
    method: Method,
    weighting: WordWeighting,
    options: FitOptions,
    progress: Progress,
) -> LearnedGroups:
    """Do what `_learn_groups` does by sums over all items; criteria that compare items use the sample."""
    rows, n_cells = data.rows, data.n_cells
    assert rows is not None
    weigh = partial(progress, "Training a classifier on all words")
    if method.follows:
        assert codes is not None  # `class_names` has checked it
        refined = refined_size(options, rows.n_classes)
        kept = sorted({*sizes, *(size for size in _FREE_SIZES if size < data.n_words)})
        blocks = rows.blocks(weighted_by(weighting, n_cells))
        merged = teacher = rows.teacher(blocks, n_cells * data.n_words, options.C, weigh)
        if n_cells > 1:
            merged = rows.teacher(rows.blocks(weighted_by(weighting, 1), True), data.n_words, options.C, weigh)
        path = FollowedPath.of(
            teacher, merged, kept, n_cells, refined, partial(rows.moments, teacher, blocks), progress
        )
        return LearnedGroups(path.hierarchy, {size: path.head(size) for size in kept}, path.statistics())
    criterion = resolve_criterion(method.criterion)
    if method.compares_items:
        found, whole = merged_blocks(data, codes, method, options), data.whole()
        y = codes if criterion.supervised else None
        transform = partial(_merging_input, method, weighting)
        alone = transform(whole[found[0]]) if len(found) == 1 else None

        def compared(part: slice) -> tuple[Any, Any]:
            if alone is not None:
                return alone[:, part], None if y is None else y[found[0]]
            return add_scatters(rows.executor, criterion, whole, y, found, transform, part), None

        hierarchy, statistics = merge_parts(compared, data.n_words, method, options, progress)
    else:
        needed = partial(_merging_input, method, weighting)
        # items are clustered by the sample, and all of them assigned
        learned = method.clusterings(needed(data.whole()), options.n_jobs, progress)

        def sums_of(part: slice) -> tuple[Any, None]:
            return rows.statistics(needed, part, criterion.sums_needed or (), learned), None

        hierarchy, statistics = merge_parts(sums_of, data.n_words, method, options, progress)
    heads: dict[int, Head] = {}
    blocks = rows.blocks(weighted_by(weighting, n_cells)) if codes is not None else []
    for k, size in enumerate(sizes if codes is not None else ()):
        follow = partial(progress, f"Training classifiers, {k + 1} of {len(sizes)}")
        fitted = rows.head(
            blocks, hierarchy.cut(size), size, method.normalize, options.C, method.scaling is not None, follow
        )
        heads[size] = two_sided(*fitted)
    return LearnedGroups(hierarchy, heads, statistics)


def merged_blocks(
    data: WordData, codes: NDArray[np.int64] | None, method: Method, options: FitOptions
) -> list[NDArray[np.intp]]:
    """Return the items of a sample that words are merged on by criteria that compare items, see `blocks_to_merge`."""
    criterion, most_words = resolve_criterion(method.criterion), max(method.vocabularies or (data.n_words,))
    return blocks_to_merge(criterion, data.whole(), most_words, data.collection.ids, codes, options.random_state)


def _merging_input(method: Method, weighting: WordWeighting, counts: Any) -> Any:
    return method.merging_input(counts, weighting.apply(counts))


def cross_validate(
    data: WordData, codes: NDArray[np.int64], sizes: tuple[int, ...], method: Method, options: FitOptions,
    progress: Progress, steps: StepCache | None = None, executor: Executor | None = None,
    weighting: WordWeighting | None = None,
) -> tuple[PathErrors, NDArray[np.int64], TopClasses, dict[int, float]]:  # fmt: skip
    """Estimate the error at each size, with one hierarchy per fold; see `score_path`.

    Each of the classes `codes` needs at least two items. Also returns the prediction for each item by the
    fold that did not train on it, shape (n_sizes, n_items), the same with scores and second best classes, and the
    calibration of each size, see `HeldOutScores`.
    Weights of words, which do not depend on classes, are learned from all items, or given by `weighting`. Taken from
    `steps` if an earlier run has done the same. With an `executor`, each of its workers takes whole folds.
    """
    given, settings = _inputs(data, codes), _settings(data, sizes, method, options) | {"margins": True}
    if data.rows is not None and weighting is not None:  # which is that of all items, not of the sample
        given = (*given, *(one for one in (weighting.weights, weighting.shift) if one is not None))
    held = None if steps is None else steps.load("errors", given, settings, f"errors of {method.criterion}")
    if held is not None:
        factors = zip(sizes, held["calibration"].tolist(), strict=True)
        top = TopClasses(*(held[name] for name in _TOP))
        return PathErrors(**from_json(held["path"])), held["predicted"], top, dict(factors)
    splits, observe = folds_of(codes, options), HeldOutScores(codes, int(codes.max()) + 1, sizes)
    follow = partial(progress, f"Cross-validating {method.criterion} at {len(sizes)} sizes")
    weighting = choose_weighting(method, data.whole()) if weighting is None else weighting
    if executor is None:
        found = _score_folds(data, codes, sizes, method, weighting, options, splits, observe, follow)
    else:
        found = _score_on_workers(data, codes, sizes, method, weighting, options, splits, observe, executor)
    assert found.predicted is not None
    protocol = f"{len(splits)}-fold cross-validation"
    path = PathErrors(sizes, tuple(found.errors), tuple(found.standard_errors), protocol)
    calibration = observe.calibration()
    if steps is not None:
        kept = {"path": to_json(dataclasses.asdict(path)), "predicted": found.predicted}
        kept |= dict(zip(_TOP, observe.top.arrays, strict=True))
        steps.save("errors", given, settings, kept | {"calibration": np.array(list(calibration.values()))})
    return path, found.predicted, observe.top, calibration


def _score_folds(
    data: WordData,
    codes: NDArray[np.int64],
    sizes: tuple[int, ...],
    method: Method,
    weighting: WordWeighting,
    options: FitOptions,
    splits: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
    observe: HeldOutScores,
    follow: Callable[[int, int], Any] | None = None,
) -> PathScores:
    """Train on some folds and score the others, at all sizes."""
    weighted, weighted_whole = _weighted(data, weighting)
    common: dict[str, Any] = {"splits": splits, "n_jobs": options.n_jobs, "progress": follow, "observe": observe}
    with fitting_svms():
        if method.follows:
            refined = refined_size(options, int(codes.max()) + 1)

            def fit(X: Any, y: NDArray[np.int64], whole: Any) -> FollowedPath:
                return FollowedPath.fit(X, y, sizes, make_svm(options), whole, data.n_cells, refined)

            return score_followed(weighted, codes, sizes, fit=fit, whole=weighted_whole, **common)
        normalizer = FunctionTransformer(normalize_features, kw_args={"normalize": method.normalize})
        return score_path(
            weighted,
            codes,
            sizes,
            merger=method.merger(),
            estimator=make_pipeline(normalizer, classifier_of(method, make_svm(options))),
            predict=True,
            merge_on=method.merging_input(data.whole(), weighted_whole),
            n_cells=data.n_cells,
            **common,
        )


def _score_on_workers(
    data: WordData,
    codes: NDArray[np.int64],
    sizes: tuple[int, ...],
    method: Method,
    weighting: WordWeighting,
    options: FitOptions,
    splits: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
    observe: HeldOutScores,
    executor: Executor,
) -> PathScores:
    """Do what `_score_folds` does, each fold on a worker."""
    needed = dataclasses.replace(data, collection=data.collection[:0], skipped=(), samples={}, rows=None)
    chosen = options.with_changes(n_jobs=1, cache=None)
    shared = executor.share((needed, codes, sizes, method, weighting, chosen, splits))
    step = f"Cross-validating {method.criterion} at {len(sizes)} sizes"
    folds = list(range(len(splits)))
    found = executor.gather(executor.map(_score_fold, [shared] * len(splits), folds, step=step))
    predicted = np.empty((len(sizes), len(codes)), dtype=codes.dtype)
    for (_, test), (_, own, seen) in zip(splits, found, strict=True):
        predicted[:, test] = own
        observe.update(test, seen)
    scores, times = (np.concatenate([getattr(one[0], name) for one in found]) for name in ("scores", "merge_times"))
    return PathScores(np.asarray(sizes), scores, times, predicted)


def _score_fold(shared: Any, fold: int) -> tuple[PathScores, NDArray[np.int64], Any]:
    data, codes, sizes, method, weighting, options, splits = shared
    observe = HeldOutScores(codes, int(codes.max()) + 1, sizes)
    found = _score_folds(data, codes, sizes, method, weighting, options, [splits[fold]], observe)
    assert found.predicted is not None
    test = splits[fold][1]
    return dataclasses.replace(found, predicted=None), found.predicted[:, test], observe.taken(test)
