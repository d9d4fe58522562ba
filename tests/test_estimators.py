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

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import bagwise
from bagwise import Bags
from bagwise.kernels import KERNELS
from bagwise.merging.criteria import NAMED_CRITERIA

PACKAGES = ("baselines", "clustering", "codebooks", "descriptors", "kernels", "merging", "retrieval", "topics")
# Parameters that make fitting cheap, for estimators that have them.
CHEAP = {
    "n_groups": 2,
    "n_words": 4,
    "n_components": 2,
    "n_clusters": 3,
    "max_iter": 3,
    "n_iter": 2,
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
# Further settings to check, beside that of `cheap`.
VARIANTS = {
    "BagNormalizer": [{"steps": "l2"}, {"steps": ["power", "l2"], "power": 0.3}],
    "BagOfFeatures": [
        {"assignment": "soft", "softness": 0.5},
        {"assignment": "localized", "n_neighbors": 2},
        {"assignment": "sparse", "normalize": "l2"},
        {"assignment": "vlad"},
    ],
    "ConfidenceWeightedClassifier": [{"average": True}],
    "DiagonalKernelLearner": [{"objective": "prox", "pretrain_size": 0.5}, {"objective": "logistic"}],
    "DivisiveMerger": [{"start": "aib", "pooling": "sqrt"}, {"n_groups": 3, "smoothing": 1.0}],
    "FreeEnergyScore": [{"word_block": "word", "standardize": True, "per_token": True}],
    "HashMerger": [{"signed": False}],
    "LatentDirichlet": [{"solver": "online", "prior": "symmetric"}],
    "ManifoldBagOfFeatures": [{"target": "isomap", "scale": 1.0, "softness": 0.5}],
    "PLSA": [{"temperature": 0.8}],
    "SketchMerger": [{"bipolar": True, "dtype": "float64"}, {"n_neighbors": 3}, {"batch_size": 2, "pooling": "mean"}],
    "SpectralClusterer": [{"metric": "euclidean", "laplacian": "random_walk"}],
    "WordMerger": [
        *({"criterion": name} for name in NAMED_CRITERIA if name != "csm"),
        *({"kernel": name} for name in KERNELS if name != "linear"),
        {"search": "polar", "pooling": "mean"},
        {"store": "sparse"},
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
        and issubclass(value, BaseEstimator)
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
    assert {"DenseSIFT", "WordCounts", "SentenceVectors", "VideoHogHof", "WindowCodes"} <= set(ITEMS)
    assert set(VARIANTS) | set(PARAMETERS) <= set(FOUND)


def expected_failures(estimator):
    name = type(estimator).__name__
    failures = {}
    return failures


@pytest.mark.filterwarnings("ignore:No feature agrees")  # scikit-learn's random data have no classes to agree with
@parametrize_with_checks(
    [cheap(kind, **changes) for name, kind in sorted(MATRICES.items()) for changes in ({}, *VARIANTS.get(name, ()))],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
