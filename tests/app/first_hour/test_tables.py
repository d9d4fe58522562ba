"""Tables as they come from pandas and from others."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bagwise import Model, open_collection
from bagwise.app.cli.app import app
from commands import as_json, bagwise


@pytest.fixture
def rows():
    """Counts of 4 words in 40 rows of two classes, and their labels, 0 and 1."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 20)
    return rng.poisson(np.array([[8, 1, 2, 3], [1, 8, 2, 3]])[y]), y


def write(path, names, columns):
    lines = [",".join(names), *(",".join(map(str, row)) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "index", "row_id"])
def test_numbers_of_rows_are_ids_and_not_a_word(name, rows, tmp_path):
    X, y = rows
    path = write(tmp_path / "a.csv", [name, "a", "b", "c", "d", "class"], [np.arange(100, 140), *X.T, y])
    told = as_json("fit", path, "--out", tmp_path / "a.bagwise")
    model = Model.load(tmp_path / "a.bagwise")
    assert model.word_names == ("a", "b", "c", "d")
    assert open_collection(path).ids[:2] == ["100", "101"]
    shown = name or "Unnamed: 0"
    (note,) = [note for note in told["notes"] if "not used as a word" in note]
    assert shown in note
    bagwise("fit", path, "--keep", shown, "--out", tmp_path / "b.bagwise")
    kept = Model.load(tmp_path / "b.bagwise")
    assert kept.word_names == (name or "Unnamed: 0", "a", "b", "c", "d")
    assert "40 rows" in bagwise("evaluate", tmp_path / "b.bagwise", path)  # the column is a word of the model


def test_a_single_row_is_read_as_the_table_of_the_model_was(rows, tmp_path):
    X, y = rows
    names, columns = ["index", "a", "b", "c", "d", "class"], [np.arange(40), *X.T, y]
    path = write(tmp_path / "a.csv", names, columns)
    bagwise("fit", path, "--out", tmp_path / "a.bagwise")
    one = write(tmp_path / "one.csv", names, [column[:1] for column in columns])
    (hits,) = as_json("search", tmp_path / "a.index", one)["queries"]
    assert hits["in_index"] == ["0"]
    repeated = write(tmp_path / "two.csv", names, [np.zeros(40, dtype=int), *X.T, y])
    assert "40 rows" in bagwise("evaluate", tmp_path / "a.bagwise", repeated)


def test_columns_to_keep_must_be_there(rows, tmp_path):
    X, y = rows
    path = write(tmp_path / "a.csv", ["id", "a", "b", "class"], [np.arange(40), *X.T[:2], y])
    assert "there is no column 'nothere' to keep; there are 'id', 'a'" in bagwise(
        "fit", path, "--keep", "nothere", code=1
    )
    bagwise("fit", path, "--keep", "id", "--out", tmp_path / "a.bagwise")
    assert Model.load(tmp_path / "a.bagwise").word_names == ("id", "a", "b")


def test_words_of_a_model_may_have_the_names_of_labels(rows, tmp_path):
    """A column Class that is no label is a word."""
    X, y = rows
    path = write(tmp_path / "a.csv", ["Class", "b", "target"], [*X.T[:2], y])
    bagwise("fit", path, "--label", "target", "--out", tmp_path / "a.bagwise")
    assert Model.load(tmp_path / "a.bagwise").word_names == ("Class", "b")
    other = write(tmp_path / "b.csv", ["Class", "b"], X.T[:2])
    assert "40 items, 2 features" in bagwise("transform", tmp_path / "a.bagwise", other, "--out", tmp_path / "b.npz")


def test_exact_names_come_first(rows, tmp_path):
    X, y = rows
    table = open_collection(
        write(tmp_path / "a.csv", ["ID", "Label", "label", "id"], [X[:, 0], X[:, 1], y, 50 + np.arange(40)])
    )
    assert list(table.labels) == list(map(str, y))
    assert table.ids[0] == "50"
    assert table.feature_names == ["ID", "Label"]  # the values of ID do not differ


def test_the_option_that_keeps_a_column_is_named_as_on_the_command_line(rows, tmp_path):
    X, y = rows
    path = write(tmp_path / "a.csv", ["index", "a", "b", "c", "d", "class"], [np.arange(40), *X.T, y])
    result = CliRunner().invoke(app, ["fit", str(path), "--out", str(tmp_path / "a.bagwise")])
    assert "Column 'index' is the id of rows and is not used as a word; --keep 'index' does that." in result.stderr


def test_columns_of_equal_values_are_words_whatever_their_name(rows, tmp_path):
    X, y = rows
    path = write(tmp_path / "a.csv", ["index", "a", "b", "c", "d", "class"], [np.arange(40) // 2, *X.T, y])
    assert open_collection(path).feature_names == ["index", "a", "b", "c", "d"]


def test_a_second_column_of_numbers_is_left_out_too(rows, tmp_path):
    X, y = rows
    path = write(
        tmp_path / "a.csv", ["", "id", "a", "b", "class"], [np.arange(40), y * 100 + np.arange(40), *X.T[:2], y]
    )
    table = open_collection(path)
    assert table.feature_names == ["a", "b"]
    assert table.ids[-1] == "139"
    assert table[:3].notes == table.notes  # kept where rows are chosen


@pytest.mark.parametrize("name", ["digit", "group", "iris_species", "y"])
def test_a_column_that_may_hold_labels_is_proposed(name, rows, tmp_path):
    X, y = rows
    path = write(tmp_path / "a.csv", ["a", "b", "c", "d", name], [*X.T, y])
    result = CliRunner().invoke(app, ["fit", str(path), "--out", str(tmp_path / "a.bagwise")])
    assert f"If {name!r} holds the labels: --label {name!r}" in result.stderr
    assert "of 2 classes" in bagwise("fit", path, "--label", name, "--out", tmp_path / "b.bagwise")


@pytest.mark.parametrize("name", ["Class", "TARGET", "Label"])
def test_usual_names_of_labels_are_taken_in_any_case(name, rows, tmp_path):
    X, y = rows
    table = open_collection(write(tmp_path / "a.csv", ["a", "b", "c", "d", name], [*X.T, y]))
    assert list(table.labels) == list(map(str, y))
    assert table.notes == (f"Labels are in the column {name!r}; label= chooses another one.",)


def test_counts_and_measurements_are_not_proposed_as_labels(rows, tmp_path):
    X, y = rows
    many, fractions = np.arange(40), y + 0.5
    for values in (many, fractions):
        assert open_collection(write(tmp_path / "a.csv", ["a", "b", "group"], [*X.T[:2], values])).notes == ()


def test_the_index_of_a_data_frame_in_parquet_is_not_a_word(rows, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = rows
    frame = pandas.DataFrame(X, columns=list("abcd"), index=np.arange(40) * 3)
    frame["class"] = y
    frame.to_parquet(tmp_path / "a.parquet")
    table = open_collection(tmp_path / "a.parquet")
    assert table.feature_names == list("abcd")
    assert table.ids[1] == "3"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_only_column_with_text_holds_the_labels(ending, rows, tmp_path):
    X, y = rows
    kinds = np.array(["red", "white"])[y]
    path = write(tmp_path / "a.csv", ["a", "b", "c", "d", "cultivar"], [*X.T, kinds])
    if ending == "parquet":
        pd.read_csv(path).to_parquet(tmp_path / "a.parquet")
        path = tmp_path / "a.parquet"
    told = as_json("fit", path, "--out", tmp_path / "a.bagwise")
    assert told["model"]["classes"] == ["red", "white"]
    assert any("'cultivar', the only one with text, has 2 values" in note for note in told["notes"])
    assert "40 rows of 2 classes" in bagwise("evaluate", tmp_path / "a.bagwise", path)


def test_text_that_is_no_label_is_named(rows, tmp_path):
    X, y = rows
    names = [f"wine {k}" for k in range(40)]
    path = write(tmp_path / "a.csv", ["a", "b", "c", "d", "vineyard"], [*X.T, names])
    assert "column 'vineyard' holds text" in bagwise("fit", path, "--out", tmp_path / "no.bagwise", code=1)
    path = write(tmp_path / "b.csv", ["a", "b", "c", "d", "kind", "place"], [*X.T, *[np.array(["x", "y"])[y]] * 2])
    assert "columns 'kind', 'place' hold text" in bagwise("fit", path, "--out", tmp_path / "no.bagwise", code=1)


def test_equal_ids_do_not_name_rows(rows, tmp_path):
    X, y = rows
    path = write(tmp_path / "a.csv", ["id", "a", "b", "class"], [np.arange(40) // 2, *X.T[:2], y])
    table = open_collection(path)
    assert table.feature_names == ["a", "b"]
    assert table.ids[:2] == ["0", "1"]
    assert "Column 'id' has equal values, so rows are named by their numbers." in table.notes[0]
    assert open_collection(path, keep="id").feature_names == ["id", "a", "b"]


def test_all_columns_that_may_be_labels_are_named(rows, tmp_path):
    X, y = rows
    path = write(tmp_path / "a.csv", ["a", "type", "b", "group"], [X[:, 0], np.arange(40) % 2, X[:, 1], y])
    assert any(
        note.endswith("If 'type' or 'group' holds the labels, choose it, as in label='type'")
        for note in open_collection(path).notes
    )
    sexes = np.array(["f", "m"])[np.arange(40) % 2]
    path = write(tmp_path / "b.csv", ["a", "sex", "b", "group"], [X[:, 0], sexes, X[:, 1], y])
    table = open_collection(path)
    assert table.labels[:2].tolist() == ["f", "m"]
    assert "If 'group' holds the labels: label='group'" in table.notes


def test_columns_that_tell_the_class_are_named(rows, tmp_path):
    X, y = rows
    names = ["a", "kind", "nearly", "same", "label"]
    path = write(tmp_path / "a.csv", names, [X[:, 0], 5 - y, [*y[:-1], 0], np.ones(40), np.array(["x", "y"])[y]])
    (note,) = open_collection(path).notes
    assert note.startswith("Column 'kind' has another value for each label, so it tells the class.")


def test_columns_of_dates_are_to_be_removed(rows, tmp_path):
    X, y = rows
    days = [f"2020-01-{day % 28 + 1:02}" for day in range(40)]
    path = write(tmp_path / "a.csv", ["date", "a", "b", "class"], [days, *X.T[:2], y])
    assert "column 'date' holds text" in bagwise("fit", path, code=1)
