import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.pipeline import make_pipeline

from bagwise import BagwiseError, open_collection
from bagwise.descriptors import WordCounts
from bagwise.sources import ItemError

TEXTS = ["The cat sat on the mat.", "", "A dog and a cat; the dog sat.", "Mat! Mat! Mat!"]
OPTIONS = [
    {},
    {"min_df": 2},
    {"stop_words": "english", "max_features": 3},
    {"ngram_range": (1, 2), "dtype": np.float32},
    {"vocabulary": ["cat", "dog"]},
    {"analyzer": "char", "lowercase": False, "binary": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_scikit_learns(options, tmp_path):
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_text(text)
    collection = open_collection(tmp_path)
    expected = CountVectorizer(**options).fit(TEXTS)
    counts = expected.transform(TEXTS)
    for given in (TEXTS, collection, np.array(TEXTS)):
        words = WordCounts(**options)
        found = words.fit_transform(given)
        assert found.format == "csr"
        assert found.dtype == counts.dtype
        np.testing.assert_array_equal(found.toarray(), counts.toarray())
        np.testing.assert_array_equal(words.get_feature_names_out(), expected.get_feature_names_out())
        np.testing.assert_array_equal(WordCounts(**options).fit(given).transform(given).toarray(), counts.toarray())
    np.testing.assert_array_equal(words.transform(["cat dog"]).toarray(), expected.transform(["cat dog"]).toarray())
    assert words.fit_transform(iter(TEXTS)).shape == counts.shape
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(words)).transform(TEXTS).toarray(), counts.toarray())


def test_parameters_and_pipelines():
    words = WordCounts(min_df=2, stop_words="english")
    assert clone(words).get_params() == words.get_params()
    assert words.get_params() == CountVectorizer(min_df=2, stop_words="english").get_params()
    weights = make_pipeline(words, TfidfTransformer()).fit_transform(TEXTS)
    assert sp.issparse(weights)
    assert weights.shape == (4, 3)


@pytest.mark.parametrize("wrong", [b"bytes", None, 3, np.nan, ["a"]])
def test_what_is_no_text_is_refused_by_its_number(wrong):
    for call in (WordCounts().fit_transform, WordCounts().fit, WordCounts().fit(TEXTS).transform):
        with pytest.raises(ItemError, match=r"Cannot read 'text 2': A text must be a str, got"):
            call([*TEXTS[:2], wrong])


def test_what_it_cannot_use(tmp_path):
    for call in (WordCounts().fit, WordCounts().fit_transform, WordCounts(vocabulary=["cat"]).transform):
        with pytest.raises(BagwiseError, match="Expected a list of texts or a collection, got str"):
            call("one text")
        with pytest.raises(BagwiseError, match="got no texts"):
            call([])
    with pytest.raises(NotFittedError):
        WordCounts().transform(TEXTS)
    with pytest.raises(ValueError, match="empty vocabulary"):
        WordCounts().fit(["", "?"])
    np.savetxt(tmp_path / "table.csv", np.eye(3), delimiter=",", header="a,b,c", comments="")
    with pytest.raises(BagwiseError, match="takes texts, got a collection of"):
        WordCounts().fit(open_collection(tmp_path / "table.csv"))
