"""Merging by clusters of the samples, and the clusterings themselves."""

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, Hierarchy, WordMerger, WordMergerCV, merge_words
from bagwise.criteria import Clusters, InformationLoss
from bagwise.merging import Statistics, clusterings, merge_statistics
from bagwise.merging.clusterings import Clusterings
from bagwise.merging.criteria.clusters import numbered_apart
from bagwise.merging.engine import Engine
from bagwise.merging.scoring import Information, KeptInformation
from helpers import topic_counts


@pytest.fixture(scope="module")
def counts():
    """Counts of 120 samples of three topics, without equal rows or columns."""
    X, y = topic_counts(np.random.default_rng(0), 120, 160)
    filled = np.unique(X, axis=0, return_index=True)[1]
    X, y = X[np.sort(filled)], y[np.sort(filled)]
    columns = np.unique(X, axis=1, return_index=True)[1]
    return X[:, np.sort(columns)].astype(np.float64), y


def as_sets(hierarchy, n, names=None):
    """The groups of a cut, with words named by `names`."""
    names = np.arange(hierarchy.n_words) if names is None else names
    return {frozenset(names[words].tolist()) for words in hierarchy.groups(n)}


def test_true_classes_as_the_only_clustering_give_aib(counts):
    X, y = counts
    assert merge_words(X, criterion=Clusters(clusterings=y)) == _named(merge_words(X, y, criterion="aib"), "clusters")
    given = Clusters(clusterings=np.column_stack([y, y]), n_kept=X.shape[1])
    twice = merge_words(np.vstack([X, X]), np.concatenate([y, y + 10]), criterion=InformationLoss())
    np.testing.assert_array_equal(merge_words(X, criterion=given).merges, twice.merges)


def _named(hierarchy, name):
    return Hierarchy(hierarchy.n_words, hierarchy.merges, hierarchy.scores, name)


@pytest.mark.parametrize("n_kept", [2500, 40])
def test_permutations_of_words_and_items(counts, n_kept):
    """Frequencies of words tie, and only the kept ones are chosen by them: made different first."""
    X = counts[0] * np.linspace(1.0, 1.001, counts[0].shape[1])
    rng = np.random.default_rng(1)
    criterion = Clusters(n_kept=n_kept, weighting="tfidf")
    words, items = rng.permutation(X.shape[1]), rng.permutation(X.shape[0])
    plain = merge_words(X, criterion=criterion)
    mixed = merge_words(X[items][:, words], criterion=criterion)
    for n in (3, 10, 60, 120):
        assert as_sets(mixed, n, words) == as_sets(plain, n)
    np.testing.assert_allclose(mixed.scores, plain.scores, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_kept", [2500, 30])
def test_words_that_are_copies_merge_first(counts, n_kept):
    X = counts[0][:, :60]
    X = X[:, X.any(axis=0)]
    hierarchy = merge_words(np.hstack([X, X]), criterion=Clusters(n_kept=n_kept))
    cut = hierarchy.cut(X.shape[1])
    np.testing.assert_array_equal(cut[: X.shape[1]], cut[X.shape[1] :])
    np.testing.assert_allclose(hierarchy.scores[: X.shape[1]], hierarchy.scores[0])


def test_copies_of_items_count_in_sums_alone(counts):
    """The contract of sample weights, and clusters that many copies of one item do not move."""
    X, _ = counts
    copies = np.where(np.arange(len(X)) == 3, 50, 1)
    repeated = merge_words(np.repeat(X, copies, axis=0), criterion="clusters")
    assert merge_words(X, criterion="clusters", sample_weight=copies) == repeated
    learned = [Clusterings.fit(data, (5, 10)) for data in (X, np.repeat(X, copies, axis=0))]
    np.testing.assert_array_equal(learned[0].codes(X), learned[1].codes(X))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix])
@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_forms_of_data(counts, form, kind):
    X, _ = counts
    plain = merge_words(X, criterion="clusters")
    assert merge_words(form(X.astype(kind)), criterion="clusters") == plain
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert merge_words(wide, criterion="clusters", n_jobs=2) == plain


def test_labels_are_not_used(counts):
    X, y = counts
    plain, labelled = (WordMerger(10, criterion="clusters").fit(X, labels) for labels in (None, y))
    assert plain.hierarchy_ == labelled.hierarchy_
    assert plain.criterion_ == "clusters"


def test_seeds(counts):
    X, _ = counts
    one, two, other = (merge_words(X, criterion=Clusters(random_state=seed)) for seed in (1, 1, 2))
    assert one.merges.tobytes() == two.merges.tobytes()
    assert one.scores.tobytes() == two.scores.tobytes()
    assert one != other


def test_sums_over_parts_are_those_of_the_whole(counts):
    X, _ = counts
    learned = Clusters().learn(X)
    codes, whole = learned.codes(X), merge_words(X, criterion="clusters")
    rows = [slice(0, 13), slice(13, 80), slice(80, len(X))]
    np.testing.assert_array_equal(np.concatenate([learned.codes(X[part]) for part in rows]), codes)
    parts = [Statistics.of(X[part], codes[part], learned.n_clusters, gram=False) for part in rows]
    total = sum(parts)
    assert total.n_samples == len(X)
    np.testing.assert_array_equal(total.word_totals, X.sum(axis=0))
    assert merge_statistics(total, criterion="clusters") == whole


def test_dask_arrays_are_summed_by_chunks(counts, monkeypatch):
    da = pytest.importorskip("dask.array")
    X, _ = counts
    lazy = da.from_array(X, chunks=(31, 50))
    assert merge_words(lazy, criterion="clusters") == merge_words(X, criterion="clusters")
    merger = WordMerger(10, criterion="clusters").fit(lazy)
    np.testing.assert_array_equal(merger.word_totals_, X.sum(axis=0))
    with pytest.raises(BagwiseError, match="leave clusterings=None"):
        merge_words(lazy, criterion=Clusters(clusterings=np.zeros(len(X))))
    measured = np.random.default_rng(0).normal(size=(80, 30))
    chunked = da.from_array(measured, chunks=30)
    one, other = (merge_words(data, criterion="clusters", scaling="shift") for data in (measured, chunked))
    np.testing.assert_array_equal(one.merges, other.merges)
    monkeypatch.setattr(clusterings, "MOST_CLUSTERED", 60)
    assert merge_words(lazy, criterion="clusters") == merge_words(X, criterion="clusters")


@pytest.mark.parametrize(("n_items", "expected"), [(2, [2]), (9, [2]), (24, [4]), (25, [5]), (52, [5, 10])])
def test_few_items_have_fewer_scales(n_items, expected):
    X = np.random.default_rng(0).poisson(2.0, (n_items, 30)) + 1.0
    assert [len(centres) for centres in Clusters().learn(X).centres] == expected
    assert merge_words(X, criterion="clusters").min_groups == 1


def test_one_item_is_one_cluster():
    X = np.array([[3.0, 0, 1], [3, 0, 1], [0, 0, 0]])
    hierarchy = merge_words(X, criterion="clusters")
    assert hierarchy.scores.tolist() == [0, 0]


def test_early_merges_take_the_least_bound_and_are_scored():
    """Against the definition written out; scores go on from early merges to the search."""
    rng = np.random.default_rng(0)
    counts, m = rng.poisson(rng.gamma(1.0, 2.0, (50, 1)), (50, 7)).astype(float), 20
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    counts = counts[order] + np.linspace(0.9, 0, 50)[:, np.newaxis]  # kept words come first, no two tie
    scoring = KeptInformation(counts, 0.5, m)
    smoothed = counts + 0.5
    p = smoothed.sum(axis=1)
    roots = np.sqrt(smoothed / p[:, np.newaxis])
    bounds = np.square(roots[m:, np.newaxis] - roots[:m]).sum(axis=2) * (np.outer(p[m:], p[:m]) / (p[m:, None] + p[:m]))
    early = scoring.early_merges()
    np.testing.assert_array_equal(early[:, 0], bounds.argmin(axis=1)[early[:, 1] - m])
    assert (np.diff(bounds.min(axis=1)[early[:, 1] - m]) >= 0).all()
    states = scoring.states.copy()
    X = counts.T
    hierarchy = merge_words(X, criterion=Clusters(clusterings=np.arange(7), n_kept=m))
    start = Engine(Clusters(clusterings=np.arange(7), n_kept=m)).load(X).start()
    assert len(start.folded) == 50 - m
    for n in (49, 30, m, m - 1, 5, 1):
        labels = hierarchy.cut(n)
        merged = np.stack([np.bincount(labels, column) for column in states.T], axis=1)
        # the smoothing of `merge_words` is in units of the smallest value
        unit = counts.min(where=counts > 0, initial=np.inf)
        left = Information(KeptInformation(counts, 0.5 * unit, m).states)
        merged = np.stack([np.bincount(labels, column) for column in left.states.T], axis=1)
        expected = left.offset + left.terms(merged).sum()
        assert hierarchy.scores[50 - n - 1] == pytest.approx(expected, abs=1e-12)
    assert (np.diff(hierarchy.scores) < 1e-12).all()


def test_with_few_words_none_merges_early(counts):
    X, _ = counts
    exact = merge_words(X, criterion=Clusters(n_kept=X.shape[1]))
    assert merge_words(X, criterion="clusters") == exact
    assert merge_words(X, criterion=Clusters(n_kept=30)) != exact
    assert merge_words(X, criterion=Clusters(n_kept=1)).min_groups == 1


def test_groups_of_topics_are_found(counts):
    """Clusters of topics, which no sample says: words of one topic are in one group."""
    rng = np.random.default_rng(0)
    topic, group = np.arange(300) % 3, np.arange(90) % 3
    X = rng.poisson(np.where(topic[:, np.newaxis] == group, 0.5, 0.02))
    cut = merge_words(X, criterion="clusters").cut(3)
    assert all(len(set(cut[group == g].tolist())) == 1 for g in range(3))


def test_weightings():
    rng = np.random.default_rng(0)
    words = rng.poisson(0.1, (60, 80))
    for X, name in ((words, "tfidf"), (words + 1, "hellinger"), (words / 2, "hellinger")):
        auto, named = (merge_words(X, criterion=Clusters(weighting=one)) for one in ("auto", name))
        assert auto == named
        assert auto != merge_words(X, criterion=Clusters(weighting={"tfidf": "hellinger"}.get(name, "tfidf")))


def test_cross_validation_clusters_each_fold(counts):
    X, y = counts
    found = WordMergerCV([3, 20], criterion=Clusters(scales=(5,)), cv=3).fit(X, y)
    assert found.best_score_ > 0.5
    with pytest.raises(BagwiseError, match="leave clusterings=None there"):
        WordMergerCV([3], criterion=Clusters(clusterings=y), cv=3).fit(X, y)


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (Clusters(scales=()), "at least one number of clusters"),
        (Clusters(scales=(5, 0)), "A scale must be at least 1"),
        (Clusters(scales=(2.5,)), "A scale must be an integer"),
        (Clusters(weighting="idf"), "weighting"),
        (Clusters(n_kept=0), "n_kept"),
        (Clusters(clusterings=[0, 1]), r"a row for each of the 40 samples of X .* got shape \(2,\)"),
    ],
)
def test_bad_parameters(criterion, message):
    with pytest.raises(ValueError, match=message):
        merge_words(np.random.default_rng(0).poisson(2.0, (40, 9)), criterion=criterion)


def test_bad_data():
    with pytest.raises(BagwiseError, match="all of X is zero"):
        merge_words(np.zeros((30, 4)), criterion="clusters")
    with pytest.raises(BagwiseError, match=r"'clusters' needs non-negative data"):
        merge_words(sp.csr_array([[1.0, -1], [1, 2]]), criterion="clusters")
    chunked = pytest.importorskip("dask.array").from_array(np.eye(30) - 0.5, chunks=(10, 30)).map_blocks(sp.csr_array)
    with pytest.raises(BagwiseError, match=r"'clusters' needs non-negative data.*Dense chunks"):
        merge_words(chunked, criterion="clusters")
    with pytest.raises(BagwiseError, match="only with gram=False"):
        Statistics.of(np.ones((3, 2)), np.zeros((3, 2), int), 1)


def test_clusterings_are_numbered_apart():
    labels = np.array([[3, 1], [3, 0], [7, 1]])
    assert numbered_apart(labels).tolist() == [[0, 3], [0, 2], [1, 3]]
    total = Engine(Clusters(clusterings=labels)).load(np.eye(3)).data.scoring().states
    assert total.shape == (3, 4)
