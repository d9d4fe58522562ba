import json

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, LatentDirichlet
from bagwise.topics import PLSA
from bagwise.topics.tables import coherence, prepare_view, top_words, word_relevance
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


def test_the_view_holds_together(fitted):
    X, lda = fitted
    words = [f"w{v}" for v in range(40)]
    view = prepare_view(lda.topics_, lda.transform(X), X, words, n=8)
    again = json.loads(json.dumps(view))
    assert again == view
    np.testing.assert_allclose(sum(view["mdsDat"]["Freq"]), 100)
    assert view["mdsDat"]["Freq"] == sorted(view["mdsDat"]["Freq"], reverse=True)
    assert sorted(view["topic.order"]) == [1, 2, 3, 4]
    info = view["tinfo"]
    assert len({len(column) for column in info.values()}) == 1
    assert info["Category"].count("Default") == 8
    order = np.array(view["topic.order"]) - 1
    for number in range(1, 5):
        rows = [k for k, name in enumerate(info["Category"]) if name == f"Topic{number}"]
        shown = {info["Term"][k] for k in rows}
        topic = lda.topics_[order[number - 1]]
        assert set(top_words(topic[None], 8, words=words)[0]) <= shown
        for k in rows:
            np.testing.assert_allclose(info["logprob"][k], np.log(topic[int(info["Term"][k][1:])]))
            assert info["Freq"][k] <= info["Total"][k] * (1 + 1e-12)
    table = view["token.table"]
    for word in set(table["Term"]):
        assert sum(f for f, term in zip(table["Freq"], table["Term"], strict=True) if term == word) <= 1 + 1e-9
    single = prepare_view(np.full((1, 3), 1 / 3), np.ones((2, 1)), np.eye(2, 3), ["a", "b", "c"])
    assert single["mdsDat"]["x"] == [0.0]


def test_near_topics_lie_near():
    topics = np.array([[0.5, 0.5, 0, 0], [0.45, 0.55, 0, 0], [0, 0, 0.5, 0.5]])
    view = prepare_view(topics, np.full((3, 3), 1 / 3), np.eye(3, 4) + 1, list("abcd"))
    places = np.array([view["mdsDat"]["x"], view["mdsDat"]["y"]]).T[np.argsort(view["topic.order"])]
    assert np.linalg.norm(places[0] - places[1]) < 0.1 * np.linalg.norm(places[0] - places[2])


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
        (lambda: prepare_view(lda.topics_, lda.transform(X)[1:], X, ["a"] * 40), "do not match"),
        (lambda: prepare_view(lda.topics_, lda.transform(X), 0 * X, ["a"] * 40), "All documents are empty"),
    ):
        with pytest.raises(BagwiseError, match=match):
            call()
