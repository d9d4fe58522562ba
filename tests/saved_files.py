"""Small files of every kind."""

import dataclasses
import functools
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from bagwise import BagIndex, Bags, LatentDirichlet, ManifoldBagOfFeatures
from bagwise.app import FitOptions, fit_model
from bagwise.app.index.item_index import index_of_fit
from bagwise.merging import Sketch, Statistics
from bagwise.sources import Collection
from model_cases import random_hierarchy, weighted_image_model, weighted_text_model

NAMES = ["cat", "dog é", "home", "not unicode \udcff", "", "the"]

# a file of each kind
SAVED = {
    "bagwise.Model": "images.bagwise",
    "bagwise.ItemIndex": "items.index",
    "bagwise.BagIndex": "names.index",
    "bagwise.Bags": "places.bags",
    "bagwise.Hierarchy": "merges.hierarchy",
    "bagwise.LatentDirichlet": "words.topics",
    "bagwise.ManifoldBagOfFeatures": "words.manifold",
    "bagwise.Sketch": "stream.sketch",
    "bagwise.Statistics": "sparse.statistics",
}


def counts(n=12, n_words=6, seed=0):
    """Half sparse rows, half dense ones."""
    random = np.random.default_rng(seed)
    X = random.integers(0, 6, (n, n_words)).astype(np.float64)
    X[: n // 2] *= random.random((n // 2, n_words)) < 0.3
    return X


def item_index():
    """Items compared by words and classes, with answers of cross-validation and a map."""
    rows = Collection.from_matrix(
        counts(24, 8, seed=3), [f"item{k}" for k in range(24)], [("ab"[k % 2],) for k in range(24)]
    )
    fit = fit_model(rows, n_groups=3, folds=2, n_jobs=1).fit_
    return index_of_fit(fit, None, "/made/up", FitOptions(modality="table")).with_map()


def edited(index):
    """The items of an index under an edited model, with the answers before."""
    model = index.model.apply([{"edit": "join", "n_groups": 3, "groups": [0, 1]}])
    size = max(index.answers.sizes)
    answers = index.answers.replaced({size: index.answers.rows[size]}, "folds", index.answers)
    return dataclasses.replace(index, model=model, answers=answers, map=None)


@functools.cache
def saved_files():
    """Write a file of every kind, once in each process, which removes them: their paths by name.

    They are for all tests: to change one, copy it.
    """
    kept = tempfile.TemporaryDirectory(prefix="bagwise-saved-")
    folder, random, X = Path(kept.name), np.random.default_rng(1), counts()
    codes = np.arange(len(X)) % 3
    index = item_index()
    lda = LatentDirichlet(2, max_iter=3, random_state=0).fit(X)
    lda.feature_names_in_ = np.array(list("uvwxyz"), dtype=object)
    bags = [random.normal(size=(8, 3)) + shift for shift in (0, 4, 0, 4, 0, 4)]
    values, places = random.normal(size=(5, 3)), random.random((5, 2))
    made = {
        "numbers.index": BagIndex("chi2", normalize="l1", metadata={"made": "by hand"}).add(X).remove([3]),
        "names.index": BagIndex("intersection").add(sp.csr_array(X[:6]), NAMES),
        "cells.index": BagIndex("hellinger", method="approximate", structure="ivf").add(X),
        "items.index": index,
        "edited.index": edited(index),
        "places.bags": Bags.from_list([values[:2], values[:0], values[2:]], [places[:2], places[:0], places[2:]]),
        "merges.hierarchy": random_hierarchy(9, random),
        "stream.sketch": Sketch(6, 8, 3).update(X),
        "dense.statistics": Statistics.of(
            X, codes, 3, classes=np.array(["a", "b", "ccc"]), gram=True, frequencies=True
        ),
        "sparse.statistics": Statistics.of(sp.csr_array(X), codes, 3, gram=True),
        "words.topics": lda,
        "words.manifold": ManifoldBagOfFeatures(
            4, n_components=2, n_neighbors=2, max_iter=2, target=np.equal.outer(codes[:6], codes[:6]) * 1.0,
            random_state=0,
        ).fit(bags),
        "images.bagwise": weighted_image_model(np.random.default_rng(2)),
        "texts.bagwise": weighted_text_model(np.random.default_rng(2)),
    }  # fmt: skip
    paths = {name: one.save(folder / name) for name, one in made.items()}
    return _Files(paths, kept)


class _Files(dict):
    """Paths by name, and the folder that goes with them."""

    def __init__(self, paths, folder):
        super().__init__(paths)
        self.folder = folder
