"""Merging, classifiers and cross-validation of a fit: from histograms of words to groups, heads and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from bagwise.app.modalities.steps import StepCache, from_json, hash_arrays, to_json
from bagwise.app.modalities.vectorizers import Progress, no_progress
from bagwise.app.model import Head
from bagwise.app.options import FitOptions
from bagwise.app.training.method import FollowedPath, Method, fitting_svms, merge_vocabularies, refined_size, two_sided
from bagwise.app.training.rows import Rows
from bagwise.merging.criteria import Criterion
from bagwise.merging.edits import statistics_of
from bagwise.merging.engine import Engine
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy

__all__ = ["LearnedGroups", "learn_groups", "learn_rows", "settings_of"]

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
        packed = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        hierarchy = Hierarchy(n_words, packed["merges"], packed["scores"], from_json(packed["criterion"]))
        heads = {size: Head(packed[f"coef {size}"], packed[f"intercept {size}"]) for size in from_json(packed["sizes"])}
        values = packed.get("statistics")
        return cls(hierarchy, heads, None if values is None else GroupStatistics.of(hierarchy, values))


def learn_groups(
    rows: Rows, sizes: Sequence[int], method: Method, options: FitOptions, progress: Progress, steps: StepCache | None
) -> LearnedGroups:
    """Merge the words of whole items down to one group, and fit a classifier at each size if there are classes.

    Taken from `steps` if an earlier run has done the same.
    """
    settings = settings_of(rows, sizes, method, options) | {"statistics": True}
    if rows.parted is not None and method.compares_items:
        settings["compared"] = hash_arrays(rows.compared(method, options.random_state))
    if steps is not None:
        cached = steps.load("groups", rows.fingerprint, settings, f"groups by {method.criterion}")
        if cached is not None:
            return LearnedGroups.unpack(cached, rows.n_words)
    kept = sorted({*sizes, *(size for size in _FREE_SIZES if size < rows.n_words)}) if method.follows else sizes
    with fitting_svms():
        learned = learn_rows(rows, kept, method, options, progress)
    if steps is not None:
        steps.save("groups", rows.fingerprint, settings, learned.pack())
    return learned


def settings_of(rows: Rows, sizes: Sequence[int], method: Method, options: FitOptions) -> dict[str, Any]:
    """Return the parameters that groups and errors depend on."""
    return options.of_stage("groups") | {
        "sizes": list(sizes),
        "n_cells": rows.layout.n_cells,
        "method": [method.criterion, method.root, method.vocabularies, method.scaling is None],
        "in_blocks": method.in_blocks,
    }


def learn_rows(
    rows: Rows, sizes: Sequence[int], method: Method, options: FitOptions, progress: Progress = no_progress
) -> LearnedGroups:
    """Merge the words of some items, and fit a classifier of the groups at each size if there are classes."""
    if method.follows:
        weigh = partial(progress, "Training a classifier on all words")
        merged = teacher = rows.teacher(False, options, weigh)
        if rows.layout.n_cells > 1:
            merged = rows.teacher(True, options, weigh)
        refined = refined_size(options, rows.n_classes)
        moments = partial(rows.moments, teacher)
        path = FollowedPath.of(teacher, merged, sizes, rows.layout, refined, moments, progress)
        return LearnedGroups(path.hierarchy, {size: path.head(size) for size in sizes}, path.statistics())
    criterion, input_of = rows.merging(method, options, progress)
    hierarchy, statistics = _merge(criterion, input_of, rows.n_words, method, options, progress)
    heads: dict[int, Head] = {}
    for k, size in enumerate(sizes if rows.codes is not None else ()):
        follow = partial(progress, f"Training classifiers, {k + 1} of {len(sizes)}")
        heads[size] = two_sided(*rows.head(hierarchy.cut(size), size, method, options, follow))
    return LearnedGroups(hierarchy, heads, statistics)


def _merge(
    criterion: Criterion,
    input_of: Callable[[slice], tuple[Any, Any]],
    n_words: int,
    method: Method,
    options: FitOptions,
    progress: Progress,
) -> tuple[Hierarchy, GroupStatistics | None]:
    """Merge the words of each vocabulary; `input_of` returns the data of its columns, or their sums, and classes."""
    n_merges = n_words - 1
    progress("Merging words", 0, n_merges)
    engines: list[Engine] = []

    def merge_part(part: slice) -> Hierarchy:
        def follow(level: int, pair: tuple[int, int], score: float) -> None:
            if level % 64 == 0 or level == 1:
                progress("Merging words", part.stop - level, n_merges)

        engines.append(Engine(criterion, n_jobs=options.n_jobs).load(*input_of(part)))
        return engines[-1].run(1, follow)

    hierarchy = merge_vocabularies(method.vocabularies or (n_words,), merge_part)
    # vocabularies that were merged apart have no statistics in common
    return hierarchy, statistics_of(engines[0], hierarchy) if len(engines) == 1 else None
