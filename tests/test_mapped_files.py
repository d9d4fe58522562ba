"""Damage in mapped files, which nobody looked at: readers give an error or an answer, and stay inside their arrays.

An index out of bounds would end the process of the tests.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from bagwise import BagIndex, BagOfFeatures, Bags, BagwiseError
from bagwise.app import ItemIndex
from bagwise.app.index.index_words import IndexedWords
from changed_files import change_tensor
from saved_files import saved_files

CHANGES = {
    "items": (65535, 0),
    "values": (np.nan, -3e38),
    "dense": (np.inf, -1),
    "totals": (np.nan, -1),
    "id_text": (255,),
    "id_offsets": (-(2**63), 2**62),
    "starts": (-1, 2**62),
}
pytestmark = pytest.mark.filterwarnings("ignore")  # of NaN in what is computed


def tried(load, path, *actions):
    """How often a file is opened and an action on it has an answer, and how often `BagwiseError` is raised."""
    try:
        found = load(path)
    except BagwiseError:
        return np.array([0, 1])
    given = np.array([0, 0])
    for action in actions:
        try:
            action(found)
            given[0] += 1
        except BagwiseError:
            given[1] += 1
    return given


def changed(path, name, value, every):
    """A copy of a file with a value at every so many places of a tensor."""
    copy = path.with_name("changed")
    copy.write_bytes(path.read_bytes())

    def change(held):
        held.reshape(-1)[::every] = np.array(value).astype(held.dtype)

    return change_tensor(copy, name, change, checksum="old")


def test_bags(tmp_path):
    rng = np.random.default_rng(0)
    sizes = (300, 200, 400)  # more than one piece of work for a thread
    bags = Bags.from_list([rng.random((n, 4)) for n in sizes], [rng.random((n, 2)) for n in sizes])
    whole = bags.save(tmp_path / "bags")
    kinds = ("hard", "soft", "vlad")
    words = [BagOfFeatures(5, assignment=name, pyramid=8, random_state=0).fit(bags) for name in kinds]
    for name, value in [(n, v) for n in ("values", "positions") for v in (np.nan, np.inf, -1e30, 1e30)]:
        damaged = changed(whole, name, value, 7)
        given = tried(Bags.load, damaged, *(one.transform for one in words))
        assert name == "values" or list(given) == [0, 3], value
        assert [len(bag) for bag in Bags.load(damaged)] == list(sizes)


def test_indexes(tmp_path):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.poisson(0.15, (60, 40)), rng.poisson(3, (60, 40))]).astype(float)
    X[:, 0] += 1
    index = BagIndex("chi2").add(X[:60], [f"item {k}" for k in range(60)]).add(X[60:], [f"row {k}" for k in range(60)])
    whole = index.save(tmp_path / "index")
    actions = (
        *(lambda found: found.search(X[:20], 100), lambda found: found.search(X[:1], 5), lambda found: found.row(0)),
        *(lambda found: found.contributions(X[:1], [0, 5, 119]), lambda found: found.row(119), lambda found: found.ids),
        lambda found: found.save(tmp_path / "again"),
        lambda found: found.remove(["item 0", "row 7"]).search(X[:9], 5),
        lambda found: found.add(X[:3], list("abc")).search(X[:9], 5),
    )
    told = np.array([0, 0])
    for name, value, every in [(n, v, e) for n, values in CHANGES.items() for v in values for e in (1, 7)]:
        told += tried(BagIndex.load, changed(whole, name, value, every), *actions)
    assert (told > [100, 10]).all(), told


def test_indexes_of_items(tmp_path):
    whole = Path(shutil.copy(saved_files()["items.index"], tmp_path / "items"))

    def width(found):
        return found.model.layout.n_columns

    actions = (
        *(lambda found: found.similar(0, 3), lambda found: found.shared(0, [0, 1]), lambda found: found.with_map()),
        lambda found: found.search(np.ones((9, width(found))), 3),
        lambda found: IndexedWords.of(found).features(found.model),
        lambda found: IndexedWords.of(found).spread(found.model),
        lambda found: IndexedWords.of(found).items_with(np.arange(width(found))),
    )
    told = np.array([0, 0])
    for name, value in [(f"index.{n}", v) for n, values in CHANGES.items() for v in values] + [("model", 255)]:
        told += tried(ItemIndex.load, changed(whole, name, value, 3), *actions)
    assert (told > [40, 5]).all(), told
