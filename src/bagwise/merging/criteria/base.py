"""What a criterion is, the two families most criteria belong to, and the checks they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from bagwise._utils.matrices import check_non_negative, constant_words
from bagwise._utils.memory import check_memory
from bagwise.errors import BagwiseError
from bagwise.merging.kernel_traces import KernelTraces
from bagwise.merging.plans import Options, Plan, fold
from bagwise.merging.scoring import Scoring
from bagwise.merging.searches import make_search
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.factored import FactoredSearch
from bagwise.merging.searches.given import factored_merges_of_equals, merges_of_equals
from bagwise.merging.searches.kernel import KernelSearch
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.statistics import Statistics
from bagwise.merging.stores import DenseStore, check_fits
from bagwise.merging.stores.choice import choose_store, make_factored_store
from bagwise.merging.structures import Structure

__all__ = ["AdditiveScore", "Criterion", "TraceRatio", "check_values_fit", "class_codes"]


class Criterion(BaseEstimator, ABC):
    """What makes one merge better than another.

    Criteria hold their parameters as scikit-learn estimators do, so that ``get_params``, ``clone`` and grid searches
    over ``criterion__n_neighbors`` work. Most belong to one of two families, `TraceRatio` and `AdditiveScore`.

    Attributes
    ----------
    name : str
        The short name users may write instead of the object.
    supervised : bool
        Whether labels are needed.
    takes_missing_labels : bool
        Whether some of them may be missing.
    sums_needed : tuple of str or None
        What `Statistics` must have beside class sums ("gram", "shares") to be enough; None: it needs the samples.
    """

    name: ClassVar[str] = ""
    supervised: ClassVar[bool] = True
    takes_missing_labels: ClassVar[bool] = False
    sums_needed: ClassVar[tuple[str, ...] | None] = None

    @abstractmethod
    def start(self, X: Any, y: NDArray[Any] | None, options: Options) -> Plan:
        """Set up merging.

        Parameters
        ----------
        X : dense float64 array or CSR array of shape (n_samples, n_words)
        y : ndarray of shape (n_samples,) or None
            Labels; never None where `supervised` is true.
        options : Options
        """

    def start_from_statistics(self, statistics: Statistics, options: Options) -> Plan:
        """Set up merging from sums over samples, which have what `sums_needed` says."""
        raise BagwiseError(
            f"The criterion {self.name!r} needs the samples themselves, in memory. Sums over samples, and so Dask "
            "collections, are enough for 'aib', 'csm' and 'mlt'."
        )


class TraceRatio(Criterion):
    """A criterion that maximises ``tr(Xᵀ L_P X) / tr(Xᵀ L_U X)`` for two structures over the samples.

    A subclass says which pairs of samples should be apart (preferred) and which together (undesired), as a pair
    of structures; merging does the rest.

    See Also
    --------
    bagwise.criteria.GraphPair : the same without a class, from two weight matrices.

    Examples
    --------
    Samples that follow each other should stay close, all others apart:

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

    def start(self, X: Any, y: NDArray[Any] | None, options: Options) -> Plan:
        """Form the statistics of the words that vary, and set up the search over them."""
        if options.search == "polar" and self.may_be_indefinite:
            raise BagwiseError(
                "search='polar' needs a preferred graph without negative eigenvalues; use search='bound'."
            )
        if options.kernel.name != "linear":
            return self._start_in_kernel_space(X, y, options)
        constant = constant_words(X)
        # before neighbours are looked for, which can take long
        kind = choose_store(
            options.store, X, X.shape[1] - len(constant[1:]), options.search, options.memory_limit
        )  # fmt: skip
        structures = self.structures(X, y, options.n_threads)
        self._check(structures, X.shape[0])
        samples = [structure.samples for structure in structures]
        if not any(some is None for some in samples):
            chosen: NDArray[np.intp] = np.unique(np.concatenate(samples))  # type: ignore[arg-type]
            constant = constant_words(X[chosen]) if len(chosen) else np.arange(X.shape[1])
        numbers = np.arange(X.shape[1])
        numbers[constant] = constant[:1]
        folded, words = fold(numbers)
        if len(constant):
            X = _keep_words(X, words, zero=int(np.searchsorted(words, constant[0])))
        search: Search
        if kind == "dense":
            store = DenseStore.from_structures(X, *structures, options.n_threads)
            search = merges_of_equals(store.A, store.B) or make_search(options.search, store, options.n_threads)
        else:
            factored = make_factored_store(kind, X, structures, options.memory_limit, options.n_threads)
            search = factored_merges_of_equals(factored, options.n_threads) or FactoredSearch(
                factored, options.n_threads, options.show_progress
            )
        return Plan(folded, words, search, kind)

    def _start_in_kernel_space(self, X: Any, y: NDArray[Any] | None, options: Options) -> Plan:
        """Set up merging with distances in the feature space of an additive kernel."""
        check_non_negative(X, f"kernel={options.kernel.name!r}", "Use kernel='linear', or counts.")
        if options.store not in ("auto", "dense"):
            raise BagwiseError(
                f"store={options.store!r} is for kernel='linear': in the space of another kernel the statistics are "
                "not sums. Use store='dense'."
            )
        # A word that is the same everywhere changes distances once it is added to another, unless it is zero.
        never = np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() == 0)
        numbers = np.arange(X.shape[1])
        numbers[never] = never[:1]
        folded, words = fold(numbers)
        check_fits(len(words), options.memory_limit, options.search)
        check_memory(
            4 * 8 * X.shape[0] * len(words),
            options.memory_limit,
            f"kernel={options.kernel.name!r} keeps the values of {len(words)} words in {X.shape[0]} samples",
            "use kernel='linear', or fewer samples",
        )
        structures = self.structures(X, y, options.n_threads)
        self._check(structures, X.shape[0])
        values = X.T[words].toarray() if sp.issparse(X) else X.T[words]  # words x samples: what is merged
        positive = values[values > 0]
        largest = float(np.asarray(X.sum(axis=1)).max())
        smallest = float(positive.min(initial=np.inf))
        traces = KernelTraces(options.kernel.name, smallest, largest, options.kernel.tolerance)
        search = KernelSearch(
            values,
            lambda rows: (traces.trace(structures[0], rows), traces.trace(structures[1], rows)),
            lambda store: make_search(options.search, store, options.n_threads),
        )
        return Plan(folded, words, search, "dense")

    def _check(self, structures: Any, n_samples: int) -> None:
        if (
            isinstance(structures, tuple)
            and len(structures) == 2
            and all(isinstance(structure, Structure) for structure in structures)
        ):
            for structure in structures:
                if structure.n_samples != n_samples:
                    raise BagwiseError(
                        f"{type(self).__name__}.structures must be over the {n_samples} samples of X; got a "
                        f"{type(structure).__name__} over {structure.n_samples}."
                    )
            return
        raise BagwiseError(
            f"{type(self).__name__}.structures must return a pair (preferred, undesired) of structures from "
            f"bagwise.merging.structures; got {structures!r}."
        )


class AdditiveScore(Criterion):
    """A criterion that maximises a sum over words, ``Σ_w g(state of w)``; merging adds states.

    A subclass says what the state of a word is and what it is worth, as a scoring; each word's best partner is
    remembered while it is there.

    Attributes
    ----------
    keeps_values : bool
        Whether states grow with the samples, so that their size is held against the memory limit.

    Examples
    --------
    A group is worth more the more its counts lean to one class:

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

    def start(self, X: Any, y: NDArray[Any] | None, options: Options) -> Plan:
        """Fold the words that can be merged at no cost, and set up the search over the others."""
        if self.keeps_values:
            check_values_fit(X, options.memory_limit, self.name)
        return self._plan(self.scoring(X, y), X.shape[1])

    def _plan(self, scoring: Scoring, n_words: int) -> Plan:
        """Plan a search over the words that are left after folding."""
        if not isinstance(scoring, Scoring) or len(scoring.states) != n_words:
            raise BagwiseError(
                f"{type(self).__name__}.scoring must return a scoring from bagwise.merging.scoring with one state for "
                f"each of the {n_words} words; got {scoring!r}."
            )
        if np.ndim(scoring.states) != 2 or not np.isfinite(scoring.states).all():
            found = " with NaN or infinity" if np.ndim(scoring.states) == 2 else ""
            raise BagwiseError(
                f"The states of {type(scoring).__name__} must be finite numbers, one row for each word; got an array "
                f"of shape {np.shape(scoring.states)}{found}."
            )
        numbers = np.asarray(scoring.ties())
        if numbers.shape != (n_words,):
            raise BagwiseError(
                f"{type(scoring).__name__}.ties must give one number for each of the {n_words} words; got shape "
                f"{numbers.shape}."
            )
        folded, words = fold(numbers)
        if len(folded):
            place = np.searchsorted(words, np.arange(n_words))
            place[folded[:, 1]] = np.searchsorted(words, folded[:, 0])
            joined = np.zeros((len(words), scoring.states.shape[1]))
            np.add.at(joined, place, scoring.states)
            scoring.states = joined
        return Plan(folded, words, PartnerSearch(scoring))


def class_codes(y: ArrayLike | None, who: str) -> NDArray[np.intp]:
    """Number the classes of y from 0; at least two are needed.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
    who : str
        Name of the criterion, for the message.
    """
    if y is None:
        raise BagwiseError(
            f"The criterion {who!r} is supervised: pass labels y, or use an unsupervised criterion such as 'lpp'."
        )
    labels = column_or_1d(np.asarray(y))
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise BagwiseError(
            f"The criterion {who!r} needs at least two classes in y; got only one class, {classes.tolist()[:1]}. "
            "Without classes to tell apart, use an unsupervised criterion such as 'lpp'."
        )
    return codes.astype(np.intp)


def check_values_fit(X: Any, memory_limit: int | float | str | None, who: str) -> None:
    """Raise where the values of all words in all samples, dense and copied once, would exceed the limit."""
    check_memory(
        2 * 8 * X.shape[0] * X.shape[1],
        memory_limit,
        f"The criterion {who!r} keeps the values of {X.shape[1]} words in {X.shape[0]} samples",
        "use a criterion that needs only sums over classes, such as 'aib'",
    )


def _keep_words(X: Any, words: NDArray[np.int64], zero: int) -> Any:
    """Select words; the constant one, at place `zero`, becomes 0 so that its statistics are exactly zero."""
    if sp.issparse(X):
        keep = np.ones(len(words))
        keep[zero] = 0.0
        return sp.csr_array(X[:, words] @ sp.diags_array(keep))
    X = np.ascontiguousarray(X[:, words])
    X[:, zero] = 0.0
    return X
