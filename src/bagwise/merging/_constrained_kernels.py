"""Compiled code for merging groups again, some of whose pairs are not allowed.

Gains of pairs s < t are at ``gains[s, t]``, -inf where a pair is not allowed; ``best[s]`` is the largest of row s, and
``partner[s]`` the first t that has it.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def merge_ratios(A, B, traces, refused, opened, live, pairs, scores):
    """Merge the allowed pair with the largest ``(tr A + 2 A_st) / (tr B + 2 B_st)``, ``len(pairs)`` times at most.

    A and B, their traces, `refused` (pairs that are not allowed, which a merged group inherits) and `live` are changed.
    Only `opened` groups are merged. Of equal ratios the first pair wins; where no ratio is defined the first allowed
    pair, with the score NaN. Returns the number of merges. Cost O(n²) a merge.
    """
    n = A.shape[0]
    index = np.empty(n, dtype=np.intp)
    for done in range(pairs.shape[0]):
        n_left = 0
        for i in range(n):
            if live[i] and opened[i]:
                index[n_left] = i
                n_left += 1
        s, t, above, under = -1, -1, -np.inf, 1.0  # the best ratio so far is above / under
        a, b = traces[0], traces[1]
        for p in range(n_left):
            i = index[p]
            for q in range(p + 1, n_left):
                j = index[q]
                if refused[i, j]:
                    continue
                below = b + 2.0 * B[i, j]
                over = a + 2.0 * A[i, j] if below > 0.0 else -np.inf
                if over * under > above * below or s < 0:
                    s, t, above, under = i, j, over, below if below > 0.0 else 1.0
        if s < 0:
            return done
        traces[0] += 2.0 * A[s, t]
        traces[1] += 2.0 * B[s, t]
        for k in range(n):
            A[s, k] += A[t, k]
            B[s, k] += B[t, k]
        for k in range(n):
            A[k, s] += A[k, t]
            B[k, s] += B[k, t]
            refused[s, k] |= refused[t, k]
        for k in range(n):
            refused[k, s] = refused[s, k]
        live[t] = False
        pairs[done, 0] = s
        pairs[done, 1] = t
        scores[done] = above / under if above > -np.inf else np.nan
    return pairs.shape[0]


@njit(cache=True, nogil=True)
def join_groups(s, t, refused, used, others):
    """Give the merged group s what either part was refused, take t out of use, and list what s may be merged with.

    NumPy: ``refused[s] |= refused[t]``, its column as well, and ``others = flatnonzero(used & ~refused[s])`` without s.
    Returns the length of the list. Cost O(n).
    """
    used[t] = False
    for k in range(used.shape[0]):
        refused[s, k] |= refused[t, k]
    n_others = 0
    for k in range(used.shape[0]):
        refused[k, s] = refused[s, k]
        if used[k] and k != s and not refused[s, k]:
            others[n_others] = k
            n_others += 1
    return n_others


@njit(cache=True, nogil=True)
def set_gains(s, t, others, new, gains, best, partner):
    """Set the gains of s with others after it was merged with t, and the best pairs that this changes.

    `new` has the gains for `others`. Rows whose partner was s or t are searched again; rows above s have one candidate
    more. NumPy: ``partner = gains.argmax(axis=1)`` and ``best = gains.max(axis=1)`` after the change. Cost O(n), and
    O(n) for each row that is searched.
    """
    n = best.shape[0]
    gains[s, :] = -np.inf
    for i in range(s):
        gains[i, s] = -np.inf
    for i in range(t):
        gains[i, t] = -np.inf
    for p in range(others.shape[0]):
        gains[min(s, others[p]), max(s, others[p])] = new[p]
    best[t] = -np.inf
    for i in range(n):
        if i == s or (best[i] > -np.inf and (partner[i] == s or partner[i] == t)):
            best[i] = -np.inf
            partner[i] = 0
            for j in range(i + 1, n):
                if gains[i, j] > best[i]:
                    best[i] = gains[i, j]
                    partner[i] = j
        elif i < s and (gains[i, s] > best[i] or (gains[i, s] == best[i] and partner[i] > s)):
            best[i] = gains[i, s]
            partner[i] = s


@njit(cache=True, nogil=True)
def sum_pairwise(values):
    """``values.sum()``, rounded as NumPy does: eight partial sums of up to 128 values, halves of more."""
    n = values.shape[0]
    if n < 8:
        total = 0.0
        for k in range(n):
            total += values[k]
        return total
    if n > 128:
        half = n // 2 - n // 2 % 8
        return sum_pairwise(values[:half]) + sum_pairwise(values[half:])
    s0, s1, s2, s3 = values[0], values[1], values[2], values[3]
    s4, s5, s6, s7 = values[4], values[5], values[6], values[7]
    whole = n - n % 8
    for k in range(8, whole, 8):
        s0 += values[k]
        s1 += values[k + 1]
        s2 += values[k + 2]
        s3 += values[k + 3]
        s4 += values[k + 4]
        s5 += values[k + 5]
        s6 += values[k + 6]
        s7 += values[k + 7]
    total = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    for k in range(whole, n):
        total += values[k]
    return total


@njit(cache=True, nogil=True)
def set_mean(state, mean):
    """Set the mean weights of a group with this state of `WeightLoss`. Returns the inverse of its mass, or 0."""
    inverse = 1.0 / state[0] if state[0] > 0.0 else 0.0
    for c in range(mean.shape[0]):
        mean[c] = state[c + 1] * inverse
    return inverse


@njit(cache=True, nogil=True)
def weight_term(state, values):
    """``WeightLoss.terms(state)``; `values` has room for one number of each weight."""
    mass = state[0] if state[0] > 0.0 else 1.0
    for c in range(values.shape[0]):
        values[c] = state[c + 1] * (state[c + 1] / mass)
    return sum_pairwise(values)


@njit(cache=True, nogil=True)
def weight_gains(s, others, means, inverse, values, out):
    """Set `out` to ``WeightLoss.gains`` of s with others, from mean weights and inverse masses. Cost O(m) each."""
    for p in range(others.shape[0]):
        t = others[p]
        if inverse[s] == 0.0 or inverse[t] == 0.0:
            out[p] = 0.0
            continue
        for c in range(values.shape[0]):
            difference = means[t, c] - means[s, c]
            values[c] = difference * difference
        out[p] = -(sum_pairwise(values) / (inverse[t] + inverse[s]))


@njit(cache=True, nogil=True)
def all_weight_gains(states, live, gains):
    """Set the gains of all pairs of live groups by `WeightLoss`. Cost O(n² m)."""
    n, values = states.shape[0], np.empty(states.shape[1] - 1)
    means, inverse = np.empty((n, values.shape[0])), np.empty(n)
    for i in range(n):
        inverse[i] = set_mean(states[i], means[i])
    groups = np.flatnonzero(live)
    out = np.empty(n)
    for p in range(groups.shape[0]):
        others = groups[p + 1 :]
        weight_gains(groups[p], others, means, inverse, values, out)
        for q in range(others.shape[0]):
            gains[groups[p], others[q]] = out[q]


@njit(cache=True, nogil=True)
def merge_weights(states, terms, gains, best, partner, refused, used, live, score, pairs, scores):
    """Merge the allowed pair with the largest gain by `WeightLoss`, ``len(pairs)`` times at most.

    All arguments but the score before are changed. Of equal gains the first pair wins. Returns the number of merges.
    Does what the loop of `MergedSums.advance` does, to the last bit. Cost O(n m) a merge, and O(n) for each row that is
    searched again.
    """
    n, values = states.shape[0], np.empty(states.shape[1] - 1)
    means, inverse = np.empty((n, values.shape[0])), np.empty(n)
    for i in range(n):
        inverse[i] = set_mean(states[i], means[i])
    others, new = np.empty(n, dtype=np.intp), np.empty(n)
    for done in range(pairs.shape[0]):
        s = best.argmax()
        if best[s] == -np.inf:
            return done
        t = partner[s]
        before = terms[s] + terms[t]
        for c in range(states.shape[1]):
            states[s, c] += states[t, c]
        terms[s] = weight_term(states[s], values)
        inverse[s] = set_mean(states[s], means[s])
        live[t] = False
        n_others = join_groups(s, t, refused, used, others)
        weight_gains(s, others[:n_others], means, inverse, values, new)
        set_gains(s, t, others[:n_others], new, gains, best, partner)
        score += terms[s] - before
        pairs[done, 0] = s
        pairs[done, 1] = t
        scores[done] = score
    return pairs.shape[0]
