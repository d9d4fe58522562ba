"""`ManifoldBagOfFeatures`: scikit-learn's checks on matrices, our own for estimators that take bags, and limits."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from bagwise import Bags, BagwiseError, ManifoldBagOfFeatures
from bagwise.clustering import cluster_bags
from bagwise.codebooks.manifold.target import set_apart, typical_scale

FEW = {"n_components": 2, "n_neighbors": 3, "max_iter": 2, "n_init": 1, "random_state": 0}
ESTIMATORS = [
    ManifoldBagOfFeatures(4, **FEW),
    ManifoldBagOfFeatures(4, **FEW, target="isomap", scale=1.0, bandwidth=0.5),
    ManifoldBagOfFeatures(4, **FEW, laplacian="random_walk", held_out=0.3, bag_sample=None, max_objects=8),
]
EVERY_ESTIMATOR = pytest.mark.parametrize("estimator", ESTIMATORS, ids=["spectral", "isomap", "random_walk"])


def make_bags(seed=0, n=12, D=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, n)
    centres = np.repeat(3 * (np.arange(n) % 2), lengths)[:, np.newaxis]
    return Bags(centres + rng.normal(size=(lengths.sum(), D)), np.r_[0, np.cumsum(lengths)], dtype=dtype)


@EVERY_ESTIMATOR
def test_fitting_again_cloning_and_pickling(estimator):
    bags = make_bags()
    model = clone(estimator).fit(bags)
    expected = model.transform(bags).tobytes()
    for other in (model.fit(bags), clone(model).fit(bags), pickle.loads(pickle.dumps(model))):
        assert other.transform(bags).tobytes() == expected
    assert clone(estimator).fit_transform(bags).tobytes() == expected
    assert model.get_params() == estimator.get_params()


@EVERY_ESTIMATOR
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bags_lists_and_batches_give_the_same_bytes(estimator, dtype):
    bags = make_bags(dtype=dtype)
    before = copy.deepcopy(bags)
    expected = clone(estimator).fit(bags).transform(bags).tobytes()
    assert bags == before
    assert clone(estimator).fit(list(bags)).transform(list(bags)).tobytes() == expected
    batches = [bags[:5], bags[5:6], bags[6:]]
    assert clone(estimator).fit(iter(batches)).transform(iter(batches)).tobytes() == expected


@EVERY_ESTIMATOR
def test_histograms_do_not_depend_on_the_bags_beside_them(estimator):
    bags = make_bags()
    model = clone(estimator).fit(bags)
    T = model.transform(bags)
    order = np.random.default_rng(1).permutation(len(bags))
    np.testing.assert_allclose(model.transform(bags[order]), T[order], rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([model.transform([bag]) for bag in bags]), T, rtol=1e-12)


@EVERY_ESTIMATOR
def test_what_every_estimator_refuses(estimator):
    bags = make_bags()
    for call in (lambda model: model.transform(bags), lambda model: model.get_feature_names_out()):
        with pytest.raises(NotFittedError):
            call(clone(estimator))
    model = clone(estimator).fit(bags)
    with pytest.raises(BagwiseError, match="X has 2 features, but ManifoldBagOfFeatures is expecting 3"):
        model.transform(make_bags(D=2))
    with pytest.raises(BagwiseError, match="1 of 13 bags have no features, the first is bag 12"):
        clone(estimator).fit([*bags, np.empty((0, 3))])


def test_new_bags_without_features_and_no_bags_at_all():
    bags = make_bags()
    model = clone(ESTIMATORS[0]).fit(bags)
    for empty in ([[], []], Bags.from_list([[], []]), [np.empty((0, 3))] * 2):
        assert model.transform(empty).tolist() == [[0] * 4] * 2
    assert model.transform([]).shape == (0, 4)
    with pytest.raises(BagwiseError, match="n_samples=0"):
        clone(model).fit([])


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    bags = make_bags()
    model = clone(ESTIMATORS[0]).fit(bags)
    expected = model.transform(bags).tobytes()

    def stop(step, value):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callback=stop).fit(make_bags(seed=5, D=2))
    assert model.n_features_in_ == 3
    assert model.transform(bags).tobytes() == expected


def test_labels_may_be_whole_numbers_of_any_type():
    bags = make_bags()
    labels = np.where(np.arange(12) < 6, np.arange(12) % 2, -1)
    expected = clone(ESTIMATORS[0]).fit(bags, labels).codebook_
    for y in (labels.tolist(), labels.astype(float), labels.astype(np.int8)):
        np.testing.assert_array_equal(clone(ESTIMATORS[0]).fit(bags, y).codebook_, expected)
    for y in (labels + 0.5, np.full(12, np.nan), labels.astype(str)):
        with pytest.raises(BagwiseError, match=r"Unknown label type.*one whole number for each of the 12 bags"):
            clone(ESTIMATORS[0]).fit(bags, y)


@pytest.mark.parametrize("method", ["kmeans", "spectral"])
def test_a_single_cluster(method):
    bags = list(make_bags())
    encoder = ManifoldBagOfFeatures(4, **(FEW | {"n_components": 1}))
    labels, model = cluster_bags(bags, 1, encoder=encoder, method=method, random_state=0)
    assert labels.tolist() == [0] * 12
    assert model.predict(bags[:2]).tolist() == [0, 0]


def test_bags_that_are_all_alike_and_one_word():
    alike = [np.array([[0.0, 1], [1, 0], [2, 2]])] * 5
    model = ManifoldBagOfFeatures(2, **FEW).fit(alike)
    assert np.isfinite(model.codebook_).all()
    assert np.ptp(model.transform(alike), axis=0).max() == 0
    assert ManifoldBagOfFeatures(1, **FEW).fit(make_bags()).transform(make_bags()).tolist() == [[1.0]] * 12


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 4), st.floats(0.01, 100))
def test_the_scale_makes_two_words_one_apart(seed, k, d, size):
    words = size * np.random.default_rng(seed).normal(size=(k, d))
    scale = typical_scale(words)
    distances = [np.linalg.norm(words[i] - words[j]) for i in range(k) for j in range(i)]
    assert scale * np.median(distances or [1.0]) == pytest.approx(1)
    assert typical_scale(np.repeat(words, 2, axis=0)) == pytest.approx(scale)


def test_equal_words_are_set_apart_and_no_others():
    words = np.array([[1.0, 2], [3, 4], [1, 2], [1, 2]])
    apart = set_apart(words, np.random.RandomState(0))
    np.testing.assert_array_equal(apart[:2], words[:2])
    assert len(np.unique(apart, axis=0)) == 4
    np.testing.assert_allclose(apart, words, atol=1e-4)
    assert len(np.unique(set_apart(np.zeros((3, 2)), np.random.RandomState(0)), axis=0)) == 3


def test_equal_words_part_while_learning():
    """With equal words at the start, as k-means may give, both would stay equal without the jitter."""
    from bagwise.codebooks.manifold.learning import SoftHistograms, pair_objective

    bags = make_bags()
    soft = SoftHistograms(bags.values, bags.offsets, 0.5)
    words = np.array([[0.0, 0, 0], [3, 3, 3], [3, 3, 3]])
    target = np.eye(12)
    equal = soft.pull_back(words, pair_objective(soft.histograms(words), target, 1.0).gradient)[0]
    np.testing.assert_array_equal(equal[1], equal[2])
    words = set_apart(words, np.random.RandomState(0))
    parted = soft.pull_back(words, pair_objective(soft.histograms(words), target, 1.0).gradient)[0]
    assert not np.array_equal(parted[1], parted[2])
