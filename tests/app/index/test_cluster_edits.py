"""Edits of clusters: what they do, undone, saved, measured; wrong ones and damaged histories are refused."""

import dataclasses

import numpy as np
import pytest

from bagwise import BagwiseError
from bagwise._io.tensors import FileKind
from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.index.cluster_edits import measure_clusters
from bagwise.app.index.index_files import FILE
from bagwise.app.index.item_clusters import ItemClusters
from bagwise.sources import Collection

N_WORDS, N_KINDS = 16, 4


@pytest.fixture(scope="module")
def index():
    """Items of four kinds with labels that nobody used, in four clusters; one has no words."""
    random = np.random.default_rng(0)
    kinds = np.arange(80) % N_KINDS
    X = random.poisson(np.where(np.arange(N_WORDS) % N_KINDS == kinds[:, None], 5.0, 0.3)).astype(np.float64)
    X[:, 0], X[17] = X[:, 0] + 1, 0
    items = Collection.from_matrix(X, [f"item{i}" for i in range(80)], [(f"kind{k}",) for k in kinds])
    model = run_fit(items, FitOptions(n_jobs=1, n_groups=8, criterion="mmi", folds=0)).model
    made = ItemIndex.build(model, items, X, by="words").with_clusters(4)
    return dataclasses.replace(made, clusters=made.clusters.compared_with(made.labels))


def same(one, other, but=()):
    for field in dataclasses.fields(ItemClusters):
        if field.name not in ("edits", *but):
            found, wanted = getattr(one, field.name), getattr(other, field.name)
            if isinstance(wanted, np.ndarray) and wanted.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, atol=2e-6, err_msg=field.name)
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=field.name)


def edits_of(index):
    own = np.flatnonzero(index.clusters.labels == 3)[:3]
    return [
        {"edit": "rename_cluster", "cluster": 2, "name": "<b>two</b>"},
        {"edit": "join_clusters", "clusters": [3, 1]},
        {"edit": "split_cluster", "cluster": 1},
        {"edit": "move_items", "items": [index.ids[k] for k in own], "to": None},
        {"edit": "move_items", "items": [index.ids[own[0]], "item0"], "to": 2},
        {"edit": "rename_cluster", "cluster": 2, "name": None},
    ]


def test_edits_change_labels_and_all_are_undone(index, tmp_path):
    edits, states = edits_of(index), [index]
    for edit in edits:
        states.append(states[-1].apply([edit]))
    labels = [state.clusters.labels for state in states]
    before, joined, split, alone, moved = labels[1], labels[2], labels[3], labels[4], labels[5]
    assert states[1].clusters.name(2) == "<b>two</b>"
    np.testing.assert_array_equal(joined, np.array([-1, 0, 1, 2, 1])[before + 1])
    assert states[2].clusters.given_names == {2: "<b>two</b>"}
    assert set(zip(joined.tolist(), split.tolist(), strict=True)) == {(-1, -1), (0, 0), (1, 1), (1, 3), (2, 2)}
    sizes = states[3].clusters.sizes
    assert sizes[1] >= sizes[3] > 0
    own = np.flatnonzero(before == 3)[:3]
    assert (alone[own] == 4).all()
    assert (np.delete(alone, own) == np.delete(split, own)).all()
    assert moved[[own[0], 0]].tolist() == [2, 2]
    assert states[6].clusters.given_names == {}
    for state, edit in zip(states[1:], edits, strict=True):
        assert [
            set(one["items"]) if "items" in one else one for one in [state.clusters.edits[-1].whole(index.ids)]
        ] == [set(edit["items"]) if "items" in edit else edit | ({"clusters": [1, 3]} if "clusters" in edit else {})]
    loaded = ItemIndex.load(states[-1].save(tmp_path / "edited.index"))
    same(loaded.clusters, states[-1].clusters)
    for k in range(len(edits) + 1):
        for last in (states[-1], loaded):
            undone = last.undo(k) if k else last
            same(undone.clusters, states[-1 - k].clusters)
            assert len(undone.clusters.edits) == len(edits) - k
    assert (
        index.apply(edits).save(tmp_path / "again.index").read_bytes()
        == loaded.save(tmp_path / "loaded.index").read_bytes()
    )


def test_descriptions_are_those_of_the_new_clusters(index):
    edited = index.apply([{"edit": "join_clusters", "clusters": [0, 1]}, {"edit": "split_cluster", "cluster": 0}])
    for made in (index.clusters, edited.clusters):
        assert made.sizes.sum() == 79
        for cluster in made.describe(index.model):
            inside = np.flatnonzero(made.labels == cluster.number)
            assert made.distances[cluster.central] == made.distances[inside].min()
            assert cluster.terms[0].lift > 1
    assert len(set(edited.clusters.names)) == 4
    assert edited.clusters.agreement.nmi == pytest.approx(1)  # the split finds the two kinds again
    assert index.apply([{"edit": "join_clusters", "clusters": [0, 1]}]).clusters.agreement.nmi < 0.9


def test_a_name_is_that_of_the_largest_joined_cluster_and_names_differ(index):
    small, large = 3, 0
    for given, wanted in (({small: "s"}, "s"), ({small: "s", large: "l"}, "l"), ({}, None)):
        renames = [{"edit": "rename_cluster", "cluster": k, "name": name} for k, name in given.items()]
        made = index.apply([*renames, {"edit": "join_clusters", "clusters": [0, 3]}]).clusters
        assert made.given_names.get(0) == wanted
    name = index.apply([{"edit": "split_cluster", "cluster": 1}]).clusters.names[4]
    given = [{"edit": "rename_cluster", "cluster": 0, "name": name}, {"edit": "split_cluster", "cluster": 1}]
    made = index.apply(given).clusters
    assert len({made.name(k) for k in range(5)}) == 5


def test_what_edits_cost_is_measured(index):
    first = measure_clusters(index)
    assert first.error == 0
    assert first.agreement == index.clusters.agreement
    apart = index.apply([{"edit": "split_cluster", "cluster": 0}])
    found = measure_clusters(apart)
    assert found.error > first.error  # little tells the halves of a kind
    assert found.cohesion > first.cohesion
    fewer = measure_clusters(index.apply([{"edit": "join_clusters", "clusters": [0, 1]}]))
    assert fewer.cohesion < first.cohesion
    assert fewer.error == 0
    ids = [index.ids[k] for k in np.flatnonzero(index.clusters.labels == 1)[:5]]
    wrong = measure_clusters(index.apply([{"edit": "move_items", "items": ids, "to": 0}]))
    assert wrong.error == pytest.approx(5 / 79)
    one = measure_clusters(index.with_clusters(1))
    assert (one.error, one.cohesion) == (0, pytest.approx(0))


def test_items_that_come_and_go_leave_edits_that_can_be_undone(index):
    edits = edits_of(index)[:5]
    edited, gone = index.apply(edits), [f"item{k}" for k in range(0, 80, 3)]
    kept = np.array([k for k in range(80) if k % 3])
    small = edited.remove(gone)
    np.testing.assert_array_equal(small.undo(5).clusters.labels, index.clusters.labels[kept])
    more = Collection.from_matrix(np.eye(N_WORDS)[:4] * 9, list("abcd"), [()] * 4)
    grown = edited.add(more, np.eye(N_WORDS)[:4] * 9)
    undone = grown.undo(5).clusters
    np.testing.assert_array_equal(undone.labels[:80], index.clusters.labels)
    assert (undone.labels[80:] < 4).all()


def test_groups_may_be_edited_in_between(index):
    from bagwise.app.index.index_changes import with_model

    edited = index.apply([{"edit": "join_clusters", "clusters": [0, 1]}])
    model = index.model.apply([{"edit": "join", "n_groups": 8, "groups": [0, 1]}])
    other = with_model(edited, model).apply([{"edit": "split_cluster", "cluster": 0}])
    assert [one.after for one in other.clusters.edits] == [0, 1]
    assert other.clusters.fits(model)
    np.testing.assert_array_equal(other.undo().clusters.labels, edited.clusters.labels)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ({"edit": "join_clusters", "clusters": [1]}, r"two different clusters are joined, got \[1\]"),
        ({"edit": "join_clusters", "clusters": [1, 1]}, "two different"),
        ({"edit": "join_clusters", "clusters": [1, 4]}, "numbered from 0 to 3; got 4"),
        ({"edit": "join_clusters", "clusters": 1}, "clusters must be a list; got 1"),
        ({"edit": "split_cluster", "cluster": True}, "got True"),
        ({"edit": "split_cluster"}, "must have cluster; got"),
        ({"edit": "split"}, "'split'"),
        ([], "must be an object such as"),
        ({"edit": "rename_cluster", "cluster": 0, "name": "a\nb"}, "printable characters"),
        ({"edit": "rename_cluster", "cluster": 0, "name": 3}, "printable characters"),
        ({"edit": "move_items", "items": ["nobody"], "to": 0}, "1 of 1 items are not in the index: 'nobody'"),
        ({"edit": "move_items", "items": [], "to": 0}, "items must be a list of ids"),
        ({"edit": "move_items", "items": ["item17"], "to": 0}, "in no cluster: 'item17'. Leave them out"),
    ],
)
def test_wrong_edits_are_refused(index, edit, told):
    with pytest.raises(BagwiseError, match=told):
        index.apply([edit])


def test_what_would_change_nothing_is_refused(index):
    own = [index.ids[k] for k in np.flatnonzero(index.clusters.labels == 1)]
    with pytest.raises(BagwiseError, match="already"):
        index.apply([{"edit": "move_items", "items": own[:2], "to": 1}])
    with pytest.raises(BagwiseError, match=r"all items of “.*”\. Join it with the other instead"):
        index.apply([{"edit": "move_items", "items": own, "to": 0}])
    with pytest.raises(BagwiseError, match="has 0 edits, of which 1 cannot be undone"):
        index.undo()
    alone = index.apply([{"edit": "move_items", "items": own[:1], "to": None}])
    with pytest.raises(BagwiseError, match="cannot be split: all of its items have the same words"):
        alone.apply([{"edit": "split_cluster", "cluster": 4}])
    with pytest.raises(BagwiseError, match="The index has no clusters"):
        dataclasses.replace(index, clusters=None).apply([{"edit": "split_cluster", "cluster": 0}])


@pytest.mark.parametrize(
    "change",
    [
        {"n_moved": 1},
        {"n_moved": -1},
        {"after": 0.5},
        {"given_names": {"9": "x"}},
        {"given_names": {"1": ""}},
        {"given_names": {"01": "x"}},
        {"edit": {"edit": "split_cluster", "cluster": 3}},
        {"edit": {"edit": "split_cluster", "cluster": "0"}},
        {"edit": {"edit": "join_clusters", "clusters": [1, 0]}},
        {"edit": {"edit": "join_clusters", "clusters": [0, 9]}},
        {"edit": {"edit": "move_items", "to": 4}},
        {"edit": {"edit": "rename_cluster", "cluster": 0, "name": ""}},
        {"edit": {"edit": "nothing"}},
        {"edit": []},
        {"more": 1},
    ],
)
def test_damaged_histories_are_refused(index, tmp_path, change):
    edited = index.apply([{"edit": "join_clusters", "clusters": [0, 1]}])
    path = edited.apply([{"edit": "split_cluster", "cluster": 0}]).save(tmp_path / "edited.index")
    header, tensors = FILE.load(path, lambda *parts: parts)
    header["clusters"]["edits"][-1] |= change
    FileKind(FILE.name, None, None).save(path, header, tensors)
    with pytest.raises(BagwiseError, match=r"is damaged: its clusters ha[vs]e?"):
        ItemIndex.load(path)
