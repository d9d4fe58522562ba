"""What all commands share: talking to people and to programs, progress, the log, and how a run ends."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from bagwise.cli.printing import ProgressBar, make_table, message_of, plain_lines, printable
from bagwise.errors import BagwiseError

__all__ = ["EXIT_CODES", "Session", "session"]

BAD_INPUT, UNEXPECTED, INTERRUPTED, TERMINATED = 1, 3, 130, 143
EXIT_CODES = {
    0: "done",
    BAD_INPUT: "something is wrong with the data, the files or the values of options",
    2: "the command line is not understood: an unknown command or option, a missing argument",
    UNEXPECTED: "an error of bagwise itself; the log says where",
    INTERRUPTED: "interrupted by Ctrl-C",
    TERMINATED: "asked to end by SIGTERM",
}


class _Terminated(KeyboardInterrupt):
    """SIGTERM, so that files are cleaned up as after Ctrl-C."""


class Session:
    """One run of a command.

    Parameters
    ----------
    command : str
        Its name.
    quiet : bool
        No progress and no notes.
    as_json : bool
        Print one JSON object and nothing else on standard output.
    log_file : Path or None
    """

    def __init__(self, command: str, *, quiet: bool = False, as_json: bool = False, log_file: Path | None = None):
        self.as_json = as_json
        self.quiet = quiet
        self.log_file = log_file
        self.progress = ProgressBar(enabled=not quiet and sys.stderr.isatty(), log=self.log)
        self._answer: dict[str, Any] = {"command": command}
        self._written: list[str] = []
        self._logger = logging.Logger(f"bagwise {command}")
        self._logger.addHandler(logging.NullHandler())
        if log_file is not None:
            try:
                handler = logging.FileHandler(log_file, encoding="utf-8", errors="backslashreplace")
            except OSError as error:
                raise BagwiseError(f"The log file {log_file} cannot be written: {error.strerror}.") from error
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            self._logger.addHandler(handler)

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Write a line into the log, if there is one."""
        self._logger.log(level, "%s", text)

    def say(self, text: str = "") -> None:
        """Print a line of the answer, for people."""
        self.log(text)
        if not self.as_json:
            self.progress.clear()
            typer.echo(text)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table: on a terminal fitted to its width, otherwise without styles and line breaks."""
        table = make_table(heads, rows)
        lines = plain_lines(table)
        if self.as_json or not sys.stdout.isatty():
            for line in lines:
                self.say(line)
            return
        from rich.console import Console

        self.progress.clear()
        Console(highlight=False).print(table)
        for line in lines:
            self.log(line)

    def note(self, text: str) -> None:
        """Tell, beside the answer, what people should know."""
        self.log(text, logging.WARNING)
        if not self.quiet:
            self.progress.clear()
            typer.echo(f"Note: {printable(text)}", err=True)

    def answer(self, **fields: Any) -> None:
        """Add to the JSON object."""
        self._answer |= fields

    def wrote(self, path: str | os.PathLike[str], what: str) -> None:
        """Tell that a file is written."""
        self._written.append(os.fspath(path))
        self.say(f"{what:<8} {printable(os.fspath(path))}")

    def finish(self) -> None:
        """Print the JSON object, if it was asked for."""
        if self.as_json:
            written = {"written": self._written} if self._written else {}
            self._print_json(self._answer | written)

    def fail(self, message: str, code: int) -> typer.Exit:
        """Print what went wrong, in one line, and give the exception that ends the program."""
        self.progress.clear()
        self.log(message, logging.ERROR)
        if self.as_json:
            self._print_json({"command": self._answer["command"], "error": message, "exit_code": code})
        before = f" Written before that: {', '.join(map(printable, self._written))}." if self._written else ""
        typer.echo(f"Error: {printable(message)}{before}", err=True)
        return typer.Exit(code)

    def keep_traceback(self) -> Path:
        """Write the traceback of the exception being handled to the log, or to a new file where there is none."""
        text = traceback.format_exc()
        if self.log_file is not None:
            self.log(text, logging.CRITICAL)
            return self.log_file
        number, name = tempfile.mkstemp(prefix="bagwise-", suffix=".log")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{' '.join(map(printable, sys.argv))}\n{text}")
        return Path(name)

    def close(self) -> None:
        """Finish the progress bar and the log."""
        self.progress.clear()
        for handler in self._logger.handlers:
            handler.close()

    def _print_json(self, content: dict[str, Any]) -> None:
        typer.echo(json.dumps(content, allow_nan=False))

    def warned(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: Any = None,
    ) -> None:
        """Show warnings meant for people as notes; those meant for programmers only go to the log."""
        if issubclass(category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            self.log(f"{category.__name__}: {message}", logging.WARNING)
        else:
            self.note(str(message))


@contextmanager
def session(command: str, *, quiet: bool, as_json: bool, log_file: Path | None) -> Iterator[Session]:
    """Run a command: whatever happens ends in an answer, or in one sentence and an exit code."""
    try:
        run = Session(command, quiet=quiet, as_json=as_json, log_file=log_file)
    except BagwiseError as error:
        raise Session(command, quiet=quiet, as_json=as_json).fail(str(error), BAD_INPUT) from error
    run.log(" ".join(map(printable, sys.argv)))
    try:
        with _sigterm_interrupts(), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = run.warned
            yield run
        run.finish()
        run.log("done")
    except (typer.Exit, BrokenPipeError):
        raise
    except BagwiseError as error:
        raise run.fail(message_of(error), BAD_INPUT) from error
    except _Terminated as error:
        raise run.fail("Asked to end; nothing half-written is left.", TERMINATED) from error
    except KeyboardInterrupt as error:
        raise run.fail("Interrupted; nothing half-written is left.", INTERRUPTED) from error
    except OSError as error:
        raise run.fail(_system_sentence(error), BAD_INPUT) from error
    except MemoryError as error:
        raise run.fail(
            "There is not enough memory. Take fewer words (--words), or look at --dry-run first.", BAD_INPUT
        ) from error
    except Exception as error:
        place = run.keep_traceback()
        message = f"This is an error of bagwise: {type(error).__name__}: {error}. The log with all details: {place}"
        raise run.fail(message, UNEXPECTED) from error
    finally:
        run.close()


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM clean up as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not in the main thread, where signals do not arrive anyway
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _system_sentence(error: OSError) -> str:
    what = error.strerror or str(error)
    where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, (str, bytes)) else ""
    advice = " Make room, or write elsewhere by --out." if error.errno == errno.ENOSPC else ""
    return f"{what}{where}.{advice}"
