"""Merge the 64 pixels of scikit-learn's handwritten digits, taken as words, into a few groups.

Prints, for several sizes of one hierarchy, the class separability and the error of two classifiers on digits that were
not used for merging or training.
"""

import time

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC

from bagwise import WordMerger

SIZES = (64, 50, 40, 30, 20, 15, 10, 7, 5, 3, 2)


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    started = time.perf_counter()
    merger = WordMerger(n_groups=64, criterion="csm").fit(X_train, y_train)
    elapsed = time.perf_counter() - started

    print(f"{len(X_train)} digits to learn from, {len(X_test)} held out; 64 pixels as words, merged in {elapsed:.2f} s")
    print("(the time of a first run includes compiling)\n")
    print("words left   class separability   linear SVM error   5-NN error")
    for size in SIZES:
        merger.set_params(n_groups=size)  # the same hierarchy, cut elsewhere
        Z_train, Z_test = merger.transform(X_train), merger.transform(X_test)
        svm = make_pipeline(MaxAbsScaler(), LinearSVC(random_state=0)).fit(Z_train, y_train)
        neighbors = KNeighborsClassifier(5).fit(Z_train, y_train)
        print(
            f"{size:10d}   {separability(Z_train, y_train):18.4f}"
            f"   {1 - svm.score(Z_test, y_test):16.1%}   {1 - neighbors.score(Z_test, y_test):10.1%}"
        )


def separability(Z, y) -> float:
    """Scatter of the class means over the total scatter, from the data."""
    overall = Z.mean(axis=0)
    between = sum((y == c).sum() * ((Z[y == c].mean(axis=0) - overall) ** 2).sum() for c in set(y))
    return between / ((Z - overall) ** 2).sum()


if __name__ == "__main__":
    main()
