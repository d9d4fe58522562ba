"""Compiled loops of topic models: posteriors of documents, sums over them, ELBO terms, EM of PLSA."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = (np.uint64(shift) for shift in (30, 27, 31, 11))
# Sums may be reordered and products fused into them; NaN and infinity keep their meaning.
_ANY_ORDER = {"reassoc", "contract"}
# A topic that adds less than this to gamma, relative to its prior, is negligible in a document.
_NEGLIGIBLE = 1e-10
# How often a document is updated without its negligible topics. After that all topics are updated.
_MAX_SUBSETS = 2
# Words are padded to a multiple of this, so that vectorised loops have no remainder.
_PADDING = 16


@njit(cache=True, nogil=True, error_model="numpy")
def _below_log(x):
    """``log(x + 8) - digamma(x)`` for positive x, to about 1e-14, without logarithm or branch.

    ψ(x) = ψ(x + 8) - Σ_{i<8} 1/(x + i). The sum is one fraction, as x + i and x + 7 - i have the product q + i(7 - i)
    with q = x(x + 7); the rest is the asymptotic series.
    """
    q = x * (x + 7.0)
    outer, inner = q * (q + 6.0), (q + 10.0) * (q + 12.0)
    below = (2.0 * x + 7.0) * ((2.0 * q + 6.0) * inner + (2.0 * q + 22.0) * outer) / (outer * inner)
    r = 1.0 / (x + 8.0)
    t = r * r
    series = t * (1 / 12 - t * (1 / 120 - t * (1 / 252 - t * (1 / 240 - t * (1 / 132 - t * (691 / 32760 - t / 12))))))
    return 0.5 * r + series + below


@njit(cache=True, nogil=True, error_model="numpy")
def digamma(x):
    """``scipy.special.digamma(x)`` for positive x, to about 1e-14."""
    return math.log(x + 8.0) - _below_log(x)


@njit(cache=True, nogil=True)
def _padded_size(n):
    """The smallest multiple of `_PADDING` that is at least n."""
    return (n + _PADDING - 1) // _PADDING * _PADDING


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_ANY_ORDER)
def _four_dots(a, b, c, d, x):
    """``a @ x, b @ x, c @ x, d @ x``: four sums in one pass over x."""
    at_a = at_b = at_c = at_d = 0.0
    for i in range(x.shape[0]):
        value = x[i]
        at_a += a[i] * value
        at_b += b[i] * value
        at_c += c[i] * value
        at_d += d[i] * value
    return at_a, at_b, at_c, at_d


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_ANY_ORDER)
def _dot(a, x):
    """``a @ x``."""
    total = 0.0
    for i in range(x.shape[0]):
        total += a[i] * x[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _expect(gamma, expected):
    """``expected = exp(digamma(gamma) - m)`` with a shift m near ``max(digamma(gamma))``, which is returned.

    ``exp(digamma(x)) = (x + 8) exp(-_below_log(x))`` needs no logarithm.
    """
    least = np.inf
    for k in range(gamma.shape[0]):
        expected[k] = _below_log(gamma[k])
    for k in range(gamma.shape[0]):
        least = min(least, expected[k])
    for k in range(gamma.shape[0]):
        expected[k] = (gamma[k] + 8.0) * math.exp(least - expected[k])
    return -least


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_ANY_ORDER)
def weigh(words, counts, weights, expected, ratios, sums):
    """``ratios = counts / (weights[words] @ expected); sums = ratios @ weights[words]``.

    `weights` are words x topics, so one pass over the rows does both. O(words K).
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


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_ANY_ORDER)
def _weigh_few(block, n_live, counts, expected, ratios, sums):
    """`weigh` with the weights ``block[:n_live]``, topics x words, where loops run along the words."""
    n = counts.shape[0]
    ratios[:] = 0.0
    whole = n_live - n_live % 4
    for a in range(0, whole, 4):
        for j in range(n):
            ratios[j] += (expected[a] * block[a, j] + expected[a + 1] * block[a + 1, j]) + (
                expected[a + 2] * block[a + 2, j] + expected[a + 3] * block[a + 3, j]
            )
    for a in range(whole, n_live):
        for j in range(n):
            ratios[j] += expected[a] * block[a, j]
    for j in range(n):
        ratios[j] = counts[j] / ratios[j]
    for a in range(0, whole, 4):
        sums[a], sums[a + 1], sums[a + 2], sums[a + 3] = _four_dots(
            block[a], block[a + 1], block[a + 2], block[a + 3], ratios
        )
    for a in range(whole, n_live):
        sums[a] = _dot(block[a], ratios)


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate_few(words, counts, weights, alpha, gamma, live, n_live, few, block, padded, expected, sums, max_iter, tol):
    """Update only the topics ``live[:n_live]``; returns the number of updates.

    Their weights are copied to `block`, topics x words, their entries of `gamma` to `few`. The words are padded by
    words of count 0. Topics that become negligible are removed.
    """
    n = words.shape[0]
    filled = _padded_size(n)
    block = block[: n_live * filled].reshape(n_live, filled)
    filled_counts, ratios = padded[0, :filled], padded[1, :filled]
    filled_counts[:n], filled_counts[n:] = counts, 0.0
    for j in range(n):
        row = weights[np.uint64(words[j])]
        for a in range(n_live):
            block[a, j] = row[live[a]]
    for a in range(n_live):
        block[a, n:] = 1.0
        few[a] = gamma[live[a]]
    for iteration in range(max_iter):
        _expect(few[:n_live], expected[:n_live])
        _weigh_few(block, n_live, filled_counts, expected, ratios, sums)
        change = 0.0
        for a in range(n_live):
            k = live[a]
            gamma[k] = alpha[k] + expected[a] * sums[a]
            change += abs(gamma[k] - few[a])
            few[a] = gamma[k]
        if change <= tol:
            return iteration + 1
        a = 0
        while a < n_live:
            if few[a] - alpha[live[a]] > _NEGLIGIBLE * alpha[live[a]]:
                a += 1
                continue
            n_live -= 1  # the last topic replaces the removed one
            live[a], few[a] = live[n_live], few[n_live]
            block[a] = block[n_live]
    return max_iter


@njit(cache=True, nogil=True, error_model="numpy")
def _converge(words, counts, weights, alpha, gamma, expected, ratios, sums, live, few, block, padded, max_iter, tol):
    """Iterate ``gamma = alpha + Σ_v n_v phi_v`` until the L1 norm of its change is at most `tol`.

    On return `expected` and `ratios` belong to the final `gamma`. Returns the shift m of `_expect`.
    """
    n_topics = alpha.shape[0]
    done = 0
    subsets_left = _MAX_SUBSETS
    while True:
        shift = _expect(gamma, expected)
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
            return shift
        for k in range(n_topics):
            gamma[k] = alpha[k] + expected[k] * sums[k]
        done += 1
        if 2 * n_live <= n_topics and subsets_left > 0 and done < max_iter:
            subsets_left -= 1
            done += _iterate_few(
                words, counts, weights, alpha, gamma, live, n_live, few, block, padded, expected, sums,
                max_iter - done, tol,
            )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _document_bound(counts, alpha, gamma, ratios, shift):
    """The ELBO of a document at the optimal phi, from the norms n_v / ratio_v that belong to `gamma`."""
    total_alpha, total_gamma = alpha.sum(), gamma.sum()
    psi_total = digamma(total_gamma)
    bound = math.lgamma(total_alpha) - math.lgamma(total_gamma)
    for k in range(alpha.shape[0]):
        if gamma[k] != alpha[k]:
            bound += math.lgamma(gamma[k]) - math.lgamma(alpha[k])
            bound += (alpha[k] - gamma[k]) * (digamma(gamma[k]) - psi_total)
    for j in range(counts.shape[0]):
        bound += counts[j] * (math.log(counts[j] / ratios[j]) + shift - psi_total)
    return bound


@njit(cache=True, nogil=True, error_model="numpy")
def infer_documents(
    starts, words, counts, weights, alpha, warm, gamma, expected, ratios, bounds, first, last, max_iter, tol
):
    """Variational posterior of the documents first..last, rows of a CSR matrix without stored zeros.

    For each document, until the L1 norm of the change of gamma is at most `tol` relative to its sum::

        e = digamma(gamma) - digamma(gamma.sum())
        phi = weights[words] * exp(e); phi /= phi.sum(axis=1)      # words x topics
        gamma = alpha + counts @ phi

    `gamma` (documents x topics) is the result, and the start if `warm`; otherwise documents start from equal
    proportions. `expected` is exp(e) up to a factor per document, `ratios` are such that
    ``phi[v] * counts[v] = ratios[v] * weights[v] * expected``. O(nnz K) for the first and last update; those between
    skip topics that are negligible in the document.
    """
    n_topics = alpha.shape[0]
    longest = 0
    for d in range(first, last):
        longest = max(longest, starts[d + 1] - starts[d])
    sums, few = np.empty(n_topics), np.empty(n_topics)
    live = np.empty(n_topics, dtype=np.intp)
    block, padded = np.empty(n_topics // 2 * _padded_size(longest)), np.empty((2, _padded_size(longest)))
    for d in range(first, last):
        begin, end = starts[d], starts[d + 1]
        if begin == end:
            gamma[d] = alpha
            _expect(gamma[d], expected[d])
            bounds[d] = 0.0
            continue
        document, n, of_words = words[begin:end], counts[begin:end], ratios[begin:end]
        length = n.sum()
        if not warm:
            gamma[d] = alpha + length / n_topics
        limit = tol * (alpha.sum() + length)
        shift = _converge(
            document, n, weights, alpha, gamma[d], expected[d], of_words,
            sums, live, few, block, padded, max_iter, limit,
        )  # fmt: skip
        bounds[d] = _document_bound(n, alpha, gamma[d], of_words, shift)


@njit(cache=True, nogil=True, error_model="numpy")
def add_expected_counts(starts, documents, places, ratios, expected, sums, first, last):
    """``sums[v] += Σ_d ratios[d, v] expected[d]`` for the words first..last, documents in order.

    `starts` and `documents` list the documents of each word (CSC); `places` gives the index of an entry in `ratios`,
    which is in CSR order. O(nnz K).
    """
    for v in range(first, last):
        row = sums[v]
        for p in range(starts[v], starts[v + 1]):
            ratio, of_document = ratios[places[p]], expected[documents[p]]
            for k in range(row.shape[0]):
                row[k] += ratio * of_document[k]


@njit(cache=True, nogil=True, error_model="numpy")
def expect_topics(counts, totals, floor, weights, first, last):
    """``weights = maximum(exp(digamma(counts) - digamma(totals)), floor)`` for the words first..last.

    `counts` are words x topics, `totals` their column sums. O(words K).
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


@njit(cache=True, nogil=True, error_model="numpy")
def split_bound_of_words(
    starts, words, counts, weights, logs, expected, ratios, shifts, per_topic, in_words, per_word, first, last
):
    """Split ``Σ_v n_v φ_vi (e_i - log φ_vi + log β_vi)`` over topics and over words, for documents first..last.

    With phi of a document as words x topics, n its counts and e its E[log proportion]::

        per_topic[d] = n @ (phi * (e - log(phi)))
        in_words[d] = n @ (phi * log(beta[words]))
        per_word[begin:end] = n * (phi * log(beta[words])).sum(axis=1)

    As ``e_i - log φ_vi = log norm_v - log β_vi``, no logarithm of φ is needed. `logs` is log(weights), `shifts` the
    logarithm of the factor of `expected` per document. O(nnz K).
    """
    for d in range(first, last):
        of_document, topic, word = expected[d], per_topic[d], in_words[d]
        topic[:] = 0.0
        word[:] = 0.0
        for p in range(starts[d], starts[d + 1]):
            v = np.uint64(words[p])
            ratio = ratios[p]
            norm = math.log(counts[p] / ratio) + shifts[d]
            total = 0.0
            for k in range(of_document.shape[0]):
                emitted = ratio * weights[v, k] * of_document[k]
                term = emitted * logs[v, k]
                topic[k] += emitted * norm - term
                word[k] += term
                total += term
            per_word[p] = total


@njit(cache=True, nogil=True, error_model="numpy")
def count_emissions(starts, words, weights, expected, ratios, smallest, sizes, first, last):
    """``sizes[d] = (n[:, None] * phi >= smallest).sum()`` for the documents first..last. O(nnz K)."""
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
    """List ``n_v φ_vi log β_vi`` of the emissions of `count_emissions`, in columns ``i n_words + v``. O(nnz K)."""
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


@njit(cache=True, nogil=True, error_model="numpy")
def update_proportions(starts, words, counts, weights, powers, proportions, ratios, logs, first, last):
    """One EM step of PLSA on the documents first..last of a CSR matrix without stored zeros.

    For each document, with `weights` words x topics and `powers` its proportions to the power of the temperature::

        norms = weights[words] @ powers; ratios = counts / norms; logs = counts @ log(norms)
        proportions = powers * (ratios @ weights[words]); proportions /= proportions.sum()

    Words of norm 0, which no topic of the document emits, are ignored. Empty documents get equal proportions. O(nnz K).
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
            proportions[d, k] = powers[d, k] * sums[k]
            total += proportions[d, k]
        for k in range(n_topics):
            proportions[d, k] = proportions[d, k] / total if total > 0.0 else 1.0 / n_topics


@njit(cache=True, nogil=True)
def _draw(sums, uniform):
    """The first k with ``sums[k] > uniform * sums[-1]``, where `sums` are cumulative: without branches."""
    last = sums.shape[0] - 1
    limit = uniform * sums[last]
    topic = 0
    for k in range(last):
        topic += sums[k] <= limit
    return topic


@njit(cache=True, nogil=True, error_model="numpy")
def sample_entries(starts, words, counts, alpha, eta, topics, of_words, totals, uniforms):
    """One sweep of collapsed Gibbs sampling in which all tokens of a word in a document have one topic.

    `topics` has the topic of each non-zero of a CSR matrix, `of_words` (words x topics) and `totals` their counts. For
    each non-zero, with counts that leave it out and n_i those of its document, draws::

        p(topic = i) ∝ (n_i + alpha_i) (of_words[v, i] + eta) / (totals_i + eta n_words)

    All three are updated. `uniforms` are random numbers in [0, 1), one per non-zero. O(nnz K).
    """
    n_topics = totals.shape[0]
    smoothing = eta * of_words.shape[0]
    with_prior, cumulative, inverse = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    for k in range(n_topics):
        inverse[k] = 1.0 / (totals[k] + smoothing)
    for d in range(starts.shape[0] - 1):
        with_prior[:] = alpha
        for p in range(starts[d], starts[d + 1]):
            with_prior[topics[p]] += counts[p]
        for p in range(starts[d], starts[d + 1]):
            row, n, old = of_words[np.uint64(words[p])], counts[p], topics[p]
            with_prior[old] -= n
            row[old] -= n
            totals[old] -= n
            inverse[old] = 1.0 / (totals[old] + smoothing)
            for k in range(n_topics):
                cumulative[k] = with_prior[k] * (row[k] + eta) * inverse[k]
            for k in range(1, n_topics):
                cumulative[k] += cumulative[k - 1]
            new = _draw(cumulative, uniforms[p])
            topics[p] = new
            with_prior[new] += n
            row[new] += n
            totals[new] += n
            inverse[new] = 1.0 / (totals[new] + smoothing)


@njit(cache=True, nogil=True)
def _mix(z):
    """The output function of splitmix64: scrambles 64 bits."""
    z = (z ^ (z >> _S30)) * _FIRST
    z = (z ^ (z >> _S27)) * _SECOND
    return z ^ (z >> _S31)


@njit(cache=True, nogil=True, error_model="numpy")
def sample_documents(starts, words, counts, weights, alpha, seed, n_discarded, n_kept, fractions, first, last):
    """Sample the topics of all tokens of the documents first..last of a CSR matrix of integer counts.

    In each sweep a token of word v moves to topic i with probability proportional to ``(n_i + alpha_i) weights[v, i]``,
    with n_i the other tokens of the document in topic i. ``fractions[p, i]`` becomes the fraction of (kept sweeps,
    tokens of entry p) with topic i. The random numbers of a document depend on its words, counts and `seed` alone.
    O(tokens K sweeps).
    """
    n_topics = alpha.shape[0]
    longest = 0
    for d in range(first, last):
        length = 0
        for p in range(starts[d], starts[d + 1]):
            length += counts[p]
        longest = max(longest, length)
    topics = np.empty(longest, dtype=np.int64)
    totals, sums = np.empty(n_topics), np.empty(n_topics)
    for d in range(first, last):
        begin, end = starts[d], starts[d + 1]
        state = seed
        for p in range(begin, end):
            state = _mix(state ^ _mix(np.uint64(words[p]) + _STEP))
            state = _mix(state ^ _mix(np.uint64(counts[p]) + _STEP))
        totals[:] = alpha
        fractions[begin:end] = 0.0
        for sweep in range(-1, n_discarded + n_kept):  # sweep -1 places the tokens one after another
            token = 0
            for p in range(begin, end):
                row = weights[words[p]]
                for _ in range(counts[p]):
                    if sweep >= 0:
                        totals[topics[token]] -= 1.0
                    total = 0.0
                    for k in range(n_topics):
                        total += totals[k] * row[k]
                        sums[k] = total
                    state += _STEP
                    chosen = _draw(sums, (_mix(state) >> _S11) * 2.0**-53)
                    topics[token] = chosen
                    totals[chosen] += 1.0
                    if sweep >= n_discarded:
                        fractions[p, chosen] += 1.0
                    token += 1
        for p in range(begin, end):
            fractions[p] /= n_kept * counts[p]
