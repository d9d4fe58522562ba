"""Options shared by commands, and the decorator that adds them to a command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.cli.session import session
from bagwise.descriptors.registry import DESCRIPTORS

__all__ = ["FIT_OPTIONS", "READ_OPTIONS", "Options", "command", "fit_options"]

# Name of a parameter: its type and default.
Options = Mapping[str, tuple[Any, Any]]

_LEARNING, _READING, _RUNNING = "Model", "Source", "Run"


def _option(panel: str, help: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, show_default=False)


def _names(modality: str) -> str:
    """Descriptors of a modality, as the command line names them."""
    return ", ".join(k.option for k in DESCRIPTORS.values() if k.option is not None and k.modality == modality)


READ_OPTIONS: Options = {
    "modality": (
        Annotated[str | None, _option(_READING, "images, texts, videos, records or table. Default: detected.")],
        None,
    ),
    "text": (Annotated[str | None, _option(_READING, "Column of texts in a file of records.")], None),
    "label": (Annotated[str | None, _option(_READING, "Column of labels in a file of records or a table.")], None),
    "encoding": (Annotated[str | None, _option(_READING, "Encoding of texts, such as latin-1. Default: UTF-8.")], None),
    "on_error": (
        Annotated[
            str | None,
            _option(_READING, "Items that cannot be read: skip (default) or raise.", metavar="skip|raise"),
        ],
        None,
    ),
    "cache": (
        Annotated[
            str | None,
            _option(_RUNNING, "Folder that caches descriptors between runs.", metavar="DIR"),
        ],
        None,
    ),
    "n_jobs": (Annotated[int | None, _option(_RUNNING, "Threads; -1 (default): one per core.", "--jobs")], None),
}

FIT_OPTIONS: Options = {
    "n_words": (
        Annotated[
            int | None,
            _option(
                _LEARNING, "Size of the vocabulary. Default: 1000 for images and videos, 20000 for texts.", "--words"
            ),
        ],
        None,
    ),
    "criterion": (
        Annotated[
            str | None,
            _option(_LEARNING, "What merging preserves: csm, nda, aib, … Default: aib; without labels mmi or lpp."),
        ],
        None,
    ),
    "descriptor": (
        Annotated[
            str | None,
            _option(
                _LEARNING,
                f"{_names('images')} (default: sift) for images; {_names('videos')} for videos.",
            ),
        ],
        None,
    ),
    "step": (Annotated[int | None, _option(_LEARNING, "Distance between descriptors in pixels.")], None),
    "patch": (Annotated[int | None, _option(_LEARNING, "Side of the patch of a descriptor in pixels.")], None),
    "pyramid": (
        Annotated[int | None, _option(_LEARNING, "Cells of the spatial pyramid: 5, 8 or 21.", metavar="5|8|21")],
        None,
    ),
    "min_count": (
        Annotated[int | None, _option(_LEARNING, "Texts: minimum document frequency of a word. Default: 2.")],
        None,
    ),
    "stop_words": (Annotated[str | None, _option(_LEARNING, "Texts: english removes English stop words.")], None),
    "ngrams": (
        Annotated[int | None, _option(_LEARNING, "Texts: maximum length of n-grams. Default: 1.")],
        None,
    ),
    "C": (Annotated[float | None, _option(_LEARNING, "C of the linear SVM. Default: 1.", "--C")], None),
    "folds": (
        Annotated[int | None, _option(_LEARNING, "Folds of cross-validation; 0: none. Default: 5.")],
        None,
    ),
    "random_state": (
        Annotated[int | None, _option(_LEARNING, "Random seed. Default: 0.", "--seed")],
        None,
    ),
    "memory_limit": (
        Annotated[
            str | None,
            _option(_RUNNING, "Descriptors beyond this size go to a temporary file. Default: 32MiB.", metavar="SIZE"),
        ],
        None,
    ),
    "config": (
        Annotated[
            Path | None,
            _option(_RUNNING, "TOML file with options; the command line has priority.", metavar="FILE"),
        ],
        None,
    ),
    **READ_OPTIONS,
}  # fmt: skip

_COMMON: Options = {
    "quiet": (Annotated[bool, _option(_RUNNING, "No progress, no notes.", "--quiet", "-q")], False),
    "as_json": (Annotated[bool, _option(_RUNNING, "Print one JSON object and nothing else.", "--json")], False),
    "log_file": (
        Annotated[
            Path | None,
            _option(_RUNNING, "Append a log of steps, notes and errors to this file.", metavar="FILE"),
        ],
        None,
    ),
}


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
            with session(function.__name__, **common) as current:
                function(current, **given)

        run.__signature__ = signature.replace(parameters=[*keyword_only, *more])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*keyword_only, *more)}
        del run.__wrapped__
        run.panel = panel  # type: ignore[attr-defined]
        return run

    return decorate


def fit_options(given: Mapping[str, Any], **more: Any) -> Any:
    """Build `FitOptions` from the command line, with the configuration file as defaults."""
    from bagwise.training.options import FitOptions, read_config

    said = {name: value for name, value in {**given, **more}.items() if value is not None}
    config = said.pop("config", None)
    return FitOptions(**({} if config is None else read_config(config)) | said)
