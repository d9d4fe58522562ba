"""A criterion without labels: information about clusters of the samples, at several scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise._compat import Interval, StrOptions
from bagwise._utils.checks import check_integer
from bagwise._utils.matrices import class_sums, count_unit
from bagwise._utils.progress import ProgressBar
from bagwise.codebooks.kmeans import no_report
from bagwise.codebooks.normalizing import WordWeighting
from bagwise.errors import BagwiseError
from bagwise.merging.clusterings import WEIGHTINGS, Clusterings, sampled_rows
from bagwise.merging.criteria.base import AdditiveScore
from bagwise.merging.scoring import Information, KeptInformation, Scoring
from bagwise.merging.statistics import Statistics

if TYPE_CHECKING:
    from bagwise.merging.scaling import Scaling

__all__ = ["Clusters"]

# Added to the count of each word in each cluster, as `InformationLoss` does in each class.
_SMOOTHING = 0.5


class Clusters(AdditiveScore):
    """Lose the least information about clusters of the samples, at several scales. Unsupervised.

    1. Words are weighted (`weighting`), and samples projected to the first 50 singular vectors and to length 1.
    2. k-means groups the samples into 5, 10, 20, 40 and 80 clusters (`scales`).
    3. Words are merged as `InformationLoss` does, with all clusters of all these clusterings as classes.

    Labels are never used. Groups found so are words that occur in the same kinds of samples, whether or not they occur
    together. Scores are the information about all clusters after each merge, in nats.

    Parameters
    ----------
    scales : sequence of int, default=(5, 10, 20, 40, 80)
        Numbers of clusters. Those of more than a fifth of the distinct samples are left out; if none is left, there is
        one clustering of a fifth as many clusters as distinct samples, at least two.
    weighting : {"auto", "tfidf", "hellinger"}, default="auto"
        How words are weighted for clustering: by sublinear TF-IDF, or as square roots of relative frequencies. "auto":
        "tfidf" for whole counts that are mostly zeros, as of words in texts, otherwise "hellinger".
    n_kept : int, default=2500
        The most frequent words, which are merged pair by pair. Each of the others first joins the one of these of the
        least lower bound of the information lost.
    random_state : int, RandomState or None, default=0
    clusterings : array-like of shape (n_samples, n_clusterings), default=None
        Labels of clusters that were found elsewhere, of any type; then no others are made.

    Notes
    -----
    Clusterings are made of distinct samples that have words; of more than 20,000, as many are drawn, and the others
    assigned to the nearest clusters. Copies of a sample, and weights of samples, count in the sums over clusters only.

    With s clusters together, d words and m = `n_kept`: O(s m²) time for merging on ordinary data, O(s m d) for the
    other words, O(s d) memory. Sums over clusters are additive, so that Dask arrays are clustered by a sample and
    summed chunk by chunk. With a device, samples are clustered on the CPU and words merged on the device.

    See Also
    --------
    InformationLoss : The same with classes.
    SampleInformationLoss : The same with each sample as a cluster of its own.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> merge_words(X, criterion="clusters").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "clusters"
    supervised = False
    non_negative = True
    scales_measurements = True
    takes_sample_weight = True
    takes_settings = True
    sums_needed = ()
    edits_from = "states"
    runs_on_device = True
    scoring_of = Information
    _parameter_constraints: ClassVar[dict] = {
        "scales": ["array-like"],
        "weighting": [StrOptions(set(WEIGHTINGS))],
        "n_kept": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "clusterings": ["array-like", None],
    }

    def __init__(
        self,
        scales: Sequence[int] = (5, 10, 20, 40, 80),
        weighting: str = "auto",
        n_kept: int = 2500,
        random_state: Any = 0,
        *,
        clusterings: ArrayLike | None = None,
    ) -> None:
        self.scales = scales
        self.weighting = weighting
        self.n_kept = n_kept
        self.random_state = random_state
        self.clusterings = clusterings

    def learn(
        self,
        X: Any,
        n_threads: int = 1,
        *,
        scaling: Scaling | None = None,
        weighting: WordWeighting | None = None,
        progress: Callable[[int, int], Any] = no_report,
    ) -> Clusterings:
        """Cluster the items of X, dense or CSR; of many, those that `sampled_rows` draws.

        Measurements are clustered by their `scaling`; `weighting` replaces that of the criterion. `progress` is called
        with the number of steps done and of all.
        """
        rows = sampled_rows(X.shape[0], self.random_state)
        X = X if len(rows) == X.shape[0] else X[rows]
        scales = [check_integer(scale, "A scale", 1) for scale in self.scales]
        if not scales:
            raise BagwiseError("scales must have at least one number of clusters; got none.")
        if scaling is not None:
            weights = None if scaling.scale is None else np.sqrt(scaling.scale)
            weighting = WordWeighting("sqrt", weights, "l2", shift=scaling.shift)
        how: dict[str, Any] = {"random_state": self.random_state, "n_threads": n_threads, "progress": progress}
        return Clusterings.fit(X, scales, weighting=weighting or self.weighting, **how)

    def codes(  # noqa: D102
        self, X: Any, y: NDArray[Any] | None = None, n_threads: int = 1, show_progress: bool = False
    ) -> NDArray[np.intp]:
        if self.clusterings is not None:
            return numbered_apart(_check_clusterings(self.clusterings, X.shape[0]))
        with ProgressBar("clustering samples", 1, enabled=show_progress) as bar:
            return numbered_apart(self.learn(X, n_threads, progress=bar.update).codes(X))

    def of_samples(self, rows: NDArray[np.intp]) -> Self:  # noqa: D102
        if self.clusterings is None:
            return self
        criterion = type(self)(**self.get_params(deep=False))
        criterion.clusterings = np.asarray(self.clusterings)[rows]
        return criterion

    def scoring(  # noqa: D102
        self,
        X: Any,
        y: NDArray[Any] | None,
        sample_weight: NDArray[np.float64] | None = None,
        n_threads: int = 1,
        show_progress: bool = False,
    ) -> Scoring:
        if count_unit(X) == np.inf:
            raise BagwiseError("The criterion 'clusters' needs counts, but all of X is zero.")
        codes = self.codes(X, None, n_threads, show_progress)
        return self._scoring(class_sums(X, codes, weights=sample_weight), count_unit(X))

    def _scoring(self, sums: NDArray[np.float64], unit: float) -> Scoring:
        if not sums.any():
            raise BagwiseError("The criterion 'clusters' needs counts, but all of X is zero.")
        return KeptInformation(sums.T, _SMOOTHING * unit, self.n_kept)

    def scoring_from_sums(self, statistics: Statistics) -> Scoring:  # noqa: D102
        return self._scoring(statistics.class_sums, statistics.unit)


def numbered_apart(clusterings: NDArray[Any]) -> NDArray[np.intp]:
    """Number the clusters of several clusterings, in columns, one after the other; clusters without items are none."""
    codes, n = np.empty(clusterings.shape, dtype=np.intp), 0
    for k, labels in enumerate(clusterings.T):
        names, numbers = np.unique(labels, return_inverse=True)
        codes[:, k] = n + numbers.reshape(-1)
        n += len(names)
    return codes


def _check_clusterings(clusterings: ArrayLike, n_samples: int) -> NDArray[Any]:
    labels = np.asarray(clusterings)
    labels = labels[:, np.newaxis] if labels.ndim == 1 else labels
    if labels.ndim != 2 or labels.shape[0] != n_samples or not labels.shape[1]:
        raise BagwiseError(
            f"clusterings must have a row for each of the {n_samples} samples of X and a column for each clustering; "
            f"got shape {np.shape(clusterings)}. Those of all samples are not for parts of them, as in "
            "cross-validation: leave clusterings=None there."
        )
    return labels
