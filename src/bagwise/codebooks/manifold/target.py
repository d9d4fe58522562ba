"""What the similarities of histograms should become."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components, shortest_path

from bagwise.codebooks.manifold.graph import embed, neighbor_graph
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["TARGETS", "given_target", "learn_target", "use_labels"]

TARGETS = ("spectral", "isomap")
_ROWS = 512


def learn_target(
    distances: NDArray[np.float64],
    *,
    kind: str,
    n_components: int,
    n_neighbors: int,
    sigma_histogram: float,
    sigma_spectral: float,
    laplacian: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Similarities ``exp(-|s_i - s_j| / sigma_spectral)`` between the rows s of an embedding of the neighbour graph.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        Of the histograms.
    kind : {"spectral", "isomap"}
        Eigenvectors of the graph's Laplacian, or coordinates that keep the lengths of paths in the graph; these
        are divided by the length of the first one's column, so that both are of the same size.

    Returns
    -------
    target : ndarray of shape (n, n)
    embedding : ndarray of shape (n, n_components)
    """
    if kind not in TARGETS:
        raise unknown_name("target", kind, TARGETS)
    graph = neighbor_graph(distances, n_neighbors, sigma_histogram)
    if kind == "spectral":
        embedding = embed(graph, n_components, laplacian)
    else:
        embedding = _isomap(graph, distances, n_components)
    target = np.empty_like(distances)
    squares = np.einsum("ij,ij->i", embedding, embedding)
    for start in range(0, len(distances), _ROWS):
        rows = slice(start, start + _ROWS)
        apart = squares[rows, np.newaxis] + squares - 2.0 * (embedding[rows] @ embedding.T)
        target[rows] = np.exp(-np.sqrt(np.maximum(apart, 0.0)) / sigma_spectral)
    target = 0.5 * (target + target.T)
    np.fill_diagonal(target, 1.0)
    return target, embedding


def _isomap(graph: sp.csr_array, distances: NDArray[np.float64], n_components: int) -> NDArray[np.float64]:
    """Coordinates whose distances are, as far as possible, the lengths of the shortest paths in the graph."""
    n_parts, part = connected_components(graph, directed=False)
    edges = sp.coo_array(graph)
    lengths = np.maximum(distances[edges.row, edges.col], np.finfo(np.float64).tiny)
    links = [(edges.row, edges.col, lengths)]
    for p in range(1, n_parts):  # join the parts where they are nearest, or there would be no paths
        inside, outside = np.flatnonzero(part == p), np.flatnonzero(part < p)
        between = distances[np.ix_(inside, outside)]
        i, j = np.unravel_index(int(np.argmin(between)), between.shape)
        links.append((inside[[i]], outside[[j]], np.maximum(between[i : i + 1, j], np.finfo(np.float64).tiny)))
    rows, columns, values = (np.concatenate(part_of_all) for part_of_all in zip(*links, strict=True))
    paths = shortest_path(sp.csr_array((values, (rows, columns)), shape=graph.shape), directed=False)
    squares = -0.5 * paths**2
    squares -= squares.mean(axis=0)
    squares -= squares.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(0.5 * (squares + squares.T))
    chosen = np.argsort(-values, kind="stable")[:n_components]
    coordinates = vectors[:, chosen] * np.sqrt(np.maximum(values[chosen], 0.0))
    largest = np.argmax(np.abs(coordinates), axis=0)
    coordinates = coordinates * np.where(coordinates[largest, np.arange(len(chosen))] < 0, -1.0, 1.0)
    size = float(np.linalg.norm(coordinates[:, 0]))
    return coordinates / size if size > 0 else coordinates


def given_target(target: ArrayLike, n: int) -> NDArray[np.float64]:
    """Check similarities that a user gives."""
    matrix = np.array(target, dtype=np.float64)
    if matrix.shape != (n, n):
        raise BagwiseError(
            f"target must hold the similarities of all pairs of the {n} bags, shape ({n}, {n}); got {matrix.shape}."
        )
    if not np.isfinite(matrix).all() or matrix.min() < 0 or matrix.max() > 1:
        raise BagwiseError("target must hold similarities between 0 and 1, without NaN.")
    if not np.allclose(matrix, matrix.T, atol=1e-8):
        i, j = np.unravel_index(int(np.argmax(np.abs(matrix - matrix.T))), matrix.shape)
        raise BagwiseError(
            f"target must be symmetric, but target[{i}, {j}] is {matrix[i, j]:g} and target[{j}, {i}] is "
            f"{matrix[j, i]:g}. Use (target + target.T) / 2."
        )
    return 0.5 * (matrix + matrix.T)


def use_labels(target: NDArray[np.float64], labels: NDArray[Any]) -> None:
    """Set the target of pairs whose labels are known: 1 within a class, 0 between classes. -1: not known."""
    known = np.flatnonzero(labels != -1)
    target[np.ix_(known, known)] = labels[known, np.newaxis] == labels[known]
    np.fill_diagonal(target, 1.0)
