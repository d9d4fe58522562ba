"""The max-margin criterion (MME)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from bagwise._utils.matrices import check_non_negative
from bagwise.merging.criteria.base import Criterion, check_values_fit, class_codes
from bagwise.merging.plans import Options, Plan
from bagwise.merging.searches.margin import MarginSearch

__all__ = ["Margin"]


class Margin(Criterion):
    """Merge words whose weights in a linear SVM agree, solving the SVM again after each merge (MME).

    Merging two words ties their weights. The pair is chosen for which the SVM's objective falls least, judged by its
    dual variables; scores are the objective (its dual value, summed over one-against-rest machines) after each merge.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the SVM's hinge loss.
    n_exact : int, default=0
        Solve the SVM for this many of the most promising pairs and take the best; 0 trusts the estimate.

    Notes
    -----
    Samples are scaled to a sum of 1 first. One SVM a level, each started from the solution before: O(n d) a pass. Pairs
    are compared in O(d) for two classes, in O(d²) for more. A large C can keep the solver from converging, of which
    a ``ConvergenceWarning`` tells.

    References
    ----------
    L. Liu, L. Wang, C. Shen, "A generalized probabilistic framework for compact codebook creation", CVPR 2011.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="mme").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "mme"
    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "n_exact": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(self, C: float = 1.0, *, n_exact: int = 0) -> None:
        self.C = C
        self.n_exact = n_exact

    def start(self, X: Any, y: NDArray[Any] | None, options: Options) -> Plan:  # noqa: D102
        self._validate_params()
        check_non_negative(X, "The criterion 'mme'", "Use counts or histograms.")
        codes = class_codes(y, self.name)
        check_values_fit(X, options.memory_limit, self.name)
        dense = X.toarray() if sp.issparse(X) else X  # samples x words: what the SVM goes through again and again
        totals = dense.sum(axis=1, keepdims=True)
        dense = dense / np.where(totals > 0, totals, 1.0)
        return Plan.without_folding(MarginSearch(dense, codes, self.C, self.n_exact))
