"""`merge_words` and `merge_statistics`: from data, or sums over samples, to a hierarchy."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from bagwise._utils.memory import Limit
from bagwise.errors import BagwiseError
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria.base import Criterion
from bagwise.merging.engine import Callback, Engine, check_request
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.statistics import Statistics

__all__ = ["merge_statistics", "merge_words"]


def merge_words(
    X: Any,
    y: ArrayLike | None = None,
    *,
    criterion: str | Criterion = "auto",
    kernel: str | AdditiveKernel = "linear",
    search: str = "bound",
    scaling: str | None = "auto",
    n_groups: int = 1,
    sample_weight: ArrayLike | None = None,
    callback: Callback | None = None,
    store: str = "auto",
    memory_limit: Limit = None,
    n_jobs: int | None = None,
    device: str | None = None,
    verbose: int = 0,
) -> Hierarchy:
    """Merge words level by level, at each level the pair that keeps the criterion highest.

    Merging two words adds their columns. For a trace ratio criterion with the matrices ``A = Xᵀ L_P X`` and
    ``B = Xᵀ L_U X`` of its two structures, merging s and t gives ``(tr A + 2 A_st) / (tr B + 2 B_st)``; every search
    finds the best pair exactly. The documentation of other criteria says what they maximise and what it costs.

    Parameters
    ----------
    X : array-like, sparse matrix or Dask array of shape (n_samples, n_words)
        Histograms or counts, one sample a row. Sparse data stay sparse. Dask arrays are supported by the criteria
        "csm", "aib", "clusters" and "mlt", and are summed chunk by chunk (`bagwise.distributed`). Arrays of CuPy, and
        tensors of PyTorch on a CUDA device, are used where they are.
    y : array-like of shape (n_samples,), default=None
        Labels, for supervised criteria.
    criterion : str or object from `bagwise.criteria`, default="auto"
        "auto" is "aib" with labels and "clusters" without; with a `kernel`, `search` or `store` that only trace ratios
        have, "csm" and "lpp". Trace ratios: "csm", "nda", "mfa", "lde", "lpp" (unsupervised), "semi_supervised" (-1: no
        label). Others: "aib", "classifier", "mlt", "gml", "uvd", "mme"; unsupervised: "clusters", "mmi", "linkage". Or
        an object.
    kernel : {"linear", "intersection", "hellinger", "chi2", "jensen_shannon"} or AdditiveKernel, default="linear"
        For trace ratios: distances are those of the data, or of the feature space of an additive kernel.
    search : {"bound", "polar", "exhaustive"}, default="bound"
        For trace ratios: "bound" is the fastest, "polar" is the papers' index, "exhaustive" evaluates all pairs.
        They give the same result. Other criteria have searches of their own.
    scaling : {"auto", "shift", "range"} or None, default="auto"
        For "aib", "clusters" and "mmi", which need counts or frequencies: "shift" takes columns as measurements and
        shifts each to a minimum of 0, "range" also divides it by its range, None leaves data as they are. "auto" finds
        out from the values, see Notes of `WordMerger`, and warns where it shifts negative ones. Sparse data with
        negative values are for "aib" only.
    n_groups : int, default=1
        Stop at this number of groups.
    sample_weight : array-like of shape (n_samples,), default=None
        Non-negative weights, for the criteria "csm", "aib", "classifier", "clusters" and "mlt". An integer weight k
        counts a sample k times.
    callback : callable, default=None
        Called as ``callback(level, (s, t), score)`` for every merge in order, `level` being the number of groups
        after it. Merging stops if it returns True.
    store : {"auto", "dense", "sparse"}, default="auto"
        How a trace ratio keeps A and B. "dense": two d x d matrices, the fastest. "sparse": the non-zeros of the data
        (all values of dense data of which more than a third are filled), from which rows are computed when needed: for
        100,000 words. "auto" takes "dense" if it fits `memory_limit`, else "sparse". Both merge the best pair at each
        level. They give the same hierarchy unless pairs are equally good up to rounding, as happens with small counts.
    memory_limit : int or str, default=None
    n_jobs : int, default=None
        Threads for finding neighbours, forming A and B and the first scan of all pairs. The result does not depend
        on it.
    device : {"cpu", "cuda"}, default=None
        Where to merge; None: where X is. "cuda" needs the extra `gpu` and is for trace ratios with ``kernel="linear"``,
        ``search="bound"`` and A and B in the memory of the device, and for "aib", "clusters" and "mmi". The merges are
        those of the CPU, unless pairs are equally good up to rounding. Neighbours are found on the CPU.
    verbose : int, default=0

    Returns
    -------
    hierarchy : Hierarchy

    Raises
    ------
    MergingInterrupted
        On Ctrl-C; a ``KeyboardInterrupt`` whose ``hierarchy`` has the merges done so far.

    Notes
    -----
    Ties: equally good pairs are merged in the order of their indices, the lowest s, then the lowest t, where a group is
    named by its smallest word. Words with the same value in all samples do not change distances. Trace ratios
    merge them into one first, so that they do not take up groups of a small cut. Where merging has made all words
    constant (at one group, for histograms that sum to 1) the score is NaN.

    Time is O(d²) after A and B are formed, memory two d x d matrices or less, see `store`. The first call in a process
    loads or compiles machine code; `bagwise.warmup` does that ahead of time.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> hierarchy = merge_words(X, ["cat", "cat", "dog", "dog"])
    >>> hierarchy
    <Hierarchy: 4 words merged into 1 group by aib>
    >>> hierarchy.cut(2)
    array([0, 0, 1, 1])
    """
    check_request(n_groups, callback)
    engine = Engine(
        criterion,
        has_labels=y is not None,
        kernel=kernel,
        search=search,
        scaling=scaling,
        store=store,
        memory_limit=memory_limit,
        n_jobs=n_jobs,
        device=device,
        verbose=verbose,
    )
    return engine.load(X, y, sample_weight).run(n_groups, callback)


def merge_statistics(
    statistics: Statistics,
    *,
    criterion: str | Criterion = "auto",
    search: str = "bound",
    scaling: str | None = "auto",
    n_groups: int = 1,
    callback: Callback | None = None,
    memory_limit: Limit = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Hierarchy:
    """Merge words level by level, as `merge_words` does, from sums over samples instead of the samples.

    Parameters
    ----------
    statistics : Statistics
        Of all samples: of the whole, or the sum of those of its chunks.
    criterion : {"auto", "csm", "aib", "clusters", "mlt"} or object from `bagwise.criteria`, default="auto"
        "auto" is "aib". For "clusters" the classes are clusters, of one clustering or several. "csm" needs statistics
        with ``gram=True``; "mlt" with ``frequencies=True``, unless all values are integers.
    search, scaling, n_groups, callback, n_jobs, verbose
        As in `merge_words`.
    memory_limit : int or str, default=None
        Memory budget for the two d x d matrices of "csm", in bytes or as "2GB". None: 80 % of the free memory.
        A sparse Gram matrix is made dense if they fit; the statistics themselves are not counted.

    Returns
    -------
    hierarchy : Hierarchy
        For integer data, the same to the last bit as that of `merge_words` on the samples. Other data agree up to
        rounding, so that equally good pairs may come in another order.

    See Also
    --------
    Statistics : The sums.
    bagwise.distributed.statistics : Computes them over Dask collections.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.merging import Statistics, merge_statistics
    >>> X, codes = np.array([[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]), np.array([0, 0, 1, 1])
    >>> chunks = [Statistics.of(X[rows], codes[rows], 2) for rows in (slice(0, 1), slice(1, 4))]
    >>> merge_statistics(chunks[0] + chunks[1], n_groups=2)
    <Hierarchy: 4 words merged into 2 groups by aib>
    """
    if not isinstance(statistics, Statistics):
        raise BagwiseError(
            f"merge_statistics takes Statistics, got {type(statistics).__name__}. For samples use merge_words; call "
            ".compute() first on a lazy result of bagwise.distributed."
        )
    check_request(n_groups, callback)
    engine = Engine(
        criterion, search=search, scaling=scaling, memory_limit=memory_limit, n_jobs=n_jobs, verbose=verbose
    )
    return engine.load(statistics).run(n_groups, callback)
