"""The three searches against each other, and against recomputation from merged data."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError, merge_words
from bagwise.criteria import GraphPair
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.rows import DenseRows
from bagwise.merging.searches import _bound_kernels, ratios
from bagwise.merging.searches.ratios import SEARCHES
from helpers import assert_greedy, labelled_counts, topic_counts


def store_of(X, y, criterion="csm"):
    return DenseRows.of(X, *resolve_criterion(criterion).structures(X, y))


class LoopedRows(DenseRows):
    """Matrices that the bound search merges by its loop over rows, as those that are computed when needed."""

    compiled = False


def run(name, A, B, n_merges=None, chunks=(), n_threads=1):
    """Merge from copies of A and B; returns the merges, the scores and the search."""
    rows = LoopedRows if name == "loop" else DenseRows
    search = SEARCHES["bound" if name == "loop" else name](rows(A.copy(), B.copy()), n_threads)
    n_merges = len(A) - 1 if n_merges is None else n_merges
    pairs, scores = np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges)
    start = 0
    for stop in (*chunks, n_merges):
        search.advance(pairs[start:stop], scores[start:stop])
        start = stop
    return pairs, scores, search


def assert_all_equal(A, B):
    pairs, scores, _ = run("exhaustive", A, B)
    for name in ("bound", "loop", "polar"):
        other_pairs, other_scores, _ = run(name, A, B)
        np.testing.assert_array_equal(other_pairs, pairs, err_msg=name)
        np.testing.assert_array_equal(other_scores, scores, err_msg=name)


def random_scatters(rng, d, kind):
    """Positive semi-definite pairs, including clouds that no data of counts would give."""
    rank_a, rank_b = rng.integers(1, d + 2, 2)
    F, G = rng.normal(size=(rank_a, d)), rng.normal(size=(rank_b, d))
    if kind == "scales":
        F, G = F * 10.0 ** rng.integers(-6, 6, d), G * 10.0 ** rng.integers(-6, 6, d)
    if kind == "positive":
        F, G = np.abs(F), np.abs(G)
    if kind == "decreasing":  # every merge lowers the ratio: A falls apart, B grows
        F, G = np.eye(d) - 0.9 / d, np.abs(G)
    if kind == "small integers":
        F, G = np.round(F), np.round(G)
    A, B = F.T @ F, G.T @ G
    return np.triu(A) + np.triu(A, 1).T, np.triu(B) + np.triu(B, 1).T


@given(
    seed=st.integers(0, 10**6),
    d=st.integers(2, 40),
    kind=st.sampled_from(["any", "scales", "positive", "decreasing", "small integers"]),
)
@settings(max_examples=150)
def test_searches_agree_to_the_last_bit_on_any_scatters(seed, d, kind):
    assert_all_equal(*random_scatters(np.random.default_rng(seed), d, kind))


@given(labelled_counts(max_words=14), st.sampled_from(["csm", "nda", "mfa", "lde", "lpp"]))
@example((np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]), np.array([0, 1, 2, 2])), "nda")  # all but equal
@example((np.array([[0.0, 1, 0], [0, 1, 0], [1, 0, 0]]), np.array([0, 1, 0])), "csm")  # two words that add up to 1
@settings(max_examples=150)
def test_searches_agree_to_the_last_bit_on_data(case, criterion):
    X, y = np.abs(case[0]), case[1]
    hierarchies = [merge_words(X, y, criterion=criterion, search=search) for search in SEARCHES]
    assert hierarchies[0] == hierarchies[1] == hierarchies[2]


@given(labelled_counts(), st.sampled_from(["csm", "nda", "mfa", "lpp"]))
@example((np.array([[0.0, 1, 0], [0, 1, 0], [1, 0, 0]]), np.array([0, 1, 0])), "csm")  # two words that add up to 1
@settings(max_examples=100)
def test_every_merge_is_the_best_one_recomputed_from_merged_data(case, criterion):
    X, y = np.abs(case[0]), case[1]
    structures = resolve_criterion(criterion).structures(X, y)
    hierarchy = merge_words(X, y, criterion=criterion)
    constant = int((X[0] == X).all(axis=0).sum())
    assert_greedy(X, structures, hierarchy, skip=max(constant - 1, 0))


@pytest.mark.parametrize("d", [300, 700])
@pytest.mark.parametrize("kind", ["uniform", "topics", "binary", "l1", "duplicates"])
def test_searches_agree_on_many_words(d, kind):
    """Large enough for lanes, blocks, groups of rows, packing and summing the traces anew."""
    rng = np.random.default_rng(d)
    y = np.arange(60) % 2
    if kind == "topics":
        X, y = topic_counts(rng, 60, d)
    else:
        X = {
            "uniform": lambda: rng.integers(0, 100, (60, d)),
            "binary": lambda: rng.random((60, d)) < 0.05,
            "l1": lambda: rng.dirichlet(np.full(d, 0.1), size=60),
            "duplicates": lambda: np.repeat(rng.integers(0, 5, (60, d // 20)), 20, axis=1),
        }[kind]().astype(float)
    store = store_of(X, y)
    assert_all_equal(store.A, store.B)


def test_searches_agree_where_most_levels_lower_the_ratio():
    """The case in which no upper tangent of the polar index finds anything."""
    rng = np.random.default_rng(0)
    A, B = random_scatters(rng, 200, "decreasing")
    _, scores, _ = run("exhaustive", A, B)
    assert np.mean(np.diff(scores) < 0) > 0.5
    assert_all_equal(A, B)


def test_a_preferred_matrix_of_any_sign_is_searched_exactly():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(150, 150))
    A = A + A.T
    _, B = random_scatters(rng, 150, "any")
    exhaustive, bound = run("exhaustive", A, B), run("bound", A, B)
    np.testing.assert_array_equal(exhaustive[0], bound[0])
    np.testing.assert_array_equal(exhaustive[1], bound[1])


@pytest.mark.parametrize("name", SEARCHES)
def test_chunks_do_not_matter(name):
    rng = np.random.default_rng(0)
    store = store_of(rng.integers(0, 9, (30, 90)).astype(float), np.arange(30) % 3)
    whole = run(name, store.A, store.B)
    parts = run(name, store.A, store.B, chunks=(1, 1, 17, 60))
    np.testing.assert_array_equal(whole[0], parts[0])
    np.testing.assert_array_equal(whole[1], parts[1])


def test_threads_do_not_matter():
    rng = np.random.default_rng(0)
    store = store_of(rng.integers(0, 9, (30, 600)).astype(float), np.arange(30) % 3)
    one, three = run("bound", store.A, store.B), run("bound", store.A, store.B, n_threads=3)
    np.testing.assert_array_equal(one[0], three[0])
    np.testing.assert_array_equal(one[1], three[1])


@pytest.mark.parametrize("name", SEARCHES)
def test_the_state_stays_consistent(name):
    """Traces equal the sum of the diagonal, and A and B those of merged data, after any number of merges."""
    rng = np.random.default_rng(0)
    X, y = topic_counts(rng, 40, 60)
    structures = resolve_criterion("csm").structures(X, y)
    store = DenseRows.of(X, *structures)
    for n_merges in (0, 1, 10, 30, 50, 59):
        pairs, scores, search = run(name, store.A, store.B, n_merges)
        state = search._state
        slots = state.bounds if name == "bound" else state
        live = np.flatnonzero(slots.order[: slots.counts[0]] < 2**62)
        assert len(live) == 60 - n_merges
        Y = X.copy()
        for s, t in pairs:
            Y[:, s] += Y[:, t]
            Y[:, t] = 0
        diagonals = (slots.own_a, slots.own_b) if name == "bound" else (np.diagonal(state.A), np.diagonal(state.B))
        for trace, own, structure in zip(slots.traces, diagonals, structures, strict=False):
            expected = np.trace(structure.scatter(Y))
            assert trace == pytest.approx(expected, rel=1e-9, abs=1e-9)
            assert trace == pytest.approx(own[live].sum(), rel=1e-9, abs=1e-9)
        if n_merges:
            assert scores[-1] == pytest.approx(slots.traces[0] / slots.traces[1])


def test_bounds_are_never_below_what_a_row_offers():
    """The promise that makes the bound search exact, checked on every row at many levels."""
    rng = np.random.default_rng(0)
    X, y = topic_counts(rng, 60, 150)
    search = SEARCHES["bound"](store_of(X, y))
    state, bounds = search._state, search._state.bounds
    pairs, scores = np.empty((1, 2), dtype=np.int64), np.empty(1)
    looked_at = 0
    for _ in range(140):
        search.advance(pairs, scores)
        a, b = bounds.traces[:2]
        size = bounds.counts[_bound_kernels.SIZE]
        for level in (scores[0], 0.9 * scores[0], 1.2 * scores[0]):
            for i in np.flatnonzero(bounds.order[:size] < 2**62):
                own = bounds.order[:size] < bounds.order[i]
                if own.any() and np.isfinite(bounds.top_a[i]):
                    true = ((a + 2 * state.A[i, :size]) - level * (b + 2 * state.B[i, :size]))[own].max()
                    assert true <= _bound_kernels.excess(bounds, i, level, np.inf) + 1e-9 * abs(a)
                    looked_at += 1
    assert looked_at > 1000


class TestFewRowsAreScanned:
    """Speed, as a number of row scans: at most a few per level, whatever the data."""

    def scans_per_level(self, X, y):
        store = store_of(X, y)
        _, _, search = run("bound", store.A, store.B)
        return search.work["row_scans"] / (len(store.A) - 1)

    def test_on_ordinary_data(self):
        rng = np.random.default_rng(0)
        y = np.arange(100) % 2
        assert self.scans_per_level(rng.integers(0, 100, (100, 1500)).astype(float), y) < 3
        assert self.scans_per_level(rng.dirichlet(np.full(1500, 0.1), size=100), y) < 3
        assert self.scans_per_level(*topic_counts(rng, 200, 1500)) < 3

    def test_on_words_that_occur_once_or_twice(self):
        """Texts: thousands of words tie."""
        rng = np.random.default_rng(0)
        X = np.zeros((200, 2000))
        X[rng.integers(0, 200, 2000), np.arange(2000)] = 1
        assert self.scans_per_level(X, np.arange(200) % 2) < 5
        X[rng.integers(0, 200, 2000), np.arange(2000)] += 1
        assert self.scans_per_level(X, np.arange(200) % 2) < 5

    def test_on_duplicates(self):
        rng = np.random.default_rng(0)
        X = np.repeat(rng.integers(0, 9, (100, 100)), 20, axis=1).astype(float)
        assert self.scans_per_level(X, np.arange(100) % 2) < 10

    def test_on_words_that_never_occur(self, monkeypatch):
        """They are folded before the search, so a thousand of them cost what one costs."""
        scans = []
        original = _bound_kernels.advance

        def counting(state, pairs, scores):
            original(state, pairs, scores)
            scans.append(int(state.bounds.counts[_bound_kernels.SCANS]))

        monkeypatch.setattr(_bound_kernels, "advance", counting)
        rng = np.random.default_rng(0)
        X, y = rng.random((50, 100)), np.arange(50) % 2
        with_zeros = np.zeros((50, 3100))
        where = np.sort(rng.choice(3100, 100, replace=False))
        with_zeros[:, where] = X
        merge_words(np.hstack([X, np.zeros((50, 1))]), y, criterion="csm")
        few = scans[-1]
        merge_words(with_zeros, y, criterion="csm")
        assert scans[-1] <= few + 100


def test_polar_evaluates_a_small_share_of_all_pairs():
    rng = np.random.default_rng(0)
    store = store_of(rng.integers(0, 100, (100, 500)).astype(float), np.arange(100) % 2)
    polar, exhaustive = (run(name, store.A, store.B)[2].work["pairs_evaluated"] for name in ("polar", "exhaustive"))
    assert exhaustive == sum(n * (n - 1) // 2 for n in range(2, 501))
    assert polar < 0.05 * exhaustive


def test_a_vanishing_denominator_wins_only_with_a_numerator():
    """Two words whose sum is constant along U but not along P: the ratio becomes infinite."""
    X = np.array([[0.0, 1, 0.3], [1, 0, 0.3], [0.5, 0.5, 0.9], [0.2, 0.8, 0.9]])
    U = np.zeros((4, 4))
    U[0, 1] = U[1, 0] = 1
    P = np.ones((4, 4))
    for search in SEARCHES:
        hierarchy = merge_words(X, criterion=GraphPair(P, U), search=search)
        assert hierarchy.merges[0].tolist() == [0, 1]
        assert hierarchy.scores[0] == np.inf


@pytest.mark.parametrize("numerator", [1.0, 0.0])
@pytest.mark.parametrize("name", SEARCHES)
def test_what_vanishes_is_relative_to_the_largest_trace(name, numerator):
    """Traces grow from 3 to 1e8 and fall to 1e-5 again, which is far below their rounding by then."""
    A, B = np.eye(3), np.eye(3)
    A[0, 1] = A[1, 0] = 1e8
    B[0, 1] = B[1, 0] = 0.5e8
    A[1, 2] = A[2, 1] = 0.5 * (numerator * 1e8 - 2e8 - 3 + 1e-5)
    B[1, 2] = B[2, 1] = 0.5 * (-1e8 - 3 + 1e-5)
    pairs, scores, _ = run(name, A, B)
    assert pairs.tolist() == [[0, 1], [0, 2]]
    assert scores[0] == (3 + 2e8) / (3 + 1e8)
    np.testing.assert_equal(scores[1], np.inf if numerator else np.nan)


def test_everything_constant_merges_in_order_without_a_score():
    A = B = np.zeros((5, 5))
    for name in SEARCHES:
        pairs, scores, _ = run(name, A, B)
        assert pairs.tolist() == [[0, 1], [0, 2], [0, 3], [0, 4]]
        assert np.isnan(scores).all()


def test_unknown_searches_are_named():
    with pytest.raises(BagwiseError, match="Did you mean 'exhaustive'"):
        merge_words(np.eye(3), [0, 1, 1], search="exhaustiv", criterion="csm")


def test_polar_says_how_many_words_it_takes(monkeypatch):
    monkeypatch.setattr(ratios, "_MOST_POLAR_WORDS", 4)
    with pytest.raises(BagwiseError, match="up to 4 words, got 5"):
        SEARCHES["polar"](DenseRows(np.eye(5), np.eye(5)))
