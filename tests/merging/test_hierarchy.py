import json
import pickle
import struct
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage

from bagwise import BagwiseError, Hierarchy
from changed_files import read_parts, write_parts


@st.composite
def hierarchies(draw):
    n_words = draw(st.integers(1, 30))
    n_merges = draw(st.integers(0, n_words - 1))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    names = list(range(n_words))
    merges = []
    for _ in range(n_merges):
        s, t = sorted(rng.choice(names, 2, replace=False).tolist())
        merges.append((s, t))
        names.remove(t)
    return Hierarchy(n_words, np.array(merges, dtype=int).reshape(-1, 2), rng.random(n_merges), "test")


def replay(hierarchy, n):
    """Groups by applying merges one at a time to lists."""
    groups = {word: [word] for word in range(hierarchy.n_words)}
    for s, t in hierarchy.merges[: hierarchy.n_words - n].tolist():
        groups[s] = sorted(groups[s] + groups.pop(t))
    return [groups[name] for name in sorted(groups)]


@given(hierarchies())
def test_every_cut_equals_applying_the_merges(hierarchy):
    for n in range(hierarchy.min_groups, hierarchy.n_words + 1):
        groups = [group.tolist() for group in hierarchy.groups(n)]
        assert groups == replay(hierarchy, n)
        labels = hierarchy.cut(n)
        assert [np.flatnonzero(labels == g).tolist() for g in range(n)] == groups


@given(hierarchies())
def test_cuts_are_nested(hierarchy):
    for n in range(hierarchy.min_groups + 1, hierarchy.n_words + 1):
        fine, coarse = hierarchy.cut(n), hierarchy.cut(n - 1)
        parents = {(f, c) for f, c in zip(fine, coarse, strict=True)}
        assert len(parents) == n  # each fine group lies in one coarse group


@given(hierarchies(), st.data())
def test_push_then_histogram_is_histogram_then_merge(hierarchy, data):
    n = data.draw(st.integers(hierarchy.min_groups, hierarchy.n_words))
    words = np.array(data.draw(st.lists(st.integers(0, hierarchy.n_words - 1), max_size=40)), dtype=int)
    counts = np.bincount(words, minlength=hierarchy.n_words)
    expected = [counts[group].sum() for group in hierarchy.groups(n)]
    assert np.bincount(hierarchy.push(words, n), minlength=n).tolist() == expected
    assert hierarchy.push(words.reshape(-1, 1), n).shape == (len(words), 1)


@given(hierarchies())
def test_save_then_load_gives_the_same(tmp_path_factory, hierarchy):
    path = tmp_path_factory.mktemp("h") / "a.safetensors"
    assert hierarchy.save(path) == path
    assert Hierarchy.load(path) == hierarchy
    assert [entry.name for entry in path.parent.iterdir()] == ["a.safetensors"]


def test_linkage_there_and_back():
    rng = np.random.default_rng(0)
    rows = linkage(rng.random((20, 3)), "average")
    hierarchy = Hierarchy.from_linkage(rows)
    np.testing.assert_array_equal(hierarchy.scores, rows[:, 2])
    back = hierarchy.to_linkage()
    assert is_valid_linkage(back)
    np.testing.assert_array_equal(np.sort(back[:, :2]), np.sort(rows[:, :2]))
    np.testing.assert_array_equal(back[:, 3], rows[:, 3])
    for n in (1, 5, 19):
        ours, theirs = hierarchy.cut(n), fcluster(rows, n, "maxclust")
        assert len({*zip(ours, theirs, strict=True)}) == n


def test_it_is_frozen_and_does_not_share_memory():
    merges = np.array([[0, 1]])
    hierarchy = Hierarchy(3, merges, [0.5])
    merges[0] = 7
    assert hierarchy.merges.tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="read-only"):
        hierarchy.merges[0, 0] = 1
    with pytest.raises(AttributeError):
        hierarchy.n_words = 4  # type: ignore[misc]
    assert repr(hierarchy) == "<Hierarchy: 3 words merged into 2 groups>"
    assert hierarchy == Hierarchy(3, [[0, 1]], [0.5])
    assert hierarchy != Hierarchy(3, [[0, 2]], [0.5])
    assert hierarchy != "hierarchy"


@pytest.mark.parametrize(
    ("n_words", "merges", "scores", "message"),
    [
        (3, [[1, 0]], [0.0], "0 <= s < t < 3"),
        (3, [[0, 3]], [0.0], "0 <= s < t < 3"),
        (3, [[-1, 2]], [0.0], "0 <= s < t < 3"),
        (4, [[0, 1], [1, 2]], [0.0, 0.0], "1 was already absorbed"),
        (4, [[0, 2], [1, 2]], [0.0, 0.0], "2 was already absorbed"),
        (2, [[0, 1], [0, 1]], [0.0, 0.0], "at most 1 merges, got 2"),
        (3, [[0, 1]], [0.0, 1.0], "one value per merge"),
        (3, [[0, 1, 2]], [0.0], r"shape \(m, 2\)"),
        (3, [[0.5, 1]], [0.0], "merges must be int64, got float64"),
        (3.0, [[0, 1]], [0.0], "n_words must be an integer, got 3.0"),
        (-1, [], [], "at least 0"),
    ],
)
def test_invalid_merges_are_refused(n_words, merges, scores, message):
    with pytest.raises(BagwiseError, match=message):
        Hierarchy(n_words, merges, scores)


def test_cuts_out_of_range_say_the_range():
    hierarchy = Hierarchy(5, [[0, 1]], [0.5])
    for n in (3, 6, 0, -1):
        with pytest.raises(BagwiseError, match="from 4 to 5"):
            hierarchy.cut(n)
    with pytest.raises(BagwiseError, match="must be an integer"):
        hierarchy.cut(4.0)  # type: ignore[arg-type]
    with pytest.raises(BagwiseError, match="stops at 4 groups"):
        hierarchy.to_linkage()


def test_push_refuses_what_is_not_a_word():
    hierarchy = Hierarchy(3, [[0, 1]], [0.5])
    with pytest.raises(BagwiseError, match="Word 3 does not exist"):
        hierarchy.push([0, 3], 2)
    with pytest.raises(BagwiseError, match="Word -1 does not exist"):
        hierarchy.push([-1], 2)
    with pytest.raises(BagwiseError, match="float64"):
        hierarchy.push([0.5], 2)


@pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.array([[0, 9, 1, 2.0]]), np.array([[0, 0.5, 1, 2.0]])])
def test_bad_linkages_are_refused(rows):
    with pytest.raises(BagwiseError):
        Hierarchy.from_linkage(rows)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "h.safetensors"
    Hierarchy(4, [[0, 1], [2, 3]], [0.5, np.nan], "csm").save(path)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])

    def with_header(new):
        text = json.dumps(new).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + length :]

    meta = json.loads(header["__metadata__"]["bagwise"])
    damaged = {
        "empty": b"",
        "truncated": content[:-5],
        "text": b"not a safetensors file at all",
        "huge header": struct.pack("<Q", 2**60) + content[8:],
        "huge tensor": with_header(header | {"merges": header["merges"] | {"shape": [2**40, 2]}}),
        "no metadata": with_header({key: value for key, value in header.items() if key != "__metadata__"}),
        "other kind": with_header(header | {"__metadata__": {"bagwise": json.dumps(meta | {"kind": "other"})}}),
        "newer schema": with_header(header | {"__metadata__": {"bagwise": json.dumps(meta | {"schema": 2})}}),
        "list header": with_header(header | {"__metadata__": {"bagwise": "[1]"}}),
        "wrong size": with_header(header | {"__metadata__": {"bagwise": json.dumps(meta | {"n_words": 3})}}),
        "no size": with_header(header | {"__metadata__": {"bagwise": json.dumps({"kind": meta["kind"], "schema": 1})}}),
        "text size": with_header(header | {"__metadata__": {"bagwise": json.dumps(meta | {"n_words": "4"})}}),
    }
    for data in damaged.values():
        path.write_bytes(data)
        with pytest.raises(BagwiseError):
            Hierarchy.load(path)
    with pytest.raises(FileNotFoundError):
        Hierarchy.load(tmp_path / "missing")


def test_copies_are_frozen_as_well():
    hierarchy = Hierarchy(3, [[0, 1]], [0.5], "csm")
    for copy in (pickle.loads(pickle.dumps(hierarchy)), deepcopy(hierarchy)):
        assert copy == hierarchy
        assert not copy.merges.flags.writeable
        assert not copy.scores.flags.writeable


def test_a_file_that_claims_too_many_words_costs_nothing(tmp_path):
    path = tmp_path / "h.safetensors"
    message = "its n_words is 1000000000000; expected integer, .*at most 67108864"
    with pytest.raises(BagwiseError, match=message):
        Hierarchy(10**12, [[0, 1], [5, 10**11]], [0.5, 0.25]).save(path)
    assert not path.exists()
    Hierarchy(12, [[0, 1], [5, 10]], [0.5, 0.25]).save(path)
    entries, data = read_parts(path)
    header = json.loads(entries["__metadata__"]["bagwise"]) | {"n_words": 10**12}
    entries["__metadata__"]["bagwise"] = json.dumps(header)
    write_parts(path, entries, data)
    with pytest.raises(BagwiseError, match=message):
        Hierarchy.load(path)


def test_linkages_that_use_a_cluster_twice_are_refused():
    with pytest.raises(BagwiseError, match=r"Row 1 of the linkage.*merged already"):
        Hierarchy.from_linkage([[0, 1, 1, 2], [0, 2, 2, 3.0]])
    with pytest.raises(BagwiseError, match="Row 0 of the linkage"):
        Hierarchy.from_linkage([[1, 1, 1, 2.0]])


def interleaved_one_by_one(hierarchies, shares):
    """Merges in order, from the numbers of groups at each level."""
    left = [list(one.merges) for one in hierarchies]
    groups = [one.n_words for one in hierarchies]
    firsts = np.cumsum([0, *groups[:-1]])
    merges, last = [], []
    across = len(left) > 1 and all(one.min_groups == 1 for one in hierarchies)
    if across and left[0]:
        last = [left[0].pop().tolist()]
    while any(left):
        v = max((v for v in range(len(left)) if left[v]), key=lambda v: (groups[v] / shares[v], -v))
        merges.append((left[v].pop(0) + firsts[v]).tolist())
        groups[v] -= 1
    return merges + ([[0, first] for first in firsts[1:]] if across else []) + last


@given(st.lists(hierarchies(), min_size=1, max_size=3), st.data())
def test_interleaved_hierarchies_merge_the_vocabulary_with_most_groups_for_its_share(some, data):
    shares = data.draw(st.none() | st.lists(st.integers(1, 9), min_size=len(some), max_size=len(some)))
    both = Hierarchy.interleave(some, shares)
    assert both.n_words == sum(one.n_words for one in some)
    assert both.merges.tolist() == interleaved_one_by_one(some, shares or [1] * len(some))


@given(st.lists(hierarchies(), min_size=1, max_size=3))
def test_a_cut_of_interleaved_hierarchies_is_a_cut_of_each(some):
    both = Hierarchy.interleave(some)
    ends = np.cumsum([one.n_words for one in some])
    for n in range(both.min_groups, both.n_words + 1):
        parts = np.split(both.cut(n), ends[:-1])
        if n > len(some):
            assert sum(len(set(part.tolist())) for part in parts) == n  # none are merged across vocabularies
        for one, part in zip(some, parts, strict=True):
            assert np.array_equal(part - part[0], one.cut(len(set(part.tolist()))))


def full_hierarchy(n_words, scores=None):
    return Hierarchy(
        n_words, [(0, t) for t in range(1, n_words)], np.arange(n_words, 1.0, -1) if scores is None else scores
    )


@pytest.mark.parametrize("shares", [(1, 1), (10, 3), (3, 1), (1, 5)])
def test_shares_hold_at_every_level(shares):
    both = Hierarchy.interleave([full_hierarchy(40), full_hierarchy(25)], shares)
    fraction = shares[1] / sum(shares)
    for n in range(2, both.n_words + 1):
        n_second = len(np.unique(both.cut(n)[40:]))
        # as near as the number of words of each vocabulary, and at least one group of each, allow
        assert abs(n_second - np.clip(n * fraction, max(1, n - 40), min(25, n - 1))) <= 1


def test_scores_of_interleaved_hierarchies_are_sums():
    first, second = full_hierarchy(4, [8.0, 4.0, 2.0]), full_hierarchy(2, [0.5])
    both = Hierarchy.interleave([first, second])
    assert np.array_equal(both.scores, [8.5, 4.5, 4.5, np.nan, 2.5], equal_nan=True)
    assert both.cut(2).tolist() == [*first.cut(2), 0, 0]
    assert np.array_equal(both.cut(1), np.zeros(6))
    assert Hierarchy.interleave([first]) == first


@pytest.mark.parametrize(
    "given_", [([], None), ([full_hierarchy(3)], [1, 2]), ([full_hierarchy(3)] * 2, [1, 0]), (["x"], None)]
)
def test_interleave_rejects(given_):
    with pytest.raises(BagwiseError, match=r"interleave takes|shares must be"):
        Hierarchy.interleave(*given_)


@given(hierarchies())
def test_every_group_is_a_run_of_the_leaf_order(hierarchy):
    order = hierarchy.leaf_order()
    assert sorted(order.tolist()) == list(range(hierarchy.n_words))
    for n in range(hierarchy.min_groups, hierarchy.n_words + 1):
        assert (np.diff(hierarchy.cut(n)[order]) != 0).sum() == n - 1


@given(hierarchies())
def test_words_join_where_a_cut_first_has_them_together(hierarchy):
    cuts = {n: hierarchy.cut(n) for n in range(hierarchy.min_groups, hierarchy.n_words + 1)}
    for first in range(hierarchy.n_words):
        for second in range(0, hierarchy.n_words, 3):
            together = [n for n, labels in cuts.items() if labels[first] == labels[second]]
            assert hierarchy.joined_at(first, second) == max(together, default=None)
    with pytest.raises(BagwiseError, match="second must be"):
        hierarchy.joined_at(0, hierarchy.n_words)
