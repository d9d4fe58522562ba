import csv
import io
import json
import pickle
import zipfile

from hypothesis import given
from hypothesis import strategies as st

from bagwise import open_collection

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
