"""Fits whose histograms stay in partitions: sums over all items give what a fit in memory gives."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

import bagwise.app.training.rows
from bagwise import merge_words
from bagwise.app import FitOptions, fit_report_data, run_fit
from bagwise.app.index.building import index_of_parted_fit
from bagwise.app.training.rows import add_scatters, deal_items, sample_items
from bagwise.distributed.executors import LocalExecutor, executor_of
from bagwise.distributed.linear import fit_svm
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.engine import Engine
from bagwise.sources import Collection
from helpers import laplacian, topic_counts
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
        return LinearSVC(C=options.C, dual=False, random_state=0, max_iter=10**6, tol=1e-9)

    monkeypatch.setattr(bagwise.app.training.rows, "make_svm", tight)
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


def test_workers_give_the_same_bytes_also_if_one_is_lost(workers, sources, monkeypatch):
    monkeypatch.setattr("bagwise.app.training.rows._BLOCK_BYTES", 800)  # four blocks
    chosen = FitOptions(n_groups=6, folds=0, n_jobs=1, partition=9, memory_limit=50)
    lost = []

    def lose(step, done, total):
        if step == "Training a classifier on all words" and done == 2 and not lost:
            lost.append(step)
            workers.lose()

    here = run_fit(sources["texts"], chosen, client=LocalExecutor()).model
    there = run_fit(sources["texts"], chosen, client=workers.client, progress=lose).model
    assert lost
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
    np.testing.assert_array_equal(one.model.hierarchy.merges, other.model.hierarchy.merges)
    np.testing.assert_allclose(one.model.hierarchy.scores, other.model.hierarchy.scores, rtol=1e-6, atol=1e-9)
    data = fit_report_data(one)
    assert any("a sample of" in note for note in one.notes)
    assert data is not None


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("n_items", [3, 60, 1000])
def test_samples_have_enough_items_however_small_the_limit(n_items, labelled):
    ids, counted = [f"item {k}" for k in range(n_items)], SimpleNamespace(n_bytes=[n_items << 10], samples={})
    codes = np.arange(n_items) % 2 if labelled else None
    found = [sample_items(ids, codes, counted, FitOptions(memory_limit=limit)) for limit in ("1B", "100KB", "1MB")]
    for few, more in pairwise(found):
        assert set(few) <= set(more)
    assert min(n_items, 50) <= len(found[0]) <= 300


@pytest.mark.parametrize("criterion", ["aib", "classifier"])
def test_edits_keep_classifiers_of_all_items(criterion, tmp_path):
    X, y = topic_counts(np.random.default_rng(0), 400, 30)
    rows = Collection.from_matrix(X, [f"row{k}" for k in range(len(X))], [(f"c{k}",) for k in y])
    options = FitOptions(criterion=criterion, n_groups=6, folds=3, memory_limit="2KB", partition=100)
    fit = run_fit(rows, options)
    assert len(fit.codes) < 400
    index = index_of_parted_fit(fit, None, tmp_path / "rows.index", options)
    edit = {"edit": "join", "n_groups": 6, "groups": [0, 1]}
    edited, derived = index.apply([edit]), index.model.apply([edit])
    assert (edited.model.heads[5] == derived.heads[5]) == (criterion == "aib")
    measured = edited.steering().measure(edited.model)
    np.testing.assert_array_equal(edited.answers.rows[5].score[index.folds.tested], measured.held_out.score)


def test_clusters_of_a_sample_are_summed_over_all_items(tmp_path):
    """Any partitions; and the fit in memory, where the sample has all items."""
    labelled = write_records(tmp_path / "labelled.csv", n_each=60).read_text().splitlines()
    path = tmp_path / "texts.csv"
    path.write_text("\n".join(line.rsplit(",", 1)[0] for line in labelled))
    chosen = FitOptions(n_groups=4, n_jobs=1, text="text")
    here = run_fit(path, chosen)
    assert here.model.hierarchy.criterion == "clusters"
    assert here.model.normalize == ("l1", "power")
    parted = [
        run_fit(path, chosen.with_changes(partition=n, memory_limit=limit), client=LocalExecutor())
        for n, limit in ((25, "1kB"), (90, "1kB"))
    ]
    one, other = (found.model for found in parted)
    assert one.hierarchy == other.hierarchy
    assert len(parted[0].data.collection) < one.provenance["n_items"] == 180
    assert one.group_statistics == other.group_statistics
    assert one.hierarchy.scores[0] == pytest.approx(here.model.hierarchy.scores[0], rel=0.5)


def test_criteria_that_need_items_use_some(sources):
    chosen = FitOptions(n_groups=4, folds=0, n_jobs=1, partition=9, memory_limit=50, criterion="lpp")
    found = run_fit(sources["texts"], chosen, client=LocalExecutor())
    assert found.model.hierarchy.criterion == "lpp"
    assert any("lpp compares items with each other" in note for note in found.notes)


@pytest.mark.parametrize("criterion", ["nda", "mfa", "lde", "lpp"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_neighbours_in_blocks(criterion, form, monkeypatch):
    """The matrices are those of graphs without edges between blocks; one block is the fit in memory."""
    monkeypatch.setattr("bagwise.app.training.rows.MOST_MERGED", 40)
    rng = np.random.default_rng(3)
    X, y = topic_counts(rng, 100, 12, n_topics=3)
    X[:, 5] = X[:, 7] = 1  # constant
    X = form(X.astype(np.float64))
    ids = [f"{number}.txt" for number in range(100)]
    chosen = resolve_criterion(criterion)
    y_given = y if chosen.supervised else None
    blocks = deal_items(ids, y_given, 0, 100)
    assert sorted(np.concatenate(blocks).tolist()) == list(range(100))
    assert [len(rows) for rows in blocks] == [34, 33, 33]
    sums = add_scatters(LocalExecutor(), chosen, X, y_given, blocks)
    A, B = np.zeros((12, 12)), np.zeros((12, 12))
    dense = X.toarray() if sp.issparse(X) else X
    for rows in blocks:
        pair = chosen.structures(dense[rows], None if y_given is None else y[rows])
        for out, structure in zip((A, B), pair, strict=True):
            out += dense[rows].T @ laplacian(structure) @ dense[rows]
    np.testing.assert_allclose(sums.A, A, atol=1e-9 * abs(A).max())
    np.testing.assert_allclose(sums.B, B, atol=1e-9 * abs(B).max())
    whole = add_scatters(LocalExecutor(), chosen, X, y_given, [np.arange(100)])
    here = merge_words(X, y_given, criterion=chosen)
    np.testing.assert_array_equal(Engine(chosen).load(whole).run().merges, here.merges)
    np.testing.assert_allclose(Engine(chosen).load(whole).run().scores, here.scores, rtol=1e-9)
    found = Engine(chosen).load(sums).run()
    np.testing.assert_array_equal(found.merges[0], here.merges[0])  # constant words first
    assert {5, 7} <= set(sums.constant_words.tolist())
    join = np.eye(6)[found.cut(6)]
    ratio = np.trace(join.T @ A @ join) / np.trace(join.T @ B @ join)
    np.testing.assert_allclose(found.scores[5], ratio, rtol=1e-9)


def test_blocks_have_items_of_two_classes(monkeypatch):
    monkeypatch.setattr("bagwise.app.training.rows.MOST_MERGED", 10)
    ids, y = [str(number) for number in range(95)], np.repeat([0, 1, 2], [80, 12, 3])
    blocks = deal_items(ids, y, 0, 1000)
    assert len(blocks) == 10
    assert all(np.bincount(y[rows], minlength=3)[:2].min() >= 1 for rows in blocks)
    assert max(map(len, blocks)) <= 10
    turned = deal_items(ids[::-1], y[::-1], 0, 1000)
    assert {frozenset(ids[::-1][k] for k in rows) for rows in turned} == {
        frozenset(ids[k] for k in rows) for rows in blocks
    }
    # few items of the second class: fewer blocks, without some of the first
    few = deal_items(ids[:84], np.repeat([0, 1], [80, 4]), 0, 1000)
    assert [np.bincount(np.repeat([0, 1], [80, 4])[rows]).tolist() for rows in few] == [[9, 1]] * 4
    # each class has two items, which stay together
    pairs = np.repeat(np.arange(20), 2)
    (block,) = deal_items(ids[:40], pairs, 0, 1000)
    assert np.bincount(pairs[block]).tolist() == [2] * 5
    assert [len(rows) for rows in deal_items(ids, None, 0, 25)] == [9, 8, 8]


@pytest.mark.parametrize("n_parts", [1, 2, 3, 5, 6, 7, 11, 13, 16])
def test_parts_are_joined_in_the_same_order_everywhere(client, n_parts):
    def pair(one, other):
        return f"({one} {other})"

    parts = list(range(n_parts))
    expected = super(LocalExecutor, LocalExecutor()).map_reduce(str, pair, parts)
    assert LocalExecutor().map_reduce(str, pair, parts) == expected
    if n_parts in (7, 11):
        assert executor_of(client).map_reduce(str, pair, parts) == expected


def test_criteria_of_neighbours_use_the_whole_sample(client, sources, monkeypatch):
    monkeypatch.setattr("bagwise.app.training.rows.MOST_MERGED", 12)
    chosen = FitOptions(n_groups=4, folds=2, n_jobs=1, partition=9, memory_limit=50, criterion="mfa")
    here = run_fit(sources["texts"], chosen, client=LocalExecutor())
    there = run_fit(sources["texts"], chosen.with_changes(folds=0), client=client)
    assert here.model.hierarchy == there.model.hierarchy
    sums = []
    monkeypatch.setattr(
        "bagwise.app.training.rows.add_scatters", lambda *given: sums.append(given) or add_scatters(*given)
    )
    again = run_fit(sources["texts"], chosen, client=LocalExecutor())
    assert len(sums) == 3  # each fold of cross-validation compares items in blocks, too
    assert [len(given[4]) for given in sums] == [3, 2, 2]
    assert again.model.path == here.model.path
    assert any("merged on 36 items of the sample, in 3 random blocks" in note for note in here.notes)
    monkeypatch.setattr("bagwise.app.training.rows.MOST_SUMMED", 5)
    few = run_fit(sources["texts"], chosen, client=LocalExecutor())
    assert any("merged on 12 items of the sample. The" in note for note in few.notes)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weights", [None, [0.2, 3.0, 1.0, 0.5, 2.0]])
def test_svms_from_sums(n_classes, form, weights):
    rng = np.random.default_rng(1)
    X, y = topic_counts(rng, 200, 40, n_topics=5)
    y = rng.integers(0, n_classes, len(y)) if n_classes > 2 else y
    X = np.sqrt(X / X.sum(axis=1, keepdims=True))
    weights = None if weights is None else np.array(weights[:n_classes])
    how = {} if weights is None else {"class_weight": dict(enumerate(weights))}
    svm = LinearSVC(C=3.0, tol=1e-10, max_iter=10**6, random_state=0, **how).fit(X, y)
    for cuts in ([], [50], [1, 120, 121]):
        parts = [[(form(X[rows]), y[rows])] for rows in np.split(np.arange(200), cuts)]
        coef, intercept = fit_svm(LocalExecutor(), parts, n_classes, 40, 3.0, class_weights=weights, tol=1e-8)
        np.testing.assert_allclose(coef, svm.coef_, atol=5e-6)  # liblinear stops earlier: its loss is not below
        np.testing.assert_allclose(intercept, svm.intercept_, atol=5e-6)
        losses = [_loss(X, y, *found, 3.0, weights) for found in ((coef, intercept), (svm.coef_, svm.intercept_))]
        assert losses[0] <= losses[1] + 1e-10


def _loss(X, y, coef, intercept, C, weights):
    signs = np.where(y[:, np.newaxis] == (np.arange(len(coef)) if len(coef) > 1 else 1), 1, -1)
    slack = np.maximum(0, 1 - signs * (X @ coef.T + intercept))
    if weights is not None:  # in one class against the others, those of the class
        C = C * np.where((signs > 0) | (len(coef) == 1), weights[y][:, np.newaxis], 1)
    return (np.square(coef).sum() + np.square(intercept).sum()) / 2 + (C * np.square(slack)).sum()
