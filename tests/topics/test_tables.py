import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, LatentDirichlet
from bagwise.topics import PLSA
from bagwise.topics.tables import coherence, top_words, word_relevance
from helpers import topic_counts


@pytest.fixture(scope="module")
def fitted():
    X, _ = topic_counts(np.random.default_rng(0), 80, 40, n_topics=4)
    return X, LatentDirichlet(4, max_iter=20, random_state=0).fit(X)


def test_top_words(fitted):
    X, lda = fitted
    words = [f"w{v}" for v in range(40)]
    for relevance in (0.0, 0.4, 1.0):
        found = top_words(lda.topics_, 5, words=words, relevance=relevance)
        for topic, row in zip(lda.topics_, found, strict=True):
            values = relevance * np.log(topic) + (1 - relevance) * np.log(topic / lda.topics_.mean(axis=0))
            assert row == [words[v] for v in np.argsort(-values)[:5]]
    assert lda.top_words(5, words=words) == top_words(lda.topics_, 5, words=words)
    assert top_words(lda.topics_, 100)[0][:3] == np.argsort(-lda.topics_[0])[:3].tolist()
    overall = X.sum(axis=0) / X.sum()
    assert lda.top_words(3, relevance=0.2, word_frequencies=overall) == top_words(
        lda.topics_, 3, relevance=0.2, word_frequencies=overall
    )
    plsa = PLSA(3, random_state=0).fit(X)
    assert len(plsa.top_words(4)) == 3


def test_names_come_from_the_data():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame([[5, 0], [0, 7]], columns=["cat", "dog"])
    assert {row[0] for row in LatentDirichlet(2, random_state=0).fit(X).top_words(1)} == {"cat", "dog"}


def test_words_that_a_topic_lacks_come_last():
    values = word_relevance([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], 0.3)
    assert values[1, 1] == values[1, 2] == values[0, 2] == -np.inf
    assert np.isfinite(values[0, :2]).all()


def plain_coherence(words, X):
    present = X > 0
    values = []
    for a in range(len(words)):
        for b in range(a + 1, len(words)):
            p, q = present[:, words[a]].mean(), present[:, words[b]].mean()
            both = (present[:, words[a]] & present[:, words[b]]).mean()
            values.append(-1.0 if both == 0 else 0.0 if both == 1 else np.log(both / (p * q)) / -np.log(both))
    return np.mean(values)


def test_coherence(fitted):
    X, lda = fitted
    found = coherence(lda.topics_, sp.csr_array(X), 6)
    expected = [plain_coherence(row, X) for row in top_words(lda.topics_, 6)]
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(found, coherence(lda.topics_, X, 6))
    shuffled = np.random.default_rng(0).permuted(lda.topics_, axis=1)
    assert found.mean() > coherence(shuffled, X, 6).mean()
    full = X + 1.0  # all words in all documents
    np.testing.assert_array_equal(coherence(lda.topics_, full, 6), 0)


def test_what_they_cannot_use(fitted):
    X, lda = fitted
    for call, match in (
        (lambda: top_words(lda.topics_, relevance=2), "from 0 to 1, got 2"),
        (lambda: top_words(lda.topics_, 0), "n must be at least 1"),
        (lambda: top_words(lda.topics_, words=["a"]), "1 names in words, but the topics have 40"),
        (lambda: top_words(lda.topics_, relevance=0.5, word_frequencies=[1.0]), "one per word"),
        (lambda: coherence(lda.topics_, X, 1), "pairs of words"),
        (lambda: coherence(np.ones((2, 1)), np.ones((2, 1))), "only one word"),
        (lambda: coherence(lda.topics_, X[:, 1:]), "X has 39 words, the topics 40"),
    ):
        with pytest.raises(BagwiseError, match=match):
            call()
