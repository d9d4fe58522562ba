import sys
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError
from bagwise.merging.sketching import lloyd
from bagwise.merging.sketching.feature_groups import group_features
from bagwise.merging.sketching.lloyd import Clustering, cluster_rows, nearest_centres


def kept(points, labels, signs):
    """Σ_j |Σ_{k in G_j} σ_k x_k|² / |G_j|: the objective, group by group."""
    points = points.astype(np.float64)
    total = 0.0
    for group in np.unique(labels):
        members = labels == group
        total += np.sum((signs[members] @ points[members]) ** 2) / members.sum()
    return total


def scatter_within(points, labels, signs):
    points = signs[:, np.newaxis] * points.astype(np.float64)
    return sum(((points[labels == g] - points[labels == g].mean(axis=0)) ** 2).sum() for g in np.unique(labels))


def best_kept(points, n_groups, bipolar):
    """The largest objective over all groups and signs, one after the other."""
    n = len(points)
    all_signs = [np.array(s) for s in product([1, -1], repeat=n)] if bipolar else [np.ones(n)]
    labellings = [np.array(g) for g in product(range(n_groups), repeat=n) if set(g) == set(range(n_groups))]
    return max(kept(points, labels, signs) for labels in labellings for signs in all_signs)


def problem(points, weights=None, bipolar=False):
    weights = np.ones(len(points)) if weights is None else weights
    return lloyd._Problem(points, weights, lloyd._squares(points), bipolar, nearest_centres)


@pytest.mark.parametrize("bipolar", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_clusters", [1, 2, 7, 40, 120])
def test_objective_is_scatter_less_what_is_within_groups(n_clusters, dtype, bipolar):
    points = np.random.default_rng(n_clusters).normal(size=(120, 9)).astype(dtype)
    found = cluster_rows(points, n_clusters, bipolar=bipolar, tol=0)
    total = np.sum(points.astype(np.float64) ** 2)
    np.testing.assert_allclose(found.cost, scatter_within(points, found.labels, found.signs), atol=1e-9 * total)
    np.testing.assert_allclose(total - found.cost, kept(points, found.labels, found.signs))
    np.testing.assert_array_equal(np.unique(found.labels), np.arange(n_clusters))
    assert (np.diff(found.costs) < 0).all()
    assert bipolar or (found.signs == 1).all()
    eigenvalues = np.linalg.svd(points.astype(np.float64), compute_uv=False) ** 2
    assert total - found.cost <= eigenvalues[:n_clusters].sum() * (1 + 1e-9)  # what PCA keeps


@pytest.mark.parametrize("bipolar", [False, True])
def test_at_the_end_all_points_are_with_their_nearest_mean(bipolar):
    points = np.random.default_rng(0).normal(size=(150, 6))
    found = cluster_rows(points, 8, bipolar=bipolar, tol=0)
    assert found.n_iter < 100
    turned = found.signs[:, np.newaxis] * points
    means = np.array([turned[found.labels == g].mean(axis=0) for g in range(8)])
    centres = np.concatenate([means, -means]) if bipolar else means
    distances = ((points[:, np.newaxis] - centres) ** 2).sum(axis=2)
    own = ((turned - means[found.labels]) ** 2).sum(axis=1)
    np.testing.assert_allclose(own, distances.min(axis=1), atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_bipolar_keeps_at_least_as_much_and_the_optimum_is_found(seed):
    points = np.random.default_rng(seed).normal(size=(6, 3))
    for n_groups in (1, 2, 3):
        plain, bipolar = best_kept(points, n_groups, False), best_kept(points, n_groups, True)
        assert bipolar >= plain - 1e-12
        for optimum, turn in ((plain, False), (bipolar, True)):
            found = cluster_rows(points, n_groups, bipolar=turn, n_init=60, tol=0, seed=seed)
            value = kept(points, found.labels, found.signs)
            assert value <= optimum + 1e-9
            np.testing.assert_allclose(value, optimum)


@pytest.mark.parametrize("seed", range(3))
def test_stacked_with_its_negative_the_bipolar_optimum_is_twice(seed):
    points = np.random.default_rng(seed).normal(size=(4, 3))
    stacked = np.concatenate([points, -points])
    for n_groups in (1, 2):
        optimum = best_kept(points, n_groups, True)
        groups = group_features(stacked.copy(), n_groups, bipolar=True, n_init=40, tol=0)
        np.testing.assert_allclose(kept(stacked, groups.labels, groups.signs), 2 * optimum)
        np.testing.assert_array_equal(groups.labels[:4], groups.labels[4:])
        np.testing.assert_array_equal(groups.signs[:4], -groups.signs[4:])
    assert best_kept(stacked[[0, 1, 2, 4, 5, 6]], 2, True) == pytest.approx(2 * best_kept(points[:3], 2, True))


@pytest.mark.parametrize("seed", range(5))
def test_turning_signs_is_lloyd_on_mirrored_points_step_by_step(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(80, 5))
    n, k = 80, 6
    centres = points[rng.choice(n, k, replace=False)]
    mirrored = np.concatenate([points, -points])
    both = np.concatenate([centres, -centres])
    for _ in range(15):
        labels, signs, scores = nearest_centres(points, centres, bipolar=True)
        wide, _, wide_scores = nearest_centres(mirrored, both)
        np.testing.assert_array_equal(wide[:n] % k, labels)
        np.testing.assert_array_equal(np.where(wide[:n] < k, 1, -1), signs)
        np.testing.assert_array_equal((wide[:n] + k) % (2 * k), wide[n:])  # the mirror image stays one
        np.testing.assert_allclose(wide_scores[:n], scores)
        if len(np.unique(labels)) < k:
            break
        centres = np.array([signs[labels == g] @ points[labels == g] / (labels == g).sum() for g in range(k)])
        both = np.array([mirrored[wide == g].mean(axis=0) for g in range(2 * k)])
        np.testing.assert_allclose(both, np.concatenate([centres, -centres]), atol=1e-12)


@pytest.mark.parametrize("bipolar", [False, True])
def test_weights_are_repetitions(bipolar):
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(30, 4)), rng.integers(1, 5, 30)
    repeated = np.repeat(points, weights, axis=0)
    centres = points[:5]
    weighted = problem(points, weights.astype(float), bipolar).iterate(centres, 20, 0)
    plain = problem(repeated, None, bipolar).iterate(centres, 20, 0)
    np.testing.assert_array_equal(np.repeat(weighted.labels, weights), plain.labels)
    np.testing.assert_allclose(weighted.costs, plain.costs)


@pytest.mark.parametrize("bipolar", [False, True])
def test_nearest_centres_one_by_one(bipolar, monkeypatch):
    rng = np.random.default_rng(2)
    points, centres = rng.normal(size=(70, 6)), rng.normal(size=(9, 6))
    labels, signs, scores = nearest_centres(points, centres, bipolar)
    for i, point in enumerate(points):
        options = {
            (g, s): ((s * point - centres[g]) ** 2).sum() for g in range(9) for s in ((1, -1) if bipolar else (1,))
        }
        assert min(options, key=options.get) == (labels[i], signs[i])
        assert point @ point - 2 * scores[i] == pytest.approx(min(options.values()))
    monkeypatch.setattr(lloyd, "_BLOCK", 4)
    for n_threads in (1, 3):
        for mine, other in zip(
            nearest_centres(points, centres, bipolar, n_threads), (labels, signs, scores), strict=True
        ):
            np.testing.assert_allclose(mine, other)
    np.testing.assert_array_equal(nearest_centres(points, centres, bipolar)[0], labels)
    equal = nearest_centres(np.zeros((2, 6)), np.concatenate([centres[:1], centres[:1]]), bipolar)
    assert equal[0].tolist() == [0, 0]  # the lowest of equals
    assert equal[1].tolist() == [1, 1]  # and 1 for no sign


def test_starts_are_drawn_by_the_rule():
    """Drawing several centres before distances are brought up to date is k-means++ all the same."""
    points = np.array([[0.0], [1.0], [3.0], [4.5], [9.0]])
    weights = np.array([1.0, 3.0, 1.0, 2.0, 1.0])
    expected = {}
    for order in permutations(range(5), 4):
        probability = weights[order[0]] / weights.sum()
        for step in range(1, 4):
            distances = weights * ((points - points[list(order[:step])].T) ** 2).min(axis=1)
            probability *= distances[order[step]] / distances.sum()
        expected[order] = probability
    rng = np.random.default_rng(3)
    task, n_draws = problem(points, weights), 8000
    counts = dict.fromkeys(expected, 0)
    for _ in range(n_draws):
        counts[tuple(task.draw_centres(4, rng).tolist())] += 1
    chi2 = sum((counts[order] - n_draws * p) ** 2 / (n_draws * p) for order, p in expected.items())
    assert sum(expected.values()) == pytest.approx(1)
    assert chi2 < 180  # 119 degrees of freedom: once in 5000 by chance


@pytest.mark.parametrize("bipolar", [False, True])
def test_starts_are_different_points(bipolar):
    points = np.random.default_rng(4).normal(size=(200, 3)).astype(np.float32)
    for n_clusters in (1, 5, 130, 200):
        drawn = problem(points, bipolar=bipolar).draw_centres(n_clusters, np.random.default_rng(0))
        assert len(set(drawn.tolist())) == n_clusters
    close = np.float32(1) + np.arange(6, dtype=np.float32)[:, np.newaxis] * np.finfo(np.float32).eps
    assert len(set(problem(close).draw_centres(6, np.random.default_rng(0)).tolist())) == 6


def test_empty_clusters_get_the_points_that_are_farthest():
    points = np.array([[0.0], [1.0], [2.0], [10.0], [30.0]])
    found = problem(points).iterate(np.zeros((3, 1)), 1, 0)  # all go to the first of three equal centres
    assert found.labels.tolist() == [0, 0, 0, 2, 1]
    labels, signs = np.zeros(3, dtype=np.int64), -np.ones(3, dtype=np.int8)
    lloyd._fill_empty(labels, signs, np.array([1.0, 5.0, 5.0]), 3)
    assert labels.tolist() == [0, 1, 2]
    assert signs.tolist() == [-1, 1, 1]


@pytest.mark.parametrize("bipolar", [False, True])
def test_mini_batches(bipolar):
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 6, 900)
    points = (10 * np.eye(6)[truth] + rng.normal(size=(900, 6))).astype(np.float32)
    settings = {"bipolar": bipolar, "batch_size": 100, "n_init": 5}
    found = cluster_rows(points, 6, **settings)
    np.testing.assert_allclose(found.cost, scatter_within(points, found.labels, found.signs), rtol=1e-5)
    full = cluster_rows(points, 6, bipolar=bipolar, n_init=5)
    assert found.cost < 1.01 * full.cost  # well separated, so both find them
    again = cluster_rows(points, 6, **settings)
    np.testing.assert_array_equal(again.labels, found.labels)
    everything = cluster_rows(points, 6, bipolar=bipolar, n_init=5, batch_size=900)
    np.testing.assert_array_equal(everything.labels, full.labels)


def test_more_starts_are_never_worse_and_seeds_repeat():
    points = np.random.default_rng(6).normal(size=(100, 4))
    costs = [cluster_rows(points, 10, n_init=n, seed=1).cost for n in (1, 3, 9)]
    assert costs[0] >= costs[1] >= costs[2]
    assert cluster_rows(points, 10, seed=2).labels.tobytes() == cluster_rows(points, 10, seed=2).labels.tobytes()
    done = []
    cluster_rows(points, 10, n_init=2, max_iter=30, progress=done.append)
    assert done == sorted(done)
    assert done[-1] == 60


@pytest.mark.parametrize("bipolar", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_faiss_finds_the_same(bipolar, dtype):
    pytest.importorskip("faiss")
    points = np.random.default_rng(7).normal(size=(300, 8)).astype(dtype)
    centres = points[:20] + dtype(0.1)
    ours, theirs = nearest_centres(points, centres, bipolar), lloyd._nearest_by_faiss(points, centres, bipolar)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)
    found = [cluster_rows(points, 12, bipolar=bipolar, backend=backend).cost for backend in ("numpy", "faiss")]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)


def test_without_faiss_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BagwiseError, match=r'pip install "bagwise\[ann\]"'):
        cluster_rows(np.eye(3), 2, backend="faiss")
    assert isinstance(cluster_rows(np.eye(3), 2), Clustering)
    with pytest.raises(BagwiseError, match="Did you mean 'numpy'"):
        cluster_rows(np.eye(3), 2, backend="nunpy")


@pytest.mark.parametrize("n_clusters", [0, 4])
def test_numbers_of_clusters_that_cannot_be(n_clusters):
    with pytest.raises(BagwiseError, match="from 1 to the number of points, 3"):
        cluster_rows(np.eye(3), n_clusters)


@st.composite
def signatures(draw):
    """Rows with repetitions, mirror images and zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n_different, n = draw(st.integers(0, 8)), draw(st.integers(1, 20))
    different = np.concatenate([np.zeros((1, 3)), rng.normal(size=(n_different, 3))])
    rows = different[rng.integers(0, n_different + 1, n)] * rng.choice([1, -1], n)[:, np.newaxis]
    return rows.astype(draw(st.sampled_from([np.float32, np.float64])))


@settings(max_examples=150)
@given(signatures(), st.integers(1, 20), st.booleans())
def test_groups_of_any_signature(signature, n_groups, bipolar):
    groups = group_features(signature.copy(), n_groups, bipolar=bipolar, tol=0)
    labels, signs = groups.labels, groups.signs
    n_groups, varies = min(n_groups, len(signature)), signature.any(axis=1)
    np.testing.assert_array_equal(np.unique(labels), np.arange(n_groups))  # exactly as many as asked for
    np.testing.assert_allclose(groups.inertia, scatter_of_varying(signature, labels, signs, varies), atol=1e-5)
    assert set(signs.tolist()) <= ({1, -1} if bipolar else {1})
    assert (signs[~varies] == 1).all()
    counted = np.bincount(labels[varies], minlength=n_groups)
    everything = np.bincount(labels, minlength=n_groups)
    np.testing.assert_array_equal(groups.sizes, np.where(counted > 0, counted, everything))
    if n_groups == len(signature):
        np.testing.assert_array_equal(labels, np.arange(n_groups))
        return
    first = [np.flatnonzero((labels == g) & varies) for g in range(n_groups)]
    leading = [members[0] for members in first if len(members)]
    assert leading == sorted(leading)
    assert (signs[leading] == 1).all()
    assert all(len(members) for members in first[: len(leading)])  # groups of constant features alone come last
    kinds = {}
    for row, group, sign in zip(signature[varies], labels[varies], signs[varies], strict=True):
        turn = np.sign(row[np.flatnonzero(row)[0]]) if bipolar else 1
        kinds.setdefault(tuple(turn * row), set()).add((group, turn * sign))
    if len(kinds) >= n_groups:
        assert all(len(places) == 1 for places in kinds.values())  # equal rows are together
        assert (labels[~varies] == 0).all()
    else:
        assert groups.inertia == 0


def scatter_of_varying(signature, labels, signs, varies):
    if not varies.any():
        return 0.0
    return scatter_within(signature[varies], labels[varies], signs[varies])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [2.0**-120, 2.0**110, 3e-30])
def test_groups_do_not_depend_on_scale(scale, dtype):
    signature = np.random.default_rng(8).normal(size=(60, 10)).astype(dtype)
    expected = group_features(signature.copy(), 7)
    scaled = group_features(signature * dtype(scale), 7)
    if np.log2(scale).is_integer():
        np.testing.assert_array_equal(scaled.labels, expected.labels)
        np.testing.assert_allclose(scaled.inertia, expected.inertia * scale**2)
    np.testing.assert_allclose(scaled.inertia / scale**2, expected.inertia, rtol=0.05)
    tiny = np.full((4, 2), np.finfo(dtype).smallest_subnormal)
    tiny[:2, 0] *= 4
    assert group_features(tiny, 2).labels.tolist() == [0, 0, 1, 1]


def test_more_than_many_features_go_by_mini_batches(monkeypatch):
    signature = np.random.default_rng(9).normal(size=(300, 4)).astype(np.float32)
    used = []
    monkeypatch.setattr("bagwise.merging.sketching.feature_groups.MANY_FEATURES", 299)
    monkeypatch.setattr("bagwise.merging.sketching.feature_groups._BATCH", 50)
    monkeypatch.setattr(lloyd, "_mini_batches", lambda *a, f=lloyd._mini_batches: used.append(a[2]) or f(*a))
    group_features(signature.copy(), 5)
    group_features(signature[:299].copy(), 5)
    group_features(signature.copy(), 40)
    assert used == [50, 160]
