"""
Which genes go together?
========================

A table of counts, cells by genes, with the type of each cell. :class:`bagwise.WordMerger` merges genes that tell the
same about cell types; a group is the sum of its genes, so that it can be read and computed for other cells. The
figure shows the mean of each group in each type, with the genes that are counted most in the group.

The counts are made by :func:`bagwise.datasets.make_cells`, with names of real genes. :doc:`/guides/genes` does the
same with AnnData.
"""

import matplotlib.pyplot as plt
import numpy as np

from bagwise import WordMerger
from bagwise.datasets import make_cells

cells = make_cells(700)
merger = WordMerger(n_groups=12).fit(cells.data, cells.target)
groups = merger.transform(cells.data).toarray()
groups /= groups.sum(axis=1, keepdims=True)  # relative frequencies: cells differ in their totals

means = np.array([groups[cells.target == k].mean(axis=0) for k in range(len(cells.target_names))])
folds = np.log2(means / means.mean(axis=0))
order = np.lexsort((-folds.max(axis=0), folds.argmax(axis=0)))
totals = np.asarray(cells.data.sum(axis=0)).ravel()
names = []
for group in merger.hierarchy_.groups(12):
    most = group[np.argsort(-totals[group])][:4]
    names.append(f"{' '.join(cells.feature_names[k] for k in most)} ({len(group)})")

figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
shown = axes.imshow(folds[:, order].T, cmap="RdBu_r", vmin=-3, vmax=3, aspect="auto")
axes.set_xticks(range(len(cells.target_names)), cells.target_names, rotation=30, ha="right")
axes.set_yticks(range(12), [names[k] for k in order])
axes.set_title("500 genes in 12 groups: the most counted genes, and the number of genes")
figure.colorbar(shown, label="log2 of the mean in the type over that in all")
plt.show()
