"""Dense rows compared by an array module: NumPy always, CuPy where there is a device."""

import pickle

import numpy as np
import pytest

from bagwise import BagIndex, BagwiseError
from bagwise._utils.devices import to_device, to_host
from bagwise.retrieval._kernels import screen_chi2
from bagwise.retrieval.blocks import DenseBlock, make_block
from bagwise.retrieval.histograms import METRICS, Queries, prepare
from bagwise.retrieval.screening import kth_smallest, relative_error, root_products

CHI2 = METRICS["chi2"]


def histograms(n, d=23, seed=0):
    """Small counts, many of them equal, some rows twice."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 4, (n, d)).astype(np.float64) + 0.25 * rng.random((n, 1))
    rows[n // 2 :: 3] = rows[0]
    return rows


@pytest.mark.parametrize("k", [1, 3, 300])
def test_the_kth_smallest_number_of_each_row(xp, k):
    rng = np.random.default_rng(k)
    values = np.round(rng.normal(size=(40, 300)), 1)
    values[rng.random(values.shape) < 0.1] = np.inf
    values[rng.random(values.shape) < 0.1] = -np.inf
    values[5] = -0.0
    np.testing.assert_array_equal(
        to_host(kth_smallest(xp, to_device(values, xp), k)), np.sort(values, axis=1)[:, k - 1]
    )


@pytest.mark.parametrize("removed", [[], [0, 7, 8, 299]])
@pytest.mark.parametrize("k", [1, 10, 296])
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_the_same_items_and_keys_to_the_last_bit(xp, metric, k, removed):
    rows = prepare(histograms(300), METRICS[metric], None)
    queries = Queries.of(prepare(histograms(50, seed=1), METRICS[metric], None), METRICS[metric])
    block, removed = make_block([rows], METRICS[metric]), np.array(removed, dtype=np.int64)
    expected, found = ((np.empty((45, k)), np.empty((45, k), dtype=np.int64)) for _ in range(2))
    block.search(queries, 5, *expected, removed)
    block.search_by(xp, queries, 5, *found, removed)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("spread", ["clusters", "sizes", "equal", "zero"])
def test_bounds_by_square_roots_lose_no_item(spread, monkeypatch):
    """Chi² of most items is bounded by products of square roots; the rest is the same to the last bit."""
    rng, removed = np.random.default_rng(0), np.array([0, 3, 250], np.int64)
    rows = rng.gamma(2.0, size=(300, 40)) * rng.gamma(0.3, size=(12, 40))[rng.integers(12, size=300)]
    if spread == "sizes":
        rows = 10.0 ** rng.uniform(-38, 36, rows.shape) * (rng.random(rows.shape) < 0.8)
    rows = prepare(rows if spread in ("clusters", "sizes") else np.full_like(rows, spread == "equal"), CHI2, None)
    block = DenseBlock(CHI2.totals(rows), rows)
    queries, found = Queries.of(np.concatenate([rows[:8], rows[:8] * np.float32(1.5)]), CHI2), []
    for least in (16, 17):
        monkeypatch.setattr("bagwise.retrieval.blocks._ROOTED_QUERIES", least)
        found.append((np.empty((16, 7)), np.empty((16, 7), dtype=np.int64)))
        block.search(queries, 0, *found[-1], removed)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    dense, relative = queries.dense(0, 16), relative_error(40)
    about = root_products(dense, rows)
    screen_chi2(relative, dense, queries.totals, rows, block.totals, 7, removed, about)
    n_left_out = (about < 0).sum(axis=1)
    assert (n_left_out == len(removed)).all() if spread == "equal" else (n_left_out >= len(removed)).all()
    assert spread != "clusters" or n_left_out.mean() > 150


def test_numbers_that_overflow_in_float32_are_compared_in_float64(xp):
    rows = np.full((4, 3), 1e25, np.float32) * np.arange(1, 5, dtype=np.float32)[:, None]
    metric = METRICS["euclidean"]
    block, queries = make_block([rows], metric), Queries.of(rows[2:3] * np.float32(1.01), metric)
    keys, items = np.empty((1, 2)), np.empty((1, 2), dtype=np.int64)
    block.search_by(xp, queries, 0, keys, items, np.empty(0, np.int64))
    assert items.tolist() == [[2, 3]]


@pytest.mark.cuda
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_an_index_on_a_device(metric, monkeypatch):
    monkeypatch.setattr("bagwise.retrieval.store._DEVICE_NUMBERS", 5000)
    there, here = BagIndex(metric, device="cuda", normalize="l1"), BagIndex(metric, normalize="l1")
    for index in (there, here):
        index.add(histograms(900)).remove(np.arange(10, 60)).add(histograms(200, seed=2))
    for k in (1, 20):
        for ours, theirs in zip(
            there.search(histograms(99, seed=3), k), here.search(histograms(99, seed=3), k), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_copies_on_a_device_are_not_pickled():
    block = make_block([prepare(histograms(5), METRICS["chi2"], None)], METRICS["chi2"])
    size = len(pickle.dumps(block))
    vars(block)["_on_device"] = (np.ones(10_000),) * 2  # as after a search
    again = pickle.loads(pickle.dumps(block))
    assert len(pickle.dumps(block)) == size
    np.testing.assert_array_equal(again.values, block.values)


def test_other_devices_are_refused():
    with pytest.raises(BagwiseError, match="device must be 'cpu', 'cuda' or None"):
        BagIndex(device="tpu")
