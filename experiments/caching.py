"""What cells share: made where it is first asked for, kept in files of the cache folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from experiments.running import Options

__all__ = ["kept"]

WORTH_TELLING = 1.0  # seconds


def kept(options: Options, name: str, write: Callable[[Path], object], tell: bool = True) -> Path:
    """Where the file of this name is in the cache; `write` is called first if it is not there yet.

    `write` must leave the whole file or nothing: other processes may look, and write the same, at that moment. Quick
    runs have files of their own. What a file depends on and may be changed in an experiment belongs in its name. `tell`
    prints what took its time.
    """
    plain = Path(name)
    path = options.cache / f"{plain.stem}{'.quick' if options.quick else ''}{plain.suffix}"
    if not path.exists():
        started = time.perf_counter()
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        seconds = time.perf_counter() - started
        if tell and seconds >= WORTH_TELLING:
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, {seconds:.0f} s", file=sys.stderr)
    return path
