"""Items as an index knows them, against the same items counted from their source."""

import asyncio
import dataclasses
import json
import shutil

import numpy as np
import pytest

from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.explorer import Workspace, open_workspace, pages
from bagwise.app.explorer.app import make_app, prepare
from bagwise.app.explorer.python_lines import overview_lines
from bagwise.app.index.item_index import index_of_fit
from bagwise.errors import BagwiseError
from explorer_requests import respond
from small_sources import table, write_image_folder, write_table


def check_groups(stored, space, sizes):
    """What groups do in the items is the same."""
    for n in sizes:
        one, other = stored.cut(n), space.cut(n)
        if other.model.n_groups in other.model.heads:
            np.testing.assert_allclose(one.class_weights, other.class_weights, atol=2e-5)
        np.testing.assert_allclose(one.deciding, other.deciding, atol=2e-5)
        np.testing.assert_allclose(one.shares, other.shares)
        for group in range(0, n, max(n // 5, 1)):
            np.testing.assert_array_equal(one.of_items.with_group(group), other.of_items.with_group(group))


def test_an_index_shows_what_its_source_does(stored, space):
    assert list(stored.items.ids) == space.ids
    assert stored.items.codes.tolist() == space.items.codes.tolist()
    assert stored.items.place == space.items.place
    assert stored.items.seen.seen.tolist() == space.items.seen.seen.tolist()
    check_groups(stored, space, (1, 2, 5, 7, 10, space.model.hierarchy.n_words))
    assert pages.groups.hierarchy(stored) == pages.groups.hierarchy(space)
    for number in (0, 3, len(space.items) - 1):
        same = ("id", "label", "training")
        one, other = (pages.items.item(opened, 5, number) for opened in (stored, space))
        assert {name: one[name] for name in same} == {name: other[name] for name in same}
        for by in ("words", "classes", "both"):
            query = pages.search.SearchQuery(6, by)
            one, other = (pages.search.similar(opened, 5, number, query)["hits"] for opened in (stored, space))
            np.testing.assert_allclose([hit["score"] for hit in one], [hit["score"] for hit in other], atol=1e-5)
        assert {hit["number"] for hit in one[:3]} == {hit["number"] for hit in other[:3]}
    found = [pages.items.items(opened, 5, pages.items.ItemQuery(sort="id", find="t")) for opened in (stored, space)]
    assert [row["excerpt"] for row in found[0]["items"]] == [row["excerpt"] for row in found[1]["items"]]


def test_training_items_have_answers_of_cross_validation(stored):
    model = stored.model
    for size, error in zip(model.path.sizes, model.path.errors, strict=True):
        told = pages.overview.overview(stored, size)
        assert told["answered_at"] == size
        n_items, protocol = len(stored.items), "3-fold cross-validation"
        assert told["held_out"] == {"n": n_items, "error": told["error"], "protocol": protocol}
        # folds have nearly the same number of items, and errors are means over folds
        assert told["error"] == pytest.approx(error, abs=0.02)
        matrix = np.array(told["confusion"])
        assert 1 - np.trace(matrix) / matrix.sum() == pytest.approx(told["error"])
    between = pages.overview.overview(stored, 7)
    assert between["answered_at"] in (5, 10)
    assert between["confusion"] == pages.overview.overview(stored, between["answered_at"])["confusion"]
    row = pages.items.items(stored, 7, pages.items.ItemQuery())["items"][0]
    assert (row["held_out"], row["answered_at"]) == (True, between["answered_at"])


def test_items_whose_source_is_gone_are_listed(tmp_path, explored):
    folder = shutil.copytree(explored.parent / "texts", tmp_path / "texts")
    path = index_of_fit(run_fit(folder, FitOptions(n_groups=5, folds=0)), None, folder, FitOptions()).save(
        tmp_path / "gone.index"
    )
    kept = open_workspace(path)
    removed = kept.ids[1]
    (folder / removed).unlink()
    assert "is not in" in pages.items.item(kept, None, 1)["problem"]
    shutil.rmtree(folder)
    space = open_workspace(path)
    told = pages.items.items(space, 5, pages.items.ItemQuery(most=3))
    assert (told["total"], len(told["items"])) == (len(kept.ids), 3)
    assert told["items"][0]["predicted"]
    assert "does not exist any more" in pages.items.item(space, 5, 0)["problem"]
    assert pages.overview.overview(space, 5)["held_out"] is None
    assert len(pages.search.similar(space, None, 0, pages.search.SearchQuery(4))["hits"]) == 4


@pytest.mark.parametrize("modality", ["images", "pyramid", "two", "table"])
def test_other_items_are_shown_as_from_their_source(tmp_path, modality):
    if modality == "table":
        source = write_table(tmp_path / "table.csv")
        options = FitOptions(n_groups=4, folds=2)
    else:
        source = write_image_folder(tmp_path / "images", n_each=4, side=40, color=True)
        more = {"pyramid": {"pyramid": 5}, "two": {"descriptor": "sift+color"}}
        options = FitOptions(n_words=20, n_groups=5, folds=2, **more.get(modality, {}))
    fit = run_fit(source, options)
    path = index_of_fit(fit, None, source, options).save(tmp_path / "one.index")
    stored, space = open_workspace(path), open_workspace(path, source)
    assert stored.items.stored
    assert not space.items.stored
    check_groups(stored, space, {fit.model.n_groups, 3})
    if modality == "images":
        one, other = (
            pages.groups.groups(opened, None, pages.groups.GroupQuery())["groups"] for opened in (stored, space)
        )
        assert [group["has_patches"] for group in one] == [group["has_patches"] for group in other]
        assert stored.cut().patches == space.cut().patches


def test_an_index_without_answers_is_counted(tmp_path, explored, space):
    path = dataclasses.replace(ItemIndex.load(explored), answers=None).save(tmp_path / "without.index")
    assert ItemIndex.load(path).answers is None
    opened = open_workspace(path)
    assert opened.items.stored is space.items.stored is False
    other = {"title": "", "facts": []}  # of another file, and its size
    assert pages.overview.overview(opened, 5) | other == pages.overview.overview(space, 5) | other


@pytest.mark.parametrize("word", ["plain", "ham+saw", "x…(4)"])
def test_groups_are_named_as_by_the_model(space, word):
    names = list(space.model.word_names)
    names[names.index("hammer")] = word
    model = dataclasses.replace(space.model, word_names=names, given_names={1: "mine", 2: names[0]})
    alone = Workspace(model)
    assert alone.names_differ == (word == "plain")
    for n in (2, 5, 9, len(names)):
        cut = alone.cut(n)
        assert [cut.name(k) for k in range(n)] == cut.model.group_names().tolist()
        described = cut.model.describe_groups()
        assert [cut.title(k) for k in range(n)] == [one.title for one in described]
        assert len({one.title for one in described}) == n
        assert all(one.title.startswith(one.name if one.is_named else ", ".join(one.words[:3])) for one in described)


def test_what_pages_ask_first_is_prepared(explored):
    space = open_workspace(explored)
    told = pages.items.items(space, 5, pages.items.ItemQuery())
    assert told["opening"]
    assert "excerpt" not in told["items"][0]
    space.visited.set()
    prepare(space)
    assert "excerpt" in pages.items.items(space, 5, pages.items.ItemQuery())["items"][0]
    kept = pages.groups.hierarchy(space)
    space.new_cut = None  # it would fail if it were computed again
    status, _, body = asyncio.run(respond(make_app(space), "GET", "/api/hierarchy", {}, b""))
    assert (status, json.loads(body)) == (200, kept)
    assert space.items.ready


def test_measurements_have_the_answers_of_their_index(tmp_path):
    """Their index holds no words, which are counted from its source; answers of cross-validation are kept."""
    X, y = table()
    rows = [f"{','.join(map(str, row))},{name}" for row, name in zip((X - 1.5).tolist(), y, strict=True)]
    source = tmp_path / "rows.csv"
    source.write_text("\n".join([",".join([*(f"c{k}" for k in range(X.shape[1])), "label"]), *rows]))
    options = FitOptions(n_groups=3, folds=2, label="label")
    fit = run_fit(source, options)
    assert fit.model.column_shift is not None
    path = index_of_fit(fit, None, source, options).with_map().save(tmp_path / "rows.index")
    space = open_workspace(path)
    assert space.items.stored
    assert space.items.held_out.all()
    size = fit.model.path.sizes.index(3)
    np.testing.assert_array_equal(space.cut(3).answers.predicted, fit.held_out_top.at(size).predicted)
    assert space.cut(3).error == pytest.approx(fit.model.path.errors[size], abs=0.1)
    assert pages.overview.overview(space, 3)["held_out"]["n"] == len(y)
    assert pages.search.similar(space, None, 0, pages.search.SearchQuery(4))["hits"]
    names = {}
    lines = overview_lines(space, 3)
    exec(compile(lines, "lines", "exec"), names)
    assert names["confusion"].tolist() == space.cut(3).confusion.tolist()
    source.unlink()
    told = []
    assert open_workspace(path, note=told.append).items is None
    assert "no items are shown" in told[0]


def test_held_out_answers_are_explained_by_the_models_that_gave_them(stored):
    n_wrong = 0
    for n in stored.model.path.sizes:
        for number in range(len(stored.items)):
            told = pages.items.item(stored, n, number)
            why, classes = told["why"], stored.model.classes
            assert told["by_fold"]
            assert why["predicted"] == told["predicted"]
            assert (why["score"], why["margin"]) == pytest.approx((told["score"], told["margin"]), rel=2e-3, abs=2e-3)
            assert (why["of"], why["than"] is None) == (classes.index(told["predicted"]), told["right"])
            total = why["intercept"] + why["rest"] + sum(one["contribution"] for one in why["groups"])
            assert why["of_score"] == pytest.approx(total, abs=1e-5)
            if told["right"]:
                continue
            n_wrong += 1
            alone = pages.items.item(stored, n, number, than="none")["why"]
            other = pages.items.item(stored, n, number, why["than"])["why"]
            assert classes[why["than"]] == told["label"]
            assert alone["of_score"] == why["score"]
            assert why["of_score"] == pytest.approx(alone["of_score"] - other["of_score"], abs=1e-6)
    assert n_wrong > 0


def test_an_index_explains_its_items(stored, explored):
    index, names = ItemIndex.load(explored), {}
    for number in (0, len(index) - 1):
        told = pages.items.item(stored, 5, number)["why"]
        by_id, by_number = index.explain(index.ids[number], 5), index.explain(number, 5)
        assert by_id.predicted == by_number.predicted == told["predicted"]
        assert by_id.score == told["score"]
        assert index.answered_by(number, 5).hierarchy != index.model.hierarchy
        exec(compile(pages.items.item_lines(stored, 5, number, None), "lines", "exec"), names)
        assert names["why"].score == told["score"]
    with pytest.raises(BagwiseError, match="no item 'nothing'"):
        index.explain("nothing")
    new = dataclasses.replace(index, folds=None)
    assert new.answered_by(0) is None
    assert new.explain(0, 5).score == index.model.cut(5).explain(stored.items.item(0)).score


def test_answers_of_edited_groups_are_explained(tmp_path, explored):
    index = ItemIndex.load(shutil.copy(explored, tmp_path / "edited.index"))
    space = open_workspace(tmp_path / "edited.index")
    space.editor.edit({"edit": "join", "n_groups": 5, "groups": [0, 2]}, 0)
    again = ItemIndex.load(tmp_path / "edited.index")
    for number in range(0, len(index), 5):
        told = pages.items.item(space.editor.space, 4, number)
        assert told["by_fold"]
        assert told["why"]["predicted"] == told["predicted"]
        assert told["why"]["score"] == pytest.approx(told["score"], rel=2e-3, abs=2e-3)
        assert again.explain(number, 4).score == pytest.approx(told["why"]["score"])
        assert again.explain(number, 50).score == index.explain(number, 50).score  # as before
