"""Indexes that a cluster builds and searches: the file and the answers of one process."""

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagIndex, BagwiseError, distributed, fit_model, open_collection
from bagwise.app import FitOptions, ItemIndex, build_index, evaluate_model, run_fit
from bagwise.app.index.building import index_of_parted_fit
from bagwise.app.training.item_answers import HELD_OUT
from bagwise.distributed.executors import LocalExecutor
from bagwise.retrieval.histograms import METRICS
from bagwise.sources import SkippedItemsWarning
from helpers import topic_counts
from small_sources import write_image_folder, write_records


@pytest.fixture
def small_blocks(monkeypatch):
    for name in ("store", "bag_index"):
        monkeypatch.setattr(f"bagwise.retrieval.{name}.BLOCK_ITEMS", 16)


@pytest.fixture(scope="module")
def counts():
    X, _ = topic_counts(np.random.default_rng(0), 300, 60, length=40)
    X[[4, 250]] = X[10]  # equally near items in several blocks
    return X


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_blocks_are_searched_as_the_whole_index(counts, small_blocks, tmp_path, client, metric, form):
    names = [f"item {k}" for k in range(300)]
    index = BagIndex(metric, normalize="l1").add(form(counts), names).remove(names[20:40])
    path, expected = index.save(tmp_path / "x.index"), index.search(counts[:20], 30)
    assert len(index.blocks()) > 8
    for where in (None, client):
        for k in (30, 1000):
            scores, ids = distributed.search(path, counts[:20], k, client=where)
            np.testing.assert_array_equal(scores[:, :30], expected[0])
            np.testing.assert_array_equal(ids[:, :30], expected[1])
            assert ids.shape == (20, min(k, 280))


def test_an_index_that_has_changed_is_opened_again(counts, tmp_path, client):
    path = tmp_path / "x.index"
    for part in (counts[:50], counts[50:]):
        index = BagIndex().add(part)
        index.save(path)
        np.testing.assert_array_equal(distributed.search(path, part[:3], client=client)[1], index.search(part[:3])[1])


def test_what_workers_cannot_open_is_named(counts, tmp_path):
    path = BagIndex().add(counts).save(tmp_path / "x.index")
    searched = distributed.searching.SearchedByWorkers(BagIndex.load(path), path, BagIndex.load, LocalExecutor())
    path.unlink()
    with pytest.raises(BagwiseError, match=r"x\.index cannot be opened where it is searched.*folder that all workers"):
        searched.search(counts[:1])
    with pytest.raises(BagwiseError, match="index is empty"):
        distributed.search(BagIndex().save(path), counts[:1])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A collection of texts with classes, and its model."""
    path = write_records(tmp_path_factory.mktemp("texts") / "texts.csv")
    return path, fit_model(path, n_groups=4, n_jobs=1, folds=2)


@pytest.mark.parametrize("by", ["both", "words", "groups", "classes"])
@pytest.mark.parametrize("on_cluster", [False, True])
def test_the_file_is_that_of_one_process(fitted, client, tmp_path, by, on_cluster):
    path, model = fitted
    collection = open_collection(path)
    histograms = model.histograms(collection)
    one = ItemIndex.build(model, collection, histograms, source=str(path), by=by).save(tmp_path / "one.index")
    built = build_index(
        model, path, tmp_path / "built.index", by=by, partition=7, client=client if on_cluster else None
    )
    assert (tmp_path / "built.index").read_bytes() == one.read_bytes()
    assert built.search(histograms, 7) == ItemIndex.load(one).search(histograms, 7)


@pytest.mark.parametrize("by", ["both", "words", "classes"])
def test_workers_search_as_one_process(fitted, client, small_blocks, tmp_path, by):
    path, model = fitted
    index = build_index(model, path, tmp_path / "x.index", by=by)
    assert len(index.index.blocks()) > 1
    histograms = model.histograms(open_collection(path))
    searched = index.searched_by(client, tmp_path / "x.index")
    assert searched.search(histograms[:9], 8) == index.search(histograms[:9], 8)
    np.testing.assert_array_equal(searched.class_weights(histograms[:9]), index.class_weights(histograms[:9]))


def test_full_blocks_are_mapped_while_an_index_is_built(fitted, small_blocks, tmp_path, monkeypatch):
    path, model = fitted
    mapped = []
    spill = BagIndex.spill

    def counted(self, folder):
        spill(self, folder)
        mapped.append([isinstance(block.values.base, np.memmap) for block in self._state.store.blocks])

    monkeypatch.setattr(BagIndex, "spill", counted)
    build_index(model, path, tmp_path / "x.index", partition=3)
    assert any(mapped[-1])
    for block, index in zip(mapped[-1], ItemIndex.load(tmp_path / "x.index").index.blocks(), strict=False):
        assert block == (len(index) == 16)
    assert [one.name for one in tmp_path.iterdir()] == ["x.index"]


def test_the_index_of_a_fit_that_did_not_fit_into_one_process(tmp_path):
    path = write_records(tmp_path / "texts.csv")
    options = FitOptions(n_groups=4, folds=2, n_jobs=1, memory_limit=100, partition=7)
    fit = run_fit(path, options, client=LocalExecutor())
    evaluation = evaluate_model(fit.model, path)
    index = index_of_parted_fit(fit, evaluation, tmp_path / "x.index", options)
    collection = open_collection(path)
    assert index.ids == (*collection.ids, *evaluation.collection.ids)
    assert index.labels[: len(collection)] == tuple(one[0] for one in collection.label_sets)
    assert index.source == str(path)
    histograms = fit.model.histograms(collection)
    expected = ItemIndex.build(fit.model, collection, histograms)
    np.testing.assert_array_equal(index.search(histograms[:5], 1)[0][0].id, expected.search(histograms[:5], 1)[0][0].id)
    sampled = np.array([collection.ids.index(id) for id in fit.data.collection.ids])
    held_out = fit.held_out_top
    assert (np.flatnonzero(index.answers.origins == HELD_OUT) == np.sort(sampled)).all()
    for size, answers in index.answers.rows.items():
        top = held_out.at(fit.model.path.sizes.index(size))
        np.testing.assert_array_equal(answers.predicted[sampled], top.predicted)
    assert index.answers.protocol == fit.model.path.protocol


@pytest.mark.parametrize("there", [True, False])
def test_what_is_interrupted_leaves_what_was_there(fitted, tmp_path, there):
    path, model = fitted
    target = tmp_path / "x.index"
    if there:
        target.write_bytes(b"something else")

    def interrupt(step, done, total):
        if step == "Building the index" and done > 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(model, path, target, partition=10, progress=interrupt)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"something else"] * there


def test_items_that_cannot_be_read_are_told(tmp_path):
    folder = write_image_folder(tmp_path / "photos", n_each=3)
    model = fit_model(folder, n_words=5, n_groups=2, folds=0, n_jobs=1)
    broken = sorted(folder.rglob("*.png"))[1]
    broken.write_bytes(b"no image")
    with pytest.warns(SkippedItemsWarning, match="1 of 6 items could not be read"):
        index = build_index(model, folder, tmp_path / "x.index", partition=1)
    assert len(index) == 5
    assert len(index.search(model.histograms(open_collection(folder)[:1]), 10)[0]) == 5
    for image in folder.rglob("*.png"):
        image.write_bytes(b"no image")
    with pytest.raises(BagwiseError, match="None of the 6 items"):
        build_index(model, folder, tmp_path / "y.index", partition=1)
    assert not (tmp_path / "y.index").exists()
