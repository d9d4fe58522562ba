"""Linkage: unsupervised merging of words that are alike, by SciPy."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils._param_validation import StrOptions

from bagwise._utils.matrices import centre_full_words
from bagwise.merging.criteria.base import Criterion
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.plans import Options, Plan
from bagwise.merging.searches.given import GivenMerges
from bagwise.merging.stores import check_fits

__all__ = ["Linkage"]


class Linkage(Criterion):
    """Merge the words nearest to each other, each word being its values in all samples. Needs no labels.

    Parameters
    ----------
    method : {"single", "average", "complete", "ward"}, default="single"
        Distance between groups of words: between their nearest words, on average, between their farthest, or the
        growth of the scatter within groups.

    Notes
    -----
    Calls `scipy.cluster.hierarchy.linkage` with Euclidean distances; scores are its heights, distances. O(n d²) time,
    d² numbers of memory.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> from bagwise.criteria import Linkage
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> merge_words(X, criterion=Linkage("average")).groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "linkage"
    supervised = False
    _parameter_constraints: ClassVar[dict] = {"method": [StrOptions({"single", "average", "complete", "ward"})]}

    def __init__(self, method: str = "single") -> None:
        self.method = method

    def start(self, X: Any, y: NDArray[Any] | None, options: Options) -> Plan:  # noqa: D102
        self._validate_params()
        check_fits(X.shape[1], options.memory_limit)
        if sp.issparse(X):
            distances = euclidean_distances(centre_full_words(sp.csr_array(X.T)))  # samples that all words have
            heights = linkage(distances[np.triu_indices(len(distances), k=1)], self.method)
        else:
            heights = linkage(np.ascontiguousarray(X.T), self.method)
        return Plan.without_folding(GivenMerges(Hierarchy.from_linkage(heights), 0.0))
