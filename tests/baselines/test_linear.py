import itertools
import math
import pickle
from statistics import NormalDist

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sklearn.base import clone

from bagwise import BagwiseError
from bagwise.baselines import ConfidenceWeightedClassifier
from bagwise.baselines._kernels import step_size


def slow_weights(X, signs, eta, variance, intercept):
    """The updates as they are defined, in plain Python; also the means after each sample."""
    phi = NormalDist().inv_cdf(eta)
    rows = [[*map(float, row), 1.0 if intercept else 0.0] for row in X]
    mu, sigma, path = [0.0] * len(rows[0]), [variance] * len(rows[0]), []
    for x, s in zip(rows, signs, strict=True):
        M = s * math.fsum(m * v for m, v in zip(mu, x, strict=True))
        V = math.fsum(c * v * v for c, v in zip(sigma, x, strict=True))
        if V > 0:
            b = 1 + 2 * phi * M
            alpha = max(0.0, (-b + math.sqrt(b * b - 8 * phi * (M - phi * V))) / (4 * phi * V))
            mu = [m + alpha * s * c * v for m, c, v in zip(mu, sigma, x, strict=True)]
            sigma = [1 / (1 / c + 2 * alpha * phi * v * v) for c, v in zip(sigma, x, strict=True)]
        path.append(mu)
    return np.array(mu), np.array(sigma), np.array(path)


def texts(seed=0, n=60, d=25, n_classes=3):
    """Counts as texts have them: a few words of each class, many zeros."""
    random = np.random.default_rng(seed)
    y = random.integers(n_classes, size=n)
    rates = random.gamma(0.2, size=(n_classes, d))
    return random.poisson(rates[y]).astype(float), y


@st.composite
def problems(draw):
    n, d = draw(st.integers(2, 12)), draw(st.integers(1, 6))
    X = draw(npst.arrays(np.float64, (n, d), elements=st.sampled_from([0.0, 0.0, 1.0, -2.0, 0.5, 7.0])))
    y = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: len(set(y)) > 1)))
    return X, y


@given(
    problem=problems(),
    eta=st.sampled_from([0.6, 0.9, 0.99]),
    variance=st.sampled_from([0.1, 1.0, 20.0]),
    intercept=st.booleans(),
    average=st.booleans(),
)
def test_equals_the_updates_written_out(problem, eta, variance, intercept, average):
    X, y = problem
    mu, sigma, path = slow_weights(X, 2 * y - 1, eta, variance, intercept)
    how = {"initial_variance": variance, "fit_intercept": intercept, "average": average}
    learned = ConfidenceWeightedClassifier(eta, max_iter=1, shuffle=False, **how).fit(X, y)
    expected = path.mean(axis=0) if average else mu
    near = {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(learned.coef_[0], expected[:-1], **near)
    np.testing.assert_allclose(learned.intercept_[0], expected[-1], **near)
    np.testing.assert_allclose(learned.variance_[0], sigma[:-1], **near)


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.floats(0.01, 4))
def test_a_step_makes_the_sample_just_right(margin, variance, phi):
    """After the step the new margin is phi times the new variance, or the sample was right before."""
    alpha = step_size(margin, variance, phi)
    if margin >= phi * variance:
        assert alpha == 0
        return
    assert alpha > 0
    new_margin = margin + alpha * variance
    new_variance = variance / (1 + 2 * alpha * phi * variance)
    assert new_margin == pytest.approx(phi * new_variance, rel=1e-6, abs=1e-9 * (1 + abs(margin)))


@given(problem=problems(), average=st.booleans(), dtype=st.sampled_from("fd"))
@settings(max_examples=40)
def test_sparse_equals_dense(problem, average, dtype):
    X, y = problem
    X = X.astype(dtype)
    classifier = ConfidenceWeightedClassifier(average=average, random_state=3)
    dense = clone(classifier).fit(X, y)
    for form in (sp.csr_matrix, sp.csr_array, sp.csc_array):
        sparse = clone(classifier).fit(form(X), y)
        np.testing.assert_array_equal(sparse.coef_, dense.coef_)
        np.testing.assert_array_equal(sparse.variance_, dense.variance_)
        np.testing.assert_allclose(sparse.decision_function(form(X)), dense.decision_function(X), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(clone(classifier).fit(np.asfortranarray(X), y).coef_, dense.coef_)


def test_stored_twice_is_stored_once():
    X, y = texts()
    once = sp.csr_array(X)
    halves = sp.csr_array((np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr), shape=X.shape)
    classifier = ConfidenceWeightedClassifier(random_state=0)
    np.testing.assert_array_equal(clone(classifier).fit(halves, y).coef_, clone(classifier).fit(X, y).coef_)
    assert halves.nnz == 2 * once.nnz  # the caller's matrix is left alone


@given(cuts=st.lists(st.integers(1, 59), max_size=4), n_classes=st.integers(2, 4), average=st.booleans())
@settings(max_examples=20)
def test_any_cut_of_a_stream_is_one_pass(cuts, n_classes, average):
    X, y = texts(n_classes=n_classes)
    whole = ConfidenceWeightedClassifier(max_iter=1, shuffle=False, average=average).fit(X, y)
    parts = ConfidenceWeightedClassifier(average=average)
    edges = [0, *sorted(set(cuts)), len(X)]
    for start, stop in itertools.pairwise(edges):
        parts.partial_fit(sp.csr_array(X[start:stop]), y[start:stop], classes=range(n_classes))
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    np.testing.assert_array_equal(parts.intercept_, whole.intercept_)
    np.testing.assert_array_equal(parts.variance_, whole.variance_)
    assert parts.n_updates_ == whole.n_updates_


def test_two_classes_are_one_against_the_rest():
    """A class against the rest, and the rest against it: weights of opposite sign and the same variances."""
    X, y = texts(n_classes=3)
    of_three = ConfidenceWeightedClassifier(random_state=1).fit(X, y)
    assert of_three.coef_.shape == (3, X.shape[1])
    for c in range(3):
        of_two = ConfidenceWeightedClassifier(random_state=1).fit(X, y == c)
        np.testing.assert_array_equal(of_two.coef_[0], of_three.coef_[c])
        np.testing.assert_array_equal(of_two.variance_[0], of_three.variance_[c])
        other_way = ConfidenceWeightedClassifier(random_state=1).fit(X, y != c)
        np.testing.assert_array_equal(other_way.coef_, -of_two.coef_)
        np.testing.assert_array_equal(other_way.variance_, of_two.variance_)
        np.testing.assert_allclose(of_two.decision_function(X), of_three.decision_function(X)[:, c], rtol=1e-12)
    np.testing.assert_array_equal(of_three.predict(X), of_three.decision_function(X).argmax(axis=1))


def test_seeds_threads_and_copies():
    X, y = texts(n_classes=4)
    first = ConfidenceWeightedClassifier(random_state=5).fit(X, y)
    for same in (
        ConfidenceWeightedClassifier(random_state=5).fit(X, y),
        ConfidenceWeightedClassifier(random_state=5, n_jobs=2).fit(X, y),
        pickle.loads(pickle.dumps(first)),
    ):
        assert same.coef_.tobytes() == first.coef_.tobytes()
        assert same.variance_.tobytes() == first.variance_.tobytes()
    assert ConfidenceWeightedClassifier(random_state=6).fit(X, y).coef_.tobytes() != first.coef_.tobytes()
    named = ConfidenceWeightedClassifier(random_state=5).fit(X, np.array(["ant", "bee", "cat", "dog"])[y])
    np.testing.assert_array_equal(named.coef_, first.coef_)
    assert set(named.predict(X)) <= {"ant", "bee", "cat", "dog"}


def test_scaling_the_data_is_scaling_the_variance():
    X, y = texts(n_classes=2)
    how = {"random_state": 0, "fit_intercept": False}
    plain = ConfidenceWeightedClassifier(initial_variance=9.0, **how).fit(X, y)
    scaled = ConfidenceWeightedClassifier(**how).fit(3 * X, y)
    np.testing.assert_allclose(scaled.decision_function(3 * X), plain.decision_function(X), rtol=1e-8)


def test_variances_only_fall_and_unseen_words_keep_theirs():
    X, y = texts(n_classes=2)
    X[:, 4] = 0
    classifier = ConfidenceWeightedClassifier(initial_variance=2.0)
    before = np.full(X.shape[1], 2.0)
    for start in range(0, 60, 12):
        after = classifier.partial_fit(X[start : start + 12], y[start : start + 12], classes=[0, 1]).variance_[0]
        assert (after <= before).all()
        before = after
    assert after[4] == 2.0
    assert classifier.coef_[0, 4] == 0
    assert after.min() < 2.0


def test_learns_what_can_be_told_apart():
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 10))
    y = (X @ random.normal(size=10) > 0).astype(int)
    assert ConfidenceWeightedClassifier(max_iter=10, random_state=0).fit(X, y).score(X, y) > 0.95


def test_empty_samples_say_nothing():
    X, y = texts(n_classes=2)
    with_empty = np.vstack([np.zeros((2, X.shape[1])), X])
    how = {"max_iter": 1, "shuffle": False, "fit_intercept": False}
    learned = ConfidenceWeightedClassifier(**how).fit(with_empty, [0, 1, *y])
    np.testing.assert_array_equal(learned.coef_, ConfidenceWeightedClassifier(**how).fit(X, y).coef_)


def test_labels_it_cannot_use():
    X, y = texts(n_classes=2)
    with pytest.raises(BagwiseError, match="one class, cat"):
        ConfidenceWeightedClassifier().fit(X, np.full(len(X), "cat"))
    with pytest.raises(ValueError, match="Unknown label type"):
        ConfidenceWeightedClassifier().fit(X, X[:, 0] + 0.1234)
    with pytest.raises(BagwiseError, match="first call of partial_fit needs classes"):
        ConfidenceWeightedClassifier().partial_fit(X, y)
    with pytest.raises(BagwiseError, match="has one class"):
        ConfidenceWeightedClassifier().partial_fit(X, y, classes=[1])
    with pytest.raises(BagwiseError, match=r"not among classes=\[0, 2\]: \[1\]"):
        ConfidenceWeightedClassifier().partial_fit(X, y, classes=[0, 2])
    started = ConfidenceWeightedClassifier().partial_fit(X, y, classes=[0, 1])
    with pytest.raises(BagwiseError, match="differ from those of the first call"):
        started.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(BagwiseError, match="cannot be changed"):
        started.set_params(average=True).partial_fit(X, y)


@pytest.mark.parametrize("wrong", [{"confidence": 0.5}, {"confidence": 1.0}, {"initial_variance": 0}, {"max_iter": 0}])
def test_parameters_it_cannot_use(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ConfidenceWeightedClassifier(**wrong).fit(*texts())


def test_numbers_too_large_are_reported_and_leave_nothing():
    X, y = texts(n_classes=2)
    classifier = ConfidenceWeightedClassifier().fit(X, y)
    with pytest.raises(BagwiseError, match="Scale X"):
        classifier.fit(X * 1e200, y)
    assert not hasattr(classifier, "coef_")
    before = classifier.fit(X, y).coef_.copy()
    with pytest.raises(BagwiseError, match="Scale X"):
        classifier.partial_fit(X * 1e200, y)
    np.testing.assert_array_equal(classifier.coef_, before)  # refused before anything was learned of it


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_weights_scale_the_steps(form):
    """Against the update written out."""
    X, y = texts(n=30, n_classes=2)
    weights = np.random.default_rng(2).uniform(0.2, 1, 30)
    weights[7] = 1.0
    how = {"max_iter": 1, "shuffle": False, "fit_intercept": False}
    classifier = ConfidenceWeightedClassifier(0.9, **how).fit(form(X), y, sample_weight=weights)
    phi, mean, variance = NormalDist().inv_cdf(0.9), np.zeros(X.shape[1]), np.ones(X.shape[1])
    for x, label, weight in zip(X, np.where(y == classifier.classes_[1], 1.0, -1.0), weights, strict=True):
        M, V = label * mean @ x, variance @ x**2
        if phi * V > M:
            b = 1 + 2 * phi * M
            a = weight * (np.sqrt(b**2 - 8 * phi * (M - phi * V)) - b) / (4 * phi * V)
            mean = mean + a * label * variance * x
            variance = 1 / (1 / variance + 2 * a * phi * x**2)
    np.testing.assert_allclose(classifier.coef_[0], mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(classifier.variance_[0], variance, rtol=1e-9)
    np.testing.assert_array_equal(
        ConfidenceWeightedClassifier(0.9, **how).fit(form(X), y, 4 * weights).coef_, classifier.coef_
    )
    kept = weights > 0.5
    without = ConfidenceWeightedClassifier(random_state=0).fit(form(X), y, sample_weight=np.where(kept, 1.0, 0.0))
    dropped = ConfidenceWeightedClassifier(random_state=0).fit(form(X[kept]), y[kept])
    np.testing.assert_array_equal(without.coef_, dropped.coef_)
    streamed = ConfidenceWeightedClassifier(**how)
    for rows in (slice(0, 11), slice(11, 30)):
        streamed.partial_fit(form(X[rows]), y[rows], classes=np.unique(y), sample_weight=weights[rows])
    np.testing.assert_array_equal(streamed.coef_, classifier.coef_)
    with pytest.raises(BagwiseError, match="from 0 to 1, got 2"):
        streamed.partial_fit(X, y, sample_weight=2 * weights)
    with pytest.raises(ValueError, match=r"0 for all samples|non-zero"):
        ConfidenceWeightedClassifier().fit(X, y, np.zeros(30))
