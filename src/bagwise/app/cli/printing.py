"""Terminal output: escaped names, tables and a progress bar."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bagwise._utils.text import escape_character, shortened
from bagwise.app.declaring import options_of
from bagwise.app.options import FitOptions
from bagwise.errors import BagwiseError, OptionError

__all__ = [
    "ConsoleProgress",
    "command_line",
    "fit_last",
    "make_table",
    "message_of",
    "plain_lines",
    "printable",
]

_WIDTH, _LEAST = 100, 24  # of lines without a terminal, and of their last column
_NUMBER = re.compile(r"[-+<>]?[\d,]*\.?\d*( %)?( ± \d+\.?\d*)?")
# Categories of characters that could move the cursor, change the direction of text, or are not valid UTF-8.
_UNSAFE = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp"])


def command_line(*arguments: object) -> str:
    """Return a command of bagwise as it can be pasted into the shell that this one was called from."""
    called = Path(sys.argv[0])
    installed = shutil.which("bagwise")
    if called.name == "__main__.py" or called.stem != "bagwise":
        start = [sys.executable, "-m", "bagwise"]
    elif installed is not None and called.exists() and Path(installed).samefile(called):
        start = ["bagwise"]
    else:
        start = [str(called)]
    return shlex.join([*start, *map(str, arguments)])


def printable(text: object) -> str:
    r"""Escape control characters, and bytes of file names that are not UTF-8.

    >>> printable("two\nlines \udcff")
    'two\\nlines \\xff'
    """
    return "".join(escape_character(c) if unicodedata.category(c) in _UNSAFE else c for c in str(text))


def make_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Any:
    """Make a `rich.table.Table`; columns of numbers are aligned right, and those without any content are left out."""
    from rich.table import Table
    from rich.text import Text

    cells = [[printable(cell) for cell in row] for row in rows]
    filled = [k for k, head in enumerate(heads) if head or any(row[k] for row in cells)]
    heads, cells = [heads[k] for k in filled], [[row[k] for k in filled] for row in cells]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for k, head in enumerate(heads):
        numeric = bool(cells) and all(_NUMBER.fullmatch(row[k]) for row in cells)
        table.add_column(Text(printable(head)), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def fit_last(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Shorten the cells of the last column, so that a table is as wide as the terminal, or as `_WIDTH` without one.

    Here a terminal has 80 columns, and the last cell its least width:

    >>> fit_last(["id", "text"], [["a" * 70, "b" * 70]])[0][1]
    'bbbbbbbbbbbbbbbbbbbbbbb…'
    """
    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    others = [max(map(len, column)) + 2 for column in zip(heads, *rows, strict=True) if any(column[1:])][:-1]
    most = max(width - sum(others), _LEAST)
    return [[*row[:-1], shortened(row[-1], most)] for row in rows]


def plain_lines(table: Any) -> list[str]:
    r"""Render a table without colours, as wide as it needs to be.

    >>> print("\n".join(plain_lines(make_table(["groups", "id"], [[5, "a"], [50, "bc"]]))))
    groups  id
         5  a
        50  bc
    """
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, width=1_000_000, color_system=None, legacy_windows=False)
    console.print(table, width=console.measure(table).maximum)
    return [line.rstrip() for line in file.getvalue().splitlines()]


class ConsoleProgress:
    """Progress bar on standard error, to be used as `progress` of `fit_model`.

    It is drawn only if `enabled`. `log` is called with a line at the beginning and the end of each step.
    """

    def __init__(self, *, enabled: bool, log: Callable[[str], None]) -> None:
        self._enabled = enabled
        self._log = log
        self._step: str | None = None
        self._started = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show that `done` of `total` is done in a step; a total of 0 means unknown."""
        if step != self._step:
            self.clear()
            self._step, self._started = step, time.perf_counter()
            self._log(f"{step} …")
            if self._enabled:
                self._bar = _new_bar()
                self._bar.start()
                self._task = self._bar.add_task(step, total=total or None)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total or None)

    def clear(self) -> None:
        """Remove the bar, so that something else can be printed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._step is not None:
            self._log(f"{self._step}: {time.perf_counter() - self._started:.1f} s")
            self._step = None


def _new_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(stderr=True),
        transient=True,
    )


def message_of(error: BagwiseError) -> str:
    """Return the message of an error; that of an `OptionError` with the name of the option instead of its parameter.

    Messages of other errors name options already, see `bagwise.errors.named_by`.

    >>> message_of(OptionError("n_groups", "n_groups=0, but n_groups must be at least 1."))
    '--groups 0, but --groups must be at least 1.'
    """
    if not isinstance(error, OptionError):
        return str(error)
    known = options_of(FitOptions).get(error.parameter)
    option = (
        known.names[0].partition("/")[0]
        if known is not None and known.names
        else f"--{error.parameter.replace('_', '-')}"
    )
    named = re.sub(rf"(?<![\w-]){error.parameter}\b", option, str(error))
    return re.sub(r"(--[\w-]+)=(['\w]?)", lambda match: f"{match[1]} {match[2]}".rstrip(), named)
