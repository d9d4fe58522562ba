"""Compiled code for histogram intersection between samples."""

import numpy as np
from numba import njit

_LANES = 32


@njit(cache=True, nogil=True)
def _add_minima(x, z, lanes):
    """``lanes[: len(x)] += np.minimum(x, z)``, at most `_LANES` words."""
    for k in range(x.shape[0]):
        lanes[k] += x[k] if x[k] < z[k] else z[k]


@njit(cache=True, nogil=True)
def intersect_dense(X, start, stop, out):
    """``out[i - start, j] = np.minimum(X[i], X[j]).sum()`` for the samples i in ``start..stop`` and all j.

    Cost O(d) a pair. Sums are kept in lanes, so the order of additions is the same for every pair.
    """
    n_words = X.shape[1]
    lanes = np.empty(_LANES)
    for i in range(start, stop):
        for j in range(X.shape[0]):
            lanes[:] = 0.0
            for w in range(0, n_words, _LANES):
                end = min(w + _LANES, n_words)
                _add_minima(X[i, w:end], X[j, w:end], lanes)
            total = 0.0
            for k in range(_LANES):
                total += lanes[k]
            out[i - start, j] = total


@njit(cache=True, nogil=True)
def intersect_sparse(starts, words, values, word_starts, samples, sample_values, start, stop, out):
    """`intersect_dense` for non-negative data given as CSR and as CSC; `out` starts as zeros.

    Goes through the samples that share a word, so the cost is one addition for each pair of non-zeros of a word.
    """
    for i in range(start, stop):
        row = out[i - start]
        for p in range(starts[i], starts[i + 1]):
            value = values[p]
            word = words[p]
            for q in range(word_starts[word], word_starts[word + 1]):
                row[samples[q]] += min(value, sample_values[q])
