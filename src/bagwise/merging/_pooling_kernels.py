"""Compiled code for adding up the words of a group."""

import numpy as np
from numba import njit

# Up to this many groups it pays to go through all of them for each row.
_FEW = 256


# The place of a single bit: 64-bit numbers with one bit set differ in the upper six bits of their product with this.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACE_OF_BIT = np.empty(64, dtype=np.uint64)
for _place in range(64):
    _PLACE_OF_BIT[((1 << _place) * int(_DE_BRUIJN) % 2**64) >> 58] = _place
_0, _1, _6, _58, _63 = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(58), np.uint64(63)


@njit(cache=True, nogil=True)
def _turned(value, signs, word):
    """The value of a word with its sign. Where there are none, numba leaves the question out."""
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
            sums[labels[j]] += _turned(X[i, j], signs, j)
        for g in range(out.shape[1]):
            out[i, g] = factors[g] * sums[g]


@njit(cache=True, nogil=True)
def _sum_row(words, values, labels, lanes, signs):
    """Add the values of a row to their groups, in four lanes so that additions to a large group need not wait for
    each other; unsigned indices spare the check for counting from the end.
    """
    whole = words.shape[0] - words.shape[0] % 4
    for p in range(0, whole, 4):
        for lane in range(4):
            word = np.uint64(words[p + lane])
            lanes[lane, labels[word]] += _turned(values[p + lane], signs, word)
    for p in range(whole, words.shape[0]):
        word = np.uint64(words[p])
        lanes[0, labels[word]] += _turned(values[p], signs, word)


@njit(cache=True, nogil=True)
def _join_lanes(lane0, lane1, lane2, lane3, sums):
    """``sums = lanes.sum(axis=0)``, and clear the lanes."""
    for g in range(sums.shape[0]):
        sums[g] = (lane0[g] + lane1[g]) + (lane2[g] + lane3[g])
    lane0[:] = 0.0
    lane1[:] = 0.0
    lane2[:] = 0.0
    lane3[:] = 0.0


@njit(cache=True, nogil=True)
def _keep_non_zero(sums, factors, out_groups, out_values, filled):
    """Append all groups whose sum is not zero; returns how many entries there are then.

    Always writes and sometimes keeps, which is cheaper than guessing which groups occur.
    """
    for g in range(sums.shape[0]):
        out_groups[filled] = g
        out_values[filled] = factors[g] * sums[g]
        filled += np.uint64(sums[g] != 0.0)
    return filled


@njit(cache=True, nogil=True)
def _pool_to_few(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs=None):
    """`pool_sparse` for few groups, most of which occur in a row."""
    lanes = np.zeros((4, factors.shape[0]))
    sums = np.zeros(factors.shape[0])
    filled = np.uint64(0)
    for i in range(starts.shape[0] - 1):
        _sum_row(words[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]], labels, lanes, signs)
        _join_lanes(lanes[0], lanes[1], lanes[2], lanes[3], sums)
        filled = _keep_non_zero(sums, factors, out_groups, out_values, filled)
        out_starts[i + 1] = filled


@njit(cache=True, nogil=True)
def _pool_to_many(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs=None):
    """`pool_sparse` for many groups: those that occur in a row are bits, so that they come out in order unsorted.

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
            sums[g] += _turned(values[p], signs, word)
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

    The outputs need room for one entry more than there can be. Cost O(nnz) plus, for each row, the number of groups if
    they are few, or a 4096th of it.
    """
    out_starts[0] = 0
    if factors.shape[0] <= _FEW:
        _pool_to_few(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs)
    else:
        _pool_to_many(starts, words, values, labels, factors, out_starts, out_groups, out_values, signs)
