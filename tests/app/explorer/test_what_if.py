"""An item with other words or values: the model that gave the answer is asked again, and sums still add up."""

import asyncio
import json

import numpy as np
import pytest

from bagwise.app import FitOptions, run_fit
from bagwise.app.explorer import open_workspace
from bagwise.app.explorer.app import make_app
from bagwise.app.index.item_index import index_of_fit
from explorer_requests import respond
from small_sources import write_image_folder, write_table


def answer(space, path, content=None, code=200):
    body = b"" if content is None else json.dumps(content).encode()
    status, _, sent = asyncio.run(respond(make_app(space), "GET" if content is None else "POST", path, {}, body))
    assert status == code, sent
    return json.loads(sent)


def total(why):
    return why["intercept"] + sum(term["contribution"] for term in why["groups"]) + why["rest"]


@pytest.fixture(scope="module", params=["texts", "table", "measurements", "images"])
def space(request, tmp_path_factory, explored):
    folder = tmp_path_factory.mktemp("what-if")
    if request.param == "texts":
        return open_workspace(explored)
    if request.param == "images":
        source, options = write_image_folder(folder / "images", side=40), FitOptions(n_words=12, n_groups=4, folds=2)
    else:
        source, options = write_table(folder / "table.csv"), FitOptions(n_groups=4, folds=2)
        if request.param == "measurements":
            rows = [line.split(",") for line in source.read_text().splitlines()]
            halves = [[row[0], *(str(float(x) - 2.25) for x in row[1:])] for row in rows[1:]]
            source.write_text("\n".join(map(",".join, [rows[0], *halves])))
    fit = run_fit(source, options)
    assert (fit.model.column_shift is not None) == (request.param == "measurements")
    return open_workspace(index_of_fit(fit, None, source, options).save(folder / "one.index"))


def test_sums_by_the_groups_that_are_shown_add_up(space):
    cut = space.cut(4)
    for number in (0, 7):
        told = answer(space, f"/api/items/{number}?n=4")
        assert told["by_fold"]
        assert total(told["why"]) == pytest.approx(told["why"]["of_score"], abs=1e-6)
        assert {term["name"] for term in told["why"]["groups"]} <= {cut.title(k) for k in range(4)}
        same = answer(space, f"/api/items/{number}/what-if?n=4&of={told['why']['of']}&than=none", {})["why"]
        assert same["of_score"] == pytest.approx(told["why"]["of_score"], abs=1e-6)


def test_without_a_group_its_words_are_not_there(space):
    told = answer(space, "/api/items/1?n=4")["why"]
    group = told["groups"][0]["group"]
    query = f"n=4&of={told['of']}&than={'none' if told['than'] is None else told['than']}"
    why = answer(space, f"/api/items/1/what-if?{query}", {"groups": [group]})["why"]
    assert total(why) == pytest.approx(why["of_score"], abs=1e-6)
    assert group not in {term["group"] for term in why["groups"]}
    assert why["of_score"] != pytest.approx(told["of_score"], abs=1e-4)
    words = np.flatnonzero(space.cut(4).model.lookup == group).tolist()
    assert answer(space, f"/api/items/1/what-if?{query}", {"words": words})["why"] == why


def test_words_are_added_and_values_changed(space):
    modality, told = space.model.modality, answer(space, "/api/items/1?n=4")["why"]
    path = f"/api/items/1/what-if?n=4&of={told['of']}&than=none"
    if modality == "texts":
        model = space.items.answered_by(space.cut(4).model, 1)
        text = space.items.item(1).load()
        why = answer(space, path, {"added": "hammer drill"})["why"]
        (expected,) = model.explain([f"{text} hammer drill"])
        assert why["score"] == pytest.approx(expected.score, abs=1e-6)
    elif modality == "table":
        model = space.items.answered_by(space.cut(4).model, 1)
        row = (
            np.array(model.explain(space.items.item(1)).histogram.toarray(), float)
            if hasattr(model.explain(space.items.item(1)).histogram, "toarray")
            else np.array(model.explain(space.items.item(1)).histogram, float)
        )
        row[0, 3] = 11.5
        why = answer(space, path, {"values": {"w3": 11.5}})["why"]
        assert why["score"] == pytest.approx(model.explain(row)[0].score, abs=1e-6)
    else:
        assert "added to texts" in answer(space, path, {"added": "hammer"}, 400)["error"]
        assert "no column" in answer(space, path, {"values": {"w3": 1}}, 400)["error"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"groups": [99]}, "groups must be a list of numbers from 0 to 3"),
        ({"words": [-1]}, "words must be"),
        ({"words": "1"}, "words must be"),
        ({"added": 3}, "added must be a text"),
        ({"values": {"w0": "1"}}, "values must be finite numbers"),
        ({"values": {"nothing": 1}}, "There is no column"),
    ],
)
def test_what_is_changed_is_checked(space, content, message):
    assert message in answer(space, "/api/items/1/what-if?n=4&of=0&than=none", content, 400)["error"]


def test_places_have_the_group_of_their_words(space):
    told, cut = answer(space, "/api/items/1?n=4"), space.cut(4)
    if "text" in told:
        names = {name: k for k, name in enumerate(cut.model.word_names)}
        tokens = [(names[piece.casefold()], group) for piece, _, group in told["text"] if piece.casefold() in names]
        assert [group for _, group in tokens] == [cut.model.lookup[word] for word, _ in tokens]
    elif "columns" in told:
        names = {name: k for k, name in enumerate(cut.model.word_names)}
        assert [group for *_, group in told["columns"]] == [
            cut.model.lookup[names[name]] for name, *_ in told["columns"]
        ]
    else:
        assert set(told["heats"]) == {str(term["group"]) for term in told["why"]["groups"]}
        assert all(np.sum(heat) > 0 for heat in told["heats"].values())
