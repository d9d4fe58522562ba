"""Labels that are probably wrong: those that held-out answers contradict with the most certainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.arrays import softmax
from bagwise.app.index.item_scores import ItemScores
from bagwise.errors import unknown_name

__all__ = ["ISSUE_ORDERS", "LabelIssues", "label_issues"]

ISSUE_ORDERS = ("self_confidence", "margin")


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """Items whose held-out answer contradicts their label, the most certain first.

    Attributes
    ----------
    numbers : ndarray of int, shape (n_issues,)
        Of the items.
    self_confidence : ndarray of shape (n_issues,)
        The probability of the label.
    margin : ndarray of shape (n_issues,)
        That probability less the one of the answer.
    suggested : ndarray of int, shape (n_issues,)
        The answer, as a class.
    """

    numbers: NDArray[np.int64]
    self_confidence: NDArray[np.float64]
    margin: NDArray[np.float64]
    suggested: NDArray[np.int64]


def label_issues(scored: ItemScores, order: str = "self_confidence") -> LabelIssues:
    """Return the items whose label is contradicted by a model that has not seen them.

    Parameters
    ----------
    scored : ItemScores
        See `score_items`. Items whose scores are not `fair` are left out: a model agrees with labels that it has seen.
    order : {"self_confidence", "margin"}, default="self_confidence"
        What comes first: the least probability of the label, or its least margin over the answer (Northcutt et al.,
        "Confident Learning", JAIR 2021).

    Examples
    --------
    >>> fair = np.ones(3, bool)
    >>> scores = np.array([[2.0, 0, 0], [2.0, 1, 0], [0, 2, 1]])
    >>> found = label_issues(ItemScores(scores, np.array([0, 2, 2]), fair, None, 1.0))
    >>> found.numbers, found.suggested, found.self_confidence.round(2), found.margin.round(2)
    (array([1, 2]), array([0, 1]), array([0.09, 0.24]), array([-0.58, -0.42]))
    """
    if order not in ISSUE_ORDERS:
        raise unknown_name("order", order, ISSUE_ORDERS)
    top, codes = scored.top.predicted, scored.codes
    numbers = np.flatnonzero(scored.fair & (codes >= 0) & (top != codes))
    rows = np.arange(len(numbers))
    probable = softmax(scored.sharpness * scored.scores[numbers])
    confidence = probable[rows, codes[numbers]]
    margin = confidence - probable[rows, top[numbers]]
    by = np.argsort(margin if order == "margin" else confidence, kind="stable")
    return LabelIssues(numbers[by], confidence[by], margin[by], top[numbers][by].astype(np.int64))
