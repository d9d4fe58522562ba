"""
Can I merge by a criterion of my own?
=====================================

A trace ratio criterion says which samples should be apart (`preferred`) and which should stay close (`undesired`), by
two matrices over samples; the search, cuts and estimators come with the base class. This one is for signals over
time: channels are merged so that their sums change slowly. It finds the six channels that share a slow oscillation
among others that only jitter, without labels.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from bagwise import WordMerger
from bagwise.criteria import TraceRatio
from bagwise.merging.structures import GraphLaplacian, TotalScatter


class Smoothness(TraceRatio):
    """Total scatter over the scatter between samples that follow each other."""

    name = "smoothness"
    supervised = False

    def structures(self, X, y, n_threads=1):
        n = X.shape[0]
        later = sp.eye_array(n, k=1)
        return TotalScatter(np.ones(n)), GraphLaplacian(sp.csr_array(later + later.T))


rng = np.random.default_rng(0)
time = np.linspace(0, 4 * np.pi, 200)
slow = np.exp(np.sin(time))
channels = rng.gamma(2.0, 1.0, (200, 16))
channels[:, ::3] += 0.7 * slow[:, np.newaxis]  # six of sixteen
merger = WordMerger(n_groups=11, criterion=Smoothness()).fit(channels)
found = int(np.bincount(merger.labels_).argmax())
smooth = merger.labels_ == found

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=(3, 4))
left.imshow(channels.T, aspect="auto", cmap="Greys", interpolation="nearest")
for channel, inside in enumerate(smooth):
    left.text(-4, channel, channel, ha="right", va="center", color="C0" if inside else "0.6", fontsize=8)
left.set(title="16 channels; blue: those in one group", xlabel="time", yticks=[])
right.plot(channels[:, ~smooth].mean(axis=1), color="0.6", label=f"mean of the {np.sum(~smooth)} others")
right.plot(channels[:, smooth].mean(axis=1), color="C0", label=f"mean of the group of {np.sum(smooth)}")
right.set(title="what the group has in common", xlabel="time")
right.legend(ncols=2)
right.set_ylim(0, 6.5)
plt.show()
