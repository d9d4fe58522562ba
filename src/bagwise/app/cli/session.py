"""One run of a command: its output, progress, log, errors and exit code."""

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from bagwise._utils.text import agree
from bagwise.app.cli import end_at_once
from bagwise.app.cli.printing import ConsoleProgress, make_table, message_of, plain_lines, printable
from bagwise.errors import BagwiseError, named_by

__all__ = ["EXIT_CODES", "Session", "Terminated", "session"]

BAD_INPUT, BAD_USAGE, UNEXPECTED, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143
EXIT_CODES = {
    0: "success, also if some items of a collection were skipped",
    BAD_INPUT: "invalid data or option values, a file that cannot be read, or none of the items of a collection",
    BAD_USAGE: "usage error: unknown command or option, missing argument",
    UNEXPECTED: "internal error, see the log",
    INTERRUPTED: "interrupted by Ctrl-C",
    TERMINATED: "terminated by SIGTERM",
}


# Items that could not be read in a JSON object; all of them are in the log.
MOST_SKIPPED = 1000


class _Interrupted(KeyboardInterrupt):
    """Raised on Ctrl-C.

    A plain KeyboardInterrupt that comes out of ``exec``, by which modules such as those of SciPy import others, makes
    Python end by the signal instead of the exit code.
    """


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, so that files are cleaned up as after Ctrl-C."""


class Session:
    """One run of a command.

    With `quiet` there are no progress and no notes; with `as_json` standard output is one JSON object and nothing else.
    """

    def __init__(self, command: str, *, quiet: bool = False, as_json: bool = False, log_file: Path | None = None):
        self.as_json = as_json
        self.quiet = quiet
        self.log_file = log_file
        self.progress = ConsoleProgress(enabled=not quiet and sys.stderr.isatty(), log=self.log)
        self.resumes: bool | None = None  # whether a run with the same options goes on where this one ended
        self._answer: dict[str, Any] = {"command": command}
        self._skipped: dict[str, str] | None = None  # reasons by ids
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
        """Write a line to the log, if there is one."""
        self._logger.log(level, "%s", text)

    def say(self, text: str = "") -> None:
        """Print a line, unless the output is JSON."""
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

    def show(self, content: Any) -> None:
        """Print a renderable of rich, such as a text with colours, unless the output is JSON."""
        if not self.as_json:
            from rich.console import Console

            self.progress.clear()
            Console(highlight=False).print(content)

    def note(self, text: str) -> None:
        """Print a note on standard error."""
        self.log(text, logging.WARNING)
        if not self.quiet:
            self.progress.clear()
            typer.echo(f"Note: {printable(text)}", err=True)

    def skipped(self, items: Iterable[tuple[str, str]], n_items: int | None = None) -> None:
        """Tell of items that could not be read, pairs of id and reason: all go to the log and to the JSON object.

        With `n_items`, the number of all items, a note names the first and says where the others are named.
        """
        known = self._skipped = self._skipped or {}
        new = {id: reason for id, reason in items if id not in known}
        known |= new
        for id, reason in new.items():
            self.log(f"Skipped {printable(id)}: {printable(reason)}", logging.WARNING)
        if new and n_items is not None:
            first, reason = next(iter(new.items()))
            were = agree(len(new), "was", "were")
            self.note(f"{len(new)} of {n_items} items could not be read and {were} skipped. {first}: {reason}")
        if len(new) > 1:
            where = "--log-file FILE names" if self.log_file is None else f"{self.log_file} names"
            self.note(f"{where} all {len(new)} items that were skipped.")

    def _told_skipped(self) -> dict[str, Any]:
        if self._skipped is None:
            return {}
        some = [{"id": id, "reason": reason} for id, reason in list(self._skipped.items())[:MOST_SKIPPED]]
        return {"skipped": {"count": len(self._skipped), "items": some}}

    def answer(self, **fields: Any) -> None:
        """Add fields to the JSON object."""
        self._answer |= fields

    def wrote(self, path: str | os.PathLike[str], what: str) -> None:
        """Print that a file was written."""
        self._written.append(os.fspath(path))
        self.say(f"{what:<8} {printable(os.fspath(path))}")

    def finish(self) -> None:
        """Print the JSON object, if requested."""
        if self.as_json:
            written = {"written": self._written} if self._written else {}
            typer.echo(json.dumps(self._answer | self._told_skipped() | written, allow_nan=False))

    def fail(self, message: str, code: int) -> typer.Exit:
        """Print an error as one line and return the exception that ends the program."""
        self.progress.clear()
        self.log(message, logging.ERROR)
        if self.as_json:
            told = {"command": self._answer["command"], "error": message, "exit_code": code}
            typer.echo(json.dumps(told | self._told_skipped()))
        before = f" Written before that: {', '.join(map(printable, self._written))}." if self._written else ""
        typer.echo(f"Error: {printable(message)}{before}", err=True)
        return typer.Exit(code)

    def how_to_resume(self) -> str:
        """Say how an interrupted run can go on, where that is possible."""
        if self.resumes is None:
            return ""
        again = "Run the same command again to go on from the last finished step."
        return (
            f" {again}" if self.resumes else " With --cache DIR, the same command goes on from the last finished step."
        )

    def keep_traceback(self) -> Path:
        """Write the current traceback to the log, or to a new file if there is no log."""
        text = traceback.format_exc()
        if self.log_file is not None:
            self.log(text, logging.CRITICAL)
            return self.log_file
        number, name = tempfile.mkstemp(prefix="bagwise-", suffix=".log")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{' '.join(map(printable, sys.argv))}\n{text}")
        return Path(name)

    def close(self) -> None:
        """Close the progress bar and the log."""
        self.progress.clear()
        for handler in self._logger.handlers:
            handler.close()

    def warned(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: Any = None,
    ) -> None:
        """Print warnings as notes; deprecation warnings only go to the log."""
        if issubclass(category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            self.log(f"{category.__name__}: {message}", logging.WARNING)
        else:
            self.note(str(message))
            if getattr(message, "skipped", ()):
                self.skipped(message.skipped)  # type: ignore[union-attr]


@contextmanager
def session(
    command: str, options: Mapping[str, str], *, quiet: bool, as_json: bool, log_file: Path | None
) -> Iterator[Session]:
    """Run a command; every exception becomes one line and an exit code.

    `options` are the names of the command's options by their parameters, for messages.
    """

    def option_of(parameter: str) -> str:
        return options.get(parameter, f"--{parameter.replace('_', '-')}")

    try:
        run = Session(command, quiet=quiet, as_json=as_json, log_file=log_file)
    except BagwiseError as error:
        raise Session(command, quiet=quiet, as_json=as_json).fail(str(error), BAD_INPUT) from error
    run.log(" ".join(map(printable, sys.argv)))
    try:
        with _signals_interrupt(), warnings.catch_warnings(), named_by(option_of):
            warnings.simplefilter("default")
            warnings.showwarning = run.warned
            yield run
        run.finish()
        run.log("done")
    except (typer.Exit, BrokenPipeError):
        raise
    except BagwiseError as error:
        skipped = getattr(error, "skipped", ())  # of all items: none could be read
        if skipped:
            run.skipped(skipped)
        raise run.fail(message_of(error), BAD_INPUT) from error
    except Terminated as error:
        raise run.fail(f"Terminated; no partial files are left.{run.how_to_resume()}", TERMINATED) from error
    except KeyboardInterrupt as error:
        raise run.fail(f"Interrupted; no partial files are left.{run.how_to_resume()}", INTERRUPTED) from error
    except OSError as error:
        raise run.fail(_system_sentence(error), BAD_INPUT) from error
    except MemoryError as error:
        raise run.fail(
            "Not enough memory. Use a smaller vocabulary (--words), and check with --dry-run.", BAD_INPUT
        ) from error
    except Exception as error:
        written = run.keep_traceback()
        message = f"Internal error of bagwise: {type(error).__name__}: {error}. Traceback: {written}"
        raise run.fail(message, UNEXPECTED) from error
    finally:
        run.close()


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Let Ctrl-C raise a KeyboardInterrupt again, unless it is ignored, and handle SIGTERM in the same way."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Interrupted

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    try:
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, end)}
    except ValueError:  # not in the main thread, which receives all signals
        yield
        return
    if signal.getsignal(signal.SIGINT) is end_at_once:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _system_sentence(error: OSError) -> str:
    what = error.strerror or str(error)
    where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, (str, bytes)) else ""
    advice = " Free some space, or write elsewhere with --out." if error.errno == errno.ENOSPC else ""
    return f"{what}{where}.{advice}"
