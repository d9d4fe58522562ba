"""`Bags`: ragged sets of vectors in one array."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from bagwise._io.tensors import FileKind, tensor
from bagwise._utils.checks import (
    as_numpy,
    as_offsets,
    as_positions,
    as_values,
    check_integer,
    chosen_numbers,
    generator,
)
from bagwise.errors import BagwiseError

__all__ = ["Bags"]

FILE = FileKind(
    "bagwise.Bags",
    {},
    {
        "values": tensor("", "n_rows", "n_features", mapped=True),
        "positions": tensor("float32", "n_rows", 2, mapped=True, optional=True),
        "offsets": tensor("int64", "n_bags + 1"),
    },
)

# Rows that `subsample` shuffles at a time, about.
_SHUFFLED_ROWS = 1 << 20


class Bags:
    """N bags of vectors: ragged sets with M vectors of D numbers in all.

    Bag i is ``values[offsets[i]:offsets[i + 1]]`` and may be empty. Each vector may have a position (x, y) in the unit
    square, such as its place in an image: x from left to right, y from top to bottom.

    Bags are immutable: all arrays are read-only. ``bags[i]`` and ``bags[a:b]`` are views. The constructor does not copy
    an array that has the right type; do not write to it later.

    Parameters
    ----------
    values : array-like of shape (M, D)
        Vectors of all bags, in order. NaN and infinity raise an error.
    offsets : array-like of int, shape (N + 1,)
        Boundaries of the bags: non-decreasing, from 0 to M.
    positions : array-like of shape (M, 2), default=None
        x and y of each vector, in [0, 1]. Stored as float32.
    dtype : data type, default=float32
        Float or integer type of the values. None keeps the type of the input.

    Attributes
    ----------
    values : ndarray of shape (M, D)
    offsets : ndarray of int64, shape (N + 1,)
    positions : ndarray of float32, shape (M, 2), or None
    lengths : ndarray of int64, shape (N,)
        Number of vectors in each bag.
    n_features : int
        D.
    n_rows : int
        M.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import Bags
    >>> bags = Bags.from_list([[[1, 2], [3, 4]], [], [[5, 6]]])
    >>> bags
    <Bags: 3 bags, 3 rows x 2 features of float32>
    >>> bags[0]
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    >>> bags[1:].lengths
    array([0, 1])
    >>> bags[[2, 0]].values.sum(axis=1)
    array([11.,  3.,  7.], dtype=float32)
    """

    __slots__ = ("offsets", "positions", "values")
    __hash__ = None  # type: ignore[assignment]

    values: NDArray[Any]
    offsets: NDArray[np.int64]
    positions: NDArray[np.float32] | None

    def __init__(
        self,
        values: ArrayLike,
        offsets: ArrayLike,
        positions: ArrayLike | None = None,
        *,
        dtype: DTypeLike | None = np.float32,
    ) -> None:
        matrix = as_values(values, dtype)
        starts = as_offsets(offsets, len(matrix))
        self._set(matrix, starts, None if positions is None else as_positions(positions, len(matrix)))

    @classmethod
    def from_list(
        cls,
        arrays: Iterable[Any],
        positions: Iterable[Any] | None = None,
        *,
        n_features: int | None = None,
        dtype: DTypeLike | None = np.float32,
    ) -> Bags:
        """Make bags from a list with one matrix per bag.

        Parameters
        ----------
        arrays : iterable of array-likes or torch tensors, each of shape (length, D)
            An empty array or list is an empty bag.
        positions : iterable of array-likes of shape (length, 2), default=None
            Positions of each bag's vectors.
        n_features : int, default=None
            D. None: that of the arrays, 0 if all are empty.
        dtype : data type, default=float32
            Type of the values. None takes the smallest type that holds all arrays.

        Returns
        -------
        bags : Bags

        Examples
        --------
        >>> Bags.from_list([np.zeros((4, 3)), np.zeros((1, 3))]).lengths
        array([4, 1])
        """
        parts = [as_numpy(array) for array in arrays]
        width = None if n_features is None else check_integer(n_features, "n_features", 0)
        known_by = "n_features"
        for i, part in enumerate(parts):
            # An empty matrix with columns has a width as well: a wrong one is an error, not an empty bag.
            if part.size == 0 and part.shape[-1:] in ((), (0,)):
                continue
            if part.ndim != 2:
                raise BagwiseError(
                    f"Bag {i} must have two dimensions, one row an item; got shape {part.shape}. "
                    "For items that are single numbers use reshape(-1, 1)."
                )
            if width is None:
                width, known_by = part.shape[1], f"bag {i}"
            elif part.shape[1] != width:
                raise BagwiseError(
                    f"Bag {i} has {part.shape[1]} features, but {known_by} has {width}. All bags need the same width."
                )
        filled = [part for part in parts if part.size]
        values = np.concatenate(filled) if filled else np.empty((0, width or 0), dtype or np.float32)
        lengths = np.array([part.shape[0] if part.size else 0 for part in parts], dtype=np.int64)
        offsets = offsets_of(lengths)
        if positions is None:
            return cls(values, offsets, dtype=dtype)
        places = [as_numpy(xy) for xy in positions]
        if len(places) != len(parts):
            raise BagwiseError(f"positions must be a list with one entry per bag, {len(parts)}; got {len(places)}.")
        checked = [
            as_positions(xy, length, f"positions of bag {i}")
            for i, (xy, length) in enumerate(zip(places, lengths.tolist(), strict=True))
        ]
        return cls(values, offsets, np.concatenate(checked) if checked else np.empty((0, 2)), dtype=dtype)

    @classmethod
    def from_padded(cls, padded: Any, lengths: Any, *, dtype: DTypeLike | None = np.float32) -> Bags:
        """Make bags from a padded array, as deep-learning libraries use it.

        Parameters
        ----------
        padded : array-like or torch tensor of shape (N, longest, D)
            Entries beyond a bag's length are ignored.
        lengths : array-like or torch tensor of int, shape (N,)
        dtype : data type, default=float32
            Type of the values. None keeps the type of the input.

        Returns
        -------
        bags : Bags

        Examples
        --------
        >>> Bags.from_padded(np.arange(12).reshape(2, 3, 2), [1, 3])[0]
        array([[0., 1.]], dtype=float32)
        """
        block, counts = as_numpy(padded), as_numpy(lengths)
        if block.ndim != 3:
            raise BagwiseError(f"padded must have shape (bags, longest bag, features); got {block.shape}.")
        if counts.shape != block.shape[:1] or (counts.size and counts.dtype.kind not in "iu"):
            raise BagwiseError(
                f"lengths must be {block.shape[0]} integers, one per bag; got shape {counts.shape} of {counts.dtype}."
            )
        wrong = (counts < 0) | (counts > block.shape[1])
        if wrong.any():
            i = int(np.argmax(wrong))
            raise BagwiseError(f"lengths must be from 0 to {block.shape[1]}, but bag {i} has {counts[i]}.")
        inside = np.arange(block.shape[1]) < counts[:, None]
        return cls(block[inside], offsets_of(counts), dtype=dtype)

    @classmethod
    def from_csr(cls, X: Any, vectors: Any = None, *, dtype: DTypeLike | None = np.float32) -> Bags:
        """Make bags from counts of words. A word with count c contributes c equal vectors, in the order of the columns.

        This is the inverse of counting: with the vectors of a codebook, or word embeddings, a histogram becomes a bag
        that has this histogram.

        Parameters
        ----------
        X : sparse matrix or array of shape (N, V)
            Counts, integers of at least 0.
        vectors : array-like of shape (V, D), default=None
            The vector of each word. None: the column index is the only feature, as int64, and `dtype` is ignored.
        dtype : data type, default=float32
            Type of the values.

        Returns
        -------
        bags : Bags

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> counts = sp.csr_array([[2, 0, 1], [0, 0, 0]])
        >>> [bag.ravel().tolist() for bag in Bags.from_csr(counts)]
        [[0, 0, 2], []]
        >>> Bags.from_csr(counts, vectors=[[0.5, 0], [1, 1], [0, 2]])[0]
        array([[0.5, 0. ],
               [0.5, 0. ],
               [0. , 2. ]], dtype=float32)
        """
        import scipy.sparse as sp

        from bagwise._utils.matrices import as_format

        if not sp.issparse(X):
            raise BagwiseError(
                f"from_csr takes a sparse matrix, got {type(X).__name__}. Use scipy.sparse.csr_array(X)."
            )
        rows = sp.csr_array(as_format(X, "csr")).sorted_indices()
        with np.errstate(invalid="ignore"):  # NaN is reported below
            counts = rows.data.astype(np.int64) if rows.data.dtype.kind in "fiub" else rows.data
        if not np.array_equal(counts, rows.data) or (counts < 0).any():
            raise BagwiseError("from_csr takes counts, whole numbers of at least 0; the matrix holds others.")
        words = np.repeat(rows.indices.astype(np.int64), counts)
        offsets = offsets_of(counts)[rows.indptr]
        if vectors is None:
            return cls(words[:, None], offsets, dtype=np.int64)
        table = as_values(vectors, dtype, "vectors")
        if len(table) != rows.shape[1]:
            raise BagwiseError(f"vectors must have one row per word, {rows.shape[1]}; got {len(table)}.")
        return cls._wrap(table[words], offsets, None)

    @classmethod
    def concatenate(cls, parts: Iterable[Bags]) -> Bags:
        """Concatenate bags.

        Parameters
        ----------
        parts : iterable of Bags
            At least one, with the same number of features, all with positions or all without. The values get the
            smallest type that holds those of all parts.

        Returns
        -------
        bags : Bags
        """
        bags = list(parts)
        if not bags:
            raise BagwiseError("concatenate needs at least one Bags, got an empty list.")
        for i, part in enumerate(bags):
            if not isinstance(part, Bags):
                raise BagwiseError(
                    f"concatenate takes Bags, but part {i} is {type(part).__name__}. See Bags.from_list."
                )
            if part.n_features != bags[0].n_features:
                raise BagwiseError(f"Part {i} has {part.n_features} features, but part 0 has {bags[0].n_features}.")
            if (part.positions is None) != (bags[0].positions is None):
                raise BagwiseError(f"Part {i} and part 0 differ: one has positions, the other has none.")
        offsets = offsets_of(np.concatenate([part.lengths for part in bags]))
        values = np.concatenate([part.values for part in bags])
        places = [part.positions for part in bags if part.positions is not None]
        return cls._wrap(values, offsets, np.concatenate(places) if places else None)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of vectors in each bag."""
        return np.diff(self.offsets)

    @property
    def n_features(self) -> int:
        """Length of a vector, D."""
        return self.values.shape[1]

    @property
    def n_rows(self) -> int:
        """Number of vectors in all bags, M."""
        return self.values.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, in memory or in a file."""
        return self.values.nbytes + self.offsets.nbytes + (0 if self.positions is None else self.positions.nbytes)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[NDArray[Any]]:
        ends = self.offsets.tolist()
        return (self.values[start:end] for start, end in itertools.pairwise(ends))

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, key: slice | Sequence[Any] | NDArray[Any]) -> Bags: ...

    def __getitem__(self, key: Any) -> NDArray[Any] | Bags:
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            start, end = self._rows_of(int(key))
            return self.values[start:end]
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            if step != 1:
                return self._take(np.arange(first, last, step))
            starts = self.offsets[first : max(first, last) + 1]
            return self._select(slice(starts[0], starts[-1]), starts - starts[0])
        return self._take(chosen_numbers(key, len(self), "bag"))

    def positions_of(self, i: int) -> NDArray[np.float32]:
        """Positions of the vectors of bag i, shape (length of the bag, 2)."""
        if self.positions is None:
            raise BagwiseError("These bags have no positions. Give them when the bags are made: positions=...")
        start, end = self._rows_of(i)
        return self.positions[start:end]

    def subsample(self, k: int, random_state: Any = None) -> Bags:
        """Draw at most k vectors of each bag uniformly without replacement. Their order is kept.

        Parameters
        ----------
        k : int
            Bags with up to k vectors are kept whole.
        random_state : int, Generator, RandomState or None, default=None

        Returns
        -------
        bags : Bags
        """
        k = check_integer(k, "k", 0)
        lengths = self.lengths
        if not (lengths > k).any():
            return self
        random, kept = generator(random_state), []
        for part, _ in self.blocks(_SHUFFLED_ROWS):  # blocks bound the memory; the stream of random numbers is the same
            start, end = self.offsets[part.start], self.offsets[part.stop]
            bag = np.repeat(np.arange(part.start, part.stop), lengths[part])
            shuffled = start + np.lexsort((random.random(end - start), bag))
            rank = np.arange(start, end) - self.offsets[bag]
            kept.append(np.sort(shuffled[rank < k]))
        return self._select(np.concatenate(kept), offsets_of(np.minimum(lengths, k)))

    def sample(self, k: int, random_state: Any = None) -> NDArray[Any]:
        """Draw k of all vectors uniformly without replacement. From a mapped file, only these are read.

        Parameters
        ----------
        k : int
            With up to k vectors in all bags, all are returned.
        random_state : int, Generator, RandomState or None, default=None

        Returns
        -------
        vectors : ndarray of shape (min(k, M), D)
            In the order of the bags.
        """
        k = check_integer(k, "k", 0)
        if k >= self.n_rows:
            return self.values
        rows = generator(random_state).choice(self.n_rows, k, replace=False, shuffle=False)
        return read_only(self.values[np.sort(rows)])

    def blocks(self, n_rows: int) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Iterate over blocks of whole bags with at most `n_rows` vectors.

        Parameters
        ----------
        n_rows : int
            Maximum number of vectors in a block. A bag with more is a block of its own.

        Yields
        ------
        bags : slice
            The bags in the block. Every bag, also an empty one, is in exactly one block.
        values : ndarray of shape (vectors in the block, D)
            A view.
        """
        n_rows = check_integer(n_rows, "n_rows", 1)
        first = 0
        while first < len(self):
            full = int(np.searchsorted(self.offsets, self.offsets[first] + n_rows, side="right")) - 1
            last = max(full, first + 1)
            yield slice(first, last), self.values[self.offsets[first] : self.offsets[last]]
            first = last

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bags to a safetensors file, atomically. `load` reads it back.

        Values of a mapped file are copied in pieces. `BagsWriter` writes bags that do not fit in memory.
        """
        from bagwise.bags.files import BagsWriter  # deferred: it needs this class

        has_positions = self.positions is not None
        with BagsWriter(path, self.n_features, positions=has_positions, dtype=self.values.dtype) as writer:
            writer.extend(self)
        return writer.path

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = True, verify: bool = False) -> Bags:
        """Open a file that `save` or `BagsWriter` wrote.

        Parameters
        ----------
        path : path
        mmap : bool, default=True
            Map values and positions: they are read from the file when they are used. Header, sizes and offsets are
            checked. If False, everything is read and checked.
        verify : bool, default=False
            Check values and positions also if they are mapped, which reads them once.

        Returns
        -------
        bags : Bags
        """

        def make(_: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Bags:
            values, offsets, positions = tensors["values"], tensors["offsets"], tensors.get("positions")
            if verify or not mmap:
                return cls(values, offsets, positions, dtype=None)
            return cls._wrap(values, as_offsets(offsets, len(values)), positions)

        return FILE.load(path, make, mmap=mmap, verify=verify)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bags):
            return NotImplemented
        if self.values.dtype != other.values.dtype or (self.positions is None) != (other.positions is None):
            return False
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Bags cannot be changed: {name} is read-only.")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        places = None if self.positions is None else np.asarray(self.positions)
        return Bags._wrap, (np.asarray(self.values), self.offsets, places)

    def __repr__(self) -> str:
        places = ", with positions" if self.positions is not None else ""
        return (
            f"<Bags: {len(self)} bags, {self.n_rows} rows x {self.n_features} features of {self.values.dtype}{places}>"
        )

    @classmethod
    def _wrap(cls, values: NDArray[Any], offsets: NDArray[np.int64], positions: NDArray[np.float32] | None) -> Bags:
        """Make bags of arrays that need no checks."""
        bags = cls.__new__(cls)
        bags._set(values, offsets, positions)
        return bags

    def _set(self, values: NDArray[Any], offsets: NDArray[np.int64], positions: NDArray[np.float32] | None) -> None:
        object.__setattr__(self, "values", read_only(values))
        object.__setattr__(self, "offsets", read_only(offsets))
        object.__setattr__(self, "positions", None if positions is None else read_only(positions))

    def _rows_of(self, i: int) -> tuple[int, int]:
        if not -len(self) <= i < len(self):
            raise IndexError(f"There is no bag {i}: there are {len(self)}, numbered from 0.")
        i %= len(self)
        return int(self.offsets[i]), int(self.offsets[i + 1])

    def _take(self, numbers: NDArray[np.int64]) -> Bags:
        lengths = self.lengths[numbers]
        offsets = offsets_of(lengths)
        return self._select(np.arange(offsets[-1]) + np.repeat(self.offsets[numbers] - offsets[:-1], lengths), offsets)

    def _select(self, rows: Any, offsets: NDArray[np.int64]) -> Bags:
        return self._wrap(self.values[rows], offsets, None if self.positions is None else self.positions[rows])


def offsets_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Boundaries of bags of these lengths: 0, then the cumulative sum."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view."""
    view = array.view()
    view.setflags(write=False)
    return view
