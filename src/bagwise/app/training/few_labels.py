"""Learning from few labels: groups of words made from all items help to train a classifier on those with a label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.model_selection import StratifiedKFold

from bagwise._utils.text import agree, how_many
from bagwise._utils.validation import narrow_indices
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.steps import StepCache
from bagwise.app.modalities.vectorizers import Progress, group_features
from bagwise.app.options import FitOptions
from bagwise.app.training.method import HELLINGER, choose_method, choose_weighting, make_svm
from bagwise.codebooks.pyramids import WordLayout

if TYPE_CHECKING:
    from bagwise.app.training.preparing import WordData
    from bagwise.sources.collection import Collection

__all__ = [
    "Unlabelled",
    "few_labels_notes",
    "groups_help",
    "helps_unlabelled",
    "scores_beside_groups",
    "train_with_groups",
    "unlabelled_of",
]

Values = NDArray[np.float64]
# Groups made without labels, for up to so many classes; ten for each class where there are more.
_N_GROUPS, _GROUPS_A_CLASS = 50, 10
# What features of groups are multiplied by, beside words of length 1; the first is taken where nothing can be measured.
_WEIGHTS = (1.0, 0.5, 0.0)
# Folds that choose among these, and labelled items of the smallest class that they need: items that were labelled for
# being uncertain speak against groups as long as there are few others.
_FOLDS, _LEAST_MEASURED = 5, 20
# Penalty of weights of words that follow scores: words have length 1.
_RIDGE = 1.0
# Labels of the smallest class below which an error says little.
_LEAST_LABELS = 5


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Items without a label, and the features that groups made from all items have beside words.

    Attributes
    ----------
    weighted, whole : ndarray or CSR array
        Weighted words of the items without a label: of all cells, and of whole items.
    groups : ndarray of shape (n_unlabelled, n_groups)
    of_labelled : ndarray of shape (n_labelled, n_groups)
        Groups of the items with a label, of those that are trained on.
    """

    weighted: Any
    whole: Any
    groups: Values
    of_labelled: Values

    def __getitem__(self, items: NDArray[np.intp]) -> Unlabelled:
        """Keep some of the labelled items."""
        return replace(self, of_labelled=self.of_labelled[items])


def helps_unlabelled(collection: Collection, options: FitOptions) -> bool:
    """Whether a fit learns from items without a label, beside those that have one.

    It does where groups follow a classifier on words that are counted, and all histograms are in this process.
    """
    n_classes, kind = len(collection.classes), MODALITIES[collection.modality]
    in_process = not kind.rows and options.memory_limit is None
    return n_classes > 1 and in_process and choose_method(options, collection.modality, n_classes).follows


def groups_help(n_labelled: int, n_items: int) -> bool:
    """Whether there are so many items without a label that groups made from all are worth their time."""
    return n_items >= 2 * n_labelled


def few_labels_notes(codes: NDArray[np.int64], classes: tuple[str, ...], n_items: int) -> list[str]:
    """Say how many items have a label, and what so few of them cannot tell."""
    n, counts = len(codes), np.bincount(codes, minlength=len(classes))
    helped = "words and groups that help the classifier" if groups_help(n, n_items) else "words"
    notes = [f"{n:,} of {n_items:,} items {agree(n, 'has', 'have')} a label: {helped} were made from all of them."]
    small = int(counts.argmin())
    if counts[small] < _LEAST_LABELS:
        notes.append(
            f"The class {classes[small]!r} has {how_many(int(counts[small]), 'labels')}: with fewer than "
            f"{_LEAST_LABELS} of a class nobody can know its error. Label more: `bagwise suggest` names items."
        )
    return notes


def unlabelled_of(
    data: WordData,
    n_labelled: int,
    weighting: Any,
    n_classes: int,
    options: FitOptions,
    progress: Progress,
    steps: StepCache | None,
) -> Unlabelled:
    """Merge the words of all items without labels, and weight those of the items behind the labelled ones."""
    from bagwise.app.training.learning import learn_groups
    from bagwise.app.training.rows import Rows

    modality = data.collection.modality
    apart = replace(options, criterion="clusters", n_groups="auto")
    method = choose_method(apart, modality, 0, data.layout.vocabularies)
    of_groups = choose_weighting(method, data.whole())
    rows = Rows.of(data, None, method, of_groups)
    hierarchy = learn_groups(rows, (), method, apart, progress, steps).hierarchy
    size = min(max(_N_GROUPS, _GROUPS_A_CLASS * n_classes), data.n_words)
    layout = WordLayout(data.layout.vocabularies)  # of whole items
    groups = group_features(data.whole(), hierarchy.cut(size), size, layout, HELLINGER, of_groups)
    dense = np.asarray(groups.toarray() if sp.issparse(groups) else groups, np.float64)
    rest = slice(n_labelled, None)
    weighted = weighting.apply(data.histograms[rest])
    whole = weighted if data.layout.n_cells == 1 else weighting.apply(data.whole()[rest])
    return Unlabelled(weighted, whole, dense[rest], dense[:n_labelled])


class Trained(NamedTuple):
    """Weights of words, intercepts, and what groups were multiplied by."""

    coef: Values
    intercept: Values
    weight: float


def train_with_groups(
    X: Any,
    others: Any,
    unlabelled: Unlabelled,
    codes: NDArray[np.int64],
    options: FitOptions,
    progress: Callable[[int, int], Any] = lambda done, total: None,
) -> Trained:
    """Train a linear classifier on words that knows what groups made from all items say.

    1. A linear SVM is trained on the labelled items, with their groups beside their words. Groups are multiplied by 1,
       or by what of 1, ½ and 0 cross-validation among the labelled items prefers, where each class has 20 of them.
    2. Weights of words alone follow its scores of all items, labelled or not, by ridge regression: words that occur
       in no labelled item get weights from the company they keep. So new items need their words alone.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_labelled, n_columns)
        Weighted words, of unit length.
    others : ndarray or CSR array of shape (n_unlabelled, n_columns)
    unlabelled : Unlabelled
        With the groups of both.
    codes : ndarray of shape (n_labelled,)
    options : FitOptions
    progress : callable
    """
    progress(0, 3)
    weight = _chosen_weight(X, unlabelled.of_labelled, codes, options)
    progress(1, 3)
    svm = make_svm(options).fit(_beside(X, unlabelled.of_labelled, weight), codes)
    if weight == 0:
        progress(3, 3)
        return Trained(svm.coef_, svm.intercept_, weight)
    progress(2, 3)
    scores = _beside(X, unlabelled.of_labelled, weight) @ svm.coef_.T
    rest = _beside(others, unlabelled.groups, weight) @ svm.coef_.T
    everything = sp.vstack([X, others], format="csr") if sp.issparse(X) else np.concatenate([X, others])
    ridge = Ridge(_RIDGE, solver="sparse_cg", tol=1e-4)
    ridge.fit(everything, np.concatenate([scores, rest]) + svm.intercept_)
    progress(3, 3)
    return Trained(np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_), weight)


def scores_beside_groups(
    X: Any, groups: Values, labelled: NDArray[np.intp], codes: NDArray[np.int64], options: FitOptions
) -> Values:
    """Train the linear SVM of `train_with_groups` on some items, and return its scores of all: one column a class.

    X and `groups` are of all items, `codes` of the labelled ones.
    """
    weight = _chosen_weight(X[labelled], groups[labelled], codes, options)
    svm = make_svm(options).fit(_beside(X[labelled], groups[labelled], weight), codes)
    scores = np.asarray(_beside(X, groups, weight) @ svm.coef_.T) + svm.intercept_
    return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores


def _beside(X: Any, groups: Values, weight: float) -> Any:
    if not sp.issparse(X):
        return X if weight == 0 else np.hstack([X, weight * groups])
    return narrow_indices(X if weight == 0 else sp.hstack([X, sp.csr_array(weight * groups)], "csr"))


def _chosen_weight(X: Any, groups: Values, codes: NDArray[np.int64], options: FitOptions) -> float:
    """Return the weight of groups of the fewest errors among the labelled items; of equal ones the largest."""
    counts = np.bincount(codes)
    if counts[counts > 0].min() < _LEAST_MEASURED:
        return _WEIGHTS[0]
    splits = list(StratifiedKFold(_FOLDS, shuffle=True, random_state=options.random_state).split(codes, codes))
    errors = []
    for weight in _WEIGHTS:
        F = _beside(X, groups, weight)
        wrong = [(make_svm(options).fit(F[a], codes[a]).predict(F[b]) != codes[b]).sum() for a, b in splits]
        errors.append(sum(wrong))
    return _WEIGHTS[int(np.argmin(errors))]
