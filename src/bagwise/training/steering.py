"""Errors, answers and classifiers of groups that people edit, by cross-validation whose costly part is kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.svm import LinearSVC
from sklearn.utils.parallel import Parallel, delayed

from bagwise._utils.threads import one_blas_thread
from bagwise.errors import BagwiseError
from bagwise.merging.compact import MOST_FITTED
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.merging.pooling import pool
from bagwise.merging.scaling import Scaling
from bagwise.merging.teacher import ScoreMoments, Teacher, mean_weights
from bagwise.model import Model
from bagwise.model.vectorizers import Progress, no_progress, normalize_features
from bagwise.training.calibration import HeldOutScores
from bagwise.training.item_answers import Steered
from bagwise.training.method import (
    Method,
    classifier_of,
    codes_of,
    folds_of,
    head_of,
    make_svm,
    no_convergence_warnings,
    two_sided,
)
from bagwise.training.options import FitOptions

__all__ = ["Steering"]

# Sums of groups are dense from this fraction of values that are not zero on.
_DENSE = 0.2
_ASSIGNED = ("classifier", "aib")  # criteria by which each fold assigns words anew
_TIE = 1e-12  # costs within this fraction are equal: words without weight stay where they are
_LEAST = 1e-6  # of the class frequencies, in class profiles of groups
_MOST_VALUES = 1 << 22  # distances in memory at a time

Values = NDArray[np.float64]
_Weights = tuple[Values, Values]  # of groups, one row for each class or for two of them, and intercepts


@dataclass(frozen=True, eq=False)
class _Followed:
    """A classifier on all words, and its scores of the items that it was trained on."""

    teacher: Teacher
    scores: Values


class Steering:
    """Cross-validates groups of words in the folds of a fit, for any number of edited models.

    1. Once: where the groups of the model follow a classifier on all words (the criterion "classifier"), train this
       classifier in each fold, and on all items.
    2. For each edited model and each fold: assign words anew to its groups, by what the training items of the fold say
       of them, but for words that edits name. Otherwise held-out items would help to find the groups that they are
       tested with, and errors would be much too low.
    3. Sum the words of each group, fit weights of groups to the scores of the classifier on all words, and score
       held-out items. With other criteria, train a linear SVM on the sums instead, as the fit does.

    A word is assigned to the group with the nearest mean weights ("classifier") or class profile ("aib", by the
    Kullback-Leibler divergence). Groups that were joined count as their parts then, those in the cut of the
    unedited hierarchy where the last edit was made. With other criteria the groups are the same in all folds.

    Parameters
    ----------
    model : Model
        With classes and one grouping. Its options have C, the number of folds (5 if it was fitted without) and the
        random state.
    words : CSR array or ndarray of shape (n_items, n_cells * d)
        Weighted words (``model.weighting.apply``) of the items that the model was learned from, in their order; where
        features of groups are normalised, up to a factor of each item.
    codes : ndarray of shape (n_items,)
        Their classes, as indices into those of the model.

    Attributes
    ----------
    ready : bool
        Whether step 1 is done.

    Notes
    -----
    Steps 2 and 3 are O(n_folds (nnz + d n_groups n_classes + n_items n_groups² + n_groups³)) where groups follow a
    classifier.

    Examples
    --------
    >>> from bagwise.sources import TableCollection
    >>> from bagwise.training import fit_model
    >>> X = np.random.default_rng(0).poisson([[4, 1, 2, 0], [1, 3, 0, 2]] * 10)
    >>> rows = TableCollection(X, [f"row{k}" for k in range(20)], [("cat",), ("dog",)] * 10)
    >>> model = fit_model(rows, n_groups=3, folds=4, criterion="classifier")
    >>> steering = Steering(model, model.weighting.apply(model.histograms(rows)), np.array([0, 1] * 10))
    >>> found = steering.measure(model.cut(2))
    >>> found.protocol, round(found.error, 2)
    ('4-fold cross-validation, in which each fold assigns words anew to these groups', 0.0)
    """

    def __init__(self, model: Model, words: Any, codes: NDArray[np.int64]) -> None:
        if not model.classes or model.tables is not None:
            what = "it has no classes" if not model.classes else "its words are grouped in several tables at once"
            raise BagwiseError(f"Edited groups of this model cannot be cross-validated: {what}.")
        if words.shape != (len(codes), model.n_cells * model.hierarchy.n_words):
            expected = f"{len(codes)} items and {model.n_cells * model.hierarchy.n_words} columns"
            raise BagwiseError(f"words must have {expected}, got shape {words.shape}.")
        defaults = FitOptions()
        given = {name: model.options.get(name, getattr(defaults, name)) for name in ("C", "folds", "random_state")}
        self.options = FitOptions(**given | {"folds": given["folds"] or defaults.folds, "n_jobs": -1})
        fewest = int(np.bincount(codes, minlength=len(model.classes)).min())
        if fewest < 2:
            raise BagwiseError(f"Groups are cross-validated with at least two items of each class; one has {fewest}.")
        self.words, self.codes, self.n_cells = _with_short_indices(words), codes, model.n_cells
        self.n_classes, self.normalize = len(model.classes), model.normalize
        scaling = None if model.column_shift is None else Scaling(model.column_shift)
        self.method = Method(str(model.options.get("criterion", "")), "", None, scaling=scaling)
        self.splits = folds_of(codes, self.options)
        everything = np.arange(len(codes))
        self._parts = [*(train for train, _ in self.splits), everything]
        self._followed: list[_Followed] = []
        self._profiles: list[Values] = []
        self._training = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether the classifiers on all words are trained, or not needed."""
        return not self.method.follows or len(self._followed) == len(self._parts)

    @property
    def protocol(self) -> str:
        """How errors are estimated."""
        how, criterion = f"{len(self.splits)}-fold cross-validation", self.method.criterion
        if criterion in _ASSIGNED:
            return f"{how}, in which each fold assigns words anew to these groups"
        known = criterion in NAMED_CRITERIA and not resolve_criterion(criterion).supervised
        return f"{how} of these groups" + ("" if known else ", which were found with all items and their classes")

    def prepare(self, progress: Progress = no_progress) -> None:
        """Train the classifiers on all words, if the groups follow one; once."""
        with self._training, no_convergence_warnings():
            while not self.ready:
                progress("Training classifiers on all words", len(self._followed), len(self._parts))
                rows = self._parts[len(self._followed)]
                part = self.words[rows]
                teacher = Teacher.of(make_svm(self.options).fit(part, self.codes[rows]), part)
                self._followed.append(_Followed(teacher, teacher.scores(part)))
            if self.method.criterion == "aib" and not self._profiles:
                self._profiles = [self._profile(train) for train, _ in self.splits]
            progress("Training classifiers on all words", len(self._parts), len(self._parts))

    def _profile(self, rows: NDArray[np.intp]) -> Values:
        """Return the sums of words over the items of each class, shape (d, n_classes)."""
        classes = sp.csr_array((np.ones(len(rows)), (self.codes[rows], rows)), (self.n_classes, len(self.codes)))
        sums = np.asarray((self.words.T @ classes.T).toarray() if sp.issparse(self.words) else (classes @ self.words).T)
        return np.maximum(sums.reshape(self.n_cells, -1, self.n_classes).sum(axis=0), 0.0)

    def measure(self, model: Model) -> Steered:
        """Return the error of the groups of a model, their classifier, and held-out answers.

        Parameters
        ----------
        model : Model
            With the same words; cut at any number of groups.
        """
        self.prepare()
        n, labels = model.n_groups, [*self._labels_of_folds(model), model.lookup]

        def fit(part: int) -> tuple[_Weights, Values]:
            sums = pool(self.words, labels[part], n, n_cells=self.n_cells)
            if self.method.follows:
                weights = self._fit_to_scores(part, sums, labels[part], n)
            else:
                sums = normalize_features(sums, self.normalize).astype(np.float64)
                weights = self._train(part, sums)
            test = self.splits[part][1] if part < len(self.splits) else self._parts[part][:0]
            return weights, np.asarray(sums[test] @ weights[0].T) + weights[1]

        n_threads = min(effective_n_jobs(self.options.n_jobs), len(self._parts))
        with one_blas_thread(), no_convergence_warnings():
            tasks = (delayed(fit)(part) for part in range(len(self._parts)))
            found = list(Parallel(n_threads, require="sharedmem")(tasks))
        observe, right = HeldOutScores(self.codes, self.n_classes, [n]), []
        for (_, test), (_, scores) in zip(self.splits, found, strict=False):
            observe(0, test, scores)
            right.append(np.mean(codes_of(scores) == self.codes[test]))
        spread = float(np.std(right, ddof=1) / np.sqrt(len(right))) if len(right) > 1 else 0.0
        head = two_sided(*found[-1][0])
        sharpness, top = observe.calibration()[n], observe.top.at(0)
        return Steered(1.0 - float(np.mean(right)), spread, self.protocol, head, sharpness, top)

    def _labels_of_folds(self, model: Model) -> list[NDArray[np.int64]]:
        """Return the groups of words in each fold."""
        labels, n_words = model.lookup, model.hierarchy.n_words
        if model.n_groups == n_words or self.method.criterion not in _ASSIGNED:
            return [labels] * len(self.splits)
        free = np.ones(n_words, np.bool_)
        free[named_words(model)] = False
        before = labels
        if model.unedited is not None:
            edited_at = model.edits[-1]["n_groups"]
            before = model.unedited.hierarchy.cut(max(model.n_groups, edited_at, model.unedited.hierarchy.min_groups))
        pairs, parts = np.unique(labels[free] * n_words + before[free], return_inverse=True)
        found = []
        for fold in range(len(self.splits)):
            own = labels.copy()
            nearest = self._nearest_weights if self.method.follows else self._nearest_profiles
            own[free] = (pairs // n_words)[nearest(fold, free, parts, len(pairs))]
            found.append(own)
        return found

    def _nearest_weights(
        self, fold: int, free: NDArray[np.bool_], parts: NDArray[np.intp], n_parts: int
    ) -> NDArray[np.intp]:
        """Assign free words to the part whose mean weights are nearest to theirs, over all cells."""
        teacher, chosen = self._followed[fold].teacher, np.tile(free, self.n_cells)
        own = replace(teacher, coef=teacher.coef[:, chosen], mass=teacher.mass[chosen])
        spread = (np.arange(self.n_cells)[:, np.newaxis] * n_parts + parts).ravel()
        means = mean_weights(own, spread, self.n_cells * n_parts)[0]
        # words and parts in rows, weights of all cells side by side
        weights, centres = (
            np.ascontiguousarray(np.moveaxis(values.reshape(len(values), self.n_cells, -1), -1, 0)).reshape(n, -1)
            for values, n in ((own.coef, len(parts)), (means, n_parts))
        )
        return _argmin_rows(weights, -2.0 * centres.T, np.square(centres).sum(axis=1), parts)

    def _nearest_profiles(
        self, fold: int, free: NDArray[np.bool_], parts: NDArray[np.intp], n_parts: int
    ) -> NDArray[np.intp]:
        """Assign free words to the part from whose class profile theirs diverges least."""
        sums = self._profiles[fold]
        prior = sums.sum(axis=0) / max(float(sums.sum()), 1e-300)
        join = sp.csr_array((np.ones(len(parts)), (parts, np.arange(len(parts)))), (n_parts, len(parts)))
        own, centres = (_shares(values, prior) for values in (sums[free], join @ sums[free]))
        costs = -np.log((centres + _LEAST * prior) / (1 + _LEAST)).T
        return _argmin_rows(own, costs, np.zeros(n_parts), parts)

    def _fit_to_scores(self, part: int, sums: Any, labels: NDArray[np.int64], n: int) -> _Weights:
        """Fit the weights of groups to the scores of the classifier on all words."""
        followed, rows, n_columns = self._followed[part], self._parts[part], self.n_cells * n
        spread = (np.arange(self.n_cells)[:, np.newaxis] * n + labels).ravel()
        mean = mean_weights(followed.teacher, spread, n_columns)
        if n_columns == self.words.shape[1] or n_columns > MOST_FITTED:
            return mean
        if sp.issparse(sums) and sums.nnz > _DENSE * sums.shape[0] * sums.shape[1]:
            sums = sums.toarray()
        return ScoreMoments.of(sums[rows], followed.scores).weights(mean[0])

    def _train(self, part: int, features: Any) -> _Weights:
        """Train an SVM on features of groups."""
        rows, svm = self._parts[part], make_svm(self.options)
        if features.shape[0] > 2 * features.shape[1]:  # solved without random numbers, so that threads need not wait
            svm = LinearSVC(C=svm.C, dual=False, random_state=svm.random_state, max_iter=svm.max_iter)
        head = head_of(classifier_of(self.method, svm).fit(features[rows], self.codes[rows]))
        return head.coef.astype(np.float64), head.intercept.astype(np.float64)


def named_words(model: Model) -> NDArray[np.intp]:
    """Return the words that edits of a model name."""
    named = {word for edit in model.edits for word in edit.get("words", ())}
    numbers = {word for word in named if isinstance(word, int)}
    if len(numbers) < len(named):
        numbers |= {number for number, name in enumerate(model.word_names or ()) if name in named}
    return np.array(sorted(numbers), dtype=np.intp)


def _shares(sums: Values, prior: Values) -> Values:
    """Return rows divided by their sums; the prior for rows of zeros."""
    totals = sums.sum(axis=1, keepdims=True)
    return np.where(totals > 0, sums / np.where(totals > 0, totals, 1.0), prior)


def _argmin_rows(rows: Values, factors: Values, added: Values, own: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return ``(rows @ factors + added).argmin(axis=1)``, some rows at a time; `own` where that is as low."""
    step, found = max(_MOST_VALUES // max(factors.shape[1], 1), 1), own.copy()
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        costs = rows[part] @ factors + added
        least, at = costs.argmin(axis=1), np.arange(len(costs))
        held = costs[at, own[part]]
        found[part] = np.where(costs[at, least] < held - _TIE * np.abs(held), least, own[part])
    return found


def _with_short_indices(words: Any) -> Any:
    """Return CSR arrays with the indices that liblinear takes."""
    if not sp.issparse(words):
        return words
    rows = sp.csr_array(words)
    if rows.nnz < np.iinfo(np.int32).max:
        kinds = (rows.indices.astype(np.int32, copy=False), rows.indptr.astype(np.int32, copy=False))
        rows = sp.csr_array((rows.data, *kinds), shape=rows.shape)
    return rows
