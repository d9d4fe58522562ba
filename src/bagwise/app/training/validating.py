"""Cross-validation of a fit: each fold learns groups and classifiers without some items, which then test them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from bagwise.app.modalities.steps import StepCache, from_json, to_json
from bagwise.app.modalities.vectorizers import group_features
from bagwise.app.model import PathErrors
from bagwise.app.options import FitOptions
from bagwise.app.training.calibration import HeldOutScores
from bagwise.app.training.item_answers import TopClasses
from bagwise.app.training.learning import LearnedGroups, learn_rows, settings_of
from bagwise.app.training.method import Method, fitting_svms, folds_of
from bagwise.app.training.rows import Rows
from bagwise.distributed.executors import Executor
from bagwise.merging.path import PathScores

__all__ = ["Fold", "Validation", "path_errors", "validate"]

# Divisions into folds of at most so many labelled items, beside others without a label.
_ROUNDS, _FEW = 4, 200
_TOP = ("top_class", "runner_up", "top_score", "margin")  # of answers of cross-validation, in the cache


@dataclass(frozen=True)
class Fold:
    """What was learned without some of the items, `test`: the hierarchy, and classifiers at the sizes of the path."""

    test: NDArray[np.intp]
    learned: LearnedGroups


@dataclass(frozen=True)
class Validation:
    """What cross-validation found.

    Attributes
    ----------
    path : PathErrors
    top : TopClasses
        Answers of the folds that did not train on an item, of shape (n_sizes, n_items).
    calibration : dict
        The sharpness of the scores at each size, see `HeldOutScores`.
    folds : tuple of Fold
        In the order of `folds_of`.
    """

    path: PathErrors
    top: TopClasses
    calibration: dict[int, float]
    folds: tuple[Fold, ...]

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The predicted classes at each size, shape (n_sizes, n_items)."""
        return self.top.predicted.astype(np.int64)


def validate(
    executor: Executor,
    rows: Rows,
    sizes: Sequence[int],
    method: Method,
    options: FitOptions,
    steps: StepCache | None = None,
) -> Validation:
    """Estimate the error at each size, with one hierarchy per fold; folds run at the same time.

    With few labels (`Rows.unlabelled`), errors are means over several divisions into folds; answers and folds are those
    of the first. Each class needs at least two items. Weights of words, which do not depend on classes, are those of
    all items. Of rows in partitions, the sample is validated. Taken from `steps` if an earlier run has done the same.
    """
    rows = rows.sample or rows
    codes = rows.codes
    assert codes is not None
    settings, splits, cached = settings_of(rows, sizes, method, options), folds_of(codes, options), None
    settings["validated"] = True
    if steps is not None:
        cached = steps.load("errors", rows.fingerprint, settings, f"errors of {method.criterion}")
    if cached is not None:
        top = TopClasses(*(cached[name] for name in _TOP))
        calibration = dict(zip(sizes, cached["calibration"].tolist(), strict=True))
        folds = [
            Fold(test, LearnedGroups.unpack(cached, rows.n_words, f"fold {k} ")) for k, (_, test) in enumerate(splits)
        ]
        return Validation(PathErrors(**from_json(cached["path"])), top, calibration, tuple(folds))
    observe = HeldOutScores(codes, rows.n_classes, sizes)
    n_threads = min(effective_n_jobs(options.n_jobs), len(splits))
    alone = options.with_changes(n_jobs=1, cache=None)
    shared = executor.share((replace(rows, inputs=()), tuple(sizes), method, alone, observe.chosen))
    step = f"Cross-validating {method.criterion} at {len(sizes)} sizes"
    few = rows.unlabelled is not None and len(codes) <= _FEW
    others = [options.with_changes(random_state=options.random_state + k) for k in range(1, _ROUNDS if few else 1)]
    rounds = [splits, *(folds_of(codes, one) for one in others)]
    parts = [part for one in rounds for part in one]
    with fitting_svms():
        results = executor.gather(executor.map(_run_fold, [shared] * len(parts), parts, step=step, n_threads=n_threads))
    folds, scores_of = [], np.empty((len(parts), len(sizes)))
    right = np.zeros((len(codes), len(sizes)))
    for k, ((_, test), (learned, top, scores)) in enumerate(zip(parts, results, strict=True)):
        scores_of[k] = np.mean(top.predicted == codes[test], axis=1)
        right[test] += (top.predicted == codes[test]).T / len(rounds)
        if k < len(splits):
            folds.append(Fold(test, learned))
            observe.put(test, top, scores)
    path = path_errors(PathScores(np.asarray(sizes), scores_of, right=right), len(splits), len(rounds))
    calibration = observe.calibration()
    if steps is not None:
        kept = {"path": to_json(path.to_dict()), "calibration": np.array(list(calibration.values()))}
        for k, fold in enumerate(folds):
            kept |= fold.learned.pack(f"fold {k} ")
        steps.save("errors", rows.fingerprint, settings, kept | dict(zip(_TOP, observe.top.arrays, strict=True)))
    return Validation(path, observe.top, calibration, tuple(folds))


def path_errors(scores: PathScores, n_folds: int, n_rounds: int = 1) -> PathErrors:
    """Return the errors of a cross-validation as a model keeps them.

    The folds of each round test the same items, so that standard errors are those of one round: of `n_folds` folds.
    """
    protocol = f"{n_folds}-fold cross-validation"
    if n_rounds > 1:
        protocol = f"{protocol}, {n_rounds} times"
    columns = (scores.errors, np.sqrt(n_rounds) * scores.standard_errors, scores.paired_errors)
    errors, deviations, paired = (tuple(column.tolist()) for column in columns)
    return PathErrors(tuple(scores.sizes.tolist()), errors, deviations, protocol, paired)


def _run_fold(shared: Any, split: Any) -> tuple[LearnedGroups, TopClasses, NDArray[np.float32]]:
    """Learn from some items and answer others; scores are those of the `chosen` ones."""
    rows, sizes, method, options, chosen = shared
    train, test = split
    with fitting_svms():
        learned = learn_rows(rows[train], sizes, method, options)
    top = TopClasses.empty(len(sizes), len(test), rows.n_classes)
    kept = np.empty((len(sizes), int(chosen[test].sum()), rows.n_classes), np.float32)
    words = rows.weighted[test]
    for k, size in enumerate(sizes):
        labels = learned.hierarchy.cut(size)
        scores = learned.heads[size].scores(group_features(words, labels, size, rows.layout, method.normalize))
        top.put(k, slice(None), scores)
        kept[k] = scores[chosen[test]]
    return learned, top, kept
