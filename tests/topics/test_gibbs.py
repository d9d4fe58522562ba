"""Gibbs sampling under topics that stay as they are, and free-energy scores from it."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import digamma, gammaln
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from bagwise import BagwiseError, LatentDirichlet
from bagwise.topics import FreeEnergyScore, elbo
from bagwise.topics.inference import to_counts
from bagwise.topics.sampling import sample_topic_fractions
from helpers import topic_counts

BITS = 2**64 - 1
STEP = 0x9E3779B97F4A7C15


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31)


def slow_fractions(counts, weights, alpha, n_sweeps, seed):
    """The sampler for one document, token by token, with the same random numbers."""
    state = seed
    for word in np.flatnonzero(counts):
        for number in (int(word), int(counts[word])):
            state = mix(state ^ mix((number + STEP) & BITS))
    tokens = np.repeat(np.arange(len(counts)), counts.astype(int))
    topics = np.full(len(tokens), -1)
    found = np.zeros((len(counts), len(alpha)))
    for sweep in range(-1, n_sweeps):
        for token, word in enumerate(tokens):
            topics[token] = -1
            others = np.bincount(topics[topics >= 0], minlength=len(alpha))
            sums = np.cumsum((others + alpha) * weights[word])
            state = (state + STEP) & BITS
            topics[token] = np.searchsorted(sums, (mix(state) >> 11) * 2.0**-53 * sums[-1], side="right")
            found[word, topics[token]] += sweep >= n_sweeps // 5
    return found[counts > 0] / found[counts > 0].sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def fitted():
    X, _ = topic_counts(np.random.default_rng(0), 20, 25, n_topics=4)
    X[3] = 0
    alpha = [0.1, 0.3, 0.2, 1.0]
    return X, LatentDirichlet(4, solver="vb", doc_topic_prior=alpha, max_iter=10, random_state=0).fit(X)


def fractions_of(X, lda, **options):
    counts = to_counts(X, "test")
    return counts, sample_topic_fractions(counts, lda.word_weights(), lda.doc_topic_prior_.copy(), **options)


def test_the_sampler_is_the_slow_one(fitted):
    X, lda = fitted
    counts, fractions = fractions_of(X, lda, n_sweeps=11, seed=5, n_threads=2)
    for d in range(len(X)):
        expected = slow_fractions(X[d], lda.word_weights(), lda.doc_topic_prior_, 11, 5)
        np.testing.assert_allclose(fractions[counts.indptr[d] : counts.indptr[d + 1]], expected, atol=1e-12)
    assert np.abs(fractions - fractions_of(X, lda, n_sweeps=11, seed=6)[1]).max() > 0


def test_many_sweeps_give_the_posterior():
    """Probabilities of topics by summing over all topics of all tokens."""
    weights = np.array([[0.6, 0.1], [0.3, 0.2], [0.1, 0.7]])
    alpha = np.array([0.4, 0.9])
    document = np.array([[2.0, 1.0, 2.0]])
    tokens = np.repeat([0, 1, 2], [2, 1, 2])
    expected = np.zeros((3, 2))
    for topics in product(range(2), repeat=len(tokens)):
        sizes = np.bincount(topics, minlength=2)
        chance = np.exp(gammaln(sizes + alpha).sum()) * np.prod(weights[tokens, list(topics)])
        np.add.at(expected, (tokens, list(topics)), chance)
    expected /= expected.sum(axis=1, keepdims=True)
    fractions = sample_topic_fractions(to_counts(document, "test"), weights, alpha, n_sweeps=40_000, seed=0)
    np.testing.assert_allclose(fractions, expected, atol=0.01)


@pytest.mark.parametrize("block", ["full", "topic", "word"])
@pytest.mark.parametrize("damping", ["log", None])
def test_scores_are_the_terms_at_the_sampled_topics(fitted, block, damping, monkeypatch):
    X, lda = fitted
    score = FreeEnergyScore(
        FrozenEstimator(lda), word_block=block, damping=damping, inference="gibbs", n_sweeps=20, random_state=3
    ).fit(X)
    Z = score.transform(X)
    dense = Z.toarray() if sp.issparse(Z) else Z
    counts, fractions = fractions_of(X, lda, n_sweeps=20, seed=score._seed)
    alpha, logs = lda.doc_topic_prior_, np.log(lda.topics_)
    for d in range(len(X)):
        phi = np.zeros((4, 25))
        phi[:, X[d] > 0] = fractions[counts.indptr[d] : counts.indptr[d + 1]].T
        n = np.where((X[d] > 1) & (damping == "log"), 1 + np.log(np.maximum(X[d], 1)), X[d])
        gamma = alpha + phi @ n
        e = digamma(gamma) - digamma(gamma.sum())
        words = n * phi * logs
        expected = np.concatenate(
            [
                [gammaln(alpha.sum()) - gammaln(gamma.sum())],
                gammaln(gamma) - gammaln(alpha),
                (alpha - gamma) * e,
                (n * phi * (e[:, None] - np.log(np.where(phi > 0, phi, 1)))).sum(axis=1),
                {"full": words.ravel(), "topic": words.sum(axis=1), "word": words.sum(axis=0)}[block],
            ]
        )
        np.testing.assert_allclose(dense[d], expected, rtol=1e-9, atol=1e-9)
    assert (dense[3] == 0).all()
    monkeypatch.setattr(elbo, "_BLOCK_NUMBERS", 100)
    as_dense = lambda Z: Z.toarray() if sp.issparse(Z) else Z  # noqa: E731
    np.testing.assert_array_equal(as_dense(score.transform(X)), dense)
    np.testing.assert_array_equal(as_dense(score.transform(X[5:9])), dense[5:9])


def test_neither_threads_nor_sweeps_without_need(fitted):
    X, lda = fitted
    score = FreeEnergyScore(lda, inference="gibbs", random_state=0)
    one = score.fit_transform(X)
    two = clone(score).set_params(model__n_jobs=2).fit_transform(X)
    np.testing.assert_array_equal(one, two)
    with pytest.raises(BagwiseError, match=r"Gibbs sampling works on single tokens.*0\.5"):
        score.transform(X / 2)
    with pytest.raises(ValueError, match="n_sweeps"):
        clone(score).set_params(n_sweeps=1).fit(X)
