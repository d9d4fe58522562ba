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

from bagwise.errors import BagwiseError
from bagwise.explorer.pages.items import explained
from bagwise.explorer.requests import answer_json, answered, number_or, reading, size_of
from bagwise.explorer.workspace import Workspace
from bagwise.report.texts import clean
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item
from bagwise.sources.media import ImageDecoder, TextDecoder

if TYPE_CHECKING:
    from bagwise.training.item_index import Found

__all__ = ["MOST_BYTES", "routes", "search", "similar"]

# Longest upload.
MOST_BYTES = 32 << 20
_MOST_TEXT_BYTES = 4 << 20


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""

    async def posted(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return answer_json({"error": f"Uploads are limited to {MOST_BYTES >> 20} MB."}, 413)
        return await run_in_threadpool(answered, lambda: _found(space, request.query_params, body))

    def like(query: QueryParams, path: dict[str, Any]) -> Any:
        return {"hits": similar(space, path["number"], number_or(query, "k", 12), query.get("by"))}

    return [
        Route("/api/items/{number:int}/similar", reading(like)),
        Route("/api/search", posted, methods=["POST"]),
    ]


def _found(space: Workspace, query: QueryParams, body: bytes) -> Any:
    """Find items that are similar to a text or an image in the body of a request."""
    modality = space.model.modality
    if modality == "texts":
        if len(body) > _MOST_TEXT_BYTES:
            raise BagwiseError(f"Texts to search for are limited to {_MOST_TEXT_BYTES >> 20} MB.")
        query_item = Item("query", Upload(body), TextDecoder("utf-8"))
    elif modality == "images":
        color = any(record.color for record in space.model.descriptor_records)
        query_item = Item("query", Upload(body), ImageDecoder("rgb" if color else "grey"))
    else:
        raise BagwiseError(f"Items of this model are {modality}: pick one of them as query.")
    return search(space, size_of(query), query_item, number_or(query, "k", 24), query.get("by"))


@dataclass(frozen=True)
class Upload:
    """The bytes of an item that was sent."""

    content: bytes
    source: str = "query"

    def open(self) -> BinaryIO:
        """Open the bytes for reading."""
        return io.BytesIO(self.content)


def similar(space: Workspace, number: int, k: int, by: str | None = None) -> list[dict[str, Any]]:
    """Return the items that are most similar to one of them, which is left out."""
    if space.items is None or not 0 <= number < len(space.items):
        raise BagwiseError(f"There is no item {number}.")
    with space.lock:
        hits = space.items.similar(number, k + 1, by or None)
    return [hit for hit in _hits(space, hits) if hit["number"] != number][:k]


def search(space: Workspace, n: int | None, query: Item, k: int, by: str | None = None) -> dict[str, Any]:
    """Return the items that are most similar to a new item, and what the model says of it."""
    histogram = space.model.histograms(Collection([query], space.model.modality, query.id))
    if space.items is None or not space.searchable:
        raise BagwiseError("There are no items to search: start bagwise explore with their location, or an index.")
    if not abs(histogram).sum() > 0:
        return {"hits": [], "known": False}
    with space.lock:  # the index may be built now
        index = space.items.index
    assert index is not None
    hits = _hits(space, index.search(histogram, k, by=by or None)[0])
    return {"hits": hits, "known": True} | explained(space.cut(n), query)


def _hits(space: Workspace, hits: list[Found]) -> list[dict[str, Any]]:
    return [
        {
            "number": space.numbers[hit.id],
            "id": clean(hit.id),
            "label": None if hit.label is None else clean(hit.label),
            "score": hit.score,
        }
        for hit in hits
    ]
