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

from experiments.pages import PAPERS, write_pages
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
PAGE = HERE.parent / "docs" / "results.md"
INTRO = """\
What the five papers report, laid beside what bagwise gives on the data sets we have, the misses included. This page is
written by `python -m experiments page` from the figures in `experiments/results`; each experiment is run by
`python -m experiments NAME --data DIR`, and goes on where it was. Plots show means, bands are their standard errors;
the line below each experiment says how much of it is finished.

These are merged counts and Hellinger-normalised histograms, of grey SIFT for images, as in the papers. The defaults of
`bagwise fit` are others now: groups that keep the scores of a classifier on all words, TF-IDF weights for texts, words
of colours beside those of SIFT of two sizes for images. `benchmarks/main_job.py` measures them beside TF-IDF with a
linear SVM, PCA, feature selection and colour histograms. Three claims of the last edition do not stand as advice any
more:

- that AIB, MLT or DITC with 20 words do as well on texts as all words: "all words" below are without TF-IDF, with which
  they are a stronger baseline, and only groups that keep a classifier's scores come near it;
- that CSM is the criterion for two classes of images, and AIB for many: the criterion "classifier" has lower errors, or
  errors within the noise of theirs, from 10 groups on;
- that classifiers are to be trained again on merged words: right for AIB, it overfits where words were merged by a
  classifier.

That one method is better than another is *supported*, or *refuted*, where the interval of 99 % of their difference
over tasks,
splits or draws says so (Student, in pairs; ± is its standard error); otherwise it is *inconclusive*. Goals about
levels,
such as a published accuracy, compare means."""


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a kill ends workers as Ctrl-C does
    options, names = parse(sys.argv[1:])
    if names == ["list"]:
        for name in EXPERIMENTS:
            experiment = load(name)
            print(f"{name:24} {PAPERS[experiment.PAPER]}: {experiment.TITLE}")
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
    part = (experiment.PAPER, results.path.stem, footer(name, results), experiment.sections(results))
    write_pages([part], page, f"{PAPERS[experiment.PAPER]}: {experiment.TITLE}.", page.parent / "plots")
    print(page.read_text(encoding="utf-8"))


def write_page(out: Path) -> None:
    """Write docs/results.md from the results that are there."""
    parts = []
    for name in EXPERIMENTS:
        results = Results(out / f"{name}.json")
        if len(results):
            experiment = load(name)
            parts.append((experiment.PAPER, name, footer(name, results), experiment.sections(results)))
    if not parts:
        sys.exit(f"There are no results in {out}. Run an experiment first.")
    write_pages(parts, PAGE, INTRO, PAGE.parent / "results")
    print(f"Wrote {PAGE}.")


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
