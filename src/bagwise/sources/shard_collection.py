"""Collections of the samples of shards: columns of what was listed, of which items are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.sources.archives import Packed, TarMember
from bagwise.sources.contents import File
from bagwise.sources.items import Decoder, Item
from bagwise.sources.limits import Limits
from bagwise.sources.row_collection import RowCollection
from bagwise.sources.row_lists import Coded, LazyList

__all__ = ["ListedShard", "ShardCollection"]


class ListedShard(NamedTuple):
    """The items of a shard: what the process that opens a collection needs to know of them, and no more."""

    stamp: tuple[Any, ...]
    packed: Packed | None
    names: list[str]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    labels: Coded[tuple[str, ...]]


class _Shard(NamedTuple):
    name: str
    file: File
    stamp: tuple[Any, ...]
    packed: Packed | None


class _Members(LazyList[TarMember]):
    """Members of shards, about 100 bytes each: a name, where it is in its shard, and the number of that."""

    def __init__(
        self,
        shards: Sequence[_Shard],
        numbers: NDArray[np.int32],
        names: list[str],
        offsets: NDArray[np.int64],
        sizes: NDArray[np.int64],
    ) -> None:
        self.shards, self.numbers, self.names, self.offsets, self.sizes = shards, numbers, names, offsets, sizes

    def chosen(self, numbers: NDArray[np.int64]) -> _Members:
        """Return some members."""
        names = [self.names[k] for k in numbers.tolist()]
        return _Members(self.shards, self.numbers[numbers], names, self.offsets[numbers], self.sizes[numbers])

    def compact(self) -> _Members:
        """Return the same members with no other shards than theirs."""
        used, numbers = np.unique(self.numbers, return_inverse=True)
        shards = [self.shards[k] for k in used.tolist()]
        return _Members(shards, numbers.astype(np.int32), self.names, self.offsets, self.sizes)

    def __len__(self) -> int:
        return len(self.names)

    def _at(self, number: int) -> TarMember:
        shard = self.shards[self.numbers[number]]
        where = int(self.offsets[number]), int(self.sizes[number])
        return TarMember(shard.file, self.names[number], *where, shard.stamp, shard.packed)


class _Ids(LazyList[str]):
    """The ids of members: the name of the shard and that of the member."""

    def __init__(self, members: _Members) -> None:
        self._members = members

    def chosen(self, numbers: NDArray[np.int64]) -> _Ids:
        """Return some ids."""
        return _Ids(self._members.chosen(numbers))

    def __len__(self) -> int:
        return len(self._members)

    def _at(self, number: int) -> str:
        return f"{self._members.shards[self._members.numbers[number]].name}/{self._members.names[number]}"


class _Items(LazyList[Item]):
    """The items that members are."""

    def __init__(self, members: _Members, ids: _Ids, decoder: Decoder, label_sets: Any, splits: Any) -> None:
        self._members, self._ids, self._decoder, self._label_sets, self._splits = (
            members,
            ids,
            decoder,
            label_sets,
            splits,
        )

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Item]:
        return map(self._item, self._ids, self._members, self._label_sets, self._splits)

    def _at(self, number: int) -> Item:
        known = self._label_sets[number], self._splits[number]
        return self._item(self._ids[number], self._members[number], *known)

    def _item(self, id: str, member: TarMember, labels: tuple[str, ...], split: str | None) -> Item:
        return Item(id, member, self._decoder, labels, split)


class ShardCollection(RowCollection):
    """A collection of the samples of shards; see `open_shards`."""

    def __init__(
        self,
        members: _Members,
        modality: str,
        decoder: Decoder,
        label_sets: Sequence[tuple[str, ...]],
        splits: Sequence[str | None],
        source: str,
        notes: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        ids = _Ids(members)
        super().__init__(len(members), ids, label_sets, splits, modality, source, notes, limits)
        self._members, self._decoder = members, decoder
        self._items = _Items(members, ids, decoder, self._label_sets, self._splits)

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        files: Sequence[File],
        listed: Sequence[ListedShard],
        splits: Sequence[str | None],
        modality: str,
        decoder: Decoder,
        source: str,
        limits: Limits,
    ) -> ShardCollection:
        """Join the items of shards, whose names, files and splits are given."""
        _check_names(names, source)
        sizes = [len(found.names) for found in listed]
        limits.check("rows", sum(sizes), f"{source} has more than {limits.rows:,} samples")
        shards = [
            _Shard(name, file, found.stamp, found.packed)
            for name, file, found in zip(names, files, listed, strict=True)
        ]
        members = _Members(
            shards,
            np.repeat(np.arange(len(listed), dtype=np.int32), sizes),
            [name for found in listed for name in found.names],
            np.concatenate([found.offsets for found in listed]),
            np.concatenate([found.sizes for found in listed]),
        )
        labels = Coded.joined([found.labels for found in listed])
        by_shard = Coded.of(splits)
        of_items = Coded(by_shard.values, np.repeat(by_shard.codes, sizes))
        return cls(members, modality, decoder, labels, of_items, source, limits=limits)

    def _chosen(self, numbers: NDArray[np.int64]) -> ShardCollection:
        labels, splits = self._label_sets.chosen(numbers), self._splits.chosen(numbers)
        return self._changed(self._members.chosen(numbers), self._decoder, labels, splits)

    def _with_columns(self, label_sets: Sequence[tuple[str, ...]], splits: Sequence[str | None]) -> ShardCollection:
        return self._changed(self._members, self._decoder, label_sets, splits)

    def _with_decoders(self, change: Callable[[Any], Any]) -> ShardCollection:
        return self._changed(self._members, change(self._decoder), self._label_sets, self._splits)

    def _changed(self, members: _Members, decoder: Decoder, labels: Any, splits: Any) -> ShardCollection:
        others = self.source, self.notes, self.limits
        return ShardCollection(members, self.modality, decoder, labels, splits, *others)

    def _whole_files(self) -> NDArray[np.bool_]:
        return np.diff(self._members.numbers) != 0

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self._label_sets.compact(), self._splits.compact()
        given = (self._members.compact(), self.modality, self._decoder, *columns, self.source, self.notes, self.limits)
        return ShardCollection, given


def _check_names(names: Sequence[str], source: str) -> None:
    """Raise an error if ids, which begin with the names of shards, could be equal."""
    known: set[str] = set()
    for name in names:
        if name in known:
            raise BagwiseError(f"{source} has the shard {name!r} twice. Leave one out.")
        known.add(name)
    for name in names:
        outer = next((name[:k] for k, sign in enumerate(name) if sign == "/" and name[:k] in known), None)
        if outer is not None:
            raise BagwiseError(f"{source} has a shard {outer!r}, and {name!r} below it as in a folder. Move one.")
