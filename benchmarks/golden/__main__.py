"""The golden record: what the library gives for small data, compared with what it gave before a change.

    python benchmarks/golden                  # compare with record.json: what changed, is new or gone; about a minute
    python benchmarks/golden --record         # write record.json
    python benchmarks/golden --only fit/texts merging     # a part of it, by the beginnings of paths
    python benchmarks/golden --except 'fit/*/header/options/n_tables=no tables any more'
    python benchmarks/golden --jobs 1 --bytes             # other threads: real numbers must have the same bytes, too
    python benchmarks/golden --times times.json merging wide   # only times, with their --quick; compares nothing

Changes that are meant are listed in changes.txt, one a line: a path, or the beginning of one, with ``*`` for anything,
then two spaces or more and the reason. Paths with a slash at the end are of whole groups. It belongs to the third
edition and is deleted with its last part. See content.py for what is kept of long values.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "src"
TIMED = {"main_job": ("--quick",), "merging": ("--quick",), "criteria": ("--quick", "--sums"), "wide": ("--quick",)}
GROUPS = ("sources/", "merging/", "fit/")


def main() -> int:
    """Compare, record or time; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the record instead of comparing with it")
    parser.add_argument("--file", type=Path, default=HERE / "record.json", help="the record")
    parser.add_argument("--only", nargs="+", default=[""], metavar="PREFIX", help="beginnings of paths")
    parser.add_argument("--except", action="append", default=[], metavar="PREFIX=REASON", dest="allowed")
    parser.add_argument("--jobs", type=int, default=2, help="threads; the record must not depend on it")
    parser.add_argument("--bytes", action="store_true", help="real numbers must be the same to the last bit")
    parser.add_argument("--times", nargs="+", metavar=("FILE", "SCRIPT"), help="write times of benchmarks to a file")
    options = parser.parse_args()
    if options.times:
        return _write_times(Path(options.times[0]), options.times[1:] or list(TIMED))
    if options.record and options.only != [""]:
        parser.error("--record writes all of the record: leave out --only")
    if not options.record and not options.file.is_file():
        parser.error(f"there is no {options.file}; write it with --record")
    options.file = options.file.resolve()
    sys.path.insert(0, str(SOURCES))
    start, missing = time.process_time(), {}
    entries = made(options.jobs, options.only, missing)
    print(f"{len(entries)} entries, {time.process_time() - start:.0f} s of CPU")
    for prefix, reason in missing.items():
        print(f"not here: {prefix} ({reason})")
    if options.record:
        _write(options.file, entries)
        return 0
    recorded = json.loads(options.file.read_text(encoding="utf-8"))
    if recorded["about"] != _about():
        print(f"recorded with {recorded['about']}, this is {_about()}")
    chosen = {
        path: value
        for path, value in recorded["record"].items()
        if path.startswith(tuple(options.only)) and not path.startswith(tuple(missing))
    }
    return _compare(chosen, entries, [*_allowed(HERE / "changes.txt"), *map(_split, options.allowed)], options.bytes)


def made(jobs: int, only: list[str], missing: dict[str, str]) -> dict[str, Any]:
    """Return all entries below the chosen paths, made in a folder of its own."""

    def chosen(prefix: str) -> bool:
        return any(prefix.startswith(one) or one.startswith(prefix) for one in only)

    entries: dict[str, Any] = {}
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as folder:
        for group in filter(chosen, GROUPS):
            Path(folder, group).mkdir()
            os.chdir(Path(folder, group))
            for path, value in _of_group(group, jobs, chosen, missing):
                if path in entries:
                    raise SystemExit(f"{path} is there twice")
                if path.startswith(tuple(only)):
                    entries[path] = value
        os.chdir(before)
    return json.loads(json.dumps(entries))


def _of_group(group: str, jobs: int, chosen: Any, missing: dict[str, str]) -> Iterator[tuple[str, Any]]:
    import fits

    import merging
    import sources

    if group == "sources/":
        return sources.entries()
    return merging.entries(jobs, missing) if group == "merging/" else fits.entries(jobs, chosen, missing)


def _about() -> dict[str, str]:
    import numpy
    import scipy
    import sklearn

    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{module.__name__: module.__version__ for module in (numpy, scipy, sklearn)},
    }


def _write(file: Path, entries: dict[str, Any]) -> None:
    """Write a record, one entry a line."""
    lines = [f"{json.dumps(path, ensure_ascii=False)}: {json.dumps(value)}" for path, value in sorted(entries.items())]
    text = f'{{"about": {json.dumps(_about())}, "record": {{\n' + ",\n".join(lines) + "\n}}\n"
    file.write_text(text, encoding="utf-8")
    print(f"wrote {file}, {len(text.encode()):,} bytes")


def _split(given: str) -> tuple[str, str]:
    prefix, equals, reason = given.partition("=")
    if not equals or not reason:
        raise SystemExit(f"--except {given!r} is not PREFIX=REASON")
    return prefix, reason


def _allowed(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the beginnings of paths that may change, and the reasons."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        if line.strip() and not line.startswith("#"):
            prefix, *reason = re.split(r"\s{2,}", line.strip(), maxsplit=1)
            if not reason:
                raise SystemExit(f"{file}: {line!r} has no reason after two spaces")
            yield prefix, reason[0]


def _compare(old: dict[str, Any], new: dict[str, Any], allowed: list[tuple[str, str]], strict: bool) -> int:
    from content import TOLERANCE, difference

    counts, unused, groups = Counter[str](), {prefix for prefix, _ in allowed}, Counter[str]()
    known = {_group_of(path) for path in old}
    for path in sorted(old.keys() | new.keys()):
        there = (path in old) + 2 * (path in new)
        apart = difference(old[path], new[path]) if there == 3 else 1.0
        if apart == 0 or (apart <= TOLERANCE and not strict):
            counts["the same" if apart == 0 else "equal but for rounding"] += 1
            continue
        if there == 2 and _group_of(path) not in known:
            groups[_group_of(path)] += 1
            continue
        reason = next((one for one in allowed if fnmatch.fnmatchcase(path, f"{one[0]}*")), None)
        what = {1: "gone", 2: "new", 3: "changed"}[there]
        if reason:
            unused.discard(reason[0])
            counts[f"{what}, allowed by {reason[0]} ({reason[1]})"] += 1
            continue
        counts[what] += 1
        print(f"{what}  {path}" + (f"  by {apart:.1e} of its size" if there == 3 and apart < 1e300 else ""))
        if path in old:
            print(f"    was {json.dumps(old[path], ensure_ascii=False)}")
        if path in new:
            print(f"    is  {json.dumps(new[path], ensure_ascii=False)}")
    for group, n in sorted(groups.items()):
        print(f"not in the record: {group} ({n} entries); write it with --record")
    for what, n in sorted(counts.items()):
        print(f"{n:6} {what}")
    for prefix in sorted(unused):
        print(f"       none changed: {prefix}")
    return 1 if counts["changed"] + counts["new"] + counts["gone"] else 0


def _group_of(path: str) -> str:
    return "/".join(path.split("/")[:2]) + "/"


def _write_times(file: Path, names: list[str]) -> int:
    """Run benchmarks, each with its quick sizes, and write their seconds and what they printed."""
    times = {}
    for name in names:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        script = [sys.executable, str(HERE.parent / f"{name}.py"), *TIMED.get(name, ())]
        environment = os.environ | {"PYTHONPATH": str(SOURCES)}
        done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        times[name] = {"cpu": round(cpu, 1), "wall": round(time.perf_counter() - start, 1), "code": done.returncode}
        times[name]["printed"] = (done.stdout + done.stderr[-2000:]).splitlines()
        print(f"{name}: {cpu:.1f} s of CPU, {times[name]['wall']} s, exit code {done.returncode}", flush=True)
    file.write_text(json.dumps({"about": _about(), "times": times}, indent=1) + "\n", encoding="utf-8")
    return max(abs(one["code"]) > 0 for one in times.values())


if __name__ == "__main__":
    sys.exit(main())
