"""Break the library in one place at a time, and see whether the tests notice: ``make mutants``.

    python benchmarks/mutants               # all of them
    python benchmarks/mutants floor pack    # those whose name contains one of these

Each mutant is applied in a temporary copy of the tree. Its tests must pass there without it and fail with it. Mutants
of compiled code run with an empty cache, since numba's does not see changes in other files; the others share one.
Those whose lines are no longer there are stale: they are named, and left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from library import MUTANTS
from mutant import ROOT, Mutant

COPIED = ("src", "tests", "benchmarks", "docs", "experiments", "examples", "runtime", "pyproject.toml")
TIMEOUT = 900


def run_tests(copy: Path, tests: str, cache: Path) -> tuple[int, str]:
    """Run tests in the copy; the exit status of pytest and the last line it printed."""
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    paths, _, chosen = tests.partition(" -k ")
    command += [f"tests/{path}" for path in paths.split()] + (["-k", chosen] if chosen else [])
    process = subprocess.Popen(
        command, cwd=copy, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 1, f"still running after {TIMEOUT} seconds"
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return process.returncode, failed[0] if failed else (output.splitlines() or [""])[-1]


def make_copy(folder: Path) -> Path:
    copy = folder / "tree"
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "results", "*.nb[ci]"))
        else:
            shutil.copy2(source, copy / name)
    return copy


def judge(mutant: Mutant, copy: Path, folder: Path, passed: dict[str, tuple[int, str]]) -> tuple[str, str]:
    """Apply one mutant to the copy and take it back: what became of it, and why.

    `passed` remembers how tests ended without any mutant.
    """
    changed = mutant.changed(copy)
    if changed is None:
        return "stale", f"its lines do not occur exactly once in {mutant.path}"
    source = mutant.source(copy)
    text, stamp = source.read_text(encoding="utf-8"), source.stat()
    shared = folder / "cache"
    if mutant.tests not in passed:
        passed[mutant.tests] = run_tests(copy, mutant.tests, shared)
    status, line = passed[mutant.tests]
    if status != 0:
        return "broken", f"its tests do not pass without it: {line}"
    own = folder / "own_cache"
    source.write_text(changed, encoding="utf-8")
    try:
        status, line = run_tests(copy, mutant.tests, own if "njit" in text else shared)
    finally:
        source.write_text(text, encoding="utf-8")
        os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # what is compiled stays good
        shutil.rmtree(own, ignore_errors=True)
    if status == 0:
        return "survived", line
    return ("killed", line) if status == 1 else ("broken", f"pytest ended with status {status}: {line}")


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    results: list[str] = []
    passed: dict[str, tuple[int, str]] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        copy = make_copy(folder)
        for mutant in chosen:
            start = time.monotonic()
            result, line = judge(mutant, copy, folder, passed)
            results.append(result)
            print(f"{result:9}{time.monotonic() - start:5.0f} s  {mutant.name}  [{mutant.path}]", flush=True)
            print(f"{'':17}{line}", flush=True)
    counts = ", ".join(f"{results.count(result)} {result}" for result in dict.fromkeys(results))
    print(f"{len(results)} mutants: {counts}")
    return int(any(result in ("survived", "broken") for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
