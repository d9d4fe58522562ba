"""Compiled inner loops of free-energy scores: what each topic and word adds to the bound of a document."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def split_bound_of_words(
    starts, words, counts, weights, logs, expected, ratios, shifts, per_topic, in_words, per_word, first, last
):
    """Split ``Σ_v n_v φ_vi (e_i - log φ_vi + log β_vi)`` over topics and over words, for documents first..last.

    With phi of a document as words x topics, n its counts and e its E[log share]::

        per_topic[d] = n @ (phi * (e - log(phi)))
        in_words[d] = n @ (phi * log(beta[words]))
        per_word[begin:end] = n * (phi * log(beta[words])).sum(axis=1)

    As ``e_i - log φ_vi = log norm_v - log β_vi``, no logarithm of φ is taken. `logs` is log(weights), `shifts` what
    `expected` lacks per document, as a logarithm. Cost O(nnz K).
    """
    for d in range(first, last):
        shares, topic, word = expected[d], per_topic[d], in_words[d]
        topic[:] = 0.0
        word[:] = 0.0
        for p in range(starts[d], starts[d + 1]):
            v = np.uint64(words[p])
            ratio = ratios[p]
            norm = math.log(counts[p] / ratio) + shifts[d]
            total = 0.0
            for k in range(shares.shape[0]):
                emitted = ratio * weights[v, k] * shares[k]
                part = emitted * logs[v, k]
                topic[k] += emitted * norm - part
                word[k] += part
                total += part
            per_word[p] = total


@njit(cache=True, nogil=True, error_model="numpy")
def count_emissions(starts, words, weights, expected, ratios, smallest, sizes, first, last):
    """``sizes[d] = (n[:, None] * phi >= smallest).sum()`` for the documents first..last. Cost O(nnz K)."""
    for d in range(first, last):
        size = 0
        for p in range(starts[d], starts[d + 1]):
            v = np.uint64(words[p])
            for k in range(expected.shape[1]):
                size += ratios[p] * weights[v, k] * expected[d, k] >= smallest
        sizes[d] = size


@njit(cache=True, nogil=True, error_model="numpy")
def list_emissions(
    starts, words, weights, logs, expected, ratios, smallest, n_words, out_starts, columns, values, first, last
):
    """List ``n_v φ_vi log β_vi`` of what `count_emissions` counts, columns ``i n_words + v`` in order. O(nnz K)."""
    for d in range(first, last):
        filled = out_starts[d]
        for k in range(expected.shape[1]):
            for p in range(starts[d], starts[d + 1]):
                v = np.uint64(words[p])
                emitted = ratios[p] * weights[v, k] * expected[d, k]
                if emitted >= smallest:
                    columns[filled] = k * n_words + words[p]
                    values[filled] = emitted * logs[v, k]
                    filled += 1
