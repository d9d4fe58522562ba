"""Clusters of items in the explorer: shown, edited by the editor of groups, saved, undone, and given as labels."""

import asyncio
import dataclasses
import json
import shutil

import numpy as np
import pytest

from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.explorer import open_workspace
from bagwise.app.explorer.app import make_app
from bagwise.app.explorer.security import Guard
from bagwise.app.index.cluster_edits import measure_clusters
from bagwise.app.index.index_changes import change_index
from bagwise.app.index.item_index import index_of_fit
from explorer_requests import HOST, TOKEN, respond
from small_sources import texts

HOSTILE = "<img src=x onerror=alert(1)> & “fruit”"


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Texts in one folder without labels, and an index of them with clusters and a map; one text has no words."""
    place = tmp_path_factory.mktemp("clustered")
    folder = place / "texts"
    folder.mkdir()
    for number, (text, kind) in enumerate(texts(n_each=15)):
        (folder / f"{number:03}{kind}.txt").write_text(text)
    (folder / "void.txt").write_text("?")
    fit = run_fit(folder, FitOptions(n_groups=8, folds=0, n_jobs=1))
    index_of_fit(fit, None, folder, FitOptions()).with_map().with_clusters(3).save(place / "texts.index")
    return place


@pytest.fixture
def path(learned, tmp_path):
    return shutil.copy(learned / "texts.index", tmp_path / "texts.index")


def client(space):
    app = Guard(make_app(space), token=TOKEN, hosts=[HOST], most_bytes=1 << 20)

    def send(path, content=None, code=200):
        given = {"host": HOST, "cookie": f"bagwise-8000={TOKEN}", "origin": f"http://{HOST}"}
        body, method = (b"", "GET") if content is None else (json.dumps(content).encode(), "POST")
        status, headers, answered = asyncio.run(respond(app, method, f"/api/{path}", given, body))
        assert status == code, answered
        return json.loads(answered) if headers["content-type"] == "application/json" else answered

    return send


def edit(send, revision, code=200, **content):
    return send("steer/edit", {"edit": content, "revision": revision}, code)


def test_pages_show_the_clusters_of_the_index(path):
    index, space = ItemIndex.load(path), open_workspace(path)
    send, clusters = client(space), index.clusters
    told = send("clusters")
    assert [one["size"] for one in told["clusters"]] == clusters.sizes.tolist()
    assert (told["n_items"], told["n_without"], told["agreement"], told["numbers"]) == (46, 1, None, None)
    for one, described in zip(told["clusters"], clusters.describe(index.model), strict=True):
        assert (one["name"], one["cohesion"]) == (described.name, described.cohesion)
        assert one["items"][0]["number"] == described.central
        whole = send(f"clusters/{one['number']}")
        assert whole["central"]["number"] == described.central
        assert [row["number"] for row in whole["typical"]] == list(described.typical)
        assert whole["outermost"]["number"] == described.outermost
        rows = send(f"items?cluster={one['number']}&sort=certainty&most=200")["items"]
        assert {row["number"] for row in rows} == set(np.flatnonzero(clusters.labels == one["number"]).tolist())
        exec(send(f"python/items?cluster={one['number']}&sort=certainty")["lines"], lines := {})
        assert lines["chosen"] == [row["number"] for row in rows]
        certain = [row["cluster"]["certainty"] for row in rows]
        assert certain == sorted(certain)
        assert {row["cluster"]["name"] for row in rows} == {described.name}
    np.testing.assert_array_equal(np.frombuffer(send("clusters/items"), "<i4"), clusters.labels)
    assert send("items/45")["cluster"] is None
    assert [one["n"] for one in send("map")["map"]["clusters"]] == clusters.sizes.tolist()
    measured = send("clusters/measured")["measured"]
    wanted = measure_clusters(index)
    assert (measured["error"], measured["cohesion"]) == (wanted.error, pytest.approx(wanted.cohesion))
    overview = send("overview")
    assert [one["name"] for one in overview["clusters"]] == [clusters.name(k) for k in range(3)]
    assert {"rename_cluster", "join_clusters", "split_cluster", "move_items"} <= set(overview["steer"]["kinds"])


@pytest.mark.parametrize(
    "address", ["clusters/9", "items?cluster=9", "items?sort=certain", "clusters/labels?at_least=2", "items?cluster=x"]
)
def test_wrong_addresses_get_a_sentence(path, address):
    assert client(open_workspace(path))(address, code=400)["error"]


def test_labels_are_what_fit_takes(path, learned, tmp_path):
    send, clusters = client(open_workspace(path)), ItemIndex.load(path).clusters
    rows = send("clusters/labels")["rows"]
    assert len(rows) == 45
    (tmp_path / "labels.csv").write_text("\n".join(["filename,label", *(f'{id},"{name}"' for id, name in rows)]) + "\n")
    fit = run_fit(learned / "texts", FitOptions(labels=tmp_path / "labels.csv", n_groups=5, folds=0, n_jobs=1))
    assert sorted(fit.model.classes) == sorted(clusters.name(k) for k in range(3))
    certain = np.linspace(0, 1, 46, dtype=np.float32)
    certain[45] = 0  # no words
    spread = dataclasses.replace(clusters, certainty=certain)
    change_index(path, lambda index: dataclasses.replace(index, clusters=spread))
    told = client(open_workspace(path))("clusters/labels?at_least=0.5")
    assert [id for id, _ in told["rows"]] == [id for id, _ in rows][23:]
    assert told["n_left"] == 46 - 22


def test_edits_are_measured_saved_undone_and_made_again(path):
    space, before = open_workspace(path), ItemIndex.load(path)
    send = client(space)
    own = np.flatnonzero(before.clusters.labels == 0)[:2].tolist()
    edit(send, 0, edit="rename_cluster", cluster=1, name=HOSTILE)
    edit(send, 1, edit="join_clusters", clusters=[0, 2])
    told = edit(send, 2, edit="split_cluster", cluster=0)
    told = edit(send, 3, edit="move_items", numbers=own, to=None)
    assert (told["revision"], told["n_edits"]) == (4, 4)
    assert told["saved"] == {"path": str(path), "changed": True, "problem": None}
    texts_of = [one["text"] for one in told["edits"]]
    names = [before.clusters.name(k) for k in range(3)]
    assert texts_of[3] == f"Named “{names[1]}” “{HOSTILE}”"
    assert texts_of[2] == f"Joined “{names[0]}” and “{names[2]}”"
    assert texts_of[0] == "Moved 2 items to a new cluster"
    sizes = [(one["before"]["n_clusters"], one["after"]["n_clusters"]) for one in told["edits"]]
    assert sizes == [(3, 4), (2, 3), (3, 2), (3, 3)]
    assert told["edits"][1]["before"] == told["edits"][2]["after"]
    saved = ItemIndex.load(path)
    assert saved.clusters.name(1) == HOSTILE
    assert (saved.clusters.labels[own] == 3).all()
    np.testing.assert_array_equal(saved.map.clusters, saved.clusters.labels)
    measured = measure_clusters(saved)
    assert told["edits"][0]["after"]["error"] == measured.error
    assert send("clusters")["n_edits"] == 4
    exec(send("python/clusters")["lines"], lines := {})
    np.testing.assert_array_equal(lines["again"].clusters.labels, saved.clusters.labels)
    # another session undoes edits of both
    other = open_workspace(path)
    again = client(other)
    assert again("steer")["edits"][0]["text"] == "Moved items to a new cluster"
    joined = again("steer/edit", {"edit": {"edit": "join", "n_groups": 8, "groups": [0, 1]}, "revision": 0})
    assert joined["n_edits"] == 5
    assert again("clusters")["clusters"]
    for revision, left in enumerate((4, 3, 2, 1, 0), 1):
        assert again("steer/undo", {"revision": revision})["n_edits"] == left
    restored = ItemIndex.load(path)
    np.testing.assert_array_equal(restored.clusters.labels, before.clusters.labels)
    assert (restored.clusters.given_names, restored.model.edits) == ({}, ())
    for revision in range(6, 11):
        again("steer/redo", {"revision": revision})
    last = ItemIndex.load(path)
    np.testing.assert_array_equal(last.clusters.labels, saved.clusters.labels)
    assert last.model.n_groups == 7
    assert len(last.clusters.edits) == 4


def test_what_cannot_be_done_is_refused(path):
    send = client(open_workspace(path))
    assert "numbered from 0 to 2" in edit(send, 0, 400, edit="split_cluster", cluster=7)["error"]
    assert "items, numbered from 0" in edit(send, 0, 400, edit="move_items", numbers=[999], to=0)["error"]
    assert "changed in another window" in edit(send, 3, 409, edit="split_cluster", cluster=0)["error"]
    assert "whole number" in send("steer/cluster", {"n_clusters": 0, "revision": 0}, 400)["error"]
    assert "At most" in send("steer/cluster", {"n_clusters": 10**9, "revision": 0}, 400)["error"]
    refused = client(open_workspace(path, read_only=True))
    assert "--read-only" in edit(refused, 0, 403, edit="split_cluster", cluster=0)["error"]
    assert "--read-only" in refused("steer/cluster", {"n_clusters": 2, "revision": 0}, 403)["error"]
    change_index(path, lambda index: index.remove(["void.txt"]))  # another program
    told = edit(send, 0, edit="split_cluster", cluster=0)
    assert "was changed by another program" in told["saved"]["problem"]
    assert len(ItemIndex.load(path)) == 45


def test_items_are_clustered_anew(path):
    space = open_workspace(path)
    send = client(space)
    edit(send, 0, edit="rename_cluster", cluster=0, name="first")
    told = send("steer/cluster", {"n_clusters": 2, "revision": 1})
    assert told["edits"][0]["text"] == "Clustered the items into 2 clusters"
    assert len(ItemIndex.load(path).clusters) == 2
    send("steer/undo", {"revision": 2})
    clusters = ItemIndex.load(path).clusters
    assert (len(clusters), clusters.name(0)) == (3, "first")
    auto = send("steer/cluster", {"n_clusters": None, "revision": 3})
    assert send("clusters")["numbers"]["suggested"] == auto["edits"][0]["after"]["n_clusters"]


def test_an_index_without_clusters_gets_some(path):
    change_index(path, lambda index: dataclasses.replace(index, clusters=None))
    space = open_workspace(path)
    send = client(space)
    assert (send("clusters")["clusters"], send("clusters")["why_not"]) == (None, "")
    overview = send("overview")
    assert (overview["clusters"], overview["can_cluster"]) == (None, True)
    assert "no clusters" in edit(send, 0, 400, edit="split_cluster", cluster=0)["error"]
    send("steer/cluster", {"n_clusters": 3, "revision": 0})
    assert len(ItemIndex.load(path).clusters) == 3
    send("steer/undo", {"revision": 1})
    assert ItemIndex.load(path).clusters is None


def test_other_items_leave_the_clusters_of_an_index_alone(path, learned, tmp_path):
    counted = open_workspace(path, learned / "texts")
    assert counted.items.histograms is not None
    send = client(counted)
    assert len(send("clusters")["clusters"]) == 3
    assert edit(send, 0, edit="split_cluster", cluster=0)["n_edits"] == 1
    assert len(ItemIndex.load(path).clusters) == 4
    shutil.copytree(learned / "texts", tmp_path / "some")
    (tmp_path / "some" / "void.txt").unlink()
    other = client(open_workspace(path, tmp_path / "some"))
    assert other("clusters")["clusters"] is None
    assert "not those of the index" in other("clusters")["why_not"]
    other("steer/edit", {"edit": {"edit": "join", "n_groups": 8, "groups": [0, 1]}, "revision": 0})
    assert len(ItemIndex.load(path).clusters) == 4


def test_searches_compare_the_groups_that_are_edited(path, learned):
    told = []
    for source in (None, learned / "texts"):
        send = client(open_workspace(path, source, read_only=False))
        assert send("overview")["search_by"] == ["words", "groups"]
        plain = send("items/0/similar?k=9")["hits"]
        edit(send, 0, edit="join", n_groups=8, groups=[0, 1, 2])
        hits = send("items/0/similar?k=9")["hits"]
        assert [hit["score"] for hit in hits] != [hit["score"] for hit in plain]
        named = {one["name"] for one in hits[0]["shared"] if one["kind"] == "group"}
        assert named <= {group["name"] for group in send("groups?most=200")["groups"]}
        for hit in hits:
            assert {"word", "group"} >= {one["kind"] for one in hit["shared"]}
        told.append([(hit["id"], pytest.approx(hit["score"], abs=1e-5)) for hit in hits])
        by_words = send("items/0/similar?k=9&by=words")["hits"]
        assert {one["kind"] for hit in by_words for one in hit["shared"]} == {"word"}
        send("steer/undo", {"revision": 1})
    assert told[0] == told[1]
