import inspect
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from bagwise import BagOfFeatures, Bags, BagwiseError
from bagwise.codebooks import kmeans as kmeans_module
from bagwise.codebooks import kmeans_words, learn_codebook
from bagwise.codebooks.batches import Reservoir, as_batches
from bagwise.codebooks.distances import WordDistances, assign
from bagwise.codebooks.kmeans import distinct_rows, kmeans


def clusters(seed=0, n=600, K=8, D=5, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(K, D))[rng.integers(0, K, n)] * 5 + rng.normal(size=(n, D))).astype(dtype)


def inertia(values, words):
    return sum(min(np.sum((x - w) ** 2) for w in words.astype(float)) for x in values.astype(float))


def problem(points, weights=None, bipolar=False):
    return kmeans_module.Problem(points, np.ones(len(points)) if weights is None else weights, bipolar)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_words_are_means_and_as_good_as_those_of_scikit_learn(dtype):
    values = clusters(dtype=dtype) + dtype(100)
    found = kmeans_words(values, 8, n_init=40, tol=0, random_state=0)
    assert found.words.dtype == dtype
    np.testing.assert_allclose(found.inertia, inertia(values, found.words), rtol=1e-5)
    nearest = ((values[:, None].astype(float) - found.words) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_allclose(found.words, [values[nearest == k].mean(axis=0) for k in range(8)], rtol=1e-5)
    best = KMeans(8, n_init=20, tol=0, random_state=0).fit(values.astype(float)).inertia_
    assert found.inertia < 1.01 * best


def test_one_iteration_is_the_means_of_the_nearest():
    values = clusters(1, n=200, dtype=np.float64)
    seeds = values[problem(values - values.mean(axis=0)).draw_seeds(6, np.random.default_rng(3))]
    nearest = ((values[:, None] - seeds) ** 2).sum(axis=2).argmin(axis=1)
    found = kmeans_words(values, 6, n_init=1, max_iter=1, random_state=np.random.default_rng(3))
    np.testing.assert_allclose(found.words, [values[nearest == k].mean(axis=0) for k in range(6)])


def test_restarts_keep_the_best():
    values = clusters(2, n=300, K=12)
    few = [kmeans_words(values, 12, n_init=n, random_state=5).inertia for n in (1, 3, 6)]
    assert few == sorted(few, reverse=True)
    assert few[-1] < few[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_seeds_threads_and_batches(dtype, monkeypatch):
    values = clusters(3, n=500, dtype=dtype)
    bags = Bags(values, np.arange(0, 501, 10), dtype=dtype)
    options = {"n_words": 10, "n_samples": 200, "n_init": 2}
    words = learn_codebook(bags, random_state=1, **options)
    assert words.dtype == dtype
    monkeypatch.setattr(kmeans_module, "_TASK_ROWS", 64)
    one = learn_codebook(bags, random_state=1, **options)
    for same in (
        learn_codebook(bags, random_state=1, n_jobs=2, **options),
        learn_codebook(list(bags), random_state=1, **options),
        learn_codebook((bags[i : i + 7] for i in range(0, 50, 7)), random_state=1, **options),
        learn_codebook(bags, random_state=np.random.default_rng(1), **options),
    ):
        np.testing.assert_array_equal(same, one)
    np.testing.assert_allclose(one, words, rtol=1e-3, atol=1e-3)
    assert not np.array_equal(words, learn_codebook(bags, random_state=2, **options))


def test_a_run_ends_at_the_first_iteration_that_lowers_the_sum_little():
    points = clusters(5, n=900, K=40)
    costs = kmeans(points, 40, tol=0, random_state=0).costs
    falls = 1 - costs[1:] / costs[:-1]
    for tol in (1e-1, 1e-2, 1e-3):
        few = kmeans(points, 40, tol=tol, random_state=0)
        np.testing.assert_array_equal(few.costs, costs[: len(few.costs)])
        assert (falls[: len(few.costs) - 2] > tol).all()
        assert falls[len(few.costs) - 2] <= tol
    assert len(kmeans(points, 40, tol=1e-3, max_iter=2, random_state=0).costs) == 2


def test_words_are_learned_alike_by_default_everywhere():
    names = ("n_init", "max_iter", "tol")
    defaults = [
        {name: inspect.signature(function).parameters[name].default for name in names}
        for function in (kmeans_words, learn_codebook, BagOfFeatures)
    ]
    assert defaults == [{"n_init": 1, "max_iter": 25, "tol": 1e-3}] * 3
    values = np.random.default_rng(6).random((2000, 3), dtype=np.float32)
    bags = Bags(values, np.arange(0, 2001, 10))
    model = BagOfFeatures(30, random_state=0).fit(bags)
    longer = BagOfFeatures(30, tol=0, max_iter=100, random_state=0).fit(bags)
    assert model.n_iter_ < longer.n_iter_
    assert longer.inertia_ < model.inertia_
    np.testing.assert_array_equal(model.codebook_, learn_codebook(bags, 30, random_state=0))


def test_flat_vectors_are_left_out():
    values = clusters(4, n=100)
    with_zeros = np.zeros((300, 5), np.float32)
    with_zeros[::3] = values
    words = learn_codebook([with_zeros], 4, random_state=0)
    assert (np.linalg.norm(words, axis=1) > 0.1).all()
    np.testing.assert_allclose(inertia(values, words), kmeans_words(values, 4, random_state=0).inertia, rtol=0.2)


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_words_differ_where_vectors_do(n_words, seed):
    rng = np.random.default_rng(seed)
    different = rng.permutation(64)[: n_words + rng.integers(0, 4)]
    grid = np.stack(np.unravel_index(different, (4, 4, 4)), axis=1).astype(np.float32) + 100
    values = np.vstack([grid, grid[rng.integers(0, len(grid), 80)]])
    first, which = distinct_rows(values)
    np.testing.assert_array_equal(first, np.arange(len(grid)))
    np.testing.assert_array_equal(values[first[which]], values)
    found = kmeans_words(values, n_words, n_init=1, random_state=int(seed))
    assert len(np.unique(found.words, axis=0)) == n_words
    if n_words == len(grid):
        assert found.inertia == 0


def test_zeros_of_both_signs_are_equal():
    first, which = distinct_rows(np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, -1.0]]))
    assert (first.tolist(), which.tolist()) == ([0, 2], [0, 0, 1])


def test_the_reservoir_is_uniform_and_blind_to_batches():
    values = np.arange(1, 41, dtype=np.float32)[:, None]
    hits = np.zeros(41)
    for seed in range(2000):
        whole = Reservoir(10, np.random.default_rng(seed))
        whole.add(values)
        cut = Reservoir(10, np.random.default_rng(seed))
        for a, b in ((0, 3), (3, 3), (3, 29), (29, 40)):
            cut.add(values[a:b])
        np.testing.assert_array_equal(whole.vectors(), cut.vectors())
        assert (np.diff(whole.vectors().ravel()) > 0).all()
        hits[whole.vectors().ravel().astype(int)] += 1
    assert abs(hits[1:] - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_what_batches_may_be():
    rows = [[1.0, 2.0], [3.0, 4.0]]
    for one_each in (rows, np.array(rows)):
        [batch] = as_batches(one_each)
        assert batch.lengths.tolist() == [1, 1]
    for whole in ([np.array(rows)], [rows], iter([rows]), np.array([rows]), [Bags.from_list([rows])]):
        [batch] = as_batches(whole)
        assert batch.lengths.tolist() == [2]
    assert list(as_batches([])) == []
    [batch] = as_batches([[], np.array(rows)])
    assert batch.lengths.tolist() == [0, 2]
    for wrong in ("text", 3, None, {"a": 1}):
        with pytest.raises(BagwiseError, match="Bags were expected"):
            list(as_batches(wrong))
    with pytest.raises(BagwiseError, match="Batch 1 is ndarray"):
        list(as_batches([Bags.from_list([rows]), np.array(rows)]))


def test_bad_input():
    values = np.eye(3, dtype=np.float32)
    with pytest.raises(BagwiseError, match="only n_samples=3 vectors"):
        learn_codebook([values], 4)
    with pytest.raises(BagwiseError, match="only n_samples=0 vectors"):
        learn_codebook([], 1)
    with pytest.raises(BagwiseError, match="only 3 of the 6 vectors differ"):
        learn_codebook([values, values], 4)
    with pytest.raises(BagwiseError, match="Batch 1 has 2 features, but batch 0 has 3"):
        learn_codebook([Bags.from_list([values]), Bags.from_list([values[:, :2]])], 2)
    for name in ("n_words", "n_init", "max_iter", "n_samples"):
        with pytest.raises(BagwiseError, match=name):
            learn_codebook([values], **{"n_words": 2, name: 0})


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


@pytest.mark.parametrize("bipolar", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_clusters", [1, 2, 7, 40, 120])
def test_objective_is_scatter_less_what_is_within_groups(n_clusters, dtype, bipolar):
    points = np.random.default_rng(n_clusters).normal(size=(120, 9)).astype(dtype)
    found = kmeans(points, n_clusters, bipolar=bipolar, tol=0, random_state=0)
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
    found = kmeans(points, 8, bipolar=bipolar, tol=0, random_state=0)
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
            found = kmeans(points, n_groups, bipolar=turn, n_init=60, tol=0, random_state=seed)
            value = kept(points, found.labels, found.signs)
            assert value <= optimum + 1e-9
            np.testing.assert_allclose(value, optimum)


@pytest.mark.parametrize("seed", range(5))
def test_turning_signs_is_lloyd_on_mirrored_points_step_by_step(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(80, 5))
    n, k = 80, 6
    centres = points[rng.choice(n, k, replace=False)]
    mirrored = np.concatenate([points, -points])
    both = np.concatenate([centres, -centres])
    for _ in range(15):
        labels, signs = assign(points, WordDistances(centres, bipolar=True), 1)
        wide, _ = assign(mirrored, WordDistances(both), 1)
        np.testing.assert_array_equal(wide[:n] % k, labels)
        np.testing.assert_array_equal(np.where(wide[:n] < k, 1, -1), signs)
        np.testing.assert_array_equal((wide[:n] + k) % (2 * k), wide[n:])  # the mirror image stays one
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
    labels, signs = assign(points, WordDistances(centres, bipolar=bipolar), 1)
    for i, point in enumerate(points):
        options = {
            (g, s): ((s * point - centres[g]) ** 2).sum() for g in range(9) for s in ((1, -1) if bipolar else (1,))
        }
        assert min(options, key=options.get) == (labels[i], signs[i])
    monkeypatch.setattr("bagwise.codebooks.distances._TASK_ROWS", 16)
    again = assign(points, WordDistances(centres, bipolar=bipolar), 3)
    np.testing.assert_array_equal(again, (labels, signs))
    equal = assign(np.zeros((2, 6)), WordDistances(np.concatenate([centres[:1]] * 2), bipolar=bipolar), 1)
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
        counts[tuple(task.draw_seeds(4, rng).tolist())] += 1
    chi2 = sum((counts[order] - n_draws * p) ** 2 / (n_draws * p) for order, p in expected.items())
    assert sum(expected.values()) == pytest.approx(1)
    assert chi2 < 180  # 119 degrees of freedom: once in 5000 by chance


@pytest.mark.parametrize("bipolar", [False, True])
def test_starts_are_different_points(bipolar):
    points = np.random.default_rng(4).normal(size=(200, 3)).astype(np.float32)
    for n_clusters in (1, 5, 130, 200):
        drawn = problem(points, bipolar=bipolar).draw_seeds(n_clusters, np.random.default_rng(0))
        assert len(set(drawn.tolist())) == n_clusters
    close = np.float32(1) + np.arange(6, dtype=np.float32)[:, np.newaxis] * np.finfo(np.float32).eps
    assert len(set(problem(close).draw_seeds(6, np.random.default_rng(0)).tolist())) == 6


def test_empty_clusters_get_the_points_that_are_farthest():
    points = np.array([[0.0], [1.0], [2.0], [10.0], [30.0]])
    found = problem(points).iterate(np.zeros((3, 1)), 1, 0)  # all go to the first of three equal centres
    assert found.labels.tolist() == [0, 0, 0, 2, 1]
    labels, signs = np.zeros(3, dtype=np.int64), -np.ones(3, dtype=np.int8)
    kmeans_module._fill_empty(labels, signs, np.array([1.0, 5.0, 5.0]), 3)
    assert labels.tolist() == [0, 1, 2]
    assert signs.tolist() == [-1, 1, 1]


@pytest.mark.parametrize("distances", [[9.0, 1.0, 2.0, 5.0], [9.0, 8.0, 7.0, 6.0], [1.0, 1.0, 1.0, 1.0]])
def test_filling_takes_no_cluster_its_only_point(distances):
    labels, signs = np.array([0, 1, 1, 2]), np.ones(4, np.int8)  # the only point of cluster 0 may be the farthest
    kmeans_module._fill_empty(labels, signs, np.array(distances), 4)
    assert (labels[0], labels[3]) == (0, 2)
    assert sorted(labels.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("bipolar", [False, True])
def test_mini_batches(bipolar):
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 6, 900)
    points = (10 * np.eye(6)[truth] + rng.normal(size=(900, 6))).astype(np.float32)
    settings = {"bipolar": bipolar, "batch_size": 100, "n_init": 5, "random_state": 0}
    found = kmeans(points, 6, **settings)
    np.testing.assert_allclose(found.cost, scatter_within(points, found.labels, found.signs), rtol=1e-5)
    full = kmeans(points, 6, bipolar=bipolar, n_init=5, random_state=0)
    assert found.cost < 1.01 * full.cost  # well separated, so both find them
    again = kmeans(points, 6, **settings)
    np.testing.assert_array_equal(again.labels, found.labels)
    everything = kmeans(points, 6, bipolar=bipolar, n_init=5, batch_size=900, random_state=0)
    np.testing.assert_array_equal(everything.labels, full.labels)


def test_more_starts_are_never_worse_and_seeds_repeat():
    points = np.random.default_rng(6).normal(size=(100, 4))
    costs = [kmeans(points, 10, n_init=n, random_state=1).cost for n in (1, 3, 9)]
    assert costs[0] >= costs[1] >= costs[2]
    assert kmeans(points, 10, random_state=2).labels.tobytes() == kmeans(points, 10, random_state=2).labels.tobytes()


@pytest.mark.parametrize("batch_size", [None, 30])
def test_progress_counts_seeds_and_iterations_up_to_its_end(batch_size):
    points, seen = np.random.default_rng(6).normal(size=(100, 4)), []
    settings = {"n_init": 2, "max_iter": 30, "batch_size": batch_size, "random_state": 0}
    found = kmeans(points, 80, **settings, progress=lambda *some: seen.append(some))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {64}
    assert seen[0] == (0, 64)
    assert seen[-1] == (64, 64)
    assert (1, 64) in seen  # some of the seeds
    assert {(2 + found.n_iter, 64), (34 + found.n_iter, 64)} & set(
        seen
    )  # all iterations, of the first run or the second
    assert kmeans(points, 80, **settings).labels.tobytes() == found.labels.tobytes()


@pytest.mark.parametrize("n_clusters", [0, 4])
def test_numbers_of_clusters_that_cannot_be(n_clusters):
    with pytest.raises(BagwiseError, match="from 1 to the number of points, 3"):
        kmeans(np.eye(3), n_clusters)
