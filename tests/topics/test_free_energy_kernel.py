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


@pytest.mark.parametrize("word_block", ["topic", "word", "full"])
@pytest.mark.parametrize("learner", [None, DiagonalKernelLearner("prox", step=0.5)])
def test_it_is_scores_with_learned_weights(word_block, learner):
    X, y = documents()
    learned = FreeEnergyKernel(lda(), word_block=word_block, per_token=True, learner=learner).fit(X, y)
    score = FreeEnergyScore(lda(), word_block=word_block, per_token=True, standardize=True).fit(X)
    scores = score.transform(X)
    weights = clone(learner or DiagonalKernelLearner()).fit(scores, y).weights_
    np.testing.assert_allclose(learned.weights_, weights)
    plain = scores.toarray() if sp.issparse(scores) else scores
    kernel = plain @ np.diag(weights) @ plain.T
    np.testing.assert_allclose(learned.kernel(X), kernel, atol=1e-9)
    np.testing.assert_allclose(learned.kernel(X[:4], X[9:]), kernel[:4, 9:], atol=1e-9)
    Z = learned.transform(X)
    assert sp.issparse(Z) == (word_block != "topic")
    np.testing.assert_allclose(np.asarray((Z @ Z.T).todense() if sp.issparse(Z) else Z @ Z.T), kernel, atol=1e-9)
    assert np.linalg.eigvalsh(kernel).min() > -1e-8
    assert learned.get_feature_names_out().tolist() == score.get_feature_names_out().tolist()
    assert len(learned.get_feature_names_out()) == Z.shape[1]


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.csr_matrix])
def test_sparse_equals_dense(form):
    X, y = documents()
    dense = FreeEnergyKernel(lda()).fit(X, y)
    sparse = FreeEnergyKernel(lda()).fit(form(X), y)
    np.testing.assert_allclose(sparse.weights_, dense.weights_)
    np.testing.assert_allclose(sparse.transform(form(X)), dense.transform(X))


def test_documents_of_a_class_are_more_alike_than_with_equal_weights():
    X, y = documents()
    signs = 2.0 * (y[:, None] == y) - 1 - np.eye(len(y))
    learned = FreeEnergyKernel(lda(4)).fit(X, y)
    scores = learned.score_.transform(X)
    equal = scores @ scores.T / np.sqrt(scores.shape[1])  # weights of length 1 as well
    assert np.sum(signs * learned.kernel(X)) > np.sum(signs * equal)


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
    again = pickle.loads(pickle.dumps(learned))
    assert again.transform(X).tobytes() == learned.transform(X).tobytes()
    assert clone(learned).fit(X, y).transform(X).tobytes() == learned.transform(X).tobytes()


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
    learned = FreeEnergyKernel(lda()).fit(X, y)
    with pytest.raises(BagwiseError):
        learned.fit(-X, y)
    assert not hasattr(learned, "score_")
