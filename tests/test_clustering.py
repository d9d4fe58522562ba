import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize

from bagwise import BagOfFeatures, Bags, BagwiseError, SpectralClusterer, clustering
from bagwise.clustering import _halves, cluster_bags, cluster_rows, steadier, suggest_n_clusters
from bagwise.codebooks.manifold import target
from bagwise.codebooks.manifold.target import embed, neighbor_graph, typical_distance
from bagwise.metrics import clustering_report


def rings(rng, n=60):
    """Histograms on two interleaved curves in the simplex."""
    t = rng.random(n)
    upper = np.arange(n) < n // 2
    first = np.where(upper, 0.2 + 0.1 * np.sin(3 * t), 0.5 + 0.1 * np.sin(3 * t))
    X = np.stack([first, 0.5 * t * (1 - first), (1 - first) * (1 - 0.5 * t)], axis=1)
    return X, upper


@pytest.mark.parametrize("laplacian", ["unnormalized", "random_walk", "symmetric"])
def test_curves_are_told_apart(laplacian):
    X, y = rings(np.random.default_rng(0))
    clusterer = SpectralClusterer(2, n_neighbors=5, laplacian=laplacian, random_state=0).fit(X)
    assert clustering_report(X, clusterer.labels_, y)["purity"] == 1


def test_new_histograms_go_to_the_nearest_mean_one_by_one_or_together():
    X, _ = rings(np.random.default_rng(0))
    clusterer = SpectralClusterer(3, random_state=0).fit(X)
    for c in range(3):
        np.testing.assert_allclose(clusterer.cluster_centers_[c], X[clusterer.labels_ == c].mean(axis=0))
    together = clusterer.predict(X)
    assert together.tolist() == [clusterer.predict(x[np.newaxis])[0] for x in X]
    nearest = np.argmin(np.linalg.norm(X[:, np.newaxis] - clusterer.cluster_centers_, axis=2), axis=1)
    np.testing.assert_array_equal(together, nearest)


def test_the_same_seed_gives_the_same_clusters():
    X, _ = rings(np.random.default_rng(0))
    one, two = (SpectralClusterer(4, random_state=3).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.embedding_, two.embedding_)


@pytest.mark.parametrize("metric", ["chi2", "hellinger", "cosine", "euclidean"])
@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_array])
def test_sparse_equals_dense(metric, form):
    X, _ = rings(np.random.default_rng(0))
    X = np.maximum(X - 0.1, 0)
    dense, sparse = (
        SpectralClusterer(3, metric=metric, n_neighbors=5, random_state=0).fit(data) for data in (X, form(X))
    )
    np.testing.assert_array_equal(sparse.labels_, dense.labels_)
    np.testing.assert_allclose(sparse.sigma_, dense.sigma_, rtol=1e-6)
    np.testing.assert_allclose(sparse.cluster_centers_, dense.cluster_centers_)
    assert isinstance(sparse.cluster_centers_, np.ndarray)
    np.testing.assert_array_equal(sparse.predict(form(X)), dense.predict(X))


def topics(rng, n=240, d=40, n_topics=4, common=0.0):
    """Histograms of texts of several topics, with some words in `common`, and of very different lengths."""
    y = np.arange(n) % n_topics
    rates = (1 - common) * rng.dirichlet(np.full(d, 0.3), n_topics)[y] + common / d
    lengths = rng.integers(20, 400, n)
    return np.array([rng.multinomial(m, p) for m, p in zip(lengths, rates, strict=True)]), y


def all_distances(X, metric):
    """Distances of all pairs, by the definition."""
    F = X / X.sum(axis=1, keepdims=True)
    if metric == "hellinger":
        return np.sqrt(0.5 * ((np.sqrt(F)[:, np.newaxis] - np.sqrt(F)) ** 2).sum(axis=2))
    if metric == "chi2":
        both = F[:, np.newaxis] + F
        return 0.5 * ((F[:, np.newaxis] - F) ** 2 / np.where(both > 0, both, 1)).sum(axis=2)
    if metric == "cosine":
        return 1 - normalize(X) @ normalize(X).T
    return np.sqrt(((X[:, np.newaxis] - X) ** 2).sum(axis=2))


@pytest.mark.parametrize("metric", ["hellinger", "chi2", "cosine", "euclidean"])
@pytest.mark.parametrize("laplacian", ["symmetric", "random_walk"])
def test_the_sparse_graph_is_that_of_all_distances(metric, laplacian, monkeypatch):
    """Neighbours by blocks and products with the graph, against all pairs and all eigenvectors."""
    X, _ = topics(np.random.default_rng(0), common=0.7)  # so that the graph is in one part
    distances = all_distances(X.astype(float), metric)
    np.fill_diagonal(distances, 0)
    sigma = typical_distance(distances, 10)
    expected = embed(neighbor_graph(distances, 10, sigma), 4, laplacian)
    found = {}
    for name, n_dense in (("dense", 2000), ("sparse", 0)):
        monkeypatch.setattr(target, "_DENSE", n_dense)
        found[name] = SpectralClusterer(4, metric=metric, laplacian=laplacian, random_state=0).fit(X)
        np.testing.assert_allclose(found[name].sigma_, sigma, rtol=1e-5)
        embedding = found[name].embedding_  # up to signs, and rotations where eigenvalues are equal
        np.testing.assert_allclose(embedding @ embedding.T, expected @ expected.T, atol=1e-3)
    np.testing.assert_array_equal(found["sparse"].labels_, found["dense"].labels_)


@pytest.mark.parametrize("n_clusters", [2, 3, 5])
def test_graphs_of_several_parts(n_clusters, monkeypatch):
    """Three parts without an edge between them, and fewer or more clusters than that."""
    rng = np.random.default_rng(0)
    X = np.kron(np.eye(3), np.ones((40, 5))) * rng.random((120, 15))
    labels = []
    for n_dense in (2000, 0):
        monkeypatch.setattr(target, "_DENSE", n_dense)
        labels.append(SpectralClusterer(n_clusters, n_neighbors=5, random_state=0).fit_predict(X))
    parts = np.repeat(np.arange(3), 40)
    for found in labels:
        assert len(np.unique(found)) == n_clusters
        if n_clusters >= 3:  # each cluster is in one part
            assert all(len(set(parts[found == c].tolist())) == 1 for c in range(n_clusters))


def test_the_sums_of_histograms_do_not_matter():
    X, y = topics(np.random.default_rng(0))
    factors = np.random.default_rng(1).integers(1, 9, len(X))[:, np.newaxis]
    for metric in ("hellinger", "chi2", "cosine"):
        one, other = (SpectralClusterer(4, metric=metric, random_state=0).fit(data) for data in (X, X * factors))
        np.testing.assert_array_equal(one.labels_, other.labels_)
        assert normalized_mutual_info_score(y, one.labels_) > 0.95
        np.testing.assert_array_equal(one.predict(X), one.predict(X * factors))


def test_rows_without_values_are_not_connected():
    X, _ = topics(np.random.default_rng(0), 120)
    mixed = np.insert(X, [0, 50, 50, 120], 0, axis=0)
    filled = mixed.any(axis=1)
    one, other = (SpectralClusterer(4, random_state=0).fit(data) for data in (X, mixed))
    np.testing.assert_array_equal(other.labels_[filled], one.labels_)
    np.testing.assert_allclose(other.embedding_[filled], one.embedding_)
    np.testing.assert_array_equal(other.embedding_[~filled], 0)
    assert len(set(other.labels_[~filled].tolist())) == 1
    np.testing.assert_array_equal(other.labels_[~filled], other.predict(mixed[~filled]))
    assert SpectralClusterer(2, random_state=0).fit_predict(np.zeros((3, 2))).tolist() == [0, 0, 0]


def test_near_copies_are_no_cluster(monkeypatch):
    """Twelve near copies of one text, joined to the others or not, do not take the place of a topic."""
    X, y = topics(np.random.default_rng(0), 1200, common=0.6)
    rng = np.random.default_rng(1)
    copies = 40 * rng.multinomial(60, np.full(40, 1 / 40)) + rng.integers(0, 2, (12, 40))
    for n_dense in (2000, 0):
        monkeypatch.setattr(target, "_DENSE", n_dense)
        found = SpectralClusterer(4, random_state=0).fit_predict(np.vstack([X, copies]))
        assert normalized_mutual_info_score(y, found[:1200]) > 0.8


def test_copies_are_neighbours_of_each_other():
    """More copies of a row than it has neighbours."""
    X = np.repeat(np.eye(3) + 0.1, [30, 2, 30], axis=0)
    clusterer = SpectralClusterer(3, n_neighbors=4, random_state=0).fit(X)
    assert len({tuple(clusterer.labels_[rows]) for rows in (slice(0, 30), slice(32, 62))}) == 2
    assert all(len(set(clusterer.labels_[rows].tolist())) == 1 for rows in (slice(0, 30), slice(32, 62)))


def test_threads_do_not_matter():
    X, _ = topics(np.random.default_rng(0))
    one, two = (SpectralClusterer(4, random_state=0, n_jobs=n).fit(X) for n in (1, 2))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.embedding_, two.embedding_)


def test_histograms_of_a_codebook_are_clustered():
    rng = np.random.default_rng(0)
    bags = [rng.normal(centre, 1.0, (30, 2)) for centre in (0, 6) * 6]
    histograms = BagOfFeatures(8, sparse_output=True, random_state=0).fit_transform(bags)
    assert sp.issparse(histograms)
    labels = SpectralClusterer(2, n_neighbors=3, random_state=0).fit_predict(histograms)
    assert clustering_report(histograms, labels, np.arange(12) % 2)["purity"] == 1


def test_bad_input():
    with pytest.raises(BagwiseError, match="Did you mean 'chi2'"):
        SpectralClusterer(2, metric="chi").fit(np.eye(3))
    with pytest.raises(BagwiseError, match="Did you mean 'random_walk'"):
        SpectralClusterer(2, laplacian="random").fit(np.eye(3))
    with pytest.raises(BagwiseError, match="n_clusters=5, but there are only 3 samples"):
        SpectralClusterer(5).fit(np.eye(3))
    with pytest.raises(BagwiseError, match=r"metric='chi2' needs non-negative data.*sample 0, word 1"):
        SpectralClusterer(2, metric="chi2").fit([[1, -1], [0, 1], [1, 1]])
    with pytest.raises(BagwiseError, match="Did you mean 'spectral'"):
        cluster_bags([np.eye(2)] * 4, 2, method="spectra")


@pytest.mark.parametrize("method", ["auto", "kmeans", "spectral"])
@pytest.mark.parametrize("words", ["manifold", "plain"])
def test_bags_are_clustered_and_new_ones_assigned(method, words):
    rng = np.random.default_rng(0)
    bags = [rng.normal(centre, 1.0, (40, 2)) for centre in (0, 6) * 8]
    encoder = None if words == "manifold" else BagOfFeatures(8, random_state=0)
    labels, model = cluster_bags(bags, 2, encoder=encoder, method=method, random_state=0)
    assert clustering_report(np.zeros((16, 1)), labels, [0, 1] * 8)["purity"] == 1
    new = [rng.normal(centre, 1.0, (25, 2)) for centre in (0, 6, 6)]
    predicted = model.predict(new)
    assert predicted.tolist() == [labels[0], labels[1], labels[1]]
    assert predicted.tolist() == [model.predict([bag])[0] for bag in new]


def test_methods_are_those_of_the_estimators():
    rng = np.random.default_rng(0)
    bags = [rng.normal(centre, 1.0, (40, 2)) for centre in (0, 6) * 8]
    encoder = BagOfFeatures(8, random_state=0)
    labels, model = cluster_bags(bags, 2, encoder=encoder, method="kmeans", random_state=0)
    assert isinstance(model[-1], KMeans)
    roots = np.sqrt(normalize(encoder.fit_transform(bags), "l1"))
    np.testing.assert_array_equal(model[-1].predict(roots), labels)
    _, model = cluster_bags(bags, 2, encoder=encoder, method="spectral", random_state=0)
    assert model[-1].get_params()["metric"] == "hellinger"


@pytest.mark.parametrize("method", ["auto", "kmeans", "spectral"])
def test_clusters_do_not_depend_on_the_sizes_of_bags(method):
    rng = np.random.default_rng(0)
    classes, sizes = np.arange(60) % 3, np.repeat([40, 160, 640], 20)
    words, frequencies = 3 * rng.normal(size=(12, 3)), rng.dirichlet(np.ones(12), size=3)
    bags = [
        words[rng.choice(12, size, p=frequencies[c])] + rng.normal(0.0, 0.5, (size, 3))
        for c, size in zip(classes, sizes, strict=True)
    ]
    encoder = BagOfFeatures(16, n_init=1, random_state=0)
    labels, model = cluster_bags(bags, 3, encoder=encoder, method=method, random_state=0)
    assert normalized_mutual_info_score(classes, labels) > 0.9
    assert normalized_mutual_info_score(sizes, labels) < 0.1
    assert normalized_mutual_info_score(labels, model.predict(bags)) > 0.9


def test_features_of_bags_are_halved():
    rng = np.random.default_rng(0)
    bags = Bags(np.arange(9.0)[:, np.newaxis], [0, 4, 5, 5, 9], positions=rng.random((9, 2)))
    one, two = _halves(bags, np.random.RandomState(0))
    assert one.lengths.tolist() == two.lengths.tolist() == [2, 1, 0, 2]
    for i in range(4):
        assert set(one[i].ravel()) | set(two[i].ravel()) == set(bags[i].ravel())
        np.testing.assert_array_equal(one.positions_of(i), bags.positions[one[i].ravel().astype(int)])


class Mean(BaseEstimator):
    def fit(self, bags):
        return self

    def transform(self, bags):
        share = np.array([bag.mean() for bag in bags])
        return np.stack([share, 1 - share], axis=1)


class Above(ClusterMixin, BaseEstimator):
    """Two clusters: shares above a limit, and others."""

    def __init__(self, limit):
        self.limit = limit

    def fit(self, X, y=None):
        self.labels_ = (X[:, 0] > self.limit).astype(int)
        return self


def test_the_method_whose_clusters_share_more_information_is_chosen(monkeypatch):
    """One object apart is found again in any half, but a less certain cut in the middle tells more."""
    rng = np.random.default_rng(0)
    bags = [np.ones((20, 1))] + [(rng.random((20, 1)) < p).astype(float) for p in np.linspace(0.1, 0.9, 60)]
    limits = {"spectral": 0.99, "kmeans": 0.5}
    monkeypatch.setattr(
        clustering, "_clusterer", lambda method, *_: Pipeline([("clusterer", Above(limits[method]))])
    )  # fmt: skip
    labels, model = cluster_bags(bags, 2, encoder=Mean(), random_state=0)
    assert model[-1].limit == 0.5
    limits.update(spectral=0.5, kmeans=0.99)
    assert cluster_bags(bags, 2, encoder=Mean(), random_state=0)[1][-1].limit == 0.5
    assert 10 < labels.sum() < 50


def test_fewer_clusters_in_a_half_are_no_warning_but_others_are():
    few = np.repeat(np.eye(2), 4, axis=0)

    class Warns(Above):
        def fit(self, X, y=None):
            warnings.warn("something else", UserWarning, stacklevel=2)
            return super().fit(X)

    makers = {"kmeans": lambda: KMeans(3, n_init=1, random_state=0), "other": lambda: Warns(2)}
    with pytest.warns(UserWarning, match="something else") as found:
        assert steadier(lambda _: [few, few], makers, 0) == "kmeans"
    assert {str(warning.message) for warning in found} == {"something else"}


def blobs(n_each, n_kinds=4, seed=0, spread=0.15):
    rng = np.random.default_rng(seed)
    centres = 3 * np.eye(max(n_kinds, 3))[:n_kinds]
    return np.concatenate([rng.normal(centre, spread, (n_each, centres.shape[1])) for centre in centres])


def test_the_most_stable_number_is_that_of_clear_clusters():
    X = blobs(30)
    numbers = suggest_n_clusters(X)
    assert numbers.suggested == 4
    assert numbers.stability_of(4) > 0.95
    assert numbers.stability_of(1) is None
    assert numbers.sizes[0] == 2
    assert max(numbers.sizes) <= len(X) / 5
    assert suggest_n_clusters(X, n_jobs=2) == numbers
    assert suggest_n_clusters(np.concatenate([X, np.repeat(X[:1], 500, axis=0)])) == numbers  # copies count once
    assert suggest_n_clusters(X, [2, 4]).sizes == (2, 4)
    for few in (X[:3], np.repeat(X[:2], 5, axis=0)):
        with pytest.raises(BagwiseError, match="different items; there are"):
            suggest_n_clusters(few)
    with pytest.raises(BagwiseError, match="needs at least 160 different items"):
        suggest_n_clusters(X, [80])
    with pytest.raises(BagwiseError, match="sizes must have at least one number"):
        suggest_n_clusters(X, [])
    with pytest.raises(BagwiseError, match="n_draws must be at least 1"):
        suggest_n_clusters(X, n_draws=0)


def test_certainty_is_how_often_other_halves_say_the_same():
    X = np.random.default_rng(0).normal(size=(400, 2))  # no clusters: the halves disagree at the borders
    found = cluster_rows(X, 3)
    agreed = np.zeros(len(X))
    for seed in range(40):
        half = np.random.default_rng(100 + seed).permutation(400)[:200]
        own = cluster_rows(X[half], 3, random_state=seed).assign(X)[0]
        names = [np.bincount(found.labels[own == k], minlength=3) for k in range(3)]
        best = max(itertools.permutations(range(3)), key=lambda p: sum(names[k][p[k]] for k in range(3)))
        agreed += np.array(best)[own] == found.labels
    assert abs(found.certainty.mean() - (agreed / 40).mean()) < 0.08
    assert np.corrcoef(found.certainty, agreed)[0, 1] > 0.5
    clear = cluster_rows(blobs(30), 4)
    assert clear.certainty.min() > 0.99


def test_clustered_rows_are_those_of_kmeans_whatever_the_order_and_the_threads():
    X = blobs(20)
    found = cluster_rows(X, 4, random_state=1)
    assert normalized_mutual_info_score(found.labels, KMeans(4, n_init=10, random_state=0).fit(X).labels_) == 1
    for c in range(4):
        np.testing.assert_allclose(found.centers[c], X[found.labels == c].mean(axis=0))
    labels, certainty = found.assign(X)
    np.testing.assert_array_equal(labels, found.labels)
    np.testing.assert_allclose(certainty, found.certainty)
    np.testing.assert_array_equal(cluster_rows(X, 4, random_state=1, n_jobs=2).certainty, found.certainty)
    order = np.random.default_rng(2).permutation(len(X))
    shuffled = cluster_rows(X[order], 4, random_state=1).labels
    assert normalized_mutual_info_score(shuffled, found.labels[order]) == 1
    copies = cluster_rows(np.concatenate([X, np.repeat(X[:1], 100, axis=0)]), 4, random_state=1)
    np.testing.assert_allclose(np.sort(copies.centers, axis=0), np.sort(found.centers, axis=0))
    np.testing.assert_array_equal(copies.labels[80:], copies.labels[0])
    given = cluster_rows(X, 2, labels=np.repeat([5, 1], 40))
    assert given.labels.tolist() == [0] * 40 + [1] * 40  # of equal sizes the one of the first item
    with pytest.raises(BagwiseError, match="only 80 different items"):
        cluster_rows(X, 81)
    with pytest.raises(BagwiseError, match="labels must be 80 numbers"):
        cluster_rows(X, 2, labels=[0, 1])
