"""Reducers and classifiers of the experiments on small made-up words."""

import numpy as np
import pytest
import scipy.sparse as sp
from experiments.classifying import errors, kernel_error, linear_error, neighbors_error
from experiments.merging_errors import LABELS, measured
from experiments.reducing import METHODS, Task, local_neighbors, reduced
from experiments.sets import Words
from sklearn.decomposition import PCA

from bagwise import WordMerger

SIZES = (2, 5, 12)
SIGNED = ("pca", "hashing")


def made_up(n=60, d=30, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    rates = rng.gamma(0.6, size=d) * np.exp(0.8 * rng.standard_normal((2, d)))
    X = sp.csr_array(rng.poisson(120 * (rates / rates.sum(axis=1, keepdims=True))[y]).astype(np.float32))
    fewer = {size: sp.csr_array(X[:, :size]) for size in SIZES}
    return Words(X, y.astype(np.int64), ("a", "b"), np.arange(n) < 40, fewer)


@pytest.fixture
def task():
    words = made_up()
    return Task.of(words, np.flatnonzero(words.train), np.flatnonzero(~words.train))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_sizes_asked_for(task, method):
    found = {size: (Z, Z_test) for size, Z, Z_test in reduced(task, method, (*SIZES, 30, 500))}
    assert set(found) == ({30} if method.startswith("all") else set(SIZES))
    for size, (Z, Z_test) in found.items():
        assert Z.shape == (40, size)
        assert Z_test.shape == (20, size)
        assert method in SIGNED or Z.min() >= 0
    assert method in LABELS


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


@pytest.mark.parametrize("method", ["csm", "aib", "ditc", "linkage"])
def test_merging_keeps_the_sums(task, method):
    for _, Z, _ in reduced(task, method, SIZES):
        np.testing.assert_allclose(Z.sum(axis=1), task.roots[0].sum(axis=1))


def test_roots_of_sums_have_length_one(task):
    for _, Z, Z_test in reduced(task, "aib_late", SIZES):
        for features in (Z, Z_test):
            np.testing.assert_allclose(np.sum(features**2, axis=1), 1)


def test_what_is_learned_does_not_look_at_test_samples(task):
    other = Task(task.counts, task.y, task.counts_test[::-1] * 3, task.y_test, task.fewer)
    assert local_neighbors(task) == local_neighbors(other)
    for method in ("csm", "ditc", "mrmr", "pca", "bsc", "pka"):
        for (_, Z, _), (_, again, _) in zip(reduced(task, method, SIZES), reduced(other, method, SIZES), strict=True):
            np.testing.assert_array_equal(Z, again)


def test_errors_do_not_depend_on_scale(task):
    _, Z, Z_test = next(iter(reduced(task, "csm", (5,))))
    assert errors(Z, task.y, Z_test, task.y_test) == errors(8 * Z, task.y, 8 * Z_test, task.y_test)


def test_more_words_than_samples_are_rotated_without_loss():
    rng = np.random.default_rng(0)
    y, y_test = np.arange(30) % 2, np.arange(200) % 2
    Z, Z_test = (rng.random((len(labels), 12)) + 0.25 * labels[:, None] for labels in (y, y_test))
    wide = rng.standard_normal((12, 50))
    wide = np.linalg.qr(wide.T)[0].T  # orthonormal rows: the same samples in a wider space
    expected = linear_error(Z, y, Z_test, y_test)
    assert 0 < expected < 0.5
    assert linear_error(Z @ wide, y, Z_test @ wide, y_test) == pytest.approx(expected, abs=0.011)


def test_sparse_features_are_classified_like_dense_ones(task):
    for size in (5, 30):
        Z, Z_test = (X[:, :size] for X in task.roots)
        sparse = errors(sp.csr_array(Z), task.y, sp.csr_array(Z_test), task.y_test)
        assert sparse == errors(Z, task.y, Z_test, task.y_test)


def test_no_intersection_of_features_with_signs(task):
    Z = PCA(3).fit_transform(task.roots[0])
    assert set(errors(Z, task.y, Z, task.y)) == {"linear", "neighbors"}


def test_classes_far_apart_are_told_apart_and_noise_is_not():
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2
    apart = rng.random((100, 3)) + 5 * y[:, None]
    noise = rng.random((100, 3))
    for error in (linear_error, neighbors_error, lambda *data: kernel_error(*data, "intersection")):
        assert error(apart[:50], y[:50], apart[50:], y[50:]) == 0
        assert 0.25 < error(noise[:50], y[:50], noise[50:], y[50:]) < 0.75


def test_measured_errors_are_fractions_by_method_classifier_and_size(task):
    found = measured(task, ("all", "csm", "pca"), SIZES)
    assert set(found) == {"all", "csm", "pca"}
    assert set(found["csm"]) == {"linear", "neighbors", "intersection"}
    assert set(found["csm"]["linear"]) == {"2", "5", "12"}
    assert set(found["all"]["linear"]) == {"30"}
    assert all(0 <= error <= 1 for lines in found.values() for line in lines.values() for error in line.values())
    assert found == measured(task, ("all", "csm", "pca"), SIZES)
