"""A real S3 API on this machine (moto's server), and HTTP. Skipped where their packages are not installed."""

import functools
import http.server
import math
import os
import pickle
import threading

import numpy as np
import pytest

from bagwise import BagwiseError, Model, fit_model, open_collection
from bagwise._io.storage import Storage, Url
from bagwise.app import build_index, evaluate_model
from bagwise.app.model import write_features
from bagwise.distributed import connected
from bagwise.distributed.executors import LocalExecutor
from bagwise.sources import ItemError, Limits, archives, contents, write_manifest
from commands import bagwise
from object_store import served, write_shards
from small_sources import write_image_folder, write_records, write_text_folder, zipped


def equal_items(one, two):
    assert (one.ids, one.label_sets, one.splits) == (two.ids, two.label_sets, two.splits)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.load(), b.load())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    write_image_folder(folder / "images", parts=("train", "test"), n_each=2)
    write_text_folder(folder / "texts", n_each=4)
    zipped(folder / "texts", folder / "texts.zip")
    write_records(folder / "records.csv", n_each=3)
    write_shards(folder / "shards", padding=3000)
    write_shards(folder / "packed", n_shards=2, n_each=4, compressed=True)
    return folder


@pytest.fixture(scope="module")
def store(folder):
    with served(folder) as store:
        yield store


@pytest.fixture
def no_blocks(monkeypatch):
    """Blocks of 16 KiB, none of them read yet."""
    monkeypatch.setattr(contents, "_BLOCK", 1 << 14)
    contents._block.cache_clear()
    contents._unchanged.cache_clear()
    return 1 << 14


@pytest.mark.parametrize("name", ["images", "texts", "texts.zip", "records.csv", "shards", "packed"])
def test_a_bucket_gives_what_the_folder_gives(store, folder, name):
    local = open_collection(folder / name)
    remote = open_collection(store.url(f"data/{name}"), storage_options=store.options)
    equal_items(remote, local)
    sent = [pickle.dumps(part) for part in remote.partitions(2)]
    assert [id for one in sent for id in pickle.loads(one).open().ids] == local.ids
    assert "secret" not in f"{remote!r} {remote[0]!r} {remote[0].source} {remote[0].content!r}"


def test_manifests_and_results_in_a_bucket(store):
    remote = open_collection(store.url("data/images"), storage_options=store.options)
    listed = store.url("data/images.parquet")
    write_manifest(remote, listed, storage_options=store.options)
    equal_items(open_collection(listed, storage_options=store.options), remote)
    results = Storage.of(store.url("results"), store.options)
    results.write("a/part-0", b"x" * 1000)
    assert (results.names(), results.read("a/part-0")) == (["a/part-0"], b"x" * 1000)


def test_objects_that_vanish_and_buckets_that_are_not_there(store, folder):
    options, system = store.options, store.system
    system.pipe({f"{store.bucket}/moving/1.txt": b"one", f"{store.bucket}/moving/2.txt": b"two"})
    found = open_collection(store.url("moving"), storage_options=options)
    system.rm_file(f"{store.bucket}/moving/1.txt")
    with pytest.raises(ItemError, match="it does not exist, or no longer"):
        found[0].load()
    assert found[1].load() == "two"
    for place in (store.url("none"), "s3://none/none"):
        with pytest.raises(BagwiseError, match="does not exist"):
            open_collection(place, storage_options=options)
    with pytest.raises(BagwiseError, match="the limit members is 2"):
        open_collection(store.url("data/texts"), storage_options=options, limits=Limits(members=2))


def test_labels_in_the_bucket_are_read_with_its_options(store, folder):
    ids = open_collection(folder / "texts").ids
    rows = "\n".join(f"{id},{k % 2}" for k, id in enumerate(ids))
    store.system.pipe_file(f"{store.bucket}/labels.csv", f"id,label\n{rows}\n".encode())
    found = open_collection(store.url("data/texts"), labels=store.url("labels.csv"), storage_options=store.options)
    assert found.labels.tolist() == [str(k % 2) for k in range(len(ids))]


def test_shards_are_listed_and_read_by_blocks(store, folder, no_blocks):
    """Not a request for each member: consecutive ones are in one block, and so are headers and labels."""
    size = os.path.getsize(folder / "shards" / "shard-000.tar")
    n_blocks, n_members = math.ceil((size + 1) / no_blocks), 3 * 12
    assert 1 < n_blocks < n_members / 4
    store.requests.clear()
    whole = open_collection(store.url("data/shards/shard-{000..002}.tar"), "images", storage_options=store.options)
    listed = [store.asked("GET", f"shard-{k:03}.tar") for k in range(3)]
    assert all(len(set(ranges)) == len(ranges) <= n_blocks for ranges in listed)
    sent = [pickle.dumps(part) for part in whole.partitions(3)]
    contents._block.cache_clear()  # as in another process
    for number, one in enumerate(sent):
        store.requests.clear()
        assert len([item.load() for item in pickle.loads(one).open()]) == 12
        ranges = store.asked("GET", f"shard-{number:03}.tar")
        assert len(set(ranges)) == len(ranges) <= n_blocks
        assert len(store.requests) <= len(ranges) + 1  # whether the shard was changed, once


def test_a_name_below_a_shard_is_refused(store, folder):
    """No disk can have both, but a bucket may: ids could be equal."""
    for name in ("a.tar", "a.tar/b.tar"):
        store.system.put_file(str(folder / "shards" / "shard-000.tar"), f"{store.bucket}/nested/{name}")
    with pytest.raises(BagwiseError, match=r"has a shard 'a.tar', and 'a.tar/b.tar' below it"):
        open_collection(store.url("nested/{a.tar/b,a}.tar"), "images", storage_options=store.options)


def test_what_is_compressed_is_fetched_once(store, no_blocks):
    whole = open_collection(store.url("data/packed/shard-{000..001}.tar.gz"), storage_options=store.options)
    first, _ = (pickle.dumps(part) for part in whole.partitions(2))
    assert len(first) < 5000
    archives._unpacked.cache_clear()  # as in another process
    store.requests.clear()
    opened = pickle.loads(first).open()
    assert not store.requests  # until an item is read
    assert len([item.load() for item in opened]) == 4
    assert len(store.asked("GET", "shard-000")) <= 2  # whether it is compressed, and all of it


def test_an_interrupted_fit_goes_on_in_the_bucket(store, folder):
    def interrupt(step, done, total):
        if step == "Counting words" and done > total / 2:
            raise KeyboardInterrupt

    options = {"n_groups": 3, "n_words": 12, "folds": 2, "n_jobs": 1, "partition": 3, "client": LocalExecutor()}
    options |= {"storage_options": store.options, "cache": store.url("caches/of fits")}
    with pytest.raises(KeyboardInterrupt):
        fit_model(store.url("data/texts"), **options, progress=interrupt)
    kept = Storage.of(store.url("caches/of fits"), store.options)
    counted = [name for name in kept.names() if name.startswith("histograms/")]
    assert counted
    store.requests.clear()
    model = fit_model(store.url("data/texts"), **options | {"client": LocalExecutor()})
    assert not [path for method, path, _ in store.requests if method == "PUT" and any(map(path.endswith, counted))]
    assert len([name for name in kept.names() if name.startswith("histograms/")]) == 4
    here = fit_model(folder / "texts", n_groups=3, n_words=12, folds=2, n_jobs=1)
    assert model.hierarchy == here.hierarchy
    assert model.heads == here.heads
    assert "secret" not in repr(model.options)
    there = evaluate_model(
        model, store.url("data/texts"), storage_options=store.options, cache=store.url("caches/of answers")
    )
    assert Storage.of(store.url("caches/of answers"), store.options).names()
    np.testing.assert_array_equal(there.predicted, evaluate_model(here, folder / "texts").predicted)


def test_storage_options_go_to_the_cache(store, folder):
    """To that of a collection or a local folder as well, and to a cache that has its own; never to another store."""
    options = {"n_groups": 2, "folds": 0, "n_jobs": 1}
    for number, source in enumerate((folder / "texts", open_collection(folder / "texts"))):
        place = store.url(f"caches/{number}")
        fit_model(source, **options, cache=place, storage_options=store.options)
        assert Storage.of(place, store.options).names()
    own = Url(store.url("caches/own"), store.options)
    fit_model(folder / "texts", **options, cache=own)
    names = Storage(own).names()
    assert {name.split("/")[0] for name in names} > {"histograms"}
    for source, more in (
        (folder / "texts", {}),
        (open_collection(folder / "texts"), {"cache": str(folder / "cache")}),
    ):
        with pytest.raises(BagwiseError, match=r"storage_options=? are for URLs"):
            fit_model(source, **options, **more, storage_options=store.options)
    with pytest.raises(BagwiseError, match="storage_options must be a mapping"):
        fit_model(folder / "texts", **options, storage_options="key")


def test_models_and_features_by_variables(store, folder, tmp_path, monkeypatch):
    store.set_variables(monkeypatch)
    path = tmp_path / "texts.bagwise"
    fit_model(store.url("data/texts"), n_groups=3, folds=0, n_jobs=1).save(path)
    store.system.put_file(str(path), f"{store.bucket}/texts.bagwise")
    model = Model.load(store.url("texts.bagwise"))
    assert Model.load(store.url("texts.bagwise"), storage_options=store.options) == model
    expected = model.transform(open_collection(folder / "texts"))
    written = write_features(model, open_collection(store.url("data/texts")), store.url("features/"), rows_per_part=5)
    assert written.n_items == expected.shape[0]
    command = ("transform", store.url("texts.bagwise"), store.url("data/texts"), "--jobs", "1")
    bagwise(*command, "--out", store.url("by-command/"))
    bagwise(*command, "--out", store.url("by-command.parquet"))
    for place in ("features/", "by-command/", "by-command.parquet"):
        read = open_collection(store.url(place), "table", label="label", id="id")
        np.testing.assert_array_equal(read.X, expected.toarray())


@pytest.fixture
def site(folder):
    """The folder by HTTP."""
    pytest.importorskip("aiohttp", reason="needs aiohttp (pip install aiohttp requests)")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *told):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_of_http(site, folder):
    equal_items(open_collection(f"{site}/texts/"), open_collection(folder / "texts"))
    equal_items(open_collection(f"{site}/records.csv?token=1"), open_collection(folder / "records.csv"))
    with pytest.raises(BagwiseError, match=r"does not exist|cannot be read"):
        open_collection(f"{site}/none.csv")


def test_pickles_of_fitted_models_have_no_credentials(store):
    model = fit_model(store.url("data/texts"), n_groups=3, folds=0, n_jobs=1, storage_options=store.options)
    content = pickle.dumps(model)
    assert store.options["secret"].encode() not in content
    assert type(pickle.loads(content)) is Model
    assert pickle.loads(content) == model


def test_an_index_of_a_bucket(store, folder, tmp_path):
    given, local = {"storage_options": store.options}, folder / "texts"
    pytest.importorskip("distributed", reason="needs bagwise[dask]")
    model = fit_model(local, n_groups=3, folds=0, n_jobs=1)
    queries = model.histograms(open_collection(local))
    expected = build_index(model, local, tmp_path / "local.index", partition=2).search(queries, 3)
    write_manifest(open_collection(store.url("data/texts"), **given), tmp_path / "list.csv")
    with connected(workers=2) as client:
        for source in (store.url("data/texts"), tmp_path / "list.csv"):
            index = build_index(model, source, tmp_path / "x.index", partition=2, client=client, **given)
            assert [[hit.score for hit in row] for row in index.search(queries, 3)] == [
                [hit.score for hit in row] for row in expected
            ]
            assert "secret" not in index.source
