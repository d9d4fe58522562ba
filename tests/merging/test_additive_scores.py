"""Criteria that are sums over words: AIB, MMI, MLT, GML and the evidence form of UVD."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from bagwise import BagwiseError, merge_words
from bagwise.criteria import (
    AdditiveScore,
    ClassPosterior,
    Criterion,
    GaussianLikelihood,
    InformationLoss,
    MultinomialPosterior,
    SampleInformationLoss,
)
from bagwise.merging import scoring
from bagwise.merging.engine import Engine
from bagwise.merging.searches.sums import SumSearch
from helpers import labelled_counts, topic_counts

CRITERIA = [
    InformationLoss(0),
    InformationLoss(0.5),
    SampleInformationLoss(),
    SampleInformationLoss("counts"),
    MultinomialPosterior(),
    GaussianLikelihood(),
    ClassPosterior("evidence"),
]


def mutual_information(J):
    J = J / J.sum()
    p, q = J.sum(axis=1, keepdims=True), J.sum(axis=0, keepdims=True)
    safe = np.where(J > 0, J, 1)
    return float((J * np.log(safe / np.where(J > 0, p * q, 1))).sum())


def class_counts(X, y):
    return np.array([X[y == c].sum(axis=0) for c in np.unique(y)]).T


def merged(states, labels):
    return np.array([states[labels == g].sum(axis=0) for g in range(labels.max() + 1)])


@given(labelled_counts(), st.sampled_from([0.0, 0.5, 2.0]))
@settings(max_examples=60)
def test_aib_scores_are_the_information_left(case, smoothing):
    X, y = np.abs(case[0]) + 0.0, case[1]
    X[0, 0] += 1
    J = class_counts(X, y) + smoothing * X[X > 0].min()
    hierarchy = merge_words(X, y, criterion=InformationLoss(smoothing))
    for n in range(1, X.shape[1]):
        assert hierarchy.scores[X.shape[1] - n - 1] == pytest.approx(
            mutual_information(merged(J, hierarchy.cut(n))), abs=1e-10
        )
    losses = -np.diff([mutual_information(J), *hierarchy.scores])
    assert (losses > -1e-12).all()
    if len(losses):
        assert losses.sum() == pytest.approx(mutual_information(J), abs=1e-10)  # nothing is left at one word


@given(labelled_counts(), st.sampled_from(["uniform", "counts"]))
@settings(max_examples=40)
def test_mmi_is_aib_with_samples_as_classes(case, weights):
    X = np.abs(case[0])
    X[0, 0] += 1
    used = X[X.sum(axis=1) > 0]
    J = (used / used.sum(axis=1, keepdims=True) if weights == "uniform" else used).T
    hierarchy = merge_words(X, criterion=SampleInformationLoss(weights))
    for n in range(1, X.shape[1]):
        assert hierarchy.scores[X.shape[1] - n - 1] == pytest.approx(
            mutual_information(merged(J, hierarchy.cut(n))), abs=1e-10
        )


def test_sparse_words_are_merged_like_dense_ones(monkeypatch):
    """Samples in which both words occur are enough; until the end, when groups occur in all of them."""
    X = sp.random_array((60, 90), density=0.1, random_state=np.random.default_rng(0), format="csr")
    for weights in ("uniform", "counts"):
        sparse = merge_words(X, criterion=SampleInformationLoss(weights))
        with monkeypatch.context() as patch:
            patch.setattr("bagwise.merging.searches.sums._FILLED", 0)
            dense = merge_words(X, criterion=SampleInformationLoss(weights))
        np.testing.assert_array_equal(sparse.merges, dense.merges)
        np.testing.assert_allclose(sparse.scores, dense.scores, atol=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
@given(labelled_counts(max_words=7))
@settings(max_examples=25)
def test_every_merge_gains_most(criterion, case):
    """Each merge against all pairs, from the states of the words as they are then."""
    X, y = np.abs(case[0]), case[1]
    X[0, 0] += 1
    plan = Engine(criterion).load(X, y).start()
    assert isinstance(plan.search, SumSearch)
    score = plan.search._scoring
    hierarchy = merge_words(X, y, criterion=criterion)
    states = dict(zip(plan.words.tolist(), np.array(score.states), strict=True))

    def worth(state):
        return score.terms(state[np.newaxis])[0]

    for s, t in hierarchy.merges[len(plan.folded) :].tolist():
        gains = {
            (i, j): worth(states[i] + states[j]) - worth(states[i]) - worth(states[j])
            for i in states
            for j in states
            if i < j
        }
        scale = sum(abs(worth(state)) for state in states.values()) + 1e-9
        assert gains[s, t] >= max(gains.values()) - 1e-9 * scale
        states[s] = states[s] + states.pop(t)


def test_gains_by_overlap_are_gains():
    rng = np.random.default_rng(0)
    J = rng.random((30, 40)) * (rng.random((30, 40)) < 0.2)
    information = scoring.Information(J / J.sum())
    states, terms = information.states, information.terms(information.states)
    expected = information.terms(states[1:] + states[0]) - terms[0] - terms[1:]
    assert (states[0] > 0).sum() * 2 < 40  # takes the short way
    np.testing.assert_allclose(information.gains(states[0], terms[0], states[1:], terms[1:]), expected, atol=1e-14)
    full = states[0] + 0.001
    expected = information.terms(states[1:] + full) - information.terms(full[None])[0] - terms[1:]
    gains = information.gains(full, information.terms(full[None])[0], states[1:], terms[1:])
    np.testing.assert_allclose(gains, expected, atol=1e-14)


def test_a_scoring_derived_from_another_is_merged_by_its_own_terms():
    """It may have inherited the class whose cost is compiled, but not that cost."""

    class Squares(scoring.Information):
        def terms(self, states):
            return (states**2).sum(axis=1)

        def gains(self, state, term, others, other_terms):
            return self.terms(others + state) - term - other_terms

    class Own(AdditiveScore):
        def scoring(self, X, y):
            return Squares(class_counts(X, y))

    X, y = np.random.default_rng(0).random((20, 8)), np.arange(20) % 2
    first = np.triu(class_counts(X, y) @ class_counts(X, y).T, 1)
    assert merge_words(X, y, criterion=Own()).merges[0].tolist() == list(np.unravel_index(first.argmax(), (8, 8)))


class TestTies:
    def test_proportional_words_are_merged_first_and_cost_nothing(self):
        rng = np.random.default_rng(0)
        X = rng.integers(1, 9, (6, 5)).astype(float)
        X = np.column_stack([X, 3 * X[:, 1], X[:, 0], 2 * X[:, 1]])
        hierarchy = merge_words(X, [0, 0, 1, 1, 2, 2], criterion=InformationLoss(0))
        assert hierarchy.merges[:3].tolist() == [[0, 6], [1, 5], [1, 7]]
        J = class_counts(X, np.array([0, 0, 1, 1, 2, 2]))
        np.testing.assert_allclose(hierarchy.scores[:3], mutual_information(J))

    def test_words_that_never_occur_go_with_the_first_that_does(self):
        X = np.array([[0.0, 3, 0, 1], [0, 1, 0, 4]])
        hierarchy = merge_words(X, [0, 1], criterion=InformationLoss(0))
        assert hierarchy.merges[:2].tolist() == [[0, 1], [0, 2]]
        assert hierarchy.cut(2).tolist() == [0, 0, 0, 1]

    def test_texts_are_folded_to_distinct_words(self):
        """Most rare words of a text have the same few counts."""
        rng = np.random.default_rng(0)
        X = sp.csr_array(rng.poisson(0.02, (100, 5000)).astype(float))
        y = np.arange(100) % 2
        plan = Engine(InformationLoss()).load(X, y).start()
        assert len(plan.words) < 200
        hierarchy = merge_words(X, y, criterion="aib")
        assert hierarchy.min_groups == 1
        assert plan.search.n_words + len(plan.folded) == 5000


def test_few_rows_are_looked_at_again():
    X, y = topic_counts(np.random.default_rng(0), 200, 1500)
    y = y + 2 * (np.arange(200) % 5)
    search = Engine("aib").load(X, y).start().search
    n = search.n_words
    search.advance(np.empty((n - 1, 2), dtype=np.int64), np.empty(n - 1))
    assert search.work["row_scans"] < 5 * n


def test_mlt_is_the_evidence_ratio():
    """Exact Dirichlet-multinomial evidence of counts per class over that of pooled counts, up to a constant."""
    rng = np.random.default_rng(0)
    N = rng.integers(0, 9, (7, 3)).astype(float)

    def evidence(counts, mass):
        return gammaln(mass.sum()) - gammaln(counts.sum() + mass.sum()) + (gammaln(counts + mass) - gammaln(mass)).sum()

    def score(labels):
        counts = merged(N, labels)
        mass = np.bincount(labels).astype(float)
        return sum(evidence(counts[:, c], mass) for c in range(3)) - evidence(counts.sum(axis=1), mass)

    X = np.repeat(N.T, 2, axis=0) / 2
    X[0::2], X[1::2] = np.ceil(X[0::2]), np.floor(X[1::2])
    hierarchy = merge_words(X, [0, 0, 1, 1, 2, 2], criterion="mlt")
    scores = [score(hierarchy.cut(n)) for n in range(6, 0, -1)]
    np.testing.assert_allclose(np.diff(hierarchy.scores), np.diff(scores), atol=1e-9)


def test_mlt_approaches_aib_as_counts_grow():
    rng = np.random.default_rng(0)
    X, y = rng.integers(1, 20, (4, 9)).astype(float), [0, 1, 0, 1]
    many = merge_words(X * 10**6, y, criterion="mlt")
    aib = merge_words(X, y, criterion=InformationLoss(0))
    np.testing.assert_array_equal(many.merges, aib.merges)


def test_mlt_scales_data_that_are_not_counts():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 9, (10, 8)).astype(float) + 1, np.arange(10) % 2
    frequencies = X / X.sum(axis=1, keepdims=True)
    for form in (np.asarray, sp.csr_array):
        scaled = merge_words(form(frequencies), y, criterion=MultinomialPosterior(total=500))
        expected = MultinomialPosterior().scoring(500 * frequencies, y).states
        np.testing.assert_allclose(
            MultinomialPosterior(total=500).scoring(form(frequencies), y).states[:, :2],
            class_counts(500 * frequencies, y),
        )
        assert expected.shape == (8, 3)
        assert scaled.min_groups == 1


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_mlt_scales_every_sample_to_the_same_total(form):
    """The size of a sample that is not counts says nothing, however it varies."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 9, (12, 40)) + 0.5, np.arange(12) % 3
    sizes = 10.0 ** rng.uniform(-3, 3, (12, 1))
    expected = merge_words(1000 * X / X.sum(axis=1, keepdims=True), y, criterion="mlt")
    varied = merge_words(form(sizes * X), y, criterion="mlt")
    np.testing.assert_array_equal(varied.merges, expected.merges)
    np.testing.assert_allclose(varied.scores, expected.scores, rtol=1e-9)


def test_gaussian_terms():
    rng = np.random.default_rng(0)
    v, codes = rng.random((3, 12)), rng.integers(0, 2, 12)
    fit = scoring.GaussianFit(v, codes)
    expected = [
        6 * np.log(row.var()) - sum((codes == c).sum() / 2 * np.log(row[codes == c].var()) for c in (0, 1)) for row in v
    ]
    np.testing.assert_allclose(fit.terms(fit.states), expected)


def test_gaussian_evidence_is_a_product_of_predictions():
    """The evidence of all values equals that of each given those before it: the Student-t predictive densities."""
    from scipy.stats import t as student

    rng = np.random.default_rng(0)
    x = rng.normal(2, 1.5, 6)
    mu, kappa, a, b = 0.7, 1.0, 1.0, 0.8
    squares = ((x - x.mean()) ** 2).sum()
    total = scoring.log_evidence(6, np.array([x.mean()]), np.array([squares]), np.array([mu]), np.array([b]))[0]
    chain = 0.0
    for value in x:
        chain += student.logpdf(value, 2 * a, mu, np.sqrt(b * (kappa + 1) / (a * kappa)))
        b += kappa * (value - mu) ** 2 / (2 * (kappa + 1))
        mu = (kappa * mu + value) / (kappa + 1)
        kappa, a = kappa + 1, a + 0.5
    assert total == pytest.approx(chain)


class TestBadInput:
    @pytest.mark.parametrize("criterion", ["aib", "mmi", "mlt", "mme"])
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_negative_counts_are_named(self, criterion, form):
        X = np.ones((4, 3))
        X[2, 1] = -2
        scaling = "auto" if criterion in ("mlt", "mme") else None  # "auto" takes the others' data as measurements
        with pytest.raises(BagwiseError, match=f"'{criterion}' needs non-negative data, but sample 2, word 1 is -2"):
            merge_words(form(X), [0, 1, 0, 1], criterion=criterion, scaling=scaling)

    @pytest.mark.parametrize("criterion", ["aib", "mlt", "gml", "uvd", "mme"])
    def test_one_class(self, criterion):
        with pytest.raises(BagwiseError, match="at least two classes"):
            merge_words(np.eye(3), [1, 1, 1], criterion=criterion)

    def test_nothing_but_zeros(self):
        with pytest.raises(BagwiseError, match="'mmi' needs counts"):
            merge_words(np.zeros((3, 2)), criterion="mmi")
        with pytest.raises(BagwiseError, match="'aib' needs counts"):
            merge_words(np.zeros((3, 2)), [0, 1, 1], criterion=InformationLoss(0))

    def test_empty_samples_are_left_out(self):
        rng = np.random.default_rng(0)
        X = rng.integers(0, 5, (6, 4)).astype(float)
        with_empty = np.vstack([X, np.zeros((2, 4))])
        assert merge_words(X, criterion="mmi") == merge_words(with_empty, criterion="mmi")

    def test_a_broken_criterion_of_ones_own(self):
        class Broken(AdditiveScore):
            name = "broken"
            supervised = False

            def scoring(self, X, y):
                return scoring.Information(np.ones((2, 2)))

        with pytest.raises(BagwiseError, match=r"Broken\.scoring must return a scoring.*each of the 3 words"):
            merge_words(np.eye(3), criterion=Broken())


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (lambda self, states: states, r"Odd\.terms must give one finite number.*shape \(3, 3\)"),
        (lambda self, states: np.full(len(states), np.nan), "NaN or infinity among them"),
    ],
)
def test_scores_that_are_no_numbers(terms, message):
    Odd = type("Odd", (scoring.Scoring,), {"terms": terms})

    class Own(AdditiveScore):
        supervised = False

        def scoring(self, X, y):
            return Odd(np.array(X.T))

    with pytest.raises(BagwiseError, match=message):
        merge_words(np.eye(3), criterion=Own())


def test_a_criterion_without_a_search():
    class Own(Criterion):
        supervised = False

        def search(self, X, y, memory_limit=None):
            return "merge everything"

    with pytest.raises(BagwiseError, match=r"Own\.search must return a Search over all 3 words; got 'merge"):
        merge_words(np.eye(3), criterion=Own())


@pytest.mark.parametrize("criterion", ["mmi", "gml", ClassPosterior("evidence"), "mme"])
def test_dense_states_are_held_against_the_limit(criterion):
    X, y = sp.csr_array(np.eye(40)), np.arange(40) % 2
    with pytest.raises(BagwiseError, match=r"25\.60 kB.*limit is 10\.00 kB.*'aib'"):
        merge_words(X, y, criterion=criterion, memory_limit="10kB")


def test_a_score_of_ones_own():
    class Spread(scoring.Scoring):
        def terms(self, states):
            return -states.var(axis=1)

    class Flat(AdditiveScore):
        name = "flat"
        supervised = False

        def scoring(self, X, y):
            return Spread(np.array(X.T))

    rng = np.random.default_rng(0)
    x = rng.random(20)
    X = np.stack([x, rng.random(20), 1 - x], axis=1)
    assert merge_words(X, criterion=Flat()).merges[0].tolist() == [0, 2]


def test_the_data_are_not_written_to():
    class Squares(scoring.Scoring):
        def terms(self, states):
            return -(states**2).sum(axis=1)

    class Own(AdditiveScore):
        supervised = False

        def scoring(self, X, y):
            return Squares(X.T)  # a view

    X = np.random.default_rng(0).random((6, 5))
    before = X.copy()
    merge_words(X, criterion=Own())
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"states": np.ones(3)}, "finite numbers, one row for each word"),
        ({"states": np.full((3, 2), np.nan)}, "with NaN or infinity"),
        ({"ties": lambda self: np.zeros(2)}, r"ties must give one number.*shape \(2,\)"),
        ({"gains": lambda self, *_: np.zeros(7)}, r"one gain.*shape \(7,\)"),
        ({"gains": lambda self, s, t, others, o: np.full(len(others), np.nan)}, "NaN among them"),
    ],
)
def test_scorings_that_break_the_protocol(methods, message):
    plain = {"terms": lambda self, states: -(states**2).sum(axis=1)}
    Odd = type("Odd", (scoring.Scoring,), plain | {key: value for key, value in methods.items() if key != "states"})

    class Own(AdditiveScore):
        supervised = False

        def scoring(self, X, y):
            return Odd(methods.get("states", np.array(X.T)))

    with pytest.raises(BagwiseError, match=message):
        merge_words(np.eye(3), criterion=Own())
