"""Maps of items: against dense eigenvectors, and for few, equal, isolated and empty items."""

import dataclasses

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from bagwise._io.tensors import FileKind
from bagwise.app import ItemIndex, fit_model
from bagwise.app.index.index_files import FILE
from bagwise.app.index.item_map import ItemMap, spectral_vectors
from bagwise.codebooks.manifold.target import embed
from bagwise.errors import BagwiseError
from bagwise.sources import Collection


def histograms(n=90, d=40, n_kinds=3, seed=0):
    """Rows of unit length of items of several kinds, each with its own frequent words."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(n) % n_kinds
    rates = rng.gamma(0.3, size=(n_kinds, d)) + 0.05
    counts = rng.poisson(3 * rates[kinds]).astype(float)
    counts[:, 0] += 1  # none is empty
    return counts / np.linalg.norm(counts, axis=1, keepdims=True), kinds


def dense_graph(X):
    W = X @ X.T
    return W + W.sum() / len(X) ** 2


def test_vectors_are_those_of_the_dense_graph():
    X, _ = histograms()
    W = dense_graph(X)
    D = np.diag(W.sum(axis=1))
    values, dense = scipy.linalg.eigh(D - W, D)
    vectors, degrees, found = spectral_vectors(sp.csr_array(X), 5)
    np.testing.assert_allclose(found, 1 - values[1:6], atol=1e-8)
    np.testing.assert_allclose(degrees, np.diag(D))
    for k in range(5):
        one, other = vectors[:, k], dense[:, k + 1] / np.linalg.norm(dense[:, k + 1])
        assert values[k + 2] - values[k + 1] > 1e-4  # the vectors are unique
        np.testing.assert_allclose(one, other * np.sign(one @ other), atol=1e-5)


def test_a_map_is_the_embedding_of_the_library():
    X, _ = histograms()
    dense = embed(sp.csr_array(dense_graph(X)), 3, "random_walk")[:, 1:]
    dense = (dense - dense.mean(axis=0)) / dense.std(axis=0)
    np.testing.assert_allclose(ItemMap.of(X).points, dense, atol=1e-4)
    np.testing.assert_array_equal(ItemMap.of(sp.csr_array(X)).points, ItemMap.of(X).points)


def test_many_items_are_arranged_by_few_products():
    X, kinds = histograms(1500, 300, 4)
    calls = []
    vectors, _, found = spectral_vectors(sp.csr_array(X), 3, progress=lambda *told: calls.append(told))
    assert calls == [("arranging items", number, 0) for number in range(1, len(calls) + 1)]
    assert len(calls) < 150
    W = dense_graph(X)
    image = W @ vectors / W.sum(axis=1, keepdims=True)
    values = (vectors * image).sum(axis=0)
    np.testing.assert_allclose(values, found, atol=1e-8)
    np.testing.assert_allclose(image, values * vectors, atol=1e-5)
    found = ItemMap.of(X, n_clusters=4)
    assert (np.diff(np.bincount(found.clusters)) <= 0).all()  # the largest first
    for cluster in range(4):  # each is of one kind
        assert np.bincount(kinds[found.clusters == cluster]).max() > 0.95 * (found.clusters == cluster).sum()


@pytest.mark.parametrize("method", ["spectral", "tsne"])
def test_the_same_seed_gives_the_same_bytes(method, monkeypatch):
    monkeypatch.setattr("bagwise.app.index.item_map._MOST_TSNE", 40)
    X, kinds = histograms(60)
    one, other, third = (ItemMap.of(X, method, n_clusters=3, random_state=seed) for seed in (1, 1, 2))
    assert one.points.tobytes() == other.points.tobytes()
    assert one.clusters.tobytes() == other.clusters.tobytes()
    assert one.n_arranged == (60 if method == "spectral" else 40)
    if method == "tsne":
        assert one.points.tobytes() != third.points.tobytes()
    assert np.abs(one.points.mean(axis=0)).max() < 1e-5
    # the nearest other item on the map is mostly of the same kind
    distances = np.linalg.norm(one.points[:, None] - one.points, axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (kinds[distances.argmin(axis=1)] == kinds).mean() > 0.7


def test_items_beyond_the_largest_number_are_placed_by_others(monkeypatch):
    X, _ = histograms(80, 40)
    monkeypatch.setattr("bagwise.app.index.item_map._MOST_SPECTRAL", 80)
    whole = ItemMap.of(X)
    monkeypatch.setattr("bagwise.app.index.item_map._MOST_SPECTRAL", 79)
    most = ItemMap.of(X, random_state=3)
    assert (whole.n_arranged, most.n_arranged) == (80, 79)
    left = np.setdiff1d(np.arange(80), np.random.default_rng(3).permutation(80)[:79])
    signs = np.sign((whole.points * most.points).sum(axis=0))
    np.testing.assert_allclose(most.points[left] * signs, whole.points[left], atol=0.3)  # as if it were among them
    monkeypatch.setattr("bagwise.app.index.item_map._MOST_SPECTRAL", 60)
    twice = ItemMap.of(np.concatenate([X, X]))
    np.testing.assert_allclose(twice.points[:80], twice.points[80:], atol=1e-4)  # in the sample or not
    assert (twice.clusters[:80] == twice.clusters[80:]).all()


def test_items_outside_of_the_sample_are_placed_by_it(monkeypatch):
    monkeypatch.setattr("bagwise.app.index.item_map._MOST_TSNE", 30)
    X, _ = histograms(30)
    X = np.concatenate([X, X])  # each has a copy, which may be in the sample
    found = ItemMap.of(X, "tsne")
    assert found.n_arranged == 30
    low, high = found.points.min(axis=0), found.points.max(axis=0)
    assert np.isfinite(found.points).all()
    chosen = np.sort(np.random.default_rng(0).permutation(60)[:30])
    assert (found.points[chosen].min(axis=0) == low).all()  # medians do not leave the sample
    assert (found.points[chosen].max(axis=0) == high).all()


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_few_items(n):
    X = np.eye(4)[:n] + 0.1
    found = ItemMap.of(X)
    assert found.points.shape == (n, 2)
    assert np.isfinite(found.points).all()
    assert (found.clusters >= 0).all()
    if n == 2:
        assert found.points[0, 0] == -found.points[1, 0] != 0
        assert (found.points[:, 1] == 0).all()
    with pytest.raises(BagwiseError, match="at least 4 items"):
        ItemMap.of(X, "tsne")


def test_equal_items_are_at_one_place():
    found = ItemMap.of(np.ones((400, 3)), n_clusters=5)
    assert (found.points == 0).all()
    assert (found.clusters == 0).all()
    X, _ = histograms(30)
    twice = ItemMap.of(np.repeat(X, 20, axis=0))
    np.testing.assert_allclose(twice.points[::20], twice.points[19::20], atol=1e-6)
    np.testing.assert_allclose(twice.points[::20], ItemMap.of(X).points, atol=1e-4)
    assert np.isfinite(ItemMap.of(np.ones((12, 3)), "tsne").points).all()


def test_items_without_words_are_not_on_the_map():
    X, _ = histograms(40)
    X[[3, 7]] = 0
    found, others = ItemMap.of(X), ItemMap.of(np.delete(X, [3, 7], axis=0))
    assert np.flatnonzero(found.clusters < 0).tolist() == [3, 7]
    assert (found.points[[3, 7]] == 0).all()
    np.testing.assert_array_equal(np.delete(found.points, [3, 7], axis=0), others.points)
    assert (ItemMap.of(np.zeros((5, 2))).clusters == -1).all()


def test_isolated_items_do_not_take_the_map():
    X, kinds = histograms(120, 40)
    X = sp.block_diag([X, np.eye(3)], format="csr")  # three items that share no word with any other
    points = ItemMap.of(X).points
    between = [points[:120][kinds == k].mean(axis=0) for k in range(3)]
    assert np.linalg.norm(between[0] - between[1]) > 1
    assert np.abs(points[120:]).max() < np.abs(points[:120]).max()


@pytest.fixture(scope="module")
def index():
    X, kinds = histograms(24)
    rows = Collection.from_matrix(np.rint(20 * X), [f"i{k}" for k in range(24)], [("abc"[k],) for k in kinds])
    model = fit_model(rows, n_groups=4, folds=0)
    return ItemIndex.build(model, rows, model.histograms(rows))


@pytest.mark.parametrize("by", ["both", "words", "groups", "classes", "chi2"])
def test_an_index_keeps_its_map(index, tmp_path, by):
    rows = Collection.from_matrix(
        np.rint(20 * histograms(24)[0]), list(index.ids), [(label,) for label in index.labels]
    )
    options = {"by": "words", "metric": "chi2"} if by == "chi2" else {"by": by}
    made = ItemIndex.build(index.model, rows, index.model.histograms(rows), **options).with_map()
    path = made.save(tmp_path / "one.index")
    loaded = ItemIndex.load(path)
    assert loaded.map.points.tobytes() == made.map.points.tobytes()
    assert loaded.map.clusters.tobytes() == made.map.clusters.tobytes()
    assert (loaded.map.method, loaded.map.n_arranged, loaded.map.clusters.max()) == ("spectral", 24, 2)
    assert loaded.save(tmp_path / "again.index").read_bytes() == path.read_bytes()
    without = dataclasses.replace(loaded, answers=None).save(tmp_path / "without.index")
    assert ItemIndex.load(without).answers is None
    assert ItemIndex.load(without).map.points.tobytes() == made.map.points.tobytes()
    assert made.search(index.model.histograms(rows)[:1], 3) == loaded.search(index.model.histograms(rows)[:1], 3)


def test_a_map_does_not_use_classes(index):
    words = index.with_map()
    shuffled = dataclasses.replace(index, labels=index.labels[::-1]).with_map()
    assert words.map.points.tobytes() == shuffled.map.points.tobytes()


def test_a_map_of_one_class(index):
    model = dataclasses.replace(index.model, classes=(), heads={}, path=None)
    X = np.rint(20 * histograms(24)[0])
    rows = Collection.from_matrix(X, list(index.ids), [("a",)] * 24)
    made = ItemIndex.build(model, rows, index.model.histograms(rows)).with_map()
    assert made.map.clusters.max() <= 9
    assert np.isfinite(made.map.points).all()


def damage(header, tensors, what):
    if what == "cluster":
        tensors["map_clusters"][0] = 1000
    elif what == "nan":
        tensors["map_points"][0, 0] = np.nan
    elif what == "half":
        del tensors["map_points"]
    elif what == "no header":
        del header["map"]
    elif what == "answers":
        del tensors["answer_scores"]
    elif what == "no answers":
        del header["answers"]
    else:
        header["map"] = what


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("cluster", "cluster 1000; at most 1000"),
        ("nan", "map_points holds nan"),
        ("half", r"with the tensors \['map_clusters'\]"),
        ("no header", "map is None"),
        ("answers", "all or none"),
        ("no answers", "its answers are None"),
        ({"method": "<b>", "n_arranged": 1}, "method '<b>'"),
        ({"method": "tsne", "n_arranged": 25}, "n_arranged 25"),
        ({"method": "tsne", "n_arranged": True}, "n_arranged True"),
        ({"method": ["tsne"], "n_arranged": 1}, "method"),
        ([1], "its map is"),
    ],
)
def test_damaged_maps_are_refused(index, tmp_path, what, message):
    path = index.with_map().save(tmp_path / "one.index")
    header, tensors = FILE.load(path, lambda *parts: parts)
    tensors = {name: array.copy() for name, array in tensors.items()}
    header = {name: value for name, value in header.items() if name not in ("kind", "schema")}
    damage(header, tensors, what)
    FileKind(FILE.name, None, None).save(path, header, tensors)
    with pytest.raises(BagwiseError, match=message):
        ItemIndex.load(path)


def test_what_a_map_accepts():
    with pytest.raises(BagwiseError, match="'umap'"):
        ItemMap.of(np.eye(3), "umap")
    with pytest.raises(BagwiseError, match="non-negative data, but sample 1, word 0 is -2"):
        ItemMap.of(np.array([[1.0, 2], [-2, 1]]))
