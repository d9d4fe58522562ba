import itertools
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bagwise import BagwiseError, open_collection
from bagwise.sources import Collection, Item, ItemError, SkippedItemsWarning, places, write_manifest
from bagwise.sources.contents import FileContent
from bagwise.sources.media import TextDecoder
from bagwise.sources.places import arrange, ending
from small_sources import write_text_folder

TEXTS = {"train/cat/1.txt": "meow", "train/cat/10.txt": "purr", "train/dog/2.txt": "woof", "test/dog/3.txt": "growl"}


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "animals", TEXTS)


def write(folder, texts):
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_a_folder_of_texts(folder):
    animals = open_collection(folder)
    assert animals.ids == sorted(TEXTS)
    assert animals.modality == "texts"
    assert animals.labels.tolist() == ["dog", "cat", "cat", "dog"]
    assert animals.label_sets == [("dog",), ("cat",), ("cat",), ("dog",)]
    assert animals.splits == ["test", "train", "train", "train"]
    assert {item.id: text for item, text in animals.load()} == TEXTS
    assert animals[0].source == str(folder / "test/dog/3.txt")
    assert repr(animals).startswith("<Collection: 4 texts, 2 classes, 1 in test, 3 in train, from ")
    assert repr(animals[0]) == "<Item 'test/dog/3.txt' labelled dog in test>"


def test_choosing_items(folder):
    animals = open_collection(folder)
    ids = np.array(animals.ids)
    for key in (slice(1, 3), slice(None, None, -1), [2, 0], animals.labels == "cat", np.array([3]), []):
        assert animals[key].ids == ids[key if len(np.atleast_1d(key)) else slice(0)].tolist()
    assert animals[-1].id == ids[-1]
    assert animals[np.int64(1)].id == ids[1]
    with pytest.raises(IndexError):
        animals[4]
    with pytest.raises(IndexError, match=r"There is no item 9"):
        animals[[9]]
    with pytest.raises(BagwiseError, match=r"one entry per item, 4; got 1"):
        animals[[True]]


def test_parts(folder):
    animals = open_collection(folder)
    train, test = animals.split()
    assert (train.ids, test.ids) == (animals.ids[1:], animals.ids[:1])
    assert animals.split("test")[0] == test
    with pytest.raises(BagwiseError, match=r"has no split 'validation'. It has the splits 'test', 'train'"):
        animals.split("train", "validation")
    with pytest.raises(BagwiseError, match=r"It has no splits"):
        open_collection(folder, splits=None).split()
    assert set(open_collection(folder, labels=None).labels) == {None}


@pytest.mark.parametrize(
    ("names", "labels", "splits"),
    [
        (["a.txt", "b.txt"], [None, None], [None, None]),
        (["cat/a", "dog/b"], ["cat", "dog"], [None, None]),
        (["cat/a", "cat/b"], ["cat", "cat"], [None, None]),
        (["cat/a", "b"], ["cat", None], [None, None]),
        (["cat/a", "train/b"], ["cat", "train"], [None, None]),
        (["data/cat/a", "data/dog/b"], ["cat", "dog"], [None, None]),
        (["data/train/cat/a", "data/Test/dog/b"], ["cat", "dog"], ["train", "test"]),
        (["training/cat/old/a", "val/b"], ["cat", None], ["train", "validation"]),
        (["train/cat/a", "train/dog/b"], ["cat", "dog"], ["train", "train"]),
        (["a/b/c/1", "a/b/d/2"], ["c", "d"], [None, None]),
    ],
)
def test_what_folders_say(names, labels, splits):
    assert arrange(names) == (labels, splits)


def test_loading_stops_at_what_cannot_be_read(tmp_path):
    write(tmp_path, {"a.txt": "good", "b.txt": b"caf\xe9", "c.txt": "fine"})
    texts = open_collection(tmp_path, encoding="utf-8")
    with pytest.raises(ItemError, match=r"Cannot read 'b.txt': byte 3 \(0xe9\) is not .*encoding=") as caught:
        list(texts.load())
    assert caught.value.id == "b.txt"
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.id, copy.reason, str(copy)) == ("b.txt", caught.value.reason, str(caught.value))


def test_what_cannot_be_read_is_skipped_and_told(tmp_path):
    write(tmp_path, {"a.txt": "good", "b.txt": b"caf\xe9", "c.txt": "fine"})
    loading = open_collection(tmp_path, encoding="utf-8").load(on_error="skip")
    with pytest.warns(SkippedItemsWarning, match=r"1 of 3 items of .* was skipped: b.txt: byte 3") as caught:
        assert [text for _, text in loading] == ["good", "fine"]
    assert caught[0].filename == __file__
    assert [id for id, _ in loading.skipped] == ["b.txt"]
    assert "byte 3" in loading.skipped[0].reason
    assert [text for _, text in open_collection(tmp_path, encoding="latin-1").load()][1] == "café"


def test_nothing_readable_is_an_error_in_any_case(tmp_path):
    write(tmp_path, {f"{i}.txt": b"\xff" for i in range(5)})
    with pytest.raises(BagwiseError, match=r"None of the 5 items of .* could be read. 0.txt: byte 0 .*; …"):
        list(open_collection(tmp_path, encoding="utf-8").load(on_error="skip"))


def test_a_file_that_went_away_is_reported(folder):
    animals = open_collection(folder)
    (folder / "train/cat/1.txt").unlink()
    with pytest.raises(ItemError, match=r"Cannot read 'train/cat/1.txt': No such file or directory"):
        list(animals.load())
    with pytest.raises(ItemError, match=r"No such file"):
        animals[1].fingerprint()


def test_on_error_is_checked(folder):
    with pytest.raises(BagwiseError, match=r"Unknown on_error: 'ignore'. Accepted: 'raise', 'skip'"):
        open_collection(folder).load(on_error="ignore")


def test_fingerprints_are_of_what_load_gives(folder, tmp_path):
    write(tmp_path / "copy", TEXTS)
    animals, copy = open_collection(folder), open_collection(tmp_path / "copy")
    first = [item.fingerprint() for item in animals]
    assert len(set(first)) == 4
    assert first == [item.fingerprint() for item in copy]
    assert first[0] != open_collection(folder, encoding="latin-1")[0].fingerprint()
    write(folder, {"test/dog/3.txt": "growL"})
    assert [item.fingerprint() != old for item, old in zip(animals, first, strict=True)] == [True, False, False, False]


def test_other_threads_and_processes_read_the_same(folder):
    animals = open_collection(folder)
    assert pickle.loads(pickle.dumps(animals)) == animals
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda i: animals[i % 4].load(), range(200))) == [
            animals[i % 4].load() for i in range(200)
        ]
    script = "import pickle, sys; print([item.load() for item in pickle.load(sys.stdin.buffer)])"
    result = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(list(animals)), capture_output=True, check=True
    )
    assert result.stdout.decode().strip() == str([text for _, text in animals.load()])


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_label_and_split_files(folder, tmp_path, ending):
    comma = {"csv": ",", "tsv": "\t"}[ending]
    rows = [("id", "label", "note"), *[(id, f"kind{i % 2}", "") for i, id in enumerate(sorted(TEXTS))]]
    write(tmp_path, {f"labels.{ending}": "\n".join(comma.join(row) for row in rows)})
    animals = open_collection(folder, labels=tmp_path / f"labels.{ending}", splits=dict.fromkeys(TEXTS, "dev"))
    assert animals.labels.tolist() == ["kind0", "kind1"] * 2
    assert set(animals.splits) == {"dev"}
    assert animals.with_labels({id: ["a", "b"] for id in TEXTS}).label_sets == [("a", "b")] * 4
    assert animals.with_labels(dict.fromkeys(TEXTS)).labels.tolist() == [None] * 4
    write(
        tmp_path,
        {"some.csv": "id,label\n" + "".join(f"{id},{id[5:8]}\n" for id in sorted(TEXTS)[1:]) + "test/dog/3.txt,\n"},
    )
    assert animals.with_labels(tmp_path / "some.csv").labels[0] is None


def test_what_a_file_of_labels_holds_beside_is_told(folder, tmp_path):
    listed = open_collection(folder)
    rows = "".join(f"{id},{n % 2},{n},{n}\n" for n, id in enumerate(listed.ids))
    (tmp_path / "labels.csv").write_text("filename,class,target,age\n" + rows)
    labelled = open_collection(folder, labels=str(tmp_path / "labels.csv"))
    assert labelled.notes == (
        "Labels are in the column 'class'; label= chooses another one, such as 'target'.",
        "The columns 'target', 'age' are not used.",
    )


def test_several_labels(folder):
    animals = open_collection(folder, labels={id: ["a", "b"] for id in TEXTS})
    with pytest.raises(BagwiseError, match=r"has 2 labels.*Use .labels"):
        animals.labels  # noqa: B018


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "id,label\n9.txt,cat\n",
            r"none of its 1 row names an item of .*, the first is '9.txt'; items",
        ),
        ("who,label\n", r"none of its columns is named id, filename.*; there are 'who', 'label'. Choose .* by id="),
        ("id,a,b\n", r"none of its columns is named label, .*; there are 'id', 'a', 'b'. Choose one by label="),
        ("id,label\n1,a\ncat/1.txt,b\n", r"item 'train/cat/1.txt' is there twice, as '1' and 'cat/1.txt'"),
        ("id,label,split\n1,a,test\n1,a,train\n", r"item 'train/cat/1.txt' is in two splits there, 'test' and 'train'"),
        ("id,label\na\n", "row 1: it has 1 field, expected 2"),
        ('id,label\n"a,b', 'cannot be used for labels: row 1: the quote " that opens in line 2 is not closed'),
        ("", r"it is empty"),
    ],
)
def test_label_files_that_do_not_match(folder, tmp_path, content, message):
    write(tmp_path, {"labels.csv": content})
    with pytest.raises(BagwiseError, match=message):
        open_collection(folder, labels=tmp_path / "labels.csv")


def test_labels_that_are_none(folder, tmp_path):
    with pytest.raises(BagwiseError, match=r"labels must be a mapping from ids.*got int"):
        open_collection(folder, labels=3)
    with pytest.raises(BagwiseError, match=r"There is no file .*nothing.csv"):
        open_collection(folder, labels=tmp_path / "nothing.csv")
    with pytest.raises(BagwiseError, match=r"is in the splits"):
        open_collection(folder, splits={id: ["train", "test"] for id in TEXTS})


def test_ids_must_differ():
    item = Item("a", FileContent("a.txt"), TextDecoder())
    with pytest.raises(BagwiseError, match=r"has 2 items with the id 'a'"):
        Collection.of([item, item], "texts", "here")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, "holds no images, texts, records or videos; it is empty"),
        (
            {"a.xyz": "", "b.xyz": "", "c": ""},
            "its 3 files are: 2 .xyz, 1 without an ending. Accepted: .*jpg.* more by modality= and extensions=",
        ),
        ({"x/a.txt": "", "x/b.jpg": ""}, "holds 1 image and 1 text. Choose one, for instance by modality='images'"),
    ],
)
def test_folders_that_are_not_collections(tmp_path, texts, message):
    with pytest.raises(BagwiseError, match=message):
        open_collection(write(tmp_path, texts))


def test_modalities_and_options(folder, tmp_path):
    with pytest.raises(BagwiseError, match=r"does not exist"):
        open_collection(tmp_path / "nothing")
    with pytest.raises(BagwiseError, match=r"Unknown modality: 'text'. Did you mean 'texts'"):
        open_collection(folder, modality="text")
    with pytest.raises(BagwiseError, match=r"Unknown option of texts: 'encodin'. Did you mean 'encoding'"):
        open_collection(folder, encodin="latin-1")
    with pytest.raises(BagwiseError, match=r"holds no videos; its 4 files are: 4 .txt"):
        open_collection(folder, modality="videos")
    with pytest.raises(BagwiseError, match=r"encoding='klingon' is not known"):
        open_collection(folder, encoding="klingon")


def test_what_is_not_an_item_is_told(folder):
    write(folder, {"train/cat/notes.pdf": "", ".hidden/a.txt": "", "train/.DS_Store": ""})
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "train/dog/link.txt").symlink_to(folder / "train/cat/1.txt")
    animals = open_collection(folder)
    assert animals.ignored == (".hidden/a.txt", "loop", "train/.DS_Store", "train/cat/notes.pdf")
    assert animals.ids == sorted([*TEXTS, "train/dog/link.txt"])


def test_a_readme_does_not_make_texts_of_images(tmp_path):
    write(tmp_path, {"README.txt": "", "cat/1.jpg": ""})
    assert open_collection(tmp_path).ids == ["cat/1.jpg"]


def test_texts(tmp_path):
    write(tmp_path, {"empty.txt": "", "mark.txt": b"\xef\xbb\xbfhi\r\n", "wide.txt": "hi".encode("utf-16")})
    texts = open_collection(tmp_path)
    assert [text for _, text in texts.load()] == ["", "hi\r\n", "hi"]
    assert open_collection(tmp_path / "wide.txt", encoding="utf-16")[0].load() == "hi"
    write(tmp_path, {"mark.txt": b"\xef\xbb\xbfcaf\xe9"})
    with pytest.raises(ItemError, match=r"byte 6 \(0xe9\) is not UTF-8"):
        texts[1].load()
    write(tmp_path / "raw", {"cat/1234": "posted", "cat/1.md": "other"})
    assert open_collection(tmp_path / "raw", modality="texts", extensions="*").ids == ["cat/1.md", "cat/1234"]
    assert open_collection(tmp_path / "raw", modality="texts", extensions="MD").ids == ["cat/1.md"]


def test_endings_are_those_of_splitext():
    for length in range(7):
        for letters in itertools.product("a./B", repeat=length):
            name = "".join(letters)
            end = os.path.splitext(name)[1].lower()
            assert ending(name) == ("" if end == "." else end)


def test_names_that_are_not_utf8_survive(tmp_path):
    names = [b"\xff/caf\xe9.txt", "dog/caf\u00e9.txt".encode()]
    for name in names:
        path = os.path.join(os.fsencode(tmp_path / "data"), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"a text")
    texts = open_collection(tmp_path / "data")
    assert [os.fsencode(id) for id in texts.ids] == sorted(names, key=os.fsdecode)
    assert [os.fsencode(label) for label in texts.classes] == [b"dog", b"\xff"]
    for copy in (
        pickle.loads(pickle.dumps(texts)),
        pickle.loads(pickle.dumps(texts.partitions(1)[0])).open(),
        open_collection(write_manifest(texts, tmp_path / "data" / "m.parquet")),
    ):
        assert (copy.ids, copy.label_sets) == (texts.ids, texts.label_sets)
        assert [text for _, text in copy.load()] == ["a text"] * 2


def test_columns_of_parts_are_parts_of_columns():
    rng = np.random.default_rng(0)
    n = 200
    ids = [f"item {k}" for k in rng.permutation(n)]
    single = [[("a",), ("b",), ()][k] for k in rng.integers(0, 3, n)]
    several = [[("a",), ("b", "c"), (), ("c", "b")][k] for k in rng.integers(0, 4, n)]
    splits = [["train", None, "test"][k] for k in rng.integers(0, 3, n)]
    for labels in (single, several):
        whole = Collection.from_matrix(rng.random((n, 3)), ids, labels, splits)
        for key in (slice(20, 150), slice(150, 20, -3), rng.permutation(n)[:50], rng.random(n) < 0.3, slice(0, 0)):
            numbers = np.arange(n)[key].tolist()
            for part in (whole[key], pickle.loads(pickle.dumps(whole[key]))):
                assert part.ids == [ids[k] for k in numbers]
                assert part.label_sets == [labels[k] for k in numbers]
                assert part.splits == [splits[k] for k in numbers]
                assert part.n_labels.tolist() == [len(labels[k]) for k in numbers]
                assert part.classes == tuple(sorted({label for k in numbers for label in labels[k]}))
                assert [(item.id, item.labels, item.split) for item in part] == [
                    (ids[k], labels[k], splits[k]) for k in numbers
                ]
                np.testing.assert_array_equal(part.X, whole.X[numbers])
        assert whole.codes_in(["c", "a"]).tolist() == [{("a",): 1}.get(one, -1) for one in labels]
        assert whole == whole[np.arange(n)]
        assert whole != whole[::-1]
    first = next(k for k in range(n) if len(several[k]) > 1)
    assert whole.several().id == ids[first]
    assert Collection.from_matrix(np.eye(3)).several() is None


def test_items_of_several_collections_become_one(folder, tmp_path):
    write(tmp_path / "more", {"a.txt": b"caf\xe9"})
    animals, more = open_collection(folder), open_collection(tmp_path / "more", encoding="latin-1")
    both = Collection.of([*animals[1:], *more], "texts", "both")
    assert pickle.loads(pickle.dumps(both)) == both
    assert [text for _, text in both.load()] == [*(text for _, text in animals[1:].load()), "café"]
    assert len({item.fingerprint() for item in both}) == 4


@pytest.mark.parametrize("archive", [False, True])
def test_a_place_is_listed_once(tmp_path, monkeypatch, archive):
    from bagwise import fit_model
    from bagwise.app import evaluate_model

    source = write_text_folder(tmp_path / "texts", n_each=3)
    source = tmp_path / "texts" if not archive else Path(shutil.make_archive(tmp_path / "a", "zip", tmp_path / "texts"))
    listed = []
    for name in ("_walk", "list_archive"):
        read = getattr(places, name)
        monkeypatch.setattr(places, name, lambda *given, read=read: listed.append(given) or read(*given))
    model = fit_model(source, n_groups=2, folds=0).fit_.model
    assert len(listed) == 1
    evaluate_model(model, source)
    assert len(listed) == 2
