"""The map: items in two dimensions, their classes, answers and clusters, and selections of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.item_maps import MapOfItems, Places
from bagwise.app.explorer.python_lines import map_lines
from bagwise.app.explorer.requests import answer_json, answered, reading, safe, size_of
from bagwise.app.explorer.workspace import Workspace
from bagwise.app.index.item_map import MAP_METHODS, ItemMap
from bagwise.app.modalities.vectorizers import Progress
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError

__all__ = ["answers", "make", "routes", "rows", "select", "told"]

_BINARY = "application/octet-stream"


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""

    def points(request: Request) -> Response:
        return Response(_places(space).content, media_type=_BINARY)

    def predicted(request: Request) -> Response:
        return Response(answers(space, size_of(request.query_params)), media_type=_BINARY)

    def selected(request: Request) -> Response:
        numbers = _mapped(space).selected(request.query_params.get("selection", ""))
        return Response(numbers.astype("<i4").tobytes(), media_type=_BINARY)

    async def posted(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return answer_json({"error": "The request is too long."}, 413)
        n, what = request.query_params, request.path_params["what"]
        answers_to = {
            "make": lambda: make(space, n.get("method", "")),
            "select": lambda: select(space, body),
            "rows": lambda: rows(space, size_of(n), body),
        }
        if what not in answers_to:
            return answer_json({"error": f"A map has no {what!r:.40}."}, 404)
        return await run_in_threadpool(answered, answers_to[what])

    return [
        Route("/api/map", reading(lambda q, _: told(space))),
        Route("/api/python/map", reading(lambda q, _: {"lines": map_lines(space, size_of(q))})),
        Route("/api/map/points", safe(points)),
        Route("/api/map/answers", safe(predicted)),
        Route("/api/map/selected", safe(selected)),
        Route("/api/map/{what}", posted, methods=["POST"]),
    ]


def _mapped(space: Workspace) -> MapOfItems:
    if space.items is None:
        raise BagwiseError("There are no items: start bagwise explore with their location, or with an index.")
    return space.items.mapped


def _places(space: Workspace) -> Places:
    mapped = _mapped(space).places
    if mapped is None:
        raise BagwiseError("There is no map of these items yet.")
    return mapped


def told(space: Workspace) -> dict[str, Any]:
    """Return what is known of the map: how it was made, its clusters, and what is being made now."""
    mapped = _mapped(space)
    places = mapped.places
    return {
        "running": mapped.running,
        "made": sorted(mapped.made),
        "problem": None if mapped.problem is None else clean(mapped.problem),
        "map": None if places is None else _described(space, places),
    }


def _described(space: Workspace, places: Places) -> dict[str, Any]:
    clusters, codes, classes = places.map.clusters, places.codes, space.model.classes
    placed = int((clusters >= 0).sum())
    if space.clusters is not None:
        clusters = np.where(clusters >= 0, space.clusters.labels, -1)
    told_clusters = []
    for number in range(int(clusters.max(initial=-1)) + 1):
        inside = clusters == number
        counts = np.bincount(codes[inside & (codes >= 0)], minlength=1)
        name = clean(classes[counts.argmax()]) if counts.any() else None
        told = {"n": int(inside.sum()), "class": name, "share": float(counts.max() / max(inside.sum(), 1))}
        name_of = f"cluster {number + 1}" if space.clusters is None else clean(space.clusters.name(number))
        told_clusters.append(told | {"name": name_of})
    return {
        "method": places.map.method,
        "version": places.version,
        "note": clean(places.note),
        "n": len(places.map),
        "n_placed": placed,
        "n_arranged": places.map.n_arranged,
        "clusters": told_clusters,
        "named": space.clusters is not None,
    }


def answers(space: Workspace, n: int | None) -> bytes:
    """Return the predicted class of each item as int32, little-endian; -1 without a classifier."""
    cut = space.cut(n)
    assert space.items is not None
    with cut.lock:
        predicted = cut.answers.predicted if cut.has_answers else np.full(len(space.items), -1)
        return predicted.astype("<i4").tobytes()


def make(space: Workspace, method: str) -> dict[str, Any]:
    """Begin to make a map in the background; one that was made before is shown again."""
    items = space.items
    mapped = _mapped(space)
    if method not in MAP_METHODS:
        raise BagwiseError(f"A map is made by {' or '.join(MAP_METHODS)}, not by {method!r:.40}.")
    assert items is not None

    def arranged(progress: Progress) -> ItemMap:
        if method in mapped.made:
            return mapped.made[method]
        new_map = items.index.with_map(method, progress=progress).map
        assert new_map is not None
        return new_map

    def kept(new_map: ItemMap) -> str:
        return "" if space.editor is None else space.editor.keep_map(new_map)

    mapped.start(arranged, kept)
    return told(space)


def _numbers(space: Workspace, body: bytes) -> Any:
    """Read numbers of items: int32, little-endian."""
    n = len(_mapped(space).codes)
    if len(body) % 4 or len(body) > 4 * n:
        raise BagwiseError(f"At most {n} numbers of 4 bytes are expected, got {len(body)} bytes.")
    numbers = np.frombuffer(body, "<i4").astype(np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n:
        raise BagwiseError(f"Items are numbered from 0 to {n - 1}, got {numbers.min()} to {numbers.max()}.")
    return numbers


def select(space: Workspace, body: bytes) -> dict[str, Any]:
    """Keep a selection; `bagwise.app.explorer.pages.items.ItemQuery` takes its name."""
    numbers = _numbers(space, body)
    return {"selection": _mapped(space).select(numbers), "total": len(numbers)}


def rows(space: Workspace, n: int | None, body: bytes) -> dict[str, Any]:
    """Return id, class and predicted class of some items, for a file."""
    cut, numbers = space.cut(n), _numbers(space, body)
    names = [*map(clean, cut.model.classes), None]  # None for -1
    codes = _mapped(space).codes[numbers].tolist()
    with cut.lock:
        predicted = cut.answers.predicted[numbers].tolist() if cut.has_answers else [-1] * len(numbers)
    return {
        "rows": [
            [clean(space.ids[number]), names[code], names[answer]]
            for number, code, answer in zip(numbers.tolist(), codes, predicted, strict=True)
        ]
    }
