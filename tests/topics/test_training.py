"""When documents restart and when they continue."""

import numpy as np
import pytest

from bagwise import BagwiseError, LatentDirichlet
from bagwise.topics import inference, sampling, training
from bagwise.topics._kernels import sample_entries
from bagwise.topics.inference import Corpus, to_counts
from helpers import topic_counts


@pytest.fixture
def starts(monkeypatch):
    """Whether documents started afresh, for each time that they were inferred."""
    found = []
    infer = inference.infer

    def watched(*arguments, gamma=None, **how):
        found.append(gamma is None)
        return infer(*arguments, gamma=gamma, **how)

    monkeypatch.setattr(inference, "infer", watched)
    return found


def test_documents_start_afresh_as_long_as_it_helps_and_then_go_on(starts):
    X, _ = topic_counts(np.random.default_rng(0), 100, 60, n_topics=5)
    lda = LatentDirichlet(5, solver="vb", max_iter=500, random_state=0).fit(X)
    afresh = starts.index(False)
    assert afresh > 5
    assert not any(starts[afresh:])
    assert lda.n_iter_ < 500
    # one time before the first pass, and one more in the pass where it was of no use
    assert len(starts) == lda.n_iter_ + 2
    assert np.diff(lda.bounds_).min() >= -1e-9 * abs(lda.bounds_[-1])
    helped = np.diff(lda.bounds_[: afresh - 2])
    assert (helped > 1e-5 * abs(lda.bounds_[1 : afresh - 2])).all()


@pytest.mark.parametrize("restarts", [0, 3])
def test_documents_start_afresh_in_so_many_passes(starts, restarts):
    X, _ = topic_counts(np.random.default_rng(0), 100, 60, n_topics=5)
    LatentDirichlet(5, max_iter=6, tol=0, restarts=restarts, random_state=0).fit(X)
    assert starts == [True] * (1 + restarts) + [False] * (6 - restarts)


def test_a_sweep_draws_from_the_counts_of_all_other_entries():
    """The distribution of each draw, written out with counts from scratch; all topics occur, and counts are kept."""
    rng = np.random.default_rng(1)
    X = to_counts(topic_counts(rng, 12, 9)[0] * 0.7, "a test")
    alpha, eta = np.array([0.5, 0.1, 0.3]), 0.2
    topics = rng.integers(3, size=X.nnz)
    rows, n_words = np.repeat(np.arange(12), np.diff(X.indptr)), X.shape[1]
    counts = np.zeros((n_words, 3))
    np.add.at(counts, (X.indices, topics), X.data)
    totals, expected, draws = counts.sum(axis=0), topics.copy(), rng.random(X.nnz)
    for p in range(X.nnz):
        others = np.arange(X.nnz) != p
        sums = lambda where: np.bincount(expected[where], X.data[where], minlength=3)  # noqa: E731
        of_document, of_word = sums(others & (rows == rows[p])), sums(others & (X.indices == X.indices[p]))
        p_topic = (of_document + alpha) * (of_word + eta) / (sums(others) + eta * n_words)
        expected[p] = np.searchsorted(np.cumsum(p_topic) / p_topic.sum(), draws[p], side="right")
    sample_entries(X.indptr, X.indices, X.data, alpha, eta, topics, counts, totals, draws)
    np.testing.assert_array_equal(topics, expected)
    assert set(topics) == {0, 1, 2}
    again = np.zeros_like(counts)
    np.add.at(again, (X.indices, topics), X.data)
    np.testing.assert_allclose(counts, again, atol=1e-12)
    np.testing.assert_allclose(totals, again.sum(axis=0))


def lognormal_counts(n_documents=400, n_words=60):
    """Counts of documents whose lengths differ much, some of them empty."""
    rng = np.random.default_rng(2)
    lengths = rng.lognormal(3.0, 1.0, n_documents).astype(int)
    lengths[::10] = 0
    return to_counts(rng.multinomial(lengths, rng.dirichlet(np.full(n_words, 0.5))).astype(float), "a test")


def start_topics(X, weights=None):
    return sampling.sampled_counts(X, 4, 0.0, np.random.RandomState(0), weights)


def test_a_start_has_the_counts_of_all_documents(monkeypatch):
    X = lognormal_counts()
    noise = 0.01 * 60 * 4
    weights = np.random.default_rng(3).uniform(0.5, 3.0, 400)
    for limit in (X.nnz, X.nnz // 2, X.nnz // 10, 1):
        monkeypatch.setattr(sampling, "_START_NNZ", limit)
        found = start_topics(X)
        of_words = X.sum(axis=0)
        np.testing.assert_allclose(found.sum(axis=1), of_words + 0.04, atol=0.03)
        np.testing.assert_allclose(start_topics(X, weights).sum(), weights @ X.sum(axis=1) + noise, rtol=1e-3)
        assert start_topics(X).tobytes() == found.tobytes()
        shuffled = X[np.random.default_rng(4).permutation(400)]
        np.testing.assert_array_equal(start_topics(shuffled), found)
        copies = np.arange(400) % 3
        np.testing.assert_array_equal(start_topics(X, copies), start_topics(X[np.repeat(np.arange(400), copies)]))
    few = start_topics(X[1:2])  # topics without a word still differ
    assert len(np.unique(few, axis=1).T) == 4


def test_the_first_sweeps_of_a_large_corpus_are_over_documents_of_all_lengths(monkeypatch):
    X = lognormal_counts(4000)
    monkeypatch.setattr(sampling, "_START_NNZ", X.nnz // 4)
    parts = []

    def watched(starts, words, counts, alpha, eta, topics, of_words, totals, draws):
        assert len(topics) == len(draws) == starts[-1]
        assert len(starts) < 4001 or len(topics) == X.nnz
        parts.append((np.count_nonzero(np.diff(starts)), counts[: starts[-1]].sum()))

    monkeypatch.setattr(sampling, "sample_entries", watched)
    start_topics(X)
    n_filled = np.count_nonzero(X.sum(axis=1))
    assert parts[40:] == [(n_filled, X.sum())] * 10
    assert len(set(parts[:40])) == 1
    n_documents, n_tokens = parts[0]
    assert n_documents == pytest.approx(n_filled / 4, rel=0.1)
    assert n_tokens == pytest.approx(X.sum() / 4, rel=0.1)


def test_topics_of_words_are_drawn_by_their_counts():
    counts = np.array([[1.0, 3.0, 0.5], [2.0, 0.1, 0.1], [0.2, 0.2, 0.6]])
    words = np.random.default_rng(5).permutation(np.repeat([0, 1, 2], 20_000))
    found = sampling.draw_topics(words, counts, np.random.RandomState(0))
    shares = np.array([np.bincount(found[words == word], minlength=3) for word in range(3)]) / 20_000
    np.testing.assert_allclose(shares, counts / counts.sum(axis=1, keepdims=True), atol=0.015)


@pytest.mark.parametrize("weighted", [False, True])
def test_an_online_step_is_an_average_of_old_and_new_topics(weighted):
    """``λ = (1 - ρ) λ + ρ (η + (N / batch) Σ n φ)``, with expectations from the posterior of the batch."""
    rng = np.random.default_rng(0)
    X = to_counts(topic_counts(rng, 20, 30)[0], "a test")
    sample_weight = rng.uniform(0.5, 2.0, 20) if weighted else None
    how = training.Training(eta=0.1, decay=0.6, offset=3.0)
    state = training.State(rng.gamma(1.0, size=(30, 4)) + 0.1, np.full(4, 0.5), n_updates=2)
    posterior, weights = how.infer(Corpus(X), state)
    expected = np.zeros((30, 4))
    for d, (n, expectation) in enumerate(zip(X.toarray(), posterior.expected, strict=True)):
        phi = weights * expectation
        one = 1.0 if sample_weight is None else sample_weight[d]
        expected += one * n[:, np.newaxis] * phi / phi.sum(axis=1, keepdims=True)
    rate = 5.0**-0.6
    n_documents = 20 if sample_weight is None else sample_weight.sum()
    after, bound = training.online_step(X, state, how, 1000.0, sample_weight)
    np.testing.assert_allclose(
        after.counts, (1 - rate) * state.counts + rate * (0.1 + 1000 / n_documents * expected), rtol=1e-9
    )
    assert after.n_updates == 3
    assert bound == pytest.approx(posterior.bounds @ (np.ones(20) if sample_weight is None else sample_weight))


def test_copies_that_do_not_fit_into_memory_are_refused():
    X = lognormal_counts(50)
    with pytest.raises(BagwiseError, match=r"drawn for each copy of a document.*give smaller weights"):
        start_topics(X, np.full(50, 1e12))
