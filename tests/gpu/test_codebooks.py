"""k-means and encoding by functions of an array module: NumPy always, CuPy where there is a device."""

import sys

import numpy as np
import pytest

from bagwise import BagOfFeatures, Bags, BagwiseError, ManifoldBagOfFeatures
from bagwise._utils.devices import to_device, to_host
from bagwise.codebooks import LocalizedEncoder, SoftEncoder, assign_words, encode_bags, kmeans_words
from bagwise.codebooks.distances import WordDistances, assign
from bagwise.codebooks.encoders import as_encoder
from bagwise.codebooks.encoding import resolve_pooling
from bagwise.codebooks.kmeans import Problem, distinct_rows, kmeans
from bagwise.codebooks.manifold.learning import SoftHistograms
from bagwise.codebooks.pyramids import resolve_pyramid
from bagwise.gpu import codebook_kernels as device_kernels
from bagwise.gpu import codebooks as device


def vectors(n=900, n_features=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(12, n_features))[rng.integers(0, 12, n)] * 4 + rng.normal(size=(n, n_features))).astype(
        dtype
    )


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


@pytest.mark.parametrize("n_words", [1, 5, 128, 300])
@pytest.mark.parametrize("bipolar", [False, True])
def test_the_first_of_the_nearest_words(xp, dtype, n_words, bipolar):
    rng = np.random.default_rng(n_words)
    found, norms = rng.integers(-3, 4, (50, n_words)).astype(dtype), rng.integers(0, 3, n_words).astype(dtype)
    words, signs = device_kernels.nearest(xp, to_device(found, xp), to_device(norms, xp), bipolar)
    values = norms - abs(found) if bipolar else norms + found
    expected = [row.tolist().index(row.min()) for row in values]
    assert to_host(words).tolist() == expected
    turned = bipolar & (found[np.arange(50), expected] > 0)
    np.testing.assert_array_equal(to_host(signs), np.where(turned, -1, 1))


@pytest.mark.parametrize("maximum", [False, True])
def test_sums_of_rows_by_key(xp, dtype, maximum):
    rng = np.random.default_rng(0)
    values, factors = rng.random((3000, 3)).astype(dtype), rng.random(3000)
    keys = np.where(rng.random(3000) < 0.6, 7, rng.integers(0, 40, 3000))  # one has more rows than a piece
    order, distinct, starts = device_kernels.segments(xp, to_device(keys, xp))
    np.testing.assert_array_equal(to_host(distinct), np.unique(keys))
    np.testing.assert_array_equal(to_host(order), np.argsort(keys, kind="stable"))
    found = device_kernels.sums_of_segments(xp, to_device(values, xp), to_device(factors, xp), order, starts, maximum)
    expected = np.zeros((40, 3))
    (np.maximum if maximum else np.add).at(expected, keys, factors[:, None] * values.astype(float))
    np.testing.assert_allclose(to_host(found), expected[np.unique(keys)], rtol=1e-13)
    empty = device_kernels.segments(xp, to_device(keys[:0], xp))
    assert [len(part) for part in empty] == [0, 0, 1]


def test_sums_of_clusters_some_of_which_are_empty(xp, dtype):
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(1500, 4)).astype(dtype), rng.random(1500)
    labels, signs = rng.choice([0, 3, 4], 1500), rng.choice([-1, 1], 1500).astype(np.int8)
    arguments = points, weights, labels, signs
    sums, masses = device.Problem.sums(*(to_device(array, xp) for array in arguments), 6)
    for found, expected in zip((sums, masses), Problem.sums(*arguments, 6), strict=True):
        np.testing.assert_allclose(to_host(found), expected, rtol=1e-11, atol=1e-12)


def test_equal_rows_are_found(xp, dtype):
    values = vectors(300, dtype=dtype)[np.random.default_rng(2).integers(0, 300, 1000)]
    values[::7] = 0.0
    values[::14] = -0.0
    for found, expected in zip(device.distinct_rows(to_device(values, xp)), distinct_rows(values), strict=True):
        np.testing.assert_array_equal(to_host(found), expected)


@pytest.mark.parametrize("bipolar", [False, True])
def test_distances_to_words(xp, dtype, bipolar, monkeypatch):
    values, words = vectors(700, dtype=dtype) + dtype(100 * (not bipolar)), vectors(31, seed=4, dtype=dtype)
    plain, table = WordDistances(words, bipolar=bipolar), device.Distances(to_device(words, xp), bipolar=bipolar)
    table.n_rows = 256
    held = to_device(values, xp)
    for found, expected in zip(device.assign(held, table, 1), assign(values, plain, 1), strict=True):
        np.testing.assert_array_equal(to_host(found), expected)
    found = np.concatenate([to_host(block).copy() for _, block in table.blocks(held)])
    expected = np.concatenate([block.copy() for _, block in plain.blocks(values)])
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == np.float32 else 1e-11)


def test_vectors_that_are_too_large_for_their_type(xp):
    table = device.Distances(to_device(vectors(5, dtype=np.float32), xp))
    with pytest.raises(BagwiseError, match="A vector is so large that its square does not fit float32"):
        device.assign(to_device(np.full((3, 5), 1e30, np.float32), xp), table, 1)


@pytest.mark.parametrize("bipolar", [False, True])
def test_k_means_draws_the_same_seeds_and_ends_with_the_same_clusters(xp, bipolar):
    points, weights = vectors(1200), np.random.default_rng(5).random(1200) + 0.1
    plain = Problem(points, weights, bipolar)
    task = device.Problem(to_device(points, xp), to_device(weights, xp), bipolar)
    first, second = np.random.default_rng(6), np.random.default_rng(6)
    seeds = plain.draw_seeds(150, first)
    found = task.draw_seeds(150, second)
    np.testing.assert_array_equal(to_host(found), seeds)
    assert first.random() == second.random()  # as many numbers were drawn
    expected, clusters = plain.iterate(points[seeds], 8, 0.0), task.iterate(task.points[found], 8, 0.0)
    np.testing.assert_array_equal(to_host(clusters.labels), expected.labels)
    np.testing.assert_array_equal(to_host(clusters.signs), expected.signs)
    np.testing.assert_allclose(clusters.costs, expected.costs, rtol=1e-12)


@pytest.mark.cuda
@pytest.mark.parametrize("options", [{}, {"batch_size": 300}])
def test_clusters_on_a_device_stay_there(xp, options):
    points = vectors(1000)
    found = kmeans(to_device(points, xp), 20, max_iter=5, random_state=0, **options)
    assert isinstance(found.labels, xp.ndarray)
    np.testing.assert_array_equal(
        to_host(found.labels), kmeans(points, 20, max_iter=5, random_state=0, **options).labels
    )


@pytest.mark.cuda
def test_words_of_a_device(dtype):
    cupy = pytest.importorskip("cupy")
    values = vectors(3000, dtype=dtype)
    values[1000:1200] = values[0]  # empty clusters, and equal vectors
    plain = kmeans_words(values, 40, n_init=2, max_iter=10, random_state=0)
    here = kmeans_words(values, 40, n_init=2, max_iter=10, random_state=0, device="cuda")
    there = kmeans_words(cupy.asarray(values), 40, n_init=2, max_iter=10, random_state=0)
    assert isinstance(here.words, np.ndarray)
    assert isinstance(there.words, cupy.ndarray)
    assert here.words.tobytes() == there.words.get().tobytes()  # the same bytes each time
    np.testing.assert_allclose(here.words, plain.words, rtol=1e-4 if dtype == np.float32 else 1e-10, atol=1e-5)
    np.testing.assert_allclose(here.inertia, plain.inertia, rtol=1e-6)
    np.testing.assert_array_equal(assign_words(values, plain.words, device="cuda"), assign_words(values, plain.words))


# wide enough for the vectors of this file
ENCODERS = {"soft": SoftEncoder(1.0), "localized": LocalizedEncoder(sharpness=0.1)}
CASES = [
    ("hard", "sum", None),
    ("hard", "max", 5),
    ("hard", "mean", 21),
    ("soft", "mean", None),
    ("soft", "max", 5),
    ("localized", "max", 5),
    ("localized", "mean", None),
    ("vlad", "sum", 5),
    ("vlad", "mean", None),
]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("assignment", "pooling", "pyramid"), CASES)
def test_histograms(xp, assignment, pooling, pyramid, sparse):
    values, words = vectors(600), vectors(17, seed=3)
    lengths = np.array([0, 250, 1, 0, 349])
    positions = np.random.default_rng(8).random((600, 2)).astype(np.float32)
    bags = Bags(values, np.concatenate([[0], np.cumsum(lengths)]), positions, dtype=None)
    how = as_encoder(ENCODERS.get(assignment, assignment))
    expected = encode_bags(bags, words, assignment=how, pooling=pooling, pyramid=pyramid, sparse_output=sparse)
    encoder = how.on(to_device(words, xp), device.Distances)
    grids, pooling = resolve_pyramid(pyramid), resolve_pooling(pooling, encoder)
    arrays = (to_device(array, xp) for array in (values, lengths, positions))
    found = device.array_histograms(*arrays, encoder, pooling, grids, sparse)
    if sparse:
        np.testing.assert_array_equal(found.indptr, expected.indptr)
        np.testing.assert_array_equal(found.indices, expected.indices)
        found, expected = found.data, expected.data
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(to_host(found), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.cuda
@pytest.mark.parametrize("assignment", ["hard", "soft", "localized", "vlad"])
def test_an_estimator_on_a_device(assignment, monkeypatch):
    monkeypatch.setattr(device, "_VECTORS", 200)  # several parts
    bags = Bags(vectors(800), np.arange(0, 801, 40), np.random.default_rng(8).random((800, 2)), dtype=None)
    options = {"assignment": ENCODERS.get(assignment, assignment), "pyramid": 5, "random_state": 0}
    plain = BagOfFeatures(20, **options).fit(bags)
    model = BagOfFeatures(20, device="cuda", **options).fit(bags)
    np.testing.assert_allclose(model.codebook_, plain.codebook_, rtol=1e-9, atol=1e-12)
    found, expected = model.transform(bags), plain.transform(bags)
    assert type(found) is type(expected)
    if model.sparse_output_:
        found, expected = found.toarray(), expected.toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
    for ours, theirs in zip(model.assign(bags), plain.assign(bags), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.cuda
def test_bags_of_arrays_on_a_device():
    cupy = pytest.importorskip("cupy")
    values = vectors(60)
    model = BagOfFeatures(4, random_state=0, device="cuda", sparse_output=False).fit(cupy.asarray(values))
    np.testing.assert_array_equal(model.transform(cupy.asarray(values)), model.transform(values))
    lists = [cupy.asarray(values[:20]), cupy.asarray(values[20:])]
    np.testing.assert_array_equal(model.transform(lists), model.transform([values[:20], values[20:]]))


def test_soft_histograms_and_their_gradient(xp, monkeypatch):
    monkeypatch.setattr(device, "_SOFT_NUMBERS", 700)  # several blocks
    values, words, offsets = vectors(150, dtype=np.float32) + np.float32(50), vectors(9, seed=2) + 50, [0, 1, 90, 150]
    words[3] = 0.7 * values[4].astype(np.float64)  # a word that lies on a feature
    plain = SoftHistograms(values, offsets, 0.8, scale=0.7)
    soft = device.SoftHistograms(values, offsets, 0.8, scale=0.7, xp=xp)
    np.testing.assert_allclose(soft.histograms(words), plain.histograms(words), rtol=1e-9, atol=1e-12)
    G = np.random.default_rng(4).normal(size=(3, 9))
    for found, expected in zip(
        soft.pull_back(words, G, features=True), plain.pull_back(words, G, features=True), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.cuda
def test_words_of_mo_bof_on_a_device(tmp_path):
    bags = Bags(vectors(400), np.arange(0, 401, 20), dtype=None)
    options = {"n_components": 3, "n_neighbors": 4, "max_iter": 5, "n_init": 1, "random_state": 0}
    plain = ManifoldBagOfFeatures(8, **options).fit(bags)
    model = ManifoldBagOfFeatures(8, device="cuda", **options).fit(bags)
    np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-6)
    np.testing.assert_allclose(model.codebook_, plain.codebook_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.transform(bags), plain.transform(bags), atol=1e-4)
    assert ManifoldBagOfFeatures.load(model.save(tmp_path / "model")).device is None


@pytest.mark.cuda
def test_sparse_codes_are_refused_on_a_device():
    with pytest.raises(BagwiseError, match=r"Sparse codes are not computed on a device. Use device='cpu'"):
        encode_bags(Bags(vectors(5), [0, 5]), vectors(3), assignment="sparse", device="cuda")


def test_a_device_without_cupy_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BagwiseError, match=r"bagwise\[gpu\]"):
        BagOfFeatures(2, device="cuda").fit(vectors(9))
