"""Forms over samples: what is computed without them equals what the explicit matrix gives."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise.merging import structures as _scatter
from bagwise.merging import structures as structures_module
from bagwise.merging.structures import BetweenClasses, Combination, GraphLaplacian, Residuals, TotalScatter
from helpers import laplacian


def random_graph(rng, n):
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
    W = W + W.T
    np.fill_diagonal(W, 0)
    return W


def make(kind, rng, n):
    if kind == "total":
        return TotalScatter(np.ones(n))
    if kind == "weighted":
        return TotalScatter(rng.random(n) + 0.1)
    if kind == "between":
        return BetweenClasses(np.concatenate([[0, 1], rng.integers(0, 2, n - 2)]))
    if kind == "residuals":
        Z = rng.random((n + 2, n))
        R = rng.random((n + 2, n))
        return Residuals(sp.csr_array(R / R.sum(1, keepdims=True) - Z / Z.sum(1, keepdims=True)))
    if kind == "dense graph":
        return GraphLaplacian(random_graph(rng, n))
    if kind == "sparse graph":
        return GraphLaplacian(sp.csr_array(random_graph(rng, n)))
    some = np.sort(rng.choice(n, n - 1, replace=False))
    return Combination(
        [(0.5, TotalScatter(np.ones(n - 1)), some), (2.0, GraphLaplacian(random_graph(rng, n)), None)], n
    )


KINDS = ["total", "weighted", "between", "residuals", "dense graph", "sparse graph", "combination"]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 9), d=st.integers(1, 9), counts=st.booleans())
@settings(max_examples=25)
def test_scatter_is_the_quadratic_form(kind, seed, n, d, counts):
    rng = np.random.default_rng(seed)
    structure = make(kind, rng, n)
    X = rng.integers(0, 4, (n, d)).astype(float) if counts else 5 + rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    L = laplacian(structure)
    expected = X.T @ L @ X
    np.testing.assert_allclose(L, L.T, atol=1e-12)
    np.testing.assert_allclose(L.sum(axis=1), 0, atol=1e-10)
    for data in (X, sp.csr_array(X)):
        for n_threads in (1, 2):
            scatter = structure.scatter(data, n_threads)
            np.testing.assert_allclose(scatter, expected, atol=1e-9)
            np.testing.assert_array_equal(scatter, scatter.T)
        assert structure.trace(data) == pytest.approx(np.trace(expected), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_scatters_are_positive_semi_definite(kind):
    rng = np.random.default_rng(3)
    scatter = make(kind, rng, 12).scatter(rng.random((12, 20)))
    assert np.linalg.eigvalsh(scatter).min() > -1e-10 * np.trace(scatter)


def test_blocks_and_threads_do_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((50, 600))
    for kind in KINDS:
        structure = make(kind, np.random.default_rng(1), 50)
        whole = structure.scatter(X)
        with monkeypatch.context() as patch:
            patch.setattr(_scatter, "_BLOCK_BYTES", 8 * 600 * 7)
            np.testing.assert_allclose(structure.scatter(X), whole, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(structure.scatter(X, n_threads=3), whole)
        sparse = sp.csr_array(X)
        np.testing.assert_array_equal(structure.scatter(sparse, n_threads=3), structure.scatter(sparse))


def test_one_class_has_no_scatter_between_classes():
    X = np.random.default_rng(0).random((6, 4))
    np.testing.assert_allclose(BetweenClasses(np.zeros(6, dtype=int)).scatter(X), 0, atol=1e-12)


def test_total_is_between_plus_within():
    rng = np.random.default_rng(0)
    X, codes = rng.random((30, 5)), rng.integers(0, 3, 30)
    within = sum((X[codes == c] - X[codes == c].mean(0)).T @ (X[codes == c] - X[codes == c].mean(0)) for c in range(3))
    total, between = TotalScatter(np.ones(30)).scatter(X), BetweenClasses(codes).scatter(X)
    np.testing.assert_allclose(total, between + within, atol=1e-10)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_equal_words_of_counts_have_exactly_equal_rows(form):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(0, 50, (37, 9)), 40, axis=1).astype(float)
    for structure in (TotalScatter(np.ones(37)), BetweenClasses(np.arange(37) % 3)):
        scatter = structure.scatter(form(X))
        np.testing.assert_array_equal(scatter, np.repeat(scatter[::40], 40, axis=0))


def test_a_large_mean_does_not_spoil_reals():
    rng = np.random.default_rng(0)
    X = rng.random((40, 6))
    exact = X - X.mean(axis=0)
    np.testing.assert_allclose(TotalScatter(np.ones(40)).scatter(X + 1e6), exact.T @ exact, rtol=1e-8, atol=1e-8)
    W = random_graph(rng, 40)
    np.testing.assert_allclose(GraphLaplacian(W).scatter(X + 1e6), GraphLaplacian(W).scatter(X), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("crowded", [0.0, 2.0])
def test_crowded_blocks_of_sparse_data_give_the_same(monkeypatch, crowded):
    """Blocks of rows that fill up are made dense one at a time; here all of them, or none."""
    rng = np.random.default_rng(0)
    X = rng.random((50, 30)) * (rng.random((50, 30)) < 0.2)
    X[:, 3] += 1e5  # stored in every sample
    monkeypatch.setattr(structures_module, "_CROWDED", crowded)
    monkeypatch.setattr(_scatter, "_BLOCK_BYTES", 8 * 30 * 9)
    for kind in KINDS:
        structure = make(kind, np.random.default_rng(1), 50)
        np.testing.assert_allclose(structure.scatter(sp.csr_array(X)), structure.scatter(X), rtol=1e-7, atol=1e-7)
        assert structure.trace(sp.csr_array(X)) == pytest.approx(structure.trace(X), rel=1e-7)
