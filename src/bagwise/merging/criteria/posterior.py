"""Criteria from generative models of the classes: MLT, GML and UVD."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln

from bagwise._compat import Interval, StrOptions
from bagwise._utils.matrices import class_sums, count_unit, is_whole
from bagwise._utils.memory import Limit, check_memory
from bagwise.errors import in_python
from bagwise.merging.criteria.base import AdditiveScore, Criterion, check_values_fit, class_codes
from bagwise.merging.scoring import GaussianEvidence, GaussianFit, MultinomialEvidence, Scoring
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.sums import SumSearch
from bagwise.merging.statistics import Statistics

__all__ = ["ClassPosterior", "GaussianLikelihood", "MultinomialPosterior"]


# Variances are at least this, in units of the square of the smallest non-zero value (1 for counts), but the floor is at
# most the given fraction of the largest variance, for data far from zero.
_FLOOR = 1e-6
_LARGEST_FLOOR = 1e-4
# Below these log odds, log(1 + exp(m)) is exp(m) to the last bit.
_CERTAIN = -40.0


class PosteriorSearch(Search):
    """Merge, at each level, the pair after which the training labels are most probable.

    Each word has a Gaussian per class with a Normal-Gamma prior; a sample's class probabilities come from
    the product of its words' predictive densities. What a merge changes in the log odds is kept for every pair;
    the probabilities couple all words, so all pairs are scored anew at each level.

    The score is ``-Σ_i log(1 + exp m_i)`` with the log odds m_i that the label of sample i is wrong. Pairs are compared
    by the logarithm of this sum, which tells them apart also where all labels are certain up to rounding.

    Memory d² n C / 2 numbers, time O(d³ n C).
    """

    def __init__(self, values: NDArray[np.float64], codes: NDArray[np.intp], floor: float) -> None:
        super().__init__(len(values))
        self._codes = codes
        self._floor = floor
        self._values = np.array(values, dtype=np.float64)
        self._live = list(range(self.n_words))
        self._scored = 0
        self._odds = self._log_odds(self._values)
        prior = np.log(np.bincount(codes) / len(codes))
        self._joint = prior - prior[codes, np.newaxis] + self._odds.sum(axis=0)
        # changes[s] holds, for all t > s, what merging s and t changes
        self._changes = {s: self._change(s, np.arange(s + 1, self.n_words)) for s in range(self.n_words - 1)}
        self.start_score = 0.0 - float(np.exp(self._log_loss(self._joint[np.newaxis])[0]))

    def _log_odds(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log predictive density of each sample's value under each class less that under its own class.

        Words x samples x classes. Scales are in units of the word's prior variance, so that a common factor of all
        values cancels.
        """
        mu0 = values.mean(axis=1, keepdims=True)
        b0 = np.maximum(values.var(axis=1, keepdims=True), self._floor)
        densities = np.empty((*values.shape, int(self._codes.max()) + 1))
        for c in range(densities.shape[2]):
            of_class = values[:, self._codes == c]
            n = of_class.shape[1]
            mean = of_class.mean(axis=1, keepdims=True)
            squares = ((of_class - mean) ** 2).sum(axis=1, keepdims=True)
            kappa, a = 1.0 + n, 1.0 + n / 2
            mu = (mu0 + n * mean) / kappa
            b = 1.0 + (squares / 2 + n * (mean - mu0) ** 2 / (2 * kappa)) / b0
            nu, scale = 2 * a, b * (kappa + 1) / (a * kappa)
            constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi * scale)
            densities[:, :, c] = constant - (nu + 1) / 2 * np.log1p((values - mu) ** 2 / (nu * scale * b0))
        return densities - self._of_labels(densities)

    def _of_labels(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Pick the values of each sample's own class, (…) x samples x 1 of (…) x samples x classes."""
        return values[:, np.arange(len(self._codes)), self._codes][..., np.newaxis]

    def _change(self, s: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        merged = self._log_odds(self._values[others] + self._values[s])
        return merged - self._odds[others] - self._odds[s]

    def _log_loss(self, joint: NDArray[np.float64]) -> NDArray[np.float64]:
        """``log Σ_i -log p(y_i | x_i)`` for each of several log odds, k x samples x classes."""
        wrong = joint.copy()
        wrong[:, np.arange(len(self._codes)), self._codes] = -np.inf
        odds = np.logaddexp.reduce(wrong, axis=2)
        losses = np.where(odds < _CERTAIN, odds, np.log(np.logaddexp(0.0, np.maximum(odds, _CERTAIN))))
        return np.logaddexp.reduce(losses, axis=1)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        for k in range(len(pairs)):
            s, t, loss = self._search()
            pairs[k], scores[k] = (s, t), 0.0 - np.exp(loss)
            self._merge(s, t)

    def _search(self) -> tuple[int, int, float]:
        best = (-1, -1, np.inf)
        for position, s in enumerate(self._live[:-1]):
            others = np.array(self._live[position + 1 :])
            losses = self._log_loss(self._joint + self._changes[s][others - s - 1])
            self._scored += len(others)
            first = int(np.argmin(losses))
            if losses[first] < best[2]:
                best = (s, int(others[first]), float(losses[first]))
        return best

    def _merge(self, s: int, t: int) -> None:
        self._joint = self._joint + self._changes[s][t - s - 1]
        self._values[s] += self._values[t]
        self._odds[s] = self._log_odds(self._values[s : s + 1])[0]
        self._live.remove(t)
        self._changes.pop(t, None)
        others = np.array([word for word in self._live if word != s], dtype=np.int64)
        if len(others) == 0:
            return
        change = self._change(s, others)
        for position, word in enumerate(others.tolist()):
            if word < s:
                self._changes[word][s - word - 1] = change[position]
        later = others > s
        if later.any():
            self._changes[s][others[later] - s - 1] = change[later]

    @property
    def work(self) -> dict[str, int]:
        return {"pairs_evaluated": self._scored}


class MultinomialPosterior(AdditiveScore):
    """Bayes factor of one multinomial per class against one for all classes (MLT).

    Maximises the log evidence ratio of the two models under Dirichlet priors, whose parameters add when
    words are merged.

    Parameters
    ----------
    mass : float, default=1.0
        Dirichlet parameter of each word.
    total : float, default=1000
        The method needs counts. If not all values are integers, as in L1-normalised histograms, each sample is scaled
        to this total.

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
    non_negative = True
    takes_sample_weight = True
    sums_needed = ("frequencies",)
    edits_from = "states"
    scoring_of = MultinomialEvidence
    _parameter_constraints: ClassVar[dict] = {
        "mass": [Interval(Real, 0, None, closed="neither")],
        "total": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, mass: float = 1.0, *, total: float = 1000) -> None:
        self.mass = mass
        self.total = total

    def scoring(  # noqa: D102
        self, X: Any, y: NDArray[Any] | None, sample_weight: NDArray[np.float64] | None = None
    ) -> Scoring:
        codes = class_codes(y, self.name)
        if not is_whole(X):
            totals = np.asarray(X.sum(axis=1)).ravel()
            X = sp.diags_array(self.total / np.where(totals > 0, totals, 1.0)) @ X
        return self._scoring(class_sums(X, codes, weights=sample_weight))

    def _scoring(self, sums: NDArray[np.float64]) -> Scoring:
        return MultinomialEvidence(np.column_stack([sums.T, np.full(sums.shape[1], float(self.mass))]))

    def scoring_from_sums(self, statistics: Statistics) -> Scoring:  # noqa: D102
        if statistics.whole.all():
            return self._scoring(statistics.class_sums)
        return self._scoring(self.total * statistics.require("frequencies", self.name))


class GaussianLikelihood(AdditiveScore):
    """Likelihood ratio of one Gaussian per word and class against one per word (GML).

    Maximises ``Σ_w [(n / 2) ln var_w - Σ_c (n_c / 2) ln var_wc]``; variances are at least 1e-6 times the
    square of the smallest non-zero value of X (1 for counts), or 1e-4 of the largest variance of a word if that is
    less. No parameters.

    Notes
    -----
    O(n d²) time, d x n memory.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="gml").min_groups
    1
    """

    name = "gml"
    keeps_values = True

    def scoring(self, X: Any, y: NDArray[Any] | None) -> Scoring:  # noqa: D102
        values = _word_values(X)
        return GaussianFit(values, class_codes(y, self.name), _variance_floor(values))


class ClassPosterior(Criterion):
    """Posterior probability of the training labels under Gaussian models of each word in each class (UVD).

    Parameters
    ----------
    form : {"posterior", "evidence"}, default="posterior"
        "posterior": maximise ``Σ_i log p(y_i | x_i)``, the words being independent given the class. "evidence":
        maximise the evidence of one Gaussian per word and class over that of one per word, a sum over words.

    Notes
    -----
    Normal-Gamma priors with the word's pooled mean, ``kappa0 = 1``, ``a0 = 1`` and the pooled variance, which is not
    below the floor that `GaussianLikelihood` has. The posterior form scores all pairs at all levels, O(d³ n C) time and
    d² n C / 2 numbers of memory: for a few hundred words. The evidence form takes O(n d²) time and d x n memory.

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

    def search(self, X: Any, y: NDArray[Any] | None, memory_limit: Limit = None) -> Search:  # noqa: D102
        codes = class_codes(y, self.name)
        if self.form == "evidence":
            check_values_fit(X, memory_limit, self.name)
            values = _word_values(X)
            return SumSearch(GaussianEvidence(values, codes, _variance_floor(values)))
        need = 4 * X.shape[1] ** 2 * X.shape[0] * (int(codes.max()) + 1)
        posterior, evidence = in_python(" with form='posterior'"), in_python("form='evidence' or ")
        check_memory(
            need,
            memory_limit,
            f"The criterion 'uvd'{posterior} keeps what each pair of {X.shape[1]} words changes",
            f"use {evidence}another criterion, or merge fewer words",
        )
        values = _word_values(X)
        return PosteriorSearch(values, codes, _variance_floor(values))


def _variance_floor(values: NDArray[np.float64]) -> float:
    unit = count_unit(values)
    floor = _FLOOR * unit**2 if np.isfinite(unit) else _FLOOR
    largest = float(values.var(axis=1).max())
    return min(floor, _LARGEST_FLOOR * largest) if largest > 0 else floor


def _word_values(X: Any) -> NDArray[np.float64]:
    """The values of each word in all samples, dense, words x samples."""
    return np.array(X.T.toarray() if sp.issparse(X) else X.T, dtype=np.float64)
