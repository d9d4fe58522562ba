"""Files of all other kinds that earlier versions wrote still load. `models/make_files.py` says how they were made."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagIndex, Bags, Hierarchy, LatentDirichlet, ManifoldBagOfFeatures
from bagwise.merging import Sketch, Statistics
from bagwise.training import ItemIndex
from models.make_files import NAMES, counts
from models.make_models import text_model

FILES = Path(__file__).parent.parent / "models" / "files1"
X = counts()
CODES = np.arange(len(X)) % 3


@pytest.fixture(scope="module")
def expected():
    return json.loads((FILES / "expected.json").read_text("utf-8"))


def same_search(index, other):
    for found, wanted in zip(index.search(X), other.search(X), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_indexes():
    index = BagIndex.load(FILES / "numbers.index")
    assert index.metadata == {"made": "by hand"}
    kept = np.delete(np.arange(len(X)), 3)
    same_search(index, BagIndex("chi2", normalize="l1").add(X[kept], kept))
    assert index.add(X[:1]).ids[-1] == len(X)
    names = BagIndex.load(FILES / "names.index", mmap=False)
    assert names.ids.tolist() == NAMES
    same_search(names, BagIndex("intersection").add(X[:6], NAMES))


def test_indexes_with_cells():
    pytest.importorskip("faiss")
    same_search(
        BagIndex.load(FILES / "cells.index"), BagIndex("hellinger", method="approximate", structure="ivf").add(X)
    )


def test_folders_of_items(tmp_path):
    old = ItemIndex.load(FILES / "items.index")
    again = ItemIndex.load(old.save(tmp_path / "items.index"))
    for index in (old, again):
        assert index.model == text_model(np.random.default_rng(2))
        assert (index.ids, index.labels) == (("one", "two", "one"), ("a", None, "b"))
        assert (index.source, index.reading) == ("/made/up", {"modality": "texts"})
        same = BagIndex("hellinger").add(np.eye(3)).search(np.ones((1, 3)))
        for found, wanted in zip(index.index.search(np.ones((1, 3))), same, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_items_compared_by_groups(tmp_path):
    folder = FILES.parent / "files2"
    wanted = json.loads((folder / "expected.json").read_text("utf-8"))["hits"]
    old = ItemIndex.load(folder / "items.index")
    queries = counts(4, old.model.hierarchy.n_words, seed=4)
    for index in (old, ItemIndex.load(old.save(tmp_path / "items.index"))):
        assert (index.by, index.blend) == ("groups", None)
        assert [[list(hit) for hit in hits] for hits in index.search(queries, k=3)] == wanted


@pytest.mark.parametrize("schema", [3, 4, 5])
def test_items_compared_by_words_and_classes(tmp_path, schema):
    folder = FILES.parent / f"files{schema}"
    wanted = json.loads((folder / "expected.json").read_text("utf-8"))
    old = ItemIndex.load(folder / "items.index")
    queries = counts(4, old.model.hierarchy.n_words, seed=4)
    for index in (old, ItemIndex.load(old.save(tmp_path / "items.index"))):
        assert index.by == "both"
        for hits, told in zip(index.search(queries, k=3), wanted["found"], strict=True):
            assert [hit.id for hit in hits] == [id for id, _ in told]
            np.testing.assert_allclose([hit.score for hit in hits], [score for _, score in told], rtol=1e-6)
        assert (index.answers is None) == (schema == 3)
        if index.answers is not None:
            assert (list(index.answers.sizes), index.answers.protocol) == (wanted["sizes"], wanted["protocol"])
            np.testing.assert_array_equal(index.answers.top.predicted, wanted["predicted"])
        assert (index.map is None) == (schema < 5)
        if index.map is not None:
            np.testing.assert_array_equal(index.map.points, np.array(wanted["points"], np.float32))
            np.testing.assert_array_equal(index.map.clusters, wanted["clusters"])


def test_items_of_an_edited_model(tmp_path):
    folder = FILES.parent / "files5"
    old, before = (ItemIndex.load(folder / name) for name in ("edited.index", "items.index"))
    for index in (old, ItemIndex.load(old.save(tmp_path / "items.index"))):
        assert len(index.model.edits) == 1
        assert index.model.undo() == before.model
        assert set(index.answers.sizes) < set(index.answers.unedited.sizes)
        assert index.answers.unedited.sizes == before.answers.sizes
        np.testing.assert_array_equal(index.answers.unedited.top.predicted, before.answers.top.predicted)


@pytest.mark.parametrize("mmap", [True, False])
def test_bags(expected, mmap):
    bags = Bags.load(FILES / "places.bags", mmap=mmap)
    assert bags.lengths.tolist() == [2, 0, 3]
    np.testing.assert_array_equal(bags.values, np.array(expected["values"], dtype=np.float32))
    np.testing.assert_array_equal(bags.positions, np.array(expected["places"], dtype=np.float32))


def test_hierarchies(expected):
    loaded = Hierarchy.load(FILES / "merges.hierarchy")
    assert loaded == Hierarchy(9, expected["merges"], expected["scores"], "random")


def test_sketches():
    assert Sketch.load(FILES / "stream.sketch") == Sketch(6, 8, 3).update(X)


def test_statistics():
    names = np.array(["a", "b", "ccc"])
    made = Statistics.of(X, CODES, 3, classes=names, gram=True, frequencies=True)
    assert Statistics.load(FILES / "dense.statistics") == made
    assert Statistics.load(FILES / "sparse.statistics") == Statistics.of(sp.csr_array(X), CODES, 3, gram=True)


def test_topics(expected):
    pd = pytest.importorskip("pandas")
    lda = LatentDirichlet.load(FILES / "words.topics")
    assert lda.feature_names_in_.tolist() == list("uvwxyz")
    found = lda.transform(pd.DataFrame(X, columns=list("uvwxyz")))
    np.testing.assert_allclose(found, expected["documents"], rtol=1e-6)


def test_manifold_words(expected):
    model = ManifoldBagOfFeatures.load(FILES / "words.manifold")
    learned_with = {"metric": "chi2", "init": "k-means", "retarget_every": None, "target_from": "words"}
    assert learned_with.items() <= model.get_params().items()
    np.testing.assert_allclose(model.codebook_, expected["codebook"], rtol=1e-6)
    np.testing.assert_allclose(model.transform([np.array(expected["bag"])])[0], expected["histogram"], rtol=1e-6)
