"""Collections: sequences of items, with labels and splits, that are read on demand."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import chosen_numbers
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError, argument, in_python
from bagwise.sources.annotations import Annotations, LabelFile, annotations_of
from bagwise.sources.items import Item, ItemIterator, ListItem, Skipped, item_errors
from bagwise.sources.limits import Limits

if TYPE_CHECKING:
    from bagwise.sources.partitions import Partition

__all__ = ["Collection", "as_items"]

# Bytes of an array of labels of one width; larger ones are arrays of objects.
_WIDE = 1 << 26


class Collection(Sequence[Item]):
    """A sequence of items: images, texts, videos or rows, with their labels, read on demand.

    Collections are opened by `open_collection`. They are immutable and can be pickled. Items of folders and archives
    are sorted by id (code points); records are in the order of their file.

    ``collection[i]`` is an `Item`; slices, lists of numbers and boolean masks return a collection.

    Parameters
    ----------
    items : iterable of Item
        Ids must differ.
    modality : str
        ``"images"``, ``"texts"``, ``"videos"`` or ``"table"``.
    source : str
        Origin of the items, for messages.
    ignored : iterable of str, default=()
        Names of files beside the items that are not items.
    notes : iterable of str, default=()
        What was not obvious about the source, to be told to users.
    skipped : iterable of Skipped, default=()
        Records of the source that could not be read, which are not items.
    limits : Limits, default=None
        Of which `label_length` is checked. None: the defaults.

    Attributes
    ----------
    ids, labels, label_sets, splits
        One entry per item.
    modality, source, ignored, notes, skipped, limits
        As given.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bagwise import open_collection
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, text in [("cat/1.txt", "meow"), ("cat/2.txt", "purr"), ("dog/1.txt", "woof")]:
    ...         Path(folder, name).parent.mkdir(exist_ok=True)
    ...         _ = Path(folder, name).write_text(text)
    ...     collection = open_collection(folder)
    ...     print(collection.ids, collection.labels)
    ...     print(collection[2].load(), [text for item, text in collection[:2].load()])
    ['cat/1.txt', 'cat/2.txt', 'dog/1.txt'] ['cat' 'cat' 'dog']
    woof ['meow', 'purr']
    """

    def __init__(
        self,
        items: Iterable[Item],
        modality: str,
        source: str,
        ignored: Iterable[str] = (),
        notes: Iterable[str] = (),
        skipped: Iterable[Skipped] = (),
        limits: Limits | None = None,
    ) -> None:
        self._items: Sequence[Item] = tuple(items)
        self.modality = modality
        self.source = source
        self.ignored = tuple(ignored)
        self.notes = tuple(notes)
        self.skipped = tuple(skipped)
        self.limits = limits or Limits()
        self._check([item.id for item in self._items], {item.labels for item in self._items})

    def _check(self, ids: Sequence[str], label_sets: Iterable[tuple[str, ...]]) -> None:
        """Raise an error if two ids are equal, or a label is longer than the limit."""
        if len(set(ids)) < len(ids):
            id, n = Counter(ids).most_common(1)[0]
            raise BagwiseError(
                f"{self.source} has {n} items with the id {id!r:.100}. Ids must differ; rename items, or choose "
                f"another column by {argument('id')}."
            )
        longest = max((label for labels in label_sets for label in labels), key=len, default="")
        if len(longest) > self.limits.label_length:
            error = self.limits.exceeded("label_length", f"{self.source} has a label of {len(longest):,} characters")
            about = f"If texts were taken for labels, choose another column by {argument('label')}."
            raise BagwiseError(f"{error} {about}")

    @property
    def ids(self) -> Sequence[str]:
        """The id of each item."""
        return [item.id for item in self._items]

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each item, for use as ``y``: an array of str, or of objects if some have none (None).

        Also of objects if the strings would take more than 64 MiB, since all are as wide as the longest one. Raises an
        error if an item has several labels; use `label_sets` then.
        """
        return as_label_array([item.label for item in self._items], len(self))

    @property
    def label_sets(self) -> Sequence[tuple[str, ...]]:
        """All labels of each item, for scikit-learn's MultiLabelBinarizer."""
        return [item.labels for item in self._items]

    @property
    def splits(self) -> Sequence[str | None]:
        """The split of each item, such as ``"train"``, or None."""
        return [item.split for item in self._items]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    @overload
    def __getitem__(self, key: int) -> Item: ...
    @overload
    def __getitem__(self, key: slice | Sequence[Any] | NDArray[Any]) -> Collection: ...

    def __getitem__(self, key: Any) -> Item | Collection:
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            return self._items[int(key)]
        if isinstance(key, slice):
            return self._chosen(np.arange(*key.indices(len(self))))
        return self._chosen(chosen_numbers(key, len(self), "item"))

    def split(self, *names: str) -> tuple[Collection, ...]:
        """Return the splits of the collection: ``train, test = collection.split()``.

        Splits come from folders (``train/cat/1.jpg``), a column of the file, or a split file; see `open_collection`.

        Parameters
        ----------
        *names : str
            Names of splits, by default "train" and "test".

        Returns
        -------
        splits : tuple of Collection
        """
        wanted = names or ("train", "test")
        splits = np.array(list(self.splits), dtype=object)
        known = sorted(set(splits) - {None})
        for name in wanted:
            if name not in known:
                has = f"It has the splits {', '.join(map(repr, known))}" if known else "It has no splits"
                raise BagwiseError(
                    f"{self.source} has no split {name!r}. {has}. Put items into folders train/ and test/, "
                    + in_python(
                        "or pass splits=, a file or mapping from ids to splits.",
                        f"or give a file with columns filename and split by {argument('labels')}.",
                    )
                )
        return tuple(self[splits == name] for name in wanted)

    def partitions(self, n: int | None = None, *, items_per_partition: int | None = None) -> list[Partition]:
        """Divide the collection into consecutive parts that other processes, such as workers of Dask, open themselves.

        Partitions are small: they say where items are (paths, URLs, offsets, rows of a file), and have no bytes of
        items. Only a table that is not from a file is carried by them. The items of one of several tar files (shards)
        stay together.

        Parameters
        ----------
        n : int, default=None
            Number of partitions, of about the same size; fewer if there are fewer items or shards.
        items_per_partition : int, default=None
            Or their size; the last one may be smaller. Default: 1000.

        Returns
        -------
        partitions : list of Partition
            In order: together they have all items once, with the ids of this collection.
        """
        from bagwise.sources.partitions import divide

        return divide(self, n, items_per_partition)

    def _reference(self, start: int, stop: int) -> Any:
        """Return what opens the items from `start` to `stop` in another process."""
        from bagwise.sources.partitions import Held

        items = self[start:stop]
        items.ignored, items.notes, items.skipped = (), (), ()  # of the whole, and long
        return Held(items)

    def _whole_files(self) -> NDArray[np.bool_] | None:
        """Whether each item but the first is in another file than the one before it; None: as their contents say."""
        return None

    def load(self, on_error: str = "raise") -> ItemIterator:
        """Load all items: ``for item, content in collection.load()``.

        Parameters
        ----------
        on_error : {"raise", "skip"}, default="raise"
            Whether an item that cannot be read raises an `ItemError`, or is skipped. Skipped items are listed in
            ``.skipped`` of the iterator, and a `SkippedItemsWarning` gives their number at the end. It is always an
            error if no item can be read.

        Returns
        -------
        iterator : ItemIterator
            Over pairs of an item and its content.
        """
        return ItemIterator(self, lambda item: (item, item.load()), self.source, on_error=on_error)

    def with_labels(self, labels: Mapping[str, str | Sequence[str]] | str | os.PathLike[str] | LabelFile) -> Collection:
        """Return the same collection with other labels.

        Parameters
        ----------
        labels : mapping or path
            From each id to its label or labels, for all items. Or a CSV, TSV, Excel or Parquet file with a column of
            names, such as ``filename`` or ``id``, and one of labels, such as ``label``; an id with several labels has
            several rows. Names in a file are ids, or their last parts where only one item ends so, also without the
            ending. Items that are not in the file have no label; `notes` say how many. If the file has a column
            ``split``, items get their splits as well.

        Returns
        -------
        collection : Collection
        """
        return self._annotated(annotations_of(labels, "label", self.ids, self.source, self.limits))

    def with_splits(self, splits: Mapping[str, str] | str | os.PathLike[str] | LabelFile) -> Collection:
        """Return the same collection with other splits.

        Parameters
        ----------
        splits : mapping or path
            From each id to the name of its split. Or a file as in `with_labels`, with a column ``split``.

        Returns
        -------
        collection : Collection
        """
        found = annotations_of(splits, "split", self.ids, self.source, self.limits)
        return self._annotated(dataclasses.replace(found, labels=None))

    def _annotated(self, found: Annotations) -> Collection:
        label_sets, splits = self.label_sets, self.splits
        if found.labels is not None:
            label_sets = [found.labels[id] for id in self.ids]
        if found.splits is not None:
            splits = [found.splits[id] for id in self.ids]
        changed = self._with_columns(label_sets, splits)
        changed.notes = (*self.notes, *found.notes)
        return changed

    def _with_columns(self, label_sets: Sequence[tuple[str, ...]], splits: Sequence[str | None]) -> Collection:
        """Return a collection of the same items with other labels and splits."""
        new = zip(self._items, label_sets, splits, strict=True)
        return self._replaced([dataclasses.replace(item, labels=labels, split=split) for item, labels, split in new])

    def _with_decoders(self, change: Callable[[Any], Any]) -> Collection:
        """Return a collection of the same items with changed decoders."""
        return self._replaced([dataclasses.replace(item, decoder=change(item.decoder)) for item in self])

    def _chosen(self, numbers: NDArray[np.int64]) -> Collection:
        chosen = (self._items[i] for i in numbers.tolist())
        return Collection(chosen, self.modality, self.source, self.ignored, self.notes, self.skipped, self.limits)

    def _replaced(self, items: Sequence[Item]) -> Collection:
        """Return a collection of other items, one for each, that differ in what is known of them."""
        return Collection(items, self.modality, self.source, self.ignored, self.notes, self.skipped, self.limits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection):
            return NotImplemented
        return self.modality == other.modality and self._items == other._items

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        classes = {label for labels in set(self.label_sets) for label in labels}
        splits = Counter(split for split in self.splits if split is not None)
        about = [how_many(len(self), self.modality)]
        if classes:
            about.append(how_many(len(classes), "classes"))
        about += [f"{n} in {name}" for name, n in sorted(splits.items())]
        return f"<Collection: {', '.join(about)}, from {self.source}>"


def as_label_array(labels: Sequence[str | None], n_items: int) -> NDArray[Any]:
    """Return labels as an array of the type that `Collection.labels` has, if `n_items` items have these labels."""
    longest = max((len(label) for label in labels if label is not None), default=0)
    objects = None in labels or not labels or 4 * longest * n_items > _WIDE
    return np.array(labels, dtype=object if objects else str)


def as_items(given: Any, modality: str) -> tuple[Sequence[Any], str]:
    """Return the items of a collection of a modality, or of a list of arrays or texts, and their origin for messages.

    An array is a list along its first axis. `modality` is "images", "videos" or "texts".
    """
    items: Sequence[Any]
    if isinstance(given, Collection):
        if given.modality != modality:
            raise BagwiseError(
                f"This descriptor takes {modality}, got a collection of {given.modality} from {given.source}."
            )
        items, source = given, given.source
    else:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise BagwiseError(
                f"Expected a list of {modality} or a collection, got {type(given).__name__}. "
                "Open folders and archives by bagwise.open_collection(path)."
            )
        # an array of shape (n, height, 3) could be n grey images, but is one in RGB
        if modality == "images" and isinstance(given, np.ndarray) and (given.ndim < 3 or given.shape[2:] == (3,)):
            raise BagwiseError(
                f"Expected a list of images, got one array of shape {given.shape}. For one image pass [image]."
            )
        items, source = [ListItem(f"{modality[:-1]} {number}", one) for number, one in enumerate(given)], "the list"
    if len(items) == 0:
        raise BagwiseError(f"There is nothing to describe: got no {modality}. Pass at least one.")
    return items, source


def as_text(content: Any) -> str:
    """Raise an error unless `content` is a str."""
    if isinstance(content, str):
        return content
    hint = " Decode it first: text.decode('utf-8')." if isinstance(content, (bytes, bytearray)) else ""
    raise BagwiseError(f"A text must be a str, got {type(content).__name__}.{hint}")


def load_texts(given: Any, on_error: str = "raise") -> ItemIterator:
    """Iterate over the texts, at least one, of a collection or an iterable of str.

    An item that cannot be read or is not a str raises an `ItemError`, or is skipped with a warning (`on_error`).
    """

    def text_of(item: Any) -> str:
        with item_errors(item.id):
            return as_text(item.load())

    items, source = as_items(given, "texts")
    return ItemIterator(items, text_of, source, on_error=on_error)
