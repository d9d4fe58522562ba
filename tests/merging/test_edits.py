"""Merging again under constraints: the engine's merges without any, and the best allowed pair with some."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise import BagwiseError, Hierarchy, merge_words
from bagwise.merging.criteria import NAMED_CRITERIA
from bagwise.merging.criteria.base import TraceRatio
from bagwise.merging.edits import linked_groups, merge_allowed, pooled, statistics_of
from bagwise.merging.engine import Engine, merge
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.refining import merge_refined
from bagwise.merging.regrouping import joined_sets
from bagwise.merging.rows import DenseRows
from bagwise.merging.scoring import Information, WeightLoss
from model_cases import random_hierarchy

SUMS, PAIRS = (
    [name for name, kind in NAMED_CRITERIA.items() if kind.edits_from == kept] for kept in ("states", "pairs")
)
NONE = np.empty((0, 2), dtype=np.int64)


def data(n=90, d=300, n_classes=4, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return random.poisson(random.gamma(0.5, 4.0, (n_classes, d))[y]).astype(float), y


def exact(criterion, X, y):
    """The statistics of all words, without rounding to float32."""
    engine = Engine(criterion).load(X, y)
    return engine.data.scoring() if criterion in SUMS else DenseRows(*engine.data.matrices_of(np.arange(X.shape[1])))


@pytest.mark.parametrize("criterion", ["aib", "classifier", "clusters", "mlt", "csm", "nda"])
def test_without_constraints_the_merges_are_those_of_the_engine(criterion):
    X, y = data()
    expected = merge_words(X, y, criterion=criterion)
    again = merge_allowed(exact(criterion, X, y), NONE)
    assert again.min_groups == 1
    # where a pair is ahead by rounding only, the two may take another one, but the scores are the same
    finite = np.isfinite(expected.scores) & np.isfinite(again.scores)
    np.testing.assert_allclose(again.scores[finite], expected.scores[finite], rtol=1e-9, atol=1e-9)
    assert finite.sum() >= 298
    cuts = [np.array_equal(again.cut(n), expected.cut(n)) for n in range(1, 300)]
    assert np.mean(cuts) > 0.95


@pytest.mark.parametrize("criterion", ["aib", "classifier", "clusters", "mlt", "csm", "lpp"])
def test_statistics_of_a_cut_are_sums_over_its_words(criterion, monkeypatch):
    X, y = data(d=60)
    monkeypatch.setattr("bagwise.merging.group_statistics.MOST_GROUPS", 25)
    engine = Engine(criterion).load(X, y)
    hierarchy = engine.run(1)
    kept = statistics_of(engine, hierarchy)
    assert kept.n_groups == 25
    base, labels = hierarchy.cut(25), hierarchy.cut(10)
    found = pooled(kept, base, labels, np.ones(60))
    whole = exact(criterion, X, y)
    shares = (labels == np.arange(10)[:, np.newaxis]).astype(float)
    if criterion in SUMS:
        np.testing.assert_allclose(found.states, shares @ whole.states, rtol=1e-5, atol=1e-7)
    else:
        for name in ("A", "B"):
            expected = shares @ getattr(whole, name) @ shares.T
            np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    # merging goes on as it did, but for pairs that float32 cannot tell apart
    merges = merge_allowed(pooled(kept, base, base, np.ones(60)), NONE).merges
    firsts = np.unique(base, return_index=True)[1]
    again = Hierarchy(60, np.concatenate([hierarchy.merges[:35], firsts[merges]]), np.zeros(59))
    assert np.mean([np.array_equal(again.cut(n), hierarchy.cut(n)) for n in range(1, 25)]) > 0.9


def test_groups_by_a_classifier_are_refined_as_without_constraints():
    random = np.random.default_rng(2)
    mass, weights = random.random(120), random.normal(size=(120, 3))
    expected = merge_refined(mass, weights, "classifier", 12)
    scoring = WeightLoss(mass, weights)
    found = merge_allowed(scoring, NONE, n_groups=12)
    for n in range(1, 13):
        np.testing.assert_array_equal(found.cut(n), expected.cut(n))
    loss = sum(
        (mass[words] * ((weights[words] - np.average(weights[words], 0, mass[words])) ** 2).sum(1)).sum()
        for words in found.groups(12)
    )
    assert found.scores[107] == pytest.approx(-loss)
    greedy = merge(WeightLoss(mass, weights), name="classifier")
    assert found.scores[107] > greedy.scores[107]
    # with constraints, parts that are held or must be apart do not move, and the score is still better than before
    refused, held, closed = np.array([[0, 1], [2, 3]]), [5, 6], [7]
    groups = merge_allowed(scoring, refused, held, closed, 12)
    labels = groups.cut(12)
    assert labels[0] != labels[1]
    assert labels[2] != labels[3]
    assert [(labels == labels[k]).sum() for k in (5, 6, 7)] == [1, 1, 1]
    assert groups.min_groups == 3


def test_parts_of_a_group_share_its_statistics_by_mass():
    kept = GroupStatistics("aib", [[3.0, 1.0], [2.0, 2.0]], 2)
    found = pooled(kept, np.array([0, 0, 0, 1, 1]), np.array([0, 1, 0, 2, 2]), np.array([1.0, 2.0, 1.0, 0.0, 0.0]))
    np.testing.assert_allclose(found.states, [[1.5, 0.5], [1.5, 0.5], [2.0, 2.0]])
    A, B = np.array([[[4, 1, 2], [1, 9, 0], [2, 0, 1]], [[4, 2, 1], [2, 16, 1], [1, 1, 3]]])
    pairs = GroupStatistics("csm", [A[np.triu_indices(3)], B[np.triu_indices(3)]], 3)
    found = pooled(pairs, np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]), np.array([1.0, 3.0, 1.0, 1.0]))
    x = np.array([[0.25, 0.0, 0.0], [0.75, 1.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(found.A, x @ A @ x.T)
    np.testing.assert_allclose(found.B, x @ B @ x.T)


def slow_merges(score, n, refused, held, closed, n_groups):
    """The best allowed pair at each level, by scoring all of them from scratch."""
    groups = {k: {k} for k in range(n)}
    merges = []
    for kept, least in (({*held, *closed}, n_groups), ({*closed}, 1)):
        while len(groups) > least:
            allowed = [
                (s, t)
                for s, t in combinations(sorted(groups), 2)
                if not {s, t} & kept and not any({a, b} <= groups[s] | groups[t] for a, b in refused)
            ]
            if not allowed:
                break
            values = []
            for s, t in allowed:
                after = [words for k, words in groups.items() if k not in (s, t)] + [groups[s] | groups[t]]
                values.append(score([sorted(words) for words in after]))
            best = max(values)
            s, t = next(pair for pair, value in zip(allowed, values, strict=True) if value >= best - 1e-12)
            groups[s] |= groups.pop(t)
            merges.append((s, t))
        if len(groups) > n_groups:
            return None
    return merges


def check_merges(groups, merges, refused, kept):
    """Each merge is allowed, and no allowed one is better; after the last none is allowed."""
    n = groups.size
    live, apart = ~kept, np.eye(n, dtype=bool) | refused
    if of_pairs := isinstance(groups, DenseRows):
        A, B = groups.A.copy(), groups.B.copy()
    else:
        states, terms = groups.states.copy(), groups.terms(groups.states)
        rows = np.arange(n)
        gains = np.array([groups.gains(states[s], terms[s], states, terms) for s in rows])
    for s, t in [*merges.tolist(), (-1, -1)]:
        if of_pairs:
            kept_trace = 1e-12 * np.trace(groups.B)
            a, b = np.trace(A) + 2 * A, np.trace(B) + 2 * B
            gains = np.where(b > kept_trace, a / np.where(b > kept_trace, b, 1), -np.inf)
        allowed = np.where(apart | ~live | ~live[:, None], -np.inf, gains)
        if s < 0:
            assert not (~apart & live & live[:, None]).any()
            return
        assert s < t
        assert live[s]
        assert live[t]
        assert not apart[s, t]
        assert allowed[s, t] >= allowed.max() - 1e-9 * max(1, abs(allowed.max()))
        live[t] = False
        apart[s] |= apart[t]
        apart[:, s] |= apart[:, t]
        if of_pairs:
            for M in (A, B):
                M[s] += M[t]
                M[:, s] += M[:, t]
                M[t] = M[:, t] = 0
        else:
            states[s] += states[t]
            terms[s] = groups.terms(states[s : s + 1])[0]
            gains[s] = gains[:, s] = groups.gains(states[s], terms[s], states, terms)


@pytest.mark.parametrize("kind", ["counts", "frequencies", "constant words", "ties"])
@pytest.mark.parametrize("criterion", [*SUMS, *PAIRS])
def test_many_groups_are_merged_by_the_best_allowed_pairs(criterion, kind):
    """Slots are packed on the way; frequencies end with traces of rounding, and words that tie with equal pairs."""
    random = np.random.default_rng(len(criterion))
    n = 140 if criterion in PAIRS else 620 if kind == "counts" else 90
    X, y = data(n=60, d=n, n_classes=3, seed=n)
    X = X / np.maximum(X.sum(axis=1, keepdims=True), 1) if kind == "frequencies" else X
    X = np.minimum(X, 1) if kind == "ties" else X
    if kind == "constant words":
        X[:, random.random(n) < 0.3] = 0
    groups = exact(criterion, X, y)
    refused = np.triu(random.random((n, n)) < 2 / n, 1)
    closed = random.choice(n, 4, replace=False)
    kept = np.isin(np.arange(n), closed)
    merged = merge_allowed(groups, np.argwhere(refused), (), closed, n)
    check_merges(groups, merged.merges, refused | refused.T, kept)
    assert len(merged.merges) < n - 4


@given(seed=st.integers(0, 2**32 - 1), criterion=st.sampled_from(["aib", "mlt", "csm"]))
@settings(max_examples=25)
def test_constrained_merges_are_the_best_allowed_ones(seed, criterion):
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 9))
    X, y = data(n=30, d=n, n_classes=3, seed=seed)
    refused = [pair for pair in combinations(range(n), 2) if random.random() < 0.2]
    kinds = random.random(n)
    held, closed = np.flatnonzero(kinds < 0.15).tolist(), np.flatnonzero(kinds > 0.85).tolist()
    n_groups = int(random.integers(1, n + 1))
    groups = exact(criterion, X, y)
    if criterion == "csm":
        A, B = groups.A, groups.B

        def score(parts):
            x = np.array([np.isin(np.arange(n), words) for words in parts]).astype(float)
            return np.trace(x @ A @ x.T) / np.trace(x @ B @ x.T)
    else:
        states, scoring = groups.states, groups

        def score(parts):
            return scoring.terms(np.array([states[words].sum(axis=0) for words in parts])).sum()

    expected = slow_merges(score, n, refused, held, closed, n_groups)
    pairs = np.array(refused, dtype=np.int64).reshape(-1, 2)
    if expected is None:
        with pytest.raises(BagwiseError, match=r"groups made by hand leave \d+ groups, not \d+"):
            merge_allowed(groups, pairs, held, closed, n_groups)
    else:
        assert merge_allowed(groups, pairs, held, closed, n_groups).merges.tolist() == [list(pair) for pair in expected]


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_groups_to_begin_with_satisfy_all_links(seed):
    random = np.random.default_rng(seed)
    d = int(random.integers(6, 60))
    hierarchy = random_hierarchy(d, random)
    base = hierarchy.cut(int(random.integers(2, d + 1)))
    rest = random.permutation(d)
    units = [np.sort(rest[:k]) for k in [int(random.integers(1, 4))] if random.random() < 0.5]
    must, cannot = (
        [random.choice(d, int(random.integers(2, 4)), replace=False).tolist() for _ in range(random.integers(0, 4))]
        for _ in range(2)
    )
    whole = joined_sets([*(words.tolist() for words in units), *must])
    contradiction = any({a, b} <= set(words) for some in cannot for a, b in combinations(some, 2) for words in whole)
    if contradiction:
        with pytest.raises(BagwiseError, match=r"Words \d+ and \d+ must not be in one group, but"):
            linked_groups(hierarchy, base, units, must, cannot)
        return
    labels, found = linked_groups(hierarchy, base, units, must, cannot)
    assert found == whole
    assert labels.max() + 1 == len(np.unique(labels))
    for words in whole:
        assert len(set(labels[words])) == 1
    for words in cannot:
        assert len(set(labels[words])) == len(words)
    if not must and not cannot:  # nothing but the units is taken out
        others = np.setdiff1d(np.arange(d), np.concatenate([*units, np.empty(0)]).astype(int))
        assert len({(labels[word], base[word]) for word in others}) == len(set(base[others]))
    linked = {word for words in (*whole, *cannot) for word in words}
    free = [k for k in range(base.max() + 1) if not linked & set(np.flatnonzero(base == k).tolist())]
    for k in free:  # groups without linked words stay as they are
        assert len(set(labels[base == k])) == 1
        assert (labels == labels[base == k][0]).sum() == (base == k).sum()


def test_which_statistics_are_kept():
    assert {*PAIRS} == {name for name, kind in NAMED_CRITERIA.items() if issubclass(kind, TraceRatio)}
    X, y = data(d=12)
    for criterion in ("mmi", "uvd", "gml", "linkage"):
        engine = Engine(criterion).load(X, y)
        assert statistics_of(engine, engine.run(1)) is None
    for n_words, of_pairs in ((1, True), (2, None), (3, True), (12, True)):
        engine = Engine("csm").load(X[:, :n_words], y)
        kept = statistics_of(engine, engine.run(1))
        assert (None if kept is None else kept.of_pairs) == of_pairs
    wide = np.random.default_rng(0).random((5, 300))
    assert GroupStatistics.of_states(random_hierarchy(5, np.random.default_rng(0)), Information(wide).states) is None


@pytest.mark.parametrize(
    ("values", "n_groups", "message"),
    [
        ([[1.0, np.nan]], 1, "finite numbers"),
        ([["a", "b"]], 1, "finite numbers"),
        ([1.0, 2.0], 1, "two dimensions"),
        ([[-1.0, 1.0]], 1, "must not be negative; got -1"),
        ([[1.0]], 1, r"\(n, 2 to 256\) .* got \(1, 1\) for n=1"),
        ([[1.0, 2.0]], 2, r"got \(1, 2\) for n=2"),
        (np.ones((1001, 2)), 1001, r"of n groups, at most 1000, .* got \(1001, 2\)"),
        (np.ones((2, 4)), 3, r"\(2, n \(n \+ 1\) / 2\)"),
        (np.ones((3, 3)), 2, r"\(2, n \(n \+ 1\) / 2\)"),
    ],
)
def test_statistics_that_cannot_be_are_refused(values, n_groups, message):
    with pytest.raises(BagwiseError, match=message):
        GroupStatistics("aib", values, n_groups)


@pytest.mark.parametrize(
    ("criterion", "values", "message"),
    [
        ("mmi", np.ones((3, 2)), r"by the criterion 'mmi' cannot be merged again from statistics of shape \(3, 2\)"),
        ("csm", np.ones((3, 2)), "cannot be merged again"),
        ("aib", np.ones((2, 6)), "cannot be merged again"),
        ("aib", [[1, -1]] * 3, "Counts must not be negative"),
        ("mlt", [[1, -1]] * 3, "Counts must not be negative"),
    ],
)
def test_statistics_of_a_damaged_file_merge_nothing(criterion, values, message):
    groups = np.arange(3)
    with pytest.raises(BagwiseError, match=message):
        merge_allowed(pooled(GroupStatistics(criterion, values, 3), groups, groups, np.ones(3)), NONE)
