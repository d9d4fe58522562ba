"""Collapsed Gibbs sampling of latent Dirichlet allocation by tomotopy, and where it is to be had."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.matrices import is_whole
from bagwise.errors import BagwiseError
from bagwise.topics.inference import check_whole
from bagwise.topics.training import SMALLEST, State, order_by_words

# A sampler that starts from random topics needs some sweeps to leave them.
FEWEST_SWEEPS = 100
# Sampling takes time for each token, variational inference for each non-zero.
_MOST_TOKENS = 10  # per non-zero
_SWEEPS_BETWEEN_PRIORS = 10
_SWEEPS_BETWEEN_SAMPLES = 10


def can_sample(X: sp.csr_array) -> bool:
    """Whether tomotopy is installed, and X has integer counts that are few enough to draw a topic for each token."""
    return (
        X.nnz > 0
        and is_whole(X)
        and X.data.sum() <= _MOST_TOKENS * X.nnz
        and importlib.util.find_spec("tomotopy") is not None
    )


def sample_topics(
    X: sp.csr_array,
    alpha: NDArray[np.float64],
    eta: float,
    *,
    prior: str = "fixed",
    n_sweeps: int = 300,
    seed: int = 0,
    n_threads: int = 1,
    report: Callable[[int], None] = lambda done: None,
) -> State:
    """Collapsed Gibbs sampling by tomotopy; λ are counts of each topic plus η, averaged over the last third of sweeps.

    A sweep draws ``p(z = i) ∝ (n_di + α_i) (n_iv + η) / (n_i + V η)`` for each token, with counts that leave the token
    out. A prior that is learned stays as it is for the first third of the sweeps. The average is over every tenth
    sweep. With one thread the same seed gives the same topics, in whatever order the documents come. With more, the
    threads of tomotopy work on copies that are merged after each sweep, and results differ. `report` is called with the
    number of sweeps so far.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its extension modules cannot be loaded where a warning is an error
        tomotopy = require("tomotopy", "topics", 'solver="gibbs"')
    if prior == "symmetric":
        raise BagwiseError(
            'solver="gibbs" does not support prior="symmetric". Use prior="asymmetric" or "fixed", or another solver.'
        )
    check_whole(X, 'solver="gibbs"')
    n_words, n_components = X.shape[1], len(alpha)
    if X.nnz == 0:
        raise BagwiseError('All documents are empty: solver="gibbs" has no token to sample. Give counts above 0.')
    model = tomotopy.LDAModel(k=n_components, alpha=alpha.tolist(), eta=eta, seed=seed, min_cf=0, rm_top=0)
    model.optim_interval = _SWEEPS_BETWEEN_PRIORS if prior == "asymmetric" else 0
    model.burn_in = n_sweeps // 3
    names = np.arange(n_words).astype(str).astype(object)
    X = X[order_by_words(X, np.random.RandomState(seed))]
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        if begin < end:
            tokens = np.repeat(X.indices[begin:end], X.data[begin:end].astype(np.int64))
            model.add_doc(names[tokens].tolist())
    # Backwards from the last sweep, so that it is a sample.
    sampled = np.arange(n_sweeps, n_sweeps - n_sweeps // 3 - 1, -_SWEEPS_BETWEEN_SAMPLES)[::-1]
    steps = np.unique(np.append(sampled, np.arange(0, sampled[0], _SWEEPS_BETWEEN_SAMPLES)[1:]))
    counts = np.zeros((n_words, n_components))
    done = 0
    for step in steps.tolist():
        model.train(step - done, workers=n_threads)
        done = step
        report(done)
        if done >= sampled[0]:
            order = np.array([int(name) for name in model.used_vocabs])
            for topic in range(n_components):
                counts[order, topic] += np.rint(model.get_topic_word_dist(topic, normalize=False) - eta)
    learned = np.maximum(model.alpha, SMALLEST) if prior == "asymmetric" else alpha
    return State(counts / len(sampled) + eta, np.asarray(learned, dtype=np.float64))
