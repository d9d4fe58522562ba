"""Errors, answers and classifiers of groups that people edit, from the models that the folds of a fit have learned."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from bagwise._utils.matrices import with_short_indices, without_columns
from bagwise.app.modalities.vectorizers import group_features
from bagwise.app.model import Head, Model
from bagwise.app.model.editing import unedited_model
from bagwise.app.options import FitOptions
from bagwise.app.training.calibration import HeldOutScores
from bagwise.app.training.fold_edits import FoldEdits
from bagwise.app.training.folds import FoldModels, fold_model
from bagwise.app.training.group_data import contributions
from bagwise.app.training.item_answers import Steered
from bagwise.app.training.method import Method, classifier_of, fitting_svms, head_of, make_svm, two_sided
from bagwise.errors import BagwiseError
from bagwise.merging.compact import MOST_FITTED
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.pooling import pool
from bagwise.merging.scaling import Scaling
from bagwise.merging.teacher import ScoreMoments, Teacher, balanced_weights, mean_squares, mean_weights

__all__ = ["Steering"]

# Sums of groups are dense from this fraction of values that are not zero on.
_DENSE = 0.2
_KEPT = 8  # groupings that are kept as measured


class _Part(NamedTuple):
    """A fold, or at last the model itself: its groups and classifiers, and the items that it was learned from."""

    hierarchy: Hierarchy
    heads: Mapping[int, Head]
    train: NDArray[np.intp]
    test: NDArray[np.intp]


class _Followed(NamedTuple):
    """A classifier of words, and its scores of the items that it was trained on."""

    teacher: Teacher
    scores: NDArray[np.float64]


class Steering:
    """Measures edited models by the folds of the fit, which have learned groups and classifiers of their own.

    1. Make the edits of a model again in the groups of each fold (`FoldEdits`). The groups of the model itself were
       found with the classes of all items: tested with them, held-out items would have helped to find their groups,
       and errors would be much too low.
    2. In each fold, fit a classifier of the edited groups as the fit does: to the scores of the fold's classifier of
       the most groups, most often all words, where groups follow a classifier; otherwise a linear SVM to the labels.
       Groups that are not edited have their classifier.
    3. Score held-out items.

    A model without edits has the errors of its fit, ``model.path``. Words and their weights (TF-IDF), which are learned
    without classes, are those of all items here and there.

    Parameters
    ----------
    model : Model
        With classes and one grouping. Its options have the criterion, C and weights of classes.
    folds : FoldModels
        Of the model before edits.
    words : CSR array or ndarray of shape (n_tested, n_cells * d)
        Weighted words (``model.weighting.apply``) of the items that folds have tested, in their order; where features
        of groups are normalised, up to a factor of each item.
    codes : ndarray of shape (n_tested,)
        Their classes, as indices into those of the model.

    Notes
    -----
    O(n_folds (nnz + d log d + n_items n_groups² + n_groups³)) where groups follow a classifier. The folds' classifiers
    of all words are trained again, once, if `folds` had no room for them.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import fit_model
    >>> X = np.random.default_rng(0).poisson([[4, 1, 2, 0], [1, 3, 0, 2]] * 10)
    >>> rows = Collection.from_matrix(X, [f"row{k}" for k in range(20)], [("cat",), ("dog",)] * 10)
    >>> model = fit_model(rows, n_groups=3, folds=4, criterion="classifier")
    >>> folds = FoldModels.of(model.fit_.folds, 20)
    >>> steering = Steering(model, folds, model.weighting.apply(model.histograms(rows)), np.array([0, 1] * 10))
    >>> found = steering.measure(model.apply([{"edit": "join", "n_groups": 3, "groups": [0, 1]}]))
    >>> found.protocol
    '4-fold cross-validation; each fold merges words and makes the edits without the items that it tests'
    """

    def __init__(self, model: Model, folds: FoldModels, words: Any, codes: NDArray[np.int64]) -> None:
        d = model.layout.n_columns
        if words.shape != (folds.n_items, d):
            raise BagwiseError(f"words must have {folds.n_items} items and {d} columns, got shape {words.shape}.")
        self.words, self.codes = with_short_indices(words), codes
        self.original, self.folds = unedited_model(model), folds
        criterion = str(model.options.get("criterion", ""))
        scaling = None if model.column_shift is None else Scaling(model.column_shift)
        self.method = Method(criterion, "", None, scaling=scaling)
        names = ("C", "class_weight", "random_state")
        self.options = FitOptions(**{name: model.options.get(name, getattr(FitOptions, name)) for name in names})
        of_item, original = folds.of_item[folds.tested], self.original
        trained = original.heads if not model.edits or model.unedited is None else model.unedited.trained
        tested = [np.flatnonzero(of_item == fold) for fold in range(len(folds))]
        rest = [np.flatnonzero(of_item != fold) for fold in range(len(folds))]
        self._parts = [_Part(*parts) for parts in zip(folds.hierarchies, folds.heads, rest, tested, strict=True)]
        self._parts.append(_Part(original.hierarchy, trained, np.arange(len(codes)), np.zeros(0, np.intp)))
        statistics = folds.statistics or (None,) * len(folds)
        self._edits = FoldEdits(model, list(zip(folds.hierarchies, statistics, strict=True)))
        self._followed: dict[int, _Followed] = {}
        self._measured: OrderedDict[bytes, Steered] = OrderedDict()
        self._lock = threading.Lock()

    def protocol(self, model: Model, left_out: int = 0) -> str:
        """Say how errors of a model are estimated."""
        made = "merges words"
        if any(edit["edit"] != "rename" for edit in model.edits):
            made += " and makes the edits"
        without = f"; {left_out} of the edits in folds were not possible" if left_out else ""
        return f"{len(self.folds)}-fold cross-validation; each fold {made} without the items that it tests{without}"

    def measure(self, model: Model, without: Sequence[int] = ()) -> Steered:
        """Return the error of the groups of a model, their classifier, and held-out answers.

        Parameters
        ----------
        model : Model
            The one that this was made for, with any edits, cut at any number of groups.
        without : sequence of int, default=()
            Words that items are taken not to have, such as those of one group. Folds keep the groups that they have
            found; classifiers of these are fitted again, to what is left of them.
        """
        # folds make the edits in groups of their own, which may differ where those of the model do not
        edits = json.dumps([edit for edit in model.edits if edit["edit"] != "rename"], sort_keys=True)
        left_out = np.unique(np.asarray(without, np.int64))
        key = hashlib.blake2b(model.lookup.tobytes() + left_out.tobytes() + edits.encode(), digest_size=16).digest()
        with self._lock:  # the editor of an explorer and its requests measure in threads of their own
            self._measured[key] = measured = self._measured.pop(key, None) or self._measure(model, left_out)
            if len(self._measured) > _KEPT:
                self._measured.popitem(last=False)
        return measured

    def answered_by(self, model: Model, item: int) -> Model:
        """Return the model that gave the held-out answer for an item, as the fold that tested it has learned it.

        `item` is its number among all items; `model` is the one with the answers, with its edits, cut.
        """
        return fold_model(self.original, *self.measure(model).models[int(self.folds.of_item[item])])

    def contributions(self, model: Model, items: NDArray[np.int64], first: int, second: int) -> NDArray[np.float64]:
        """Return what groups add to the score of one class less that of another one, in held-out answers.

        The model of a fold has groups of its own. What each of them adds is divided among its words, in proportion to
        their weights in the item, and words are summed by the groups of `model`: with the difference of the fold's
        intercepts, a row adds up to the difference of its scores.

        Parameters
        ----------
        model : Model
            As for `measure`.
        items : ndarray of int
            Numbers of items that folds have tested, among all of those.
        first, second : int
            Classes.

        Returns
        -------
        contributions : ndarray of shape (n_items, n_groups)
        """
        fold_of, steered = self.folds.of_item[self.folds.tested][items], self.measure(model)
        added = np.zeros((len(items), model.n_groups))
        for fold, state in enumerate(steered.models):
            rows = np.flatnonzero(fold_of == fold)
            tested = fold_model(self.original, *state)
            added[rows] = contributions(tested, self.words[items[rows]], first, second, model.lookup)
        return added

    def scores(self, model: Model, without: Sequence[int] = ()) -> NDArray[np.float64]:
        """Return the held-out scores of all items that folds have tested, shape (n_tested, n_classes).

        Parameters are those of `measure`.
        """
        steered, words = self.measure(model, without), self._words_without(np.unique(np.asarray(without, np.int64)))
        scores, layout = np.zeros((len(self.codes), len(self.original.classes))), self.original.layout
        for part, (hierarchy, n, head) in zip(self._parts, steered.models, strict=False):
            features = group_features(words[part.test], hierarchy.cut(n), n, layout, self.original.normalize)
            scores[part.test] = head.scores(features)
        return scores

    def _words_without(self, without: NDArray[np.int64]) -> Any:
        """Return the words of items of which some are taken to have none."""
        if not len(without):
            return self.words
        layout, d = self.original.layout, self.original.hierarchy.n_words
        return without_columns(self.words, layout.over_cells(without, d))

    def _measure(self, model: Model, without: NDArray[np.int64]) -> Steered:
        n, (states, left_out) = model.n_groups, self._edits.hierarchies(model)
        cuts, words = [*states, (model.hierarchy, n)], self._words_without(without)

        def fit(number: int) -> tuple[Head, NDArray[np.float64]]:
            part, (hierarchy, size) = self._parts[number], cuts[number]
            labels = hierarchy.cut(size)
            kept = None if len(without) else self._kept(part, labels, size)
            head = kept or self._fitted(number, labels, size, words)
            features = group_features(words[part.test], labels, size, self.original.layout, self.original.normalize)
            return head, head.scores(features)

        n_threads = min(effective_n_jobs(-1), len(self._parts))
        with fitting_svms():
            tasks = (delayed(fit)(number) for number in range(len(self._parts)))
            fitted = list(Parallel(n_threads, require="sharedmem")(tasks))
        observe, right = HeldOutScores(self.codes, len(model.classes), [n]), []
        for part, (_, scores) in zip(self._parts[:-1], fitted, strict=False):
            observe(0, part.test, scores)
            right.append(np.mean(scores.argmax(axis=1) == self.codes[part.test]))
        spread = float(np.std(right, ddof=1) / np.sqrt(len(right))) if len(right) > 1 else 0.0
        models = tuple((*state, head) for state, (head, _) in zip(states, fitted, strict=False))
        sharpness, top = observe.calibration()[n], observe.top.at(0)
        return Steered(
            1.0 - float(np.mean(right)), spread, self.protocol(model, left_out), fitted[-1][0], sharpness, top, models
        )

    def _kept(self, part: _Part, labels: NDArray[np.int64], n: int) -> Head | None:
        """Return the classifier that was learned for these groups, if they were not edited."""
        if n not in part.heads or n < part.hierarchy.min_groups:
            return None
        return part.heads[n] if np.array_equal(part.hierarchy.cut(n), labels) else None

    def _fitted(self, number: int, labels: NDArray[np.int64], n: int, words: Any) -> Head:
        """Fit a classifier of groups by the items that a part was learned from; `words` of all items."""
        part = self._parts[number]
        rows = words[part.train]
        if not self.method.follows:
            features = group_features(rows, labels, n, self.original.layout, self.original.normalize)
            svm = classifier_of(self.method, make_svm(self.options))
            return head_of(svm.fit(features.astype(np.float64), self.codes[part.train]))
        followed, n_columns = self._follow(number), self.original.layout.width(n)
        spread = self.original.layout.over_cells(labels, n)
        mean = mean_weights(followed.teacher, spread, n_columns)
        if n_columns == self.words.shape[1] or n_columns > MOST_FITTED:
            return two_sided(*mean)
        sums = pool(rows, spread, n_columns)
        if sp.issparse(sums) and sums.nnz > _DENSE * sums.shape[0] * sums.shape[1]:
            sums = sums.toarray()
        return two_sided(*ScoreMoments.of(sums, followed.scores).weights(mean[0]))

    def _follow(self, number: int) -> _Followed:
        """Return the classifier of all words that a part's groups follow, and its scores of training items.

        It is that of the most groups; if a fold has lost that for want of room, it is trained again.
        """
        if number not in self._followed:
            part, path, layout = self._parts[number], self.original.path, self.original.layout
            rows = self.words[part.train]
            n = max(part.heads if path is None else path.sizes)
            if n in part.heads:
                head, labels = part.heads[n], part.hierarchy.cut(n)
                coef, intercept = head.coef.astype(np.float64), head.intercept.astype(np.float64)
                if len(coef) == 2:  # the first is the negative of the second
                    coef, intercept = coef[1:], intercept[1:]
                columns = layout.over_cells(labels, n)
                scores = np.asarray(pool(rows, columns, layout.width(n)) @ coef.T) + intercept
                coef = coef[:, columns]
            else:
                svm = make_svm(self.options).fit(rows.astype(np.float64), self.codes[part.train])
                coef, intercept = svm.coef_, svm.intercept_
                scores = np.asarray(rows @ coef.T) + intercept
            mass = mean_squares(rows, balanced_weights(scores))
            classes = np.arange(len(self.original.classes))
            self._followed[number] = _Followed(Teacher(coef, intercept, classes, mass), scores)
        return self._followed[number]
