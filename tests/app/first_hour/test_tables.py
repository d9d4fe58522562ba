"""Tables as they come from pandas and from others."""

import numpy as np
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


def test_words_of_a_model_may_have_the_names_of_labels(rows, tmp_path):
    """A column Class that is no label is a word."""
    X, y = rows
    path = write(tmp_path / "a.csv", ["Class", "b", "target"], [*X.T[:2], y])
    bagwise("fit", path, "--label", "target", "--out", tmp_path / "a.bagwise")
    assert Model.load(tmp_path / "a.bagwise").word_names == ("Class", "b")
    other = write(tmp_path / "b.csv", ["Class", "b"], X.T[:2])
    assert "40 items, 2 features" in bagwise("transform", tmp_path / "a.bagwise", other, "--out", tmp_path / "b.npz")


def test_the_option_that_keeps_a_column_is_named_as_on_the_command_line(rows, tmp_path):
    X, y = rows
    path = write(tmp_path / "a.csv", ["index", "a", "b", "c", "d", "class"], [np.arange(40), *X.T, y])
    result = CliRunner().invoke(app, ["fit", str(path), "--out", str(tmp_path / "a.bagwise")])
    assert "Column 'index' is the id of rows and is not used as a word; --keep 'index' does that." in result.stderr


def test_the_index_of_a_data_frame_in_parquet_is_not_a_word(rows, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = rows
    frame = pandas.DataFrame(X, columns=list("abcd"), index=np.arange(40) * 3)
    frame["class"] = y
    frame.to_parquet(tmp_path / "a.parquet")
    table = open_collection(tmp_path / "a.parquet")
    assert table.feature_names == list("abcd")
    assert table.ids[1] == "3"
