"""Weights of words and normalisation of histograms: term functions, word weights, L1, L2, and powers, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError, unknown_name

__all__ = [
    "NORMS",
    "STEPS",
    "TERMS",
    "WordWeighting",
    "inverse_document_frequencies",
    "normalize_rows",
    "resolve_steps",
]

STEPS = ("l1", "power", "l2")
TERMS = ("count", "log", "sqrt")
NORMS = (None, "l1", "l2")
_BLOCK = 1 << 15  # values processed at a time, so that temporary arrays stay in the cache


def resolve_steps(steps: Any) -> tuple[str, ...]:
    """Turn the name of a step, a sequence of names, or None into a tuple of names."""
    names = () if steps is None else (steps,) if isinstance(steps, str) else steps
    if not isinstance(names, (Sequence, np.ndarray)):
        raise BagwiseError(f"steps must be a name or a list of names out of {', '.join(STEPS)}; got {steps!r}.")
    for step in names:
        if step not in STEPS:
            raise unknown_name("step", step, STEPS)
    return tuple(names)


def normalize_rows(X: Any, steps: Any = ("l1", "power"), power: float = 0.5) -> Any:
    """Apply normalisation steps to each row of a copy of X, a float matrix, dense or CSR.

    Steps are applied in this order: "l1" and "l2" divide a row by its norm, "power" is ``sign(x) |x|^power``. Rows of
    zeros stay zero.
    """
    result = _tidy(X).copy()
    if hasattr(result, "indptr"):
        values, starts = result.data, result.indptr.astype(np.int64, copy=False)
    else:
        values, starts = result.reshape(-1), result.shape[1] * np.arange(result.shape[0] + 1)  # copies are in C order
    names = resolve_steps(steps)
    for low, high in _blocks(starts):
        begin, end = starts[low], starts[high]
        _normalize_block(names, power, values[begin:end], starts[low : high + 1] - begin)
    return result


@dataclass(frozen=True, eq=False)
class WordWeighting:
    """What is done to histograms over the full vocabulary before the words of each group are summed.

    1. Values are shifted: each column of measurements to a minimum of 0. Counts are not.
    2. The term function: "count" leaves x as it is, "sqrt" takes its square root, "log" takes 1 + log x above 1 and
       leaves x below (sublinear counts). All are odd functions.
    3. Each word is multiplied by its weight.
    4. Each row is divided by its norm over all words; with several vocabularies, by that of each over its own words.

    Sublinear TF-IDF has the term "log", inverse document frequencies as weights and the norm "l2". The term "sqrt" with
    the norm "l2" is Hellinger normalisation before merging.

    Parameters
    ----------
    term : {"count", "log", "sqrt"}, default="count"
    weights : ndarray of shape (n_words,), default=None
        None: 1 for all words.
    norm : {"l1", "l2"}, default=None
    vocabularies : tuple of int, default=()
        Numbers of words of several vocabularies side by side; () for one.
    shift : ndarray of shape (n_words,), default=None
        What is subtracted from each column. Sparse data become dense, unless all of it is zero.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.codebooks.normalizing import WordWeighting
    >>> WordWeighting("sqrt", np.array([1.0, 2.0, 1.0]), "l2").apply(np.array([[4.0, 1.0, 1.0]])) ** 2
    array([[0.44444444, 0.44444444, 0.11111111]])
    """

    term: str = "count"
    weights: NDArray[np.float64] | None = None
    norm: str | None = None
    vocabularies: tuple[int, ...] = ()
    shift: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.term not in TERMS:
            raise unknown_name("term", self.term, TERMS)
        if self.norm not in NORMS:
            raise unknown_name("norm", self.norm, NORMS[1:])

    @property
    def is_identity(self) -> bool:
        """Whether histograms stay as they are."""
        return self.term == "count" and self.weights is None and self.norm is None and self.shift is None

    def apply(self, X: Any) -> Any:
        """Return weighted histograms in float64, dense or CSR as X, which has all words once for each cell."""
        if self.is_identity:
            return X
        result = _tidy(X).astype(np.float64)  # a copy
        if self.shift is not None and self.shift.any():
            result = (result.toarray() if hasattr(result, "indptr") else result) - _tiled(self.shift, X)
        values = result.data if hasattr(result, "indptr") else result
        if self.term == "sqrt":
            values[...] = np.copysign(np.sqrt(np.abs(values)), values)
        elif self.term == "log":
            sizes = np.abs(values)
            values[...] = np.where(sizes > 1, np.copysign(1 + np.log(np.maximum(sizes, 1)), values), values)
        if self.weights is not None:
            weights = _tiled(self.weights, X)
            values *= weights[result.indices] if hasattr(result, "indptr") else weights
        if self.norm is None:
            return result
        return _normalize_each(result, self.norm, _tiled(_numbered(self.vocabularies), X))


def _tiled(of_words: NDArray[Any], X: Any) -> NDArray[Any]:
    """Repeat numbers of words for each cell that a matrix has columns of."""
    return np.tile(of_words, X.shape[1] // max(len(of_words), 1))


def _tidy(X: Any) -> Any:
    """Give a sparse matrix with each entry stored once: functions of the sum of two parts are not sums of functions."""
    if not hasattr(X, "indptr"):
        return X
    # deferred: SciPy, which whoever has a sparse matrix has imported
    from bagwise._utils.matrices import as_format, canonical

    return canonical(as_format(X, X.format))


def _numbered(sizes: Sequence[int]) -> NDArray[np.intp]:
    """Return the vocabulary of each word."""
    return np.repeat(np.arange(len(sizes)), sizes)


def _normalize_each(X: Any, norm: str, part_of: NDArray[np.intp]) -> Any:
    """Divide each part of a row by its own norm, in place; `part_of` has the part of each column, or is empty."""
    n_parts = part_of.max(initial=0) + 1
    if n_parts == 1:
        return normalize_rows(X, norm)
    for part in range(n_parts):
        if not hasattr(X, "indptr"):
            X[:, part_of == part] = normalize_rows(X[:, part_of == part], norm)
            continue
        inside = part_of[X.indices] == part
        starts = np.concatenate([[0], np.cumsum(inside)])[X.indptr]
        X.data[inside] = normalize_rows(type(X)((X.data[inside], X.indices[inside], starts), shape=X.shape), norm).data
    return X


def inverse_document_frequencies(X: Any, sample_weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return ``1 + log((1 + n) / (1 + n_w))`` for each word, which n_w of n rows have: scikit-learn's smooth idf.

    Rows count by `sample_weight`, if given.

    >>> import numpy as np
    >>> inverse_document_frequencies(np.array([[1, 0], [2, 3], [1, 0]])).round(3)
    array([1.   , 1.693])
    """
    n, d = X.shape
    if sample_weight is not None:
        n = sample_weight.sum()
        rows = np.asarray(sample_weight @ (X != 0)).ravel()
    elif hasattr(X, "indptr"):
        rows = np.bincount(X.indices[X.data != 0], minlength=d)
    else:
        rows = np.count_nonzero(X, axis=0)
    return 1.0 + np.log((1.0 + n) / (1.0 + rows))


def _blocks(starts: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most `_BLOCK` values, or a single row with more."""
    low, n = 0, len(starts) - 1
    while low < n:
        high = max(int(np.searchsorted(starts, starts[low] + _BLOCK, side="right")) - 1, low + 1)
        yield low, high
        low = high


def _normalize_block(names: Sequence[str], power: float, values: NDArray[Any], starts: NDArray[Any]) -> None:
    """Normalise rows in place: row i is ``values[starts[i] : starts[i + 1]]``. Norms are computed in float64."""
    lengths = np.diff(starts)
    filled = lengths > 0
    if not filled.any():
        return
    firsts, lengths = starts[:-1][filled], lengths[filled]
    for name in names:
        if name == "power":
            sizes = np.abs(values)
            powers = np.sqrt(sizes) if power == 0.5 else sizes ** values.dtype.type(power)
            np.copysign(powers, values, out=values)
            continue
        # Divide by the largest value first: neither squares nor the norm itself can overflow or vanish.
        largest = np.maximum.reduceat(np.abs(values), firsts)
        scaled = values / np.repeat(np.where(largest > 0, largest, 1).astype(np.float64), lengths)
        if name == "l1":
            norms = np.add.reduceat(np.abs(scaled), firsts)
        else:
            norms = np.sqrt(np.add.reduceat(np.square(scaled), firsts))
        np.divide(scaled, np.repeat(np.where(largest > 0, norms, 1.0), lengths), out=values, casting="same_kind")
