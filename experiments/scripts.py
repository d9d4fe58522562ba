"""Experiments that are scripts of their own: run by the same command, and shown on the same page.

They learn words or topics anew in every repetition, so their cells are repetitions and folds, which they keep in their
own files.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.pages import Claim, Section, Table
from experiments.running import Options

__all__ = ["SCRIPTS", "footer_of", "run_script", "sections_of"]

HERE = Path(__file__).resolve().parent
# name: paper, title, and whether it takes --repeats
SCRIPTS = {
    "manifold_scene15": ("MOB17", "Scene-15, words for clustering", True),
    "manifold_corel1k": ("MOB17", "Corel-1k, words for clustering", True),
    "manifold_rt2k": ("MOB17", "RT-2k, words for clustering", True),
    "manifold_mnist": ("MOB17", "MNIST, words and network for clustering", True),
    "free_energy_text": ("FEK16", "classifying texts", False),
    "free_energy_retrieval": ("FEK16", "finding images", True),
}
BETTER_IF_SMALLER = ("davies_bouldin",)


def run_script(name: str, options: Options) -> dict[str, Any]:
    """Run a script; its figures are in OUT/NAME.json, or OUT/NAME.quick.json."""
    path = path_of(name, options)
    command = [sys.executable, str(HERE / f"{name}.py"), "--data", str(options.data), "--out", str(path)]
    command += ["--quick"] * options.quick
    if options.repeats is not None and SCRIPTS[name][2]:
        command += ["--repeats", str(options.repeats)]
    if subprocess.run(command).returncode:
        sys.exit(f"{name} failed.")
    return json.loads(path.read_text(encoding="utf-8"))


def path_of(name: str, options: Options) -> Path:
    """File with the figures of a script."""
    return options.out / f"{name}{'.quick' if options.quick else ''}.json"


def sections_of(name: str, content: dict[str, Any]) -> list[Section]:
    """Lay the figures of a script beside the published ones."""
    module = _module(name)
    text = "\n".join((module.__doc__ or "").strip().splitlines()[4:])  # what follows the title and the command
    if name == "free_energy_text":
        return [_texts(content, module.PUBLISHED, text)]
    if name == "free_energy_retrieval":
        return [_rankings(content, module.PUBLISHED, text)]
    if name == "manifold_mnist":
        return [_networks(content, module.PUBLISHED, text)]
    return [_clusters(SCRIPTS[name][1], content, module.PUBLISHED, text)]


def footer_of(name: str, content: dict[str, Any]) -> str:
    """Where and when a script was run."""
    where = content["machines"] if "machines" in content else [content["machine"]]
    days = ", ".join(sorted({one["date"] for one in where}))
    commits = ", ".join(sorted({one["commit"] for one in where}))
    cpus = ", ".join(sorted({f"{one['cpu']}, {one['cores']} cores" for one in where}))
    return f"*`python -m experiments {name}`: {days}, commit {commits}, {cpus}.*"


def _module(name: str) -> Any:
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))  # scripts import what lies beside them
    return importlib.import_module(name)


def _clusters(title: str, content: dict[str, Any], published: dict[str, Any], text: str) -> Section:
    """BoF beside MO-BoF, by every criterion of clusters and rankings."""
    runs = content["runs"]
    rows, claims = [], []
    for key in runs[0]["BoF"]:
        ours = {method: np.array([one[method][key] for one in runs]) for method in ("BoF", "MO-BoF")}
        sign = -1 if key.endswith(BETTER_IF_SMALLER) else 1
        gain = sign * (ours["MO-BoF"] / ours["BoF"] - 1)
        theirs = published.get(key)
        goal = sign * (theirs["MO-BoF"] / theirs["BoF"] - 1) if theirs else None
        rows.append([
            key.replace("_", " "), *(_spread(values) for values in ours.values()),
            f"{int((gain > 0).sum())} of {len(gain)}", f"{100 * gain.mean():+.1f} %",
            f"{theirs['BoF']:g} → {theirs['MO-BoF']:g}" if theirs else None,
            f"{100 * goal:+.1f} %" if goal is not None else None,
        ])  # fmt: skip
        if goal is not None and key.startswith(("kmeans", "map")):
            shown = f"Better in {int((gain > 0).sum())} of {len(gain)}, by {100 * gain.mean():+.1f} % on average."
            holds = bool((gain > 0).all() and gain.mean() >= goal)
            name = key.replace("_", " ")
            claims.append(Claim(f"{name}: better every time, on average by {100 * goal:.1f} % or more", holds, shown))
    columns = ("criterion", "BoF", "MO-BoF", "better in", "mean gain", "published", "published gain")
    return Section(title, text, claims, [Table(f"{len(runs)} repetitions, mean ± sd", columns, rows)])


def _networks(content: dict[str, Any], published: dict[str, Sequence[float]], text: str) -> Section:
    """Words from k-means, words learned, words and network learned."""
    runs = content["runs"]
    methods = list(runs[0])
    rows = [
        [key.replace("_", " "), *(_spread(np.array([one[m][key] for one in runs if key in one[m]])) for m in methods),
         " → ".join(f"{value:g}" for value in published.get(key, ())) or None]
        for key in runs[0][methods[0]]
    ]  # fmt: skip
    title = SCRIPTS["manifold_mnist"][1]
    return Section(title, text, (), [Table(f"{len(runs)} repetitions", ("criterion", *methods, "published"), rows)])


def _texts(content: dict[str, Any], published: dict[str, dict[str, float]], text: str) -> Section:
    """Errors by task and method, with the published ones in brackets."""
    errors: dict[str, dict[str, list[float]]] = {}
    for key, cell in content["cells"].items():
        task, _, method = key.split("|")
        errors.setdefault(task, {}).setdefault(method, []).append(100 * cell["error"])
    methods = list(dict.fromkeys(method for found in errors.values() for method in found))
    rows = []
    for task in sorted(errors, key=lambda name: (name not in published, name.endswith(", body"), name)):
        theirs = published.get(task, {})
        rows.append([task, *(_error(errors[task].get(m), theirs.get(m)) for m in methods)])
    claims = []
    for task in ("Comp", "Sci", "Talk"):
        if task in errors and "LDA-FEK" in errors[task]:
            mean, goal = float(np.mean(errors[task]["LDA-FEK"])), published[task]["LDA-FEK"]
            claims.append(Claim(f"LDA-FEK on {task} at or below {goal} %", mean <= goal, f"{mean:.2f} %."))
    paired = [task for task in published if {"LDA-FEK", "LDA-FESS"} <= set(errors.get(task, {}))]
    better = [task for task in paired if np.mean(errors[task]["LDA-FEK"]) < np.mean(errors[task]["LDA-FESS"])]
    claims.append(Claim("LDA-FEK better than LDA-FESS on at least 9 of the 10 tasks", len(better) >= 9,
                        f"On {len(better)} of {len(paired)}."))  # fmt: skip
    caption = "Error in %, folds in brackets where they are fewer than 10; in parentheses as published"
    return Section("Classifying texts", text, claims, [Table(caption, ("task", *methods), rows)])


def _error(values: list[float] | None, theirs: float | None) -> str | None:
    if values is None:
        return None
    folds = f" [{len(values)}]" if len(values) < 10 else ""
    return f"{np.mean(values):.2f}{folds}" + (f" ({theirs:g})" if theirs is not None else "")


def _rankings(content: dict[str, Any], published: dict[str, dict[str, float]], text: str) -> Section:
    """Mean average precision by condition and method, with the published ones in brackets."""
    found: dict[str, dict[str, list[float]]] = {}
    for key, cell in content["cells"].items():
        _, condition, method = key.split("|")
        found.setdefault(condition, {}).setdefault(method, []).append(cell["map"])
    methods = list(dict.fromkeys(method for one in found.values() for method in one))
    rows = []
    for condition, values in found.items():
        theirs = published.get(condition, {})
        shown = []
        for method in methods:
            mark = f" ({theirs[method]:g})" if method in theirs else ""
            shown.append(f"{np.mean(values[method]):.3f}{mark}" if method in values else None)
        rows.append([condition, *shown])
    n = max(len(some) for one in found.values() for some in one.values())
    caption = f"MAP of the first 20, draws: {n}; in parentheses as published for Corel-5k"
    order = [("FEK", "FKL"), ("FEK", "FESS")]
    clean = {m: float(np.mean(v)) for m, v in next(iter(found.values())).items()}
    claims = [
        Claim(f"{a} above {b}", clean[a] > clean[b], f"{clean[a]:.3f} and {clean[b]:.3f}, draws: {n}.")
        for a, b in order if a in clean and b in clean
    ]  # fmt: skip
    return Section("Finding images", text, claims, [Table(caption, ("condition", *methods), rows)])


def _spread(values: Any) -> str | None:
    return f"{values.mean():.4g} ± {values.std():.2g}" if len(values) else None
