"""Sums over Dask collections: the same as in memory, on any scheduler, also if a worker dies."""

import subprocess
import sys

import dask
import dask.array as da
import dask.sizeof
import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, Hierarchy, SketchMerger, WordMerger, WordMergerCV, distributed, merge_words
from bagwise.merging import Sketch, Statistics, merge_statistics
from helpers import topic_counts
from waiting import PATIENCE, Gate, until

CRITERIA = ["csm", "aib", "mlt"]
ROWS = 150
WORDS = 40


@pytest.fixture(scope="module")
def data():
    X, y = topic_counts(np.random.default_rng(0), ROWS, WORDS)
    X[:, [3, 8]] = 2.0
    return X, np.array(["cat", "dog"])[y]


def sparse_chunks(X):
    return X.map_blocks(sp.csr_array, meta=sp.csr_array((0, 0), dtype=X.dtype))


def collections(X, rows=37, columns=WORDS):
    """X as Dask arrays, dense and sparse."""
    chunked = da.from_array(X, chunks=(rows, columns))
    return [chunked, sparse_chunks(chunked)]


def same_bytes(one, other):
    """Whether two statistics are the same to the last bit."""
    names = ("class_sizes", "class_sums", "smallest", "largest", "whole", "stored", "deviations")
    grams = [part.gram.toarray() if sp.issparse(part.gram) else part.gram for part in (one, other)]
    return (
        one.classes.tolist() == other.classes.tolist()
        and all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names)
        and grams[0].tobytes() == grams[1].tobytes()
    )


def in_memory(X, y):
    classes, codes = np.unique(y, return_inverse=True)
    return Statistics.of(X, codes, len(classes), classes=classes)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize("columns", [WORDS, 17])
@pytest.mark.parametrize("rows", [1, 37, ROWS])
def test_statistics_are_those_of_the_whole(data, rows, columns, scheduler):
    X, y = data
    for chunked, whole in zip(collections(X, rows, columns), (X, sp.csr_array(X)), strict=True):
        total = distributed.statistics(chunked, y).compute(scheduler=scheduler)
        assert same_bytes(total, in_memory(whole, y))
        assert total.sparse == sp.issparse(whole)


def test_parts_of_the_statistics(data):
    X, y = data
    sums = np.array([X[y == name].sum(axis=0) for name in ("cat", "dog")])
    for chunked in collections(X, 37, 17):
        np.testing.assert_array_equal(distributed.class_sums(chunked, y).compute(), sums)
        np.testing.assert_array_equal(distributed.gram(chunked).compute(), X.T @ X)
        together = distributed.cooccurrence(chunked).compute()
        assert together.format == "csr"
        np.testing.assert_array_equal(together.toarray(), np.triu(X.T @ X))
        reverse = distributed.class_sums(chunked, y, classes=["dog", "cat"]).compute()
        np.testing.assert_array_equal(reverse, sums[::-1])


def test_nothing_is_computed_before_it_is_asked_for(data):
    _, y = data

    def fail(block):
        raise AssertionError("computed")

    X = da.zeros((ROWS, WORDS), chunks=(50, WORDS)).map_blocks(fail, dtype=float, meta=np.empty((0, 0)))
    labels = da.from_array(np.array(y), chunks=50).map_blocks(fail, dtype=y.dtype, meta=np.empty(0, dtype=y.dtype))
    lazy = [
        distributed.statistics(X, y),
        distributed.statistics(X, labels, classes=["cat", "dog"]),
        distributed.class_sums(X, y),
        distributed.gram(X),
        distributed.cooccurrence(X),
        distributed.sketch(X),
        WordMerger(5).fit(*data).transform(X),
    ]
    for result in lazy:
        with pytest.raises(AssertionError, match="computed"):
            result.compute(scheduler="synchronous")


def test_chunks_are_read_once_for_several_results(data):
    X, y = data
    read = []

    def note(block):
        read.append(len(block))
        return block

    chunked = da.from_array(X, chunks=(50, WORDS)).map_blocks(note, dtype=X.dtype, meta=np.empty((0, 0)))
    lazy = distributed.statistics(chunked, y, gram=False), distributed.sketch(chunked), distributed.gram(chunked)
    dask.compute(*lazy, scheduler="synchronous")
    assert read == [50, 50, 50]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", ["array", "dask", "column"])
def test_merging_equals_merging_in_memory(data, criterion, kind):
    X, y = data
    labels = {
        "array": y,
        "dask": da.from_array(y, chunks=20),
        "column": da.from_array(y[:, np.newaxis], chunks=(60, 1)),
    }[kind]
    for chunked, whole in zip(collections(X), (X, sp.csr_array(X)), strict=True):
        expected = merge_words(whole, y, criterion=criterion)
        assert merge_words(chunked, labels, criterion=criterion) == expected
        ours = WordMerger(7, criterion=criterion).fit(chunked, labels)
        theirs = WordMerger(7, criterion=criterion).fit(whole, y)
        assert ours.hierarchy_ == theirs.hierarchy_ == expected
        np.testing.assert_array_equal(ours.word_totals_, theirs.word_totals_)
        assert ours.n_features_in_ == WORDS
        assert ours.store_ == ("dense" if criterion == "csm" else None)
        np.testing.assert_array_equal(ours.get_feature_names_out(), theirs.get_feature_names_out())


@pytest.mark.parametrize("criterion", CRITERIA)
def test_histograms_are_merged_alike(data, criterion):
    X, y = data
    X = X / X.sum(axis=1, keepdims=True)
    for chunked, whole in zip(collections(X), (X, sp.csr_array(X)), strict=True):
        here, there = (merge_words(form, y, criterion=criterion) for form in (chunked, whole))
        np.testing.assert_allclose(here.scores, there.scores, rtol=1e-8, atol=1e-14)


def test_lists_of_delayed_chunks(data):
    X, y = data
    parts = [slice(0, 60), slice(60, 60), slice(60, 61), slice(61, ROWS)]
    chunks = [dask.delayed(sp.csr_matrix)(X[rows]) for rows in parts]
    labels = [y[rows] for rows in parts]
    lazy_labels = [dask.delayed(part) for part in labels]
    expected = in_memory(sp.csr_array(X), y)
    for given in (labels, lazy_labels):
        assert same_bytes(distributed.statistics(chunks, given).compute(), expected)
        assert merge_words(chunks, given, criterion="csm") == merge_statistics(expected, criterion="csm")
    assert WordMerger(5).fit(chunks, labels).n_features_in_ == WORDS
    np.testing.assert_array_equal(distributed.gram(chunks).compute(), X.T @ X)
    with pytest.raises(BagwiseError, match="y must be a list of 4 arrays of labels"):
        distributed.statistics(chunks, y)
    with pytest.raises(BagwiseError, match=r"Chunk 2 has 1 samples, but 89 labels"):
        distributed.statistics(chunks, [labels[0], labels[1], labels[3], labels[3]]).compute()
    with pytest.raises(BagwiseError, match="A sketch needs the position of each sample"):
        distributed.sketch(chunks)
    chunks[2] = dask.delayed(sp.csr_matrix)(X[60:61, :9])
    with pytest.raises(BagwiseError, match=r"Chunk 3 has 40 words, but chunk 2 has 9"):
        distributed.gram(chunks).compute()
    with pytest.raises(BagwiseError, match="got a ndarray as chunk 1"):
        distributed.gram([chunks[0], X])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_transforming_is_lazy_and_the_same(data, dtype, pooling):
    X, y = data
    merger = WordMerger(6, pooling=pooling).fit(X, y)
    expected = merger.transform(X.astype(dtype))
    for chunked in collections(X.astype(dtype), 37, 17):
        out = merger.transform(chunked)
        assert isinstance(out, da.Array)
        assert out.shape == (ROWS, 6)
        assert out.chunks == ((37, 37, 37, 37, 2), (6,))
        assert out.dtype == expected.dtype
        is_sparse = sp.issparse(chunked._meta)
        blocks = [block.compute() for block in out.to_delayed().ravel()]
        assert all(sp.issparse(block) == sp.issparse(out._meta) == is_sparse for block in blocks)
        assert all(block.dtype == out.dtype for block in blocks)
        found = np.vstack([block.toarray() if is_sparse else block for block in blocks])
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="features"):
        merger.transform(da.zeros((4, WORDS + 1), chunks=2))


def test_transforming_chunks_of_unknown_sizes(data):
    X, y = data
    chunked = da.from_array(X, chunks=(50, WORDS))
    some = chunked[chunked[:, 0] >= 0]
    assert np.isnan(some.shape[0])
    merger = WordMerger(6).fit(X, y)
    np.testing.assert_array_equal(merger.transform(some).compute(), merger.transform(X))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_sketches_are_those_of_the_stream(data, form):
    X, _ = data
    expected = Sketch(WORDS, 32, 5, seed=3).update(form(X))
    for rows in (20, ROWS):
        chunked = da.from_array(X, chunks=(rows, 17))
        chunked = sparse_chunks(chunked) if form is sp.csr_array else chunked
        assert distributed.sketch(chunked, size=32, n_hashes=5, seed=3).compute() == expected
    with pytest.raises(BagwiseError, match="size must be"):
        distributed.sketch(chunked, size=0)


@pytest.mark.parametrize("bipolar", [False, True])
def test_sketch_mergers_take_collections(data, bipolar):
    X, _ = data
    expected = SketchMerger(6, sketch_size=32, bipolar=bipolar).fit(X)
    for chunked in collections(X, 37, 17):
        merger = SketchMerger(6, sketch_size=32, bipolar=bipolar).fit(chunked)
        assert merger.sketch_ == expected.sketch_
        assert merger.n_features_in_ == WORDS
        np.testing.assert_array_equal(merger.labels_, expected.labels_)
        Z = merger.transform(chunked).compute()
        np.testing.assert_array_equal(Z.toarray() if sp.issparse(Z) else Z, expected.transform(X))
    with pytest.raises(BagwiseError, match="n_neighbors=3 needs the samples"):
        SketchMerger(6, n_neighbors=3).fit(chunked)


def test_schedulers_know_how_large_results_are(data):
    X, y = data
    for form, part in ((np.asarray, 8 * WORDS**2), (sp.csr_array, 12 * np.count_nonzero(np.triu(X.T @ X)))):
        assert dask.sizeof.sizeof(in_memory(form(X), y)) >= part
    assert dask.sizeof.sizeof(Sketch(WORDS, 32)) >= 4 * 32 * WORDS


def test_two_processes_give_the_same_bytes(data, client):
    X, y = data
    reals = X + np.random.default_rng(1).random(X.shape) + 1000
    for chunked, whole in zip(collections(X), (X, sp.csr_array(X)), strict=True):
        total = client.compute(distributed.statistics(chunked, y)).result(timeout=PATIENCE)
        assert same_bytes(total, in_memory(whole, y))
    lazy = distributed.statistics(collections(reals, 10)[0], y)
    results = [
        client.compute(lazy, workers=workers).result(timeout=PATIENCE) for workers in (None, None, _first(client))
    ]
    assert same_bytes(results[0], results[1])
    assert same_bytes(results[0], results[2])
    with client.as_current():
        assert merge_words(collections(X)[0], da.from_array(y, chunks=50)) == merge_words(X, y)


def _first(client):
    client.wait_for_workers(2, timeout=PATIENCE)  # what the client knows of its scheduler may be old on a busy machine
    return [min(client.nthreads())]


def test_a_lost_worker_changes_nothing(data, workers):
    X, y = data
    gate = Gate(5)

    def passing(block):
        gate()
        return block

    chunked = da.from_array(X, chunks=(10, WORDS)).map_blocks(passing, dtype=X.dtype, meta=np.empty((0, 0)))
    future = workers.client.compute(distributed.statistics(chunked, y))
    until(lambda: any(workers.client.has_what().values()))
    victim = next(address for address, keys in workers.client.has_what().items() if keys)
    workers.lose(victim)  # with what it holds
    assert future.status == "pending"
    gate.open()
    assert same_bytes(future.result(timeout=PATIENCE), in_memory(X, y))
    assert gate.n_came > ROWS // 10  # some chunks were read again


def test_errors_of_workers_arrive_readable(data, client):
    X, y = data
    broken = X.copy()
    broken[120, 5] = np.nan
    future = client.compute(distributed.statistics(collections(broken)[0], y))
    with pytest.raises(BagwiseError, match=r"Chunk 3 has nan in its row 9, word 5"):
        future.result(timeout=PATIENCE)


def test_a_chunk_too_large_for_a_worker(client):
    X = da.zeros((10_000, 20_000), chunks=(10_000, 20_000))
    with (
        client.as_current(),
        pytest.raises(BagwiseError, match=r"Chunk 0, 10000 samples.*1.60 GB.*limit of a worker divided by its threads"),
    ):
        distributed.class_sums(X, np.arange(10_000) % 2)
    sparse = X.map_blocks(lambda block: sp.csr_array((10_000, 20_000)), meta=sp.csr_array((0, 0)))
    future = client.compute(distributed.gram(sparse))  # found by the worker: the Gram does not fit
    with pytest.raises(BagwiseError, match=r"4 matrices of 20000 x 20000.*12.80 GB"):
        future.result(timeout=PATIENCE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(data, value):
    X, y = data
    broken = X.copy()
    broken[40, 6] = value
    for chunked in collections(broken, 37, 5):
        for lazy in (
            distributed.statistics(chunked, y),
            distributed.gram(chunked),
            distributed.cooccurrence(chunked),
            distributed.sketch(chunked),
        ):
            with pytest.raises(BagwiseError, match=rf"Chunk 1 has {value} in its row 3, word 6"):
                lazy.compute(scheduler="synchronous")


def test_bad_collections(data):
    X, y = data
    chunked = da.from_array(X, chunks=(50, WORDS))
    with pytest.raises(BagwiseError, match=r"unknown sizes.*compute_chunk_sizes"):
        distributed.statistics(chunked[chunked[:, 0] >= 0], y)
    with pytest.raises(BagwiseError, match="must have two dimensions"):
        distributed.gram(chunked[:, 0])
    with pytest.raises(BagwiseError, match=r"must be a Dask array .*got ndarray"):
        distributed.gram(X)
    with pytest.raises(BagwiseError, match="an empty list"):
        distributed.gram([])
    with pytest.raises(BagwiseError, match="must have samples and words"):
        distributed.gram(chunked[:0])
    lying = da.from_delayed(dask.delayed(X), shape=(ROWS, 11), dtype=float)
    with pytest.raises(BagwiseError, match="Chunk 0 has 40 words, but X has 11 by its metadata"):
        distributed.gram(lying).compute()
    words = da.from_array(np.array([["a", "b"]]), chunks=1)
    with pytest.raises(BagwiseError, match="must be numeric"):
        distributed.gram(words).compute()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_chunks_with_other_rows_than_declared(data, form):
    """Dask believes the shapes that it is told; sums over other rows would be wrong without a word."""
    X, y = data
    half = len(X) // 2
    shape = (half, X.shape[1])

    def declared(*parts):
        return da.concatenate([da.from_delayed(dask.delayed(form)(part), shape, float) for part in parts])

    honest, short = declared(X[:half], X[half:]), declared(X[:half], X[half:-1])
    found = f"Chunk 1 has {len(X) - half - 1} samples, but X says that it has {half}"
    merger = WordMerger(n_groups=2).fit(X, y)
    np.testing.assert_allclose(distributed.gram(honest).compute(), X.T @ X)
    for lazy in (
        distributed.gram(short),
        distributed.cooccurrence(short),
        distributed.statistics(short, y),
        distributed.class_sums(short, da.from_array(y, chunks=half)),
        distributed.sketch(short, size=8),
        merger.transform(short),
    ):
        with pytest.raises(BagwiseError, match=found):
            lazy.compute()


def test_bad_labels(data):
    X, y = data
    chunked = da.from_array(X, chunks=(50, WORDS))
    for labels in (y[:-1], da.from_array(y[:-1], chunks=50)):
        with pytest.raises(BagwiseError, match=r"one label for each of the 150 samples of X; got shape \(149,\)"):
            distributed.statistics(chunked, labels)
    unknown = da.from_array(y, chunks=50)
    with pytest.raises(BagwiseError, match="known chunk sizes"):
        distributed.statistics(chunked, unknown[unknown == unknown])
    with pytest.raises(BagwiseError, match="y is None"):
        distributed.statistics(chunked, None)
    for labels in (X[:, 0] + 0.5, da.from_array(X[:, 0] + 0.5, chunks=50)):
        with pytest.raises(BagwiseError, match="class labels"):
            distributed.statistics(chunked, labels)
    with pytest.raises(BagwiseError, match=r"label 'dog' \(chunk \d\), which is not one of `classes`"):
        distributed.class_sums(chunked, da.from_array(np.repeat("dog", ROWS), chunks=50), classes=["cat"]).compute()
    with pytest.raises(BagwiseError, match="y has labels of type <U3, but `classes` are int64"):
        distributed.class_sums(chunked, y, classes=[0, 1])
    with pytest.raises(BagwiseError, match="classes must be different names"):
        distributed.class_sums(chunked, y, classes=["cat", "cat"])


def test_what_chunks_are_not_enough_for(data):
    X, y = data
    chunked = da.from_array(X, chunks=(50, WORDS))
    for fit in (merge_words, lambda *a, **k: WordMerger(5, **k).fit(*a)):
        needs = r"'nda' needs the samples themselves.*'aib', 'clusters', 'csm' and 'mlt'"
        with pytest.raises(BagwiseError, match=needs):
            fit(chunked, y, criterion="nda")
        with pytest.raises(BagwiseError, match="kernel='chi2' needs the samples themselves"):
            fit(chunked, y, kernel="chi2")
        with pytest.raises(BagwiseError, match="store='sparse' needs the samples themselves"):
            fit(chunked, y, store="sparse")
        with pytest.raises(BagwiseError, match="'mmi' needs the samples themselves"):
            fit(chunked, None, criterion="mmi")
        with pytest.raises(BagwiseError, match="requires y to be passed, but the target y is None"):
            fit(chunked, None, criterion="aib")
        with pytest.raises(BagwiseError, match="at least two classes"):
            fit(chunked, np.zeros(ROWS, dtype=int))
    with pytest.raises(BagwiseError, match="4 matrices of 40 x 40"):
        merge_words(chunked, y, criterion="csm", memory_limit="20kB")
    with pytest.raises(BagwiseError, match=r"150 samples of 40 words takes 48.00 kB.*1.00 kB \(memory_limit\)"):
        distributed.class_sums(chunked.rechunk(ROWS), y, memory_limit="1kB")
    assert merge_words(chunked, y, n_groups=30, callback=lambda *_: False).min_groups == 30


def test_a_failed_fit_leaves_nothing_of_an_earlier_one(data):
    X, y = data
    merger = WordMerger(5).fit(X, y)
    with pytest.raises(BagwiseError):
        merger.fit(da.from_array(np.full_like(X, np.nan), chunks=50), y)
    assert not hasattr(merger, "hierarchy_")


def test_without_dask(monkeypatch, data):
    X, y = data
    chunked = da.from_array(X, chunks=(50, WORDS))
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(BagwiseError, match=r'pip install "bagwise\[dask\]"'):
        distributed.statistics(chunked, y)


def test_dask_is_not_imported_for_data_in_memory():
    code = (
        "import sys, numpy as np, bagwise, bagwise.distributed\n"
        "X, y = np.arange(12).reshape(4, 3) % 5, [0, 1, 0, 1]\n"
        "bagwise.WordMerger(2).fit(X, y).transform(X)\n"
        "assert not {'dask', 'distributed'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_hierarchies_from_a_cluster_can_be_saved(data, tmp_path):
    X, y = data
    hierarchy = merge_words(da.from_array(X, chunks=60), y)
    assert Hierarchy.load(hierarchy.save(tmp_path / "h")) == hierarchy


def test_sketch_mergers_go_on_with_collections(data):
    X, _ = data
    expected = SketchMerger(6, sketch_size=32).fit(X)
    for chunked in collections(X, 37, 17):
        read = SketchMerger(6, sketch_size=32).partial_fit(chunked[:50]).partial_fit(X[50:90]).partial_fit(chunked[90:])
        assert read.sketch_ == expected.sketch_
        assert read.n_features_in_ == WORDS
        np.testing.assert_array_equal(read.labels_, expected.labels_)
    with pytest.raises(ValueError, match="39 features, but SketchMerger is expecting 40"):
        read.partial_fit(chunked[:, 1:])
    with pytest.raises(BagwiseError, match="needs the position of each sample"):
        read.partial_fit([dask.delayed(X)])
    near = SketchMerger(6, sketch_size=32, n_neighbors=2, n_intermediate=5).fit(X).set_params(n_neighbors=0)
    unread = da.from_delayed(dask.delayed(pytest.fail)("was read"), shape=X.shape, dtype=float)
    with pytest.raises(BagwiseError, match="holds sums over neighbours"):
        near.partial_fit(unread)


def test_a_collection_is_not_loaded_by_cross_validation(data):
    X, y = data
    unread = da.from_delayed(dask.delayed(pytest.fail)("was read"), shape=X.shape, dtype=float)
    with pytest.raises(BagwiseError, match="Cross-validation needs the samples in memory"):
        WordMergerCV([2, 4]).fit(unread, y)
    search = WordMergerCV([2, 4], cv=2).fit(X, y)
    lazy = search.transform(da.from_array(X, chunks=(50, WORDS)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), search.transform(X))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_transforming_numbers_that_are_none(data, dtype):
    X, y = data
    merger = WordMerger(6).fit(X, y)
    broken = X.astype(dtype)
    broken[40, 6] = np.nan
    for chunked in collections(broken, 37, 5):
        with pytest.raises(BagwiseError, match="Chunk 1 has nan in its row 3, word 6"):
            merger.transform(chunked).compute(scheduler="synchronous")


def test_what_transform_does_not_take(data):
    X, y = data
    merger = WordMerger(4).fit([dask.delayed(X)], [y])
    for chunks, got in (([dask.delayed(X)], "a list"), (dask.delayed(X), "a Delayed")):
        with pytest.raises(BagwiseError, match=rf"transform takes a Dask array .* or one chunk .*got {got}"):
            merger.transform(chunks)
    with pytest.raises(BagwiseError, match=r"got a Dask array of shape \(150,\)"):
        merger.transform(da.from_array(X[:, 0], chunks=50))
    with pytest.raises(BagwiseError, match=r"must be a Dask array or a list of dask.delayed chunks; got Delayed"):
        merger.fit(dask.delayed(X), y)
    with pytest.raises(
        BagwiseError, match=r"y must be an array or a Dask array with known chunk sizes; got Delayed\w*\. "
    ):
        merger.fit(da.from_array(X, chunks=50), dask.delayed(y))
    with pytest.raises(BagwiseError, match=r"y must be a list of 1 arrays of labels .*got Delayed\w*\."):
        merger.fit([dask.delayed(X)], dask.delayed(y))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_lists_of_which_some_chunks_are_lazy(data, form):
    X, y = data
    mixed = [form(X[:20]), dask.delayed(X[20:])]
    for chunks, number in ((mixed, 0), (mixed[::-1], 1)):
        with pytest.raises(BagwiseError, match=rf"dask.delayed objects only; got a \w+ as chunk {number}"):
            merge_words(chunks, [y[:20], y[20:]])
    assert merge_words(list(X), y) == merge_words(X, y)  # rows in memory are what they were


def test_labels_of_several_types(data):
    X, y = data
    chunked = da.from_array(X, chunks=(50, WORDS))
    mixed = y.astype(object)
    mixed[60:] = None
    mixed[120] = "cat"
    lazily = da.from_array(mixed, chunks=50)
    for labels, classes in ((mixed, None), (lazily, None), (mixed, ["cat", "dog"]), (lazily, ["cat", "dog"])):
        with pytest.raises(BagwiseError, match="all numbers or all strings; got NoneType and str"):
            distributed.statistics(chunked, labels, classes=classes).compute()
    with pytest.raises(BagwiseError, match="all numbers or all strings; got NoneType and str"):
        WordMerger(3).fit(chunked, mixed)
    with pytest.raises(BagwiseError, match="all numbers or all strings"):
        distributed.statistics(chunked, y, classes=np.array(["cat", 3], dtype=object))


def test_sums_of_sketches_that_are_too_large():
    P = da.from_array(np.full((600, 2), [3e37, 1.0]), chunks=(10, 2))
    with pytest.raises(BagwiseError, match="too large for sums in float32"):
        distributed.sketch(P, size=1, n_hashes=1).compute()
