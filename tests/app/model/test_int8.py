"""Models with words and heads of 8 bits: rounding, files, and files that lie."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bagwise import BagwiseError, Hierarchy, Model, runtime
from bagwise.app.model import Head, files
from bagwise.app.model.compact import encoded_rows
from model_cases import MADE, TEXTS, refused, two_vocabularies

KINDS = ["images", "weighted texts", "measurements", "two vocabularies", "edited"]


@given(arrays(np.float32, (3, 5), elements=st.floats(-(2.0**40), 2.0**40, width=32)))
def test_rounding_is_near_and_happens_once(matrix):
    integers, scales = encoded_rows(matrix)
    rounded = runtime.decoded_rows(integers, scales)
    largest = np.abs(matrix).max(axis=1)
    usual = largest > 127 * runtime.SCALES[0]
    assert np.all(np.abs(rounded - matrix)[usual] <= largest[usual, np.newaxis] * (0.5 / 127 + 1e-4))
    assert np.array_equal(np.abs(integers).max(axis=1)[usual], np.full(usual.sum(), 127))
    assert not integers[~usual].any()
    assert np.all((scales >= runtime.SCALES[0]) & (scales <= runtime.SCALES[1]))
    again = encoded_rows(rounded)
    np.testing.assert_array_equal(again[0], integers)
    np.testing.assert_array_equal(again[1], scales)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quantised_model_is_what_its_file_gives(kind, tmp_path):
    model = MADE[kind]()
    small = model.quantize()
    path = small.save(tmp_path / "m.bagwise")
    loaded, other = Model.load(path), runtime.load(path)
    assert loaded == small
    assert loaded.quantized
    assert loaded.save(tmp_path / "again.bagwise").read_bytes() == path.read_bytes()
    _, tensors = files.parts_of(small)
    assert {held.dtype for name, held in tensors.items() if name.startswith(("codebook", "head"))} == {
        np.dtype(np.int8),
        np.dtype(np.float32),
    }
    counts = np.random.default_rng(0).integers(0, 5, (4, model.layout.n_columns)).astype(float)
    scores = loaded.decision_function(counts)
    np.testing.assert_allclose(other.scores(other.transform_counts(counts)), scores, rtol=1e-5, atol=1e-5)
    scale = np.abs(model.head.coef).max() * np.abs(model.transform(counts)).sum(axis=1).max()
    np.testing.assert_allclose(scores, model.decision_function(counts), atol=scale / 127)
    assert (scores != model.decision_function(counts)).any()
    for n, head in model.heads.items():
        np.testing.assert_array_equal(small.heads[n].intercept, head.intercept)
    assert small.quantize() == small


def test_without_classifier_and_codebook_there_is_nothing_to_round(tmp_path):
    model = MADE["table"]()
    assert all(held.dtype != np.int8 for held in files.parts_of(model.quantize())[1].values())
    assert Model.load(model.quantize().save(tmp_path / "m.bagwise")) == model.quantize()


def test_what_is_no_multiple_of_a_scale_is_written_as_it_is(tmp_path):
    small = MADE["images"]().quantize()
    cut = small.cut(3)  # its classifier is derived, and not of 8 bits
    types = {name: held.dtype.name for name, held in files.parts_of(cut)[1].items()}
    assert (types["codebook"], types["head_2_coef"], types["head_3_coef"]) == ("int8", "int8", "float32")
    loaded = Model.load(cut.save(tmp_path / "m.bagwise"))
    assert loaded == cut
    np.testing.assert_array_equal(loaded.heads[3].coef, cut.heads[3].coef)
    np.testing.assert_array_equal(runtime.load(tmp_path / "m.bagwise")._heads[3][0], cut.heads[3].coef)


def test_models_that_were_not_quantised_are_written_as_they_are():
    model = Model(modality="images", hierarchy=Hierarchy(2, [[0, 1]], [1.0]), n_groups=1, codebook=[[127.0], [0.0]])
    assert files.parts_of(model)[1]["codebook"].dtype == np.float32
    assert all(held.dtype != np.int8 for kind in KINDS for held in files.parts_of(MADE[kind]())[1].values())


def test_texts_are_counted_as_before(tmp_path):
    model = MADE["weighted texts"]()
    small = Model.load(model.quantize().save(tmp_path / "m.bagwise"))
    np.testing.assert_array_equal(small.transform(TEXTS).toarray(), model.transform(TEXTS).toarray())
    assert small.provenance["int8"]["weight_error"] > 0


def test_numbers_beyond_the_scales_are_refused():
    head = Head([[1e20, 0], [0, 1]], [0, 0])
    model = Model(modality="table", hierarchy=Hierarchy(2, [], []), n_groups=2, classes=["a", "b"], heads={2: head})
    with pytest.raises(BagwiseError, match=r"The classifier for 2 groups have numbers of 1e\+20; up to 1\.27e\+15"):
        model.quantize()
    with pytest.raises(BagwiseError, match="quantized must be True or False, got 1"):
        dataclasses.replace(model, quantized=1)


HOSTILE = {  # changes of the header and of arrays, and what is said of them
    "no scales": ({}, {"codebook_scale": None}, "its array 'codebook_scale' is None"),
    "no scales of a second vocabulary": ({}, {"codebook_1_scale": None}, "its array 'codebook_1_scale' is None"),
    "no scales of a head": ({}, {"head_4_scale": None}, "its array 'head_4_scale' is None"),
    "scales of numbers": ({}, {"codebook": np.zeros((6, 16), np.float32)}, "its array 'codebook_scale' is .* expected"),
    "scales of each dimension": ({}, {"codebook_scale": np.ones(16, np.float32)}, "its array 'codebook_scale'"),
    "wide scales": ({}, {"codebook_scale": np.ones(6)}, "its array 'codebook_scale'"),
    "unsigned": ({}, {"codebook": np.zeros((6, 16), np.uint8)}, "its array 'codebook'"),
    "words of 8 bits too many": ({}, {"codebook": np.zeros((7, 16), np.int8)}, "its array 'codebook'"),
    "intercepts of 8 bits": ({}, {"head_4_intercept": np.zeros(3, np.int8)}, "its array 'head_4_intercept'"),
    "weights of 8 bits": ({}, {"word_weights": np.ones(11, np.int8)}, "its array 'word_weights'"),
    "-128": ({}, {"codebook": np.full((6, 16), -128, np.int8)}, "its codebook must be integers from -127 to 127"),
    "-128 in a head": ({}, {"head_4_coef": np.full((3, 4), -128, np.int8)}, "its head_4_coef must be integers"),
    **{
        f"scale {scale:g}": (
            {},
            {"codebook_1_scale": np.full(5, scale, np.float32)},
            "its codebook_1_scale must be numbers from 1e-30 to 1e",
        )
        for scale in (0.0, -1.0, 1e-40, 1e14, np.nan, np.inf)
    },
    "unknown integers": ({}, {"words": np.zeros(3, np.int8)}, "its array 'words'"),
    "integers that only the library reads": ({}, {"statistics": np.zeros((4, 2), np.int8)}, "Its array 'statistics'"),
}


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_files_that_lie_are_refused(case, tmp_path):
    header, tensors = files.parts_of(two_vocabularies().quantize())
    changes, arrays, message = HOSTILE[case]
    tensors = {name: array for name, array in (tensors | arrays).items() if array is not None}
    header |= changes
    path = files._FILE.save(tmp_path / "m.bagwise", header, tensors)
    library_only = case == "integers that only the library reads"
    refused(path, message, by=["library"] if library_only else ["library", "runtime"])
    if library_only:
        runtime.load(path)


def test_heads_of_before_the_edits_are_not_of_8_bits(tmp_path):
    header, tensors = files.parts_of(MADE["edited"]().quantize())
    (name,) = (name for name in tensors if name.startswith("unedited_head") and name.endswith("coef"))
    tensors |= {name: encoded_rows(tensors[name])[0], runtime.scale_name(name): encoded_rows(tensors[name])[1]}
    path = files._FILE.save(tmp_path / "m.bagwise", header, tensors)
    refused(path, f"Its array '{name}' is", by=["library"])
