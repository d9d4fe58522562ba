"""Shards: tar files of samples, as those of WebDataset: members with equal names up to the first dot are a sample."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, islice, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from bagwise._io.storage import Url, storage_errors
from bagwise._utils.json_text import parse_json
from bagwise._utils.threads import map_in_order
from bagwise.errors import BagwiseError, argument
from bagwise.sources.archives import FilePart, Packed, is_archive, is_tar, list_archive, tar_members
from bagwise.sources.collection import Collection, Root
from bagwise.sources.contents import File, FileContent, UrlContent
from bagwise.sources.item_tables import coded, item_table, joined, numbers, to_bytes, to_codes
from bagwise.sources.items import Decoder
from bagwise.sources.limits import Limits
from bagwise.sources.places import Listing, annotated, arrange
from bagwise.sources.roles import assign_roles, column_of

__all__ = ["Shards", "open_shards", "shards_of_listing", "shards_of_pattern"]

_BRACES = re.compile(r"\{(?:(\d{1,15})\.\.(\d{1,15})|([^{}]*,[^{}]*))\}")
_GLOB = re.compile(r"[*?\[]")
# Members that are looked at for the modality; shards that are listed at a time, of those by URL; parts that shards are
# listed in elsewhere, at most.
_SAMPLE, _AT_A_TIME, _MOST_PARTS = 200, 8, 1000

Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Shards(os.PathLike[str]):
    """Tar files of samples: their names below the folder, and where they are.

    `splits` are those of the items of each shard, or empty. `label` is the ending of members with the label, or a field
    of those that end in ``.json``; None: ``.cls``, or one of the usual names.
    """

    source: str
    names: tuple[str, ...]
    files: tuple[File, ...]
    label: str | None = None
    splits: tuple[str | None, ...] = ()
    mapping: Mapper | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.files)

    def __fspath__(self) -> str:
        return self.source

    def sample(self, limits: Limits) -> list[str]:
        """Return the names of the first members of the first shard, whose endings tell the modality."""
        return [member.name for member in islice(tar_members(self.files[0], limits), _SAMPLE)]

    def parts(self, n: int) -> list[Shards]:
        """Divide the shards into `n` parts, or as many as there are shards, for other processes."""
        total, n = len(self), min(n, len(self))
        bounds = pairwise(-(-total * k // n) for k in range(n + 1))
        return [
            replace(self, names=self.names[a:b], files=self.files[a:b], splits=self.splits[a:b], mapping=None)
            for a, b in bounds
        ]


def shards_of_pattern(location: Any, limits: Limits, label: str | None = None) -> Shards | None:
    """Return the files of a pattern (``s-{000..123}.tar``, ``{a,b}.tar``, ``*.tar``) as shards; None if it is none."""
    pattern = location.url if isinstance(location, Url) else os.fspath(location)
    if not is_tar(pattern) or not (_BRACES.search(pattern) or _GLOB.search(pattern)):
        return None
    if not isinstance(location, Url) and os.path.lexists(pattern):
        return None
    return _matching(location, pattern, limits, label)


def shards_of_listing(listing: Listing, label: str | None = None) -> Shards | None:
    """Return the files of a folder as shards; None unless it is a folder of nothing but tar files."""
    if not listing or is_archive(os.fspath(listing)) or not all(map(is_tar, listing)):
        return None
    files = (listing[name] for name in listing)
    return Shards(os.fspath(listing), tuple(listing), tuple(files), label)  # type: ignore[arg-type]


def _matching(location: Any, pattern: str, limits: Limits, label: str | None) -> Shards:
    """Return the files that a pattern stands for."""
    what = f"{os.fspath(location)} stands for more than {limits.members:,} files"
    limits.check("members", _number(pattern), what)
    files: list[File] = []
    for path in _expanded(pattern):
        if not isinstance(location, Url):
            paths = sorted(glob.glob(path)) if _GLOB.search(path) else [path]
            files += [FileContent(os.path.abspath(one)) for one in paths]
        elif _GLOB.search(path.split("::")[0]):
            with storage_errors(os.fspath(location)):
                system, inner = Url(path, location.options).opened()
                system.invalidate_cache()
                files += [UrlContent(Url(path, location.options), one) for one in sorted(system.glob(inner))]
        else:
            files.append(UrlContent(Url(path, location.options)))
    limits.check("members", len(files), what)
    if not files:
        raise BagwiseError(f"There is no file {os.fspath(location)}. Give a pattern such as shard-{{000..123}}.tar.")
    full = [one.path if one.path is not None else one.base.url for one in files]
    full = [path.replace(os.sep, "/") for path in full]
    folders = [path.split("/")[:-1] for path in full]
    n = next((k for k, parts in enumerate(zip(*folders, strict=False)) if len(set(parts)) > 1), min(map(len, folders)))
    names = ["/".join(path.split("/")[n:]) for path in full]
    return Shards(os.fspath(location), tuple(names), tuple(files), label)


def _number(pattern: str) -> int:
    """Return the number of names that a pattern with braces stands for."""
    braces = _BRACES.findall(pattern)
    return math.prod(len(several.split(",") if several else range(int(a), int(b) + 1)) for a, b, several in braces)


def _expanded(pattern: str) -> Iterator[str]:
    """Yield what a pattern with braces stands for.

    >>> list(_expanded("a-{08..10}-{x,y}.tar"))[:3]
    ['a-08-x.tar', 'a-08-y.tar', 'a-09-x.tar']
    """
    brace = _BRACES.search(pattern)
    if brace is None:
        yield pattern
        return
    first, last, several = brace.groups()
    values: Any = several.split(",") if several is not None else range(int(first), int(last) + 1)
    for value in values:
        shown = value if several is not None else f"{value:0{len(first)}d}"
        for rest in _expanded(pattern[brace.end() :]):
            yield f"{pattern[: brace.start()]}{shown}{rest}"


def open_shards(
    shards: Shards,
    modality: str,
    decoder: Decoder,
    endings: frozenset[str] | None,
    *,
    labels: Any = "folders",
    splits: Any = "folders",
    limits: Limits,
) -> Collection:
    """Open the samples of shards: of each, the member with one of these endings is an item."""
    _check_names(shards.names, shards.source)
    if isinstance(splits, str) and splits == "folders":
        shards = replace(shards, splits=tuple(arrange(shards.names)[1]))
    listing = _Listing(modality, decoder, endings, isinstance(labels, str) and labels == "folders", limits)
    if shards.mapping is None:
        collection = listing(shards)
    else:
        parts = list(shards.mapping(listing, shards.parts(_MOST_PARTS)))
        root = ShardsRoot({name: one for part in parts for name, one in part.root.by_name.items()})
        collection = Collection(
            joined([part.table for part in parts]), modality, decoder, root, source=shards.source, limits=limits
        )
    limits.check("rows", len(collection), f"{shards.source} has more than {limits.rows:,} samples")
    if not len(collection):
        raise BagwiseError(
            f"{shards.source} holds no {modality}: none of the members of its {len(shards.files)} tar files ends in "
            f"{', '.join(sorted(endings or ['anything']))}. Others by {argument('extensions')}."
        )
    return annotated(collection, labels, splits)


class _Shard(NamedTuple):
    file: File
    stamp: tuple[Any, ...] | None
    packed: Packed | None


@dataclass(frozen=True)
class ShardsRoot(Root):
    """Shards by their names, which are the urls of items; ids are these, and the names of members."""

    by_name: Mapping[str, _Shard]

    def content(self, id: str, url: Any = None, offset: Any = None, size: Any = None, version: Any = None) -> FilePart:
        """Return a member of a shard."""
        shard = self.by_name[url]
        return FilePart(shard.file, id[len(url) + 1 :], offset, size, shard.stamp, shard.packed)

    def part(self, ids: Sequence[str], urls: Sequence[Any]) -> ShardsRoot:
        """Return the shards of some members."""
        return ShardsRoot({url: self.by_name[url] for url in dict.fromkeys(urls)})


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


@dataclass(frozen=True)
class _Listing:
    """Lists shards, in this process or in another one."""

    modality: str
    decoder: Decoder
    endings: frozenset[str] | None
    labelled: bool
    limits: Limits

    def __call__(self, shards: Shards) -> Collection:
        """Return the collection of the items of shards, with labels if these are in shards."""
        n_threads = _AT_A_TIME if any(isinstance(file, UrlContent) for file in shards.files) else 1
        listed = list(map_in_order(partial(self._items, shards), shards.files, n_threads))
        items = [member for one in listed for member, _ in one.items]
        of_items = np.repeat(np.arange(len(shards), dtype=np.int32), [len(one.items) for one in listed])
        table = item_table(
            to_bytes(f"{shards.names[k]}/{one.name}" for k, one in zip(of_items.tolist(), items, strict=True)),
            to_codes(label for one in listed for _, label in one.items),
            to_codes(shards.splits or [None] * len(shards)).take(numbers(of_items)),
            {
                "url": coded(of_items, shards.names),
                "offset": numbers(np.array([one.offset for one in items], np.int64)),
                "size": numbers(np.array([one.size for one in items], np.int64)),
            },
        )
        root = ShardsRoot({name: one.shard for name, one in zip(shards.names, listed, strict=True)})
        return Collection(table, self.modality, self.decoder, root, source=shards.source, limits=self.limits)

    def _items(self, shards: Shards, file: File) -> _Listed:
        try:
            listed = list_archive(file, self.limits)
        except OSError as error:
            raise BagwiseError(f"{file.source} cannot be read: {error.strerror or error}.") from error
        members = [one for one in listed.values() if isinstance(one, FilePart)]
        items = []
        for sample in _samples(members):
            member = _item_of(sample, self.endings)
            if member is not None:
                items.append((member, _label_of(sample, shards.label, self.limits) if self.labelled else None))
        known = (members[0].stamp, members[0].packed) if members else (None, None)
        return _Listed(_Shard(file, *known), items)


class _Listed(NamedTuple):
    shard: _Shard
    items: list[tuple[FilePart, str | None]]


def _samples(members: Iterable[FilePart]) -> Iterator[dict[str, FilePart]]:
    """Yield samples: members that follow each other and have the same key, by what follows the first dot."""
    divided = ((*member.name.rpartition("/")[::2], member) for member in members)
    parts = ((folder, *name.partition(".")[::2], member) for folder, name, member in divided)
    named = (part for part in parts if part[1] and part[2])  # others are hidden, or no part of a sample
    for _, sample in groupby(named, key=itemgetter(0, 1)):
        yield {end.lower(): member for _, _, end, member in sample}


def _item_of(sample: Mapping[str, FilePart], endings: frozenset[str] | None) -> FilePart | None:
    """Return the member of a sample that is the item: one without a second dot goes first (``jpg``, ``seg.png``)."""
    fit = [end for end in sample if endings is None or f".{end.rsplit('.', 1)[-1]}" in endings]
    return sample[min(fit, key=lambda end: (end.count("."), fit.index(end)))] if fit else None


def _label_of(sample: Mapping[str, FilePart], wanted: str | None, limits: Limits) -> str | None:
    """Return the label of a sample: of the member that ends in ``.cls`` (or as wanted), or of a field of JSON."""
    end = "cls" if wanted is None else wanted.lower().lstrip(".")
    if end in sample:
        return _text_of(sample[end], limits)
    if "json" not in sample:
        return None
    try:
        fields = parse_json(_text_of(sample["json"], limits) or "null")
    except (ValueError, RecursionError) as error:
        raise BagwiseError(f"{sample['json'].source} is not JSON: {error}.") from error
    value = None
    if isinstance(fields, dict):
        name = assign_roles(list(fields), {"label": None})["label"] if wanted is None else column_of(wanted, fields)
        value = None if name is None else fields[name]
    if isinstance(value, (dict, list)):
        raise BagwiseError(f"{sample['json'].source} has a label that is a JSON {type(value).__name__}.")
    return None if value is None or value == "" else str(value)


def _text_of(member: FilePart, limits: Limits) -> str | None:
    limits.check("header_bytes", member.size, f"{member.source} is a label of {member.size:,} bytes")
    with member.open() as file:
        text = file.read().decode("utf-8", "replace").strip()
    return text or None
