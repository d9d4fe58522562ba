"""
Which criterion and which size suit my data?
============================================

:class:`bagwise.WordMerger` is a transformer of scikit-learn, so that a grid search compares criteria and sizes inside
a pipeline, with merging repeated in every fold. (For sizes alone, :class:`bagwise.WordMergerCV` merges once per
fold.)
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler

from bagwise import WordMerger
from bagwise.datasets import make_corpus

texts, y = make_corpus(360, n_sentences=(2, 5), return_X_y=True)
pipeline = Pipeline(
    [
        ("count", CountVectorizer()),
        ("merge", WordMerger()),
        ("scale", MaxAbsScaler()),
        ("classify", LogisticRegression(max_iter=2000)),
    ]
)
criteria, sizes = ["aib", "mlt", "csm", "nda", "mmi"], [6, 12, 24, 48, 96]
grid = GridSearchCV(pipeline, {"merge__criterion": criteria, "merge__n_groups": sizes}, cv=4).fit(texts, y)

scores = np.empty((len(criteria), len(sizes)))
for parameters, score in zip(grid.cv_results_["params"], grid.cv_results_["mean_test_score"], strict=True):
    scores[criteria.index(parameters["merge__criterion"]), sizes.index(parameters["merge__n_groups"])] = score

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.imshow(scores, cmap="viridis", aspect="auto")
for (row, column), score in np.ndenumerate(scores):
    dark = score < scores.min() + 0.6 * (scores.max() - scores.min())
    axes.text(column, row, f"{100 * score:.0f}", ha="center", va="center", color="white" if dark else "black")
axes.set_xticks(range(len(sizes)), sizes)
axes.set_yticks(range(len(criteria)), criteria)
best = grid.best_params_
axes.set(xlabel="groups", ylabel="criterion", title="accuracy in cross-validation, %: "
         f"best by {best['merge__criterion']} with {best['merge__n_groups']} groups")  # fmt: skip
plt.show()
