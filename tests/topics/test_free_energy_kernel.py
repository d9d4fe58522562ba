import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, FreeEnergyKernel, LatentDirichlet
from bagwise.kernels import DiagonalKernelLearner
from bagwise.topics import FreeEnergyScore
from helpers import topic_counts


def lda(n_topics=3):
    return LatentDirichlet(n_topics, max_iter=10, random_state=0)


def documents(seed=0):
    X, y = topic_counts(np.random.default_rng(seed), n_samples=60, n_words=30, n_topics=4)
    return X, y


def unit_rows(Z):
    lengths = np.linalg.norm(Z, axis=1, keepdims=True)
    return Z / np.where(lengths > 0, lengths, 1)


@pytest.mark.parametrize("word_block", ["topic", "word", "full"])
@pytest.mark.parametrize("learner", [None, DiagonalKernelLearner("prox", step=0.5)])
@pytest.mark.parametrize("normalize", ["l2", None])
def test_it_is_scores_with_learned_weights(word_block, learner, normalize):
    X, y = documents()
    X[3] = 0
    shared = {"word_block": word_block, "per_token": True, "standardize": "sqrt", "damping": "log"}
    learned = FreeEnergyKernel(lda(), **shared, learner=learner, normalize=normalize).fit(X, y)
    score = FreeEnergyScore(lda(), **shared).fit(X)
    scores = score.transform(X)
    weights = clone(learner or DiagonalKernelLearner("correlation")).fit(scores, y).weights_
    np.testing.assert_allclose(learned.weights_, weights)
    plain = (scores.toarray() if sp.issparse(scores) else scores) * np.sqrt(weights)
    plain = unit_rows(plain) if normalize else plain
    kernel = plain @ plain.T
    np.testing.assert_allclose(learned.kernel(X), kernel, atol=1e-9)
    np.testing.assert_allclose(learned.kernel(X[:4], X[9:]), kernel[:4, 9:], atol=1e-9)
    Z = learned.transform(X)
    assert sp.issparse(Z) == (word_block != "topic")
    np.testing.assert_allclose(Z.toarray() if sp.issparse(Z) else Z, plain, atol=1e-9)
    assert learned.get_feature_names_out().tolist() == score.get_feature_names_out().tolist()
    assert len(learned.get_feature_names_out()) == Z.shape[1]
    learned.set_params(normalize=None)  # takes effect at the next fit
    np.testing.assert_allclose(learned.kernel(X), kernel, atol=1e-9)


def test_parameters_of_the_paper_do_what_it_says():
    X, y = documents()
    shared = {"word_block": "full", "inference": "gibbs", "random_state": 0}
    published = FreeEnergyKernel(
        lda(), standardize=False, damping=None, normalize=None, learner=DiagonalKernelLearner("prox"), **shared
    ).fit(X, y)
    scores = FreeEnergyScore(lda(), **shared).fit_transform(X).toarray()
    products = scores[:, None] * scores[None]
    signs = 2.0 * (y[:, None] == y) - 1 - np.eye(len(y))
    slope = np.einsum("ij,ijk->k", signs, products)
    weights = np.maximum(1 + slope / np.abs(slope).max(), 0)
    np.testing.assert_allclose(published.weights_, weights, atol=1e-9)
    np.testing.assert_allclose(published.kernel(X), (scores * weights) @ scores.T)


def test_damping_is_that_of_the_counts():
    X, y = documents()
    damped = np.where(X > 0, 1 + np.log(np.maximum(X, 1)), 0)
    inside = FreeEnergyKernel(lda()).fit(X, y)
    outside = FreeEnergyKernel(lda(), damping=None).fit(damped, y)
    np.testing.assert_allclose(inside.transform(X).toarray(), outside.transform(damped).toarray(), atol=1e-10)
    half = FreeEnergyKernel(lda()).fit(X / 2, y).score_  # below 1 nothing is damped
    np.testing.assert_allclose(
        half.model_.topics_, lda().fit(np.where(X > 2, 1 + np.log(np.maximum(X / 2, 1)), X / 2)).topics_
    )


def test_topics_may_be_sampled():
    X, y = documents()
    learned = FreeEnergyKernel(lda(4), inference="gibbs", random_state=1).fit(X, y)
    Z = learned.transform(X)
    assert Z.toarray().tobytes() == clone(learned).fit(X, y).transform(X).toarray().tobytes()
    assert np.abs(Z - FreeEnergyKernel(lda(4), inference="gibbs", random_state=2).fit(X, y).transform(X)).max() > 0
    assert make_pipeline(learned, LinearSVC(random_state=0)).fit(X, y).score(X, y) > 0.8
    with pytest.raises(BagwiseError, match=r"needs integer counts, got a count of 0\.5"):
        learned.fit(X / 2, y)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.csr_matrix])
def test_sparse_equals_dense(form):
    X, y = documents()
    dense = FreeEnergyKernel(lda()).fit(X, y)
    sparse = FreeEnergyKernel(lda()).fit(form(X), y)
    np.testing.assert_allclose(sparse.weights_, dense.weights_)
    np.testing.assert_allclose(sparse.transform(form(X)).toarray(), dense.transform(X).toarray())


def test_documents_of_a_class_are_more_alike_than_with_equal_weights():
    X, y = documents()
    signs = 2.0 * (y[:, None] == y) - 1 - np.eye(len(y))
    learned = FreeEnergyKernel(lda(4)).fit(X, y)
    equal = unit_rows(learned.score_.transform(X).toarray())
    assert np.sum(signs * learned.kernel(X)) > np.sum(signs * (equal @ equal.T))


def test_a_fitted_model_stays_as_it_is():
    X, y = documents()
    model = lda().fit(X)
    learned = FreeEnergyKernel(FrozenEstimator(model)).fit(X[:20], y[:20])
    np.testing.assert_array_equal(learned.score_.model_.topics_, model.topics_)
    assert FreeEnergyKernel(3).fit(X, y).score_.model_.topics_.shape == (3, X.shape[1])


def test_labels_may_be_shared():
    X, y = documents()
    Y = np.column_stack([y, 1 - y, np.arange(len(y)) % 2])
    dense = FreeEnergyKernel(lda()).fit(X, Y)
    np.testing.assert_allclose(FreeEnergyKernel(lda()).fit(X, sp.csr_array(Y)).weights_, dense.weights_)


def test_in_a_pipeline_and_back_from_a_pickle():
    X, y = documents()
    pipeline = make_pipeline(FreeEnergyKernel(lda(4)), LinearSVC(C=0.1, random_state=0)).fit(X, y)
    assert pipeline.score(X, y) > 0.8
    learned = pipeline[0]
    Z = learned.transform(X).toarray()
    assert pickle.loads(pickle.dumps(learned)).transform(X).toarray().tobytes() == Z.tobytes()
    assert clone(learned).fit(X, y).transform(X).toarray().tobytes() == Z.tobytes()


@pytest.mark.parametrize("word_block", ["word", "full"])
def test_sparse_features_go_into_a_linear_svm(word_block):
    X, y = documents()
    learned = FreeEnergyKernel(lda(4), word_block=word_block).fit(X, y)
    assert learned.transform(X).indices.dtype == np.int32  # others are refused
    assert make_pipeline(learned, LinearSVC(C=0.1, random_state=0)).fit(X, y).score(X, y) > 0.8


def test_what_it_cannot_use():
    X, y = documents()
    with pytest.raises(BagwiseError, match="one class"):
        FreeEnergyKernel(lda()).fit(X, np.zeros(len(X)))
    with pytest.raises(BagwiseError, match="Unknown word_block"):
        FreeEnergyKernel(lda(), word_block="words").fit(X, y)
    with pytest.raises(ValueError, match="learner"):
        FreeEnergyKernel(lda(), learner="ball").fit(X, y)
    with pytest.raises(ValueError, match="normalize"):
        FreeEnergyKernel(lda(), normalize="l1").fit(X, y)
    with pytest.raises(BagwiseError, match="negative kernel with itself"):
        FreeEnergyKernel(lda(), learner=DiagonalKernelLearner(non_negative=False)).fit(X, y)
    learned = FreeEnergyKernel(lda()).fit(X, y)
    with pytest.raises(BagwiseError):
        learned.fit(-X, y)
    assert not hasattr(learned, "score_")


@pytest.mark.parametrize("model", [3, LatentDirichlet(3, max_iter=5)], ids=["number", "estimator"])
def test_the_seed_reaches_the_topic_model(model):
    rng = np.random.default_rng(0)
    X, y = rng.poisson(1.0, (40, 20)), np.arange(40) % 2
    first, again, other = (FreeEnergyKernel(model, random_state=seed).fit(X, y).weights_ for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    seeded = LatentDirichlet(3, max_iter=5, random_state=7)  # a seed of its own stays
    own = [FreeEnergyKernel(seeded, random_state=seed).fit(X, y).weights_ for seed in (0, 1)]
    np.testing.assert_array_equal(*own)
