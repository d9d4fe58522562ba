import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from joblib import parallel_config
from sklearn import config_context
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, WordMerger, WordMergerCV
from bagwise.merging.path import PathScores, score_path
from helpers import topic_counts


@pytest.fixture(scope="module")
def data():
    return topic_counts(np.random.default_rng(0), 90, 60)


def test_scores_are_those_of_separate_fits(data):
    """One hierarchy per fold serves all sizes: the same as fitting anew for each size."""
    X, y = data
    sizes, folds, model = [40, 3, 10], KFold(3), KNeighborsClassifier(3)
    search = WordMergerCV(sizes, estimator=model, cv=folds).fit(X, y)
    results = search.cv_results_
    assert results["n_groups"].tolist() == [3, 10, 40]
    for k, (train, test) in enumerate(folds.split(X)):
        for column, size in enumerate([3, 10, 40]):
            merger = WordMerger(n_groups=size).fit(X[train], y[train])
            model.fit(merger.transform(X[train]), y[train])
            assert results[f"split{k}_test_score"][column] == model.score(merger.transform(X[test]), y[test])
    folds_scores = np.array([results[f"split{k}_test_score"] for k in range(3)])
    np.testing.assert_allclose(results["mean_test_score"], folds_scores.mean(axis=0))
    np.testing.assert_allclose(results["std_test_score"], folds_scores.std(axis=0))
    assert results["rank_test_score"].min() == 1
    assert len(results["merge_time"]) == 3
    best = results["n_groups"][np.argmax(results["mean_test_score"])]
    assert search.n_groups_ == best
    assert search.best_score_ == results["mean_test_score"].max()


def test_the_result_is_a_merger_on_all_data(data):
    X, y = data
    search = WordMergerCV([5, 20], cv=3).fit(X, y)
    merger = WordMerger(n_groups=search.n_groups_).fit(X, y)
    assert search.hierarchy_ == merger.hierarchy_
    np.testing.assert_array_equal(search.labels_, merger.labels_)
    np.testing.assert_array_equal(search.scores_, merger.scores_)
    np.testing.assert_array_equal(search.transform(X), merger.transform(X))
    np.testing.assert_array_equal(
        search.inverse_transform(search.transform(X)), merger.inverse_transform(merger.transform(X))
    )
    assert search.get_feature_names_out().tolist() == merger.get_feature_names_out().tolist()


@pytest.mark.parametrize(
    ("scores", "rule", "chosen"),
    [
        ([[0.5, 0.9, 0.9], [0.5, 0.9, 0.9]], "best", 1),  # equals: the smaller one
        ([[0.5, 0.8, 0.95], [0.5, 0.8, 0.91]], "best", 2),
        ([[0.5, 0.9, 0.96], [0.5, 0.9, 0.86]], "1se", 1),  # 0.91 +- 0.05
        ([[0.5, 0.84, 0.96], [0.5, 0.84, 0.86]], "1se", 2),
        ([[0.87, 0.84, 0.96], [0.87, 0.84, 0.86]], "1se", 0),
        ([[0.5, 0.9, 0.96]], "1se", 2),  # one fold has no standard error
        ([[0.5, 0.8, 0.95], [0.5, 0.97, 0.91]], "paired", 1),  # -0.045 +- 0.105 / 2
        ([[0.5, 0.8, 0.9], [0.5, 0.85, 0.96]], "paired", 2),  # -0.105 +- 0.005 / 2
        ([[0.5, 0.9, 0.96]], "paired", 2),
    ],
)
def test_rules(scores, rule, chosen):
    assert PathScores(np.array([2, 5, 9]), np.array(scores), np.zeros(len(scores))).choose(rule) == chosen


def test_the_path_gives_errors(data):
    X, y = data
    model, splits = KNeighborsClassifier(3), list(StratifiedKFold(3).split(X, y))
    path = score_path(
        sp.csr_array(X), y, (4, 60), merger=WordMerger(criterion="aib"), estimator=model, splits=splits,
        scorer=lambda fitted, X, y: fitted.score(X, y), n_jobs=2,
    )  # fmt: skip
    for k, size in enumerate((4, 60)):
        errors = []
        for train, test in splits:
            merger = WordMerger(size, criterion="aib").fit(X[train], y[train])
            grouped = merger.transform(X)
            errors.append(np.mean(model.fit(grouped[train], y[train]).predict(grouped[test]) != y[test]))
        np.testing.assert_allclose(path.errors[k], np.mean(errors))
        np.testing.assert_allclose(path.standard_errors[k], np.std(errors, ddof=1) / np.sqrt(3))


def test_groups_of_samples_stay_together(data):
    X, y = data
    groups = np.arange(90) // 9
    by_groups = WordMergerCV([5, 20], cv=GroupKFold(3)).fit(X, y, groups=groups)
    listed = WordMergerCV([5, 20], cv=list(GroupKFold(3).split(X, y, groups))).fit(X, y)
    np.testing.assert_array_equal(by_groups.cv_results_["mean_test_score"], listed.cv_results_["mean_test_score"])
    with pytest.raises(ValueError, match="groups"):
        WordMergerCV([5], cv=GroupKFold(3)).fit(X, y)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        WordMergerCV([5]).fit(X, y, colour=groups)


@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 7),
    reason="pipelines of scikit-learn 1.6 do not pass metadata on to searches in them",
)
def test_metadata_are_routed(data):
    X, y = data
    groups, weights = np.arange(90) // 9, np.random.default_rng(1).uniform(size=90)
    svm, seen = LinearSVC(), []

    class Recorder(KNeighborsClassifier):
        def fit(self, X, y, sample_weight=None):
            seen.append(sample_weight)
            return super().fit(X, y)

    with config_context(enable_metadata_routing=True):
        estimator = Recorder().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        search = WordMergerCV([5], cv=GroupKFold(3), estimator=estimator).set_fit_request(sample_weight=False)
        outer = make_pipeline(search, svm.set_fit_request(sample_weight=False))
        outer.fit(X, y, groups=groups, sample_weight=weights)
    assert len(seen) == 3
    for (train, _), given in zip(GroupKFold(3).split(X, y, groups), seen, strict=True):
        np.testing.assert_array_equal(given, weights[train])


def test_differences_are_of_samples_where_scores_are_accuracies(data):
    """Each sample counts once, however many folds test it; of other scores the folds are compared."""
    X, y = data
    model, sizes = KNeighborsClassifier(3), [2, 5, 10, 60]
    splits = [*KFold(3).split(X), *KFold(4).split(X)]
    path, scored = (
        score_path(X, y, sizes, merger=WordMerger(), estimator=model, splits=splits, scorer=scorer, predict=True)
        for scorer in (KNeighborsClassifier.score, lambda fitted, X, y: fitted.score(X, y) / 2)
    )
    right = np.zeros((2, len(y), len(sizes)))
    for k, (train, test) in enumerate(splits):
        for column, size in enumerate(sizes):
            merger = WordMerger(size).fit(X[train], y[train])
            model.fit(merger.transform(X[train]), y[train])
            right[int(k >= 3), test, column] = model.predict(merger.transform(X[test])) == y[test]
    np.testing.assert_allclose(path.right, right.mean(axis=0))
    differences = path.right - path.right[:, [path.choose("best")]]
    np.testing.assert_allclose(path.paired_errors, differences.std(axis=0, ddof=1) / np.sqrt(len(y)))
    assert scored.right is None
    halves = path.scores / 2
    differences = halves - halves[:, [path.choose("best")]]
    np.testing.assert_allclose(scored.paired_errors, differences.std(axis=0, ddof=1) / np.sqrt(7))
    search = WordMergerCV(sizes, estimator=model, cv=splits, rule="paired").fit(X, y)
    assert search.n_groups_ == sizes[path.choose("paired")]


def test_1se_is_never_larger_than_best(data):
    X, y = data
    best, thrifty = (WordMergerCV([2, 5, 10, 30, 60], cv=3, rule=rule).fit(X, y) for rule in ("best", "1se"))
    assert thrifty.n_groups_ <= best.n_groups_


@pytest.mark.parametrize(("d", "expected"), [(1, [1]), (2, [2]), (7, [2, 5, 7]), (120, [2, 5, 10, 20, 50, 100, 120])])
def test_default_sizes(d, expected):
    assert WordMergerCV()._sizes(d).tolist() == expected


def test_sizes_beyond_the_words_are_all_words():
    assert WordMergerCV([3, 99, 50, 3])._sizes(20).tolist() == [3, 20]


@pytest.mark.parametrize("sizes", [[], [0, 2], [1.5], [[2]], ["a"]])
def test_bad_sizes(data, sizes):
    with pytest.raises(BagwiseError, match="sequence of integers"):
        WordMergerCV(sizes).fit(*data)


def test_sparse_equals_dense_and_jobs_do_not_matter(data):
    X, y = data
    dense = WordMergerCV([4, 16], cv=3, estimator=KNeighborsClassifier()).fit(X, y)
    with parallel_config("loky"):  # threads are used whatever the default is
        sparse = WordMergerCV([4, 16], cv=3, estimator=KNeighborsClassifier(), n_jobs=2).fit(sp.csr_matrix(X), y)
    np.testing.assert_array_equal(dense.hierarchy_.merges, sparse.hierarchy_.merges)
    np.testing.assert_allclose(dense.cv_results_["mean_test_score"], sparse.cv_results_["mean_test_score"])


def test_scoring_and_splitters(data):
    X, y = data
    search = WordMergerCV([5], cv=StratifiedKFold(4), scoring="roc_auc", criterion="lpp").fit(X, y)
    assert "split3_test_score" in search.cv_results_
    assert 0.5 < search.best_score_ <= 1


def test_unknown_rules_are_named(data):
    with pytest.raises(BagwiseError, match="Accepted: '1se', 'best', 'paired'"):
        WordMergerCV(rule="2se").fit(*data)
