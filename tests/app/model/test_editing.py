"""Edits of a model: the groups that were asked for, at the size that was asked for, replayed, undone, saved."""

import dataclasses
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError, Hierarchy, Model, runtime
from bagwise.app.model import Head, PathErrors
from bagwise.app.model.editing import linked_words, locked_groups
from bagwise.merging.edits import statistics_of
from bagwise.merging.engine import Engine
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.regrouping import joined_sets
from model_cases import MADE, random_hierarchy

NAMES = [f"w{k}" for k in range(60)]


def words_model(d=60, n=9, seed=0, normalize=(), **more):
    random = np.random.default_rng(seed)
    parameters = {
        "modality": "texts",
        "hierarchy": random_hierarchy(d, random),
        "n_groups": n,
        "word_names": [f"w{k}" for k in range(d)],
        "word_totals": random.integers(0, 50, d).astype(float),
        "normalize": normalize,
        "classes": ["a", "b", "c"],
        "heads": {k: Head(random.normal(size=(3, k)), random.normal(size=3)) for k in (3, 9, 20, d)},
        "calibration": {3: 2.0, 9: 1.5, 20: 1.0},
        "path": PathErrors([3, 9, 20, d], [0.4, 0.3, 0.2, 0.1], [0.01] * 4, "made up"),
    }
    return Model(**parameters | more)


def linked_model(criterion="aib", d=60, n=9):
    """A model of all words with the statistics that a fit keeps."""
    random = np.random.default_rng(3)
    y = np.arange(80) % 4
    X = random.poisson(random.gamma(0.5, 4.0, (4, d))[y]).astype(float)
    engine = Engine(criterion).load(X, y)
    hierarchy = engine.run(1)
    statistics = statistics_of(engine, hierarchy)
    return words_model(d, n, hierarchy=hierarchy, group_statistics=statistics, word_totals=X.sum(axis=0))


def edit(kind, n, **members):
    return {"edit": kind, "n_groups": n, **members}


def some_edits(model, random, n_edits=6):
    """Edits at random that are accepted, of all kinds and at several sizes."""
    made = []
    while len(made) < n_edits:
        n = int(random.choice([model.n_groups, 4, 12])) if random.random() < 0.3 else model.n_groups
        if not model.hierarchy.min_groups <= n <= model.hierarchy.n_words:
            continue
        links = ["must_link", "cannot_link", "unlink"] * (model.group_statistics is not None)
        kind = random.choice(["rename", "move", "split", "join", "lock", "unlock", *links])
        group = int(random.integers(n))
        members = {"rename": {"group": group, "name": f"name {len(made)}"}, "split": {"group": group}}
        members |= {"lock": {"group": group}, "unlock": {"group": group}}
        members["move"] = {"words": random.choice(60, 3, replace=False).tolist(), "to": random.choice([None, group])}
        pair = {"words": random.choice(60, 2, replace=False).tolist()}
        members |= {"must_link": pair, "cannot_link": pair}
        held = [words for some in linked_words(model).values() for words in some]
        members["unlink"] = {"words": held[0]} if held else pair
        members["join"] = {"groups": random.choice(n, min(2, n), replace=False).tolist()}
        try:
            model = model.apply([one := edit(str(kind), n, **members[kind])])
        except BagwiseError:
            continue
        made.append(json.loads(json.dumps(one)))
    return made


LINKED = linked_model()


def sets_of(model, n=None):
    labels = model.lookup if n is None else model.hierarchy.cut(n)
    return {frozenset(np.flatnonzero(labels == k).tolist()) for k in range(labels.max() + 1)}


def test_each_edit_makes_the_groups_it_says():
    model = words_model()
    groups = model.groups()
    moved = [int(groups[2][0]), int(groups[4][-1])]
    found = model.apply([edit("move", 9, words=[f"w{moved[0]}", moved[1]], to=6)])
    expected = [set(words.tolist()) - set(moved) for words in groups]
    expected[6] |= set(moved)
    assert sets_of(found) == set(map(frozenset, expected))
    alone = model.apply([edit("move", 9, words=moved, to=None)])
    assert alone.n_groups == 10
    expected[6] -= set(moved)
    assert sets_of(alone) == set(map(frozenset, [*expected, set(moved)]))
    joined = model.apply([edit("join", 9, groups=[6, 2, 4])])
    assert joined.n_groups == 7
    assert sets_of(joined) == {
        *(frozenset(words.tolist()) for k, words in enumerate(groups) if k not in (2, 4, 6)),
        frozenset(np.concatenate([groups[k] for k in (2, 4, 6)]).tolist()),
    }
    for number, words in enumerate(groups):
        if len(words) == 1:
            continue
        parted = model.apply([edit("split", 9, group=number)])
        parts = sets_of(parted) - sets_of(model)
        assert sets_of(parted) >= sets_of(model) - {frozenset(words.tolist())}
        # the first cut of the hierarchy at which the group is not whole
        n = next(n for n in range(9, 61) if frozenset(words.tolist()) not in sets_of(model, n))
        assert parts == {one for one in sets_of(model, n) if one <= set(words.tolist())}
        assert len(parts) == 2
        again = parted.apply([edit("join", 10, groups=[parted.lookup[min(part)].item() for part in parts])])
        assert sets_of(again) == sets_of(model)
    # sizes above an edit of one group keep the others
    for n in (12, 20):
        assert len(sets_of(found, n) & sets_of(model, n)) >= n - 6


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8)
def test_edits_are_replayed_undone_and_saved(seed, tmp_path_factory):
    random = np.random.default_rng(seed)
    normalize = ("l1", "power") if seed % 2 else ()
    linked = {"hierarchy": LINKED.hierarchy, "group_statistics": LINKED.group_statistics} if seed % 5 < 3 else {}
    model = words_model(seed=seed % 7, normalize=normalize, **linked)
    edits = some_edits(model, random)
    whole = model.apply(edits)
    assert whole.edits == tuple(edits)
    steps = [model]
    for one in edits:
        steps.append(steps[-1].apply([one]))
    assert whole == steps[-1]
    for k, step in enumerate(steps):
        undone = whole.undo(len(edits) - k) if k < len(edits) else whole
        assert undone == step
        assert undone.edits == step.edits == tuple(edits[:k])
    path = whole.save(tmp_path_factory.mktemp("edited") / "m.bagwise")
    loaded = Model.load(path)
    assert loaded == whole
    assert loaded.undo(len(edits)) == model
    assert loaded.undo(2) == steps[-3]
    assert loaded.undo(2).apply(edits[-2:]) == whole == pickle.loads(pickle.dumps(whole))
    assert model.apply(loaded.edits) == whole
    assert model == words_model(seed=seed % 7, normalize=normalize, **linked)  # nothing was changed in place
    links = linked_words(whole)
    locked = [whole.groups()[k] for k in locked_groups(whole)]
    constraints_hold(whole, links["must_link"], links["cannot_link"], locked)
    # readers that know nothing of edits see the edited groups
    counts = random.integers(0, 4, (7, 60))
    reader = runtime.load(path)
    for n in {whole.n_groups, whole.hierarchy.min_groups, 20}:
        np.testing.assert_allclose(reader.cut(n).transform_counts(counts), whole.cut(n).transform(counts), atol=1e-6)
    assert reader.predict_counts(counts).tolist() == whole.predict(counts).tolist()


def test_heads_and_errors_stay_where_groups_are_the_same():
    model = words_model()
    groups = model.groups()
    number = next(k for k, words in enumerate(groups) if len(words) > 3)
    edited = model.apply([edit("move", 9, words=groups[number][:2].tolist(), to=None)])
    same = {n for n in range(1, 61) if sets_of(edited, n) == sets_of(model, n)}
    assert {60} <= same < set(range(1, 61))
    assert {*edited.heads} == ({3, 9, 20, 60} & same) | {10}
    assert all(edited.heads[n] == model.heads[n] for n in edited.heads if n != 10)
    assert edited.calibration == {n: value for n, value in model.calibration.items() if n in same}
    assert {*edited.path.sizes} == {3, 9, 20, 60} & same
    assert edited.provenance["derived_head"] == {"n_groups": 10, "from": 20}
    # a head that is trained later stays as long as its groups do
    trained = dataclasses.replace(edited, heads=edited.heads | {10: Head(np.ones((3, 10)), [0, 0, 1])}, provenance={})
    assert trained.apply([edit("rename", 10, group=0, name="x")]).head == trained.head
    parted = trained.apply([edit("split", 10, group=number)])  # whose parts merge again first
    assert (parted.heads[10], parted.undo().head) == (trained.head, trained.head)
    moved = trained.apply([edit("move", 10, words=groups[number][2:3].tolist(), to=5)])
    assert moved.provenance["derived_head"]["n_groups"] == moved.n_groups == 10
    assert moved.undo().head == edited.head  # derived again
    assert trained.undo() == model


@pytest.mark.parametrize("normalize", [(), ("l1",), ("power",)])
def test_derived_weights_keep_scores_of_groups_that_were_split_or_joined(normalize):
    """A group's words always in the proportions of their occurrences: edits lose nothing that the old head says."""
    model = words_model(
        normalize=normalize, heads={9: Head(np.random.default_rng(1).normal(size=(3, 9)), np.ones(3))}, calibration={}
    )
    random, totals = np.random.default_rng(0), model.word_totals
    number = next(k for k, words in enumerate(model.groups()) if len(words) > 3)
    groups = model.lookup
    rows = random.random((6, 9))[:, groups] * totals / np.bincount(groups, totals)[groups]
    split = model.apply([edit("split", 9, group=number)])
    np.testing.assert_allclose(split.decision_function(rows), model.decision_function(rows), rtol=1e-4, atol=1e-5)
    joined = model.apply([edit("join", 9, groups=[0, 1])])
    groups = joined.lookup
    rows = random.random((6, 8))[:, groups] * totals / np.bincount(groups, totals)[groups]
    np.testing.assert_allclose(joined.decision_function(rows), model.decision_function(rows), rtol=1e-4, atol=1e-5)


def test_locked_groups_are_whole_at_every_size_and_refused_in_other_edits():
    model = words_model()
    words = model.groups()[3]
    edited = model.apply([edit("lock", 9, group=3)])
    assert locked_groups(edited) == [3]
    assert sets_of(edited) == sets_of(model)
    least = edited.hierarchy.min_groups
    assert least == 2  # the others still become one
    for n in range(least, 60 - len(words) + 2):
        assert frozenset(words.tolist()) in sets_of(edited, n)
    other = int(model.groups()[0][0])
    for refused in (
        edit("split", 9, group=3),
        edit("join", 9, groups=[1, 3]),
        edit("lock", 9, group=3),
        edit("move", 9, words=[other], to=3),
        edit("move", 9, words=[int(words[0])], to=None),
    ):
        with pytest.raises(BagwiseError, match=r"Edit 2, .*Group 3 is locked\. Unlock it first"):
            edited.apply([refused])
    assert edited.apply([edit("rename", 9, group=3, name="kept")]).given_names == {3: "kept"}
    opened = edited.apply([edit("unlock", 9, group=3)])
    assert opened.hierarchy == model.hierarchy
    assert opened.heads == model.heads
    # an edit of another size keeps it
    number = next(k for k, some in enumerate(edited.cut(6).groups()) if len(some) > 1 and words[0] not in some)
    assert frozenset(words.tolist()) in sets_of(edited.apply([edit("split", 6, group=number)]), 5)


def test_names_go_with_the_words():
    model = words_model().rename_groups({0: "first", 1: "second", 5: "sixth"})
    assert model.given_names == {0: "first", 1: "second", 5: "sixth"}
    assert [one["name"] for one in model.edits] == ["first", "second", "sixth"]
    swapped = model.rename_groups({0: "second", 1: "first", 5: None})
    assert swapped.given_names == {0: "second", 1: "first"}
    joined = model.apply([edit("join", 9, groups=[1, 0])])
    assert [joined.given_names.get(k) for k in (0, 4)] == ["second", "sixth"]
    number = model.lookup[model.groups()[5][0]]
    parted = model.apply([edit("split", 9, group=int(number))])
    assert sum(name == "sixth" for name in parted.given_names.values()) == 1
    large = max(sets_of(parted) - sets_of(model), key=len)
    assert parted.given_names[int(parted.lookup[min(large)])] == "sixth"
    with pytest.raises(BagwiseError, match="'first' is given twice"):
        model.rename_groups({3: "first"})
    assert model.rename_groups({}) is model


REFUSED = {
    "no list": ({"edit": "split"}, "Edits must be a list of objects such as"),
    "text": (["split"], r"An edit must be an object such as .*; got 'split'"),
    "unknown": ([edit("drop", 9, group=1)], "Unknown edit: .drop."),
    "no kind": ([{"n_groups": 9}], "An edit must be an object"),
    "missing": ([{"edit": "split", "n_groups": 9}], "'split' must have n_groups, group; got"),
    "more": ([edit("split", 9, group=1, word=3)], "'split' must have n_groups, group; got"),
    "objects": ([edit("split", 9, group={1})], "must consist of JSON values"),
    "size": ([edit("split", 61, group=1)], "n_groups must be an integer from 1 to 60; got 61"),
    "text as size": ([edit("split", "9", group=1)], "n_groups must be an integer from 1 to 60; got '9'"),
    "group": ([edit("split", 9, group=9)], "A group must be a number from 0 to 8; got 9"),
    "boolean": ([edit("split", 9, group=True)], "A group must be a number from 0 to 8; got True"),
    "word": (
        [edit("move", 9, words=[60], to=1)],
        "A word must be a number from 0 to 59, or one of their names.*got 60",
    ),
    "name of a word": ([edit("move", 9, words=["x"], to=1)], "A word must be .*; got 'x'"),
    "no words": ([edit("move", 9, words=[], to=1)], "words must be a list of at least 1"),
    "words twice": ([edit("move", 9, words=[1, "w1"], to=1)], "A word is named twice"),
    "nothing to move": ([edit("move", 9, words=[0], to=0)], "in group 0 already"),
    "one to join": ([edit("join", 9, groups=[1])], "groups must be a list of at least two"),
    "joined with itself": ([edit("join", 9, groups=[1, 1])], "Groups to join must differ"),
    "not locked": ([edit("unlock", 9, group=1)], "Group 1 is not locked"),
    "empty name": ([edit("rename", 9, group=1, name=" ")], "The name of a group must have 1 to 200"),
    "a single word": ([edit("split", 60, group=1)], "Group 1 has one word, which cannot be split"),
    "the second": ([edit("split", 9, group=0), edit("split", 9, group=99)], r"Edit 2, \{.*A group must be"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_edits_that_cannot_be_are_refused(case):
    edits, message = REFUSED[case]
    with pytest.raises(BagwiseError, match=message):
        words_model().apply(edits)


def test_more_that_is_refused():
    model = words_model()
    words = model.groups()[2].tolist()
    with pytest.raises(BagwiseError, match=r"Group 2 would be left without words\. Join groups"):
        model.apply([edit("move", 9, words=words, to=1)])
    with pytest.raises(BagwiseError, match="1 edit, of which 2 cannot be undone"):
        model.apply([edit("join", 9, groups=[0, 1])]).undo(2)
    with pytest.raises(BagwiseError, match="at most 10,000 edits"):
        model.apply([edit("join", 9, groups=[0, 1])] * 10_001)
    held = MADE["compact texts"]()
    with pytest.raises(BagwiseError, match="groups can be renamed, nothing else"):
        held.apply([edit("join", held.n_groups, groups=[0, 1])])
    assert held.rename_groups({1: "mine"}).group_names()[1] == "mine"
    with pytest.raises(BagwiseError, match="is compact or was trimmed"):
        model.trim().apply([edit("join", 9, groups=[0, 1])])
    small = model.trim().rename_groups({0: "mine"}).cut(5).rename_groups({1: "other"})
    assert (small.n_groups, small.given_names[1]) == (5, "other")
    with pytest.raises(BagwiseError, match="has `unedited` if it has edits"):
        dataclasses.replace(model, edits=[edit("join", 9, groups=[0, 1])])
    edited = model.apply([edit("join", 9, groups=[0, 1])])
    wrong = dataclasses.replace(edited.unedited, hierarchy=Hierarchy(3, [[0, 1]], [1.0]))
    with pytest.raises(BagwiseError, match="the same 60 words"):
        dataclasses.replace(edited, unedited=wrong)
    twice = dataclasses.replace(table_with_names(["a", "b", "a", "c"]))
    with pytest.raises(BagwiseError, match="if no other has it; got 'a'"):
        twice.apply([edit("move", 2, words=["a"], to=None)])
    assert twice.apply([edit("move", 2, words=["b"], to=None)]).n_groups == 3


def table_with_names(names):
    hierarchy = Hierarchy(4, [[0, 1], [2, 3], [0, 2]], [3.0, 2.0, 1.0])
    return Model(modality="table", hierarchy=hierarchy, n_groups=2, word_names=names)


def test_trimmed_and_compact_models_keep_the_edited_groups():
    model = words_model(tokenizer={"token_pattern": r"w\d+"})
    edited = model.apply([edit("join", 9, groups=[0, 1]), edit("rename", 8, group=0, name="both")])
    texts = ["w1 w5 w7", "w33 w12", "w2"]
    for small in (edited.trim(), edited.compact()):
        assert (small.edits, small.unedited) == ((), None)
        assert small.predict(texts).tolist() == edited.predict(texts).tolist()
        assert "both" in small.given_names.values()
    assert edited.trim().provenance["n_edits"] == 2


def test_edits_without_names_change_little_in_the_file(tmp_path):
    model = words_model()
    renamed = model.rename_groups({0: "x"})
    before, after = (one.save(tmp_path / "m").stat().st_size for one in (model, renamed))
    assert after - before < 600
    assert Model.load(tmp_path / "m") == renamed
    assert Model.load(tmp_path / "m").undo() == model


def accepted(model, one):
    try:
        return model.apply([one])
    except BagwiseError:
        return None


def constraints_hold(model, must, cannot, whole=()):
    joined = joined_sets([*must, *(words.tolist() for words in whole)])
    largest = model.hierarchy.n_words - sum(len(words) - 1 for words in joined)
    assert largest >= model.n_groups
    for n in range(model.hierarchy.min_groups, largest + 1):
        labels = model.hierarchy.cut(n)
        assert all(len(set(labels[words])) == 1 for words in must), n
        assert all(len(set(labels[words])) == len(words) for words in cannot), n
        assert all((labels == labels[words[0]]).sum() == len(words) for words in whole), n


@pytest.mark.parametrize("criterion", ["aib", "classifier", "csm"])
@pytest.mark.parametrize("most", [1000, 20])
def test_links_hold_at_every_size(criterion, most, monkeypatch, tmp_path):
    monkeypatch.setattr("bagwise.merging.group_statistics.MOST_GROUPS", most)
    model = linked_model(criterion)
    groups = model.groups()
    apart, together = [int(groups[0][0]), int(groups[0][1])], [int(groups[0][2]), int(groups[5][0]), int(groups[6][0])]
    edits = [edit("cannot_link", 9, words=apart), edit("must_link", 9, words=[f"w{word}" for word in together])]
    edited = model.apply(edits)
    assert (edited.n_groups, edited.hierarchy.min_groups) == (9, 2)
    constraints_hold(edited, [together], [apart])
    assert linked_words(edited) == {"must_link": [sorted(together)], "cannot_link": [sorted(apart)]}
    path = edited.save(tmp_path / "m.bagwise")
    loaded = Model.load(path)
    assert loaded == edited
    assert (loaded.undo(), loaded.undo(2)) == (model.apply(edits[:1]), model)
    # groups made by hand and locked ones stay, and later edits keep the links
    first, second, *_ = (k for k in range(9) if not {k} & set(edited.lookup[apart].tolist()))
    hand = edited.apply([edit("join", 9, groups=[first, second])])
    made = hand.groups()[first]
    locked, *others = (k for k in range(8) if k != first and not set(together) & set(hand.groups()[k].tolist()))
    kept, other = hand.groups()[locked], [int(hand.groups()[k][0]) for k in others[:2]]
    other = sorted([other[0], int(made[0])]) if set(apart) == set(other) else other
    more = hand.apply([edit("lock", 8, group=locked), edit("must_link", 8, words=other)])
    assert {frozenset(made.tolist()), frozenset(kept.tolist())} <= sets_of(more)
    constraints_hold(more, [together, other], [apart], [kept])
    parted = next(found for k in range(8) if (found := accepted(more, edit("split", 8, group=k))) is not None)
    assert parted.n_groups == 9
    constraints_hold(parted, [together, other], [apart], [kept])
    free = more.apply([edit("unlink", 8, words=apart), edit("unlock", 8, group=int(more.lookup[kept[0]]))])
    assert free.hierarchy.min_groups == 1
    constraints_hold(free, [together, other], [])


def test_links_that_cannot_be_are_refused():
    model = linked_model()
    groups = [words.tolist() for words in model.groups()]
    a, b = groups[0][:2]
    linked = model.apply([edit("must_link", 9, words=[a, b])])
    for edits, message in (
        ([edit("must_link", 9, words=[a])], "words must be a list of at least 2"),
        ([edit("cannot_link", 9, words=list(range(10)))], "10 words cannot be in different ones of 9 groups"),
        ([edit("cannot_link", 9, words=[a, b])], f"The words 'w{a}', 'w{b}' are linked already"),
        ([edit("must_link", 9, words=[b, 59]), edit("cannot_link", 9, words=[a, 59])], "must not be in one group, but"),
        ([edit("unlink", 9, words=[a, 59])], r"Words to unlink must be those of a link, \[\["),
        ([edit("move", 9, words=[a], to=None)], "must be in one group. Unlink them first"),
        ([edit("cannot_link", 9, words=[groups[k][0] for k in range(9)] + [59, 58])], "n_groups"),
    ):
        with pytest.raises(BagwiseError, match=message):
            linked.apply(edits)
    apart = model.apply([edit("cannot_link", 9, words=[a, groups[1][0]])])
    with pytest.raises(BagwiseError, match=r"No two of the words .* may be in one group\. Unlink"):
        apart.apply([edit("join", 9, groups=[int(apart.lookup[a]), int(apart.lookup[groups[1][0]])])])
    locked = model.apply([edit("lock", 9, group=0)])
    with pytest.raises(BagwiseError, match="Group 0 is locked and has only some of these words"):
        locked.apply([edit("must_link", 9, words=[a, groups[1][0]])])
    made = model.apply([edit("join", 9, groups=[0, 1])])
    with pytest.raises(BagwiseError, match="Group 0, which is locked or was made by hand, has several"):
        made.apply([edit("cannot_link", 8, words=[a, groups[1][0]])])
    assert made.apply([edit("must_link", 8, words=[a, groups[1][0]])]).n_groups == 8
    with pytest.raises(BagwiseError, match=r"keeps no statistics .* Use join, move and split, or fit it again"):
        words_model().apply([edit("must_link", 9, words=[0, 1])])
    many = linked_model().apply([edit("lock", 9, group=k) for k in range(4)])
    with pytest.raises(BagwiseError, match=r"leave \d+ groups, not 5"):
        many.apply([edit("cannot_link", 5, words=groups[4][:2])])


def test_names_of_links_and_statistics_that_do_not_fit():
    model = linked_model().rename_groups({0: "first", 3: "fourth"})
    words = [int(model.groups()[7][0]), int(model.groups()[8][0])]
    edited = model.apply([edit("must_link", 9, words=words)])
    for number, name in edited.given_names.items():
        old = {"first": 0, "fourth": 3}[name]
        shared = np.intersect1d(edited.groups()[number], model.groups()[old])
        assert 2 * len(shared) > len(np.union1d(edited.groups()[number], model.groups()[old]))
    with pytest.raises(BagwiseError, match=r"the criterion and the number .* \('aib', 60\); got \('aib', 59\)"):
        dataclasses.replace(model, group_statistics=GroupStatistics("aib", np.ones((59, 4)), 59))
    with pytest.raises(BagwiseError, match="GroupStatistics or None"):
        dataclasses.replace(model, group_statistics=[1])
    assert model.trim().group_statistics is None
    assert model.compact().group_statistics is None
