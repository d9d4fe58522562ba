"""
Can words be learned for clustering, without labels?
====================================================

Each object here is a bag of points around a place on one of two interleaved half circles. Histograms over words of
k-means mix the two. :class:`bagwise.ManifoldBagOfFeatures` moves the words until histograms of objects that are
joined by near neighbours are alike, and those of others are not: after that, k-means finds the half circles.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from bagwise import ManifoldBagOfFeatures
from bagwise.metrics import purity

rng = np.random.default_rng(0)
angles, upper = rng.uniform(0, np.pi, 120), np.arange(120) % 2 == 0
x = np.where(upper, np.cos(angles), 1 - np.cos(angles))
y = np.where(upper, np.sin(angles), 0.3 - np.sin(angles))
bags = [np.stack([x[k], y[k]]) + 0.1 * rng.normal(size=(40, 2)) for k in range(120)]

model = ManifoldBagOfFeatures(
    16, n_components=2, n_neighbors=5, sigma_histogram=0.5, learning_rate=0.1, max_iter=60,
    random_state=0,
).fit(bags)  # fmt: skip
before = clone(model).set_params(max_iter=0).fit(bags).transform(bags)
after = model.transform(bags)

figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
panels[0].scatter(x, y, c=upper, cmap="coolwarm", s=12)
panels[0].scatter(*model.initial_codebook_.T, c="0.5", marker="x", label="words of k-means")
panels[0].scatter(*model.codebook_.T, c="black", marker="+", label="learned words")
panels[0].set(title="objects, and words", xlim=(-1.7, 2.7), ylim=(-1.7, 1.9))
panels[0].legend(fontsize=8)
for panel, histograms, name in ((panels[1], before, "words of k-means"), (panels[2], after, "learned words")):
    clusters = KMeans(2, n_init=10, random_state=0).fit(histograms).labels_
    panel.scatter(*PCA(2).fit_transform(histograms).T, c=upper, cmap="coolwarm", s=12)
    panel.set_title(f"histograms of {name},\nclusters are {purity(upper, clusters):.0%} pure")
    panel.set(xticks=[], yticks=[])
plt.show()
