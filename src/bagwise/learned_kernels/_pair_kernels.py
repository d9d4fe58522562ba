"""Compiled loops over pairs of sparse samples, column by column. Both blocks of samples are CSC."""

from numba import njit


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
