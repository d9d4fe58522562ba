"""Run experiments by name, or write the page of results.

    python -m experiments NAME… --data DIR [--quick] [--repeats N] [--out results] [--jobs N]
    python -m experiments all --data DIR --quick
    python -m experiments list
    python -m experiments page [--out experiments/results]

Every finished cell is kept in OUT/NAME.json (OUT/NAME.quick.json), so a run that was broken off goes on where it was.
What came out is printed and written to OUT/NAME.md, with its plots in OUT/plots.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from pathlib import Path
from types import ModuleType

from experiments.pages import Part, write_appendix, write_results
from experiments.papers import PAPERS
from experiments.running import Options, Results, run

# In the order of the page. Names of modules in this folder.
EXPERIMENTS: tuple[str, ...] = (
    "merging_times",
    "merging_caltech",
    "merging_scene15",
    "merging_unsupervised",
    "merging_kernels",
    "merging_text",
    "wide_scene15",
    "wide_lbp",
    "wide_patches",
    "manifold_scene15",
    "manifold_corel1k",
    "manifold_rt2k",
    "manifold_mnist",
    "free_energy_text",
    "free_energy_retrieval",
    "beyond_text",
    "beyond_labels",
    "beyond_choice",
    "beyond_multiclass",
)
HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
INTRO = """\
What bagwise gives beside strong simple baselines, and what the five papers report beside what came out here, the misses
included. This page, one page for each paper and appendices with all tables are written by `python -m experiments page`
from the figures in `experiments/results` and `benchmarks/results`."""
# the table of docs/results/defaults.md that results.md repeats
SUMMARY = "<!-- summary -->"


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a kill ends workers as Ctrl-C does
    options, names = parse(sys.argv[1:])
    if names == ["list"]:
        for name in EXPERIMENTS:
            experiment = load(name)
            print(f"{name:24} {PAPERS[experiment.PAPER].title}: {experiment.TITLE}")
        return
    if names == ["page"]:
        write_page(options.out)
        return
    for name in names:
        experiment = load(name)
        try:
            results = run(name, experiment, options)
        except KeyboardInterrupt:
            sys.exit(f"{name} was interrupted; its finished cells are kept in {options.out}. Run it again to go on.")
        show(name, experiment, results)


def parse(arguments: list[str]) -> tuple[Options, list[str]]:
    """Read the command line: options, and names of experiments."""
    description, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser("python -m experiments", description=description, epilog=rest,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="+", metavar="NAME", help="of experiments; all, list, or page")
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of data sets")
    parser.add_argument("--quick", action="store_true", help="few tasks, to see that it works")
    parser.add_argument("--repeats", type=int, help="repetitions, splits or folds; by default as in the paper")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of results")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args(arguments)
    names = list(EXPERIMENTS) if given.names == ["all"] else given.names
    strange = [name for name in names if name not in (*EXPERIMENTS, "list", "page")]
    if strange:
        sys.exit(f"Unknown experiment {strange[0]!r}. Accepted: {', '.join(EXPERIMENTS)}; all, list, page.")
    if set(names) & {"list", "page"} and len(names) > 1:
        sys.exit("list and page stand alone.")
    runs = names not in (["list"], ["page"])
    if runs and (given.data is None or not Path(given.data).is_dir()):
        sys.exit(f"Give the folder of data sets by --data DIR or BAGWISE_DATA=DIR; got {given.data}.")
    if given.repeats is not None and given.repeats < 1:
        sys.exit(f"--repeats must be at least 1, got {given.repeats}.")
    data = Path(given.data).resolve() if given.data else Path()
    return Options(data, given.out.resolve(), given.quick, given.repeats, max(given.jobs, 1)), names


def load(name: str) -> ModuleType:
    """Import an experiment."""
    return importlib.import_module(f"experiments.{name}")


def show(name: str, experiment: ModuleType, results: Results) -> None:
    """Write what came out as OUT/NAME.md, with the plots beside it, and print it."""
    page = results.path.with_suffix(".md")
    intro = f"{PAPERS[experiment.PAPER].title}: {experiment.TITLE}."
    write_appendix([part_of(name, experiment, results)], page, experiment.TITLE, intro, page.parent / "plots")
    print(page.read_text(encoding="utf-8"))


def part_of(name: str, experiment: ModuleType, results: Results) -> Part:
    """What came out of an experiment."""
    file = results.path.stem
    return Part(experiment.PAPER, file, experiment.TITLE, footer(name, results), experiment.sections(results))


def write_page(out: Path, docs: Path = DOCS) -> None:
    """Write the pages of results from the figures that are there."""
    kept = {name: Results(out / f"{name}.json") for name in EXPERIMENTS}
    parts = [part_of(name, load(name), results) for name, results in kept.items() if len(results)]
    if not parts:
        sys.exit(f"There are no results in {out}. Run an experiment first.")
    write_results(parts, docs, INTRO, (docs / "results" / "defaults.md").read_text(encoding="utf-8").split(SUMMARY)[1])
    print(f"Wrote {docs / 'results.md'} and the pages below it.")


def footer(name: str, results: Results) -> str:
    """Where and when an experiment was run."""
    where = results.machines
    dates = sorted({one["date"] for one in where})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    commits = ", ".join(sorted({one["commit"] for one in where}))
    cpus = ", ".join(sorted({f"{one['cpu']}, {one['cores']} cores" for one in where}))
    n, unknown = len(results), results.n_untimed
    work = f"{n} cell{'s' * (n != 1)}, "
    work += f"{results.seconds / 60:.0f} min of processor time" if unknown < n else "time not kept"
    work += f" (without {unknown} whose time was not kept)" if 0 < unknown < n else ""
    return f"*`python -m experiments {name}`: {work}, {days}, commit {commits}, {cpus}.*"


if __name__ == "__main__":
    main()
