import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from bagwise import BagwiseError, kernels, merge_words
from bagwise._utils.devices import to_device, to_host
from bagwise.gpu.kernels import array_kernel
from bagwise.kernels import KERNELS, additive_kernel
from bagwise.kernels.additive import Kernel


def one_word(kernel, x, z):
    """The definitions, number by number."""
    if kernel == "intersection":
        return min(x, z)
    if kernel == "hellinger":
        return np.sqrt(x * z)
    if kernel == "linear":
        return x * z
    if kernel == "chi2":
        return 2 * x * z / (x + z) if x + z > 0 else 0.0
    return sum(p / 2 * np.log1p(q / p) for p, q in ((x, z), (z, x))) / np.log(2) if x > 0 and z > 0 else 0.0


def slow(kernel, X, Y):
    return np.array([[sum(one_word(kernel, a, b) for a, b in zip(x, z, strict=True)) for z in Y] for x in X])


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@given(seed=st.integers(0, 10**6), n=st.integers(1, 6), m=st.integers(1, 6), d=st.integers(1, 70))
@settings(max_examples=20)
def test_kernels_are_their_definitions(kernel, seed, n, m, d):
    rng = np.random.default_rng(seed)
    X, Y = (rng.random((rows, d)) * 10 * (rng.random((rows, d)) < 0.5) for rows in (n, m))
    expected = slow(kernel, X, Y)
    np.testing.assert_allclose(additive_kernel(X, Y, kernel), expected, rtol=1e-10, atol=1e-11)
    sparse = additive_kernel(sp.csr_matrix(X), sp.csc_array(Y), kernel, n_jobs=2)
    assert isinstance(sparse, np.ndarray)
    np.testing.assert_allclose(sparse, expected, rtol=1e-10, atol=1e-11)
    single = additive_kernel(X.astype(np.float32), Y.astype(np.float32), kernel)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_gram_matrices_are_symmetric_and_definite(kernel, form):
    rng = np.random.default_rng(0)
    X = form(rng.random((40, 30)) * (rng.random((40, 30)) < 0.6))
    K = additive_kernel(X, kernel=kernel)
    np.testing.assert_allclose(K, K.T, rtol=1e-12)
    assert np.linalg.eigvalsh(K).min() > -1e-9 * np.trace(K)
    np.testing.assert_allclose(K, additive_kernel(X, X, kernel, n_jobs=3))


@pytest.mark.parametrize("kernel", [kernels.intersection, kernels.hellinger, kernels.chi2, kernels.jensen_shannon])
def test_they_fit_into_support_vector_machines(kernel):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.poisson(np.where(y[:, None], [5, 1, 1], [1, 5, 1]), size=(60, 3)).astype(float)
    assert SVC(kernel=kernel).fit(X, y).score(X, y) > 0.8


def test_bad_input():
    X = np.ones((3, 4))
    with pytest.raises(BagwiseError, match="Did you mean 'chi2'"):
        additive_kernel(X, kernel="chi")
    with pytest.raises(BagwiseError, match="X has 4 words and Y 3"):
        additive_kernel(X, X[:, :3])
    with pytest.raises(BagwiseError, match="Only one of X and Y is sparse"):
        additive_kernel(X, sp.csr_array(X))
    X[1, 2] = -1
    with pytest.raises(BagwiseError, match="chi2 kernel needs non-negative data, but sample 1, word 2 is -1"):
        additive_kernel(X, kernel="chi2")
    assert additive_kernel(X, kernel="linear").shape == (3, 3)
    with pytest.raises(ValueError, match="NaN"):
        additive_kernel([[np.nan]])


def test_jensen_shannon_of_very_different_numbers():
    for x, z in ((1e6, 1e-6), (1e307, 1e300), (3.0, 3.0), (1e-300, 1.0)):
        expected = one_word("jensen_shannon", x / max(x, z), z / max(x, z)) * max(x, z)
        for form in (np.asarray, sp.csr_array):
            value = additive_kernel(form([[x]]), form([[z]]), "jensen_shannon")[0, 0]
            assert value == pytest.approx(expected, rel=1e-9)


def test_messy_sparse_input_is_not_touched():
    messy = sp.csr_array((np.array([1.0, 2, 3, 4]), np.array([1, 0, 0, 1]), np.array([0, 3, 4])), shape=(2, 2))
    before = (messy.data.copy(), messy.indices.copy())
    K = additive_kernel(messy)
    np.testing.assert_array_equal(K, additive_kernel(messy.toarray()))
    np.testing.assert_array_equal(messy.data, before[0])
    np.testing.assert_array_equal(messy.indices, before[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_kernels_by_an_array_module(xp, kernel, dtype):
    rng = np.random.default_rng(0)
    X, Y = rng.gamma(0.3, size=(70, 37)).astype(dtype), rng.gamma(0.3, size=(131, 37)).astype(dtype)
    X[rng.random(X.shape) < 0.4] = Y[rng.random(Y.shape) < 0.4] = 0
    tolerance = {"rtol": 3e-6, "atol": 1e-7} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-15}
    for other in (Y, None):
        given = (None if array is None else to_device(array, xp) for array in (X, other))
        found = array_kernel(xp, *given, kernel)
        assert found.dtype == dtype
        np.testing.assert_allclose(to_host(found), additive_kernel(X, other, kernel), **tolerance)
    assert array_kernel(xp, to_device(X[:0], xp), to_device(Y, xp), kernel).shape == (0, 131)


@pytest.mark.cuda
def test_kernel_matrices_on_a_device():
    cupy = pytest.importorskip("cupy")
    X = np.random.default_rng(1).random((9, 4))
    here, there = additive_kernel(X, device="cuda"), additive_kernel(cupy.asarray(X))
    assert isinstance(here, np.ndarray)
    assert isinstance(there, cupy.ndarray)
    np.testing.assert_allclose(there.get(), additive_kernel(X), rtol=1e-13)
    with pytest.raises(BagwiseError, match="X is sparse; kernels of sparse matrices are not computed on a device"):
        additive_kernel(sp.csr_array(X), device="cuda")
    with pytest.raises(BagwiseError, match=r"sample 0, word 0 is -"):
        additive_kernel(cupy.asarray(-X))
    with pytest.raises(BagwiseError, match="X must be finite numbers"):
        additive_kernel(cupy.asarray(np.full((2, 2), np.nan)))


@pytest.mark.parametrize("product", [False, True], ids=["words", "feature"])
def test_an_entry_is_all_that_a_new_kernel_needs(monkeypatch, xp, product):
    """For matrices and for merging; nothing else is touched, and commands take no kernel."""
    words = {"words": lambda x, z: np.sqrt(x * z) / 2, "diagonal": lambda x: x / 2}
    if product:
        words["feature"] = lambda X: (X.sqrt() if sp.issparse(X) else np.sqrt(X)) / np.sqrt(2)
    monkeypatch.setitem(KERNELS, "half", Kernel(**words))
    rng = np.random.default_rng(0)
    X, y = rng.poisson(2, (30, 12)).astype(float), np.arange(30) % 3
    expected = additive_kernel(X, kernel="hellinger") / 2
    for form in (np.asarray, sp.csr_array):
        np.testing.assert_allclose(additive_kernel(form(X), kernel="half", n_jobs=2), expected)
    np.testing.assert_allclose(to_host(array_kernel(xp, to_device(X, xp), None, "half")), expected)
    for criterion in ("csm", "lde", "mfa"):  # sums over all pairs, and over the edges of a graph
        half, whole = (merge_words(X, y, criterion=criterion, kernel=name) for name in ("half", "hellinger"))
        np.testing.assert_array_equal(half.merges, whole.merges)
        np.testing.assert_allclose(half.scores, whole.scores)
    with pytest.raises(BagwiseError, match="half kernel needs non-negative data"):
        additive_kernel(-X, kernel="half")
