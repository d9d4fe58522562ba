"""Compiled code for forming words-by-words matrices: sparse products and mirroring."""

from numba import njit

_TILE = 32


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
def add_low_rank_rows(out, F, scale, start, stop):
    """Add the upper triangle of ``scale * F.T @ F`` to `out`, for the rows ``start..stop``. Cost O(d) a row of F.

    Unlike a BLAS it treats all entries alike, so words with the same values get exactly the same sums.
    """
    for i in range(start, stop):
        row = out[i, i:]
        for c in range(F.shape[0]):
            factor = F[c, i]
            values = F[c, i:]
            for j in range(row.shape[0]):
                row[j] += scale * (factor * values[j])


@njit(cache=True, nogil=True)
def add_sparse_product_rows(out, left_starts, left_samples, left_values, starts, words, values, start, stop):
    """Add the upper triangle of ``left @ right`` to `out`, for the rows ``start..stop``.

    `left` (words x samples) and `right` (samples x words) are CSR with sorted indices; `out` is dense. Each row of the
    result is summed in place, sample by sample, so words with the same counts get exactly the same sums.
    Cost: one addition for each pair of non-zeros that share a sample.
    """
    for i in range(start, stop):
        row = out[i]
        for p in range(left_starts[i], left_starts[i + 1]):
            sample = left_samples[p]
            value = left_values[p]
            low = starts[sample]
            high = starts[sample + 1]
            while low < high:  # first word of this sample that is not below i
                middle = (low + high) // 2
                if words[middle] < i:
                    low = middle + 1
                else:
                    high = middle
            for q in range(low, starts[sample + 1]):
                row[words[q]] += value * values[q]


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
