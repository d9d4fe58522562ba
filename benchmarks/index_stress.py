"""Indexes that many use at once: loads against writers that replace the file all the time, and additions that meet.

    python benchmarks/index_stress.py                  # 10,000 loads against two writers, some minutes
    python benchmarks/index_stress.py --loads 200      # to see that it works

Two processes replace an index without pause. Each index names its writer and its generation in all of its parts: ids,
labels, source, the model's group names, features, answers and the map. A third process loads it, and compares them.
Then some processes add items to one index at the same time, each by `change_index` and one item after the other, while
others are killed as they do so: no item whose addition returned may be missing, none may be there twice.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import machine, print_table, print_targets

N_WORDS, N_ITEMS, WRITERS = 12, 400, 2


def fitted() -> Any:
    """Fit a small model."""
    import numpy as np

    from bagwise.app import fit_model

    rows = _rows(np.random.default_rng(0).integers(0, 9, (40, N_WORDS)), "fit", 0)
    return fit_model(rows, n_groups=4, folds=2, n_jobs=1)


def _rows(X: Any, name: str, first: int) -> Any:
    from bagwise.sources import Collection

    labels = [(f"class {k % 2}",) for k in range(len(X))]
    return Collection.from_matrix(X, [f"{name} {first + k}" for k in range(len(X))], labels)


def marked(model: Any, mark: int) -> Any:
    """Make an index that says its mark, from 1 on, in each of its parts."""
    import numpy as np

    from bagwise.app import ItemIndex
    from bagwise.sources import Collection

    n = N_ITEMS + mark % 7  # lengths differ too
    X = np.zeros((n, N_WORDS))
    X[np.arange(n), (np.arange(n) + mark) % N_WORDS] = 1 + mark % 50
    ids, labels = [f"{mark}/{k}" for k in range(n)], [(f"label {mark}",)] * n
    named = model.apply([{"edit": "rename", "n_groups": 4, "group": 0, "name": f"mark {mark}"}])
    index = ItemIndex.build(
        named, Collection.from_matrix(X, ids, labels), X, source=f"mark {mark}", by="words"
    ).with_map()
    points = np.full((n, 2), mark, np.float32)
    index = dataclasses.replace(index, map=dataclasses.replace(index.map, points=points))
    index.answers.top.score[:] = mark % 1000
    return index


def marks_of(index: Any) -> set[str]:
    """Return what the parts of an index say; one mark if they belong together."""
    import numpy as np

    mark = int(index.source.removeprefix("mark "))
    found = {id.split("/")[0] for id in index.ids} | {str(label).removeprefix("label ") for label in index.labels}
    found |= {str(mark), str(index.model.group_names()[0]).removeprefix("mark ")}
    found |= {str(int(value)) for value in np.unique(index.map.points)}
    right = len(index) == N_ITEMS + mark % 7 and (index.answers.top.score == mark % 1000).all()
    right &= index.answers.top.score.shape[1] == len(index)
    rows = [block.rows() for block in index.index.blocks()]
    words = np.concatenate([(one.toarray() if hasattr(one, "toarray") else one).argmax(axis=1) for one in rows])
    right &= np.array_equal(words, (np.arange(len(index)) + mark) % N_WORDS)
    return found if right else found | {"other features"}


def write(path: str, number: int) -> None:
    """Replace an index without pause, until the parent ends this process."""
    model, mark = fitted(), number + 1
    indexes = [marked(model, mark + WRITERS * k) for k in range(20)]
    parent, k = os.getppid(), 0
    print("writing", flush=True)
    while os.getppid() == parent:
        indexes[k % len(indexes)].save(path)
        k += 1
        Path(f"{path}.{number}.count").write_text(str(k))


def load(path: Path, n_loads: int) -> dict[str, Any]:
    """Load an index again and again while others replace it."""
    from bagwise.app import ItemIndex

    seen, mixed, seconds = {}, [], []
    for _ in range(n_loads):
        began = time.perf_counter()
        index = ItemIndex.load(path)
        seconds.append(time.perf_counter() - began)
        marks = marks_of(index)
        if len(marks) != 1:
            mixed.append(sorted(marks)[:5])
        seen[index.source] = seen.get(index.source, 0) + 1
    return {"loads": n_loads, "mixed": mixed, "versions": len(seen), "ms": 1000 * sum(seconds) / n_loads}


def add(path: str, number: int, n_items: int) -> None:
    """Add items one after the other; print each when its addition has returned."""
    import numpy as np

    from bagwise.app import change_index

    X = np.random.default_rng(number).integers(0, 9, (n_items, N_WORDS)).astype(float)
    print("adding", flush=True)
    for k in range(n_items):
        new = _rows(X[[k]], f"writer {number}", k)
        change_index(path, lambda index: index.add(new, new.X))  # noqa: B023
        print(k, flush=True)


def _start(function: str, *arguments: Any) -> subprocess.Popen[str]:
    code = f"import sys, json; sys.path.insert(0, {str(Path(__file__).parent)!r}); import {Path(__file__).stem} as s; "
    code += f"s.{function}(*json.loads(sys.argv[1]))"
    command = [sys.executable, "-c", code, json.dumps([str(a) if isinstance(a, Path) else a for a in arguments])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def loads_against_writers(folder: Path, n_loads: int) -> dict[str, Any]:
    """Load while two processes write."""
    path = folder / "stress.index"
    marked(fitted(), 1).save(path)
    writers = [_start("write", path, number) for number in range(WRITERS)]
    try:
        for one in writers:
            assert one.stdout is not None
            if one.stdout.readline() != "writing\n":
                raise RuntimeError("A writer ended.")
        found = load(path, n_loads)
        if any(one.poll() is not None for one in writers):
            raise RuntimeError("A writer ended.")
    finally:
        for one in writers:
            one.kill()
            one.wait()
    writes = sum(int(Path(f"{path}.{number}.count").read_text() or 0) for number in range(WRITERS))
    return found | {"writes": writes}


def additions_that_meet(folder: Path, n_writers: int, n_items: int, n_kills: int) -> dict[str, Any]:
    """Let processes add items to one index at the same time, of which some are killed."""
    from bagwise.app import ItemIndex

    path = folder / "added.index"
    marked(fitted(), 1).save(path)
    before = set(ItemIndex.load(path).ids)
    began = time.perf_counter()
    running = {number: _start("add", path, number, n_items) for number in range(n_writers)}
    doomed = {n_writers + number: _start("add", path, n_writers + number, 10**6) for number in range(n_kills)}
    done: dict[int, list[str]] = {}
    for number, one in doomed.items():
        assert one.stdout is not None
        lines = [one.stdout.readline() for _ in range(2 + number % 3)]  # it has begun
        time.sleep(0.005 * (number % 7))
        one.send_signal(signal.SIGKILL)
        done[number] = [*lines, *one.stdout.read().splitlines(keepends=True)]
        one.wait()
    for number, one in running.items():
        done[number] = one.communicate()[0].splitlines(keepends=True)
        if one.returncode:
            raise RuntimeError(f"Process {number} ended with {one.returncode}.")
    ids = ItemIndex.load(path).ids
    told = {f"writer {n} {line.strip()}" for n, lines in done.items() for line in lines[1:] if line.endswith("\n")}
    new = set(ids) - before
    return {
        "processes": n_writers,
        "killed": n_kills,
        "additions": len(told),
        "lost": len(told - new),
        "twice": len(ids) - len(set(ids)),
        # of a process that was killed after it had written and before it had said so
        "unsaid": len(new - told),
        "left behind": len(list(folder.glob(".added*"))),
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=10_000, help="number of loads")
    parser.add_argument("--additions", type=int, default=50, help="items that each of four processes adds")
    parser.add_argument("--kills", type=int, default=10, help="processes that are killed while they add")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")
    with tempfile.TemporaryDirectory() as folder:
        results["loads"] = loads_against_writers(Path(folder), options.loads)
        shown = results["loads"] | {"mixed": len(results["loads"]["mixed"])}
        print_table([shown], {name: name for name in ("loads", "writes", "versions", "mixed", "ms")})
        results["additions"] = additions_that_meet(Path(folder), 4, options.additions, options.kills)
        print_table([results["additions"]], {name: name for name in results["additions"]})
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))
    print_targets([
        ("loads that mix two versions", shown["mixed"], "<=", 0),
        ("versions that were seen", shown["versions"], ">=", 2),
        ("additions that were lost or made twice", results["additions"]["lost"] + results["additions"]["twice"],
         "<=", 0),
    ])  # fmt: skip
    if shown["mixed"] or results["additions"]["lost"] or results["additions"]["twice"]:
        raise SystemExit("Indexes are mixed, or changes were lost.")


if __name__ == "__main__":
    main()
