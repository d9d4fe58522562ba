"""The neighbour graph of histograms and its spectral embedding."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh

from bagwise.errors import BagwiseError, unknown_name

__all__ = ["LAPLACIANS", "embed", "neighbor_graph"]

LAPLACIANS = ("unnormalized", "random_walk")
# Up to this many objects all eigenvectors are computed; beyond, the few that are needed.
_DENSE = 2000


def neighbor_graph(distances: NDArray[np.float64], n_neighbors: int, sigma: float) -> sp.csr_array:
    """Join each object with its nearest ones, by ``exp(-d / sigma)``; of two it is enough if one is near the other.

    Objects are not their own neighbours; equally near ones are taken in order. With `n_neighbors` of at least n - 1
    all are joined.
    """
    n = len(distances)
    k = min(n_neighbors, n - 1)
    order = distances.copy()
    np.fill_diagonal(order, np.inf)
    nearest = np.argsort(order, axis=1, kind="stable")[:, :k]
    rows = np.repeat(np.arange(n), k)
    columns = nearest.ravel()
    # a weight that underflows to 0 would take an edge away
    weights = np.maximum(np.exp(-distances[rows, columns] / sigma), np.finfo(np.float64).tiny)
    graph = sp.csr_array((weights, (rows, columns)), shape=(n, n))
    return sp.csr_array(graph.maximum(graph.T))


def embed(graph: sp.csr_array, n_components: int, laplacian: str = "unnormalized") -> NDArray[np.float64]:
    """Coordinates from the eigenvectors of the graph's Laplacian with the smallest eigenvalues: objects x components.

    Parameters
    ----------
    graph : CSR array of shape (n, n)
        Symmetric, non-negative weights.
    n_components : int
        At most n. The constant eigenvector counts as one.
    laplacian : {"unnormalized", "random_walk"}, default="unnormalized"
        ``L e = λ e`` with ``L = D - W``, or ``L e = λ D e``.

    Notes
    -----
    Columns have unit length and their largest entry is positive. Where the graph falls into several parts, the first
    eigenvectors tell them apart; which basis of that space is given is arbitrary, distances between rows do not
    depend on it.
    """
    n = graph.shape[0]
    if laplacian not in LAPLACIANS:
        raise unknown_name("laplacian", laplacian, LAPLACIANS)
    if not 1 <= n_components <= n:
        raise BagwiseError(f"n_components must be from 1 to the number of objects, {n}, got {n_components}.")
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    L = sp.csr_array(sp.diags_array(degrees) - graph)
    if laplacian == "random_walk" and not np.all(degrees > 0):
        raise BagwiseError("laplacian='random_walk' needs at least one neighbour for each object; use 'unnormalized'.")
    M = sp.diags_array(degrees) if laplacian == "random_walk" else None
    if n <= _DENSE or n_components > n // 2:
        vectors = scipy.linalg.eigh(
            L.toarray(), None if M is None else M.toarray(), subset_by_index=[0, n_components - 1]
        )[1]
    else:
        # just below zero, where the shifted matrix can be factorised
        shift = -1e-6 * (1.0 if M is not None else max(float(degrees.mean()), 1e-300))
        start = np.random.default_rng(0).normal(size=n)
        values, vectors = eigsh(sp.csc_array(L), n_components, M=M, sigma=shift, which="LM", v0=start)
        vectors = vectors[:, np.argsort(values, kind="stable")]
    vectors = vectors / np.linalg.norm(vectors, axis=0)
    largest = np.argmax(np.abs(vectors), axis=0)
    return vectors * np.sign(vectors[largest, np.arange(n_components)])
