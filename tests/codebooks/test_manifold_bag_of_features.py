import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError

from bagwise import Bags, BagwiseError, ManifoldBagOfFeatures
from bagwise.codebooks.manifold.learning import METRICS, SoftHistograms
from bagwise.metrics import purity


def moons(seed=0, n=60, length=30):
    """Objects whose means lie on two interleaved half circles."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, np.pi, n)
    upper = np.arange(n) % 2 == 0
    x = np.where(upper, np.cos(angles), 1 - np.cos(angles))
    y = np.where(upper, np.sin(angles), 0.3 - np.sin(angles))
    centres = np.stack([x, y], axis=1)[:, np.newaxis]
    return list(centres + 0.1 * rng.normal(size=(n, length, 2))), upper.astype(int)


@pytest.fixture(scope="module")
def fitted():
    bags, y = moons()
    model = ManifoldBagOfFeatures(
        16, n_components=2, n_neighbors=5, sigma_histogram="auto", learning_rate=0.03, random_state=0
    )
    return bags, y, model.fit(bags)


def test_the_objective_falls(fitted):
    _, _, model = fitted
    assert len(model.objective_) == 41
    assert model.n_iter_ == 40
    assert model.objective_[-1] < model.objective_[0]
    assert len(model.held_out_objective_) == 0


def test_histograms_are_soft_histograms_in_scaled_units(fitted):
    bags, _, model = fitted
    T = model.transform(bags)
    whole = Bags.from_list(bags)
    soft = SoftHistograms(np.asarray(whole.values, dtype=np.float64) * model.scale_, whole.offsets, model.bandwidth)
    np.testing.assert_allclose(T, soft.histograms(model.codebook_ * model.scale_), atol=1e-6)
    np.testing.assert_allclose(T.sum(axis=1), 1)
    words = model.initial_codebook_ * model.scale_
    distances = np.linalg.norm(words[:, np.newaxis] - words, axis=2)
    assert np.median(distances[np.triu_indices(16, k=1)]) == pytest.approx(1, rel=1e-5)


def test_one_by_one_or_together(fitted):
    bags, _, model = fitted
    T = model.transform(bags)
    np.testing.assert_allclose(np.concatenate([model.transform([bag]) for bag in bags]), T, atol=1e-6)
    np.testing.assert_allclose(model.transform(Bags.from_list(bags)), T, atol=1e-5)  # held in single precision


def test_clusters_of_moons_get_better():
    """What it is for: k-means finds the two half circles better in the learned histograms, on average over seeds."""
    gains = []
    for seed in range(4):
        bags, y = moons(seed)
        model = ManifoldBagOfFeatures(
            16, n_components=2, n_neighbors=5, sigma_histogram=0.5, sigma_spectral=0.05, learning_rate=0.05,
            max_iter=40, random_state=seed,
        ).fit(bags)  # fmt: skip
        learned = model.transform(bags)
        start = clone(model).set_params(max_iter=0).fit(bags).transform(bags)
        scores = [purity(y, KMeans(2, n_init=10, random_state=0).fit(T).labels_) for T in (start, learned)]
        gains.append(scores[1] - scores[0])
    assert np.mean(gains) > 0.02


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_threads():
    bags, _ = moons(n=20)
    models = [ManifoldBagOfFeatures(8, n_components=2, random_state=3, n_jobs=n).fit(bags).codebook_ for n in (1, 1, 2)]
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[0], models[2])


def test_models_can_be_sent_and_cloned(fitted):
    bags, _, model = fitted
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(bags), model.transform(bags))
    assert clone(model).get_params() == model.get_params()
    assert model.get_feature_names_out()[:2].tolist() == ["word0", "word1"]
    with pytest.raises(NotFittedError):
        clone(model).transform(bags)


@pytest.mark.parametrize("target", ["cosine", "spectral", "isomap"])
@pytest.mark.parametrize("source", ["fisher", "words"])
def test_targets(target, source):
    bags, _ = moons(n=30)
    model = ManifoldBagOfFeatures(8, n_components=2, target=target, target_from=source, random_state=0).fit(bags)
    assert model.embedding_.shape == (30, 2)
    assert model.objective_[-1] < model.objective_[0]


@pytest.mark.parametrize("metric", ["chi2", "hellinger"])
def test_the_target_can_be_computed_again(metric):
    """Until the first time it is as without; then it is the target of the histograms of that moment."""
    bags, _ = moons(n=30)
    once, often = (
        ManifoldBagOfFeatures(8, n_components=2, metric=metric, retarget_every=n, max_iter=6, random_state=0).fit(bags)
        for n in (None, 4)
    )
    np.testing.assert_array_equal(often.objective_[:4], once.objective_[:4])
    assert often.objective_[4] != once.objective_[4]
    assert not np.array_equal(often.codebook_, once.codebook_)


def test_a_given_target_cannot_be_computed_again():
    with pytest.raises(BagwiseError, match=r"retarget_every=2, but target is an array.*or a target that is learned"):
        ManifoldBagOfFeatures(2, n_components=1, target=np.eye(3), retarget_every=2).fit([np.eye(2)] * 3)


def test_words_can_begin_as_random_features():
    bags, _ = moons(n=30)
    model = ManifoldBagOfFeatures(8, n_components=2, init="random", random_state=0).fit(bags)
    features = np.concatenate(bags).astype(model.initial_codebook_.dtype)
    assert all((features == word).all(axis=1).any() for word in model.initial_codebook_)
    assert len(np.unique(model.initial_codebook_, axis=0)) == 8
    assert model.objective_[-1] < model.objective_[0]
    few = ManifoldBagOfFeatures(9, n_components=2, init="random", n_neighbors=2, random_state=0).fit(
        [bag[:2] for bag in bags[:3]]
    )
    assert few.codebook_.shape == (9, 2)  # more words than features


def test_a_target_of_ones_own():
    bags, y = moons(n=30)
    target = (y[:, np.newaxis] == y).astype(float)
    model = ManifoldBagOfFeatures(
        8, n_components=2, target=target, sigma_histogram="auto", learning_rate=0.05, max_iter=20, random_state=0
    ).fit(bags)
    assert model.embedding_ is None
    T0 = clone(model).set_params(max_iter=0).fit(bags).transform(bags)
    gap = [np.linalg.norm(T[y == 0].mean(axis=0) - T[y == 1].mean(axis=0)) for T in (T0, model.transform(bags))]
    assert gap[1] > gap[0]


def test_known_labels_change_the_target():
    bags, y = moons(n=30)
    model = ManifoldBagOfFeatures(8, n_components=2, random_state=0)
    some = np.where(np.arange(30) < 10, y, -1)
    without, with_some, with_none = (clone(model).fit(bags, labels) for labels in (None, some, np.full(30, -1)))
    np.testing.assert_array_equal(without.codebook_, with_none.codebook_)
    assert not np.array_equal(without.codebook_, with_some.codebook_)


def test_held_out_pairs_and_callbacks_end_learning():
    bags, _ = moons(n=30)
    model = ManifoldBagOfFeatures(8, n_components=2, max_iter=200, learning_rate=1.0, held_out=0.2, random_state=0)
    model.fit(bags)
    assert len(model.held_out_objective_) < 201
    assert model.n_iter_ == int(np.argmin(model.held_out_objective_))
    seen = []
    ManifoldBagOfFeatures(
        8, n_components=2, random_state=0, callback=lambda step, value: seen.append((step, value)) or step == 2
    ).fit(bags)
    assert [step for step, _ in seen] == [0, 1, 2]


def test_learning_on_some_objects():
    bags, _ = moons(n=40)
    model = ManifoldBagOfFeatures(8, n_components=2, max_objects=15, random_state=0).fit(bags)
    assert model.embedding_.shape == (15, 2)
    assert model.transform(bags).shape == (40, 8)


def test_long_bags_are_sampled_while_learning():
    bags, _ = moons(n=12, length=50)
    few = ManifoldBagOfFeatures(4, n_components=2, bag_sample=5, random_state=0).fit(bags)
    all_of_them = ManifoldBagOfFeatures(4, n_components=2, bag_sample=None, random_state=0).fit(bags)
    assert not np.array_equal(few.codebook_, all_of_them.codebook_)


def test_more_neighbours_than_objects_join_all():
    bags, _ = moons(n=6)
    assert ManifoldBagOfFeatures(4, n_components=2, n_neighbors=50, random_state=0).fit(bags).n_iter_ == 40


def test_graphs_in_parts_and_equal_words_and_constant_features():
    rng = np.random.default_rng(0)
    bags = [np.column_stack([rng.normal(centre, 0.1, 9), np.ones(9)]) for centre in (0, 0, 0, 50, 50, 50)]
    model = ManifoldBagOfFeatures(4, n_components=2, n_neighbors=2, random_state=0).fit(bags)
    assert np.isfinite(model.codebook_).all()


def test_empty_bags_of_new_objects_give_zeros(fitted):
    bags, _, model = fitted
    T = model.transform(Bags.from_list([bags[0], np.empty((0, 2)), bags[1]]))
    assert T[1].tolist() == [0] * 16
    np.testing.assert_allclose(T[[0, 2]], model.transform(bags[:2]), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bags": [np.ones((3, 2)), np.empty((0, 2))]}, r"1 of 2 bags have no features, the first is bag 1"),
        ({"bags": [np.ones((3, 2))]}, "at least 2; got n_samples=1"),
        ({"n_components": 60}, "60 bags can be embedded in at most 59"),
        ({"memory_limit": 1000}, "set max_objects"),
        ({"target": np.eye(3)}, r"shape \(60, 60\); got \(3, 3\)"),
        ({"y": [0, 1]}, "one whole number for each of the 60 bags"),
        ({"y": ["a"] * 60}, "one whole number for each of the 60 bags"),
        ({"n_words": 0}, "n_words"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"target": "umap"}, "target"),
        ({"bags": [np.ones((3, 2)), np.full((3, 2), np.nan)]}, "row 3, column 0 is nan"),
    ],
)
def test_bad_input(change, message):
    bags, _ = moons()
    options = dict(change)
    bags, y = options.pop("bags", bags), options.pop("y", None)
    with pytest.raises(ValueError, match=message):
        ManifoldBagOfFeatures(**({"n_words": 8, "n_components": 2} | options)).fit(bags, y)


def test_other_widths_are_refused(fitted):
    _, _, model = fitted
    with pytest.raises(BagwiseError, match="3 features"):
        model.transform([np.ones((4, 3))])


@pytest.mark.parametrize("metric", METRICS)
def test_sigma_is_the_median_of_distances_above_zero(metric):
    rng = np.random.default_rng(0)
    bags = [np.array([[0.0, 1], [1, 0], [2, 2]])] * 5
    model = ManifoldBagOfFeatures(2, n_components=2, metric=metric, max_iter=0, random_state=0)
    assert model.fit(bags).sigma_histogram_ == 1
    bags += [rng.normal(size=(4, 2)) for _ in range(3)]
    model.fit(bags)
    distances = METRICS[metric](model.transform(bags))
    apart = distances[np.triu_indices(8, k=1)]
    assert model.sigma_histogram_ == pytest.approx(np.median(apart[apart > 1e-12]), rel=1e-5)


def test_offsets_of_the_features_do_not_matter():
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(c, 1, (20, 3)) for c in (0, 0, 0, 4, 4, 4)], dtype=np.float64)
    moved = Bags(bags.values + 1e5, bags.offsets, dtype=None)
    model = ManifoldBagOfFeatures(5, n_components=2, n_neighbors=2, random_state=0)
    expected = clone(model).fit(bags)
    found = clone(model).fit(moved)
    np.testing.assert_allclose(found.scale_, expected.scale_, rtol=1e-6)
    np.testing.assert_allclose(found.transform(moved), expected.transform(bags), atol=1e-6)
