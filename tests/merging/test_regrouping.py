"""A hierarchy with edited groups is what walking through the merges with sets of words gives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import Hierarchy
from bagwise.merging.regrouping import Joins, regroup, same_cuts


def some_hierarchy(n_words, n_merges, random):
    names, merges = list(range(n_words)), []
    for _ in range(n_merges):
        s, t = sorted(random.choice(names, 2, replace=False).tolist())
        merges.append((s, t))
        names.remove(t)
    return Hierarchy(n_words, np.array(merges, dtype=int).reshape(-1, 2), random.random(n_merges), "test")


def numbered(labels):
    """Groups numbered by their first words, so that two partitions are equal if these numbers are."""
    numbers = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels.tolist()])


@st.composite
def cases(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d = draw(st.sampled_from([1, 2, 5, 12, 40, 200]))
    hierarchy = some_hierarchy(d, draw(st.integers(max(0, d - 5), d - 1)), random)
    before = hierarchy.cut(draw(st.integers(hierarchy.min_groups, d)))
    labels = before.copy()
    moved = random.random(d) < draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    labels[moved] = random.integers(0, before.max() + 2, moved.sum())
    labels = numbered(labels)
    groups = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
    closed = {k for k in range(len(groups)) if random.random() < draw(st.sampled_from([0.0, 0.3]))}
    whole = [groups[k] for k in closed]
    for k, words in enumerate(groups):  # some words of other groups
        if k not in closed and len(words) > 2 and random.random() < 0.2:
            whole.append(np.sort(random.choice(words, 2, replace=False)))
    return hierarchy, labels, before, whole, closed


def slow_regroup(hierarchy, labels, before, whole, closed):
    """The merges by sets: walk through the hierarchy once for each stage, as the documentation says."""
    merges, held = [], {word: {word} for word in range(hierarchy.n_words)}
    name = list(range(hierarchy.n_words))

    def join(one, other):
        s, t = sorted((name[one], name[other]))
        for word in held[t]:
            name[word] = s
        held[s] |= held.pop(t)
        merges.append((s, t))

    def walk(sets, at_last):
        """Join the words of each set where the hierarchy joins them."""
        of = {word: k for k, words in enumerate(sets) for word in words}
        clusters = {word: [word] for word in range(hierarchy.n_words)}

        def firsts(cluster):
            """A word of each set that has some in a cluster."""
            return {of[word]: word for word in reversed(clusters[cluster]) if word in of}

        for s, t in hierarchy.merges.tolist():
            left, right = firsts(s), firsts(t)
            for k in sorted(left.keys() & right.keys()):
                join(left[k], right[k])
            clusters[s] += clusters.pop(t)
        for k in range(len(sets)) if at_last else []:
            parts = [found[k] for found in map(firsts, sorted(clusters)) if k in found]
            for part in parts[1:]:
                join(parts[0], part)

    walk([set(words.tolist()) for words in whole], at_last=True)
    standing = set(range(hierarchy.n_words)) - {word for words in whole for word in words.tolist()[1:]}
    groups = [set(np.flatnonzero(labels == k).tolist()) for k in range(labels.max() + 1)]
    walk([words & standing for words in groups], at_last=True)
    places = set()
    for k, words in enumerate(groups):
        if k not in closed:
            most = np.bincount(before[sorted(words)]).argmax()
            places.add(min(word for word in words if before[word] == most))
    walk([places], at_last=False)
    return np.array(merges).reshape(-1, 2)


@given(cases())
@settings(max_examples=40)
def test_regrouping_is_walking_through_the_merges(case):
    hierarchy, labels, before, whole, closed = case
    found = regroup(hierarchy, labels, before, whole=whole, closed=closed)
    np.testing.assert_array_equal(found.merges, slow_regroup(hierarchy, labels, before, whole, closed))
    np.testing.assert_array_equal(found.cut(labels.max() + 1), labels)
    step = max(hierarchy.n_words // 40, 1)
    for n in range(found.min_groups, hierarchy.n_words, step):  # scores are kept where groups are the same
        k = hierarchy.n_words - n - 1
        same = k < len(hierarchy.merges) and np.array_equal(found.cut(n), hierarchy.cut(n))
        np.testing.assert_equal(found.scores[k], hierarchy.scores[k] if same else np.nan)
        if n <= labels.max() + 1:
            for words in (np.flatnonzero(labels == k) for k in closed):
                assert np.bincount(found.cut(n))[found.cut(n)[words[0]]] == len(words)


@given(cases())
@settings(max_examples=30)
def test_joins_and_same_cuts_are_those_of_cuts(case):
    hierarchy, labels, before, _, _ = case
    d, n_merges, joins = hierarchy.n_words, len(hierarchy.merges), Joins(hierarchy)
    random = np.random.default_rng(d)
    one, other = random.integers(0, d, (2, 20))
    found = [hierarchy.joined_at(a, b) for a, b in zip(one, other, strict=True)]
    assert joins.levels(one, other).tolist() == [n_merges if n is None else d - 1 - n for n in found]
    edited = regroup(hierarchy, labels, before)
    n = min(n_merges, len(edited.merges))
    assert same_cuts(hierarchy, edited).tolist() == [
        np.array_equal(hierarchy.cut(d - 1 - k), edited.cut(d - 1 - k)) for k in range(n)
    ]


def test_unchanged_groups_change_nothing():
    hierarchy = some_hierarchy(300, 297, np.random.default_rng(0))
    for n in (3, 40, 300):
        assert regroup(hierarchy, hierarchy.cut(n), hierarchy.cut(n)) == hierarchy
