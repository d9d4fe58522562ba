"""Colour-SIFT words of images, similarities of images by them, and the choice of settings on training images only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import NMF, PCA
from sklearn.frozen import FrozenEstimator
from sklearn.metrics.pairwise import cosine_distances, euclidean_distances
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, normalize

from bagwise import BagOfFeatures, Bags, FreeEnergyKernel, LatentDirichlet
from bagwise.descriptors import ColorSIFT
from bagwise.kernels import DiagonalKernelLearner, FisherScore
from bagwise.metrics import average_precision
from bagwise.topics import FreeEnergyScore

CUTOFF = 20
# Blur before SIFT, in pixels: that of the finest scale of SIFT as it was first described. Of this and none, the one
# with which words (but not Fisher scores) withstood noise better in a quick run.
SMOOTHING = 1.6
_BATCH = 32
Setting = dict[str, Any]
Distances = NDArray[np.float64]


class Description:
    """Counts of visual words, and Fisher scores under a Gaussian mixture, learned from some images.

    Parameters
    ----------
    n_words : int
    n_gaussians : int
        The mixture is one of descriptors reduced to 64 numbers by PCA; its scores are divided by their number and
        their signed roots taken.
    seed : int
    """

    def __init__(self, n_words: int, n_gaussians: int, seed: int) -> None:
        self.sift = ColorSIFT("opponent", smoothing=SMOOTHING, n_jobs=1)
        self.words = BagOfFeatures(
            n_words,
            normalize=None,
            sparse_output=False,
            n_samples=50_000,
            max_iter=100,
            tol=1e-5,
            random_state=seed,
            n_jobs=1,
        )
        self.reduce = PCA(64, random_state=seed)
        self.fisher = FisherScore(n_gaussians, max_vectors=30_000, tol=1e-2, random_state=seed)
        self.seed = seed

    def learn(self, images: Any) -> Description:
        """Learn words and mixture from a sample of the images' descriptors."""
        bags = Bags.concatenate(
            part.subsample(100, random_state=self.seed) for part in self.sift.iter_transform(images, _BATCH)
        )
        self.words.fit(bags)
        self.fisher.fit(Bags(self.reduce.fit_transform(bags.values).astype(np.float32), bags.offsets))
        return self

    def of(self, images: Any) -> Images:
        """Describe images; those of a list come as arrays."""
        counts, fisher = [], []
        for bags in self.sift.iter_transform(images, _BATCH):
            counts.append(self.words.transform(bags))
            scores = self.fisher.transform(Bags(self.reduce.transform(bags.values).astype(np.float32), bags.offsets))
            scores /= np.maximum(bags.lengths, 1)[:, np.newaxis]
            fisher.append(np.sign(scores) * np.sqrt(np.abs(scores)))
        return Images(np.concatenate(counts).astype(np.float64), np.concatenate(fisher))


@dataclass(frozen=True)
class Images:
    """What is known of images: counts of words, and Fisher scores."""

    counts: NDArray[np.float64]
    fisher: NDArray[np.float64]

    def take(self, rows: NDArray[np.int64]) -> Images:
        """Keep some images."""
        return Images(self.counts[rows], self.fisher[rows])

    @property
    def shares(self) -> NDArray[np.float64]:
        """Counts as parts of their sum."""
        return normalize(self.counts, norm="l1")


@dataclass(frozen=True)
class Learning:
    """Training images, which of them have labels, and the models that were fitted to all of them."""

    images: Images
    y: NDArray[np.int64]
    labelled: NDArray[np.int64]
    seed: int
    _models: dict[Any, Any] = field(default_factory=dict)

    def model(self, key: Any, fit: Callable[[], Any]) -> Any:
        """A model that knows no labels: fitted once."""
        if key not in self._models:
            self._models[key] = fit()
        return self._models[key]

    def with_labels(self, labelled: NDArray[np.int64]) -> Learning:
        """The same images and models, with labels of other images."""
        return Learning(self.images, self.y, labelled, self.seed, self._models)


Method = Callable[[Learning, Setting, Images, Images], Distances]


def chi2_distances(A: NDArray[np.float64], B: NDArray[np.float64]) -> Distances:
    """``Σ (a - b)² / (a + b)``, row by row."""
    distances = np.empty((len(A), len(B)))
    for i, row in enumerate(A):
        sums = row + B
        distances[i] = np.divide((row - B) ** 2, sums, out=np.zeros_like(sums), where=sums > 0).sum(axis=1)
    return distances


def by_euclid(learning: Learning, setting: Setting, queries: Images, gallery: Images) -> Distances:
    return euclidean_distances(queries.shares, gallery.shares)


def by_chi2(learning: Learning, setting: Setting, queries: Images, gallery: Images) -> Distances:
    return chi2_distances(queries.shares, gallery.shares)


def by_nmf(learning: Learning, setting: Setting, queries: Images, gallery: Images) -> Distances:
    """Cosines of the coefficients of a non-negative factorisation of Hellinger-normalised histograms."""

    def fit() -> NMF:
        model = NMF(setting["components"], init="nndsvda", max_iter=1000, tol=1e-3, random_state=learning.seed)
        return model.fit(np.sqrt(learning.images.shares))

    nmf = learning.model(("nmf", setting["components"]), fit)
    return cosine_distances(nmf.transform(np.sqrt(queries.shares)), nmf.transform(np.sqrt(gallery.shares)))


def by_nca(learning: Learning, setting: Setting, queries: Images, gallery: Images) -> Distances:
    """Distances after a linear map for nearest neighbours, of Hellinger-normalised histograms reduced by PCA."""
    pca = learning.model(
        ("pca", setting["components"]),
        lambda: PCA(setting["components"], random_state=learning.seed).fit(np.sqrt(learning.images.shares)),
    )
    roots = pca.transform(np.sqrt(learning.images.shares[learning.labelled]))
    nca = NeighborhoodComponentsAnalysis(max_iter=30, tol=1e-3, random_state=learning.seed)
    nca.fit(roots / roots.std(), learning.y[learning.labelled])
    maps = [nca.transform(pca.transform(np.sqrt(images.shares)) / roots.std()) for images in (queries, gallery)]
    return euclidean_distances(*maps)


def _learned(learning: Learning, setting: Setting, train: Any, queries: Any, gallery: Any) -> Distances:
    """Cosines under weights learned from the labels."""
    objective, _, step = setting["learner"].partition(" ")
    learner = DiagonalKernelLearner(objective, step=float(step or 1))
    learner.fit(train[learning.labelled], learning.y[learning.labelled])
    return cosine_distances(learner.transform(queries), learner.transform(gallery))


def by_fkl(learning: Learning, setting: Setting, queries: Images, gallery: Images) -> Distances:
    """Fisher scores, standardised, with learned weights."""
    scale = learning.model("fisher", lambda: StandardScaler().fit(learning.images.fisher))
    scores = [scale.transform(images.fisher) for images in (learning.images, queries, gallery)]
    return _learned(learning, setting, *scores)


def _scores(learning: Learning, setting: Setting, *others: Images) -> list[NDArray[np.float64]]:
    """Free-energy scores per word of the training images and of others.

    An image has most words, so scores are dense; they are centred, as a learner of weights needs it.
    """

    def fit() -> tuple[Any, NDArray[np.float64]]:
        lda = LatentDirichlet(
            setting["topics"],
            solver="vb",
            prior="fixed",
            topic_word_prior=0.01,
            init="random",
            max_iter=30,
            restarts=3,
            random_state=learning.seed,
        )
        model = make_pipeline(
            FreeEnergyScore(FrozenEstimator(lda.fit(learning.images.counts)), word_block="word"),
            FunctionTransformer(lambda scores: scores.toarray(), accept_sparse=True),
            StandardScaler(),
        )
        return model, model.fit_transform(learning.images.counts)

    model, train = learning.model(("free energy", setting["topics"]), fit)
    return [train, *(model.transform(images.counts) for images in others)]


def by_fess(learning: Learning, setting: Setting, queries: Images, gallery: Images) -> Distances:
    """Cosines of free-energy scores."""
    return cosine_distances(*_scores(learning, setting, queries, gallery)[1:])


def by_fek(learning: Learning, setting: Setting, queries: Images, gallery: Images) -> Distances:
    """Free-energy scores with learned weights."""
    return _learned(learning, setting, *_scores(learning, setting, queries, gallery))


def by_default(learning: Learning, setting: Setting, queries: Images, gallery: Images) -> Distances:
    """`FreeEnergyKernel` with nothing set, on the counts of the labelled images; its features are for cosines."""
    kernel = FreeEnergyKernel().fit(learning.images.counts[learning.labelled], learning.y[learning.labelled])
    return cosine_distances(*(kernel.transform(images.counts) for images in (queries, gallery)))


def mean_precision(distances: Distances, query_labels: NDArray[Any], labels: NDArray[Any]) -> float:
    """MAP over the nearest 20, where query i is (a version of) image i of the gallery, which is left out."""
    distances = distances.copy()
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : min(CUTOFF, len(labels) - 1)]
    relevant = labels[nearest] == query_labels[:, np.newaxis]
    found = relevant.any(axis=1)  # a query that finds nothing relevant counts as 0
    return float(
        np.sum([average_precision(row, interpolated=False, denominator="returned") for row in relevant[found]])
        / len(relevant)
    )


def choose(method: Method, settings: Iterable[Setting], learning: Learning) -> Setting:
    """The setting that ranks a third of the labelled training images best, learned with labels of the others."""
    settings = list(settings)
    if len(settings) == 1:
        return settings[0]
    known = learning.labelled
    rest, held = train_test_split(known, test_size=1 / 3, stratify=learning.y[known], random_state=learning.seed)
    part, images = learning.with_labels(rest), learning.images.take(held)
    y = learning.y[held]
    values = [mean_precision(method(part, setting, images, images), y, y) for setting in settings]
    return settings[int(np.argmax(values))]


def grids(quick: bool) -> dict[str, tuple[Method, list[Setting]]]:
    """The methods, and the settings to choose from."""
    topics = (5,) if quick else (10, 20, 50)
    components = (5,) if quick else (20, 50)
    learners = ("ball", "prox 10")
    return {
        "Euclidean": (by_euclid, [{}]),
        "chi2": (by_chi2, [{}]),
        "NMF": (by_nmf, [{"components": one} for one in components]),
        "NCA": (by_nca, [{"components": one} for one in components]),
        "FKL": (by_fkl, [{"learner": learner} for learner in learners]),
        "FESS": (by_fess, [{"topics": one} for one in topics]),
        "FEK": (by_fek, [{"topics": one, "learner": learner} for one in topics for learner in learners]),
        "FEK default": (by_default, [{}]),
    }
