"""Dense rows compared by an array module: NumPy always, CuPy where there is a device."""

import gc
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from bagwise import BagIndex, BagwiseError
from bagwise._utils.devices import to_device, to_host
from bagwise.gpu import retrieval as on_device
from bagwise.gpu.retrieval import kth_smallest
from bagwise.retrieval import screening
from bagwise.retrieval.blocks import DenseBlock, make_block
from bagwise.retrieval.histograms import METRICS, Queries, prepare


@pytest.fixture(params=["host", "device"])
def place(request, xp):
    """The host, and what a device does by the functions of an array module."""
    if request.param == "host":
        return screening
    return SimpleNamespace(possible_items=partial(on_device.array_possible_items, xp))


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


@pytest.mark.parametrize("k", [1, 10, 296])
@pytest.mark.parametrize("spread", ["counts", "clusters", "sizes", "equal", "zero"])
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_bounds_lose_no_item(place, metric, spread, k):
    """Dense rows are first compared in float32; what is found is what comparing all in float64 finds, bit for bit."""
    rng, metric = np.random.default_rng(0), METRICS[metric]
    rows = {
        "counts": lambda: histograms(300),
        "clusters": lambda: rng.gamma(2.0, size=(300, 40)) * rng.gamma(0.3, size=(12, 40))[rng.integers(12, size=300)],
        "sizes": lambda: 10.0 ** rng.uniform(-38, 36, (300, 40)) * (rng.random((300, 40)) < 0.8),
        "equal": lambda: np.ones((300, 5)),
        "zero": lambda: np.zeros((300, 5)),
    }[spread]()
    rows = prepare(rows, metric, None)
    queries = Queries.of(np.concatenate([rows[:8], rows[8:16] * np.float32(1.5)]), metric)
    block, (keys, items) = DenseBlock(metric.totals(rows), rows), (np.empty((12, k)), np.empty((12, k), dtype=np.int64))
    block.search(place, queries, 4, keys, items)
    exact = np.empty(12 * 300)
    bounds = np.stack([np.arange(12) * 300, np.arange(1, 13) * 300], axis=1)
    block.keys(queries, 4, bounds, np.tile(np.arange(300), 12), exact)
    expected = np.argsort(exact.reshape(12, 300), axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(items, expected)
    np.testing.assert_array_equal(keys, np.take_along_axis(exact.reshape(12, 300), expected, axis=1))


def test_bounds_leave_most_items_out():
    rng = np.random.default_rng(0)
    for metric in METRICS.values():
        rows = prepare(rng.gamma(0.3, size=(300, 40)), metric, None)
        totals = metric.totals(rows)
        block = DenseBlock(totals, rows)
        bounds, _ = screening.possible_items(block, Queries.of(rows[:9], metric), 0, 9, 5)
        assert np.diff(bounds, axis=1).max() < 8


def test_numbers_that_overflow_in_float32_are_compared_in_float64(place):
    rows = np.full((4, 3), 1e25, np.float32) * np.arange(1, 5, dtype=np.float32)[:, None]
    metric = METRICS["euclidean"]
    block, queries = make_block([rows], metric), Queries.of(np.tile(rows[2:3] * np.float32(1.01), (5, 1)), metric)
    keys, items = np.empty((5, 2)), np.empty((5, 2), dtype=np.int64)
    block.search(place, queries, 0, keys, items)
    assert items.tolist() == [[2, 3]] * 5


@pytest.mark.cuda
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_an_index_on_a_device(metric, monkeypatch):
    monkeypatch.setattr("bagwise.gpu.retrieval._PAIRS", 5000)
    there, here = BagIndex(metric, device="cuda", normalize="l1"), BagIndex(metric, normalize="l1")
    for index in (there, here):
        index.add(histograms(900)).remove(np.arange(10, 60)).add(histograms(200, seed=2))
    for k in (1, 20):
        for ours, theirs in zip(
            there.search(histograms(99, seed=3), k), here.search(histograms(99, seed=3), k), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.cuda
def test_copies_on_a_device_live_as_long_as_their_block():
    block = make_block([prepare(histograms(5), METRICS["chi2"], None)], METRICS["chi2"])
    on_device.possible_items(block, Queries.of(block.values, METRICS["chi2"]), 0, 5, 2)
    assert block in on_device._HELD
    del block
    gc.collect()
    assert not on_device._HELD


def test_other_devices_are_refused():
    with pytest.raises(BagwiseError, match="device must be 'cpu', 'cuda' or None"):
        BagIndex(device="tpu")
