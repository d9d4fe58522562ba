import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError
from bagwise.topics import PLSA
from helpers import topic_counts


def plain_step(X, shares, topics, temperature):
    """EM by the array documents x words x topics; topics as topics x words."""
    joint = (shares[:, None, :] * topics.T[None]) ** temperature
    norms = joint.sum(axis=2)
    responsibilities = joint / norms[:, :, None]
    emitted = X[:, :, None] * responsibilities
    new_shares, new_topics = emitted.sum(axis=1), emitted.sum(axis=0).T
    return (
        new_shares / new_shares.sum(axis=1, keepdims=True),
        new_topics / new_topics.sum(axis=1, keepdims=True),
        (X * np.log(norms)).sum() / temperature,
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_it_is_plain_em(temperature):
    X, _ = topic_counts(np.random.default_rng(0), 20, 15)
    X += 0.1
    how = {"temperature": temperature, "random_state": 3, "tol": 0}
    first = PLSA(4, max_iter=1, **how).fit(X)
    rng = np.random.RandomState(3)
    topics = rng.random_sample((4, 15)) + 0.5
    topics /= topics.sum(axis=1, keepdims=True)
    shares = np.full((20, 4), 0.25)
    objectives = []
    for n in range(1, 7):
        shares, topics, objective = plain_step(X, shares, topics, temperature)
        objectives.append(objective)
        np.testing.assert_allclose(PLSA(4, max_iter=n, **how).fit(X).topics_, topics, rtol=1e-9)
    np.testing.assert_allclose(first.topics_.sum(axis=1), 1)
    np.testing.assert_allclose(PLSA(4, max_iter=6, **how).fit(X).objectives_, objectives)


def test_the_likelihood_never_falls_and_folding_in_raises_it():
    X, _ = topic_counts(np.random.default_rng(1), 50, 30)
    for temperature in (0.6, 1.0):
        plsa = PLSA(5, max_iter=60, tol=0, temperature=temperature, random_state=0).fit(X)
        assert np.diff(plsa.objectives_).min() >= -1e-9 * abs(plsa.objectives_[-1])
        assert plsa.objectives_[-1] > plsa.objectives_[0] + 1
    shares = plsa.transform(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert plsa.score(X) >= plsa.objectives_[-1] - 1e-6 * abs(plsa.objectives_[-1])
    by_hand = (X * np.log(np.where(X > 0, shares @ plsa.topics_, 1))).sum()
    np.testing.assert_allclose(plsa.score(X), by_hand)
    scores = [plsa.set_params(max_iter=n).score(X) for n in (1, 3, 10, 30)]
    assert scores == sorted(scores)


def test_one_topic_is_the_corpus():
    X, _ = topic_counts(np.random.default_rng(2), 10, 12)
    plsa = PLSA(1, random_state=0).fit(X)
    np.testing.assert_allclose(plsa.topics_[0], X.sum(axis=0) / X.sum())
    np.testing.assert_array_equal(plsa.transform(X), np.ones((10, 1)))


def test_sparse_threads_seeds_and_parts():
    X, _ = topic_counts(np.random.default_rng(3), 150, 300)
    make = lambda **how: PLSA(4, max_iter=8, random_state=1, **how)  # noqa: E731
    plsa = make().fit(X)
    for other in (make(n_jobs=2).fit(sp.csr_array(X)), make().fit(sp.csc_matrix(X))):
        np.testing.assert_array_equal(plsa.topics_, other.topics_)
        np.testing.assert_array_equal(plsa.transform(X), other.transform(sp.csr_matrix(X)))
    np.testing.assert_array_equal(plsa.transform(X[40:50]), plsa.transform(X)[40:50])


def test_words_never_seen_and_empty_documents():
    X = np.array([[3.0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]])
    plsa = PLSA(2, random_state=0).fit(X)
    np.testing.assert_array_equal(plsa.topics_[:, 3], 0)
    shares = plsa.transform([[3, 1, 0, 0], [3, 1, 0, 7], [0, 0, 0, 5], [0, 0, 0, 0]])
    np.testing.assert_allclose(shares[0], shares[1], atol=1e-12)  # what was never seen is ignored
    np.testing.assert_array_equal(shares[2:], np.full((2, 2), 0.5))
    assert np.isfinite(plsa.score([[1, 0, 0, 4]]))
    many = PLSA(9, random_state=0).fit(X)
    np.testing.assert_allclose(many.topics_.sum(axis=1), 1)
    assert np.isfinite(PLSA(2).fit(np.zeros((2, 3))).topics_).all()


def test_the_best_of_several_starts_is_kept():
    X, _ = topic_counts(np.random.default_rng(4), 60, 40)
    rng = np.random.RandomState(1)
    alone = [PLSA(4, max_iter=30, random_state=rng).fit(X) for _ in range(4)]  # one generator: as in one fit
    best = max(alone, key=lambda plsa: plsa.objectives_[-1])
    assert best is not alone[0]
    together = PLSA(4, max_iter=30, n_init=4, random_state=1).fit(X)
    np.testing.assert_array_equal(together.components_, best.components_)
    assert together.n_iter_ == best.n_iter_


def test_what_it_cannot_use():
    with pytest.raises(BagwiseError, match="word 1 is -2"):
        PLSA(2).fit([[1, -2], [0, 1]])
    for wrong in ({"temperature": 0}, {"temperature": 1.5}, {"n_components": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PLSA(**wrong).fit(np.eye(3))
