"""`ItemMap`: items in two dimensions, and their clusters, computed once and kept in an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._io.tensors import tensor
from bagwise._utils.matrices import check_non_negative
from bagwise._utils.threads import one_blas_thread
from bagwise.app.modalities.vectorizers import Progress, no_progress
from bagwise.errors import BagwiseError, parameter_name, unknown_name
from bagwise.retrieval.bag_index import BagIndex

__all__ = ["MAP_METHODS", "MAP_TENSORS", "MOST_CLUSTERS", "PLACED_BY", "ItemMap", "spectral_vectors"]

MAP_METHODS = ("spectral", "tsne")
MAP_TENSORS = {
    "map_points": tensor("float32", "n_items", 2, finite=True, optional=True),
    "map_clusters": tensor("int16", "n_items", low=-1, optional=True),
}
# The largest numbers of items that are arranged; others are placed by these.
_MOST_SPECTRAL, _MOST_TSNE = 200_000, 5000
_LEAST_TSNE = 4
_TSNE_DIMENSIONS, _PERPLEXITY, PLACED_BY = 50, 30, 5
MOST_CLUSTERS = 1000
# Items whose matrix of similarities is computed, and when other eigenvectors are accepted.
_FEW, _TOLERANCE = 200, 1e-6
_NOTHING = 1e-10
_BATCH = 4096


@dataclass(frozen=True, eq=False)
class ItemMap:
    """Places of items in two dimensions, and their clusters. No labels are used.

    Attributes
    ----------
    method : {"spectral", "tsne"}
    points : ndarray of float32, shape (n_items, 2)
        About 1 from their mean; (0, 0) for items without words.
    clusters : ndarray of int16, shape (n_items,)
        Numbers from 0, the largest first; -1 for items without words, which are not on the map.
    n_arranged : int
        Items that the method arranged; all others were placed by these.

    Notes
    -----
    "spectral": items are joined by edges whose weights are the products of their rows, for rows of unit length their
    cosine similarity, each item with all others; the two coordinates are the eigenvectors of the graph's random-walk
    Laplacian with the smallest eigenvalues beside the constant one [1]_. To the weight of each edge 1/n of the mean
    degree is added [2]_: few items that are like nothing else would otherwise be all that the map shows. The matrix of
    similarities is never computed: for n items with m words in all, O(m + 50 n) memory, and O(m) time for each of
    about 100 products. Of more than 200,000 items so many are drawn at random, and the others are placed by their
    similarities to these (Nyström extension), about where they would be if they were among them.

    "tsne": t-SNE of scikit-learn for at most 5,000 items, drawn at random, from 50 singular vectors of the rows; others
    are placed at the median of their five nearest neighbours among these.

    Items that are added to an index later are placed likewise: at the median of their five nearest neighbours on the
    map, in the cluster of the nearest.

    Clusters are those of the index, if it has some, otherwise those of spectral clustering: k-means of as many
    eigenvectors of the same graph as there are clusters, scaled to unit length for each item [3]_.

    References
    ----------
    .. [1] M. Belkin, P. Niyogi. Laplacian eigenmaps for dimensionality reduction and data representation. Neural
       Computation 15, 2003.
    .. [2] Y. Zhang, K. Rohe. Understanding regularized spectral clustering via graph conductance. NeurIPS 2018.
    .. [3] A. Ng, M. Jordan, Y. Weiss. On spectral clustering: analysis and an algorithm. NIPS 2002.

    Examples
    --------
    >>> rows = np.array([[0.8, 0.6, 0], [0.6, 0.8, 0], [0, 0.1, 0.9], [0, 0, 1.0], [0, 0, 0]])
    >>> found = ItemMap.of(rows, n_clusters=2)
    >>> found.clusters[0] == found.clusters[1] != found.clusters[2], found.clusters[4]
    (np.True_, np.int16(-1))
    >>> float(np.sign(found.points[:2, 0] * found.points[2:4, 0]).max())
    -1.0
    """

    method: str
    points: NDArray[np.float32]
    clusters: NDArray[np.int16]
    n_arranged: int

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def of(
        cls,
        rows: Any,
        method: str = "spectral",
        *,
        n_clusters: int = 10,
        clusters: NDArray[Any] | None = None,
        random_state: int = 0,
        progress: Progress | None = None,
    ) -> ItemMap:
        """Arrange items.

        Parameters
        ----------
        rows : CSR array or ndarray of shape (n_items, n_features)
            Not negative, such as weighted words of unit length.
        method : {"spectral", "tsne"}, default="spectral"
        n_clusters : int, default=10
            At most; fewer if fewer items differ.
        clusters : ndarray of int, shape (n_items,), default=None
            Clusters that are known already, at most 1000. None: those of spectral clustering.
        random_state : int, default=0
        progress : callable, default=None
            Called with the name of a step, what is done and what there is to do, 0 if that is not known.

        Returns
        -------
        map : ItemMap
        """
        if method not in MAP_METHODS:
            raise unknown_name(parameter_name("map"), method, MAP_METHODS)
        progress = no_progress if progress is None else progress
        check_non_negative(rows, "A map", "Leave the map out.")
        has_words = np.asarray(rows.sum(axis=1)).ravel() > 0
        X = sp.csr_array(rows[has_words], dtype=np.float64)
        if method == "tsne" and X.shape[0] < _LEAST_TSNE:
            raise BagwiseError(
                f"t-SNE needs at least {_LEAST_TSNE} items with words, got {X.shape[0]}. Use a spectral map."
            )
        with one_blas_thread():  # sums in the same order everywhere
            n_vectors = 2 if clusters is not None else max(n_clusters - 1, 2)
            vectors, degrees, n_arranged = _extended(X, n_vectors, random_state, progress)
            if clusters is None:
                of_words = _clusters(vectors * np.sqrt(degrees)[:, np.newaxis], n_clusters, random_state, progress)
            else:
                of_words = np.asarray(clusters, np.int16)[has_words]
            places = vectors[:, :2]
            if method == "tsne":
                places, n_arranged = _tsne(X, random_state, progress)
        points = np.zeros((len(has_words), 2), np.float32)
        points[has_words] = _scaled(places, each=method == "spectral")
        of_items = np.full(len(has_words), -1, np.int16)
        of_items[has_words] = of_words
        return cls(method, points, of_items, n_arranged)

    def placed(self, scores: NDArray[np.float64], numbers: NDArray[Any], similar: bool) -> ItemMap | None:
        """Add items by their nearest neighbours on the map, at the median of five; None if the map is empty.

        Parameters
        ----------
        scores : ndarray of shape (n_new, k)
            Similarities or distances of the nearest items, nearest first; NaN for none.
        numbers : ndarray of int, shape (n_new, k)
            Their numbers.
        similar : bool
            Whether `scores` are similarities. Items that are like nothing on the map are not on it either.
        """
        if (self.clusters < 0).all():
            return None
        near = (self.clusters[numbers] >= 0) & (scores > 0 if similar else scores >= 0)
        some = np.flatnonzero(near.any(axis=1))
        points, clusters = np.zeros((len(near), 2), np.float32), np.full(len(near), -1, np.int16)
        places = np.where(near[some, :, np.newaxis], self.points[numbers[some]], np.nan)
        points[some] = np.nanmedian(places, axis=1)
        clusters[some] = self.clusters[numbers[some, near[some].argmax(axis=1)]]
        return replace(
            self, points=np.concatenate([self.points, points]), clusters=np.concatenate([self.clusters, clusters])
        )

    def taken(self, numbers: NDArray[np.int64]) -> ItemMap:
        """Return the map of some of the items."""
        arranged = min(self.n_arranged, len(numbers))
        return ItemMap(self.method, self.points[numbers], self.clusters[numbers], arranged)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the members of a header and the tensors of a file."""
        header = {"method": self.method, "n_arranged": self.n_arranged}
        return header, {"map_points": self.points, "map_clusters": self.clusters}

    @classmethod
    def from_parts(cls, header: Any, tensors: Mapping[str, NDArray[Any]]) -> ItemMap | None:
        """Undo `to_parts`, for tensors that `MAP_TENSORS` accepts; None without a map. Errors begin with "its"."""
        has = [name for name in MAP_TENSORS if name in tensors]
        if header is None and not has:
            return None
        if not isinstance(header, Mapping) or sorted(header) != ["method", "n_arranged"] or len(has) != 2:
            raise BagwiseError(f"its map is {header!r:.100}, with the tensors {has}; expected method and n_arranged.")
        points, clusters = tensors["map_points"], tensors["map_clusters"]
        method, n_arranged = header["method"], header["n_arranged"]
        if method not in MAP_METHODS or type(n_arranged) is not int or not 0 <= n_arranged <= len(points):
            raise BagwiseError(f"its map has method {method!r:.50} and n_arranged {n_arranged!r:.50}.")
        if clusters.max(initial=-1) >= MOST_CLUSTERS:
            raise BagwiseError(f"its map has cluster {clusters.max()}; at most {MOST_CLUSTERS} are accepted.")
        return cls(method, points, clusters, n_arranged)


def spectral_vectors(
    X: sp.csr_array, n_vectors: int, random_state: int = 0, progress: Progress = no_progress
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Embed items by the graph of the products of their rows.

    With ``W = X Xᵀ + t/n``, where t is the mean of the row sums of ``X Xᵀ``, and D the row sums of W: the solutions of
    ``(D - W) e = λ D e`` with the smallest λ > 0, in columns of unit length whose largest entry is positive. Columns of
    eigenvalue λ = 1, on which items do not differ, are zero.

    Returns the vectors, the diagonal of D, and 1 - λ, which is 0 for columns of zeros. Lanczos' method on
    ``D^-½ W D^-½`` without its first eigenvector, which is constant; all eigenvectors of the matrix for a few items.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh  # deferred: takes long to import

    n = X.shape[0]
    if n == 0:
        return np.zeros((0, n_vectors)), np.zeros(0), np.zeros(n_vectors)
    sums = np.asarray(X @ (X.T @ np.ones(n)))
    constant = sums.mean() / n
    degrees = sums + n * constant
    scale, trivial = 1 / np.sqrt(degrees), np.sqrt(degrees / degrees.sum())
    n_products = 0

    def product(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal n_products
        n_products += 1
        progress("arranging items", n_products, 0)
        vector = vector.ravel()
        scaled = scale * (vector - trivial * (trivial @ vector))
        image = scale * (X @ (X.T @ scaled) + constant * scaled.sum())
        return vector + image - trivial * (trivial @ image)  # plus 1: ARPACK does not take what maps all to zero

    if n <= max(_FEW, 3 * n_vectors):
        values, eigenvectors = np.linalg.eigh(np.stack([product(column) for column in np.eye(n)]))
    else:
        start = np.random.default_rng(random_state).normal(size=n)
        operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
        values, eigenvectors = eigsh(
            operator, n_vectors, which="LA", v0=start - trivial * (trivial @ start), tol=_TOLERANCE
        )
    values -= 1
    order = np.argsort(-values)[:n_vectors]
    order = order[values[order] > _NOTHING]
    vectors, kept = np.zeros((n, n_vectors)), np.zeros(n_vectors)
    kept[: len(order)], vectors[:, : len(order)] = values[order], scale[:, np.newaxis] * eigenvectors[:, order]
    lengths = np.linalg.norm(vectors, axis=0)
    vectors /= np.where(lengths > 0, lengths, 1)
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(n_vectors)]
    return vectors * np.where(largest < 0, -1.0, 1.0), degrees, kept


def _extended(
    X: sp.csr_array, n_vectors: int, random_state: int, progress: Progress
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return vectors of all items, their degrees, and how many items the vectors were found with."""
    n = X.shape[0]
    if n <= _MOST_SPECTRAL:
        vectors, degrees, _ = spectral_vectors(X, n_vectors, random_state, progress)
        return vectors, degrees, n
    chosen = np.sort(np.random.default_rng(random_state).permutation(n)[:_MOST_SPECTRAL])
    part = X[chosen]
    vectors, of_part, values = spectral_vectors(part, n_vectors, random_state, progress)
    constant = of_part.mean() / (2 * len(chosen))  # half of the mean degree is that of added weights
    degrees = np.asarray(X @ (part.T @ np.ones(len(chosen)))) + len(chosen) * constant
    # D e (1 - λ) = W e, row by row
    images = (X @ (part.T @ vectors) + constant * vectors.sum(axis=0)) / degrees[:, np.newaxis]
    return np.divide(images, values, out=np.zeros_like(images), where=values > 0), degrees, len(chosen)


def _clusters(
    vectors: NDArray[np.float64], n_clusters: int, random_state: int, progress: Progress
) -> NDArray[np.int16]:
    """Cluster the rows of eigenvectors, scaled to unit length; the largest cluster is the first."""
    from sklearn.cluster import KMeans  # deferred: takes long to import

    progress("finding clusters", 0, 0)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > _NOTHING)
    n_different = len(np.unique(rows.round(6), axis=0))
    if n_different <= 1:
        return np.zeros(len(rows), np.int16)
    labels = KMeans(min(n_clusters, n_different), n_init=3, random_state=random_state).fit(rows).labels_
    _, first, inverse, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    numbers = np.empty(len(sizes), np.int16)
    numbers[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return numbers[inverse]


def _tsne(X: sp.csr_array, random_state: int, progress: Progress) -> tuple[NDArray[np.float64], int]:
    """Arrange a sample by t-SNE, and all others by their nearest neighbours in it."""
    from sklearn.manifold import TSNE
    from sklearn.utils.extmath import randomized_svd

    n = X.shape[0]
    chosen = np.sort(np.random.default_rng(random_state).permutation(n)[:_MOST_TSNE])
    dimensions = max(min(_TSNE_DIMENSIONS, len(chosen), X.shape[1]), 1)
    directions = randomized_svd(X[chosen], dimensions, n_iter=4, random_state=random_state)[2].T
    reduced = np.asarray(X @ directions)
    lengths = np.linalg.norm(reduced, axis=1, keepdims=True)
    reduced = np.divide(reduced, lengths, out=np.zeros_like(reduced), where=lengths > _NOTHING).astype(np.float32)
    progress(f"t-SNE of {len(chosen):,} items", 0, 0)
    perplexity = min(_PERPLEXITY, (len(chosen) - 1) / 3)
    start = np.asarray(reduced[chosen, :2], np.float64)
    start = np.hstack([start, np.zeros((len(start), 2 - start.shape[1]))]) - start.mean()
    start += 1e-6 * np.random.default_rng(random_state).normal(size=start.shape)  # duplicates do not move apart
    start *= 1e-4 / start[:, 0].std()
    model = TSNE(perplexity=perplexity, init=start.astype(np.float32), random_state=random_state, n_jobs=1)
    arranged = np.asarray(model.fit_transform(reduced[chosen]), np.float64)
    places = np.empty((n, 2))
    places[chosen] = arranged
    others = np.setdiff1d(np.arange(n), chosen)
    index = BagIndex(metric="euclidean").add(reduced[chosen])
    for first in range(0, len(others), _BATCH):
        progress("placing the other items", first, len(others))
        part = others[first : first + _BATCH]
        nearest = np.asarray(index.search(reduced[part], PLACED_BY)[1], np.intp)
        places[part] = np.median(arranged[nearest], axis=1)
    return places, len(chosen)


def _scaled(places: NDArray[np.float64], each: bool) -> NDArray[np.float32]:
    """Move to a mean of 0 and scale to a standard deviation of 1, each axis or both together."""
    if not len(places):
        return places.astype(np.float32)
    centred = places - places.mean(axis=0)
    size = centred.std(axis=0) if each else centred.std()
    # beyond rounding errors
    return np.divide(centred, size, out=np.zeros_like(centred), where=size > _NOTHING).astype(np.float32)
