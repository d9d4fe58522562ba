"""Compiled loops of additive kernels, and of the logistic loss over pairs of samples.

Blocks of sparse samples in the loops over pairs are CSC: two samples meet where they share a column.
"""

from math import exp, log1p

import numpy as np
from numba import njit

# Number of partial sums: vectorised loops add in a fixed order, the same for every pair.
_WIDTH = 32
_HALF_PER_LOG2 = 0.5 / np.log(2.0)
INTERSECTION, CHI2, JENSEN_SHANNON = range(3)
DENSE = (INTERSECTION, CHI2)  # those of `dense_kernel_rows`


@njit(cache=True, nogil=True)
def one_word(kind, x, z):
    """Kernel of two non-negative numbers."""
    if kind == INTERSECTION:
        return x if x < z else z
    if x == 0.0 or z == 0.0:
        return 0.0
    if kind == CHI2:
        return 2.0 * x * (z / (x + z))
    # Jensen-Shannon, as in bagwise.kernels.additive.jensen_shannon_words
    low, high = (x, z) if x < z else (z, x)
    ratio = low / high
    if ratio == 0.0:
        return 0.0
    return ((low + high) * np.log1p(ratio) - low * np.log(ratio)) * _HALF_PER_LOG2


@njit(cache=True, nogil=True)
def _add_minima(x, z, sums):
    """``sums[: len(x)] += np.minimum(x, z)``, for at most `_WIDTH` words."""
    for k in range(x.shape[0]):
        sums[k] += x[k] if x[k] < z[k] else z[k]


@njit(cache=True, nogil=True)
def _add_chi2(x, z, sums):
    """``sums[: len(x)] += 2 * x * z / (x + z)``, zero where both are."""
    for k in range(x.shape[0]):
        total = x[k] + z[k]
        sums[k] += 2.0 * x[k] * (z[k] / (total if total > 0.0 else 1.0))


@njit(cache=True, nogil=True)
def dense_kernel_rows(kind, X, Z, start, stop, out):
    """``out[i - start, j] = Σ_w k(X[i, w], Z[j, w])`` for the rows i in ``start..stop`` and all j.

    For the intersection and chi² kernels. O(d) per pair.
    """
    n_words = X.shape[1]
    sums = np.empty(_WIDTH)
    for i in range(start, stop):
        for j in range(Z.shape[0]):
            sums[:] = 0.0
            for w in range(0, n_words, _WIDTH):
                end = min(w + _WIDTH, n_words)
                if kind == INTERSECTION:
                    _add_minima(X[i, w:end], Z[j, w:end], sums)
                else:
                    _add_chi2(X[i, w:end], Z[j, w:end], sums)
            total = 0.0
            for k in range(_WIDTH):
                total += sums[k]
            out[i - start, j] = total


@njit(cache=True, nogil=True)
def sparse_kernel_rows(kind, starts, words, values, word_starts, samples, sample_values, start, stop, out):
    """`dense_kernel_rows` for X given as CSR and Z as CSC, any kind; `out` starts as zeros.

    One evaluation per pair of non-zeros of the same word.
    """
    for i in range(start, stop):
        row = out[i - start]
        for p in range(starts[i], starts[i + 1]):
            value = values[p]
            word = words[p]
            for q in range(word_starts[word], word_starts[word + 1]):
                row[samples[q]] += one_word(kind, value, sample_values[q])


@njit(cache=True, nogil=True)
def _add_weighted_chi2(factor, x, values, weighted, sums):
    """``sums[: len(values)] += factor * weighted / (x + values)`` for one positive x."""
    for k in range(values.shape[0]):
        sums[k] += factor * (weighted[k] / (x + values[k]))


@njit(cache=True, nogil=True)
def chi2_pair_sums(values, weights, out):
    """``out[r] = Σ_ij w_i w_j 2 v_i v_j / (v_i + v_j)`` with ``v = values[r]``. O(n²) per row."""
    n = values.shape[1]
    sums = np.empty(_WIDTH)
    weighted = np.empty(n)
    for r in range(values.shape[0]):
        row = values[r]
        sums[:] = 0.0
        with_itself = 0.0
        for i in range(n):
            weighted[i] = weights[i] * row[i]
            with_itself += weights[i] * weighted[i]
            if row[i] > 0.0:
                for j in range(0, i, _WIDTH):
                    end = min(j + _WIDTH, i)
                    _add_weighted_chi2(weighted[i], row[i], row[j:end], weighted[j:end], sums)
        pairs = 0.0
        for k in range(_WIDTH):
            pairs += sums[k]
        out[r] = with_itself + 4.0 * pairs


@njit(cache=True, nogil=True)
def logistic_losses(signs, products, within):
    """Sum of ``log(1 + exp(-signs * products))``; products are replaced by its derivatives in them.

    The derivatives are ``-signs / (1 + exp(signs * products))``. If `within`, both blocks are the same: only pairs with
    i < j count, the other derivatives are zero. O(pairs).
    """
    total = 0.0
    for i in range(products.shape[0]):
        first = i + 1 if within else 0
        for j in range(first):
            products[i, j] = 0.0
        for j in range(first, products.shape[1]):
            sign = signs[i, j]
            margin = sign * products[i, j]
            if margin > 0.0:
                small = exp(-margin)
                total += log1p(small)
                products[i, j] = -sign * small / (1.0 + small)
            else:
                small = exp(margin)
                total += log1p(small) - margin
                products[i, j] = -sign / (1.0 + small)
    return total


@njit(cache=True, nogil=True)
def pair_products(indptr_a, rows_a, values_a, indptr_b, rows_b, values_b, weights, products):
    """``products += A @ diag(weights) @ B.T``. One multiplication per pair of entries of the same column."""
    for column in range(len(weights)):
        weight = weights[column]
        if weight == 0.0:
            continue
        start, stop = indptr_b[column], indptr_b[column + 1]
        for k in range(indptr_a[column], indptr_a[column + 1]):
            row, value = rows_a[k], weight * values_a[k]
            for l in range(start, stop):
                products[row, rows_b[l]] += value * values_b[l]


@njit(cache=True, nogil=True)
def pair_gradient(indptr_a, rows_a, values_a, indptr_b, rows_b, values_b, factors, gradient):
    """``gradient += (A * (factors @ B)).sum(axis=0)``, without forming the product. Cost of `pair_products`."""
    for column in range(len(gradient)):
        start, stop = indptr_b[column], indptr_b[column + 1]
        total = 0.0
        for k in range(indptr_a[column], indptr_a[column + 1]):
            row = rows_a[k]
            inner = 0.0
            for l in range(start, stop):
                inner += factors[row, rows_b[l]] * values_b[l]
            total += values_a[k] * inner
        gradient[column] += total
