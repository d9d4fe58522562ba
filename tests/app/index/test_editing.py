"""Edits of groups and of clusters in one sequence, in Python as in the explorer."""

import shutil

import numpy as np
import pytest

from bagwise import BagwiseError, open_collection
from bagwise.app import FitOptions, ItemIndex, fit_model, run_fit
from bagwise.app.explorer import open_workspace
from bagwise.app.index.item_index import index_of_fit
from small_sources import write_text_folder

EDITS = [
    {"edit": "join", "n_groups": 6, "groups": [1, 3]},
    {"edit": "rename_cluster", "cluster": 1, "name": "mine"},
    {"edit": "join_clusters", "clusters": [0, 2]},
    {"edit": "split", "n_groups": 5, "group": 0},
    {"edit": "rename", "n_groups": 6, "group": 2, "name": "named"},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = write_text_folder(tmp_path_factory.mktemp("edited") / "texts")
    index = index_of_fit(
        run_fit(folder, FitOptions(n_groups=6, folds=3, ngrams=1)), None, folder, FitOptions()
    ).with_clusters(3)
    return index.save(folder.parent / "texts.index")


def states(index):
    """All that edits change."""
    answers = index.answers
    arrays = [array.tolist() for array in answers.top.arrays]
    return (
        index.model,
        answers.sizes,
        answers.protocol,
        arrays,
        index.clusters.labels.tolist(),
        index.clusters.given_names,
    )


def test_python_and_the_explorer_make_the_same_index(path, tmp_path):
    index = ItemIndex.load(path)
    expected = [states(index.apply(EDITS[:k])) for k in range(len(EDITS) + 1)]
    space = open_workspace(shutil.copy(path, tmp_path / "one.index"))
    for k, edit in enumerate(EDITS):
        space.editor.edit(edit, k)
        one_by_one = ItemIndex.load(space.editor.path)
        assert states(one_by_one) == expected[k + 1]
        assert states(one_by_one.undo(k + 1)) == expected[0]
        index = index.apply([edit])
        assert states(index) == expected[k + 1]
    assert "derived_head" not in index.model.provenance
    assert 5 in index.undo(2).answers.sizes


def test_edits_are_undone_in_their_order(path, tmp_path):
    index = ItemIndex.load(path)
    edited = ItemIndex.load(index.apply(EDITS).save(tmp_path / "edited.index"))
    for k in range(1, len(EDITS) + 1):
        before = edited.undo(k)
        assert states(before) == states(index.apply(EDITS[:-k]))
        assert states(before.apply(EDITS[len(EDITS) - k :])) == states(edited)
    with pytest.raises(BagwiseError, match="has 5 edits, of which 6 cannot be undone"):
        edited.undo(6)


def test_answers_are_those_of_the_model_that_explains_them(path):
    index = ItemIndex.load(path).apply(EDITS[:1])
    groups = np.flatnonzero(np.bincount(index.model.lookup) > 1)
    for group in groups.tolist():
        words = np.flatnonzero(index.model.lookup == group)[:4].tolist()
        linked = index.apply([{"edit": "must_link", "n_groups": 5, "words": words}])
        assert np.array_equal(linked.model.lookup, index.model.lookup)
        measured = linked.steering().measure(linked.model)  # folds make the link in groups of their own
        np.testing.assert_array_equal(linked.answers.rows[5].score, measured.held_out.score)


def test_undo_of_edits_before_the_index_was_made_answers_by_the_model(path):
    rows = open_collection(path.parent / "texts")
    model = fit_model(rows, n_groups=6, folds=0, criterion="aib")
    histograms = model.histograms(rows)
    fresh = ItemIndex.build(model, rows, histograms).answers
    for groups in ([0, 1], [0, 2], [3, 5]):
        edited = model.apply([{"edit": "join", "n_groups": 6, "groups": groups}])
        answers = ItemIndex.build(edited, rows, histograms).undo().answers
        assert 6 in answers.sizes
        for n, found in answers.rows.items():
            np.testing.assert_array_equal(found.score, fresh.rows[n].score)


def test_without_folds_there_are_no_held_out_answers_for_edited_groups(path):
    index = ItemIndex.load(path)
    fewer = index.remove(index.ids[:1])
    assert 5 in index.apply(EDITS[:1]).answers.sizes
    edited = fewer.apply(EDITS[:1])
    assert 5 not in edited.answers.sizes
    assert edited.model.provenance["derived_head"]["n_groups"] == 5
    same = [n for n in edited.answers.sizes if n in fewer.answers.sizes]
    for n in same:
        np.testing.assert_array_equal(edited.answers.rows[n].predicted, fewer.answers.rows[n].predicted)
    by_groups = index.compared_by_groups(
        index.model, index.model.group(np.ones((len(index), index.model.hierarchy.n_words)))
    )
    with pytest.raises(BagwiseError, match="can only be renamed"):
        by_groups.apply(EDITS[:1])
