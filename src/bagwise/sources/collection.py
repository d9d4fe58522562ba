"""Collections: sequences of items, with labels and splits, that are read on demand."""

from __future__ import annotations

import dataclasses
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import chosen_numbers
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError, argument, in_python
from bagwise.sources.annotations import Annotations, LabelFile, annotations_of
from bagwise.sources.item_tables import (
    all_differ,
    arrow,
    codes_of,
    item_table,
    label_column,
    label_sets_of,
    numbers,
    packed,
    to_codes,
    to_strings,
    unpacked,
)
from bagwise.sources.items import (
    Content,
    Decoder,
    Entry,
    EntryDecoder,
    Item,
    ItemIterator,
    Skipped,
    item_errors,
    list_items,
    several_labels,
)
from bagwise.sources.limits import Limits

if TYPE_CHECKING:
    from bagwise.sources.partitions import Partition

__all__ = ["Collection", "Contents", "Root", "as_items"]

# Bytes of an array of labels of one width; larger ones are arrays of objects. Items that are made at a time.
_WIDE, _AT_A_TIME = 1 << 26, 1 << 16


class Root(ABC):
    """Finds the bytes of items. Picklable; equal ones find the same."""

    @abstractmethod
    def content(self, id: str, url: Any = None, offset: Any = None, size: Any = None, version: Any = None) -> Content:
        """Return the bytes of an item, by its row in the table: strings and whole numbers, or None."""

    def part(self, ids: Sequence[str], urls: Sequence[str | None]) -> Root:
        """Return what finds the bytes of these items, to be sent to another process."""
        return self


@dataclass(frozen=True)
class Contents(Root):
    """The bytes of items by id."""

    by_id: Mapping[str, Content]

    def content(self, id: str, *_: Any) -> Content:
        """Return the bytes of an item."""
        return self.by_id[id]

    def part(self, ids: Sequence[str], urls: Sequence[str | None]) -> Contents:
        """Return those of some items."""
        return Contents({id: self.by_id[id] for id in ids})


@dataclass(frozen=True)
class TextContent:
    """A text of a table, in UTF-8."""

    source: str
    text: bytes

    def open(self) -> BinaryIO:
        """Open the text."""
        return io.BytesIO(self.text)


class Collection(Sequence[Item]):
    """A sequence of items: images, texts, videos or rows, with their labels, read on demand.

    Collections are opened by `open_collection`. They are immutable and can be pickled. Items of folders and archives
    are sorted by id (code points); records are in the order of their file.

    ``collection[i]`` is an `Item`; slices, lists of numbers and boolean masks return a collection.

    Parameters
    ----------
    table : pyarrow.Table
        What is known of each item, see `bagwise.sources.item_tables.item_table`: its id, label and split. Beside them
        where its bytes are (url, offset, size, version), or its text (text, in UTF-8).
    modality : str
        ``"images"``, ``"texts"``, ``"videos"`` or ``"table"``.
    decoder : Decoder or None
        Decodes the bytes of all items. None: what `root` gives are items with decoders of their own, see `of`.
    root : Root, default=None
        Finds the bytes of items; not needed for texts of the table and rows of `X`.
    source : str
        Origin of the items, for messages.
    X : ndarray or CSR array of shape (N, d), default=None
        The rows of a table of numbers.
    feature_names : sequence of str, default=None
        Names of its columns.
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
    classes
        The labels that items have.
    table, modality, decoder, root, source, X, feature_names, ignored, notes, skipped, limits
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
        table: Any,
        modality: str,
        decoder: Decoder | None,
        root: Root | None = None,
        *,
        source: str,
        X: Any = None,
        feature_names: Sequence[str] | None = None,
        ignored: Iterable[str] = (),
        notes: Iterable[str] = (),
        skipped: Iterable[Skipped] = (),
        limits: Limits | None = None,
    ) -> None:
        self.table, self.modality, self.decoder, self.root = table, modality, decoder, root
        self.source, self.X = source, X
        self.feature_names = None if feature_names is None else list(feature_names)
        self.ignored, self.notes, self.skipped = tuple(ignored), tuple(notes), tuple(skipped)
        self.limits = limits or Limits()
        self._check_ids()
        self._check_labels()

    @classmethod
    def of(
        cls, items: Iterable[Item], modality: str, source: str, *, notes: Iterable[str] = (),
        skipped: Iterable[Skipped] = (), ignored: Iterable[str] = (), limits: Limits | None = None
    ) -> Collection:  # fmt: skip
        """Make a collection of items, such as some of several others."""
        items = list(items)
        decoders = list(dict.fromkeys(item.decoder for item in items))
        contents: dict[str, Any] = {item.id: item.content if len(decoders) == 1 else item for item in items}
        table = item_table([one.id for one in items], [one.labels for one in items], [one.split for one in items])
        decoder = decoders[0] if len(decoders) == 1 else None
        about: dict[str, Any] = {"notes": notes, "skipped": skipped, "ignored": ignored, "limits": limits}
        return cls(table, modality, decoder, Contents(contents), source=source, **about)

    @classmethod
    def from_matrix(
        cls,
        X: Any,
        ids: Any = None,
        labels: Any = None,
        splits: Any = None,
        feature_names: Sequence[str] | None = None,
        source: str = "a table",
        notes: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Collection:
        """Make a collection of the rows of a matrix: ``collection[mask].X`` is ``collection.X[mask]``.

        Parameters
        ----------
        X : ndarray or CSR array of shape (N, d)
        ids : sequence of str, default=None
            None: the numbers of the rows.
        labels : sequence of tuples of str, default=None
            The labels of each row; None: none has any.
        splits : sequence of str or None, default=None
        feature_names : sequence of str, default=None
            Names of the columns.
        source : str, default="a table"
            Origin, for messages.
        notes, limits
            See `Collection`.

        Returns
        -------
        collection : Collection

        Examples
        --------
        >>> rows = Collection.from_matrix(np.eye(3), labels=[("x",), ("y",), ("x",)])
        >>> rows.ids, rows.classes, rows[1:].X.shape
        (['0', '1', '2'], ('x', 'y'), (2, 3))
        """
        n = X.shape[0]
        for what, values in (("ids", ids), ("labels", labels), ("splits", splits)):
            if values is not None and len(values) != n:
                raise BagwiseError(f"{source} has {n} rows but {len(values)} {what}.")
        if ids is None:
            ids = numbers(np.arange(n)).cast(arrow().large_string()).cast(arrow().large_binary())
        about: dict[str, Any] = {"source": source, "notes": notes, "limits": limits}
        return cls(item_table(ids, labels, splits), "table", EntryDecoder(), X=X, feature_names=feature_names, **about)

    def _check_ids(self) -> None:
        """Raise an error if two ids are equal."""
        ids = self.table.column("id")
        if all_differ(ids) or len(ids.unique()) == len(ids):
            return
        counts = ids.value_counts()
        most = int(np.argmax(counts.field("counts").to_numpy()))
        id, n = to_strings(counts.field("values").slice(most, 1))[0], counts.field("counts")[most].as_py()
        first, second, *_ = (number for number, one in enumerate(self.ids, start=1) if one == id)
        raise BagwiseError(
            f"{self.source} has {n} items with the id {id!r:.100}, such as items {first} and {second}. Ids must "
            f"differ; rename items, or choose another column by {argument('id')}."
        )

    def _check_labels(self) -> None:
        """Raise an error if a label is longer than the limit."""
        longest = max(self.classes, key=len, default="")
        if len(longest) > self.limits.label_length:
            error = self.limits.exceeded("label_length", f"{self.source} has a label of {len(longest):,} characters")
            about = f"If texts were taken for labels, choose another column by {argument('label')}."
            raise BagwiseError(f"{error} {about}")

    @property
    def ids(self) -> list[str]:
        """The id of each item, as a new list."""
        return to_strings(self.table.column("id"))

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each item, for use as ``y``: an array of str, or of objects if some have none (None).

        Also of objects if the strings would take more than 64 MiB, since all are as wide as the longest one. Raises an
        error if an item has several labels; use `label_sets` then.
        """
        several, codes, n = self.several(), self.codes_in(self.classes), len(self)
        if several is not None:
            raise several_labels(several.id, several.labels)
        if not n:
            return np.empty(0, dtype=object)
        longest = max(map(len, self.classes), default=0)
        objects = bool((codes < 0).any()) or 4 * longest * n > _WIDE
        return np.array([*self.classes, None][: None if objects else -1], dtype=object if objects else str)[codes]

    @property
    def label_sets(self) -> list[tuple[str, ...]]:
        """All labels of each item, for scikit-learn's MultiLabelBinarizer."""
        codes, known = self._label_codes
        return [known[code] for code in codes.tolist()]

    @property
    def splits(self) -> list[str | None]:
        """The split of each item, such as ``"train"``, or None."""
        codes, known = self._split_codes
        names: list[str | None] = [*known, None]
        return [names[code] for code in codes.tolist()]

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The labels that items have, sorted."""
        codes, known = self._label_codes
        used = np.unique(codes).tolist()
        return tuple(sorted({label for code in used for label in known[code]}))

    def codes_in(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """Return the label of each item as its number in `classes`; -1 for none, several, and other labels."""
        codes, known = self._label_codes
        number = {label: k for k, label in enumerate(classes)}
        return np.array([number.get(some[0], -1) if len(some) == 1 else -1 for some in known], np.int64)[codes]

    def several(self) -> Item | None:
        """Return the first item with several labels, if there is one."""
        if all(len(labels) < 2 for labels in self._label_codes[1]):
            return None
        return self[int(np.argmax(self.n_labels > 1))] if (self.n_labels > 1).any() else None

    @cached_property
    def n_labels(self) -> NDArray[np.int64]:
        """The number of labels of each item."""
        codes, known = self._label_codes
        return np.array([len(labels) for labels in known], np.int64)[codes]

    @cached_property
    def _label_codes(self) -> tuple[NDArray[np.int32], list[tuple[str, ...]]]:
        return label_sets_of(self.table.column("label"))

    @cached_property
    def _split_codes(self) -> tuple[NDArray[np.int32], list[str]]:
        return codes_of(self.table.column("split"))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Item]:
        for start in range(0, len(self), _AT_A_TIME):
            yield from self._items(start, min(start + _AT_A_TIME, len(self)))

    def _items(self, start: int, stop: int) -> Iterator[Item]:
        """Make the items from `start` to `stop`."""
        rows = self.table.slice(start, stop - start)
        ids = to_strings(rows.column("id"))
        (codes, known), (split_codes, names) = self._label_codes, self._split_codes
        labels = [known[code] for code in codes[start:stop].tolist()]
        split_of: list[str | None] = [*names, None]
        splits = [split_of[code] for code in split_codes[start:stop].tolist()]
        contents = self._contents(rows, ids, start)
        if self.decoder is None:
            return map(_relabelled, contents, labels, splits)
        return map(Item, ids, contents, repeat(self.decoder), labels, splits)

    def _contents(self, rows: Any, ids: Sequence[str], start: int) -> Iterator[Content]:
        if self.X is not None:
            return map(Entry, repeat(self.source), repeat(self.X), range(start, start + len(ids)))
        if "text" in rows.column_names:
            sources = (f"{self.source}:{id}" for id in ids)
            return map(TextContent, sources, rows.column("text").cast(arrow().large_binary()).to_pylist())
        assert self.root is not None
        names = ("url", "offset", "size", "version")
        columns = (to_list(rows.column(name)) if name in rows.column_names else repeat(None) for name in names)
        return map(self.root.content, ids, *columns)

    @overload
    def __getitem__(self, key: int) -> Item: ...
    @overload
    def __getitem__(self, key: slice | Sequence[Any] | NDArray[Any]) -> Collection: ...

    def __getitem__(self, key: Any) -> Item | Collection:
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            number = range(len(self))[int(key)]
            return next(self._items(number, number + 1))
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._changed(self.table.slice(start, max(0, stop - start)), slice(start, max(start, stop)))
            return self._chosen(np.arange(start, stop, step))
        rows = chosen_numbers(key, len(self), "item")
        chosen = self._chosen(rows)
        if len(np.unique(rows)) < len(rows):
            chosen._check_ids()
        return chosen

    def _chosen(self, rows: NDArray[np.int64]) -> Collection:
        return self._changed(self.table.take(numbers(rows)), rows)

    def _changed(self, table: Any, rows: Any = None) -> Collection:
        """Return the collection with another table, of some of the rows, or of all."""
        other = self._copied()
        for name in ("classes", "n_labels", "_label_codes", "_split_codes"):
            vars(other).pop(name, None)
        other.table = table
        if rows is not None and self.X is not None:
            other.X = self.X[rows]
        return other

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
        codes, known = self._split_codes
        there = sorted(known[code] for code in np.unique(codes).tolist() if code >= 0)
        for name in wanted:
            if name not in there:
                has = f"It has the splits {', '.join(map(repr, there))}" if there else "It has no splits"
                raise BagwiseError(
                    f"{self.source} has no split {name!r}. {has}. Put items into folders train/ and test/, "
                    + in_python(
                        "or pass splits=, a file or mapping from ids to splits.",
                        f"or give a file with columns filename and split by {argument('labels')}.",
                    )
                )
        return tuple(self[codes == known.index(name)] for name in wanted)

    def partitions(self, n: int | None = None, *, items_per_partition: int | None = None) -> list[Partition]:
        """Divide the collection into consecutive parts that other processes, such as workers of Dask, open themselves.

        Partitions say where items are (paths, URLs, offsets), and have no bytes of items. Only texts and rows, which
        are in memory already, are carried by them. The items of one of several tar files (shards) stay together.

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
            From each id to its label or labels, for all items. Or a CSV, TSV, JSON lines, Excel, Parquet or SQLite file
            with a column of names, such as ``filename`` or ``id``, and one of labels, such as ``label``; an id with
            several labels has several rows. Names in a file are ids, or their last parts where only one item ends so,
            also without the ending. Items that are not in the file have no label; `notes` say how many. If the file has
            a column ``split``, items get their splits as well.

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
        annotations = annotations_of(splits, "split", self.ids, self.source, self.limits)
        return self._annotated(dataclasses.replace(annotations, labels=None))

    def _annotated(self, annotations: Annotations) -> Collection:
        table, ids = self.table, self.ids
        if annotations.labels is not None:
            table = _replaced(table, "label", label_column([annotations.labels[id] for id in ids]))
        if annotations.splits is not None:
            table = _replaced(table, "split", to_codes(annotations.splits[id] for id in ids))
        changed = self._changed(table)
        changed._check_labels()
        changed.notes = (*self.notes, *annotations.notes)
        return changed

    def with_decoder(self, decoder: Decoder | None) -> Collection:
        """Return a collection of the same items, decoded in another way."""
        other = self._copied()
        other.decoder = decoder
        return other

    def _copied(self) -> Collection:
        other = object.__new__(Collection)
        vars(other).update(vars(self))
        return other

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if not hasattr(Collection, name)}
        urls = to_list(self.table.column("url")) if "url" in self.table.column_names else ()
        root = None if self.root is None else self.root.part(self.ids, urls)
        return state | {"table": packed(self.table), "root": root}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"table": unpacked(state["table"])})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection):
            return NotImplemented
        if self.modality != other.modality or len(self) != len(other) or self.ids != other.ids:
            return False
        if self.label_sets != other.label_sets or self.splits != other.splits:
            return False
        if self.X is None or other.X is None:
            return self.X is other.X and all(one == two for one, two in zip(self, other, strict=True))
        if self.X.shape != other.X.shape or hasattr(self.X, "tocsr") != hasattr(other.X, "tocsr"):
            return False
        return bool(not (self.X != other.X).nnz if hasattr(self.X, "tocsr") else np.array_equal(self.X, other.X))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        codes, known = self._split_codes
        counts = np.bincount(codes[codes >= 0], minlength=len(known)).tolist()
        about = [how_many(len(self), self.modality)]
        if self.classes:
            about.append(how_many(len(self.classes), "classes"))
        about += [f"{n} in {name}" for name, n in sorted(zip(known, counts, strict=True)) if n]
        return f"<Collection: {', '.join(about)}, from {self.source}>"


def _relabelled(item: Any, labels: tuple[str, ...], split: str | None) -> Item:
    return dataclasses.replace(item, labels=labels, split=split)


def _replaced(table: Any, name: str, column: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, column)


def to_list(column: Any) -> list[Any]:
    """Return a column as a list: of strings, or of numbers; null is None."""
    return column.to_pylist() if arrow().types.is_integer(column.type) else to_strings(column)


def as_items(several: Any, modality: str) -> tuple[Sequence[Any], str]:
    """Return the items of a collection of a modality, or of a list, or array, of arrays or texts, and their origin."""
    items: Sequence[Any]
    if isinstance(several, Collection):
        if several.modality != modality:
            raise BagwiseError(
                f"This descriptor takes {modality}, got a collection of {several.modality} from {several.source}."
            )
        items, source = several, several.source
    else:
        if isinstance(several, (str, bytes)) or not isinstance(several, Iterable):
            raise BagwiseError(
                f"Expected a list of {modality} or a collection, got {type(several).__name__}. "
                "Open folders and archives by bagwise.open_collection(path)."
            )
        # an array of shape (n, height, 3) could be n grey images, but is one in RGB
        if modality == "images" and isinstance(several, np.ndarray) and (several.ndim < 3 or several.shape[2:] == (3,)):
            raise BagwiseError(
                f"Expected a list of images, got one array of shape {several.shape}. For one image pass [image]."
            )
        values: Any = several if isinstance(several, (list, tuple, np.ndarray)) else list(several)
        items, source = list_items(values, modality[:-1]), "the list"
    if len(items) == 0:
        raise BagwiseError(f"There is nothing to describe: got no {modality}. Pass at least one.")
    return items, source


def as_text(content: Any) -> str:
    """Raise an error unless `content` is a str."""
    if isinstance(content, str):
        return content
    hint = " Decode it first: text.decode('utf-8')." if isinstance(content, (bytes, bytearray)) else ""
    raise BagwiseError(f"A text must be a str, got {type(content).__name__}.{hint}")


def load_texts(texts: Any, on_error: str = "raise") -> ItemIterator:
    """Iterate over the texts, at least one, of a collection or an iterable of str."""

    def text_of(item: Any) -> str:
        with item_errors(item.id):
            return as_text(item.load())

    items, source = as_items(texts, "texts")
    return ItemIterator(items, text_of, source, on_error=on_error)
