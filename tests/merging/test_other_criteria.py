"""UVD in its posterior form, MME and linkage."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.cluster.hierarchy import linkage
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, merge_words
from bagwise.criteria import ClassPosterior, Linkage, Margin
from bagwise.merging.criteria.others import solve_svm
from bagwise.merging.engine import Engine
from helpers import topic_counts


def label_log_probability(X, y):
    """Σ log p(y | x) under a Normal-Gamma model of each word in each class, sample by sample."""
    classes = np.unique(y)
    joint = np.tile(np.log([np.mean(y == c) for c in classes]), (len(X), 1))
    for v in X.T:
        mu0, b0 = v.mean(), max(v.var(), 1e-6)
        for k, c in enumerate(classes):
            own = v[y == c]
            n = len(own)
            kappa, a = 1 + n, 1 + n / 2
            mu = (mu0 + n * own.mean()) / kappa
            b = b0 + ((own - own.mean()) ** 2).sum() / 2 + n * (own.mean() - mu0) ** 2 / (2 * kappa)
            joint[:, k] += student.logpdf(v, 2 * a, mu, np.sqrt(b * (kappa + 1) / (a * kappa)))
    own = np.searchsorted(classes, y)
    wrong = [np.logaddexp.reduce(np.delete(row, c) - row[c]) for row, c in zip(joint, own, strict=True)]
    return -float(np.logaddexp(0.0, wrong).sum())


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("shift", [0, 400])
def test_uvd_keeps_the_labels_most_probable(n_classes, shift):
    rng = np.random.default_rng(n_classes)
    y = np.arange(14) % n_classes
    X = rng.integers(0, 9, (14, 7)) + shift * rng.random((n_classes, 7))[y]  # far apart, labels are certain
    hierarchy = merge_words(X, y, criterion="uvd")
    Y, names = X.copy(), list(range(7))
    for (s, t), score in zip(hierarchy.merges.tolist(), hierarchy.scores, strict=True):
        values = {}
        for i in range(len(names)):
            for j in range(i + 1, len(names)):
                Z = np.delete(Y, j, axis=1)
                Z[:, i] += Y[:, j]
                values[names[i], names[j]] = label_log_probability(Z, y)
        assert score == pytest.approx(values[s, t], rel=1e-6, abs=0)
        assert score == pytest.approx(max(values.values()), rel=1e-6, abs=0)
        assert score <= 0
        i, j = names.index(s), names.index(t)
        Z = np.delete(Y, j, axis=1)
        Z[:, i] += Y[:, j]
        Y = Z
        names.remove(t)


@pytest.mark.parametrize("seed", range(12))
def test_uvd_does_not_depend_on_the_scale_where_classes_are_far_apart(seed):
    rng = np.random.default_rng(seed)
    n_classes = 2 + seed % 3
    y = np.arange(8 * n_classes) % n_classes
    X = rng.poisson(rng.integers(1, 60, (n_classes, 9))[y]).astype(float)
    hierarchies = [merge_words(scale * X, y, criterion="uvd") for scale in (1.0, 2.0**40, 2.0**-40)]
    for other in hierarchies[1:]:
        np.testing.assert_array_equal(other.merges, hierarchies[0].merges)
        np.testing.assert_array_equal(other.scores, hierarchies[0].scores)
    tripled = merge_words(3.0 * X, y, criterion="uvd")  # rounded in another way, which chooses no pair
    np.testing.assert_array_equal(tripled.merges, hierarchies[0].merges)


def test_uvd_with_constant_words_stays_finite():
    X = np.column_stack([np.ones(8), np.zeros(8), np.arange(8.0), np.ones(8)])
    assert np.isfinite(merge_words(X, np.arange(8) % 2, criterion="uvd").scores).all()


def test_uvd_says_how_much_memory_it_needs():
    X, y = topic_counts(np.random.default_rng(0), 50, 200)
    with pytest.raises(BagwiseError, match=r"'uvd' with form='posterior'.*16\.00 MB.*form='evidence'"):
        merge_words(X, y, criterion="uvd", memory_limit="10MB")
    assert merge_words(X, y, criterion=ClassPosterior("evidence"), memory_limit="10MB").min_groups == 1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_mme_solves_the_svm_at_every_level(n_classes):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 9, (40, 8)).astype(float) + 1, np.arange(40) % n_classes
    hierarchy = merge_words(X, y, criterion=Margin(C=10.0))
    frequencies = X / X.sum(axis=1, keepdims=True)
    targets = [y == c for c in (range(1, 2) if n_classes == 2 else range(n_classes))]
    for n in (7, 4, 2, 1):
        labels = hierarchy.cut(n)
        Z = np.stack([frequencies[:, labels == g].sum(axis=1) for g in range(n)], axis=1)
        value = 0.0
        for target in targets:
            signs = np.where(target, 1, -1)
            # the intercept as one more column, as the criterion has it
            features = np.column_stack([Z, np.ones(40)])
            svm = LinearSVC(C=10.0, loss="hinge", fit_intercept=False, max_iter=10**6, tol=1e-8, random_state=0)
            svm.fit(features, signs)
            w = svm.coef_[0]
            value += w @ w / 2 + 10.0 * np.maximum(0, 1 - signs * (features @ w)).sum()
        assert hierarchy.scores[7 - n] == pytest.approx(value, rel=1e-3)


def test_mme_merges_words_with_the_same_say():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.poisson(np.where(y[:, None], [9, 9, 1, 1, 4], [1, 1, 9, 9, 4]), (60, 5)).astype(float)
    groups = {tuple(group.tolist()) for group in merge_words(X, y, criterion="mme").groups(3)}
    assert groups == {(0, 1), (2, 3), (4,)}


def test_mme_judged_exactly_is_no_worse_at_its_next_step():
    rng = np.random.default_rng(1)
    X, y = rng.integers(0, 9, (30, 10)).astype(float), np.arange(30) % 2
    estimate, exact = (merge_words(X, y, criterion=Margin(n_exact=n), n_groups=9) for n in (0, 45))
    assert exact.scores[0] >= estimate.scores[0] - 1e-3 * abs(estimate.scores[0])


@pytest.mark.parametrize("method", ["single", "average", "complete", "ward"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_linkage_is_scipys(method, form):
    rng = np.random.default_rng(0)
    X = rng.random((12, 20)) * (rng.random((12, 20)) < 0.7)
    hierarchy = merge_words(form(X), criterion=Linkage(method))
    rows = linkage(X.T, method)
    np.testing.assert_allclose(hierarchy.scores, rows[:, 2])
    np.testing.assert_array_equal(np.sort(hierarchy.to_linkage()[:, :2]), np.sort(rows[:, :2]))
    stopped = merge_words(form(X), criterion=Linkage(method), n_groups=5)
    np.testing.assert_array_equal(stopped.merges, hierarchy.merges[:15])


@pytest.mark.parametrize("criterion", [ClassPosterior("mean"), Margin(C=0.0), Margin(n_exact=-1), Linkage("median")])
def test_bad_parameters(criterion):
    with pytest.raises(ValueError, match="must be"):
        merge_words(np.eye(4), [0, 1, 0, 1], criterion=criterion)


@pytest.mark.parametrize("criterion", [ClassPosterior(), Margin(), Linkage()])
def test_they_start_without_folding(criterion):
    plan = Engine(criterion).load(np.eye(5), np.array([0, 1, 0, 1, 0])).start()
    assert len(plan.folded) == 0
    assert plan.search.n_words == 5
    assert isinstance(plan.search.work, dict)


@pytest.mark.parametrize(
    "case", [("integers", 1.0, 21), ("random", 1.0, 13), ("random", 1.0, 17), ("topics", 10.0, 55)]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_mme_merges_the_pair_whose_weights_agree_most(n_classes, case):
    kind, C, seed = case
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(4, 12)), int(rng.integers(10, 60))
    y = np.arange(n) % n_classes
    X = {
        "integers": lambda: rng.integers(0, 6, (n, d)).astype(float),
        "random": lambda: rng.random((n, d)),
        "topics": lambda: rng.poisson(0.3 + 6 * rng.random((n_classes, d))[y]).astype(float),
    }[kind]()
    search = Margin(C=C).search(X, y)
    for _ in range(d - 1):
        data = search._X.copy()
        s, t = search._search()
        weights = np.zeros((len(search._y), data.shape[1]))
        for target, w in zip(search._y, weights, strict=True):
            solve_svm(data, target, C, np.zeros(n), w, 1e-11, 200_000, 0)
        agreement = weights[:, :-1].T @ weights[:, :-1]
        best = agreement[np.triu_indices(len(agreement), 1)].max()
        assert agreement[s, t] >= best - 1e-9 * np.abs(agreement).max()
        assert s < t
        search.advance(np.empty((1, 2), dtype=np.int64), np.empty(1))


def test_mme_tells_when_its_svm_does_not_converge():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 9, (40, 6)).astype(float), np.arange(40) % 2
    with pytest.warns(ConvergenceWarning, match="Use a smaller C"):
        merge_words(X, y, criterion=Margin(C=1e6))


def test_linkage_of_sparse_data_with_a_large_mean():
    X = 1e6 + np.random.default_rng(0).random((8, 12))
    dense, sparse = (merge_words(form(X), criterion="linkage") for form in (np.asarray, sp.csr_array))
    np.testing.assert_allclose(dense.scores, sparse.scores, rtol=1e-8)
