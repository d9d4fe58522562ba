"""Arguments and options shared by commands, and the decorator that adds them to a command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from bagwise._io.storage import Url, as_place
from bagwise.app.cli.session import session
from bagwise.descriptors.registry import DESCRIPTORS

__all__ = [
    "FIT_OPTIONS",
    "PARTED_OPTIONS",
    "READ_OPTIONS",
    "Force",
    "MapMethod",
    "ModelPath",
    "ModelPlace",
    "Network",
    "Options",
    "QueryText",
    "Raw",
    "Row",
    "Scheduler",
    "SourcePath",
    "Workers",
    "command",
]
__all__ += ["fit_options", "source_path"]


def source_path(given: str) -> Any:
    """Return the path or URL of a source."""
    place = as_place(given)
    return place if isinstance(place, Url) else Path(place)


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file, from bagwise fit.")]
ModelPlace = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file, from bagwise fit, or its URL.", parser=source_path)
]
SourcePath = Annotated[
    Path,
    typer.Argument(metavar="SOURCE", help="Folder, archive, file of records, table, or item.", parser=source_path),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing outputs.")]
Raw = Annotated[bool, typer.Option("--raw", help="CSV: no apostrophe before names such as =x, formulas elsewhere.")]
QueryText = Annotated[
    list[str] | None, typer.Option("--query-text", "-t", help="A text; may be given several times.", metavar="TEXT")
]
Row = Annotated[int | None, typer.Option(min=0, help="Only this row of a table, counted from 0.")]

Network = Annotated[
    Path | None,
    typer.Option(
        help="ONNX file of the network that the model was fitted with. Models name networks by their hash alone.",
        metavar="FILE",
    ),
]
MapMethod = Annotated[
    str, typer.Option("--map", help="Map of the items in the index, for bagwise explore: spectral, tsne or none.")
]

Scheduler = Annotated[
    str | None,
    typer.Option(help="Run on the Dask cluster of this scheduler, such as tcp://host:8786.", metavar="ADDRESS"),
]
Workers = Annotated[
    int | None, typer.Option(help="Run on this many worker processes of this machine, by Dask.", metavar="N")
]

# Name of a parameter: its annotated type and default.
Options = Mapping[str, tuple[Any, Any]]

_LEARNING, _READING, _RUNNING = "Model", "Source", "Run"


def _option(kind: Any, panel: str, help: str, *names: str, metavar: str | None = None) -> tuple[Any, Any]:
    """Return the type and default of an option: switches are off, others None."""
    option = typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)
    return (Annotated[bool, option], False) if kind is bool else (Annotated[kind | None, option], None)


def _names(modality: str) -> str:
    """Descriptors of a modality, as the command line names them."""
    return ", ".join(k.option for k in DESCRIPTORS.values() if k.option is not None and modality in k.modalities)


READ_OPTIONS: Options = {
    "modality": _option(str, _READING, "images, texts, videos, records or table. Default: detected."),
    "text": _option(str, _READING, "Column of texts in a file of records."),
    "label": _option(str, _READING, "Column of labels in a file of records, a table, or the file of --labels."),
    "id": _option(str, _READING, "Column of ids, in the same files.", metavar="COLUMN"),
    "split": _option(str, _READING, "Column of splits, train or test, in the same files.", metavar="COLUMN"),
    "labels": _option(
        str, _READING, "File with the labels of items: columns filename, label and, if you like, split.", metavar="FILE"
    ),
    "extensions": _option(
        str, _READING, "Endings of the files that are items. Default: the usual ones.", metavar=".log,.md"
    ),
    "sep": _option(
        str, _READING, "Character between fields of a CSV file, or tab. Default: detected.", metavar="CHARACTER"
    ),
    "sheet": _option(str, _READING, "Sheet of an Excel file, or its number. Default: the first.", metavar="NAME"),
    "keep": _option(str, _READING, "Column of a table to use as a word although it seems to number the rows."),
    "encoding": _option(str, _READING, "Encoding of texts, such as latin-1. Default: UTF-8."),
    "layer": _option(str, _READING, "Layer of an .h5ad file, or raw. Default: its matrix X."),
    "limits": _option(
        list[str],
        _READING,
        "Accept more, or less, than usual: rows, columns, members, pixels, seconds, table_bytes, … May be repeated.",
        "--limit",
        metavar="NAME=NUMBER",
    ),
    "on_error": _option(str, _READING, "Items that cannot be read: skip (default) or raise.", metavar="skip|raise"),
    "cache": _option(str, _RUNNING, "Folder that keeps what each step gives for the next run.", metavar="DIR"),
    "n_jobs": _option(int, _RUNNING, "Threads; -1 (default): one per core.", "--jobs"),
}

FIT_OPTIONS: Options = {
    "n_words": _option(
        int,
        _LEARNING,
        "Size of the vocabulary. Default: 1000 for images and videos, 30000 for texts (20000 without labels). "
        "Descriptors after the first have half as many words.",
        "--words",
    ),
    "criterion": _option(
        str,
        _LEARNING,
        "What merging preserves: classifier, aib, csm, mmi, … Default: classifier; for fewer groups than classes "
        "and for measurements aib or csm; without labels clusters.",
    ),
    "descriptor": _option(
        str,
        _LEARNING,
        f"{_names('images')} for images, several joined by + (default: network, where bagwise[network] is "
        "installed, otherwise sift+color); network:FILE.onnx is a network of yours; "
        f"{_names('videos')} for videos.",
    ),
    "n_frames": _option(
        int, _LEARNING, "Videos: frames that a network describes, evenly spread. Default: 16.", "--frames", metavar="N"
    ),
    "step": _option(int, _LEARNING, "Distance between descriptors in pixels."),
    "patch": _option(int, _LEARNING, "Side of the patch of a descriptor in pixels."),
    "max_side": _option(
        int, _LEARNING, "Images: shrink those with a longer side to this, in pixels. Default: 480; 0: never."
    ),
    "pyramid": _option(int, _LEARNING, "Cells of the spatial pyramid: 5, 8 or 21.", metavar="5|8|21"),
    "root": _option(
        str,
        _LEARNING,
        "Square roots of frequencies: before or after the words of a group are summed.",
        metavar="before|after",
    ),
    "min_count": _option(int, _LEARNING, "Texts: minimum document frequency of a word. Default: 1."),
    "stop_words": _option(str, _LEARNING, "Texts: english removes English stop words."),
    "ngrams": _option(int, _LEARNING, "Texts: maximum length of n-grams. Default: 1."),
    "C": _option(float, _LEARNING, "C of the linear SVM. Default: 1.", "--C"),
    "folds": _option(int, _LEARNING, "Folds of cross-validation; 0: none. Default: 5."),
    "random_state": _option(int, _LEARNING, "Random seed. Default: 0.", "--seed"),
    "memory_limit": _option(
        str, _RUNNING, "Descriptors beyond this size go to a temporary file. Default: 32MiB.", metavar="SIZE"
    ),
    "partition": _option(
        int,
        _RUNNING,
        "Items that a worker of a cluster takes at a time. Default: 64 images, 10000 texts; parts of transform: 4096.",
    ),
    "config": _option(Path, _RUNNING, "TOML file with options; the command line has priority.", metavar="FILE"),
    **READ_OPTIONS,
}

# Of commands that read items on a cluster.
PARTED_OPTIONS: Options = {**READ_OPTIONS, "partition": FIT_OPTIONS["partition"]}

_COMMON: Options = {
    "quiet": _option(bool, _RUNNING, "No progress, no notes.", "--quiet", "-q"),
    "as_json": _option(bool, _RUNNING, "Print one JSON object and nothing else.", "--json"),
    "log_file": _option(Path, _RUNNING, "Append a log of steps, notes and errors to this file.", metavar="FILE"),
}


def option_name(parameter: str, annotation: Any) -> str:
    """Return the name of an option on the command line, which may be another than that of its parameter."""
    # Typer takes the first name for a default, until it reads the annotation
    given = [name for info in get_args(annotation)[1:] for name in (info.default, *(info.param_decls or ()))]
    named = [name for name in given if isinstance(name, str) and name.startswith("--")]
    return named[0] if named else f"--{parameter.replace('_', '-')}"


# Options of all commands that open a source, by their parameters: messages name them.
OPTION_NAMES = {name: option_name(name, annotation) for name, (annotation, _) in {**FIT_OPTIONS, **_COMMON}.items()}
OPTION_NAMES["n_groups"] = "--groups"


def command(panel: str, also: Options | None = None) -> Callable[[Callable[..., None]], Any]:
    """Make a function a command: its first argument is the `Session`, ``**options`` are those of `also`.

    Adds the options of all commands and turns errors into messages and exit codes. `panel` is the section of the help
    that lists the command.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        _, *own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        added = {**(also or {}), **_COMMON}
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in added.items()
        ]
        keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            common = {name: given.pop(name) for name in _COMMON}
            names = {p.name: option_name(p.name, p.annotation) for p in keyword_only} | OPTION_NAMES
            with session(function.__name__, names, **common) as current:
                function(current, **given)

        run.__signature__ = signature.replace(parameters=[*keyword_only, *more])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*keyword_only, *more)}
        del run.__wrapped__
        run.panel = panel  # type: ignore[attr-defined]
        return run

    return decorate


def fit_options(given: Mapping[str, Any], **more: Any) -> Any:
    """Build `FitOptions` from the command line, with the configuration file as defaults."""
    from bagwise.app.options import FitOptions, read_config

    said = {name: value for name, value in {**given, **more}.items() if value is not None}
    config = said.pop("config", None)
    return FitOptions(**({} if config is None else read_config(config)) | said)
