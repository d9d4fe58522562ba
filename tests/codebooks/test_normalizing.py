import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import normalize

from bagwise import BagwiseError
from bagwise.codebooks import BagNormalizer
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.kernels import hellinger


def divided(X, order):
    """Rows over their norm, those of zeros as they are."""
    norms = np.linalg.norm(X / abs(X).max(initial=1e-300), ord=order, axis=1, keepdims=True) * abs(X).max(
        initial=1e-300
    )
    return X / np.where(norms > 0, norms, 1)


@st.composite
def matrices(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6) * 10.0 ** draw(st.integers(-20, 15))
    return X.astype(draw(st.sampled_from([np.float32, np.float64])))


@given(matrices(), st.lists(st.sampled_from(["l1", "power", "l2"]), max_size=3), st.sampled_from([0.5, 0.25, 2.0]))
def test_steps_one_by_one_and_sparse_is_dense(X, steps, power):
    if power == 2.0:
        steps = [step for step in steps if step != "power"]  # squares of large numbers do not fit
    before = X.copy()
    found = BagNormalizer(steps, power=power).fit_transform(X)
    np.testing.assert_array_equal(X, before)
    expected = X.astype(float)
    for step in steps:
        expected = np.sign(expected) * abs(expected) ** power if step == "power" else divided(expected, int(step[1]))
    assert found.dtype == X.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-12)
    sparse = BagNormalizer(steps, power=power).fit_transform(sp.csr_array(X))
    assert sparse.format == "csr"
    np.testing.assert_allclose(sparse.toarray(), found, rtol=1e-5)


@pytest.mark.parametrize("steps", ["l1", "l2", ("l1", "power")])
def test_columns_in_any_order_within_a_row(steps):
    # products of sparse matrices have them so; the third row is empty
    entries = np.array([5.0, -1, 3, 2, 4]), np.array([3, 0, 2, 1, 0]), np.array([0, 3, 5, 5])
    unsorted = sp.csr_array(entries, shape=(3, 4))
    assert not unsorted.has_sorted_indices
    expected = normalize_rows(unsorted.toarray(), steps)
    np.testing.assert_allclose(normalize_rows(unsorted, steps).toarray(), expected)
    np.testing.assert_array_equal(unsorted.indices, [3, 0, 2, 1, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("steps", [("l1", "power"), ("power", "l2"), ("l2",), ("l1",), ("power",)])
def test_many_rows_are_what_each_is_alone(steps, dtype, monkeypatch):
    """Blocks of rows: of one row, of some, with empty rows and blocks, rows longer than a block."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(60, 7)) * (rng.random((60, 7)) < 0.5)).astype(dtype)
    X[20:35] = 0
    alone = np.vstack([normalize_rows(row[np.newaxis], steps) for row in X])
    for block in (1, 5, 7, 20, 1 << 15):
        monkeypatch.setattr("bagwise.codebooks.normalizing._BLOCK", block)
        np.testing.assert_array_equal(normalize_rows(X, steps), alone)
        np.testing.assert_array_equal(normalize_rows(np.asfortranarray(X), steps), alone)
        np.testing.assert_allclose(normalize_rows(sp.csr_array(X), steps).toarray(), alone, rtol=1e-6)
    for shape in ((0, 4), (3, 0)):
        empty = np.zeros(shape, dtype)
        assert normalize_rows(empty, steps).shape == normalize_rows(sp.csr_array(empty), steps).shape == shape


@pytest.mark.parametrize("steps", ["l1", "l2", ("l1", "power"), ("l2", "power")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_near_the_limits_of_their_type(dtype, steps):
    rows = np.array([[1.0, 2.0, -4.0, 0.0], [3.0, 3.0, 3.0, 4.0]], dtype)
    expected = normalize_rows(rows, steps)
    limits = np.finfo(dtype)
    for scale in (limits.max / 4, limits.tiny, limits.smallest_subnormal):
        np.testing.assert_allclose(normalize_rows(rows * scale, steps), expected, rtol=1e-6)
        np.testing.assert_allclose(normalize_rows(sp.csr_array(rows * scale), steps).toarray(), expected, rtol=1e-6)


def test_the_default_is_the_hellinger_kernel():
    X = np.random.default_rng(0).integers(0, 5, (6, 9)).astype(float)
    X[2] = 0
    Z = BagNormalizer().fit_transform(X)
    np.testing.assert_allclose(Z @ Z.T, hellinger(normalize(X, "l1")))
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), [1, 1, 0, 1, 1, 1])


def test_what_it_cannot_use():
    X = np.ones((2, 3))
    with pytest.raises(BagwiseError, match="Did you mean 'l1'"):
        BagNormalizer("l11").fit(X)
    with pytest.raises(BagwiseError, match="Unknown step: 'root'"):
        BagNormalizer(["l1", "root"]).fit(X)
    for wrong in ({"power": 0}, {"steps": 3}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            BagNormalizer(**wrong).fit(X)
