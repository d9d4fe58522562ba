import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import digamma, gammaln
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from bagwise import BagwiseError, LatentDirichlet
from bagwise.topics import FreeEnergyScore, LatentDirichletNB
from helpers import topic_counts


@pytest.fixture(scope="module")
def fitted():
    X, y = topic_counts(np.random.default_rng(0), 40, 25, n_topics=6)
    X[3] = 0
    return X, y, LatentDirichlet(5, doc_topic_prior=[0.1, 0.3, 0.2, 0.5, 1.0], max_iter=10, random_state=0).fit(X)


def plain_parts(lda, counts):
    """Scores of one document, term by term: full block."""
    gamma = lda.posterior(counts[None]).gamma[0]
    e = digamma(gamma) - digamma(gamma.sum())
    phi = lda.topics_ * np.exp(e)[:, None]
    phi /= phi.sum(axis=0)
    alpha = lda.doc_topic_prior_
    return np.concatenate(
        [
            [gammaln(alpha.sum()) - gammaln(gamma.sum())],
            gammaln(gamma) - gammaln(alpha),
            (alpha - gamma) * e,
            (counts * phi * (e[:, None] - np.log(phi))).sum(axis=1),
            (counts * phi * np.log(lda.topics_)).ravel(),
        ]
    )


@pytest.mark.parametrize("block", ["full", "topic", "word"])
def test_the_parts_sum_to_the_bound_and_are_as_defined(fitted, block):
    X, _, lda = fitted
    scores = FreeEnergyScore(FrozenEstimator(lda), word_block=block).fit(X)
    assert scores.model_ is lda
    Z = scores.transform(X)
    assert sp.issparse(Z) == (block != "topic")
    np.testing.assert_allclose(np.asarray(Z.sum(axis=1)).ravel(), lda.bound(X), rtol=1e-9, atol=1e-9)
    dense = Z.toarray() if sp.issparse(Z) else Z
    assert (dense[3] == 0).all()
    for d, counts in enumerate(X):
        expected = plain_parts(lda, counts)
        words = expected[16:].reshape(5, 25)
        words = {"full": words.ravel(), "topic": words.sum(axis=1), "word": words.sum(axis=0)}[block]
        np.testing.assert_allclose(dense[d], np.concatenate([expected[:16], words]), rtol=1e-7, atol=1e-9)
    names = scores.get_feature_names_out()
    assert len(names) == len(set(names)) == Z.shape[1]
    assert names[0] == "prior"
    np.testing.assert_allclose(scores.transform(sp.csr_array(X[5:9])).sum(axis=1), lda.bound(X[5:9]))


def test_names_tell_words(fitted):
    X, _, lda = fitted
    words = [f"w{i}" for i in range(25)]
    for block, last in (("full", "topic4_w24"), ("word", "word_w24"), ("topic", "words_topic4")):
        scores = FreeEnergyScore(FrozenEstimator(lda), word_block=block).fit(X)
        assert scores.get_feature_names_out(words)[-1] == last


@pytest.mark.parametrize("block", ["full", "topic", "word"])
def test_scaling(fitted, block):
    X, _, lda = fitted
    plain = FreeEnergyScore(FrozenEstimator(lda), word_block=block).fit(X).transform(X)
    per_token = FreeEnergyScore(FrozenEstimator(lda), word_block=block, per_token=True).fit(X).transform(X)
    scaled = FreeEnergyScore(FrozenEstimator(lda), word_block=block, standardize=True).fit(X).transform(X)
    rooted = FreeEnergyScore(FrozenEstimator(lda), word_block=block, standardize="sqrt").fit(X).transform(X)
    plain, per_token, scaled, rooted = (
        Z.toarray() if sp.issparse(Z) else Z for Z in (plain, per_token, scaled, rooted)
    )
    np.testing.assert_allclose(per_token * np.maximum(X.sum(axis=1), 1)[:, None], plain, atol=1e-12)
    n_dense = plain.shape[1] if block == "topic" else 16
    varies = plain.std(axis=0) > 1e-9
    assert not varies.all() or block == "topic"
    np.testing.assert_allclose(scaled.std(axis=0)[varies], 1, rtol=1e-5)
    assert (scaled[:, plain.std(axis=0) == 0] == 0).all()
    np.testing.assert_allclose(scaled[:, :n_dense].mean(axis=0), 0, atol=1e-9)
    assert (scaled[:, n_dense:][plain[:, n_dense:] == 0] == 0).all()  # scaled only: sparse stays sparse
    np.testing.assert_array_equal(rooted[:, :n_dense], scaled[:, :n_dense])
    deviations = plain[:, n_dense:].std(axis=0)
    np.testing.assert_allclose(rooted[:, n_dense:], scaled[:, n_dense:] * np.sqrt(deviations), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("block", ["topic", "word"])
def test_parameters_set_after_fitting_wait_for_the_next_fit(fitted, block):
    X, _, lda = fitted
    scores = FreeEnergyScore(FrozenEstimator(lda), word_block=block, per_token=True, standardize=True).fit(X)
    as_dense = lambda Z: Z.toarray() if sp.issparse(Z) else Z  # noqa: E731
    before, names = as_dense(scores.transform(X)), scores.get_feature_names_out()
    scores.set_params(per_token=False, standardize=False, word_block="full")
    np.testing.assert_array_equal(as_dense(scores.transform(X)), before)
    np.testing.assert_array_equal(scores.get_feature_names_out(), names)
    assert scores.fit(X).transform(X).shape != before.shape


def test_models_of_all_kinds(fitted):
    X, _, lda = fitted
    assert FreeEnergyScore(3).fit(X).transform(X).shape == (40, 13)
    copied = FreeEnergyScore(lda).fit(X)
    assert copied.model_ is not lda
    np.testing.assert_array_equal(copied.model_.topics_, lda.topics_)
    kept = clone(FreeEnergyScore(FrozenEstimator(lda)))
    np.testing.assert_array_equal(kept.fit(X).transform(X).sum(axis=1).shape, (40,))
    threads = FreeEnergyScore(clone(lda).set_params(n_jobs=2), word_block="full").fit(X).transform(X)
    one = FreeEnergyScore(FrozenEstimator(lda), word_block="full").fit(X).transform(X)
    np.testing.assert_array_equal(threads.toarray(), one.toarray())
    with pytest.raises(BagwiseError, match="X has 24 words, the frozen model 25"):
        FreeEnergyScore(FrozenEstimator(lda)).fit(X[:, :-1])
    with pytest.raises(BagwiseError, match="frozen FreeEnergyScore"):
        FreeEnergyScore(FrozenEstimator(copied)).fit(X)
    with pytest.raises(NotFittedError):
        FreeEnergyScore(FrozenEstimator(clone(lda))).fit(X)
    with pytest.raises(BagwiseError, match=r"Unknown inference: 'gibs'\. Did you mean 'gibbs'"):
        FreeEnergyScore(2, inference="gibs").fit(X)
    with pytest.raises(BagwiseError, match=r"Unknown word_block: 'words'\. Did you mean 'word'"):
        FreeEnergyScore(2, word_block="words").fit(X)


def test_naive_bayes_is_the_rule_it_says(fitted):
    X, y, _ = fitted
    kept = (y == 1) | (np.arange(len(y)) % 3 == 0)  # classes of different sizes
    X, y = X[kept], y[kept]
    names = np.array(["cat", "dog"])[y]
    classifier = LatentDirichletNB(LatentDirichlet(3, max_iter=10, random_state=1)).fit(sp.csr_array(X), names)
    expected = []
    for code, name in enumerate(["cat", "dog"]):
        lda = LatentDirichlet(3, max_iter=10, random_state=1).fit(X[y == code])
        expected.append(np.log((y == code).mean()) + lda.bound(X))
        np.testing.assert_array_equal(classifier.models_[code].topics_, lda.topics_)
        assert classifier.classes_[code] == name
    np.testing.assert_allclose(classifier.predict_joint_log_proba(X), np.stack(expected, axis=1))
    np.testing.assert_array_equal(classifier.predict(X), np.array(["cat", "dog"])[np.argmax(expected, axis=0)])
    np.testing.assert_allclose(classifier.predict_proba(X).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), classifier.predict_proba(X))
    assert classifier.score(X, names) > 0.85
    assert classifier.predict(np.zeros((1, 25)))[0] == "dog"  # by the prior alone


def test_integer_weights_of_naive_bayes_are_repeated_documents(fitted):
    X, y, _ = fitted
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    make = lambda: LatentDirichletNB(LatentDirichlet(2, max_iter=10, random_state=0))  # noqa: E731
    weighted = make().fit(X, y, sample_weight=weights)
    repeated = make().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.class_log_prior_, repeated.class_log_prior_)
    np.testing.assert_allclose(
        weighted.predict_joint_log_proba(X), repeated.predict_joint_log_proba(X), rtol=1e-6, atol=1e-6
    )
    assert not np.allclose(weighted.predict_joint_log_proba(X), make().fit(X, y).predict_joint_log_proba(X))
    with pytest.raises(BagwiseError, match="one class, 1"):
        make().fit(X, y, sample_weight=y.astype(float))


def test_one_class_is_not_enough():
    with pytest.raises(BagwiseError, match="one class, cat"):
        LatentDirichletNB(2).fit(np.eye(3), ["cat"] * 3)
    with pytest.raises(ValueError, match="model"):
        LatentDirichletNB(0).fit(np.eye(2), [0, 1])
