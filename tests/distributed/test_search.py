"""Indexes in shards: the same answers as one index of all items."""

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagIndex, BagwiseError, Model, distributed, open_collection
from bagwise.retrieval.histograms import METRICS
from bagwise.training import FitOptions, ShardedIndex, build_shards, run_fit, shards_of_fit
from bagwise.training.index_features import features
from helpers import topic_counts
from small_sources import write_records


@pytest.fixture(scope="module")
def counts():
    X, _ = topic_counts(np.random.default_rng(0), 300, 60, length=40)
    X[[4, 250]] = X[10]  # equally near items in several shards
    return X


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_shards_are_one_index(counts, metric, form):
    one = BagIndex(metric).add(form(counts))
    parts = np.split(np.arange(300), [7, 100, 101])
    shards = [BagIndex(metric).add(form(counts[part]), part) for part in parts]
    expected, found = one.search(counts[:20], 30), distributed.search(shards, counts[:20], 30)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])


def test_more_items_than_there_are(counts):
    shards = [BagIndex().add(counts[:2], ["a", "b"]), BagIndex(), BagIndex().add(counts[2:3], ["c"])]
    scores, ids = distributed.search(shards, counts[:1], 10)
    assert scores.shape == ids.shape == (1, 3)
    assert ids[0, 0] == "a"


def test_workers_search_files(client, counts, tmp_path):
    paths = [
        BagIndex().add(counts[part], part).save(tmp_path / f"{k}.index")
        for k, part in enumerate(np.array_split(np.arange(300), 5))
    ]
    expected = BagIndex().add(counts).search(counts[:5], 12)
    for found in (distributed.search(paths, counts[:5], 12, client=client), distributed.search(paths, counts[:5], 12)):
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


def test_bad_shards(counts):
    with pytest.raises(BagwiseError, match="no shards"):
        distributed.search([], counts[:1])
    with pytest.raises(BagwiseError, match="one metric; got 'hellinger' and 'chi2'"):
        distributed.search([BagIndex().add(counts), BagIndex("chi2").add(counts)], counts[:1])
    with pytest.raises(BagwiseError, match="by strings and others by numbers"):
        distributed.search([BagIndex().add(counts[:1]), BagIndex().add(counts[:1], ["a"])], counts[:1])


def test_shards_of_a_collection(tmp_path):
    path = write_records(tmp_path / "texts.csv")
    options = FitOptions(n_groups=4, folds=0, n_jobs=1, memory_limit=100, partition=7)
    fit = run_fit(path, options, client=distributed.executors.LocalExecutor())
    collection = open_collection(path)
    rows = features(fit.model, fit.model.histograms(collection), "words", "inner")
    scores, ids = BagIndex("inner").add(rows, collection.ids).search(rows, 5)
    built = build_shards(fit.model, path, tmp_path / "built", partition=10)
    for index in (shards_of_fit(fit, tmp_path / "fit"), built, ShardedIndex.load(tmp_path / "built")):
        found = index.search(collection, 5)
        np.testing.assert_array_equal(found[1], ids)
        np.testing.assert_allclose(found[0], scores, rtol=1e-12)
        assert index.n_items == len(collection)
    assert Model.load(tmp_path / "built" / "model.bagwise") == fit.model
    (tmp_path / "built" / "shards.json").unlink()
    with pytest.raises(BagwiseError, match="no finished index"):
        ShardedIndex.load(tmp_path / "built")
    with pytest.raises(BagwiseError, match="is not for shards"):
        build_shards(fit.model, path, tmp_path / "other", by="both")


def test_shards_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BagwiseError, match="cannot be read where it is searched"):
        distributed.search(["none.index"], [[1, 2]])
    with pytest.raises(BagwiseError, match="is a URL"):
        build_shards(None, None, "memory://index")
    with pytest.raises(BagwiseError, match="is a URL"):
        ShardedIndex.load("s3://bucket/index")
    assert not list(tmp_path.iterdir())
