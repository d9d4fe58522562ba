"""Texts are counted as scikit-learn counts them, without scikit-learn."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from bagwise._utils.text import english_stop_words
from bagwise.app.modalities.texts import TextVectorizer
from bagwise.runtime import hash_words

TEXTS = [
    "The dog and the DOG's bone, aé 12 x",
    "",
    "a cat; the bone of a cat",
    "É é ?",
    "one dog one",
    "日本 \n\n語で\u3000\u3000本 İx",
]
TOKENIZERS = [
    {},
    {"ngram_range": [1, 3]},
    {"ngram_range": [2, 2], "stop_words": "english"},
    {"stop_words": ["dog", "of"], "lowercase": False},
    {"binary": True},
    {"token_pattern": r"(?u)(\w)\w*"},
    {"strip_accents": "unicode"},
    {"analyzer": "char_wb", "ngram_range": [2, 3]},
    {"analyzer": "char", "ngram_range": [1, 3]},
    {"analyzer": "char", "lowercase": False, "binary": True},
]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=str)
def test_counts_are_those_of_scikit_learn(tokenizer):
    options = {name: tuple(value) if name == "ngram_range" else value for name, value in tokenizer.items()}
    expected = CountVectorizer(**options)
    counts = expected.fit_transform(TEXTS).toarray()
    names = expected.get_feature_names_out().tolist()
    order = np.random.default_rng(0).permutation(len(names))
    found = TextVectorizer(tokenizer, [names[k] for k in order]).transform(TEXTS).matrix
    assert found.dtype == np.float32
    assert found.indices.dtype == found.indptr.dtype == np.int32
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), counts[:, order])
    hashes = hash_words(names)
    order = np.argsort(hashes)
    np.testing.assert_array_equal(
        TextVectorizer(tokenizer, None, hashes[order]).transform(TEXTS).matrix.toarray(), counts[:, order]
    )


def test_stop_words_are_those_of_scikit_learn():
    assert english_stop_words() == ENGLISH_STOP_WORDS
