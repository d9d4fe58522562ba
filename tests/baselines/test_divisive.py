import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import rel_entr
from sklearn.exceptions import NotFittedError

from bagwise import BagwiseError, merge_words
from bagwise.baselines import divisive
from bagwise.baselines.divisive import DivisiveMerger
from bagwise.criteria import InformationLoss
from helpers import labelled_counts, topic_counts


def joint_of(X, y):
    counts = np.stack([X[np.asarray(y) == c].sum(axis=0) for c in np.unique(y)], axis=1)
    return counts / counts.sum()


def information(joint):
    return float(rel_entr(joint, joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)).sum())


def grouped(joint, labels):
    return np.stack([joint[labels == group].sum(axis=0) for group in range(labels.max() + 1)])


def lost(X, y, labels):
    joint = joint_of(X, y)
    return information(joint) - information(grouped(joint, labels))


def divergences(joint, groups):
    """All KL(p(·|w) || p(·|W)), word by word."""
    p = joint / joint.sum(axis=1, keepdims=True)
    q = groups / groups.sum(axis=1, keepdims=True)
    return np.array([[rel_entr(word, group).sum() for group in q] for word in p])


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    X, _ = topic_counts(rng, 60, 80)
    return X, rng.integers(0, 5, 60) + 5 * (X[:, :3].sum(axis=1) > 2)


@pytest.mark.parametrize("start", ["class", "aib"])
@pytest.mark.parametrize("n", [1, 2, 5, 12, 40])
def test_objective_is_the_information_lost_and_never_grows(data, start, n):
    X, y = data
    merger = DivisiveMerger(n, start=start, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(merger.objective_[-1], lost(X, y, merger.labels_), atol=1e-12)
    assert (np.diff(merger.objective_) <= 0).all()
    assert len(merger.objective_) == merger.n_iter_ + 1
    np.testing.assert_array_equal(np.unique(merger.labels_), np.arange(n))


@given(labelled_counts(), st.integers(1, 10), st.sampled_from(["class", "aib"]), st.sampled_from([0.0, 0.5]))
def test_any_data(data, n, start, smoothing):
    X, y = data
    X = np.abs(X)
    assume(X.any())
    merger = DivisiveMerger(n, start=start, smoothing=smoothing, tol=1e-9).fit(X, y)
    n_groups, labels = min(n, X.shape[1]), merger.labels_
    np.testing.assert_array_equal(np.unique(labels), np.arange(n_groups))
    first = [int(np.argmax(labels == group)) for group in range(n_groups)]
    assert first == sorted(first)
    np.testing.assert_allclose(merger.objective_[-1], lost(X, y, labels), atol=1e-12)
    if smoothing == 0:
        assert (np.diff(merger.objective_) <= 0).all()
    np.testing.assert_allclose(merger.transform(X).sum(axis=1), X.sum(axis=1))


@pytest.mark.parametrize("n", [2, 4, 9])
def test_every_word_is_in_the_nearest_group(n):
    rng = np.random.default_rng(n)
    X, y = rng.gamma(0.5, size=(40, 60)), np.arange(40) % 6
    merger = DivisiveMerger(n, tol=1e-9).fit(X, y)
    assert merger.n_iter_ < 100
    joint = joint_of(X, y)
    to_groups = divergences(joint, grouped(joint, merger.labels_))
    np.testing.assert_allclose(to_groups[np.arange(60), merger.labels_], to_groups.min(axis=1), atol=1e-9)


def test_divergences_are_infinite_where_a_class_is_lacking():
    rng = np.random.default_rng(0)
    joint = rng.random((30, 6)) * (rng.random((30, 6)) < 0.4)
    joint[:, 0] += joint.sum(axis=1) == 0
    groups = grouped(joint, np.arange(30) // 5)
    groups[0, 1:3] = 0
    expected = divergences(joint, groups)
    assert np.isinf(expected).any()
    nearest, values = divisive._nearest(joint / joint.sum(axis=1, keepdims=True), groups, 0.0)
    np.testing.assert_array_equal(nearest, expected.argmin(axis=1))
    np.testing.assert_allclose(values, expected.min(axis=1), atol=1e-12)


def test_blocks_change_nothing(data, monkeypatch):
    X, y = data
    whole = DivisiveMerger(7).fit(X, y)
    monkeypatch.setattr(divisive, "_BLOCK", 30)
    np.testing.assert_array_equal(DivisiveMerger(7).fit(X, y).labels_, whole.labels_)


@pytest.mark.parametrize("n", [2, 6, 15, 70])
def test_from_aib_it_ends_no_worse_than_aib(data, n):
    X, y = data
    cut = merge_words(X, y, criterion=InformationLoss(smoothing=0)).cut(n)
    merger = DivisiveMerger(n, start="aib", tol=1e-9).fit(X, y)
    assert merger.objective_[0] <= lost(X, y, cut) + 1e-12
    assert merger.objective_[-1] <= lost(X, y, cut) + 1e-12


def test_start_is_the_most_frequent_class():
    rng = np.random.default_rng(1)
    X, y = rng.random((30, 20)), np.arange(30) % 3
    classes = joint_of(X, y).argmax(axis=1)
    start = DivisiveMerger(3, max_iter=1).fit(X, y).objective_[0]
    np.testing.assert_allclose(start, lost(X, y, classes), atol=1e-12)


def test_splitting_halves_the_largest():
    labels = divisive._split(np.array([0, 1, 0, 0, 0, 1, 0]), 4)
    np.testing.assert_array_equal(labels, [0, 1, 0, 3, 2, 1, 2])
    assert len(np.unique(divisive._split(np.zeros(9, dtype=np.int64), 9))) == 9


def test_merging_takes_the_cheapest_pair():
    rng = np.random.default_rng(3)
    joint = rng.random((6, 6))
    joint /= joint.sum()
    labels = divisive._merge(joint, np.arange(6), 5)
    left = [
        information(np.vstack([np.delete(joint, [s, t], axis=0), joint[s] + joint[t]]))
        for s in range(6)
        for t in range(s + 1, 6)
    ]
    np.testing.assert_allclose(information(grouped(joint, labels)), max(left), rtol=1e-12)


def test_reseeding_takes_what_loses_most_from_groups_that_can_spare_it():
    labels = np.array([1, 1, 2, 1])
    divisive._reseed(labels, np.array([0.1, 0.3, 0.9, 0.2]), 4)  # the third word loses most, but is alone
    np.testing.assert_array_equal(labels, [1, 0, 2, 3])


@pytest.mark.parametrize("start", ["class", "aib"])
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_proportional_words_end_together(start, smoothing):
    shapes = np.array([[6.0, 2.0, 1.0], [1.0, 2.0, 6.0]])
    scales = np.array([1.0, 3.0, 7.0, 0.1, 11.0, 0.3])
    kinds = np.array([0, 1, 0, 1, 1, 0])
    X = (shapes[kinds] * scales[:, np.newaxis]).T
    merger = DivisiveMerger(2, start=start, smoothing=smoothing).fit(X, [0, 1, 2])
    np.testing.assert_array_equal(merger.labels_, kinds)
    np.testing.assert_allclose(merger.objective_[-1], 0, atol=1e-14)


@pytest.mark.parametrize("start", ["class", "aib"])
@pytest.mark.parametrize("n", [1, 2, 4, 8, 10, 11, 12, 13, 20])
def test_words_that_never_occur(start, n):
    rng = np.random.default_rng(4)
    X, y = rng.integers(1, 9, (20, 13)).astype(float), np.arange(20) % 3
    X[:, [0, 5, 12]] = 0
    merger = DivisiveMerger(n, start=start).fit(X, y)
    np.testing.assert_array_equal(np.unique(merger.labels_), np.arange(min(n, 13)))
    assert np.isfinite(merger.objective_).all()
    occurring = DivisiveMerger(n, start=start).fit(np.delete(X, [0, 5, 12], axis=1), y)
    np.testing.assert_allclose(merger.objective_[-1], occurring.objective_[-1], atol=1e-12)


def test_no_more_words_than_groups(data):
    X, y = data
    for n in (80, 81, 1000):
        merger = DivisiveMerger(n).fit(X, y)
        np.testing.assert_array_equal(merger.labels_, np.arange(80))
        np.testing.assert_array_equal(merger.transform(X), X)
        assert merger.objective_[-1] == 0


def test_smoothing_fades(data):
    X, y = data
    merger = DivisiveMerger(6, smoothing=1.0, tol=1e-9).fit(X, y)
    assert merger.n_iter_ > 1
    np.testing.assert_allclose(merger.objective_[-1], lost(X, y, merger.labels_), atol=1e-12)
    # what is left of it in the end is worth next to nothing: words are where they would be without it
    plain = divisive._nearest(*_state(X, y, merger), 0.0)[1]
    p = joint_of(X, y).sum(axis=1)
    np.testing.assert_allclose((p[p > 0] * plain).sum(), merger.objective_[-1], rtol=0.05)


def _state(X, y, merger):
    joint = joint_of(X, y)
    occurs = joint.sum(axis=1) > 0
    return joint[occurs] / joint[occurs].sum(axis=1, keepdims=True), grouped(joint, merger.labels_)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_matrix])
def test_sparse_is_dense(data, form):
    X, y = data
    dense, sparse = DivisiveMerger(9).fit(X, y), DivisiveMerger(9).fit(form(X), y)
    np.testing.assert_array_equal(dense.labels_, sparse.labels_)
    np.testing.assert_allclose(dense.objective_, sparse.objective_)
    np.testing.assert_allclose(dense.word_totals_, sparse.word_totals_)
    Z = sparse.transform(form(X))
    assert Z.format == "csr"
    np.testing.assert_allclose(Z.toarray(), dense.transform(X))
    np.testing.assert_allclose(sparse.inverse_transform(Z).toarray(), dense.inverse_transform(dense.transform(X)))


@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrt"])
def test_transforming_back_and_again(data, pooling):
    X, y = data
    merger = DivisiveMerger(7, pooling=pooling).fit(X, y)
    Z = merger.transform(X)
    np.testing.assert_allclose(merger.transform(merger.inverse_transform(Z)), Z)
    assert merger.transform(X.astype(np.float32)).dtype == np.float32
    with pytest.raises(BagwiseError, match="expected one per group: 7"):
        merger.inverse_transform(Z[:, 1:])


def test_scale_and_names_of_classes_do_not_matter(data):
    X, y = data
    merger = DivisiveMerger(7).fit(X, y)
    np.testing.assert_array_equal(DivisiveMerger(7).fit(X * 2.0**-40, y).labels_, merger.labels_)
    np.testing.assert_array_equal(DivisiveMerger(7).fit(X, [f"class {c:02}" for c in y]).labels_, merger.labels_)


def test_groups_are_named_after_their_heaviest_words(data):
    X, y = data
    words = [f"w{i}" for i in range(80)]
    frame = pd.DataFrame(X, columns=words)
    merger = DivisiveMerger(6, start="aib").fit(frame, y)
    own = merger.get_feature_names_out()
    np.testing.assert_array_equal(own, merger.get_feature_names_out(words))
    assert len(own) == 6
    for group, name in enumerate(own):
        members = np.flatnonzero(merger.labels_ == group)
        heaviest = members[np.argsort(-X[:, members].sum(axis=0), kind="stable")]
        assert name.startswith("+".join(words[word] for word in heaviest[:3]))
        assert name.endswith(f"…({len(members)})") == (len(members) > 3)


def test_what_it_cannot_use():
    X, y = np.arange(12.0).reshape(4, 3), [0, 0, 1, 1]
    with pytest.raises(BagwiseError, match="sample 0, word 0 is -1"):
        DivisiveMerger(2).fit(X - 1, y)
    with pytest.raises(BagwiseError, match="non-negative"):
        DivisiveMerger(2).fit(sp.csr_matrix(X - 1), y)
    with pytest.raises(BagwiseError, match="at least two classes"):
        DivisiveMerger(2).fit(X, [0, 0, 0, 0])
    with pytest.raises(BagwiseError, match="requires y"):
        DivisiveMerger(2).fit(X)
    with pytest.raises(BagwiseError, match="all of X is zero"):
        DivisiveMerger(2).fit(0 * X, y)
    with pytest.raises(BagwiseError, match="too large"):
        DivisiveMerger(2).fit(X, y, sample_weight=np.full(len(y), 1e307))
    with pytest.raises(BagwiseError, match=r"Unknown start: 'abi'. Did you mean 'aib'\?"):
        DivisiveMerger(2, start="abi").fit(X, y)
    with pytest.raises(BagwiseError, match="Unknown pooling"):
        DivisiveMerger(2, pooling="max").fit(X, y)
    with pytest.raises(ValueError, match="smoothing"):
        DivisiveMerger(2, smoothing=-1).fit(X, y)


def test_a_failed_fit_leaves_nothing_of_the_last(data):
    X, y = data
    merger = DivisiveMerger(3).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(merger)).transform(X), merger.transform(X))
    with pytest.raises(BagwiseError):
        merger.fit(-X, y)
    with pytest.raises(NotFittedError):
        merger.transform(X)


def test_a_later_n_groups_needs_a_fit(data):
    X, y = data
    merger = DivisiveMerger(3).fit(X, y).set_params(n_groups=5)
    assert merger.transform(X).shape == (60, 3)
    assert merger.fit(X, y).transform(X).shape == (60, 5)


@pytest.mark.parametrize("start", ["class", "aib"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_weights_count_samples(data, start, form):
    X, y = data
    counts = np.random.default_rng(3).integers(0, 4, len(y))
    weighted = DivisiveMerger(7, start=start).fit(form(X), y, sample_weight=counts)
    repeated = DivisiveMerger(7, start=start).fit(form(np.repeat(X, counts, axis=0)), np.repeat(y, counts))
    np.testing.assert_array_equal(weighted.labels_, repeated.labels_)
    np.testing.assert_allclose(weighted.objective_, repeated.objective_)
    np.testing.assert_allclose(weighted.word_totals_, repeated.word_totals_)
