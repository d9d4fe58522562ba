"""
What is in a folder without labels?
===================================

:func:`bagwise.app.cluster_source`, which is ``bagwise cluster FOLDER`` on the command line, learns words, merges
them into groups, suggests a number of clusters, and names them. The texts are sentences about six subjects; labels are
not used. The number is a suggestion, here one too many, which the curve shows: six are nearly as stable. The names say
what was found.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from bagwise.app import FitOptions, cluster_source
from bagwise.datasets import make_corpus, write_dataset

with tempfile.TemporaryDirectory() as folder:
    source = write_dataset(make_corpus(600, random_state=0), Path(folder) / "posts.zip")
    index = cluster_source(source, FitOptions(n_groups=30)).index.with_map()
clusters = index.clusters

figure, (curve, places) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=(1, 1.6))
curve.errorbar(clusters.numbers.sizes, clusters.numbers.stability, clusters.numbers.standard_errors, marker=".")
curve.axvline(clusters.numbers.suggested, color="0.7", linestyle=":")
curve.set(xlabel="clusters", ylabel="agreement of halves", title=f"suggested: {clusters.numbers.suggested}")
for one in clusters.describe(index.model):
    points = index.map.points[clusters.labels == one.number]
    places.scatter(*points.T, s=8, label=f"{one.name} ({one.size})")
places.set(xticks=[], yticks=[], title="the texts on their map")
places.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
