"""The page of two classes: what tells them apart adds up, and groups are left out exactly."""

import asyncio
import json

import numpy as np
import pytest

from bagwise import open_collection
from bagwise.app import FitOptions, run_fit
from bagwise.app.explorer import open_workspace, pages
from bagwise.app.explorer.app import make_app
from bagwise.app.index.item_index import index_of_fit
from explorer_requests import respond
from small_sources import write_image_folder, write_table


def answer(space, path, code=200):
    status, _, body = asyncio.run(respond(make_app(space), "GET", path, {}, b""))
    assert status == code, body
    return json.loads(body)


@pytest.mark.parametrize("kind", ["stored", "space"])
def test_groups_add_up_to_the_distance_of_held_out_scores(kind, request):
    space = request.getfixturevalue(kind)
    told = answer(space, "/api/between?n=7&first=0&second=2")
    scored = space.items.scores(space.cut(7).model)
    # answers of an index are held out; a source is answered by the model, which was learned from it
    assert told["held_out"] == (kind == "stored")
    difference = scored.scores[:, 0] - scored.scores[:, 2]
    means = [difference[scored.codes == k].mean() for k in (0, 2)]
    # folds differ in their intercepts, which are in both means but for how many items of a class each tests
    assert told["groups"]["distance"] == pytest.approx(means[0] - means[1], abs=1e-6 if kind == "space" else 0.1)
    rows = told["groups"]["rows"]
    assert sum(row["apart"] for row in rows) + told["groups"]["rest"] == pytest.approx(told["groups"]["distance"])
    assert [abs(row["apart"]) for row in rows] == sorted((abs(row["apart"]) for row in rows), reverse=True)
    assert all(row["apart"] == pytest.approx(row["means"][0] - row["means"][1]) for row in rows)
    swapped = answer(space, "/api/between?n=7&first=2&second=0")["groups"]["rows"]
    one, other = ({row["number"]: row["side"] for row in some if row["apart"]} for some in (rows, swapped))
    assert one == {number: 1 - side for number, side in other.items()}


def test_items_between_two_classes_are_wrong_or_near(stored):
    apart = stored.cut(2).confusion * (1 - np.eye(3, dtype=int))
    first, second = divmod(int(apart.argmax()), 3)
    told = answer(stored, f"/api/between?n=2&first={first}&second={second}")
    scored = stored.items.scores(stored.cut(2).model)
    wrong = [(scored.codes == a) & (scored.top.predicted == b) for a, b in ((first, second), (second, first))]
    assert told["n_wrong"] == [int(one.sum()) for one in wrong]
    assert sum(told["n_wrong"])
    shown = {one["kind"]: one["rows"] for one in told["items"]}
    names = [stored.model.classes[k] for k in (first, second)]
    for kind, chosen, label in zip(("wrong_first", "wrong_second"), wrong, names, strict=True):
        assert {row["number"] for row in shown[kind]} == set(np.flatnonzero(chosen)[:12].tolist())
        assert all(row["label"] == label and not row["right"] for row in shown[kind])
    assert all(row["right"] for row in shown["right_first"] + shown["right_second"])
    near = [row["number"] for row in shown["right_first"]]
    difference = (scored.scores[:, first] - scored.scores[:, second])[near]
    assert difference.tolist() == sorted(difference)


def test_leaving_out_groups_is_measured_by_folds(stored):
    plain = answer(stored, "/api/between?n=5&first=0&second=1")
    assert plain["after"] == plain["before"]
    assert plain["before"]["error"] == pytest.approx(stored.model.path.errors[stored.model.path.sizes.index(5)])
    least = plain["groups"]["rows"][-1]["number"]
    others = [k for k in range(5) if k != least]
    told = answer(stored, f"/api/between?n=5&first=0&second=1&without={','.join(map(str, others))}")
    model = stored.cut(5).model
    measured = stored.items.steering.measure(model, np.flatnonzero(model.lookup != least))
    assert told["after"]["error"] == measured.error > plain["before"]["error"]
    assert told["after"]["protocol"].startswith("3-fold cross-validation")
    after = measured.held_out.predicted
    assert {row["after"] for one in told["items"] for row in one["rows"]} <= {model.classes[k] for k in after}
    before, codes = stored.items.scores(model).top.predicted, stored.items.codes
    assert told["changed"] == {
        "n": int((before != after).sum()),
        "righted": int(((after == codes) & (before != codes)).sum()),
        "wronged": int(((after != codes) & (before == codes)).sum()),
    }


def test_words_of_a_group_are_marked_where_they_are(stored):
    model, numbers = stored.cut(5).model, [0, 5, 20]
    for group in range(5):
        told = answer(stored, f"/api/between/places?n=5&group={group}&items=0,5,20")["places"]
        words = {model.word_names[k] for k in model.groups()[group]}
        for number in numbers:
            marked = {piece.casefold() for piece, mark in told[str(number)]["text"] if mark}
            there = set(stored.items.item(number).load().casefold().split())
            assert words & there <= marked <= {part for word in words for part in word.split()}


@pytest.mark.parametrize("kind", ["images", "table"])
def test_places_of_a_group_in_images_and_rows(kind, tmp_path):
    if kind == "images":
        source, options = write_image_folder(tmp_path / "images", side=40), FitOptions(n_words=12, n_groups=4, folds=2)
    else:
        source, options = write_table(tmp_path / "table.csv"), FitOptions(n_groups=4, folds=2)
    fit = run_fit(source, options)
    space = open_workspace(index_of_fit(fit, None, source, options).save(tmp_path / "one.index"))
    model = space.model
    told = [answer(space, f"/api/between/places?n=4&group={group}&items=1")["places"]["1"] for group in range(4)]
    if kind == "table":
        row = model.histograms(open_collection(source))[[1]]
        assert [{name for name, _ in one["columns"]} for one in told] == [
            {model.word_names[k] for k in members if np.asarray(row)[0, k]} for members in model.groups()
        ]
    else:  # each word of the image is in one group
        assert np.shape(told[0]["heat"]) == (24, 24)
        features = np.ravel(model.transform(open_collection(source))[[1]].toarray())
        assert [np.sum(one["heat"]) > 0 for one in told] == (features > 0).tolist()
    assert answer(space, "/api/between?n=4&first=0&second=1")["held_out"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("first=0", "needs a number for second"),
        ("first=0&second=0", "Two different classes"),
        ("first=0&second=9", "There is no class 9"),
        ("first=0&second=1&without=99", "numbered from 0 to 4"),
        ("first=0&second=1&without=1;2", "whole numbers with commas"),
    ],
)
def test_what_is_asked_for_is_checked(stored, query, message):
    assert message in answer(stored, f"/api/between?n=5&{query}", 400)["error"]


def test_places_are_those_of_shown_items(stored):
    assert "at most 36 items" in answer(stored, "/api/between/places?n=5&group=0&items=999", 400)["error"]
    with pytest.raises(Exception, match="There are no items"):
        pages.between.between(type(stored)(stored.model), 5, 0, 1)
