"""The E-step on a CUDA device, beside the CPU's and the formulas."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import digamma

from bagwise import BagwiseError, LatentDirichlet
from bagwise._utils.backends import backend
from bagwise.topics.inference import infer, to_counts


def documents(n=60, n_words=40, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(0.2, 4.0, (n, n_words)))
    counts[3] = 0  # an empty document
    return to_counts(sp.csr_array(counts), "test")


def by_formulas(X, weights, alpha, n_updates):
    gamma = alpha + X.sum(axis=1)[:, None] / len(alpha)
    for _ in range(n_updates):
        for d in range(X.shape[0]):
            phi = weights * np.exp(digamma(gamma[d]) - digamma(gamma[d].sum()))
            gamma[d] = alpha + X[[d]].toarray()[0] @ (phi / phi.sum(axis=1, keepdims=True))
    return gamma


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("n_topics", [3, 45, 130])
def test_posteriors_are_those_of_the_formulas(device, n_topics):
    X, rng = documents(), np.random.default_rng(1)
    weights, alpha = rng.dirichlet(np.ones(40), n_topics).T.copy(), rng.random(n_topics) + 0.3
    place = backend("topics", device)
    found = place.infer(X, weights, alpha, max_iter=5, tol=0.0)
    np.testing.assert_allclose(found.gamma, by_formulas(X, weights, alpha, 5), rtol=1e-8)
    again = place.infer(X, weights, alpha, gamma=found.gamma, max_iter=3, tol=0.0)
    np.testing.assert_allclose(again.gamma, by_formulas(X, weights, alpha, 8), rtol=1e-8)
    plain = infer(X, weights, alpha, max_iter=5, tol=0.0)
    for name in ("bounds", "expected", "ratios"):
        ours, theirs = getattr(found, name), getattr(plain, name)
        if name == "ratios":  # of a factor that is free, with `expected`
            row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            ours, theirs = ours * found.expected[row, 0], theirs * plain.expected[row, 0]
        if name == "expected":
            ours, theirs = ours / ours[:, :1], theirs / theirs[:, :1]
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.cuda
def test_sums_over_documents():
    X, rng = documents(), np.random.default_rng(2)
    weights, alpha = rng.dirichlet(np.ones(40), 37).T.copy(), np.full(37, 0.5)
    sums = []
    for device in (None, "cuda"):
        corpus = backend("topics", device).Corpus(X)
        posterior = corpus.infer(weights, alpha, None, 50, 1e-9, 1)
        sums.append(corpus.expected_counts(posterior.ratios, posterior.expected, weights))
    np.testing.assert_allclose(sums[1], sums[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(sums[1].sum(axis=1), X.sum(axis=0), rtol=1e-9)


@pytest.mark.cuda
@pytest.mark.parametrize("solver", ["vb", "online"])
def test_a_model_fitted_on_a_device(solver, tmp_path):
    X, weight = documents(80), np.random.default_rng(3).random(80) + 0.5
    options = {"solver": solver, "max_iter": 4, "batch_size": 30, "mean_change_tol": 1e-8, "random_state": 0}
    plain = LatentDirichlet(6, **options).fit(X, sample_weight=weight)
    model = LatentDirichlet(6, device="cuda", **options).fit(X, sample_weight=weight)
    np.testing.assert_allclose(model.topics_, plain.topics_, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(model.bounds_, plain.bounds_, rtol=1e-6)
    np.testing.assert_allclose(model.transform(X), plain.transform(X), atol=1e-4)
    assert LatentDirichlet.load(model.save(tmp_path / "model")).device is None


@pytest.mark.parametrize("solver", ["vb", "gibbs", "auto"])
def test_a_device_without_cupy_is_refused(monkeypatch, solver):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BagwiseError, match=r"bagwise\[gpu\]"):
        LatentDirichlet(2, solver=solver, device="cuda").fit(documents())


def test_the_solver_on_a_device_is_one_that_runs_there():
    pytest.importorskip("tomotopy")
    assert LatentDirichlet(2)._choose(documents(), None) == "gibbs"
    assert LatentDirichlet(2, device="cuda")._choose(documents(), None) == "vb"
