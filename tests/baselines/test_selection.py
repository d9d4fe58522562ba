import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sklearn.feature_selection import mutual_info_classif

from bagwise.baselines.selection import MinRedundancyMaxRelevance
from bagwise.errors import BagwiseError


def slow_states(column, width):
    """Three states in exact arithmetic: comparing squares needs no root."""
    values = [Fraction(float(value)) for value in column]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    reach = Fraction(width) ** 2 * variance
    return [1 if (value - mean) ** 2 <= reach else 0 if value < mean else 2 for value in values]


def slow_information(a, b):
    n, of_a, of_b, of_both = len(a), Counter(a), Counter(b), Counter(zip(a, b, strict=True))
    return math.fsum(count / n * math.log(Fraction(n * count, of_a[s] * of_b[t])) for (s, t), count in of_both.items())


def slow_mrmr(X, y, k, scheme, width, discretize):
    features = [slow_states(column, width) if discretize else list(column) for column in X.T]
    relevance = [slow_information(feature, list(y)) for feature in features]
    left, chosen, scores = list(range(len(features))), [], []
    while left and len(chosen) < k:
        score = {}
        for f in left:
            if not chosen:
                score[f] = relevance[f]
                continue
            redundancy = math.fsum(slow_information(features[f], features[j]) for j in chosen) / len(chosen)
            score[f] = relevance[f] - redundancy if scheme == "MID" else relevance[f] / (redundancy + 1e-12)
        candidates = [f for f in left if len(set(features[f])) > 1] or left
        best = max(score[f] for f in candidates)
        winner = next(f for f in candidates if score[f] >= best - 1e-10 * max(1, abs(best)))
        chosen.append(winner)
        scores.append(score[winner])
        left.remove(winner)
    return relevance, chosen, scores


@st.composite
def problems(draw):
    """Few samples with few values: many ties, constant columns, copies and mirror images."""
    n, d = draw(st.integers(3, 12)), draw(st.integers(1, 7))
    X = draw(npst.arrays(np.float64, (n, d), elements=st.integers(-2, 3).map(float)))
    for copy in range(draw(st.integers(0, 2))):
        X = np.column_stack([X, (-1) ** copy * X[:, draw(st.integers(0, d - 1))]])
    y = np.array(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n).filter(lambda y: len(set(y)) > 1)))
    return X, y


@given(
    problem=problems(),
    k=st.integers(1, 9),
    scheme=st.sampled_from(["MID", "MIQ"]),
    width=st.sampled_from([0.0, 0.5, 1.0]),
    discretize=st.booleans(),
)
def test_equals_slow_oracle(problem, k, scheme, width, discretize):
    X, y = problem
    relevance, chosen, scores = slow_mrmr(X, y, k, scheme, width, discretize)
    selector = MinRedundancyMaxRelevance(k, scheme=scheme, width=width, discretize=discretize).fit(X, y)
    assert selector.ranking_.tolist() == chosen
    np.testing.assert_allclose(selector.relevance_, relevance, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(selector.scores_, scores, rtol=1e-10, atol=1e-10)


@given(
    problem=problems(), scheme=st.sampled_from(["MID", "MIQ"]), discretize=st.booleans(), dtype=st.sampled_from("fd")
)
def test_sparse_equals_dense(problem, scheme, discretize, dtype):
    X, y = problem
    X = X.astype(dtype)
    dense = MinRedundancyMaxRelevance(4, scheme=scheme, discretize=discretize).fit(X, y)
    for form in (sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.csc_array):
        sparse = MinRedundancyMaxRelevance(4, scheme=scheme, discretize=discretize).fit(form(X), y)
        np.testing.assert_array_equal(sparse.ranking_, dense.ranking_)
        np.testing.assert_array_equal(sparse.relevance_, dense.relevance_)
        np.testing.assert_array_equal(sparse.scores_, dense.scores_)
        np.testing.assert_array_equal(sparse.transform(form(X)).toarray(), dense.transform(X))


def random_problem(seed=0, n=120, d=20):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, d)) + rng.normal(size=(3, d))[y], y


@pytest.mark.parametrize("scheme", ["MID", "MIQ"])
def test_wide_data_sparse_equals_dense(scheme):
    X, y = random_problem(d=150)  # more columns than are copied at once
    X *= np.abs(X) > 0.8
    dense = MinRedundancyMaxRelevance(30, scheme=scheme).fit(X, y)
    sparse = MinRedundancyMaxRelevance(30, scheme=scheme).fit(sp.csr_array(X), y)
    np.testing.assert_array_equal(sparse.ranking_, dense.ranking_)
    np.testing.assert_array_equal(sparse.scores_, dense.scores_)


def test_stored_zeros_and_duplicates_mean_what_they_say():
    X, y = random_problem(n=30, d=4)
    X = np.round(X)
    canonical = sp.csc_array(X)
    data = np.column_stack(
        [canonical.data - 1, np.ones(canonical.nnz)]
    ).ravel()  # each entry in two parts, some of them zero
    odd = sp.csc_array((data, np.repeat(canonical.indices, 2), 2 * canonical.indptr), shape=X.shape)
    selector = MinRedundancyMaxRelevance(4, discretize=False).fit(odd, y)
    assert odd.nnz == 2 * canonical.nnz  # the caller's matrix is left alone
    np.testing.assert_array_equal(selector.scores_, MinRedundancyMaxRelevance(4, discretize=False).fit(X, y).scores_)


def test_relevance_equals_scikit_learn():
    X, y = random_problem()
    from_mean = (X - X.mean(axis=0)) / X.std(axis=0)
    states = 1 + (from_mean > 1) - (from_mean < -1).astype(int)
    selector = MinRedundancyMaxRelevance(5).fit(X, y)
    np.testing.assert_allclose(selector.relevance_, mutual_info_classif(states, y, discrete_features=True), atol=1e-12)
    as_they_are = MinRedundancyMaxRelevance(5, discretize=False).fit(states, y)
    np.testing.assert_array_equal(as_they_are.ranking_, selector.ranking_)


def test_fewer_features_are_a_prefix():
    X, y = random_problem()
    longest = MinRedundancyMaxRelevance(20).fit(X, y).ranking_
    for k in (1, 2, 7, 19):
        np.testing.assert_array_equal(MinRedundancyMaxRelevance(k).fit(X, y).ranking_, longest[:k])


@pytest.mark.parametrize("scale", [1e-6, 0.1, 3.7])
@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_ranking_ignores_positive_scaling_and_shift(scale, shift):
    X, y = random_problem()
    selector = MinRedundancyMaxRelevance(20).fit(X, y)
    moved = MinRedundancyMaxRelevance(20).fit(scale * (X + shift), y)
    np.testing.assert_array_equal(moved.ranking_, selector.ranking_)


@pytest.mark.parametrize("scheme", ["MID", "MIQ"])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1 / 3])
def test_constant_features_come_last(scheme, value):
    X, y = random_problem()
    constant = [0, 5, 19]
    X[:, constant] = value
    selector = MinRedundancyMaxRelevance(20, scheme=scheme).fit(X, y)
    assert selector.ranking_[-3:].tolist() == constant
    assert not selector.relevance_[constant].any()
    assert not selector.scores_[-3:].any()


def test_rounding_decides_no_state():
    """Balanced columns of two values lie on both borders, whatever the values."""
    y = np.arange(30) % 2
    X = np.column_stack([np.where(y, a, b) for a, b in [(0, 1), (0.1, 0.7), (1e-7, 0.3), (-0.3, 1e5 + 0.1)]])
    assert not MinRedundancyMaxRelevance(1).fit(X, y).relevance_.any()
    np.testing.assert_allclose(MinRedundancyMaxRelevance(1, width=0.5).fit(X, y).relevance_, np.log(2))


@pytest.mark.parametrize("scheme", ["MID", "MIQ"])
def test_all_constant(scheme):
    selector = MinRedundancyMaxRelevance(3, scheme=scheme).fit(np.ones((4, 3)), [0, 1, 0, 1])
    assert selector.ranking_.tolist() == [0, 1, 2]


def test_more_features_asked_than_there_are():
    X, y = random_problem(d=6)
    selector = MinRedundancyMaxRelevance(50).fit(X, y)
    assert sorted(selector.ranking_) == list(range(6))
    assert selector.scores_.shape == (6,)
    np.testing.assert_array_equal(selector.transform(X), X)


def test_duplicate_is_not_chosen_next():
    """Under MID a copy scores I(f;y) - H(f) <= 0; a feature independent of the first and relevant scores above."""
    first = np.repeat([0, 0, 0, 1], 8)
    other = np.tile([0, 0, 0, 1], 8)
    y = 2 * first + other
    selector = MinRedundancyMaxRelevance(3, discretize=False).fit(np.column_stack([first, first, other]), y)
    assert selector.ranking_.tolist() == [0, 2, 1]
    assert selector.scores_[1] == pytest.approx(selector.relevance_[2])


def test_transform_keeps_the_order_of_columns():
    X, y = random_problem()
    selector = MinRedundancyMaxRelevance(5).fit(X, y)
    chosen = np.sort(selector.ranking_)
    np.testing.assert_array_equal(selector.transform(X), X[:, chosen])
    np.testing.assert_array_equal(selector.get_support(indices=True), chosen)
    assert selector.get_feature_names_out().tolist() == [f"x{f}" for f in chosen]


def test_text_labels_give_the_same():
    X, y = random_problem()
    selector = MinRedundancyMaxRelevance(5).fit(X, np.array(["owl", "cat", "dog"])[y])
    np.testing.assert_array_equal(selector.ranking_, MinRedundancyMaxRelevance(5).fit(X, y).ranking_)


def test_unknown_scheme():
    with pytest.raises(BagwiseError, match=r"Unknown scheme: 'sum'\. Accepted: 'MID', 'MIQ'"):
        MinRedundancyMaxRelevance(scheme="sum").fit(*random_problem())


def test_one_class():
    with pytest.raises(BagwiseError, match=r"y has one class, cat"):
        MinRedundancyMaxRelevance().fit([[0.0], [1.0]], ["cat", "cat"])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_states_must_be_whole(form):
    with pytest.raises(BagwiseError, match=r"needs integers, but column 1 of X"):
        MinRedundancyMaxRelevance(discretize=False).fit(form([[0.0, 0.5], [1.0, 2.0]]), [0, 1])


def test_labels_must_be_classes():
    with pytest.raises(ValueError, match="Unknown label type"):
        MinRedundancyMaxRelevance().fit([[0.0], [1.0], [2.0]], [0.1, 0.2, 0.7])


def test_failed_fit_leaves_nothing():
    X, y = random_problem()
    selector = MinRedundancyMaxRelevance(5).fit(X, y)
    with pytest.raises(BagwiseError):
        selector.fit(X, np.zeros_like(y))
    assert not hasattr(selector, "ranking_")
