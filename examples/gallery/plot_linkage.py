"""
How does the hierarchy look in SciPy?
=====================================

:meth:`bagwise.Hierarchy.to_linkage` gives the merges as a linkage matrix, which SciPy and other libraries draw and
cut. Here are the 13 measurements of scikit-learn's wines, merged by what they tell about the three cultivars (AIB):
below, measurements that say the same about the classes come together first.
"""

import matplotlib.pyplot as plt
from scipy.cluster.hierarchy import dendrogram
from sklearn.datasets import load_wine

from bagwise import WordMerger

wine = load_wine()
merger = WordMerger(n_groups=4).fit(wine.data, wine.target)
linkage = merger.hierarchy_.to_linkage()

figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
threshold = linkage[-3:, 2].min()  # the last three merges join four groups
dendrogram(linkage, labels=wine.feature_names, orientation="left", color_threshold=threshold, ax=axes)
axes.set(title="measurements of wines, in four groups", xlabel="merge")
plt.show()
