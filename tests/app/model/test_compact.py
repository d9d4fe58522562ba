"""Compact models: one cut, hashes in place of words, weights of one byte."""

import dataclasses
import zlib

import numpy as np
import pytest

from bagwise import BagwiseError, Hierarchy, Model, runtime
from bagwise.app.model import Head, PathErrors
from bagwise.app.model.compact import encoded_weights
from model_cases import MADE, random_hierarchy

WORDS = [f"w{k}" for k in range(12_000)]


def text_model(words, n_groups=40, **changes):
    random = np.random.default_rng(0)
    d = len(words)
    merges = [(0, k) for k in range(d - 1, n_groups // 2 - 1, -1)]
    parameters = {
        "modality": "texts",
        "hierarchy": Hierarchy(d, merges, np.zeros(len(merges)), "made up"),
        "n_groups": n_groups,
        "word_names": words,
        "word_totals": random.integers(1, 100, d),
        "term": "log",
        "word_weights": random.uniform(1, 9, d),
        "norm": "l2",
        "normalize": (),
        "classes": ["a", "b", "c"],
        "heads": {n: Head(random.normal(size=(3, n)), random.normal(size=3)) for n in (n_groups, n_groups - 1)},
        "path": PathErrors([n_groups, d + 1], [0.3, 0.2], [0.01, 0.01]),
        "options": {"C": 1.0, "text": None, "n_words": d},
        "provenance": {"source": "made up", "versions": {"numpy": "1"}},
    }
    return Model(**parameters | changes)


def some_texts(words, n=30):
    random = np.random.default_rng(1)
    return [" ".join(random.choice([*words, "Unknown", "the", "x"], 60)) for _ in range(n)]


def colliding():
    """Two words that have the same hash."""
    seen, random = {}, np.random.default_rng(0)
    for word in ("".join(letters) for letters in random.choice(list("abcdefgh"), (50_000, 9))):
        other = seen.setdefault(zlib.crc32(word.encode()) & 0xFFFFFF, word)
        if other != word:
            return other, word
    raise AssertionError("there is no collision")


@pytest.mark.parametrize(
    "tokenizer",
    [{}, {"ngram_range": [1, 2], "stop_words": ["the", "w3"]}, {"binary": True, "ngram_range": [2, 3]}],
    ids=["words", "n-grams", "binary"],
)
def test_counts_by_hashes_are_counts_by_names(tokenizer):
    words = [*WORDS[:80], *(f"w{a} w{b}" for a in range(80) for b in range(0, 80, 7)), "w1 w2 w3", "é w2"]
    model = text_model(words, tokenizer=tokenizer)
    small, texts = model.compact(), some_texts(WORDS[:80])
    order = np.argsort(runtime.hash_words(words))
    assert small.provenance["compact"]["n_words_lost"] == 0
    np.testing.assert_array_equal(small.histograms(texts).toarray(), model.histograms(texts).toarray()[:, order])
    assert small.histograms(texts).sum() > 200
    np.testing.assert_array_equal(small.histograms(["nothing"]).toarray(), 0)


def test_features_are_those_of_the_model_up_to_the_rounding_of_weights(tmp_path):
    model, texts = text_model(WORDS[:500]), some_texts(WORDS[:500])
    small = model.compact()
    assert small.n_groups == model.n_groups
    assert list(small.heads) == [model.n_groups]
    error = small.provenance["compact"]["weight_error"]
    assert 0 < error < 0.01
    scores, wanted = small.decision_function(texts), model.decision_function(texts)
    np.testing.assert_allclose(scores, wanted, atol=0.05)
    exact = dataclasses.replace(model, word_weights=None).compact()
    expected = dataclasses.replace(model, word_weights=None).decision_function(texts)
    np.testing.assert_allclose(exact.decision_function(texts), expected, rtol=1e-5, atol=1e-6)
    loaded = Model.load(small.save(tmp_path / "small.bagwise"))
    assert loaded == small
    assert loaded.path.sizes == (model.n_groups,)
    np.testing.assert_array_equal(loaded.decision_function(texts), scores)
    assert loaded.compact() == loaded
    for odd in (3, {"n_words_lost": "x", "weight_error": []}):  # files may say anything
        strange = dataclasses.replace(loaded, provenance={"compact": odd})
        assert strange.compact().provenance == {"compact": {"n_words_lost": 0, "weight_error": 0.0}}


def test_files_take_four_bytes_per_word(tmp_path):
    for n_groups in (200, 300):  # numbers of one byte, and of two
        model = text_model(WORDS, n_groups, heads={}, path=None)
        size = model.compact().save(tmp_path / "small.bagwise").stat().st_size
        assert size < (4 + (n_groups > 256)) * len(WORDS) + 3000
        assert Model.load(tmp_path / "small.bagwise").n_groups == n_groups


@pytest.mark.parametrize("second_counts_more", [False, True])
def test_of_words_with_one_hash_the_more_important_is_kept(second_counts_more):
    first, second = colliding()
    words, lost = ["one", first, "two", second], int(second_counts_more)
    totals = [5, 1, 5, 1 + lost]
    heads = {4: Head(np.arange(12.0).reshape(3, 4), np.zeros(3))}
    hierarchy = Hierarchy(4, [], [])
    model = text_model(words, 4, hierarchy=hierarchy, word_totals=totals, word_weights=np.ones(4), heads=heads)
    small = model.compact()
    assert small.provenance["compact"]["n_words_lost"] == 1
    assert small.n_groups == small.hierarchy.n_words == 3
    kept = [0, 2, 3 if second_counts_more else 1]
    column = runtime.hash_words([words[k] for k in kept]).argsort()
    np.testing.assert_array_equal(small.head.coef, model.head.coef[:, np.array(kept)[column]])
    counts = small.histograms([f"{first} {second} {second} one"]).toarray()[0]
    assert counts[small.word_hashes == runtime.hash_words([first])] == 3
    assert counts.sum() == 4


@pytest.mark.parametrize("tokenizer", [{}, {"ngram_range": [1, 2], "stop_words": ["the"]}, {"lowercase": False}])
@pytest.mark.parametrize("compact", [False, True])
def test_the_runtime_splits_texts(tmp_path, tokenizer, compact):
    words = [*WORDS[:60], "w1 w2", "Unknown", "unknown"]
    model = text_model(words, tokenizer=tokenizer)
    model = model.compact() if compact else model
    texts = [*some_texts(WORDS[:60]), "", "!"]
    read = runtime.load(model.save(tmp_path / "m.bagwise"))
    np.testing.assert_allclose(read.transform_texts(texts), model.transform(texts).toarray(), atol=1e-6)
    assert read.predict_texts(texts).tolist() == model.predict(texts).tolist()
    assert read.predict_texts(texts[0]) == model.predict(texts[:1])[0]
    np.testing.assert_array_equal(read.transform_texts(texts[0]), read.transform_texts(texts)[0])
    assert read.transform_texts([]).shape == (0, model.n_groups)


def test_the_runtime_says_what_it_does_not_split(tmp_path):
    for tokenizer in ({"analyzer": "char", "stop_words": "english"}, {"strip_accents": "ascii"}):
        model = text_model(WORDS[:60], tokenizer=tokenizer)
        with pytest.raises(runtime.ModelFileError, match=r"does not split texts as .* use transform_counts"):
            runtime.load(model.save(tmp_path / "m.bagwise")).predict_texts("a text")
    with pytest.raises(runtime.ModelFileError, match="no vocabulary of words"):
        runtime.load(MADE["table"]().save(tmp_path / "m.bagwise")).transform_texts("a text")


@pytest.mark.parametrize("kind", ["images", "weighted images", "two vocabularies", "table", "measurements", "patterns"])
def test_other_models_keep_their_features(kind, tmp_path):
    model = MADE[kind]()
    small = Model.load(model.compact().save(tmp_path / "small.bagwise"))
    assert small == model.compact()
    np.testing.assert_array_equal(small.lookup, model.lookup)
    histograms = np.random.default_rng(0).integers(0, 5, (3, model.layout.n_columns))
    np.testing.assert_array_equal(small.group(histograms), model.group(histograms))
    if model.heads:
        assert small.head == model.head
    read = runtime.load(tmp_path / "small.bagwise")
    np.testing.assert_allclose(read.transform_counts(histograms), model.group(histograms), atol=1e-6)


def test_a_compact_model_has_one_cut(tmp_path):
    model = text_model(WORDS[:500])
    small = model.compact()
    assert small.cut(small.n_groups).n_groups == small.n_groups
    best = [small.classes[k] for k in small.head.coef.argmax(axis=0)]
    assert small.group_names().tolist() == [f"{name} #{k}" for k, name in enumerate(best)]
    with pytest.raises(BagwiseError, match="compact: it always has 40 groups, not 41"):
        small.cut(41)
    read = runtime.load(small.save(tmp_path / "m.bagwise"))
    assert read.cut(40).n_groups == 40
    with pytest.raises(runtime.ModelFileError, match="always has 40 groups"):
        read.cut(41)
    assert model.cut(41).compact().n_groups == 41


@pytest.mark.parametrize("weights", [[0, 0], [3.5], [0, 0.1, 1e6], np.geomspace(1, 12, 1000)])
def test_weights_are_rounded_to_equal_ratios(weights):
    given = np.array(weights, np.float32)
    codes, (low, high) = encoded_weights(given)
    decoded = runtime.decoded_weights(codes, [low, high])
    np.testing.assert_allclose(decoded, given, rtol=(high / low) ** (0.5001 / 254) - 1 + 1e-6)
    np.testing.assert_array_equal(decoded == 0, given == 0)
    again, span = encoded_weights(decoded)
    np.testing.assert_array_equal(again, codes)
    np.testing.assert_array_equal(runtime.decoded_weights(again, span), decoded)


def test_hashes_that_cannot_be_are_refused():
    hierarchy = random_hierarchy(3, np.random.default_rng(0))
    for hashes in ([3, 2, 1], [1, 1, 2], [-1, 0, 1], [0, 1, 1 << 24], [0.5, 1, 2], [[1, 2, 3]]):
        with pytest.raises(BagwiseError, match="ascending integers of 24 bits"):
            Model(modality="texts", hierarchy=hierarchy, n_groups=2, word_hashes=hashes)
    with pytest.raises(BagwiseError, match="one entry per word"):
        Model(modality="texts", hierarchy=hierarchy, n_groups=2, word_hashes=[1, 2])
    with pytest.raises(BagwiseError, match="only for texts"):
        Model(modality="table", hierarchy=hierarchy, n_groups=2, word_hashes=[1, 2, 3])
    with pytest.raises(BagwiseError, match="but not both"):
        Model(modality="texts", hierarchy=hierarchy, n_groups=2, word_hashes=[1, 2, 3], word_names=list("abc"))


def test_a_hierarchy_of_one_cut_keeps_its_heads(tmp_path):
    """Merges that are those of a compact model, but with heads of several sizes."""
    heads = {n: Head(np.ones((2, n)), [0, 1]) for n in (1, 2)}
    flat = Hierarchy(3, [[0, 1], [0, 2]], [np.nan, np.nan])
    model = Model(modality="table", hierarchy=flat, n_groups=1, classes=["a", "b"], heads=heads)
    assert Model.load(model.save(tmp_path / "m.bagwise")) == model


def test_weights_of_any_size_are_saved(tmp_path):
    model = Model(modality="table", hierarchy=Hierarchy(3, [[0, 1]], [0.5]), n_groups=2, word_weights=[1e17, 1, 1])
    assert Model.load(model.save(tmp_path / "m.bagwise")) == model
