"""The search for sums: bounds leave out no pair that is merged, at sizes with many blocks, packing and equal costs."""

import numpy as np
import pytest

from bagwise import merge_words
from bagwise.merging import scoring
from bagwise.merging.searches import sums
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.searches.sums import SumSearch
from helpers import topic_counts


def even(d, C, seed=0):
    """Counts of words of a similar size."""
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(1.0, 300, (d, 1)) * rng.gamma(2.0, 0.5, (d, C))).astype(float)


def text(d, C, seed=0):
    """Counts of a few common words and many rare ones, some of which never occur; most rows are equal to others."""
    rng = np.random.default_rng(seed)
    lean = rng.gamma(0.5, size=(d, C)) + 0.2
    return rng.poisson(3 * d / (np.arange(d)[:, np.newaxis] + 2.7) * lean / lean.sum(axis=1, keepdims=True)) + 0.0


def extreme(d, C, seed=0):
    """Sizes over sixteen orders of magnitude."""
    rng = np.random.default_rng(seed)
    return np.round(10.0 ** rng.uniform(-1, 15, (d, 1)) * rng.dirichlet(np.full(C, 0.7), d))


def information(counts):
    return scoring.Information(counts / counts.sum())


def evidence(counts, mass=1.0):
    return scoring.MultinomialEvidence(np.column_stack([counts, np.full(len(counts), mass)]))


def weights(d, C, spread=1.0, decimals=17):
    rng = np.random.default_rng(d)
    rounded = np.round(rng.normal(size=(d, C)), decimals)
    return scoring.WeightLoss(np.round(rng.gamma(0.3, size=d) * 10.0 ** rng.uniform(0, spread, d), 2) + 1e-3, rounded)


def samples(d, n, seed=0):
    """Counts of sparse words, words x samples."""
    X = topic_counts(np.random.default_rng(seed), n, d)[0].T
    return X[X.sum(axis=1) > 0]


def gaussian(kind, d):
    values = np.random.default_rng(0).poisson(2.0, (d, 12)).astype(float)
    return kind(np.vstack([values, values[: d // 3]]), np.arange(12) % 3)


CASES = {
    "information": lambda: information(even(700, 6) + 0.5),
    "information of text": lambda: information(text(900, 8) + 0.5),
    "information without smoothing": lambda: information(text(800, 5)[:500] + np.eye(5)[0]),
    "information of words that never occur": lambda: information(text(500, 4)),
    "information of one class": lambda: information(even(400, 1) + 1.0),
    "information of extreme counts": lambda: information(extreme(560, 6) + 0.5),
    "information of samples": lambda: information(samples(560, 80)),
    "information of many classes": lambda: information(even(200, 150) + 0.1),
    "evidence": lambda: evidence(even(600, 6)),
    "evidence of text": lambda: evidence(text(560, 6)),
    "evidence of extreme counts": lambda: evidence(extreme(400, 5)),
    "evidence of a small mass": lambda: evidence(text(300, 6), 0.01),
    "weights": lambda: weights(700, 7),
    "weights of extreme masses": lambda: weights(560, 7, spread=9),
    "weights on a grid": lambda: weights(700, 3, decimals=0),
    "gml": lambda: gaussian(scoring.GaussianFit, 200),
    "uvd": lambda: gaussian(scoring.GaussianEvidence, 150),
}
# In these, most costs are equal but for rounding.
TIED = {"information of text", "information of samples", "evidence of text", "evidence of a small mass"}


def run(search, sizes=(10**9,)):
    pairs, scores = np.empty((search.n_words - 1, 2), dtype=np.int64), np.empty(search.n_words - 1)
    start = 0
    for size in [*sizes, 10**9]:
        search.advance(pairs[start : start + size], scores[start : start + size])
        start = min(start + size, len(pairs))
    return pairs, scores


@pytest.mark.parametrize("case", CASES)
def test_bounds_leave_out_no_pair_that_is_merged(case, monkeypatch):
    """The same pairs and scores, to the last bit, as with the costs of all pairs; and fewer costs."""
    fast = SumSearch(CASES[case]())
    pairs, scores = run(fast)
    monkeypatch.setattr(sums, "_LIGHTEST", np.inf)
    slow = SumSearch(CASES[case]())
    expected, expected_scores = run(slow)
    np.testing.assert_array_equal(pairs, expected)
    np.testing.assert_array_equal(scores, expected_scores)
    if not any(word in case for word in ("gml", "uvd", "never occur", "one class")):
        assert fast.work["pairs_evaluated"] < 0.5 * slow.work["pairs_evaluated"]


@pytest.mark.parametrize("case", [case for case in CASES if case not in TIED])
def test_it_merges_what_the_search_over_rows_merges(case):
    """The other search computes costs as differences of terms: equal but for rounding, which decides ties."""
    pairs, scores = run(SumSearch(CASES[case]()))
    expected, expected_scores = run(PartnerSearch(CASES[case]()))
    if not any(word in case for word in ("extreme", "grid", "one class", "uvd", "gml", "without", "occur")):
        np.testing.assert_array_equal(pairs, expected)
    size = np.abs(expected_scores).max() + np.abs(PartnerSearch(CASES[case]())._terms).sum()
    n = len(scores) // 3 if "grid" in case else len(scores)  # later merges depend on how ties were decided
    np.testing.assert_allclose(scores[:n], expected_scores[:n], atol=1e-12 * size, rtol=1e-9)


def test_chunks_and_threads_do_not_matter():
    pairs, scores = run(SumSearch(CASES["information"]()))
    others = run(SumSearch(CASES["information"](), n_threads=2), sizes=(1, 5, 300, 2))
    np.testing.assert_array_equal(pairs, others[0])
    np.testing.assert_array_equal(scores, others[1])


def test_equal_costs_are_merged_in_the_order_of_words():
    """Copies of one word, more than a block: costs are equal to the last bit, in whatever order they are compared."""
    pairs, _ = run(SumSearch(evidence(np.tile([1.0, 4.0, 2.0], (200, 1)))))
    expected, _ = run(PartnerSearch(evidence(np.tile([1.0, 4.0, 2.0], (200, 1)))))
    assert pairs[0].tolist() == [0, 1]
    np.testing.assert_array_equal(pairs, expected)


def test_equal_costs_after_slots_were_packed():
    """Whole weights and masses, many costs equal to the last bit: the lowest words first, whatever rows recorded."""
    rng = np.random.default_rng(0)
    loss = scoring.WeightLoss(2.0 ** rng.integers(0, 2, 600), rng.integers(0, 24, (600, 2)) + 0.0)
    states = loss.states.copy()

    def row(s):
        return -loss.gains(states[s], 0.0, states, np.zeros(len(states)))

    costs = np.full((600, 600), np.inf)  # of s < t
    for s in range(600):
        costs[s, s + 1 :] = row(s)[s + 1 :]
    expected = np.empty((599, 2), dtype=np.int64)
    live = np.ones(600, dtype=bool)
    for merge in expected:
        s, t = merge[:] = divmod(int(costs.argmin()), 600)
        states[s] += states[t]
        live[t] = False
        costs[t] = costs[:, t] = np.inf
        changed = np.where(live, row(s), np.inf)
        costs[s, s + 1 :], costs[:s, s] = changed[s + 1 :], changed[:s]
    np.testing.assert_array_equal(run(SumSearch(loss))[0], expected)


def test_few_costs_are_computed():
    search = SumSearch(information(even(2000, 10) + 0.5))
    run(search)
    assert search.work["pairs_evaluated"] < 20 * 2000  # of two million pairs, and as many with merged words


def test_interrupted_between_chunks():
    """What `advance` was not asked for has not happened: a search goes on from there."""
    X, y = topic_counts(np.random.default_rng(0), 60, 300)
    whole = merge_words(X, y, criterion="aib")
    stopped = merge_words(X, y, criterion="aib", callback=lambda n, pair, score: n == 100)
    np.testing.assert_array_equal(stopped.merges, whole.merges[: len(stopped.merges)])
    assert stopped.min_groups == 100
