"""Compiled inner loop of probabilistic latent semantic analysis."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bagwise.topics._topic_kernels import weigh


@njit(cache=True, nogil=True, error_model="numpy")
def update_shares(starts, words, counts, weights, powers, shares, ratios, logs, first, last):
    """One EM step on the shares of the documents first..last of a CSR matrix without stored zeros.

    For each document, with `weights` words x topics and `powers` its shares to the power of the temperature::

        norms = weights[words] @ powers; ratios = counts / norms; logs = counts @ log(norms)
        shares = powers * (ratios @ weights[words]); shares /= shares.sum()

    Words of norm 0, which no topic of the document emits, have no part. Empty documents get even shares. Cost O(nnz K).
    """
    n_topics = powers.shape[1]
    sums = np.empty(n_topics)
    for d in range(first, last):
        begin, end = starts[d], starts[d + 1]
        weigh(words[begin:end], counts[begin:end], weights, powers[d], ratios[begin:end], sums)
        logs[d] = 0.0
        known = True
        for p in range(begin, end):
            if ratios[p] < np.inf:
                logs[d] += counts[p] * math.log(counts[p] / ratios[p])
            else:
                known = False
                ratios[p] = 0.0
        if not known:
            sums[:] = 0.0
            for p in range(begin, end):
                for k in range(n_topics):
                    sums[k] += ratios[p] * weights[words[p], k]
        total = 0.0
        for k in range(n_topics):
            shares[d, k] = powers[d, k] * sums[k]
            total += shares[d, k]
        for k in range(n_topics):
            shares[d, k] = shares[d, k] / total if total > 0.0 else 1.0 / n_topics
