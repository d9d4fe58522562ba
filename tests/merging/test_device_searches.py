"""Searches on a CUDA device: their steps in NumPy (`device_mirror`), and the kernels where there is a device."""

import itertools
import re
import sys
from importlib.resources import files

import numpy as np
import pytest
import scipy.sparse as sp

import device_mirror
from bagwise import BagwiseError, WordMerger, merge_words
from bagwise._utils.devices import to_host
from bagwise.criteria import ClassSeparability, GraphPair, NonparametricDiscriminant, SemiSupervised
from bagwise.gpu import merging as gpu
from bagwise.gpu.merging import DeviceRows
from bagwise.merging.criteria.information import InformationLoss
from bagwise.merging.engine import Engine
from bagwise.merging.rows import DenseRows
from bagwise.merging.scoring import INFORMATION, Information, MultinomialEvidence
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.searches.ratios import BoundSearch, equal_merges
from bagwise.merging.structures import GraphLaplacian
from device_mirror import DEAD, EAGER, MOST_SCANNED, TINY, MirrorBoundSearch, MirrorPartnerSearch
from test_devices import fake_cupy


def dense_data(kind, d, n=24, seed=0):
    """Samples and labels: real numbers, small counts with many ties, frequencies that end as 0/0, repeated words."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.gamma(0.4, size=(n, d)) * (1 + (np.arange(d) % 3 == y[:, np.newaxis]))
    if kind == "counts":
        X = rng.poisson(X).astype(np.float64)
        X[0] += 1.0
    elif kind == "frequencies":
        X /= X.sum(axis=1, keepdims=True)
    elif kind == "repeated":
        X = X[:, rng.integers(d // 2, size=d)]
    return X, y


def matrices(X, y):
    return DenseRows.of(X, *ClassSeparability().structures(X, y))


def run(search, d, n_launches=1):
    """All merges and scores, in several parts."""
    edges = np.linspace(0, d - 1, n_launches + 1).astype(int)
    merges, scores = np.empty((d - 1, 2), dtype=np.int64), np.empty(d - 1)
    for start, stop in itertools.pairwise(edges):
        if isinstance(search, (MirrorBoundSearch, MirrorPartnerSearch)):
            merges[start:stop], scores[start:stop] = search.advance(stop - start)
        else:
            search.advance(merges[start:stop], scores[start:stop])
    return merges, scores


@pytest.fixture(autouse=True)
def sum_up_often(monkeypatch):
    """Traces and scores are summed anew after so few merges that small data see it."""
    monkeypatch.setattr(device_mirror, "RESUM_EVERY", 16)


@pytest.mark.parametrize(
    ("kind", "d", "share", "n_launches"),
    [("real", 90, 16, 1), ("counts", 70, 7, 3), ("frequencies", 60, 60, 2), ("repeated", 60, 11, 4)],
)
def test_steps_of_the_bound_kernel_find_the_merges_of_the_cpu(kind, d, share, n_launches):
    store = matrices(*dense_data(kind, d))
    mirror = MirrorBoundSearch(np.stack([store.A, store.B], axis=2), share)
    merges, scores = run(mirror, d, n_launches)
    expected, expected_scores = run(BoundSearch(store), d)
    np.testing.assert_array_equal(merges, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-10, atol=1e-12)
    assert np.isnan(scores).sum() == (kind == "frequencies")
    live = np.array([block.order != DEAD for block in mirror.blocks[:1]])
    assert live.sum() == 1  # word 0 is left
    # one exchange a level, and one more where rows are scanned
    assert d - 1 + n_launches <= mirror.exchanges <= 2 * (d + n_launches)
    assert mirror.scans < 3 * d


def test_steps_of_the_bound_kernel_with_a_graph_of_negative_weights():
    rng = np.random.default_rng(3)
    A, B = (F.T @ F for F in rng.normal(size=(2, 5, 40)))
    A -= 0.5 * np.outer(A[0], A[0]) / A[0, 0]
    A -= 3.0 * np.eye(40)
    expected, expected_scores = run(BoundSearch(DenseRows(A.copy(), B.copy())), 40)
    merges, scores = run(MirrorBoundSearch(np.stack([A, B], axis=2), 9), 40, 2)
    np.testing.assert_array_equal(merges, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-10)


def joint_of(kind, d, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.gamma(0.3, size=(d, n_classes)) * rng.pareto(1.2, size=(d, 1)) + 1e-3
    if kind == "counts":
        counts = np.unique(rng.poisson(5 * counts) + 0.5, axis=0)
    return counts / counts.sum()


def assert_greedy(joint, offset, merges, scores):
    """Every merge loses least, up to rounding, and scores are the information that is left."""
    groups = dict(enumerate(joint))
    for (s, t), score in zip(merges.tolist(), scores, strict=True):
        names, states = list(groups), np.array(list(groups.values()))
        terms = Information(states).terms(states)
        gains = Information(states).terms((states[:, np.newaxis] + states).reshape(-1, states.shape[1]))
        gains = gains.reshape(len(states), -1) - terms - terms[:, np.newaxis]
        np.fill_diagonal(gains, -np.inf)
        assert gains[names.index(s), names.index(t)] >= gains.max() - 1e-14
        groups[s] = groups[s] + groups.pop(t)
        left = np.array(list(groups.values()))
        assert score == pytest.approx(offset + Information(left).terms(left).sum(), abs=1e-12)


@pytest.mark.parametrize(("kind", "d", "share", "n_launches"), [("real", 90, 16, 1), ("counts", 80, 9, 3)])
def test_steps_of_the_kernel_of_sums_find_the_merges_of_the_cpu(kind, d, share, n_launches):
    scoring = Information(joint_of(kind, d, 6))
    d = len(scoring.states)
    mirror = MirrorPartnerSearch(scoring.states, scoring.offset, share)
    merges, scores = run(mirror, d, n_launches)
    assert d - 1 + n_launches <= mirror.exchanges <= 4 * d
    assert 0 < mirror.scans < 8 * d
    if kind == "counts":  # which have ties up to rounding
        assert_greedy(scoring.states, scoring.offset, merges, scores)
        return
    expected, expected_scores = run(PartnerSearch(scoring), d)
    np.testing.assert_array_equal(merges, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-10, atol=1e-14)


def test_the_mirror_and_the_module_have_the_numbers_of_the_kernels():
    source = (files("bagwise.gpu") / "cu" / "merging.cu").read_text("utf-8")
    defined = dict(re.findall(r"#define (\w+) (\S+)\n", source))
    assert int(defined["MOST_SCANNED"]) == MOST_SCANNED == gpu._ROWS_COMPARED
    assert float(defined["EAGER"]) == EAGER
    assert float(defined["TINY"]) == gpu._TINY == TINY
    assert INFORMATION == gpu.INFORMATION
    assert int(defined["BYTES_A_SUM"]) == gpu._BYTES_A_SUM
    assert 8 * int(defined["DOUBLES_A_ROW"]) + 12 == gpu._BYTES_A_ROW
    assert int(defined["DEAD"], 16) == DEAD
    assert f"static_assert(sizeof(RatioRecord) == {gpu._BYTES_A_RECORD}" in source
    assert f"static_assert(sizeof(SumRecord) == {gpu._BYTES_A_RECORD}" in source


@pytest.mark.parametrize("kind", ["real", "counts", "weighted", "graphs", "neighbours", "partly labelled"])
def test_a_and_b_formed_with_either_array_module_are_those_of_the_cpu(xp, kind):
    X, y = dense_data("real" if kind == "real" else "counts", 30)
    weights = {"sample_weight": 1.0 + np.arange(len(y)) % 2} if kind == "weighted" else {}
    near = (np.abs(np.subtract.outer(np.arange(24), np.arange(24))) == 1).astype(float)
    labels = np.where(np.arange(24) % 4, y, -1) if kind == "partly labelled" else y
    criterion = {
        "graphs": GraphPair(1.0 - near - np.eye(24), sp.csr_array(near)),
        "neighbours": NonparametricDiscriminant(n_neighbors=3),
        "partly labelled": SemiSupervised(),
    }.get(kind, ClassSeparability())
    structures = criterion.structures(X, labels, **weights)
    dense = DenseRows.of(X, *structures)
    for given in (xp.asarray(X), sp.csr_array(X)):
        store = DeviceRows.of(given, *structures, xp=xp)
        upper = np.triu_indices(30)
        for which, matrix in enumerate((dense.A, dense.B)):
            found = to_host(store.matrix)[..., which]
            np.testing.assert_allclose(found[upper], matrix[upper], rtol=1e-12, atol=1e-12 * np.trace(matrix))
            np.testing.assert_allclose(store.diagonals()[which], np.diag(matrix), rtol=1e-12)
    if kind == "counts":  # sums of integers have no rounding
        np.testing.assert_array_equal(found[upper], dense.B[upper])
    copied = DeviceRows.of_matrices(dense.A, dense.B, xp=xp)
    np.testing.assert_array_equal(to_host(copied.matrix)[..., 0][upper], dense.A[upper])


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, True), (0.0, True), (None, False)])
def test_words_are_merged_in_order_where_no_merge_is_better(xp, ratio, expected):
    F = np.random.default_rng(1).normal(size=(5, 12))
    B = F.T @ F
    A = np.diag(np.arange(12.0)) + B if ratio is None else ratio * B
    found = equal_merges(DeviceRows(xp.asarray(np.stack([A, B], axis=2))))
    assert (found is not None) == expected
    if found is not None:
        merges, scores = run(found, 12)
        other = equal_merges(DenseRows(A, B))
        assert other is not None
        expected_merges, expected_scores = run(other, 12)
        np.testing.assert_array_equal(merges, expected_merges)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-12)


def test_matrices_of_a_users_criterion_must_be_finite(xp):
    X, y = dense_data("real", 6)
    preferred, _ = ClassSeparability().structures(X, y)
    undesired = GraphLaplacian(np.full((24, 24), 1e308))
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(BagwiseError, match="undesired matrix of Mine"):
        DeviceRows.of(xp.asarray(X), preferred, undesired, xp=xp, who="Mine")


def test_without_cupy_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    X, y = dense_data("counts", 8)
    for call in (lambda: merge_words(X, y, device="cuda"), lambda: WordMerger(device="cuda").fit(X, y)):
        with pytest.raises(BagwiseError, match=r'pip install "bagwise\[gpu\]"'):
            call()
    np.testing.assert_array_equal(merge_words(X, y, device="cpu").merges, merge_words(X, y).merges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"criterion": "mlt"},
            "criterion 'mlt' does not run on a CUDA device; 'csm', .*'aib', 'mmi', 'clusters' do",
        ),
        (
            {"criterion": "csm", "kernel": "chi2"},
            "kernel='chi2' does not run on a CUDA device, which has kernel='linear'",
        ),
        ({"criterion": "csm", "search": "polar"}, "search='polar' does not run"),
        ({"criterion": "csm", "store": "sparse"}, "store='sparse' does not run .* store='auto' or 'dense'"),
    ],
)
def test_what_does_not_run_on_a_device_is_refused(monkeypatch, options, message):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    X, y = dense_data("counts", 8)
    with pytest.raises(BagwiseError, match=message):
        merge_words(X, y, device="cuda", **options)


def test_other_scores_under_the_name_of_aib_are_refused(monkeypatch):
    class Mine(InformationLoss):
        def scoring(self, X, y, sample_weight=None):
            return MultinomialEvidence(np.column_stack([X.T, np.ones(X.shape[1])]))

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    with pytest.raises(BagwiseError, match="MultinomialEvidence does not run on a CUDA device; Information does"):
        merge_words(*dense_data("counts", 8), criterion=Mine(), device="cuda")


# ---- on a device


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("kind", "d", "n_launches"),
    [
        ("real", 3000, 1),
        ("real", 700, 5),
        ("counts", 400, 3),
        ("frequencies", 500, 2),
        ("repeated", 300, 4),
        ("real", 2, 1),
    ],
)
def test_the_bound_kernel_finds_the_merges_of_the_cpu(cupy, kind, d, n_launches):
    from bagwise.gpu.merging import DeviceBoundSearch

    store = matrices(*dense_data(kind, d, 40))
    search = DeviceBoundSearch(DeviceRows.of_matrices(store.A, store.B, xp=cupy))
    merges, scores = run(search, d, n_launches)
    cpu = BoundSearch(store)
    assert search.start_score == pytest.approx(cpu.start_score, rel=1e-12)
    expected, expected_scores = run(cpu, d)
    np.testing.assert_array_equal(merges, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-10, atol=1e-12)
    assert search.work["row_scans"] < 3 * d


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("kind", "d", "n_classes", "n_launches"),
    [("real", 1500, 20, 1), ("real", 300, 7, 4), ("counts", 150, 5, 2), ("real", 60, 700, 2), ("real", 2, 3, 1)],
)
def test_the_kernel_of_sums_finds_the_merges_of_the_cpu(cupy, kind, d, n_classes, n_launches):
    from bagwise.gpu.merging import DevicePartnerSearch

    scoring = Information(joint_of(kind, d, n_classes))
    d = len(scoring.states)
    search = DevicePartnerSearch(scoring)
    merges, scores = run(search, d, n_launches)
    cpu = PartnerSearch(scoring)
    assert search.start_score == pytest.approx(cpu.start_score, rel=1e-12)
    if kind == "counts":
        assert_greedy(scoring.states, scoring.offset, merges, scores)
        return
    expected, expected_scores = run(cpu, d)
    np.testing.assert_array_equal(merges, expected)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-10, atol=1e-13)


@pytest.mark.cuda
@pytest.mark.parametrize("criterion", ["csm", "nda", "lpp", "semi_supervised", "aib", "clusters", "mmi"])
@pytest.mark.parametrize("where", ["host", "sparse", "cupy", "torch"])
def test_merge_words_on_a_device(cupy, criterion, where):
    X, y = dense_data("real", 200, 60)
    X[:, 5] = 2.0  # a constant word
    if where == "torch":
        torch = pytest.importorskip("torch")
    given = {
        "host": lambda: X,
        "sparse": lambda: sp.csr_array(X),
        "cupy": lambda: cupy.asarray(X),
        "torch": lambda: torch.asarray(X, device="cuda"),
    }[where]()
    without = criterion in ("clusters", "lpp", "mmi")
    labels = None if without else np.where(y == 2, -1, y) if criterion == "semi_supervised" else y
    device = None if where in ("cupy", "torch") else "cuda"
    found = merge_words(given, labels, criterion=criterion, device=device)
    expected = merge_words(sp.csr_array(X) if where == "sparse" else X, labels, criterion=criterion)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found.merges, expected.merges)
    back = merge_words(given, labels, criterion=criterion, device="cpu")
    np.testing.assert_array_equal(back.merges, expected.merges)


@pytest.mark.cuda
@pytest.mark.parametrize("criterion", ["csm", "aib"])
def test_weights_measurements_and_callbacks_on_a_device(cupy, criterion):
    X, y = dense_data("real", 80, 60)
    X = X * np.geomspace(1, 1e4, 80) - 1.0 if criterion == "aib" else X
    weights = 1.0 + np.arange(60) % 3
    weights[7] = 0.0
    found = merge_words(cupy.asarray(X), cupy.asarray(y), criterion=criterion, sample_weight=cupy.asarray(weights))
    expected = merge_words(X, y, criterion=criterion, sample_weight=weights)
    np.testing.assert_array_equal(found.merges, expected.merges)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-10, atol=1e-12)
    seen = []
    stopped = merge_words(
        cupy.asarray(X), y, criterion=criterion, callback=lambda level, pair, score: seen.append(pair) or level == 50
    )
    assert stopped.min_groups == 50
    np.testing.assert_array_equal(stopped.merges, merge_words(X, y, criterion=criterion).merges[:30])


@pytest.mark.cuda
def test_word_merger_fits_and_transforms_where_the_data_are(cupy):
    X, y = dense_data("real", 90, 60)
    merger = WordMerger(7, criterion="csm", pooling="mean", word_weights="idf").fit(cupy.asarray(X), y)
    other = WordMerger(7, criterion="csm", pooling="mean", word_weights="idf", device="cuda").fit(X, y)
    expected = WordMerger(7, criterion="csm", pooling="mean", word_weights="idf").fit(X, y)
    for one in (merger, other):
        np.testing.assert_array_equal(one.labels_, expected.labels_)
        np.testing.assert_allclose(one.word_totals_, expected.word_totals_, rtol=1e-12)
    Z = merger.transform(cupy.asarray(X))
    assert isinstance(Z, cupy.ndarray)
    np.testing.assert_allclose(Z.get(), expected.transform(X), rtol=1e-12)
    narrow = merger.transform(cupy.asarray(X, dtype=cupy.float32))
    assert narrow.dtype == np.float32
    measured = WordMerger(4).fit(cupy.asarray(X - 1.0), y)
    np.testing.assert_allclose(
        measured.transform(cupy.asarray(X)).get(), WordMerger(4).fit(X - 1.0, y).transform(X), rtol=1e-12
    )


@pytest.mark.cuda
def test_bad_data_on_a_device_are_refused(cupy):
    X, y = dense_data("counts", 8)
    bad = cupy.asarray(X)
    bad[1, 2] = cupy.nan
    for given, message in (
        (bad, "finite"),
        (cupy.asarray(X)[0], "matrix of at least 2 samples"),
        (cupy.asarray(X)[:1], "at least 2 samples"),
        (cupy.full(X.shape, 1e120), "largest absolute value"),
    ):
        with pytest.raises(BagwiseError, match=message):
            merge_words(given, y[: len(given)], criterion="csm")
    with pytest.raises(BagwiseError, match=r"Merging 2000000 words: two matrices .* need .* on the device"):
        DeviceRows.of(sp.csr_array((24, 2_000_000)), *ClassSeparability().structures(X, y), xp=cupy)
    with pytest.raises(BagwiseError, match=r"memory_limit|Merging 8 words"):
        merge_words(cupy.asarray(X), y, criterion="csm", memory_limit=100)
    assert Engine(InformationLoss()).load(cupy.asarray(X), y).run().n_words == 8
