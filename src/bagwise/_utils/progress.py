"""A progress bar on the terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 28
_EVERY = 0.1  # seconds between two drawings


class ProgressBar:
    """Draw the progress of a task of `total` steps with the remaining time, if `enabled`. A context manager."""

    def __init__(self, task: str, total: int, *, enabled: bool, stream: TextIO | None = None) -> None:
        self._task = task
        self._total = max(total, 1)
        self._enabled = enabled
        self._stream = sys.stderr if stream is None else stream
        self._start = time.monotonic()
        self._drawn = -1.0
        self._done = 0

    def update(self, done: int, total: int | None = None) -> None:
        """Set the number of finished steps, and that of all steps if it has changed."""
        self._done = done
        self._total = self._total if total is None else max(total, 1)
        now = time.monotonic()
        if self._enabled and (now - self._drawn >= _EVERY or done >= self._total):
            self._draw(now)

    def _draw(self, now: float) -> None:
        self._drawn = now
        fraction = min(self._done / self._total, 1.0)
        elapsed = now - self._start
        left = f"{elapsed / fraction - elapsed:.0f} s left" if 0 < fraction < 1 else f"{elapsed:.1f} s"
        bar = "#" * int(fraction * _WIDTH)
        self._stream.write(f"\r{self._task} [{bar:<{_WIDTH}}] {fraction:4.0%}  {left}    ")
        self._stream.flush()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._enabled:
            self._draw(time.monotonic())
            self._stream.write("\n")
            self._stream.flush()
