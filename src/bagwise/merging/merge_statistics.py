"""`merge_statistics`: from sums over samples to a hierarchy."""

from __future__ import annotations

import numpy as np
from joblib import effective_n_jobs

from bagwise.errors import BagwiseError
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.criteria.base import Criterion
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.merge import Callback, carry_out_plan, check_largest, check_request
from bagwise.merging.plans import Options
from bagwise.merging.searches import check_search
from bagwise.merging.statistics import Statistics

__all__ = ["merge_statistics"]


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
    >>> from bagwise import Statistics, merge_statistics
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
