"""`BagIndex`: what is found is what comparing with every item finds, however items came and are kept."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import additive_chi2_kernel

from bagwise import BagIndex, BagwiseError
from bagwise.kernels import additive_kernel
from bagwise.retrieval.histograms import BLOCK_ITEMS, METRICS, Metric


def all_scores(metric, Q, X):
    """The metrics by their definitions, pair by pair."""
    Q, X = Q.astype(float)[:, None], X.astype(float)[None]
    if metric == "chi2":
        return ((Q - X) ** 2 / np.where(Q + X > 0, Q + X, 1)).sum(axis=2)
    if metric == "euclidean":
        return np.sqrt(((Q - X) ** 2).sum(axis=2))
    if metric == "intersection":
        return np.minimum(Q, X).sum(axis=2)
    return (np.sqrt(Q * X) if metric == "hellinger" else Q * X).sum(axis=2)


def assert_nearest(metric, Q, X, k, ids, scores):
    """Scores are those of the items named, and no item that is not named is nearer; whole ties in order of adding."""
    everything = all_scores(metric, Q, X)
    scale = 1 + np.abs(everything).max(initial=0)
    rtol = 1e-6 if metric in ("hellinger", "euclidean") else 1e-12
    assert ids.shape == scores.shape == (len(Q), min(k, len(X)))
    np.testing.assert_allclose(scores, np.take_along_axis(everything, ids, axis=1), atol=rtol * scale)
    sign = -1 if METRICS[metric].larger_is_nearer else 1
    best = np.sort(sign * everything, axis=1)[:, :k]
    np.testing.assert_allclose(sign * scores, best, atol=rtol * scale)
    assert (np.diff(sign * scores, axis=1) >= 0).all()
    tied = np.diff(scores, axis=1) == 0
    if metric == "euclidean":  # different squares may have the same root
        tied &= (X[ids[:, 1:]] == X[ids[:, :-1]]).all(axis=2)
    assert (np.diff(ids, axis=1)[tied] > 0).all()
    assert all(len(set(row)) == len(row) for row in ids.tolist())


@st.composite
def searches(draw):
    """Small items and queries of many kinds: ties, empty ones, duplicates, reals, frequencies, dense and sparse."""
    n, n_queries, d = draw(st.integers(1, 40)), draw(st.integers(0, 5)), draw(st.integers(1, 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = n + n_queries
    X = {
        "counts": lambda: rng.integers(0, 3, (rows, d)),
        "sparse": lambda: rng.integers(1, 9, (rows, d)) * (rng.random((rows, d)) < 0.1),
        "real": lambda: rng.random((rows, d)),
        "frequencies": lambda: rng.dirichlet(np.full(d, 0.3), size=rows),
        "equal": lambda: np.ones((rows, d)),
        "zero": lambda: np.zeros((rows, d)),
        "wide": lambda: 10.0 ** rng.integers(-30, 30, (rows, d)) * (rng.random((rows, d)) < 0.7),
    }[draw(st.sampled_from(["counts", "sparse", "real", "frequencies", "equal", "zero", "wide"]))]()
    X = X.astype(np.float32)
    X[rng.random(rows) < 0.2] = X[0]
    return X[:n], X[n:], draw(st.integers(1, n + 2))


@given(searches(), st.sampled_from(sorted(METRICS)))
def test_found_is_what_comparing_with_all_finds(data, metric):
    X, Q, k = data
    scores, ids = BagIndex(metric).add(X).search(Q, k)
    assert_nearest(metric, Q, X, k, ids, scores)


@given(searches(), st.sampled_from(["euclidean", "inner"]), st.integers(0, 2**32 - 1))
def test_negative_numbers_are_compared_as_well(data, metric, seed):
    X, Q, k = data
    signs = np.random.default_rng(seed).choice([-1, 1], size=X.shape[1])
    X, Q = np.clip(X, -1e9, 1e9) * signs, np.clip(Q, -1e9, 1e9) * -signs
    scores, ids = BagIndex(metric).add(X).search(Q, k)
    assert_nearest(metric, Q, X, k, ids, scores)


def same(found, expected):
    np.testing.assert_array_equal(found[1], expected[1])
    assert found[0].tobytes() == expected[0].tobytes()


@given(searches(), st.sampled_from(sorted(METRICS)), st.data())
def test_results_do_not_depend_on_how_items_came_or_are_kept(data, metric, draw):
    X, Q, k = data
    normalize = draw.draw(st.sampled_from([None, "l1", "l2"]))
    expected = BagIndex(metric, normalize=normalize).add(X).search(Q, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bagwise.retrieval.store.BLOCK_ITEMS", draw.draw(st.integers(1, 20)))
        patch.setattr("bagwise.retrieval.blocks._DENSE_FRACTION", draw.draw(st.sampled_from([-1.0, 0.4, 2.0])))
        patch.setattr("bagwise.retrieval.blocks._DENSE_NUMBERS", draw.draw(st.sampled_from([1, 200])))
        patch.setattr("bagwise.retrieval.store._RESULTS", draw.draw(st.sampled_from([1, 50])))
        patch.setattr("bagwise.retrieval.bag_index._QUERIES", draw.draw(st.integers(1, 4)))
        index = BagIndex(metric, normalize=normalize, n_jobs=draw.draw(st.integers(1, 3)))
        cuts = sorted(draw.draw(st.lists(st.integers(0, len(X)), max_size=3)))
        for part in np.split(X, cuts):
            index.add(sp.csr_array(part) if draw.draw(st.booleans()) else part)
            if draw.draw(st.booleans()) and len(index):
                index.search(Q, 1)  # what was added so far is put into blocks
        same(index.search(sp.csr_matrix(Q) if draw.draw(st.booleans()) else Q.astype(float), k), expected)
        one_by_one = [index.search(row[None], k) for row in Q]
    if one_by_one:
        same([np.concatenate(parts) for parts in zip(*one_by_one, strict=True)], expected)


@given(searches(), st.sampled_from(sorted(METRICS)), st.sampled_from(["exact", "approximate"]), st.data())
def test_removed_items_were_never_there(data, metric, method, draw):
    X, Q, k = data
    more = np.concatenate([X, X[::-1]])
    names = np.array([f"item {i}" for i in range(len(more))], dtype=object)
    gone = np.zeros(len(more), dtype=bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bagwise.retrieval.store.BLOCK_ITEMS", draw.draw(st.integers(1, 20)))
        index = BagIndex(metric, method=method, n_candidates=100).add(more, names)
        for _ in range(2):
            if draw.draw(st.booleans()) and len(index):
                index.search(Q, 1)
            now = ~gone & draw.draw(st.lists(st.booleans(), min_size=len(more), max_size=len(more)).map(np.array))
            index.remove(names[now])
            gone |= now
        assert len(index) == (~gone).sum()
        assert index.ids.tolist() == names[~gone].tolist()
        if gone.all():
            with pytest.raises(BagwiseError, match="index is empty"):
                index.search(Q)
            index.add(more, names)
            gone[:] = False
        same(index.search(Q, k), BagIndex(metric).add(more[~gone], names[~gone]).search(Q, k))
        again = index.add(more[gone], names[gone]).search(Q, k)
        order = np.concatenate([np.flatnonzero(~gone), np.flatnonzero(gone)])
        same(again, BagIndex(metric).add(more[order], names[order]).search(Q, k))


def test_scores_are_those_of_the_kernels():
    rng = np.random.default_rng(0)
    X, Q = rng.integers(0, 9, (30, 20)) * (rng.random((30, 20)) < 0.5), rng.integers(0, 9, (4, 20))
    for metric, expected in {
        "chi2": -additive_chi2_kernel(Q, X),
        "intersection": additive_kernel(Q, X, "intersection"),
        "hellinger": additive_kernel(Q, X, "hellinger"),
        "inner": additive_kernel(Q, X, "linear"),
    }.items():
        scores, ids = BagIndex(metric).add(X).search(Q, 30)
        np.testing.assert_allclose(scores, np.take_along_axis(expected, ids, axis=1), rtol=1e-7)
    totals = Q.sum(axis=1, keepdims=True) + X.sum(axis=1)
    np.testing.assert_allclose(-additive_chi2_kernel(Q, X), totals - 2 * additive_kernel(Q, X, "chi2"))


@pytest.mark.parametrize("metric", ["chi2", "euclidean"])
@pytest.mark.parametrize("density", [0.05, 1.0])
def test_an_item_is_at_no_distance_from_itself(metric, density):
    rng = np.random.default_rng(0)
    X = rng.random((200, 300)) * (rng.random((200, 300)) < density)
    scores, ids = BagIndex(metric, normalize="l1").add(X).search(X, 1)
    np.testing.assert_array_equal(ids[:, 0], np.arange(200))
    np.testing.assert_array_equal(scores, 0)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_normalizing_is_scaling_first(norm):
    rng = np.random.default_rng(0)
    X, Q = rng.random((20, 6)), rng.random((3, 6))
    scaled = [A / np.linalg.norm(A, 1 if norm == "l1" else 2, axis=1, keepdims=True) for A in (X, Q)]
    scores, ids = BagIndex("inner", normalize=norm).add(X).search(Q)
    expected, expected_ids = BagIndex("inner").add(scaled[0]).search(scaled[1])
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_far_from_the_origin_dense_rows_are_still_told_apart():
    rng = np.random.default_rng(0)
    X = (10_000 + rng.random((300, 50))).astype(np.float32)
    Q = (10_000 + rng.random((20, 50))).astype(np.float32)
    _, ids = BagIndex("euclidean").add(X).search(Q, 5)
    expected = np.argsort(all_scores("euclidean", Q, X), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(ids, expected)


def test_items_are_numbered_on():
    index = BagIndex("inner")
    assert (len(index), index.n_words, index.ids.tolist()) == (0, None, [])
    index.add(np.eye(3)).add(np.eye(3)[:2])
    assert (len(index), index.n_words, index.ids.tolist()) == (5, 3, [0, 1, 2, 3, 4])
    index.remove([4, 0]).add(np.eye(3)[:1])
    assert index.ids.tolist() == [1, 2, 3, 5]
    index.add(np.eye(3)[:1], ids=[-7]).add(np.eye(3)[:1], ids=np.array([90], dtype=np.uint8)).add(np.eye(3)[1:])
    assert index.ids.tolist() == [1, 2, 3, 5, -7, 90, 91, 92]
    assert index.search(np.eye(3)[:1], 3)[1].tolist() == [[3, 5, -7]]
    assert repr(index) == "<BagIndex: 8 items, 3 words, exact inner>"


def test_what_was_given_is_not_changed():
    X = sp.csr_array(([1.0, 2.0, 0.0, 3.0], ([0, 0, 1, 1], [1, 1, 0, 2])), shape=(2, 3))
    unsorted = sp.csr_array((np.array([2.0, 1.0, 1.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    before = [(A.data.copy(), A.indices.copy(), A.indptr.copy()) for A in (X, unsorted)]
    index = BagIndex("hellinger", normalize="l1").add(X).add(unsorted)
    index.search(unsorted)
    for A, arrays in zip((X, unsorted), before, strict=True):
        for now, then in zip((A.data, A.indices, A.indptr), arrays, strict=True):
            np.testing.assert_array_equal(now, then)
    dense = np.eye(3)
    index = BagIndex("inner").add(dense)
    dense[:] = 7  # the index has its own
    assert index.search(np.eye(3), 1)[0].tolist() == [[1.0]] * 3


def test_k_is_cut_to_what_is_there():
    index = BagIndex("inner").add(np.eye(3))
    scores, ids = index.search(np.eye(3)[:2], k=50)
    assert ids.shape == scores.shape == (2, 3)
    assert index.search(np.empty((0, 3)))[0].shape == (0, 3)


def index_of(metric="chi2", ids=None, **parameters):
    return BagIndex(metric, **parameters).add(np.eye(4), ids)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BagIndex("chi"), "Unknown metric: 'chi'. Did you mean 'chi2'"),
        (lambda: BagIndex(method="fast"), "Unknown method: 'fast'"),
        (lambda: BagIndex(structure="tree"), "Unknown structure: 'tree'"),
        (lambda: BagIndex(normalize="max"), "Unknown normalize: 'max'.*or None"),
        (lambda: BagIndex(n_candidates=0), "n_candidates must be at least 1, got 0"),
        (lambda: BagIndex(n_probe=1.5), "n_probe must be an integer, got 1.5"),
        (lambda: BagIndex().search([[1]]), "index is empty"),
        (lambda: index_of().search(np.eye(4), 0), "k must be at least 1, got 0"),
        (lambda: index_of().search(np.eye(4), 2.0), "k must be an integer, got 2.0"),
        (lambda: index_of().search(np.eye(5)), "Queries have 5 words, but this index 4"),
        (lambda: index_of().add(np.eye(3)), "Histograms have 3 words, but this index 4"),
        (lambda: index_of().search([1, 0, 0, 0]), r"Queries must be a matrix.*Give a single one as \[histogram\]"),
        (lambda: index_of().search("a cat"), "Queries must be a matrix"),
        (lambda: index_of().search([["a", "b", "c", "d"]]), "Queries must be real numbers.*BagOfFeatures"),
        (lambda: index_of().search([[1, 2], [3]]), "rows that differ in length"),
        (lambda: index_of().search(1j * np.eye(4)), "Queries must be real numbers.*complex"),
        (lambda: index_of().search([[1, np.nan, 0, 0]]), "Queries must be finite, but row 0, word 1 is nan"),
        (lambda: index_of().add(sp.csr_array([[0, 0, np.inf, 0]])), "Histograms must be finite.*word 2 is inf"),
        (lambda: index_of().add(-np.eye(4)), "metric 'chi2' needs non-negative data, but sample 0, word 0 is -1"),
        (lambda: index_of("hellinger").search(-sp.csr_array(np.eye(4))), "metric 'hellinger' needs non-negative"),
        (lambda: index_of("intersection").search(-np.eye(4)), "metric 'intersection' needs non-negative"),
        (lambda: index_of("inner").add(1e300 * np.eye(4)), "held as float32"),
        (lambda: BagIndex().add(np.empty((3, 0))), "at least one word"),
        (lambda: index_of(ids=["a"]), "one entry per row, 4; got 1"),
        (lambda: index_of(ids="abcd"), r"list of integers or strings, got 'abcd'"),
        (lambda: index_of(ids=["a", "b", "a", "d"]), "must be unique, but 'a' is given 2 times"),
        (lambda: index_of(ids=[1, 2, 1, 3]), "must be unique, but 1 is given 2 times"),
        (lambda: index_of(ids=[1, "a", 2, "b"]), "all integers or all strings, got both"),
        (lambda: index_of(ids=[1, 2.5, 2, 3]), "integers or strings, got 2.5 of type float"),
        (lambda: index_of(ids=[True, False, 2, 3]), "got True of type bool"),
        (lambda: index_of(ids=[1, 2, 3, 2**63]), "fit into 64 bits"),
        (lambda: index_of(ids=np.eye(4)), "got shape"),
        (lambda: index_of().add(np.eye(4), [4, 3, 5, 6]), "3 is in the index. To replace an item, remove it"),
        (lambda: index_of(ids=list("abcd")).add(np.eye(4), list("efga")), "'a' is in the index"),
        (lambda: index_of(ids=list("abcd")).add(np.eye(4)), "items of this index have names; give ids"),
        (lambda: index_of(ids=list("abcd")).add(np.eye(4), [1, 2, 3, 4]), "of type str, but 1 is of type int"),
        (lambda: index_of(ids=[1, 2, 3, 2**63 - 1]).add(np.eye(4)), "no numbers left"),
        (lambda: index_of().remove([0, 17, 18]), "no item 17, and 1 more, in this index of 4; none was removed"),
        (lambda: index_of().remove(["a"]), "no item 'a'"),
        (lambda: index_of().remove([1, 1]), "to remove must be unique, but 1 is given 2 times"),
        (lambda: index_of().remove(1), r"Give a single one as \[1\]"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(BagwiseError, match=message):
        call()


def test_an_error_leaves_the_index_as_it_was(monkeypatch):
    index = index_of(ids=list("abcd"))
    expected = index.search(np.eye(4))
    for call in (
        lambda: index.add(np.eye(4), ["e", "f", "g", "a"]),
        lambda: index.add(-np.eye(4), list("efgh")),
        lambda: index.remove(["a", "z"]),
    ):
        with pytest.raises(BagwiseError):
            call()
    for name in ("store", "bag_index"):
        monkeypatch.setattr(f"bagwise.retrieval.{name}.BLOCK_ITEMS", 2)

    def full(*_):
        raise MemoryError

    monkeypatch.setattr("bagwise.retrieval.store.make_block", full)
    with pytest.raises(MemoryError):
        index.add(np.eye(4), list("efgh"))
    monkeypatch.undo()
    assert index.ids.tolist() == list("abcd")
    same(index.search(np.eye(4)), expected)
    index.add(np.eye(4), list("efgh"))
    assert len(index) == 8


def test_dask_collections_are_refused():
    dask = pytest.importorskip("dask.array")
    with pytest.raises(BagwiseError, match=r"must be in memory.*compute\(\)"):
        BagIndex().add(dask.ones((3, 2)))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("density", [0.05, 0.3, 1.0])
def test_a_query_alone_finds_the_same_bits_as_among_others(metric, density):
    """A few queries are searched in NumPy, many by compiled code."""
    rng = np.random.default_rng(3)
    X, Q = (rng.random((n, 60)) * (rng.random((n, 60)) < density) for n in (300, 12))
    X[7], X[100:120] = X[5], X[100]  # ties
    index = BagIndex(metric).add(X)
    keys, items = index.search(Q, 15)
    alone = [index.search(Q[[i]], 15) for i in range(len(Q))]
    np.testing.assert_array_equal(keys, np.concatenate([found[0] for found in alone]))
    np.testing.assert_array_equal(items, np.concatenate([found[1] for found in alone]))


@pytest.mark.parametrize("density", [0.3, 0.6])  # inverted lists, dense rows
@pytest.mark.parametrize(("squared", "rooted"), [(False, False), (True, True)])
def test_blocks_tell_about_words_and_groups(density, squared, rooted):
    n_items, n_words = BLOCK_ITEMS + 3000, 12
    random = np.random.default_rng(0)
    X = (random.random((n_items, n_words)) * (random.random((n_items, n_words)) < density)).astype(np.float32)
    index = BagIndex("inner").add(sp.csr_array(X))
    blocks = index.blocks()
    assert [len(block) for block in blocks] == [BLOCK_ITEMS, 3000]
    for number in (0, BLOCK_ITEMS - 1, BLOCK_ITEMS, n_items - 1):
        np.testing.assert_array_equal(index.row(number).toarray()[0], X[number])
    for words in ([3], [0, 2, 5], list(range(11))):
        found = np.concatenate([block.items_with(np.array(words)) for block in blocks])
        np.testing.assert_array_equal(found, X[:, words].any(axis=1))
    groups = [[1, 4], [], [7], [0, 2, 3, 5, 6, 8, 9, 10], [11]]
    members, ends = np.concatenate(groups).astype(np.int64), np.cumsum([len(group) for group in groups])
    scale = random.random(n_items)
    sums, squares = np.zeros((2, len(groups)))
    for first, block in zip((0, BLOCK_ITEMS), blocks, strict=True):
        padded = np.ones(BLOCK_ITEMS)
        padded[: len(block)] = scale[first : first + len(block)]
        block.add_group_moments(members, ends, squared, padded, rooted, sums, squares)
    words = X.astype(np.float64) ** (2 if squared else 1)
    features = np.stack([words[:, group].sum(axis=1) for group in groups], axis=1) * scale[:, np.newaxis]
    features = np.sqrt(features) if rooted else features
    np.testing.assert_allclose(sums, features.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(squares, (features**2).sum(axis=0), rtol=1e-5)


def test_a_row_that_does_not_exist_is_named():
    with pytest.raises(BagwiseError, match="There is no item 2: there are 2, numbered from 0"):
        BagIndex("inner").add(np.eye(2)).row(2)


def _jaccard(shared, totals):
    return -shared / np.where(totals > 0, totals - shared, 1)


@pytest.mark.parametrize("method", ["exact", "approximate"])
def test_an_entry_is_all_that_a_new_metric_needs(monkeypatch, tmp_path, method):
    """From Python and from the command line: what histograms share over what they have; nothing else is touched."""
    monkeypatch.setitem(METRICS, "jaccard", Metric("jaccard", np.minimum, _jaccard))
    rng = np.random.default_rng(0)
    for density in (0.2, 0.9):  # as lists, and dense
        X = rng.integers(0, 5, (300, 20)) * (rng.random((300, 20)) < density)
        X[:, 0] = 1
        index = BagIndex("jaccard", method=method, n_candidates=300).add(X).remove([7])
        kept = np.delete(np.arange(300), 7)
        expected = np.minimum(X[:9, None], X[kept]).sum(axis=2) / np.maximum(X[:9, None], X[kept]).sum(axis=2)
        scores, ids = index.search(X[:9], k=12)
        np.testing.assert_allclose(scores, np.sort(expected, axis=1)[:, :-13:-1])
        np.testing.assert_allclose(scores, np.take_along_axis(expected, np.searchsorted(kept, ids), axis=1))
    index.save(tmp_path / "saved.index")
    np.testing.assert_array_equal(BagIndex.load(tmp_path / "saved.index").search(X[:9], k=12)[0], scores)

    from commands import bagwise  # deferred: needs jsonschema
    from small_sources import write_table

    write_table(tmp_path / "counts.csv")
    model, index = tmp_path / "counts.bagwise", tmp_path / "counts.index"
    bagwise("fit", tmp_path / "counts.csv", "--folds", 0, "--groups", 4, "--no-page", "--out", model)
    bagwise("index", model, tmp_path / "counts.csv", "--by", "words", "--metric", "jaccard", "--out", index, "--force")
    assert "jaccard" in bagwise("info", index)
    assert len(bagwise("search", index, tmp_path / "counts.csv", "--row", "3").splitlines()) > 1
