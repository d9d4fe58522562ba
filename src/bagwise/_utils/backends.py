"""Where a step of the library is computed: by its package on the host, or by `bagwise.gpu` on a CUDA device.

`backend` is asked once per public call; what it returns has the functions of one of the protocols here, in both places.
Packages import neither CuPy nor helpers for devices.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import numpy as np

from bagwise._utils.devices import device_module

__all__ = ["BACKENDS", "Codebooks", "Kernels", "Merging", "Retrieval", "Topics", "backend"]


class Codebooks(Protocol):
    """Words and histograms."""

    def array(self, values: Any) -> Any:
        """Return a C-contiguous array where the backend computes."""

    def codebook(self, words: Any) -> Any:
        """Check words and return them where the backend computes."""

    def points(self, vectors: Any) -> Any:
        """Check vectors that k-means is to cluster, and return them where the backend computes."""

    def to_host(self, result: Any) -> Any:
        """Return a result on the host."""

    def where_given(self, result: Any, like: Any) -> Any:
        """Return a result where the array `like` lives."""

    def Distances(self, codebook: Any, *, bipolar: bool = False) -> Any:
        """Make the distances to the words of a codebook, see `WordDistances`."""

    def Problem(self, points: Any, weights: Any, bipolar: bool, n_threads: int = 1) -> Any:
        """Make the steps of k-means, see `bagwise.codebooks.kmeans.Problem`."""

    def SoftHistograms(
        self, values: Any, offsets: Any, bandwidth: float, n_threads: int = 1, *, scale: float = 1.0
    ) -> Any:
        """Make soft histograms of fixed bags, see `bagwise.codebooks.manifold.learning.SoftHistograms`."""

    def assign(self, values: Any, table: Any, n_threads: int) -> tuple[Any, Any]:
        """Find the nearest word of each vector, and its sign."""

    def distinct_rows(self, values: Any) -> tuple[Any, Any]:
        """Find equal rows."""

    def pooled(self, bags: Any, encoder: Any, pooling: str, grids: Any, sparse_output: bool, n_threads: int) -> Any:
        """Encode bags by an encoder that is bound to words."""

    def pooled_images(
        self, images: Any, descriptor: Any, encoder: Any, pooling: str, grids: Any, sparse_output: bool, n_jobs: Any
    ) -> Any:
        """Describe images by dense SIFT, and encode them by an encoder that is bound to words."""


class Kernels(Protocol):
    """Additive kernels."""

    def kernel_matrix(self, X: Any, Y: Any, kernel: str, n_jobs: int | None) -> Any:
        """Compute the kernel between the rows of X and of Y (None: X), where X is."""


class Merging(Protocol):
    """Rows of A and B over words, and the searches for the best pair of words."""

    def rows_of_samples(
        self, X: Any, structures: Any, store: str, memory_limit: Any, n_threads: int, who: str | None
    ) -> Any:
        """Form A and B of data, see `bagwise.merging.rows.RatioRows`."""

    def rows_of_matrices(self, A: Any, B: Any) -> Any:
        """Take A and B that were formed before."""

    def ratio_search(self, rows: Any, name: str, n_threads: int, show_progress: bool) -> Any:
        """Start a search for trace ratios, see `bagwise.merging.searches.base.Search`."""

    def sum_search(self, scoring: Any, n_threads: int = 1, show_progress: bool = False) -> Any:
        """Start a search for an additive score."""


class Retrieval(Protocol):
    """Dense rows of an index."""

    def n_queries(self, n_items: int, n_words: int) -> int:
        """Return how many queries are compared with a dense block together."""

    def n_threads(self, wanted: int) -> int:
        """Return how many threads search."""

    def possible_items(self, block: Any, queries: Any, first: int, last: int, k: int) -> tuple[Any, Any]:
        """Find the items of a block that can be among the k nearest of some queries."""


class Topics(Protocol):
    """Posteriors of documents."""

    def Corpus(self, X: Any) -> Any:
        """Make the documents of a fit, see `bagwise.topics.inference.Corpus`."""

    def infer(
        self,
        X: Any,
        weights: Any,
        alpha: Any,
        *,
        gamma: Any = None,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_threads: int = 1,
    ) -> Any:
        """Compute the posteriors of documents, on the host."""


BACKENDS = {
    "codebooks": ("bagwise.codebooks.host", "bagwise.gpu.codebooks"),
    "kernels": ("bagwise.kernels.additive", "bagwise.gpu.kernels"),
    "merging": ("bagwise.merging.searches", "bagwise.gpu.merging"),
    "retrieval": ("bagwise.retrieval.screening", "bagwise.gpu.retrieval"),
    "topics": ("bagwise.topics.inference", "bagwise.gpu.topics"),
}


def backend(name: str, device: str | None = None, *arrays: Any) -> Any:
    """Return the module that computes on a device; None: where the first of the arrays lives.

    >>> backend("kernels", "cpu").__name__
    'bagwise.kernels.additive'
    """
    host, other = BACKENDS[name]
    return importlib.import_module(host if device_module(device, *arrays) is np else other)
