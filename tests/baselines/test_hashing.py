import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from bagwise import BagwiseError
from bagwise._utils.hashing import hashes
from bagwise.baselines.hashing import HashMerger


def test_the_hash_is_splitmix64():
    mask = 2**64 - 1

    def mix(z):
        z = (z + 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    assert mix(0) == 0xE220A8397B1DCDAF  # the first output of the published generator from seed 0
    for first in (0, 7, 2**63, 2**64 - 3):
        assert hashes(6, first).tolist() == [mix((first + i) & mask) for i in range(6)]


def test_results_are_the_same_everywhere():
    merger = HashMerger(7, random_state=5).fit(np.zeros((1, 12)))
    assert merger.labels_.tolist() == [3, 2, 0, 2, 3, 5, 0, 6, 3, 3, 4, 1]
    assert merger.signs_.tolist() == [1, 1, 1, 1, -1, 1, -1, 1, -1, 1, -1, -1]
    assert merger.labels_.dtype == np.int64
    assert merger.signs_.dtype == np.int8


def test_it_is_the_sum_with_signs():
    X = np.random.default_rng(0).normal(size=(5, 40))
    for signed in (True, False):
        merger = HashMerger(6, signed=signed).fit(X)
        expected = np.zeros((5, 6))
        for i in range(40):
            expected[:, merger.labels_[i]] += merger.signs_[i] * X[:, i]
        np.testing.assert_allclose(merger.transform(X), expected)
    assert (merger.signs_ == 1).all()


def test_inner_products_are_right_on_average():
    rng = np.random.default_rng(1)
    X = rng.integers(0, 5, (2, 30)).astype(float)
    n_seeds = 2000
    signed, unsigned = np.empty(n_seeds), np.empty(n_seeds)
    for seed in range(n_seeds):
        z, other = HashMerger(8, random_state=seed).fit(X).transform(X)
        signed[seed] = z @ other
        z, other = HashMerger(8, random_state=seed, signed=False).fit(X).transform(X)
        unsigned[seed] = z @ other
    error = signed.std() / np.sqrt(n_seeds)
    assert abs(signed.mean() - X[0] @ X[1]) < 4 * error
    # without signs collisions only add: 1/8 of all products of different words
    excess = (X[0].sum() * X[1].sum() - X[0] @ X[1]) / 8
    assert abs(unsigned.mean() - X[0] @ X[1] - excess) < 4 * unsigned.std() / np.sqrt(n_seeds)


def test_seeds():
    X = np.zeros((1, 500))
    merger, same = HashMerger(random_state=1).fit(X), HashMerger(random_state=1).fit(X)
    np.testing.assert_array_equal(merger.labels_, same.labels_)
    np.testing.assert_array_equal(merger.signs_, same.signs_)
    for seed in (0, 2, 2**63, 2**64 - 1):
        other = HashMerger(random_state=seed).fit(X)
        assert (merger.labels_ == other.labels_).mean() < 0.1  # 1/50 by chance
        assert 0.3 < (merger.signs_ == other.signs_).mean() < 0.7
    longer = HashMerger(random_state=1).fit(np.zeros((1, 900)))  # words keep their places when others are added
    np.testing.assert_array_equal(longer.labels_[:500], merger.labels_)


@pytest.mark.parametrize("n", [1, 2, 10, 64, 1000])
def test_groups_and_signs_are_even_and_independent(n):
    d = 100_000
    merger = HashMerger(n, random_state=n).fit(sp.csr_array((1, d)))
    assert set(merger.signs_.tolist()) == {-1, 1}
    assert merger.labels_.min() >= 0
    assert merger.labels_.max() < n
    sizes = np.bincount(merger.labels_, minlength=n)
    assert abs(sizes - d / n).max() <= 5 * np.sqrt(d / n)
    signs = np.bincount(merger.labels_, weights=merger.signs_, minlength=n)
    assert abs(signs).max() <= 5 * np.sqrt(sizes.max())


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_is_dense(form, dtype):
    X = np.random.default_rng(2).integers(0, 3, (9, 50)).astype(dtype)
    merger = HashMerger(12).fit(form(X))
    dense, sparse = merger.transform(X), merger.transform(form(X))
    assert isinstance(dense, np.ndarray)
    assert sparse.format == "csr"
    assert sparse.has_sorted_indices
    assert isinstance(sparse, sp.sparray) == (form is sp.csr_array)
    assert dense.dtype == sparse.dtype == dtype
    np.testing.assert_array_equal(sparse.toarray(), dense)
    back = merger.inverse_transform(sparse)
    assert back.dtype == dtype
    np.testing.assert_allclose(back.toarray(), merger.inverse_transform(dense), rtol=1e-6)


def test_transforming_back_and_again():
    X = np.random.default_rng(3).random((4, 60))
    merger = HashMerger(5).fit(X)
    Z = merger.transform(X)
    np.testing.assert_allclose(merger.transform(merger.inverse_transform(Z)), Z)
    with pytest.raises(BagwiseError, match="expected one per group: 5"):
        merger.inverse_transform(Z[:, 1:])


def test_there_may_be_more_groups_than_words():
    X = np.arange(6.0).reshape(2, 3)
    merger = HashMerger(20).fit(X)
    Z = merger.transform(X)
    assert Z.shape == (2, 20)
    np.testing.assert_allclose(abs(Z).sum(axis=1), X.sum(axis=1))  # these three do not collide
    np.testing.assert_allclose(merger.inverse_transform(Z), X)
    names = merger.get_feature_names_out(["a", "b", "c"])
    assert names.tolist() == [f"hash{i}" for i in range(20)]


def test_what_was_fitted_stays():
    X = np.ones((2, 9))
    merger = HashMerger(4).fit(X).set_params(n_groups=2)
    assert merger.transform(X).shape == (2, 4)
    assert len(merger.get_feature_names_out()) == 4
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(merger)).transform(X), merger.transform(X))


def test_what_it_cannot_use():
    with pytest.raises(NotFittedError):
        HashMerger().transform(np.ones((2, 3)))
    for wrong in ({"n_groups": 0}, {"random_state": -1}, {"random_state": 2**64}, {"signed": "yes"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            HashMerger(**wrong).fit(np.ones((2, 3)))
