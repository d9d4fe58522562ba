"""Four panels: objects on two half circles, their histograms before and after learning words, and the learning curve.

    python examples/unfolding.py [unfolding.png]      # needs matplotlib: pip install "bagwise[plot]"

Each object is a bag of points around a place on one of two interleaved half circles. Histograms over words from k-means
mix the two; moving the words unfolds them. Prints how well k-means finds the half circles before and after.
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from bagwise import ManifoldBagOfFeatures
from bagwise.metrics import purity


def make_bags(n: int = 120, length: int = 40, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, np.pi, n)
    upper = np.arange(n) % 2 == 0
    x = np.where(upper, np.cos(angles), 1 - np.cos(angles))
    y = np.where(upper, np.sin(angles), 0.3 - np.sin(angles))
    return [np.stack([x[i], y[i]]) + 0.1 * rng.normal(size=(length, 2)) for i in range(n)], upper.astype(int)


def main() -> None:
    bags, y = make_bags()
    model = ManifoldBagOfFeatures(
        16, n_components=2, n_neighbors=5, sigma_histogram=0.5, sigma_spectral=0.05, learning_rate=0.1, max_iter=60,
        random_state=0,
    ).fit(bags)  # fmt: skip
    before = clone(model).set_params(max_iter=0).fit(bags).transform(bags)
    after = model.transform(bags)
    scores = [purity(y, KMeans(2, n_init=10, random_state=0).fit(T).labels_) for T in (before, after)]
    print(f"purity of k-means: {scores[0]:.3f} before, {scores[1]:.3f} after {model.n_iter_} steps")
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        sys.exit('matplotlib is needed to draw: pip install "bagwise[plot]"')
    figure, panels = plt.subplots(1, 4, figsize=(16, 4), layout="constrained")
    centres = np.array([bag.mean(axis=0) for bag in bags])
    panels[0].scatter(*centres.T, c=y, cmap="coolwarm", s=12)
    panels[0].scatter(*model.initial_codebook_.T, c="0.6", marker="x", label="words of k-means")
    panels[0].scatter(*model.codebook_.T, c="black", marker="+", label="learned words")
    panels[0].legend(fontsize=8)
    panels[0].set_title("objects and words")
    for panel, T, name in ((panels[1], before, "before"), (panels[2], after, "after")):
        panel.scatter(*PCA(2).fit_transform(T).T, c=y, cmap="coolwarm", s=12)
        panel.set_title(f"histograms {name} (two principal components)")
    panels[3].plot(model.objective_, color="black")
    panels[3].set_xlabel("step")
    panels[3].set_title("mean squared error of similarities")
    path = sys.argv[1] if len(sys.argv) > 1 else "unfolding.png"
    figure.savefig(path, dpi=120)
    print(f"drawn to {path}")


if __name__ == "__main__":
    main()
