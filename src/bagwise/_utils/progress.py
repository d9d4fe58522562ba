"""A progress line on the terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

_WIDTH = 28
_EVERY = 0.1  # seconds between two drawings


class ProgressBar:
    """Draw how far a task of `total` steps is, with the time left; draws nothing unless `enabled`.

    Use as a context manager: the line is finished on leaving, whatever happened.
    """

    def __init__(self, task: str, total: int, *, enabled: bool, stream: TextIO | None = None) -> None:
        self._task = task
        self._total = max(total, 1)
        self._enabled = enabled
        self._stream = sys.stderr if stream is None else stream
        self._start = time.monotonic()
        self._drawn = -1.0
        self._done = 0

    def update(self, done: int) -> None:
        """Say that `done` steps are finished."""
        self._done = done
        now = time.monotonic()
        if self._enabled and (now - self._drawn >= _EVERY or done >= self._total):
            self._draw(now)

    def _draw(self, now: float) -> None:
        self._drawn = now
        share = min(self._done / self._total, 1.0)
        elapsed = now - self._start
        left = f"{elapsed / share - elapsed:.0f} s left" if 0 < share < 1 else f"{elapsed:.1f} s"
        bar = "#" * int(share * _WIDTH)
        self._stream.write(f"\r{self._task} [{bar:<{_WIDTH}}] {share:4.0%}  {left}    ")
        self._stream.flush()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._draw(time.monotonic())
            self._stream.write("\n")
            self._stream.flush()
