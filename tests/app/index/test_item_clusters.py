"""Clusters of the items of an index: saved = loaded, index = histograms, items that come and go, names and reasons."""

import dataclasses

import numpy as np
import pytest

from bagwise import BagwiseError, Model, open_collection
from bagwise.app import FitOptions, ItemIndex, cluster_source, run_fit
from bagwise.app.index.clustering import assigned, cluster_data
from bagwise.app.index.item_clusters import ItemClusters, cluster_features
from bagwise.sources import Collection
from small_sources import texts, write_image_folder

N_WORDS = 12


def rows(n, seed=0, n_kinds=3):
    random = np.random.default_rng(seed)
    kinds = np.arange(n) % n_kinds
    X = random.poisson(np.where(np.arange(N_WORDS) % n_kinds == kinds[:, None], 5.0, 0.3)).astype(np.float64)
    X[:, 0] += 1  # no row is empty
    return X, kinds


def fitted(X, names=None, **options):
    items = Collection.from_matrix(X, [f"item{i}" for i in range(len(X))], [()] * len(X), feature_names=names)
    return run_fit(items, FitOptions(n_jobs=1, **options)), items


@pytest.fixture(scope="module")
def index():
    X, _ = rows(60)
    X[17] = 0
    fit, items = fitted(X, n_groups=6)
    return ItemIndex.build(fit.model, items, X).with_clusters(3), X


def assert_same(one, other):
    for field in dataclasses.fields(ItemClusters):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


def test_clusters_are_found_named_and_numbered_by_size(index):
    index, _X = index
    clusters, kinds = index.clusters, rows(60)[1]
    assert clusters.labels[17] == -1
    assert clusters.certainty[17] == 0
    assert clusters.sizes.sum() == 59
    assert (np.diff(clusters.sizes) <= 0).all()
    others = np.arange(60) != 17
    assert len(set(zip(clusters.labels[others].tolist(), kinds[others].tolist(), strict=True))) == 3
    for cluster in clusters.describe(index.model):
        kind = kinds[cluster.central]
        assert {term.number % 3 for term in cluster.terms[:2]} == {kind}
        assert all(term.lift > 1 for term in cluster.terms[:2])
        inside = np.flatnonzero(clusters.labels == cluster.number)
        assert clusters.distances[inside].argmin() == inside.tolist().index(cluster.central)
        assert clusters.distances[cluster.outermost] == clusters.distances[inside].max()
        assert len(cluster.typical) == 3
        assert 0 < cluster.cohesion < 1
        assert cluster.name == ", ".join(term.name for term in cluster.terms[:3])


def test_what_is_saved_is_loaded_and_the_bytes_are_the_same(index, tmp_path):
    index, _X = index
    named = dataclasses.replace(index, clusters=index.clusters.renamed(1, "of one kind"))
    with_labels = dataclasses.replace(named, clusters=named.clusters.compared_with(["a", "b", None] * 20))
    path = with_labels.save(tmp_path / "one.index")
    loaded = ItemIndex.load(path, verify=True)
    assert_same(loaded.clusters, with_labels.clusters)
    assert loaded.clusters.name(1) == "of one kind"
    again = dataclasses.replace(index.with_clusters(3), clusters=index.with_clusters(3).clusters)
    assert again.save(tmp_path / "two.index").read_bytes() == index.save(tmp_path / "three.index").read_bytes()


def test_an_index_gives_the_features_of_its_histograms(index):
    index, X = index
    held, known, scale = cluster_features(index.model, X)
    data = cluster_data(index)
    np.testing.assert_allclose(data.features, held, atol=1e-6)
    np.testing.assert_array_equal(data.known, known)
    assert scale is None
    by_groups = ItemIndex.build(index.model, *_items(X), by="groups")
    np.testing.assert_allclose(cluster_data(by_groups).features, held, atol=1e-6)
    np.testing.assert_array_equal(by_groups.with_clusters(3).clusters.labels, index.clusters.labels)
    with pytest.raises(BagwiseError, match="does not hold what items are clustered by"):
        cluster_data(ItemIndex.build(index.model, *_items(X), by="words", metric="chi2"))


def _items(X, name="item"):
    return Collection.from_matrix(X, [f"{name}{i}" for i in range(len(X))], [()] * len(X)), X


def test_items_that_come_have_the_nearest_centre_and_those_that_go_change_nothing(index):
    index, X = index
    new, kinds = rows(12, seed=1)
    grown = index.add(*_items(new, "new"))
    kind_of = {int(index.clusters.labels[i]): i % 3 for i in range(15)}
    assert [kind_of[label] for label in grown.clusters.labels[60:].tolist()] == kinds.tolist()
    np.testing.assert_array_equal(grown.clusters.labels[:60], index.clusters.labels)
    again = assigned(index, X)
    np.testing.assert_array_equal(again.labels, index.clusters.labels)
    np.testing.assert_allclose(again.distances, index.clusters.distances, atol=1e-5)
    np.testing.assert_allclose(again.certainty, index.clusters.certainty, atol=1e-5)
    back = grown.remove([f"new{i}" for i in range(12)])
    assert_same(back.clusters, index.clusters)
    with pytest.raises(BagwiseError, match="has no clusters"):
        assigned(dataclasses.replace(index, clusters=None), X)


def test_after_an_edit_of_the_groups_centres_are_those_of_the_groups_now(index):
    index, _X = index
    cut = dataclasses.replace(index, model=index.model.cut(4))
    assert not index.clusters.fits(cut.model)
    assert index.clusters.fits(index.model)
    new, kinds = rows(12, seed=1)
    kind_of = {int(index.clusters.labels[i]): i % 3 for i in range(15)}
    assert [kind_of[label] for label in assigned(cut, new).labels.tolist()] == kinds.tolist()


def test_copies_count_once_and_are_in_one_cluster():
    X, _ = rows(60)
    copied = np.concatenate([X, np.repeat(X[:1], 200, axis=0)])
    fit, items = fitted(X, n_groups=6)
    alone = ItemIndex.build(fit.model, items, X).with_clusters(3).clusters
    with_copies = ItemIndex.build(fit.model, *_items(copied)).with_clusters(3).clusters
    assert len(set(with_copies.labels[60:].tolist())) == 1
    pairs = set(zip(alone.labels.tolist(), with_copies.labels[:60].tolist(), strict=True))
    assert len(pairs) == 3  # the same clusters, with other numbers
    np.testing.assert_allclose(np.sort(alone.centers, axis=0), np.sort(with_copies.centers, axis=0), atol=1e-6)


def test_measurements_are_named_by_columns_and_need_their_histograms():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 4)) * [1, 1, 50, 1] + [0, 0, 500, 0]
    X[:30, 1] += 20
    fit, items = fitted(X, names=["width", "height", "weight", "age"])
    index = ItemIndex.build(fit.model, items, X)
    with pytest.raises(BagwiseError, match="measurements does not hold"):
        index.with_clusters(2)
    found = index.with_clusters(2, histograms=X)
    clusters = found.clusters
    assert len(set(clusters.labels[:30].tolist())) == len(set(clusters.labels[30:].tolist())) == 1
    assert clusters.terms_of == "columns"
    assert {name.split(",")[0] for name in clusters.names} == {"high height", "low height"}
    np.testing.assert_array_equal(assigned(found, X).labels, clusters.labels)


def test_stop_words_headers_and_numbers_do_not_lead(tmp_path):
    lines = [f"the of subject lines 1993 {text}" for text, _ in texts()]
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, line in enumerate(lines):
        (folder / f"{number:03}.txt").write_text(f"{line} {'1993' if number < 12 else ''}")
    fit = run_fit(folder, FitOptions(n_groups=8, n_jobs=1))
    index = ItemIndex.build(fit.model, fit.data.collection, fit.data.histograms).with_clusters(3, method="kmeans")
    named = {word for name in index.clusters.names for word in name.split(", ")}
    assert not named & {"the", "of", "subject", "lines", "1993", "and", "with"}
    assert len(set(index.clusters.names)) == 3


def test_names_differ_and_can_be_given_and_taken_back(index):
    clusters = index[0].clusters
    named = clusters.renamed(0, "mine")
    assert named.name(0) == "mine"
    assert named.renamed(0, "").name(0) == clusters.name(0)
    with pytest.raises(BagwiseError, match="must differ"):
        named.renamed(1, "mine")
    with pytest.raises(BagwiseError, match="printable"):
        clusters.renamed(0, "a\nb")
    with pytest.raises(BagwiseError, match="there is no cluster 3"):
        clusters.renamed(3, "more")


def test_a_cluster_of_one_item_has_a_name_too():
    X, _ = rows(30)
    X[:, 11] = 0
    X[0] = 0
    X[0, 11] = 9
    model = fitted(X, n_groups=12)[0].model
    clusters = ItemIndex.build(model, *_items(X)).with_clusters(4, method="kmeans").clusters
    alone = int(clusters.labels[0])
    assert clusters.sizes[alone] == 1
    assert clusters.names[alone] == "x11"


def test_the_number_is_suggested_and_kept(index):
    index, _X = index
    clusters = index.with_clusters().clusters
    assert clusters.numbers.suggested == len(clusters) == 3
    with pytest.raises(BagwiseError, match="only 59 items with words"):
        index.with_clusters(60)
    with pytest.raises(BagwiseError, match="Unknown method: 'means'"):
        index.with_clusters(2, method="means")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "guess"},
        {"sharpness": -1.0},
        {"names": ["a"]},
        {"names": ["a", "b", "c\n"]},
        {"given_names": {"7": "x"}},
        {"numbers": [[2], [5.0], [0.0]]},
        {"numbers": [[2], [0.5]]},
        {"agreement": [0.5, 0.5, 3]},
        {"terms_of": "pages"},
        {"groups": "x"},
        {"more": 1},
    ],
)
def test_headers_that_are_not_sound_are_refused(index, change):
    index, _ = index
    header, tensors = index.clusters.to_parts()
    assert_same(ItemClusters.from_parts(header, tensors, index.model), index.clusters)
    with pytest.raises(BagwiseError):
        ItemClusters.from_parts(header | change, tensors, index.model)


def test_tensors_that_are_not_sound_are_refused(index):
    index, _ = index
    header, tensors = index.clusters.to_parts()
    with pytest.raises(BagwiseError):
        ItemClusters.from_parts(header, tensors | {"cluster_labels": np.full(60, 3, np.int32)}, index.model)
    with pytest.raises(BagwiseError):
        ItemClusters.from_parts(header, {k: v for k, v in tensors.items() if k != "cluster_terms"}, index.model)
    assert ItemClusters.from_parts(None, {}, index.model) is None


def test_the_method_is_chosen_by_halves_of_the_words_also_of_soft_ones():
    X, _ = rows(60)
    wide = np.concatenate([X, X, X], axis=1)
    model = fitted(wide, n_groups=18)[0].model

    def chosen(histograms):
        index = ItemIndex.build(model, *_items(histograms))
        return index.with_clusters(3, histograms=histograms).clusters

    soft = chosen(0.37 * wide)
    assert soft.method == chosen(wide).method in ("kmeans", "spectral")
    np.testing.assert_array_equal(soft.labels, chosen(wide).labels)
    short = np.where(np.cumsum(wide > 0, axis=1) <= 3, wide, 0)  # a half is often empty
    assert chosen(short).method == "kmeans"


def test_words_that_are_moved_along_the_manifold_are_those_of_the_model(tmp_path):
    write_image_folder(tmp_path / "stripes", n_each=8)
    options = FitOptions(n_words=12, descriptor="patches", n_jobs=1)
    moved, plain = (cluster_source(tmp_path / "stripes", options, 2, method=name) for name in ("manifold", "kmeans"))
    model = moved.index.model
    assert [model.n_groups, moved.index.clusters.method] == [12, "manifold"]
    assert not np.allclose(model.codebooks[0], plain.index.model.codebooks[0])
    assert moved.index.clusters.agreement.nmi == 1
    path = model.save(tmp_path / "moved.bagwise")
    held = Model.load(path).histograms(open_collection(tmp_path / "stripes"))
    assert (abs(held - moved.fit.data.histograms) > 0).sum() == 0
    with pytest.raises(BagwiseError, match="learns words for a number of clusters"):
        cluster_source(tmp_path / "stripes", options, method="manifold")
    counts = _items(rows(20)[0])[0]
    with pytest.raises(BagwiseError, match="the columns of a table are its words"):
        cluster_source(counts, FitOptions(n_jobs=1), 2, method="manifold")


def test_items_beyond_memory_are_not_left_out():
    rows = Collection.from_matrix(np.eye(60).repeat(2, axis=0), [str(k) for k in range(120)], [()] * 120)
    with pytest.raises(BagwiseError, match=r"histograms of 120 take more than memory_limit=100\. Leave it out"):
        cluster_source(rows, FitOptions(n_groups=2, memory_limit=100), 2)


def test_items_that_are_all_the_same_are_told():
    rows = Collection.from_matrix(np.ones((12, 4)), [str(k) for k in range(12)], [()] * 12)
    assert cluster_source(rows, FitOptions(n_groups=2), 1).index.clusters.sizes.tolist() == [12]
    with pytest.raises(BagwiseError, match="there is only 1 different item"):
        cluster_source(rows, FitOptions(n_groups=2), 2)
