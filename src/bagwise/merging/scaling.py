"""What is done to columns before the words of a group are summed: measurements to a common scale, weights of words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import device_module, to_device, to_host
from bagwise._utils.matrices import canonical, class_sums, count_unit, extremes, is_whole
from bagwise._utils.validation import as_floats
from bagwise.codebooks.normalizing import inverse_document_frequencies
from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.criteria.base import class_codes
from bagwise.merging.statistics import Statistics, summary_of_rows

__all__ = ["SCALINGS", "WORD_WEIGHTS", "Scaling", "find_scaling", "resolve_word_weights"]

SCALINGS = ("auto", "shift", "range")
WORD_WEIGHTS = ("idf", "log_odds")
# Ranges differ where the largest is more than this many times the median.
_FACTOR = 100.0
# Columns are far from zero where half of those that vary have a minimum above this fraction of their range.
_OFFSET = 0.25
# Ranges and minima of fewer samples say little about data that are not negative.
_SAMPLES = 20
# Sums of rows are the same up to this part of them.
_SAME_SUM = 1e-5


class Scaling(NamedTuple):
    """Columns of measurements become ``(x - shift) * scale``, from 0 to their range or to 1."""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64] | None = None  # None: 1 for all columns

    def __str__(self) -> str:
        divided = "" if self.scale is None else ", and divided by its range"
        return f"columns are measurements, each shifted to a minimum of 0{divided}"

    def apply(self, X: Any) -> Any:
        """Return scaled columns of a dense matrix, where that lives, or of a CSR array without negative values."""
        if sp.issparse(X):  # a column whose minimum is above 0 has no zeros
            values = X.data - self.shift[X.indices]
            values *= 1.0 if self.scale is None else self.scale[X.indices]
            return canonical(sp.csr_array((values, X.indices, X.indptr), shape=X.shape))
        xp = device_module(None, X)
        shifted = X - to_device(self.shift, xp)
        return shifted if self.scale is None else shifted * to_device(self.scale, xp)

    def apply_to_sums(self, statistics: Statistics, sizes: NDArray[np.float64] | None = None) -> Statistics:
        """Return what the statistics of class sums of scaled samples would be, without products of words.

        `sizes` are the sums of the weights of samples in each class, where samples have weights.
        """
        scale = np.ones_like(self.shift) if self.scale is None else self.scale
        counted = statistics.class_sizes if sizes is None else sizes
        sums = (statistics.class_sums - counted[:, np.newaxis] * self.shift) * scale
        smallest, largest = ((values - self.shift) * scale for values in (statistics.smallest, statistics.largest))
        return replace(
            statistics,
            class_sums=np.maximum(sums, 0.0),
            smallest=smallest,
            largest=largest,
            whole=np.zeros_like(statistics.whole),
            gram=None,
            deviations=None,
            frequencies=None,
            unit=0.0,  # measurements have none: no smoothing
        )


def find_scaling(X: Any, how: str | None = "auto", sample_weight: NDArray[np.float64] | None = None) -> Scaling | None:
    """Find how to bring measurements to a common scale; None for counts and frequencies, which stay as they are.

    Data are measurements if they have negative values, or if at least 20 samples have fractions, rows that do not all
    have the same sum, and columns that are far from zero or whose ranges differ by more than a factor of 100. They are
    counts that were divided by numbers, such as those of annotators or the sizes of samples, if half of the rows are
    multiples of their smallest positive value, which is not a power of ten. Columns of measurements are shifted to a
    minimum of 0, and divided by their ranges if the largest range is more than 100 times the median. Dense and sparse
    data with the same numbers are scaled alike.

    Parameters
    ----------
    X : ndarray, array on a device, CSR array or Statistics
    how : {"auto", "shift", "range"} or None, default="auto"
        "shift" and "range" take all data as measurements: the former shifts columns, the latter also divides them by
        their ranges. None: all data stay as they are.
    sample_weight : ndarray of shape (n_samples,), default=None
        Whole numbers count samples so many times; others as samples.

    Examples
    --------
    >>> import numpy as np
    >>> find_scaling(np.array([[-1.0, 2.0], [0.5, 4.0]]))
    Scaling(shift=array([-1.,  2.]), scale=None)
    >>> find_scaling(np.array([[3, 0], [1, 4]])) is None
    True
    """
    if how is None or X.shape[0] == 0:
        return None
    guessed = how == "auto" and _smallest(X) >= 0
    if guessed and _holds_counts(X, sample_weight):
        return None
    low, high = (X.smallest, X.largest) if isinstance(X, Statistics) else extremes(X)
    ranges = high - low
    varies = ranges > 0
    differ = bool(varies.any() and ranges.max() > _FACTOR * np.median(ranges[varies]))
    if guessed and not differ and not (varies.any() and np.median(low[varies] - _OFFSET * ranges[varies]) > 0):
        return None
    if not np.isfinite(ranges).all():
        raise BagwiseError("The ranges of the columns of X cannot be represented; scale X, for example by its maximum.")
    with np.errstate(divide="ignore"):
        divided = differ if how == "auto" else how == "range"
        return Scaling(low, np.where(varies, 1 / ranges, 0.0) if divided else None)


def _holds_counts(X: Any, sample_weight: NDArray[np.float64] | None) -> bool:
    """Whether samples without negative values are few, whole numbers, frequencies, or counts that were divided."""
    is_sum = isinstance(X, Statistics)
    if X.whole.all() if is_sum else is_whole(X):
        return True
    copies = sample_weight.astype(np.int64) if sample_weight is not None and is_whole(sample_weight) else None
    if (X.shape[0] if copies is None else copies.sum()) < _SAMPLES:
        return True
    row_sums, row_counts = (X.row_sums, X.row_counts) if is_sum else summary_of_rows(to_host(X), copies)
    equal_sums = bool(np.ptp(row_sums) <= _SAME_SUM * row_sums.max()) if np.isfinite(row_sums).all() else False
    n_several, n_multiples = row_counts.tolist()
    return equal_sums or (n_multiples > 0 and 2 * n_multiples >= n_several)


def _smallest(X: Any) -> float:
    """The smallest value; 0 if all are positive."""
    values = X.smallest if isinstance(X, Statistics) else X.data if sp.issparse(X) else X
    return min(float(values.min()), 0.0) if values.size else 0.0


def resolve_word_weights(
    word_weights: Any, X: Any, y: Any, sample_weight: NDArray[np.float64] | None, n_words: int
) -> NDArray[np.float64] | None:
    """Turn the parameter `word_weights` into one number per word, computed from X, or check those given."""
    if word_weights is None:
        return None
    if isinstance(word_weights, str):
        if word_weights not in WORD_WEIGHTS:
            raise unknown_name("word_weights", word_weights, WORD_WEIGHTS, "None, or one number per word")
        if word_weights == "idf":
            return inverse_document_frequencies(X)
        return log_odds(X, y, sample_weight)
    weights = as_floats(word_weights, "word_weights")
    if weights.shape != (n_words,) or not np.isfinite(weights).all() or weights.min(initial=0.0) < 0:
        raise BagwiseError(
            f"word_weights must be 'idf', 'log_odds', or one finite, non-negative number for each of the {n_words} "
            f"words; got {np.array2string(weights, threshold=6)} of shape {weights.shape}."
        )
    return weights


def log_odds(X: Any, y: Any, sample_weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return how much more probable each word is in one class than in the others: the largest absolute log odds.

    With the counts N_wc of word w in class c, one occurrence added to each, the log odds of class c are
    ``log(p(w|c) / p(w|other classes))``.

    >>> import numpy as np
    >>> log_odds(np.array([[3.0, 1, 0], [0, 1, 3]]), ["a", "b"]).round(2)
    array([1.39, 0.  , 1.39])
    """
    values = X.data if sp.issparse(X) else X
    if values.size and values.min() < 0:
        raise BagwiseError(
            f"word_weights='log_odds' needs counts, but the smallest value of X is {values.min():g}. Use numbers."
        )
    unit = count_unit(X)
    if y is None:
        raise BagwiseError("word_weights='log_odds' needs labels, but the target y is None. Pass y, or use 'idf'.")
    counts = class_sums(X, class_codes(y, "log_odds"), weights=sample_weight) + (unit if np.isfinite(unit) else 1.0)
    others = counts.sum(axis=0) - counts
    odds = np.log(counts / counts.sum(axis=1, keepdims=True)) - np.log(others / others.sum(axis=1, keepdims=True))
    return np.abs(odds).max(axis=0)
