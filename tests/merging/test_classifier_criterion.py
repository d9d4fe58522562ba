"""The criterion "classifier": merging words so that a linear classifier keeps its scores."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC, LinearSVC

from bagwise import BagwiseError, merge_words
from bagwise.criteria import ClassifierLoss
from bagwise.merging import refining
from bagwise.merging.engine import Engine, merge
from bagwise.merging.pooling import pool
from bagwise.merging.refining import merge_refined, nearest_means
from bagwise.merging.scoring import WeightLoss
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.searches.sorted import SortedSearch
from bagwise.merging.searches.sums import SumSearch
from bagwise.merging.teacher import ScoreMoments, Teacher, balanced_weights, group_weights, mean_squares, mean_weights
from helpers import topic_counts


def weighted_points(seed, d, n_outputs):
    rng = np.random.default_rng(seed)
    return rng.gamma(0.3, size=d) + 1e-3, rng.normal(size=(d, n_outputs))


def loss(mass, weights, labels):
    """Definition: masses times squared distances to the means of the groups."""
    total = 0.0
    for g in range(labels.max() + 1):
        m, w = mass[labels == g], weights[labels == g]
        mean = (m @ w) / m.sum() if m.sum() > 0 else 0.0
        total += float(m @ ((w - mean) ** 2).sum(axis=1))
    return total


def run(search):
    pairs, scores = np.empty((search.n_words - 1, 2), dtype=np.int64), np.empty(search.n_words - 1)
    search.advance(pairs, scores)
    return pairs, scores


@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 3))
@settings(max_examples=60)
def test_every_merge_is_the_cheapest_and_scores_are_minus_the_loss(seed, d, n_outputs):
    mass, weights = weighted_points(seed, d, n_outputs)
    hierarchy = merge(WeightLoss(mass, weights), name="classifier")
    for n in range(d, 1, -1):
        labels = hierarchy.cut(n)
        costs = {}
        for i in range(n):
            for j in range(i + 1, n):
                joined = np.where(labels == j, i, labels)
                costs[i, j] = loss(mass, weights, np.unique(joined, return_inverse=True)[1])
        after = loss(mass, weights, hierarchy.cut(n - 1))
        assert after == pytest.approx(min(costs.values()), abs=1e-9)
        assert hierarchy.scores[d - n] == pytest.approx(-after, abs=1e-9)


@pytest.mark.parametrize("d", [2, 3, 700])
@pytest.mark.parametrize(("kind", "n_outputs"), [(SortedSearch, 1), (SumSearch, 1), (SumSearch, 5)])
def test_searches_find_what_the_search_over_all_pairs_finds(kind, n_outputs, d):
    scoring = WeightLoss(*weighted_points(d, d, n_outputs))
    fast, slow = kind(scoring), PartnerSearch(scoring)
    (pairs, scores), (expected, expected_scores) = run(fast), run(slow)
    np.testing.assert_array_equal(pairs, expected)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-9)
    assert fast.work["pairs_evaluated"] <= (3 if kind is SortedSearch else 20) * d


def test_equally_good_merges_are_in_a_valid_order():
    """On a grid most costs are equal, up to rounding."""
    weights = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2) / 3
    scoring = WeightLoss(np.ones(144), weights)
    (_, scores), (_, expected) = run(SumSearch(scoring)), run(PartnerSearch(scoring))
    assert (np.diff(scores, 2) <= 1e-9).all()  # costs never fall
    np.testing.assert_allclose(scores[:60], expected[:60])


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_permuting_words_permutes_the_tree(n_outputs):
    mass, weights = weighted_points(4, 60, n_outputs)
    order = np.random.default_rng(1).permutation(60)
    one = merge(WeightLoss(mass, weights), name="classifier")
    other = merge(WeightLoss(mass[order], weights[order]), name="classifier")
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-9)
    for n in (2, 7, 30):
        groups = {frozenset(group.tolist()) for group in one.groups(n)}
        assert groups == {frozenset(order[group].tolist()) for group in other.groups(n)}


def best_partitions(mass, weights):
    """Smallest loss of each number of groups with one weight per word, by dynamic programming."""
    order = np.argsort(weights)
    m, w = mass[order], weights[order]
    sums = [np.concatenate([[0.0], np.cumsum(part)]) for part in (m, m * w, m * w * w)]

    def cost(i, j):
        m, mw, mww = (part[j] - part[i] for part in sums)
        return mww - mw * mw / m

    d = len(m)
    best = np.full((d + 1, d + 1), np.inf)
    best[0, 0] = 0.0
    for k in range(1, d + 1):
        for j in range(k, d + 1):
            best[k, j] = min(best[k - 1, i] + cost(i, j) for i in range(k - 1, j))
    return best[1:, d]


def test_two_classes_greedy_is_near_the_optimum():
    mass, weights = weighted_points(2, 60, 1)
    scores = merge(WeightLoss(mass, weights), name="classifier").scores
    best = best_partitions(mass, weights[:, 0])
    ours = -np.append(scores[::-1], 0.0)
    assert (ours >= best - 1e-9).all()
    assert (ours[:20] <= 1.6 * best[:20] + 1e-9).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_equal_words_and_unseen_words_are_merged_first_at_no_cost(n_classes):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 5, (40, 12)) * 1.0, np.arange(40) % n_classes
    X = np.column_stack([X, X[:, 3], np.zeros(40), X[:, 3], np.zeros(40)])  # words 12 to 15
    hierarchy = merge_words(X, y, criterion="classifier")
    np.testing.assert_allclose(hierarchy.scores[:4], 0.0, atol=1e-12)
    assert hierarchy.scores[4] < -1e-9
    labels = hierarchy.cut(12)
    assert labels[3] == labels[12] == labels[14]
    weights = LinearSVC(random_state=0).fit(X / np.sqrt(mean_squares(X).sum()), y).coef_
    smallest = int(np.argmin((weights[:, :12] ** 2).sum(axis=0)))
    assert labels[13] == labels[15] == labels[smallest]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_word_ever_occurs(n_classes):
    hierarchy = merge_words(np.zeros((6, 5)), np.arange(6) % n_classes, criterion="classifier")
    assert hierarchy.min_groups == 1
    np.testing.assert_array_equal(hierarchy.scores, 0.0)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_rows_with_one_word_each(n_classes):
    """Words are uncorrelated then, and the loss is the expected squared change of the scores."""
    rng = np.random.default_rng(0)
    X = np.zeros((300, 20))
    X[np.arange(300), rng.integers(0, 20, 300)] = rng.random(300) + 0.5
    y = rng.integers(0, n_classes, 300)
    svm = LinearSVC(random_state=0).fit(X, y)
    teacher = Teacher.of(svm, X)
    hierarchy = merge_words(X, y, criterion=ClassifierLoss(FrozenEstimator(svm)))
    for n in (1, 5, 12):
        coef, intercept = mean_weights(teacher, hierarchy.cut(n), n)
        change = pool(X, hierarchy.cut(n), n) @ coef.T + intercept - teacher.scores(X)
        weights = balanced_weights(teacher.scores(X))
        assert hierarchy.scores[20 - n - 1] == pytest.approx(-weights @ (change**2).sum(axis=1) / weights.sum())


def test_sparse_and_dense_and_the_search_that_is_chosen():
    X, y = topic_counts(np.random.default_rng(0), 80, 400)
    for labels, kind in ((y, SortedSearch), (y + 2 * (np.arange(80) % 2), SumSearch)):
        assert isinstance(Engine("classifier").load(X, labels).start().search, kind)
        frozen = ClassifierLoss(FrozenEstimator(RidgeClassifier().fit(X, labels)))
        dense, sparse = (merge_words(form(X), labels, criterion=frozen) for form in (np.asarray, sp.csr_array))
        np.testing.assert_array_equal(dense.merges, sparse.merges)
        np.testing.assert_allclose(dense.scores, sparse.scores, rtol=1e-9, atol=1e-12)


def test_a_frozen_estimator_is_used_as_it_is():
    X, y = topic_counts(np.random.default_rng(0), 60, 30)
    fitted = LogisticRegression(C=0.1).fit(X, y)
    frozen = merge_words(X, 1 - y, criterion=ClassifierLoss(FrozenEstimator(fitted)))  # whatever the labels
    assert frozen == merge_words(X, y, criterion=ClassifierLoss(LogisticRegression(C=0.1)))
    assert frozen != merge_words(X, y, criterion=ClassifierLoss(LogisticRegression(C=10)))


def test_weights_of_samples_count():
    X, y = topic_counts(np.random.default_rng(0), 60, 30)
    weights = np.random.default_rng(1).integers(0, 3, 60)
    criterion = ClassifierLoss(LogisticRegression(tol=1e-10, max_iter=10_000))
    weighted = merge_words(X, y, criterion=criterion, sample_weight=weights)
    repeated = merge_words(np.repeat(X, weights, axis=0), np.repeat(y, weights), criterion=criterion)
    np.testing.assert_array_equal(weighted.merges, repeated.merges)
    np.testing.assert_allclose(weighted.scores, repeated.scores, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (GaussianNB(), "GaussianNB is not a linear classifier"),
        (SVC(kernel="linear"), r"scores of SVC are not X @ coef_\.T"),
    ],
)
def test_classifiers_that_are_not_linear(estimator, message):
    X, _ = topic_counts(np.random.default_rng(0), 60, 30)
    with pytest.raises(BagwiseError, match=message):
        merge_words(X, np.arange(60) % 3, criterion=ClassifierLoss(estimator))


def test_bad_input():
    X, y = topic_counts(np.random.default_rng(0), 60, 30)
    with pytest.raises(BagwiseError, match="KNeighborsClassifier does not support sample_weight"):
        merge_words(X, y, criterion=ClassifierLoss(KNeighborsClassifier()), sample_weight=np.ones(60))
    with pytest.raises(BagwiseError, match="at least two classes"):
        merge_words(X, np.zeros(60), criterion="classifier")
    with pytest.raises(BagwiseError, match="one label per sample"):
        merge_words(X, np.eye(60)[:, :3], criterion="classifier")
    with pytest.raises(BagwiseError, match="X has 29 words, but RidgeClassifier was fitted with 30"):
        Teacher.of(RidgeClassifier().fit(X, y), X[:, :29])


class TestWeightsOfGroups:
    @pytest.fixture
    def case(self):
        rng = np.random.default_rng(3)
        X, y = topic_counts(rng, 90, 50)
        teacher = Teacher.of(RidgeClassifier().fit(X, y + 2 * (np.arange(90) % 2)), X)
        return X, teacher, rng.integers(0, 8, 50)

    def test_every_word_on_its_own_is_the_teacher(self, case):
        X, teacher, _ = case
        coef, intercept = mean_weights(teacher, np.arange(50), 50)
        np.testing.assert_array_equal(X @ coef.T + intercept, teacher.scores(X))
        fitted = group_weights(X, teacher.scores(X), coef)
        np.testing.assert_allclose(X @ fitted[0].T + fitted[1], teacher.scores(X), atol=1e-9)

    def test_means(self, case):
        _, teacher, labels = case
        coef, _ = mean_weights(teacher, labels, 8)
        for g in range(8):
            expected = np.average(teacher.coef[:, labels == g], axis=1, weights=teacher.mass[labels == g])
            np.testing.assert_allclose(coef[:, g], expected)

    def test_a_group_without_mass_has_the_plain_mean(self):
        teacher = Teacher(np.array([[1.0, 3, 5]]), np.zeros(1), np.arange(2), np.array([0.0, 0, 1]))
        np.testing.assert_array_equal(mean_weights(teacher, np.array([0, 0, 1]), 2)[0], [[2.0, 5.0]])

    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csr_matrix])
    def test_least_squares_with_a_penalty(self, case, form):
        X, teacher, labels = case
        Z, F = pool(X, labels, 8), teacher.scores(X)
        start, _ = mean_weights(teacher, labels, 8)
        coef, intercept = group_weights(form(Z), F, start, ridge=0.1)
        a = balanced_weights(F)
        Zc, Fc = (np.sqrt(a)[:, np.newaxis] * (M - np.average(M, axis=0, weights=a)) for M in (Z, F))
        penalty = 0.1 * (Zc**2).sum() / 8
        change = np.linalg.solve(Zc.T @ Zc + penalty * np.eye(8), Zc.T @ (Fc - Zc @ start.T))
        np.testing.assert_allclose(coef, start + change.T, rtol=1e-8)
        np.testing.assert_allclose(a @ (Z @ coef.T + intercept), a @ F)

    def test_moments_add_up_and_merge(self, case):
        X, teacher, labels = case
        F = teacher.scores(X)
        start, _ = mean_weights(teacher, labels, 8)
        a = balanced_weights(F)
        words = ScoreMoments.of(X[:40], F[:40], a[:40]) + ScoreMoments.of(sp.csr_array(X[40:]), F[40:], a[40:])
        ours, expected = words.merged(labels, 8).weights(start), group_weights(pool(X, labels, 8), F, start)
        np.testing.assert_allclose(ours[0], expected[0], rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(ours[1], expected[1], rtol=1e-8)

    def test_many_items_are_summed_in_batches(self, case, monkeypatch):
        X, teacher, _ = case
        whole = group_weights(X, teacher.scores(X))
        monkeypatch.setattr("bagwise.merging.teacher._BATCH", 37)
        for form in (np.asarray, sp.csr_array):
            np.testing.assert_allclose(group_weights(form(X), teacher.scores(X))[0], whole[0], rtol=1e-8, atol=1e-12)

    def test_rare_classes_count_as_frequent_ones(self):
        scores = np.eye(3)[[0] * 80 + [1] * 10 + [2] * 10]
        weights = balanced_weights(scores)
        assert weights[0] * (80 + 10 / 3) == pytest.approx(1.0)
        assert weights[99] * (10 + 10 / 3) == pytest.approx(1.0)
        twice = np.repeat([2.0, 1.0], [10, 90])
        np.testing.assert_allclose(
            np.repeat(balanced_weights(scores, twice) / twice, twice.astype(int)),
            balanced_weights(np.repeat(scores, twice.astype(int), axis=0)),
        )
        binary = balanced_weights(np.array([[1.0], [-1], [-2], [-3]]))
        assert binary.tolist() == pytest.approx([1 / 1.2, 1 / 3.2, 1 / 3.2, 1 / 3.2])

    def test_empty_constant_and_too_many_groups(self, case):
        X, teacher, _ = case
        Z = np.column_stack([X, np.zeros(90), np.full(90, 3.0)])[:20]
        coef, intercept = group_weights(Z, teacher.scores(X[:20]), ridge=1e-3)
        assert np.isfinite(coef).all()
        np.testing.assert_allclose(coef[:, 50:], 0.0, atol=1e-9)
        np.testing.assert_allclose(Z @ coef.T + intercept, teacher.scores(X[:20]), atol=0.05)
        coef, intercept = group_weights(np.ones((4, 2)), np.array([[-3.0], [-1], [1], [3]]))
        assert coef.tolist() == [[0.0, 0.0]]
        np.testing.assert_allclose(intercept, 0.0, atol=1e-12)


@pytest.mark.parametrize("n_outputs", [1, 4])
@pytest.mark.parametrize("n_groups", [2, 7, 40, 299])
def test_a_refined_hierarchy_loses_less_where_it_is_refined(n_outputs, n_groups):
    mass, weights = weighted_points(n_groups, 300, n_outputs)
    greedy = merge(WeightLoss(mass, weights), name="classifier")
    refined = merge_refined(mass, weights, "classifier", n_groups)
    assert refined.min_groups == 1
    level = 300 - n_groups - 1
    assert refined.scores[level] >= greedy.scores[level] - 1e-12 * abs(greedy.scores[-1])
    for size in (1, 2, n_groups, 150, 250):
        expected = -loss(mass, weights, refined.cut(size))
        np.testing.assert_allclose(refined.scores[300 - size - 1], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(refined.scores[-1], greedy.scores[-1], rtol=1e-9)
    # no word is nearer to another mean: Lloyd's algorithm has ended
    labels = refined.cut(n_groups)
    totals = np.bincount(labels, mass)
    means = np.stack([np.bincount(labels, mass * column) / totals for column in weights.T], axis=1)
    distances = np.square(weights[:, None] - means).sum(axis=2)
    assert (distances[np.arange(300), labels] <= distances.min(axis=1) + 1e-9).all()


def test_rare_words_join_the_one_of_the_least_cost_and_are_scored(monkeypatch):
    mass, weights = weighted_points(3, 120, 3)
    scoring = WeightLoss(mass, weights, 40)
    kept, others = np.split(np.argsort(-mass), [40])
    shares = np.outer(mass[others], mass[kept]) / (mass[others][:, np.newaxis] + mass[kept])
    costs = shares * np.square(weights[others][:, np.newaxis] - weights[kept]).sum(axis=2)
    early = scoring.early_merges()
    order = np.argsort(costs.min(axis=1))
    np.testing.assert_array_equal(early, np.stack([kept[costs.argmin(axis=1)], others], axis=1)[order])
    hierarchy = merge(WeightLoss(mass, weights, 40))
    labels = hierarchy.cut(40)
    np.testing.assert_array_equal(labels[early[:, 0]], labels[early[:, 1]])
    monkeypatch.setattr(refining, "_KEPT", 40)
    refined = merge_refined(mass, weights, "classifier", 7)
    assert refined != merge(WeightLoss(mass, weights))
    for tree in (hierarchy, refined):
        for size in (119, 80, 40, 20, 7, 1):
            expected = -loss(mass, weights, tree.cut(size))
            np.testing.assert_allclose(tree.scores[120 - size - 1], expected, rtol=1e-9, atol=1e-12)
    assert WeightLoss(mass, weights[:, :1], 40).early_merges() is None  # one output is quick


def test_refining_at_all_words_or_one_group_is_greedy():
    mass, weights = weighted_points(0, 50, 2)
    greedy = merge(WeightLoss(mass, weights), name="classifier")
    for n_groups in (0, 1, 50, 99):
        np.testing.assert_array_equal(merge_refined(mass, weights, "classifier", n_groups).merges, greedy.merges)


def test_distances_are_computed_a_few_words_at_a_time(monkeypatch):
    rng = np.random.default_rng(0)
    mass, weights, labels = rng.gamma(1, size=50), rng.normal(size=(50, 3)), rng.integers(7, size=50)
    whole = nearest_means(mass, weights, labels, 7)
    assert not np.array_equal(whole, labels)
    for most in (1, 50):
        monkeypatch.setattr(refining, "_MOST_DISTANCES", most)
        np.testing.assert_array_equal(nearest_means(mass, weights, labels, 7), whole)
