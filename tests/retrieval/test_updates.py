"""`BagIndex` while items come and go one by one: it is always the index of what is left, in few blocks."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagIndex
from bagwise.retrieval import bag_index, store
from bagwise.retrieval.histograms import METRICS

N_WORDS = 12
QUERIES = np.random.default_rng(7).integers(0, 4, (6, N_WORDS)).astype(np.float32)


def same(found, expected):
    np.testing.assert_array_equal(found[1], expected[1])
    assert found[0].tobytes() == expected[0].tobytes()


class Updates:
    """A random sequence of additions and removals, and what is there after each."""

    def __init__(self, metric, density, seed=0, **parameters):
        self.random = np.random.default_rng(seed)
        self.metric, self.density = metric, density
        self.index = BagIndex(metric, **parameters)
        self.rows = {}  # by id, in the order of adding
        self.number = itertools.count()

    def step(self, growing):
        """Add or remove some items, one in most cases."""
        many = int(self.random.choice([1, 1, 1, 1, 1, 9]))
        if not self.rows or self.random.random() < (0.6 if growing else 0.4):
            X = self.random.integers(0, 5, (many, N_WORDS)) * (self.random.random((many, N_WORDS)) < self.density)
            X = X.astype(np.float32)
            ids = [f"item {next(self.number)}" for _ in range(many)]
            self.index.add(sp.csr_array(X) if self.random.random() < 0.5 else X, ids)
            self.rows |= dict(zip(ids, X, strict=True))
        else:
            gone = self.random.choice(list(self.rows), size=min(many, len(self.rows)), replace=False).tolist()
            self.index.remove(gone)
            for one in gone:
                del self.rows[one]

    def check(self):
        """Compare with an index of what is left that was built anew."""
        assert self.index.ids.tolist() == list(self.rows)
        if self.rows:
            fresh = BagIndex(self.metric).add(np.array(list(self.rows.values())), list(self.rows))
            for Q in (QUERIES, QUERIES[:1]):  # compiled code, and NumPy
                same(self.index.search(Q, 5), fresh.search(Q, 5))


@pytest.fixture
def small_blocks(monkeypatch):
    """Make blocks so small that they are filled, joined and written anew."""
    monkeypatch.setattr(store, "BLOCK_ITEMS", 60)
    monkeypatch.setattr(bag_index, "BLOCK_ITEMS", 60)


@pytest.mark.parametrize("density", [0.2, 1.0])  # inverted lists, dense rows
@pytest.mark.parametrize("metric", METRICS)
def test_an_index_is_that_of_the_items_left(tmp_path, small_blocks, metric, density):
    one = Updates(metric, density)
    largest = 0
    for number in range(300):
        one.step(growing=number < 200)
        state = one.index._state
        largest = max(largest, 0 if state is None else len(state.store.blocks))
        if number % 23 == 0:
            one.check()
        if number % 90 == 89:
            path = one.index.save(tmp_path / "index")
            one.index = BagIndex.load(path, mmap=number % 180 == 89)
        assert state is None or sum(rows.shape[0] for rows in state.new) < 60
    one.check()
    assert largest > 2


def test_the_same_sequence_gives_the_same_bytes(tmp_path, small_blocks):
    paths = []
    for name in ("one", "other"):
        run = Updates("chi2", 0.3, n_jobs=1 if name == "one" else 2)
        for number in range(120):
            run.step(growing=True)
            if number % 10 == 0 and run.rows:
                run.index.search(QUERIES, 1)
        paths.append(run.index.save(tmp_path / name))
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_candidates_follow_when_items_come_and_go(small_blocks):
    pytest.importorskip("faiss")
    for metric, structure in (("chi2", "flat"), ("intersection", "ivf")):
        one = Updates(metric, 0.4, method="approximate", structure=structure, n_candidates=500, n_probe=10**6)
        for number in range(120):
            one.step(growing=number < 80)
            if number % 9 == 0:
                one.check()


def test_items_that_come_one_by_one_are_written_few_times(monkeypatch):
    """Each item is written about log n times, whether a search follows each addition or none does."""
    monkeypatch.setattr(store, "BLOCK_ITEMS", 256)
    monkeypatch.setattr(bag_index, "BLOCK_ITEMS", 256)
    written, make_block = [], store.make_block

    def counted(parts, metric):
        written.append(sum(part.shape[0] for part in parts))
        return make_block(parts, metric)

    monkeypatch.setattr(store, "make_block", counted)
    n_items, rows = 600, np.eye(6, dtype=np.float32)
    for searched in (True, False):
        written.clear()
        index = BagIndex("inner")
        for number in range(n_items):
            index.add(rows[[number % 6]])
            if searched:
                index.search(rows[:1], 1)
                assert len(index.blocks()) <= 2 * len(index) / 256 + np.log2(256) + 2
        assert sum(written) <= n_items * (1.5 * np.log2(256) if searched else 1)


def test_only_blocks_that_lose_items_are_written_anew(monkeypatch):
    monkeypatch.setattr(store, "BLOCK_ITEMS", 100)
    index = BagIndex("inner").add(np.eye(500, dtype=np.float32))
    before = index.blocks()
    copied = index.copy()
    index.remove([120, 130, *range(200, 300)])
    after = index.blocks()
    assert [len(block) for block in after] == [100, 98, 100, 100]
    assert [block in before for block in after] == [True, False, True, True]
    assert copied.blocks() == before
    assert len(copied) == 500


def test_an_index_that_was_emptied_goes_on():
    index = BagIndex("inner").add(np.eye(3), list("abc"))
    index.search(np.eye(3), 1)
    index.remove(list("abc")).add(np.eye(3)[1:], [7, 8]).remove([7])
    assert index.search(np.eye(3), 1)[1].tolist() == [[8]] * 3
    index.add(np.eye(3)[:1])
    assert index.ids.tolist() == [8, 9]
