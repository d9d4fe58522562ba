"""Posteriors of documents, sums over them and learned priors, against NumPy versions."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, gammaln, logsumexp
from sklearn.decomposition import LatentDirichletAllocation

from bagwise.topics import _kernels as kernels
from bagwise.topics.inference import FLOOR, Corpus, infer, to_counts, topic_bound, topic_weights
from bagwise.topics.training import SMALLEST, _line_search, learn_asymmetric, learn_symmetric, prior_objective
from helpers import topic_counts


def plain_bound(counts, beta, alpha, gamma, phi):
    """The bound term by term, phi words x topics, for the words that occur."""
    e = digamma(gamma) - digamma(gamma.sum())
    value = gammaln(alpha.sum()) - gammaln(gamma.sum()) + (gammaln(gamma) - gammaln(alpha)).sum()
    value += ((alpha - gamma) * e).sum()
    for v in np.flatnonzero(counts):
        for i in np.flatnonzero(phi[v]):
            value += counts[v] * phi[v, i] * (e[i] - np.log(phi[v, i]) + np.log(beta[v, i]))
    return value


def best_phi(beta, gamma):
    logs = np.log(beta) + digamma(gamma) - digamma(gamma.sum())
    return np.exp(logs - logsumexp(logs, axis=1, keepdims=True))


def plain_update(counts, beta, alpha, gamma):
    """One coordinate ascent update of gamma."""
    return alpha + counts @ best_phi(beta, gamma)


def expected_counts(counts, found, beta, n_threads=1):
    return Corpus(counts).expected_counts(found.ratios, found.expected, beta, n_threads)


def exact_evidence(tokens, beta, alpha):
    """log p(tokens) by enumerating the topics of all tokens."""
    n_topics, n = len(alpha), len(tokens)
    terms = []
    for topics in itertools.product(range(n_topics), repeat=n):
        per_topic = np.bincount(topics, minlength=n_topics)
        log = gammaln(alpha.sum()) - gammaln(alpha.sum() + n) + (gammaln(alpha + per_topic) - gammaln(alpha)).sum()
        terms.append(log + sum(np.log(beta[v, i]) for v, i in zip(tokens, topics, strict=True)))
    return logsumexp(terms)


@st.composite
def documents(draw):
    """Counts, topics and a prior."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, n_topics = draw(st.integers(1, 6)), draw(st.integers(1, 12)), draw(st.integers(1, 9))
    X = rng.poisson(draw(st.sampled_from([0.3, 2.0, 20.0])), (n, d)).astype(float)
    if draw(st.booleans()):
        X *= rng.random((n, d))
    beta = rng.dirichlet(np.full(d, draw(st.sampled_from([0.1, 1.0]))), n_topics).T + 1e-12
    alpha = rng.gamma(1.0, 1.0, n_topics) * draw(st.sampled_from([0.02, 1.0, 10.0])) + 1e-3
    return X, np.ascontiguousarray(beta), alpha


def test_digamma():
    x = np.concatenate([np.logspace(-8, 12, 4001), np.linspace(0.5, 20, 4001)])
    ours = np.array([kernels.digamma(value) for value in x])
    np.testing.assert_allclose(ours, digamma(x), rtol=1e-14, atol=4e-15)


@given(st.integers(1, 40), st.sampled_from([1e-6, 0.01, 1.0, 300.0]), st.integers(0, 1000))
def test_expected_shares(n_topics, size, seed):
    gamma = size * np.random.default_rng(seed).gamma(0.5, 1.0, n_topics) + 1e-6
    expected = np.empty(n_topics)
    shift = kernels._expect(gamma, expected)
    np.testing.assert_allclose(expected, np.exp(digamma(gamma) - shift), rtol=1e-8, atol=1e-300)
    assert 8 <= expected.max() <= 8 + gamma.max()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000))
def test_weighing_is_two_products(n_words, n_topics, seed):
    """All topics, words by words, and a few of them, topics by words, as NumPy has it."""
    rng = np.random.default_rng(seed)
    weights, expected = rng.random((50, n_topics)) + 1e-3, rng.random(n_topics)
    words, counts = rng.integers(0, 50, n_words).astype(np.int32), rng.random(n_words) + 0.1
    ratios, sums = np.empty(n_words), np.empty(n_topics)
    plain = counts / (weights[words] @ expected)
    kernels.weigh(words, counts, weights, expected, ratios, sums)
    np.testing.assert_allclose(ratios, plain, rtol=1e-12)
    np.testing.assert_allclose(sums, plain @ weights[words], rtol=1e-12)
    kernels._weigh_few(np.ascontiguousarray(weights[words].T), n_topics, counts, expected, ratios, sums)
    np.testing.assert_allclose(ratios, plain, rtol=1e-12)
    np.testing.assert_allclose(sums, plain @ weights[words], rtol=1e-12)
    weights[words[0]] = np.nan  # sums in any order must not lose what is not a number
    kernels.weigh(words, counts, weights, expected, ratios, sums)
    assert np.isnan(ratios[0])
    assert np.isnan(sums).all()


@settings(max_examples=20)
@given(documents(), st.sampled_from([1e-13, 1e-3, 0.1]))
def test_all_tokens_are_in_gamma_wherever_it_stops(data, tol):
    X, beta, alpha = data
    found = infer(to_counts(X, "test"), beta, alpha, tol=tol)
    np.testing.assert_allclose(found.gamma.sum(axis=1), alpha.sum() + X.sum(axis=1), rtol=1e-9)


@settings(max_examples=40)
@given(documents(), st.booleans())
def test_one_update_equals_the_plain_one(data, warm):
    X, beta, alpha = data
    equal = np.repeat(X.sum(axis=1, keepdims=True) / len(alpha), len(alpha), axis=1)
    drawn = np.random.default_rng(0).dirichlet(np.ones(len(alpha)), len(X)) * X.sum(axis=1, keepdims=True)
    start = alpha + (drawn if warm else equal)
    found = infer(to_counts(X, "test"), beta, alpha, gamma=start if warm else None, max_iter=1, tol=0)
    for d, counts in enumerate(X):
        expected = plain_update(counts, beta, alpha, start[d]) if counts.any() else alpha
        np.testing.assert_allclose(found.gamma[d], expected, rtol=1e-8, atol=1e-10)


@settings(max_examples=40)
@given(documents())
def test_an_update_of_a_subset_of_topics_equals_the_plain_one(data):
    """The topics that are not negligible are updated as if there were no others."""
    X, beta, alpha = data
    rng = np.random.default_rng(1)
    n_topics = len(alpha)
    live = rng.permutation(n_topics)[: rng.integers(1, n_topics + 1)].astype(np.intp)
    few, expected, sums = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    for counts in X[X.any(axis=1)]:
        words = np.flatnonzero(counts).astype(np.int32)
        size = kernels._padded_size(len(words))
        start = alpha + counts.sum() / n_topics
        gamma, block, padded = start.copy(), np.empty(n_topics * size), np.empty((2, size))
        kernels._iterate_few(
            words, counts[words], beta, alpha, gamma, live.copy(), len(live), few, block, padded, expected, sums, 1, 0.0
        )
        plain = plain_update(counts, beta[:, live], alpha[live], start[live])
        np.testing.assert_allclose(gamma[live], plain, rtol=1e-8, atol=1e-10)
        rest = np.setdiff1d(np.arange(n_topics), live)
        np.testing.assert_array_equal(gamma[rest], start[rest])


@settings(max_examples=20)
@given(documents(), st.sampled_from([(1, 0.0), (7, 0.0), (5000, 1e-13), (100, 1e-3)]))
def test_the_bound_is_the_elbo_of_gamma_and_above_that_of_the_start(data, stop):
    """Wherever the updates stop. Which local optimum they reach is not compared: rounding may decide it."""
    X, beta, alpha = data
    max_iter, tol = stop
    found = infer(to_counts(X, "test"), beta, alpha, max_iter=max_iter, tol=tol)
    np.testing.assert_allclose(found.proportions.sum(axis=1), 1)
    for d, counts in enumerate(X):
        elbo = plain_bound(counts, beta, alpha, found.gamma[d], best_phi(beta, found.gamma[d]))
        np.testing.assert_allclose(found.bounds[d], elbo, rtol=1e-9, atol=1e-9)
        start = alpha + counts.sum() / len(alpha)
        first = plain_update(counts, beta, alpha, start) if counts.any() else alpha
        for gamma in (start, first):
            before = plain_bound(counts, beta, alpha, gamma, best_phi(beta, gamma))
            assert found.bounds[d] >= before - 1e-8 * (1 + abs(before))


@settings(max_examples=40)
@given(documents(), st.integers(1, 3))
def test_starting_from_somewhere_is_never_worse(data, n_iter):
    X, beta, alpha = data
    counts = to_counts(X, "test")
    rng = np.random.default_rng(0)
    gamma = alpha + rng.dirichlet(np.ones(len(alpha)), len(X)) * X.sum(axis=1, keepdims=True)
    before = [plain_bound(n, beta, alpha, g, best_phi(beta, g)) for n, g in zip(X, gamma, strict=True)]
    kept = gamma.copy()
    after = infer(counts, beta, alpha, gamma=gamma, max_iter=n_iter, tol=0).bounds
    assert (after >= np.array(before) - 1e-8 * (1 + abs(after))).all()
    np.testing.assert_array_equal(gamma, kept)


def test_the_bound_is_below_the_evidence_and_meets_it_for_one_topic():
    rng = np.random.default_rng(0)
    for n_topics in (1, 2, 3):
        beta = np.ascontiguousarray(rng.dirichlet(np.ones(4), n_topics).T)
        alpha = rng.random(n_topics) + 0.1
        tokens = rng.integers(0, 4, 6)
        counts = to_counts(np.bincount(tokens, minlength=4)[None], "test")
        bound = infer(counts, beta, alpha, tol=1e-10).bounds[0]
        evidence = exact_evidence(tokens, beta, alpha)
        assert bound <= evidence + 1e-10
        assert bound > evidence - 2.0
        if n_topics == 1:
            np.testing.assert_allclose(bound, evidence)


def test_few_topics_of_many_come_out_as_all_would():
    """Small priors leave most topics aside; what is left must be the solution of all."""
    rng = np.random.default_rng(1)
    beta = np.ascontiguousarray(rng.dirichlet(np.full(60, 0.1), 40).T) + 1e-9
    X = rng.poisson(beta[:, :5].sum(axis=1) * 10, (20, 60)).astype(float)
    alpha = np.full(40, 0.02)
    found = infer(to_counts(X, "test"), beta, alpha, max_iter=1000, tol=1e-12)
    assert np.median((found.gamma > alpha + 1e-6).sum(axis=1)) < 20
    for d, counts in enumerate(X):
        again = alpha + counts @ best_phi(beta, found.gamma[d])
        np.testing.assert_allclose(again, found.gamma[d], rtol=1e-6, atol=1e-8)


def test_threads_and_cuts_change_nothing():
    X, _ = topic_counts(np.random.default_rng(2), 300, 80)
    rng = np.random.default_rng(3)
    beta, alpha = np.ascontiguousarray(rng.dirichlet(np.ones(80), 7).T), np.full(7, 0.1)
    counts = to_counts(X, "test")
    one = infer(counts, beta, alpha)
    two = infer(counts, beta, alpha, n_threads=2)
    for name in ("gamma", "bounds", "expected", "ratios"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    np.testing.assert_array_equal(expected_counts(counts, one, beta), expected_counts(counts, two, beta, n_threads=2))
    np.testing.assert_array_equal(infer(counts[100:200], beta, alpha).gamma, one.gamma[100:200])


def test_expected_counts():
    X, _ = topic_counts(np.random.default_rng(4), 12, 30)
    beta, alpha = np.random.default_rng(5).random((30, 4)), np.full(4, 0.3)
    counts = to_counts(X, "test")
    found = infer(counts, beta, alpha)
    expected = sum(n[:, None] * best_phi(beta, g) for n, g in zip(X, found.gamma, strict=True))
    np.testing.assert_allclose(expected_counts(counts, found, beta), expected, rtol=1e-9, atol=1e-12)


def test_the_bound_of_a_corpus_is_scikit_learns():
    X, _ = topic_counts(np.random.default_rng(6), 30, 25, n_topics=4)
    model = LatentDirichletAllocation(4, max_iter=3, random_state=0, doc_topic_prior=0.3, topic_word_prior=0.2).fit(X)
    counts = np.ascontiguousarray(model.components_.T)
    gamma = model._unnormalized_transform(X)
    weights, alpha = topic_weights(counts, "bayes"), np.full(4, 0.3)
    at_theirs = [plain_bound(n, weights, alpha, g, best_phi(weights, g)) for n, g in zip(X, gamma, strict=True)]
    theirs = model._approx_bound(X, gamma, sub_sampling=False)
    np.testing.assert_allclose(sum(at_theirs) + topic_bound(counts, 0.2, "bayes"), theirs, rtol=1e-8)
    ours = infer(to_counts(X, "test"), weights, alpha, gamma=gamma).bounds
    assert ours.sum() >= sum(at_theirs)


def test_weights_of_topics():
    counts = np.random.default_rng(7).gamma(0.5, 1.0, (300, 3)) + 1e-4
    expected = np.exp(digamma(counts) - digamma(counts.sum(axis=0)))
    np.testing.assert_allclose(topic_weights(counts, "bayes"), np.maximum(expected, FLOOR), rtol=1e-9)
    np.testing.assert_array_equal(topic_weights(counts, "bayes"), topic_weights(counts, "bayes", n_threads=2))
    np.testing.assert_allclose(topic_weights(counts, "map").sum(axis=0), 1)


def test_the_line_search_keeps_bounds_and_objective():
    truth = np.array([0.2, 1.0, 3.0])
    logs = digamma(truth) - digamma(truth.sum())
    start = np.array([1.0, 1.0, 1.0])
    ascent = digamma(start.sum()) - digamma(start) + logs
    for length in (1e-3, 1.0, 10.0, 1e4):
        after = _line_search(start, length * ascent, logs)
        assert after.min() >= SMALLEST
        assert prior_objective(after, logs) >= prior_objective(start, logs)
        np.testing.assert_allclose((after - start) / ascent, (after - start)[0] / ascent[0])  # only shortened
    assert _line_search(start, -ascent, logs) is None  # every step leads down
    assert _line_search(np.full(3, SMALLEST), -np.ones(3), logs) is None


@pytest.mark.parametrize("truth", [0.001, 0.3, 50.0])
def test_no_step_of_a_symmetric_prior_decreases_the_objective(truth):
    logs = np.full(4, digamma(truth) - digamma(4 * truth))
    for start in truth * np.logspace(-3, 3, 200):
        if start >= SMALLEST:
            after = learn_symmetric(start, logs, max_iter=1)
            assert prior_objective(np.full(4, after), logs) >= prior_objective(np.full(4, start), logs)


def test_documents_with_equal_proportions_have_the_largest_prior():
    """The objective has no maximum and hardly any curvature."""
    assert learn_symmetric(1.0, np.full(4, -np.log(4.0))) > 1e3
    assert learn_asymmetric(np.ones(4), np.full(4, -np.log(4.0))).min() > 1e3


@given(st.integers(1, 8), st.sampled_from([0.01, 0.3, 5.0]), st.integers(0, 1000))
def test_learned_priors_have_no_slope(n_topics, size, seed):
    rng = np.random.default_rng(seed)
    truth = size * (rng.random(n_topics) + 0.1)
    shares = np.maximum(rng.dirichlet(truth, 50), 1e-30)
    logs = np.log(shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    start = np.full(n_topics, 1 / n_topics)
    alpha = learn_asymmetric(start, logs)
    assert alpha.min() >= SMALLEST
    assert prior_objective(alpha, logs) >= prior_objective(start, logs)
    if n_topics > 1:
        gradient = digamma(alpha.sum()) - digamma(alpha) + logs
        np.testing.assert_allclose(gradient * alpha, 0, atol=1e-6)
        one = learn_symmetric(1 / n_topics, logs)
        slope = n_topics * (digamma(n_topics * one) - digamma(one)) + logs.sum()
        assert abs(slope * one) < 1e-6
        assert prior_objective(alpha, logs) >= prior_objective(np.full(n_topics, one), logs) - 1e-9


@pytest.mark.parametrize("start", [1e-6, 1e-3, 0.1, 1.0, 30.0, 1e4, 1e6])
@pytest.mark.parametrize("truth", [[0.01, 0.02, 0.5], [0.3, 1.0, 5.0], [50.0, 80.0, 200.0], [0.001, 0.001, 100.0]])
def test_priors_are_learned_from_far_away(truth, start):
    """Newton steps from these starts leave the positive orthant or decrease the objective unless they are shortened."""
    truth = np.array(truth)
    logs = digamma(truth) - digamma(truth.sum())
    np.testing.assert_allclose(learn_asymmetric(np.full(3, start), logs), truth, rtol=1e-4)
    same = np.full(3, digamma(truth[0]) - digamma(3 * truth[0]))
    np.testing.assert_allclose(learn_symmetric(start, same), truth[0], rtol=1e-4)


def test_words_that_no_topic_emits_and_tiny_documents():
    beta = topic_weights(np.array([[3.0, 1], [0, 0], [1, 5]]), "map")
    alpha = np.full(2, SMALLEST)
    X = sp.csr_array(np.array([[0.0, 2, 0], [1, 1, 0], [0, 0, 0], [1e-9, 0, 1e-12], [1e6, 1e6, 1e6]]))
    found = infer(to_counts(X, "test"), beta, alpha)
    assert np.isfinite(found.gamma).all()
    assert np.isfinite(found.bounds).all()
    assert np.isfinite(expected_counts(to_counts(X, "test"), found, beta)).all()
    np.testing.assert_array_equal(found.gamma[2], alpha)
    assert found.bounds[2] == 0
    assert found.bounds[0] < -2 * 400


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_counts_are_put_in_order_and_the_callers_stay(form):
    X = form(np.array([[0.0, 2, 1], [3, 0, 0]]))
    if form is sp.csr_array:
        X = sp.csr_array((np.array([1.0, 1, 0, 1, 3]), np.array([2, 1, 0, 1, 0]), np.array([0, 4, 5])), shape=(2, 3))
    before = X.copy()
    counts = to_counts(X, "test")
    np.testing.assert_array_equal(counts.toarray(), [[0, 2, 1], [3, 0, 0]])
    assert counts.nnz == 3
    np.testing.assert_array_equal(X.data, before.data)
    assert X.nnz == before.nnz
