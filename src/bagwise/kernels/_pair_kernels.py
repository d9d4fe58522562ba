"""Compiled loops over pairs of samples: products and gradients of sparse ones, and the logistic loss of all.

Blocks of sparse samples are CSC: two samples meet where they share a column.
"""

from math import exp, log1p

from numba import njit


@njit(cache=True, nogil=True)
def logistic_losses(signs, products, within):
    """Sum of ``log(1 + exp(-signs * products))``; products are replaced by the derivatives in them.

    The derivatives are ``-signs / (1 + exp(signs * products))``. If `within`, both blocks are the same: only pairs with
    i < j count, the derivatives of others are zero. O(pairs).
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
    """``products += A @ diag(weights) @ B.T``. One multiplication for each two entries that share a column."""
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
    """``gradient += (A * (factors @ B)).sum(axis=0)``, without the product. Cost as in `pair_products`."""
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
