"""Manifests and shards: the items of what they list, lazily, in parts; hostile ones."""

import io
import json
import pickle
import tarfile
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import pandas as pd
import pytest

from bagwise import BagwiseError, open_collection
from bagwise._io.storage import Url
from bagwise.sources import Limits, write_manifest
from bagwise.sources.manifests import ManifestFile, ManifestRoot
from small_sources import images, png, texts, write_image_folder, write_text_folder

MANIFESTS = [".csv", ".tsv", ".jsonl", ".parquet"]


def equal_items(one, two):
    assert one.ids == two.ids
    assert one.label_sets == two.label_sets
    assert one.splits == two.splits
    assert one.modality == two.modality
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.load(), b.load())


def write_frame(frame, path, **options):
    kinds = {".csv": frame.to_csv, ".parquet": frame.to_parquet}
    if path.suffix == ".tsv":
        frame.to_csv(path, sep="\t", index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        kinds[path.suffix](path, index=False, **options)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listed")
    write_image_folder(folder / "images", parts=("train", "test"), n_each=2)
    write_text_folder(folder / "texts", n_each=3)
    system = fsspec.filesystem("memory")
    for path in folder.rglob("*.*"):
        system.pipe_file(f"/listed/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return folder


@pytest.mark.parametrize("ending", MANIFESTS)
@pytest.mark.parametrize("source", ["images", "memory://listed/texts"])
def test_a_manifest_gives_what_was_listed(folder, tmp_path, source, ending):
    listed = open_collection(source if "://" in source else folder / source)
    path = write_manifest(listed, tmp_path / f"m{ending}")
    found = open_collection(path)
    equal_items(found, listed)
    equal_items(pickle.loads(pickle.dumps(found)), listed)
    chosen = found[[3, 0, 2]]
    equal_items(chosen, listed[[3, 0, 2]])
    equal_items(chosen[::-1], listed[[2, 0, 3]])
    for part in found.partitions(3):
        equal_items(pickle.loads(pickle.dumps(part)).open(), listed[part.start : part.start + part.n_items])
    assert write_manifest(found, tmp_path / f"again{ending}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_of_a_manifest_that_are_not_used_are_told(folder, ending):
    listed = open_collection(folder / "texts")
    columns = {"url": [f"texts/{id}" for id in listed.ids], "species": listed.labels}
    path = write_frame(pd.DataFrame({**columns, "label": "x"}), folder / f"all{ending}")
    assert open_collection(path).notes == ("The column 'species' is not used.",)
    path = write_frame(pd.DataFrame(columns), folder / f"species{ending}")
    proposed, unused = open_collection(path).notes
    assert proposed.endswith("If 'species' holds the labels: label='species'")
    assert unused == "The column 'species' is not used."
    assert open_collection(path, label="species").notes == ()
    assert open_collection(path, labels=dict.fromkeys(columns["url"], "x")).notes == (unused,)


def test_relative_urls_are_relative_to_the_manifest(folder):
    listed = open_collection(folder / "images")
    path = write_manifest(listed, folder / "images.csv")
    assert pd.read_csv(path).url.tolist() == [f"images/{id}" for id in listed.ids]
    fsspec.filesystem("memory").pipe_file("/listed/images.csv", path.read_bytes())
    equal_items(open_collection("memory://listed/images.csv"), listed)
    remote = write_manifest(open_collection("memory://listed/images"), "memory://listed/by url.parquet")
    equal_items(open_collection(remote), listed)
    assert open_collection(remote)[0].source.startswith("memory://listed/images/")


@pytest.mark.parametrize("ending", MANIFESTS)
def test_columns_can_be_chosen(folder, tmp_path, ending):
    listed = open_collection(folder / "images")
    urls = [str(folder / "images" / id) for id in listed.ids]
    frame = pd.DataFrame({"url": urls, "kind": np.arange(len(urls)) % 2, "fold": ["Train", ""] * (len(urls) // 2)})
    path = write_frame(frame, tmp_path / f"m{ending}")
    found = open_collection(path, label="kind", split="fold")
    assert found.labels.tolist() == ["0", "1"] * (len(urls) // 2)
    assert list(found.splits) == ["train", None] * (len(urls) // 2)
    assert list(found.ids) == urls
    assert [item.label for item in open_collection(path)] == [None] * len(urls)
    equal_items(open_collection(path, "images"), open_collection(path))
    with pytest.raises(BagwiseError, match="there is no column 'species'; there are 'url', 'kind', 'fold'"):
        open_collection(path, label="species")


@pytest.mark.parametrize("ending", MANIFESTS)
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"url": ["a.jpg", "b.jpg", "a.jpg"]}, "2 items with the id 'a.jpg', such as items 1 and 3"),
        ({"url": ["a.jpg", "b.jpg"], "id": ["x", "x"]}, "2 items with the id 'x', such as items 1 and 2"),
        ({"url": ["a.jpg", ""], "label": ["x", "y"]}, "no url"),
        ({"url": ["a.jpg", "b.jpg"], "offset": [0, 1]}, "needs columns size and id"),
        ({"url": ["a.jpg"], "size": ["many"]}, "whole number"),
        ({"url": ["a.nothing"]}, "lists no images, texts or videos"),
        ({"url": ["a.jpg", "b.txt"]}, "holds 1 image and 1 text"),
    ],
)
def test_manifests_that_are_refused(tmp_path, ending, rows, said):
    with pytest.raises(BagwiseError, match=said):
        open_collection(write_frame(pd.DataFrame(rows), tmp_path / f"m{ending}"))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("modality", ["auto", "images"])
def test_an_empty_manifest_is_refused(tmp_path, ending, modality):
    path = write_frame(pd.DataFrame({"url": pd.Series([], dtype=str)}), tmp_path / f"m{ending}")
    with pytest.raises(BagwiseError, match=rf"m{ending} cannot be used as a manifest: it has no rows"):
        open_collection(path, modality=modality)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    "url",
    [
        "/etc/a.jpg",
        "file:///etc/a.jpg",
        "../../a.jpg",
        "zip://a.jpg::file:///a.zip",
        "C:\\a.jpg",
        "simplecache::/etc/a.jpg",
        "zip://a.jpg::/a.zip",
        "x y::/etc/a.jpg",
        "reference::s3://b/a.jpg",
        "git://r:a.jpg",
    ],
)
def test_a_manifest_by_url_names_no_local_files(tmp_path, ending, url):
    path = write_frame(pd.DataFrame({"url": ["b.jpg", url]}), tmp_path / f"m{ending}")
    fsspec.filesystem("memory").pipe_file(f"/foreign/m{ending}", path.read_bytes())
    with pytest.raises(BagwiseError, match="name files of this machine"):
        open_collection(f"memory://foreign/m{ending}")


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_manifest_by_url_names_stores_and_servers(tmp_path, ending):
    urls = ["b c:d.jpg", "s3://b/a:b.jpg", "https://host:80/a.jpg?x=1", "zip://a.jpg::s3://b/a.zip", "memory://a.jpg"]
    path = write_frame(pd.DataFrame({"url": urls}), tmp_path / f"m{ending}")
    fsspec.filesystem("memory").pipe_file(f"/foreign/m{ending}", path.read_bytes())
    assert list(open_collection(f"memory://foreign/m{ending}").ids) == urls


def test_a_manifest_by_url_does_not_choose_who_gets_credentials():
    place = ManifestRoot.of(ManifestFile(Url("https://host/m.csv", {"token": "x"}), Limits(), options={"token": "x"}))
    given = {url: place.content(url, url).base.options for url in (
        "a.jpg", "https://host/a.jpg", "https://other/a.jpg", "http://host/a.jpg", "s3://host/a.jpg")}  # fmt: skip
    assert [url for url, options in given.items() if options] == ["a.jpg", "https://host/a.jpg"]
    place = ManifestRoot.of(ManifestFile(Url("s3://bucket/m.csv", {"key": "x"}), Limits()))
    assert place.content("a", "s3://other/a.jpg").base.options == {"key": "x"}


def test_a_manifest_names_files_in_zip_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "one text")
    path = write_frame(pd.DataFrame({"url": [f"zip://a.txt::{tmp_path}/a.zip"]}), tmp_path / "m.csv")
    assert [item.load() for item in open_collection(path)] == ["one text"]


def test_whole_files_and_parts_are_listed_together(tmp_path):
    (tmp_path / "parts.bin").write_bytes(b"one text")
    (tmp_path / "b.txt").write_bytes(b"another")
    rows = {"id": ["a.txt", "b"], "url": ["parts.bin", "b.txt"], "offset": ["4", ""], "size": ["4", ""]}
    found = open_collection(write_frame(pd.DataFrame(rows), tmp_path / "m.csv"))
    assert (found.modality, [item.load() for item in found]) == ("texts", ["text", "another"])
    assert [part.open().ids for part in found.partitions(2)] == [["a.txt"], ["b"]]


def test_sizes_of_a_manifest_are_not_believed(tmp_path):
    (tmp_path / "parts.bin").write_bytes(b"a text")
    rows = {"id": ["a.txt"], "url": ["parts.bin"], "offset": [0], "size": [10**17]}
    found = open_collection(write_frame(pd.DataFrame(rows), tmp_path / "m.csv"))
    with pytest.raises(BagwiseError, match="ends before this part"):
        found[0].load()


def test_limits_of_manifests(tmp_path):
    frame = pd.DataFrame({"url": [f"{k}.jpg" for k in range(20)], "label": ["x" * 50] * 20})
    for ending in MANIFESTS:
        path = write_frame(frame, tmp_path / f"m{ending}")
        for limits, said in ((Limits(rows=10), "rows is 10"), (Limits(label_length=9), "label_length")):
            with pytest.raises(BagwiseError, match=said):
                open_collection(path, limits=limits)


def test_partitions_of_manifests_carry_their_rows(tmp_path):
    n = 5000
    frame = pd.DataFrame(
        {"url": [f"s3://bucket/{'long' * 50}/{k}.jpg" for k in range(n)], "label": ["x", "y"] * (n // 2)}
    )
    path = write_frame(frame, tmp_path / "m.parquet", row_group_size=300)
    found = open_collection(path)
    assert max(len(pickle.dumps(part)) for part in found.partitions(2)) < 20 * n  # URLs take ten times as much
    assert found.ids == frame.url.tolist()
    assert found[4321].id == frame.url[4321]
    assert [item.id for item in found[1000:4000]] == frame.url[1000:4000].tolist()
    sent = pickle.dumps(found.partitions(3)[1])
    path.unlink()
    opened = pickle.loads(sent).open()
    assert [(item.id, item.label) for item in opened] == list(zip(frame.url, frame.label, strict=True))[1667:3334]


def test_a_fit_from_a_manifest_is_that_from_the_folder(folder, tmp_path):
    from bagwise import fit_model

    path = write_manifest(open_collection(folder / "texts"), tmp_path / "texts.parquet")
    options = {"n_groups": 3, "folds": 0}
    assert fit_model(path, **options).hierarchy == fit_model(folder / "texts", **options).hierarchy


def add(archive, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Shards of images with .cls and captions, and of texts with .json; also in memory."""
    folder = tmp_path_factory.mktemp("shards")
    pictures = [(png(pixels), label) for pixels, label in images(4, color=True)]
    for number in range(3):
        with tarfile.open(folder / f"images-{number:03}.tar", "w") as archive:
            for k, (content, label) in enumerate(pictures[number::3]):
                for name, inside in (
                    (".jpg", content),
                    (".cls", label.encode()),
                    (".seg.png", b"x"),
                    (".txt", b"words"),
                ):
                    add(archive, f"{number}{k:04}{name}", inside)
            add(archive, "__meta__", b"nothing")
    (folder / "texts").mkdir()
    for number in range(2):
        with tarfile.open(folder / "texts" / f"{number}.tar.gz", "w:gz") as archive:
            for k, (text, label) in enumerate(texts(2)[number::2]):
                add(archive, f"a/{k}.txt", f"{text} {number}".encode())
                add(archive, f"a/{k}.json", json.dumps({"label": label, "year": 1900 + k}).encode())
    system = fsspec.filesystem("memory")
    for path in folder.rglob("*.tar*"):
        system.pipe_file(f"/shards/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return folder


PATTERNS = ["images-{000..002}.tar", "images-*.tar", "{images-000,images-001,images-002}.tar"]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("where", ["path", "url"])
def test_shards_are_read_as_samples(shards, pattern, where):
    place = f"{shards}/{pattern}" if where == "path" else f"memory://shards/{pattern}"
    found = open_collection(place)
    pictures = images(4, color=True)
    assert found.modality == "images"
    assert found.ids[0] == "images-000.tar/00000.jpg"
    assert found.labels.tolist() == [label for number in range(3) for _, label in pictures[number::3]]
    expected = open_collection(place, "images", mode="rgb")
    for item, (pixels, _) in zip(expected, [one for number in range(3) for one in pictures[number::3]], strict=True):
        np.testing.assert_array_equal(item.load(), pixels)
    assert open_collection(place, label="txt").labels.tolist() == ["words"] * len(found)


def test_shards_stay_together(shards, tmp_path):
    whole = open_collection(shards / "images-*.tar")
    listed = open_collection(write_manifest(whole, tmp_path / "shards.parquet"))
    equal_items(listed, whole)
    for collection in (whole, listed):
        assert [part.n_items for part in collection.partitions(3)] == [4, 4, 4] or len(whole) != 12
        for given in ({"n": 2}, {"items_per_partition": 1}, {"n": 100}):
            parts = collection.partitions(**given)
            files = [{id.split("/")[0] for id in pickle.loads(pickle.dumps(part)).open().ids} for part in parts]
            assert sum(map(len, files)) == 3
            assert [id for part in parts for id in part.open().ids] == list(whole.ids)


def test_samples_of_shards_take_little_memory(tmp_path):
    n_each, n_shards = 200, 5
    for number in range(n_shards):
        with tarfile.open(tmp_path / f"s-{number}.tar", "w") as archive:
            for k in range(n_each):
                add(archive, f"{number}{k:06}.txt", b"text")
                add(archive, f"{number}{k:06}.cls", b"ab"[k % 2 : k % 2 + 1])
    whole = open_collection(tmp_path)
    tracemalloc.start()
    same = open_collection(tmp_path)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert same == whole
    assert held < 180 * len(whole)  # twice as much as items
    assert all(len(pickle.dumps(part)) < 60 * n_each for part in whole.partitions(n_shards))
    chosen = whole[::3].with_splits(dict.fromkeys(whole[::3].ids, "train"))
    sent = pickle.loads(pickle.dumps(chosen))
    assert sent == chosen
    assert (sent.ids, set(sent.splits)) == (whole.ids[::3], {"train"})
    assert [item.load() for item in sent[:2]] == ["text"] * 2


def test_others_may_list_shards(shards):
    """In parts, as the built-in `map` would; other sources need no lists of shards."""
    for place in (shards / "images-*.tar", "memory://shards/images-{000..002}.tar", shards / "texts"):
        lengths = []

        def listed(function, parts, lengths=lengths):
            lengths.extend(map(len, parts))
            return map(pickle.loads(pickle.dumps(function)), pickle.loads(pickle.dumps(parts)))

        found = open_collection(place, mapping=listed)
        assert found == open_collection(place)
        assert lengths == [1] * len({id.split("/")[0] for id in found.ids})
        equal_items(found, open_collection(place))
    with ThreadPoolExecutor(2) as pool:
        assert open_collection(shards / "images-*.tar", mapping=pool.map).ids[0] == "images-000.tar/00000.jpg"


def test_texts_in_shards_have_labels_of_json(shards):
    found = open_collection(shards / "texts")
    assert set(found.labels) == {"fruit", "tools", "birds"}
    assert open_collection(shards / "texts", label="year").labels[0] == "1900"
    assert "0.tar.gz/a/0.txt" in found.ids


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("none-*.tar", "There is no file"),
        ("images-{000,000}.tar", "has the shard 'images-000.tar' twice"),
        ("x-{0..99999999999}.tar", "stands for more than 1,000,000 files"),
        ("images-{000..009}.tar", "No such file|does not exist"),
    ],
)
def test_patterns_that_are_refused(shards, pattern, said):
    for place in (f"{shards}/{pattern}", f"memory://shards/{pattern}"):
        with pytest.raises(BagwiseError, match=said):
            open_collection(place, modality="images")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("../a.jpg", b"x")], "leads out of the archive"),
        ([("a.jpg", b"x"), ("a.json", b"[")], "is not JSON"),
        ([("a.jpg", b"x"), ("a.json", b'{"label": ["x"]}')], "JSON list"),
        ([("a.jpg", b"x"), ("a.cls", b"x" * 2000)], "label_length"),
        ([("a.bin", b"x")], "lists no images|holds no images"),
    ],
)
def test_shards_that_are_refused(tmp_path, members, said):
    with tarfile.open(tmp_path / "s-0.tar", "w") as archive:
        for name, content in members:
            add(archive, name, content)
    with pytest.raises(BagwiseError, match=said):
        open_collection(tmp_path / "s-*.tar")


def test_what_cannot_be_listed(folder, tmp_path):
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    with pytest.raises(BagwiseError, match="lists files and parts of tar files"):
        write_manifest(open_collection(write_frame(X, tmp_path / "t.csv")), tmp_path / "m.csv")
    with pytest.raises(BagwiseError, match=r"must end in .csv"):
        write_manifest(open_collection(folder / "texts"), tmp_path / "m.xlsx")
