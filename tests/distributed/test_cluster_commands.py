"""Commands on a cluster: what they print and write is what they do without one."""

import numpy as np
import pytest

from bagwise.app import ItemIndex
from bagwise.app.training.item_answers import TRAINING
from commands import as_json, bagwise
from small_sources import write_image_folder, write_records

OPTIONS = ("--groups", 4, "--folds", 0, "--no-page", "--map", "none")


@pytest.fixture(scope="module")
def address(client):
    return client.scheduler.address


@pytest.fixture(scope="module")
def texts(tmp_path_factory, address):
    """Texts, and what a fit on a cluster writes whose histograms stay on the workers."""
    folder = tmp_path_factory.mktemp("texts")
    source = write_records(folder / "texts.csv")
    told = as_json(
        *("fit", source, *OPTIONS, "--out", folder / "texts.bagwise", "--scheduler", address),
        *("--memory-limit", 100, "--partition", 10),
    )
    assert told["written"][1:] == [str(folder / "texts.index")]
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    write_image_folder(folder / "photos")
    bagwise("fit", folder / "photos", *OPTIONS, "--words", 20, "--out", folder / "photos.bagwise", "--no-index")
    return folder


def searched(*arguments):
    """What a search tells, but the name of the index."""
    told = as_json("search", *arguments)
    del told["index"]
    return told


def test_an_index_of_a_fit_on_a_cluster_has_all_items(texts, address, tmp_path):
    one, made = tmp_path / "one.index", texts / "texts.index"
    bagwise("index", texts / "texts.bagwise", texts / "texts.csv", "--map", "none", "--out", one)
    here, there = ItemIndex.load(one), ItemIndex.load(made)
    assert (here.ids, here.labels, here.source, here.by) == (there.ids, there.labels, there.source, there.by)
    np.testing.assert_array_equal(here.answers.top.arrays, there.answers.top.arrays)
    assert (there.answers.origins == TRAINING).all()
    for query in (["-t", "ripe apple", "-t", "qqqq", "-k", 3], [texts / "texts.csv", "-k", 2]):
        expected = searched(one, *query)
        assert any(hit["label"] == "fruit" for hit in expected["queries"][0]["hits"])
        for where in ([], ["--scheduler", address]):
            assert searched(made, *query, *where) == expected


def test_clusters_of_a_source_that_workers_read(texts, address, tmp_path):
    here, there = (
        as_json("cluster", texts / "texts.csv", "-c", 2, *OPTIONS[4:], *where, "--model-out", tmp_path / name)
        for name, where in (("here.bagwise", ()), ("there.bagwise", ("--scheduler", address)))
    )
    for one in (here, there):
        del one["written"], one["seconds"]
    assert there == here
    assert (tmp_path / "there.index").read_bytes() == (tmp_path / "here.index").read_bytes()
    told = bagwise("cluster", tmp_path / "here.index", "--workers", 2, code=1)
    assert "--workers is for learning words of a source" in told


def test_indexing_on_a_cluster_gives_the_same_file(photos, address, tmp_path):
    one, source = tmp_path / "one.index", photos / "photos"
    given = ["index", photos / "photos.bagwise", source, "--force"]
    cluster = ["--out", tmp_path, "--scheduler", address, "--partition", 5]
    for options in (["--by", "groups"], ["--by", "words", "--metric", "chi2"], []):
        told = as_json(*given, *options, "--map", "none", "--out", one)
        there = as_json(*given, *options, *cluster)
        assert there.pop("written") == [str(tmp_path / "photos.index")]
        told.pop("written")
        assert there == told
        assert (tmp_path / "photos.index").read_bytes() == one.read_bytes()
    query = next(source.rglob("*.png"))
    expected = searched(one, query, "-k", 4)
    assert expected["queries"][0]["in_index"] == [query.relative_to(source).as_posix()]
    assert searched(tmp_path / "photos.index", query, "-k", 4, "--scheduler", address) == expected
    as_json(*given, "--map", "spectral", "--out", one)
    as_json(*given, "--map", "spectral", *cluster)
    assert (tmp_path / "photos.index").read_bytes() == one.read_bytes()
    assert "is for new indexes" in bagwise("index", one, "--remove", "0", "--workers", "2", code=1)


def test_evaluating_on_a_cluster_prints_the_same(texts, photos, address):
    for model, source in (("texts.bagwise", "texts.csv"), ("photos.bagwise", "photos")):
        folder = texts if "texts" in model else photos
        given = ["evaluate", folder / model, folder / source]
        assert bagwise(*given, "--scheduler", address, "--partition", 5) == bagwise(*given)


def test_features_on_a_cluster_are_the_same(texts, address, tmp_path):
    pytest.importorskip("pyarrow")
    given = ["transform", texts / "texts.bagwise", texts / "texts.csv"]
    for out in ("a.npz", "b.npz", "a/", "b/"):
        bagwise(*given, "--out", f"{tmp_path}/{out}", *(["--scheduler", address] if out.startswith("b") else []))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    parts = [{one.name: one.read_bytes() for one in (tmp_path / name).iterdir()} for name in "ab"]
    assert parts[0] == parts[1]
    said = bagwise(*given, "--out", tmp_path / "c.parquet", "--scheduler", address, code=1)
    assert "Workers write a folder of parts" in said
    assert set(parts[0]) == {"_SUCCESS", "part-00000.parquet"}


def test_pages_show_items_by_url_if_it_is_given(photos, address, tmp_path):
    url = f"dir://photos::file://{photos}"
    bagwise("index", photos / "photos.bagwise", url, "--out", tmp_path / "x.index", "--scheduler", address)
    query = next((photos / "photos").rglob("*.png"))
    pages = [tmp_path / f"{k}.html" for k in range(3)]
    for page, where in zip(pages, ([], ["--source", url], ["--source", photos / "photos"]), strict=True):
        bagwise("search", tmp_path / "x.index", query, "-k", 3, "--page", page, *where)
    shown = [page.read_text("utf-8").count("data:image") for page in pages]
    assert shown[1] == shown[2] == shown[0] + 3
