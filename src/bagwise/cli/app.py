"""The command-line program and its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from bagwise.cli import answering, explaining, exploring, groups, learning, models, searching, using
from bagwise.cli.session import EXIT_CODES

__all__ = ["app"]

_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."

app = typer.Typer(
    name="bagwise",
    help="Compact, discriminative bags of words: from a folder of images or texts, or a table, to a small model, a "
    "search index and a report.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(asked: bool) -> None:
    if asked:
        from bagwise import __version__

        typer.echo(f"bagwise {__version__}")
        raise typer.Exit


@app.callback()
def bagwise(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


for _command in (
    learning.demo,
    learning.fit,
    learning.compare,
    answering.predict,
    explaining.explain,
    using.transform,
    using.evaluate,
    using.cluster,
    exploring.explore,
    searching.index,
    searching.search,
    models.info,
    groups.groups,
    models.cut,
    models.export,
    models.warmup,
):
    app.command(rich_help_panel=_command.panel)(_command)
