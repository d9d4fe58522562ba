"""The path of merging: hierarchies, linear classifiers at several sizes of them, and their errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from bagwise.codebooks.normalizing import normalize_rows
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.criteria.base import TraceRatio
from bagwise.merging.criteria.others import Linkage
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.merge import merge_words
from bagwise.merging.pooling import pool
from bagwise.model import Head, PathErrors
from bagwise.training.options import FitOptions
from bagwise.training.words import Progress, WordData

__all__ = ["cross_validate", "fit_head", "group_words", "learn_hierarchy", "path_sizes"]

NORMALIZE = ("l1", "power")


def path_sizes(n_words: int, *also: int) -> tuple[int, ...]:
    """Sizes along the path: 2, 5, 10, 20, 50 and so on, all words, and those given.

    >>> path_sizes(64, 30)
    (2, 5, 10, 20, 30, 50, 64)
    """
    ladder = (step * 10**power for power in range(len(str(n_words))) for step in (1, 2, 5))
    return tuple(sorted({size for size in ladder if 1 < size < n_words} | {n_words, *also}))


def learn_hierarchy(
    histograms: Any, y: NDArray[Any] | None, criterion: str, n_jobs: int, progress: Progress | None = None
) -> Hierarchy:
    """Merge words of whole items down to one.

    Criteria that measure distances between items are given shares (rows that sum to 1), so that long items do not
    outweigh short ones; criteria that count occurrences are given counts.
    """
    chosen = resolve_criterion(criterion)
    shares = isinstance(chosen, (TraceRatio, Linkage))
    X = normalize_rows(histograms, "l1") if shares else histograms
    n_merges = histograms.shape[1] - 1

    def follow(level: int, pair: tuple[int, int], score: float) -> None:
        if progress is not None and (level % 64 == 0 or level == n_merges):
            progress("Merging words", level, n_merges)

    return merge_words(
        X, y if chosen.supervised else None, criterion=chosen, callback=follow if progress else None, n_jobs=n_jobs
    )


def group_words(histograms: Any, labels: NDArray[np.int64], n_groups: int, n_cells: int) -> Any:
    """Add up the words of each group, cell by cell, and normalise rows."""
    n_words = len(labels)
    everywhere = (np.arange(n_cells)[:, None] * n_groups + labels).reshape(n_cells * n_words)
    return normalize_rows(pool(histograms, everywhere, n_cells * n_groups), NORMALIZE)


def fit_head(features: Any, codes: NDArray[np.int64], n_classes: int, penalty: float, seed: int) -> Head:
    """Learn a linear SVM, one row of weights a class; of two classes the first has the negative of the second."""
    svm = LinearSVC(C=penalty, random_state=seed, max_iter=3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few words cannot separate: the weights are good enough
        svm.fit(features, codes)
    coef, intercept = svm.coef_, svm.intercept_
    if n_classes == 2:
        coef, intercept = np.vstack([-coef, coef]), np.concatenate([-intercept, intercept])
    return Head(coef.astype(np.float32), intercept.astype(np.float32))


def decide(features: Any, head: Head) -> NDArray[np.int64]:
    """Give the number of the class with the highest score, for each row."""
    return np.argmax(head.scores(features), axis=1)


def cross_validate(
    data: WordData, codes: NDArray[np.int64], sizes: tuple[int, ...], criterion: str, options: FitOptions,
    progress: Progress,
) -> tuple[PathErrors, NDArray[np.int64]]:  # fmt: skip
    """Errors at each size, one hierarchy a fold.

    Parameters
    ----------
    data : WordData
    codes : ndarray of shape (n_items,)
        Classes as numbers from 0. Each has at least `options.folds` items.
    sizes : tuple of int
    criterion : str
    options : FitOptions
    progress : callable

    Returns
    -------
    errors : PathErrors
    predicted : ndarray of shape (n_sizes, n_items)
        The class each item was given when it was held out.
    """
    n_classes = int(codes.max()) + 1
    whole, cells = data.whole(), data.histograms.shape[1] // data.n_words
    splitter = StratifiedKFold(options.folds, shuffle=True, random_state=options.seed)
    predicted = np.empty((len(sizes), len(codes)), np.int64)
    errors = np.empty((options.folds, len(sizes)))
    step = f"Cross-validating {criterion} at {len(sizes)} sizes"

    def run(fold: int, train: NDArray[np.intp], test: NDArray[np.intp]) -> int:
        hierarchy = learn_hierarchy(whole[train], codes[train], criterion, 1)
        for k, size in enumerate(sizes):
            labels = hierarchy.cut(size)
            features = group_words(data.histograms[train], labels, size, cells)
            head = fit_head(features, codes[train], n_classes, options.penalty, options.seed)
            predicted[k, test] = decide(group_words(data.histograms[test], labels, size, cells), head)
            errors[fold, k] = np.mean(predicted[k, test] != codes[test])
        return fold

    tasks = (delayed(run)(fold, *parts) for fold, parts in enumerate(splitter.split(whole, codes)))
    progress(step, 0, options.folds)
    threads = min(effective_n_jobs(options.jobs), options.folds)
    # liblinear and our kernels leave other threads running
    for done, _ in enumerate(Parallel(threads, prefer="threads", return_as="generator_unordered")(tasks), 1):
        progress(step, done, options.folds)
    path = PathErrors(
        sizes=sizes,
        errors=tuple(errors.mean(axis=0).tolist()),
        standard_errors=tuple((errors.std(axis=0, ddof=1) / np.sqrt(options.folds)).tolist()),
        protocol=f"{options.folds}-fold cross-validation",
    )
    return path, predicted
