"""Fits whose histograms stay in partitions: sums over all items give what a fit in memory gives."""

import os
import signal

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

import bagwise.training.learning as learning
from bagwise.distributed.executors import LocalExecutor
from bagwise.distributed.linear import fit_svm
from bagwise.training import FitOptions, fit_report_data, run_fit
from bagwise.training.method import SteadySVC
from helpers import topic_counts
from small_sources import write_image_folder, write_records, write_table

IMAGES = {"descriptor": "patches", "n_words": 12}
JOBS = {
    "followed": ("texts", {}),
    "followed, cells": ("images", {**IMAGES, "pyramid": 5, "criterion": "classifier"}),
    "several vocabularies": ("images", {**IMAGES, "descriptor": "patches+hog-lbp", "criterion": "aib"}),
    "csm": ("table", {"criterion": "csm"}),
    "mlt": ("texts", {"criterion": "mlt"}),
    "measurements": ("measurements", {}),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    measured = write_table(folder / "measured.csv")
    lines = [line.split(",") for line in measured.read_text().splitlines()]
    numeric = [k for k, name in enumerate(lines[0]) if name not in ("id", "label")]
    for line in lines[1:]:
        for k in numeric:
            line[k] = str(float(line[k]) * 0.37 - 2)
    measured.write_text("\n".join(map(",".join, lines)))
    return {
        "images": write_image_folder(folder / "images"),
        "texts": write_records(folder / "texts.csv"),
        "table": write_table(folder / "table.csv"),
        "measurements": measured,
    }


@pytest.mark.parametrize("job", JOBS)
def test_sums_give_the_model_of_the_fit_in_memory(sources, job, monkeypatch):
    def tight(options):
        return SteadySVC(C=options.C, random_state=0, max_iter=10**6, tol=1e-9)

    monkeypatch.setattr(learning, "make_svm", tight)
    name, options = JOBS[job]
    chosen = FitOptions(n_groups=4, folds=2, n_jobs=1, partition=5, **options)
    here = run_fit(sources[name], chosen)
    parted = run_fit(sources[name], chosen.with_changes(memory_limit=50), client=LocalExecutor())
    assert parted.data.rows is not None
    one, other = here.model, parted.model
    np.testing.assert_array_equal(one.hierarchy.merges, other.hierarchy.merges)
    np.testing.assert_allclose(one.word_totals, other.word_totals, rtol=1e-6)
    np.testing.assert_array_equal(one.item_hashes, other.item_hashes)
    assert one.word_weights is None or one.word_weights.tobytes() == other.word_weights.tobytes()
    assert one.heads.keys() == other.heads.keys()
    for size, head in one.heads.items():
        np.testing.assert_allclose(head.coef, other.heads[size].coef, atol=2e-6)
        np.testing.assert_allclose(head.intercept, other.heads[size].intercept, atol=2e-6)
    assert one.provenance["class_counts"] == other.provenance["class_counts"]
    assert other.provenance["n_sampled"] == len(parted.data.collection)
    assert any("a sample of" in note for note in parted.notes)


def test_workers_give_the_same_bytes_also_if_one_is_killed(client, sources, monkeypatch):
    monkeypatch.setattr("bagwise.training.sums._BLOCK_BYTES", 800)  # four blocks
    chosen = FitOptions(n_groups=6, folds=0, n_jobs=1, partition=9, memory_limit=50)
    killed = []

    def kill(step, done, total):
        if step == "Training a classifier on all words" and done == 2 and not killed:
            killed.append(step)
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    here = run_fit(sources["texts"], chosen, client=LocalExecutor()).model
    there = run_fit(sources["texts"], chosen, client=client, progress=kill).model
    assert killed
    assert here.hierarchy == there.hierarchy
    for size, head in here.heads.items():
        assert head.coef.tobytes() == there.heads[size].coef.tobytes()
        assert head.intercept.tobytes() == there.heads[size].intercept.tobytes()


def test_samples_do_not_depend_on_partitions(tmp_path):
    path = write_records(tmp_path / "texts.csv", n_each=150)
    found = []
    for partition in (50, 200):
        chosen = FitOptions(n_groups=4, folds=2, n_jobs=1, partition=partition, memory_limit="5kB")
        found.append(run_fit(path, chosen, client=LocalExecutor()))
    one, other = found
    assert sum(one.data.rows.counted.n_bytes) == sum(other.data.rows.counted.n_bytes)
    assert one.data.collection.ids == other.data.collection.ids
    assert 225 < len(one.data.collection) < 400  # about 100 of each class
    assert one.model.provenance["n_items"] == 450
    assert one.model.path == other.model.path
    assert one.model.hierarchy == other.model.hierarchy
    data = fit_report_data(one)
    assert any("a sample of" in note for note in one.notes)
    assert data is not None


def test_criteria_that_need_items_use_some(sources):
    chosen = FitOptions(n_groups=4, folds=0, n_jobs=1, partition=9, memory_limit=50, criterion="lpp")
    found = run_fit(sources["texts"], chosen, client=LocalExecutor())
    assert found.model.hierarchy.criterion == "lpp"
    assert any("lpp compares items with each other" in note for note in found.notes)
    tables = run_fit(
        sources["texts"], chosen.with_changes(criterion="auto", n_tables=2, n_groups=6), client=LocalExecutor()
    )
    assert any("Groups of 2 tables were learned from the" in note for note in tables.notes)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_svms_from_sums(n_classes, form):
    rng = np.random.default_rng(1)
    X, y = topic_counts(rng, 200, 40, n_topics=5)
    y = rng.integers(0, n_classes, len(y)) if n_classes > 2 else y
    X = np.sqrt(X / X.sum(axis=1, keepdims=True))
    svm = LinearSVC(C=3.0, tol=1e-10, max_iter=10**6, random_state=0).fit(X, y)
    for cuts in ([], [50], [1, 120, 121]):
        parts = [[(form(X[rows]), y[rows])] for rows in np.split(np.arange(200), cuts)]
        coef, intercept = fit_svm(LocalExecutor(), parts, n_classes, 40, 3.0, tol=1e-8)
        np.testing.assert_allclose(coef, svm.coef_, atol=5e-6)  # liblinear stops earlier: its loss is not below
        np.testing.assert_allclose(intercept, svm.intercept_, atol=5e-6)
        assert _loss(X, y, coef, intercept, 3.0) <= _loss(X, y, svm.coef_, svm.intercept_, 3.0) + 1e-10


def _loss(X, y, coef, intercept, C):
    signs = np.where(y[:, np.newaxis] == (np.arange(len(coef)) if len(coef) > 1 else 1), 1, -1)
    slack = np.maximum(0, 1 - signs * (X @ coef.T + intercept))
    return (np.square(coef).sum() + np.square(intercept).sum()) / 2 + C * np.square(slack).sum()
