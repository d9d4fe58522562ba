"""Approximate search: candidates from faiss, ranked by exact scores."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bagwise import BagIndex, BagwiseError
from bagwise.retrieval.histograms import METRICS
from bagwise.retrieval.store import Store

pytest.importorskip("faiss")


def clustered(rng, n, n_words=60, n_clusters=20):
    """Counts of words around the frequencies of clusters."""
    centres = rng.dirichlet(np.full(n_words, 0.1), size=n_clusters)
    return rng.poisson(40 * centres[rng.integers(n_clusters, size=n)]).astype(np.float32)


def recall(found, expected):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), expected.tolist(), strict=True)])


@given(
    st.sampled_from(sorted(METRICS)),
    st.sampled_from(["auto", "flat", "ivf"]),
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@hypothesis_settings(max_examples=30)
def test_with_all_items_as_candidates_it_is_exact(metric, structure, n, seed, sparse):
    rng = np.random.default_rng(seed)
    X, Q = clustered(rng, n), clustered(rng, 4)
    index = BagIndex(metric, method="approximate", structure=structure, n_candidates=n, n_probe=10**6)
    index.add(sp.csr_array(X) if sparse else X)
    scores, ids = index.search(Q, 7)
    expected, expected_ids = BagIndex(metric).add(X).search(Q, 7)
    np.testing.assert_array_equal(ids, expected_ids)
    assert scores.tobytes() == expected.tobytes()


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("structure", ["flat", "ivf", "hnsw"])
def test_most_of_the_nearest_are_found_in_clustered_data(metric, structure):
    rng = np.random.default_rng(0)
    X, Q = np.split(clustered(rng, 1550), [1500])
    index = BagIndex(metric, method="approximate", structure=structure, n_jobs=2).add(X)
    _, ids = index.search(Q)
    assert recall(ids, BagIndex(metric).add(X).search(Q)[1]) >= 0.9
    again = BagIndex(metric, method="approximate", structure=structure, n_jobs=2).add(X)
    np.testing.assert_array_equal(again.search(Q)[1], ids)


def test_intersections_of_histograms_of_different_sizes_are_ranked_by_l1():
    rng = np.random.default_rng(0)
    X = clustered(rng, 2000) * rng.integers(1, 9, (2000, 1))
    Q = clustered(rng, 30)
    index = BagIndex("intersection", method="approximate", structure="flat", n_candidates=30).add(X[:1000])
    index.search(Q)
    index.add(X[1000:])  # larger ones than before
    np.testing.assert_allclose(index.search(Q)[0], BagIndex("intersection").add(X).search(Q)[0])


def test_more_cells_find_more_and_can_be_set_later():
    rng = np.random.default_rng(0)
    X, Q = rng.random((4000, 30)), rng.random((50, 30))
    expected = BagIndex("euclidean").add(X).search(Q)[1]
    index = BagIndex("euclidean", method="approximate", structure="ivf", n_probe=1).add(X)
    recalls = []
    for n_probe in (1, 8, 1000):
        index.n_probe = n_probe
        recalls.append(recall(index.search(Q)[1], expected))
    assert recalls == sorted(recalls)
    assert recalls[0] < recalls[-1] == 1
    index.n_probe = 0
    with pytest.raises(BagwiseError, match="n_probe must be at least 1"):
        index.search(Q)


@pytest.mark.parametrize("structure", ["flat", "ivf", "hnsw"])
def test_items_come_and_go(structure):
    rng = np.random.default_rng(0)
    X, Q = clustered(rng, 3000), clustered(rng, 20)
    index = BagIndex("chi2", method="approximate", structure=structure, n_probe=10**6, n_candidates=300)
    kept = np.zeros(3000, dtype=bool)
    for start, stop, step in [(0, 500, 7), (500, 700, 50), (700, 2800, 3), (2800, 3000, 2)]:
        index.add(X[start:stop], np.arange(start, stop))
        index.search(Q[:1])
        kept[start:stop] = True
        gone = np.arange(start, stop, step)
        index.remove(gone)
        kept[gone] = False
        expected = BagIndex("chi2").add(X[kept], np.flatnonzero(kept)).search(Q)
        found = index.search(Q)
        if structure == "hnsw":
            assert recall(found[1], expected[1]) >= 0.9
        else:
            np.testing.assert_allclose(found[0], expected[0])
        assert kept[found[1]].all()


def test_queries_with_too_few_candidates_are_searched_exactly():
    rng = np.random.default_rng(0)
    X, Q = clustered(rng, 400), clustered(rng, 10)
    index = BagIndex("hellinger", method="approximate", structure="ivf", n_probe=1).add(X)
    scores, ids = index.search(Q, 200)
    expected, expected_ids = BagIndex("hellinger").add(X).search(Q, 200)
    np.testing.assert_array_equal(ids, expected_ids)
    assert scores.tobytes() == expected.tobytes()


def test_a_large_index_gets_cells(monkeypatch, tmp_path):
    monkeypatch.setattr("bagwise.retrieval.candidates._FLAT_ITEMS", 100)
    learned = []
    monkeypatch.setattr(
        "bagwise.retrieval.candidates.Candidates._learn_cells",
        lambda self, store, n_features: learned.append(len(store)) or np.eye(20, n_features, dtype=np.float32),
    )
    X = clustered(np.random.default_rng(0), 900)
    index = BagIndex(method="approximate").add(X[:100])
    index.search(X[:1])
    index.add(X[100:300])
    index.search(X[:1])
    assert learned == []
    index.add(X[300:600])
    index.search(X[:1])
    assert learned == [600]
    loaded = BagIndex.load(index.save(tmp_path / "index"))
    np.testing.assert_array_equal(loaded.search(X[:50])[1], index.search(X[:50])[1])
    for other in (index, BagIndex.load(tmp_path / "index")):
        other.remove(np.arange(50)).add(X[600:])
    later = BagIndex.load(tmp_path / "index").remove(np.arange(50)).add(X[600:])
    np.testing.assert_array_equal(later.search(X[:50])[1], index.search(X[:50])[1])
    assert learned == [600]  # what was saved is not learned again


def test_vectors_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr("bagwise.retrieval.candidates.free_memory", lambda: 1000)
    index = BagIndex(method="approximate").add(np.eye(40))
    with pytest.raises(BagwiseError, match=r"40 vectors of 40 numbers, 6.40 kB; 1.00 kB are free. Use method='exact'"):
        index.search(np.eye(40))


def test_without_faiss_the_error_names_the_extra():
    script = "import sys\nsys.modules['faiss'] = None\nfrom bagwise import BagIndex\nBagIndex()\n"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
    result = subprocess.run(
        [sys.executable, "-c", script + "BagIndex(method='approximate')"], capture_output=True, text=True
    )
    assert 'Approximate search needs faiss. Install it with: pip install "bagwise[ann]"' in result.stderr


def test_one_of_two_searches_writes_changes(monkeypatch):
    X = np.random.default_rng(0).random((200, 6))
    index = BagIndex("euclidean", method="approximate", n_candidates=20).add(X)
    index.search(X[:2], 1)
    index.remove(range(10))
    found, written, changed = [], [], Store.changed
    other = threading.Thread(target=lambda: found.append(index.search(X[100:], 1)[1].ravel()))

    def slowly(self, *given):
        written.append(self)
        if len(written) == 1:
            other.start()
            other.join(0.2)  # it would write as well, if nothing kept it from doing so
        return changed(self, *given)

    monkeypatch.setattr(Store, "changed", slowly)
    first = index.search(X[100:], 1)[1].ravel()
    other.join()
    assert len(written) == 1
    for ids in (first, *found, index.search(X[100:], 1)[1].ravel()):
        np.testing.assert_array_equal(ids, np.arange(100, 200))
