"""`bagwise suggest`: items to label next, and what they are worth."""

import csv
import json

import pytest

from bagwise.app import ItemIndex, fit_model
from commands import as_json, bagwise
from small_sources import texts


@pytest.fixture(scope="module")
def posts(tmp_path_factory):
    """Texts of three kinds in one folder, without labels, and their index."""
    folder = tmp_path_factory.mktemp("suggest")
    (folder / "posts").mkdir()
    for number, (text, kind) in enumerate(texts(n_each=20)):
        (folder / "posts" / f"{kind}{number:03}.txt").write_text(text)
    bagwise("cluster", folder / "posts", "-c", 3, "--model-out", folder / "posts.bagwise", "--no-page")
    return folder


def write_labels(path, ids, label=lambda id: id[:5]):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "label"], *([id, label(id)] for id in ids)])
    return path


def test_labels_of_what_is_suggested_make_a_model(posts):
    told = as_json("suggest", posts / "posts.index", "-n", 15)
    first = [one["id"] for one in told["suggestions"]]
    assert (told["n_labelled"], len(set(first))) == (0, 15)
    assert all(one["predicted"] is None for one in told["suggestions"])
    labels = write_labels(posts / "labels.csv", first)
    told = as_json("suggest", posts / "posts.index", "-n", 4, "--labels", labels)
    index = ItemIndex.load(posts / "posts.index")
    known = {id: id[:5] for id in first}
    assert told["suggestions"] == [one._asdict() for one in index.suggest(4, known)]
    assert not {one["id"] for one in told["suggestions"]} & set(first)
    model = fit_model(posts / "posts", labels=labels)
    ids = sorted(path.name for path in (posts / "posts").iterdir())
    answers = model.predict([(posts / "posts" / id).read_text() for id in ids])
    wrong = [id for id, answer in zip(ids, answers.tolist(), strict=True) if answer != id[:5]]
    assert len(wrong) <= 3, wrong


def test_files_for_tools_have_ids_and_texts(posts):
    asked = ("suggest", posts / "posts.index", "-n", 2)
    ids = [one["id"] for one in as_json(*asked)["suggestions"]]
    bagwise(*asked, "--out", posts / "next.csv")
    assert (posts / "next.csv").read_text().splitlines() == ["id,label", *(f"{id}," for id in ids)]
    texts_of = [(posts / "posts" / id).read_text() for id in ids]
    for layout in ("label-studio", "prodigy"):
        bagwise(*asked, "--out", posts / layout, "--format", layout)
        written = (posts / layout).read_text()
        rows = json.loads(written) if layout == "label-studio" else [json.loads(one) for one in written.splitlines()]
        shown = [row["data"] if layout == "label-studio" else row | row["meta"] for row in rows]
        assert [(row["id"], row["text"]) for row in shown] == list(zip(ids, texts_of, strict=True))


def test_what_cannot_be_suggested_is_said(posts, tmp_path):
    strange = write_labels(tmp_path / "strange.csv", ["nobody"])
    said = bagwise("suggest", posts / "posts.index", "--labels", strange, code=1)
    assert "names an item of" in said
    assert "--format" in bagwise("suggest", posts / "posts.index", "--format", "xml", code=1)
    assert "--out FILE" in bagwise("suggest", posts / "posts.index", "--format", "prodigy", code=1)
    bagwise("index", posts / "posts.bagwise", posts / "posts", "--by", "groups", "--out", tmp_path / "groups.index")
    said = bagwise("suggest", tmp_path / "groups.index", code=1)
    assert "Index them anew, by --by 'both'" in said
