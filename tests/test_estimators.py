"""The contracts of all public estimators, found by walking the public names: a new one is checked without being listed.

Estimators that take matrices run scikit-learn's checks, once more with SciPy's array API. Estimators that take images,
videos, texts or bags run the checks of this file.
"""

import importlib
import inspect
import os
import pickle
import subprocess
import sys
import warnings
from unittest import SkipTest

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

import bagwise
from bagwise import Bags
from bagwise.codebooks import LocalizedEncoder, SoftEncoder
from bagwise.kernels import KERNELS
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion

PACKAGES = ("baselines", "clustering", "codebooks", "descriptors", "kernels", "merging", "retrieval", "topics")
# Parameters that make fitting cheap, for estimators that have them.
CHEAP = {
    "n_groups": 2,
    "n_words": 4,
    "n_components": 2,
    "n_clusters": 3,
    "max_iter": 3,
    "n_init": 1,
    "sketch_size": 16,
    "n_intermediate": 2,
    "random_state": 0,
}
# Parameters without which a class cannot be checked, or cheaper ones than CHEAP.
PARAMETERS = {
    "BagOfFeatures": {"max_iter": 100},
    "FisherScore": {"reg_covar": 1e-3, "max_iter": 100},
    "FreeEnergyKernel": {"model": bagwise.LatentDirichlet(2, max_iter=3, random_state=0)},
    "FreeEnergyScore": {"model": bagwise.LatentDirichlet(2, max_iter=3, random_state=0)},
    "LatentDirichletNB": {"model": bagwise.LatentDirichlet(1, max_iter=3, random_state=0)},
    "ManifoldBagOfFeatures": {"n_neighbors": 3},
    "MinRedundancyMaxRelevance": {"n_features": 2},
    "ConfidenceWeightedClassifier": {"max_iter": 5},
    "WordMergerCV": {"n_groups": [1, 2], "cv": 2},
}
# Further settings to check, beside that of `cheap`: by the checks that depend on what is computed.
VARIANTS = {
    "BagNormalizer": [{"steps": "l2"}, {"steps": ["power", "l2"], "power": 0.3}],
    "BagOfFeatures": [
        {"assignment": SoftEncoder(0.5)},
        {"assignment": LocalizedEncoder(2)},
        {"assignment": "sparse", "normalize": "l2"},
        {"assignment": "vlad"},
    ],
    "CompactClassifier": [{"estimator": LogisticRegression(C=0.1)}, {"weighting": "tfidf"}],
    "ConfidenceWeightedClassifier": [{"average": True}],
    "DiagonalKernelLearner": [{"objective": "correlation", "pretrain_size": 0.5}, {"objective": "logistic"}],
    "DivisiveMerger": [{"start": "aib", "pooling": "sqrt"}, {"n_groups": 3, "smoothing": 1.0}],
    "FreeEnergyScore": [{"word_block": "word", "standardize": True, "per_token": True, "damping": "log"}],
    "HashMerger": [{"signed": False}],
    "LatentDirichlet": [{"solver": "online", "prior": "symmetric"}, {"max_iter": 100, "tol": 0.01}],
    "ManifoldBagOfFeatures": [{"target": "isomap", "scale": 1.0, "bandwidth": 0.5}],
    "PLSA": [{"temperature": 0.8}],
    "SketchMerger": [
        {"bipolar": True, "dtype": "float64"},
        {"n_neighbors": 3},
        {"batch_size": 2, "pooling": "mean"},
        {"use_labels": True},
    ],
    "SpectralClusterer": [{"metric": "euclidean", "laplacian": "random_walk"}],
    "WordMerger": [
        *({"criterion": name} for name in NAMED_CRITERIA),
        *({"kernel": name} for name in KERNELS if name != "linear"),
        {"search": "polar", "pooling": "mean"},
        {"store": "sparse"},
        {"word_weights": "idf"},
    ],
    "WordMergerCV": [{"rule": "1se", "criterion": "aib"}],
}


def public_estimators():
    """All public classes that can be fitted, by their names."""
    modules = [bagwise, *(importlib.import_module(f"bagwise.{package}") for package in PACKAGES)]
    values = [getattr(module, name) for module in modules for name in getattr(module, "__all__", ())]
    return {
        value.__name__: value
        for value in values
        if isinstance(value, type)
        and hasattr(value, "get_params")
        and hasattr(value, "fit")
        and not inspect.isabstract(value)
    }


def cheap(kind, **changes):
    known = inspect.signature(kind).parameters
    settings = {name: value for name, value in CHEAP.items() if name in known}
    return kind(**(settings | PARAMETERS.get(kind.__name__, {}) | changes))


def takes_matrices(kind):
    tags = cheap(kind).__sklearn_tags__()
    return tags.input_tags.two_d_array and not tags.input_tags.string and not tags.no_validation


FOUND = public_estimators()
MATRICES = {name: kind for name, kind in FOUND.items() if takes_matrices(kind)}
ITEMS = {name: kind for name, kind in FOUND.items() if name not in MATRICES}


def test_all_packages_are_walked():
    assert {"WordMerger", "HashMerger", "SpectralClusterer", "BagOfFeatures", "PLSA", "BagNormalizer"} <= set(MATRICES)
    assert {"DenseSIFT", "WordCounts", "SentenceVectors", "VideoHogHof"} <= set(ITEMS)
    assert set(VARIANTS) | set(PARAMETERS) <= set(FOUND)


WEIGHTS = [
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
]
WEIGHTS_AS_COUNTS = [
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
]


def expected_failures(estimator):
    """Checks that fail, with a reason."""
    name = type(estimator).__name__
    if name == "WordMerger" and not resolve_criterion(estimator.criterion).takes_sample_weight:
        return dict.fromkeys([*WEIGHTS, *WEIGHTS_AS_COUNTS], "the criterion has no weighted form, and says so")
    if name == "ConfidenceWeightedClassifier":
        return dict.fromkeys(WEIGHTS_AS_COUNTS, "weights scale steps; a sample twice is two steps")
    if name == "CompactClassifier" and estimator.estimator is None:
        return dict.fromkeys(WEIGHTS_AS_COUNTS, "LinearSVC, the default, goes through samples at random")
    if name == "FisherScore":
        return {"check_array_api_input": "scikit-learn's GaussianMixture has no k-means for the array API"}
    if name == "SpectralClusterer" and estimator.metric in ("hellinger", "chi2"):
        reason = "its blobs differ in the sums of rows, and frequencies do not"
        return dict.fromkeys(["check_clustering", "check_clustering(readonly_memmap=True)"], reason)
    return {}


# What does not depend on settings (tags, constructors, refused input) is checked once for each class.
CHECKS_OF_VARIANTS = {
    "check_dict_unchanged",
    "check_estimator_sparse_array",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_readonly_memmap_input",
    *WEIGHTS_AS_COUNTS,
}


def checks_of(estimator, every=True, **options):
    """The checks of scikit-learn for an estimator, with a name each: every one, or those that its settings concern."""
    for pair in estimator_checks_generator(estimator, **options):
        instance, check, *marks = unpacked(pair)
        if every or check.func.__name__ in CHECKS_OF_VARIANTS:
            given = "".join(f",{name}={value}" for name, value in check.keywords.items())
            named = "".join(f"{instance!r}-{check.func.__name__}{given}".split())
            yield pytest.param(instance, check, marks=marks, id=named)


def unpacked(pair):
    """An estimator, a check, and marks of checks that are expected to fail."""
    return (*pair.values, *pair.marks) if hasattr(pair, "values") else pair


def cases():
    for name, kind in sorted(MATRICES.items()):
        for number, changes in enumerate(({}, *VARIANTS.get(name, ()))):
            estimator = cheap(kind, **changes)
            expected = expected_failures(estimator)
            yield from checks_of(estimator, number == 0, expected_failed_checks=expected, mark="xfail")


@pytest.mark.filterwarnings("ignore:No feature agrees")  # scikit-learn's random data have no classes to agree with
@pytest.mark.filterwarnings("ignore:X has negative values")  # which its checks take for any data
@pytest.mark.parametrize(("estimator", "check"), list(cases()))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_with_array_api():
    """Under SCIPY_ARRAY_API=1 SciPy and scikit-learn check and dispatch differently."""
    command = [sys.executable, __file__, *sorted(MATRICES)]
    found = subprocess.run(command, env=os.environ | {"SCIPY_ARRAY_API": "1"}, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def run_checks(names):
    """Run all checks of the given classes and print those that fail; the entry point of the subprocess."""
    failed = 0
    for name in names:
        estimator = cheap(MATRICES[name])
        expected = expected_failures(estimator)
        for copy, check in estimator_checks_generator(estimator):
            try:
                check(copy)
            except SkipTest:
                pass
            except Exception as error:
                if check.func.__name__ not in expected:
                    print(f"{name}, {check.func.__name__}: {type(error).__name__}: {error}")
                    failed += 1
    return failed


def smooth_images():
    random = np.random.default_rng(0)
    coarse = [random.integers(0, 256, (6 + k, 7, 3)) for k in range(3)]
    return [np.kron(image, np.ones((8, 8, 1))).astype(np.uint8) for image in coarse]


def moving_squares():
    videos = np.full((2, 30, 48, 64), 50, np.uint8)
    for number, video in enumerate(videos):
        for t, frame in enumerate(video):
            left = 10 + abs(15 - t) + number
            frame[18:30, left : left + 12] = 200
    return list(videos)


def short_texts():
    return ["The cat sat on the mat. It slept.", "A dog and a cat; the dog sat.", "Mat! Mat! The dog ran."]


def small_bags():
    random = np.random.default_rng(0)
    return [random.normal(size=(length, 3)) + 3 * (length % 2) for length in (5, 1, 7, 4, 6, 3)]


# Whatever an estimator of items takes is found by trying.
INPUTS = (smooth_images, short_texts, moving_squares, small_bags)


def input_of(kind):
    refused = []
    for make in INPUTS:
        try:
            cheap(kind).fit_transform(make())
        except (ValueError, TypeError, AttributeError) as error:
            refused.append(f"{make.__name__}: {error}")
        else:
            return make
    raise AssertionError(f"{kind.__name__} takes none of the inputs:\n" + "\n".join(refused))


@pytest.fixture(scope="module", params=sorted(ITEMS))
def item_case(request):
    kind = ITEMS[request.param]
    return kind, input_of(kind)


@pytest.fixture(params=["BagOfFeatures", "ManifoldBagOfFeatures"])
def bag_case(request):
    return FOUND[request.param], small_bags


def arrays_of(value):
    """The arrays of which a result consists: a matrix, bags, or a list of either."""
    if isinstance(value, (list, tuple)):
        return [array for part in value for array in arrays_of(part)]
    if sp.issparse(value):
        value = value.sorted_indices()
        return [value.data, value.indices, value.indptr, np.array(value.shape)]
    if isinstance(value, Bags):
        return [value.values, value.offsets, *([] if value.positions is None else [value.positions])]
    if hasattr(value, "rows"):
        return [*arrays_of(value.rows), value.offsets, value.positions]
    return [np.asarray(value)]


def assert_same(one, other):
    assert type(one) is type(other)
    for a, b in zip(arrays_of(one), arrays_of(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def check_items(kind, make):
    estimator = cheap(kind)
    given = make()
    expected = clone(estimator).fit(given).transform(given)
    assert_same(given, make())  # nothing was written into the input
    fitted = clone(estimator).fit(given)
    for other in (fitted, fitted.fit(given), clone(fitted).fit(given), pickle.loads(pickle.dumps(fitted))):
        assert_same(other.transform(given), expected)
    assert_same(clone(estimator).fit_transform(given), expected)
    assert fitted.get_params() == estimator.get_params() == clone(fitted).get_params()
    assert fitted.set_params(**fitted.get_params(deep=False)) is fitted
    if estimator.__sklearn_tags__().requires_fit:
        with pytest.raises((NotFittedError, ValueError)):
            clone(estimator).transform(given)
    for wrong in ([object()], 3, None):
        with pytest.raises((ValueError, TypeError)):
            clone(estimator).fit(given).transform(wrong)


def test_estimators_of_items(item_case):
    check_items(*item_case)


def test_estimators_of_bags(bag_case):
    check_items(*bag_case)


def test_empty_input(item_case):
    """No items give no rows, or an error."""
    kind, make = item_case
    fitted = cheap(kind).fit(make())
    try:
        empty = fitted.transform([])
    except ValueError:
        return
    assert (empty.shape[0] if hasattr(empty, "shape") else len(empty)) == 0


@pytest.mark.parametrize("name", sorted(ITEMS))
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_parameters_default_constructible,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learn_checks_without_data(name, check):
    check(name, cheap(ITEMS[name]))


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "No feature agrees")
    warnings.filterwarnings("ignore", "X has negative values")
    sys.exit(run_checks(sys.argv[1:]))
