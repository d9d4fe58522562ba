"""Stores that compute rows: the same entries, the same hierarchies, less memory."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bagwise import BagwiseError, WordMerger, WordMergerCV, merge_words
from bagwise.criteria import NonparametricDiscriminant
from bagwise.merging import lazy_rows
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.lazy_rows import KeptRows, LazyRows, make_product
from bagwise.merging.rows import DenseRows, choose_store
from bagwise.merging.searches import _bound_kernels as kernels
from bagwise.merging.searches.ratios import SEARCHES, BoundSearch, equal_merges
from bagwise.merging.structures import BetweenClasses, Combination, Factor, GraphLaplacian, Residuals, TotalScatter
from helpers import assert_greedy, labelled_counts, topic_counts


@pytest.fixture(params=["dense", "sparse"])
def factors(request, monkeypatch):
    """What the sparse store makes of dense data: `DenseProduct` of all, or `SparseProduct`."""
    monkeypatch.setattr(lazy_rows, "_FILLED", 0.0 if request.param == "dense" else 2.0)


def all_structures(rng, n):
    weights = np.abs(rng.normal(size=(n, n)))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    contrasts = rng.normal(size=(n + 3, n))
    contrasts -= contrasts.mean(axis=1, keepdims=True)
    some = np.arange(0, n, 2)
    return {
        "total": TotalScatter(np.ones(n)),
        "weighted": TotalScatter(rng.random(n) + 0.1),
        "classes": BetweenClasses(np.arange(n) % 3),
        "contrasts": Residuals(sp.csr_array(contrasts)),
        "graph": GraphLaplacian(weights),
        "sparse graph": GraphLaplacian(sp.csr_array(np.where(weights > 1, weights, 0))),
        "combination": Combination(
            [(0.3, TotalScatter(np.ones(len(some))), some), (2.0, BetweenClasses(np.arange(n) % 2), None)], n
        ),
    }


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("name", all_structures(np.random.default_rng(0), 6))
def test_factors_multiply_to_the_scatter(name, offset, sparse):
    rng = np.random.default_rng(1)
    structure = all_structures(rng, 12)[name]
    X = rng.random((12, 8)) * (rng.random((12, 8)) < 0.7)
    X[:, 3] += offset
    X = sp.csr_array(X) if sparse else X
    total = np.zeros((8, 8))
    for factor in structure.factors(X):
        product = factor.weight * (factor.left.T @ factor.right)
        total += product.toarray() if sp.issparse(product) else product
    np.testing.assert_allclose(total, structure.scatter(X), rtol=1e-7, atol=1e-7)
    if not sparse and name != "combination":
        arrays = {id(M): M for factor in structure.factors(X) for M in (factor.left, factor.right)}
        assert sum(len(M) for M in arrays.values()) == structure.n_factor_rows()


class Oracle:
    """The product as a matrix, merged and packed plainly."""

    def __init__(self, left, right, weight):
        self.matrix = weight * (left.T @ right)
        self.live = np.arange(len(self.matrix))

    def merge(self, s, t):
        self.matrix[s] += self.matrix[t]
        self.matrix[:, s] += self.matrix[:, t]
        self.live = self.live[self.live != t]


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 12),
    st.sampled_from(["dense", "wide", "two sided", "sparse", "sparse two sided"]),
    st.sampled_from([0, 300, 10**9]),
)
def test_products_follow_any_merges(seed, d, kind, n_bytes_kept):
    rng = np.random.default_rng(seed)
    n = 80 if kind == "wide" else rng.integers(1, 20)
    X = rng.integers(-3, 5, (n, d)) * (rng.random((n, d)) < 0.6) * 1.0
    L = rng.integers(-2, 3, (n, n)) * 1.0
    right = (L + L.T) @ X if "two" in kind else X
    oracle = Oracle(X, right, 0.5)
    if "sparse" in kind:
        left = sp.csr_array(X)
        product = make_product(Factor(left, sp.csr_array(right) if "two" in kind else left, 0.5))
        product.kept.n_bytes = n_bytes_kept
    else:
        product = make_product(Factor(X, right if "two" in kind else X, 0.5))

    diagonal, block = np.zeros(d), np.zeros((d, d))
    product.add_diagonal(diagonal)
    np.testing.assert_array_equal(diagonal, np.diagonal(oracle.matrix))
    middle = int(rng.integers(0, d))
    product.add_block(block[:middle], 0, middle, 2)
    product.add_block(block[middle:], middle, d, 1)
    np.testing.assert_array_equal(np.triu(block), np.triu(oracle.matrix))

    size = d
    while len(oracle.live) > 1:
        for i in rng.choice(oracle.live, 2):
            row = np.zeros(size)
            product.add_row(row, i)
            np.testing.assert_array_equal(row[oracle.live], oracle.matrix[i, oracle.live])
        s, t = np.sort(rng.choice(oracle.live, 2, replace=False))
        assert product.entry(s, t) == oracle.matrix[s, t]
        oracle.merge(s, t)
        product.merge(s, t)
        if rng.random() < 0.3:
            slots = oracle.live
            place = np.full(size, -1)
            place[slots] = np.arange(len(slots))
            product.pack(slots, place)
            oracle.matrix = oracle.matrix[np.ix_(slots, slots)]
            size = len(slots)
            oracle.live = np.arange(size)


class TestKeptRows:
    def test_rows_follow_merges_and_packing(self):
        kept = KeptRows(1e6)
        kept.put(0, np.arange(5.0), cost=1)
        kept.merge(2, 4)
        kept.merge(1, 3)
        np.testing.assert_array_equal(kept.get(0)[:3], [0, 1 + 3, 2 + 4])
        kept.merge(1, 2)
        kept.pack(np.array([0, 1]), np.array([0, 1, -1, -1, -1]))
        np.testing.assert_array_equal(kept.get(0), [0, 10])

    def test_costly_rows_stay(self):
        kept = KeptRows(2 * 8 * 10)
        for slot, cost in enumerate([5, 50, 1, 7]):
            kept.put(slot, np.zeros(10), cost)
        assert 1 in kept
        assert 2 not in kept
        assert len(kept) == 2

    def test_unused_rows_age(self):
        kept = KeptRows(2 * 8 * 10)
        kept.put(0, np.zeros(10), 100)
        for slot in range(1, 60):
            kept.put(slot, np.zeros(10), 10 + slot)
        assert 0 not in kept

    def test_rows_in_use_do_not(self):
        kept = KeptRows(2 * 8 * 10)
        kept.put(0, np.zeros(10), 100)
        for slot in range(1, 2000):
            kept.put(slot, np.zeros(10), 10)
            assert kept.get(0) is not None
        assert len(kept) == 2

    def test_merged_rows_are_gone_and_bytes_are_counted(self):
        kept = KeptRows(8 * 10)
        kept.put(0, np.zeros(10), 1)
        kept.merge(0, 1)
        assert 0 not in kept
        kept.put(2, np.zeros(10), 1)
        assert 2 in kept

    def test_no_room_keeps_nothing(self):
        kept = KeptRows(8)
        kept.put(0, np.zeros(10), 1e9)
        assert len(kept) == 0


@pytest.mark.parametrize("n_bytes_kept", [0, 2000, 10**9])
def test_same_hierarchy_on_texts(n_bytes_kept):
    X, y = topic_counts(np.random.default_rng(0), 150, 700, n_topics=20, length=200)
    structures = resolve_criterion("csm").structures(X, y)
    X = X[:, X.any(axis=0)]
    store = LazyRows.of(sp.csr_array(X), structures, None)
    sparse = [product for _, product in store._products if hasattr(product, "kept")]
    assert len(sparse) == 1
    sparse[0].kept.n_bytes = n_bytes_kept
    search = BoundSearch(store)
    pairs, scores = np.empty((X.shape[1] - 1, 2), dtype=np.int64), np.empty(X.shape[1] - 1)
    search.advance(pairs, scores)
    dense = merge_words(X, y, store="dense", criterion="csm")
    np.testing.assert_allclose(scores[:-1], dense.scores[:-1], rtol=1e-9)


@given(
    labelled_counts(),
    st.sampled_from(["csm", "lpp", NonparametricDiscriminant(metric="euclidean")]),
    st.sampled_from([np.asarray, sp.csr_array]),
)
def test_every_merge_is_the_best(data, criterion, form):
    """On data with ties and degenerate words, where stores may choose differently between equals."""
    X, y = data
    structures = resolve_criterion(criterion).structures(X, y)
    n_constant = max(int((X.max(axis=0) == X.min(axis=0)).sum()) - 1, 0)
    hierarchy = merge_words(form(X), y, criterion=criterion, store="sparse")
    assert_greedy(X, structures, hierarchy, skip=n_constant, rtol=1e-6)


@pytest.mark.usefixtures("factors")
def test_bounds_are_never_below_what_a_row_offers():
    """The promise that makes the search exact, also for rows that have lost the pair of their peak."""
    X, y = topic_counts(np.random.default_rng(0), 60, 150, n_topics=20)
    X = X[:, X.any(axis=0)]
    structures = resolve_criterion("csm").structures(X, y)
    search = BoundSearch(LazyRows.of(X, structures, None))
    bounds, store = search._bounds, search._rows
    pairs, scores = np.empty((1, 2), dtype=np.int64), np.empty(1)
    lost = 0
    for _ in range(X.shape[1] - 10):
        search.advance(pairs, scores)
        a, b = bounds.traces[:2]
        size = bounds.counts[kernels.SIZE]
        for i in np.flatnonzero(bounds.order[:size] < 2**62):
            own = bounds.order[:size] < bounds.order[i]
            if own.any() and np.isfinite(bounds.top_a[i]):
                row_a, row_b = store.row(i)
                for level in (scores[0], 0.9 * scores[0], 1.2 * scores[0]):
                    true = ((a + 2 * row_a) - level * (b + 2 * row_b))[own].max()
                    assert true <= kernels.excess(bounds, i, level, np.inf) + 1e-9 * abs(a)
                lost += not own[bounds.partner[i]]
    assert lost > 100


@pytest.mark.usefixtures("factors")
def test_the_same_whatever_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(lazy_rows, "_HEAVY", 100)  # rows in parts
    X, y = topic_counts(np.random.default_rng(0), 50, 300)
    X = X / (1 + X.sum(axis=1, keepdims=True))  # sums that depend on their order
    one, two = (merge_words(X, y, store="sparse", n_jobs=n, criterion="csm") for n in (1, 2))
    assert one == two


@pytest.mark.usefixtures("factors")
def test_words_that_are_the_same_everywhere_are_folded():
    rng = np.random.default_rng(0)
    X = rng.random((20, 12))
    X[:, [2, 5, 9]] = 0.0, 1.0, 0.0
    y = np.arange(20) % 2
    hierarchy = merge_words(X, y, store="sparse", criterion="csm")
    assert hierarchy.merges[:2].tolist() == [[2, 5], [2, 9]]
    np.testing.assert_array_equal(hierarchy.merges, merge_words(X, y, store="dense", criterion="csm").merges)


@pytest.mark.usefixtures("factors")
@pytest.mark.parametrize("case", ["two samples", "one sample a class", "equal means"])
def test_equals_are_merged_in_order_without_a_search(case):
    rng = np.random.default_rng(0)
    X, y = {
        "two samples": (rng.integers(0, 9, (2, 30)) * 1.0, [0, 1]),
        "one sample a class": (rng.random((4, 30)), [0, 1, 2, 3]),
        "equal means": (
            np.repeat(rng.integers(0, 9, (3, 30)), 2, axis=0)[[0, 2, 4, 1, 3, 5]] * 1.0,
            [0, 0, 0, 1, 1, 1],
        ),
    }[case]
    dense, other = (merge_words(X, y, store=name, criterion="csm") for name in ("dense", "sparse"))
    np.testing.assert_array_equal(other.merges, dense.merges)
    np.testing.assert_allclose(other.scores, dense.scores, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("factors")
@pytest.mark.parametrize("case", ["two samples", "equal within classes", "equal words"])
def test_equals_among_many_words(case, monkeypatch):
    """More words than fit into a tile: what is below the diagonal is not looked at."""
    rng = np.random.default_rng(0)
    X, y = {
        "two samples": (rng.poisson(1, (2, 700)) * 1.0, [0, 1]),
        "equal within classes": (np.repeat(rng.poisson(1, (3, 600)), 30, axis=0) * 1.0, np.repeat([0, 1, 2], 30)),
        "equal words": (np.repeat(rng.poisson(2, (60, 1)), 700, axis=1) * 1.0, np.arange(60) % 3),
    }[case]
    dense = merge_words(X, y, store="dense", criterion="csm")
    monkeypatch.setitem(SEARCHES, "bound", None)  # no search is needed
    other = merge_words(X, y, store="sparse", criterion="csm")
    np.testing.assert_array_equal(other.merges, dense.merges)
    np.testing.assert_allclose(other.scores, dense.scores, rtol=1e-9, atol=1e-12)


def test_the_sparse_store_takes_the_memory_it_says():
    X, y = np.random.default_rng(0).random((600, 400)), np.arange(600) % 3
    structures = resolve_criterion("csm").structures(X, y)
    for data, most in ((X, 1.2), (sp.csr_array(X), 5.2)):  # of sparse data both orders, and one while it is made
        tracemalloc.start()
        LazyRows.of(data, structures, "10MB")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most * X.nbytes
        with pytest.raises(BagwiseError, match="sparse store"):
            LazyRows.of(data, structures, 0.7 * X.nbytes)


def test_dense_data_are_kept_in_the_form_that_takes_less():
    structures = resolve_criterion("csm").structures(np.zeros((30, 5)), np.arange(30) % 2)
    for X, is_sparse in ((np.eye(30), True), (np.ones((30, 30)), False), (sp.csr_array(np.ones((30, 30))), True)):
        kinds = {type(product).__name__ for _, product in LazyRows.of(X, structures, None)._products}
        assert ("SparseProduct" in kinds) == is_sparse


def test_the_advice_is_within_the_limit():
    X = sp.random_array((50, 1000), density=0.1, format="csr", random_state=np.random.default_rng(0))
    with pytest.raises(BagwiseError, match="merge fewer words") as caught:
        merge_words(X, np.arange(50) % 2, memory_limit="100kB", criterion="csm")
    assert "store='dense'" not in str(caught.value)


def test_the_test_for_equals_looks_beyond_the_diagonal():
    A = np.eye(4)
    B = np.eye(4)
    B[0, 1] = B[1, 0] = 0.5
    assert equal_merges(DenseRows(A, B)) is None
    root = np.linalg.cholesky(B).T
    store = LazyRows([make_product(Factor(A, A))], [make_product(Factor(root, root))], 4)
    assert equal_merges(store) is None


class TestChoice:
    X = sp.csr_array(np.random.default_rng(0).integers(0, 2, (30, 400)) * 1.0)
    y = np.arange(30) % 2

    def test_dense_if_it_fits(self):
        merger = WordMerger(criterion="csm").fit(self.X, self.y)
        assert merger.store_ == "dense"

    def test_data_that_do_not_fit(self):
        assert choose_store("auto", 400, "bound", 10**6) == "sparse"

    def test_what_was_chosen_is_said(self):
        expected = WordMerger(5, criterion="csm").fit(self.X, self.y)
        for data in (self.X, self.X.toarray()):
            merger = WordMerger(5, memory_limit="1MB", criterion="csm").fit(data, self.y)
            assert merger.store_ == "sparse"
            np.testing.assert_allclose(merger.scores_, expected.scores_, rtol=1e-9)

    @pytest.mark.parametrize("store", ["dense", "sparse"])
    def test_a_store_can_be_asked_for(self, store):
        assert WordMerger(5, store=store, criterion="csm").fit(self.X, self.y).store_ == store

    def test_criteria_without_a_choice(self):
        assert WordMerger(5, criterion="aib").fit(self.X, self.y).store_ is None

    def test_cross_validation_passes_it_on(self):
        search = WordMergerCV([2, 5], cv=2, store="sparse", criterion="csm").fit(self.X, self.y)
        assert search.n_groups_ in (2, 5)

    def test_unknown(self):
        with pytest.raises(BagwiseError, match=r"store.*'spars'.*Did you mean 'sparse'"):
            merge_words(self.X, self.y, store="spars", criterion="csm")

    def test_searches_that_need_matrices(self):
        with pytest.raises(BagwiseError, match=r"store='sparse' computes rows.*search='polar'.*search='bound'"):
            merge_words(self.X, self.y, store="sparse", search="polar", criterion="csm")

    def test_kernels_that_need_matrices(self):
        with pytest.raises(BagwiseError, match=r"store='sparse' is for kernel='linear'.*store='dense'"):
            merge_words(self.X, self.y, store="sparse", kernel="chi2")

    def test_criteria_that_are_no_ratios(self):
        with pytest.raises(BagwiseError, match=r"store='sparse' is for trace ratio criteria.*Use store='auto'"):
            merge_words(self.X, self.y, store="sparse", criterion="aib")

    @pytest.mark.parametrize(("store", "what"), [("dense", "two matrices"), ("sparse", "non-zeros")])
    def test_nothing_fits(self, store, what):
        with pytest.raises(BagwiseError, match=rf"(?s){what}.*the limit is 1\.00 kB \(memory_limit\).*Ways out"):
            merge_words(self.X, self.y, store=store, memory_limit=1000, criterion="csm")


def test_progress_of_the_first_look(capsys):
    X, y = topic_counts(np.random.default_rng(0), 30, 100)
    merge_words(X, y, store="sparse", verbose=1, criterion="csm")
    assert "scanning all pairs" in capsys.readouterr().err
