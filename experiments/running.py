"""What an experiment is, and how one is run: cell by cell, in parallel, every finished cell kept.

An experiment is a module with

- ``PAPER``, the key of a paper in `pages.PAPERS`, and ``TITLE``;
- ``DATA``, the data sets it reads, by the names of their folders; left out where there are none;
- ``cells(options)``, the work in pieces: a list of `Cell`;
- ``sections(results)``, what the results say: a list of `pages.Section`, from finished cells;
- optionally ``prepare(options)``, done once before: words and histograms that cells share, kept in files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context
from pathlib import Path
from types import ModuleType
from typing import Any

from bagwise._io.atomic import write_atomically

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from harness import machine

__all__ = ["Cell", "Options", "Results", "run"]


@dataclass(frozen=True)
class Options:
    """What people may ask of an experiment.

    Attributes
    ----------
    data : Path
        Folder of data sets.
    out : Path
        Folder of results; histograms that are needed again are kept in its folder cache.
    quick : bool
        Few tasks, to see that it works.
    repeats : int or None
        Repetitions or splits; None: as the paper has it.
    jobs : int
        Processes.
    """

    data: Path
    out: Path
    quick: bool = False
    repeats: int | None = None
    jobs: int = 1

    @property
    def cache(self) -> Path:
        """Folder for what cells share."""
        return self.out / "cache"


@dataclass(frozen=True)
class Cell:
    """One piece of work: a function at the top of a module, and its arguments. The result travels as JSON."""

    key: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)


class Results:
    """The finished cells of an experiment, in a file that is written after each.

    Parameters
    ----------
    path : Path
        Read if it exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cells: dict[str, Any] = {}
        if path.exists():
            self._cells = json.loads(path.read_text(encoding="utf-8"))["cells"]

    def __contains__(self, key: str) -> bool:
        return key in self._cells

    def __getitem__(self, key: str) -> Any:
        return self._cells[key]["result"]

    def __len__(self) -> int:
        return len(self._cells)

    def items(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Keys and results of the cells whose key begins so, in order."""
        for key in sorted(self._cells):
            if key.startswith(prefix):
                yield key, self[key]

    @property
    def seconds(self) -> float:
        """Processor time that all cells took together, but for those whose time is not known."""
        return sum(cell["seconds"] or 0 for cell in self._cells.values())

    @property
    def n_untimed(self) -> int:
        """Number of cells whose time is not known."""
        return sum(cell["seconds"] is None for cell in self._cells.values())

    @property
    def machines(self) -> list[dict[str, Any]]:
        """Where cells were run, each machine and commit once."""
        found: list[dict[str, Any]] = []
        for cell in self._cells.values():
            if cell["machine"] not in found:
                found.append(cell["machine"])
        return found

    def keep(self, key: str, result: Any, seconds: float | None, where: dict[str, Any]) -> None:
        """Add a finished cell and write the file, a line for each cell. Seconds are None where nobody took the time."""
        time_taken = None if seconds is None else round(seconds, 2)
        self._cells[key] = {"result": result, "seconds": time_taken, "machine": where}
        lines = (
            f"{json.dumps(name)}: {json.dumps(cell, sort_keys=True)}" for name, cell in sorted(self._cells.items())
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, ('{"cells": {\n' + ",\n".join(lines) + "\n}}\n").encode())


def run(name: str, experiment: ModuleType, options: Options) -> Results:
    """Run the cells of an experiment that are not finished yet.

    A cell that fails is told and left out, the others go on; then the program ends with an error. Ctrl-C keeps what is
    finished.
    """
    results = Results(options.out / f"{name}{'.quick' if options.quick else ''}.json")
    absent = [one for one in getattr(experiment, "DATA", ()) if not any((options.data / one).glob(f"{one}.*"))]
    if absent:
        sys.exit(f"{name} reads the data set {absent[0]}, and {options.data} has no file {absent[0]}/{absent[0]}.*. "
                 "Give the folder of data sets by --data DIR.")  # fmt: skip
    cells = experiment.cells(options)
    missing = [cell for cell in cells if cell.key not in results]
    print(f"{name}: {len(cells)} cells, {len(cells) - len(missing)} finished before", file=sys.stderr)
    if not missing:
        return results
    if hasattr(experiment, "prepare"):
        experiment.prepare(options)
    where = machine()
    failed = 0
    started = time.perf_counter()
    pool = ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), initializer=_calm)
    try:
        waiting = {pool.submit(_timed, cell): cell for cell in missing}
        done = 0
        while waiting:
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                cell = waiting.pop(future)
                done += 1
                error = future.exception()
                if error is not None:
                    failed += 1
                    print(f"{cell.key} failed: {type(error).__name__}: {error}", file=sys.stderr)
                    continue
                seconds, result = future.result()
                results.keep(cell.key, result, seconds, where)
                left = (time.perf_counter() - started) / done * (len(missing) - done)
                print(f"{done}/{len(missing)} {cell.key}: {seconds:.0f} s, about {left:.0f} s left", file=sys.stderr)
    except BaseException:
        for worker in active_children():  # what they are at is not kept anyway
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if failed:
        sys.exit(f"{failed} of {len(missing)} cells of {name} failed; run again to try them once more.")
    return results


def _calm() -> None:
    """One thread a process: there are as many processes as wanted. Ctrl-C is for the one that waits for them."""
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)


def _timed(cell: Cell) -> tuple[float, Any]:
    """Processor seconds, which do not depend on what else the machine does, and the result."""
    started = time.process_time()
    result = cell.function(**cell.arguments)
    return time.process_time() - started, result
