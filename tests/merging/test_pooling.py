import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bagwise import BagwiseError
from bagwise.merging import _kernels
from bagwise.merging.pooling import POOLINGS, pool, spread


@st.composite
def grouped(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, d = draw(st.integers(0, 8)), draw(st.integers(1, 60))
    n_groups = draw(st.integers(1, d))
    labels = rng.permutation(np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, d - n_groups)]))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < draw(st.sampled_from([0.02, 0.3, 1.0])))
    return X, labels, n_groups


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(grouped())
def test_pooling_adds_up_groups_dense_and_sparse(pooling, dtype, case):
    X, labels, n_groups = case
    X = X.astype(dtype)
    sizes = np.bincount(labels)
    divisor = {"sum": np.ones(n_groups), "mean": sizes, "sqrt": np.sqrt(sizes)}[pooling]
    expected = np.stack([X[:, labels == g].sum(axis=1) for g in range(n_groups)], axis=1) / divisor
    dense = pool(X, labels, n_groups, pooling)
    np.testing.assert_allclose(dense, expected, rtol=1e-5, atol=1e-6)
    assert dense.dtype == dtype
    for form in (sp.csr_matrix, sp.csr_array):
        sparse = pool(form(X), labels, n_groups, pooling)
        assert isinstance(sparse, form)
        assert sparse.dtype == dtype
        np.testing.assert_allclose(sparse.toarray(), dense, rtol=0, atol=1e-12 if dtype == np.float64 else 1e-5)
        counts = np.round(10 * X)
        np.testing.assert_array_equal(
            pool(form(counts), labels, n_groups, pooling).toarray(), pool(counts, labels, n_groups, pooling)
        )
        sparse.check_format(full_check=True)
        assert sparse.has_canonical_format
        assert (np.diff(sparse.indices)[np.diff(np.repeat(np.arange(len(X)), np.diff(sparse.indptr))) == 0] > 0).all()


@pytest.mark.parametrize("kernel", [_kernels._pool_to_few, _kernels._pool_to_many])
@pytest.mark.parametrize("filled", [0.005, 0.2, 0.9])
@pytest.mark.parametrize("n_groups", [3, 90, 400])
def test_both_ways_to_pool_sparse_rows(kernel, filled, n_groups):
    rng = np.random.default_rng(n_groups)
    counts = rng.integers(-3, 4, (30, 600)) * (rng.random((30, 600)) < filled)
    X = sp.csr_array(counts.astype(float))
    labels = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, 600 - n_groups)])
    starts, groups, values = np.zeros(31, dtype=np.int32), np.empty(X.nnz + 1, dtype=np.int32), np.empty(X.nnz + 1)
    kernel(X.indptr, X.indices, X.data, labels, np.ones(n_groups), starts, groups, values)
    pooled = sp.csr_array((values[: starts[-1]], groups[: starts[-1]], starts), shape=(30, n_groups))
    pooled.check_format(full_check=True)
    assert pooled.has_canonical_format
    assert (pooled.data != 0).all()
    np.testing.assert_array_equal(pooled.toarray(), pool(counts.astype(float), labels, n_groups))


@pytest.mark.parametrize("n_groups", [257, 4096, 4097, 20_000])
@pytest.mark.parametrize("signed", [False, True])
def test_many_groups_come_in_order(n_groups, signed):
    rng = np.random.default_rng(n_groups)
    d = n_groups + 500
    X = sp.random_array((25, d), density=0.01, format="csr", random_state=rng)
    X.data = np.rint(9 * X.data) - 4  # some sums are zero
    labels = rng.permutation(np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, 500)]))
    signs = rng.choice([-1, 1], d).astype(np.int8) if signed else None
    to_groups = sp.csr_array(((signs if signed else np.ones(d)), (np.arange(d), labels)), shape=(d, n_groups))
    pooled = pool(X, labels, n_groups, weights=signs)
    pooled.check_format(full_check=True)
    assert pooled.has_canonical_format
    assert (pooled.data != 0).all()
    np.testing.assert_array_equal(pooled.toarray(), (X @ to_groups).toarray())
    np.testing.assert_array_equal(pool(X.toarray(), labels, n_groups, weights=signs), pooled.toarray())


@pytest.mark.parametrize("pooling", POOLINGS)
@given(grouped(), st.integers(0, 10**6))
def test_signs_and_sizes(pooling, case, seed):
    X, labels, n_groups = case
    rng = np.random.default_rng(seed)
    signs, sizes = rng.choice([-1, 1], X.shape[1]).astype(np.int8), rng.integers(1, 5, n_groups)
    divisor = {"sum": np.ones(n_groups), "mean": sizes, "sqrt": np.sqrt(sizes)}[pooling]
    expected = pool(X * signs, labels, n_groups) / divisor
    Z = pool(X, labels, n_groups, pooling, weights=signs, sizes=sizes)
    np.testing.assert_allclose(Z, expected, atol=1e-12)
    sparse = pool(sp.csr_array(X), labels, n_groups, pooling, weights=signs, sizes=sizes)
    np.testing.assert_allclose(sparse.toarray(), expected, atol=1e-12)
    back = spread(Z, labels, pooling, weights=signs, sizes=sizes)
    np.testing.assert_allclose(pool(back, labels, n_groups, pooling, weights=signs, sizes=sizes), Z, atol=1e-12)
    widened = spread(sp.csr_array(Z), labels, pooling, weights=signs, sizes=sizes)
    np.testing.assert_allclose(widened.toarray(), back, atol=1e-12)


@pytest.mark.parametrize("pooling", POOLINGS)
@given(grouped())
def test_spreading_then_pooling_is_the_identity(pooling, case):
    X, labels, n_groups = case
    Z = pool(X, labels, n_groups, pooling)
    back = spread(Z, labels, pooling)
    assert back.shape == X.shape
    np.testing.assert_allclose(pool(back, labels, n_groups, pooling), Z, atol=1e-12)
    np.testing.assert_allclose(spread(sp.csr_array(Z), labels, pooling).toarray(), back, atol=1e-12)


def test_wide_indices_and_other_memory_layouts():
    X = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    labels = np.array([0, 1, 0, 1])
    expected = [[2, 4], [10, 12], [18, 20]]
    np.testing.assert_array_equal(pool(X, labels, 2), expected)
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    np.testing.assert_array_equal(pool(wide, labels, 2).toarray(), expected)


def test_unknown_poolings_are_named():
    with pytest.raises(BagwiseError, match="Did you mean 'mean'"):
        pool(np.ones((1, 2)), np.array([0, 0]), 1, "meen")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_groups", [3, 90, 300])
def test_a_row_alone_is_pooled_to_the_same_bits_as_among_others(dtype, n_groups):
    """A few rows are pooled in NumPy, many by compiled code."""
    rng = np.random.default_rng(n_groups)
    X = (rng.normal(size=(9, 600)) * (rng.random((9, 600)) < 0.3)).astype(dtype)
    X[4], X[5, ::2], X[5, 1::2] = 0, 1, -1  # a row without words, and sums that vanish
    labels = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, 600 - n_groups)])
    for form in (np.asarray, sp.csr_array, sp.csr_matrix):
        together = pool(form(X), labels, n_groups, "sqrt")
        for i in range(len(X)):
            alone = pool(form(X)[i : i + 1], labels, n_groups, "sqrt")
            assert type(alone) is type(together)
            assert alone.dtype == together.dtype
            if sp.issparse(alone):
                alone.check_format(full_check=True)
                assert alone.nnz == together[[i]].nnz
                alone, row = alone.toarray(), together[[i]].toarray()
            else:
                row = together[[i]]
            np.testing.assert_array_equal(alone, row)
