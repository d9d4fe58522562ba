"""What commands show of items: beginnings of what was found, texts beside answers, no class where it is doubtful."""

import csv
import io
import json
import shutil

import numpy as np
import pyarrow.parquet
import pytest

from bagwise import Model, open_collection
from bagwise.app import ItemIndex
from commands import as_json, bagwise
from small_sources import texts, write_image_folder, write_records, write_table, write_text_folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A source of each kind, with its model and its index."""
    folder = tmp_path_factory.mktemp("snippets")
    write_text_folder(folder / "texts")
    write_records(folder / "records.csv")
    write_table(folder / "table.csv")
    write_image_folder(folder / "images")
    for name in ("texts", "records.csv", "table.csv", "images"):
        words = ("--words", 20, "--descriptor", "sift") if name == "images" else ()
        bagwise("fit", folder / name, "--out", folder / f"{name.removesuffix('.csv')}.bagwise", "--no-page", *words)
    return folder


def hits_of(folder, name, *options):
    (query,) = as_json("search", folder / f"{name}.index", *options)["queries"]
    return query["hits"]


@pytest.mark.parametrize("name", ["texts", "records"])
def test_results_show_the_beginnings_of_texts(place, name):
    source = place / ("texts" if name == "texts" else "records.csv")
    contents = {item.id: item.load() for item in open_collection(source)}
    hits = hits_of(place, name, "-t", "ripe pear and plum", "-k", 4)
    assert [hit["snippet"] for hit in hits] == [contents[hit["id"]] for hit in hits]
    printed = bagwise("search", place / f"{name}.index", "-t", "ripe pear and plum", "-k", 4).splitlines()
    assert printed[1].split() == ["score", "by", "words", "class", "item", "beginning"]
    for line, hit in zip(printed[2:], hits, strict=True):
        assert f"{hit['similarity_by_words']:.4f}" in line
        assert line.endswith(hit["snippet"]) or (line.endswith("…") and 70 < len(line) <= 80)


def test_results_show_the_first_columns_of_rows_and_only_names_of_images(place):
    rows = open_collection(place / "table.csv")
    hits = hits_of(place, "table", place / "table.csv", "--row", 5)
    for hit in hits:
        first = rows.X[rows.ids.index(hit["id"])][:8]
        assert hit["snippet"] == ", ".join([*(f"w{k} {value:g}" for k, value in enumerate(first)), "…"])
    picture = next((place / "images").rglob("*.png"))
    assert {hit["snippet"] for hit in hits_of(place, "images", picture)} == {None}
    assert "beginning" not in bagwise("search", place / "images.index", picture)


def test_the_similarity_by_words_is_that_of_a_search_by_words(place):
    asked = ("-t", "ripe pear and plum", "-k", 36)
    by_words = {hit["id"]: hit["score"] for hit in hits_of(place, "texts", *asked, "--by", "words")}
    for by in ("both", "classes", "words"):
        hits = hits_of(place, "texts", *asked, "--by", by)
        wanted = [by_words[hit["id"]] for hit in hits]
        np.testing.assert_allclose([hit["similarity_by_words"] for hit in hits], wanted, atol=1e-6)
    assert [hit["score"] for hit in hits] == wanted
    assert "by words" not in bagwise("search", place / "texts.index", *asked, "--by", "words").splitlines()[1]


def test_similarities_by_words_of_other_indexes(place, tmp_path):
    for by, metric in (("groups", "hellinger"), ("words", "chi2"), ("words", "hellinger")):
        path, how = tmp_path / f"{by}-{metric}.index", ("--by", by, "--metric", metric, "--map", "none")
        bagwise("index", place / "texts.bagwise", place / "texts", "--out", path, *how)
        (query,) = as_json("search", path, "-t", "ripe pear")["queries"]
        known = [hit["similarity_by_words"] for hit in query["hits"]]
        assert known == [hit["score"] if path.stem == "words-hellinger" else None for hit in query["hits"]]
    new = [text for text, _ in texts(n_each=3, seed=4)]
    for number, text in enumerate(new):
        path = tmp_path / "new" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    bagwise("fit", tmp_path / "new", "--out", tmp_path / "new.bagwise", "--groups", 3, "--no-page", "-q")
    opened = ItemIndex.load(tmp_path / "new.index")  # without classes, by words and groups
    query = opened.model.histograms([new[4]])
    found = opened.search(query, 9)[0]
    by_words = {one.id: one.score for one in opened.search(query, 9, by="words")[0]}
    np.testing.assert_allclose(opened.similarity_by_words(query, found), [by_words[one.id] for one in found], atol=1e-6)


def test_items_that_are_gone_or_changed_have_no_snippet(place, tmp_path):
    source = shutil.copytree(place / "texts", tmp_path / "texts")
    bagwise("index", place / "texts.bagwise", source, "--out", tmp_path / "i.index", "--map", "none")
    asked = ("search", tmp_path / "i.index", "-t", "ripe pear and plum", "-k", 3)
    first, second, third = (source / hit["id"] for hit in as_json(*asked)["queries"][0]["hits"])
    first.unlink()
    second.write_bytes(b"\xff\xfe\xff")
    assert [hit["snippet"] for hit in as_json(*asked)["queries"][0]["hits"]] == [None, None, third.read_text()]
    shutil.move(source, tmp_path / "moved")
    assert [hit["snippet"] for hit in as_json(*asked)["queries"][0]["hits"]] == [None] * 3
    assert "beginning" not in bagwise(*asked)
    moved = as_json(*asked, "--source", tmp_path / "moved")["queries"][0]["hits"]
    assert moved[2]["snippet"] == (tmp_path / "moved" / moved[2]["id"]).read_text()


def test_answers_have_texts(place, tmp_path):
    asked = ("predict", place / "texts.bagwise", place / "texts", "--show", "text")
    plain = as_json(*asked[:-2])["answers"]
    wanted = [row | {"text": item.load()} for row, item in zip(plain, open_collection(place / "texts"), strict=True)]
    assert as_json(*asked)["answers"] == wanted
    for ending in ("csv", "jsonl", "parquet"):
        bagwise(*asked, "--out", tmp_path / f"a.{ending}")
    rows = csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text()))
    lines = map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())
    for table in (rows, lines, pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()):
        assert [row["text"] for row in table] == [row["text"] for row in wanted]
    (answer,) = as_json("predict", place / "texts.bagwise", "-t", "a ripe\npear", "--show", "text")["answers"]
    assert answer["text"] == "a ripe\npear"
    assert bagwise("predict", place / "texts.bagwise", "-t", "a ripe\npear", "--show", "text").endswith("a ripe pear\n")
    shown = bagwise("predict", place / "images.bagwise", place / "images", "--show", "text", code=1)
    assert "--show text is for texts, but this model takes images" in shown
    assert "Unknown --show: 'nix'" in bagwise(*asked[:-1], "nix", code=1)


def test_doubtful_answers_have_no_class(place, tmp_path):
    asked = ("predict", place / "texts.bagwise", place / "texts")
    plain = as_json(*asked)["answers"]
    least = float(np.median([row["probability"] for row in plain]))
    told = as_json(*asked, "--min-probability", least)
    for row, before in zip(told["answers"], plain, strict=True):
        given = before["class"] if before["probability"] >= least else None
        assert row == before | {"class": given, "most_likely": before["class"]}
    n_abstained = sum(row["class"] is None for row in told["answers"])
    assert 0 < told["n_abstained"] == n_abstained == told["n_items"] - sum(told["classes"].values())
    printed = bagwise(*asked, "--min-probability", least, "--out", tmp_path / "a.csv")
    assert f"{n_abstained} texts of 36 without a class: its probability is below {100 * least:.1f} %" in printed
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [row["class"] or None for row in rows] == [row["class"] for row in told["answers"]]
    assert sum(" – " in line for line in bagwise(*asked, "--min-probability", least).splitlines()) == n_abstained
    assert as_json(*asked, "--min-probability", 0)["n_abstained"] == 0
    model = Model.load(place / "texts.bagwise")
    few = model.cut(model.n_groups).trim()
    few._set(calibration={})
    few.save(tmp_path / "few.bagwise")
    message = bagwise("predict", tmp_path / "few.bagwise", "-t", "pear", "--min-probability", 0.5, code=1)
    assert "--min-probability needs probabilities, which come from cross-validation, but this model has none" in message
