"""
Which pixels of digits say the same?
====================================

The 64 pixels of scikit-learn's digits are words here, their grey levels are counts. :class:`bagwise.WordMerger`
merges pixels that tell the same about the ten classes. One hierarchy gives every size: the figure shows the groups at
four cuts, each group in a colour of its own, with the error of a linear SVM on digits that were not used for merging.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC

from bagwise import WordMerger

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
merger = WordMerger(n_groups=64).fit(X_train, y_train)

figure, panels = plt.subplots(1, 4, figsize=(10, 3.1), layout="constrained")
for panel, size in zip(panels, (64, 30, 15, 8), strict=True):
    merger.set_params(n_groups=size)  # the same hierarchy, cut elsewhere
    classifier = make_pipeline(MaxAbsScaler(), LinearSVC(random_state=0)).fit(merger.transform(X_train), y_train)
    error = 1 - classifier.score(merger.transform(X_test), y_test)
    panel.imshow(merger.labels_.reshape(8, 8) * 37 % size, cmap="nipy_spectral")
    panel.set(title=f"{size} groups\nerror {error:.1%}", xticks=[], yticks=[])
plt.show()
