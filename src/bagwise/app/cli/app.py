"""The command-line program and its commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from bagwise.app.cli import (
    answering,
    clustering,
    explaining,
    exploring,
    exporting,
    groups,
    labelling,
    learning,
    listing,
    models,
    searching,
    using,
)
from bagwise.app.cli.help import Command, Program
from bagwise.app.cli.session import BAD_USAGE

__all__ = ["app"]

# The base of all errors in the use of commands: Typer brings its own copy of it, or takes that of Click.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Program(Program):
    """All commands. With ``--json``, errors in their use are an object on standard output, as all errors are."""

    _as_json = False

    def main(self, *args: Any, **more: Any) -> Any:
        arguments = args[0] if args else more.get("args")
        self._as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
        return super().main(*args, **more)

    def make_context(self, *args: Any, **more: Any) -> Any:
        with self._usage_errors():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with self._usage_errors():
            return super().invoke(ctx)

    @contextmanager
    def _usage_errors(self) -> Iterator[None]:
        try:
            yield
        except _UsageError as error:
            if self._as_json:
                command = error.ctx.info_name if error.ctx is not None and error.ctx.parent is not None else None
                told = {"command": command, "error": error.format_message(), "exit_code": BAD_USAGE}
                typer.echo(json.dumps(told))
            raise


app = typer.Typer(
    name="bagwise",
    cls=_Program,
    help="From images, texts, videos or a table to a small model, an index and a report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
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
    learning.fit,
    clustering.cluster,
    searching.index,
    answering.predict,
    searching.search,
    explaining.explain,
    labelling.suggest,
    using.evaluate,
    using.transform,
    exporting.export,
    exploring.explore,
    models.info,
    learning.compare,
    groups.groups,
    learning.demo,
    listing.list,
    models.cut,
    models.warmup,
):
    app.command(cls=Command, rich_help_panel=_command.panel)(_command)
