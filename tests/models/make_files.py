"""Write one small file of each other kind in the present form, with the results it must keep giving.

    PYTHONPATH=tests python tests/models/make_files.py FOLDER

``files1`` was written by version 0.1.0, in which an index of items was a folder. ``files2`` has an index of items in
one file, compared by groups: ``counts(8, 8, seed=3)`` with the names item0 to item7, every second of the class a, and
what ``counts(4, 8, seed=4)`` find. ``files3`` and ``files4`` have indexes of fits to ``counts(24, 8, seed=3)``, every
second of the class b, compared by words and classes, the latter with answers of cross-validation; ``files5`` has the
index of ``files4`` with a map, and without one with an edited model and the answers before the edit.
Old files are never written again: `tests/model/test_old_files.py` reads them.
"""

import json
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from bagwise import BagIndex, Bags, LatentDirichlet, ManifoldBagOfFeatures
from bagwise.merging import Sketch, Statistics
from bagwise.training import ItemIndex
from models.make_models import random_hierarchy, text_model

NAMES = ["cat", "dog é", "home", "not unicode \udcff", "", "the"]


def counts(n=12, n_words=6, seed=0):
    """Half sparse rows, half dense ones."""
    random = np.random.default_rng(seed)
    X = random.integers(0, 6, (n, n_words)).astype(np.float64)
    X[: n // 2] *= random.random((n // 2, n_words)) < 0.3
    return X


def main():
    import pandas as pd

    folder = Path(sys.argv[1])
    folder.mkdir()
    random, X = np.random.default_rng(1), counts()
    y = np.array(["a", "b", "c"])[np.arange(len(X)) % 3]

    BagIndex("chi2", normalize="l1", metadata={"made": "by hand"}).add(X).remove([3]).save(folder / "numbers.index")
    BagIndex("intersection").add(sp.csr_array(X[:6]), NAMES).save(folder / "names.index")
    BagIndex("hellinger", method="approximate", structure="ivf").add(X).save(folder / "cells.index")
    model = text_model(np.random.default_rng(2))
    index = BagIndex("hellinger").add(np.eye(3))
    ItemIndex(model, index, ("one", "two", "one"), ("a", None, "b"), "/made/up", {"modality": "texts"}).save(
        folder / "items.index"
    )
    values, places = random.normal(size=(5, 3)), random.random((5, 2))
    Bags.from_list([values[:2], values[:0], values[2:]], [places[:2], places[:0], places[2:]]).save(
        folder / "places.bags"
    )
    hierarchy = random_hierarchy(9, random)
    hierarchy.save(folder / "merges.hierarchy")
    Sketch(6, 8, 3).update(X).save(folder / "stream.sketch")
    Statistics.of(X, np.arange(len(X)) % 3, 3, classes=np.array(["a", "b", "ccc"]), gram=True, frequencies=True).save(
        folder / "dense.statistics"
    )
    Statistics.of(sp.csr_array(X), np.arange(len(X)) % 3, 3, gram=True).save(folder / "sparse.statistics")
    lda = LatentDirichlet(2, max_iter=3, random_state=0).fit(pd.DataFrame(X, columns=list("uvwxyz")))
    lda.save(folder / "words.topics")
    bags = [random.normal(size=(8, 3)) + shift for shift in (0, 4, 0, 4, 0, 4)]
    manifold = ManifoldBagOfFeatures(
        4, n_components=2, n_neighbors=2, max_iter=2, target=(y[:6, None] == y[:6]).astype(float), random_state=0
    ).fit(bags)
    manifold.save(folder / "words.manifold")

    (folder / "expected.json").write_text(
        json.dumps(
            {
                "values": values.tolist(),
                "places": places.tolist(),
                "merges": hierarchy.merges.tolist(),
                "scores": hierarchy.scores.tolist(),
                "documents": lda.transform(pd.DataFrame(X, columns=list("uvwxyz"))).tolist(),
                "codebook": manifold.codebook_.tolist(),
                "histogram": manifold.transform(bags[:1])[0].tolist(),
                "bag": bags[0].tolist(),
            }
        )
        + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
