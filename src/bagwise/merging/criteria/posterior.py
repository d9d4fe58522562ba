"""Criteria from models of the classes: MLT, GML and UVD."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from bagwise._utils.matrices import check_non_negative, class_sums, is_whole
from bagwise._utils.memory import check_memory
from bagwise.merging.criteria.base import AdditiveScore, Criterion, check_values_fit, class_codes
from bagwise.merging.plans import Options, Plan
from bagwise.merging.scoring import GaussianEvidence, GaussianFit, MultinomialEvidence, Scoring
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.searches.posterior import PosteriorSearch
from bagwise.merging.statistics import Statistics

__all__ = ["ClassPosterior", "GaussianLikelihood", "MultinomialPosterior"]


class MultinomialPosterior(AdditiveScore):
    """How much better one multinomial per class explains the counts than one for all, in a Bayesian way (MLT).

    Maximises the log evidence ratio of the two models under Dirichlet priors, whose masses add when words are merged.

    Parameters
    ----------
    mass : float, default=1.0
        Dirichlet mass of each word.
    total : float, default=1000
        The method needs counts. Data that are not whole numbers, such as histograms that sum to 1, are scaled so that
        each sample has this many words.

    Notes
    -----
    O(C d²) time on ordinary data. As counts grow, gains divided by their number approach those of textbook AIB.

    References
    ----------
    L. Liu, L. Wang, C. Shen, "A generalized probabilistic framework for compact codebook creation", CVPR 2011.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="mlt").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "mlt"
    sums_needed = ("shares",)
    _parameter_constraints: ClassVar[dict] = {
        "mass": [Interval(Real, 0, None, closed="neither")],
        "total": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, mass: float = 1.0, *, total: float = 1000) -> None:
        self.mass = mass
        self.total = total

    def scoring(self, X: Any, y: NDArray[Any] | None) -> Scoring:  # noqa: D102
        self._validate_params()
        check_non_negative(X, "The criterion 'mlt'", "Use counts or histograms.")
        codes = class_codes(y, self.name)
        if not is_whole(X):
            totals = np.asarray(X.sum(axis=1)).ravel()
            X = sp.diags_array(self.total / np.where(totals > 0, totals, 1.0)) @ X
        return self._scoring(class_sums(X, codes))

    def _scoring(self, sums: NDArray[np.float64]) -> Scoring:
        return MultinomialEvidence(np.column_stack([sums.T, np.full(sums.shape[1], float(self.mass))]))

    def start_from_statistics(self, statistics: Statistics, options: Options) -> Plan:  # noqa: D102
        self._validate_params()
        statistics.check_non_negative("The criterion 'mlt'", "Use counts or histograms.")
        if statistics.whole.all():
            return self._plan(self._scoring(statistics.class_sums), statistics.n_words)
        shares = statistics.require("shares", self.name)
        return self._plan(self._scoring(self.total * shares), statistics.n_words)


class GaussianLikelihood(AdditiveScore):
    """How much better one Gaussian per word and class explains the data than one per word, at best fit (GML).

    Maximises ``Σ_w [(n / 2) ln var_w - Σ_c (n_c / 2) ln var_wc]``; variances below 1e-6 count as 1e-6. No parameters.

    Notes
    -----
    O(n d²) time, d x n memory.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="gml").min_words
    1
    """

    name = "gml"
    keeps_values = True

    def scoring(self, X: Any, y: NDArray[Any] | None) -> Scoring:  # noqa: D102
        return GaussianFit(_word_values(X), class_codes(y, self.name))


class ClassPosterior(Criterion):
    """Keep the training labels probable under a Gaussian model of each word in each class (UVD).

    Parameters
    ----------
    form : {"posterior", "evidence"}, default="posterior"
        "posterior": maximise ``Σ_i log p(y_i | x_i)``, the words being independent given the class. "evidence":
        maximise the evidence of one Gaussian per word and class over that of one per word, a sum over words.

    Notes
    -----
    Normal-Gamma priors with the word's pooled mean, ``kappa0 = 1``, ``a0 = 1`` and the pooled variance (at least 1e-6).
    The posterior form scores all pairs at all levels, O(d³ n C) time and d² n C / 2 numbers of memory: for a few
    hundred words. The evidence form takes O(n d²) time and d x n memory.

    References
    ----------
    J. Winn, A. Criminisi, T. Minka, "Object categorization by learned universal visual dictionary", ICCV 2005.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="uvd").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "uvd"
    _parameter_constraints: ClassVar[dict] = {"form": [StrOptions({"posterior", "evidence"})]}

    def __init__(self, form: str = "posterior") -> None:
        self.form = form

    def start(self, X: Any, y: NDArray[Any] | None, options: Options) -> Plan:  # noqa: D102
        self._validate_params()
        codes = class_codes(y, self.name)
        if self.form == "evidence":
            check_values_fit(X, options.memory_limit, self.name)
            return Plan.without_folding(PartnerSearch(GaussianEvidence(_word_values(X), codes)))
        need = 4 * X.shape[1] ** 2 * X.shape[0] * (int(codes.max()) + 1)
        check_memory(
            need,
            options.memory_limit,
            f"The criterion 'uvd' with form='posterior' keeps what each pair of {X.shape[1]} words changes",
            "use form='evidence' or another criterion, or merge fewer words",
        )
        return Plan.without_folding(PosteriorSearch(_word_values(X), codes))


def _word_values(X: Any) -> NDArray[np.float64]:
    """The values of each word in all samples, words x samples: what is merged."""
    return np.array(X.T.toarray() if sp.issparse(X) else X.T, dtype=np.float64)
