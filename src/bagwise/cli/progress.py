"""A progress bar on standard error, with the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["ProgressLine"]


class ProgressLine:
    """Shows how far one step after the other is; called as a fit reports its progress.

    Parameters
    ----------
    enabled : bool
        Otherwise nothing is drawn.
    log : callable
        Told the beginning and the end of each step.
    """

    def __init__(self, *, enabled: bool, log: Callable[[str], None]) -> None:
        self._enabled = enabled
        self._log = log
        self._step: str | None = None
        self._started = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, step: str, done: int, total: int) -> None:
        """Say that `done` of `total` of a step is done; a total of 0 means that it is not known."""
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
        """Take the bar away, so that something else can be printed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._step is not None:
            self._log(f"{self._step}: {time.perf_counter() - self._started:.1f} s")
            self._step = None

    close = clear


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
