"""Topics by collapsed Gibbs sampling, which tomotopy does."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError
from bagwise.topics.counts import check_whole
from bagwise.topics.training import State

__all__ = ["sample_topics"]

_SWEEPS_BETWEEN_PRIORS = 10


def sample_topics(
    X: sp.csr_array,
    alpha: NDArray[np.float64],
    eta: float,
    *,
    prior: str = "fixed",
    n_sweeps: int = 500,
    seed: int = 0,
    n_threads: int = 1,
) -> State:
    """Sample a topic for every token, again and again, and count what each topic emitted at the end.

    A sweep draws ``p(z = i) ∝ (n_di + α_i) (n_iv + η) / (n_i + V η)`` for each token, counts without the token itself.
    With one thread the same seed gives the same topics; with more, tomotopy's threads work on copies that are put
    together after each sweep, and results differ.
    """
    tomotopy = require("tomotopy", "topics", 'solver="gibbs"')
    if prior == "symmetric":
        raise BagwiseError(
            'solver="gibbs" learns a prior for each topic or none, not prior="symmetric". '
            'Use prior="asymmetric" or "fixed", or another solver.'
        )
    if eta <= 0:
        raise BagwiseError(f'solver="gibbs" needs eta above 0, got {eta:g}. 0.01 is usual.')
    check_whole(X, 'solver="gibbs"')
    n_words, n_topics = X.shape[1], len(alpha)
    if X.nnz == 0:
        raise BagwiseError('All documents are empty: solver="gibbs" has no token to sample. Give counts above 0.')
    model = tomotopy.LDAModel(k=n_topics, alpha=alpha.tolist(), eta=eta, seed=seed, min_cf=0, rm_top=0)
    model.optim_interval = _SWEEPS_BETWEEN_PRIORS if prior == "asymmetric" else 0
    names = np.arange(n_words).astype(str).astype(object)
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        if begin < end:
            tokens = np.repeat(X.indices[begin:end], X.data[begin:end].astype(np.int64))
            model.add_doc(names[tokens].tolist())
    model.train(n_sweeps, workers=n_threads)
    order = np.array([int(name) for name in model.used_vocabs])
    counts = np.full((n_words, n_topics), eta)
    for topic in range(n_topics):
        counts[order, topic] = model.get_topic_word_dist(topic, normalize=False)
    learned = np.array(model.alpha, dtype=np.float64) if prior == "asymmetric" else alpha
    return State(np.maximum(counts, eta), learned)
