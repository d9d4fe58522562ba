"""Arguments and options shared by commands, and the decorator that adds them to a command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.models import OptionInfo

from bagwise._io.storage import Url, as_place
from bagwise.app.cli.session import session
from bagwise.app.declaring import OUTPUT, RUN, SOURCE, meaning_of, options_of
from bagwise.app.options import FitOptions, read_config

__all__ = [
    "FIT_OPTIONS",
    "PARTED_OPTIONS",
    "READ_OPTIONS",
    "Force",
    "Lines",
    "MapMethod",
    "ModelPath",
    "ModelPlace",
    "Network",
]
__all__ += ["Network", "NoIndex", "NoPage", "Options", "Page", "QueryText", "Raw", "Report", "Row", "Scheduler"]
__all__ += [
    "LOOK",
    "MAKE",
    "OTHERS",
    "USE",
    "SourcePath",
    "Workers",
    "command",
    "fit_options",
    "option_name",
    "source_path",
]


def source_path(text: str) -> Any:
    """Return the path or URL of a source."""
    location = as_place(text)
    return location if isinstance(location, Url) else Path(location)


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file, from bagwise fit.")]
ModelPlace = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file, from bagwise fit, or its URL.", parser=source_path)
]
SourcePath = Annotated[
    Path,
    typer.Argument(metavar="SOURCE", help="Folder, archive, file of records, table, or item.", parser=source_path),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing outputs.")]
Page = Annotated[Path | None, typer.Option("--page", help="Write an HTML page.", metavar="FILE")]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw", help="CSV: no apostrophe before names such as =x, formulas elsewhere.", rich_help_panel=OUTPUT
    ),
]
QueryText = Annotated[
    list[str] | None, typer.Option("--query-text", "-t", help="A text; may be given several times.", metavar="TEXT")
]
Lines = Annotated[bool, typer.Option("--lines", help="Each line of standard input is a text.")]
Row = Annotated[int | None, typer.Option(min=0, help="Only this row of a table, counted from 0.")]

Network = Annotated[
    Path | None,
    typer.Option(
        help="ONNX file of the network that the model was fitted with. Models name networks by their hash alone.",
        metavar="FILE",
        rich_help_panel=RUN,
    ),
]
MapMethod = Annotated[
    str,
    typer.Option(
        "--map",
        help="Map of the items in the index, for bagwise explore: spectral, tsne or none.",
        metavar="NAME",
        rich_help_panel=OUTPUT,
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--page", help="Page of the report. Default: NAME.report.html beside the model.", metavar="FILE"),
]
NoIndex = Annotated[bool, typer.Option("--no-index", help="Write no index.", rich_help_panel=OUTPUT)]
NoPage = Annotated[bool, typer.Option("--no-page", help="Write no report.", rich_help_panel=OUTPUT)]

Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Run on the Dask cluster of this scheduler, such as tcp://host:8786.",
        metavar="ADDRESS",
        rich_help_panel=RUN,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Run on this many worker processes of this machine, by Dask.", metavar="N", rich_help_panel=RUN),
]

# Groups of commands.
MAKE, USE, LOOK, OTHERS = "Make", "Use", "Look", "Others"
# Name of a parameter: its annotated type and default.
Options = Mapping[str, tuple[Any, Any]]


def _option(kind: Any, panel: str | None, help: str, *names: str, metavar: str | None = None) -> tuple[Any, Any]:
    """Return the type and default of an option: switches are off, if they have one name; others None."""
    option = typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)
    off = kind is bool and not any("/" in name for name in names)
    return (Annotated[bool, option], False) if off else (Annotated[kind | None, option], None)


def table_options(table: type[FitOptions], *, common: bool = True) -> dict[str, tuple[Any, Any]]:
    """Return the options of the command line that a table declares; None, their default, is that of the table.

    With `common`, those that a fit often needs are in no section, so that the short help lists them.
    """
    options = {}
    for one in fields(table):
        known = one.metadata["option"]
        if known.names:
            panel = None if common and known.common else known.panel
            meaning = meaning_of(known, one.default)
            options[one.name] = _option(known.rule.type, panel, meaning, *known.names, metavar=known.metavar)
    return options


FIT_OPTIONS: Options = table_options(FitOptions) | {
    "config": _option(Path, RUN, "TOML file with options; the command line has priority.", metavar="FILE")
}
# Of commands that read items.
READ_OPTIONS: Options = {
    name: one
    for name, one in table_options(FitOptions, common=False).items()
    if options_of(FitOptions)[name].panel == SOURCE or name in ("cache", "n_jobs")
}
# Of commands that read items on a cluster.
PARTED_OPTIONS: Options = {**READ_OPTIONS, "partition": FIT_OPTIONS["partition"]}

_COMMON: Options = {
    "quiet": _option(bool, RUN, "No progress, no notes.", "--quiet", "-q"),
    "as_json": _option(bool, RUN, "Print one JSON object and nothing else.", "--json"),
    "log_file": _option(Path, RUN, "Append a log of steps, notes and errors to this file.", metavar="FILE"),
}


def option_name(parameter: str, annotation: Any) -> str:
    """Return the name of an option on the command line, which may be another than that of its parameter."""
    # Typer takes the first name for a default, until it reads the annotation
    candidates = [name for info in get_args(annotation)[1:] for name in (info.default, *(info.param_decls or ()))]
    named = [name for name in candidates if isinstance(name, str) and name.startswith("--")]
    return named[0].partition("/")[0] if named else f"--{parameter.replace('_', '-')}"


def _name_value(annotation: Any) -> None:
    """Give an option a metavar by the type of its value, unless it has one."""
    kind, info, *_ = get_args(annotation)
    kinds = {kind, *get_args(kind)}
    named = next(
        (name for one, name in {Path: "FILE", int: "N", float: "X", str: "NAME"}.items() if one in kinds), None
    )
    if isinstance(info, OptionInfo) and info.metavar is None:
        info.metavar = named


# Options of all commands that open a source, by their parameters: messages name them.
OPTION_NAMES = {name: option_name(name, annotation) for name, (annotation, _) in {**FIT_OPTIONS, **_COMMON}.items()}


def command(panel: str, also: Options | None = None) -> Callable[[Callable[..., None]], Any]:
    """Make a function a command: its first argument is the `Session`, ``**options`` are those of `also`.

    Adds the options of all commands and turns errors into messages and exit codes. `panel` is the section of the help
    that lists the command.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        _, *declared = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        added = {**(also or {}), **_COMMON}
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in added.items()
        ]
        for one in declared:
            _name_value(one.annotation)
        keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in declared]

        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            common = {name: arguments.pop(name) for name in _COMMON}
            names = {p.name: option_name(p.name, p.annotation) for p in keyword_only} | OPTION_NAMES
            with session(function.__name__, names, **common) as current:
                function(current, **arguments)

        run.__signature__ = signature.replace(parameters=[*keyword_only, *more])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*keyword_only, *more)}
        del run.__wrapped__
        run.panel = panel  # type: ignore[attr-defined]
        return run

    return decorate


def fit_options(arguments: Mapping[str, Any], table: type[FitOptions] = FitOptions) -> FitOptions:
    """Build options from the command line, with the configuration file as defaults."""
    config = arguments.get("config")
    known = options_of(table)
    said = {name: known[name].rule.parsed(arguments[name]) for name in known if arguments.get(name) is not None}
    return table(**({} if config is None else read_config(config, table)) | said)
