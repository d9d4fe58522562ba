import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import Bags, BagwiseError
from bagwise.codebooks import kmeans as kmeans_module
from bagwise.codebooks import kmeans_words, learn_codebook
from bagwise.codebooks.batches import Reservoir, as_batches
from bagwise.codebooks.kmeans import _distinct_rows, seed_words


def clusters(seed=0, n=600, K=8, D=5, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(K, D))[rng.integers(0, K, n)] * 5 + rng.normal(size=(n, D))).astype(dtype)


def inertia(values, words):
    return sum(min(np.sum((x - w) ** 2) for w in words.astype(float)) for x in values.astype(float))


@pytest.mark.parametrize("backend", ["blocked", "sklearn", "faiss"])
def test_backends_find_the_same(backend):
    if backend == "faiss":
        pytest.importorskip("faiss")
    values = clusters()
    ours = kmeans_words(values, 8, n_init=1, max_iter=50, tol=0, random_state=0)
    found = kmeans_words(values, 8, n_init=1, max_iter=50, tol=0, random_state=0, backend=backend)
    np.testing.assert_allclose(found.inertia, inertia(values, found.words), rtol=1e-5)
    np.testing.assert_allclose(found.words, ours.words, atol=1e-3)  # the same seeds, no empty words
    assert found.words.dtype == np.float32


def test_one_iteration_is_the_means_of_the_nearest():
    values = clusters(1, n=200, dtype=np.float64)
    distinct, counts = _distinct_rows(values)
    seeds = seed_words(distinct, counts, 6, np.random.default_rng(3), 1)
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
    monkeypatch.setattr(kmeans_module, "_SEEDING_ROWS", 64)
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
    distinct, counts = _distinct_rows(values)
    assert counts.sum() == len(values)
    seeds = seed_words(distinct, counts, n_words, rng, 1)
    assert len(np.unique(seeds, axis=0)) == n_words
    found = kmeans_words(values, n_words, n_init=1, random_state=int(seed))
    assert len(np.unique(found.words, axis=0)) == n_words
    if n_words == len(grid):
        assert found.inertia == 0


def test_words_that_lose_all_vectors_move():
    values = np.array([[0.0], [0.1], [0.2], [10.0], [10.1], [50.0]])
    seeds = np.array([[0.1], [0.1001], [1000.0]])  # the third has no vector
    found = kmeans_module._blocked_words(values, seeds, 50, 0.0, 1)
    assert found.inertia < 0.1


def test_seeds_are_drawn_by_squared_distance():
    distinct = np.array([[0.0], [1.0], [3.0]])
    n = 3000
    drawn = [tuple(seed_words(distinct, np.array([1, 1, 1]), 2, np.random.default_rng(i), 1).ravel()) for i in range(n)]
    first = [pair[1] for pair in drawn if pair[0] == 0.0]
    share = np.mean(np.array(first) == 3.0)  # 9 to 1
    assert abs(share - 0.9) < 4 * np.sqrt(0.09 / len(first))


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


def test_bad_input(monkeypatch):
    values = np.eye(3, dtype=np.float32)
    with pytest.raises(BagwiseError, match="only n_samples=3 vectors"):
        learn_codebook([values], 4)
    with pytest.raises(BagwiseError, match="only n_samples=0 vectors"):
        learn_codebook([], 1)
    with pytest.raises(BagwiseError, match="only 3 of the 6 vectors differ"):
        learn_codebook([values, values], 4)
    with pytest.raises(BagwiseError, match="Batch 1 has 2 features, but batch 0 has 3"):
        learn_codebook([Bags.from_list([values]), Bags.from_list([values[:, :2]])], 2)
    with pytest.raises(BagwiseError, match="Unknown backend"):
        learn_codebook([values], 2, backend="gpu")
    for name in ("n_words", "n_init", "max_iter", "n_samples"):
        with pytest.raises(BagwiseError, match=name):
            learn_codebook([values], **{"n_words": 2, name: 0})
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(BagwiseError, match=r"bagwise\[ann\]"):
        learn_codebook([values], 2, backend="faiss")
