import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError, merge_words
from bagwise.criteria import LocalDiscriminant, LocalityPreserving, MarginalFisher, NonparametricDiscriminant
from bagwise.merging import neighbors
from bagwise.merging.neighbors import ApproximateNeighbors, ExactNeighbors, find_neighbors, nearest


def slow_neighbors(X, k, metric, allowed):
    """For each sample the set of its k nearest, by sorting all candidates with ties by index."""
    chosen = []
    for i in range(len(X)):
        candidates = [j for j in range(len(X)) if j != i and allowed(i, j)]
        if metric == "intersection":
            candidates.sort(key=lambda j: (-np.minimum(X[i], X[j]).sum(), j))
        else:
            candidates.sort(key=lambda j: (((X[i] - X[j]) ** 2).sum(), j))
        chosen.append(sorted(candidates[:k]))
    return chosen


def as_lists(graph):
    return [np.flatnonzero(row).tolist() for row in graph.toarray()]


@pytest.mark.parametrize("metric", ["intersection", "euclidean"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), d=st.integers(1, 70), k=st.integers(1, 14))
@settings(max_examples=25)
def test_neighbors_are_the_nearest_with_ties_by_index(metric, form, seed, n, d, k):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n, d)).astype(float)  # whole numbers: distances are exact, ties are common
    codes = rng.integers(0, 3, n)
    found = ExactNeighbors(form(X), metric)
    assert as_lists(found.graph(k)) == slow_neighbors(X, k, metric, lambda i, j: True)
    same = found.graph(k, codes, "same")
    assert as_lists(same) == slow_neighbors(X, k, metric, lambda i, j: codes[i] == codes[j])
    other = found.graph(k, codes, "other")
    assert as_lists(other) == slow_neighbors(X, k, metric, lambda i, j: codes[i] != codes[j])


def test_blocks_and_threads_do_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((60, 45))
    for metric in neighbors.METRICS:
        for data in (X, sp.csr_array(X * (X > 0.7))):
            whole = ExactNeighbors(data, metric).graph(7)
            with monkeypatch.context() as patch:
                patch.setattr(neighbors, "_BLOCK", 9)
                np.testing.assert_array_equal(ExactNeighbors(data, metric).graph(7).toarray(), whole.toarray())
            threaded = ExactNeighbors(data, metric, n_threads=3).graph(7)
            np.testing.assert_array_equal(threaded.toarray(), whole.toarray())


def test_rows_without_candidates_stay_empty():
    near = np.array([[-np.inf, 1.0], [1.0, -np.inf]])
    assert not nearest(near, 1, np.zeros((2, 2), dtype=bool)).any()


def test_distances_of_pairs():
    rng = np.random.default_rng(0)
    X = rng.random((9, 4)) * (rng.random((9, 4)) < 0.5)
    rows, columns = np.array([0, 3, 8]), np.array([1, 3, 2])
    expected = ((X[rows] - X[columns]) ** 2).sum(axis=1)
    for data in (X, sp.csr_array(X)):
        np.testing.assert_allclose(ExactNeighbors(data, "euclidean").squared_distances(rows, columns), expected)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_negative_data_have_no_intersection(form):
    X = np.ones((3, 4))
    X[1, 2] = -0.5
    with pytest.raises(BagwiseError, match=r"sample 1, word 2 is -0\.5.*euclidean"):
        ExactNeighbors(form(X), "intersection")
    with pytest.raises(BagwiseError, match=r"sample 1, word 2 is -0\.5.*euclidean"):
        ApproximateNeighbors(form(X), "intersection")
    assert ExactNeighbors(form(X), "euclidean").n_samples == 3


def test_unknown_metrics_are_named():
    with pytest.raises(BagwiseError, match="Did you mean 'euclidean'"):
        ExactNeighbors(np.ones((2, 2)), "euclidian")


def clustered(n=240, d=12, seed=0):
    """Samples around 15 centres in 3 classes, without ties."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, n)
    return rng.random((15, d))[rng.integers(0, 15, n)] + 0.1 * rng.random((n, d)), codes


@pytest.fixture
def all_cells(monkeypatch):
    """Search all cells, so that nothing is missed; some samples at a time."""
    monkeypatch.setattr(neighbors, "_PROBED", 2.0)
    monkeypatch.setattr(neighbors, "_PROBED_OF_CLASSES", 2.0)
    monkeypatch.setattr(neighbors, "_QUERIES", 33)


@pytest.mark.parametrize("metric", ["intersection", "euclidean"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_approximate_neighbors_in_all_cells_are_the_exact_ones(metric, form, all_cells):
    X, codes = clustered()
    exact, found = ExactNeighbors(form(X), metric), ApproximateNeighbors(form(X), metric)
    assert as_lists(found.graph(6)) == as_lists(exact.graph(6))
    for who in ("same", "other"):
        assert as_lists(found.graph(6, codes, who)) == as_lists(exact.graph(6, codes, who))
    assert as_lists(found.graph(500, codes, "same")) == as_lists(exact.graph(500, codes, "same"))
    assert as_lists(found.closest_pairs(codes, 40)) == as_lists(exact.closest_pairs(codes, 40))

    def of_classes(searched):
        """Neighbours in each class of the samples outside it."""
        parts = [
            (int(codes[row.indices[0]]), int(sample), tuple(row.indices))
            for samples, graph in searched.class_graphs(4, codes)
            for sample, row in zip(samples, graph, strict=True)
        ]
        return sorted(parts)

    assert of_classes(found) == of_classes(exact)


@pytest.mark.parametrize("metric", ["intersection", "euclidean"])
def test_approximate_neighbors_miss_few(metric, monkeypatch):
    monkeypatch.setattr(neighbors, "_PROBED_OF_CLASSES", 0.07)
    X, codes = clustered(900)
    exact, found = (kind(X, metric).graph(6, codes, "other") for kind in (ExactNeighbors, ApproximateNeighbors))
    assert 0.9 < exact.multiply(found).nnz / exact.nnz < 1


def test_samples_without_candidates_in_their_cells_are_searched_in_all(monkeypatch):
    """The cells nearest to a sample hold its own class alone."""
    monkeypatch.setattr(neighbors, "_PROBED_OF_CLASSES", 0.01)
    X, codes = clustered(200)
    X[codes > 0] += 50
    exact, found = (kind(X, "euclidean").graph(3, codes, "other") for kind in (ExactNeighbors, ApproximateNeighbors))
    np.testing.assert_array_equal(found.sum(axis=1), np.full(200, 3))
    assert as_lists(exact)[:1] == as_lists(found)[:1]


def test_neighbors_are_approximate_beyond_some_samples_with_faiss(monkeypatch):
    X, sparse = np.ones((30, 30)), sp.eye_array(30, format="csr")
    assert isinstance(find_neighbors(X, "euclidean"), ExactNeighbors)
    assert isinstance(find_neighbors(X, "euclidean", True), ApproximateNeighbors)
    monkeypatch.setattr(neighbors, "_EXACT_SAMPLES", 29)
    assert isinstance(find_neighbors(X, "euclidean"), ApproximateNeighbors)
    assert isinstance(find_neighbors(sparse, "euclidean"), ExactNeighbors)
    assert isinstance(find_neighbors(X, "euclidean", False), ExactNeighbors)
    monkeypatch.setattr(neighbors.importlib.util, "find_spec", lambda name: None)
    assert isinstance(find_neighbors(X, "euclidean"), ExactNeighbors)


@pytest.mark.parametrize("criterion", ["nda", "mfa", "lde", "lpp"])
def test_criteria_of_approximate_neighbors_in_all_cells_are_the_exact_ones(criterion, all_cells):
    X, y = clustered(120)
    known = {"nda": NonparametricDiscriminant, "mfa": MarginalFisher, "lde": LocalDiscriminant}
    kind = known.get(criterion, LocalityPreserving)
    of_nda = {"n_neighbors": 7, "n_total_neighbors": 9, "mode": "per_class"} if criterion == "nda" else {}
    exact, found = (
        merge_words(X, None if criterion == "lpp" else y, criterion=kind(approximate=approximate, **of_nda))
        for approximate in (False, True)
    )
    np.testing.assert_array_equal(found.merges, exact.merges)
    np.testing.assert_allclose(found.scores, exact.scores)
