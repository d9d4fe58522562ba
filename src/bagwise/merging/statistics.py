"""Sums over samples that are enough for some criteria, computed chunk by chunk and added.

Products of words are summed around a point c, ``Σ_i (x_i - c)(x_i - c)ᵀ``. Dense samples give a dense symmetric matrix;
sparse ones the upper triangle as a CSR array.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from bagwise._io.tensors import FileKind, header_field, tensor
from bagwise._utils.checks import check_integer
from bagwise._utils.matrices import checked_csr, class_sums, count_unit, extremes, first_not_finite
from bagwise._utils.memory import check_memory
from bagwise._utils.validation import check_array
from bagwise.errors import BagwiseError
from bagwise.merging._kernels import move_upper_triangle, summarize_rows
from bagwise.merging.structures import add_gram, between_classes_factor, mirror, row_blocks

__all__ = ["Statistics"]


Gram = Any  # a dense symmetric float64 array, or the upper triangle as a CSR array

# Integers below this are exact in float64.
_EXACT = 2.0**53
_ARRAYS = ("class_sizes", "class_sums", "smallest", "largest", "whole", "stored", "row_sums", "row_counts")
_PARTS = ("gram", "frequencies")  # optional arrays
_FILE = FileKind(
    "bagwise.Statistics",
    {
        "classes": header_field("list"),
        "dtype": header_field("string"),
        "sparse": header_field("boolean"),
        "unit": header_field("number null"),
        "n_labels": header_field("integer", low=1),
    },
    {
        "class_sizes": tensor("int64", "n_classes", low=0),
        "class_sums": tensor("float64", "n_classes", "n_words", finite=True),
        "smallest": tensor("float64", "n_words"),
        "largest": tensor("float64", "n_words"),
        "whole": tensor("bool", "n_words"),
        "stored": tensor("int64", "n_words", low=0),
        "row_sums": tensor("float64", 2),
        "row_counts": tensor("int64", 2, low=0),
        "gram": tensor("float64", finite=True, optional=True),  # with one dimension: the numbers of a sparse matrix
        "gram_indices": tensor("int32 int64", "n_stored", optional=True),
        "gram_indptr": tensor("int32 int64", "n_rows + 1", optional=True),
        "deviations": tensor("float64", "n_words", finite=True, optional=True),
        "frequencies": tensor("float64", finite=True, optional=True),
    },
)
_MOST_CHARACTERS = 1 << 26  # of names of classes in a file, each with the width of the longest
_CLASS_TYPES = {np.dtype(code).str for code in "?bhilqBHILQefd"}


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over samples, which are all that merging by "csm", "aib" or "mlt" needs.

    1. `Statistics.of` computes them from one chunk of samples.
    2. ``a + b`` are those of both chunks together, ``sum(parts)`` those of many.
    3. `merge_statistics` merges words, as `merge_words` would do on all the samples.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Class labels.
    class_sizes : ndarray of int, shape (n_classes,)
        Number of samples in each class.
    class_sums : ndarray of shape (n_classes, n_words)
        Sum of the samples of each class.
    smallest, largest : ndarray of shape (n_words,)
        Minimum and maximum of each word.
    whole : ndarray of bool, shape (n_words,)
        Whether all values of a word are integers.
    stored : ndarray of int, shape (n_words,)
        Number of samples in which a word is stored: all of them for dense samples.
    sparse : bool
        Whether the samples were sparse.
    gram : ndarray or CSR array of shape (n_words, n_words), default=None
        Sums of products of words around `centre`. Sparse samples give its upper triangle as a CSR array.
    deviations : ndarray of shape (n_words,), default=None
        Sums of samples minus `centre`; comes with `gram`.
    unit : float, default=1.0
        The smallest non-zero absolute value: 1 for counts, inf if all values are 0.
    frequencies : ndarray of shape (n_classes, n_words), default=None
        Class sums of L1-normalised samples, which "mlt" needs unless all values are integers.
    n_labels : int, default=1
        Number of classes that each sample is in: clusters of so many clusterings.
    row_sums : ndarray of shape (2,)
        The smallest and the largest positive sum of a sample; infinite if there is none.
    row_counts : ndarray of int, shape (2,)
        Number of samples with several positive values, and of those among them whose values are multiples of the
        smallest one; see `summary_of_rows`.

    Notes
    -----
    Products are summed around a point near the mean, so that a large offset does no harm, in one pass: adding two
    chunks moves both to the point of their union, as in the updating formulae of Chan, Golub and LeVeque,
    ``G_a + G_b + n_a e_a e_aᵀ + n_b e_b e_bᵀ`` with e the difference between the common mean and that of the chunk. For
    integer data the point is the integer nearest to the mean and all sums are exact while they stay below 2⁵³: any
    order and any chunks give the same bytes. In sparse samples only the mean of words that are stored in all samples is
    subtracted, as in `merge_words`.

    Memory for d words and C classes: 8 C d bytes for class sums, again for frequencies, 33 d for the other arrays, and
    8 d² for the Gram matrix, or 12 for each entry of its triangle if it is sparse. Time O(n d), for the Gram matrix
    O(n d²) or one addition for each pair of non-zeros that share a sample.

    References
    ----------
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
    COMPSTAT 1982.

    Examples
    --------
    >>> from bagwise.merging import Statistics, merge_statistics
    >>> first = Statistics.of([[4, 3, 0, 1], [0, 1, 4, 5]], [0, 1], 2)
    >>> second = Statistics.of([[5, 4, 1, 0], [1, 0, 5, 4]], [0, 1], 2)
    >>> merge_statistics(first + second).groups(2)
    [array([0, 1]), array([2, 3])]
    """

    classes: NDArray[Any]
    class_sizes: NDArray[np.int64]
    class_sums: NDArray[np.float64]
    smallest: NDArray[np.float64]
    largest: NDArray[np.float64]
    whole: NDArray[np.bool_]
    stored: NDArray[np.int64]
    sparse: bool
    gram: Any = None
    deviations: Any = None
    frequencies: NDArray[np.float64] | None = None
    unit: float = 1.0
    n_labels: int = 1
    row_sums: NDArray[np.float64] = field(default_factory=lambda: np.array([np.inf, -np.inf]))
    row_counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, dtype=np.int64))

    def __post_init__(self) -> None:
        C, d = len(self.classes), self.n_words
        expected = {"class_sizes": (C,), "class_sums": (C, d), "gram": (d, d), "frequencies": (C, d)}
        expected |= {"row_sums": (2,), "row_counts": (2,)}
        for name in (*_ARRAYS, *_PARTS, "deviations"):
            value, shape = getattr(self, name), expected.get(name, (d,))
            if value is not None and value.shape != shape:
                raise BagwiseError(f"{name} must have shape {shape} for {C} classes; got {value.shape}.")
            if value is None:
                continue
            if name in ("smallest", "largest", "row_sums"):  # those of no samples are infinite
                if np.isnan(value).any():
                    raise BagwiseError(f"{name} must hold numbers, but some are NaN.")
                continue
            numbers = value
            if sp.issparse(value):
                numbers = checked_csr(value.data, value.indices, value.indptr, (d, d), rising=False).data
            if numbers.size and not (np.isfinite(numbers.min()) and np.isfinite(numbers.max())):
                raise BagwiseError(f"{name} must hold finite numbers, but some are NaN or infinite.")
        if not self.unit >= 0:
            raise BagwiseError(f"unit must be a number of at least 0; got {self.unit!r}.")
        check_integer(self.n_labels, "n_labels", 1)
        for name in ("class_sums", "frequencies"):
            value = getattr(self, name)
            if value is not None and (wrong := (value.min(axis=0, initial=0.0) < 0) & (self.smallest >= 0)).any():
                raise BagwiseError(f"{name} of word {int(wrong.argmax())} are negative, but no value of it is.")

    @classmethod
    def of(
        cls,
        X: Any,
        codes: ArrayLike,
        n_classes: int,
        gram: bool = True,
        *,
        frequencies: bool = False,
        classes: Sequence[Any] | NDArray[Any] | None = None,
    ) -> Statistics:
        """Compute the statistics of one chunk of samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_words)
            May have no samples.
        codes : array-like of int, shape (n_samples,) or (n_samples, n_labels)
            Class of each sample, from 0 to ``n_classes - 1``, or several, all different. All chunks must number classes
            in the same way.
        n_classes : int
        gram : bool, default=True
            Whether to sum products of words, which "csm" needs.
        frequencies : bool, default=False
            Whether to sum L1-normalised samples, which "mlt" needs unless all values are integers.
        classes : sequence of shape (n_classes,), default=None
            Class labels, all different. None: 0, 1, …

        Returns
        -------
        statistics : Statistics
        """
        n_classes = check_integer(n_classes, "n_classes", 1)
        X = check_array(
            X, accept_sparse="csr", dtype=np.float64, order="C", ensure_min_samples=0, ensure_all_finite=False
        )
        if (wrong := first_not_finite(X)) is not None:
            row, word, value = wrong
            raise BagwiseError(
                f"X has {value} (NaN or infinity) in its row {row}, word {word}. Only finite numbers can be summed: "
                "drop the sample or impute the value."
            )
        if np.ndim(codes) == 2 and (gram or frequencies):
            raise BagwiseError("Samples may be in several classes only with gram=False and frequencies=False.")
        is_sparse = sp.issparse(X)
        if is_sparse:
            X = sp.csr_array(X)
        check_memory(
            8 * n_classes * (X.shape[1] + 1),
            None,
            f"n_classes={n_classes}: sums of {X.shape[1]} words",
            "number only classes that there are",
        )
        numbers = _check_codes(codes, X.shape[0], n_classes)
        names = np.arange(n_classes) if classes is None else np.asarray(classes)
        if names.shape != (n_classes,):
            raise BagwiseError(f"classes must name {n_classes} classes; got an array of shape {names.shape}.")
        if len(set(names.tolist())) < n_classes:
            raise BagwiseError(f"classes must be different names; got {_some(names)}. Give equal ones the same code.")
        smallest, largest = extremes(X)
        row_sums, row_counts = summary_of_rows(X)
        statistics = cls(
            classes=names,
            class_sizes=np.bincount(numbers.ravel(), minlength=n_classes).astype(np.int64),
            class_sums=class_sums(X, numbers, n_classes),
            smallest=smallest,
            largest=largest,
            whole=_whole_words(X),
            stored=(np.bincount(X.indices, minlength=X.shape[1]) if is_sparse else np.full(X.shape[1], X.shape[0])),
            sparse=is_sparse,
            frequencies=_class_frequencies(X, numbers, n_classes) if frequencies else None,
            unit=count_unit(X),
            n_labels=1 if numbers.ndim == 1 else numbers.shape[1],
            row_sums=row_sums,
            row_counts=row_counts,
        )
        if not gram:
            return statistics
        products, deviations = gram_around(X, statistics.centre)
        return replace(statistics, gram=products, deviations=deviations)

    @property
    def n_words(self) -> int:
        """Number of words."""
        return len(self.smallest)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of words."""
        return self.n_samples, self.n_words

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.class_sizes.sum()) // self.n_labels

    @cached_property
    def word_totals(self) -> NDArray[np.float64]:
        """Sum of each word over all samples."""
        return self.class_sums.sum(axis=0) / self.n_labels

    @property
    def constant_words(self) -> NDArray[np.int64]:
        """The words that are the same in all samples."""
        return np.flatnonzero(self.largest == self.smallest).astype(np.int64)

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """Words with integer values, whose sums of products float64 holds exactly."""
        if self.n_samples == 0:
            return self.whole
        size = np.maximum(np.abs(self.largest), np.abs(self.smallest))
        return self.whole & (size**2 * self.n_samples < _EXACT)

    @cached_property
    def centre(self) -> NDArray[np.float64]:
        """The point around which `gram` is taken: the mean, rounded for exact words; 0 for words not in all samples."""
        if self.n_samples == 0:
            return np.zeros(self.n_words)
        mean = self.word_totals / self.n_samples
        return np.where(self.stored == self.n_samples, np.where(self.exact, np.rint(mean), mean), 0.0)

    def __add__(self, other: object) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if self.n_words != other.n_words:
            raise BagwiseError(
                f"Statistics of {self.n_words} and of {other.n_words} words cannot be added. All chunks must have the "
                "same columns."
            )
        if not np.array_equal(self.classes, other.classes):
            raise BagwiseError(
                f"Statistics of other classes cannot be added: {_some(self.classes)} and {_some(other.classes)}. "
                "Number the classes over all chunks, and pass the same n_classes and classes for each."
            )
        if self.n_labels != other.n_labels:
            numbers = f"{self.n_labels} and {other.n_labels}"
            raise BagwiseError(
                f"Statistics of samples in {numbers} classes each cannot be added. Use the same clusterings."
            )
        for part in _PARTS:
            if (getattr(self, part) is None) != (getattr(other, part) is None):
                raise BagwiseError(f"Only one of the two statistics has {part}; make both with {part}=True, or none.")
        total = Statistics(
            classes=self.classes,
            class_sizes=self.class_sizes + other.class_sizes,
            class_sums=self.class_sums + other.class_sums,
            smallest=np.minimum(self.smallest, other.smallest),
            largest=np.maximum(self.largest, other.largest),
            whole=self.whole & other.whole,
            stored=self.stored + other.stored,
            sparse=self.sparse and other.sparse,
            frequencies=None
            if self.frequencies is None or other.frequencies is None
            else self.frequencies + other.frequencies,
            unit=min(self.unit, other.unit),
            n_labels=self.n_labels,
            row_sums=np.array([min(self.row_sums[0], other.row_sums[0]), max(self.row_sums[1], other.row_sums[1])]),
            row_counts=self.row_counts + other.row_counts,
        )
        if self.gram is None:
            return total
        parts = [
            move_centre(part.gram, total.centre - part.centre, part.deviations, total.exact, part.n_samples)
            for part in (self, other)
        ]
        left, right = (_mirrored(gram) if sp.issparse(gram) and not total.sparse else gram for gram, _ in parts)
        if isinstance(left, np.ndarray) and left is not self.gram:
            left += right  # a copy already; another one may not fit into memory
        else:
            left = left + right
        return replace(total, gram=left, deviations=parts[0][1] + parts[1][1])

    def __radd__(self, other: object) -> Statistics:
        # sum(parts) begins with 0
        return self if type(other) is int and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return all(_same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def without_empty_classes(self) -> Statistics:
        """Drop classes without samples."""
        present = self.class_sizes > 0
        if present.all():
            return self
        names = ("classes", "class_sizes", "class_sums", *(() if self.frequencies is None else ("frequencies",)))
        return replace(self, **{name: getattr(self, name)[present] for name in names})

    def require(self, part: str, who: str) -> Any:
        """Return `gram` or `frequencies`; raise if it is missing, naming the criterion `who` that needs it."""
        if getattr(self, part) is None:
            raise BagwiseError(f"The criterion {who!r} needs statistics that were made with {part}=True.")
        return getattr(self, part)

    def check_non_negative(self, who: str, advice: str) -> None:
        """Raise if a word has negative values, naming the first such word."""
        negative = np.flatnonzero(self.smallest < 0)
        if len(negative):
            word = int(negative[0])
            raise BagwiseError(
                f"{who} needs non-negative data, but word {word} goes down to {self.smallest[word]:g}. {advice}"
            )

    def between_classes(self, words: NDArray[np.int64], n_threads: int = 1) -> NDArray[np.float64]:
        """Compute the between-class scatter of some words; that of constant words is exactly 0."""
        sizes, sums = self.class_sizes, self.class_sums[:, words]
        if self.sparse:  # as structures do with sparse samples
            sums = sums - sizes[:, np.newaxis] * self.centre[words]
        sums[:, self._is_constant(words)] = 0.0
        out = np.zeros((len(words), len(words)))
        add_gram(out, between_classes_factor(sums, sizes), 1.0, n_threads)
        mirror(out, n_threads)
        return out

    def total_scatter(self, words: NDArray[np.int64], n_threads: int = 1) -> NDArray[np.float64]:
        """Compute the total scatter of some words as a dense matrix; that of constant words is exactly 0."""
        out = _mirrored(self.gram[words][:, words]) if sp.issparse(self.gram) else self.gram[np.ix_(words, words)]
        deviations = self.deviations[words]
        constant = self._is_constant(words)
        out[constant], out[:, constant], deviations[constant] = 0.0, 0.0, 0.0
        add_gram(out, deviations[np.newaxis], -1.0 / self.n_samples, n_threads)
        mirror(out, n_threads)
        return out

    def _is_constant(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self.largest[words] == self.smallest[words]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the statistics to a safetensors file, atomically. Loading it runs no code."""
        names = self.classes.tolist()
        if self.classes.dtype.kind not in "biufU" and not all(isinstance(name, str) for name in names):
            raise BagwiseError(
                f"Names of classes are written as numbers or strings; got {_some(self.classes)}. Number the classes."
            )
        names_of_arrays = (*_ARRAYS, *_PARTS, "deviations")
        tensors = {name: getattr(self, name) for name in names_of_arrays if getattr(self, name) is not None}
        if sp.issparse(self.gram):
            tensors |= {"gram": self.gram.data, "gram_indices": self.gram.indices, "gram_indptr": self.gram.indptr}
        header = {
            "classes": names,
            "dtype": "object" if self.classes.dtype.kind == "O" else self.classes.dtype.str,
            "sparse": self.sparse,
            "unit": self.unit if np.isfinite(self.unit) else None,
            "n_labels": self.n_labels,
        }
        return _FILE.save(path, header, tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read statistics that `save` wrote."""

        def make(header: dict[str, Any], tensors: dict[str, Any]) -> Statistics:
            header["classes"] = _read_classes(header["classes"], header.pop("dtype"))
            header["unit"] = np.inf if header["unit"] is None else float(header["unit"])
            if ("gram" in tensors) != ("deviations" in tensors):
                raise BagwiseError("it has one of gram and deviations; expected both or none")
            if "gram_indptr" in tensors:
                lists = (tensors["gram"], tensors.pop("gram_indices"), tensors.pop("gram_indptr"))
                try:
                    tensors["gram"] = checked_csr(*lists, (len(tensors["smallest"]),) * 2)
                except BagwiseError as error:
                    raise BagwiseError(f"its gram, gram_indices or gram_indptr are damaged. {error}") from error
            return cls(**header, **tensors)

        return _FILE.load(path, make)

    def __sizeof__(self) -> int:
        # Dask asks for it
        arrays = [getattr(self, name) for name in (*_ARRAYS, "deviations", "frequencies", "gram")]
        if sp.issparse(self.gram):
            arrays[-1:] = [self.gram.data, self.gram.indices, self.gram.indptr]
        return super().__sizeof__() + sum(array.nbytes for array in arrays if array is not None)

    def __repr__(self) -> str:
        extra = "".join(f", {part}" for part in _PARTS if getattr(self, part) is not None)
        return f"<Statistics: {self.n_samples} samples of {len(self.classes)} classes, {self.n_words} words{extra}>"


def _read_classes(names: Any, dtype: Any) -> NDArray[Any]:
    """Make the classes that a file names; their dtype is believed only as far as it costs nothing."""
    if not isinstance(names, list) or not all(isinstance(name, (str, bool, int, float)) for name in names):
        raise BagwiseError(f"its classes are {names!r:.100}, expected a list of numbers or strings")
    width = max((len(name) for name in names if isinstance(name, str)), default=0)
    if width * len(names) > _MOST_CHARACTERS:  # all take the width of the longest
        raise BagwiseError(f"its {len(names)} classes have names of up to {width} characters, expected shorter ones")
    if dtype == "object":
        return np.array([*names, None], dtype=object)[:-1]
    if isinstance(dtype, str) and dtype[:2] in ("<U", ">U") and all(isinstance(name, str) for name in names):
        return np.array(names, dtype=str)
    if dtype not in _CLASS_TYPES:
        raise BagwiseError(f"the dtype of its classes is {dtype!r:.50}, expected object, <U or one of numbers")
    return np.array(names, dtype=dtype)


def _check_codes(codes: ArrayLike, n_samples: int, n_classes: int) -> NDArray[np.intp]:
    numbers = np.asarray(codes)
    if numbers.ndim not in (1, 2) or len(numbers) != n_samples or (numbers.ndim == 2 and not numbers.shape[1]):
        raise BagwiseError(
            f"codes must have one class per sample, shape ({n_samples},), or a row of several; got shape "
            f"{numbers.shape}."
        )
    if n_samples == 0:
        return np.empty(numbers.shape, dtype=np.intp)
    if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= n_classes:
        raise BagwiseError(
            f"codes must be integers from 0 to {n_classes - 1}, the class of each sample; got "
            f"{_some(np.unique(numbers))}. np.unique(y, return_inverse=True) gives labels and codes."
        )
    return numbers.astype(np.intp)


def summary_of_rows(X: Any, copies: NDArray[np.int64] | None = None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return what `Statistics` have as `row_sums` and `row_counts` of samples, each of which counts as its copies."""
    n, d = X.shape
    values, starts = (X.data, X.indptr.astype(np.int64)) if sp.issparse(X) else (X.ravel(), np.arange(n + 1) * d)
    times = np.ones(n, dtype=np.int64) if copies is None else copies
    low, high, several, multiples = summarize_rows(values.astype(np.float64, copy=False), starts, times)
    return np.array([low, high]), np.array([several, multiples])


def _whole_words(X: Any) -> NDArray[np.bool_]:
    if sp.issparse(X):
        return np.bincount(X.indices[X.data != np.rint(X.data)], minlength=X.shape[1]) == 0
    return np.all(np.rint(X) == X, axis=0)


def _class_frequencies(X: Any, codes: NDArray[np.intp], n_classes: int) -> NDArray[np.float64]:
    totals = np.asarray(X.sum(axis=1)).ravel()
    return class_sums(sp.diags_array(1.0 / np.where(totals > 0, totals, 1.0)) @ X, codes, n_classes)


def _mirrored(triangle: sp.csr_array) -> NDArray[np.float64]:
    """Turn an upper triangle into a dense symmetric matrix."""
    out = triangle.toarray()
    mirror(out)
    return out


def _same(left: Any, right: Any) -> bool:
    """Whether two fields of statistics are equal: None, numbers, arrays, or sparse arrays."""
    if left is None or right is None or sp.issparse(left) != sp.issparse(right):
        return left is right
    if sp.issparse(left):
        return left.shape == right.shape and (left != right).nnz == 0
    return np.array_equal(left, right)


def _some(names: NDArray[Any], most: int = 5) -> str:
    """Format the first few entries."""
    shown = ", ".join(repr(name) for name in names.tolist()[:most])
    return f"[{shown}{', …' if len(names) > most else ''}]"


def gram_around(X: Any, centre: NDArray[np.float64]) -> tuple[Gram, NDArray[np.float64]]:
    """Sum the products of words around a point, and the samples minus that point.

    Where X is sparse, `centre` must be zero for words that are not stored in every sample.
    """
    if sp.issparse(X):
        moved = sp.csr_array((X.data - centre[X.indices], X.indices, X.indptr), shape=X.shape)
        return sp.csr_array(sp.triu(moved.T @ moved, format="csr")), np.asarray(moved.sum(axis=0)).ravel()
    out, sums = np.zeros((X.shape[1], X.shape[1])), np.zeros(X.shape[1])
    is_moved = bool(centre.any())
    for rows in row_blocks(*X.shape):
        block = X[rows] - centre if is_moved else X[rows]
        sums += block.sum(axis=0)
        add_gram(out, block)
    mirror(out)
    return out, sums


def move_centre(
    gram: Gram, step: NDArray[np.float64], sums: NDArray[np.float64], exact: NDArray[np.bool_], n_samples: int
) -> tuple[Gram, NDArray[np.float64]]:
    """Move the point that products are summed around to ``centre + step``; returns `gram` and `sums` around it.

    `sums` are those of the samples minus the old centre. Words are `exact` if their samples, centre and step are
    integers; sums of products of two of them stay exact. The old `gram` is not written to.
    """
    if n_samples == 0 or not step.any():
        return gram, sums
    if sp.issparse(gram):
        moved = _move_sparse(gram, step, sums, exact, n_samples)
    else:
        moved = gram.copy()
        move_upper_triangle(moved, step, sums, exact, n_samples)
        mirror(moved)
    return moved, sums - n_samples * step


def _move_sparse(
    gram: sp.csr_array, step: NDArray[np.float64], sums: NDArray[np.float64], exact: NDArray[np.bool_], n_samples: int
) -> sp.csr_array:
    """`move_centre` for a sparse triangle."""
    moving = sp.csr_array((step != 0)[np.newaxis])
    changing = sp.csr_array(((step != 0) | (sums != 0))[np.newaxis])
    new = sp.triu(moving.T @ changing + changing.T @ moving, format="coo")
    old = gram.tocoo()
    rows, columns = np.concatenate([old.row, new.row]), np.concatenate([old.col, new.col])
    values = np.concatenate([old.data, np.zeros(new.nnz)])
    moved = sp.coo_array((values, (rows, columns)), shape=gram.shape).tocsr()  # sums duplicates
    i, j = moved.tocoo().coords
    both = exact[i] & exact[j]
    moved.data[~both] += _change(i[~both], j[~both], step, sums, n_samples)
    whole_step, whole_sums = (np.where(exact, numbers, 0).astype(np.int64) for numbers in (step, sums))
    change = _change(i[both], j[both], whole_step, whole_sums, n_samples)
    moved.data[both] = moved.data[both].astype(np.int64) + change
    moved.eliminate_zeros()
    return moved


def _change(
    i: NDArray[np.intp], j: NDArray[np.intp], step: NDArray[Any], sums: NDArray[Any], n_samples: int
) -> NDArray[Any]:
    """The change of the entries (i, j) when the centre moves by `step`; integer if step and sums are."""
    return n_samples * step[i] * step[j] - step[i] * sums[j] - sums[i] * step[j]
