"""Errors, answers and classifiers of groups that people edit, by cross-validation whose costly part is kept."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.svm import LinearSVC
from sklearn.utils.parallel import Parallel, delayed

from bagwise._utils.threads import one_blas_thread
from bagwise.errors import BagwiseError
from bagwise.merging.compact import MOST_FITTED
from bagwise.merging.pooling import pool
from bagwise.merging.scaling import Scaling
from bagwise.merging.teacher import ScoreMoments, Teacher, mean_weights
from bagwise.model import Head, Model
from bagwise.model.vectorizers import Progress, no_progress, normalize_features
from bagwise.training.calibration import HeldOutScores
from bagwise.training.item_answers import TopClasses
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
from bagwise.training.seen import SeenItems

__all__ = ["Steered", "Steering", "training_rows"]

# Sums of groups are dense from this fraction of values that are not zero on.
_DENSE = 0.2

Values = NDArray[np.float64]
_Weights = tuple[Values, Values]  # of groups, one row for each class or for two of them, and intercepts


@dataclass(frozen=True, eq=False)
class Steered:
    """What the groups of a model are worth, with the classifier that belongs to them.

    Attributes
    ----------
    error, standard_error : float
        Fraction of wrongly classified items, the mean over folds, and its standard error.
    protocol : str
        How the error was estimated, in words.
    head : Head
        The classifier of the groups, trained on all items.
    sharpness : float
        See `Model.calibration`.
    held_out : TopClasses
        Answers for the items by the folds that did not train on them, arrays of shape (n_items,).
    """

    error: float
    standard_error: float
    protocol: str
    head: Head
    sharpness: float
    held_out: TopClasses

    def put_into(self, model: Model) -> Model:
        """Return the model with this classifier and its calibration at its number of groups."""
        n, other = model.n_groups, copy.copy(model)
        told = {name: value for name, value in model.provenance.items() if name != "derived_head"}
        heads, calibration = {**model.heads, n: self.head}, {**model.calibration, n: self.sharpness}
        other._set(heads=dict(sorted(heads.items())), calibration=dict(sorted(calibration.items())), provenance=told)
        return other


def training_rows(model: Model, codes: NDArray[np.int64], seen: SeenItems | None) -> NDArray[np.intp] | None:
    """Return which items are those that a model was learned from; None unless they are all there, with their classes.

    Parameters
    ----------
    model : Model
    codes : ndarray of shape (n_items,)
        Classes of items as indices into those of the model; -1 for items without one.
    seen : SeenItems or None
    """
    if seen is None or not model.heads:
        return None
    rows = np.flatnonzero(seen.seen & (codes >= 0))
    counts = np.bincount(codes[rows], minlength=len(model.classes)).tolist()
    expected = model.provenance.get("class_counts")
    known = dict(zip(model.classes, counts, strict=True))
    return rows if len(rows) and known == expected else None


@dataclass(frozen=True, eq=False)
class _Followed:
    """A classifier on all words, and its scores of the items that it was trained on."""

    teacher: Teacher
    scores: Values


class Steering:
    """Cross-validates groups of words in the folds of a fit, for any number of edited models.

    1. Once: where the groups of the model follow a classifier on all words (the criterion "classifier"), train this
       classifier in each fold, and on all items.
    2. For each edited model: sum the words of each group, fit weights of groups to the scores of these classifiers, and
       score held-out items. With other criteria, train a linear SVM on the sums instead, as the fit does.

    The groups are the same in all folds, while the cross-validation of `fit_model` merges words anew in each: errors
    are lower by what is lost there, and are compared with those of other groups that were found in the same way.

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
    Step 2 is O(nnz + n_folds (n_items n_groups² + n_groups³)) where groups follow a classifier.

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
    ('4-fold cross-validation of these groups', 0.0)
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
        self._training = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether the classifiers on all words are trained, or not needed."""
        return not self.method.follows or len(self._followed) == len(self._parts)

    @property
    def protocol(self) -> str:
        """How errors are estimated."""
        return f"{len(self.splits)}-fold cross-validation of these groups"

    def prepare(self, progress: Progress = no_progress) -> None:
        """Train the classifiers on all words, if the groups follow one; once."""
        with self._training, no_convergence_warnings():
            while not self.ready:
                progress("Training classifiers on all words", len(self._followed), len(self._parts))
                rows = self._parts[len(self._followed)]
                part = self.words[rows]
                teacher = Teacher.of(make_svm(self.options).fit(part, self.codes[rows]), part)
                self._followed.append(_Followed(teacher, teacher.scores(part)))
            progress("Training classifiers on all words", len(self._parts), len(self._parts))

    def measure(self, model: Model) -> Steered:
        """Return the error of the groups of a model, their classifier, and held-out answers.

        Parameters
        ----------
        model : Model
            With the same words; cut at any number of groups.
        """
        self.prepare()
        labels, n = model.lookup, model.n_groups
        sums = pool(self.words, labels, n, n_cells=self.n_cells)
        if self.method.follows:
            features, weights = sums, self._fit_to_scores(sums, labels, n)
        else:
            features = normalize_features(sums, self.normalize).astype(np.float64)
            weights = self._train(features)
        observe, right = HeldOutScores(self.codes, self.n_classes, [n]), []
        for (_, test), (coef, intercept) in zip(self.splits, weights, strict=False):
            scores = np.asarray(features[test] @ coef.T) + intercept
            observe(0, test, scores)
            right.append(np.mean(codes_of(scores) == self.codes[test]))
        spread = float(np.std(right, ddof=1) / np.sqrt(len(right))) if len(right) > 1 else 0.0
        head = two_sided(*weights[-1])
        sharpness, top = observe.calibration()[n], observe.top.at(0)
        return Steered(1.0 - float(np.mean(right)), spread, self.protocol, head, sharpness, top)

    def _fit_to_scores(self, sums: Any, labels: NDArray[np.int64], n: int) -> list[_Weights]:
        """Fit the weights of groups to the scores of the classifiers on all words."""
        n_columns = self.n_cells * n
        spread = (np.arange(self.n_cells)[:, np.newaxis] * n + labels).ravel()
        means = [mean_weights(one.teacher, spread, n_columns) for one in self._followed]
        if n_columns == self.words.shape[1] or n_columns > MOST_FITTED:
            return means
        if sp.issparse(sums) and sums.nnz > _DENSE * sums.shape[0] * sums.shape[1]:
            sums = sums.toarray()

        def fit(followed: _Followed, rows: NDArray[np.intp], mean: _Weights) -> _Weights:
            return ScoreMoments.of(sums[rows], followed.scores).weights(mean[0])

        return self._in_threads(fit, zip(self._followed, self._parts, means, strict=True))

    def _train(self, features: Any) -> list[_Weights]:
        """Train SVMs on features of groups."""
        svm = make_svm(self.options)
        if features.shape[0] > 2 * features.shape[1]:  # solved without random numbers, so that threads need not wait
            svm = LinearSVC(C=svm.C, dual=False, random_state=svm.random_state, max_iter=svm.max_iter)

        def fit(rows: NDArray[np.intp]) -> _Weights:
            head = head_of(classifier_of(self.method, clone(svm)).fit(features[rows], self.codes[rows]))
            return head.coef.astype(np.float64), head.intercept.astype(np.float64)

        with no_convergence_warnings():
            return self._in_threads(fit, ((rows,) for rows in self._parts))

    def _in_threads(self, fit: Callable[..., _Weights], tasks: Any) -> list[_Weights]:
        n_threads = min(effective_n_jobs(self.options.n_jobs), len(self._parts))
        with one_blas_thread():
            return list(Parallel(n_threads, require="sharedmem")(delayed(fit)(*task) for task in tasks))


def _with_short_indices(words: Any) -> Any:
    """Return CSR arrays with the indices that liblinear takes."""
    if not sp.issparse(words):
        return words
    rows = sp.csr_array(words)
    if rows.nnz < np.iinfo(np.int32).max:
        kinds = (rows.indices.astype(np.int32, copy=False), rows.indptr.astype(np.int32, copy=False))
        rows = sp.csr_array((rows.data, *kinds), shape=rows.shape)
    return rows
