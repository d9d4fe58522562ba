"""Collections: sequences of items that are read when they are asked for."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import chosen_numbers
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError, unknown_name
from bagwise.sources.items import Item, ItemError

__all__ = ["Collection", "Loading", "Skipped", "SkippedItemsWarning", "check_on_error", "report_skipped"]


class SkippedItemsWarning(UserWarning):
    """Warns that items could not be read and were left out."""


class Skipped(NamedTuple):
    """An item that could not be read, and why."""

    id: str
    reason: str


class Collection(Sequence[Item]):
    """A sequence of items: images, texts, videos or rows, with their labels, read when they are asked for.

    Collections are opened by `open_collection`. They cannot be changed, can be sent to other processes, and keep their
    order: items of folders and archives are sorted by id (plain order of characters), records stay as in their file.

    ``collection[i]`` is an `Item`; slices, lists of numbers and boolean masks give a collection.

    Parameters
    ----------
    items : iterable of Item
        Ids must differ.
    modality : str
        ``"images"``, ``"texts"``, ``"videos"`` or ``"table"``.
    source : str
        Where the items come from, for people.
    ignored : iterable of str, default=()
        Names of files that lie there and are not items.

    Attributes
    ----------
    ids, labels, label_sets, splits
        What the items have, one entry per item.
    modality, source, ignored
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

    def __init__(self, items: Iterable[Item], modality: str, source: str, ignored: Iterable[str] = ()) -> None:
        self._items = tuple(items)
        self.modality = modality
        self.source = source
        self.ignored = tuple(ignored)
        if len({item.id for item in self._items}) < len(self._items):
            id, n = Counter(item.id for item in self._items).most_common(1)[0]
            raise BagwiseError(
                f"{source} has {n} items with the id {id!r}. Ids must differ; rename items or choose others."
            )

    @property
    def ids(self) -> list[str]:
        """The id of each item."""
        return [item.id for item in self._items]

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each item, ready to be used as ``y``: an array of str; of objects if some have None.

        An error if an item has several labels: use `label_sets` then.
        """
        labels = [item.label for item in self._items]
        return np.array(labels, dtype=object if None in labels or not labels else str)

    @property
    def label_sets(self) -> list[tuple[str, ...]]:
        """All labels of each item, ready for scikit-learn's MultiLabelBinarizer."""
        return [item.labels for item in self._items]

    @property
    def splits(self) -> list[str | None]:
        """The part of the collection each item belongs to, such as ``"train"``; None where it belongs to none."""
        return [item.split for item in self._items]

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, key: int) -> Item: ...
    @overload
    def __getitem__(self, key: slice | Sequence[Any] | NDArray[Any]) -> Collection: ...

    def __getitem__(self, key: Any) -> Item | Collection:
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            return self._items[key]
        if isinstance(key, slice):
            return self._chosen(np.arange(*key.indices(len(self))))
        return self._chosen(chosen_numbers(key, len(self), "item"))

    def split(self, *names: str) -> tuple[Collection, ...]:
        """Give the parts of the collection, by default ``train, test = collection.split()``.

        Parts come from folders (``train/cat/1.jpg``), a column of the file, or a split file; see `open_collection`.

        Parameters
        ----------
        *names : str
            Names of parts, by default "train" and "test".

        Returns
        -------
        parts : tuple of Collection
        """
        wanted = names or ("train", "test")
        splits = np.array(self.splits, dtype=object)
        known = sorted(set(splits) - {None})
        for name in wanted:
            if name not in known:
                has = f"It has the parts {', '.join(map(repr, known))}" if known else "It has no parts"
                raise BagwiseError(
                    f"{self.source} has no part {name!r}. {has}. Put items into folders train/ and test/, "
                    "or pass splits=, a file or mapping from ids to parts."
                )
        return tuple(self[splits == name] for name in wanted)

    def load(self, on_error: str = "raise") -> Loading:
        """Go through the items and load each: ``for item, content in collection.load()``.

        Parameters
        ----------
        on_error : {"raise", "skip"}, default="raise"
            What to do when an item cannot be read: stop with an `ItemError`, or leave it out. Items left out are listed
            in ``.skipped`` of what is returned, and a `SkippedItemsWarning` tells their number at the end. If no item
            can be read at all, that is an error in any case.

        Returns
        -------
        loading : Loading
            An iterator over pairs of an item and what `Item.load` gave.
        """
        return Loading(self, check_on_error(on_error))

    def with_labels(self, labels: Mapping[str, str | Sequence[str]] | str | os.PathLike[str]) -> Collection:
        """Give the same collection with other labels.

        Parameters
        ----------
        labels : mapping or path
            From every id to its label, or labels. A path is that of a CSV or TSV file with columns ``id`` and
            ``label``; an id with several labels has several rows.

        Returns
        -------
        collection : Collection
        """
        from bagwise.sources.annotations import match_ids, read_annotations

        found = match_ids(self.ids, read_annotations(labels, "label"), "label", self.source)
        return self._replaced([dataclasses.replace(item, labels=found[item.id]) for item in self._items])

    def with_splits(self, splits: Mapping[str, str] | str | os.PathLike[str]) -> Collection:
        """Give the same collection divided into other parts.

        Parameters
        ----------
        splits : mapping or path
            From every id to the name of its part. A path is that of a CSV or TSV file with columns ``id`` and
            ``split``.

        Returns
        -------
        collection : Collection
        """
        from bagwise.sources.annotations import match_ids, read_annotations

        found = match_ids(self.ids, read_annotations(splits, "split"), "split", self.source)
        several = [id for id, names in found.items() if len(names) != 1]
        if several:
            raise BagwiseError(f"Item {several[0]!r} is in the parts {found[several[0]]}; an item is in exactly one.")
        return self._replaced([dataclasses.replace(item, split=found[item.id][0]) for item in self._items])

    def _chosen(self, numbers: NDArray[np.int64]) -> Collection:
        return Collection((self._items[i] for i in numbers.tolist()), self.modality, self.source, self.ignored)

    def _replaced(self, items: Sequence[Item]) -> Collection:
        """Give a collection with the same contents in the same order, but other labels or parts."""
        return Collection(items, self.modality, self.source, self.ignored)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection):
            return NotImplemented
        return self.modality == other.modality and self._items == other._items

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        classes = {label for item in self._items for label in item.labels}
        parts = Counter(item.split for item in self._items if item.split is not None)
        about = [how_many(len(self), self.modality)]
        if classes:
            about.append(f"{len(classes)} classes")
        about += [f"{n} in {name}" for name, n in sorted(parts.items())]
        return f"<Collection: {', '.join(about)}, from {self.source}>"


class Loading(Iterator[tuple[Item, Any]]):
    """The items of a collection being loaded; see `Collection.load`.

    Attributes
    ----------
    skipped : list of Skipped
        Items that could not be read so far, as pairs of id and reason.
    """

    def __init__(self, collection: Collection, on_error: str) -> None:
        self.skipped: list[Skipped] = []
        self._collection = collection
        self._skip = on_error == "skip"
        self._pairs = self._load()

    def __next__(self) -> tuple[Item, Any]:
        return next(self._pairs)

    def _load(self) -> Iterator[tuple[Item, Any]]:
        for item in self._collection:
            try:
                content = item.load()
            except ItemError as error:
                if not self._skip:
                    raise
                self.skipped.append(Skipped(error.id, error.reason))
            else:
                yield item, content
        report_skipped(self.skipped, len(self._collection), self._collection.source, stacklevel=4)


def check_on_error(on_error: str) -> str:
    """Check the `on_error` parameter that all that goes through collections has."""
    if on_error not in ("raise", "skip"):
        raise unknown_name("on_error", on_error, ("raise", "skip"))
    return on_error


def report_skipped(skipped: Sequence[Skipped], n_items: int, source: str, stacklevel: int = 2) -> None:
    """Warn that items were left out, or raise an error if all were. Says nothing if none was."""
    if not skipped:
        return
    listed = "; ".join(f"{id}: {reason}" for id, reason in skipped[:3]) + ("; …" if len(skipped) > 3 else "")
    if len(skipped) == n_items:
        raise BagwiseError(f"None of the {n_items} items of {source} could be read. {listed}")
    warnings.warn(
        f"{len(skipped)} of {n_items} items of {source} could not be read and were left out: {listed}",
        SkippedItemsWarning,
        stacklevel=stacklevel,
    )
