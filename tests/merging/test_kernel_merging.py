"""Merging in the feature space of a kernel, against the kernel matrices written out."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError, WordMerger, merge_words
from bagwise.kernels import KERNELS, AdditiveKernel, additive_kernel
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.kernel_rows import KernelRows, KernelTraces
from bagwise.merging.searches.ratios import SEARCHES
from bagwise.merging.structures import BetweenClasses, Combination, GraphLaplacian, Residuals, TotalScatter
from helpers import labelled_counts, laplacian

CURVED = sorted(set(KERNELS) - {"linear"})


def structures(rng, n):
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
    W = W + W.T
    np.fill_diagonal(W, 0)
    Z = rng.random((n, n))
    some = np.arange(n - 1)
    return [
        TotalScatter(np.ones(n)),
        TotalScatter(rng.random(n)),
        BetweenClasses(np.arange(n) % 3),
        BetweenClasses(np.arange(n) % 3, rng.random(n) + 0.1),
        GraphLaplacian(W),
        GraphLaplacian(sp.csr_array(W)),
        Residuals(sp.csr_array(np.eye(n) - Z / Z.sum(axis=1, keepdims=True))),
        Combination([(0.5, TotalScatter(np.ones(n - 1)), some), (2.0, GraphLaplacian(W), None)], n),
    ]


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@given(seed=st.integers(0, 10**6), n=st.integers(4, 9))
@settings(max_examples=15)
def test_traces_are_those_of_the_kernel_matrix(kernel, seed, n):
    rng = np.random.default_rng(seed)
    values = rng.random((5, n)) * 10.0 ** rng.integers(-3, 3, (5, 1)) * (rng.random((5, n)) < 0.7)
    values[0, 0] = 1.0
    traces = KernelTraces(kernel, values[values > 0].min(), values.sum(axis=0).max())
    for structure in structures(rng, n):
        L = laplacian(structure)
        expected = [np.trace(L @ additive_kernel(v[:, None], kernel=kernel)) for v in values]
        scale = np.abs(values).max() ** (2 if kernel == "linear" else 1)
        np.testing.assert_allclose(traces.trace(structure, values), expected, rtol=1e-9, atol=1e-11 * scale)


@pytest.mark.parametrize(("kernel", "allowed"), [("chi2", 1.0), ("jensen_shannon", 0.1)])
@pytest.mark.parametrize("tolerance", [1e-6, 1e-9, 1e-12])
def test_quadrature_keeps_its_tolerance(kernel, allowed, tolerance):
    """For each pair of numbers, from the smallest to the largest. Jensen-Shannon is ten times as exact as promised."""
    values = np.logspace(-6, 0, 61)
    pairs = np.array([(x, z) for x in values for z in values if 0.0099 < x / z < 101])
    traces = KernelTraces(kernel, values[0], values[-1], tolerance)
    sums = [traces._quadrature_sums(pairs, np.array(weights)) for weights in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0))]
    exact = [additive_kernel([[x]], [[z]], kernel)[0, 0] for x, z in pairs]
    np.testing.assert_allclose((sums[0] - sums[1] - sums[2]) / 2, exact, rtol=allowed * tolerance)


@pytest.mark.parametrize("kernel", ["chi2", "jensen_shannon"])
def test_the_direct_sum_equals_the_quadrature(kernel):
    rng = np.random.default_rng(0)
    values = 10.0 ** rng.uniform(-3, 3, (20, 30)) * (rng.random((20, 30)) < 0.8)
    weights = rng.random(30)
    traces = KernelTraces(kernel, values[values > 0].min(), values.sum(axis=0).max())
    np.testing.assert_allclose(
        traces._quadrature_sums(values, weights), KERNELS[kernel].sums(values, weights), rtol=1e-11
    )


@pytest.mark.parametrize("kernel", ["chi2", "jensen_shannon"])
def test_many_samples_take_the_quadrature(kernel):
    rng = np.random.default_rng(0)
    X, y = rng.random((900, 6)) + 0.01, np.arange(900) % 2
    hierarchy = merge_words(X, y, kernel=kernel)
    small = KernelTraces(kernel, X.min(), X.sum(axis=1).max())
    assert 2 * len(small._nodes) < 900
    L_P, L_U = (laplacian(structure) for structure in resolve_criterion("csm").structures(X, y))
    for n in (6, 3, 1):
        labels = hierarchy.cut(n)
        merged = np.stack([X[:, labels == g].sum(axis=1) for g in range(n)], axis=1)
        K = additive_kernel(merged, kernel=kernel)
        score = np.sum(L_P * K) / np.sum(L_U * K)
        if n < 6:
            assert hierarchy.scores[5 - n] == pytest.approx(score, rel=1e-8)


@pytest.mark.parametrize("kernel", CURVED)
@given(labelled_counts(max_words=7), st.sampled_from(["csm", "lpp", "nda"]))
@settings(max_examples=25)
def test_every_merge_is_the_best_one_recomputed_from_kernel_matrices(kernel, case, criterion):
    X, y = np.abs(case[0]), case[1]
    L_P, L_U = (laplacian(structure) for structure in resolve_criterion(criterion).structures(X, y))
    hierarchy = merge_words(X, y, criterion=criterion, kernel=kernel)
    zero = int((X == 0).all(axis=0).sum())

    def ratio(Y):
        K = additive_kernel(Y, kernel=kernel)
        denominator = np.sum(L_U * K)
        return np.sum(L_P * K) / denominator if denominator > 1e-9 * np.abs(K).max() else np.nan

    Y, names = X.copy(), list(range(X.shape[1]))
    for k, (s, t) in enumerate(hierarchy.merges.tolist()):
        values = []
        for i in range(len(names)):
            for j in range(i + 1, len(names)):
                Z = np.delete(Y, j, axis=1)
                Z[:, i] = Y[:, i] + Y[:, j]
                values.append(ratio(Z))
                if (names[i], names[j]) == (s, t):
                    chosen, after = values[-1], Z
        Y = after
        names.remove(t)
        if np.isnan(values).any():
            break
        assert hierarchy.scores[k] == pytest.approx(chosen, rel=1e-6, abs=1e-9)
        if k >= zero - 1:
            assert chosen == pytest.approx(max(values), rel=1e-6, abs=1e-9)


def test_rows_of_the_linear_kernel_are_the_plain_engine():
    """Entries computed from values must give what adding rows gives."""
    rng = np.random.default_rng(0)
    X, y = rng.random((20, 40)), np.arange(20) % 2
    structures = resolve_criterion("csm").structures(X, y)
    traces = KernelTraces("linear", X.min(), X.sum(axis=1).max())
    plain = merge_words(X, y, criterion="csm")
    for name in SEARCHES:
        search = SEARCHES[name](KernelRows(X.T, lambda values: [traces.trace(one, values) for one in structures]))
        pairs, scores = np.empty((39, 2), dtype=np.int64), np.empty(39)
        search.advance(pairs[:10], scores[:10])
        search.advance(pairs[10:], scores[10:])
        np.testing.assert_array_equal(pairs, plain.merges)
        np.testing.assert_allclose(scores, plain.scores)


@pytest.mark.parametrize("kernel", CURVED)
def test_scatter_along_positive_graphs_never_grows(kernel):
    rng = np.random.default_rng(0)
    values = rng.random((2, 12)) * (rng.random((2, 12)) < 0.7)
    W = np.abs(rng.normal(size=(12, 12)))
    graph = GraphLaplacian(np.triu(W, 1) + np.triu(W, 1).T)
    traces = KernelTraces(kernel, 1e-3, 24.0)
    apart = traces.trace(graph, values).sum()
    assert traces.trace(graph, values.sum(axis=0, keepdims=True))[0] <= apart + 1e-12


def test_bad_input():
    rng = np.random.default_rng(0)
    X, y = rng.random((10, 5)), np.arange(10) % 2
    with pytest.raises(BagwiseError, match="'aib' is not one"):
        merge_words(X, y, criterion="aib", kernel="chi2")
    X[3, 1] = -0.5
    with pytest.raises(BagwiseError, match=r"kernel='chi2' needs non-negative data, but sample 3, word 1 is -0\.5"):
        WordMerger(kernel="chi2").fit(X, y)


def test_the_tolerance_is_the_users():
    rng = np.random.default_rng(0)
    X, y = rng.random((900, 5)) + 0.01, np.arange(900) % 2
    exact = merge_words(X, y, kernel=AdditiveKernel("chi2"))
    rough = WordMerger(kernel=AdditiveKernel("chi2", tolerance=1e-6)).fit(X, y).hierarchy_
    np.testing.assert_allclose(exact.scores, rough.scores, rtol=1e-3)
    assert not np.array_equal(exact.scores, rough.scores)
    with pytest.raises(BagwiseError, match="tolerance must be"):
        AdditiveKernel("chi2", tolerance=0)
    with pytest.raises(BagwiseError, match="Did you mean 'hellinger'"):
        AdditiveKernel("helinger")


@pytest.mark.parametrize("kernel", ["chi2", "jensen_shannon"])
@pytest.mark.parametrize("n", [6, 900])
def test_tiny_values(kernel, n):
    rng = np.random.default_rng(0)
    X, y = rng.random((n, 4)), np.arange(n) % 2
    plain = merge_words(np.where(np.arange(n)[:, None] == 0, 0.0, X), y, kernel=kernel)
    X[0] = [1e-300, 5e-324, 0, 1e-200]
    assert np.allclose(merge_words(X, y, kernel=kernel).scores, plain.scores)


def test_values_in_kernel_space_are_held_against_the_limit():
    X = sp.random_array((2000, 50), density=0.01, format="csr", random_state=np.random.default_rng(0))
    with pytest.raises(BagwiseError, match=r"keeps the values of.*limit is 100\.00 kB"):
        merge_words(X, np.arange(2000) % 2, kernel="hellinger", memory_limit="100kB")


@pytest.mark.parametrize("criterion", ["csm", "lpp"])
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_constant_data_have_no_score(kernel, criterion):
    """Rounding errors are not taken for distances."""
    X, y = np.tile(np.random.default_rng(0).random(9), (12, 1)), np.arange(12) % 2
    hierarchy, linear = (merge_words(X, y, criterion=criterion, kernel=name) for name in (kernel, "linear"))
    np.testing.assert_array_equal(hierarchy.scores, np.full(8, np.nan))
    np.testing.assert_array_equal(hierarchy.merges, linear.merges)
