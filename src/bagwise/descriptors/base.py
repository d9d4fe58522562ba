"""`Descriptor`, the base of what describes items, and describing: caches, threads, vectors of items put together.

Nothing here, or in the modules of descriptors of images, imports scikit-learn: models describe images by them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bagwise._utils.records import Integer, OneOf, Record, Such, parameter, plain
from bagwise.bags.bags import Bags, offsets_of
from bagwise.descriptors.cache import ArrayCache
from bagwise.descriptors.images import shrink
from bagwise.descriptors.registry import SIDE
from bagwise.errors import BagwiseError
from bagwise.sources.collection import as_items
from bagwise.sources.items import ItemIterator, item_errors
from bagwise.sources.media import shrunk_size

__all__ = ["DEFAULT_SIDE", "Arrays", "Descriptor", "RowBuffer", "arrays_of", "compute_each"]
__all__ += ["describe_items", "join_bags", "n_bytes"]

# Parameters that change how something is computed, not the result.
EXECUTION = ("n_jobs", "verbose", "cache", "device")
# Pixels that are shown of a descriptor whose size is not known.
DEFAULT_SIDE = 24
# Limit, so that a hostile file cannot make a descriptor use all memory.
MOST_POINTS = 1 << 30
Arrays = dict[str, NDArray[Any]]
DEVICE = OneOf("cpu", "cuda", None)
_FOLDER = Such(lambda value: value is None or isinstance(value, (str, PathLike)), "a path or None")


@dataclass(eq=False, repr=False)
class Descriptor(Record, ABC):
    """Base of what describes items: images, videos or texts become bags of vectors.

    A subclass is a dataclass: its parameters are fields, declared by ``parameter(default, rule)`` if files of models
    are to hold it. Its method ``_describe(content)`` returns values of shape (n, D), and positions of shape (n, 2) in
    the unit square or None. n may be 0; D must not depend on the item. It raises `BagwiseError` for an item that cannot
    be described, and runs in threads. Images larger than `max_side` are shrunk before.

    Descriptors are transformers for pipelines of scikit-learn: nothing is learned but by `SentenceVectors`.

    Attributes
    ----------
    modality : str
        Of the collections it takes.
    color : bool
        Whether images are opened in colour for it.
    n_words : int or None
        Size of the vocabulary of a descriptor that counts words itself and needs no codebook.
    assignment : str or mapping
        Name, or name and parameters, of the encoder by which models assign its vectors to words.
    regions : bool
        Whether its vectors see regions without sharp borders, as those of networks do.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import Descriptor
    >>> class Brightness(Descriptor):
    ...     def _describe(self, content):
    ...         return np.array([[content.mean(), content.std()]]), np.array([[0.5, 0.5]])
    >>> Brightness(n_jobs=2).transform([np.zeros((4, 4)), np.ones((2, 3))]).values
    array([[0., 0.],
           [1., 0.]], dtype=float32)
    """

    modality: ClassVar[str] = "images"
    color: ClassVar[bool] = False
    n_words: ClassVar[int | None] = None
    assignment: ClassVar[str | Mapping[str, Any]] = "hard"
    regions: ClassVar[bool] = False
    embedded: ClassVar[Any] = None  # a network that models hold for it

    _: KW_ONLY
    max_side: int | None = parameter(None, SIDE)
    n_jobs: int | None = parameter(None, Integer(-1024, 1024, optional=True))
    verbose: int = parameter(0, Such(lambda value: isinstance(value, int) and value >= 0, "an integer of at least 0"))
    cache: str | PathLike[str] | None = parameter(None, _FOLDER)

    @property
    def name(self) -> str:
        """The name of the class, as in the table and in files."""
        return type(self).__name__

    @abstractmethod
    def _describe(self, content: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Compute values and positions of one item."""

    def describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Describe one image (or video, or text).

        Parameters
        ----------
        content : array of shape (height, width) or (height, width, 3)
            Grey or RGB image of any numeric type. Descriptors of videos and texts take these instead.

        Returns
        -------
        values : ndarray of float32, shape (n, D)
        positions : ndarray of float32, shape (n, 2), or None
            x and y of each descriptor in the unit square.
        """
        arrays = self._arrays_of_one(content)
        return arrays["values"], arrays.get("positions")

    def _arrays_of_one(self, content: Any) -> Arrays:
        self._prepare()
        try:
            return self._arrays(content)
        except BagwiseError as error:
            raise BagwiseError(f"{self.name} cannot describe this: {error}.") from error

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters; nothing is learned.

        Parameters
        ----------
        X : ignored
        y : ignored

        Returns
        -------
        self
        """
        self._prepare()
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Do what `fit` and `transform` do.

        Parameters
        ----------
        X : Collection, or iterable of items
        y : ignored

        Returns
        -------
        described : Bags or CSR array
        """
        return self.fit(X).transform(X)

    def transform(self, X: Any, on_error: str = "raise") -> Any:
        """Describe all items.

        Parameters
        ----------
        X : Collection, or iterable of arrays
            Items to describe, at least one.
        on_error : {"raise", "skip"}, default="raise"
            Whether an item that cannot be read or described raises an `ItemError`, or is skipped with a warning. Use
            `iter_transform` to know which items were kept.

        Returns
        -------
        described : Bags or CSR array
            One bag or row per item, in the order of the items. An image too small for any descriptor is an empty bag.
        """
        return self._join(arrays for (arrays,) in _iterate([self], X, on_error))

    def iter_transform(self, X: Any, batch_size: int = 64, on_error: str = "raise") -> ItemIterator:
        """Describe items batch by batch, with one batch and a few items in memory.

        Parameters
        ----------
        X : Collection, or iterable of arrays
            Items to describe, at least one.
        batch_size : int, default=64
            Number of items in a batch. The last one may have fewer, and so may those of more than 64 MiB.
        on_error : {"raise", "skip"}, default="raise"
            As in `transform`.

        Returns
        -------
        iterator : ItemIterator
            Yields what `transform` returns. Its ``kept`` and ``skipped`` list the items: ``collection[iterator.kept]``.
        """

        def join(items: Iterable[list[Arrays]]) -> Any:
            return self._join(arrays for (arrays,) in items)

        return _iterate([self], X, on_error, batch_size=batch_size, join=join)

    @property
    def patch_side(self) -> int:
        """Side in pixels of the largest square that a vector describes."""
        return int(getattr(self, "patch", None) or getattr(self, "cell", None) or DEFAULT_SIDE)

    def sides(self, height: int, width: int, n: int) -> NDArray[np.float64]:
        """Return the sides of the squares that the n vectors of an image describe, on the scale of the image."""
        return np.full(n, float(self.patch_side) * self._shrinking(height, width))

    def _shrinking(self, height: int, width: int) -> float:
        """By how much an image of this size is shrunk to be described."""
        return max(height, width) / max(shrunk_size(height, width, self.max_side))

    def _prepare(self) -> None:
        """Check the parameters, once before any item is read, and that what is needed is there."""
        self.check()

    @property
    def _image_side(self) -> int | None:
        """The side that images are shrunk to. Videos are shrunk frame by frame."""
        return self.max_side if self.modality == "images" else None

    def _arrays(self, content: Any) -> Arrays:
        """Compute the arrays of one item at the size it is described at."""
        return self._compute(content if self._image_side is None else shrink(content, self._image_side))

    def _compute(self, content: Any) -> Arrays:
        """Compute the arrays of one item, by name."""
        return arrays_of(*self._describe(content))

    def _join(self, items: Iterable[Arrays]) -> Any:
        """Join the arrays of several items into one result."""
        return join_bags(items)

    @property
    def parameters(self) -> dict[str, Any]:
        """What results depend on, as JSON values if it can be: all parameters but those of `EXECUTION`."""
        return {name: plain(value) for name, value in self.get_params(deep=False).items() if name not in EXECUTION}

    @classmethod
    def from_parameters(cls, parameters: Any) -> Self:
        """Build the descriptor from its `parameters`, as a file has them: all are there, and obey their rules."""
        rules = {name: rule for name, rule in cls.rules().items() if name not in EXECUTION}
        if not isinstance(parameters, Mapping) or set(parameters) != set(rules):
            names = sorted(map(str, parameters)) if isinstance(parameters, Mapping) else parameters
            raise BagwiseError(f"{cls.__name__} has the parameters {sorted(rules)}, got {names!r:.1000}.")
        made = cls(**parameters)
        made.check()
        return made

    def _cache(self) -> ArrayCache | None:
        return None if self.cache is None else ArrayCache(self.cache, self._made_by())

    def _made_by(self) -> dict[str, Any]:
        """Return name and parameters: all that results depend on beside the item, as caches write it down."""
        return {"name": f"{type(self).__module__}.{type(self).__qualname__}", **self.parameters}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags  # deferred: takes long to import

        tags = Tags(None, TargetTags(required=False), TransformerTags(), input_tags=InputTags())
        tags.requires_fit, tags.no_validation = False, True  # X is not a matrix
        return tags


def arrays_of(values: NDArray[Any], positions: NDArray[Any] | None) -> Arrays:
    """Return values and positions of an item as arrays of float32 by name."""
    arrays = {"values": np.ascontiguousarray(values, dtype=np.float32)}
    if positions is not None:
        arrays["positions"] = np.ascontiguousarray(positions, dtype=np.float32)
    return arrays


def compute_each(descriptors: Sequence[Any], caches: Sequence[ArrayCache | None], item: Any) -> list[Arrays]:
    """Load the arrays of each descriptor from its cache, or compute them; the item is read once for each size."""
    with item_errors(item.id):
        key = item.fingerprint() if any(cache is not None for cache in caches) else ""
        cached = [None if cache is None else cache.load(key) for cache in caches]
        both = list(zip(descriptors, cached, strict=True))
        contents = {side: item.load(side) for side in {one._image_side for one, arrays in both if arrays is None}}
        results = [one._arrays(contents[one._image_side]) if arrays is None else arrays for one, arrays in both]
    for cache, arrays, computed in zip(caches, cached, results, strict=True):
        if cache is not None and arrays is None:
            cache.save(key, computed)  # a full disk is not an error of the item
    return results


def describe_items(
    descriptors: Sequence[Any], X: Any, *, batch_size: int = 64, on_error: str = "raise"
) -> ItemIterator:
    """Describe items by one or several descriptors, batch by batch; each item is read once for each size.

    The iterator is that of `Descriptor.iter_transform`, with `n_jobs` and `verbose` of the first descriptor, and
    yields tuples: what each descriptor makes of the batch.
    """

    def join(described: Iterable[list[Arrays]]) -> tuple[Any, ...]:
        columns = zip(*described, strict=True)
        return tuple(descriptor._join(column) for descriptor, column in zip(descriptors, columns, strict=True))

    return _iterate(descriptors, X, on_error, batch_size=batch_size, join=join)


def _iterate(descriptors: Sequence[Any], X: Any, on_error: str, **batches: Any) -> ItemIterator:
    """Iterate over the arrays of items, by each descriptor."""
    for descriptor in descriptors:
        descriptor._prepare()
    first = descriptors[0]
    items, source = as_items(X, first.modality)
    return ItemIterator(
        items,
        partial(compute_each, descriptors, [descriptor._cache() for descriptor in descriptors]),
        source,
        on_error=on_error,
        n_jobs=first.n_jobs,
        size=lambda described: sum(map(n_bytes, described)),
        task=first.name if first.verbose else None,
        **batches,
    )


def n_bytes(arrays: Arrays) -> int:
    """Return the size of the arrays of an item."""
    return sum(array.nbytes for array in arrays.values())


def join_bags(items: Iterable[Arrays]) -> Bags:
    """Concatenate the arrays ``values`` and ``positions`` of items, one bag per item."""
    lengths: list[int] = []
    rows: dict[str, RowBuffer] = {}
    for arrays in items:
        lengths.append(len(arrays["values"]))
        for name, array in arrays.items():
            if name not in rows:
                rows[name] = RowBuffer(array.shape[1], np.float32)
            rows[name].append(array)
    joined = {name: buffer.joined() for name, buffer in rows.items()}
    return Bags(joined["values"], offsets_of(lengths), joined.get("positions"))


# Large enough that the allocator maps it apart from the heap and returns it to the system when freed.
_BLOCK_BYTES = 1 << 26


class RowBuffer:
    """Collect rows of `width` numbers when their number is not known beforehand.

    Rows are copied to blocks. At the end blocks are copied to the result and freed one by one, so that memory never
    exceeds the result and one block. (Many small arrays would leave freed memory with the process.)
    """

    def __init__(self, width: int, dtype: DTypeLike) -> None:
        self._width = width
        self._dtype = np.dtype(dtype)
        self._capacity = max(1, _BLOCK_BYTES // max(1, width * self._dtype.itemsize))
        self._blocks: list[NDArray[Any]] = []
        self._filled = self._capacity  # rows of the last block

    def append(self, rows: NDArray[Any]) -> None:
        """Copy rows to the end."""
        if rows.shape[1] != self._width:
            raise BagwiseError(
                "All items must give vectors of the same width, but one gave vectors of "
                f"{self._width} numbers and another of {rows.shape[1]}."
            )
        while len(rows):
            if self._filled == self._capacity:
                self._blocks.append(np.empty((self._capacity, self._width), self._dtype))
                self._filled = 0
            taken = min(len(rows), self._capacity - self._filled)
            self._blocks[-1][self._filled : self._filled + taken] = rows[:taken]
            self._filled += taken
            rows = rows[taken:]

    def joined(self) -> NDArray[Any]:
        """Return all rows as one array, and empty the buffer."""
        if not self._blocks:
            return np.empty((0, self._width), self._dtype)
        self._blocks[-1] = self._blocks[-1][: self._filled]
        result = np.empty((sum(map(len, self._blocks)), self._width), self._dtype)
        end = len(result)
        while self._blocks:
            block = self._blocks.pop()
            result[end - len(block) : end] = block
            end -= len(block)
        self._filled = self._capacity
        return result
