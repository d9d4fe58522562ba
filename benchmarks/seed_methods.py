r"""The papers' methods: our defaults, the published forms and the best plain alternatives, in one run.

    python benchmarks/seed_methods.py --data DIR                    # or BAGWISE_DATA=DIR; hours on 2 cores
    python benchmarks/seed_methods.py --data DIR --quick            # few items and one seed, to see that it works
    python benchmarks/seed_methods.py --data DIR --only topics      # some of the areas: free_energy, manifold, ...
    python benchmarks/seed_methods.py --data DIR --seeds 5
    python benchmarks/seed_methods.py --data DIR --json FOLDER      # a file per area; seeds that are there are not run

Each area has a module ``seed_methods_AREA.py``, which says how it measures. A row is printed as soon as it is measured;
the tables at the end have means and standard deviations over seeds (free_energy: over folds), and the mean of seconds.
Labels of test parts are used for the figures printed and choose nothing in a run; what was seen when defaults were
chosen is said in the modules.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from harness import Row, machine, print_table

AREAS = ("free_energy", "topics", "manifold", "search")
ROLES = ("default", "variant", "published", "plain")


def table(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return a line for each data set and method: means and standard deviations over seeds."""
    kinds = dict.fromkeys((row.data, row.method, row.role) for row in rows)
    order = {data: number for number, data in enumerate(dict.fromkeys(row.data for row in rows))}
    lines: list[dict[str, object]] = []
    for data, method, role in sorted(kinds, key=lambda kind: (order[kind[0]], ROLES.index(kind[2]))):
        same = [row for row in rows if (row.data, row.method, row.role) == (data, method, role)]
        names = dict.fromkeys(name for row in same for name in row.measures)
        line: dict[str, object] = {"data": data, "method": method, "role": role, "seeds": len(same)}
        for name in names:
            line[name] = spread([row.measures[name] for row in same if name in row.measures])
        line["seconds"] = statistics.mean(row.seconds for row in same)
        lines.append(line)
    return lines


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation with as many digits as their size calls for."""
    mean = statistics.mean(values)
    digits = 3 if abs(mean) < 2 else 2 if abs(mean) < 100 else 0
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean:.{digits}f}{deviation}"


def read_rows(folder: Path | None, name: str) -> list[Row]:
    """Rows of earlier runs, if any were written."""
    path = None if folder is None else folder / f"{name}.json"
    if path is None or not path.exists():
        return []
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def write_rows(folder: Path, name: str, rows: Sequence[Row]) -> None:
    """Write the rows of finished seeds, and the machine they were last measured on."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.part"
    part.write_text(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=1))
    part.replace(folder / f"{name}.json")


def run(area: str, data: Path, seeds: Sequence[int], quick: bool, folder: Path | None) -> list[Row]:
    """Measure an area seed by seed, printing each row; finished seeds of earlier runs are read."""
    measure = importlib.import_module(f"seed_methods_{area}").measure
    name = f"{area}-quick" if quick else area
    rows = read_rows(folder, name)
    for seed in seeds:
        if any(row.seed == seed for row in rows):
            continue
        new = []
        for row in measure(data, [seed], quick):
            figures = ", ".join(f"{key} {value:.4g}" for key, value in row.measures.items())
            print(
                f"{area}, seed {seed}: {row.data}, {row.method} ({row.role}): {figures}; {row.seconds:.1f} s",
                flush=True,
            )
            new.append(row)
        rows += new
        if folder is not None:
            write_rows(folder, name, rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=AREAS, default=AREAS, help="areas to measure")
    parser.add_argument("--seeds", type=int, help="number of seeds; default 3, with --quick 1")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="keep what is measured here")
    arguments = parser.parse_args()
    if arguments.data is None:
        sys.exit("The data sets are needed: --data DIR or BAGWISE_DATA=DIR, the folder that holds them.")
    if not Path(arguments.data).is_dir():
        sys.exit(f"{arguments.data} is not a folder. Give the folder of the data sets: --data DIR or BAGWISE_DATA=DIR.")
    print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    n_seeds = arguments.seeds or (1 if arguments.quick else 3)
    results = {
        area: run(area, Path(arguments.data), range(n_seeds), arguments.quick, arguments.json)
        for area in arguments.only
    }
    for area, rows in results.items():
        print(f"\n## {area}\n")
        lines = table(rows)
        names = dict.fromkeys(name for line in lines for name in line)
        print_table(lines, {name: name for name in names if name != "seconds"} | {"seconds": "seconds"})


if __name__ == "__main__":
    main()
