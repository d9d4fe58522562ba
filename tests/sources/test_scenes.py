"""Files as people have them: what is in a file, and what a collection makes of it."""

import json

import pytest

from bagwise import BagwiseError, fit_model, open_collection
from small_sources import texts

HAM, SPAM = "see you at home later then", "win a free prize right now"
ROWS = [(f"{SPAM if k % 2 else HAM} {k}", "spam" if k % 2 else "ham") for k in range(8)]
KINDS = [kind for _, kind in ROWS]
NO_NAMES = "has no names of columns, which are numbered from 1; header=True takes it for names."
LONG = "Texts are in the column {!r}, the only one with long strings; text= chooses another one."
FEW = "Labels are in the column {!r}, the only other one with few values; label= chooses another one."
GUESSED = "is not UTF-8 and was read as {}, a guess; encoding= chooses another."


def rows(template, names="", encoding="utf-8"):
    """Lines of a file, each made of a text, a kind and a number."""
    lines = [names] if names else []
    return "\n".join([*lines, *(template.format(t=t, k=k, n=n) for n, (t, k) in enumerate(ROWS))]).encode(encoding)


# name, content, options, modality, labels, notes in part
SCENES = [
    ("sms.tsv", rows("{k}\t{t}"), {}, "texts", KINDS, [NO_NAMES, LONG.format("2"), FEW.format("1")]),
    ("sms.tsv", rows("{k}\t{t}"), {"text": "2", "label": "1"}, "texts", KINDS, [NO_NAMES]),
    ("sms.tsv", rows("{k}\t{t}"), {"header": False, "text": 2, "label": 1}, "texts", KINDS, []),
    ("a.csv", rows("{k},{t}", "v1,v2"), {}, "texts", KINDS, [LONG.format("v2"), FEW.format("v1")]),
    ("a.csv", rows("{k},{t}", "CATEGORY,Text"), {}, "texts", KINDS, ["Labels are in the column 'CATEGORY'"]),
    ("a.csv", rows("{t},x{n},{k}", "text,who,label"), {}, "texts", KINDS, ["The column 'who' is not used."]),
    ("a.csv", rows("{t},{n},{k}", "title,text,label"), {"text": "Title,text"}, "texts", KINDS, []),
    ("a.csv", rows("{k};{t}", "label;text"), {}, "texts", KINDS, []),
    ("a.csv", rows("{k},{t} é", "label,text", "cp1252"), {}, "texts", KINDS, [GUESSED.format("cp1252")]),
    ("a.csv", rows("{k},{t} é", "label,text", "utf-16"), {}, "texts", KINDS, []),
    ("a.csv", rows("{k},{t} é", "label,text", "cp1252"), {"encoding": "latin-1"}, "texts", KINDS, []),
    ("a.tsv", rows('"{k}"\t"{t}"', '"label"\t"text"'), {}, "texts", KINDS, []),
    ("a.txt", rows("{k}\t{t}", "label\ttext"), {"modality": "records"}, "texts", KINDS, []),
    ("a.txt", rows("{t}"), {"modality": "records"}, "texts", [None] * 8, []),
    ("a.txt", rows("{t}"), {}, "texts", [None], ["read as one text.", "lines are texts: modality='records'"]),
    ("a.dat", rows('{{"text": "{t}", "label": "{k}"}}'), {"modality": "records"}, "texts", KINDS, []),
    ("a.jsonl", rows('{{"body": "{t}", "Sentiment": "{k}"}}'), {}, "texts", KINDS, [FEW.format("Sentiment")]),
    ("a.jsonl", rows('{{"a": {n}, "b": 1.5, "label": "{k}"}}'), {}, "table", KINDS, []),
    ("n.csv", rows("{n},1{n},{k}", "a,b,label"), {}, "table", KINDS, []),
    ("n.csv", rows("{n}.5,{n}"), {}, "table", [None] * 8, [NO_NAMES]),
    ("n.csv", rows("{n},NA,{k}", "a,b,label"), {"missing": "zero"}, "table", KINDS, ["8 numbers are missing"]),
    ("n.csv", rows("{n},{n}{n},{k}", "a,b,label").replace(b"33", b"?"), {"missing": "median"}, "table", KINDS,
     ["1 number is missing, in 1 row and the column 'b': set to the median of the column."]),
    ("n.csv", rows("{n},{n}{n},{k}", "a,b,label").replace(b"77", b""), {"missing": "drop"}, "table", KINDS[:7],
     ["these rows were left out."]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "modality", "labels", "notes"), SCENES)
def test_what_is_made_of_a_file(tmp_path, name, content, options, modality, labels, notes):
    (tmp_path / name).write_bytes(content)
    found = open_collection(tmp_path / name, **options)
    assert (found.modality, [item.label for item in found]) == (modality, labels)
    told = " ".join(found.notes)
    assert all(note in told for note in notes)
    assert bool(found.notes) == bool(notes)
    if modality == "texts" and len(found) == len(ROWS):
        assert all(text in loaded for (text, _), (_, loaded) in zip(ROWS, found.load(), strict=True))


ERRORS = [
    (
        "n.csv",
        rows("{n},,{k}", "a,b,label"),
        {},
        "8 numbers are missing, in 8 rows and the column 'b'; the first is in row 1",
    ),
    ("n.csv", rows("{n},,{k}", "a,b,label"), {"missing": "median"}, "the columns 'b' have no numbers"),
    ("n.csv", rows("{n},1,{k}", "a,b,label"), {"missing": "mean"}, "Unknown missing: 'mean'"),
    ("n.csv", rows("{n},word{n},other{n}", "a,b,c"), {}, "columns 'b', 'c' hold text, but the words of a table"),
    ("n.csv", rows("{n},{k}", "a,label"), {"label": "x" * 99}, "there is no column 'x{37}\\.\\.\\.'"),
    ("a.csv", rows("{t},{t}{n}", "one,two"), {}, "columns 'one', 'two' hold text.*text='one'"),
    ("a.csv", rows("{k},{t}", "label,text"), {"sheet": "x"}, "sheet= is for Excel and SQLite files, but a.csv is none"),
    ("a.jsonl", rows('{{"text": {{"x": "{t}"}}}}'), {"text": "text"}, "column 'text' holds objects or lists of lists"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "message"), ERRORS)
def test_what_is_said_of_a_file_that_cannot_be_used(tmp_path, name, content, options, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BagwiseError, match=message) as told:
        open_collection(tmp_path / name, **options)
    assert name in str(told.value) or "missing" in options


def test_a_table_of_a_data_base_is_named_behind_the_file(tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "data.sqlite") as base:
        base.execute("CREATE TABLE sms (text TEXT, label TEXT)")
        base.execute("CREATE TABLE other (n INTEGER)")
        base.executemany("INSERT INTO sms VALUES (?, ?)", ROWS)
    base.close()
    for source, options in ((f"{tmp_path}/data.sqlite::sms", {}), (tmp_path / "data.sqlite", {"sheet": "sms"})):
        found = open_collection(source, **options)
        assert [text for _, text in found.load()] == [text for text, _ in ROWS]
        assert found.labels.tolist() == KINDS
    with pytest.raises(BagwiseError, match="'gone' is none of its tables; there are 'sms', 'other'"):
        open_collection(f"{tmp_path}/data.sqlite::gone")


def test_texts_of_a_folder_in_another_encoding(tmp_path):
    for number, (text, label) in enumerate(texts(n_each=3)):
        path = tmp_path / "a" / label / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{text} né".encode("utf-8" if number == 0 else "cp1252"))
    found = open_collection(tmp_path / "a")
    assert all(text.endswith(" né") for _, text in found.load())
    assert found.notes == (
        "Texts that are not UTF-8 are read as cp1252, a guess by some of them; encoding= chooses another.",
    )


def test_a_fit_stops_if_a_fifth_cannot_be_read_and_goes_on_if_told(tmp_path):
    lines = [json.dumps({"text": text, "label": kind}) for text, kind in ROWS * 3]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, *["{"] * 7]))
    with pytest.raises(BagwiseError, match=r"7 of 31 items could not be read, more than a fifth; .*on_error='skip'"):
        fit_model(tmp_path / "a.jsonl", n_groups=2, folds=0)
    model = fit_model(tmp_path / "a.jsonl", n_groups=2, folds=0, on_error="skip")
    assert model.classes == ("ham", "spam")


def test_measurements_are_no_classes(tmp_path):
    columns = {"text": [text for text, _ in texts(n_each=20)], "target": [k * 0.37 for k in range(60)]}
    with pytest.raises(BagwiseError, match=r"The labels are 60 different numbers, from 0 to 21\.83: measurements, not"):
        fit_model(columns, n_groups=2, folds=0)
    counted = {**columns, "target": [k % 30 for k in range(60)]}
    assert len(fit_model(counted, n_groups=2, folds=0).classes) == 30
