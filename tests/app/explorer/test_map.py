"""The map of the explorer, without a browser."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bagwise.app import ItemIndex
from bagwise.app.explorer import open_workspace
from bagwise.app.explorer.item_maps import MapOfItems
from bagwise.app.explorer.pages import items, map
from bagwise.app.explorer.python_lines import map_lines
from bagwise.app.index.item_map import ItemMap
from bagwise.errors import BagwiseError
from waiting import PATIENCE, until


@pytest.fixture(scope="module")
def mapped(explored, tmp_path_factory):
    """The same items, whose index has a map."""
    path = tmp_path_factory.mktemp("mapped") / "texts.index"
    return open_workspace(ItemIndex.load(explored).with_map().save(path))


def parts(content, n):
    """Places, classes and clusters."""
    return (
        np.frombuffer(content[: 8 * n], "<f4").reshape(n, 2),
        np.frombuffer(content[8 * n : 12 * n], "<i4"),
        np.frombuffer(content[12 * n :], "<i2"),
    )


def test_points_are_those_of_the_index(mapped):
    told, n = map.told(mapped), len(mapped.items)
    assert told["running"] is None
    assert (told["map"]["n"], told["map"]["n_placed"], told["map"]["method"]) == (n, n, "spectral")
    found = mapped.items.index.map
    points, codes, clusters = parts(mapped.items.mapped.places.content, n)
    np.testing.assert_array_equal(points, found.points)
    np.testing.assert_array_equal(codes, mapped.items.codes)
    np.testing.assert_array_equal(clusters, found.clusters)
    for number, cluster in enumerate(told["map"]["clusters"]):
        inside = [mapped.items.index.labels[k] for k in np.flatnonzero(clusters == number)]
        assert cluster["n"] == len(inside)
        assert (
            cluster["share"]
            == inside.count(cluster["class"]) / len(inside)
            == max(inside.count(name) for name in set(inside)) / len(inside)
        )


def test_the_python_lines_give_the_map_of_the_index(mapped):
    names = {}
    exec(map_lines(mapped, 5), names)
    assert "with_map" not in map_lines(mapped, 5)
    np.testing.assert_array_equal(names["clusters"], mapped.items.mapped.places.map.clusters)


def test_answers_are_those_of_the_items(mapped):
    for n in (2, 5):
        predicted = np.frombuffer(map.answers(mapped, n), "<i4")
        rows = items.items(mapped, n, items.ItemQuery(most=100))["items"]
        assert [mapped.model.classes[k] for k in predicted.tolist()] == [row["predicted"] for row in rows]


def test_a_selection_is_listed_and_saved(mapped):
    chosen = np.array([7, 3, 11], "<i4")
    told = map.select(mapped, chosen.tobytes())
    assert told["total"] == 3
    assert told == map.select(mapped, np.array([3, 7, 11], "<i4").tobytes())
    found = items.items(mapped, 5, items.ItemQuery(selection=told["selection"]))
    assert [row["number"] for row in found["items"]] == [3, 7, 11]
    label = mapped.items.codes[3]
    fewer = items.items(mapped, 5, items.ItemQuery(selection=told["selection"], label=int(label)))
    assert [row["number"] for row in fewer["items"]] == [k for k in (3, 7, 11) if mapped.items.codes[k] == label]
    rows = map.rows(mapped, 5, chosen.tobytes())["rows"]
    listed = {row["number"]: [row["id"], row["label"], row["predicted"]] for row in found["items"]}
    assert rows == [listed[k] for k in chosen.tolist()]
    with pytest.raises(BagwiseError, match="not known any more"):
        items.items(mapped, 5, items.ItemQuery(selection="<b>"))
    for k in range(40):  # only the last are kept
        map.select(mapped, np.array([k % 3, 3 + k // 3], "<i4").tobytes())
    with pytest.raises(BagwiseError, match="not known any more"):
        items.items(mapped, 5, items.ItemQuery(selection=told["selection"]))


@pytest.mark.parametrize("body", [b"abc", np.array([10**6], "<i4").tobytes(), np.array([-1], "<i4").tobytes()])
def test_bad_numbers_are_refused(mapped, body):
    for act in (lambda: map.select(mapped, body), lambda: map.rows(mapped, 5, body)):
        with pytest.raises(BagwiseError, match=r"expected, got|numbered from 0"):
            act()
    with pytest.raises(BagwiseError, match="expected, got"):
        map.select(mapped, bytes(4 * len(mapped.items) + 4))


def test_a_map_is_made_in_the_background(ask, answer, space):
    assert answer("/api/map")["map"] is None
    assert "no map" in answer("/api/map/points", 404)["error"]
    assert "not by 'umap'" in answer("/api/map/make?method=umap", 400, method="POST")["error"]
    begun = answer("/api/map/make?method=spectral", method="POST")
    assert begun["running"] is None or begun["running"]["step"]
    space.items.mapped.wait()
    told, first = answer("/api/map"), space.items.mapped.places.map
    assert told["running"] is told["problem"] is None
    status, headers, body = ask("/api/map/points")
    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    n = len(space.items)
    expected = space.items.index.with_map().map
    np.testing.assert_array_equal(parts(body, n)[0], expected.points)
    assert len(ask("/api/map/answers?n=5")[2]) == 4 * n
    names = {}
    exec(answer("/api/python/map?n=5")["lines"], names)
    np.testing.assert_array_equal(np.stack([names["x"], names["y"]], axis=1), expected.points)
    chosen = np.array([0, 2], "<i4").tobytes()
    selection = answer("/api/map/select", method="POST", body=chosen)["selection"]
    assert answer(f"/api/items?n=5&selection={selection}")["total"] == 2
    assert ask(f"/api/map/selected?selection={selection}")[2] == chosen
    assert "not known any more" in answer("/api/map/selected?selection=x", 404)["error"]
    assert len(answer("/api/map/rows?n=5", method="POST", body=chosen)["rows"]) == 2
    assert "has no 'other'" in answer("/api/map/other", 404, method="POST")["error"]
    assert ask("/api/map/make?method=tsne", method="POST", origin="http://evil.example")[0] == 403
    again = json.loads(ask("/api/map")[2])["map"]["version"]
    answer("/api/map/make?method=tsne", method="POST")
    space.items.mapped.wait()
    assert answer("/api/map")["map"] | {"method": ""} != told["map"] | {"method": ""}
    assert answer("/api/map")["map"]["version"] == again + 1
    assert answer("/api/map/make?method=spectral", method="POST")["made"] == ["spectral", "tsne"]
    space.items.mapped.wait()
    assert space.items.mapped.places.map is first  # it is not computed again


def made(space, method="spectral"):
    map.make(space, method)
    space.items.mapped.wait()
    return space.items.mapped.places


def test_a_map_is_kept_in_the_index(explored, tmp_path):
    path = ItemIndex.load(explored).save(tmp_path / "texts.index")
    opened = open_workspace(path)
    assert made(opened).note == "It is kept in the index."
    kept = ItemIndex.load(path)
    assert kept.map.points.tobytes() == kept.with_map().map.points.tobytes()
    assert kept.answers.sizes == ItemIndex.load(explored).answers.sizes
    assert open_workspace(path).items.mapped.places.map.points.tobytes() == kept.map.points.tobytes()
    editor = opened.editor
    editor.edit({"edit": "rename", "n_groups": 5, "group": 1, "name": "mine"}, editor.space.revision)
    edited = ItemIndex.load(path)
    assert edited.model.edits
    assert edited.map.points.tobytes() == kept.map.points.tobytes()
    assert editor.space.items.mapped is opened.items.mapped
    assert made(editor.space, "tsne").note == "It is kept in the index."
    assert (ItemIndex.load(path).map.method, len(ItemIndex.load(path).model.edits)) == ("tsne", 1)
    path.unlink()
    assert "was removed by another program" in made(editor.space).note
    assert editor.space.items.mapped.places.map.method == "spectral"


def test_a_map_of_an_explorer_that_only_reads_is_not_written(explored, tmp_path):
    path = ItemIndex.load(explored).save(tmp_path / "texts.index")
    before = path.read_bytes()
    opened = open_workspace(path, read_only=True)
    assert "--read-only" in made(opened).note
    assert path.read_bytes() == before


def test_counted_items_of_an_index_have_its_map(explored, tmp_path):
    old = replace(ItemIndex.load(explored), answers=None).with_map()
    opened = open_workspace(old.save(tmp_path / "old.index"))
    assert not opened.items.stored
    assert opened.items.mapped.places.map.points.tobytes() == old.map.points.tobytes()
    given = open_workspace(tmp_path / "old.index", explored.parent / "texts")  # other items may have the same ids
    assert given.items.mapped.places is None
    assert made(given).note == "It is kept until the explorer ends."


def test_what_goes_wrong_is_told():
    mapped = MapOfItems(np.zeros(3, np.int64))

    def fail(progress):
        progress("arranging items", 1, 2)
        raise BagwiseError("no <memory>")

    mapped.start(fail, lambda found: "")
    mapped.wait()
    assert (mapped.problem, mapped.places, mapped.running) == ("no <memory>", None, None)
    mapped.start(lambda progress: ItemMap.of(np.eye(3)), lambda found: "kept")
    mapped.wait()
    assert mapped.problem is None
    assert (mapped.places.note, mapped.places.version) == ("kept", 1)


def test_only_one_map_is_made_at_a_time():
    import threading

    mapped, go = MapOfItems(np.zeros(3, np.int64)), threading.Event()

    def slow(progress):
        progress("arranging items", 1, 2)
        assert go.wait(PATIENCE)
        return ItemMap.of(np.eye(3))

    mapped.start(slow, lambda found: "")
    with pytest.raises(BagwiseError, match="being made already"):
        mapped.start(slow, lambda found: "")
    until(lambda: mapped.running["done"])
    assert mapped.running["step"] == "arranging items"
    go.set()
    mapped.wait()
    assert mapped.places is not None


def test_without_items_there_is_no_map(space):
    from bagwise.app.explorer import Workspace

    with pytest.raises(BagwiseError, match="There are no items"):
        map.told(Workspace(space.model))
