"""Scores that are sums over words, from which additive criteria are made.

A scoring holds a state for each word and computes the term of a state. Merging words adds their states, so the gain of
a merge does not change while its two words do not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from bagwise.codebooks.kmeans import distinct_rows

__all__ = [
    "EVIDENCE",
    "FIT",
    "INFORMATION",
    "NORMAL_GAMMA",
    "WEIGHTS",
    "GaussianEvidence",
    "GaussianFit",
    "Information",
    "KeptInformation",
    "MultinomialEvidence",
    "Scoring",
    "WeightLoss",
]

Values = NDArray[np.float64]
_SMALLEST = np.finfo(np.float64).tiny
# Columns are processed in blocks of this many numbers, which stay in the cache.
_BLOCK = 2**15
# Bounds of pairs that are computed at a time, which stay in the cache as well.
_BOUNDS = 2**19
# Costs that `bagwise.merging.searches.sums` has compiled, by the `kind` of a scoring.
INFORMATION, EVIDENCE, WEIGHTS, FIT, NORMAL_GAMMA = range(5)


class Measures(NamedTuple):
    """What the compiled search needs to know beside the states."""

    mass: Values  # of each word in bounds of costs; 0 for no bound
    n_columns: int  # sums that are kept of each state
    floor: float  # the unit of mass or of points, or the smallest variance


class Scoring(ABC):
    """The score ``Σ_w g(state of w) + offset`` of a set of words.

    Attributes
    ----------
    states : ndarray of shape (n_words, m)
        State of each word before any merge.
    offset : float
        A constant that merging does not change.
    kind : int or None
        The compiled cost of a merge. It belongs to one class and not to those derived from it, which may have other
        terms. None: merges are found by `gains`.
    """

    kind: ClassVar[int | None] = None
    offset: float = 0.0

    def __init_subclass__(cls, kind: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.kind = kind

    def __init__(self, states: NDArray[np.float64], offset: float = 0.0) -> None:
        self.states = states
        self.offset = offset
        self.classes: list[slice] = []  # samples of each class, for scores of values

    @property
    def size(self) -> int:
        """Number of words, or of groups."""
        return len(self.states)

    @abstractmethod
    def terms(self, states: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute g for each row of an array of states."""

    def gains(
        self, state: NDArray[np.float64], term: float, others: NDArray[np.float64], other_terms: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Compute ``g(state + other) - g(state) - g(other)`` for each of the others."""
        return self.terms(others + state) - term - other_terms

    def ties(self) -> NDArray[np.intp]:
        """Number the words: those with equal numbers are merged first, at no cost."""
        return np.arange(len(self.states))

    def early_merges(self) -> NDArray[np.int64] | None:
        """Say which words are merged before the search, once those that tie are one: pairs (kept, other), in order.

        Each word is at most once the other one, and then never kept.
        """
        return None

    def measures(self) -> Measures:
        """Describe the states to the compiled search; for scorings of a `kind`."""
        raise NotImplementedError(f"{type(self).__name__} has no compiled cost.")


def x_log_x(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """``x log x``, zero at zero."""
    return x * np.log(np.maximum(x, _SMALLEST))


def _column_blocks(states: NDArray[np.float64]) -> list[slice]:
    width = max(_BLOCK // max(len(states), 1), 1)
    return [slice(start, start + width) for start in range(0, states.shape[1], width)]


class Information(Scoring, kind=INFORMATION):
    """Mutual information, in nats, between words and classes with the joint probabilities `states`.

    ``g(w) = Σ_c J_wc log(J_wc / p_w)`` with ``p_w = Σ_c J_wc``; the offset is the entropy of the classes.
    """

    def __init__(self, states: NDArray[np.float64]) -> None:
        super().__init__(states, -float(x_log_x(states.sum(axis=0)).sum()))

    def terms(self, states: NDArray[np.float64]) -> NDArray[np.float64]:  # noqa: D102
        return self._sum_of_logs(states, 0.0) - x_log_x(states.sum(axis=1))

    @staticmethod
    def _sum_of_logs(states: NDArray[np.float64], added: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """``x_log_x(states + added).sum(axis=1)``, a few columns at a time."""
        total = np.zeros(len(states))
        for columns in _column_blocks(states):
            part = states[:, columns] + (added[columns] if isinstance(added, np.ndarray) else added)
            total += x_log_x(part).sum(axis=1)
        return total

    def gains(self, state, term, others, other_terms):  # noqa: D102
        support = np.flatnonzero(state)
        probability = state.sum()
        other_probabilities = others.sum(axis=1)
        rest = x_log_x(other_probabilities) + x_log_x(probability) - x_log_x(other_probabilities + probability)
        if 2 * len(support) >= len(state):
            joint = self._sum_of_logs(others, state)
            alone = other_terms + x_log_x(other_probabilities) + (term + x_log_x(probability))
            return joint - alone + rest
        # Only classes in which the word occurs change a term.
        overlap = others[:, support]
        joint = self._sum_of_logs(overlap, state[support])
        return joint - self._sum_of_logs(overlap, 0.0) - x_log_x(state[support]).sum() + rest

    def ties(self) -> NDArray[np.intp]:
        """Words with the same distribution over classes; words of probability zero go with the first that has one."""
        probability = self.states.sum(axis=1)
        occurring = np.flatnonzero(probability)
        numbers = np.zeros(len(self.states), dtype=np.intp)
        if len(occurring) == 0:
            return numbers
        conditional = self.states[occurring] / probability[occurring, np.newaxis]
        numbers[occurring] = distinct_rows(np.round(conditional, 12, out=conditional))[1]
        numbers[probability == 0] = numbers[occurring[0]]
        return numbers

    def measures(self) -> Measures:  # noqa: D102
        return Measures(self.states.sum(axis=1), 1, 0.0)


class KeptInformation(Information, kind=INFORMATION):
    """`Information` in counts of words and classes, of which all but the `n_kept` most frequent words merge early.

    Each of the others joins the kept word of the least lower bound of the information lost,
    ``p_s p_t / (p_s + p_t) |√p(c|s) - √p(c|t)|²``, in the order of these bounds, computed from smoothed counts. Only
    kept words are smoothed in their states: what is added to thousands of rare words would outweigh their counts.
    With no more than `n_kept` words this is `Information` of smoothed counts.
    """

    def __init__(self, counts: NDArray[np.float64], smoothing: float, n_kept: int) -> None:
        smoothed = counts + smoothing
        self._ties = Information(smoothed / smoothed.sum()).ties()
        self._kept = self._others = np.empty(0, dtype=np.int64)
        if len(counts) <= n_kept:
            super().__init__(smoothed / smoothed.sum())
            return
        _, first, group = np.unique(self._ties, return_index=True, return_inverse=True)
        mass = np.bincount(group.reshape(-1), counts.sum(axis=1))
        leaders = np.argsort(first, kind="stable")  # groups of words that tie, in the order of their first words
        by_mass = leaders[np.argsort(-mass[leaders], kind="stable")]
        position = np.empty(len(first), dtype=np.int64)
        position[leaders] = np.arange(len(first))  # after words that tie are one
        self._kept, self._others = np.sort(position[by_mass[:n_kept]]), np.sort(position[by_mass[n_kept:]])
        self._smoothing = smoothing
        states = counts.copy()
        states[first[by_mass[:n_kept]]] += smoothing
        self._total = float(states.sum())
        super().__init__(states / self._total)

    def ties(self) -> NDArray[np.intp]:  # noqa: D102
        return self._ties

    def early_merges(self) -> NDArray[np.int64] | None:  # noqa: D102
        if not len(self._others):
            return None
        smoothed = self.states.copy()
        smoothed[self._others] += self._smoothing / self._total
        mass = smoothed.sum(axis=1)
        roots = np.sqrt(smoothed / np.where(mass > 0, mass, 1.0)[:, np.newaxis])
        return _joined_to_nearest(roots, mass, self._kept, self._others)


def _joined_to_nearest(
    points: Values, mass: Values, kept: NDArray[np.int64], others: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Pair each of the others with the kept word of the least ``m_s m_t / (m_s + m_t) |x_s - x_t|²``, in that order.

    Cost O(kept x others) for each coordinate of points.
    """
    partner, bound = np.empty(len(others), dtype=np.int64), np.empty(len(others))
    halves = 0.5 * np.square(points).sum(axis=1)
    # in single precision, which is enough to tell which of them is near
    near, far = np.ascontiguousarray(points[kept].T, np.float32), points[others].astype(np.float32)
    n_rows = max(1, _BOUNDS // len(kept))
    for start in range(0, len(others), n_rows):
        part = slice(start, start + n_rows)
        mass_s, mass_t = mass[others[part], np.newaxis], mass[kept]
        bounds = (halves[others[part], np.newaxis] + halves[kept]).astype(np.float32) - far[part] @ near
        bounds *= (mass_t / np.maximum(mass_s + mass_t, _SMALLEST)).astype(np.float32)
        partner[part] = bounds.argmin(axis=1)
        s, t = kept[partner[part]], others[part]
        share = mass[s] * mass[t] / np.maximum(mass[s] + mass[t], _SMALLEST)
        bound[part] = share * np.square(points[s] - points[t]).sum(axis=1)
    order = np.argsort(bound, kind="stable")
    return np.stack([kept[partner[order]], others[order]], axis=1)


class WeightLoss(Scoring, kind=WEIGHTS):
    """Minus the change of a linear classifier's scores when the words of a group share their mean weights.

    A state is the mass m of a word, then ``m w`` with its weights w: ``g = |m w|² / m``. The offset is minus the sum
    of all g before merging. With ``v = Σ m w / Σ m`` in each group the score is ``- Σ_j m_j |w_j - v_g(j)|²``, and
    merging s and t costs ``m_s m_t / (m_s + m_t) |v_s - v_t|²``. Words without mass have no weights.

    With several outputs and more than `n_kept` words, those but the `n_kept` words of the largest mass first join the
    one of these of the least cost. None: no word does.
    """

    def __init__(self, mass: NDArray[np.float64], weights: NDArray[np.float64], n_kept: int | None = None) -> None:
        self._n_kept = n_kept
        mass = np.where(mass > _SMALLEST / np.finfo(np.float64).eps, mass, 0.0)  # others have no finite inverse
        super().__init__(np.column_stack([mass, weights * mass[:, np.newaxis]]))
        self.offset = -float(self.terms(self.states).sum())

    @classmethod
    def of_states(cls, states: NDArray[np.float64]) -> WeightLoss:
        """Make the scoring of words that have these states."""
        mass = states[:, 0]
        return cls(mass, states[:, 1:] / np.where(mass > 0, mass, 1.0)[:, np.newaxis])

    def terms(self, states: NDArray[np.float64]) -> NDArray[np.float64]:  # noqa: D102
        mass, products = states[:, 0], states[:, 1:]
        return (products * (products / np.where(mass > 0, mass, 1.0)[:, np.newaxis])).sum(axis=1)

    def gains(self, state, term, others, other_terms):  # noqa: D102
        inverse, inverse_s = (1.0 / np.where(mass > 0, mass, np.inf) for mass in (others[:, 0], state[0]))
        squares = ((others[:, 1:] * inverse[:, np.newaxis] - state[1:] * inverse_s) ** 2).sum(axis=1)
        with_mass = (inverse > 0) & (inverse_s > 0)
        return -np.where(with_mass, squares / np.where(with_mass, inverse + inverse_s, 1.0), 0.0)

    def ties(self) -> NDArray[np.intp]:
        """Words of equal weights; words without mass go with the word of the smallest weights."""
        mass, products = self.states[:, 0], self.states[:, 1:]
        used = np.flatnonzero(mass)
        numbers = np.zeros(len(mass), dtype=np.intp)
        if len(used) == 0:
            return numbers
        weights = products[used] / mass[used, np.newaxis]
        largest = float(np.abs(weights).max())
        rounded = np.round(weights / (largest or 1.0), 12) + 0.0
        numbers[used] = np.unique(rounded, axis=0, return_inverse=True)[1].reshape(-1)
        numbers[mass == 0] = numbers[used[np.argmin((rounded**2).sum(axis=1))]]
        return numbers

    def early_merges(self) -> NDArray[np.int64] | None:  # noqa: D102
        n_words, n_columns = self.states.shape
        if self._n_kept is None or n_words <= self._n_kept or n_columns == 2:
            return None
        mass = self.states[:, 0]
        order = np.argsort(-mass, kind="stable")
        kept, others = np.sort(order[: self._n_kept]), np.sort(order[self._n_kept :])
        weights = self.states[:, 1:] / np.where(mass > 0, mass, 1.0)[:, np.newaxis]
        return _joined_to_nearest(weights, mass, kept, others)

    def measures(self) -> Measures:  # noqa: D102
        mass = self.states[:, 0]
        largest = ((self.states[:, 1:] / np.where(mass > 0, mass, 1.0)[:, np.newaxis]) ** 2).sum(axis=1).max()
        return Measures(mass.copy(), 0, float(largest) if largest > 0 else 1.0)


class MultinomialEvidence(Scoring, kind=EVIDENCE):
    """Log evidence of one multinomial per class minus that of one for all, with Dirichlet priors.

    A state is the counts of a word in each class, then its prior mass a:
    ``g = Σ_c [lgamma(N_c + a) - lgamma(a)] - [lgamma(N + a) - lgamma(a)]``.
    """

    def terms(self, states: NDArray[np.float64]) -> NDArray[np.float64]:  # noqa: D102
        counts, mass = states[:, :-1], states[:, -1]
        within = gammaln(counts + mass[:, np.newaxis]).sum(axis=1) - counts.shape[1] * gammaln(mass)
        return within - (gammaln(counts.sum(axis=1) + mass) - gammaln(mass))

    def measures(self) -> Measures:  # noqa: D102
        counts, prior = self.states[:, :-1], self.states[:, -1]
        unit = float(prior.min())
        bounded = bool((prior == unit).all())
        mass = counts.sum(axis=1) + counts.shape[1] * prior
        return Measures(mass if bounded else np.zeros(self.size), 1, unit)


class _PerClass(Scoring):
    """Scores from the values of a word in all samples; states are rows of values, sorted by class."""

    def __init__(self, states: NDArray[np.float64], codes: NDArray[np.intp], floor: float = 1e-6) -> None:
        self.floor = floor  # variances are not below
        order = np.argsort(codes, kind="stable")
        super().__init__(np.ascontiguousarray(states[:, order]))
        ends = np.cumsum(np.bincount(codes))
        self.classes = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def measures(self) -> Measures:
        return Measures(np.zeros(self.size), len(self.classes) + 1, self.floor)

    @staticmethod
    def _moments(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean, and sum of squares around it, of each row."""
        mean = values.mean(axis=1)
        return mean, ((values - mean[:, np.newaxis]) ** 2).sum(axis=1)


class GaussianFit(_PerClass, kind=FIT):
    """Log likelihood of one Gaussian per class minus that of one for all, each at its maximum.

    ``g = (n / 2) ln var - Σ_c (n_c / 2) ln var_c``, variances not below `floor`.
    """

    def terms(self, states: NDArray[np.float64]) -> NDArray[np.float64]:  # noqa: D102
        total = self._log_variance(states)
        for samples in self.classes:
            total = total - self._log_variance(states[:, samples])
        return total

    def _log_variance(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        n = values.shape[1]
        return n / 2 * np.log(np.maximum(self._moments(values)[1] / n, self.floor))


class GaussianEvidence(_PerClass, kind=NORMAL_GAMMA):
    """Log evidence of one Gaussian per class minus that of one for all, with Normal-Gamma priors.

    The prior of a word: mean ``mu0`` its pooled mean, ``kappa0 = 1``, ``a0 = 1``, ``b0`` its pooled variance (at
    least `floor`).
    """

    def terms(self, states: NDArray[np.float64]) -> NDArray[np.float64]:  # noqa: D102
        mean, squares = self._moments(states)
        b0 = np.maximum(squares / states.shape[1], self.floor)
        total = -log_evidence(states.shape[1], mean, squares, mean, b0)
        for samples in self.classes:
            values = states[:, samples]
            total = total + log_evidence(values.shape[1], *self._moments(values), mean, b0)
        return total


def log_evidence(n: int, mean: Values, squares: Values, mu0: Values, b0: Values) -> Values:
    """Log evidence of n values with the given mean and sum of squares around it, under a Normal-Gamma prior."""
    kappa0 = a0 = 1.0
    kappa = kappa0 + n
    a = a0 + n / 2
    b = b0 + squares / 2 + kappa0 * n * (mean - mu0) ** 2 / (2 * kappa)
    of_precision = gammaln(a) - gammaln(a0) + a0 * np.log(b0) - a * np.log(b)
    return of_precision + 0.5 * np.log(kappa0 / kappa) - n / 2 * np.log(2 * np.pi)
