"""The page Labels: planted wrong labels come first; decisions are kept, undone, and a fit takes them."""

import asyncio
import json

import numpy as np
import pytest

from bagwise import BagwiseError, open_collection
from bagwise.app import FitOptions, run_fit
from bagwise.app.explorer import open_workspace
from bagwise.app.explorer.app import make_app
from bagwise.app.explorer.label_changes import LabelChanges
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.index.item_scores import score_items
from bagwise.app.index.label_issues import label_issues
from bagwise.app.training.relabelling import read_relabelling, write_relabelling
from explorer_requests import respond
from small_sources import write_text_folder
from waiting import until

OPTIONS = FitOptions(n_groups=5, folds=3)
PLANTED = {"fruit/wrong.txt": "tools", 'birds/=odd, "name".txt': "fruit"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """An index of texts of which two are in a folder of another class."""
    folder = write_text_folder(tmp_path_factory.mktemp("labels") / "texts")
    for name, label in PLANTED.items():
        (folder / name).write_text(
            (folder / label / ("000.txt" if label == "fruit" else "013.txt")).read_text() + " of"
        )
    return index_of_fit(run_fit(folder, OPTIONS), None, folder, OPTIONS).save(folder.parent / "texts.index")


@pytest.fixture
def space(path):
    opened = open_workspace(path)
    yield opened
    if opened.labels.path.exists():
        opened.labels.path.unlink()


def answer(space, path, content=None, code=200):
    body = b"" if content is None else json.dumps(content).encode()
    status, _, sent = asyncio.run(respond(make_app(space), "GET" if content is None else "POST", path, {}, body))
    assert status == code, sent
    return json.loads(sent)


def test_planted_labels_come_first_with_what_they_should_be(space):
    told = answer(space, "/api/labels?n=5")
    shown = {row["id"]: row for row in told["items"][: len(PLANTED)]}
    assert {id: row["predicted"] for id, row in shown.items()} == PLANTED
    assert told["n_fair"] == len(space.items)
    confidence = [row["self_confidence"] for row in told["items"]]
    assert confidence == sorted(confidence)
    assert all(0 <= row["self_confidence"] < row["self_confidence"] - row["margin"] <= 1 for row in told["items"])
    margins = [row["margin"] for row in answer(space, "/api/labels?n=5&sort=margin")["items"]]
    assert margins == sorted(margins)
    fruit = space.model.classes.index("fruit")
    of_class = answer(space, f"/api/labels?n=5&label={fruit}")["items"]
    assert [row["id"] for row in of_class] == [row["id"] for row in told["items"] if row["label"] == "fruit"]
    first = told["items"][0]
    near = answer(space, f"/api/labels/{first['number']}/nearest?n=5&other={first['suggested']}")["nearest"]
    assert [{row["label"] for row in some} for some in near] == [{first["label"]}, {first["predicted"]}]


def test_the_order_is_that_of_its_definition(space):
    scored = score_items(space.items.index, space.model)
    values = scored.sharpness * scored.scores
    probable = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    rows = np.arange(len(probable))
    confidence, best = probable[rows, scored.codes], probable.max(axis=1)
    wrong = np.flatnonzero(confidence < best)
    assert label_issues(scored).numbers.tolist() == wrong[np.argsort(confidence[wrong])].tolist()
    assert label_issues(scored, "margin").numbers.tolist() == wrong[np.argsort((confidence - best)[wrong])].tolist()
    with pytest.raises(BagwiseError, match="Unknown order"):
        label_issues(scored, "size")


def test_models_say_nothing_of_labels_that_they_have_seen(path):
    counted = open_workspace(path, path.parent / "texts")  # without folds
    told = answer(counted, "/api/labels?n=5")
    assert (told["total"], told["n_fair"]) == (0, 0)


def test_decisions_are_saved_undone_and_read_again(space, path):
    numbers = [space.numbers[id] for id in PLANTED]
    answer(space, "/api/labels/decide", {"number": numbers[0], "label": "tools"})
    answer(space, "/api/labels/decide", {"number": numbers[1], "label": ""})
    state = answer(space, "/api/labels/decide", {"number": numbers[1], "label": "birds"})
    assert (state["n_decided"], state["n_left"], state["n_undoable"]) == (2, 0, 3)
    decided = dict(zip(PLANTED, ("tools", ""), strict=True))
    assert answer(space, "/api/labels/undo", {})["n_left"] == 1
    assert read_relabelling(space.labels.path) == open_workspace(path).labels.labels == decided
    rows = {row["id"]: row["decided"] for row in answer(space, "/api/labels?n=5")["items"]}
    assert [rows[id] for id in PLANTED] == ["tools", ""]
    answer(space, "/api/labels/undo", {})
    answer(space, "/api/labels/undo", {})
    assert read_relabelling(space.labels.path) == {}
    assert answer(space, "/api/labels/undo", {}, 400)["error"] == "There is no decision to undo."
    space.labels.path.write_text("id,label\nx,y\n")  # by another program
    assert (
        "was changed by another program" in answer(space, "/api/labels/decide", {"number": 0, "label": ""})["problem"]
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"number": "0"}, "needs the number"),
        ({"number": 999}, "no item 999"),
        ({"number": 0, "label": "cats"}, "a class"),
    ],
)
def test_decisions_are_checked(space, content, message):
    assert message in answer(space, "/api/labels/decide", content, 400)["error"]
    space.labels.read_only = True
    assert "--read-only" in answer(space, "/api/labels/decide", {"number": 0, "label": ""}, 403)["error"]


def test_a_fit_with_decisions_is_that_of_the_command_line(space, tmp_path):
    labels = dict(zip(PLANTED, ("tools", ""), strict=True))
    for id, label in labels.items():
        answer(space, "/api/labels/decide", {"number": space.numbers[id], "label": label})
    answer(space, "/api/labels/refit", {})
    until(lambda: not space.labels.running)
    told = answer(space, "/api/labels/state")["refitted"]
    write_relabelling(tmp_path / "new.csv", labels)
    fit = run_fit(path_of_source(space), OPTIONS.with_changes(relabel=str(tmp_path / "new.csv")))
    assert "problem" not in told, told
    assert told["after"] == fit.model.path.errors[fit.model.path.sizes.index(5)]
    assert "1 label was changed and 1 item left out, as" in " ".join(fit.notes)
    ids = list(fit.data.collection.ids)
    assert fit.data.collection.labels[ids.index("fruit/wrong.txt")] == "tools"
    assert len(ids) == len(space.ids) - 1
    assert told["before"] == space.cut(5).error > told["old_answers"]


def path_of_source(space):
    return space.items.index.source


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,label\nfruit/nothing.txt,tools\n", "1 of 1 item in .* not in .* such as 'fruit/nothing.txt'"),
        ("id,label\nfruit/000.txt,tools\nfruit/000.txt,birds\n", "two labels, 'tools' and 'birds'"),
        ("name,class\na,b\n", "its columns are name, class; expected id and label"),
        (None, "There is no file .*columns id and label"),
    ],
)
def test_files_of_labels_are_checked(space, tmp_path, content, message):
    file = tmp_path / "new.csv"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BagwiseError, match=message):
        run_fit(path_of_source(space), OPTIONS.with_changes(relabel=str(file)))


def test_labels_of_collections_are_corrected_too(space, tmp_path):
    write_relabelling(tmp_path / "new.csv", {"fruit/000.txt": "tools"})
    collection = open_collection(path_of_source(space))
    fit = run_fit(collection, OPTIONS.with_changes(folds=0, relabel=str(tmp_path / "new.csv")))
    assert fit.codes[0 + list(fit.data.collection.ids).index("fruit/000.txt")] == fit.model.classes.index("tools")


def test_decisions_without_a_file_are_kept():
    changes = LabelChanges(None)
    changes.decide("a", "")
    changes.undo()
    assert (changes.labels, changes.problem) == ({}, None)
