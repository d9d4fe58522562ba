"""What was found by a search: whether the query is among it, and the data of its page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from bagwise._io.storage import Url, as_place
from bagwise.app.modalities import MODALITIES, Modality
from bagwise.app.modalities.tables import values_of
from bagwise.app.modalities.texts import excerpt_of
from bagwise.retrieval.histograms import METRICS
from bagwise.sources.items import Item, ItemError
from bagwise.sources.places import FileContent

if TYPE_CHECKING:
    from bagwise.app.index.item_index import Found, ItemIndex
    from bagwise.app.report.data import SearchResults
    from bagwise.sources.collection import Collection

__all__ = ["IndexedItems", "page_link", "results_data"]

# Items whose score differs by less from that of an item with itself are compared with the query.
_NEAR = 1e-3
_MOST_COLUMNS = 24
_PICTURE_SIDE = 320


@dataclass(frozen=True)
class IndexedItems:
    """The items of an index, at the place where they were when they were indexed, or at another one.

    Parameters
    ----------
    index : ItemIndex
    location : path or URL, default=None
        Where the items are now. None: where they were, unless that is a URL: listing its items may take long.
    collection : Collection, default=None
        The items, if they are there already.
    """

    index: ItemIndex
    location: Path | Url | None = None
    collection: Collection | None = None

    @property
    def path(self) -> Path | Url | None:
        """The folder or file of the items; None if it is not known."""
        if self.collection is not None:
            return Path(self.collection.source)
        if self.location is not None or not self.index.source:
            return self.location
        location = as_place(self.index.source)
        return location if isinstance(location, Url) else Path(location)

    @property
    def exist(self) -> bool:
        """Whether the folder or file is still there, or the items are."""
        if self.collection is not None or self.path is None:
            return self.collection is not None
        return self.location is not None if isinstance(self.path, Url) else self.path.exists()

    @cached_property
    def by_id(self) -> dict[str, Item]:
        """Items by their ids; empty if the folder or file is not there."""
        from bagwise.app.options import FitOptions
        from bagwise.app.training.items import open_items

        if not self.exist:
            return {}
        if self.collection is not None:
            return {item.id: item for item in self.collection}
        return {
            item.id: item
            for item in open_items(self.index.model, self.path, FitOptions.from_mapping(self.index.reading))
        }

    @property
    def shows_more(self) -> bool:
        """Whether a line can show more of an item than its name, see `Modality.snippet`."""
        return not MODALITIES[self.index.model.modality].pictured

    def snippets(self, ids: Sequence[str]) -> list[str | None]:
        """Return the beginnings of some items, see `Modality.snippet`; None where there is nothing to be read."""
        model, beginnings = self.index.model, list[str | None]()
        modality = MODALITIES[model.modality]
        if not self.shows_more or not self.exist:
            return [None] * len(ids)
        for id in ids:
            item = self._file(id, modality) or self.by_id.get(id)
            try:
                beginnings.append(None if item is None else modality.snippet(item, model.word_names))
            except ItemError:  # deleted or changed since it was indexed
                beginnings.append(None)
        return beginnings

    def _file(self, id: str, modality: Modality) -> Item | None:
        """Return an item that is a file of its own, without listing its folder; None if it is not known to be one."""
        if self.collection is not None or not modality.readable or not isinstance(self.path, Path):
            return None
        if Path(id).is_absolute() or ".." in Path(id).parts or not (self.path / id).is_file():
            return None
        return Item(id, FileContent(str(self.path / id)), modality.decoder(self.index.model))

    def of_query(self, query: Item, hits: Iterable[Found]) -> list[str]:
        """Return the ids of those hits that are the query itself: the same file or record, or the same content.

        Where the items are not there any more, a hit is the query if it has the same id, or the query's path ends with
        it, and its score is that of an item with itself.
        """
        near = {hit.id for hit in hits if self._is_near(hit.score)}
        if not self.exist:
            query_path = f"/{Path(query.source).as_posix()}"
            return [
                hit.id for hit in hits if hit.id in near and (query.id == hit.id or query_path.endswith(f"/{hit.id}"))
            ]
        if not near and not self._may_hold(query):
            return []
        return [hit.id for hit in hits if hit.id in self.by_id and self._same(query, self.by_id[hit.id], near)]

    def _is_near(self, score: float) -> bool:
        return abs(score - (1.0 if METRICS[self.index.metric].larger_is_nearer else 0.0)) <= _NEAR

    def _may_hold(self, query: Item) -> bool:
        """Whether the place of the query is in the place of the items."""
        whole, part = os.path.realpath(str(self.path)), os.path.realpath(query.source)
        # in a folder, an archive, or a file of records or rows
        return part == whole or part.startswith(tuple(whole + sign for sign in (os.sep, "!", ":")))

    def _same(self, query: Item, hit: Item, near: set[str]) -> bool:
        if isinstance(query.content, FileContent) and isinstance(hit.content, FileContent):
            if os.path.realpath(query.source) == os.path.realpath(hit.source):
                return True
        elif query.id == hit.id and self._may_hold(query):
            return True
        if hit.id not in near:
            return False
        try:
            return MODALITIES[self.index.model.modality].same(query, hit)
        except ItemError:  # deleted or changed since it was indexed
            return False


def page_link(item: Item | None, page: Path) -> str:
    """Return the address of the file of an item, from a page; "" if it has none of its own.

    >>> from bagwise.sources.media import TextDecoder
    >>> item = Item("a b.txt", FileContent("/data/a b.txt"), TextDecoder())
    >>> page_link(item, Path("/data/pages/results.html"))
    '../a%20b.txt'
    """
    return "" if item is None or not isinstance(item.content, FileContent) else _address(item.content.path, page)


def _address(path: str, page: Path) -> str:
    try:
        relative = os.path.relpath(path, page.absolute().parent)
    except ValueError:  # on another drive
        return Path(path).absolute().as_uri()
    parts = Path(relative).parts
    address = "/".join(quote(os.fsencode(part)) for part in parts)
    return address if parts[0] == ".." else f"./{address}"


def results_data(
    items: IndexedItems,
    name: str,
    query: Item | str,
    hits: Sequence[Found],
    page: Path,
    *,
    itself: Sequence[str] = (),
    facts: dict[str, Any] | None = None,
) -> SearchResults:
    """Collect the data of the page of a search.

    Parameters
    ----------
    items : IndexedItems
    name : str
        Of the query.
    query : Item or str
        A text that was typed is a str.
    hits : sequence of Found
        Best first.
    page : path
        Where the page will be written, for links.
    itself : sequence of str, default=()
        Ids of the query in the index, which were left out.
    facts : dict, default=None

    Returns
    -------
    results : SearchResults
    """
    from bagwise.app.report.data import Hit, SearchResults

    modality = MODALITIES[items.index.model.modality]
    items_of_hits = [items.by_id.get(hit.id) for hit in hits]
    columns, rows = _values(items.index, [query, *items_of_hits]) if modality.rows else ((), [()] * (len(hits) + 1))
    shown = [
        Hit(hit.id, hit.score, hit.label, *_preview(item, modality), page_link(item, page), row)
        for hit, item, row in zip(hits, items_of_hits, rows[1:], strict=True)
    ]
    one_file = items.exist and isinstance(items.path, Path) and items.path.is_file()
    return SearchResults(
        name,
        shown,
        *_preview(query, modality),
        score_name=items.index.score_name,
        facts=facts or {},
        query_link="" if isinstance(query, str) else page_link(query, page),
        itself=tuple(itself),
        columns=columns,
        query_values=rows[0],
        source=(items.path.name, _address(str(items.path), page)) if one_file and items.path is not None else None,
    )


def _preview(item: Item | str | None, modality: Modality) -> tuple[bytes | None, str | None]:
    """Return a picture or an excerpt of an item or text; nothing if it cannot be read."""
    if isinstance(item, str):
        return None, excerpt_of(item)
    try:
        return (None, None) if item is None else modality.preview(item, _PICTURE_SIDE)
    except ItemError:  # deleted or changed since it was indexed
        return None, None


def _values(index: ItemIndex, items: Sequence[Any]) -> tuple[tuple[str, ...], list[tuple[float, ...]]]:
    """Return names of columns, and the values of rows in them; rows that are not there any more have none.

    If there are many columns, those are shown that the rows have in common with the first one: with the largest sums
    of products of their weighted values.
    """
    known = [None if item is None else values_of(item) for item in items]
    n_words = index.model.hierarchy.n_words
    names = index.model.word_names or [f"x{k}" for k in range(n_words)]
    chosen = np.arange(n_words)
    if n_words > _MOST_COLUMNS:
        weighted = index.model.weighting.apply(np.array([row for row in known if row is not None]))
        common = np.asarray(weighted[:1] * weighted[1:]).sum(axis=0)
        chosen = np.sort(np.argsort(-common, kind="stable")[:_MOST_COLUMNS])
    rows = [() if row is None else tuple(row[chosen].tolist()) for row in known]
    return tuple(str(names[k]) for k in chosen), rows
