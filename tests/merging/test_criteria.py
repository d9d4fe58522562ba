"""The graphs of each criterion, against their definitions written out sample by sample."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier

from bagwise import BagwiseError, Model, WordMerger, WordMergerCV, merge_words
from bagwise.criteria import (
    AdditiveScore,
    ClassSeparability,
    Criterion,
    GraphPair,
    LocalDiscriminant,
    LocalityPreserving,
    MarginalFisher,
    NonparametricDiscriminant,
    SemiSupervised,
    TraceRatio,
)
from bagwise.merging.criteria import NAMED_CRITERIA
from bagwise.merging.scoring import Scoring
from bagwise.merging.structures import GraphLaplacian, TotalScatter
from helpers import labelled_counts, laplacian


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    return rng.random((18, 7)), rng.permutation(np.repeat([0, 1, 2], 6))


def laplacians(criterion, X, y=None):
    return [laplacian(structure) for structure in criterion.structures(X, y)]


def squared(X):
    return ((X[:, None] - X[None]) ** 2).sum(-1)


def intersections(X):
    return np.minimum(X[:, None], X[None]).sum(-1)


def nearest_of(values, k, candidates):
    """Indices of the k smallest values among the candidates."""
    return sorted(candidates, key=lambda j: (values[j], j))[:k]


def graph_laplacian(W):
    return np.diag(W.sum(axis=1)) - W


def test_class_separability(data):
    X, y = data
    preferred, undesired = laplacians(ClassSeparability(), X, y)
    n = len(y)
    Z = sum(np.outer(y == c, y == c) / (y == c).sum() for c in range(3))
    np.testing.assert_allclose(preferred, graph_laplacian(1 / n - Z), atol=1e-12)
    np.testing.assert_allclose(undesired, graph_laplacian(np.full((n, n), 1 / n)), atol=1e-12)


@pytest.mark.parametrize("metric", ["intersection", "euclidean"])
@pytest.mark.parametrize("mode", ["rest", "per_class"])
def test_nonparametric_discriminant(data, mode, metric):
    X, y = data
    k, k_total = 4, 5
    far = squared(X) if metric == "euclidean" else -intersections(X)
    preferred = np.zeros((18, 18))
    undesired = np.zeros((18, 18))
    for i in range(18):
        others = [[j for j in range(18) if y[j] != y[i]]]
        if mode == "per_class":
            others = [[j for j in range(18) if y[j] == c] for c in range(3) if c != y[i]]
        for candidates in others:
            contrast = np.zeros(18)
            contrast[i] = 1
            contrast[nearest_of(far[i], k, candidates)] -= 1 / k
            preferred += np.outer(contrast, contrast)
        for j in nearest_of(far[i], k_total, [j for j in range(18) if j != i]):
            difference = np.zeros(18)
            difference[[i, j]] = 1, -1
            undesired += np.outer(difference, difference) / k_total
    ours = laplacians(NonparametricDiscriminant(k, k_total, mode=mode, metric=metric), X, y)
    np.testing.assert_allclose(ours[0], preferred, atol=1e-12)
    np.testing.assert_allclose(ours[1], undesired, atol=1e-12)


def test_nda_modes_agree_for_two_classes(data):
    X, y = data
    rest, per_class = (laplacians(NonparametricDiscriminant(3, mode=m), X, y > 0)[0] for m in ("rest", "per_class"))
    np.testing.assert_allclose(rest, per_class, atol=1e-12)


@given(labelled_counts())
@settings(max_examples=40)
def test_nda_with_all_neighbors_is_class_separability(case):
    X, y = np.abs(case[0]), case[1] > 0
    n = len(y)
    nda = merge_words(X, y, criterion=NonparametricDiscriminant(10**6, 10**6), search="exhaustive")
    csm = merge_words(X, y, search="exhaustive")
    slope = n**2 / (y.sum() * (n - y.sum())) - 1
    # ties may be broken by rounding; follow one path while the two agree
    same = np.cumprod((nda.merges == csm.merges).all(axis=1)).astype(bool)
    expected = (1 + slope * csm.scores[same]) * (n - 1) / (2 * n)
    defined = ~np.isnan(expected) & ~np.isnan(nda.scores[same])
    np.testing.assert_allclose(nda.scores[same][defined], expected[defined], rtol=1e-6)


def test_nda_with_all_neighbors_has_the_hierarchy_of_csm(data):
    X, y = data
    everything = NonparametricDiscriminant(100, 100)
    np.testing.assert_array_equal(
        merge_words(X, y > 0, criterion=everything).merges, merge_words(X, y > 0, criterion="csm").merges
    )


def test_nda_over_all_samples_is_the_total_scatter(data):
    X, y = data
    _, undesired = NonparametricDiscriminant(3, 17).structures(X, y)
    _, total = ClassSeparability().structures(X, y)
    np.testing.assert_allclose(undesired.scatter(X), 2 * 18 / 17 * total.scatter(X), rtol=1e-9)


def test_marginal_fisher(data):
    X, y = data
    D = squared(X)
    within = np.zeros((18, 18))
    for i in range(18):
        for j in nearest_of(D[i], 3, [j for j in range(18) if j != i and y[j] == y[i]]):
            within[i, j] = within[j, i] = 1
    per_class = np.zeros((18, 18))
    for c in range(3):
        pairs = sorted((D[a, b], a, b) for a in range(18) for b in range(18) if y[a] == c != y[b])
        for _, a, b in pairs[:4]:
            per_class[a, b] = per_class[b, a] = 1
    preferred, undesired = laplacians(MarginalFisher(3, 4), X, y)
    np.testing.assert_allclose(preferred, graph_laplacian(per_class), atol=1e-12)
    np.testing.assert_allclose(undesired, graph_laplacian(within), atol=1e-12)

    per_sample = np.zeros((18, 18))
    for i in range(18):
        for j in nearest_of(D[i], 2, [j for j in range(18) if y[j] != y[i]]):
            per_sample[i, j] = per_sample[j, i] = 1
    preferred, _ = laplacians(MarginalFisher(3, 2, margin="per_sample"), X, y)
    np.testing.assert_allclose(preferred, graph_laplacian(per_sample), atol=1e-12)


def test_marginal_fisher_with_more_pairs_than_there_are(data):
    X, y = data
    preferred, _ = laplacians(MarginalFisher(3, 10**6), X, y)
    np.testing.assert_allclose(preferred, graph_laplacian((y[:, None] != y).astype(float)), atol=1e-12)


@pytest.mark.parametrize("metric", ["intersection", "euclidean"])
@pytest.mark.parametrize("n", [40, 300])  # in one block of samples, and in two
def test_marginal_fisher_takes_equally_near_pairs_in_the_order_of_their_indices(metric, n):
    rng = np.random.default_rng(n)
    X, y = rng.integers(0, 2, (n, 6)).astype(float), rng.integers(0, 3, n)
    far = squared(X) if metric == "euclidean" else -intersections(X)
    closest, ties = np.zeros((n, n)), 0
    for c in range(3):
        pairs = sorted((far[a, b], a, b) for a in np.flatnonzero(y == c) for b in np.flatnonzero(y != c))
        ties += pairs[24][0] == pairs[25][0]
        for _, a, b in pairs[:25]:
            closest[a, b] = closest[b, a] = 1
    assert ties == 3
    preferred, _ = laplacians(MarginalFisher(3, 25, metric=metric), X, y)
    np.testing.assert_array_equal(preferred, graph_laplacian(closest))


@pytest.mark.parametrize("neighbors", ["within", "global"])
@pytest.mark.parametrize("width", [None, 0.3])
def test_local_discriminant(data, neighbors, width):
    X, y = data
    D = squared(X)
    graphs = {}
    for same in (True, False):
        W = np.zeros((18, 18))
        for i in range(18):
            anyone = [j for j in range(18) if j != i]
            chosen = nearest_of(
                D[i], 4, anyone if neighbors == "global" else [j for j in anyone if (y[j] == y[i]) == same]
            )
            for j in chosen:
                if (y[j] == y[i]) == same:
                    W[i, j] = W[j, i] = 1
        graphs[same] = W
    edges = np.concatenate([D[graphs[same] > 0] for same in (True, False)])
    t = edges.mean() if width is None else width
    preferred, undesired = laplacians(LocalDiscriminant(4, 4, neighbors=neighbors, width=width), X, y)
    np.testing.assert_allclose(preferred, graph_laplacian(graphs[False] * np.exp(-D / t)), atol=1e-10)
    np.testing.assert_allclose(undesired, graph_laplacian(graphs[True] * np.exp(-D / t)), atol=1e-10)


def test_local_discriminant_without_neighbors_of_other_classes():
    X = np.array([[0.0, 1], [0, 2], [100, 1], [100, 2]])
    with pytest.raises(BagwiseError, match="Raise n_other_neighbors"):
        merge_words(X, [0, 0, 1, 1], criterion=LocalDiscriminant(1, 1, neighbors="global"))


@pytest.mark.parametrize("weights", ["heat", "binary"])
def test_locality_preserving(data, weights):
    X, _ = data
    D = squared(X)
    U = np.zeros((18, 18))
    for i in range(18):
        for j in nearest_of(D[i], 5, [j for j in range(18) if j != i]):
            U[i, j] = U[j, i] = 1
    if weights == "heat":
        U *= np.exp(-D / D[U > 0].mean())
    degrees = U.sum(axis=1)
    preferred, undesired = laplacians(LocalityPreserving(weights=weights), X)
    np.testing.assert_allclose(undesired, graph_laplacian(U), atol=1e-10)
    np.testing.assert_allclose(preferred, np.diag(degrees) - np.outer(degrees, degrees) / degrees.sum(), atol=1e-10)


def test_vanishing_heat_weights_are_an_error(data):
    with pytest.raises(BagwiseError, match="Use a larger width"):
        merge_words(data[0], criterion=LocalityPreserving(width=1e-9))


def test_identical_samples_weigh_one():
    X = np.ones((5, 3))
    _, undesired = laplacians(LocalityPreserving(n_neighbors=2), X)
    assert set(np.round(undesired[~np.eye(5, dtype=bool)], 12)) <= {0.0, -1.0}


class TestGraphPair:
    @pytest.fixture
    def graphs(self, data):
        rng = np.random.default_rng(0)
        P, U = rng.random((2, 18, 18))
        return P + P.T, U + U.T

    def test_dense_equals_sparse(self, data, graphs):
        X, _ = data
        P, U = graphs
        dense = merge_words(X, criterion=GraphPair(P, U))
        sparse = merge_words(sp.csr_array(X), criterion=GraphPair(sp.coo_matrix(P), sp.csc_array(U)))
        np.testing.assert_array_equal(dense.merges, sparse.merges)
        np.testing.assert_allclose(dense.scores, sparse.scores)

    def test_the_diagonal_and_the_scale_do_not_matter(self, data, graphs):
        X, _ = data
        P, U = graphs
        plain = merge_words(X, criterion=GraphPair(P, U))
        other = merge_words(X, criterion=GraphPair(3 * P + 5 * np.eye(18), U / 2))
        np.testing.assert_array_equal(plain.merges, other.merges)
        np.testing.assert_allclose(other.scores, 6 * plain.scores)

    def test_csm_as_two_graphs(self, data):
        X, y = data
        n = len(y)
        Z = sum(np.outer(y == c, y == c) / (y == c).sum() for c in range(3))
        pair = GraphPair(1 / n - Z, np.full((n, n), 1 / n))  # has negative weights, but is definite
        np.testing.assert_array_equal(merge_words(X, criterion=pair).merges, merge_words(X, y, criterion="csm").merges)

    def test_asymmetric_graphs_are_refused_or_symmetrised(self, data, graphs):
        X, _ = data
        P, U = graphs
        skewed = P.copy()
        skewed[0, 1] += 1
        with pytest.raises(BagwiseError, match=r"preferred graph is not symmetric.*up to 1\b.*symmetrize=True"):
            merge_words(X, criterion=GraphPair(skewed, U))
        with pytest.raises(BagwiseError, match="undesired graph is not symmetric"):
            merge_words(X, criterion=GraphPair(P, sp.csr_array(skewed)))
        symmetric = merge_words(X, criterion=GraphPair((skewed + skewed.T) / 2, U))
        assert merge_words(X, criterion=GraphPair(skewed, U, symmetrize=True)) == symmetric

    @pytest.mark.parametrize("n", [18, 600])
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
    def test_indefinite_graphs_are_refused(self, n, form):
        rng = np.random.default_rng(1)
        X = rng.random((n, 5))
        ring = np.roll(np.eye(n), 1, axis=1)
        good = form(ring + ring.T)
        bad = np.array(ring + ring.T)
        bad[0, 1] = bad[1, 0] = -2
        bad = form(bad)
        with pytest.raises(BagwiseError, match=r"preferred graph has negative weights.*allow_indefinite=True"):
            merge_words(X, criterion=GraphPair(bad, good))
        with pytest.raises(BagwiseError, match="undesired graph has negative weights"):
            merge_words(X, criterion=GraphPair(good, bad, allow_indefinite=True))
        allowed = GraphPair(bad, good, allow_indefinite=True)
        assert merge_words(X, criterion=allowed) == merge_words(X, criterion=allowed, search="exhaustive")
        with pytest.raises(BagwiseError, match="use search='bound'"):
            merge_words(X, criterion=allowed, search="polar")

    def test_wrong_sizes_and_values(self, data, graphs):
        X, _ = data
        P, U = graphs
        with pytest.raises(BagwiseError, match=r"shape \(18, 18\); got \(17, 17\)"):
            merge_words(X, criterion=GraphPair(P[1:, 1:], U))
        broken = U.copy()
        broken[2, 2] = np.nan
        with pytest.raises(BagwiseError, match="undesired graph contains NaN"):
            merge_words(X, criterion=GraphPair(P, broken))


class TestSemiSupervised:
    @pytest.mark.parametrize("supervised", ["csm", NonparametricDiscriminant(2, 3)])
    def test_without_gamma_only_labelled_samples_count(self, data, supervised):
        X, y = data
        X = X.copy()
        labelled = np.arange(18) % 3 > 0
        X[labelled, 2] = 0.25  # constant where there are labels
        partly = np.where(labelled, y, -1)
        semi = merge_words(X, partly, criterion=SemiSupervised(supervised, gamma=0))
        alone = merge_words(X[labelled], y[labelled], criterion=supervised)
        np.testing.assert_array_equal(semi.merges, alone.merges)

    def test_without_labels_it_is_the_unsupervised_criterion(self, data):
        X, _ = data
        semi = merge_words(X, np.full(18, -1), criterion=SemiSupervised(gamma=1.0))
        np.testing.assert_array_equal(semi.merges, merge_words(X, criterion="lpp").merges)

    def test_the_structures_are_normalised_and_added(self, data):
        X, y = data
        labelled = np.flatnonzero(np.arange(18) % 3 > 0)
        partly = np.full(18, -1)
        partly[labelled] = y[labelled]
        ours = SemiSupervised(gamma=0.3).structures(X, partly)
        supervised = ClassSeparability().structures(X[labelled], y[labelled])
        unsupervised = LocalityPreserving().structures(X, None)
        for which in (0, 1):
            S, G = supervised[which].scatter(X[labelled]), unsupervised[which].scatter(X)
            np.testing.assert_allclose(ours[which].scatter(X), S / np.trace(S) + 0.3 * G / np.trace(G), rtol=1e-9)

    @pytest.mark.parametrize("missing", [None, "-1"])
    def test_names_as_labels(self, data, missing):
        X, y = data
        numbers = np.where(np.arange(18) % 2, y, -1)
        names = np.array(["abc"[label] if label >= 0 else missing for label in numbers], dtype=object)
        semi = SemiSupervised()
        assert merge_words(X, names, criterion=semi) == merge_words(X, numbers, criterion=semi)

    def test_nothing_to_go_by_is_an_error(self, data):
        X, _ = data
        with pytest.raises(BagwiseError, match="no labelled sample and gamma=0"):
            merge_words(X, np.full(18, -1), criterion=SemiSupervised(gamma=0))
        with pytest.raises(BagwiseError, match="requires y"):
            merge_words(X, criterion="semi_supervised")


@pytest.mark.parametrize("name", sorted(NAMED_CRITERIA))
class TestEveryNamedCriterion:
    def test_sparse_equals_dense(self, name, data):
        X, y = data
        X = np.round(X, 1) * (X > 0.4)
        dense, sparse = (merge_words(form(X), y, criterion=name) for form in (np.asarray, sp.csr_matrix))
        np.testing.assert_array_equal(dense.merges, sparse.merges)
        np.testing.assert_allclose(dense.scores, sparse.scores, rtol=1e-8, atol=1e-12)

    def test_the_order_of_samples_does_not_matter(self, name, data):
        X, y = data
        order = np.random.default_rng(0).permutation(len(y))
        one, other = merge_words(X, y, criterion=name), merge_words(X[order], y[order], criterion=name)
        np.testing.assert_array_equal(one.merges, other.merges)
        # support vector machines are solved to a tolerance
        rtol = {"mme": 1e-4, "classifier": 1e-2}.get(name, 1e-8)
        np.testing.assert_allclose(one.scores, other.scores, rtol=rtol, atol=1e-12)

    def test_the_scale_of_the_data_does_not_matter(self, name, data):
        X, y = data
        for scale in (8.0, 1e-90, 1e90) if issubclass(NAMED_CRITERIA[name], TraceRatio) else (8.0, 1e-3):
            one, other = merge_words(X, y, criterion=name), merge_words(scale * X, y, criterion=name)
            np.testing.assert_array_equal(one.merges, other.merges)
            scores = scale * one.scores if name == "linkage" else one.scores  # which are distances
            np.testing.assert_allclose(other.scores, scores, rtol=1e-4 if name == "mme" else 1e-8, atol=1e-12)

    def test_threads_do_not_matter(self, name, data):
        X, y = data
        assert merge_words(X, y, criterion=name, n_jobs=3) == merge_words(X, y, criterion=name)

    def test_name_and_object_are_the_same(self, name, data):
        X, y = data
        criterion = NAMED_CRITERIA[name]()
        assert merge_words(X, y, criterion=name.upper()) == merge_words(X, y, criterion=clone(criterion))
        assert isinstance(criterion, Criterion)


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (NonparametricDiscriminant(0), "n_neighbors"),
        (NonparametricDiscriminant(mode="rset"), "mode"),
        (MarginalFisher(n_pairs=0), "n_pairs"),
        (LocalDiscriminant(width=-1.0), "width"),
        (LocalityPreserving(metric="cosine"), "metric"),
        (SemiSupervised(gamma=-0.1), "gamma"),
    ],
)
def test_bad_parameters_are_named(data, criterion, message):
    with pytest.raises(ValueError, match=message):
        merge_words(*data, criterion=criterion)


def test_a_criterion_of_ones_own(data):
    class Spread(TraceRatio):
        name = "spread"
        supervised = False

        def structures(self, X, y, n_threads=1):
            n = X.shape[0]
            return GraphLaplacian(np.ones((n, n))), GraphLaplacian(np.eye(n, k=1) + np.eye(n, k=-1))

    hierarchy = merge_words(data[0], criterion=Spread())
    assert hierarchy.criterion == "spread"
    assert hierarchy.min_groups == 1

    class Broken(Spread):
        def structures(self, X, y, n_threads=1):
            return np.eye(3)

    with pytest.raises(BagwiseError, match=r"Broken\.structures must return a pair"):
        merge_words(data[0], criterion=Broken())

    class WrongSize(Spread):
        def structures(self, X, y, n_threads=1):
            return TotalScatter(np.ones(3)), TotalScatter(np.ones(3))

    for kernel in ("linear", "chi2"):
        with pytest.raises(BagwiseError, match="over the 18 samples of X; got a TotalScatter over 3"):
            merge_words(data[0], criterion=WrongSize(), kernel=kernel)


class Lean(Scoring):
    """The largest class count of each word, less half of all its counts."""

    def terms(self, states):
        return states.max(axis=1) - states.sum(axis=1) / 2


class ClassLean(AdditiveScore):
    """A criterion that only this file knows."""

    name = "lean"

    def scoring(self, X, y):
        X = X.toarray() if sp.issparse(X) else np.asarray(X)
        return Lean(np.array([X[y == c].sum(axis=0) for c in np.unique(y)]).T)


def test_an_entry_is_all_that_a_new_criterion_needs(monkeypatch, tmp_path):
    """From Python and from the command line; nothing else is touched."""
    monkeypatch.setitem(NAMED_CRITERIA, "lean", ClassLean)
    X, y = np.random.default_rng(0).poisson(2, (40, 12)).astype(float), np.arange(40) % 3
    hierarchy = merge_words(X, y, criterion="lean")
    np.testing.assert_array_equal(hierarchy.merges, merge_words(X, y, criterion=ClassLean()).merges)
    assert WordMerger(4, criterion="lean").fit(sp.csr_array(X), y).criterion_ == "lean"
    merged = WordMergerCV([2, 6], estimator=RidgeClassifier(), criterion="lean", cv=2).fit(X, y)
    assert merged.n_groups_ in (2, 6)

    from commands import bagwise  # deferred: needs jsonschema
    from small_sources import write_table

    write_table(tmp_path / "counts.csv")
    path = tmp_path / "counts.bagwise"
    bagwise("fit", tmp_path / "counts.csv", "--criterion", "lean", "--groups", 4, "--folds", 2, "--out", path)
    assert Model.load(path).hierarchy.n_words == 12
    assert "lean" in bagwise("compare", tmp_path / "counts.csv", "--criteria", "lean,aib", "--folds", 2)
    assert "lean" in bagwise("info", path)
    assert len(bagwise("predict", path, tmp_path / "counts.csv").splitlines()) > 1
