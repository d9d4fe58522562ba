"""The web application of the explorer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from bagwise.app.explorer.editor import Editor
from bagwise.app.explorer.pages import PAGES, groups, overview, search
from bagwise.app.explorer.requests import answer_json
from bagwise.app.explorer.workspace import Workspace
from bagwise.display.svg import DARK, LIGHT, N_LEVELS, shades
from bagwise.errors import BagwiseError

__all__ = ["make_app", "prepare"]

_FIRST_VISIT = 5.0  # seconds that preparing waits for the first page


def make_app(space: Workspace) -> ASGIApp:
    """Build the application; `bagwise.app.explorer.security.Guard` belongs around it.

    Each request is answered for the workspace that is current when it begins, see `Editor`.
    """
    editor = space.editor or Editor(space)
    served = (editor.space, _app_of(editor.space))

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal served
        now = editor.space
        if served[0] is not now:
            served = (now, _app_of(now))
        await served[1](scope, receive, send)

    return answer


def _app_of(space: Workspace) -> Starlette:
    static = resources.files(__package__).joinpath("static")
    shell = static.joinpath("page.html").read_text(encoding="utf-8")
    picture = static.joinpath("icon.svg").read_bytes()

    async def page(request: Request) -> Response:
        return HTMLResponse(shell)

    async def colors(request: Request) -> Response:
        return Response(_color_sheet(), media_type="text/css")

    async def icon(request: Request) -> Response:
        """Browsers ask for it on the page that leads from a token to the explorer, which names none."""
        return Response(picture, media_type="image/svg+xml")

    routes: list[BaseRoute] = [Route(f"/{name}", page) for name in PAGES]
    routes += [Route("/colors.css", colors), Route("/favicon.ico", icon)]
    for module in PAGES.values():
        routes += module.routes(space)
    routes.append(Mount("/static", StaticFiles(packages=[(__package__, "static"), ("bagwise.display", "static")])))
    return Starlette(routes=routes, exception_handlers={404: _missing})


async def _missing(request: Request, error: Exception) -> Response:
    """Say that there is nothing at an address, which may be one of another model."""
    if request.url.path.startswith("/api/"):
        return answer_json({"error": "There is nothing at this address. It may be of another model."}, 404)
    return PlainTextResponse("There is no such page. The explorer begins at the address /.", 404)


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


def prepare(space: Workspace) -> None:
    """Compute what pages show first, so that it is there when they ask; errors are left for those who ask.

    All but the overview is done after the first page was answered, which would have to wait for it otherwise.
    """

    def locked(answer: Callable[[], Any]) -> Any:
        with space.cut().lock:
            return answer()

    steps: list[Callable[[], Any]] = [
        lambda: locked(lambda: overview.overview(space, None)),
        lambda: space.visited.wait(_FIRST_VISIT),
        lambda: locked(lambda: groups.groups(space, None, groups.GroupQuery())),
        lambda: groups.hierarchy_text(space),
        lambda: (space.folded_names, space.folded_ids, space.id_ranks, space.numbers),
    ]
    if space.items is not None and len(space.items):
        items = space.items
        steps += [lambda: items.item(0), lambda: search.similar(space, None, 0, search.SearchQuery(1))]
    for step in steps:
        with suppress(BagwiseError):
            step()
