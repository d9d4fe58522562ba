"""Compiled code for sums of products: moving the point they are taken around."""

from numba import njit


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
