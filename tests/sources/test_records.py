import csv
import io
import json
import pickle
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise import BagwiseError, open_collection
from bagwise.sources import SkippedItemsWarning

# what a text may hold and still be a record: anything but half a surrogate pair
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def texts_of(collection):
    return [text for _, text in collection.load()]


@given(st.lists(st.tuples(ANY_TEXT, st.sampled_from(["a", "b", ""])), min_size=1, max_size=6))
def test_csv_gives_back_what_was_written(tmp_path_factory, records):
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([("text", "label"), *records])
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", stream.getvalue())
    collection = open_collection(path)
    assert texts_of(collection) == [text for text, _ in records]
    assert [item.label for item in collection] == [label or None for _, label in records]
    assert collection.ids == [f"a.csv:{i + 1}" for i in range(len(records))]


@given(
    st.lists(st.tuples(ANY_TEXT, st.lists(ANY_TEXT.filter(bool), max_size=3)), min_size=1, max_size=6), st.booleans()
)
def test_jsonl_gives_back_what_was_written(tmp_path_factory, records, escaped):
    lines = [json.dumps({"body": text, "labels": labels}, ensure_ascii=escaped) for text, labels in records]
    folder = tmp_path_factory.mktemp("jsonl")
    collection = open_collection(write(folder / "a.jsonl", "\n\n".join(lines)))
    assert texts_of(collection) == [text for text, _ in records]
    assert collection.label_sets == [tuple(labels) for _, labels in records]
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.write(folder / "a.jsonl", "a.jsonl")
    packed = open_collection(folder / "a.zip")
    assert texts_of(packed) == texts_of(collection)
    assert [item.fingerprint() for item in packed] == [item.fingerprint() for item in collection]
    assert texts_of(pickle.loads(pickle.dumps(packed))) == texts_of(collection)


REVIEWS = "id,title,body,stars,split\n7,Good,I liked it,5,train\n9,Bad,,1,test\n"


def test_columns_are_chosen_by_name(tmp_path):
    path = write(tmp_path / "a.csv", b"\xef\xbb\xbf" + REVIEWS.encode())
    collection = open_collection(path, text=["title", "body"], label="stars")
    assert collection.ids == ["7", "9"]
    assert texts_of(collection) == ["Good\nI liked it", "Bad\n"]
    assert collection.labels.tolist() == ["5", "1"]
    assert [part.ids for part in collection.split()] == [["7"], ["9"]]
    assert texts_of(open_collection(path)) == ["I liked it", ""]
    assert open_collection(path, id="title").ids == ["Good", "Bad"]
    assert open_collection(path, labels={"7": "x", "9": "y"}).labels.tolist() == ["x", "y"]
    with pytest.raises(BagwiseError, match=r"there is no column 'txt'; there are 'id', 'title', 'body'"):
        open_collection(path, text="txt")
    with pytest.raises(BagwiseError, match=r"no column is the label; there are 'id', .*Choose one by label="):
        open_collection(path, label_from="column")


def test_files_without_names_of_columns(tmp_path):
    path = write(tmp_path / "a.tsv", '1\tsaid "hello\n0\tbye\r\n1\tagain\n')
    collection = open_collection(path, text="2", label="1")
    assert texts_of(collection) == ['said "hello', "bye", "again"]
    assert collection.labels.tolist() == ["1", "0", "1"]
    (note,) = collection.notes
    assert note.startswith("The first line of a.tsv has no names of columns, which are numbered from 1; header=True")
    with pytest.raises(BagwiseError, match=r"there is no column '3'; there are '1', '2'"):
        open_collection(path, text="3")


def test_other_delimiters_and_quotes(tmp_path):
    path = write(tmp_path / "a.csv", "text;label\n'a;b';x\n")
    assert texts_of(open_collection(path, modality="records", sep=";", quote="'")) == ["a;b"]


def test_long_fields(tmp_path):
    path = write(tmp_path / "a.csv", 'text\n"' + "word " * 100_000 + '"\n')
    assert len(texts_of(open_collection(path))[0]) == 500_000


def test_records_of_several_files(tmp_path):
    for part, n in (("train", 2), ("test", 1)):
        for domain in ("books", "dvd"):
            (tmp_path / part / domain).mkdir(parents=True)
            for mood in ("good", "bad"):
                lines = [json.dumps({"id": i, "text": f"{domain} {mood} {i}"}) for i in range(n)]
                write(tmp_path / part / domain / f"{mood}.jsonl", "\n".join(lines))
    collection = open_collection(tmp_path)
    assert collection.ids[:3] == ["test/books/bad.jsonl:0", "test/books/good.jsonl:0", "test/dvd/bad.jsonl:0"]
    assert [len(part) for part in collection.split()] == [8, 4]
    assert collection.labels[:3].tolist() == ["books", "books", "dvd"]
    by_file = open_collection(tmp_path, label_from="file")
    assert by_file.labels[:3].tolist() == ["bad", "good", "bad"]
    assert all(item.label in text for item, text in by_file.load())
    assert all(item.label in text for item, text in collection.load())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\ngood,x\nbad\n", r"a.csv:2: it has 1 field, expected 2: 'text', 'label'"),
        (
            "a.csv",
            'text,label\ngood,x\n"open,y\n',
            r'a.csv:2: the quote " that opens in line 3 is not closed\.',
        ),
        ("a.jsonl", '{"text": "good"}\n{"text": \n', r"a.jsonl:2: it is not JSON"),
        ("a.jsonl", '{"text": "good"}\n[1]\n', r"a.jsonl:2: it is a JSON list, expected an object"),
        ("a.jsonl", '{"text": "good"}\n{"title": "x"}\n', r"a.jsonl:2: it has no field 'text'"),
        ("a.jsonl", '{"text": "good", "id": 1}\n{"text": "x", "id": null}\n', r"a.jsonl:2: it has no 'id'"),
        ("a.jsonl", '{"text": "good"}\n' + "[" * 100_000, r"a.jsonl:2: it is not JSON"),
    ],
)
def test_records_that_cannot_be_used(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(BagwiseError, match=message + r"(.|\n)*on_error='skip'"):
        open_collection(path)
    with pytest.warns(SkippedItemsWarning, match=r"1 of 2 items .* skipped: " + message):
        collection = open_collection(path, on_error="skip")
    assert texts_of(collection) == ["good"]


def test_what_comes_after_a_bad_record_is_read(tmp_path):
    path = write(tmp_path / "a.csv", b"text,label\ncaf\xe9,x\n\nfine,y\n")
    with pytest.warns(SkippedItemsWarning, match=r"a.csv:1: its byte 0xe9 is not utf-8"):
        collection = open_collection(path, on_error="skip", encoding="utf-8")
    assert (texts_of(collection), collection.ids) == (["fine"], ["a.csv:2"])
    guessed = open_collection(path)
    assert texts_of(guessed) == ["café", "fine"]
    assert guessed.notes == ("a.csv is not UTF-8 and was read as cp1252, a guess; encoding= chooses another.",)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {"modality": "records"}, r"a.csv cannot be used: it is empty"),
        ("text\n", {}, r"holds no records: a.csv has no line"),
        ("text,text\na,b\n", {}, r"has columns of the same name: 'text', 'text'"),
        ("text\n\xe9\n".encode("latin-1"), {"on_error": "skip", "encoding": "utf-8"}, r"a.csv cannot be read"),
        ("id,text\n1,a\n1,b\n", {}, r"has 2 items with the id '1', .* Ids must differ"),
        ("text\na\n", {"encoding": "utf-17"}, r"encoding='utf-17'"),
        ("text\na\n", {"sep": ""}, r"sep='' is not one character. Give one such as ';'"),
        ("text\na\n", {"quote": "''"}, r"quote must be one character"),
        ("text\na\n", {"label_from": "name"}, r"Unknown label_from: 'name'"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, options, message):
    path = write(tmp_path / "a.csv", content)
    with pytest.raises(BagwiseError, match=message):
        open_collection(path, **options)


def test_separators_are_not_for_json(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": ""}')
    with pytest.raises(BagwiseError, match=r"sep= is for CSV and TSV files, but a.jsonl is none"):
        open_collection(path, sep=";")
    assert texts_of(open_collection(path)) == [""]


def test_a_mark_is_one_only_at_the_beginning(tmp_path):
    path = write(tmp_path / "a.tsv", "\ufeffone\n\ufefftwo\n")
    assert texts_of(open_collection(path, text="1", header=False)) == ["one", "\ufefftwo"]
