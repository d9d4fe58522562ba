"""Indexes in shards: the same answers as one index of all items."""

import gc
import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client

from bagwise import BagIndex, BagwiseError, Model, distributed, fit_model, open_collection
from bagwise._io.storage import Storage, Url
from bagwise.app import FitOptions, ItemIndex, ShardedIndex, build_shards, run_fit, shards_of_fit
from bagwise.app.index.index_features import features
from bagwise.distributed.opened import OpenShards, labels_to_bytes
from bagwise.retrieval.histograms import METRICS
from bagwise.sources import SkippedItemsWarning
from helpers import topic_counts
from small_sources import write_image_folder, write_records


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
    assert Model.load(next((tmp_path / "built").glob("model-*.bagwise"))) == fit.model
    (tmp_path / "built" / "shards.json").unlink()
    with pytest.raises(BagwiseError, match="no finished index"):
        ShardedIndex.load(tmp_path / "built")
    with pytest.raises(BagwiseError, match="is not for shards"):
        build_shards(fit.model, path, tmp_path / "other", by="both")


def test_shards_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("none.index", "memory://nowhere/none.index"):
        with pytest.raises(BagwiseError, match=r"none.index cannot be read where it is searched: it does not exist\."):
            distributed.search([place], [[1, 2]])
    with pytest.raises(BagwiseError, match=r"memory://nowhere/x.shards is no finished index in shards"):
        ShardedIndex.load("memory://nowhere/x.shards")
    with pytest.raises(BagwiseError, match="storage_options= are for URLs"):
        ShardedIndex.load("none", storage_options={"key": 1})
    assert not list(tmp_path.iterdir())


@pytest.fixture
def memory():
    """An empty store of this process."""
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A collection of texts with classes, and its model."""
    path = write_records(tmp_path_factory.mktemp("texts") / "texts.csv")
    return path, fit_model(path, n_groups=4, folds=0, n_jobs=1)


def test_a_url_holds_what_a_folder_does(fitted, memory, tmp_path):
    path, model = fitted
    local = build_shards(model, path, tmp_path / "x.shards", partition=10)
    by_url = build_shards(model, path, "memory://bucket/x.shards", partition=10)
    assert without_tokens(Storage.of("memory://bucket/x.shards")) == without_tokens(Storage.of(local.folder))
    queries = model.histograms(open_collection(path))
    expected = ItemIndex.build(model, open_collection(path), queries, by="words").search(queries, 7)
    for index in (local, by_url, ShardedIndex.load("memory://bucket/x.shards"), ShardedIndex.load(local.folder)):
        assert index.find(queries, 7) == expected
        assert index.source == str(path)
    with distributed_threads() as client:
        assert by_url.find(queries, 7, client=client) == expected
        again = build_shards(model, path, "memory://bucket/again", partition=10, client=client)
    assert without_tokens(Storage.of("memory://bucket/again")) == without_tokens(Storage.of(local.folder))
    assert again.find(queries, 7) == expected


def distributed_threads():
    return Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")


def test_worker_processes_write_to_urls_and_read_from_them(client, fitted, tmp_path):
    path, model = fitted
    url = f"dir://x.shards::file://{tmp_path}"  # a URL for the library, which all processes reach
    by_url = build_shards(model, path, url, partition=10, client=client)
    local = build_shards(model, path, tmp_path / "y.shards", partition=10, client=client)
    assert without_tokens(Storage.of(tmp_path / "x.shards")) == without_tokens(Storage.of(local.folder))
    queries = model.histograms(open_collection(path)[:3])
    expected = local.find(queries, 4)
    for index in (local, by_url, by_url, ShardedIndex.load(url)):
        assert index.find(queries, 4, client=client) == expected
    assert 4 <= n_copies(client, str(tmp_path)) <= 8  # of each shard on one worker; on both, if one was busy


def n_copies(client, folder):
    """Copies of shards below a folder that workers have."""

    def copies():
        from bagwise.distributed.searching import _open_shards

        return sum(folder in place.url for place in _open_shards._copies)

    return sum(client.run(copies).values())


def without_tokens(storage):
    """Files by their names without the token of the build."""
    token = re.search(r'"model-([0-9a-f]{8})', storage.read("shards.json").decode())[1]
    return {name.replace(f"-{token}", ""): storage.read(name).replace(token.encode(), b"") for name in storage.names()}


def test_a_shard_by_url_is_copied_once_and_again_when_it_has_changed(counts, memory, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for k in range(3):
        memory.pipe_file(f"/{k}.index", BagIndex().add(counts[k : k + 1], [str(k)]).save(tmp_path / "x").read_bytes())
    (tmp_path / "x").unlink()
    fetched, get_file = [], memory.get_file
    monkeypatch.setattr(type(memory), "get_file", lambda self, path, to: fetched.append(path) or get_file(path, to))
    opened, places = OpenShards(most_shards=1), [Url(f"memory://{k}.index") for k in range(3)]
    for place in (places[0], places[0], places[1], places[0]):
        opened.get(place)
    assert fetched == ["/0.index", "/1.index"]  # a shard was closed, but its copy is there
    memory.pipe_file("/0.index", memory.cat_file("/1.index"))
    assert opened.get(places[0])[0].ids.tolist() == ["1"]
    assert fetched[2:] == ["/0.index"]
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 2
    del opened
    gc.collect()
    assert not list(tmp_path.iterdir())
    fetched.clear()
    small = OpenShards(most_shards=1, most_bytes=1)
    for place in (*places, places[2], places[0]):
        small.get(place)
    gc.collect()
    assert fetched == ["/0.index", "/1.index", "/2.index", "/0.index"]
    assert len(list(tmp_path.iterdir())) == 1


def test_damaged_shards(fitted, memory, tmp_path, monkeypatch):
    path, model = fitted
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    queries = model.histograms(open_collection(path)[:1])
    for folder in ("memory://x.shards", tmp_path / "x.shards"):
        index = build_shards(model, path, folder, partition=20)
        storage = Storage.of(folder)
        whole = {name: storage.read(name) for name in storage.names()}
        shard, labels = index.shards[1], index.shards[0].replace(".index", ".labels.json")
        flipped = bytearray(whole[shard])
        flipped[-10] ^= 0xFF
        for name, content, said in (
            (shard, whole[shard][:200], shard),
            (shard, bytes(flipped), shard),
            (shard, None, f"{shard} cannot be read where it is searched: it does not exist"),
            (labels, b"{", f"{labels} cannot be read"),
            (labels, b'{"classes": ["a"], "labels": [0]}', "1 labels for 20 items"),
            (labels, b'{"classes": {"a": 1}, "labels": ' + str([0] * 20).encode() + b"}", "must be a list of names"),
            (labels, b'{"classes": [], "labels": ' + str([0] * 20).encode() + b"}", "numbers below 0"),
            (labels, b" " * (1 << 21), "more than 1,068,576 bytes for 20 items"),
        ):
            storage.remove(name) if content is None else storage.write(name, content)
            with pytest.raises(BagwiseError, match=said) as caught:
                index.find(queries, 3)
            assert str(folder) in str(caught.value)
            storage.write(name, whole[name])
        about = json.loads(whole["shards.json"])
        for change, said in (
            ({"schema": 9}, "has schema 9, this version of bagwise reads 1"),
            ({"by": "classes"}, "is damaged"),
            ({"shards": ["../../etc/passwd"]}, "is damaged"),
            ({"shards": ["shards.json"]}, "is damaged"),
            ({"shards": [index.shards[0]] * 2}, "is damaged"),
            *(({"n_items": value}, "is damaged") for value in (float("inf"), 10**30, 3.5, "12", True)),
            ({"model": "../model.bagwise"}, "is damaged"),
            ({"reading": {"cache": "x"}}, "is damaged"),
            ({"labelled": 1}, "is damaged"),
        ):
            storage.write("shards.json", json.dumps(about | change).encode())
            with pytest.raises(BagwiseError, match=said):
                ShardedIndex.load(folder)
        gc.collect()
        assert len(list((tmp_path / "temporary").glob("*.part"))) <= 2  # of each shard one, at most


def index_with_labels(model, path, queries):
    return ItemIndex.build(model, open_collection(path), model.histograms(open_collection(path)), by="words").search(
        queries, 4
    )


@pytest.mark.parametrize("folder", ["memory://x.shards", "local"])
def test_what_is_interrupted_leaves_nothing(fitted, memory, tmp_path, folder):
    path, model = fitted
    place = folder if "://" in folder else tmp_path / folder

    def interrupt(step, done, total):
        if step == "Building the index" and done > 15:
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            build_shards(model, path, place, partition=10, progress=interrupt)
        assert not Storage.of(place).names()
        assert not (tmp_path / "local").exists()
    build_shards(model, path, place, partition=5)
    many = len(Storage.of(place).names())
    assert len(build_shards(model, path, place, partition=20).shards) == 2
    assert len(Storage.of(place).names()) == 2 + 4 < many
    before = {name: Storage.of(place).read(name) for name in Storage.of(place).names()}
    with pytest.raises(KeyboardInterrupt):
        build_shards(model, path, place, partition=10, progress=interrupt)
    assert {name: Storage.of(place).read(name) for name in Storage.of(place).names()} == before
    queries = model.histograms(open_collection(path)[:5])
    found = ShardedIndex.load(place).find(queries, 4)
    assert found == build_shards(model, path, place, partition=10).find(queries, 4)
    assert found == ShardedIndex.load(place).find(queries, 4)
    Storage.of(place).write("holiday.jpg", b"x")
    with pytest.raises(BagwiseError, match=r"is not a folder of shards: it holds holiday.jpg"):
        build_shards(model, path, place)
    assert Storage.of(place).exists("shards.json")


def test_late_tasks_of_an_interrupted_build_do_no_harm(fitted, memory):
    """A worker may still write a shard after Ctrl-C: not one of the next index."""
    path, model = fitted
    late = []
    write = Storage.upload

    def hold(self, name, local):
        late.append((self, name, Path(local).read_bytes()))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "upload", hold)
        with pytest.raises(KeyboardInterrupt):
            build_shards(model, path, "memory://late.shards", partition=10)
    assert Storage.upload is write
    index = build_shards(model, path, "memory://late.shards", partition=5)
    queries = model.histograms(open_collection(path)[:3])
    expected = index.find(queries, 4)
    for storage, name, content in late:
        storage.write(name, content)
    assert ShardedIndex.load("memory://late.shards").find(queries, 4) == expected


@pytest.mark.parametrize("readable", [True, False])
def test_an_index_that_was_finished_before_an_error_stays(fitted, memory, monkeypatch, readable):
    path, model = fitted
    write, read = Storage.write, Storage.read

    def interrupted(self, name, content):
        write(self, name, content)
        if name == "shards.json":
            raise TimeoutError

    def lost(self, name, most=None):
        raise BagwiseError("the net is down")

    monkeypatch.setattr(Storage, "write", interrupted)
    monkeypatch.setattr(Storage, "read", read if readable else lost)
    with pytest.raises(TimeoutError):
        build_shards(model, path, "memory://done.shards", partition=10)
    monkeypatch.undo()
    queries = model.histograms(open_collection(path)[:3])
    assert len(ShardedIndex.load("memory://done.shards").find(queries, 4)) == 3


def test_labels_are_read_as_they_were_written(counts, tmp_path):
    index = BagIndex().add(counts[:3], ["a", "b", "c"]).save(tmp_path / "0.index")
    labels = ["é" * 900, None, "\ud800x"]
    (tmp_path / "0.json").write_bytes(labels_to_bytes(labels))
    assert list(OpenShards().get(str(index), str(tmp_path / "0.json"))[1].values()) == labels
    with pytest.raises(BagwiseError, match=r"1,000 for each\. Give items short labels"):
        labels_to_bytes(["x" * (1 << 21)])


def test_items_that_cannot_be_read_are_told(tmp_path):
    folder = write_image_folder(tmp_path / "photos", n_each=3)
    model = fit_model(folder, n_words=5, n_groups=2, folds=0, n_jobs=1)
    broken = sorted(folder.rglob("*.png"))[1]
    broken.write_bytes(b"no image")
    with pytest.warns(SkippedItemsWarning, match="1 of 6 items could not be read"):
        index = build_shards(model, folder, tmp_path / "x.shards", partition=1)
    assert len(index) == 5
    assert len(index.find(model.histograms(open_collection(folder)[:1]), 10)[0]) == 5
    for image in folder.rglob("*.png"):
        image.write_bytes(b"no image")
    with pytest.raises(BagwiseError, match="None of the 6 items"):
        build_shards(model, folder, tmp_path / "y.shards", partition=1)
    assert not (tmp_path / "y.shards").exists()
