"""Compiled code for forming words-by-words matrices and rows of them, and for adding up the words of groups.

In sparse rows, columns of the data are gathered into groups by linked lists: a group in slot i has the columns
``first[i]``, ``following[first[i]]`` and so on until -1. ``slot_of`` gives the slot of each column.
"""

import numpy as np
from numba import njit

from bagwise.merging.pooling import FEW_GROUPS

_TILE = 32
# If a group occurs in more than this fraction of the samples, all samples are scanned.
_CROWDED = 0.125
# Columns per tile: of one row, whose sums then stay in the cache; of many rows that share a tile of a factor.
_LONG_ROW = 16384
_COLUMNS = 512
# Position of a single bit: 64-bit numbers with one bit set differ in the upper six bits of their product with this.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACE_OF_BIT = np.empty(64, dtype=np.uint64)
for _place in range(64):
    _PLACE_OF_BIT[((1 << _place) * int(_DE_BRUIJN) % 2**64) >> 58] = _place
_0, _1, _6, _58, _63 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(58), np.uint64(63)


@njit(cache=True, nogil=True)
def mirror_rows(M, start, stop):
    """Copy the upper triangle of the square M to the lower one, for the rows ``start..stop``.

    NumPy: ``M[i, :i] = M[:i, i]``. Goes by tiles, so that both sides stay in the cache. Cost O(d (stop - start)).
    """
    for i0 in range(start, stop, _TILE):
        i1 = min(i0 + _TILE, stop)
        for j0 in range(0, i1, _TILE):
            for i in range(i0, i1):
                for j in range(j0, min(j0 + _TILE, i)):
                    M[i, j] = M[j, i]


@njit(cache=True, nogil=True)
def _add_one(out, weight, x, row):
    """``out += weight * (x * row)``."""
    for k in range(out.shape[0]):
        out[k] += weight * (x * row[k])


@njit(cache=True, nogil=True)
def _add_four(out, weight, x0, x1, x2, x3, row0, row1, row2, row3):
    """`_add_one` four times, with one pass over `out`."""
    for k in range(out.shape[0]):
        sums = (out[k] + weight * (x0 * row0[k])) + weight * (x1 * row1[k])
        out[k] = (sums + weight * (x2 * row2[k])) + weight * (x3 * row3[k])


@njit(cache=True, nogil=True)
def _add_low_rank(out, coefficients, right, weight, j, end):
    """``out += weight * (coefficients @ right[:, j:end])``, term by term in the order of the rows."""
    whole = right.shape[0] - right.shape[0] % 4
    for c in range(0, whole, 4):
        _add_four(
            out, weight, coefficients[c], coefficients[c + 1], coefficients[c + 2], coefficients[c + 3],
            right[c, j:end], right[c + 1, j:end], right[c + 2, j:end], right[c + 3, j:end],
        )  # fmt: skip
    for c in range(whole, right.shape[0]):
        _add_one(out, weight, coefficients[c], right[c, j:end])


@njit(cache=True, nogil=True)
def add_low_rank_row(out, coefficients, right, weight):
    """``out += weight * (coefficients @ right)``, term by term, so that equal columns get equal sums. Cost O(r d)."""
    for j in range(0, out.shape[0], _LONG_ROW):
        end = min(j + _LONG_ROW, out.shape[0])
        _add_low_rank(out[j:end], coefficients, right, weight, j, end)


@njit(cache=True, nogil=True)
def add_low_rank_block(out, left, right, weight, first, start, stop):
    """Add the rows ``start..stop`` of ``weight * left.T @ right``, right of the diagonal, to ``out[start - first:]``.

    Unlike a BLAS it treats all entries alike, so words with the same values get exactly the same sums. Of row i some
    columns left of i, down to `first`, may be added as well. Cost O(d) a row of the factors.
    """
    size = right.shape[1]
    for j in range(first, size, _COLUMNS):
        end = min(j + _COLUMNS, size)
        for i in range(start, min(stop, end)):
            _add_low_rank(out[i - first, j:end], left[:, i], right, weight, j, end)


@njit(cache=True, nogil=True)
def add_sparse_block(
    out, left_starts, left_samples, left_values, starts, words, values, weight, first, start, stop
):  # fmt: skip
    """Add the rows ``start..stop`` of ``weight * left @ right``, right of the diagonal, to ``out[start - first:]``.

    `left` (words x samples) and `right` (samples x words) are CSR with sorted indices; `out` is dense. Each row of the
    result is summed in place, sample by sample, so words with the same counts get exactly the same sums.
    Cost: one addition for each pair of non-zeros that share a sample.
    """
    for i in range(start, stop):
        row = out[i - first]
        for p in range(left_starts[i], left_starts[i + 1]):
            sample = left_samples[p]
            factor = weight * left_values[p]
            low = starts[sample]
            high = starts[sample + 1]
            while low < high:  # first word of this sample that is not below i
                middle = (low + high) // 2
                if words[middle] < i:
                    low = middle + 1
                else:
                    high = middle
            for q in range(low, starts[sample + 1]):
                row[np.uint32(words[q])] += factor * values[q]


@njit(cache=True, nogil=True)
def move_upper_triangle(G, step, sums, exact, n):
    """Move the centre of the sums of products G by `step`, in the upper triangle.

    NumPy: ``G + n * outer(step, step) - outer(step, sums) - outer(sums, step)``, with `sums` of the n samples around
    the old centre. Pairs of words that are both `exact` are done in 64-bit integers, so that nothing is rounded: the
    terms may be larger than what float64 holds, their sum is not. Cost O(d²).
    """
    d = G.shape[0]
    for i in range(d):
        step_i = step[i]
        sum_i = sums[i]
        for j in range(i, d):
            if exact[i] and exact[j]:
                if step_i != 0.0 or step[j] != 0.0:
                    whole = n * int(step_i) - int(sum_i)
                    G[i, j] = float(int(G[i, j]) + whole * int(step[j]) - int(step_i) * int(sums[j]))
            else:
                G[i, j] += n * step_i * step[j] - step_i * sums[j] - sum_i * step[j]


@njit(cache=True, nogil=True)
def _signed(value, signs, word):
    """``value * signs[word]``, or the value if there are no signs; numba compiles only one of the branches."""
    if signs is None:
        return value
    return value * signs[word]


@njit(cache=True, nogil=True)
def pool_dense(X, labels, factors, out, signs=None):
    """``out[i, g] = factors[g] * (signs * X[i])[labels == g].sum()``. Cost O(n d)."""
    sums = np.empty(out.shape[1])
    for i in range(X.shape[0]):
        sums[:] = 0.0
        for j in range(X.shape[1]):
            sums[labels[j]] += _signed(X[i, j], signs, j)
        for g in range(out.shape[1]):
            out[i, g] = factors[g] * sums[g]


@njit(cache=True, nogil=True)
def _sum_row(words, values, labels, partial, signs):
    """Add the values of a row to their groups, in four partial sums so that additions to a large group do not depend on
    each other; unsigned indices avoid the check for negative ones.
    """
    whole = words.shape[0] - words.shape[0] % 4
    for p in range(0, whole, 4):
        for k in range(4):
            word = np.uint64(words[p + k])
            partial[k, labels[word]] += _signed(values[p + k], signs, word)
    for p in range(whole, words.shape[0]):
        word = np.uint64(words[p])
        partial[0, labels[word]] += _signed(values[p], signs, word)


@njit(cache=True, nogil=True)
def _add_partial(part0, part1, part2, part3, sums):
    """``sums = partial.sum(axis=0)``, and set the partial sums to zero."""
    for g in range(sums.shape[0]):
        sums[g] = (part0[g] + part1[g]) + (part2[g] + part3[g])
    part0[:] = 0.0
    part1[:] = 0.0
    part2[:] = 0.0
    part3[:] = 0.0


@njit(cache=True, nogil=True)
def _keep_non_zero(sums, factors, out_groups, out_values, filled):
    """Append all groups with a non-zero sum; returns the number of entries.

    Every group is written, and overwritten by the next if its sum is zero: no branches.
    """
    for g in range(sums.shape[0]):
        out_groups[filled] = g
        out_values[filled] = factors[g] * sums[g]
        filled += np.uint64(sums[g] != 0.0)
    return filled


@njit(cache=True, nogil=True)
def _pool_to_few(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs=None):
    """`pool_sparse` for few groups, most of which occur in a row."""
    partial = np.zeros((4, factors.shape[0]))
    sums = np.zeros(factors.shape[0])
    filled = np.uint64(0)
    for i in range(starts.shape[0] - 1):
        _sum_row(words[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]], labels, partial, signs)
        _add_partial(partial[0], partial[1], partial[2], partial[3], sums)
        filled = _keep_non_zero(sums, factors, out_groups, out_values, filled)
        out_starts[i + 1] = filled


@njit(cache=True, nogil=True)
def _pool_to_many(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs=None):
    """`pool_sparse` for many groups: a bit set of the groups of a row gives them in order without sorting.

    A second level of bits says which words of the first are not zero.
    """
    n_words = (factors.shape[0] + 63) // 64
    occurs = np.zeros(n_words, dtype=np.uint64)
    in_use = np.zeros((n_words + 63) // 64, dtype=np.uint64)
    sums = np.zeros(factors.shape[0])
    filled = np.uint64(0)
    for i in range(starts.shape[0] - 1):
        for p in range(starts[i], starts[i + 1]):
            word = np.uint64(words[p])
            g = np.uint64(labels[word])
            sums[g] += _signed(values[p], signs, word)
            occurs[g >> _6] |= _1 << (g & _63)
            in_use[g >> (_6 + _6)] |= _1 << ((g >> _6) & _63)
        for top in range(in_use.shape[0]):
            upper = in_use[top]
            in_use[top] = _0
            while upper:
                bit = upper & (~upper + _1)
                upper ^= bit
                middle = (np.uint64(top) << _6) + _PLACE_OF_BIT[(bit * _DE_BRUIJN) >> _58]
                lower = occurs[middle]
                occurs[middle] = _0
                while lower:
                    bit = lower & (~lower + _1)
                    lower ^= bit
                    g = (middle << _6) + _PLACE_OF_BIT[(bit * _DE_BRUIJN) >> _58]
                    out_groups[filled] = g
                    out_values[filled] = factors[g] * sums[g]
                    filled += np.uint64(sums[g] != 0.0)
                    sums[g] = 0.0
        out_starts[i + 1] = filled


@njit(cache=True, nogil=True)
def pool_sparse(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs=None):
    """`pool_dense` from CSR to CSR, groups in order, sums of exactly zero left out.

    The outputs need one entry more than the largest possible number. Cost O(nnz) plus, for each row, the number of
    groups if they are few, or a 4096th of it.
    """
    out_starts[0] = 0
    if factors.shape[0] <= FEW_GROUPS:
        _pool_to_few(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs)
    else:
        _pool_to_many(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs)


@njit(cache=True, nogil=True)
def weighted_dot(left, right, weight):
    """The entry that `add_low_rank_row` adds, to the last bit."""
    total = 0.0
    for c in range(left.shape[0]):
        total += weight * (left[c] * right[c])
    return total


@njit(cache=True, nogil=True)
def gather(slot, first, following, starts, samples, values, sums, seen, found_samples, found_values):
    """Compute the sum of the columns of a group as its non-zeros, sorted by sample; returns their number.

    `sums` and `seen` are scratch of one entry per sample, zero before and after.
    """
    n = 0
    column = first[slot]
    while column >= 0:
        for p in range(starts[column], starts[column + 1]):
            sample = samples[p]
            sums[sample] += values[p]
            if not seen[sample]:
                seen[sample] = True
                found_samples[n] = sample
                n += 1
        column = following[column]
    if n > _CROWDED * seen.shape[0]:
        n = 0
        for sample in range(seen.shape[0]):
            if seen[sample]:
                found_samples[n] = sample
                n += 1
    else:
        found_samples[:n].sort()
    for k in range(n):
        sample = found_samples[k]
        found_values[k] = sums[sample]
        sums[sample] = 0.0
        seen[sample] = False
    return n


@njit(cache=True, nogil=True)
def add_sparse_row(out, samples, factors, starts, columns, values, slot_of, weight):
    """Add ``weight * factors @ right[samples]`` to `out`, a column at its slot.

    Cost: one addition for each non-zero in these samples.
    """
    for k in range(samples.shape[0]):
        sample = samples[k]
        factor = weight * factors[k]
        for q in range(starts[sample], starts[sample + 1]):
            out[np.uint32(slot_of[np.uint32(columns[q])])] += factor * values[q]


@njit(cache=True, nogil=True)
def sparse_dot(samples, values, other_samples, other_values, sums):
    """``Σ_i x_i y_i`` of two sparse vectors; `sums` is scratch of one entry per sample, zero before and after."""
    for k in range(samples.shape[0]):
        sums[samples[k]] = values[k]
    total = 0.0
    for k in range(other_samples.shape[0]):
        total += sums[other_samples[k]] * other_values[k]
    for k in range(samples.shape[0]):
        sums[samples[k]] = 0.0
    return total


@njit(cache=True, nogil=True)
def join_groups(s, t, first, last, following, slot_of):
    """Put the columns of slot t after those of slot s. Cost: the columns of t."""
    column = first[t]
    while column >= 0:
        slot_of[column] = s
        column = following[column]
    following[last[s]] = first[t]
    last[s] = last[t]
    first[t] = -1
    last[t] = -1


@njit(cache=True, nogil=True)
def replay(row, merges):
    """Apply later merges of other slots to a row: ``row[s] += row[t]`` for each."""
    for k in range(merges.shape[0]):
        row[merges[k, 0]] += row[merges[k, 1]]


@njit(cache=True, nogil=True, error_model="numpy")
def summarize_rows(values, starts, copies):
    """The smallest and the largest positive sum of rows, and how many rows have several positive values, and are
    multiples of the smallest one; each row counts as its copies.

    Row i has the values ``starts[i]..starts[i + 1]``. Rows of multiples of a power of ten prove nothing, as decimals
    are cut somewhere: they are not among those with several values. NumPy, of a row x of positive values:
    ``q = x / x.min(); whole = np.all(abs(q - np.rint(q)) <= np.minimum(1e-6 * q, 0.01))``. Cost O(values).
    """
    low, high, several, whole = np.inf, -np.inf, 0, 0
    for i in range(starts.shape[0] - 1):
        total, least, n = 0.0, np.inf, 0
        for k in range(starts[i], starts[i + 1]):
            total += values[k]
            if values[k] > 0.0:
                least = min(least, values[k])
                n += 1
        if total > 0.0:
            low, high = min(low, total), max(high, total)
        if n < 2:
            continue
        multiples = True
        for k in range(starts[i], starts[i + 1]):
            if values[k] > 0.0:
                times = values[k] / least
                if abs(times - np.rint(times)) > min(1e-6 * times, 0.01):
                    multiples = False
                    break
        power = np.log10(least)
        if multiples and abs(power - np.rint(power)) < 1e-6:
            continue
        several += copies[i]
        whole += copies[i] if multiples else 0
    return low, high, several, whole
