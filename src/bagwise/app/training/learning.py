"""Merging, classifiers and cross-validation of a fit: from histograms of words to groups, heads and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.app.model import Head
from bagwise.app.model.steps import StepCache, from_json, to_json
from bagwise.app.model.vectorizers import Progress, group_features, no_progress
from bagwise.app.options import FitOptions
from bagwise.app.training.method import (
    FollowedPath,
    Method,
    classifier_of,
    fitting_svms,
    head_of,
    make_svm,
    merge_vocabularies,
    refined_size,
    two_sided,
)
from bagwise.app.training.preparing import WordData
from bagwise.app.training.sums import add_scatters, blocks_to_merge, weighted_by
from bagwise.codebooks.normalizing import WordWeighting
from bagwise.distributed.executors import LocalExecutor
from bagwise.merging.criteria import Criterion, resolve_criterion
from bagwise.merging.edits import statistics_of
from bagwise.merging.engine import Engine
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy

__all__ = ["LearnedGroups", "Rows", "inputs_of", "learn_groups", "learn_rows", "merge_parts", "merged_blocks"]
__all__ += ["settings_of"]

# Numbers of groups that have a classifier as well if it follows one on all words, which costs next to nothing:
# those that `Model.cut` derives lose most with few groups.
_FREE_SIZES = (*range(2, 21), *range(25, 51, 5))


class LearnedGroups(NamedTuple):
    """Merged words: the hierarchy, classifiers by their number of groups, and what merging again needs, if kept."""

    hierarchy: Hierarchy
    heads: dict[int, Head]
    statistics: GroupStatistics | None

    def pack(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """Return arrays that `unpack` restores it from, whose names begin with `prefix`."""
        arrays: dict[str, NDArray[Any]] = {
            "merges": self.hierarchy.merges,
            "scores": self.hierarchy.scores,
            "criterion": to_json(self.hierarchy.criterion),
            "sizes": to_json(sorted(self.heads)),
        }
        arrays |= {f"coef {size}": head.coef for size, head in self.heads.items()}
        arrays |= {f"intercept {size}": head.intercept for size, head in self.heads.items()}
        arrays |= {} if self.statistics is None else {"statistics": self.statistics.values}
        return {prefix + name: array for name, array in arrays.items()}

    @classmethod
    def unpack(cls, arrays: Mapping[str, NDArray[Any]], n_words: int, prefix: str = "") -> LearnedGroups:
        """Return what `pack` was called for."""
        given = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        hierarchy = Hierarchy(n_words, given["merges"], given["scores"], from_json(given["criterion"]))
        heads = {size: Head(given[f"coef {size}"], given[f"intercept {size}"]) for size in from_json(given["sizes"])}
        values = given.get("statistics")
        return cls(hierarchy, heads, None if values is None else GroupStatistics(hierarchy.criterion, values))


@dataclass(frozen=True)
class Rows:
    """Weighted words of items; those of whole items, the same with one cell; and what words are merged on."""

    weighted: Any
    whole: Any
    merged: Any
    n_cells: int

    @classmethod
    def of(cls, data: WordData, method: Method, weighting: WordWeighting) -> Rows:
        """Weight the words of a fit."""
        weighted = weighting.apply(data.histograms, data.n_cells)
        whole = weighted if data.n_cells == 1 else weighting.apply(data.whole())
        return cls(weighted, whole, method.merging_input(data.whole(), whole), data.n_cells)

    def __getitem__(self, items: NDArray[np.intp]) -> Rows:
        weighted = self.weighted[items]
        whole = weighted if self.whole is self.weighted else self.whole[items]
        merged = (
            weighted if self.merged is self.weighted else whole if self.merged is self.whole else self.merged[items]
        )
        return Rows(weighted, whole, merged, self.n_cells)


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
    given, settings = inputs_of(data, codes), settings_of(data, sizes, method, options) | {"statistics": True}
    if data.rows is not None:
        facts = data.rows.facts
        given = (*given, facts.statistics.class_sums, facts.n_items_with, facts.hashes)
        if method.compares_items:
            given = (*given, *merged_blocks(data, codes, method, options))
    held = None if steps is None else steps.load("groups", given, settings, f"groups by {method.criterion}")
    if held is not None:
        return LearnedGroups.unpack(held, data.n_words)
    if data.rows is None:
        kept = sorted({*sizes, *(size for size in _FREE_SIZES if size < data.n_words)}) if method.follows else sizes
        with fitting_svms():
            learned = learn_rows(Rows.of(data, method, weighting), codes, kept, method, options, progress)
    else:
        learned = _learn_from_sums(data, codes, sizes, method, weighting, options, progress)
    if steps is not None:
        steps.save("groups", given, settings, learned.pack())
    return learned


def inputs_of(data: WordData, codes: NDArray[np.int64] | None) -> tuple[Any, ...]:
    """Return the arrays that groups and errors depend on."""
    return (data.histograms,) if codes is None else (data.histograms, codes)


def settings_of(data: WordData, sizes: Sequence[int], method: Method, options: FitOptions) -> dict[str, Any]:
    """Return the parameters that groups and errors depend on."""
    return options.of_stage("groups") | {
        "sizes": list(sizes),
        "n_cells": data.n_cells,
        "method": [method.criterion, method.root, method.vocabularies, method.scaling is None],
        "in_blocks": method.in_blocks,
    }


def learn_rows(
    rows: Rows, codes: Any, sizes: Sequence[int], method: Method, options: FitOptions, progress: Progress = no_progress
) -> LearnedGroups:
    """Merge the words of some items, and fit a classifier of the groups at each size if there are classes."""
    n_cells, n_words = rows.n_cells, rows.merged.shape[1]
    if method.follows:
        refined = refined_size(options, int(codes.max()) + 1)
        how: tuple[Any, ...] = (make_svm(options), rows.whole, n_cells, refined, progress)
        path = FollowedPath.fit(rows.weighted, codes, sizes, *how)
        return LearnedGroups(path.hierarchy, {size: path.head(size) for size in sizes}, path.statistics())

    y = codes if resolve_criterion(method.criterion).supervised else None
    criterion = method.criterion_for(rows.merged, options.n_jobs, progress)

    def input_of(part: slice) -> tuple[Any, Any]:
        X = rows.merged[:, part]
        blocks = in_blocks(method, criterion, X, y)
        if len(blocks) > 1:
            return add_scatters(LocalExecutor(), criterion, X, y, blocks), None
        return (X, y) if not blocks else (X[blocks[0]], None if y is None else y[blocks[0]])

    hierarchy, statistics = merge_parts(input_of, n_words, method, options, progress, criterion)
    heads: dict[int, Head] = {}
    for k, size in enumerate(sizes if codes is not None else ()):
        features = group_features(rows.weighted, hierarchy.cut(size), size, n_cells, method.normalize)
        heads[size] = head_of(classifier_of(method, make_svm(options)).fit(features.astype(np.float64), codes))
        progress("Training classifiers", k + 1, len(sizes))
    return LearnedGroups(hierarchy, heads, statistics)


def in_blocks(method: Method, criterion: Any, X: Any, y: Any) -> list[NDArray[np.intp]]:
    """Return the blocks of items in which a criterion compares them, if the method says so; else none."""
    if not method.in_blocks or criterion.sums_needed is not None:
        return []
    return blocks_to_merge(criterion, X, X.shape[1], [str(row) for row in range(X.shape[0])], y, 0)


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
