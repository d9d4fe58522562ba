"""Words learned for clustering: `ManifoldBagOfFeatures` by default, as published, and plain words with any clustering.

For each data set and seed some objects are drawn to learn on and to cluster, and others that are seen only by
`predict`; each has at most 200 features. Features are those of the experiments ``manifold_*``. All methods have the
same number of words; plain words are those that learning starts from. Plain histograms (hard and soft assignment) are
clustered in five ways, all of which are shown, so that the best of them in hindsight can be read off. k-means has one
start for all. The number of clusters is the number of classes; labels are used for nothing else but NMI and purity.
The default is `cluster_bags`, which chooses between k-means and spectral clustering without labels; "spectral" is 1
where it took the latter. Seconds of a default and of a published form include learning the words, others do not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline

from bagwise import Bags, ManifoldBagOfFeatures, SpectralClusterer
from bagwise.clustering import cluster_bags
from bagwise.codebooks import BagNormalizer
from bagwise.metrics import purity
from harness import ROOT, Row, timed

sys.path.insert(0, str(ROOT))
from experiments.manifold_protocol import PUBLISHED_FORM, kept_bags
from experiments.running import Options

from experiments import manifold_corel1k, manifold_mnist, manifold_rt2k, manifold_scene15

LENGTH = 200  # features of a bag
N_DIGITS = 2000  # of which some are taken
PUBLISHED_STEPS = 10  # of the paper; some experiments take 40
HARD = 1e-9  # a bandwidth with which assignment is hard
# words, objects to learn on and others, and what the published form has on this data set
SETTINGS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "scene15": (128, 450, 300, {}),
    "corel1k": (128, 400, 300, {}),
    "rt2k": (4, 1000, 500, {"sigma_histogram": 0.1, "bandwidth": 0.1}),
    "mnist": (64, 1000, 500, {}),
}


def digits(options: Options, seed: int) -> tuple[Bags, Any]:
    """Digits of MNIST by a network that has learned to draw others, and which they are. The bags are kept in a file."""
    X, y = manifold_mnist.digits_of(options)
    order = np.random.default_rng(seed).permutation(len(X))
    chosen, others = order[:N_DIGITS], order[N_DIGITS : N_DIGITS + manifold_mnist.N_OTHERS]

    def describe() -> Bags:
        from experiments.digit_networks import as_tensor, features_of, same_sums, train_autoencoder

        with same_sums():
            extractor = train_autoencoder(as_tensor(X[others]), 20 if options.quick else 400, seed)
            features = features_of(extractor, as_tensor(X[chosen]))
        return Bags(features.reshape(-1, features.shape[2]), np.arange(len(chosen) + 1) * features.shape[1])

    return kept_bags(options, f"mnist-{seed}", describe), y[chosen]


def objects(name: str, options: Options, seed: int, n: int) -> tuple[Bags, Any]:
    """Draw objects: their bags and classes. Quick runs have fewer."""
    if name == "mnist":
        bags, y = digits(options, seed)
        return bags[:n], y[:n]
    module = {"scene15": manifold_scene15, "corel1k": manifold_corel1k, "rt2k": manifold_rt2k}[name]
    bags, y = module.objects(options)
    order = np.random.default_rng(seed).permutation(len(bags))[:n]
    return bags[order].subsample(LENGTH, np.random.RandomState(seed)), y[order]


def clusterings(n_clusters: int, seed: int) -> dict[str, Callable[[], Any]]:
    """Ways to cluster histograms, by name."""
    return {
        "k-means, l1": lambda: KMeans(n_clusters, n_init=10, random_state=seed),
        "k-means, Hellinger": lambda: make_pipeline(BagNormalizer(), KMeans(n_clusters, n_init=10, random_state=seed)),
        "spectral, chi2": lambda: SpectralClusterer(
            n_clusters, metric="chi2", laplacian="unnormalized", random_state=seed
        ),
        "spectral, Hellinger": lambda: SpectralClusterer(
            n_clusters, metric="hellinger", laplacian="unnormalized", random_state=seed
        ),
        "spectral, Euclidean": lambda: SpectralClusterer(
            n_clusters, metric="euclidean", laplacian="unnormalized", random_state=seed
        ),
    }


def plain_words(model: ManifoldBagOfFeatures, bandwidth: float) -> ManifoldBagOfFeatures:
    """The words that learning started from."""
    start = ManifoldBagOfFeatures(model.n_words, bandwidth=bandwidth)
    for name in ("scale_", "n_features_in_", "n_iter_", "sigma_histogram_"):
        setattr(start, name, getattr(model, name))
    start.codebook_ = model.initial_codebook_
    return start


def measure(data: Path, seeds: Sequence[int], quick: bool) -> Iterator[Row]:
    """NMI and purity of the objects learned on, NMI of others; seconds to learn words, encode and cluster."""
    options = Options(data, Path(gettempdir()) / "bagwise-seed-methods", quick=quick)
    for seed in seeds:
        for name, (n_words, n_learn, n_others, form) in SETTINGS.items():
            if quick:
                n_words, n_learn, n_others = min(n_words, 16), 100, 50
            bags, y = objects(name, options, seed, n_learn + n_others)
            learn, others = bags[:n_learn], bags[n_learn:]
            n_classes = len(np.unique(y))
            sizes = {"n_words": n_words, "n_components": n_classes, "random_state": seed}
            ways = clusterings(n_classes, seed)

            def figures(found: Any, unseen: Any) -> dict[str, float]:
                return {
                    "nmi": normalized_mutual_info_score(y[:n_learn], found),  # noqa: B023
                    "purity": purity(y[:n_learn], found),  # noqa: B023
                    "nmi unseen": normalized_mutual_info_score(y[n_learn:], unseen),  # noqa: B023
                }

            def row(method: str, role: str, encoder: Any, way: str, seconds: float) -> Row:
                clusterer = ways[way]()  # noqa: B023
                more, found = timed(lambda: clusterer.fit_predict(encoder.transform(learn)))  # noqa: B023
                unseen = clusterer.predict(encoder.transform(others))  # noqa: B023
                return Row(name, f"{method}; {way}", role, seed, figures(found, unseen), seconds + more)  # noqa: B023

            model = ManifoldBagOfFeatures(**sizes)
            seconds, (found, clusters) = timed(
                lambda: cluster_bags(learn, n_classes, encoder=model, random_state=seed)  # noqa: B023
            )
            measures = figures(found, clusters.predict(others))
            measures["spectral"] = float(isinstance(clusters[-1], SpectralClusterer))
            yield Row(name, "MO-BoF; cluster_bags", "default", seed, measures, seconds)
            for way in ("k-means, Hellinger", "spectral, Hellinger"):
                yield row("MO-BoF", "variant", model, way, 0.0)
            former = PUBLISHED_FORM | {"max_iter": PUBLISHED_STEPS} | form
            seconds, published = timed(lambda: ManifoldBagOfFeatures(**sizes, **former).fit(learn))  # noqa: B023
            for way in ("k-means, l1", "spectral, chi2"):
                yield row("MO-BoF", "published", published, way, seconds)
            for assignment, bandwidth in (("hard", HARD), ("soft", model.bandwidth)):
                for way in ways:
                    yield row(f"k-means words, {assignment}", "plain", plain_words(model, bandwidth), way, 0.0)
