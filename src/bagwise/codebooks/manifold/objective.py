"""The distance between the similarities of histograms and a target, over all pairs of objects."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.threads import run_over_ranges
from bagwise.codebooks.manifold._manifold_kernels import add_pairs, fill_chi2_rows

__all__ = ["Objective", "chi2_distances", "pair_objective"]

# Pairs are summed in this many parts, which several threads share; their order does not depend on how many there are.
_PARTS = 8


class Objective(NamedTuple):
    """What `pair_objective` gives."""

    value: float
    held_out: float  # the same for the pairs held out; NaN if there are none
    gradient: NDArray[np.float64]


def chi2_distances(
    left: NDArray[np.float64], right: NDArray[np.float64] | None = None, n_threads: int = 1
) -> NDArray[np.float64]:
    """Distances ``½ Σ_k (a_k - b_k)² / (a_k + b_k)`` between histograms, 0/0 = 0: in [0, 1] if they sum to 1."""
    left = np.ascontiguousarray(left, dtype=np.float64)
    right = left if right is None else np.ascontiguousarray(right, dtype=np.float64)
    out = np.empty((len(left), len(right)))
    run_over_ranges(lambda start, stop: fill_chi2_rows(left, right, start, stop, out), len(left), n_threads, 64)
    return out


def pair_objective(
    T: NDArray[np.float64],
    target: NDArray[np.floating],
    sigma: float,
    *,
    held_out: float = 0.0,
    n_threads: int = 1,
) -> Objective:
    """Sum ``½ (exp(-chi2(t_i, t_j) / sigma) - target_ij)²`` over all ordered pairs, with its gradient.

    Parameters
    ----------
    T : ndarray of shape (n, n_words)
        Histograms.
    target : ndarray of shape (n, n)
        Symmetric similarities.
    sigma : float
    held_out : float, default=0.0
        Share of the pairs that enter neither the value nor the gradient, and are summed apart. The same pairs always.
    n_threads : int, default=1

    Notes
    -----
    O(n² n_words) time, and memory for a few gradients; never anything of the order n² n_words.
    """
    n = len(T)
    T = np.ascontiguousarray(T, dtype=np.float64)
    threshold = np.uint64(round(held_out * 2**53))
    # equal numbers of pairs: row l has l of them
    ends = np.rint(n * np.sqrt(np.linspace(0.0, 1.0, _PARTS + 1))).astype(np.int64)
    gradients = np.zeros((_PARTS, *T.shape))
    sums = np.zeros((_PARTS, 2))

    def add(first: int, last: int) -> None:
        for part in range(first, last):
            add_pairs(T, target, sigma, threshold, ends[part], ends[part + 1], gradients[part], sums[part])

    run_over_ranges(add, _PARTS, n_threads, 1)
    value, apart = sums.sum(axis=0).tolist()
    return Objective(value, apart if threshold else float("nan"), gradients.sum(axis=0))
