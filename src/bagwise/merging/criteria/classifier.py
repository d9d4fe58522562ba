"""A criterion that keeps the scores of a linear classifier on all words."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.svm import LinearSVC
from sklearn.utils.validation import has_fit_parameter

from bagwise._compat import HasMethods
from bagwise.errors import BagwiseError
from bagwise.merging.criteria.base import AdditiveScore, class_codes
from bagwise.merging.scoring import Scoring, WeightLoss
from bagwise.merging.teacher import Teacher, mean_squares

__all__ = ["ClassifierLoss"]


class ClassifierLoss(AdditiveScore):
    """Keep the scores of a linear classifier that is learned on all words once.

    The words of a group share one weight vector, the mean of theirs weighted by importance,
    ``v_g = Σ_{j in g} m_j w_j / Σ_{j in g} m_j`` with ``m_j = E[x_j²]``, samples weighted
    so that all classes count the same, as the classifier answers. Each merge is the one that raises
    ``Σ_j m_j |w_j - v_g(j)|²`` least: the expected squared change of the classifier's scores, correlations between
    words aside. Scores are minus that sum after each merge; they start at 0 and never rise.

    Parameters
    ----------
    estimator : linear classifier, default=None
        Any scikit-learn classifier with `coef_` and one row of them per class, or a single one for two classes. It is
        cloned and fitted, unless it is inside a `FrozenEstimator`. None: ``LinearSVC(random_state=0)``, fitted to X
        divided by the root mean square norm of its rows, so that the scale of the data does not matter.

    Notes
    -----
    Words of equal weights cost nothing to merge and are merged first. So are words that never occur, with the word of
    the smallest weights. Keep the classifier, do not refit it to labels on the merged words: the groups were made
    from the same labels. `bagwise.CompactClassifier` does that, with weights fitted to the classifier's scores.

    Needs at least about as many groups as classes; below that "aib" is better. For two classes O(d log d) time, as
    words are compared only with their neighbours in the order of weights; else O(C d²) on ordinary data. O(C d) memory.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="classifier").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "classifier"
    takes_sample_weight = True
    edits_from = "states"
    scoring_of = staticmethod(WeightLoss.of_states)
    _parameter_constraints: ClassVar[dict] = {"estimator": [HasMethods(["fit", "predict"]), None]}

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def scoring(  # noqa: D102
        self, X: Any, y: NDArray[Any] | None, sample_weight: NDArray[np.float64] | None = None
    ) -> Scoring:
        class_codes(y, self.name)  # at least two classes
        estimator = LinearSVC(random_state=0) if self.estimator is None else clone(self.estimator)
        if self.estimator is None:
            norm = float(np.sqrt(mean_squares(X, sample_weight).sum()))
            X = X / norm if norm > 0 else X
        weighted: dict[str, Any] = {}
        if sample_weight is not None:
            if not has_fit_parameter(estimator, "sample_weight"):
                raise BagwiseError(
                    f"{type(estimator).__name__} does not support sample_weight. Pass sample_weight=None, or use an "
                    "estimator that does, such as LinearSVC."
                )
            weighted = {"sample_weight": sample_weight}
        teacher = Teacher.of(estimator.fit(X, y, **weighted), X, sample_weight)
        return WeightLoss(teacher.mass, teacher.coef.T)
