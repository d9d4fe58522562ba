"""Items of a collection, and the one iterator that loads or computes something from each of them."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from bagwise._utils.checks import check_integer
from bagwise._utils.progress import ProgressBar
from bagwise._utils.text import agree
from bagwise._utils.threads import map_in_order, number_of_threads
from bagwise.errors import BagwiseError, unknown_name

__all__ = [
    "Content",
    "Decoder",
    "Entry",
    "EntryDecoder",
    "Item",
    "ItemError",
    "ItemIterator",
    "NothingReadError",
    "Skipped",
    "SkippedItemsWarning",
    "check_on_error",
    "item_errors",
    "list_items",
    "warn_skipped",
]


_HASHED_BYTES = 1 << 20
# Results that an `ItemIterator` holds in a batch, and that it computes ahead.
_MOST_BYTES = 1 << 26


class ItemError(BagwiseError):
    """Raised when one item cannot be read.

    Attributes
    ----------
    id : str
        The item's id.
    reason : str
        What is wrong with it.
    """

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(f"Cannot read {id!r}: {reason}")
        self.id = id
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return ItemError, (self.id, self.reason)


class Skipped(NamedTuple):
    """The id of an item that was skipped, and the reason."""

    id: str
    reason: str


class SkippedItemsWarning(UserWarning):
    """Warns that items could not be read and were skipped: `skipped` has all of them."""

    def __init__(self, message: str, skipped: Sequence[Skipped] = ()) -> None:
        super().__init__(message)
        self.skipped = tuple(skipped)


class NothingReadError(BagwiseError):
    """Raised when items are skipped, but none of them can be read; `skipped` lists them."""

    def __init__(self, skipped: Sequence[Skipped], source: str) -> None:
        which = f"None of the {len(skipped)} items of {source} could be read"
        super().__init__(f"{which if len(skipped) > 1 else f'{source} cannot be read'}. {_listed(skipped)}")
        self.skipped = tuple(skipped)
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        return NothingReadError, (self.skipped, self.source)


class Content(Protocol):
    """The bytes of an item. Hashable, picklable and thread-safe."""

    def __hash__(self) -> int: ...

    @property
    def source(self) -> str:
        """The place, for messages: a path, or ``archive.zip!member``."""

    def open(self) -> BinaryIO:
        """Open the bytes for reading."""


class Decoder(Protocol):
    """Decodes the bytes of an item for `Item.load`. A frozen dataclass: its repr has all its options."""

    def decode(self, content: Content) -> Any:
        """Return the array, the text or the frames, or raise BagwiseError or OSError.

        Decoders of images also take a second argument, `max_side`; see `Item.load`.
        """


@dataclass(frozen=True, repr=False, slots=True)
class Item:
    """One image, text, video or row of a collection, read by `load`.

    Items are made by `open_collection`. They are small, immutable, picklable and thread-safe.

    Attributes
    ----------
    id : str
        Unique in its collection: the path below the folder or in the archive, with ``/`` between folders; for records
        of a file its id column, or the file's name and the record's number.
    labels : tuple of str
        The labels of the item: none, one, or several.
    split : str or None
        Its split, such as ``"train"``.
    content : Content
        The bytes.
    decoder : Decoder
        Decodes the bytes.
    """

    id: str
    content: Content
    decoder: Decoder
    labels: tuple[str, ...] = ()
    split: str | None = None

    @property
    def label(self) -> str | None:
        """The label of the item, or None. An error if it has several: use `labels` then."""
        if len(self.labels) > 1:
            raise several_labels(self.id, self.labels)
        return self.labels[0] if self.labels else None

    @property
    def source(self) -> str:
        """The place it is read from, for messages: a path, or ``archive.zip!member``."""
        return self.content.source

    def load(self, max_side: int | None = None) -> Any:
        """Read the item.

        Parameters
        ----------
        max_side : int, default=None
            For images: one with a longer side is shrunk by area averaging until that is its longer side. JPEG files are
            decoded at a reduced scale first, which is faster and needs less memory. None: images keep their size.

        Returns
        -------
        content : ndarray or str
            An image: uint8 of shape (height, width), or (height, width, 3) in RGB. A text: str. A video: uint8 of shape
            (frames, height, width) or (frames, height, width, 3). A row of a table: that row.

        Raises
        ------
        ItemError
            If it cannot be read, with its id and the reason.
        """
        try:
            return self.decoder.decode(self.content, *(() if max_side is None else (max_side,)))
        except ItemError:
            raise
        except (BagwiseError, OSError) as error:
            raise ItemError(self.id, _reason(error)) from error

    def fingerprint(self) -> str:
        """Hash the bytes and the decoder, for caches of results computed from the item: 32 hexadecimal digits.

        A file and its copy in an archive have the same fingerprint. The bytes are read (but not decoded) each time, so
        that a changed file has another one.
        """
        digest = hashlib.blake2b(repr(self.decoder).encode(), digest_size=16)
        try:
            with self.content.open() as file:
                while piece := file.read(_HASHED_BYTES):
                    digest.update(piece)
        except (BagwiseError, OSError) as error:
            raise ItemError(self.id, _reason(error)) from error
        return digest.hexdigest()

    def __repr__(self) -> str:
        labels = f" labelled {', '.join(self.labels)}" if self.labels else ""
        split = f" in {self.split}" if self.split else ""
        return f"<Item {self.id!r}{labels}{split}>"


def several_labels(id: str, labels: Sequence[str]) -> BagwiseError:
    """Build the error for an item with several labels where one is asked for."""
    return BagwiseError(f"Item {id!r} has {len(labels)} labels, {labels}. Use .labels for all.")


def _reason(error: Exception) -> str:
    # the message of an OSError repeats the path
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """What is in memory: an entry of a list, or a row of a matrix. Is sent to other processes without the others."""

    origin: str
    values: Any
    number: int

    @property
    def source(self) -> str:
        """The list or table and the number."""
        return f"{self.origin}:{self.number}"

    def value(self) -> Any:
        """Return the entry; a row of a sparse matrix has the shape (1, d)."""
        return self.values[[self.number]] if hasattr(self.values, "tocsr") else self.values[self.number]

    def open(self) -> BinaryIO:
        """Open bytes that only an equal entry has."""
        value = self.value()
        if isinstance(value, str):  # NumPy strings do not distinguish "" from "\0"
            return io.BytesIO(value.encode("utf-8", "surrogatepass"))
        if hasattr(value, "tocsr"):
            return io.BytesIO(value.indices.astype(np.int64).tobytes() + value.data.tobytes())
        array = np.asarray(value)
        if array.dtype == object:
            raise BagwiseError(f"it is not an array of numbers but {type(value).__name__}")
        return io.BytesIO(f"{array.dtype.str} {array.shape}".encode() + array.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        alone = self.values[[self.number]] if hasattr(self.values, "shape") else [self.values[self.number]]
        return Entry, (self.origin, alone, 0)


@dataclass(frozen=True)
class EntryDecoder:
    """Returns entries as they are, never shrunk."""

    def decode(self, content: Content, max_side: int | None = None) -> Any:
        """Return the entry."""
        assert isinstance(content, Entry)
        return content.value()


def list_items(values: Sequence[Any], name: str) -> list[Item]:
    """Return the entries of a list as items, with numbered ids.

    >>> [(item.id, item.load()) for item in list_items(["meow", "woof"], "text")]
    [('text 0', 'meow'), ('text 1', 'woof')]
    """
    decoder = EntryDecoder()
    return [Item(f"{name} {k}", Entry("the list", values, k), decoder) for k in range(len(values))]


class ItemIterator(Iterator[Any]):
    """Apply a function to one item after the other, in order.

    Items are computed ahead by several threads, and only a few results are held at a time. An `ItemError` stops the
    iteration, or skips the item. If all items are skipped, that is an error.

    Parameters
    ----------
    items : sequence of Item
    function : callable
        Called with an item, in threads. Raises `ItemError` if the item cannot be used, see `item_errors`.
    source : str
        Origin of the items, for messages.
    on_error : {"raise", "skip"}, default="raise"
        Whether an `ItemError` is raised, or the item skipped. A `SkippedItemsWarning` at the end gives the number of
        skipped items.
    n_jobs : int, default=1
        Number of threads, as in joblib.
    batch_size : int, default=None
        Join the results of that many items by `join`; the last batch may be smaller. None: yield single results.
    join : callable, default=list
        Called with a list of results.
    size : callable, default=0 for all
        Bytes of a result. Batches end early, and fewer results are computed ahead, at 64 MiB.
    task : str, default=None
        Draw a progress bar of this name on the terminal.

    Attributes
    ----------
    kept : list of int
        Numbers of the items whose results were yielded so far.
    skipped : list of Skipped
        Items skipped so far, as pairs of id and reason.
    n_items : int
        Number of all items.
    source : str
    warn : bool
        Set to False to skip items without a warning.

    Examples
    --------
    >>> from bagwise.sources.items import ItemIterator, list_items
    >>> items = list_items(range(5), "number")
    >>> iterator = ItemIterator(items, lambda item: item.load() ** 2, "a list", batch_size=2)
    >>> list(iterator), iterator.kept
    ([[0, 1], [4, 9], [16]], [0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        items: Sequence[Any],
        function: Callable[[Any], Any],
        source: str,
        *,
        on_error: str = "raise",
        n_jobs: int | None = 1,
        batch_size: int | None = None,
        join: Callable[[list[Any]], Any] = list,
        size: Callable[[Any], int] = lambda result: 0,
        task: str | None = None,
    ) -> None:
        self.kept: list[int] = []
        self.skipped: list[Skipped] = []
        self.n_items, self.source, self.warn = len(items), source, True
        self._items, self._function = items, function
        self._skip = check_on_error(on_error) == "skip"
        self._n_threads = min(number_of_threads(n_jobs), len(items))
        self._size, self._task = size, task
        self._iterator = self._results()
        if batch_size is not None:
            self._iterator = self._batches(self._iterator, check_integer(batch_size, "batch_size", 1), join, size)

    @property
    def n_done(self) -> int:
        """Number of items that were computed or skipped so far."""
        return len(self.kept) + len(self.skipped)

    def __next__(self) -> Any:
        return next(self._iterator)

    def close(self) -> None:
        """Stop early: threads end, nothing more is computed."""
        self._iterator.close()

    def _results(self) -> Any:
        tried = map_in_order(self._try, self._items, self._n_threads, self._size_of, _MOST_BYTES)
        with closing(tried), ProgressBar(self._task or "", self.n_items, enabled=self._task is not None) as bar:
            for number, (result, error) in enumerate(tried):
                if error is None:
                    self.kept.append(number)
                    yield result
                elif self._skip:
                    self.skipped.append(Skipped(error.id, error.reason))
                else:
                    raise error
                bar.update(number + 1)
        warn_skipped(self.skipped, self.n_items, self.source, stacklevel=4, warn=self.warn)

    def _try(self, item: Any) -> tuple[Any, ItemError | None]:
        try:
            return self._function(item), None
        except ItemError as error:
            return None, error

    def _size_of(self, tried: tuple[Any, ItemError | None]) -> int:
        return 0 if tried[0] is None else self._size(tried[0])

    @staticmethod
    def _batches(results: Any, batch_size: int, join: Callable[[list[Any]], Any], size: Callable[[Any], int]) -> Any:
        try:
            batch: list[Any] = []
            n_bytes = 0
            for result in results:
                batch.append(result)
                n_bytes += size(result)
                if len(batch) == batch_size or n_bytes > _MOST_BYTES:
                    joined = join(batch)
                    batch, n_bytes = [], 0  # only the joined batch is held
                    yield joined
                    del joined
            if batch:
                yield join(batch)
        finally:
            results.close()


@contextmanager
def item_errors(id: str) -> Iterator[None]:
    """Raise a `BagwiseError` of the block as the `ItemError` of an item."""
    try:
        yield
    except ItemError:
        raise
    except BagwiseError as error:
        raise ItemError(id, str(error)) from error


def check_on_error(on_error: str) -> str:
    """Check the parameter `on_error`."""
    if on_error not in ("raise", "skip"):
        raise unknown_name("on_error", on_error, ("raise", "skip"))
    return on_error


def warn_skipped(skipped: Sequence[Skipped], n_items: int, source: str, stacklevel: int = 2, warn: bool = True) -> None:
    """Warn that items were skipped, or raise an error if all were."""
    if not skipped:
        return
    if len(skipped) == n_items:
        raise NothingReadError(skipped, source)
    if warn:
        message = (
            f"{len(skipped)} of {n_items} items of {source} could not be read and "
            f"{agree(len(skipped), 'was', 'were')} skipped: {_listed(skipped)}"
        )
        warnings.warn(SkippedItemsWarning(message, skipped), stacklevel=stacklevel)


def _listed(skipped: Sequence[Skipped]) -> str:
    named = [f"{id}: {reason.removesuffix('.')}" for id, reason in skipped[:3]]
    return "; ".join([*named, "…"] if len(skipped) > 3 else named)
