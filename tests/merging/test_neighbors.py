import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError
from bagwise.merging import neighbors
from bagwise.merging.neighbors import Nearness, nearest, neighbor_graph


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
    nearness = Nearness(form(X), metric)
    assert as_lists(neighbor_graph(nearness, k)) == slow_neighbors(X, k, metric, lambda i, j: True)
    same = neighbor_graph(nearness, k, codes, "same")
    assert as_lists(same) == slow_neighbors(X, k, metric, lambda i, j: codes[i] == codes[j])
    other = neighbor_graph(nearness, k, codes, "other")
    assert as_lists(other) == slow_neighbors(X, k, metric, lambda i, j: codes[i] != codes[j])


def test_blocks_and_threads_do_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((60, 45))
    for metric in neighbors.METRICS:
        for data in (X, sp.csr_array(X * (X > 0.7))):
            whole = neighbor_graph(Nearness(data, metric), 7)
            with monkeypatch.context() as patch:
                patch.setattr(neighbors, "_BLOCK", 9)
                np.testing.assert_array_equal(neighbor_graph(Nearness(data, metric), 7).toarray(), whole.toarray())
            threaded = neighbor_graph(Nearness(data, metric, n_threads=3), 7)
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
        np.testing.assert_allclose(Nearness(data, "euclidean").squared_distances(rows, columns), expected)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_negative_data_have_no_intersection(form):
    X = np.ones((3, 4))
    X[1, 2] = -0.5
    with pytest.raises(BagwiseError, match=r"sample 1, word 2 is -0\.5.*euclidean"):
        Nearness(form(X), "intersection")
    assert Nearness(form(X), "euclidean").n_samples == 3


def test_unknown_metrics_are_named():
    with pytest.raises(BagwiseError, match="Did you mean 'euclidean'"):
        Nearness(np.ones((2, 2)), "euclidian")
