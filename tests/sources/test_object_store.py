"""A real S3 API on this machine (moto's server), and HTTP. Skipped where their packages are not installed."""

import functools
import http.server
import pickle
import threading
import warnings

import numpy as np
import pytest

from bagwise import BagwiseError, fit_model, open_collection
from bagwise._io.storage import Storage
from bagwise.sources import ItemError, Limits, open_partitions, write_manifest
from bagwise.training import ShardedIndex, build_shards
from small_sources import write_image_folder, write_records, write_text_folder, zipped

# Packages outside of the extras warn as they like.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def equal_items(one, two):
    assert (one.ids, one.label_sets, one.splits) == (two.ids, two.label_sets, two.splits)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.load(), b.load())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    write_image_folder(folder / "images", parts=("train", "test"), n_each=2)
    write_text_folder(folder / "texts", n_each=2)
    zipped(folder / "texts", folder / "texts.zip")
    write_records(folder / "records.csv", n_each=3)
    return folder


@pytest.fixture(scope="module")
def store(folder):
    """A bucket with the files of the folder, and how it is opened."""
    pytest.importorskip("s3fs", reason="needs s3fs (pip install s3fs)")
    pytest.importorskip("flask_cors", reason="needs moto's server (pip install 'moto[s3]' flask flask-cors)")
    moto = pytest.importorskip("moto.server", reason="needs moto's server (pip install 'moto[s3]' flask flask-cors)")
    import s3fs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        address = "http://{}:{}".format(*server.get_host_and_port())
        options = {"key": "testing", "secret": "a secret", "client_kwargs": {"endpoint_url": address}}
        system = s3fs.S3FileSystem(**options)
        system.mkdir("bucket")
        system.put(f"{folder}/", "bucket/data/", recursive=True)
        yield options, system
        server.stop()


@pytest.mark.parametrize("name", ["images", "texts", "texts.zip", "records.csv"])
def test_a_bucket_gives_what_the_folder_gives(store, folder, name):
    options, _ = store
    local = open_collection(folder / name)
    remote = open_collection(f"s3://bucket/data/{name}", storage_options=options)
    equal_items(remote, local)
    sent = [pickle.dumps(part) for part in remote.partitions(2)]
    assert [id for one in sent for id in pickle.loads(one).open().ids] == local.ids
    assert "secret" not in f"{remote!r} {remote[0]!r} {remote[0].source} {remote[0].content!r}"


def test_manifests_and_results_in_a_bucket(store):
    options, _ = store
    remote = open_collection("s3://bucket/data/images", storage_options=options)
    write_manifest(remote, "s3://bucket/data/images.parquet", storage_options=options)
    equal_items(open_collection("s3://bucket/data/images.parquet", storage_options=options), remote)
    assert len(open_partitions("s3://bucket/data/images.parquet", n=2, storage_options=options)) == 2
    results = Storage.of("s3://bucket/results", options)
    results.write("a/part-0", b"x" * 1000)
    assert (results.names(), results.read("a/part-0")) == (["a/part-0"], b"x" * 1000)


def test_objects_that_vanish_and_buckets_that_are_not_there(store, folder):
    options, system = store
    system.pipe({"bucket/moving/1.txt": b"one", "bucket/moving/2.txt": b"two"})
    found = open_collection("s3://bucket/moving", storage_options=options)
    system.rm_file("bucket/moving/1.txt")
    with pytest.raises(ItemError, match="it does not exist, or no longer"):
        found[0].load()
    assert found[1].load() == "two"
    for place in ("s3://bucket/none", "s3://none/none"):
        with pytest.raises(BagwiseError, match="does not exist"):
            open_collection(place, storage_options=options)
    with pytest.raises(BagwiseError, match="the limit members is 2"):
        open_collection("s3://bucket/data/texts", storage_options=options, limits=Limits(members=2))


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


def test_shards_in_a_bucket(store, folder, tmp_path):
    options, system = store
    distributed = pytest.importorskip("distributed", reason="needs bagwise[dask]")
    model = fit_model(folder / "texts", n_groups=3, folds=0, n_jobs=1)
    local = build_shards(model, folder / "texts", tmp_path / "x.shards", partition=2)
    queries, url = model.histograms(open_collection(folder / "texts")), "s3://bucket/x.shards"
    expected = local.find(queries, 3)
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        built = build_shards(model, folder / "texts", url, partition=2, storage_options=options, client=client)
        loaded = ShardedIndex.load(url, storage_options=options)
        for _ in range(2):
            assert loaded.find(queries, 3, client=client) == expected
        assert built.find(queries, 3) == expected
        # another index of the same name: workers notice
        build_shards(model, open_collection(folder / "texts")[:4], url, partition=2, storage_options=options)
        fewer = ShardedIndex.load(url, storage_options=options)
        assert fewer.find(queries, 9, client=client) == fewer.find(queries, 9)
        assert {len(row) for row in fewer.find(queries, 9, client=client)} == {4}
    assert {path.rsplit("/")[-1] for path in system.find("bucket/x.shards")} == {
        *("000000.index", "000000.labels.json", "000001.index", "000001.labels.json", "model.bagwise", "shards.json")
    }
    assert "secret" not in f"{loaded.folder!r} {loaded.folder}"
    with pytest.raises(BagwiseError, match="is no finished index in shards"):
        ShardedIndex.load("s3://bucket/nothing", storage_options=options)
