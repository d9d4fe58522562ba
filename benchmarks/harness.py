"""What the benchmarks share: timing, peak memory, the machine, and tables."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Row:
    """Figures of a method on a data set with one seed.

    The role is "default" (ours, with nothing set), "variant" (ours, with parameters), "published" (the form of the
    paper) or "plain" (what people would use instead).
    """

    data: str
    method: str
    role: str
    seed: int
    measures: dict[str, float]
    seconds: float


def machine() -> dict[str, Any]:
    """Where and on what this ran."""
    import numba
    import numpy
    import scipy
    import sklearn

    cpu = re.search(r"model name\s*:\s*(.*)", _read("/proc/cpuinfo"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "date": date.today().isoformat(),
        "commit": commit.stdout.strip() or "unknown",
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "numba": numba.__version__,
    }


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call takes, and its result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def median_time(function: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None) -> float:
    """Median seconds of several calls, with something else done before each."""
    times = []
    for _ in range(repeats):
        before()
        times.append(timed(function)[0])
    return statistics.median(times)


class PeakMemory:
    """Growth of this process's resident memory at its peak, while in the block; in bytes, Linux only.

    Leaves ``growth`` as NaN where the system does not tell.
    """

    growth = float("nan")

    def __enter__(self) -> PeakMemory:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        except OSError:
            self._before = None
            return self
        self._before = _resident("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        peak = _resident("VmHWM")
        if self._before is not None and peak is not None:
            self.growth = peak - self._before


def peak_memory() -> int | None:
    """Return the peak of this process's resident memory so far, in bytes; None where the system does not tell."""
    return _resident("VmHWM")


def in_fresh_process(script: str, function: str, **arguments: Any) -> Any:
    """Call a function of a benchmark script in a new process, so that memory and caches are its own.

    The function's arguments and result travel as JSON.
    """
    code = (
        f"import json, sys; sys.path.insert(0, {str(Path(script).parent)!r}); import {Path(script).stem} as script; "
        f"print('\\n@@' + json.dumps(script.{function}(**json.loads(sys.argv[1]))))"
    )
    run = subprocess.run([sys.executable, "-c", code, json.dumps(arguments)], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{function}({arguments}) failed:\n{run.stderr}")
    return json.loads(run.stdout.rsplit("@@", 1)[1])


def print_table(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Print rows as a Markdown table; `columns` maps keys to headings. None is printed as a dash."""
    cells = [[_cell(row.get(key)) for key in columns] for row in rows]
    heads = list(columns.values())
    widths = [max(len(line[k]) for line in [heads, *cells]) for k in range(len(heads))]
    for line in [heads, ["-" * width for width in widths], *cells]:
        print("| " + " | ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) + " |")
    print()


def print_targets(targets: list[tuple[str, float, str, float]]) -> None:
    """Print (what, value, "<=" or ">=", goal) with whether it was reached."""
    for what, value, relation, goal in targets:
        reached = value <= goal if relation == "<=" else value >= goal
        print(f"  {'reached' if reached else 'MISSED ':7}  {what}: {value:.2f} (goal {relation} {goal:g})")
    print()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _resident(field: str) -> int | None:
    found = re.search(rf"^{field}:\s+(\d+) kB", _read("/proc/self/status"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None
