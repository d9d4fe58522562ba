"""Targets of MO-BoF: what bags are like (Fisher vectors), their graph of neighbours, and its spectral embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.spatial.distance import pdist, squareform
from sklearn.utils import check_random_state

from bagwise._utils.arrays import unit_rows
from bagwise._utils.threads import one_blas_thread
from bagwise._utils.validation import as_floats
from bagwise.bags import Bags
from bagwise.codebooks.distances import assign_words
from bagwise.codebooks.kmeans import distinct_rows, kmeans_words
from bagwise.errors import BagwiseError, unknown_name

__all__ = [
    "LAPLACIANS",
    "TARGETS",
    "eigenvectors",
    "embed",
    "fisher_vectors",
    "given_target",
    "joined_neighbors",
    "learn_target",
    "mixed_distances",
    "neighbor_graph",
    "parts_of",
    "set_apart",
    "typical_distance",
    "typical_of",
    "typical_scale",
    "use_labels",
]


LAPLACIANS = ("unnormalized", "random_walk", "symmetric")
TARGETS = ("cosine", "spectral", "isomap")
_JITTER = 1e-6
# Up to this many objects all eigenvectors are computed; beyond, the few that are needed.
_DENSE = 2000
# Lanczos vectors that are kept at least, and the tolerance of eigenvalues.
_LEAST_KEPT, _TOLERANCE = 40, 1e-8
# Axes of the features that are kept, and features that cells are learned from.
_N_AXES = 32
_N_SAMPLES = 20_000
_BLOCK_ROWS = 1 << 14
# Variances below this fraction of the mean variance, and axes below it, are rounding.
_FLOOR = 1e-6


def neighbor_graph(distances: NDArray[np.float64], n_neighbors: int, sigma: float) -> sp.csr_array:
    """Join each object with its nearest ones, of all pairs' distances, by `joined_neighbors`.

    Objects are not their own neighbours; ties go to the lowest index. With `n_neighbors` of at least n - 1 all are
    joined.
    """
    n = len(distances)
    k = min(n_neighbors, n - 1)
    order = distances.copy()
    np.fill_diagonal(order, np.inf)
    nearest = np.argsort(order, axis=1, kind="stable")[:, :k]
    return joined_neighbors(nearest, np.take_along_axis(distances, nearest, axis=1), sigma)


def joined_neighbors(nearest: NDArray[np.int64], distances: NDArray[np.float64], sigma: float) -> sp.csr_array:
    """Join objects with their neighbours by edges of weight ``exp(-d / sigma)``, in one direction or both.

    Both arrays have shape (n, k): the neighbours of each object, and their distances.
    """
    n, k = nearest.shape
    # a weight that underflows to 0 would take an edge away
    weights = np.maximum(np.exp(-distances.ravel() / sigma), np.finfo(np.float64).tiny)
    graph = sp.csr_array((weights, (np.repeat(np.arange(n), k), nearest.ravel())), shape=(n, n))
    return sp.csr_array(graph.maximum(graph.T))


def typical_distance(distances: NDArray[np.float64], n_neighbors: int) -> float:
    """Median distance of an object to its nearest neighbours, of all pairs' distances; see `typical_of`."""
    k = min(n_neighbors, len(distances) - 1)
    return typical_of(np.partition(distances, (0, max(k, 0)), axis=1)[:, 1 : k + 1])  # without that to itself


def typical_of(distances: NDArray[np.float64]) -> float:
    """Median of the distances to neighbours; where that is 0 the largest of them, or 1."""
    if not distances.size:
        return 1.0
    middle = float(np.median(distances))
    return middle if middle > 0 else float(distances.max()) or 1.0


def mixed_distances(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of two kinds of distances, the second multiplied so that its median is that of the first.

    Medians are over pairs; the first kind is returned where one of them is 0.
    """
    pairs = np.triu_indices(len(first), k=1)
    middles = np.median(first[pairs]), np.median(second[pairs])
    return first if min(middles) <= 0 else 0.5 * (first + second * (middles[0] / middles[1]))


def embed(graph: sp.csr_array, n_components: int, laplacian: str = "unnormalized") -> NDArray[np.float64]:
    """Eigenvectors of the graph's Laplacian with the smallest eigenvalues, in columns; the constant one counts.

    - "unnormalized": ``L e = λ e`` with ``L = D - W``. Columns have unit length and their largest entry is positive.
    - "random_walk": ``L e = λ D e``; the same.
    - "symmetric": ``D^-½ L D^-½ e = λ e``, and in the end rows, not columns, are scaled to unit length (Ng, Jordan and
      Weiss 2002), so that objects with few neighbours count as much as others.

    If the graph has several components, the first eigenvectors are a basis of their indicator vectors; which basis is
    arbitrary, but distances between rows do not depend on it.
    """
    vectors = eigenvectors(graph, n_components, laplacian)
    return unit_rows(vectors) if laplacian == "symmetric" else vectors


def eigenvectors(graph: sp.csr_array, n_components: int, laplacian: str) -> NDArray[np.float64]:
    """Return the columns of `embed`, whose rows are not scaled yet."""
    n = graph.shape[0]
    if laplacian not in LAPLACIANS:
        raise unknown_name("laplacian", laplacian, LAPLACIANS)
    if not 1 <= n_components <= n:
        raise BagwiseError(f"n_components must be from 1 to the number of objects, {n}, got {n_components}.")
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    L = sp.csr_array(sp.diags_array(degrees) - graph)
    normalized = laplacian != "unnormalized"
    if normalized and not np.all(degrees > 0):
        raise BagwiseError(f"laplacian={laplacian!r} needs at least one neighbour for each object; use 'unnormalized'.")
    M = sp.diags_array(degrees) if normalized else None
    if normalized and n > _DENSE and n_components <= n // 2:
        vectors = _normalized_vectors(graph, degrees, n_components)
    elif n <= _DENSE or n_components > n // 2:
        vectors = scipy.linalg.eigh(
            L.toarray(), None if M is None else M.toarray(), subset_by_index=[0, n_components - 1]
        )[1]
    else:
        # just below zero, where the shifted matrix can be factorised
        shift = -1e-6 * max(float(degrees.mean()), 1e-300)
        start = np.random.default_rng(0).normal(size=n)
        values, vectors = eigsh(sp.csc_array(L), n_components, sigma=shift, which="LM", v0=start)
        vectors = vectors[:, np.argsort(values, kind="stable")]
    if laplacian == "symmetric":  # its eigenvectors are √D times those of the random walk
        vectors = vectors * np.sqrt(degrees)[:, np.newaxis]
    return _largest_positive(vectors / np.linalg.norm(vectors, axis=0))


def _normalized_vectors(graph: sp.csr_array, degrees: NDArray[np.float64], n_components: int) -> NDArray[np.float64]:
    """The first eigenvectors of the normalised Laplacian of a large graph, as ``L e = λ D e`` has them.

    Those of the eigenvalue 0 are known, one for each component of the graph; of more components than vectors, the
    largest. The others are found by products with the graph, which is not factorised.
    """
    n, roots = len(degrees), np.sqrt(degrees)
    scaled = sp.csr_array(sp.diags_array(1 / roots) @ graph @ sp.diags_array(1 / roots))
    n_parts, part = parts_of(graph)
    largest = np.argsort(-np.bincount(part), kind="stable")[:n_components]
    known = np.zeros((n, len(largest)))
    for k, number in enumerate(largest.tolist()):
        inside = part == number
        known[inside, k] = roots[inside] / np.linalg.norm(roots[inside])
    wanted = n_components - n_parts
    if wanted <= 0:
        return known / roots[:, np.newaxis]

    def product(x: NDArray[np.float64]) -> NDArray[np.float64]:
        x = x - known @ (known.T @ x)
        y = scaled @ x
        return y - known @ (known.T @ y)

    start = product(np.random.default_rng(0).normal(size=n))
    operator = LinearOperator((n, n), matvec=lambda x: product(x.ravel()), dtype=np.float64)
    n_kept = min(n, max(_LEAST_KEPT, 3 * wanted))
    values, vectors = eigsh(operator, wanted, which="LA", v0=start, ncv=n_kept, tol=_TOLERANCE)
    vectors = vectors[:, np.argsort(-values, kind="stable")]
    return np.column_stack([known, vectors]) / roots[:, np.newaxis]


def parts_of(graph: sp.csr_array) -> tuple[int, NDArray[np.int64]]:
    """Return the number of components of a graph, and that of each object."""
    n_parts, part = connected_components(_short_indices(graph), directed=False)
    return int(n_parts), part.astype(np.int64)


def _short_indices(graph: sp.csr_array) -> sp.csr_array:
    """Csgraph of SciPy before 1.15 takes no other indices."""
    return sp.csr_array(
        (graph.data, *(one.astype(np.int32) for one in (graph.indices, graph.indptr))), shape=graph.shape
    )


def _largest_positive(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Change signs of columns so that the entry of largest absolute value is positive."""
    largest = columns[np.argmax(np.abs(columns), axis=0), np.arange(columns.shape[1])]
    return columns * np.where(largest < 0, -1.0, 1.0)


def set_apart(words: NDArray[np.floating], rng: np.random.RandomState) -> NDArray[np.float64]:
    """Add noise to repeated words, which would get the same gradient in every step."""
    apart: NDArray[np.float64] = np.array(words, dtype=np.float64)
    _, first = np.unique(apart, axis=0, return_index=True)
    equal = np.setdiff1d(np.arange(len(apart)), first)
    size = float(np.ptp(apart, axis=0).max(initial=0.0)) or float(np.abs(apart).max(initial=0.0)) or 1.0
    apart[equal] += _JITTER * size * rng.normal(size=(len(equal), apart.shape[1]))
    return apart


def typical_scale(words: NDArray[np.floating]) -> float:
    """Inverse of the median distance between two distinct words; 1 if there are no two.

    The defaults of `bandwidth` and `learning_rate` are for words about 1 apart.
    """
    distances = pdist(np.asarray(words, dtype=np.float64))
    distances = distances[distances > 2 * _JITTER * distances.max(initial=0.0)]
    return 1.0 / float(np.median(distances)) if len(distances) else 1.0


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
    """Embed the neighbour graph of histograms; return the similarities of its rows s, and these.

    - "cosine": by eigenvectors of the graph's Laplacian; the cosine of the angle between two rows, at least 0. The
      weights of the graph fall to 1/e at the median distance of neighbours, whatever `sigma_histogram` is.
    - "spectral": by the same eigenvectors; ``exp(-|s_i - s_j| / sigma_spectral)``.
    - "isomap": by coordinates that keep the lengths of paths in the graph, divided by the norm of the first column, so
      that they are of the size of eigenvectors; the same similarity.
    """
    if kind not in TARGETS:
        raise unknown_name("target", kind, TARGETS)
    sigma = typical_distance(distances, n_neighbors) if kind == "cosine" else sigma_histogram
    graph = neighbor_graph(distances, n_neighbors, sigma)
    if kind == "isomap":
        embedding = _isomap(graph, distances, n_components)
    else:
        embedding = embed(graph, n_components, laplacian)
    if kind == "cosine":
        rows = unit_rows(embedding)
        target = np.clip(rows @ rows.T, 0.0, 1.0)
        target = 0.5 * (target + target.T)
        np.fill_diagonal(target, 1.0)
        return target, embedding
    target = squareform(pdist(embedding))
    target /= -sigma_spectral
    return np.exp(target, out=target), embedding


def _isomap(graph: sp.csr_array, distances: NDArray[np.float64], n_components: int) -> NDArray[np.float64]:
    """Coordinates whose distances are, as far as possible, the lengths of the shortest paths in the graph."""
    graph = _short_indices(graph)
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
    ends = rows.astype(np.int32), columns.astype(np.int32)
    paths = shortest_path(sp.csr_array((values, ends), shape=graph.shape), directed=False)
    squares = -0.5 * paths**2
    squares -= squares.mean(axis=0)
    squares -= squares.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(0.5 * (squares + squares.T))
    chosen = np.argsort(-values, kind="stable")[:n_components]
    coordinates = _largest_positive(vectors[:, chosen] * np.sqrt(np.maximum(values[chosen], 0.0)))
    size = float(np.linalg.norm(coordinates[:, 0]))
    return coordinates / size if size > 0 else coordinates


def given_target(target: ArrayLike, n: int) -> NDArray[np.float64]:
    """Check similarities that a user gives."""
    matrix = as_floats(target, "target").copy()
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


def fisher_vectors(
    bags: Bags, n_cells: int, random_state: Any = None, n_jobs: int | None = None
) -> NDArray[np.float64]:
    """Counts, means and variances of the features of each bag in the cells of a small codebook, in rows of length 1.

    1. Features are turned to their principal axes, of which the first 32 are kept, and `n_cells` cells are found by
       k-means.
    2. By how much the relative frequency of a cell, and the mean and variance of the features in it, differ from those
       of all bags is the gradient of the likelihood of a mixture of Gaussians, one a cell.
    3. Signed square roots, divided by their length.

    Bags must not be empty. O(n_rows (n_cells + 32) 32) time.
    """
    with one_blas_thread():
        x = _principal(bags.values)
    if not x.any():  # all features are equal
        return np.zeros((len(bags), 1))
    random = check_random_state(random_state)
    some = x if len(x) <= _N_SAMPLES else x[np.sort(random.choice(len(x), _N_SAMPLES, replace=False))]
    n_cells = min(n_cells, len(distinct_rows(some)[0]))
    words = kmeans_words(some, n_cells, random_state=random, n_jobs=n_jobs).words
    cells = assign_words(x, words, n_jobs=n_jobs)
    n, k, d = len(bags), len(words), x.shape[1]
    bag_of = np.repeat(np.arange(n), bags.lengths)
    pool = sp.csr_array((np.ones(len(x)), (bag_of * k + cells, np.arange(len(x)))), shape=(n * k, len(x)))
    counts = np.bincount(bag_of * k + cells, minlength=n * k).reshape(n, k)
    sums, squares = (pool @ x).reshape(n, k, d), (pool @ x**2).reshape(n, k, d)
    total = np.maximum(counts.sum(axis=0), 1)[:, np.newaxis]
    means = sums.sum(axis=0) / total
    variances = np.maximum(squares.sum(axis=0) / total - means**2, _FLOOR)
    frequencies = total / len(x)
    lengths = bags.lengths[:, np.newaxis]
    n_assigned = counts[:, :, np.newaxis]
    parts = (
        (counts / lengths - frequencies[:, 0]) / np.sqrt(frequencies[:, 0]),
        (sums - n_assigned * means) / np.sqrt(frequencies * variances) / lengths[:, np.newaxis],
        (squares - 2.0 * sums * means + n_assigned * (means**2 - variances))
        / (variances * np.sqrt(2.0 * frequencies) * lengths[:, np.newaxis]),
    )
    F = np.concatenate([part.reshape(n, -1) for part in parts], axis=1)
    return unit_rows(np.sign(F) * np.sqrt(np.abs(F)))


def _principal(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Coordinates on the principal axes, of variance 1 in the mean over the axes that are kept."""
    mean = values.mean(axis=0, dtype=np.float64)
    starts = range(0, len(values), _BLOCK_ROWS)  # blocks, so that no copy of all values is made
    products = np.zeros((len(mean), len(mean)))
    for start in starts:
        block = values[start : start + _BLOCK_ROWS] - mean
        products += block.T @ block
    variances, axes = np.linalg.eigh(products / len(values))
    kept = np.flatnonzero(variances > _FLOOR * max(variances[-1], np.finfo(np.float64).tiny))[::-1][:_N_AXES]
    if not len(kept):
        return np.zeros((len(values), 1))
    turn = axes[:, kept] / np.sqrt(variances[kept].mean())
    x = np.empty((len(values), len(kept)))
    for start in starts:
        x[start : start + _BLOCK_ROWS] = (values[start : start + _BLOCK_ROWS] - mean) @ turn
    return x
