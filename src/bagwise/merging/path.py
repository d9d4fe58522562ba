"""Cross-validation along the merging path: one hierarchy per fold, cut at every size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from bagwise._compat import _check_method_params
from bagwise.merging.pooling import pool
from bagwise.merging.sizes import choose_size, paired_errors

if TYPE_CHECKING:
    from bagwise.merging.word_merger import WordMerger

__all__ = ["PathScores", "score_path"]


@dataclass(frozen=True)
class PathScores:
    """Scores of an estimator along the merging path."""

    sizes: NDArray[np.int64]  # numbers of groups, ascending
    scores: NDArray[np.float64]  # folds x sizes: accuracy, or what the scorer gave; higher is better
    merge_times: NDArray[np.float64] | None = None  # seconds spent on each fold's hierarchy
    right: NDArray[np.float64] | None = None  # samples x sizes: mean over their folds, NaN where in none; None: unknown

    @property
    def means(self) -> NDArray[np.float64]:
        """Mean score at each size."""
        return self.scores.mean(axis=0)

    @property
    def errors(self) -> NDArray[np.float64]:
        """Mean error rate at each size, ``1 - means``, where scores are accuracies."""
        return 1.0 - self.means

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """Standard error of the mean score at each size; 0 for a single fold."""
        n_folds = len(self.scores)
        if n_folds < 2:
            return np.zeros(len(self.sizes))
        return self.scores.std(axis=0, ddof=1) / np.sqrt(n_folds)

    @property
    def paired_errors(self) -> NDArray[np.float64]:
        """Standard error of the difference to the best mean score at each size: over samples, if these are known.

        Otherwise over folds.
        """
        return paired_errors(self.scores if self.right is None else self.right, self.choose())

    def choose(self, rule: str = "best") -> int:
        """Index of the size that `choose_size` chooses."""
        paired = self.paired_errors if rule == "paired" else 0.0
        return choose_size(self.means, rule, standard_errors=self.standard_errors, paired=paired)


def score_path(
    X: Any,
    y: NDArray[Any],
    sizes: Sequence[int] | NDArray[np.int64],
    *,
    merger: WordMerger,
    estimator: Any,
    splits: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
    scorer: Callable[..., float],
    predict: bool = False,
    labelled: NDArray[np.bool_] | None = None,
    merge_params: Mapping[str, Any] | None = None,
    fit_params: Mapping[str, Any] | None = None,
    score_params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
) -> PathScores:
    """Cross-validate an estimator on merged words at several sizes.

    In each fold one hierarchy is found on the training samples and cut at every size. At each size a clone of the
    estimator is fitted to the merged training samples and scored on the merged test samples. Merger and estimator
    are cloned; normalisation is part of the estimator, as in ``make_pipeline(BagNormalizer(), LinearSVC())``.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_words)
        Checked histograms.
    sizes : sequence of int
        Numbers of groups, ascending.
    splits : sequence of (train, test)
        Indices of the samples of each fold.
    scorer : callable
        Called as ``scorer(fitted, X, y, **score_params)``.
    predict : bool, default=False
        Whether to predict as well, for `PathScores.right`: known if scores are accuracies.
    labelled : ndarray of bool, shape (n_samples,), default=None
        Samples whose label is known. The others are used for merging only. None: all.
    merge_params, fit_params, score_params : mapping, default=None
        Metadata for the `fit` of merger and estimator and for the scorer. Arrays of one entry per sample are split.
    n_jobs : int, default=None
        Number of threads; each takes whole folds.
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    known = np.ones(X.shape[0], dtype=np.bool_) if labelled is None else labelled
    scores = np.empty((len(splits), len(sizes)))
    merge_times = np.empty(len(splits))
    right: list[tuple[NDArray[np.intp], NDArray[np.bool_]] | None] = [None] * len(splits)

    def run(fold: int, train: NDArray[np.intp], test: NDArray[np.intp]) -> None:
        started = time.perf_counter()
        of_train = _check_method_params(X, merge_params or {}, indices=train)
        merged = clone(merger).fit(X[train], y[train], **of_train)
        hierarchy, weights = merged.hierarchy_, merged._weights()
        merge_times[fold] = time.perf_counter() - started
        train, test = train[known[train]], test[known[test]]
        # known labels among missing ones are objects
        y_train, y_test = (y[part] if y.dtype.kind != "O" else np.array(y[part].tolist()) for part in (train, test))
        fitting, scoring = (
            _check_method_params(X, params or {}, indices=part)
            for params, part in ((fit_params, train), (score_params, test))
        )
        X_train, X_test = X[train], X[test]
        answered = np.empty((len(test), len(sizes)), np.bool_)
        for k, size in enumerate(sizes.tolist()):
            labels = hierarchy.cut(size)
            grouped = [pool(part, labels, size, merger.pooling, **weights) for part in (X_train, X_test)]
            model = clone(estimator).fit(grouped[0], y_train, **fitting)
            scores[fold, k] = scorer(model, grouped[1], y_test, **scoring)
            if predict:
                answered[:, k] = model.predict(grouped[1]) == y_test
        right[fold] = (test, answered) if predict else None

    # compiled code, liblinear and libsvm release the GIL; results are written to shared arrays
    n_threads = min(effective_n_jobs(n_jobs), len(splits))
    Parallel(n_threads, require="sharedmem")(delayed(run)(fold, *parts) for fold, parts in enumerate(splits))
    known_right = [one for one in right if one is not None]
    accuracy = predict and all(
        np.allclose(of_fold.mean(axis=0), score) for (_, of_fold), score in zip(known_right, scores, strict=True)
    )
    return PathScores(sizes, scores, merge_times, right_of_samples(known_right, len(y)) if accuracy else None)


def right_of_samples(
    right: Sequence[tuple[NDArray[np.intp], NDArray[np.bool_]]], n_samples: int
) -> NDArray[np.float64]:
    """Return what fraction of the folds that tested a sample was right about it, at each size.

    `right` has the samples that each fold tested, and whether it was right, of shape (n_tested, n_sizes).
    """
    sums, n_folds = np.zeros((n_samples, right[0][1].shape[1])), np.zeros((n_samples, 1))
    for test, of_fold in right:
        sums[test] += of_fold
        n_folds[test] += 1
    return np.divide(sums, n_folds, where=n_folds > 0, out=np.full_like(sums, np.nan))
