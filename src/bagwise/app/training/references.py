"""What merging is compared with: all words, principal components, and selected words, on the same folds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.feature_selection import chi2
from sklearn.svm import LinearSVC

from bagwise.app.training.method import HELLINGER, Method, choose_weighting, classifier_of
from bagwise.baselines import MinRedundancyMaxRelevance
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.codebooks.pyramids import WordLayout
from bagwise.merging.path import PathScores

__all__ = ["Reference", "references_for", "score_reference"]

# Principal components are computed from all products of items or of words; beyond this many they take too long.
_MOST_COMPONENTS = 3000
# Most operations of mRMR: words selected, times values of all words.
_MOST_SELECTING = 1e9

# From training rows, their classes and test rows, as features and as counts, to both reduced to each size.
Reduce = Callable[[Any, Any, NDArray[np.int64], Any, Sequence[int]], Iterator[tuple[Any, Any]]]


class Reference(NamedTuple):
    """A method that is not merging: its name, features of all words, counts, and how features are reduced."""

    name: str
    features: Any
    counts: Any
    reduce: Reduce


def references_for(
    histograms: Any, method: Method, sizes: Sequence[int], layout: WordLayout
) -> tuple[list[Reference], dict[str, str]]:
    """Return the references that can be afforded, and why others are left out, by name.

    Parameters
    ----------
    histograms : ndarray or CSR array of shape (n_items, n_columns)
        Counts of words.
    method : Method
        How words are weighted.
    sizes : sequence of int
        Numbers of features at which all are compared, in all cells together.
    layout : WordLayout
    """
    weighting = choose_weighting(method, histograms[:, : layout.n_words])
    weighted = weighting.apply(histograms)
    features = normalize_rows(weighted.astype(np.float64), method.normalize)
    is_text = method.root is None
    # selection takes numbers of at least 0; those of measurements are scaled
    counts = histograms if method.scaling is None else np.maximum(weighted, 0.0)
    name = "TF-IDF" if is_text else "standardised" if method.scaling is not None else "Hellinger"
    references = [Reference(f"all words, {name}", features, counts, _keep_all)]
    if is_text:
        hellinger = normalize_rows(histograms.astype(np.float64), HELLINGER)
        references.append(Reference("all words, Hellinger", hellinger, counts, _keep_all))
    left_out: dict[str, str] = {}
    n, d = histograms.shape
    if min(n, d) <= _MOST_COMPONENTS:
        references.append(Reference("SVD", features, counts, _components))
    else:
        left_out["SVD"] = f"{n:,} items and {d:,} columns; one of them must be at most {_MOST_COMPONENTS:,}"
    references.append(Reference("chi2 selection", features, counts, _select_by_chi2))
    n_values = histograms.nnz if sp.issparse(histograms) else histograms.size
    if max((size for size in sizes if size < d), default=1) * n_values <= _MOST_SELECTING:
        references.append(Reference("mRMR selection", features, counts, _select_by_mrmr))
    else:
        left_out["mRMR selection"] = f"would take too long for {n_values:,} values; fewer or smaller sizes help"
    return references, left_out


def score_reference(
    reference: Reference,
    codes: NDArray[np.int64],
    sizes: Sequence[int],
    splits: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
    method: Method,
    svm: LinearSVC,
    progress: Callable[[int, int], Any] | None = None,
) -> PathScores:
    """Cross-validate a linear SVM on reduced features of several numbers, as `score_path` does for merging."""
    scores, times = np.empty((len(splits), len(sizes))), np.zeros(len(splits))
    right = np.full((len(codes), len(sizes)), np.nan)
    for fold, (train, test) in enumerate(splits):
        if progress is not None:
            progress(fold, len(splits))
        started = time.perf_counter()
        known, held_out = reference.features[train], reference.features[test]
        at = -1
        for reduced in reference.reduce(known, reference.counts[train], codes[train], held_out, sizes):
            at += 1
            model = clone(classifier_of(method, svm)).fit(reduced[0], codes[train])
            right[test, at] = model.predict(reduced[1]) == codes[test]
        right[test, at:] = right[test, at, np.newaxis]  # one result for all sizes
        scores[fold] = right[test].mean(axis=0)
        times[fold] = time.perf_counter() - started
    return PathScores(np.asarray(sizes), scores, times, right=right)


def _keep_all(
    train: Any, counts: Any, codes: NDArray[np.int64], test: Any, sizes: Sequence[int]
) -> Iterator[tuple[Any, Any]]:
    yield train, test


def _components(
    train: Any, counts: Any, codes: NDArray[np.int64], test: Any, sizes: Sequence[int]
) -> Iterator[tuple[Any, Any]]:
    """Project onto the leading right singular vectors, all computed at once from the smaller Gram matrix.

    With fewer items than words the vectors, one number per word and component, are not formed.
    """
    by_items = train.shape[0] <= train.shape[1]
    gram = train @ train.T if by_items else train.T @ train
    values, vectors = np.linalg.eigh(gram.toarray() if sp.issparse(gram) else np.asarray(gram))
    kept = np.flatnonzero(values > 1e-10 * max(values[-1], np.finfo(float).tiny))[::-1]
    vectors = vectors[:, kept] / (np.sqrt(values[kept]) if by_items else 1.0)
    projected = [np.asarray((rows @ train.T if by_items else rows) @ vectors) for rows in (train, test)]
    for size in sizes:
        yield projected[0][:, :size], projected[1][:, :size]


def _select_by_chi2(
    train: Any, counts: Any, codes: NDArray[np.int64], test: Any, sizes: Sequence[int]
) -> Iterator[tuple[Any, Any]]:
    scores = np.nan_to_num(chi2(counts, codes)[0], nan=-1.0)  # words that never occur
    return _selected(train, test, np.argsort(-scores, kind="stable"), sizes)


def _select_by_mrmr(
    train: Any, counts: Any, codes: NDArray[np.int64], test: Any, sizes: Sequence[int]
) -> Iterator[tuple[Any, Any]]:
    # beyond the largest size below all, the order does not matter
    n_features = max([size for size in sizes if size < train.shape[1]], default=1)
    ranking = MinRedundancyMaxRelevance(n_features).fit(counts, codes).ranking_
    rest = np.setdiff1d(np.arange(train.shape[1]), ranking)
    return _selected(train, test, np.concatenate([ranking, rest]), sizes)


def _selected(train: Any, test: Any, ranking: NDArray[Any], sizes: Sequence[int]) -> Iterator[tuple[Any, Any]]:
    for size in sizes:
        words = np.sort(ranking[:size])
        yield train[:, words], test[:, words]
