"""Edits made again in other hierarchies of the same words."""

import json

import numpy as np
import pytest

from bagwise import Hierarchy, Model
from bagwise.app.model.editing import possible_edits
from bagwise.app.training.fold_edits import FoldEdits, like_groups
from bagwise.errors import BagwiseError
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.refining import merge_refined
from bagwise.merging.scoring import WeightLoss

D = 40


def labels_of(edits, model):
    """The groups of words in each fold, and how many edits were left out."""
    found, left_out = edits.hierarchies(model)
    return [hierarchy.cut(n) for hierarchy, n in found], left_out


def merged(seed):
    """A hierarchy of words by random weights, with what merging again needs."""
    random = np.random.default_rng(seed)
    mass, weights = random.random(D) + 0.1, random.normal(size=(D, 3))
    hierarchy = merge_refined(mass, weights, "classifier", 8)
    return hierarchy, GroupStatistics.of_states(hierarchy, WeightLoss(mass, weights).states)


def model_of(hierarchy, statistics):
    totals = np.arange(1.0, D + 1)
    return Model(modality="table", hierarchy=hierarchy, n_groups=8, group_statistics=statistics, word_totals=totals)


def random_edits(model, n_edits, seed):
    """A list of edits of all kinds that the model accepts."""
    random, kinds = np.random.default_rng(seed), possible_edits(model)
    while len(model.edits) < n_edits:
        n = int(random.integers(5, 12))
        one, two = (int(k) for k in random.choice(n, 2, replace=False))
        words = random.choice(D, 2, replace=False).tolist()
        members = {"group": one, "name": f"name {len(model.edits)}", "words": words, "to": [two, None][n % 2]}
        members["groups"] = [one, two]
        kind = str(random.choice(kinds))
        wanted = {"rename": "group name", "move": "words to", "join": "groups"}
        names = wanted.get(kind, "words" if "link" in kind else "group").split()
        try:
            model = model.apply([{"edit": kind, "n_groups": n} | {name: members[name] for name in names}])
        except BagwiseError:  # not possible now
            continue
    return model


@pytest.mark.parametrize("seed", range(4))
def test_edits_in_the_same_hierarchy_give_the_groups_of_the_model(seed):
    same, other = merged(seed), merged(seed + 100)
    model = model_of(*same)
    edits, edited = FoldEdits(model, [same, other]), random_edits(model, 14, seed)
    assert len({edit["edit"] for edit in edited.edits}) > 4
    for n in (edited.n_groups, max(edited.hierarchy.min_groups, 6)):
        (own, others), left_out = labels_of(edits, edited.cut(n))
        np.testing.assert_array_equal(own, edited.cut(n).lookup)
        assert abs(int(others.max()) + 1 - n) <= len(edited.edits)
        again = labels_of(FoldEdits(edited, [same, other]), edited.cut(n))  # without the states on the way
        np.testing.assert_array_equal(again[0][1], others)
        assert again[1] == left_out


def test_words_are_moved_and_groups_that_lose_all_are_joined():
    fold = Hierarchy(6, [[0, 1], [2, 3], [4, 5], [2, 4], [0, 2]], np.arange(5.0)[::-1])
    own = Hierarchy(6, [[0, 1], [0, 2], [3, 4], [3, 5], [0, 3]], np.arange(5.0)[::-1])
    model = Model(modality="table", hierarchy=own, n_groups=2)
    edits = FoldEdits(model, [(fold, None)])
    cases = [
        # the fold has 0 1 | 2 3 4 5, the model 0 1 2 | 3 4 5
        ({"words": [0], "to": 1}, [0, 1, 0, 0, 0, 0]),
        ({"words": [0, 1], "to": 1}, [0] * 6),
        ({"words": [2], "to": 1}, [0, 0, 1, 1, 1, 1]),
        ({"words": [0, 1], "to": None}, [0, 0, 1, 1, 1, 1]),
        ({"words": [0, 1, 3], "to": None}, [0, 0, 1, 0, 1, 1]),
        ({"words": [5], "to": None}, [0, 0, 1, 1, 1, 2]),
    ]
    for members, expected in cases:
        edited = model.apply([{"edit": "move", "n_groups": 2, **members}])
        (labels,), left_out = labels_of(edits, edited)
        assert (labels.tolist(), left_out) == (expected, 0), json.dumps(members)


def test_what_is_not_possible_in_a_fold_is_counted():
    own = Hierarchy(4, [[0, 1], [2, 3], [0, 2]], [3, 2, 1])
    fold = Hierarchy(4, [[0, 2], [0, 3], [0, 1]], [3, 2, 1])  # 0 2 3 | 1
    model = Model(modality="table", hierarchy=own, n_groups=2)
    edited = model.apply([{"edit": "split", "n_groups": 2, "group": 0}])
    assert like_groups([0], own.cut(2), fold.cut(2), np.ones(4)) == [1]  # a single word
    (labels,), left_out = labels_of(FoldEdits(model, [(fold, None)]), edited)
    assert (labels.tolist(), left_out) == ([0, 1, 0, 0], 1)
