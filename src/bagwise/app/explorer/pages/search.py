"""Search: items that are similar to a text, an image or one of the items."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.explaining import explained
from bagwise.app.explorer.pages.items import check_number, excerpt, explains
from bagwise.app.explorer.python_lines import search_lines
from bagwise.app.explorer.requests import MOST_ROWS, answer_json, answered, needed_number, number_or, reading, size_of
from bagwise.app.explorer.workspace import Workspace
from bagwise.app.index.index_changes import takes_other_groups, with_model
from bagwise.app.index.shared_terms import search_shared
from bagwise.app.modalities import MODALITIES
from bagwise.app.training.seen import seen_items
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item

if TYPE_CHECKING:
    from bagwise.app.index.item_index import ItemIndex

__all__ = ["GROUP_METRICS", "MOST_BYTES", "SearchQuery", "routes", "search", "similar"]

GROUP_METRICS = ("hellinger", "intersection", "chi2", "euclidean")
_SHOWN_SHARED = 6

# Longest upload.
MOST_BYTES = 32 << 20


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""

    async def posted(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return answer_json({"error": f"Uploads are limited to {MOST_BYTES >> 20} MB."}, 413)
        return await run_in_threadpool(answered, lambda: _found(space, request.query_params, body))

    def like(query: QueryParams, path: dict[str, Any]) -> Any:
        return similar(space, size_of(query), path["number"], _query(query, 12))

    def python(query: QueryParams, path: dict[str, Any]) -> Any:
        asked, number = _query(query), needed_number(query, "like")
        check_number(space, number)
        return {"lines": search_lines(space, size_of(query), number, asked.k, asked.by, asked.metric)}

    return [
        Route("/api/items/{number:int}/similar", reading(like)),
        Route("/api/python/search", reading(python)),
        Route("/api/search", posted, methods=["POST"]),
    ]


def _found(space: Workspace, query: QueryParams, body: bytes) -> Any:
    """Find items that are similar to a text or an image in the body of a request."""
    modality = MODALITIES[space.model.modality]
    query_item = modality.query(space.model, Upload(body), len(body))
    asked, n = _query(query), size_of(query)
    told = search(space, n, query_item, asked)
    if space.origin is None or not told["known"]:
        return told
    text = body.decode() if modality.readable else ""
    return told | {"lines": search_lines(space, n, text, asked.k, asked.by, asked.metric)}


@dataclass(frozen=True)
class SearchQuery:
    """How items are compared.

    Attributes
    ----------
    k : int
        Number of items.
    by : str or None
        "words", "classes" or "both", see `ItemIndex.search`; "groups": those of the current cut. None: as the index
        does, "both" for most.
    metric : str or None
        For groups, see `BagIndex`; None: "hellinger".
    """

    k: int = 24
    by: str | None = None
    metric: str | None = None


def _query(query: QueryParams, k: int = 24) -> SearchQuery:
    asked = SearchQuery(number_or(query, "k", k), query.get("by") or None, query.get("metric") or None)
    if not 1 <= asked.k <= MOST_ROWS:
        raise BagwiseError(f"k must be from 1 to {MOST_ROWS}, got {asked.k}.")
    if asked.metric is not None and (asked.metric not in GROUP_METRICS or asked.by != "groups"):
        raise BagwiseError(f"Groups are compared by {', '.join(GROUP_METRICS)}; got {asked.metric!r:.40}.")
    return asked


@dataclass(frozen=True)
class Upload:
    """The bytes of an item that was sent."""

    content: bytes
    source: str = "query"

    def open(self) -> BinaryIO:
        """Open the bytes for reading."""
        return io.BytesIO(self.content)


def similar(space: Workspace, n: int | None, number: int, query: SearchQuery) -> dict[str, Any]:
    """Return the items that are most similar to one of them, which is left out, and what they share with it."""
    check_number(space, number)
    index = _index(space, n, query)
    return {
        "hits": [hit for hit in _hits(space, n, index, number, query.k + 1, query) if hit["number"] != number][
            : query.k
        ]
    }


def search(space: Workspace, n: int | None, query: Item, asked: SearchQuery) -> dict[str, Any]:
    """Return the items that are most similar to a new item, what they share with it, and what the model says of it."""
    model, collection = space.model, Collection.of([query], space.model.modality, query.id)
    histogram = model.histograms(collection)
    if not abs(histogram).sum() > 0:
        return {"hits": [], "known": False}
    hits = _hits(space, n, _index(space, n, asked), histogram, asked.k, asked)
    cut = space.cut(n)
    told = {"hits": hits, "known": True, "explains": explains(cut, seen_items(model, collection, histogram), 0)}
    return told | explained(cut, query, changes=False)


def _index(space: Workspace, n: int | None, query: SearchQuery) -> ItemIndex:
    """Return what is searched: the index of the items, or one by the groups of a cut; the last of these is kept."""
    items = space.items
    if items is None:
        raise BagwiseError("There are no items to search: start bagwise explore with their location, or an index.")
    with space.search_lock:  # the index may be built now
        index = items.index
        if query.by != "groups":
            return _of_edited_groups(space, index)
        model, metric = space.cut(n).model, query.metric or GROUP_METRICS[0]
        key = (model.n_groups, metric)
        if space.grouped is None or space.grouped[0] != key:
            space.grouped = key, index.compared_by_groups(model, items.words.features(model, ("l1",)), metric)
        return space.grouped[1]


def _of_edited_groups(space: Workspace, index: ItemIndex) -> ItemIndex:
    """Return an index that compares items by the groups of the model as it is now, if it compares them by groups."""
    if index.by != "both" or index.model.heads or index.model is space.model or not takes_other_groups(index):
        return index
    edited: ItemIndex = space.once("index", lambda: with_model(index, space.model))
    return edited


def _hits(
    space: Workspace, n: int | None, index: ItemIndex, query: Any, k: int, asked: SearchQuery
) -> list[dict[str, Any]]:
    """Find items, with what adds most to their scores; words without names by their groups."""
    cut, by = space.cut(n), None if asked.by == "groups" else asked.by
    of_index = index.model if index.by == "both" and not index.model.heads else cut.model  # whose groups are compared
    named = cut if of_index.n_groups == cut.model.n_groups else space.cut(of_index.n_groups)
    hits, shared = search_shared(index, query, k, by, cut.model if space.model.word_names is None else None)
    numbers, all_items = [space.numbers[hit.id] for hit in hits], space.items
    assert all_items is not None
    texts = MODALITIES[space.model.modality].readable and all_items.ready
    return [
        {
            "number": number,
            "id": clean(hit.id),
            "label": None if hit.label is None else clean(hit.label),
            "score": hit.score,
            "shared": [
                {
                    "kind": one.kind,
                    "name": clean(named.title(one.number) if one.kind == "group" else one.name),
                    "contribution": one.contribution,
                }
                for one in terms[:_SHOWN_SHARED]
            ],
            "n_shared": len(terms),
            "differences": not index.index.larger_is_nearer,
            **(excerpt(all_items, number) if texts else {}),
        }
        for hit, number, terms in zip(hits, numbers, shared, strict=True)
    ]
