"""Errors, answers and classifiers of groups that people edit, by cross-validation whose costly part is kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from bagwise.app.model import Model
from bagwise.app.model.vectorizers import Progress, no_progress, normalize_features
from bagwise.app.options import FitOptions
from bagwise.app.training.calibration import HeldOutScores
from bagwise.app.training.fold_edits import FoldEdits
from bagwise.app.training.item_answers import Steered
from bagwise.app.training.learning import merge_parts
from bagwise.app.training.method import (
    FollowedPath,
    Method,
    classifier_of,
    codes_of,
    fitting_svms,
    folds_of,
    head_of,
    make_svm,
    refined_size,
    two_sided,
)
from bagwise.errors import BagwiseError
from bagwise.merging.compact import MOST_FITTED
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.pooling import pool
from bagwise.merging.scaling import Scaling
from bagwise.merging.teacher import ScoreMoments, Teacher, mean_weights

__all__ = ["Steering"]

# Sums of groups are dense from this fraction of values that are not zero on.
_DENSE = 0.2
_STEP = "Finding the groups of each fold"

Values = NDArray[np.float64]
_Weights = tuple[Values, Values]  # of groups, one row for each class or for two of them, and intercepts


@dataclass(frozen=True, eq=False)
class _Followed:
    """A classifier on all words, and its scores of the items that it was trained on."""

    teacher: Teacher
    scores: Values


class Steering:
    """Cross-validates the groups of edited models in the folds of a fit.

    1. Once: merge words in each fold by its training items alone, as the fit does. Where groups follow a classifier on
       all words (the criterion "classifier"), this is trained in each fold, and on all items.
    2. For each edited model: make its edits again in the groups of each fold (`FoldEdits`). The groups of the model
       itself were found with the classes of all items: tested with them, held-out items would have helped to find
       their groups, and errors would be much too low.
    3. In each fold, sum the words of each group, fit weights of groups to the scores of the classifier on all words,
       and score held-out items. With other criteria, train a linear SVM on the sums instead, as the fit does.

    A model without edits has the errors of its fit, ``model.path``. Words and their weights (TF-IDF), which are learned
    without classes, are those of all items here and there. Groups merged without classes, as by "clusters", are
    the same in all folds, and so are those of criteria that are not known by name; `protocol` says so.

    Parameters
    ----------
    model : Model
        With classes and one grouping. Its options have the criterion, C, the number of folds (5 if it was fitted
        without) and the random state.
    words : CSR array or ndarray of shape (n_items, n_cells * d)
        Weighted words (``model.weighting.apply``) of the items that the model was learned from, in their order; where
        features of groups are normalised, up to a factor of each item.
    codes : ndarray of shape (n_items,)
        Their classes, as indices into those of the model.
    counts : CSR array or ndarray of shape (n_items, n_cells * d), default=None
        Their histograms, which criteria of occurrences such as "aib" merge on. None: what the words say of them, with
        the same sum for each item; errors may differ a little from those of the fit then.

    Attributes
    ----------
    ready : bool
        Whether step 1 is done.

    Notes
    -----
    Step 1 merges once per fold. Steps 2 and 3 are O(n_folds (nnz + d log d + n_items n_groups² + n_groups³)) where
    groups follow a classifier.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import fit_model
    >>> X = np.random.default_rng(0).poisson([[4, 1, 2, 0], [1, 3, 0, 2]] * 10)
    >>> rows = Collection.from_matrix(X, [f"row{k}" for k in range(20)], [("cat",), ("dog",)] * 10)
    >>> model = fit_model(rows, n_groups=3, folds=4, criterion="classifier")
    >>> steering = Steering(model, model.weighting.apply(model.histograms(rows)), np.array([0, 1] * 10))
    >>> found = steering.measure(model.apply([{"edit": "join", "n_groups": 3, "groups": [0, 1]}]))
    >>> found.protocol
    '4-fold cross-validation; each fold merges words and makes the edits without the items that it tests'
    """

    def __init__(self, model: Model, words: Any, codes: NDArray[np.int64], counts: Any = None) -> None:
        if not model.classes:
            raise BagwiseError("Edited groups of this model cannot be cross-validated: it has no classes.")
        if words.shape != (len(codes), model.n_cells * model.hierarchy.n_words):
            expected = f"{len(codes)} items and {model.n_cells * model.hierarchy.n_words} columns"
            raise BagwiseError(f"words must have {expected}, got shape {words.shape}.")
        defaults = FitOptions()
        names = ("C", "folds", "random_state", "n_groups")
        given = {name: model.options.get(name, getattr(defaults, name)) for name in names}
        self.options = FitOptions(**given | {"folds": given["folds"] or defaults.folds, "n_jobs": -1})
        fewest = int(np.bincount(codes, minlength=len(model.classes)).min())
        if fewest < 2:
            raise BagwiseError(f"Groups are cross-validated with at least two items of each class; one has {fewest}.")
        self.words, self.codes, self.n_cells = _with_short_indices(words), codes, model.n_cells
        self.n_classes, self.normalize = len(model.classes), model.normalize
        scaling = None if model.column_shift is None else Scaling(model.column_shift)
        criterion, vocabularies = str(model.options.get("criterion", "")), tuple(model.vocabularies)
        self.method = Method(
            criterion, "", model.options.get("root"), vocabularies if len(vocabularies) > 1 else (), scaling=scaling
        )
        self._model, self._counts = model, counts
        self._supervised = criterion not in NAMED_CRITERIA or resolve_criterion(criterion).supervised
        self._merges = criterion in NAMED_CRITERIA and self._supervised
        self.splits = folds_of(codes, self.options)
        everything = np.arange(len(codes))
        self._parts = [*(train for train, _ in self.splits), everything]
        self._followed: list[_Followed] = []
        self._merged: list[tuple[Hierarchy, GroupStatistics | None]] = []
        self._edits: FoldEdits | None = None
        self._training = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether the groups of each fold, and the classifiers on all words, are found, or not needed."""
        followed = not self.method.follows or len(self._followed) == len(self._parts)
        return followed and (self._edits is not None or not self._merges)

    def protocol(self, edited: bool = True, left_out: int = 0) -> str:
        """Say how errors are estimated."""
        how = f"{len(self.splits)}-fold cross-validation"
        if not self._merges:
            found = "with the classes of all items: compare errors only" if self._supervised else "without classes"
            return f"{how} of these groups, which were found {found}"
        made = "merges words and makes the edits" if edited else "merges words"
        without = f"; {left_out} of the edits in folds were not possible" if left_out else ""
        return f"{how}; each fold {made} without the items that it tests{without}"

    def prepare(self, progress: Progress = no_progress) -> None:
        """Find the groups of each fold, and train classifiers on all words if groups follow one; once."""
        with self._training, fitting_svms():
            if self.ready:
                return
            self._merged.clear()
            self._followed.clear()
            for number, rows in enumerate(self._parts):
                progress(_STEP, number, len(self._parts))
                if self.method.follows:
                    self._follow(rows, number < len(self.splits))
                elif self._merges and number < len(self.splits):
                    self._merged.append(self._merge(self._input[rows], self.codes[rows]))
            if self._merges:
                self._edits = FoldEdits(self._model, self._merged)
            progress(_STEP, len(self._parts), len(self._parts))

    def _merge(self, X: Any, y: NDArray[np.int64]) -> tuple[Hierarchy, GroupStatistics | None]:
        return merge_parts(lambda part: (X[:, part], y), X.shape[1], self.method, self.options, no_progress)

    def _follow(self, rows: NDArray[np.intp], merges: bool) -> None:
        """Train a classifier on all words of some items, and merge words by it."""
        part, codes, svm = self.words[rows], self.codes[rows], make_svm(self.options)
        if merges:
            refined = refined_size(self.options, self.n_classes)
            path = FollowedPath.fit(part, codes, (), svm, self._whole[rows], self.n_cells, refined)
            self._merged.append((path.hierarchy, path.statistics()))
            teacher = path.teacher
        else:
            teacher = Teacher.of(svm.fit(part, codes), part)
        self._followed.append(_Followed(teacher, teacher.scores(part)))

    @cached_property
    def _whole(self) -> Any:
        """Weighted words of whole items."""
        return self.words if self.n_cells == 1 else self._model.weighting.apply(self._occurrences)

    @cached_property
    def _occurrences(self) -> Any:
        """Counts of the words of whole items; without histograms, up to a factor of each item."""
        words, model = self._counts, self._model
        if words is None and model.column_shift is None:
            words = self.words
            if model.term == "sqrt":
                words = words.multiply(words).tocsr() if sp.issparse(words) else words**2
            elif model.term == "log" and model.word_weights is not None:
                used = np.where(model.word_weights > 0, model.word_weights, 1.0).astype(np.float64)
                words = words @ sp.diags_array(np.tile(1 / used, self.n_cells))
        if words is None or self.n_cells == 1:
            return self.words if words is None else words
        (rows, columns), d = model.pyramid[0], model.hierarchy.n_words
        cells = [words[:, k * d : (k + 1) * d] for k in range(rows * columns)]
        return sum(cells[1:], start=cells[0])

    @cached_property
    def _input(self) -> Any:
        """What words are merged on, where no classifier is followed."""
        return self.method.merging_input(self._occurrences, self._whole)

    def measure(self, model: Model) -> Steered:
        """Return the error of the groups of a model, their classifier, and held-out answers.

        Parameters
        ----------
        model : Model
            The one that this was made for, with any edits, cut at any number of groups.
        """
        self.prepare()
        n, left_out = model.n_groups, 0
        labels = [model.lookup] * len(self._parts)
        if self._edits is not None:
            own, left_out = self._edits.labels(model)
            labels = [*own, model.lookup]

        def fit(part: int) -> tuple[_Weights, Values]:
            n = int(labels[part].max()) + 1
            sums = pool(self.words, labels[part], n, n_cells=self.n_cells)
            if self.method.follows:
                weights = self._fit_to_scores(part, sums, labels[part], n)
            else:
                sums = normalize_features(sums, self.normalize).astype(np.float64)
                weights = self._train(part, sums)
            test = self.splits[part][1] if part < len(self.splits) else self._parts[part][:0]
            return weights, np.asarray(sums[test] @ weights[0].T) + weights[1]

        n_threads = min(effective_n_jobs(self.options.n_jobs), len(self._parts))
        with fitting_svms():
            tasks = (delayed(fit)(part) for part in range(len(self._parts)))
            found = list(Parallel(n_threads, require="sharedmem")(tasks))
        observe, right = HeldOutScores(self.codes, self.n_classes, [n]), []
        for (_, test), (_, scores) in zip(self.splits, found, strict=False):
            observe(0, test, scores)
            right.append(np.mean(codes_of(scores) == self.codes[test]))
        spread = float(np.std(right, ddof=1) / np.sqrt(len(right))) if len(right) > 1 else 0.0
        head = two_sided(*found[-1][0])
        sharpness, top = observe.calibration()[n], observe.top.at(0)
        protocol = self.protocol(any(edit["edit"] != "rename" for edit in model.edits), left_out)
        return Steered(1.0 - float(np.mean(right)), spread, protocol, head, sharpness, top)

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
        head = head_of(classifier_of(self.method, svm).fit(features[rows], self.codes[rows]))
        return head.coef.astype(np.float64), head.intercept.astype(np.float64)


def _with_short_indices(words: Any) -> Any:
    """Return CSR arrays with the indices that liblinear takes."""
    if not sp.issparse(words):
        return words
    rows = sp.csr_array(words)
    if rows.nnz < np.iinfo(np.int32).max:
        kinds = (rows.indices.astype(np.int32, copy=False), rows.indptr.astype(np.int32, copy=False))
        rows = sp.csr_array((rows.data, *kinds), shape=rows.shape)
    return rows
