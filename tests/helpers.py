"""Slow, plain versions of what the library does fast, and data to try both on."""

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from bagwise.merging.structures import BetweenClasses, GraphLaplacian, Residuals, TotalScatter


def ratio(numerator, denominator, scale=1.0):
    """The criterion; NaN for 0/0."""
    if denominator <= 1e-10 * scale:
        return np.inf if numerator > 1e-10 * scale else np.nan
    return numerator / denominator


def trace(Y, L):
    Y = Y - Y.mean(axis=0)  # L ignores the mean, rounding does not
    return float(np.einsum("ij,ik,kj->", Y, L, Y))


def laplacian(structure):
    """The matrix L of a structure, samples by samples."""
    if isinstance(structure, TotalScatter):
        return np.diag(structure.weights) - np.outer(structure.weights, structure.weights) / structure.weights.sum()
    if isinstance(structure, BetweenClasses):
        weights = np.ones(structure.n_samples) if structure.weights is None else structure.weights
        own = weights * (structure.codes == np.arange(structure.codes.max() + 1)[:, np.newaxis])
        return own.T @ (own / own.sum(axis=1, keepdims=True)) - np.outer(weights, weights) / weights.sum()
    if isinstance(structure, Residuals):
        return (structure.rows.T @ structure.rows).toarray()
    if isinstance(structure, GraphLaplacian):
        W = structure.weights.toarray() if sp.issparse(structure.weights) else structure.weights
        return np.diag(W.sum(axis=1)) - W
    L = np.zeros((structure.n_samples, structure.n_samples))
    for weight, part, samples in structure.terms:
        where = np.arange(len(L)) if samples is None else samples
        L[np.ix_(where, where)] += weight * laplacian(part)
    return L


def merged(Y, s, t):
    """Data after merging the columns s and t (positions), the sum at s."""
    Z = np.delete(Y, t, axis=1)
    Z[:, s] = Y[:, s] + Y[:, t]
    return Z


def best_ratio(Y, L_P, L_U, scale):
    """The best value over all pairs, each recomputed from merged data."""
    values = []
    for s in range(Y.shape[1]):
        for t in range(s + 1, Y.shape[1]):
            Z = merged(Y, s, t)
            values.append(ratio(trace(Z, L_P), trace(Z, L_U), scale))
    values = [value for value in values if not np.isnan(value)]
    return max(values) if values else np.nan


def assert_greedy(X, structures, hierarchy, skip=0, rtol=1e-8):
    """Every merge (after the first `skip`) is as good as the best pair of its level, and has the score it claims.

    Everything is recomputed from merged data, so ties may be broken in any way.
    """
    L_P, L_U = (laplacian(structure) for structure in structures)
    Y = np.array(X, dtype=float)
    names = list(range(Y.shape[1]))
    largest = max(trace(Y, L_U), 1e-12 * np.sum(Y**2) * np.abs(L_U).max())  # the second for rounding
    for k, (s, t) in enumerate(hierarchy.merges.tolist()):
        expected = best_ratio(Y, L_P, L_U, largest)
        Y = merged(Y, names.index(s), names.index(t))
        names.remove(t)
        largest = max(largest, trace(Y, L_U))
        value = ratio(trace(Y, L_P), trace(Y, L_U), largest)
        np.testing.assert_allclose(hierarchy.scores[k], value, rtol=rtol, atol=1e-9)
        if k >= skip:
            np.testing.assert_allclose(value, expected, rtol=rtol, atol=1e-9)


def topic_counts(rng, n_samples, n_words, n_topics=10, length=100):
    """Counts as texts have them: a few topics, most words rare, some never seen."""
    topics = rng.dirichlet(np.full(n_words, 0.05), size=n_topics)
    mixture = rng.dirichlet(np.full(n_topics, 0.2), size=n_samples)
    y = mixture[:, : n_topics // 2].sum(axis=1) > 0.5
    return rng.poisson(length * mixture @ topics).astype(float), y.astype(int)


@st.composite
def labelled_counts(draw, max_samples=10, max_words=9):
    """Small data of many kinds: ties, zero words, duplicates, reals, rows that sum to one."""
    n = draw(st.integers(3, max_samples))
    d = draw(st.integers(1, max_words))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["real", "counts", "binary", "duplicates", "l1", "constant", "negative"]))
    X = {
        "real": lambda: rng.random((n, d)),
        "counts": lambda: rng.integers(0, 4, (n, d)),
        "binary": lambda: rng.random((n, d)) < 0.3,
        "duplicates": lambda: rng.integers(0, 3, (n, d))[:, rng.integers(0, d, d)],
        "l1": lambda: rng.dirichlet(np.ones(d), size=n),
        "constant": lambda: np.where(rng.random(d) < 0.5, 0.1, rng.random((n, d))),
        "negative": lambda: rng.normal(size=(n, d)),
    }[kind]().astype(float)
    y = np.concatenate([[0, 1, 0], rng.integers(0, draw(st.integers(2, 3)), n - 3)])
    return X, y


class GreedyOracle:
    """All pairs of all levels, in plain NumPy, for a criterion that is a function of sums over groups.

    Parameters
    ----------
    states : ndarray of shape (n_words, m)
        What is added when words are merged.
    worth : callable
        States (k, m) to k rows of numbers, whose sums over all groups make up the criterion.
    value : callable
        Sums (..., j) to values of the criterion (...). None: there is one sum, and it is the criterion.
    """

    def __init__(self, states, worth, value=None):
        self.states = np.array(states, dtype=float)
        self.worth = lambda Z: np.asarray(worth(Z), dtype=float).reshape(len(Z), -1)
        self.value = value or (lambda sums: sums[..., 0])
        own = self.own = self.worth(self.states)
        d = len(own)
        self.total = own.sum(axis=0)
        self.live = np.ones(d, dtype=bool)
        self.gains = np.full((d, d, own.shape[1]), np.nan)  # of pairs s < t
        for s in range(d - 1):
            self.gains[s, s + 1 :] = self.worth(self.states[s] + self.states[s + 1 :]) - own[s] - own[s + 1 :]

    def pair_values(self):
        """The criterion after each merge, (d, d); -inf for 0/0 and where there is no pair."""
        with np.errstate(invalid="ignore"):
            values = self.value(self.total + self.gains)
        return np.where(np.isnan(values), -np.inf, values)

    def merge(self, s, t):
        self.live[t] = False
        self.gains[t] = self.gains[:, t] = np.nan
        self.states[s] += self.states[t]
        self.own[s] = self.worth(self.states[s : s + 1])[0]
        self.total = self.own[self.live].sum(axis=0)
        others = np.flatnonzero(self.live & (np.arange(len(self.live)) != s))
        if len(others):
            gains = self.worth(self.states[s] + self.states[others]) - self.own[s] - self.own[others]
            self.gains[np.minimum(s, others), np.maximum(s, others)] = gains

    def check(self, hierarchy, skip=0, rtol=1e-12, offset=0.0):
        """Assert that every merge, after the first `skip`, is as good as any and has its score.

        Pairs as good as the best but for rounding may be merged in any order. Returns the number of levels at which
        there was one best pair only, and that one was merged.
        """
        decided = 0
        scale = max(np.abs(self.value(self.own)).max(), 1e-300)  # of one word, for sums near zero
        for k, (s, t) in enumerate(hierarchy.merges.tolist()):
            assert s < t
            assert self.live[s]
            assert self.live[t]
            values = self.pair_values()
            best, merged = values.max(), values[s, t]
            slack = rtol * max(abs(best), scale) if np.isfinite(best) else 0.0
            if k >= skip:
                assert merged >= best - slack, f"level {k}: merged {s} and {t} for {merged}, best is {best}"
                decided += int((values >= best - slack).sum() == 1)
            self.merge(s, t)
            score = hierarchy.scores[k] - offset
            if np.isfinite(merged):
                assert abs(score - merged) <= 100 * slack, f"level {k}: score {score}, recomputed {merged}"
            elif merged == -np.inf:
                assert np.isnan(score)
        return decided
