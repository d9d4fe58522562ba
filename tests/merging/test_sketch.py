import json
import pickle
import struct
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError
from bagwise._utils.hashing import FOR_SIGNS, PER_HASH, PER_SEED, hashes
from bagwise.merging import Sketch
from bagwise.merging.sketching import sketch as module


def hash_matrix(n, size, n_hashes, seed=0, first=0):
    """Samples x size: the documented formula, one sample and one hash at a time."""
    H = np.zeros((n, size))
    for i in range(n):
        for m in range(n_hashes):
            state = (first + i + PER_SEED * seed + PER_HASH * m) % 2**64
            row = int(hashes(1, state)[0]) % size
            H[i, row] += -1 if int(hashes(1, state + FOR_SIGNS)[0]) >> 63 else 1
    return H


def real_data(rng, n=60, d=25):
    return rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("size", "n_hashes", "seed", "first"), [(16, 5, 0, 0), (7, 30, 3, 1000), (1, 1, 2**32 - 1, 5)])
def test_streaming_is_the_hash_matrix_times_the_centred_data(size, n_hashes, seed, first, dtype):
    X = real_data(np.random.default_rng(size)) + 0.5
    sketch = Sketch(25, size, n_hashes, seed=seed, first_sample=first, dtype=dtype).update(X)
    H = hash_matrix(60, size, n_hashes, seed, first)
    expected = (X - X.mean(axis=0)).T @ H
    assert sketch.signature().dtype == dtype
    tolerance = 1e-11 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(sketch.signature(), expected, atol=tolerance * abs(X).sum())
    np.testing.assert_allclose(sketch.totals, X.sum(axis=0), rtol=1e-6, atol=1e-6)
    assert sketch.n_samples == 60
    assert sketch.first_sample == first


def test_results_are_the_same_everywhere():
    sketch = Sketch(2, 4, 3, seed=5).update(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]))
    H = hash_matrix(3, 4, 3, seed=5)
    np.testing.assert_array_equal(H, [[1, 1, 1, 0], [0, 0, 1, 0], [1, -1, 0, 1]])
    np.testing.assert_array_equal(sketch._sums, [[4, -2, 1, 3], [1, -1, 2, 1]])


FORMS = {"dense": np.asarray, "csr": sp.csr_array, "csc": sp.csc_matrix, "fortran": np.asfortranarray}


@settings(max_examples=40)
@given(st.data())
def test_any_cut_any_form_any_threads_the_same_bytes(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    X = real_data(rng, data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12)))
    kind = data.draw(st.sampled_from([np.float32, np.float64]))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    X = X.astype(kind)
    whole = Sketch(X.shape[1], 9, 4, dtype=dtype).update(X)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(X)), max_size=4)))
    parts = Sketch(X.shape[1], 9, 4, dtype=dtype)
    for start, stop in zip([0, *cuts], [*cuts, len(X)], strict=True):
        form = FORMS[data.draw(st.sampled_from(sorted(FORMS)))]
        parts.update(form(X[start:stop]), n_threads=data.draw(st.integers(1, 2)))
    assert parts == whole
    assert parts._sums.tobytes() == whole._sums.tobytes()
    assert parts.signature().tobytes() == whole.signature().tobytes()


def test_blocks_and_threads_make_no_difference(monkeypatch):
    X = sp.csr_array(real_data(np.random.default_rng(1), 50, 300))
    whole = Sketch(300, 8).update(X)
    monkeypatch.setattr(module, "_BLOCK_BYTES", 7 * 8 * 4)
    monkeypatch.setattr(module, "_FEATURES", 32)
    assert Sketch(300, 8).update(X, n_threads=2) == whole
    assert Sketch(300, 8).update(X.toarray(), n_threads=2) == whole


def test_explicit_zeros_and_entries_in_parts():
    parts = sp.csr_array((np.array([1.5, 0.0, 2.0, 0.25]), np.array([2, 0, 1, 2]), np.array([0, 4])), shape=(1, 3))
    before = parts.copy()
    assert Sketch(3, 4).update(parts) == Sketch(3, 4).update(np.array([[0.0, 2.0, 1.75]]))
    assert parts.nnz == before.nnz  # the caller's matrix is left alone


@pytest.mark.parametrize("signed", [False, True])
def test_sums_of_parts_are_the_whole_for_whole_numbers(signed):
    rng = np.random.default_rng(2)
    X = rng.integers(-4 if signed else 0, 5, (90, 20)).astype(np.float32)
    whole = Sketch(20, 12, seed=4).update(X)
    cuts = [0, 20, 21, 60, 90]
    parts = [Sketch(20, 12, seed=4, first_sample=a).update(X[a:b]) for a, b in pairwise(cuts)]
    assert parts[0] + parts[1] + parts[2] + parts[3] == whole
    assert parts[3] + (parts[2] + (parts[0] + parts[1])) == whole
    assert Sketch(20, 12, seed=4) + whole == whole
    assert parts[0].n_samples == 20  # adding changes neither
    later = Sketch(20, 12, seed=4, first_sample=60).update(X[60:])
    assert later.first_sample == 60


def test_sums_of_parts_of_real_numbers():
    X = real_data(np.random.default_rng(3), 80)
    whole = Sketch(25, 10).update(X)
    both = Sketch(25, 10).update(X[:33]) + Sketch(25, 10, first_sample=33).update(X[33:])
    np.testing.assert_allclose(both.signature(), whole.signature(), atol=1e-5)
    np.testing.assert_array_equal(both.constant, whole.constant)


def test_what_cannot_be_added():
    X = np.ones((5, 3))
    early, late = Sketch(3, 4).update(X), Sketch(3, 4, first_sample=6).update(X)
    with pytest.raises(BagwiseError, match=r"0 to 5 \(exclusive\) and 6 to 11 \(exclusive\).*follow each other"):
        early + late
    with pytest.raises(BagwiseError, match="follow each other"):
        early + early
    for other in (Sketch(4, 4), Sketch(3, 5), Sketch(3, 4, 7), Sketch(3, 4, seed=1), Sketch(3, 4, dtype="float64")):
        with pytest.raises(BagwiseError, match="same settings"):
            early + other
    with pytest.raises(TypeError):
        early + 1


def test_inner_products_are_right_on_average():
    rng = np.random.default_rng(4)
    X = rng.integers(0, 4, (15, 5)).astype(float)
    centred = X - X.mean(axis=0)
    n_seeds, n_hashes = 600, 6
    products = np.empty((n_seeds, 5, 5))
    for seed in range(n_seeds):
        S = Sketch(5, 8, n_hashes, seed=seed, dtype="float64").update(X).signature()
        products[seed] = S @ S.T / n_hashes
    errors = products.std(axis=0) / np.sqrt(n_seeds)
    assert (abs(products.mean(axis=0) - centred.T @ centred) < 4.5 * errors).all()


def test_longer_signatures_are_more_exact():
    X = np.random.default_rng(5).normal(size=(300, 20))
    centred = X - X.mean(axis=0)
    errors = []
    for size in (16, 256):
        S = Sketch(20, size).update(X).signature().astype(np.float64)
        errors.append(np.linalg.norm(S @ S.T / 30 - centred.T @ centred))
    assert errors[1] < errors[0] / 2


def test_constant_features_are_exactly_zero_and_equal_ones_equal():
    rng = np.random.default_rng(6)
    X = rng.random((70, 6))
    X[:, 1], X[:, 3], X[:, 4] = 0.1, 0.0, X[:, 0]
    sketch = Sketch(6, 11)
    for start in range(0, 70, 9):
        sketch.update(X[start : start + 9])
    S = sketch.signature()
    assert sketch.constant.tolist() == [False, True, False, True, False, False]
    assert (S[[1, 3]] == 0).all()
    np.testing.assert_array_equal(S[0], S[4])
    assert abs(S[[0, 2, 5]]).min(axis=1).all()
    one = Sketch(6, 11).update(X[:1])
    assert (one.signature() == 0).all()
    sketch.update(np.full((1, 6), 0.2))  # constant no more
    assert sketch.constant.tolist() == [False] * 6
    early, late = Sketch(1, 4).update([[1.0]]), Sketch(1, 4, first_sample=1).update([[2.0]])
    assert early.constant.all()
    assert not (early + late).constant.any()


def test_the_mirrored_feature_has_the_mirrored_signature():
    X = real_data(np.random.default_rng(7))
    S = Sketch(50, 16).update(np.hstack([X, -X])).signature()
    np.testing.assert_array_equal(S[:25], -S[25:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_save_then_load_gives_the_same(tmp_path, dtype):
    X = real_data(np.random.default_rng(8))
    sketch = Sketch(25, 6, 3, seed=9, first_sample=4, dtype=dtype).update(X[:40])
    path = sketch.save(tmp_path / "sketch.safetensors")
    loaded = Sketch.load(path)
    assert loaded == sketch
    assert loaded.update(X[40:]) == sketch.update(X[40:])  # and goes on alike
    assert [file.name for file in tmp_path.iterdir()] == ["sketch.safetensors"]
    assert pickle.loads(pickle.dumps(sketch)) == sketch


def test_damaged_files_are_refused(tmp_path):
    path = Sketch(3, 4).update(np.eye(3)).save(tmp_path / "sketch")
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    meta = json.loads(header["__metadata__"]["bagwise"])

    def with_meta(**changes):
        new = json.dumps(header | {"__metadata__": {"bagwise": json.dumps(meta | changes)}}).encode()
        return struct.pack("<Q", len(new)) + new + content[8 + length :]

    assert meta["schema"] == 1
    cases = {
        "empty": b"",
        "truncated": content[:-5],
        "foreign": b"PK\x03\x04" + content,
        "other kind": with_meta(kind="bagwise.Hierarchy"),
        "newer": with_meta(schema=2),
        "wider": with_meta(n_features=4),
        "huge": with_meta(n_features=2**40),
        "shape": with_meta(size=3),
        "other type": with_meta(dtype="float64"),
        "no type": with_meta(dtype="int8"),
        "negative": with_meta(n_samples=-1),
        "text": with_meta(seed="0"),
    }
    for name, damaged in cases.items():
        path.write_bytes(damaged)
        with pytest.raises(BagwiseError, match="sketch"):
            Sketch.load(path)
        assert path.read_bytes() == damaged, name
    with pytest.raises(FileNotFoundError):
        Sketch.load(tmp_path / "missing")


def test_sums_over_neighbours_without_forming_them():
    rng = np.random.default_rng(10)
    X = rng.integers(0, 4, (30, 8)).astype(float)
    graph = sp.csr_array((rng.random((30, 30)) < 0.2).astype(float) + np.eye(30))
    followers = sp.csr_array(graph.T)
    sketch = Sketch(8, 6, 4)
    for start in range(0, 30, 7):
        sketch._update_neighbors(X[start : start + 7], followers)
    centred = X - X.mean(axis=0)
    Z = (graph != 0) @ centred
    np.testing.assert_allclose(sketch.signature(), Z.T @ hash_matrix(30, 6, 4), atol=1e-4)
    with pytest.raises(BagwiseError, match="Neighbours are known for 30 samples, but 31 came"):
        sketch._update_neighbors(X[:1], followers)
    with pytest.raises(BagwiseError, match="sums over neighbours"):
        sketch.update(X)
    with pytest.raises(BagwiseError, match="sums over neighbours"):
        sketch + Sketch(8, 6, 4, first_sample=30)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_features": 0},
        {"size": 0},
        {"n_hashes": 1.5},
        {"seed": -1},
        {"seed": 2**32},
        {"first_sample": -1},
        {"dtype": "int32"},
        {"dtype": "nonsense"},
        {"size": True},
    ],
)
def test_wrong_settings(wrong):
    with pytest.raises(BagwiseError, match=next(iter(wrong))):
        Sketch(**{"n_features": 3} | wrong)


def test_a_sketch_that_does_not_fit_into_memory():
    with pytest.raises(BagwiseError, match=r"takes 102\.40 TB, but only"):
        Sketch(10**11)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_wrong_data(form):
    sketch = Sketch(3, 4, first_sample=100).update(form(np.eye(3)))
    before = pickle.loads(pickle.dumps(sketch))
    X = np.ones((4, 3))
    for value in (np.nan, np.inf, -np.inf):
        X[2, 1] = value
        with pytest.raises(BagwiseError, match=rf"Row 2 of X \(sample 105 of the stream\) is {value}.*feature 1"):
            sketch.update(form(X))
    with pytest.raises(BagwiseError, match=r"shape \(4, 2\), expected \(n, 3\)"):
        sketch.update(form(np.ones((4, 2))))
    with pytest.raises(BagwiseError, match="complex"):
        sketch.update(form(np.ones((4, 3), dtype=complex)))
    with pytest.raises(BagwiseError, match=r"reach 1e\+38, too large"):
        sketch.update(form(np.full((4, 3), 1e38)))
    assert sketch == before
    with pytest.raises(BagwiseError, match="too small"):
        Sketch(3, 4).update(form(np.full((4, 3), 1e-50)))
    assert Sketch(3, 4, dtype="float64").update(form(np.full((4, 3), 1e-50))).n_samples == 4
    with pytest.raises(BagwiseError, match="no samples yet"):
        Sketch(3, 4).update(form(np.empty((0, 3)))).signature()


def test_whole_numbers_and_truth_values():
    X = np.random.default_rng(11).integers(0, 2, (6, 3))
    expected = Sketch(3, 4).update(X.astype(float))
    assert Sketch(3, 4).update(X) == Sketch(3, 4).update(X.astype(bool)) == Sketch(3, 4).update(X.tolist()) == expected
    assert repr(expected) == "<Sketch: 3 features x 4, samples 0 to 6 (exclusive)>"


def test_a_sketch_that_was_interrupted_says_so(monkeypatch, tmp_path):
    X = np.eye(3)
    sketch = Sketch(3, 4).update(X)

    def interrupted(function, total, n_threads, size):
        function(0, 1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "run_over_ranges", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sketch.update(X)
    after = Sketch(3, 4, first_sample=3).update(X)
    for use in (
        lambda: sketch.update(X),
        sketch.signature,
        lambda: sketch + after,
        lambda: after + sketch,
        lambda: sketch.save(tmp_path / "sketch"),
    ):
        with pytest.raises(BagwiseError, match="interrupted, so it is incomplete"):
            use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_totals_and_extremes_are_those_of_the_values_as_they_came(form, dtype):
    rng = np.random.default_rng(0)
    X = np.c_[1e8 + np.arange(50) % 2, np.full(50, 1e8 + 1), rng.normal(size=50), np.where(np.arange(50) % 2, 1e-60, 2)]
    sketch = Sketch(4, size=64, dtype=dtype).update(form(X))
    np.testing.assert_array_equal(sketch.constant, [False, True, False, False])
    np.testing.assert_allclose(sketch.totals, X.sum(axis=0), rtol=1e-14)
    np.testing.assert_array_equal(sketch.n_active, 50)
    np.testing.assert_array_equal(sketch._smallest, X.min(axis=0))
    np.testing.assert_array_equal(sketch._largest, X.max(axis=0))


@pytest.mark.parametrize(("value", "dtype"), [(3e37, "float32"), (3e306, "float64")])
def test_parts_whose_sum_would_not_be_finite_are_not_added(value, dtype):
    def part(k):
        X = np.full((10, 2), [value, 1.0])
        return Sketch(2, 1, 1, first_sample=10 * k, dtype=dtype).update(X)

    with pytest.raises(BagwiseError, match=rf"Values reach 3e\+\d+, too large for sums in {dtype}"):
        reduce(add, (part(k) for k in range(60)))
    with pytest.raises(BagwiseError, match="too large"):  # as in one go
        Sketch(2, 1, 1, dtype=dtype).update(np.full((600, 2), [value, 1.0]))
    both = part(0) + Sketch(2, 1, 1, first_sample=10, dtype=dtype)
    np.testing.assert_array_equal(both._sums, part(0)._sums)


def test_the_sum_of_a_list_of_sketches():
    X = np.random.default_rng(0).integers(0, 5, (30, 4)).astype(float)
    parts = [Sketch(4, 8, first_sample=k).update(X[k : k + 10]) for k in (0, 10, 20)]
    assert sum(parts) == Sketch(4, 8).update(X)
    with pytest.raises(TypeError):
        1 + parts[0]


def test_rows_of_different_lengths():
    with pytest.raises(BagwiseError, match=r"cannot be read as a matrix of \(n, 2\) numbers"):
        Sketch(2).update([[1, 2], [3]])
