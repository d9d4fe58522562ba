"""What experiments compute, on small made-up words and images."""

import numpy as np
import pytest
import scipy.sparse as sp
from experiments.classifying import linear_error
from experiments.patterns import in_images
from experiments.reducing import METHODS, Task, local_neighbors, reduced
from experiments.sets import Words
from experiments.wide_draws import drawn
from experiments.wide_reducing import LABELS, pattern_groups, reductions
from sklearn.decomposition import PCA

from bagwise import WordMerger, merge_words
from experiments import beyond_multiclass

SIZES = (2, 5, 12)
SIGNED = ("pca", "hashing")


def made_up(n_classes=2, n=60, d=30):
    rng = np.random.default_rng(0)
    y = np.arange(n) % n_classes
    rates = rng.gamma(0.6, size=d) * np.exp(0.8 * rng.standard_normal((n_classes, d)))
    X = sp.csr_array(rng.poisson(120 * (rates / rates.sum(axis=1, keepdims=True))[y]).astype(np.float32))
    fewer = {size: sp.csr_array(X[:, :size]) for size in SIZES}
    return Words(X, y.astype(np.int64), tuple("abc"[:n_classes]), np.arange(n) < 40, fewer)


@pytest.fixture
def task():
    words = made_up()
    return Task.of(words, np.flatnonzero(words.train), np.flatnonzero(~words.train))


@pytest.fixture
def words():
    return made_up(3)


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    topics = rng.poisson(1.0, (40, 5)) @ rng.random((5, 64))
    return sp.csr_array(rng.poisson(topics), dtype=np.float32)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_sizes_asked_for(task, method):
    found = {size: (Z, Z_test) for size, Z, Z_test in reduced(task, method, (*SIZES, 30, 500))}
    assert set(found) == ({30} if method.startswith("all") else set(SIZES))
    for size, (Z, Z_test) in found.items():
        assert Z.shape == (40, size)
        assert Z_test.shape == (20, size)
        assert method in SIGNED or Z.min() >= 0


@pytest.mark.parametrize("method", ["csm", "nda", "mfa", "lde", "aib", "mlt", "mme", "linkage", "ditc", "uvd"])
def test_sparse_words_give_what_dense_ones_give(method):
    words = made_up()
    rows = np.flatnonzero(words.train), np.flatnonzero(~words.train)
    dense, sparse = (Task.of(words, *rows, sparse=kind) for kind in (False, True))
    for (_, Z, _), (_, S, S_test) in zip(reduced(dense, method, SIZES), reduced(sparse, method, SIZES), strict=True):
        assert sp.issparse(S)
        assert sp.issparse(S_test)
        np.testing.assert_allclose(S.toarray(), Z, atol=1e-12)


def test_merging_is_that_of_the_library(task):
    X, X_test = task.roots
    for size, Z, Z_test in reduced(task, "csm", SIZES):
        merger = WordMerger(size, criterion="csm").fit(X, task.y)
        np.testing.assert_allclose(Z, merger.transform(X))
        np.testing.assert_allclose(Z_test, merger.transform(X_test))


def test_what_is_learned_does_not_look_at_test_samples(task):
    other = Task(task.counts, task.y, task.counts_test[::-1] * 3, task.y_test, task.fewer)
    assert local_neighbors(task) == local_neighbors(other)
    for method in ("csm", "ditc", "mrmr", "pca", "bsc", "pka"):
        for (_, Z, _), (_, again, _) in zip(reduced(task, method, SIZES), reduced(other, method, SIZES), strict=True):
            np.testing.assert_array_equal(Z, again)


def test_more_words_than_samples_are_rotated_without_loss():
    rng = np.random.default_rng(0)
    y, y_test = np.arange(30) % 2, np.arange(200) % 2
    Z, Z_test = (rng.random((len(labels), 12)) + 0.25 * labels[:, None] for labels in (y, y_test))
    wide = rng.standard_normal((12, 50))
    wide = np.linalg.qr(wide.T)[0].T  # orthonormal rows: the same samples in a wider space
    expected = linear_error(Z, y, Z_test, y_test)
    assert 0 < expected < 0.5
    assert linear_error(Z @ wide, y, Z_test @ wide, y_test) == pytest.approx(expected, abs=0.011)


def test_scaled_ratio_takes_the_best_pair_of_all(words):
    X, y = words.X.toarray()[:, :7].astype(float), words.y

    def ratio(labels):
        Z = np.stack([X[:, labels == g].sum(axis=1) / np.sqrt(np.sum(labels == g)) for g in np.unique(labels)], axis=1)
        Z = Z - Z.mean(axis=0)
        between = sum(np.sum(y == c) * np.sum(Z[y == c].mean(axis=0) ** 2) for c in np.unique(y))
        return between / np.sum(Z**2)

    labels = np.arange(7)
    for size, found in sorted(beyond_multiclass.scaled_ratio(X, y, (6, 5, 4)), reverse=True):
        pairs = [(s, t) for s in np.unique(labels) for t in np.unique(labels) if s < t]
        best = max(ratio(np.where(labels == t, s, labels)) for s, t in pairs)
        assert ratio(found) == pytest.approx(best)
        assert len(np.unique(found)) == size
        labels = found


def test_shape_tells_one_direction_from_several():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 50)
    apart = np.eye(3)[y] * 10 + rng.random((150, 3))
    line = np.outer([0, 1, 2], [10, 0, 0])[y] + rng.random((150, 3))
    labels = np.array([0, 0, 1, 2])
    assert beyond_multiclass.shape(apart, y, labels)["directions"] == pytest.approx(2, abs=0.05)
    found = beyond_multiclass.shape(line, y, labels)
    assert found["directions"] == pytest.approx(1, abs=0.05)
    assert found["largest"] == 2
    assert found["scatter"] > 0.9
    assert found["ratio"] > 0.9


def test_shape_has_the_ratio_that_merging_maximises(words):
    X, y = words.X.toarray().astype(float), words.y
    hierarchy = merge_words(X, y, criterion="csm", n_groups=10)
    labels = hierarchy.cut(10)
    merged = np.stack([X[:, labels == g].sum(axis=1) for g in range(10)], axis=1)
    assert beyond_multiclass.shape(merged, y, labels)["ratio"] == pytest.approx(hierarchy.scores[-1], abs=1e-4)


@pytest.mark.parametrize("method", [method for method in LABELS if method != "lbp"])
def test_reductions_have_the_size_asked_for_and_are_the_same_again(method, X):
    found, again = (reductions(method, X, [4, 9]) for _ in range(2))
    for size in (4, 9):
        Z = found[size].apply(X)
        assert Z.shape == (40, size)
        np.testing.assert_array_equal(Z, again[size].apply(X))
        np.testing.assert_allclose(Z[3:5], found[size].apply(X[3:5]), rtol=1e-5, atol=1e-4)
        assert found[size].n_bytes >= 8


def test_components_are_those_of_scikit_learn(X):
    expected = PCA(5).fit(X.toarray())
    Z = reductions("pca", X, [2, 5])
    for size in (2, 5):
        np.testing.assert_allclose(abs(Z[size].apply(X)), abs(expected.transform(X.toarray())[:, :size]), atol=1e-3)
    assert Z[5].n_bytes == 4 * (5 * 64 + 5)


def test_groups_of_patterns_are_those_of_k_means_over_occurrences():
    from sklearn.cluster import KMeans

    totals = np.random.default_rng(0).poisson(0.7, 64)
    labels = pattern_groups(totals, 5)
    bits = (np.arange(64)[:, None] >> np.arange(6) & 1).astype(float)
    occurrences, groups = np.repeat(bits, totals, axis=0), np.repeat(labels, totals)
    centers = np.array([occurrences[groups == group].mean(axis=0) for group in range(5)])
    # a fixed point of k-means over all occurrences, one by one
    again = KMeans(5, init=centers, n_init=1).fit(occurrences)
    np.testing.assert_allclose(again.cluster_centers_, centers, atol=1e-12)
    distances = ((bits[:, None] - centers) ** 2).sum(axis=2)
    np.testing.assert_allclose(distances[np.arange(64), labels], distances.min(axis=1), atol=1e-12)  # also unseen ones
    np.testing.assert_array_equal(np.unique(labels, return_index=True)[1].argsort(), np.arange(5))
    # no more patterns than groups: each is one
    np.testing.assert_array_equal(pattern_groups(np.array([0, 3, 0, 0, 1, 0, 0, 2]), 5)[[1, 4, 7]], [0, 1, 2])


def test_draws_have_as_many_of_each_class_and_the_first_is_the_fixed_one():
    y = np.repeat([0, 1, 2], [250, 300, 150])
    fixed = np.arange(700) % 7 == 0
    train, test = drawn(y, fixed, 0)
    np.testing.assert_array_equal(train, np.flatnonzero(fixed))
    seen = set()
    for draw in (1, 2):
        train, test = drawn(y, fixed, draw)
        np.testing.assert_array_equal(np.bincount(y[train]), [100, 100, 75])
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(700))
        seen.add(tuple(train))
    assert len(seen) == 2


def test_quarters_are_added_four_at_a_time():
    rows = sp.csr_array(np.arange(24, dtype=np.float32).reshape(8, 3))
    np.testing.assert_array_equal(in_images(rows).toarray(), rows.toarray().reshape(2, 4, 3).sum(axis=1))
