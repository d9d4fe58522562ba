import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, BagwiseError
from bagwise.codebooks import LocalizedEncoder, SoftEncoder, SparseEncoder, assign_words, encode_bags, resolve_pyramid
from bagwise.codebooks import encoding as encoding_module
from bagwise.codebooks.pyramids import PYRAMIDS, cell_names, cell_numbers, n_cells

ASSIGNMENTS = ["hard", "soft", "localized", "sparse", "vlad"]


def random_bags(rng, lengths, D=3, dtype=np.float32):
    n = int(np.sum(lengths))
    return Bags(rng.random((n, D)), np.concatenate([[0], np.cumsum(lengths)]), rng.random((n, 2)), dtype=dtype)


def codes_of(values, codebook, assignment):
    """Codes of vectors, written out: (vectors, words), or (vectors, words * D) for VLAD."""
    if len(values) == 0:
        return np.zeros((0, len(codebook) * (codebook.shape[1] if assignment == "vlad" else 1)))
    if assignment == "soft":
        return SoftEncoder().codes(values, codebook)
    if assignment == "localized":
        return LocalizedEncoder().codes(values, codebook).toarray()
    if assignment == "sparse":
        return SparseEncoder().codes(values, codebook).toarray()
    words = assign_words(values, codebook)
    if assignment == "hard":
        return np.eye(len(codebook))[words]
    residuals = np.zeros((len(values), *codebook.shape))
    for i, word in enumerate(words):
        residuals[i, word] = values[i] - codebook[word]
    return residuals.reshape(len(values), -1)


def cell_of(position, rows, columns):
    """The cell of one position in one grid, from the borders: the last one that is not beyond the position."""
    x, y = (np.float32(number) for number in position)
    column = max(c for c in range(columns) if x * np.float32(columns) >= c)
    row = max(r for r in range(rows) if y * np.float32(rows) >= r)
    return row * columns + column


def slow_histograms(bags, codebook, assignment, pooling, grids):
    rows = []
    for i, bag in enumerate(bags):
        codes = codes_of(bag, codebook, assignment)
        parts = []
        for n_rows, n_columns in grids:
            places = np.array([cell_of(p, n_rows, n_columns) for p in bags.positions_of(i)], dtype=int)
            for cell in range(n_rows * n_columns):
                inside = codes[places == cell] if len(bag) else codes
                if pooling == "max":
                    parts.append(inside.max(axis=0, initial=0))
                else:
                    parts.append(inside.sum(axis=0) / (max(len(bag), 1) if pooling == "mean" else 1))
        rows.append(np.concatenate(parts))
    return np.array(rows).reshape(len(bags), -1)


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("pooling", ["sum", "mean", "max"])
@pytest.mark.parametrize("pyramid", [None, 21, [(1, 1), (3, 1), (2, 5)]])
def test_encoding_is_pooling_of_codes(assignment, pooling, pyramid):
    rng = np.random.default_rng(0)
    bags, codebook = random_bags(rng, [5, 0, 17, 1, 8], dtype=np.float64), rng.random((6, 3))
    if assignment == "vlad" and pooling == "max":
        with pytest.raises(BagwiseError, match="Codes of 'vlad' add up"):
            encode_bags(bags, codebook, assignment=assignment, pooling=pooling)
        return
    options = {"assignment": assignment, "pooling": pooling, "pyramid": pyramid}
    found = encode_bags(bags, codebook, **options)
    expected = slow_histograms(bags, codebook, assignment, pooling, resolve_pyramid(pyramid))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    sparse = encode_bags(bags, codebook, sparse_output=True, **options)
    assert sparse.format == "csr"
    np.testing.assert_array_equal(sparse.toarray(), found)
    assert not found[1].any()


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_cut_and_any_number_of_threads(assignment, dtype, monkeypatch):
    rng = np.random.default_rng(1)
    bags = random_bags(rng, rng.integers(0, 60, 40), D=8, dtype=dtype)
    codebook = rng.random((30, 8)).astype(dtype)
    options = {"assignment": assignment, "pyramid": 5}
    whole = encode_bags(bags, codebook, **options)
    assert whole.dtype == dtype
    parts = np.concatenate([encode_bags(bags[a:b], codebook, **options) for a, b in ((0, 1), (1, 17), (17, 40))])
    # a matrix product may round a row differently at another place of its block, depending on the processor
    rounding = {"rtol": 1e-4, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(parts, whole, **rounding)
    monkeypatch.setattr(encoding_module, "_TASK_ROWS", 50)
    one = encode_bags(bags, codebook, n_jobs=1, **options)
    np.testing.assert_allclose(one, whole, **rounding)
    np.testing.assert_array_equal(encode_bags(bags, codebook, n_jobs=2, **options), one)
    sparse = encode_bags(bags, codebook, n_jobs=2, sparse_output=True, **options)
    np.testing.assert_array_equal(sparse.toarray(), one)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(0, 2**32 - 1), st.sampled_from([5, 8, 21]))
def test_finer_levels_add_up_to_the_coarsest(lengths, seed, pyramid):
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    # positions on borders as well
    positions = np.where(rng.random((n, 2)) < 0.5, rng.integers(0, 13, (n, 2)) / 12, rng.random((n, 2)))
    bags = Bags(rng.random((n, 2)), np.concatenate([[0], np.cumsum(lengths)]).astype(int), positions)
    codebook = rng.random((4, 2)).astype(np.float32)
    for assignment in ("hard", "soft"):
        found = encode_bags(bags, codebook, assignment=assignment, pyramid=pyramid).reshape(len(lengths), pyramid, 4)
        first = 0
        for rows, columns in PYRAMIDS[pyramid]:
            level = found[:, first : first + rows * columns].sum(axis=1)
            np.testing.assert_allclose(level, found[:, 0], rtol=1e-5, atol=1e-6)
            first += rows * columns
        if pyramid == 21:  # four cells of the finest level make one of the middle
            fine = found[:, 5:].reshape(len(lengths), 2, 2, 2, 2, 4).sum(axis=(2, 4))
            np.testing.assert_allclose(fine.reshape(len(lengths), 4, 4), found[:, 1:5], rtol=1e-5, atol=1e-6)


def test_borders_and_order_of_cells():
    positions = np.array([[0, 0], [0.5, 0], [0, 0.5], [1, 1], [0.49, 0.51], [0.25, 0.75]], np.float32)
    cells = cell_numbers(positions, 6, ((1, 1), (2, 2), (4, 4)))
    assert cells[:, 0].tolist() == [0] * 6
    assert (cells[:, 1] - 1).tolist() == [0, 1, 2, 3, 2, 2]
    assert (cells[:, 2] - 5).tolist() == [0, 2, 8, 15, 9, 13]
    thirds = np.array([[0, 0], [0, 1 / 3], [0, 2 / 3], [0, 0.333]], np.float32)
    assert cell_numbers(thirds, 4, ((3, 1),))[:, 0].tolist() == [0, 1, 2, 0]
    assert len(cell_names(PYRAMIDS[21])) == n_cells(PYRAMIDS[21]) == 21
    assert n_cells(PYRAMIDS[8]) == 8
    assert n_cells(PYRAMIDS[5]) == 5


@pytest.mark.parametrize("wrong", [7, "21", True, [], [(0, 1)], [(2,)], [4], [(1.5, 2)], 21.0])
def test_what_is_no_pyramid(wrong):
    with pytest.raises(BagwiseError, match=r"is not a pyramid.*\[5, 8, 21\]"):
        resolve_pyramid(wrong)


def test_bad_input():
    bags = Bags.from_list([np.ones((2, 3))])
    codebook = np.ones((2, 3), np.float32)
    with pytest.raises(BagwiseError, match="needs the positions"):
        encode_bags(bags, codebook, pyramid=5)
    with pytest.raises(BagwiseError, match="have 3 features, but the words of the codebook 2"):
        encode_bags(bags, codebook[:, :2])
    with pytest.raises(BagwiseError, match="Did you mean 'hard'"):
        encode_bags(bags, codebook, assignment="hart")
    with pytest.raises(BagwiseError, match="Did you mean 'mean'"):
        encode_bags(bags, codebook, pooling="means")


def test_no_bags_and_empty_bags():
    codebook = np.ones((2, 3), np.float32)
    none = Bags.from_list([], n_features=3)
    empty = Bags.from_list([[], []], n_features=3)
    for sparse in (False, True):
        assert encode_bags(none, codebook, sparse_output=sparse).shape == (0, 2)
        found = encode_bags(empty, codebook, sparse_output=sparse, pyramid=21)
        assert found.shape == (2, 42)
        assert sp.csr_array(found).nnz == 0
