"""Compiled inner loops of latent Dirichlet allocation: the posterior of single documents, and sums over them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# A topic whose share of a document adds less than this, relative to its prior, is left aside until the last check.
_NEGLIGIBLE = 1e-10
# How often a document may go on with few topics. What is left to do then is about those that were left aside.
_TIMES_WITH_FEW = 2


@njit(cache=True, nogil=True, error_model="numpy")
def digamma(x):
    """``scipy.special.digamma(x)`` for positive x, to about 1e-14; one division, one logarithm, no branch.

    ψ(x) = ψ(x + 8) - Σ_{i<8} 1/(x + i). The sum is one fraction, as x + i and x + 7 - i have the product q + i(7 - i)
    with q = x(x + 7); the rest is the asymptotic series.
    """
    q = x * (x + 7.0)
    outer, inner = q * (q + 6.0), (q + 10.0) * (q + 12.0)
    below = (2.0 * x + 7.0) * ((2.0 * q + 6.0) * inner + (2.0 * q + 22.0) * outer) / (outer * inner)
    y = x + 8.0
    r = 1.0 / y
    t = r * r
    series = t * (1 / 12 - t * (1 / 120 - t * (1 / 252 - t * (1 / 240 - t * (1 / 132 - t * (691 / 32760 - t / 12))))))
    return math.log(y) - 0.5 * r - series - below


@njit(cache=True, nogil=True, error_model="numpy")
def _four_dots(a, b, c, d, x):
    """``a @ x, b @ x, c @ x, d @ x``, four sums side by side, as additions to one would wait for each other."""
    at_a = at_b = at_c = at_d = 0.0
    for i in range(x.shape[0]):
        value = x[i]
        at_a += a[i] * value
        at_b += b[i] * value
        at_c += c[i] * value
        at_d += d[i] * value
    return at_a, at_b, at_c, at_d


@njit(cache=True, nogil=True, error_model="numpy")
def _dot(a, x):
    """``a @ x``, in the order of `_four_dots`."""
    total = 0.0
    for i in range(x.shape[0]):
        total += a[i] * x[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _expect(gamma, expected):
    """``expected = exp(digamma(gamma) - m)`` with ``m = max(digamma(gamma))``, which is returned."""
    largest = -np.inf
    for k in range(gamma.shape[0]):
        expected[k] = digamma(gamma[k])
        largest = max(largest, expected[k])
    for k in range(gamma.shape[0]):
        expected[k] = math.exp(expected[k] - largest)
    return largest


@njit(cache=True, nogil=True, error_model="numpy")
def weigh(words, counts, weights, expected, ratios, sums):
    """``ratios = counts / (weights[words] @ expected); sums = ratios @ weights[words]``.

    `weights` are words x topics, so one pass over the rows does both. Cost O(words K).
    """
    sums[:] = 0.0
    whole = words.shape[0] - words.shape[0] % 4
    for j in range(0, whole, 4):
        a, b = weights[np.uint64(words[j])], weights[np.uint64(words[j + 1])]
        c, d = weights[np.uint64(words[j + 2])], weights[np.uint64(words[j + 3])]
        at_a, at_b, at_c, at_d = _four_dots(a, b, c, d, expected)
        at_a, at_b, at_c, at_d = counts[j] / at_a, counts[j + 1] / at_b, counts[j + 2] / at_c, counts[j + 3] / at_d
        ratios[j], ratios[j + 1], ratios[j + 2], ratios[j + 3] = at_a, at_b, at_c, at_d
        for k in range(sums.shape[0]):
            sums[k] += (at_a * a[k] + at_b * b[k]) + (at_c * c[k] + at_d * d[k])
    for j in range(whole, words.shape[0]):
        row = weights[np.uint64(words[j])]
        ratios[j] = counts[j] / _dot(row, expected)
        for k in range(sums.shape[0]):
            sums[k] += ratios[j] * row[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _sum_along_words(block, n_live, ratios, sums):
    """``sums[:n_live] = block[:n_live] @ ratios``."""
    n = ratios.shape[0]
    whole = n_live - n_live % 4
    for a in range(0, whole, 4):
        rows = block[a, :n], block[a + 1, :n], block[a + 2, :n], block[a + 3, :n]
        sums[a], sums[a + 1], sums[a + 2], sums[a + 3] = _four_dots(rows[0], rows[1], rows[2], rows[3], ratios)
    for a in range(whole, n_live):
        sums[a] = _dot(block[a, :n], ratios)


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate_few(words, counts, weights, alpha, gamma, live, n_live, block, ratios, expected, sums, max_iter, tol):
    """Go on with the topics ``live[:n_live]`` alone, which mostly are few; returns the number of iterations.

    Their weights are copied, topics x words, so that loops run along the words. Topics that fade are taken out.
    """
    n = words.shape[0]
    for a in range(n_live):
        for j in range(n):
            block[a, j] = weights[words[j], live[a]]
    norms = ratios
    for iteration in range(max_iter):
        largest = -np.inf
        for a in range(n_live):
            expected[a] = digamma(gamma[live[a]])
            largest = max(largest, expected[a])
        norms[:] = 0.0
        for a in range(n_live):
            expected[a] = math.exp(expected[a] - largest)
            share, row = expected[a], block[a]
            for j in range(n):
                norms[j] += share * row[j]
        for j in range(n):
            ratios[j] = counts[j] / norms[j]
        _sum_along_words(block, n_live, ratios, sums)
        change = 0.0
        kept = 0
        for a in range(n_live):
            k = live[a]
            added = expected[a] * sums[a]
            change += abs(alpha[k] + added - gamma[k])
            gamma[k] = alpha[k] + added
            if added > _NEGLIGIBLE * alpha[k]:
                if kept < a:
                    live[kept] = k
                    for j in range(n):
                        block[kept, j] = block[a, j]
                kept += 1
        n_live = kept
        if change <= tol:
            return iteration + 1
    return max_iter


@njit(cache=True, nogil=True, error_model="numpy")
def _settle(words, counts, weights, alpha, gamma, expected, ratios, sums, live, block, max_iter, tol):
    """Iterate ``gamma = alpha + Σ_v n_v phi_v`` until its entries move by `tol` or less together.

    On return `expected` and `ratios` belong to `gamma` as it is. Returns m of `_expect`, the number of iterations.
    """
    n_topics = alpha.shape[0]
    done = 0
    times_left = _TIMES_WITH_FEW
    while True:
        largest = _expect(gamma, expected)
        weigh(words, counts, weights, expected, ratios, sums)
        change = 0.0
        n_live = 0
        for k in range(n_topics):
            added = expected[k] * sums[k]
            change += abs(alpha[k] + added - gamma[k])
            if added > _NEGLIGIBLE * alpha[k]:
                live[n_live] = k
                n_live += 1
        if done > 0 and (change <= tol or done >= max_iter):
            return largest, done
        for k in range(n_topics):
            gamma[k] = alpha[k] + expected[k] * sums[k]
        done += 1
        if 2 * n_live <= n_topics and times_left > 0 and done < max_iter:
            times_left -= 1
            done += _iterate_few(
                words, counts, weights, alpha, gamma, live, n_live, block, ratios, expected, sums, max_iter - done, tol
            )


@njit(cache=True, nogil=True, error_model="numpy")
def _document_bound(counts, alpha, gamma, ratios, largest):
    """The bound of a document at its best phi, from the norms n_v / ratio_v that belong to `gamma`."""
    total_alpha, total_gamma = alpha.sum(), gamma.sum()
    psi_total = digamma(total_gamma)
    bound = math.lgamma(total_alpha) - math.lgamma(total_gamma)
    for k in range(alpha.shape[0]):
        if gamma[k] != alpha[k]:
            bound += math.lgamma(gamma[k]) - math.lgamma(alpha[k])
            bound += (alpha[k] - gamma[k]) * (digamma(gamma[k]) - psi_total)
    for j in range(counts.shape[0]):
        bound += counts[j] * (math.log(counts[j] / ratios[j]) + largest - psi_total)
    return bound


@njit(cache=True, nogil=True, error_model="numpy")
def infer_documents(
    starts, words, counts, weights, alpha, warm, restart, gamma, expected, ratios, bounds, first, last, max_iter, tol
):
    """The variational posterior of the documents first..last, rows of a CSR matrix without stored zeros.

    For each document, until the entries of gamma move by ``tol`` of their sum or less::

        e = digamma(gamma) - digamma(gamma.sum())
        phi = weights[words] * exp(e); phi /= phi.sum(axis=1)      # words x topics
        gamma = alpha + counts @ phi

    `gamma` (documents x topics) is where to start if `warm`, and the result. With `restart` a second start is even
    shares; the better bound stays. `expected` is exp(e) up to a factor per document, `ratios` are such that
    ``phi[v] * counts[v] = ratios[v] * weights[v] * expected``. Cost O(nnz K) for the first and last iterations; those
    between take only topics that are not negligible in the document.
    """
    n_topics = alpha.shape[0]
    longest = 0
    for d in range(first, last):
        longest = max(longest, starts[d + 1] - starts[d])
    sums = np.empty(n_topics)
    live = np.empty(n_topics, dtype=np.intp)
    block = np.empty((n_topics // 2 + 1, longest))
    other_gamma, other_expected = np.empty(n_topics), np.empty(n_topics)
    other_ratios = np.empty(longest)
    n_iter = 0
    for d in range(first, last):
        begin, end = starts[d], starts[d + 1]
        if begin == end:
            gamma[d] = alpha
            _expect(gamma[d], expected[d])
            bounds[d] = 0.0
            continue
        document, n = words[begin:end], counts[begin:end]
        length = n.sum()
        limit = tol * (alpha.sum() + length)
        better = -np.inf
        if warm and restart:
            other_gamma[:] = gamma[d]
            largest = _expect(other_gamma, other_expected)
            weigh(document, n, weights, other_expected, other_ratios, sums)
            better = _document_bound(n, alpha, other_gamma, other_ratios[: end - begin], largest)
        if restart or not warm:
            gamma[d] = alpha + length / n_topics
        for _ in range(2):
            largest, done = _settle(
                document,
                n,
                weights,
                alpha,
                gamma[d],
                expected[d],
                ratios[begin:end],
                sums,
                live,
                block,
                max_iter,
                limit,
            )
            n_iter += done
            bounds[d] = _document_bound(n, alpha, gamma[d], ratios[begin:end], largest)
            if bounds[d] >= better:
                break
            gamma[d] = other_gamma  # the fresh start ended lower than where the document was: go on from there
            better = -np.inf
    return n_iter


@njit(cache=True, nogil=True, error_model="numpy")
def add_expected_counts(starts, documents, places, ratios, expected, sums, first, last):
    """``sums[v] += Σ_d ratios[d, v] expected[d]`` for the words first..last, documents in order.

    `starts` and `documents` list the documents of each word (CSC); `places` says where in `ratios`, which is in the
    order of the documents, an entry is. Cost O(nnz K).
    """
    for v in range(first, last):
        row = sums[v]
        for p in range(starts[v], starts[v + 1]):
            ratio, shares = ratios[places[p]], expected[documents[p]]
            for k in range(row.shape[0]):
                row[k] += ratio * shares[k]


@njit(cache=True, nogil=True, error_model="numpy")
def expect_topics(counts, totals, floor, weights, first, last):
    """``weights = maximum(exp(digamma(counts) - digamma(totals)), floor)`` for the words first..last.

    `counts` are words x topics, `totals` their digamma is taken of once per topic. Cost O(words K).
    """
    below = np.empty(totals.shape[0])
    for k in range(totals.shape[0]):
        below[k] = digamma(totals[k])
    for v in range(first, last):
        for k in range(totals.shape[0]):
            weights[v, k] = max(math.exp(digamma(counts[v, k]) - below[k]), floor)


@njit(cache=True, nogil=True, error_model="numpy")
def expected_logs(gamma, out, first, last):
    """``out = digamma(gamma) - digamma(gamma.sum(axis=1))[:, None]`` for the rows first..last."""
    for d in range(first, last):
        below = digamma(gamma[d].sum())
        for k in range(gamma.shape[1]):
            out[d, k] = digamma(gamma[d, k]) - below
