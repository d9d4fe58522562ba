"""Properties of data matrices (samples x words), dense or sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import device_module, is_on_device, to_host
from bagwise.errors import BagwiseError


def is_lazy(X: Any) -> bool:
    """Whether X is a Dask collection, or a list with one. Does not import Dask."""
    if isinstance(X, (list, tuple)):
        # only the first entry of lists of numbers, or of lists of them, is looked at
        return len(X) > 0 and (is_lazy(X[0]) or (hasattr(X[0], "shape") and any(is_lazy(part) for part in X)))
    return hasattr(X, "__dask_graph__")


def as_format(X: Any, form: str, name: str = "X") -> Any:
    """Convert a sparse matrix to the format "csr" or "csc", which is X itself where it has it.

    An error is raised for CSR and CSC matrices whose lists do not fit together, which compiled code would follow.
    """
    if X.format in ("csr", "csc") and X.ndim == 2:
        length, width = X.shape if X.format == "csr" else X.shape[::-1]
        starts, n = X.indptr, min(len(X.indices), len(X.data))
        sound = len(starts) == length + 1 and starts[0] == 0 and starts[-1] <= n
        sound = sound and not (starts[1:] < starts[:-1]).any()
        stored = X.indices[: starts[-1]] if sound else X.indices
        if not sound or (len(stored) and (stored.min() < 0 or stored.max() >= width)):
            raise BagwiseError(
                f"{name} is a damaged {X.format.upper()} matrix of shape {X.shape}: its indptr or indices point "
                "outside of it. Build it again, for example from rows and columns by scipy.sparse.coo_array."
            )
    return X.asformat(form)


def canonical(X: Any) -> Any:
    """Give a CSR or CSC matrix sorted, each entry stored once, without zeros; the matrix itself, or a changed copy."""
    if not X.has_canonical_format or not X.data.all():
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X


def class_sums(
    X: Any, codes: NDArray[np.intp], n_classes: int | None = None, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Sum the samples of each class, times their `weights` if given: classes x words, dense.

    `codes` are class indices from 0, in several columns if samples are in several classes; `n_classes` is needed if the
    last classes may be missing. Sums of an array on a device stay there.
    """
    n = len(codes)
    n_rows = int(codes.max()) + 1 if n_classes is None else n_classes
    if is_on_device(X):
        xp = device_module(None, X)
        weight_of = xp.zeros((n_rows, n))
        weight_of[xp.asarray(codes), xp.arange(n)] = 1.0 if weights is None else xp.asarray(weights)
        return weight_of @ X
    of_sample = np.ones(n) if weights is None else weights
    n_each = codes.size // max(n, 1)
    entries = np.repeat(of_sample, n_each), (codes.ravel(), np.repeat(np.arange(n), n_each))
    sums = sp.csr_array(entries, shape=(n_rows, n)) @ X
    return sums.toarray() if sp.issparse(sums) else sums


def extremes(X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the minimum and the maximum of each word; infinities if there is no sample."""
    if X.shape[0] == 0:
        return np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
    smallest, largest = X.min(axis=0), X.max(axis=0)
    if sp.issparse(X):
        return smallest.toarray().ravel(), largest.toarray().ravel()
    return to_host(smallest), to_host(largest)


def constant_words(X: Any) -> NDArray[np.int64]:
    """Return the words with the same value in all samples."""
    if not sp.issparse(X):
        return np.flatnonzero(to_host(X.max(axis=0) == X.min(axis=0))).astype(np.int64)
    n, d = X.shape
    some = np.zeros(d)
    some[X.indices] = X.data  # one of the values of each word
    other = np.bincount(X.indices[X.data != some[X.indices]], minlength=d)
    same_everywhere = (other == 0) & ((np.bincount(X.indices, minlength=d) == n) | (some == 0))
    return np.flatnonzero(same_everywhere).astype(np.int64)


def count_unit(X: Any) -> float:
    """Return the smallest non-zero absolute value, that of one occurrence of a word: 1 for counts; inf if all are 0.

    Constants that were chosen for counts are multiplied by it, so that results do not depend on the scale of the data.
    """
    values = X.data if sp.issparse(X) else X
    if is_on_device(X):
        sizes = abs(values)
        sizes[sizes == 0] = np.inf
        return float(sizes.min())
    return float(np.abs(values).min(initial=np.inf, where=values != 0))


def is_whole(X: Any) -> bool:
    """Whether all values are whole numbers."""
    values = X.data if sp.issparse(X) else X
    return bool((values == np.rint(values)).all())


def check_non_negative(X: Any, who: str, advice: str) -> None:
    """Raise an error that names the first negative entry, if there is one."""
    values = X.data if sp.issparse(X) else X
    if values.size == 0 or values.min() >= 0:
        return
    X = to_host(X)
    if sp.issparse(X):
        entries = sp.coo_array(X)
        first = int(np.argmax(entries.data < 0))
        sample, word, value = entries.row[first], entries.col[first], entries.data[first]
    else:
        sample, word = np.unravel_index(int(np.argmax(X < 0)), X.shape)
        value = X[sample, word]
    raise BagwiseError(
        f"Negative values in data: {who} needs non-negative data, but sample {sample}, word {word} is {value:g}. "
        + advice
    )


# The largest and the smallest numbers of which products, and sums of many products, can be represented.
_LARGEST = {8: 1e100, 4: 1e30}  # by the bytes of a number


def check_size(X: Any, name: str = "X", largest: float = np.inf) -> None:
    """Raise an error where products of the values of X overflow, or all of them vanish.

    `largest` is a lower limit than usual. NaN and infinity are left to other checks.
    """
    values = X.data if sp.issparse(X) else X
    if values.dtype.kind != "f" or values.size == 0:
        return
    extreme = max(float(values.max()), -float(values.min()))
    usual = _LARGEST.get(values.dtype.itemsize, 1e100)
    most = min(usual, largest)
    if np.isfinite(extreme) and (extreme > most or 0 < extreme < 1 / usual):
        raise BagwiseError(
            f"The largest absolute value of {name} is {extreme:g}; products of such values cannot be represented. "
            f"Accepted: up to {most:g} ({values.dtype}), and at least one above {1 / usual:g}. Scale {name}, for "
            "example by dividing it by its largest value."
        )


def centre_full_words(X: sp.csr_array) -> sp.csr_array:
    """Subtract their mean from the words without zeros, which keeps the sparsity of X.

    Reduces rounding errors of methods that do not depend on the mean: only words without zeros can have a large mean
    and a small variance. Integers stay integers.
    """
    n_stored = np.bincount(X.indices, minlength=X.shape[1])
    full = n_stored == X.shape[0]
    if not full.any():
        return X
    shift = np.where(full, np.asarray(X.sum(axis=0)).ravel() / X.shape[0], 0.0)
    if is_whole(X):
        shift = np.rint(shift)
    return sp.csr_array((X.data - shift[X.indices], X.indices, X.indptr), shape=X.shape)


def checked_csr(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: tuple[int, int],
    *,
    rising: bool = True,
) -> sp.csr_array:
    """Make a CSR array of lists that may be damaged: compiled code reads what they point to without looking.

    Columns must rise in each row, if `rising`.
    """
    listed = all(array.ndim == 1 for array in (data, indices, indptr))
    whole = listed and indices.dtype.kind == indptr.dtype.kind == "i"
    sound = whole and len(indptr) == shape[0] + 1 and len(indices) == len(data) == indptr[-1] and indptr[0] == 0
    if not sound or (indptr[1:] < indptr[:-1]).any():
        raise BagwiseError(f"The rows of a matrix of {shape[0]} rows do not rise from 0 to its {len(data)} numbers.")
    if len(indices) and (indices.min() < 0 or indices.max() >= shape[1]):
        raise BagwiseError(f"A matrix of {shape[1]} columns has numbers in column {indices.min()} or {indices.max()}.")
    if not rising:
        return sp.csr_array((data, indices, indptr), shape=shape)
    rises = np.diff(indices) > 0
    starts = indptr[1:-1]
    rises[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    if not rises.all():
        raise BagwiseError("The columns of a row must rise, each at most once.")
    return sp.csr_array((data, indices, indptr), shape=shape)


def first_not_finite(X: Any) -> tuple[int, int, float] | None:
    """Return row, column and value of the first NaN or infinity in a dense or CSR matrix; None if there is none."""
    values = X.data if sp.issparse(X) else X
    # the minimum is NaN if there is one, and needs no boolean array
    if values.size == 0 or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return None
    position = int(np.argmin(np.isfinite(values)))
    if sp.issparse(X):
        row, column = int(np.searchsorted(X.indptr, position, side="right")) - 1, int(X.indices[position])
    else:
        row, column = divmod(position, X.shape[1])
    return row, column, float(values.flat[position])


def with_short_indices(words: Any) -> Any:
    """Return CSR arrays with the indices that liblinear takes."""
    if not sp.issparse(words):
        return words
    rows = sp.csr_array(words)
    if rows.nnz < np.iinfo(np.int32).max:
        kinds = (rows.indices.astype(np.int32, copy=False), rows.indptr.astype(np.int32, copy=False))
        rows = sp.csr_array((rows.data, *kinds), shape=rows.shape)
    return rows


def without_columns(rows: Any, columns: NDArray[np.int64]) -> Any:
    """Return rows of which some columns are 0."""
    kept = np.ones(rows.shape[1], rows.dtype)
    kept[columns] = 0
    return sp.csr_array(rows.multiply(kept)) if sp.issparse(rows) else rows * kept
