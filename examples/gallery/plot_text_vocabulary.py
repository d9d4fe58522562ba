"""
How few word groups does a text classifier need?
================================================

A linear classifier on TF-IDF has a weight for each word and class. :class:`bagwise.CompactClassifier` merges words
whose weights are alike, and keeps the classifier's answers. The figure has its error on texts that it has not seen
against the number of groups, beside the classifier on all words and beside as many words chosen by chi².

The texts are the 20 newsgroups (three of them) if scikit-learn has them in its cache, otherwise a small corpus that
comes with bagwise: English sentences put together by a program, on six subjects.
"""

import matplotlib.pyplot as plt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, CompactClassifier
from bagwise.datasets import fetch_20newsgroups, make_corpus

try:
    groups = ["rec.autos", "sci.med", "sci.space"]
    texts = fetch_20newsgroups(categories=groups, download_if_missing=False)
except BagwiseError:
    texts = make_corpus(1200, n_sentences=(1, 3))
train, test, y_train, y_test = train_test_split(texts.data, texts.target, test_size=0.5, random_state=0)
tfidf = TfidfVectorizer(sublinear_tf=True).fit(train)
X_train, X_test = tfidf.transform(train), tfidf.transform(test)

compact = CompactClassifier(LinearSVC(), n_groups=20).fit(X_train, y_train)
sizes = [size for size in (3, 5, 8, 12, 20, 50, 100, 200) if size < X_train.shape[1]]
errors = compact.path(X_test, y_test, sizes).errors
everything = 1 - LinearSVC().fit(X_train, y_train).score(X_test, y_test)
chosen = [
    1 - make_pipeline(SelectKBest(chi2, k=size), LinearSVC()).fit(X_train, y_train).score(X_test, y_test)
    for size in sizes
]

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.axhline(100 * everything, color="0.5", linestyle="--", label=f"all {X_train.shape[1]} words")
axes.plot(sizes, [100 * error for error in chosen], "s-", color="C1", label="words chosen by chi²")
axes.plot(sizes, [100 * error for error in errors], "o-", color="C0", label="groups of words")
axes.set(xscale="log", xlabel="number of features", ylabel="error on new texts, %", ylim=(0, None))
axes.set_xticks(sizes, [str(size) for size in sizes])
axes.set_xticks([], minor=True)
axes.set_title(f"{len(train)} texts on {len(texts.target_names)} subjects to learn from")
axes.legend()
plt.show()
