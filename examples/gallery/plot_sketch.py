"""
Can features be merged in one pass, without keeping the data?
=============================================================

:class:`bagwise.SketchMerger` keeps 256 numbers for each feature, whatever the number of samples, and clusters these.
Data pass by once, in batches. The figure compares what is left of the data with methods that need all of it, by the
accuracy of five nearest neighbours on digits that were held out.
"""

import matplotlib.pyplot as plt
from sklearn.cluster import FeatureAgglomeration
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.random_projection import SparseRandomProjection

from bagwise import SketchMerger

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
sketched = SketchMerger(n_groups=2, random_state=0)
for start in range(0, len(X_train), 200):  # batches pass by
    sketched.partial_fit(X_train[start : start + 200])

sizes = (2, 4, 6, 8, 12, 16, 24, 32)
methods = {
    "PCA, all data": lambda size: PCA(size).fit(X_train),
    "SketchMerger, one pass": lambda size: sketched.set_params(n_groups=size),
    "FeatureAgglomeration, all data": lambda size: FeatureAgglomeration(size).fit(X_train),
    "random projection": lambda size: SparseRandomProjection(size, random_state=0).fit(X_train),
}
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, reducer in methods.items():
    scores = []
    for size in sizes:
        fitted = reducer(size)
        neighbors = KNeighborsClassifier(5).fit(fitted.transform(X_train), y_train)
        scores.append(100 * neighbors.score(fitted.transform(X_test), y_test))
    axes.plot(sizes, scores, "o-", label=name)
axes.set(
    xscale="log", xlabel="number of features", ylabel="accuracy of 5-NN, %", title="64 pixels merged, no labels used"
)
axes.set_xticks(sizes, [str(size) for size in sizes])
axes.set_xticks([], minor=True)
axes.legend()
plt.show()
