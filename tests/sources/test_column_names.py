"""Columns are found whatever the case of their names, and those that may matter are told."""

import io
import json

import numpy as np
import pandas as pd
import pytest

from bagwise import BagwiseError, fit_model, open_collection
from bagwise.app import evaluate_model, plan_fit

TEXTS = [f"{'win a prize now' if k % 2 else 'see you at home'} word{k % 5} word{k}" for k in range(20)]
KINDS = ["spam" if k % 2 else "ham" for k in range(20)]
KINDS_OF_FILES = ["a.csv", "a.tsv", "a.jsonl", "a.xlsx", "frame"]


def opened(tmp_path, kind, columns, **options):
    """The collection of columns in a file of this kind, or in memory."""
    frame = pd.DataFrame(columns)
    if kind == "frame":
        return open_collection(frame, **options)
    path = tmp_path / kind
    if kind.endswith("xlsx"):
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    elif kind.endswith("jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    elif kind.endswith("parquet"):
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if kind.endswith("tsv") else ",")
    return open_collection(path, **options)


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
@pytest.mark.parametrize("name", ["Label", "LABELS", "Class", "Category", "Target", "Label "])
def test_labels_are_taken_in_any_case_and_told(tmp_path, kind, name):
    found = opened(tmp_path, kind, {name: KINDS, "text": TEXTS})
    assert found.labels.tolist() == KINDS
    assert found.notes == (f"Labels are in the column {name!r}; label= chooses another one.",)


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_texts_ids_and_splits_are_found_in_any_case(tmp_path, kind):
    ids, splits = [f"i{k}" for k in range(20)], ["Train" if k < 15 else "Test" for k in range(20)]
    found = opened(tmp_path, kind, {"ID": ids, "TEXT": TEXTS, "label": KINDS, "Split": splits})
    assert [text for _, text in found.load()] == TEXTS
    assert (list(found.ids), list(found.splits)) == (ids, [one.lower() for one in splits])
    assert found.notes == ()


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_chosen_columns_are_found_in_any_case(tmp_path, kind):
    found = opened(tmp_path, kind, {"Sentiment": KINDS, " Message": TEXTS}, text="message", label="sentiment")
    assert [text for _, text in found.load()] == TEXTS
    assert found.labels.tolist() == KINDS
    with pytest.raises(BagwiseError, match=r"no column 'mood'; there are 'Sentiment', ' Message'"):
        opened(tmp_path, kind, {"Sentiment": KINDS, " Message": TEXTS}, text="message", label="mood")


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
@pytest.mark.parametrize("values", [KINDS, [k % 5 + 1 for k in range(20)]])
def test_the_only_column_of_few_values_is_the_label(tmp_path, kind, values):
    found = opened(tmp_path, kind, {"review_id": range(20), "rating": values, "text": TEXTS})
    assert found.labels.tolist() == [str(one) for one in values]
    assert found.notes == (
        "Labels are in the column 'rating', the only other one with few values; label= chooses another one.",
        "The column 'review_id' is not used.",
    )
    assert opened(tmp_path, kind, {"rating": values, "text": TEXTS}, label="rating").notes == ()


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_the_only_column_of_long_strings_is_the_text(tmp_path, kind):
    found = opened(tmp_path, kind, {"v1": KINDS, "v2": TEXTS})
    assert (found.modality, found.labels.tolist()) == ("texts", KINDS)
    assert [text for _, text in found.load()] == TEXTS
    assert found.notes[0] == "Texts are in the column 'v2', the only one with long strings; text= chooses another one."


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_several_columns_that_may_hold_the_labels(tmp_path, kind):
    shops = ["x" if k % 3 else "y" for k in range(20)]
    found = opened(tmp_path, kind, {"shop": shops, "text": TEXTS, "sentiment": KINDS})
    assert found.notes[0].endswith("If 'sentiment' or 'shop' holds the labels, choose it, as in label='sentiment'")
    assert found.notes[1] == "The columns 'shop', 'sentiment' are not used."
    found = opened(tmp_path, kind, {"text": TEXTS, "label": KINDS, "Category": shops})
    assert found.labels.tolist() == KINDS
    assert found.notes[0] == "Labels are in the column 'label'; label= chooses another one, such as 'Category'."
    found = opened(tmp_path, kind, {"text": TEXTS, "label": ["all"] * 20, "sentiment": KINDS})
    assert found.notes[0] == "All items have the same label. If 'sentiment' holds the labels: label='sentiment'"


@pytest.mark.parametrize("kind", ["a.csv", "a.tsv", "a.xlsx", "a.parquet", "frame"])
def test_tables_of_numbers(tmp_path, kind):
    numbers = np.random.default_rng(0).normal(size=(40, 3)).round(3)
    measured = {name: numbers[:, i] for i, name in enumerate(["width", "height", "depth"])}
    for name in ("Class", "TARGET", "Label "):
        found = opened(tmp_path, kind, {**measured, name: [k % 2 for k in range(40)]})
        assert set(found.labels) == {"0", "1"}
        assert found.notes == (f"Labels are in the column {name!r}; label= chooses another one.",)
    for name in ("rating", "ward"):  # by the name, and because all others have many values
        (note,) = opened(tmp_path, kind, {**measured, name: [k % 3 for k in range(40)]}).notes
        assert note.endswith(f"If {name!r} holds the labels: label={name!r}")
    assert opened(tmp_path, kind, measured).notes == ()


def test_advice_on_columns_of_short_texts(tmp_path):
    columns = {"Category": KINDS, "Message": [f"word {k}" for k in range(20)]}
    for kind in ("a.csv", "a.parquet", "frame"):
        with pytest.raises(BagwiseError, match=r"column 'Message' holds text.*choose them by text='Message'"):
            opened(tmp_path, kind, columns, label="Category")
    with pytest.raises(BagwiseError, match=r"named text, body, .* only one with long strings; .* Choose by text="):
        open_collection(tmp_path / "a.csv", "records")


def test_counts_of_words_are_not_proposed(tmp_path):
    counts = np.random.default_rng(0).integers(0, 4, (40, 6))
    assert opened(tmp_path, "a.csv", {f"w{i}": counts[:, i] for i in range(6)}).notes == ()


def test_fit_and_plan_tell(tmp_path):
    path = tmp_path / "a.csv"
    shops = ["x" if k % 3 else "y" for k in range(20)]
    pd.DataFrame({"Sentiment": KINDS, "shop": shops, "text": TEXTS}).to_csv(path, index=False)
    model = fit_model(path, n_groups=4)
    for found in (plan_fit(path), model.fit_):
        assert any(
            note.endswith("If 'Sentiment' or 'shop' holds the labels, choose it, as in label='Sentiment'")
            for note in found.notes
        )
    assert model.classes == ()
    labelled = tmp_path / "b.csv"
    pd.DataFrame({"Category": KINDS, "Message": TEXTS}).to_csv(labelled, index=False)
    model = fit_model(labelled, text="Message", n_groups=4, folds=0)
    assert model.classes == ("ham", "spam")
    assert "Labels are in the column 'Category'; label= chooses another one." in model.fit_.notes
    # the text is found by the name that the fit was told, whatever its case is there
    other = tmp_path / "c.csv"
    pd.DataFrame({"category": KINDS, "message": TEXTS}).to_csv(other, index=False)
    assert evaluate_model(model, other).errors == evaluate_model(model, labelled).errors
    with pytest.raises(BagwiseError, match=r"have no labels.* If 'Sentiment' or 'shop' holds the labels"):
        evaluate_model(model, path)


def test_labels_that_the_first_records_lack(tmp_path):
    rows = [{"text": text, "Label": kind} for text, kind in zip(TEXTS, KINDS, strict=True)]
    del rows[0]["Label"]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [item.label for item in open_collection(path)] == [None, *KINDS[1:]]


def test_columns_without_a_name_do_not_matter(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("v1,v2,,,\n" + "".join(f"{kind},{text},,,\n" for kind, text in zip(KINDS, TEXTS, strict=True)))
    found = open_collection(path)
    assert found.labels.tolist() == KINDS
    assert [text for _, text in found.load()] == TEXTS


UNCLOSED = [
    ("a.csv", 'text,label\ngood,x\n"open,y\nnext,x\nlast,y\n', 3, "is not closed up to the end, line 5"),
    ("a.csv", '"te\nxt",text,label\na,good,x\na,bad,"y\n', 4, "is not closed"),
    ("a.csv", 'text,label\n"fi""ne\nhere",x\n"open,y\nnext,"x"\n', 4, "closes within a field, in line 5"),
    ("a.csv", 'a,b,label\n1,2,x\n2,3,"y\n4,5,z\n', 3, "is not closed up to the end, line 4"),
    ("a.csv", 'a,b\n1,2\n3,"4\n5,6\n', 3, "is not closed up to the end, line 4"),
]


@pytest.mark.parametrize(("name", "content", "line", "what"), UNCLOSED)
def test_a_quote_that_is_not_closed_is_named_with_its_line(tmp_path, name, content, line, what):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(BagwiseError) as raised:
        open_collection(path)
    message = str(raised.value)
    assert name in message
    assert f'the quote " that opens in line {line} {what}. Close it, or write ""' in message


def test_a_quote_that_hides_the_rest_of_a_file_is_not_skipped(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(UNCLOSED[0][1])
    with pytest.raises(BagwiseError, match=r"a.csv cannot be used: the quote \" that opens in line 3"):
        open_collection(path, on_error="skip")


def test_lines_are_counted_after_lines_that_are_skipped(tmp_path):
    stream = io.BytesIO(b'text,label\ncaf\xe9,y\n\n"a ""b""\nc",x\n"d,y\n')
    path = tmp_path / "a.csv"
    path.write_bytes(stream.getvalue())
    with pytest.warns(UserWarning, match=r"2 of 3 items .*that opens in line 6 is not closed\. "):
        assert len(open_collection(path, on_error="skip", encoding="utf-8")) == 1
