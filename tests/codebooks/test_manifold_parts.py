"""The parts of manifold-optimised words: histograms, objective, gradient, graph, targets, learning."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from bagwise import Bags, BagwiseError
from bagwise.codebooks.manifold import target as target_module
from bagwise.codebooks.manifold.learning import (
    METRICS,
    Adam,
    SoftHistograms,
    chi2_distances,
    learn_words,
    pair_objective,
)
from bagwise.codebooks.manifold.target import (
    LAPLACIANS,
    TARGETS,
    embed,
    given_target,
    learn_target,
    mixed_distances,
    neighbor_graph,
    typical_distance,
    use_labels,
)


def plain_histograms(values, offsets, V, g):
    T = []
    for start, stop in itertools.pairwise(offsets):
        rows = []
        for x in values[start:stop]:
            z = np.exp(-np.linalg.norm(V - x, axis=1) / g + np.linalg.norm(V - x, axis=1).min() / g)
            rows.append(z / z.sum())
        T.append(np.mean(rows, axis=0))
    return np.array(T)


def plain_chi2(a, b):
    total = a + b
    return 0.5 * np.sum(np.where(total > 0, (a - b) ** 2 / np.where(total > 0, total, 1), 0))


def plain_hellinger(a, b):
    return 0.5 * np.sum((np.sqrt(a) - np.sqrt(b)) ** 2)


PLAIN = {"chi2": plain_chi2, "hellinger": plain_hellinger}


def plain_objective(T, target, sigma, metric):
    distance = PLAIN[metric]
    return 0.5 * sum(
        (np.exp(-distance(a, b) / sigma) - target[i, j]) ** 2 for i, a in enumerate(T) for j, b in enumerate(T)
    )


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = rng.integers(1, 5, draw(st.integers(2, 6)))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    d, k = draw(st.integers(1, 4)), draw(st.integers(1, 20))
    values, V = rng.normal(size=(offsets[-1], d)), rng.normal(size=(k, d))
    target = rng.random((len(lengths), len(lengths)))
    target = (target + target.T) / 2
    np.fill_diagonal(target, 1)
    return values, offsets, V, target, draw(st.sampled_from([0.05, 0.5, 2.0])), draw(st.sampled_from([0.1, 1.0, 10.0]))


@pytest.mark.parametrize("metric", METRICS)
def test_bins_that_are_all_but_empty_do_no_harm(metric):
    """The far tail of a softmax is below the smallest normal number, whose inverse is the largest there is."""
    T = np.array([[1.0, 5e-324, 0.0], [1.0, 0.0, 5e-324], [0.5, 0.5, 1e-310]])
    result = pair_objective(T, np.eye(3), 0.5, metric=metric)
    expected = pair_objective(np.where(T < 1e-300, 0.0, T), np.eye(3), 0.5, metric=metric)
    assert result.value == pytest.approx(expected.value)
    np.testing.assert_allclose(result.gradient, expected.gradient)


@given(problems())
def test_histograms_are_those_of_the_definition(problem):
    values, offsets, V, _, g, _ = problem
    T = SoftHistograms(values, offsets, g).histograms(V)
    np.testing.assert_allclose(T, plain_histograms(values, offsets, V, g), atol=1e-10)
    np.testing.assert_allclose(T.sum(axis=1), 1)


@pytest.mark.parametrize("offset", [0.0, 1e5, -3e6])
def test_data_far_from_the_origin_lose_no_digits(offset):
    rng = np.random.default_rng(0)
    values, V, offsets = rng.normal(size=(60, 4)) + offset, rng.normal(size=(7, 4)) + offset, np.array([0, 10, 60])
    G = rng.normal(size=(2, 7))
    exact = np.longdouble(values)[:, np.newaxis] - np.longdouble(V)
    distances = np.sqrt((exact**2).sum(axis=2))
    U = np.exp((distances.min(axis=1, keepdims=True) - distances) / np.longdouble(0.05))
    U /= U.sum(axis=1, keepdims=True)
    expected = np.array([U[:10].mean(axis=0), U[10:].mean(axis=0)], dtype=np.float64)
    soft = SoftHistograms(values, offsets, 0.05)
    np.testing.assert_allclose(soft.histograms(V), expected, rtol=1e-9, atol=1e-12)
    rows = np.repeat(G / np.diff(offsets)[:, np.newaxis], np.diff(offsets), axis=0)
    slopes = U * (rows - (U * rows).sum(axis=1, keepdims=True)) / distances / np.longdouble(-0.05)
    by_word, by_feature = soft.pull_back(V, G, features=True)
    np.testing.assert_allclose(by_word, -(slopes[..., np.newaxis] * exact).sum(axis=0).astype(float), atol=1e-8)
    np.testing.assert_allclose(by_feature, (slopes[..., np.newaxis] * exact).sum(axis=1).astype(float), atol=1e-8)


def test_blocks_do_not_matter(monkeypatch):
    from bagwise.codebooks.manifold import learning as module

    rng = np.random.default_rng(0)
    values, V, G = rng.normal(size=(100, 3)), rng.normal(size=(7, 3)), rng.normal(size=(4, 7))
    whole = SoftHistograms(values, np.array([0, 10, 11, 60, 100]), 0.3)
    expected = whole.histograms(V), *whole.pull_back(V, G, features=True)
    monkeypatch.setattr(module, "_ROWS", 13)
    monkeypatch.setattr(module, "_TASK_ROWS", 26)
    for one, other in zip(expected, (whole.histograms(V), *whole.pull_back(V, G, features=True)), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-12)


def test_tiny_bandwidth_is_hard_assignment():
    rng = np.random.default_rng(0)
    values, V = rng.normal(size=(50, 3)), rng.normal(size=(6, 3))
    nearest = np.argmin(np.linalg.norm(values[:, np.newaxis] - V, axis=2), axis=1)
    T = SoftHistograms(values, np.array([0, 50]), 1e-9).histograms(V)
    np.testing.assert_allclose(T[0], np.bincount(nearest, minlength=6) / 50)


@pytest.mark.parametrize("metric", METRICS)
@given(problem=problems())
def test_the_objective_is_that_of_the_definition(problem, metric):
    values, offsets, V, target, g, sigma = problem
    T = SoftHistograms(values, offsets, g).histograms(V)
    result = pair_objective(T, target, sigma, metric=metric)
    assert result.value == pytest.approx(plain_objective(T, target, sigma, metric), rel=1e-9, abs=1e-12)
    assert np.isnan(result.held_out)
    expected = [[PLAIN[metric](a, b) for b in T] for a in T]
    np.testing.assert_allclose(METRICS[metric](T), expected, atol=1e-12)
    np.testing.assert_allclose(METRICS[metric](T[1:], T), expected[1:], atol=1e-12)


def finite_differences(function, at, h=1e-6):
    gradient = np.empty_like(at)
    for index in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[index] = h
        gradient[index] = (function(at + step) - function(at - step)) / (2 * h)
    return gradient


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_those_of_finite_differences(seed, metric):
    rng = np.random.default_rng(seed)
    offsets = np.array([0, 3, 4, 8, 10])
    values, V = rng.normal(size=(10, 3)), rng.normal(size=(5, 3))
    target = np.full((4, 4), 0.3) + 0.7 * np.eye(4)
    g, sigma = 0.7, 0.4

    def objective(T):
        return pair_objective(T, target, sigma, metric=metric).value

    soft = SoftHistograms(values, offsets, g)
    T = soft.histograms(V)
    G = pair_objective(T, target, sigma, metric=metric).gradient
    np.testing.assert_allclose(G, finite_differences(objective, T), rtol=1e-4, atol=1e-7)
    by_word, by_feature = soft.pull_back(V, G, features=True)
    np.testing.assert_allclose(
        by_word, finite_differences(lambda W: objective(soft.histograms(W)), V), rtol=1e-4, atol=1e-7
    )
    np.testing.assert_allclose(
        by_feature,
        finite_differences(lambda x: objective(SoftHistograms(x, offsets, g).histograms(V)), values),
        rtol=1e-4,
        atol=1e-7,
    )


@pytest.mark.parametrize("metric", METRICS)
def test_a_word_on_a_feature_has_a_finite_gradient(metric):
    values = np.array([[0.0, 0], [1, 1], [2, 0]])
    soft = SoftHistograms(values, np.array([0, 2, 3]), 0.5)
    V = values[:2].copy()
    G = pair_objective(soft.histograms(V), np.eye(2), 0.5, metric=metric).gradient
    assert np.isfinite(soft.pull_back(V, G)[0]).all()


@pytest.mark.parametrize("metric", METRICS)
def test_bins_that_are_empty_in_both_histograms(metric):
    T = np.array([[1.0, 0, 0], [0.5, 0.5, 0]])
    result = pair_objective(T, np.eye(2), 1.0, metric=metric)
    assert np.isfinite(result.gradient).all()
    assert result.gradient[:, 2].tolist() == [0, 0]


@pytest.mark.parametrize("metric", METRICS)
def test_held_out_pairs_are_summed_apart(metric, monkeypatch):
    from bagwise.codebooks.manifold import learning as module

    monkeypatch.setattr(module, "_ROWS", 13)
    rng = np.random.default_rng(0)
    T = rng.dirichlet(np.ones(6), size=60)
    target = np.eye(60)
    whole = pair_objective(T, target, 0.5, metric=metric)
    part = pair_objective(T, target, 0.5, held_out=0.2, metric=metric)
    plain = sum(
        part_of.value for part_of in (pair_objective(T[[i, j]], np.eye(2), 0.5, metric=metric)
                                      for i in range(60) for j in range(i))
    )  # fmt: skip
    assert whole.value == pytest.approx(plain)
    assert part.value + part.held_out == pytest.approx(whole.value)
    assert 0.1 * whole.value < part.held_out < 0.3 * whole.value
    again = pair_objective(T, target, 0.5, held_out=0.2, n_threads=2, metric=metric)
    assert again.value == part.value
    np.testing.assert_array_equal(again.gradient, part.gradient)


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(1, 12))
def test_the_graph_joins_nearest_objects(seed, n, k):
    T = np.random.default_rng(seed).dirichlet(np.ones(4), size=n)
    distances = chi2_distances(T)
    graph = neighbor_graph(distances, k, 0.5).toarray()
    np.testing.assert_array_equal(graph, graph.T)
    assert not graph.diagonal().any()
    nearest = [set(sorted((j for j in range(n) if j != i), key=lambda j: (distances[i, j], j))[:k]) for i in range(n)]
    for i in range(n):
        for j in range(n):
            assert (graph[i, j] > 0) == (j in nearest[i] or i in nearest[j])
    L = np.diag(graph.sum(axis=1)) - graph
    values = np.linalg.eigvalsh(L)
    assert values[0] > -1e-9
    n_parts = sp.csgraph.connected_components(sp.csr_array(graph))[0]
    assert np.sum(values < 1e-9) == n_parts


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_few_eigenvectors_are_those_of_all(laplacian, monkeypatch):
    from bagwise.codebooks.manifold import target as module

    T = np.random.default_rng(0).dirichlet(np.ones(5), size=120)
    graph = neighbor_graph(chi2_distances(T), 8, 0.1)
    dense = embed(graph, 4, laplacian)
    monkeypatch.setattr(module, "_DENSE", 10)
    np.testing.assert_allclose(embed(graph, 4, laplacian), dense, atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1 if laplacian == "symmetric" else 0), 1)


def test_parts_of_a_graph_are_told_apart_and_distances_do_not_depend_on_the_basis(monkeypatch):
    from bagwise.codebooks.manifold import target as module

    blocks = sp.block_diag([np.ones((5, 5)) - np.eye(5)] * 3, format="csr")
    dense = embed(sp.csr_array(blocks), 3)
    distances = np.linalg.norm(dense[:, np.newaxis] - dense, axis=2)
    assert distances[:5, :5].max() < 1e-7 < 0.1 < distances[0, 5:].min()
    monkeypatch.setattr(module, "_DENSE", 5)
    few = embed(sp.csr_array(blocks), 3)
    np.testing.assert_allclose(np.linalg.norm(few[:, np.newaxis] - few, axis=2), distances, atol=1e-6)


def test_bad_embeddings():
    graph = neighbor_graph(np.ones((4, 4)), 2, 1.0)
    with pytest.raises(BagwiseError, match="n_components must be from 1 to the number of objects, 4, got 5"):
        embed(graph, 5)
    with pytest.raises(BagwiseError, match="laplacian"):
        embed(graph, 2, "normal")
    with pytest.raises(BagwiseError, match="at least one neighbour"):
        embed(sp.csr_array((4, 4)), 2, "random_walk")


@pytest.mark.parametrize("kind", TARGETS)
def test_targets_join_what_is_near_along_the_manifold(kind):
    rng = np.random.default_rng(0)
    T = np.concatenate([rng.dirichlet([20, 1, 1], 15), rng.dirichlet([1, 1, 20], 15)])
    target, embedding = learn_target(
        chi2_distances(T), kind=kind, n_components=2, n_neighbors=4, sigma_histogram=1.0, sigma_spectral=0.1,
        laplacian="unnormalized",
    )  # fmt: skip
    assert embedding.shape == (30, 2)
    np.testing.assert_array_equal(target, target.T)
    assert target.diagonal().tolist() == [1] * 30
    assert target[:15, :15].mean() > 2 * target[:15, 15:].mean()


def test_cosines_are_those_of_the_symmetric_laplacian():
    T = np.random.default_rng(0).dirichlet(np.ones(5), size=40)
    distances = chi2_distances(T)
    target, embedding = learn_target(
        distances, kind="cosine", n_components=3, n_neighbors=6, sigma_histogram=9.0, sigma_spectral=9.0,
        laplacian="symmetric",
    )  # fmt: skip
    nearest = np.sort(distances, axis=1)[:, 1:7]
    W = neighbor_graph(distances, 6, np.median(nearest)).toarray()
    root = np.sqrt(np.outer(W.sum(axis=1), W.sum(axis=1)))
    U = np.linalg.eigh(np.eye(40) - W / root)[1][:, :3]
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    np.testing.assert_allclose(target, np.maximum(U @ U.T, 0), atol=1e-7)
    np.testing.assert_allclose(embedding @ embedding.T, U @ U.T, atol=1e-7)


def test_mixed_distances_count_alike():
    rng = np.random.default_rng(0)
    own, other = (chi2_distances(rng.dirichlet(np.ones(4), 9)) for _ in range(2))
    mixed = mixed_distances(own, other)
    np.testing.assert_allclose(mixed_distances(own, 7 * other), mixed)
    np.testing.assert_allclose(2 * mixed - own, other * np.median(own[np.triu_indices(9, k=1)])
                               / np.median(other[np.triu_indices(9, k=1)]))  # fmt: skip
    np.testing.assert_array_equal(mixed_distances(own, np.zeros((9, 9))), own)


def plain_fisher(bags, words, n_axes):
    """Bag by bag and cell by cell, on the principal axes."""
    x = np.concatenate(bags) - np.concatenate(bags).mean(axis=0)
    values, axes = np.linalg.eigh(x.T @ x / len(x))
    kept = np.argsort(-values)[:n_axes]
    x = x @ axes[:, kept] / np.sqrt(values[kept].mean())
    cell = np.argmin(((x[:, np.newaxis] - words) ** 2).sum(axis=2), axis=1)
    rows = []
    for own in np.split(np.arange(len(x)), np.cumsum([len(bag) for bag in bags])[:-1]):
        parts = [[], [], []]
        for k in range(len(words)):
            share, mean, var = np.mean(cell == k), x[cell == k].mean(axis=0), x[cell == k].var(axis=0)
            inside = x[own[cell[own] == k]]
            parts[0].append((len(inside) / len(own) - share) / np.sqrt(share))
            parts[1].extend(((inside - mean) / np.sqrt(share * var)).sum(axis=0) / len(own))
            parts[2].extend((((inside - mean) ** 2 / var - 1) / np.sqrt(2 * share)).sum(axis=0) / len(own))
        row = np.concatenate(parts)
        row = np.sign(row) * np.sqrt(np.abs(row))
        rows.append(row / np.linalg.norm(row))
    return np.array(rows)


def test_fisher_vectors_are_those_of_the_definition(monkeypatch):
    rng = np.random.default_rng(0)
    bags = [rng.normal(rng.normal(size=5), [1, 2, 3, 4, 5], (n, 5)) for n in (30, 1, 25, 40)]
    learned = []
    real = target_module.kmeans_words
    monkeypatch.setattr(target_module, "kmeans_words", lambda *a, **k: learned.append(real(*a, **k)) or learned[-1])
    monkeypatch.setattr(target_module, "_N_AXES", 4)
    F = target_module.fisher_vectors(Bags.from_list(bags, dtype=np.float64), 3, 0)
    expected = plain_fisher(bags, learned[0].words, 4)
    # axes have no direction: compare products of rows
    np.testing.assert_allclose(F @ F.T, expected @ expected.T, atol=1e-6)
    assert F.shape == (4, 3 * (1 + 2 * 4))


def test_fisher_vectors_of_equal_or_few_features():
    assert not target_module.fisher_vectors(Bags.from_list([np.ones((3, 2))] * 4), 16, 0).any()
    few = target_module.fisher_vectors(Bags.from_list([np.eye(2), np.ones((1, 2))]), 16, 0)
    assert np.isfinite(few).all()


def test_isomap_keeps_path_lengths_on_a_line():
    line = np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
    _, embedding = learn_target(
        line, kind="isomap", n_components=1, n_neighbors=1, sigma_histogram=1.0, sigma_spectral=0.1,
        laplacian="unnormalized",
    )  # fmt: skip
    gaps = np.diff(embedding[:, 0])
    np.testing.assert_allclose(gaps, gaps[0])


def test_given_targets_are_checked():
    with pytest.raises(BagwiseError, match=r"shape \(3, 3\); got \(2, 2\)"):
        given_target(np.eye(2), 3)
    with pytest.raises(BagwiseError, match="between 0 and 1"):
        given_target(2 * np.eye(2), 2)
    with pytest.raises(BagwiseError, match=r"target\[0, 1\] is 0.5 and target\[1, 0\] is 0"):
        given_target([[1, 0.5], [0, 1]], 2)


def test_labels_set_the_target_of_known_pairs():
    target = np.full((4, 4), 0.5)
    use_labels(target, np.array([0, 1, -1, 0]))
    assert target[0].tolist() == [1, 0, 0.5, 1]
    assert target[2].tolist() == [0.5, 0.5, 1, 0.5]


def test_adam_is_that_of_the_paper():
    adam, m, v = Adam(0.1, (2,)), np.zeros(2), np.zeros(2)
    for t, gradient in enumerate(np.random.default_rng(0).normal(size=(5, 2)), start=1):
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        expected = -0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(adam.step(gradient), expected)


def moons(rng, n=40, length=20):
    """Objects whose means lie on two interleaved half circles."""
    angles = rng.uniform(0, np.pi, n)
    upper = np.arange(n) < n // 2
    centres = np.where(
        upper[:, np.newaxis],
        np.stack([np.cos(angles), np.sin(angles)], axis=1),
        np.stack([1 - np.cos(angles), 0.4 - np.sin(angles)], axis=1),
    )
    values = (centres[:, np.newaxis] + 0.15 * rng.normal(size=(n, length, 2))).reshape(-1, 2)
    return values, np.arange(0, n * length + 1, length), upper.astype(int)


class TestLearning:
    def problem(self):
        rng = np.random.default_rng(0)
        values, offsets, y = moons(rng)
        V = KMeans(12, n_init=5, random_state=0).fit(values).cluster_centers_
        soft = SoftHistograms(values, offsets, 0.1)
        target, _ = learn_target(
            chi2_distances(soft.histograms(V)), kind="spectral", n_components=2, n_neighbors=5, sigma_histogram=1.0,
            sigma_spectral=0.1, laplacian="unnormalized",
        )  # fmt: skip
        return soft, V, target, y

    def test_small_plain_steps_lower_the_objective(self):
        soft, V, target, _ = self.problem()
        before = np.inf
        for _ in range(5):
            result = pair_objective(soft.histograms(V), target, 1.0)
            assert result.value < before
            before = result.value
            V = V - 1e-4 * soft.pull_back(V, result.gradient)[0]

    def test_objects_get_closer_to_the_target(self):
        soft, V, target, _ = self.problem()
        learning = learn_words(soft, V, target, sigma=1.0, max_iter=10, learning_rate=0.03)
        assert learning.n_iter == 10
        assert len(learning.objective) == 11
        assert learning.objective[-1] < 0.95 * learning.objective[0]

    def test_a_callback_ends_learning(self):
        soft, V, target, _ = self.problem()
        learning = learn_words(
            soft, V, target, sigma=1.0, max_iter=10, learning_rate=0.03, callback=lambda step, value: step == 3
        )
        assert learning.n_iter == 3
        shorter = learn_words(soft, V, target, sigma=1.0, max_iter=3, learning_rate=0.03)
        np.testing.assert_array_equal(learning.words, shorter.words)

    def test_held_out_pairs_choose_the_words(self):
        soft, V, target, _ = self.problem()
        learning = learn_words(soft, V, target, sigma=1.0, max_iter=200, learning_rate=0.5, held_out=0.3, patience=2)
        assert len(learning.held_out) < 201
        assert learning.n_iter == int(np.argmin(learning.held_out))
        assert len(learning.held_out) == learning.n_iter + 3

    def test_no_step_changes_nothing(self):
        soft, V, target, _ = self.problem()
        np.testing.assert_array_equal(learn_words(soft, V, target, sigma=1.0, max_iter=0, learning_rate=0.1).words, V)


def test_the_typical_distance_leaves_out_that_to_itself():
    """Parts of a row that is partitioned come in any order: sorted rows are the oracle."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(3, 80)), int(rng.integers(1, 30))
        distances = chi2_distances(rng.dirichlet(np.ones(5), n))
        expected = np.median(np.sort(distances, axis=1)[:, 1 : min(k, n - 1) + 1])
        assert typical_distance(distances, k) == expected
