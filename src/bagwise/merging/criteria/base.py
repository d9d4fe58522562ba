"""What a criterion is, the two families most criteria belong to, and the checks they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from bagwise._utils.memory import Limit, check_memory
from bagwise.errors import BagwiseError, in_python
from bagwise.merging.scoring import Scoring
from bagwise.merging.structures import Structure

if TYPE_CHECKING:
    from bagwise.merging.searches.base import Search
    from bagwise.merging.statistics import Statistics

__all__ = ["AdditiveScore", "Criterion", "TraceRatio", "check_values_fit", "class_codes", "no_labels"]


class Criterion(BaseEstimator, ABC):
    """What makes one merge better than another; how words are merged is up to `bagwise.merging.engine`.

    Criteria hold their parameters as scikit-learn estimators do, so that ``get_params``, ``clone`` and grid searches
    over ``criterion__n_neighbors`` work. Most belong to one of two families, `TraceRatio` and `AdditiveScore`. Others
    implement `search`.

    Attributes
    ----------
    name : str
        The short name that users may write instead of the object.
    supervised : bool
        Whether labels are needed.
    takes_missing_labels : bool
        Whether some of them may be missing.
    non_negative : bool
        Whether data must be non-negative.
    scales_measurements : bool
        Whether real-valued data are brought to a common scale first (`bagwise.merging.scaling`), so that they may
        be negative.
    takes_sample_weight : bool
        Whether `structures` or `scoring` has the parameter `sample_weight`.
    takes_settings : bool
        Whether `scoring` has the parameters `n_threads` and `show_progress`.
    sums_needed : tuple of str or None
        What `Statistics` must have beside class sums ("gram", "frequencies"); None: the samples are needed.
    edits_from : {"states", "pairs"} or None
        What is kept of groups to merge them again when they are edited: their states, or A and B over them.
    runs_on_device : bool
        Whether words are merged on a CUDA device where data or options ask for it.
    """

    name: ClassVar[str] = ""
    supervised: ClassVar[bool] = True
    takes_missing_labels: ClassVar[bool] = False
    non_negative: ClassVar[bool] = False
    scales_measurements: ClassVar[bool] = False
    takes_sample_weight: ClassVar[bool] = False
    takes_settings: ClassVar[bool] = False
    sums_needed: ClassVar[tuple[str, ...] | None] = None
    edits_from: ClassVar[str | None] = None
    runs_on_device: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict] = {}

    def codes(
        self, X: Any, y: NDArray[Any] | None, n_threads: int = 1, show_progress: bool = False
    ) -> NDArray[np.intp]:
        """Number the classes that samples are summed over; for criteria that need class sums only.

        Samples may be in several classes, one in each column.
        """
        return class_codes(y, self.name)

    def of_samples(self, rows: NDArray[np.intp]) -> Self:
        """Return the criterion for some of the samples only."""
        return self

    def search(self, X: Any, y: NDArray[Any] | None, memory_limit: Limit = None) -> Search:
        """Start a search of the criterion's own, for criteria of neither family.

        Parameters
        ----------
        X : dense float64 array or CSR array of shape (n_samples, n_words)
        y : ndarray of shape (n_samples,) or None
            Labels; never None where `supervised` is true.
        memory_limit : int, str or None
            To be checked before allocating (`check_values_fit`).

        Returns
        -------
        search : Search
            Over all words.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement search(X, y, memory_limit).")


class TraceRatio(Criterion):
    """A criterion that maximises ``tr(Xᵀ L_P X) / tr(Xᵀ L_U X)`` for two structures over the samples.

    A subclass says which pairs of samples should be far apart (preferred) and which close (undesired), as a pair of
    structures; the engine does the rest.

    See Also
    --------
    bagwise.criteria.GraphPair : the same without a class, from two weight matrices.

    Examples
    --------
    Consecutive samples should stay close, all others far apart:

    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from bagwise import merge_words
    >>> from bagwise.criteria import TraceRatio
    >>> from bagwise.merging.structures import GraphLaplacian, TotalScatter
    >>> class Smoothness(TraceRatio):
    ...     name = "smoothness"
    ...     supervised = False
    ...
    ...     def structures(self, X, y, n_threads=1):
    ...         n = X.shape[0]
    ...         next_one = sp.eye_array(n, k=1) + sp.eye_array(n, k=-1)
    ...         return TotalScatter(np.ones(n)), GraphLaplacian(sp.csr_array(next_one))
    >>> X = [[0, 9, 1, 1], [1, 2, 2, 8], [2, 8, 3, 1], [3, 1, 4, 9]]
    >>> merge_words(X, criterion=Smoothness()).groups(2)
    [array([0, 2]), array([1, 3])]
    """

    edits_from: ClassVar[str | None] = "pairs"
    runs_on_device: ClassVar[bool] = True
    # Whether `structures` looks at the values of X, and not only at how many samples there are.
    looks_at_values: ClassVar[bool] = True

    @abstractmethod
    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:
        """Build the preferred and the undesired structure.

        Parameters
        ----------
        X : dense float64 array or CSR array of shape (n_samples, n_words)
        y : ndarray of shape (n_samples,) or None
            Labels; never None where `supervised` is true.
        n_threads : int
        """

    @property
    def may_be_indefinite(self) -> bool:
        """Whether the preferred trace can become negative, which rules out the polar search."""
        return False

    def matrices_from_sums(
        self, statistics: Statistics, words: NDArray[np.int64], n_threads: int = 1
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Form A and B of some words from sums over samples; for criteria with `sums_needed`."""
        raise NotImplementedError(f"{type(self).__name__} must implement matrices_from_sums, having sums_needed.")


class AdditiveScore(Criterion):
    """A criterion that maximises a sum over words, ``Σ_w g(state of w)``; merging adds states.

    A subclass defines the state of a word and its term g, as a scoring; the engine does the rest.

    Attributes
    ----------
    keeps_values : bool
        Whether states have one value per sample, so that their size is checked against the memory limit.

    Examples
    --------
    A group scores more the more its counts lean to one class:

    >>> import numpy as np
    >>> from bagwise import merge_words
    >>> from bagwise.criteria import AdditiveScore
    >>> from bagwise.merging.scoring import Scoring
    >>> class Lean(Scoring):
    ...     def terms(self, states):
    ...         return states.max(axis=1) - states.sum(axis=1) / 2
    >>> class ClassLean(AdditiveScore):
    ...     name = "lean"
    ...
    ...     def scoring(self, X, y):
    ...         return Lean(np.array([X[y == c].sum(axis=0) for c in np.unique(y)]).T)
    >>> X = np.array([[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]])
    >>> merge_words(X, ["a", "a", "b", "b"], criterion=ClassLean()).groups(2)
    [array([0, 1]), array([2, 3])]
    """

    keeps_values: ClassVar[bool] = False

    @abstractmethod
    def scoring(self, X: Any, y: NDArray[Any] | None) -> Scoring:
        """Build the scoring.

        Parameters
        ----------
        X : dense float64 array or CSR array of shape (n_samples, n_words)
        y : ndarray of shape (n_samples,) or None
            Labels; never None where `supervised` is true.
        """

    def scoring_from_sums(self, statistics: Statistics) -> Scoring:
        """Build the scoring from sums over samples; for criteria with `sums_needed`."""
        raise NotImplementedError(f"{type(self).__name__} must implement scoring_from_sums, having sums_needed.")

    @staticmethod
    def scoring_of(states: NDArray[np.float64]) -> Scoring:
        """Build the scoring from the states of groups; for criteria with `edits_from` states."""
        raise NotImplementedError("A criterion with edits_from='states' must implement scoring_of.")


def no_labels(who: str) -> BagwiseError:
    """Make the error for a criterion that needs labels and has none."""
    return BagwiseError(
        f"The criterion {who!r} requires y to be passed, but the target y is None. Pass labels, or use an unsupervised "
        "criterion such as 'clusters'."
    )


def class_codes(y: ArrayLike | None, who: str) -> NDArray[np.intp]:
    """Encode the classes of y as 0, 1, …; raise, naming the criterion `who`, unless there are at least two."""
    if y is None:
        raise no_labels(who)
    labels = column_or_1d(np.asarray(y))
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise BagwiseError(
            f"The criterion {who!r} needs at least two classes in y; got only one class, {classes.tolist()[:1]}. "
            "Without classes, use an unsupervised criterion such as 'clusters'."
        )
    return codes.astype(np.intp)


def bytes_of_values(n_samples: int, n_words: int) -> int:
    """Memory for the values of all words in all samples, dense and copied once."""
    return 2 * 8 * n_samples * n_words


def check_values_fit(X: Any, memory_limit: Limit, who: str) -> None:
    """Raise if the values of all words in all samples, dense and copied once, would exceed the limit."""
    check_memory(
        bytes_of_values(*X.shape),
        memory_limit,
        f"The criterion {who!r} keeps the values of {X.shape[1]} words in {X.shape[0]} samples",
        "use a criterion that needs only sums over classes, such as 'aib'; without labels, "
        + in_python("SketchMerger, or criterion='lpp' with store='sparse'", "'lpp'"),
    )
