"""The command that opens the explorer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.app.cli.options import LOOK, READ_OPTIONS, Network, command, fit_options, source_path
from bagwise.app.cli.session import Session, Terminated

__all__ = ["explore"]


@command(LOOK, READ_OPTIONS)
def explore(
    session: Session,
    path: Annotated[Path, typer.Argument(metavar="MODEL|INDEX", help="A model or an index.")],
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="Items to show. Default: those of the index.", parser=source_path),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="OTHER", help="A second model or index, to compare on the same items.")
    ] = None,
    network: Network = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 (default): any free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse edits of the model.")] = False,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    **options: Any,
) -> None:
    """Open a model or an index in the browser, and edit it.

    Shows errors, groups, items, search, and the differences to another model; Ctrl-C ends it.
    """
    from bagwise._utils.extras import require

    for module in ("starlette", "uvicorn"):
        require(module, "app", "The explorer")
    from bagwise.app.explorer import Server, open_other, open_workspace

    told: dict[str, Any] = {"progress": session.progress, "note": session.note}
    space = open_workspace(path, source, fit_options(options), read_only=read_only, network=network, **told)
    if compare is not None:
        space.other = open_other(space, compare, fit_options(options), **told)
    session.progress.clear()
    server = Server(space, host, port)
    if host not in ("127.0.0.1", "localhost", "::1"):
        may = "see the items" if read_only else "see the items and edit the model"
        session.note(f"Everyone who can reach {host} and knows the token can {may}.")
    session.answer(address=server.address)

    def opening() -> None:
        if not server.open_page():
            session.note("No browser could be opened here. Open the address above.")

    def started() -> None:
        session.say(f"Explorer: {server.address}")
        session.say("Ctrl-C ends it.")
        if open_page:
            threading.Thread(target=opening, daemon=True).start()  # browsers of a terminal run until they are closed

    try:
        server.run(started)
    except Terminated:
        raise
    except KeyboardInterrupt:
        session.say("Stopped.")
