"""Who has whom for a neighbour: what merging for sums over neighbours needs to know of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise.merging.neighbors import Nearness, neighbor_graph

__all__ = ["find_followers"]


def find_followers(parts: list[Any], n_neighbors: int, n_threads: int = 1) -> sp.csr_array:
    """List for each sample those that have it among their nearest, itself included.

    The sum over sample i and its neighbours is ``z_i = Σ_{j in N(i)} x_j``. Turned round, sample j adds to the sums of
    its followers ``{i : j in N(i)}``, so sums need never be formed.

    Parameters
    ----------
    parts : list of matrices
        The samples, a few columns wide, in any number of parts.
    n_neighbors : int
        Nearest samples in Euclidean distance, ties by index; all others where there are fewer.
    n_threads : int, default=1

    Returns
    -------
    followers : CSR array of shape (n_samples, n_samples)
        Row j has a 1 for each follower of sample j.

    Notes
    -----
    All distances are computed, block by block: O(n_samples²) time for each column.
    """
    sparse = any(sp.issparse(part) for part in parts)
    samples = sp.vstack(parts, format="csr") if sparse else np.vstack(parts)
    graph = neighbor_graph(Nearness(samples, "euclidean", n_threads), n_neighbors)
    followers = sp.csr_array((graph + sp.eye_array(samples.shape[0])).T)
    followers.sort_indices()
    return followers
