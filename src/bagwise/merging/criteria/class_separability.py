"""Class separability (CSM)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.criteria.base import TraceRatio, class_codes
from bagwise.merging.plans import Options, Plan, fold
from bagwise.merging.searches import make_search
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.given import merges_of_equals
from bagwise.merging.statistics import Statistics
from bagwise.merging.stores import DenseStore, check_fits
from bagwise.merging.structures import BetweenClasses, Structure, TotalScatter

__all__ = ["ClassSeparability"]


class ClassSeparability(TraceRatio):
    """Scatter of the class means over the total scatter (CSM), between 0 and 1.

    Maximises ``tr(S_b) / tr(S_t)`` with ``S_b = Σ_c n_c (m_c - m)(m_c - m)ᵀ`` and ``S_t = Σ_i (x_i - m)(x_i - m)ᵀ``.
    No parameters.

    Notes
    -----
    Forming the statistics takes O(d² (n + C)) time (for sparse data, the number of pairs of non-zeros that share a
    sample) and nothing of the order of samples by samples.

    On histograms whose words differ much in scale, the words with the largest difference of class means are first
    merged into one that dominates the ratio, so the error of a classifier can rise before it falls. With many classes
    a few directions of large scatter are all that is kept; "aib" and "mlt" score each word for itself, and keep more.

    References
    ----------
    L. Wang, L. Zhou, C. Shen, "A fast algorithm for creating a compact and discriminative visual codebook",
    ECCV 2008.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> from bagwise.criteria import ClassSeparability
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion=ClassSeparability()).groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "csm"
    sums_needed = ("gram",)

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        codes = class_codes(y, self.name)
        return BetweenClasses(codes), TotalScatter(np.ones(len(codes)))

    def start_from_statistics(self, statistics: Statistics, options: Options) -> Plan:  # noqa: D102
        statistics.require("gram", self.name)
        constant = statistics.constant_words
        check_fits(statistics.n_words - len(constant[1:]), options.memory_limit, options.search)
        numbers = np.arange(statistics.n_words)
        numbers[constant] = constant[:1]
        folded, words = fold(numbers)
        store = DenseStore(
            statistics.between_classes(words, options.n_threads), statistics.total_scatter(words, options.n_threads)
        )
        search: Search = merges_of_equals(store.A, store.B) or make_search(options.search, store, options.n_threads)
        return Plan(folded, words, search, "dense")
