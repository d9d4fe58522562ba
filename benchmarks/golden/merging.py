"""Merges and scores of every criterion on dense, sparse and weighted data, on sums, by kernels and by searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from content import described
from library import BagwiseError, criteria, merge_statistics, merge_words, statistics_of
from made import counts, measurements

LABELLED = ("csm", "nda", "mfa", "lde", "semi_supervised", "aib", "uvd", "mlt", "gml", "classifier", "mme")
UNLABELLED = ("lpp", "mmi", "linkage", "clusters")
RATIOS = ("csm", "nda", "mfa", "lde", "lpp")
OBJECTS: dict[str, Callable[[], Any]] = {
    "nda per class": lambda: criteria.NonparametricDiscriminant(3, 4, mode="per_class", metric="euclidean"),
    "lde global": lambda: criteria.LocalDiscriminant(2, 3, neighbors="global"),
    "lpp binary": lambda: criteria.LocalityPreserving(weights="binary"),
    "semi_supervised gamma": lambda: criteria.SemiSupervised("csm", gamma=0.5),
    "aib smoothing": lambda: criteria.InformationLoss(smoothing=2.0),
    "mmi counts": lambda: criteria.SampleInformationLoss(weights="counts"),
    "mlt mass": lambda: criteria.MultinomialPosterior(mass=0.5),
    "uvd evidence": lambda: criteria.ClassPosterior(form="evidence"),
    "linkage complete": lambda: criteria.Linkage("complete"),
    "mme exact": lambda: criteria.Margin(n_exact=3),
}


def entries(jobs: int, missing: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of all hierarchies; name in `missing` criteria that are not there yet."""
    for path, make in _hierarchies(jobs):
        try:
            hierarchy = make()
        except (BagwiseError, TypeError) as error:
            if str(error).startswith("Unknown criterion"):
                missing[f"merging/{path.partition('/')[0]}/"] = str(error).partition(". ")[0]
            else:
                yield f"merging/{path}/refused", f"{type(error).__name__}: {error}".partition(". ")[0]
            continue
        yield f"merging/{path}/merges", described(np.asarray(hierarchy.merges))
        yield f"merging/{path}/scores", described(np.asarray(hierarchy.scores, dtype=np.float64))
        if path.endswith("/dense"):
            yield f"merging/{path}/cut", described(np.asarray(hierarchy.cut(5)))


def _hierarchies(jobs: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    X, y = counts(12, 18, seed=3)
    M, z = measurements(12, 9, seed=3)
    F = X / X.sum(axis=1, keepdims=True)
    weights = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    partly = np.where(np.arange(len(y)) % 3, np.unique(y, return_inverse=True)[1], -1)
    made = {"counts": (X, y), "frequencies": (F, y), "measurements": (M, z)}

    def job(data: Any, labels: Any, criterion: Any, **options: Any) -> Callable[[], Any]:
        return lambda: merge_words(data, labels, criterion=criterion, n_jobs=jobs, **options)

    for name in (*LABELLED, *UNLABELLED):
        for kind, (data, own) in made.items():
            if name == "clusters" and kind == "measurements":
                continue
            labels = None if name in UNLABELLED else partly if name == "semi_supervised" else own
            if name == "mme":
                labels = own == own[0]
            yield f"{name}/{kind}/dense", job(data, labels, name)
            yield f"{name}/{kind}/sparse", job(sp.csr_array(data), labels, name)
        if name in LABELLED:
            yield f"{name}/weighted", job(X, y, name, sample_weight=weights)
            yield f"{name}/weighted sparse", job(sp.csr_array(X), y, name, sample_weight=weights)
        yield f"{name}/to 7 groups", job(X, None if name in UNLABELLED else y, name, n_groups=7)
    for name, make in OBJECTS.items():
        labels = partly if name.startswith("semi") else y == y[0] if name.startswith("mme") else y
        labels = None if name.startswith(UNLABELLED) else labels
        yield f"{name}/counts/dense", lambda make=make, labels=labels: job(X, labels, make())()
    near = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 200)
    apart = (y[:, None] != y[None]).astype(float)
    pair = {"dense": lambda data: data, "sparse": sp.csr_array}
    for form, as_form in pair.items():
        yield f"graph pair/{form}", lambda f=as_form: job(f(X), None, criteria.GraphPair(f(apart), f(near)))()
    for name in RATIOS:
        labels = None if name == "lpp" else y
        for kernel in ("intersection", "hellinger", "chi2", "jensen_shannon"):
            yield f"{name}/kernel {kernel}", job(X, labels, name, kernel=kernel)
        yield f"{name}/kernel chi2 sparse", job(sp.csr_array(F), labels, name, kernel="chi2")
        for search in ("polar", "exhaustive"):
            for kind, (data, own) in made.items():
                yield f"{name}/{kind}/search {search}", job(data, None if name == "lpp" else own, name, search=search)
    for kind, (data, own) in made.items():
        codes = np.unique(own, return_inverse=True)[1]
        for form, as_form in pair.items():
            sums = [statistics_of(as_form(data[rows]), codes[rows], 3) for rows in (slice(0, 17), slice(17, None))]
            for name in ("csm", "aib", "mlt"):
                yield f"{name}/{kind}/sums {form}", lambda s=sums, n=name: merge_statistics(s[0] + s[1], criterion=n)
    wide, labels = counts(50, 400, seed=4)
    for name in ("csm", "aib", "mmi", "classifier", "mlt"):
        yield f"wide/{name}", job(sp.csr_array(wide), None if name == "mmi" else labels, name)
    for name in ("csm", "mfa", "lpp"):  # two matrices of 400 x 400 are too large: rows are computed
        few = sp.csr_array(np.where(wide > 3, wide, 0))
        own = None if name == "lpp" else labels
        yield f"wide/{name}, matrices", job(few, own, name)
        yield f"wide/{name}, rows", job(few, own, name, memory_limit="2MB")
