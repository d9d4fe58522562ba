"""The web application of the explorer: addresses, and what they answer."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any, BinaryIO

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from bagwise.errors import BagwiseError
from bagwise.explorer import views
from bagwise.explorer.workspace import Workspace
from bagwise.report.pictures import mosaic, photograph
from bagwise.report.svg import DARK, LIGHT, N_LEVELS, shades
from bagwise.sources.items import Item
from bagwise.sources.media import ImageDecoder, TextDecoder

__all__ = ["MOST_BYTES", "make_app", "prepare"]

# Longest upload.
MOST_BYTES = 32 << 20
_MOST_TEXT_BYTES = 4 << 20
_PAGES = ("", "groups", "items", "search")
_SIDES = (160, 640)  # of pictures, in pixels
_MOST_ROWS = 200
_FIRST_VISIT = 5.0  # seconds that preparing waits for the first page


def make_app(space: Workspace) -> Starlette:
    """Build the application; `bagwise.explorer.security.Guard` belongs around it."""
    shell = resources.files(__package__).joinpath("static/page.html").read_text(encoding="utf-8")

    async def page(request: Request) -> Response:
        return HTMLResponse(shell)

    async def colors(request: Request) -> Response:
        return Response(_color_sheet(), media_type="text/css")

    def picture(request: Request) -> Response:
        side = _number(request.query_params, "side", _SIDES[0])
        if side not in _SIDES:
            raise BagwiseError(f"Pictures have a side of {' or '.join(map(str, _SIDES))} pixels, not of {side}.")
        number = int(request.path_params["number"])
        if space.items is None or space.model.modality != "images" or number >= len(space.items):
            return _json({"error": f"There is no picture of item {number}."}, 404)
        content = space.items.item(number).load(side)
        return Response(photograph(content, side), media_type="image/jpeg")

    def patches(request: Request) -> Response:
        cut = space.cut(_size(request.query_params))
        with space.picture_lock:
            found = cut.patches.get(int(request.path_params["number"]))
        if not found:
            return _json({"error": "This group has no patches."}, 404)
        return Response(mosaic(found, 40, columns=6), media_type="image/png")

    async def search(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            return _json({"error": f"Uploads are limited to {MOST_BYTES >> 20} MB."}, 413)
        return await run_in_threadpool(_answered, lambda: _search(space, request.query_params, body))

    def reading(answer: Callable[[QueryParams, dict[str, Any]], Any]) -> Callable[[Request], Response]:
        def respond(request: Request) -> Response:
            return _answered(lambda: answer(request.query_params, request.path_params))

        return respond

    def locked(answer: Callable[[QueryParams, dict[str, Any]], Any]) -> Callable[[Request], Response]:
        def held(query: QueryParams, path: dict[str, Any]) -> Any:
            with space.cut(_size(query)).lock:
                return answer(query, path)

        return reading(held)

    def visit(query: QueryParams, path: dict[str, Any]) -> Any:
        told = views.overview(space, _size(query))
        space.visited.set()
        return told

    n = _size
    routes: list[BaseRoute] = [Route(f"/{name}", page) for name in _PAGES]
    routes += [
        Route("/colors.css", colors),
        Route("/api/overview", locked(visit)),
        Route("/api/groups", locked(lambda q, _: views.groups(space, n(q), _group_query(q)))),
        Route("/api/groups/{number:int}", locked(lambda q, p: views.group(space, n(q), p["number"]))),
        Route("/api/groups/{number:int}/patches", _safe(patches)),
        Route("/api/words", locked(lambda q, _: views.words(space, n(q), q.get("find", "")))),
        Route("/api/joined", locked(lambda q, _: views.joined(space, _needed(q, "first"), _needed(q, "second")))),
        Route("/api/hierarchy", _safe(lambda request: _answer_text(_tree(space)))),
        Route("/api/items", reading(lambda q, _: views.items(space, n(q), _item_query(q)))),
        Route("/api/items/{number:int}", reading(lambda q, p: views.item(space, n(q), p["number"], _maybe(q, "of")))),
        Route(
            "/api/items/{number:int}/similar",
            reading(lambda q, p: {"hits": views.similar(space, p["number"], _number(q, "k", 12), q.get("by"))}),
        ),
        Route("/api/items/{number:int}/picture", _safe(picture)),
        Route("/api/search", search, methods=["POST"]),
        Mount("/static", StaticFiles(packages=[(__package__, "static")])),
    ]
    return Starlette(routes=routes)


def _color_sheet() -> str:
    """Return the colours of pages, those of reports, for light and dark."""

    def rules(palette: dict[str, str]) -> str:
        named = [f"--{name}: {value};" for name, value in palette.items()]
        levels = enumerate(shades(palette), 1)
        named += [f"--l{level}: {background}; --t{level}: {ink};" for level, (background, ink) in levels]
        return " ".join([*named, f"--control: {palette['muted']};"])

    light, dark = (f"color-scheme: {name}; {rules(palette)}" for name, palette in (("light", LIGHT), ("dark", DARK)))
    levels = [
        f".l{level} {{ background: var(--l{level}); color: var(--t{level}); }}" for level in range(1, N_LEVELS + 1)
    ]
    return "\n".join(
        [
            f":root {{ {light} }}",
            f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}",
            f':root[data-theme="light"] {{ {light} }}',
            f':root[data-theme="dark"] {{ {dark} }}',
            *levels,
        ]
    )


def _search(space: Workspace, query: QueryParams, body: bytes) -> Any:
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
    return views.search(space, _size(query), query_item, _number(query, "k", 24), query.get("by"))


@dataclass(frozen=True)
class Upload:
    """The bytes of an item that was sent."""

    content: bytes
    source: str = "query"

    def open(self) -> BinaryIO:
        """Open the bytes for reading."""
        return io.BytesIO(self.content)


def _answered(answer: Callable[[], Any]) -> Response:
    """Answer with JSON; errors of the library become their sentence."""
    try:
        return _json(answer())
    except BagwiseError as error:
        return _json({"error": str(error)}, 400)


def _safe(respond: Callable[[Request], Response]) -> Callable[[Request], Response]:
    def responding(request: Request) -> Response:
        try:
            return respond(request)
        except BagwiseError as error:
            return _json({"error": str(error)}, 404)

    return responding


def _json(content: Any, status: int = 200) -> Response:
    return _answer_text(_as_json(content), status)


def _as_json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))


def _answer_text(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _tree(space: Workspace) -> str:
    """Return the hierarchy, which is the same in all pages."""
    return space.once("hierarchy", lambda: _as_json(views.hierarchy(space)))


def prepare(space: Workspace) -> None:
    """Compute what pages show first, so that it is there when they ask; errors are left for those who ask.

    All but the overview is done after the first page was answered, which would have to wait for it otherwise.
    """

    def locked(answer: Callable[[], Any]) -> Any:
        with space.cut().lock:
            return answer()

    steps: list[Callable[[], Any]] = [
        lambda: locked(lambda: views.overview(space, None)),
        lambda: space.visited.wait(_FIRST_VISIT),
        lambda: locked(lambda: views.groups(space, None, views.GroupQuery())),
        lambda: _tree(space),
        lambda: (space.folded_names, space.folded_ids, space.id_ranks, space.numbers),
    ]
    if space.items is not None and len(space.items):
        held = space.items
        steps += [lambda: held.item(0), lambda: held.similar(0, 2, None)]
    for step in steps:
        with suppress(BagwiseError):
            step()


def _number(query: QueryParams, name: str, default: int) -> int:
    given = _maybe(query, name)
    return default if given is None else given


def _needed(query: QueryParams, name: str) -> int:
    given = _maybe(query, name)
    if given is None:
        raise BagwiseError(f"The address needs a number for {name}.")
    return given


def _maybe(query: QueryParams, name: str) -> int | None:
    """Return a number of the address, or None."""
    given = query.get(name, "")
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) < 10):
        raise BagwiseError(f"{name} must be a whole number, got {given!r:.40}.")
    return int(given)


def _size(query: QueryParams) -> int | None:
    return _maybe(query, "n")


def _group_query(query: QueryParams) -> views.GroupQuery:
    return views.GroupQuery(
        find=query.get("find", ""),
        label=_maybe(query, "label"),
        sort=query.get("sort") or "decides",
        first=_number(query, "first", 0),
        most=min(_number(query, "most", 60), _MOST_ROWS),
    )


def _item_query(query: QueryParams) -> views.ItemQuery:
    return views.ItemQuery(
        label=_maybe(query, "label"),
        predicted=_maybe(query, "predicted"),
        right=query.get("right", ""),
        seen=query.get("seen", ""),
        group=_maybe(query, "group"),
        find=query.get("find", ""),
        sort=query.get("sort") or "number",
        first=_number(query, "first", 0),
        most=min(_number(query, "most", 60), _MOST_ROWS),
    )
