"""The runtime gives what the library gives, with nothing but NumPy."""

import dataclasses
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bagwise import Bags, Model, runtime
from bagwise.app.model import Head
from bagwise.runtime import ModelFileError
from model_cases import MADE, image_model, random_hierarchy, table_model

SOURCE = Path(runtime.__file__)
# Forbids what is neither NumPy nor in the standard library.
ALONE = """
import sys

class OnlyNumPy:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in sys.stdlib_module_names and top not in ("numpy", "runtime"):
            raise ImportError(f"{name} must not be needed")

sys.meta_path.insert(0, OnlyNumPy())
sys.path.insert(0, sys.argv[1])
import numpy as np
import runtime

model = runtime.load(sys.argv[2])
given = np.load(sys.argv[3])
item = given["values"], given["positions"]
np.savez(sys.argv[4], features=model.transform(*item), label=model.predict(*item), cut=model.cut(2).transform(*item))
assert not {"bagwise", "scipy", "safetensors"} & set(sys.modules)
"""


def saved(model, tmp_path):
    return runtime.load(model.save(tmp_path / "m.bagwise"))


def make_bags(random, lengths, width=4):
    return Bags.from_list(
        [random.normal(size=(n, width)) for n in lengths], [random.random((n, 2)) for n in lengths], n_features=width
    )


def as_lists(bags):
    return list(bags), [bags.positions_of(i) for i in range(len(bags))]


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 30),
    pyramid=st.sampled_from([None, 5, 8, 21, [(1, 1), (1, 1)], [(2, 3)]]),
    normalize=st.sampled_from([(), ("l1", "power"), ("power", "l2"), ("l2", "power", "l1")]),
    term=st.sampled_from(runtime.TERMS),
    norm=st.sampled_from(runtime.NORMS),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    data=st.data(),
)
def test_features_and_classes_are_those_of_the_library(
    tmp_path_factory, seed, d, pyramid, normalize, term, norm, lengths, data
):
    random = np.random.default_rng(seed)
    n = data.draw(st.integers(1, d))
    hierarchy = random_hierarchy(d, random)
    model = Model(
        modality="images", hierarchy=hierarchy, n_groups=n, codebook=random.normal(size=(d, 4)), pyramid=pyramid
    )
    heads = {n: Head(random.normal(size=(3, n * model.layout.n_cells)), random.normal(size=3))}
    weights = random.random(d) if data.draw(st.booleans()) else None
    weighting = {"term": term, "word_weights": weights, "norm": norm}
    model = dataclasses.replace(model, normalize=normalize, classes=["a", "b", "c"], heads=heads, **weighting)
    bags = make_bags(random, lengths)
    ours = saved(model, tmp_path_factory.mktemp("runtime"))
    features = ours.transform(*as_lists(bags))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, model.transform(bags).toarray(), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(ours.predict(*as_lists(bags)), model.predict(bags))
    for i, bag in enumerate(bags):  # one by one is all at once
        np.testing.assert_array_equal(ours.transform(bag, bags.positions_of(i)), features[i])
        assert ours.predict(bag, bags.positions_of(i)) == model.predict(bags[i : i + 1])[0]
    histograms = model.histograms(bags).toarray()
    np.testing.assert_allclose(ours.transform_counts(histograms), features, rtol=1e-6, atol=1e-6)
    other = data.draw(st.integers(1, d))
    np.testing.assert_allclose(
        ours.cut(other).transform(*as_lists(bags)), model.cut(other).transform(bags).toarray(), rtol=1e-6, atol=1e-6
    )


def test_blocks_do_not_matter(tmp_path):
    random = np.random.default_rng(0)
    model = image_model(random)
    bags = make_bags(random, [3 * runtime.BLOCK_ROWS + 1])
    ours = saved(model, tmp_path)
    np.testing.assert_allclose(ours.transform(*as_lists(bags)), model.transform(bags).toarray(), atol=1e-6)


@pytest.mark.parametrize("name", ["texts", "weighted texts"])
@given(seed=st.integers(0, 2**32 - 1))
def test_counts_are_taken_dense_or_by_index(tmp_path_factory, name, seed):
    model, random = MADE[name](), np.random.default_rng(seed)
    ours = saved(model, tmp_path_factory.mktemp("runtime"))
    counts = random.integers(-1, 3, (4, 8)) * random.choice([1.0, 1e200, 1e-200], (4, 1))
    expected = model.transform(counts)
    np.testing.assert_allclose(ours.transform_counts(counts), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(ours.predict_counts(counts), model.predict(counts))
    for row, features in zip(counts, ours.transform_counts(counts), strict=True):
        words = np.flatnonzero(row)
        np.testing.assert_allclose(ours.transform_counts((words, row[words])), features, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(ours.transform_counts(row), features, rtol=1e-6, atol=1e-12)
        assert ours.predict_counts((words.tolist(), row[words].tolist())) == ours.predict_counts(row)
    assert ours.transform_counts(np.empty((0, 8))).shape == (0, model.n_groups)
    assert ours.transform_counts(([], [])).tolist() == [0] * model.n_groups


def test_repeated_words_add_up(tmp_path):
    ours = saved(MADE["texts"](), tmp_path)
    expected = ours.transform_counts(([1, 4], [5.0, 1.0]))
    np.testing.assert_array_equal(ours.transform_counts(([1, 4, 1], [2.0, 1.0, 3.0])), expected)


def test_it_works_alone(tmp_path):
    model = MADE["images"]()
    bags = make_bags(np.random.default_rng(0), [20])
    model.save(tmp_path / "m.bagwise")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "runtime.py").write_bytes(SOURCE.read_bytes())
    np.savez(tmp_path / "in.npz", values=bags.values, positions=bags.positions)
    arguments = [tmp_path / "alone", tmp_path / "m.bagwise", tmp_path / "in.npz", tmp_path / "out.npz"]
    run = subprocess.run(
        [sys.executable, "-c", ALONE, *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    found = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(found["features"], model.transform(bags).toarray()[0], atol=1e-6)
    np.testing.assert_allclose(found["cut"], model.cut(2).transform(bags).toarray()[0], atol=1e-6)
    assert found["label"] == model.predict(bags)[0]


def test_it_is_short():
    assert len(SOURCE.read_text().splitlines()) < 850


def test_arrays_are_mapped(tmp_path):
    _, tensors = runtime.read_model_file(MADE["images"]().save(tmp_path / "m.bagwise"))
    base = tensors["codebook"]
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)
    assert not tensors["codebook"].flags.writeable


def test_what_does_not_fit_is_refused(tmp_path):
    pictured, worded = saved(MADE["images"](), tmp_path), saved(MADE["texts"](), tmp_path)
    vectors = np.zeros((3, 4))
    for call, message in [
        (lambda: pictured.transform(vectors), r"needs positions in \[0, 1\] of shape \(3, 2\)"),
        (lambda: pictured.transform(vectors, np.full((3, 2), 1.5)), "needs positions"),
        (lambda: pictured.transform(vectors, np.full((3, 2), np.nan)), "needs positions"),
        (lambda: pictured.transform([vectors], []), "1 items need as many positions; got 0"),
        (lambda: pictured.transform(np.zeros((3, 5))), r"of shape \(M, 4\); got \(3, 5\)"),
        (lambda: pictured.transform(np.full((1, 4), np.nan), [[0, 0]]), "numbers below"),
        (lambda: pictured.transform(np.full((1, 4), 1e30), [[0, 0]]), "numbers below"),
        (lambda: pictured.cut(3).scores(np.zeros(15)), r"No classifier for 3 groups, only for \[2, 4\]"),
        (lambda: pictured.cut(0), "can be cut at 1 to 12 groups, got 0"),
        (lambda: pictured.cut(2.0), r"got 2\.0"),
        (lambda: worded.transform(vectors), "no codebook. Use transform_counts"),
        (lambda: worded.transform_counts(np.zeros(7)), r"Counts need 8 columns; got shape \(7,\)"),
        (lambda: worded.transform_counts(np.zeros((1, 1, 8))), "Counts need 8 columns"),
        (lambda: worded.transform_counts([np.nan] * 8), "finite"),
        (lambda: worded.transform_counts(([8], [1.0])), "numbered from 0 to 7"),
        (lambda: worded.transform_counts(([-1], [1.0])), "numbered from 0 to 7"),
        (lambda: worded.transform_counts(([0, 1], [1.0])), "two lists of equal length"),
        (lambda: worded.transform_counts(([0.5], [1.0])), "the first of integers"),
    ]:
        with pytest.raises(ModelFileError, match=message):
            call()


def test_no_vectors_are_features_of_zeros(tmp_path):
    ours = saved(MADE["images"](), tmp_path)
    assert ours.transform(np.empty((0, 4))).tolist() == [0.0] * 20
    assert ours.transform([]).shape == (0, 20)
    assert repr(ours) == "<RuntimeModel: images, 12 words merged into 4 groups, 3 classes>"


def test_a_hierarchy_that_stops_early_is_cut_there(tmp_path):
    model = table_model()
    ours = saved(model, tmp_path)
    counts = np.random.default_rng(0).random((3, 5))
    for n in (3, 4, 5):
        np.testing.assert_allclose(ours.cut(n).transform_counts(counts), model.cut(n).transform(counts), rtol=1e-6)
    with pytest.raises(ModelFileError, match="cut at 3 to 5"):
        ours.cut(2)
    assert sp.issparse(model.transform(sp.csr_array(counts)))
