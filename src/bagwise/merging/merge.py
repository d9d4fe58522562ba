"""`merge_words`: from data to a hierarchy, whatever the criterion and the search."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length

from bagwise._utils.matrices import is_lazy
from bagwise._utils.progress import ProgressBar
from bagwise.errors import BagwiseError
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.criteria.base import Criterion, TraceRatio
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.plans import Options, Plan
from bagwise.merging.searches import check_search
from bagwise.merging.statistics import Statistics
from bagwise.merging.stores.choice import check_store

__all__ = ["Merging", "MergingInterrupted", "merge_statistics", "merge_words"]


Callback = Callable[[int, tuple[int, int], float], Any]
# Compiled code runs for about this long before progress, callbacks and Ctrl-C are looked at.
_CHUNK_SECONDS = 0.05
# Squares of values up to this size, and of their inverses, are far from overflow.
_LARGEST = 1e100


class MergingInterrupted(KeyboardInterrupt):
    """Raised when merging is interrupted (Ctrl-C); a ``KeyboardInterrupt`` that keeps what was merged.

    Attributes
    ----------
    hierarchy : Hierarchy
        The merges done so far.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__("merging was interrupted; the merges done so far are in this exception's .hierarchy")
        self.hierarchy = hierarchy


def merge_words(
    X: Any,
    y: ArrayLike | None = None,
    *,
    criterion: str | Criterion = "csm",
    kernel: str | AdditiveKernel = "linear",
    search: str = "bound",
    n_words: int = 1,
    callback: Callback | None = None,
    store: str = "auto",
    memory_limit: int | float | str | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Hierarchy:
    """Merge words level by level, at each level the pair that keeps the criterion highest.

    Merging two words adds their columns. For a criterion that is a ratio of distances, with statistics
    ``A = Xᵀ L_P X`` and ``B = Xᵀ L_U X`` of its two structures, merging s and t gives
    ``(tr A + 2 A_st) / (tr B + 2 B_st)``; the best pair is found exactly, by any of the searches. Other criteria
    say in their own documentation what they maximise and what it costs.

    Parameters
    ----------
    X : array-like, sparse matrix or Dask array of shape (n_samples, n_words)
        Histograms or counts, one sample a row. Sparse data stay sparse. Dask arrays, for the criteria "csm", "aib"
        and "mlt", are added up chunk by chunk (`bagwise.distributed`).
    y : array-like of shape (n_samples,), default=None
        Labels, for supervised criteria.
    criterion : str or object from `bagwise.criteria`, default="csm"
        Ratios of distances: "csm", "nda", "mfa", "lde", "lpp" (no labels needed), "semi_supervised" (-1: no label).
        Others: "aib", "mlt", "gml", "uvd", "mme"; without labels "mmi", "linkage". Or an object.
    kernel : {"linear", "intersection", "hellinger", "chi2", "jensen_shannon"} or AdditiveKernel, default="linear"
        The space in which distances are taken: that of the data, or the feature space of an additive kernel. For
        criteria that are ratios of distances.
    search : {"bound", "polar", "exhaustive"}, default="bound"
        For ratios of distances: "bound" is fastest; "polar" is the papers' index; "exhaustive" evaluates all pairs.
        Same result. The other criteria have searches of their own.
    n_words : int, default=1
        Stop when this many words are left.
    callback : callable, default=None
        Called as ``callback(level, (s, t), score)`` for every merge in order, `level` being the number of words left
        after it. Merging stops there if it returns True.
    store : {"auto", "dense", "factored", "sparse"}, default="auto"
        Where the statistics of a criterion that is a ratio of distances are kept. "dense": two d x d matrices, the
        fastest. "factored": the values of all words in all samples, from which rows are computed when needed. "sparse":
        the same for data that are mostly zeros, in memory of the order of the non-zeros: for 100,000 words. "auto"
        takes "dense" if it fits `memory_limit`, else "sparse" or "factored" by how many zeros there are. All merge the
        best pair at each level, and give the same hierarchy where it is the only best one. Pairs that are equally good
        but for rounding, as small counts have them, may be told apart differently; what follows can differ then.
    memory_limit : int or str, default=None
        Most memory that what is kept for merging may take, in bytes or as "2GB". None: 80 % of the free memory.
    n_jobs : int, default=None
        Threads for finding neighbours, forming the statistics and the first look at all pairs. The
        result does not depend on it.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    hierarchy : Hierarchy

    Raises
    ------
    MergingInterrupted
        On Ctrl-C; a ``KeyboardInterrupt`` whose ``hierarchy`` has the merges done so far.

    Notes
    -----
    Words that are the same in all samples change no distance. Where distances are what counts, they are merged into
    one first, so that they do not take up groups of a small cut; the criterion stays what it is. Equally good pairs are
    merged in the order of their indices. Where merging has made all words constant (at one word, for histograms that
    sum to 1) the score is NaN.

    Time is O(d²) after A and B are formed, memory two d x d matrices or less, see `store`. The first call in a process
    loads or compiles machine code; `bagwise.warmup` does that ahead of time.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> hierarchy = merge_words(X, ["cat", "cat", "dog", "dog"])
    >>> hierarchy
    <Hierarchy: 4 words merged to 1 by csm>
    >>> hierarchy.cut(2)
    array([0, 0, 1, 1])
    """
    check_request(n_words, callback)
    how: dict[str, Any] = {
        "criterion": criterion,
        "kernel": kernel,
        "search": search,
        "store": store,
        "memory_limit": memory_limit,
        "n_jobs": n_jobs,
        "verbose": verbose,
    }
    if is_lazy(X):
        from bagwise.distributed.sums import merge_collection  # a step up the house, taken only with Dask data

        return merge_collection(X, y, n_words=n_words, callback=callback, **how)
    return Merging(X, y, **how).carry_out(int(n_words), callback)


class Merging:
    """`merge_words` in two steps, with the parameters it has: check the data, then merge.

    Attributes
    ----------
    store : str or None
        Where the statistics are kept; known once it is carried out. None for criteria that have no choice.
    """

    def __init__(
        self,
        X: Any,
        y: ArrayLike | None,
        *,
        criterion: str | Criterion,
        kernel: str | AdditiveKernel,
        search: str,
        store: str,
        memory_limit: int | float | str | None,
        n_jobs: int | None,
        verbose: int,
    ) -> None:
        self._criterion = resolve_criterion(criterion)
        check_search(search)
        check_store(store, search)
        space = kernel if isinstance(kernel, AdditiveKernel) else AdditiveKernel(kernel)
        if not isinstance(self._criterion, TraceRatio):
            for name, value, usual in (("kernel", space.name, "linear"), ("store", store, "auto")):
                if value != usual:
                    raise BagwiseError(
                        f"{name}={value!r} is for criteria that are ratios of distances, and "
                        f"{self._criterion.name!r} is none. Use {name}={usual!r}."
                    )
        self._X, self._labels = _check_data(X, y)
        if self._criterion.supervised and self._labels is None:
            raise BagwiseError(
                f"The criterion {self._criterion.name!r} requires y to be passed, but the target y is None. Pass "
                "labels, or use an unsupervised criterion such as 'lpp'."
            )
        self._options = Options(space, search, effective_n_jobs(n_jobs), memory_limit, store, verbose > 0)
        self.store: str | None = None

    def carry_out(self, n_words: int = 1, callback: Callback | None = None) -> Hierarchy:
        """Merge down to `n_words`."""
        d, name = self._X.shape[1], self._criterion.name
        if n_words >= d:
            return Hierarchy(d, np.empty((0, 2), dtype=np.int64), np.empty(0), name)
        plan = self._criterion.start(self._X, self._labels, self._options)
        if not isinstance(plan, Plan) or len(plan.folded) + len(plan.words) != d:
            raise BagwiseError(
                f"{type(self._criterion).__name__}.start must return a Plan for all {d} words; got {plan!r}."
            )
        self.store = plan.store
        return carry_out_plan(plan, name, d, n_words, callback, self._options.show_progress)


def check_request(n_words: Any, callback: Any) -> None:
    """Raise where it is not a number of words that is asked for, or not a function that is to be called."""
    if isinstance(n_words, bool) or not isinstance(n_words, Integral) or n_words < 1:
        raise BagwiseError(f"n_words must be an integer of at least 1, got {n_words!r}.")
    if callback is not None and not callable(callback):
        raise BagwiseError(f"callback must be callable, got {callback!r}.")


def check_largest(largest: float) -> None:
    """Raise where products of values up to this size overflow or vanish."""
    if largest > _LARGEST or 0 < largest < 1 / _LARGEST:
        raise BagwiseError(
            f"The largest value of X is {largest:g} in size; products of such values cannot be represented. Scale X, "
            "for example by dividing it by its largest value; ratios of distances do not depend on the scale."
        )


def _check_data(X: Any, y: ArrayLike | None) -> tuple[Any, NDArray[Any] | None]:
    X = check_array(X, accept_sparse="csr", dtype=np.float64, order="C", ensure_min_samples=2)
    if sp.issparse(X):
        X = sp.csr_array(X)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    values = X.data if sp.issparse(X) else X
    check_largest(max(abs(float(values.max(initial=0.0))), abs(float(values.min(initial=0.0)))))
    if y is None:
        return X, None
    if sp.issparse(y):
        raise BagwiseError("y must be an array of labels, one per sample; got a sparse matrix.")
    labels = np.asarray(y)
    if labels.ndim > 1:
        labels = labels.reshape(-1) if labels.size == len(labels) else labels
    if labels.ndim != 1:
        raise BagwiseError(f"y must have one label per sample, shape ({X.shape[0]},); got shape {labels.shape}.")
    check_consistent_length(X, labels)
    return X, labels


def carry_out_plan(
    plan: Plan, name: str, n_words: int, target: int, callback: Callback | None, show_progress: bool
) -> Hierarchy:
    """Merge in chunks, between which progress is shown, callbacks are made and interrupts are heeded."""
    n_merges = n_words - target
    merges = np.empty((n_merges, 2), dtype=np.int64)
    scores = np.empty(n_merges)
    done = min(len(plan.folded), n_merges)
    merges[:done] = plan.folded[:done]
    scores[:done] = plan.search.start_score
    told = 0
    chunk = 16
    with ProgressBar("merging words", n_merges, enabled=show_progress) as bar:
        try:
            while True:
                while callback is not None and told < done:
                    s, t = merges[told].tolist()
                    told += 1
                    answer = callback(n_words - told, (s, t), float(scores[told - 1]))
                    if isinstance(answer, (bool, np.bool_)) and answer:
                        return Hierarchy(n_words, merges[:told], scores[:told], name)
                bar.update(done)
                if done == n_merges:
                    return Hierarchy(n_words, merges, scores, name)
                stop = min(done + chunk, n_merges)
                started = time.perf_counter()
                plan.search.advance(merges[done:stop], scores[done:stop])
                merges[done:stop] = plan.words[merges[done:stop]]
                done = stop
                if time.perf_counter() - started < _CHUNK_SECONDS:
                    chunk *= 2
                else:
                    chunk = max(chunk // 2, 1)
        except KeyboardInterrupt as interrupt:
            raise MergingInterrupted(Hierarchy(n_words, merges[:done], scores[:done], name)) from interrupt


def merge_statistics(
    statistics: Statistics,
    *,
    criterion: str | Criterion = "csm",
    search: str = "bound",
    n_words: int = 1,
    callback: Callback | None = None,
    memory_limit: int | float | str | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Hierarchy:
    """Merge words level by level, as `merge_words` does, from sums over samples instead of the samples.

    Parameters
    ----------
    statistics : Statistics
        Of all samples: of the whole, or of its chunks, added up.
    criterion : {"csm", "aib", "mlt"} or object from `bagwise.criteria`, default="csm"
        "csm" needs statistics with ``gram=True``; "mlt" with ``shares=True``, if not all values are whole numbers.
    search : {"bound", "polar", "exhaustive"}, default="bound"
        For "csm".
    n_words : int, default=1
        Stop when this many words are left.
    callback : callable, default=None
        Called as ``callback(level, (s, t), score)`` for every merge; merging stops if it returns True.
    memory_limit : int or str, default=None
        Most memory that the two d x d matrices of "csm" may take, in bytes or as "2GB". None: 80 % of the free memory.
        A sparse Gram is made dense if they fit; the statistics themselves are not counted.
    n_jobs : int, default=None
        Threads for forming the two matrices and the first look at all pairs.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    hierarchy : Hierarchy
        For whole numbers, the same to the last bit as that of `merge_words` on the samples. Other data agree up to
        rounding, so that pairs which are equally good may come in another order.

    Raises
    ------
    MergingInterrupted
        On Ctrl-C; a ``KeyboardInterrupt`` whose ``hierarchy`` has the merges done so far.

    See Also
    --------
    Statistics : What is added up.
    bagwise.distributed.statistics : Adds it up over Dask collections.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.merging import Statistics, merge_statistics
    >>> X, codes = np.array([[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]), np.array([0, 0, 1, 1])
    >>> chunks = [Statistics.of(X[rows], codes[rows], 2) for rows in (slice(0, 1), slice(1, 4))]
    >>> merge_statistics(chunks[0] + chunks[1], n_words=2)
    <Hierarchy: 4 words merged to 2 by csm>
    """
    if not isinstance(statistics, Statistics):
        raise BagwiseError(
            f"merge_statistics takes Statistics, got {type(statistics).__name__}. For samples use merge_words; a "
            "lazy result of bagwise.distributed is computed first, by .compute()."
        )
    chosen = resolve_criterion(criterion)
    check_search(search)
    check_request(n_words, callback)
    if statistics.n_samples < 2:
        raise BagwiseError(f"Merging needs at least 2 samples; the statistics are of {statistics.n_samples}.")
    check_largest(float(max(np.abs(statistics.largest).max(), np.abs(statistics.smallest).max())))
    statistics = statistics.without_empty_classes()
    if len(statistics.classes) < 2:
        raise BagwiseError(
            f"The criterion {chosen.name!r} needs at least two classes in y; got only one class, "
            f"{statistics.classes.tolist()}."
        )
    options = Options(
        search=search, n_threads=effective_n_jobs(n_jobs), memory_limit=memory_limit, show_progress=verbose > 0
    )
    if n_words >= statistics.n_words:
        return Hierarchy(statistics.n_words, np.empty((0, 2), dtype=np.int64), np.empty(0), chosen.name)
    plan = chosen.start_from_statistics(statistics, options)
    return carry_out_plan(plan, chosen.name, statistics.n_words, int(n_words), callback, options.show_progress)
