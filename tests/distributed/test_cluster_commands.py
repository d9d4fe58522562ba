"""Commands on a cluster: what they print and write is what they do without one."""

import pytest

from bagwise import open_collection
from bagwise._io.storage import Storage
from bagwise.app import ItemIndex, ShardedIndex
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
    assert told["written"][1:] == [str(folder / "texts.index"), str(folder / "texts.shards")]
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


def test_shards_are_searched_as_one_file(texts, address, tmp_path):
    one = tmp_path / "words.index"
    bagwise("index", texts / "texts.bagwise", texts / "texts.csv", "--by", "words", "--out", one)
    shards = texts / "texts.shards"
    assert ShardedIndex.load(shards).source == ItemIndex.load(one).source
    for query in (["-t", "ripe apple", "-t", "qqqq", "-k", 3], [texts / "texts.csv", "-k", 2]):
        expected = searched(one, *query)
        assert any(hit["label"] == "fruit" for hit in expected["queries"][0]["hits"])
        for where in ([], ["--scheduler", address]):
            assert searched(shards, *query, *where) == expected
        assert bagwise("search", shards, *query) == bagwise("search", one, *query)
    kept = searched(shards, texts / "texts.csv", "-k", 1, "--keep-query")
    assert [one["hits"][0]["id"] for one in kept["queries"]] == [one["in_index"][0] for one in kept["queries"]]


def test_indexing_on_a_cluster_gives_the_same_results(photos, address, tmp_path):
    one, source = tmp_path / "one.index", photos / "photos"
    given = ["index", photos / "photos.bagwise", source]
    told = as_json(*given, "--out", one, "--by", "groups")
    shards = as_json(*given, "--out", tmp_path, "--by", "groups", "--scheduler", address, "--partition", 5)
    assert shards.pop("written") == [str(tmp_path / "photos.shards")]
    told.pop("written")
    assert shards == told
    query = next(source.rglob("*.png"))
    expected = searched(one, query, "-k", 4)
    assert expected["queries"][0]["in_index"] == [query.relative_to(source).as_posix()]
    assert searched(tmp_path / "photos.shards", query, "-k", 4, "--scheduler", address) == expected
    for index in (one, tmp_path / "photos.shards"):
        bagwise("search", index, query, "--page", tmp_path / f"{index.stem}.html")
    pages = [(tmp_path / name).read_text("utf-8").split("<main")[1] for name in ("one.html", "photos.html")]
    assert pages[0].count("data:image") == pages[1].count("data:image") > 5


def test_shards_by_url(texts, address, tmp_path):
    url = f"dir://x.shards::file://{tmp_path}"  # a URL for the library, which all processes reach
    given = ["index", texts / "texts.bagwise", texts / "texts.csv", "--out", url]
    assert "Only an index in shards is written to a URL" in bagwise(*given, code=1)
    bagwise(*given, "--scheduler", address, "--partition", 10)
    assert len(Storage.of(url).names()) == len(list((texts / "texts.shards").iterdir()))
    assert "exists already" in bagwise(*given, "--scheduler", address, code=1)
    query = ["-t", "ripe apple", "-k", 3]
    for where in ([], ["--scheduler", address]):
        assert searched(url, *query, *where) == searched(texts / "texts.shards", *query)


def test_shards_where_something_else_is_meant(texts, address, tmp_path):
    shards, one, query = texts / "texts.shards", texts / "texts.index", ["-t", "apple"]
    said = bagwise("explore", shards, "--no-open", code=1)
    assert "is an index in shards" in said
    assert said.rstrip().endswith("texts.index")
    assert "is an index in shards" in bagwise("explore", one, "--compare", shards, "--no-open", code=1)
    assert "cannot be searched by 'classes'" in bagwise("search", shards, *query, "--by", "classes", code=1)
    assert "is an index in one file" in bagwise("search", one, *query, "--scheduler", address, code=1)
    assert "--add and --remove do not change" in bagwise("index", shards, "--remove", "1", code=1)
    made = ["index", texts / "texts.bagwise", texts / "texts.csv", "--scheduler", address]
    for options, expected in (
        (["--out", shards], "exists already"),
        (["--map", "tsne"], "--map tsne is for an index in one file"),
        (["--metric", "chi2"], "--metric chi2 is for an index in one file"),
        (["--by", "both"], "--by 'both' is not for shards"),
    ):
        assert expected in bagwise(*made, *options, code=1)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    assert "is not an index" in bagwise("search", tmp_path / "photos", *query, code=1)
    (tmp_path / "empty.shards").mkdir()
    assert "is no finished index in shards" in bagwise("search", tmp_path / "empty.shards", *query, code=1)
    (tmp_path / "photos").rename(tmp_path / "p.shards")
    said = bagwise(*made, "--out", tmp_path / "p.shards", "--force", code=1)
    assert "is not a folder of shards: it holds a.jpg" in said
    again = ["fit", texts / "texts.csv", *OPTIONS, "--out", tmp_path / "empty.bagwise"]
    assert "empty.shards exists already" in bagwise(*again, "--scheduler", address, code=1)
    assert "is for new indexes" in bagwise("index", one, "--remove", "0", "--workers", "2", code=1)


def test_shards_hold_a_model(texts):
    told = as_json("info", texts / "texts.shards")
    assert told["index"] == {
        "n_items": len(open_collection(texts / "texts.csv")),
        "by": "words",
        "metric": "inner",
        "map": None,
        "source": str(texts / "texts.csv"),
    }
    answers = [as_json("predict", texts / name, "-t", "ripe apple") for name in ("texts.shards", "texts.bagwise")]
    assert answers[0] == answers[1]


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
    bagwise("index", photos / "photos.bagwise", url, "--out", tmp_path / "x.shards", "--scheduler", address)
    query = next((photos / "photos").rglob("*.png"))
    pages = [tmp_path / f"{k}.html" for k in range(3)]
    for page, where in zip(pages, ([], ["--source", url], ["--source", photos / "photos"]), strict=True):
        bagwise("search", tmp_path / "x.shards", query, "-k", 3, "--page", page, *where)
    shown = [page.read_text("utf-8").count("data:image") for page in pages]
    assert shown[1] == shown[2] == shown[0] + 3
