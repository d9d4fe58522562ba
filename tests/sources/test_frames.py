"""Tables in memory: whatever library they are of, the collection is the same."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from PIL import Image

from bagwise import BagwiseError, datasets, fit_model, open_collection
from bagwise.app import evaluate_model
from bagwise.sources import ItemError, Limits
from small_sources import images, table, texts, write_text_folder

LIBRARIES = ("dict", "pandas", "polars", "arrow", "datasets")


def made(library, columns):
    """The table of a library with some columns."""
    if library == "pandas":
        return pd.DataFrame(columns)
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    if library == "arrow":
        return pytest.importorskip("pyarrow").table(columns)
    if library == "datasets":
        return pytest.importorskip("datasets").Dataset.from_dict(columns)
    return columns


def text_columns():
    found, labels = zip(*texts(), strict=True)
    return {"text": list(found), "label": list(labels)}


@pytest.mark.parametrize("library", LIBRARIES)
def test_texts(library):
    columns = text_columns()
    opened = open_collection(made(library, columns))
    assert opened.modality == "texts"
    assert opened.labels.tolist() == columns["label"]
    assert [text for _, text in opened.load()] == columns["text"]
    assert opened.ids == [str(k) for k in range(len(opened))]
    again = pickle.loads(pickle.dumps(opened[3:5]))
    assert [text for _, text in again.load()] == columns["text"][3:5]
    assert again[0].fingerprint() == opened[3].fingerprint()


@pytest.mark.parametrize("library", LIBRARIES)
def test_tables(library):
    X, y = table()
    columns = {f"w{k}": X[:, k] for k in range(X.shape[1])} | {"kind": y.tolist()}
    opened = open_collection(made(library, columns), label="kind")
    assert opened.modality == "table"
    np.testing.assert_array_equal(opened.X, X)
    assert opened.labels.tolist() == y.tolist()
    assert opened.feature_names == [f"w{k}" for k in range(X.shape[1])]


@pytest.mark.parametrize("library", ["dict", "pandas"])
@pytest.mark.parametrize("form", ["pillow", "array", "bytes", "path"])
def test_images_of_every_form(library, form, tmp_path):
    pixels, labels = zip(*images(n_each=2, color=True), strict=True)
    column = [Image.fromarray(one) for one in pixels]
    if form == "array":
        column = list(pixels)
    if form in ("bytes", "path"):
        for k, one in enumerate(column):
            one.save(tmp_path / f"{k}.png")
        column = [str(tmp_path / f"{k}.png") for k in range(len(pixels))]
    if form == "bytes":
        column = [Path(path).read_bytes() for path in column]
    opened = open_collection(made(library, {"image": column, "label": labels}), image="image", mode="rgb")
    for (_, loaded), one in zip(opened.load(), pixels, strict=True):
        np.testing.assert_array_equal(loaded, one)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(opened[0])).load(), pixels[0])
    assert opened.labels.tolist() == list(labels)


def test_images_and_classes_of_hugging_face():
    hub = pytest.importorskip("datasets")
    pixels, labels = zip(*images(n_each=3), strict=True)
    names = sorted(set(labels))
    features = hub.Features({"picture": hub.Image(), "kind": hub.ClassLabel(names=names)})
    columns = {"picture": [Image.fromarray(one) for one in pixels], "kind": [names.index(one) for one in labels]}
    data = hub.Dataset.from_dict(columns, features=features)
    opened = open_collection(data)
    assert opened.labels.tolist() == list(labels)
    assert opened.notes == ("Labels are in the column 'kind'; label= chooses another one.",)
    for (_, loaded), one in zip(opened.load(), pixels, strict=True):
        np.testing.assert_array_equal(loaded, one)
    parts = hub.DatasetDict({"train": data, "val": data.select([0, 5])})
    opened = open_collection(parts)
    assert opened.splits == ["train"] * 6 + ["validation"] * 2
    assert opened.ids[-2:] == ["validation:0", "validation:1"]
    np.testing.assert_array_equal(opened[-1].load(), pixels[5])


class Stream:
    """As a data set of Hugging Face that is read from the net, row by row."""

    column_names = ("text",)

    def take(self, n):
        raise AssertionError


def test_streams_are_not_read():
    with pytest.raises(BagwiseError, match=r"Stream has no rows in memory.*take"):
        open_collection(Stream())


def test_missing_and_several_classes():
    hub = pytest.importorskip("datasets")
    kind = hub.ClassLabel(names=["no", "yes"])

    def opened(kinds, feature):
        columns = {"text": list("abc")[: len(kinds)], "kind": kinds}
        return open_collection(
            hub.Dataset.from_dict(columns, features=hub.Features(text=hub.Value("string"), kind=feature))
        )

    assert opened([1, -1, 0], kind).label_sets == [("yes",), (), ("no",)]
    assert opened([[0, 1], []], hub.Sequence(kind)).label_sets == [("no", "yes"), ()]


def test_names_of_rows_and_missing_values_of_pandas():
    data = pd.DataFrame({"text": ["a", None, "c"], "label": ["x", None, "y"]}, index=["p", "q", "r"])
    opened = open_collection(data)
    assert opened.ids == ["p", "q", "r"]
    assert opened.label_sets == [("x",), (), ("y",)]
    assert opened[1].load() == ""
    numbers = pd.DataFrame({"a": pd.array([1, 2, 3], "Int64"), "b": [0.5, 1, 2], "label": pd.Categorical(list("xyx"))})
    opened = open_collection(numbers)
    np.testing.assert_array_equal(opened.X, [[1, 0.5], [2, 1], [3, 2]])
    assert opened.labels.tolist() == ["x", "y", "x"]
    two = open_collection({"text": ["a", "b"], "title": ["t", "u"]}, text=["title", "text"])
    assert [text for _, text in two.load()] == ["t\na", "u\nb"]


def test_a_model_of_a_frame_is_that_of_the_folder(tmp_path):
    """Whether texts are files or rows, the model and its answers are the same."""
    folder = fit_model(write_text_folder(tmp_path / "texts"), n_groups=6, folds=0)
    opened = open_collection(tmp_path / "texts")
    columns = {"body": [text for _, text in opened.load()], "kind": opened.labels.tolist()}
    model = fit_model(pd.DataFrame(columns), text="body", label="kind", n_groups=6, folds=0)
    np.testing.assert_array_equal(model.hierarchy.merges, folder.hierarchy.merges)
    new = pd.DataFrame({"title": ["x", "y"], "body": ["ripe pear", "steel saw"]})
    assert model.predict(new).tolist() == folder.predict(["ripe pear", "steel saw"]).tolist()
    found, expected = evaluate_model(model, pd.DataFrame(columns)), evaluate_model(folder, tmp_path / "texts")
    np.testing.assert_array_equal(found.histograms.toarray(), expected.histograms.toarray())


def test_a_model_of_a_table_takes_tables_with_more_columns():
    X, y = table()
    frame = pd.DataFrame(X, columns=[f"w{k}" for k in range(X.shape[1])])
    labelled = frame.assign(kind=y)
    model = fit_model(labelled, label="kind", n_groups=4, folds=0)
    np.testing.assert_array_equal(model.decision_function(labelled), model.decision_function(X))
    np.testing.assert_array_equal(model.decision_function(frame), model.decision_function(X))
    with pytest.raises(BagwiseError, match="'w3' is missing"):
        model.predict(labelled.drop(columns="w3"))


@pytest.mark.parametrize(
    ("source", "options", "error"),
    [
        ({"text": ["a"]}, {"text": "gone"}, "dict cannot be used: there is no column 'gone'; there are 'text'"),
        ({"text": ["a"]}, {"colour": 1}, "Unknown option of a table in memory: 'colour'"),
        ({"text": ["a"]}, {"modality": "images"}, "Choose one by image="),
        ({"text": ["a"]}, {"modality": "videos"}, "modality of a table in memory"),
        ({"text": ["a"]}, {"layer": "x"}, "layer= is for AnnData"),
        ({"a": [1.0]}, {"modality": "table", "text": "a"}, "text= is not for table"),
        (
            {"a": [1.0, None], "b": [1, 2]},
            {},
            "1 number is missing, in 1 row and the column 'a'; the first is in row 2",
        ),
        (
            pd.DataFrame({"a": [1.0, None], "b": [1, 2]}),
            {},
            "and the column 'a'; the first is in row 2, .*missing='median'",
        ),
        ({"a": ["one text", "two texts"], "b": [1, 2]}, {}, "choose them by text='a'"),
        ({"a": [[1], [2, 3]], "b": [1, 2]}, {}, r"column 'a' is list.*, not numbers"),
        ({"a": [1], "b": [1, 2]}, {}, "1 and 2 rows"),
        ({"a": [], "b": []}, {}, "0 rows"),
        ({}, {}, "there are none"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "columns of the same name"),
        ({"text": ["a", "b"], "id": ["x", "x"]}, {"id": "id"}, "2 items with the id 'x'"),
        ({"text": ["a"] * 5}, {"limits": Limits(rows=4)}, "limit rows is 4"),
        ({"a": [1] * 5}, {"limits": Limits(rows=4)}, "limit rows is 4"),
        ({"a": [1, 2], "label": [["x"], ["y"]]}, {}, "has lists, but a row has one label"),
        (["a", "b"], {}, "got list"),
        (7, {}, "got int"),
    ],
)
def test_what_cannot_be_opened_is_said(source, options, error):
    with pytest.raises(BagwiseError, match=error):
        open_collection(source, **options)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (np.zeros((3, 3)), "array of float64"),
        (np.zeros((3, 3, 7), np.uint8), "is no image"),
        (np.zeros((0, 3), np.uint8), "shape"),
        (None, "there is no image"),
        (b"no image", "damaged or not an image"),
        ("gone.png", "No such file"),
        (Image.new("F", (3, 3)), "fractions"),
        (Image.new("L", (100, 100)), "limit pixels"),
    ],
)
def test_images_that_cannot_be_read_are_named(value, error):
    opened = open_collection({"image": [value, value]}, image="image", limits=Limits(pixels=5000))
    with pytest.raises(ItemError, match=f"'0'.*{error}"):
        opened[0].load()


def test_texts_of_several_types_are_strings():
    assert [text for _, text in open_collection({"text": ["a", 7, None]}).load()] == ["a", "7", ""]
    with pytest.raises(BagwiseError, match="column 'text' holds values that are no strings or numbers"):
        open_collection({"text": ["a", object()]}, text="text")


def test_lazy_frames_are_not_collected():
    polars = pytest.importorskip("polars")
    with pytest.raises(BagwiseError, match=r"LazyFrame has no rows in memory.*collect\(\)"):
        open_collection(polars.LazyFrame({"text": ["a"]}))


@dataclass
class Data:
    """As AnnData, without the package."""

    X: Any
    obs: pd.DataFrame
    var: pd.DataFrame
    layers: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    uns: dict[str, Any] = field(default_factory=dict)
    obsm: dict[str, Any] = field(default_factory=dict)

    @property
    def obs_names(self):
        return self.obs.index

    @property
    def var_names(self):
        return self.var.index


def cells_of(make):
    cells = datasets.make_cells(42, n_genes=100)
    kinds = pd.Categorical([cells.target_names[k] for k in cells.target])
    obs = pd.DataFrame({"cell_type": kinds, "batch": np.arange(42) % 2}, index=[f"cell{k}" for k in range(42)])
    logs = cells.data.astype(np.float64).log1p()
    var = pd.DataFrame(index=cells.feature_names)
    return cells, make(logs, obs, var, layers={"counts": sp.csc_matrix(cells.data)})


@pytest.mark.parametrize("library", ["stand-in", "anndata"])
def test_annotated_data(library):
    make = Data if library == "stand-in" else pytest.importorskip("anndata").AnnData
    cells, data = cells_of(make)
    opened = open_collection(data, label="cell_type", layer="counts")
    assert opened.X.format == "csr"
    assert (cells.data != opened.X).nnz == 0
    assert opened.labels.tolist() == [cells.target_names[k] for k in cells.target]
    assert opened.feature_names == cells.feature_names
    assert opened.ids[:2] == ["cell0", "cell1"]
    (note,) = open_collection(data).notes
    assert "'cell_type'" in note
    for options, error in (
        ({"label": "gone"}, "in obs there is no column 'gone'"),
        ({"layer": "gone"}, "are 'counts'"),
    ):
        with pytest.raises(BagwiseError, match=error):
            open_collection(data, **options)
    model = fit_model(data, label="cell_type", layer="counts", n_groups=10, folds=0)
    np.testing.assert_array_equal(model.predict(data), model.predict(cells.data))
