"""The Python lines of each page are run, and give what the page shows."""

import asyncio
import contextlib
import dataclasses
import io
import json
from urllib.parse import quote

import numpy as np
import pytest

from bagwise import open_collection
from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.explorer import open_other, open_workspace, pages
from bagwise.app.explorer.app import make_app
from explorer_requests import respond


def answer_of(space, path, method="GET", body=b""):
    status, _, body = asyncio.run(respond(make_app(space), method, path, {}, body))
    assert status == 200, body
    return json.loads(body)


def run(lines):
    """Run lines; gives their variables."""
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(lines, "lines", "exec"), names)
    return names


@pytest.fixture(scope="module", params=["counted", "stored", "model"])
def opened(request, explored, tmp_path_factory):
    """A workspace whose items are counted, or stored in the index, and one of a model with a source."""
    if request.param == "stored":
        return open_workspace(explored)
    if request.param == "counted":
        return open_workspace(explored, explored.parent / "texts")
    hostile = tmp_path_factory.mktemp("it's \"quoted\"\n__import__('os')") / "a'b.bagwise"
    return open_workspace(open_workspace(explored).model.save(hostile), explored.parent / "texts")


def test_the_overview(opened):
    names = run(answer_of(opened, "/api/python/overview?n=5")["lines"])
    told = pages.overview.overview(opened, 5)
    assert names["confusion"].tolist() == told["confusion"]
    assert list(names["errors"].values()) == told["path"]["errors"]


@pytest.mark.parametrize("query", ["", "&find=HAM", "&label=1", "&find=%27%22"])
def test_groups(opened, query):
    names = run(answer_of(opened, f"/api/python/groups?n=5{query}")["lines"])
    told = answer_of(opened, f"/api/groups?n=5&sort=number{query}")["groups"]
    assert [group.number for group in names["groups"]] == [group["number"] for group in told]
    assert [group.title for group in names["groups"]] == [group["name"] for group in told]


def test_one_group(opened):
    names = run(answer_of(opened, "/api/python/groups?n=5&group=2")["lines"])
    told = answer_of(opened, "/api/groups/2?n=5")
    assert sorted(names["group"].words) == sorted(word["name"] for word in told["words"])


HOSTILE = quote("'); raise SystemExit  #\"\\")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "&right=wrong",
        "&label=1&predicted=1",
        "&sort=margin",
        "&sort=-margin&right=right",
        "&sort=id&find=T",
        f"&find={HOSTILE}",
        "&group=2",
        "&seen=training",
        "&at_least=0.3&at_most=0.9&sort=score",
        "&which=disagree&m=2",
        "&which=agree&against=size&m=3&second=1",
        "&which=both_right&m=2",
    ],
)
def test_items(opened, query):
    names = run(answer_of(opened, f"/api/python/items?n=5{query}")["lines"])
    told = answer_of(opened, f"/api/items?n=5&most=200{query}")
    ids = [opened.ids[row["number"]] for row in told["items"]]
    assert [names["ids"][k] for k in names["chosen"]] == ids


def test_an_item_with_a_hostile_name(opened):
    number = next(k for k, id in enumerate(opened.ids) if "onerror" in id)
    for of in ("", "&of=1"):
        names = run(answer_of(opened, f"/api/python/items?n=5&item={number}{of}")["lines"])
        why = answer_of(opened, f"/api/items/{number}?n=5{of}")["why"]
        assert names["item"].id == opened.ids[number]
        assert names["why"].predicted == why["predicted"]
        by = opened.items.answered_by(opened.model.cut(5), number) or opened.model.cut(5)
        assert names["term"].name in by.group_names()


@pytest.mark.parametrize("without", ["", "&without=1,3"])
def test_two_classes(opened, without):
    names = run(answer_of(opened, f"/api/python/between?n=5&first=0&second=2{without}")["lines"])
    told = answer_of(opened, f"/api/between?n=5&first=0&second=2{without}")
    shown = {row["number"]: row["apart"] for row in told["groups"]["rows"]}
    np.testing.assert_allclose(names["apart"], [shown[k] for k in range(5)], atol=1e-5)
    assert names["scored"].measured.error == pytest.approx(told["after"]["error"])


@pytest.mark.parametrize("query", ["", "&label=1&sort=margin"])
def test_labels(opened, query):
    names = run(answer_of(opened, f"/api/python/labels?n=2{query}")["lines"])
    told = answer_of(opened, f"/api/labels?n=2&most=200{query}")["items"]
    assert names["chosen"] == [(opened.ids[row["number"]], opened.model.classes[row["suggested"]]) for row in told]


@pytest.mark.parametrize("query", ["", "&by=words", "&by=groups", "&by=groups&metric=chi2"])
def test_a_search(opened, query):
    names = run(answer_of(opened, f"/api/python/search?n=5&like=3&k=6{query}")["lines"])
    told = answer_of(opened, f"/api/items/3/similar?n=5&k=6{query}")["hits"]
    scores = [hit.score for hit in names["hits"] if hit.id != opened.ids[3]][:6]
    np.testing.assert_allclose(scores, [hit["score"] for hit in told], atol=1e-5)
    text = 'apple \'pear\' """ plum \\ \n hammer'
    told = answer_of(opened, f"/api/search?n=5&k=6{query}", "POST", text.encode())
    names = run(told["lines"])
    np.testing.assert_allclose([hit.score for hit in names["hits"]], [hit["score"] for hit in told["hits"]], atol=1e-5)
    titles = {group.name: group.title for group in opened.model.cut(5).describe_groups()} if "groups" in query else {}
    first = [titles.get(terms[0].name, terms[0].name) for terms in names["shared"]]
    assert first == [hit["shared"][0]["name"] for hit in told["hits"]]


@pytest.mark.parametrize("against", ["size", "other"])
def test_a_comparison(opened, against, tmp_path):
    if against == "other":
        opened.other = open_other(opened, opened.model.cut(3).save(tmp_path / "other.bagwise"))
    names = run(answer_of(opened, f"/api/python/compare?n=5&m=2&against={against}")["lines"])
    told = answer_of(opened, f"/api/compare?n=5&m=2&against={against}")
    assert names["paired"].to_dict() == told["items"]["paired"]
    assert names["overlap"].adjusted_rand == told["groups"]["adjusted_rand"]
    opened.other = None


@pytest.fixture(scope="module")
def partly_seen(explored):
    """The path of an index of which a part is new to its model, and that of another model of other words."""
    folder, place = explored.parent / "texts", explored.parent
    collection = open_collection(folder)
    half = FitOptions(n_groups=4, folds=0)
    model = run_fit(collection[::2], half).model
    ItemIndex.build(model, collection, model.histograms(collection), source=folder).save(place / "half.index")
    other = run_fit(collection[1::3], FitOptions(n_groups=3, folds=0, min_count=3)).model
    return place / "half.index", other.save(place / "third.bagwise")


@pytest.mark.parametrize("counted", [False, True])
def test_items_that_a_model_was_trained_on_are_left_out(partly_seen, explored, counted):
    path, other = partly_seen
    space = open_workspace(path, explored.parent / "texts" if counted else None)
    space.other = open_other(space, other)
    for against, m in (("size", 2), ("other", 3)):
        told = answer_of(space, f"/api/compare?n=4&m={m}&against={against}")
        names = run(answer_of(space, f"/api/python/compare?n=4&m={m}&against={against}")["lines"])
        assert names["paired"].to_dict() == told["items"]["paired"]
        if not counted:  # the file of the model keeps hashes of few items, so that others are not known to be new
            assert 0 < told["items"]["n_counted"] < told["items"]["n_labelled"]
        query = f"n=4&m={m}&against={against}&which=both_right"
        names = run(answer_of(space, f"/api/python/items?{query}")["lines"])
        rows = answer_of(space, f"/api/items?most=200&{query}")["items"]
        assert [names["ids"][k] for k in names["chosen"]] == [space.ids[row["number"]] for row in rows]
        assert len(rows) == told["items"]["paired"]["both_right"]


def test_an_edited_model_before_its_edits(opened, tmp_path):
    word = opened.model.word_names[int(opened.model.cut(5).groups()[0][0])]
    edited = opened.model.apply([{"edit": "move", "n_groups": 5, "words": [word], "to": 1}])
    if opened.origin.is_index:
        index = ItemIndex.load(opened.origin.path)
        rows = {size: row for size, row in index.answers.rows.items() if size in edited.heads}
        answers = index.answers.replaced(rows, index.answers.protocol)
        path = dataclasses.replace(index, model=edited, answers=answers).save(tmp_path / "edited.index")
    else:
        path = edited.save(tmp_path / "edited.bagwise")
    space = open_workspace(path, opened.origin.source)
    query = "n=5&m=5&against=unedited"
    names = run(answer_of(space, f"/api/python/compare?{query}")["lines"])
    told = answer_of(space, f"/api/compare?{query}")
    assert names["paired"].to_dict() == told["items"]["paired"]
    moved = names["overlap"].words[names["overlap"].moved, 0]
    assert [names["model"].word_names[k] for k in moved] == [one["name"] for one in told["groups"]["moved"]] == [word]
    lines = answer_of(space, f"/api/python/items?which=agree&{query}")["lines"]
    names, rows = run(lines), answer_of(space, f"/api/items?most=200&which=agree&{query}")
    assert [names["ids"][k] for k in names["chosen"]] == [space.ids[row["number"]] for row in rows["items"]]


def test_a_workspace_without_a_file_has_none(opened):
    from bagwise import BagwiseError
    from bagwise.app.explorer import Workspace
    from bagwise.app.explorer.python_lines import overview_lines

    with pytest.raises(BagwiseError, match="not opened from a file"):
        overview_lines(Workspace(opened.model), 5)
