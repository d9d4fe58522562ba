"""Compilation ahead of time."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import RidgeClassifier

from bagwise.baselines.linear import ConfidenceWeightedClassifier
from bagwise.codebooks.bag_of_features import BagOfFeatures
from bagwise.codebooks.encoders import ENCODERS
from bagwise.codebooks.kmeans import kmeans
from bagwise.codebooks.manifold.manifold_bag_of_features import ManifoldBagOfFeatures
from bagwise.descriptors.color import ColorCells
from bagwise.descriptors.hog_lbp import HogLbp
from bagwise.descriptors.lbp import LBPD5, LocalBinaryPatterns
from bagwise.descriptors.sift import ColorSIFT
from bagwise.merging.compact import CompactClassifier
from bagwise.merging.engine import merge
from bagwise.merging.merge import merge_words
from bagwise.merging.scoring import WeightLoss
from bagwise.merging.searches.ratios import SEARCHES
from bagwise.merging.sketching.sketch_merger import SketchMerger
from bagwise.merging.word_merger import WordMerger
from bagwise.retrieval.bag_index import BagIndex
from bagwise.retrieval.histograms import METRICS
from bagwise.topics.free_energy import FreeEnergyScore
from bagwise.topics.latent_dirichlet import LatentDirichlet

__all__ = ["warmup"]


def warmup() -> None:
    """Compile all machine code (or load it from the cache) by running it on small data.

    The compiled code is kept beside the package, or in the user's cache folder if that cannot be written. Run this once
    after installing, for example when building a container image.

    Examples
    --------
    >>> import bagwise
    >>> bagwise.warmup()
    """
    _merge()
    _model()
    _describe_and_encode()


def _merge() -> None:
    X = np.random.default_rng(0).integers(0, 9, size=(8, 12)).astype(np.float64)
    y = np.arange(8) % 2
    for search in SEARCHES:
        merge_words(X, y, criterion="csm", search=search)
    for data in (X, sp.csr_array(X)):
        merge_words(data, y, criterion="nda")
        WordMerger(n_groups=3).fit(data, y).transform(data)
        SketchMerger(n_groups=3).fit(data).transform(data)
    merge_words(X, y, store="sparse")
    for criterion in ("mme", "aib", "clusters", "mmi", "lpp"):
        merge_words(X, y, criterion=criterion)
    merge(WeightLoss(X[0], X[:2].T), name="classifier")
    for labels in (y, np.arange(8) % 3):
        CompactClassifier(RidgeClassifier(), n_groups=3).fit(X, labels)
    merge_words(X, y, kernel="chi2")


def _model() -> None:
    X = sp.csr_array(np.random.default_rng(0).integers(0, 9, size=(8, 12)).astype(np.float64))
    for inference in ("variational", "gibbs"):
        FreeEnergyScore(LatentDirichlet(2, solver="vb"), inference=inference).fit(X).transform(X)
    ConfidenceWeightedClassifier(random_state=0).fit(X, np.arange(8) % 2)
    for metric in METRICS:
        for data in (X, sp.eye_array(8, 12, format="csr")):  # kept dense, and as lists
            BagIndex(metric).add(data).remove([0]).search(X)


def _describe_and_encode() -> None:
    images = list(np.random.default_rng(0).integers(0, 256, size=(2, 40, 40, 3), dtype=np.uint8))
    for descriptor in (ColorCells(), HogLbp(), LocalBinaryPatterns(), LBPD5()):
        descriptor.transform(images)
    bags = ColorSIFT().transform(images)
    points = np.random.default_rng(0).normal(size=(1 << 16, 64)) * 0.9 ** np.arange(64)
    kmeans(points.astype(np.float32), 64, max_iter=1)  # as many as bounds of distances are computed for
    for assignment in ENCODERS:
        BagOfFeatures(4, assignment=assignment, random_state=0).fit(bags).transform(bags)
    for metric in ("hellinger", "chi2"):
        ManifoldBagOfFeatures(4, n_components=1, max_iter=1, metric=metric, random_state=0).fit(bags)
