"""Class separability in the spaces of additive kernels: CSM and SVMs with and without the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import merging_caltech, merging_scene15
from experiments.differences import always
from experiments.merging_errors import Errors, claims, measured
from experiments.pages import Claim, Curves, Section, Table
from experiments.reducing import Task
from experiments.running import Cell, Options, Results
from experiments.sets import SIZES as TABLED

PAPER = "GE17"
TITLE = "merging in the spaces of kernels"
DATA = ("caltech101_4", "scene15")

KERNELS = {
    "intersection": "intersection",
    "hellinger": "Hellinger",
    "chi2": "chi²",
    "jensen_shannon": "Jensen-Shannon",
}
SETS = {
    "faces": "Caltech-101, faces or background",
    "scene15": "Scene-15, pairs of classes",
}
N_TASKS = 10
SMALL = (2, 5, 10, 20, 50, 100, 200)


def cells(options: Options) -> list[Cell]:
    n_tasks = options.repeats or (1 if options.quick else N_TASKS)
    return [
        Cell(f"{name}/{task:02d}/{kernel}", measure,
             {"options": options, "name": name, "task": task, "kernel": kernel})
        for task in range(n_tasks) for name in SETS for kernel in ("linear", *KERNELS)
    ]  # fmt: skip


def prepare(options: Options) -> None:
    merging_scene15.prepare(options)
    merging_caltech.words_of(options, "faces")


def measure(options: Options, name: str, task: int, kernel: str) -> dict[str, Any]:
    """Errors of CSM with all SVMs, or of CSM in the space of a kernel with the SVM of that kernel."""
    given = _task(options, name, task)
    if kernel == "linear":
        return measured(given, ("all_histograms", "csm_histograms"), classifiers=("linear", *KERNELS))
    return measured(given, (f"csm_{kernel}",), classifiers=(kernel,))


def _task(options: Options, name: str, task: int) -> Task:
    if name == "faces":
        return merging_caltech.task_of(options, "faces", task)
    return merging_scene15.task_of(merging_scene15.words_of(options), merging_scene15.pairs()[task])


def sections(results: Results) -> list[Section]:
    found = []
    for name, title in SETS.items():
        errors = Errors(results, f"{name}/")
        if not errors.methods:
            continue
        n = errors.n_tasks("csm_histograms", "linear")
        text = f"""
L1-normalised histograms, 1000 words; i) CSM and a linear SVM, ii) CSM and an SVM with the kernel, iii) CSM in
the space of the kernel and an SVM with it. {n} {"splits" if name == "faces" else "pairs"}. (The paper: ten classes of
Caltech-101 against background, intersection and Hellinger.)"""
        rows, series = _lines(errors)
        table = Table(title, ("error, %", *map(str, TABLED), "all"), rows)
        curves = Curves(title, "words", "test error, %", series)
        made = claims(*(_order(errors, kernel) for kernel in KERNELS))
        found.append(Section(f"Kernels: {title}", text, made, [table], [curves]))
    return found


def _lines(errors: Errors) -> tuple[list[list[Any]], dict[str, Any]]:
    settings = [("CSM, linear SVM", "csm_histograms", "linear")]
    for kernel, label in KERNELS.items():
        settings.append((f"CSM, {label} SVM", "csm_histograms", kernel))
        settings.append((f"CSM by {label}, {label} SVM", f"csm_{kernel}", kernel))
    rows, series = [], {}
    most = errors.n_tasks("csm_histograms", "linear")
    for name, method, how in settings:
        line = [errors.text(method, how, size) for size in TABLED]
        if any(line):
            n = errors.n_tasks(method, how)
            label = name if n == most else f"{name} [{n} of {most}]"
            rows.append([label, *line, errors.text("all_histograms", how)])
            sizes = errors.sizes(method, how)
            values = [errors.values(method, how, size) for size in sizes]
            series[label] = (sizes, [float(np.mean(v)) for v in values], None)
    return rows, series


def _order(errors: Errors, kernel: str) -> Claim | None:
    label = KERNELS[kernel]
    inside = errors.mean_difference((f"csm_{kernel}", kernel), ("csm_histograms", kernel), SMALL)
    outside = errors.mean_difference(("csm_histograms", kernel), ("csm_histograms", "linear"), SMALL)
    both = errors.mean_difference((f"csm_{kernel}", kernel), ("csm_histograms", "linear"), SMALL)
    if inside is None or outside is None or both is None:
        return None
    return Claim(
        f"CSM by the {label} kernel and its SVM are better than CSM with the same SVM, and that better than with a "
        "linear one (mean over 2 to 200 words)",
        always((inside.below, outside.below)),
        f"iii) less ii) {inside} points, ii) less i) {outside}, iii) less i) {both}, {inside.n} tasks.",
    )
