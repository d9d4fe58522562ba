import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import Bags, BagwiseError
from bagwise.kernels import DiagonalKernelLearner, FisherScore
from bagwise.kernels import fisher_score as fisher_score_module

K, D = 3, 2


def vectors(n=60, seed=0, d=D):
    random = np.random.default_rng(seed)
    return random.normal(size=(n, d)) + 3 * random.integers(0, 2, size=(n, 1))


def fitted(**how):
    return FisherScore(K, random_state=0, **how).fit(vectors())


def log_likelihood(x, logits, means, variances):
    """Of one vector, from the definition of a mixture."""
    weights = np.exp(logits) / np.exp(logits).sum()
    densities = np.exp(-((x - means) ** 2) / (2 * variances)) / np.sqrt(2 * np.pi * variances)
    return np.log(weights @ densities.prod(axis=1))


def test_scores_are_the_gradient_of_the_likelihood():
    """By differences, in all parameters together; the information is the identity."""
    score = fitted(information="identity")
    mixture = score.mixture_
    sizes = [K, K + K * D]
    at = np.concatenate([np.log(mixture.weights_), mixture.means_.ravel(), mixture.covariances_.ravel()])
    X = vectors(5, seed=1)
    for x, scores in zip(X, score.transform(X), strict=True):

        def likelihood(parameters, x=x):
            logits, means, variances = np.split(parameters, sizes)
            return log_likelihood(x, logits, means.reshape(K, D), variances.reshape(K, D))

        assert likelihood(at) == pytest.approx(mixture.score_samples(x[None])[0])
        steps = 1e-5 * np.eye(len(at))
        expected = [(likelihood(at + step) - likelihood(at - step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_information_divides_by_its_root():
    plain, natural = fitted(information="identity"), fitted()
    mixture, X = plain.mixture_, vectors(7, seed=1)
    weights = mixture.weights_
    information = np.concatenate(
        [
            weights,
            (weights[:, None] / mixture.covariances_).ravel(),
            (weights[:, None] / 2 / mixture.covariances_**2).ravel(),
        ]
    )
    np.testing.assert_allclose(natural.transform(X), plain.transform(X) / np.sqrt(information), rtol=1e-9)


def test_with_the_information_scores_of_separate_components_are_uncorrelated_with_variance_one():
    """Where components do not overlap, the diagonal is all there is, in means and variances."""
    random = np.random.default_rng(0)
    X = np.concatenate([random.normal(size=(20_000, 1)), random.normal(100, 5, size=(20_000, 1))])
    scores = FisherScore(2, random_state=0, parameters=("means", "variances")).fit_transform(X)
    np.testing.assert_allclose(scores.T @ scores / len(X), np.eye(4), atol=0.1)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=0.01)


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8), block=st.sampled_from([1, 3, 7, 4096]))
@settings(max_examples=30)
def test_a_bag_is_the_sum_of_its_vectors(lengths, block):
    score, X = fitted(), vectors(sum(lengths), seed=2)
    bags = Bags(X, np.concatenate([[0], np.cumsum(lengths)]), dtype=None)
    before = fisher_score_module._BLOCK_ROWS
    fisher_score_module._BLOCK_ROWS = block
    try:
        scores = score.transform(bags)
    finally:
        fisher_score_module._BLOCK_ROWS = before
    alone = score.transform(X) if len(X) else np.zeros((0, scores.shape[1]))
    for i, (start, stop) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:], strict=True)):
        np.testing.assert_allclose(scores[i], alone[start:stop].sum(axis=0), rtol=1e-9, atol=1e-9)


def test_single_vectors_are_bags_of_one():
    X = vectors()
    bags = Bags(X, np.arange(len(X) + 1), dtype=None)
    of_bags = FisherScore(K, random_state=0).fit(bags)
    np.testing.assert_array_equal(of_bags.transform(bags), fitted().transform(X))
    assert of_bags.n_features_in_ == D


@pytest.mark.parametrize("parameters", [("weights",), ("means",), ("variances", "weights"), ("means", "variances")])
def test_some_parameters_are_some_columns(parameters):
    X = vectors()
    everything = fitted().transform(X)
    columns = {"weights": slice(0, K), "means": slice(K, K + K * D), "variances": slice(K + K * D, None)}
    ordered = [name for name in columns if name in parameters]
    score = fitted(parameters=parameters)
    expected = np.hstack([everything[:, columns[name]] for name in ordered])
    np.testing.assert_array_equal(score.transform(X), expected)
    assert len(score.get_feature_names_out()) == expected.shape[1]


def test_a_mixture_may_be_given():
    X = vectors()
    mixture = GaussianMixture(K, covariance_type="diag", random_state=0).fit(X)
    given_one = FisherScore(mixture=mixture).fit(X[:2])
    assert given_one.mixture_ is mixture
    np.testing.assert_allclose(given_one.transform(X), fitted().transform(X))


def test_the_mixture_is_fitted_to_so_many_vectors(monkeypatch):
    seen = []
    monkeypatch.setattr(
        GaussianMixture, "fit", lambda self, X, fit=GaussianMixture.fit: seen.append(len(X)) or fit(self, X)
    )
    FisherScore(2, max_vectors=20, random_state=0).fit(vectors())
    FisherScore(2, max_vectors=None, random_state=0).fit(vectors())
    assert seen == [20, 60]


def test_same_seed_same_bytes_and_what_was_fitted_stays():
    X = vectors()
    score = FisherScore(K, max_vectors=40, random_state=3).fit(X)
    assert clone(score).fit(X).transform(X).tobytes() == score.transform(X).tobytes()
    assert pickle.loads(pickle.dumps(score)).transform(X).tobytes() == score.transform(X).tobytes()
    before = score.transform(X)
    np.testing.assert_array_equal(score.set_params(parameters=("means",), information="identity").transform(X), before)


def test_a_kernel_is_learned_on_scores_of_bags():
    random = np.random.default_rng(0)
    y = np.arange(40) % 2
    bags = Bags.from_list([random.normal([0, 2 * label], 1, size=(random.integers(3, 9), 2)) for label in y])
    pipeline = make_pipeline(FisherScore(2, random_state=0), StandardScaler(), DiagonalKernelLearner())
    Z = pipeline.fit_transform(bags, y)
    agreement = (Z @ Z.T) * (2.0 * (y[:, None] == y) - 1)
    np.fill_diagonal(agreement, 0)
    assert agreement.sum() > 0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"parameters": ("mean",)}, "Did you mean 'means'"),
        ({"parameters": ("means", "means")}, "each once"),
        ({"parameters": ()}, "one or more"),
        ({"information": "full"}, "Unknown information: 'full'"),
        ({"n_components": 61}, "there are 60"),
        ({"mixture": GaussianMixture(2, covariance_type="diag")}, "not fitted"),
        ({"mixture": GaussianMixture(2)}, "covariance_type='full'"),
        ({"mixture": GaussianMixture(1, covariance_type="diag").fit(vectors(d=3))}, "vectors of 3 features"),
    ],
)
def test_what_it_cannot_use(parameters, message):
    with pytest.raises(BagwiseError, match=message):
        FisherScore(**parameters).fit(vectors())


def test_the_best_of_several_starts_is_kept():
    X = vectors()
    bounds = [FisherScore(4, n_init=n, random_state=0).fit(X).mixture_.lower_bound_ for n in (1, 8)]
    assert bounds[0] < bounds[1]


def test_no_bags_have_no_scores():
    assert fitted().transform(Bags.from_list([], n_features=D)).shape == (0, K + 2 * K * D)


def test_data_it_cannot_use():
    with pytest.raises(ValueError, match="must be an array-like"):
        FisherScore(parameters="means").fit(vectors())
    with pytest.raises(BagwiseError, match="there are 0"):
        FisherScore(2).fit(Bags.from_list([], n_features=2))
    with pytest.raises(BagwiseError, match="have 3 features, but FisherScore was fitted to 2"):
        fitted().transform(Bags.from_list([np.ones((2, 3))]))
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        FisherScore(2).fit(sp.csr_array(vectors()))


def test_lists_of_matrices_are_bags():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(n, 3)) for n in (5, 1, 7, 4)]
    expected = FisherScore(2, random_state=0).fit_transform(Bags.from_list(arrays, dtype=None))
    for bags in (arrays, tuple(arrays), [array.tolist() for array in arrays]):
        np.testing.assert_array_equal(FisherScore(2, random_state=0).fit_transform(bags), expected)
    rows = np.concatenate(arrays).tolist()  # a list of vectors is a matrix
    assert FisherScore(2, random_state=0).fit_transform(rows).shape[0] == 17
