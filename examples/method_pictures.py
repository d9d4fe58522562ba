"""The pictures of "How it works", one for each family of methods.

python examples/method_pictures.py --out docs/how-it-works      # needs matplotlib
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import rbf_kernel

from bagwise import CompactClassifier, LatentDirichlet, ManifoldBagOfFeatures, SketchMerger
from bagwise.datasets import make_corpus
from bagwise.topics import FreeEnergyScore

BLUE, ORANGE, GREY = "#1769aa", "#c75300", "#8a8f98"
STYLE = {
    "svg.hashsalt": "bagwise",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}


def bound_search() -> plt.Figure:
    """Pairs of words as points, and the slope that is maximised."""
    X, y = load_digits(n_class=2, return_X_y=True)
    X = X[:, X.std(axis=0) > 1]
    means = np.array([X[y == k].mean(axis=0) for k in range(2)]) - X.mean(axis=0)
    A = (means * np.bincount(y)[:, None]).T @ means
    B = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))
    a, b = np.trace(A), np.trace(B)
    s, t = np.triu_indices(len(A), 1)
    x, z = 2 * B[s, t], 2 * A[s, t]
    best = np.argmax((a + z) / (b + x))
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.scatter(x, z, s=6, color=GREY, linewidths=0, label="a pair of words", rasterized=True)
    axes.scatter(x[best], z[best], s=40, color=ORANGE, zorder=3, label="the best pair")
    axes.plot(-b, -a, "s", color="black", label="(−b, −a)")
    far = (x[best] + b) * 1.5
    axes.plot([-b, -b + far], [-a, -a + far * (a + z[best]) / (b + x[best])], color=ORANGE, linewidth=1)
    axes.annotate("slope = (a + 2A) / (b + 2B)", (-b * 0.45, -a * 0.62), color=ORANGE)
    axes.set(xlabel="2 B of the pair", ylabel="2 A of the pair")
    axes.legend(frameon=False, loc="lower right")
    return figure


def additive_search() -> plt.Figure:
    """Losses of information of pairs against their lower bound."""
    corpus = make_corpus(300)
    counts = CountVectorizer(min_df=5).fit_transform(corpus.data).toarray()
    joint = np.array([counts[corpus.target == k].sum(axis=0) for k in range(6)]).T + 1e-9
    joint /= joint.sum()
    p, P = joint.sum(axis=1), joint / joint.sum(axis=1, keepdims=True)
    i, j = np.triu_indices(len(p), 1)

    def information(rows):
        return (rows * np.log2(rows / rows.sum(axis=1, keepdims=True))).sum(axis=1)

    loss = information(joint[i]) + information(joint[j]) - information(joint[i] + joint[j])
    bound = p[i] * p[j] / (p[i] + p[j]) * ((np.sqrt(P[i]) - np.sqrt(P[j])) ** 2).sum(axis=1) / np.log(2)
    kept = loss > 1e-6
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.scatter(bound[kept], loss[kept], s=3, color=BLUE, alpha=0.3, linewidths=0, rasterized=True)
    line = np.array([loss[kept].min() / 3, loss.max()])
    axes.plot(line, line, color="black", linewidth=1, label="loss = bound")
    axes.plot(line, 2 * line, color=ORANGE, linewidth=1, label="loss = 2 × bound: words that are nearly alike")
    axes.set(xscale="log", yscale="log", xlabel="lower bound", ylabel="loss of information, bits")
    axes.legend(frameon=False)
    return figure


def sketches() -> plt.Figure:
    """Distances between features, from the data and from sketches."""
    X = load_digits().data
    X = X[:, X.std(axis=0) > 0]
    X = X - X.mean(axis=0)
    true = ((X[:, :, None] - X[:, None, :]) ** 2).sum(axis=0)
    i, j = np.triu_indices(X.shape[1], 1)
    figure, panels = plt.subplots(1, 2, figsize=(7, 3.4), layout="constrained", sharey=True)
    for panel, size in zip(panels, (16, 256), strict=True):
        S = SketchMerger(2, sketch_size=size, random_state=0).fit(X).sketch_.signature()
        found = ((S[i] - S[j]) ** 2).sum(axis=1) / 30  # the number of hashes
        panel.scatter(true[i, j], found, s=3, color=BLUE, alpha=0.4, linewidths=0, rasterized=True)
        panel.plot([0, true.max()], [0, true.max()], color="black", linewidth=1)
        panel.set(title=f"{size} numbers a feature", xlabel="squared distance in the data")
    panels[0].set_ylabel("squared distance in the sketch")
    return figure


def manifold() -> plt.Figure:
    """Similarities of histograms before and after words have moved."""
    rng = np.random.default_rng(0)
    angles, upper = np.sort(rng.uniform(0, np.pi, (2, 60)), axis=1).ravel(), np.repeat([True, False], 60)
    x = np.where(upper, np.cos(angles), 1 - np.cos(angles))
    y = np.where(upper, np.sin(angles), 0.3 - np.sin(angles))
    bags = [np.stack([x[k], y[k]]) + 0.1 * rng.normal(size=(40, 2)) for k in range(120)]
    options = {"n_components": 2, "n_neighbors": 5, "sigma_histogram": 0.5, "sigma_spectral": 0.05}
    options |= {"learning_rate": 0.1, "random_state": 0}
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained")
    panels[0].scatter(x, y, c=np.where(upper, BLUE, ORANGE), s=8)
    panels[0].set(title="120 objects", xticks=[], yticks=[])
    for panel, steps, name in ((panels[1], 0, "words of k-means"), (panels[2], 60, "learned words")):
        histograms = ManifoldBagOfFeatures(16, max_iter=steps, **options).fit(bags).transform(bags)
        panel.imshow(rbf_kernel(histograms, gamma=20), cmap="Blues", vmin=0, vmax=1)
        panel.set(title=f"similarities, {name}", xticks=[], yticks=[])
    return figure


def free_energy() -> plt.Figure:
    """The terms of the bound of two documents."""
    corpus = make_corpus(300)
    counts = CountVectorizer(stop_words="english", min_df=3).fit_transform(corpus.data)
    scores = FreeEnergyScore(LatentDirichlet(12, solver="vb", random_state=0)).fit(counts).transform(counts)
    mean = scores.mean(axis=0)
    figure, panels = plt.subplots(2, 1, figsize=(7, 3.6), layout="constrained", sharex=True)
    for panel, document, color in ((panels[0], 0, BLUE), (panels[1], int(np.argmax(corpus.target == 1)), ORANGE)):
        panel.bar(np.arange(scores.shape[1]), scores[document] - mean, color=color, width=1.0)
        panel.axhline(0, color="black", linewidth=0.5)
        panel.set_title(f"a text on {corpus.target_names[corpus.target[document]]}", loc="left", fontsize=10)
    panels[1].set_xlabel("terms of the ELBO")
    figure.supylabel("term less its mean", fontsize=10)
    return figure


def classifier() -> plt.Figure:
    """The weights of words in a classifier of two classes, and those of their groups."""
    corpus = make_corpus(600)
    two = corpus.target < 2
    texts = [text for text, kept in zip(corpus.data, two, strict=True) if kept]
    X = TfidfVectorizer().fit_transform(texts)
    y = corpus.target[two]
    compact = CompactClassifier(RidgeClassifier(), n_groups=6, weights="mean").fit(X, y)
    weights = RidgeClassifier().fit(X, y).coef_.ravel()
    order = np.argsort(weights)
    labels = compact.labels_[order]
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    axes.plot(weights[order], ".", color=GREY, markersize=4, label=f"weights of {len(order)} words")
    mass = np.asarray(X.power(2).mean(axis=0)).ravel()
    for group in np.unique(labels):
        own = order[labels == group]
        places = np.flatnonzero(labels == group)
        level = np.average(weights[own], weights=mass[own])
        axes.plot([places[0] - 0.5, places[-1] + 0.5], [level, level], color=BLUE, linewidth=2.5,
                  label="weights of 6 groups" if group == labels[0] else None)  # fmt: skip
    names = corpus.target_names
    axes.set(xlabel="words, by weight", ylabel=f"weight: {names[0]} below 0, {names[1]} above")
    axes.legend(frameon=False)
    return figure


PICTURES = {
    "bound-search": bound_search,
    "additive-criteria": additive_search,
    "sketches": sketches,
    "manifold": manifold,
    "free-energy": free_energy,
    "classifier": classifier,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder")
    parser.add_argument("--only", choices=PICTURES, nargs="*", default=list(PICTURES))
    chosen = parser.parse_args()
    for name in chosen.only:
        with plt.rc_context(STYLE):
            figure = PICTURES[name]()
            figure.savefig(chosen.out / f"{name}.svg", metadata={"Date": None}, dpi=150)
            plt.close(figure)


if __name__ == "__main__":
    main()
