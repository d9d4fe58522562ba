from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.base import clone
from sklearn.decomposition import sparse_encode
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from bagwise import BagOfFeatures, Bags, BagwiseError, Model, runtime
from bagwise._utils.records import Number, parameter
from bagwise._utils.threads import WhileAny
from bagwise.codebooks import FewEncoder, LocalizedEncoder, SoftEncoder, SparseEncoder, assign_words, encode_bags
from bagwise.codebooks import _kernels as kernels
from bagwise.codebooks import distances as distances_module
from bagwise.codebooks import encoders as encoders_module
from bagwise.codebooks.distances import WordDistances
from bagwise.codebooks.encoders import ENCODERS, Assigned, as_encoder
from bagwise.descriptors import Patches


def squared(values, codebook):
    """Every distance from its definition, in float64."""
    values, codebook = np.asarray(values, float), np.asarray(codebook, float)
    return np.array([[np.sum((x - b) ** 2) for b in codebook] for x in values]).reshape(len(values), len(codebook))


@st.composite
def vectors_and_words(draw, max_rows=40, kinds=("plain", "far", "ties", "zeros")):
    """Values and words of many shapes; sometimes far from the origin, sometimes with equal words or zero vectors."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    M, K, D = draw(st.integers(0, max_rows)), draw(st.integers(1, 9)), draw(st.integers(1, 7))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    values, words = rng.normal(size=(M, D)), rng.normal(size=(K, D))
    kind = draw(st.sampled_from(kinds))
    if kind == "far":
        values, words = values + 1000, words + 1000
    elif kind == "ties":
        words = words[rng.integers(0, K, K)]
    elif kind == "zeros":
        values[rng.random(M) < 0.5] = 0
    return values.astype(dtype), words.astype(dtype)


@given(vectors_and_words())
def test_the_nearest_word_is_nearest(data):
    values, words = data
    found = assign_words(values, words)
    expected = squared(values, words)
    assert found.shape == (len(values),)
    nearest = expected.min(axis=1, initial=np.inf)
    scale = np.sqrt(np.finfo(values.dtype).eps)  # distances of about 1
    np.testing.assert_allclose(expected[np.arange(len(values)), found], nearest, rtol=scale, atol=scale)


def test_equal_words_go_to_the_first():
    words = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    assert assign_words([[0.9, 2.1], [0.1, 0.0]], words).tolist() == [0, 1]


@given(vectors_and_words(), st.integers(1, 3))
def test_distances_block_by_block(data, n_threads):
    values, words = data
    table = WordDistances(words)
    whole = np.vstack([np.empty((0, len(words))), *(d.copy() for _, d in table.blocks(values))])
    np.testing.assert_allclose(whole, squared(values, words), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(assign_words(values, words, n_jobs=n_threads), assign_words(values, words))


def test_threads_of_blas_are_given_back_however_calls_overlap():
    def limits():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    # looks for libraries anew: tests before this one may have loaded others
    one_thread = WhileAny(lambda: ThreadpoolController().limit(limits=1, user_api="blas"))
    with threadpool_limits(2, "blas"):
        before = limits()
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        assert set(limits()) == {1}
        first.__exit__(None, None, None)
        assert set(limits()) == {1}
        second.__exit__(None, None, None)
        assert limits() == before
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert limits() == before


@pytest.mark.parametrize(("K", "D"), [(1000, 128), (300, 33), (17, 128)])
def test_larger_blocks_and_threads(K, D, monkeypatch):
    rng = np.random.default_rng(0)
    values, words = rng.random((2500, D)).astype(np.float32), rng.random((K, D)).astype(np.float32)
    whole = assign_words(values, words)
    monkeypatch.setattr(distances_module, "_TASK_ROWS", 300)
    np.testing.assert_array_equal(assign_words(values, words, n_jobs=2), whole)
    for start, stop in ((0, 1), (7, 1300), (2499, 2500), (1024, 1025)):
        np.testing.assert_array_equal(assign_words(values[start:stop], words), whole[start:stop])


@given(vectors_and_words(), st.sampled_from([0.01, 0.5, 3.0]))
def test_soft_codes_are_their_definition(data, bandwidth):
    values, words = data
    values, words = values.astype(float), words.astype(float)
    norms = np.sqrt(squared(values, words))
    expected = np.exp(-(norms - norms.min(axis=1, keepdims=True, initial=np.inf)) / bandwidth)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(SoftEncoder(bandwidth).codes(values, words), expected, rtol=1e-3, atol=1e-6)
    single = SoftEncoder(bandwidth).codes(values.astype(np.float32), words.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.sum(axis=1), 1, rtol=1e-5)


def test_bandwidth_goes_to_hard_assignment():
    rng = np.random.default_rng(1)
    values, words = rng.random((50, 5)), rng.random((7, 5))
    codes = SoftEncoder(1e-9).codes(values, words)
    np.testing.assert_array_equal(codes.argmax(axis=1), assign_words(values, words))
    np.testing.assert_allclose(codes.max(axis=1), 1)
    assert np.isfinite(SoftEncoder(1e-300).codes(values * 1e3, words)).all()


@given(vectors_and_words(), st.integers(1, 12), st.sampled_from([0.1, 10.0]))
def test_localized_codes_are_their_definition(data, n_neighbors, sharpness):
    values, words = (array.astype(float) for array in data)
    codes = LocalizedEncoder(n_neighbors, sharpness).codes(values, words)
    assert codes.shape == (len(values), len(words))
    assert codes.nnz == len(values) * min(n_neighbors, len(words))
    assert codes.has_sorted_indices
    table = WordDistances(words)
    for rows, products, _ in table._products(values):  # the same distances: ties in rounding are broken alike
        for i, row in enumerate(products + table._norms):
            near = np.argsort(row, kind="stable")[:n_neighbors]
            expected = np.zeros(len(words))
            expected[near] = np.exp(-sharpness * (row[near] - row.min()))
            np.testing.assert_allclose(codes.toarray()[rows][i], expected / expected.sum(), rtol=1e-9)


@pytest.mark.parametrize("k", [1, 10, 64, 65, 200])
@pytest.mark.parametrize("n_different", [2, 40, 10_000])
def test_the_nearest_few_are_the_first_of_a_stable_order(k, n_different):
    rng = np.random.default_rng(k)
    products = rng.integers(0, n_different, (30, 200)).astype(np.float32)
    norms = rng.integers(0, n_different, 200).astype(np.float32)
    distances = products + norms
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    words, found = np.empty((30, k), np.intp), np.empty((30, k), np.float32)
    kernels.nearest_few(products, norms, words, found)
    np.testing.assert_array_equal(words, order)
    np.testing.assert_array_equal(found, np.take_along_axis(distances, order, 1))


def test_localized_codes_of_many_words_are_those_of_all_distances():
    rng = np.random.default_rng(5)
    words, values = rng.normal(size=(300, 40)).astype(np.float32), rng.normal(size=(900, 40)).astype(np.float32)
    apart = ((values[:, np.newaxis].astype(np.float64) - words) ** 2).sum(axis=2)
    near = np.sort(np.argpartition(apart, 10, axis=1)[:, :10], axis=1)
    weights = np.exp(-0.2 * (np.take_along_axis(apart, near, 1) - apart.min(axis=1, keepdims=True)))
    codes = LocalizedEncoder(10, 0.2).codes(values, words)
    np.testing.assert_array_equal(codes.indices.reshape(900, 10), near)
    np.testing.assert_allclose(codes.data.reshape(900, 10), weights / weights.sum(axis=1, keepdims=True), rtol=1e-4)


@given(vectors_and_words(max_rows=6), st.sampled_from([0.05, 0.15, 1.0]))
def test_sparse_codes_are_optimal(data, penalty):
    values, words = (array.astype(float) for array in data)
    values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    codes = SparseEncoder(penalty).codes(values, words, signed=True).toarray()
    lengths = np.linalg.norm(words, axis=1, keepdims=True)
    atoms = words / np.where(lengths > 0, lengths, 1)
    slopes = 2 * (values - codes @ atoms) @ atoms.T  # optimal: equal to penalty * sign(u), or no larger where u is 0
    tolerance = 1e-4
    assert (abs(slopes) <= penalty + tolerance).all()
    np.testing.assert_allclose(slopes[codes != 0], penalty * np.sign(codes[codes != 0]), atol=tolerance)


def test_sparse_codes_are_scikit_learns():
    rng = np.random.default_rng(2)
    values, words = rng.normal(size=(30, 16)), rng.normal(size=(40, 16))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    atoms = words / np.linalg.norm(words, axis=1, keepdims=True)
    expected = sparse_encode(values, atoms, algorithm="lasso_lars", alpha=0.15 / 2)
    np.testing.assert_allclose(SparseEncoder().codes(values, words, signed=True).toarray(), expected, atol=1e-4)


def test_codes_that_do_not_converge_are_reported(monkeypatch):
    monkeypatch.setattr(encoders_module, "_LASSO_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="2 vectors have not converged after 1 steps"):
        SparseEncoder(0.05).codes(np.ones((2, 3)), np.eye(3))


def test_sparse_codes_of_words_that_are_alike():
    rng = np.random.default_rng(4)
    values, words = rng.random((60, 8)), rng.random((100, 8)) + 3
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    for codebook in (words, words[rng.integers(0, 10, 100)]):
        codes = SparseEncoder(0.02).codes(values, codebook, signed=True).toarray()
        atoms = codebook / np.linalg.norm(codebook, axis=1, keepdims=True)
        slopes = 2 * (values - codes @ atoms) @ atoms.T
        assert (abs(slopes) <= 0.02 + 1e-4).all()
        np.testing.assert_allclose(slopes[codes != 0], 0.02 * np.sign(codes[codes != 0]), atol=1e-4)


def test_types():
    values = np.arange(12, dtype=np.uint8).reshape(4, 3)
    words = values[[0, 2]]
    expected = assign_words(values.astype(float), words.astype(float))
    for dtype in (np.uint8, np.int64, np.float32, np.float16):
        np.testing.assert_array_equal(assign_words(values.astype(dtype), words), expected)
        np.testing.assert_array_equal(assign_words(values, words.astype(dtype)), expected)


@pytest.mark.parametrize("encode", [assign_words, *(kind().codes for kind in ENCODERS.values())])
def test_what_encoders_cannot_use(encode):
    with pytest.raises(BagwiseError, match="3 features, but the words of the codebook 2"):
        encode(np.ones((2, 3)), np.ones((4, 2)))
    with pytest.raises(BagwiseError, match="at least one word"):
        encode(np.ones((2, 3)), np.ones((0, 3)))
    with pytest.raises(BagwiseError, match="finite"):
        encode([[np.nan, 1.0]], np.ones((4, 2)))


def test_what_parameters_must_be():
    for kind, name in ((SoftEncoder, "bandwidth"), (LocalizedEncoder, "sharpness"), (SparseEncoder, "penalty")):
        for wrong in (0, -1, np.inf, "much", None):
            with pytest.raises(BagwiseError, match=f"^{name} of {kind.__name__} must be a number above 0"):
                kind(**{name: wrong}).codes(np.ones((2, 3)), np.ones((4, 3)))
            with pytest.raises(BagwiseError, match=f"^{name} of {kind.__name__} must be a number above 0"):
                BagOfFeatures(2, assignment=kind(**{name: wrong})).fit([])
    with pytest.raises(BagwiseError, match="n_neighbors of LocalizedEncoder must be an integer from 1 to 1000; got 0"):
        LocalizedEncoder(0).codes(np.ones((2, 3)), np.ones((4, 3)))
    with pytest.raises(BagwiseError, match="does not fit float32"):
        assign_words(np.full((1, 2), 1e30, np.float32), np.ones((2, 2), np.float32))
    with pytest.raises(BagwiseError, match="The codebook is so large"):
        assign_words(np.ones((1, 2)), np.array([[1e200, 0], [0, 0]]))


def test_names_mappings_and_encoders_are_the_same():
    bags, words = Bags.from_list([[[0.0], [1.0]], [[0.4]]]), [[0.0], [1.0], [5.0]]
    for name, kind in ENCODERS.items():
        made = kind()
        assert as_encoder(name) == as_encoder(made.to_dict()) == as_encoder(made) == made
        assert len({as_encoder(name), made}) == 1
        found = encode_bags(bags, words, assignment=name)
        np.testing.assert_array_equal(found, encode_bags(bags, words, assignment=made))
    for wrong in ("hart", None, 3, {}, {"name": ["soft"]}, {"bandwidth": 1.0}):
        with pytest.raises(BagwiseError, match=r"Unknown assignment: .*Accepted: 'hard', .*, or an encoder"):
            as_encoder(wrong)
    with pytest.raises(
        BagwiseError, match=r"Unknown parameter of soft assignment: 'bandwith'\. Did you mean 'bandwidth'"
    ):
        as_encoder({"name": "soft", "bandwith": 1.0})
    with pytest.raises(BagwiseError, match="bandwidth of SoftEncoder must be"):
        as_encoder({"name": "soft", "bandwidth": "wide"})


def test_parameters_of_an_encoder_are_searched_like_those_of_estimators():
    model = BagOfFeatures(2, assignment=LocalizedEncoder(3), random_state=0)
    assert model.get_params()["assignment__n_neighbors"] == 3
    other = clone(model).set_params(assignment__n_neighbors=1, assignment__sharpness=2.0)
    assert other.assignment == LocalizedEncoder(1, 2.0)
    assert model.assignment == LocalizedEncoder(3)


@dataclass(repr=False, unsafe_hash=True)
class Ends(FewEncoder):
    """Half to the nearest word and half to the farthest: an encoder that only this file knows."""

    name: ClassVar[str] = "ends"
    pooling: ClassVar[str] = "sum"

    share: float = parameter(0.5, Number())

    @property
    def n_entries(self):
        return 2

    def assign(self, values):
        for rows, distances in self.distances.blocks(values):
            words = np.stack([distances.argmin(axis=1), distances.argmax(axis=1)], axis=1)
            weights = np.tile([1 - self.share, self.share], (len(words), 1)).astype(self.codebook.dtype)
            yield rows, Assigned(words, weights, np.sqrt(distances.min(axis=1)).astype(np.float32))


def test_an_entry_is_all_that_a_new_encoder_needs(monkeypatch, tmp_path):
    """From Python and from the command line, by a descriptor that takes it; nothing else is touched."""
    monkeypatch.setitem(ENCODERS, "ends", Ends)
    bags, words = Bags.from_list([[[0.0], [1.0]], [[0.4]]]), [[0.0], [1.0], [5.0]]
    np.testing.assert_allclose(encode_bags(bags, words, assignment="ends"), [[0.5, 0.5, 1], [0.5, 0, 0.5]])
    model = BagOfFeatures(2, assignment=Ends(0.25), random_state=0, sparse_output=False).fit(bags)
    np.testing.assert_allclose(model.transform(bags).sum(axis=1), [2, 1])

    monkeypatch.setattr(Patches, "assignment", {"name": "ends", "share": 0.25})
    random = np.random.default_rng(0)
    for name, scale in (("calm", 8), ("rough", 90)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for k in range(8):
            pixels = np.clip(random.normal(128, scale, (24, 20)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{k}.png")
    path = tmp_path / "model.bagwise"
    options = ["--descriptor", "patches", "--words", 6, "--groups", 2, "--folds", 2, "--no-page"]
    import commands  # needs jsonschema

    commands.bagwise("fit", tmp_path / "images", "--out", path, *options)
    assert Model.load(path).assignment == (Ends(0.25),)
    assert "rough" in commands.bagwise("predict", path, tmp_path / "images" / "rough" / "0.png")
    with pytest.raises(runtime.ModelFileError, match="must be 'hard', or 'localized' with"):
        runtime.load(path)
    monkeypatch.delitem(ENCODERS, "ends")
    with pytest.raises(BagwiseError, match="Unknown assignment: 'ends'"):
        Model.load(path)
