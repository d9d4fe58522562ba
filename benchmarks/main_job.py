r"""The main job: the defaults of `bagwise fit` against what people would write instead, on all data sets, in one run.

    python benchmarks/main_job.py --data DIR                      # or BAGWISE_DATA=DIR; hours on 2 cores
    python benchmarks/main_job.py --data DIR --quick              # few items and splits, to see that it works
    python benchmarks/main_job.py --data DIR --only corel1k wine  # some data sets; `--list` names them
    python benchmarks/main_job.py --data DIR --json FOLDER        # a file per data set; what is there is not run again
    python benchmarks/main_job.py --data DIR --fasttext PYTHON    # an interpreter with the package fasttext
    python benchmarks/main_job.py --page docs/results/defaults.md # from benchmarks/results/main_job, or --json FOLDER

Runs with different ``--only`` may share the folder of ``--json``; a last run without ``--only`` prints it all.

- A split is a file with a training and a test part. Ours is ``fit_model(file)`` with nothing set; sizes other than the
  one it chose ("auto") are cuts of the same model, so seconds, bytes and memory are those of the one fit and the one
  file. Compact files of texts hold one size (``--compact``). Test parts are used once, for the errors printed, and
  choose nothing.
- Every method runs in a process of its own. Seconds are those of the fit, from reading items to the classifier (texts:
  after the file is read), memory is the peak of the process's resident memory until then, bytes are those of our
  file and of what pickle makes of the others (SIFT words: centres and classifier; SVD and PCA: components of the size).
  SVD and PCA are learned once, at the largest size; their seconds hold for all sizes.
- Texts: the same words for all, ``\w\w+`` in lower case; pairs of words beside them for ours and where it says so.
  Chi², mRMR, L1 selection and SVD begin with sublinear TF-IDF of all words and end with a linear SVM; mRMR selects
  among the 2000 words that chi² puts first, by their occurrence; L1 keeps the words with weights at the largest C
  that leaves no more than the size. All SVMs have C = 1. fastText has unigrams, one thread, so that it can be
  repeated, and 25 epochs at a learning rate of 0.5, which texts held out of the training parts of six newsgroups and
  apparel prefer to its tutorial's 1; quantised models keep 10,000 and 1000 words and are retrained. It takes longer
  than all else, so that it runs on the first two splits of a task.
- Images: the average of the network of our default over each image, standardised, with a logistic regression and five
  folds of cross-validation in its time, and PCA of it; SIFT by OpenCV on a grid of 8 pixels, 1000 words by
  MiniBatchKMeans, square roots of relative frequencies (and L2 instead); 8 x 8 x 8 colours in HSV with 500 trees; PCA
  of our features of all words.
- Differences are to the reference of the modality (TF-IDF + LinearSVC on all words; pooled network features;
  standardised columns), paired by split; the interval of 95 % (Student) is over tasks, where a data set has several,
  else over splits.
  Splits that are drawn anew overlap, so that intervals over them are somewhat too narrow.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy.stats import t as student

import main_job_methods as methods
from harness import in_fresh_process, machine, print_table
from main_job_methods import ALL, AUTO, OURS, REFERENCE

WHOLE = (50, 100, 200, ALL)  # sizes from which little may be lost
SMALL = methods.SIZES
FASTTEXT_SPLITS = 2


@dataclass
class Results:
    """Rows of every task, split and method of a data set.

    `cells` maps "task/split/method" to the rows that `measure` gave, with the machine in ``machines``.
    """

    name: str
    modality: str
    cells: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    machines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks measured, in order."""
        return list(dict.fromkeys(key.split("/")[0] for key in self.cells))

    def values(self, method: str, size: Any, what: str = "error") -> dict[tuple[str, str], Any]:
        """Figures of a method at a size, by task and split."""
        found = {}
        for key, rows in self.cells.items():
            task, split, _ = key.split("/")
            for row in rows:
                if row["method"] == method and row["size"] == size:
                    found[task, split] = row[what]
        return found

    def kinds(self) -> list[tuple[str, Any]]:
        """Methods and sizes, in the order of their rows."""
        return list(dict.fromkeys((row["method"], row["size"]) for rows in self.cells.values() for row in rows))

    def write(self, folder: Path) -> None:
        """Keep what was measured."""
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{self.name}.part"
        part.write_text(json.dumps(self.__dict__, indent=1), encoding="utf-8")
        part.replace(folder / f"{self.name}.json")

    @classmethod
    def read(cls, folder: Path | None, name: str, modality: str) -> Results:
        """Read what was kept, if anything was."""
        path = None if folder is None else folder / f"{name}.json"
        if path is None or not path.exists():
            return cls(name, modality)
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences over tasks or splits, in points, with half the width of its interval of 95 %."""

    mean: float
    margin: float | None  # None: there is only one task or split

    @classmethod
    def of(cls, gaps: Sequence[float]) -> Difference:
        """Of one difference per task or split."""
        if len(gaps) < 2:
            return cls(gaps[0], None)
        error = statistics.stdev(gaps) / len(gaps) ** 0.5
        return cls(statistics.mean(gaps), error * float(student.ppf(0.975, len(gaps) - 1)))

    def __str__(self) -> str:
        return f"{self.mean:+.2f}" + ("" if self.margin is None else f" ± {self.margin:.2f}")


def by_task(values: dict[tuple[str, str], float]) -> dict[str, float]:
    """Means over the splits of each task."""
    found: dict[str, list[float]] = {}
    for (task, _), value in values.items():
        found.setdefault(task, []).append(value)
    return {task: statistics.mean(some) for task, some in found.items()}


def task_gaps(results: Iterable[Results], method: str, size: Any, other: str, at: Any = ALL) -> dict[str, list[float]]:
    """Differences of two methods on the splits of each task that both have."""
    found: dict[str, list[float]] = {}
    for one in results:
        first, second = one.values(method, size), one.values(other, at)
        for task, split in first.keys() & second.keys():
            found.setdefault(f"{one.name}/{task}", []).append(first[task, split] - second[task, split])
    return dict(sorted(found.items()))


def difference(results: Iterable[Results], method: str, size: Any, other: str, at: Any = ALL) -> Difference | None:
    """Compare two methods, over tasks if there are several, otherwise over splits; None if they share no split."""
    gaps = task_gaps(results, method, size, other, at)
    if not gaps:
        return None
    several = len(gaps) > 1
    return Difference.of([statistics.mean(some) for some in gaps.values()] if several else next(iter(gaps.values())))


def run_data_set(name: str, tasks: Sequence[Any], options: argparse.Namespace) -> Results:
    """Measure what is not kept yet."""
    from main_job_data import few, training_part, write_split

    results = Results.read(options.json, name, tasks[0].modality)
    here = machine()
    for task in tasks:
        wanted = {method: {} for method in methods.METHODS[task.modality]}
        if options.fasttext is None:
            wanted.pop(methods.FASTTEXT, None)
        elif methods.FASTTEXT in wanted:
            wanted[methods.FASTTEXT] = {"python": options.fasttext}
        if options.methods is not None:
            wanted = {method: more for method, more in wanted.items() if method in options.methods}
        items = None
        for split in range(task.n_splits(options.splits, options.quick)):
            missing = [method for method in wanted if f"{task.name}/{split}/{method}" not in results.cells]
            if split >= FASTTEXT_SPLITS:
                missing = [method for method in missing if method != methods.FASTTEXT]
            if not missing:
                continue
            if items is None:
                items = few(task.read(options.data)) if options.quick else task.read(options.data)
            with tempfile.TemporaryDirectory() as folder:
                path = write_split(items, training_part(items, task, split), task.modality, Path(folder))
                for method in missing:
                    print(f"{name}: {task.name}, split {split}, {method}", file=sys.stderr, flush=True)
                    results.cells[f"{task.name}/{split}/{method}"] = in_fresh_process(
                        methods.__file__, "measure", method=method, modality=task.modality, path=str(path),
                        **wanted[method],
                    )  # fmt: skip
            if here not in results.machines:
                results.machines.append(here)
            if options.json is not None:
                results.write(options.json)
    return results


def print_results(results: Results) -> None:
    """Print the table of a data set."""
    tasks = results.tasks
    reference = REFERENCE[results.modality]
    n_splits = len({key.split("/")[1] for key in results.cells})
    over = f"{len(tasks)} tasks" if len(tasks) > 1 else f"{n_splits} split{'s' if n_splits > 1 else ''}"
    print(f"## {results.name}: {len(tasks)} task{'s' if len(tasks) > 1 else ''}, splits of each: {n_splits}\n")
    rows = []
    for method, size in results.kinds():
        errors = results.values(method, size)
        means = by_task(errors)
        draws: dict[str, list[float]] = {}
        for (_, split), error in errors.items():
            draws.setdefault(split, []).append(error)
        spread = [statistics.mean(some) for some in draws.values()]
        gap = difference([results], method, size, reference)
        chosen = sorted(set(results.values(method, size, "n_groups").values())) if size == AUTO else []
        rows.append(
            {
                "method": method,
                "size": str(size) if not chosen else f"auto: {chosen[0]}" + (f"-{chosen[-1]}" if chosen[1:] else ""),
                "error": f"{statistics.mean(means.values()):.2f}"
                + (f" ± {statistics.stdev(spread):.2f}" if len(spread) > 1 else ""),
                "gap": str(gap) if gap is not None and (method, size) != (reference, ALL) else None,
                **{task: f"{means[task]:.1f}" for task in means},
                "seconds": statistics.mean(results.values(method, size, "seconds").values()),
                "bytes": _size(statistics.mean(results.values(method, size, "bytes").values())),
                "memory": _size(max(results.values(method, size, "memory").values())),
            }
        )
    if results.modality == "texts" and not any(row["method"] == methods.FASTTEXT for row in rows):
        rows.append({"method": methods.FASTTEXT, "size": "not run"})
    print_table(rows, {
        "method": "method", "size": "size", "error": "error, % ± sd",
        "gap": f"less {reference} (95 % over {over})",
        **({task: task for task in tasks} if len(tasks) > 1 else {}),
        "seconds": "fit, s", "bytes": "model", "memory": "peak memory",
    })  # fmt: skip


def _size(n: float) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 1e6 else f"{n / 1e3:.0f} KB"


@dataclass(frozen=True)
class Goal:
    """Something to reach, and what was measured; `reached` is None where it was not measured."""

    what: str
    reached: bool | None
    figures: str = ""

    def __str__(self) -> str:
        verdict = {True: "REACHED", False: "MISSED", None: "NOT MEASURED"}[self.reached]
        return f"- {verdict}: {self.what}" + (f" ({self.figures})" if self.figures else "")


def _at_most(what: str, gap: Difference | None, most: float) -> Goal:
    return Goal(what, None if gap is None else gap.mean <= most, "" if gap is None else str(gap))


def _never_above(what: str, results: Sequence[Results], sizes: Iterable[Any], other: str, most: float) -> Goal:
    """Whether no task is worse than another method by more than so many points, at any of the sizes."""
    found = [
        (statistics.mean(gaps), f"{task} at {size}")
        for size in sizes
        for task, gaps in task_gaps(results, OURS, size, other).items()
    ]
    if not found:
        return Goal(what, None)
    above = sum(gap > most for gap, _ in found)
    return Goal(what, not above, f"worst {max(found)[0]:+.2f}, {max(found)[1]}; {above} of {len(found)} above")


def _small_file(what: str, results: Results | None, task: str, most_bytes: float, most: float | None = None) -> Goal:
    """Whether the compact file of the chosen size is small and good enough: at most so many %, or 0.5 above all words.

    The figures list the other sizes as well.
    """
    if results is None:
        return Goal(what, None)
    figures = {}
    for method, size in results.kinds():
        if method == methods.COMPACT:
            error, n_bytes = (by_task(results.values(method, size, key)).get(task) for key in ("error", "bytes"))
            if error is not None and n_bytes is not None:
                figures[size] = error, n_bytes
    if AUTO not in figures:
        return Goal(what, None)
    error, n_bytes = figures[AUTO]
    allowed = by_task(results.values(REFERENCE["texts"], ALL))[task] + 0.5 if most is None else most
    listed = ", ".join(f"{size}: {one:.2f} % in {_size(held)}" for size, (one, held) in figures.items())
    return Goal(what, error <= allowed and n_bytes <= most_bytes, f"{listed}; allowed {allowed:.2f} %")


def goals(all_results: dict[str, Results]) -> list[Goal]:
    """Check what the defaults are to reach, in the order of modalities."""
    two = [
        all_results[name]
        for name in ("newsgroups", "newsgroups_drawn", "reuters", "reuters_modapte", "amazon7", "amazon_blitzer4")
        if name in all_results
    ]
    six = [all_results[name] for name in ("six_newsgroups", "six_newsgroups_drawn") if name in all_results]
    texts = [*two, *six]
    reference = REFERENCE["texts"]
    found = [
        _at_most("texts of two classes, 20 groups: within 0.3 points of TF-IDF + LinearSVC, mean over tasks",
                 difference(two, OURS, 20, reference), 0.3),
        _at_most("six newsgroups, 20 groups: within 0.6 points", difference(six, OURS, 20, reference), 0.6),
        _never_above("texts, from 50 groups on: never more than 0.5 points above it, every task", texts, WHOLE,
                     reference, 0.5),
    ]  # fmt: skip
    for other in (methods.CHI2, methods.MRMR, methods.L1, methods.SVD):
        gaps = {size: difference(texts, OURS, size, other, size) for size in SMALL}
        known = {size: gap for size, gap in gaps.items() if gap is not None}
        listed = ", ".join(f"{size}: {gap}" for size, gap in known.items())
        below = all(gap.mean < 0 for gap in known.values()) if known else None
        found.append(Goal(f"texts, 10 to 200 groups: a lower mean error than {other} at every size", below, listed))
    found += [
        _small_file("six newsgroups, drawn: at most 6 % in at most 150 KB, compact file",
                    all_results.get("six_newsgroups_drawn"), "six groups", 150e3, 6.0),
        _small_file("apparel: within 0.5 points of TF-IDF + LinearSVC in at most 30 KB, compact file",
                    all_results.get("amazon7"), "apparel", 30e3),
    ]  # fmt: skip
    photographs = [all_results[name] for name in ("scene15", "corel1k", "caltech101_4") if name in all_results]
    for size, most in ((20, 0.3), (50, 0.3), (ALL, 0.0)):
        gap = difference(photographs, OURS, size, methods.POOLED)
        what = "all words: level with" if size == ALL else f"{size} groups: within {most} points of"
        found.append(_at_most(f"photographs, {what} {methods.POOLED}", gap, most))
    for name in ("scene15", "corel1k", "caltech101_4"):
        images = [all_results[name]] if name in all_results else []
        for other in (methods.POOLED, methods.SIFT, methods.COLOUR):
            gap = difference(images, OURS, ALL, other)
            below = None if gap is None else gap.mean < 0
            found.append(Goal(f"{name}, all words: below {other}", below, "" if gap is None else str(gap)))
        found.append(_at_most(f"{name}: 200 groups within 1 point of all words",
                              difference(images, OURS, 200, OURS), 1.0))  # fmt: skip
        for size in (50, 200):
            gap = difference(images, OURS, size, methods.PCA_OF_OURS, size)
            found.append(_at_most(f"{name}, {size} groups: no worse than PCA of the same words", gap, 0.0))
    for name in ("wine", "breast_cancer"):
        table = [all_results[name]] if name in all_results else []
        for what, other in (("all columns of the model", OURS), ("all columns, standardised", methods.SCALED)):
            gap = difference(table, OURS, AUTO, other)
            no_loss = None if gap is None else gap.mean - (gap.margin or 0.0) <= 0
            found.append(Goal(f"{name}: no loss against {what} that can be told", no_loss, str(gap or "")))
    return found


KEPT = Path(__file__).resolve().parent / "results" / "main_job"
NAMES = {
    "newsgroups": "three pairs of newsgroups, later posts for test",
    "newsgroups_drawn": "three pairs of newsgroups",
    "six_newsgroups": "six newsgroups, later posts for test",
    "six_newsgroups_drawn": "six newsgroups",
    "amazon7": "reviews of products, seven domains",
    "amazon_blitzer4": "reviews of products, four domains",
    "rt2k": "movie reviews (RT-2k)",
    "reuters": "Reuters, three pairs of topics",
    "scene15": "Scene-15",
    "corel1k": "Corel-1k, 10 classes of photographs",
    "caltech101_4": "Caltech-101, four classes",
    "mnist": "MNIST, 200 training images of a digit",
    "breast_cancer": "breast cancer, a table",
    "wine": "wine, a table",
    "digits": "digits, a table of pixels",
}


def summary_row(results: Results) -> dict[str, Any]:
    """One line of the summary: ours with nothing set beside the best of all others, whatever their size."""
    errors = {kind: statistics.mean(by_task(results.values(*kind)).values()) for kind in results.kinds()}
    others = {kind: error for kind, error in errors.items() if kind[0] not in (OURS, methods.COMPACT)}
    best = min(others, key=lambda kind: others[kind])
    groups = sorted(set(results.values(OURS, AUTO, "n_groups").values()))
    n_splits = len({key.split("/")[1] for key in results.cells})
    of_tasks = f"{len(results.tasks)} tasks" if len(results.tasks) > 1 else ""
    of_splits = f"{n_splits} splits" if n_splits > 1 else "1 split"
    return {
        "data": f"{NAMES.get(results.name, results.name)} ({', '.join(filter(None, (of_tasks, of_splits)))})",
        "ours": f"{errors[OURS, AUTO]:.1f} with {groups[0]}" + (f" to {groups[-1]}" if groups[1:] else ""),
        "all": f"{errors[OURS, ALL]:.1f}",
        "best": f"{best[0]}" + (f", {best[1]}" if best[1] != ALL else "") + f": {others[best]:.1f}",
        "gap": str(difference([results], OURS, AUTO, *best)),
    }


def draw_sizes(results: Results, path: Path) -> None:
    """Draw errors against the number of features: ours, the other reductions, and the reference on all words."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    curves: dict[str, dict[int, float]] = {}
    for method, size in results.kinds():
        if isinstance(size, int) and method != methods.COMPACT:
            curves.setdefault(method, {})[size] = statistics.mean(by_task(results.values(method, size)).values())
    reference = REFERENCE[results.modality]
    level = statistics.mean(by_task(results.values(reference, ALL)).values())
    figure = Figure(figsize=(9.2, 3.8), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    for k, (method, errors) in enumerate(sorted(curves.items(), key=lambda item: item[1][max(item[1])])):
        ours = method == OURS
        axes.plot(list(errors), list(errors.values()), marker="o", markersize=6 if ours else 3, zorder=3 if ours else 2,
                  linewidth=2.6 if ours else 1.2, color="#0b6b70" if ours else f"C{k + 1}",
                  label="bagwise: groups of words" if ours else method)  # fmt: skip
    for k, (method, _) in enumerate(kind for kind in results.kinds() if kind[1] == ALL and kind[0] != OURS):
        error = statistics.mean(by_task(results.values(method, ALL)).values())
        first = method == reference
        color, style = ("black", "--") if first else (f"{0.35 + 0.15 * k}", ":")
        label = f"{method}, all words: {error:.1f} %"
        axes.axhline(error, color=color, linestyle=style, linewidth=1, zorder=1, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [tick for tick in (2, 3, 5, 7, 10, 15, 20, 30, 50) if 0.7 * level < tick]
    axes.set_yticks(ticks, [f"{tick} %" for tick in ticks], minor=False)
    axes.set_yticks([], minor=True)
    sizes = sorted({size for errors in curves.values() for size in errors})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="features: groups, selected words, components", ylabel="test error (log scale)",
             ylim=(0.8 * level, 1.1 * max(max(errors.values()) for errors in curves.values())))  # fmt: skip
    axes.set_title(NAMES.get(results.name, results.name), fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    with matplotlib.rc_context({"svg.hashsalt": "bagwise"}):  # the same figures give the same bytes
        figure.savefig(path, metadata={"Date": None})


def write_page(folder: Path, page: Path) -> None:
    """Write what was kept as a page: a summary, all tables, and a figure of the first texts beside it."""
    kept = sorted(folder.glob("*.json"))
    found = {path.stem: Results(**json.loads(path.read_text(encoding="utf-8"))) for path in kept}
    if not found:
        sys.exit(f"There are no results in {folder}. Run this script with --json {folder} first.")
    order = [name for name in NAMES if name in found] + [name for name in found if name not in NAMES]
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print(PAGE_HEAD)
        print("<!-- summary -->")
        print_table([summary_row(found[name]) for name in order], {
            "data": "data", "ours": "`bagwise fit`, nothing set: error in %, groups", "all": "its model with all words",
            "best": "strongest baseline of any size", "gap": "difference, points (95 % interval)",
        })  # fmt: skip
        print("<!-- summary -->\n")
        texts = next((name for name in order if found[name].modality == "texts"), None)
        if texts is not None:
            draw_sizes(found[texts], page.with_suffix(".svg"))
            print(f"![Error against the number of features: {NAMES[texts]}]({page.stem}.svg)\n")
        for name in order:
            print_results(found[name])
        print("## Goals\n")
        print("\n".join(str(goal) for goal in goals(found) if goal.reached is not None) + "\n")
        print("## Machines\n")
        for one in {json.dumps(place): place for results in found.values() for place in results.machines}.values():
            print("- " + " · ".join(f"{key} {value}" for key, value in one.items()))
    page.write_text(text.getvalue(), encoding="utf-8")
    print(f"Wrote {page}.")


PAGE_HEAD = """\
# What the defaults give

`fit_model` with nothing set beside what people would write instead, on the same splits; test parts choose nothing. This
page is written by `python benchmarks/main_job.py --page docs/results/defaults.md` from the figures that the same script
keeps in `benchmarks/results/main_job`; its docstring says how each method is run. Errors are in %. The strongest
baseline is chosen among all methods and sizes *after* the fact, by its test error, which favours it. Intervals are over
tasks, where a data set has several, else over splits; with one split there is none. Random splits of Corel-1k and the
drawn newsgroups share items with those on which defaults were chosen by cross-validation. Seconds are of two cores that
were busy with other work.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of data sets")
    parser.add_argument("--quick", action="store_true", help="few items and at most two splits")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="data sets to run; default: all")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="methods to run, by their names in the tables")
    parser.add_argument("--splits", type=int, help="splits of each task, where they are drawn; default: 1 to 10")
    parser.add_argument("--fasttext", metavar="PYTHON", help="interpreter that has the package fasttext")
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="keep results here, and go on from what is there")
    parser.add_argument("--list", action="store_true", help="list the data sets")
    parser.add_argument("--page", type=Path, metavar="FILE", help="only write a page of what is kept")
    options = parser.parse_args(arguments)
    if options.page is not None:
        write_page(options.json or KEPT, options.page)
        return
    from main_job_data import data_sets

    known = data_sets()
    if options.list:
        print("\n".join(f"{name}: {', '.join(task.name for task in tasks)}" for name, tasks in known.items()))
        return
    chosen = options.only or list(known)
    strange = [name for name in chosen if name not in known]
    if strange:
        sys.exit(f"There is no data set {strange[0]!r}. Accepted: {', '.join(known)}.")
    named = {method for some in methods.METHODS.values() for method in some}
    if options.methods is not None and set(options.methods) - named:
        sys.exit(f"There is no method {min(set(options.methods) - named)!r}. Accepted: {', '.join(sorted(named))}.")
    if options.splits is not None and not 1 <= options.splits <= 10:
        sys.exit(f"--splits must be from 1 to 10, the folds of the movie reviews; got {options.splits}.")
    folders = dict.fromkeys(task.folder for name in chosen for task in known[name] if task.folder is not None)
    if folders and options.data is None:
        sys.exit("Say where the data sets are: --data DIR or BAGWISE_DATA=DIR.")
    for folder in folders:
        options.data = Path(options.data)
        if not (options.data / folder).is_dir():
            sys.exit(f"{options.data / folder} does not exist.")
    if options.quick and options.json is not None:
        options.json = options.json / "quick"
    found = {}
    for name in chosen:
        found[name] = run_data_set(name, known[name], options)
        print_results(found[name])
    print("## Goals\n")
    checked = [goal for goal in goals(found) if goal.reached is not None or not options.only]
    print("\n".join(map(str, checked)) + "\n")
    for one in {json.dumps(place): place for results in found.values() for place in results.machines}.values():
        print(" · ".join(f"{key} {value}" for key, value in one.items()))


if __name__ == "__main__":
    main()
