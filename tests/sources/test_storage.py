"""Sources by URL: as the same files on disk; hostile and failing storage."""

import os
import pickle
import subprocess
import sys
import tarfile

import fsspec
import numpy as np
import pytest

from bagwise import BagwiseError, open_collection
from bagwise._io.storage import Storage, Url, open_for_writing, redacted
from bagwise.app.modalities.steps import StepCache
from bagwise.descriptors.cache import ArrayCache, DamagedCacheWarning
from bagwise.sources import ItemError, Limits, SkippedItemsWarning
from bagwise.sources.contents import as_file
from small_sources import table, texts, write_image_folder, write_records, write_table, write_text_folder, zipped


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Sources on disk, and copies of them in memory, by name."""
    folder = tmp_path_factory.mktemp("places")
    write_image_folder(folder / "images", n_each=3)
    write_text_folder(folder / "texts", n_each=3)
    zipped(folder / "texts", folder / "texts.zip")
    for ending in ("tar", "tar.gz"):
        with tarfile.open(folder / f"texts.{ending}", "w:gz" if ending == "tar.gz" else "w") as archive:
            archive.add(folder / "texts", ".")
    for split in ("train", "test"):
        write_text_folder(folder / "split" / split, n_each=2)
    write_records(folder / "records.csv", n_each=4)
    (folder / "lines.jsonl").write_text("".join(f'{{"text": "{t}", "label": "{y}"}}\n' for t, y in texts(2)))
    write_table(folder / "table.csv", n_each=5)
    X, y = table(n_each=5)
    np.savez(folder / "table.npz", X=X, y=y, ids=[f"row {k}" for k in range(len(X))])
    system = fsspec.filesystem("memory")
    for path in folder.rglob("*"):
        if path.is_file():
            system.pipe_file(f"/places/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return folder


SOURCES = ["images", "texts", "texts.zip", "texts.tar", "texts.tar.gz", "split", "records.csv", "lines.jsonl"]
SOURCES += ["table.csv", "table.npz"]


def equal_items(one, two):
    assert one.ids == two.ids
    assert one.label_sets == two.label_sets
    assert one.splits == two.splits
    assert one.modality == two.modality
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.load(), b.load())


@pytest.mark.parametrize("name", SOURCES)
def test_a_url_gives_what_the_path_gives(places, name):
    local, remote = open_collection(places / name), open_collection(f"memory://places/{name}")
    equal_items(local, remote)
    equal_items(pickle.loads(pickle.dumps(remote)), local)
    assert [item.fingerprint() for item in local] == [item.fingerprint() for item in remote]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("where", ["path", "url"])
def test_partitions_have_all_items_once_in_order(places, name, where):
    whole = open_collection(places / name if where == "path" else f"memory://places/{name}")
    for given in ({"n": 4}, {"items_per_partition": 2}):
        parts = whole.partitions(**given)
        sent = [pickle.dumps(part) for part in parts]
        opened = [pickle.loads(one).open() for one in sent]
        assert [part.number for part in parts] == list(range(len(parts)))
        assert [id for one in opened for id in one.ids] == list(whole.ids)
        for part, one in zip(parts, opened, strict=True):
            equal_items(one, whole[part.start : part.start + part.n_items])
    sizes = [part.n_items for part in whole.partitions(4)]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 1


def test_partitions_keep_labels_given_from_outside_and_chosen_rows(places):
    whole = open_collection(places / "table.csv")
    chosen = whole[::2].with_labels({id: f"new {k % 2}" for k, id in enumerate(whole[::2].ids)})
    opened = [pickle.loads(pickle.dumps(part)).open() for part in chosen.partitions(3)]
    np.testing.assert_array_equal(np.concatenate([one.X for one in opened]), chosen.X)
    assert [labels for one in opened for labels in one.label_sets] == list(chosen.label_sets)


@pytest.mark.parametrize("given", [{"n": 0}, {"n": 2, "items_per_partition": 2}, {"items_per_partition": 1.5}])
def test_partitions_refuse(places, given):
    with pytest.raises(BagwiseError, match=r"partition|n "):
        open_collection(places / "texts").partitions(**given)


def test_chains_and_files(places):
    inside = open_collection("zip://::memory://places/texts.zip")
    equal_items(inside, open_collection(places / "texts"))
    one = open_collection("zip://fruit/000.txt::memory://places/texts.zip")
    assert one[0].load() == (places / "texts/fruit/000.txt").read_text()
    equal_items(open_collection(f"file://{places}/texts"), open_collection(places / "texts"))
    with pytest.raises(BagwiseError, match="storage_options= are for URLs"):
        open_collection(places / "texts", storage_options={"anon": True})


def test_labels_come_from_files_by_url(places):
    ids = open_collection(places / "texts").ids
    rows = "\n".join(f"{id},{k % 2}" for k, id in enumerate(ids))
    fsspec.filesystem("memory").pipe_file("/labels/l.csv", f"id,label\n{rows}\n".encode())
    found = open_collection("memory://places/texts", labels="memory://labels/l.csv")
    assert found.labels.tolist() == [str(k % 2) for k in range(len(ids))]


def test_local_paths_do_not_import_fsspec(places):
    code = f"import sys, bagwise; c = bagwise.open_collection({str(places / 'texts')!r}); c[0].load(); "
    code += "c.partitions(2); sys.exit('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://there/is/none", "does not exist"),
        ("nope://a", "Protocol not known: nope"),
        ("zip://a::memory://places/records.csv", "not a zip file"),
        ("memory://places/images?", "does not exist"),
    ],
)
def test_urls_that_cannot_be_opened(places, url, said):
    with pytest.raises(BagwiseError, match=said):
        open_collection(url)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(BagwiseError, match=r"gs:// needs gcsfs. Install it with: pip install gcsfs"):
        open_collection("gs://bucket/photos")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(BagwiseError, match=r'needs fsspec. Install it with: pip install "bagwise\[dask\]"'):
        open_collection("memory://places/texts")


def test_passwords_and_options_are_not_told():
    url = Url("https://me:secret@host:80/a.jpg?token=secret", {"key": "secret"})
    assert "secret" not in f"{url!r} {url} {os.fspath(url)} {redacted(url.url)}"
    assert os.fspath(url) == "https://host:80/a.jpg"
    assert url.name == "a.jpg"
    assert pickle.loads(pickle.dumps(url)) == url


class Faulty(fsspec.AbstractFileSystem):
    """Lists what it is told, and reads as it is told."""

    protocol = "faulty"
    cachable = False
    listed: tuple = ()
    fail: Exception | None = None

    def ls(self, path, detail=True, **options):
        found = [entry for entry in self.listed if entry["name"].rsplit("/", 1)[0] == path.rstrip("/")]
        return [*found, *(entry for entry in self.listed if entry.get("anywhere"))]

    def info(self, path, **options):
        return {"name": path, "type": "directory", "size": 0}

    def cat_file(self, path, start=None, end=None, **options):
        if self.fail is not None:
            raise self.fail
        return b"text"[start:end]


@pytest.fixture
def faulty():
    fsspec.register_implementation("faulty", Faulty, clobber=True)

    def set_up(*names, fail=None, size=4, **more):
        Faulty.fail = fail
        Faulty.listed = tuple({"name": name, "type": "file", "size": size, **more} for name in names)

    return set_up


@pytest.mark.parametrize(
    "name", ["b/../../etc/passwd.txt", "b//absolute.txt", "b/C:/x.txt", "b/a\\..\\x.txt", "b/nul\0.txt", "other/x.txt"]
)
def test_names_that_lead_elsewhere_are_refused(faulty, name):
    faulty(name, anywhere=True)
    with pytest.raises(BagwiseError, match="refused"):
        open_collection("faulty://b/")


def test_long_and_endless_lists_are_refused(faulty):
    faulty(*(f"b/{k}.txt" for k in range(20)))
    with pytest.raises(BagwiseError, match="more than 10 files and folders, the limit members is 10"):
        open_collection("faulty://b/", limits=Limits(members=10))

    class Endless(Faulty):
        def ls(self, path, detail=True, **options):
            return [{"name": f"{path}/a", "type": "directory", "size": 0}]

    fsspec.register_implementation("faulty", Endless, clobber=True)
    with pytest.raises(BagwiseError, match="more than 100 levels deep"):
        open_collection("faulty://b")


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (FileNotFoundError("b/1.txt"), "it does not exist, or no longer"),
        (PermissionError("Forbidden"), r"access is denied .* pass storage_options="),
        (RuntimeError("Unable to locate credentials"), "access is denied"),
        (TimeoutError(), "cannot be read: TimeoutError"),
        (KeyError("odd"), "cannot be read: KeyError"),
    ],
)
def test_failing_reads_are_errors_of_items(faulty, fail, said):
    faulty("b/1.txt", "b/2.txt")
    found = open_collection("faulty://b", modality="texts")
    assert found[1].load() == "text"
    faulty("b/1.txt", "b/2.txt", fail=fail)
    with pytest.raises(ItemError, match=said):
        found[0].load()


def test_files_that_vanish_or_change_are_skipped(places):
    system = fsspec.filesystem("memory")
    for k in range(4):
        system.pipe_file(f"/moving/{k}.txt", b"one text")
    found = open_collection("memory://moving")
    system.rm_file("/moving/1.txt")
    system.pipe_file("/moving/2.txt", b"another text")
    with pytest.warns(SkippedItemsWarning, match="2 of 4 items"):
        read = {item.id: text for item, text in found.load(on_error="skip")}
    assert read == {"0.txt": "one text", "3.txt": "one text"}
    system.pipe_file("/moving/4.txt", b"new")
    assert "4.txt" in open_collection("memory://moving").ids  # lists are not kept


def test_archives_that_change_are_noticed(places):
    system = fsspec.filesystem("memory")
    for name in ("texts.zip", "texts.tar"):
        content = (places / name).read_bytes()
        system.pipe_file(f"/changing/{name}", content)
        found = open_collection(f"memory://changing/{name}")
        system.pipe_file(f"/changing/{name}", content[:-100])
        with pytest.raises(BagwiseError, match="was changed"):
            found[0].load()


def test_large_files_are_read_in_parts(places, monkeypatch):
    from bagwise.sources import contents

    monkeypatch.setattr(contents, "_AT_ONCE", 10)
    monkeypatch.setattr(contents, "_BLOCK", 64)
    contents._block.cache_clear()
    for name in ("images", "texts.zip", "texts.tar", "records.csv"):
        equal_items(open_collection(f"memory://places/{name}"), open_collection(places / name))


@pytest.mark.parametrize("where", ["path", "url"])
def test_storage_of_results(tmp_path, where):
    folder = Storage.of(tmp_path / "results" if where == "path" else "memory://results of a test")
    assert folder.names() == []
    folder.write("a/1.bin", b"one")
    folder.write("a/1.bin", b"two")
    folder.write("2.bin", b"")
    again = pickle.loads(pickle.dumps(folder))
    assert again.names() == ["2.bin", "a/1.bin"]
    assert (again.read("a/1.bin"), again.exists("a/1.bin"), again.exists("a")) == (b"two", True, False)
    again.remove("a/1.bin")
    again.remove("a/1.bin")
    assert folder.names() == ["2.bin"]
    with pytest.raises(BagwiseError, match=r"cannot be read|does not exist"):
        folder.read("a/1.bin")


class Plain(fsspec.get_filesystem_class("memory")):
    """A file system that shows files while they are written; `during` is called in the middle of that."""

    protocol = "plain"
    store, pseudo_dirs, keys = {}, [""], []
    during = None

    def __init__(self, key=None, **options):
        Plain.keys.append(key)
        super().__init__(**options)

    def pipe_file(self, path, value, **options):
        super().pipe_file(path, value[: len(value) // 2], **options)
        if Plain.during is not None:
            during, Plain.during = Plain.during, None
            during()
        super().pipe_file(path, value, **options)


@pytest.fixture
def plain():
    fsspec.register_implementation("plain", Plain, clobber=True)
    Plain.store.clear()
    Plain.keys.clear()
    return Storage.of("plain://results")


def test_two_writers_of_one_file_do_not_meet(plain):
    seen = []

    def meanwhile():
        seen.append(plain.names())  # what is not complete has no name
        plain.write("a/1", b"another")
        seen.append((plain.names(), plain.read("a/1")))

    Plain.during = meanwhile
    plain.write("a/1", b"content")
    assert seen == [[], (["a/1"], b"another")]
    assert (plain.names(), plain.read("a/1")) == (["a/1"], b"content")
    assert len(Plain.store) == 1


@pytest.mark.parametrize("error", [RuntimeError("the disk is full"), KeyboardInterrupt()])
def test_what_was_not_written_is_removed(plain, error):
    def fail():
        assert len(Plain.store) == 1
        raise error

    Plain.during = fail
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else BagwiseError):
        plain.write("1", b"content")
    assert not Plain.store
    Plain.store["/results/left.0123.part"] = None  # of a process that was killed
    assert plain.names() == []


def test_a_cache_by_url_is_opened_with_its_options(plain, tmp_path):
    cache, arrays = Url("plain://me:word@cache/of tests", {"key": "mine"}), {"a": np.arange(3)}
    steps = StepCache(cache, {}, lambda *step: None)
    steps.save("words", "of vectors", {}, arrays)
    np.testing.assert_array_equal(steps.load("words", "of vectors", {}, "words")["a"], arrays["a"])
    assert set(Plain.keys) == {"mine"}
    assert Storage(cache).names()[0].startswith("words/")
    (path,) = Plain.store
    Plain.store[path].seek(20)
    Plain.store[path].write(b"damaged")
    with pytest.warns(DamagedCacheWarning, match=r"^plain://cache/of tests/words/.* cannot be used") as told:
        assert steps.load("words", "of vectors", {}, "words") is None
    assert "word@" not in str(told[0].message)
    ArrayCache(f"file://{tmp_path}/local", {}).save("x", arrays)
    assert len(list((tmp_path / "local").rglob("*.arrays"))) == 1


def test_files_at_the_root_of_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Storage.of("memory://").write("at the root", b"x")
    with open_for_writing("memory://also there") as file:
        file.write(b"y")
    system = fsspec.filesystem("memory")
    assert (system.cat_file("/at the root"), system.cat_file("/also there")) == (b"x", b"y")
    assert Storage.of("memory://").read("at the root") == b"x"
    assert not list(tmp_path.iterdir())
    system.rm(["/at the root", "/also there"])


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(BagwiseError, match="cannot be written as a folder"):
        Storage.of(tmp_path / "file").write("a", b"x")
    with pytest.raises(BagwiseError, match="is a file, and no folder"):
        Storage.of(tmp_path / "file").names()


@pytest.mark.parametrize(
    "url",
    [
        "https://h/a?token=x:secret",
        "https://h:80/a:b/c?token=secret",
        "https://me:a@secret@h/a",
        "HTTPS://h/?x=secret",
        "403, url='https://h/a:b?sig=a/secret' (denied)",
        "zip://a::https://h/b.zip?token=secret",
    ],
)
def test_secrets_of_urls_are_redacted(url):
    assert "secret" not in redacted(url)
    assert redacted("zip://a::https://h/b.zip?x=1::s3://c") == "zip://a::https://h/b.zip::s3://c"


def test_servers_that_send_whole_files(monkeypatch):
    system, content = fsspec.filesystem("memory"), os.urandom(3 << 20)
    system.pipe_file("/whole/a.bin", content)
    read = type(system).cat_file
    monkeypatch.setattr("bagwise.sources.contents._BLOCK", 1 << 20)
    monkeypatch.setattr(type(system), "cat_file", lambda self, path, start=None, end=None: read(self, path))
    file = as_file("memory://whole/a.bin")
    for offset, size in ((0, 10), (1 << 20, 10), ((2 << 20) - 5, 10), (5, 2 << 20), ((3 << 20) - 5, 10)):
        assert file.read(offset, size) == content[offset : offset + size]


@pytest.mark.parametrize("size", [5, None])
def test_files_that_are_too_large_are_not_read(size, monkeypatch):
    """Not every server tells sizes."""
    folder = Storage.of("memory://sizes")
    folder.write("a", b"12345")
    system = folder.location.opened()[0]
    info = type(system).info
    monkeypatch.setattr(type(system), "info", lambda self, path, **more: info(self, path, **more) | {"size": size})
    assert folder.read("a", 5) == b"12345"
    with pytest.raises(BagwiseError, match="has 5 bytes; at most 4 are read"):
        folder.read("a", 4)
