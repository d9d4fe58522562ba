"""Explanations: contributions of groups, words and places add up to scores."""

import dataclasses
import json
import re
import warnings
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from bagwise import BagwiseError, Hierarchy, Model
from bagwise.app.modalities.texts import located_words
from bagwise.app.model import Head
from bagwise.descriptors import DenseSIFT, Patches
from bagwise.sources import Collection, open_collection
from model_cases import MADE, TEXTS, random_hierarchy, table_model, two_vocabularies

IMAGES = list(np.random.default_rng(1).integers(0, 256, (3, 40, 48)).astype(np.uint8))
COLOURED = list(np.random.default_rng(1).integers(0, 256, (3, 40, 48, 3)).astype(np.uint8))
ROWS = np.random.default_rng(2).normal(0, 80, (4, 6))


def measured_model(**changes):
    """Columns that are not shifted, so that values of a group may cancel each other."""
    return dataclasses.replace(MADE["measurements"](), column_shift=None, **changes)


CASES = {
    "pyramid": (MADE["images"], IMAGES),
    "pyramid, roots, norm": (MADE["weighted images"], IMAGES),
    "vocabularies": (two_vocabularies, COLOURED),
    "vocabularies, pyramid": (lambda: two_vocabularies(5), COLOURED),
    "texts": (MADE["texts"], TEXTS),
    "weighted texts": (MADE["weighted texts"], TEXTS),
    "compact texts": (MADE["compact texts"], TEXTS),
    "measurements": (MADE["measurements"], ROWS),
    "values of both signs": (measured_model, ROWS),
    "values of both signs, normalised": (lambda: measured_model(normalize=("l1", "power")), ROWS),
}


@pytest.mark.parametrize("case", CASES)
def test_contributions_add_up(case):
    make, items = CASES[case]
    model = make()
    scores, found = model.decision_function(items), model.explain(items)
    assert [one.predicted for one in found] == model.predict(items).tolist()
    for row, one in zip(scores, found, strict=True):
        np.testing.assert_allclose(one.scores, row, rtol=1e-12)
        ranked = sorted(row, reverse=True)
        np.testing.assert_allclose([one.score, one.runner_up_score], ranked[:2], rtol=1e-12)
        assert one.margin == one.score - one.runner_up_score
        assert one.score_of(one.runner_up) == one.runner_up_score
        for label in model.classes:
            added = one.contributions(label)
            score, scale = one.score_of(label), np.abs(added).sum() + 1
            assert abs(one.intercept_of(label) + added.sum() - score) < 1e-12 * scale
            by_group = np.zeros(model.n_groups)
            for term in one.words(label):
                by_group[term.group] += term.contribution
            np.testing.assert_allclose(by_group, added, atol=1e-12 * scale)
            assert abs(sum(place.weight for place in one.places(label)) - added.sum()) < 1e-10 * scale
            groups = one.groups(label)
            assert [term.contribution for term in groups] == sorted((x for x in added if x), key=lambda x: -abs(x))
            assert all(term.name == model.group_names()[term.group] for term in groups)


@pytest.mark.parametrize("case", ["texts", "vocabularies, pyramid", "measurements"])
def test_histograms_are_explained_as_items(case):
    make, items = CASES[case]
    model = make()
    counts = model.histograms(items)
    for one, other, third in zip(
        model.explain(items), model.explain(counts), model.explain(sp.csr_array(counts)), strict=True
    ):
        np.testing.assert_allclose(one.contributions(), other.contributions(), rtol=1e-6)
        np.testing.assert_allclose(one.contributions(), third.contributions(), rtol=1e-6)
        assert [term.word for term in one.words()] == [term.word for term in other.words()]


def test_one_text_and_one_item(tmp_path):
    model = MADE["texts"]()
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    collection = open_collection(tmp_path)
    for one, item, text in zip(model.explain(collection), collection, TEXTS, strict=True):
        assert one.to_dict() == model.explain(item).to_dict()
        assert one.id == item.id
        assert one.to_dict() | {"id": None} == model.explain(text).to_dict()
        json.dumps(one.to_dict(), allow_nan=False)
    rows = Collection.from_matrix(ROWS, list("abcd"), [()] * 4)
    tabled = MADE["measurements"]()
    assert tabled.explain(rows[2]).to_dict() == tabled.explain(rows)[2].to_dict()
    sparse = Collection.from_matrix(sp.csr_array(ROWS), list("abcd"), [()] * 4)
    assert tabled.explain(sparse[2]).to_dict() == tabled.explain(rows[2]).to_dict()


def test_another_number_of_groups():
    model = MADE["images"]()
    for one, other in zip(model.explain(IMAGES, 2), model.cut(2).explain(IMAGES), strict=True):
        np.testing.assert_array_equal(one.contributions(), other.contributions())
        assert len(one.contributions()) == 2
    with pytest.raises(BagwiseError, match="classifiers for 2, 4 groups, not for 5"):
        model.explain(IMAGES, 5)
    with pytest.raises(BagwiseError, match="no classifier"):
        table_model().explain(np.ones((1, 5)))
    with pytest.raises(BagwiseError, match="Unknown class"):
        model.explain(IMAGES)[0].contributions("red")


def test_spans_are_words_of_the_original_text():
    model = MADE["texts"]()
    text = "  THE\tCat  sat.  The a dog ran, the doğ"
    spans = model.explain(text).places()
    assert [text[start:end] for start, end, _ in spans] == ["THE", "Cat", "sat", "The", "dog", "ran", "the"]
    alone = dataclasses.replace(model, tokenizer={})  # without pairs of words
    words = {term.name: term.contribution for term in alone.explain(text).words()}
    for start, end, weight in alone.explain(text).places():
        word = text[start:end].lower()
        assert weight == pytest.approx(words[word] / re.findall(r"\w+", text.lower()).count(word))


def text_classifier(names, tokenizer):
    n = len(names)
    return Model(
        modality="texts",
        hierarchy=random_hierarchy(n, np.random.default_rng(0)),
        n_groups=n,
        word_names=names,
        tokenizer=tokenizer,
        normalize=(),
        classes=["x", "y"],
        heads={n: Head([2.0 ** np.arange(n), np.zeros(n)], [0, 0])},
    )


def test_groups_are_named_by_words_and_pairs_that_share_no_word():
    names, weights = ["not", "good", "not good", "film", "the film", "plot"], [1.2, 3.0, 4.1, 2.5, 2.4, 2.0]
    tree = random_hierarchy(6, np.random.default_rng(0))
    how = {"modality": "texts", "hierarchy": tree, "n_groups": 1, "word_names": names, "word_weights": weights}
    for longest, words in (
        (1, "not good, good, film, the film, plot, not"),
        (2, "not good, film, plot, good, the film, not"),
    ):
        model = Model(**how, term="log", norm="l2", tokenizer={"ngram_range": [1, longest]})
        (group,) = model.describe_groups()
        assert ", ".join(group.words) == words
        assert "+".join(group.words[:3]) + "…(6)" == model.feature_names()[0]
        assert group.name == "all words" == model.group_names()[0]


def test_both_words_of_a_pair_are_lit_up():
    model = text_classifier(["good", "not good"], {"ngram_range": [1, 2]})
    spans = model.explain("Not good").places()  # weights 1 and 2
    assert ["Not good"[span.start : span.end] for span in spans] == ["Not", "good"]
    assert [span.weight for span in spans] == pytest.approx([1.0, 2.0])


def test_characters_are_summed_in_words():
    names = [" c", "at", "t ", "a"]
    for analyzer in ("char_wb", "char"):
        model = text_classifier(names, {"analyzer": analyzer, "ngram_range": [1, 2]})
        text = "A bat\n\n cats"
        spans = model.explain(text).places()
        assert sum(span.weight for span in spans) == pytest.approx(model.explain(text).score)
        if analyzer == "char_wb":
            assert [text[span.start : span.end] for span in spans] == ["A", "bat", "cats"]


def test_characters_of_texts_without_spaces_stay_apart_but_for_their_marks():
    text = "猫 กำลัง cat"
    model = text_classifier(sorted(set(text)), {"analyzer": "char", "ngram_range": [1, 1]})
    spans = model.explain(text).places()
    assert [text[span.start : span.end] for span in spans] == ["猫", " ", "กำ"[:1], "ำ", "ลั", "ง", " ", "cat"]


def test_patches_are_where_words_are():
    """One edge: its word contributes there and nowhere else."""
    image = np.zeros((64, 96), np.uint8)
    image[16:24, 40:44] = 255
    model = Model(
        modality="images",
        hierarchy=Hierarchy(2, [[0, 1]], [0.0]),
        n_groups=2,
        descriptor=Patches(patch=8, step=8),
        codebook=Patches(patch=8, step=8).transform([image]).values[[0, 29]],
        normalize=("l1",),
        classes=["dark", "bright"],
        heads={2: Head([[0, -1], [0, 1]], [0, 0])},
    )
    (one,) = model.explain([image])
    bright = [patch for patch in one.places("bright") if patch.weight]
    np.testing.assert_allclose([patch[:3] for patch in bright], [(40, 16, 8)], rtol=1e-6)
    smaller = dataclasses.replace(model, descriptor=Patches(patch=8, step=8, max_side=48))
    assert {patch.side for patch in smaller.explain([image])[0].places()} == {16}
    assert model.explain(model.descriptor.transform([image]))[0].places() == []


@pytest.mark.parametrize("max_side", [None, 50])
def test_patches_of_several_scales_lie_in_the_image(max_side):
    image = np.random.default_rng(0).integers(0, 256, (60, 90)).astype(np.uint8)
    random = np.random.default_rng(1)
    model = Model(
        modality="images",
        hierarchy=random_hierarchy(5, random),
        n_groups=5,
        descriptor=DenseSIFT(patch=16, step=7, scales=(1.0, 1.5), max_side=max_side),
        codebook=random.random((5, 128)),
        classes=["a", "b"],
        heads={5: Head(random.normal(size=(2, 5)), [0, 0])},
    )
    (one,) = model.explain([image])
    larger = 1 if max_side is None else 90 / max_side
    assert {round(patch.side / larger) for patch in one.places()} == {16, 24}
    for x, y, side, _ in one.places():
        assert -larger <= x <= 90 - side + larger
        assert -larger <= y <= 60 - side + larger
    assert sum(patch.weight for patch in one.places()) == pytest.approx(one.contributions().sum())


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "analyzer": st.sampled_from(["word", "char", "char_wb"]),
        "lowercase": st.booleans(),
        "ngram_range": st.tuples(st.integers(1, 3), st.integers(0, 2)).map(lambda n: [n[0], sum(n)]),
        "strip_accents": st.sampled_from([None, "ascii", "unicode"]),
        "stop_words": st.sampled_from([None, "english", ["a", "ab"]]),
        "token_pattern": st.sampled_from([r"(?u)\b\w\w+\b", r"\w+", r"x?(\w)\w", r"(a)|b"]),
    },
)
LETTERS = st.text(st.sampled_from("aAbBxΣÉéİß \n\t.,the"), max_size=20)


@given(LETTERS | st.text(max_size=20), OPTIONS)
def test_located_words_are_those_of_scikit_learn(text, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about options that other analyzers do not use
        words = CountVectorizer(**options | {"ngram_range": tuple(options.get("ngram_range", (1, 1)))})
        expected = Counter(words.build_analyzer()(text))
    located = list(located_words(text, options))
    assert Counter(word for word, _ in located) == expected
    for word, places in located:
        assert all(0 <= start <= end <= len(text) for start, end in places)
        if not {"analyzer", "strip_accents"} & options.keys() and text.lower() == text:
            assert " ".join(text[start:end] for start, end in places) == word
