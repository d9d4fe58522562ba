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
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any, BinaryIO

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
    finished. The program ends with an error as well if another process runs the same experiment into the same file:
    each would write its cells over those of the other.
    """
    absent = [one for one in getattr(experiment, "DATA", ()) if not any((options.data / one).glob(f"{one}.*"))]
    if absent:
        sys.exit(f"{name} reads the data set {absent[0]}, and {options.data} has no file {absent[0]}/{absent[0]}.*. "
                 "Give the folder of data sets by --data DIR.")  # fmt: skip
    path = options.out / f"{name}{'.quick' if options.quick else ''}.json"
    with _alone(name, path):
        return _run(name, experiment, options, Results(path))


def _run(name: str, experiment: ModuleType, options: Options, results: Results) -> Results:
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


@contextmanager
def _alone(name: str, path: Path) -> Iterator[None]:
    """Hold the lock of a file of results; end the program if another process has it.

    The system gives the lock back when a process ends, however it ends.
    """
    place = path.with_name(f".{path.name}.lock")
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            opened = open(place, "a+b")  # noqa: SIM115 (closed below)
        except OSError as error:
            sys.exit(f"Results cannot be written to {path.parent}: {error.strerror}. Give another folder by --out DIR.")
        with opened as file:
            if not _lock(file):
                file.seek(0)
                other = file.read(20).decode("ascii", "replace") or "which has just begun"
                sys.exit(f"{name} is being run by another process ({other}), which writes {path} as well. "
                         "Wait until it has ended, or write to another folder by --out DIR.")  # fmt: skip
            if not place.exists() or not os.path.samestat(os.fstat(file.fileno()), place.stat()):
                continue  # it was removed by the process that had it, after it was opened here
            file.truncate(0)
            file.write(f"process {os.getpid()}".encode())
            file.flush()
            try:
                yield
            finally:
                if os.name == "posix":  # elsewhere open files cannot be removed, and may stay
                    place.unlink(missing_ok=True)
            return


def _lock(file: BinaryIO) -> bool:
    """Lock a file for this process; False if another process has locked it."""
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            file.seek(1 << 20)  # beyond the text, which others may read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True


def _end_with_parent() -> None:
    """End this process when the one that started it ends, even by kill -9, which leaves it no time to tell."""
    parent = parent_process()
    if parent is None:
        return
    if sys.platform == "linux":  # at once, also in the middle of compiled code
        import ctypes

        set_signal_of_parents_death = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(set_signal_of_parents_death, signal.SIGKILL)

    def watch() -> None:  # also finds a parent that ended before the line above
        wait_for_any([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _calm() -> None:
    """One thread a process: there are as many processes as wanted. Ctrl-C is for the one that waits for them."""
    from threadpoolctl import threadpool_limits

    _end_with_parent()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
    threadpool_limits(1)


def _timed(cell: Cell) -> tuple[float, Any]:
    """Processor seconds, which do not depend on what else the machine does, and the result."""
    started = time.process_time()
    result = cell.function(**cell.arguments)
    return time.process_time() - started, result
