import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, WordMerger, WordMergerCV, merge_words
from bagwise.criteria import NonparametricDiscriminant
from bagwise.merging import MergingInterrupted
from bagwise.merging.engine import Engine
from bagwise.merging.naming import name_groups


@pytest.fixture
def data():
    rng = np.random.default_rng(2)
    return rng.integers(0, 9, (40, 25)).astype(float), np.arange(40) % 2


def test_it_is_merge_words_and_a_sum(data):
    X, y = data
    merger = WordMerger(n_groups=6).fit(X, y)
    hierarchy = merge_words(X, y)
    assert merger.hierarchy_ == hierarchy
    np.testing.assert_array_equal(merger.labels_, hierarchy.cut(6))
    np.testing.assert_array_equal(merger.scores_, hierarchy.scores)
    expected = np.stack([X[:, group].sum(axis=1) for group in hierarchy.groups(6)], axis=1)
    np.testing.assert_array_equal(merger.transform(X), expected)
    np.testing.assert_array_equal(merger.transform(X).sum(axis=1), X.sum(axis=1))


def test_another_size_needs_no_fit(data):
    X, y = data
    merger = WordMerger(n_groups=10).fit(X, y)
    for n in (1, 3, 10, 25):
        fresh = WordMerger(n_groups=n).fit(X, y)
        merger.set_params(n_groups=n)
        np.testing.assert_array_equal(merger.transform(X), fresh.transform(X))
        np.testing.assert_array_equal(merger.labels_, fresh.labels_)
    assert merger.set_params(n_groups=99).transform(X).shape == (40, 25)


def test_cut_gives_another_size_and_leaves_the_merger_as_it_was(data):
    X, y = data
    merger = WordMerger(n_groups=10, pooling="mean").fit(X, y)
    for fitted in (merger, WordMergerCV([10], cv=2, pooling="mean").fit(X, y)):
        for n in (1, 3, 25):
            other = fitted.cut(n)
            np.testing.assert_array_equal(other.transform(X), WordMerger(n, pooling="mean").fit(X, y).transform(X))
            assert other.get_params() == merger.get_params() | {"n_groups": n}
        assert fitted.transform(X).shape == (40, 10)
    with pytest.raises(BagwiseError, match="at least 1, got 0"):
        merger.cut(0)
    with pytest.raises(NotFittedError):
        WordMerger().cut(3)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array])
@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrt"])
def test_sparse_equals_dense(data, form, pooling):
    X, y = data
    dense, sparse = (
        WordMerger(n_groups=5, pooling=pooling).fit(X, y),
        WordMerger(n_groups=5, pooling=pooling).fit(form(X), y),
    )
    np.testing.assert_array_equal(dense.hierarchy_.merges, sparse.hierarchy_.merges)
    Z = sparse.transform(form(X))
    assert sp.issparse(Z)
    assert Z.format == "csr"
    np.testing.assert_array_equal(Z.toarray(), dense.transform(X))
    back = sparse.inverse_transform(Z)
    np.testing.assert_allclose(back.toarray(), dense.inverse_transform(Z.toarray()), atol=1e-12)
    np.testing.assert_allclose(sparse.transform(back).toarray(), Z.toarray(), atol=1e-12)


def test_inverse_transform_wants_one_column_per_group(data):
    merger = WordMerger(n_groups=5).fit(*data)
    with pytest.raises(BagwiseError, match="4 columns, expected one per group: 5"):
        merger.inverse_transform(np.ones((2, 4)))


def test_names_begin_with_the_heaviest_words():
    X = np.array([[1.0, 5, 3, 2, 0], [2, 9, 4, 2, 0], [0, 0, 0, 0, 9], [0, 0, 1, 0, 8]])
    merger = WordMerger(n_groups=2).fit(X, [0, 0, 1, 1])
    assert merger.labels_.tolist() == [0, 0, 0, 0, 1]
    words = ["truck", "car", "auto", "van", "cat"]
    assert merger.get_feature_names_out(words).tolist() == ["car+auto+van…(4)", "cat"]
    assert merger.get_feature_names_out().tolist() == ["x1+x2+x3…(4)", "x4"]
    merger.set_params(n_groups=5)
    assert merger.get_feature_names_out(words).tolist() == words
    with pytest.raises(ValueError, match="input_features should have length"):
        merger.get_feature_names_out(["too", "few"])


def test_names_are_unique():
    merger = WordMerger(n_groups=2).fit([[4.0, 3, 0], [5, 4, 1], [0, 1, 4], [1, 0, 5]], [0, 0, 1, 1])
    assert merger.labels_.tolist() == [0, 0, 1]
    assert merger.get_feature_names_out(["a", "b", "a+b"]).tolist() == ["a+b", "a+b#2"]
    words, labels = np.array(["a", "b", "a+b", "a+b#2", "a+b"]), np.array([0, 0, 1, 2, 3])
    names = name_groups(words, np.zeros(5), labels, 4)
    assert names.tolist() == ["a+b", "a+b#2", "a+b#2#2", "a+b#3"]


@pytest.mark.parametrize("estimator", [WordMerger(n_groups=4), WordMergerCV([4], cv=2)])
def test_data_frames_keep_their_names(data, estimator):
    X, y = data
    frame = pd.DataFrame(X, columns=[f"word{k}" for k in range(25)])
    merger = clone(estimator).set_output(transform="pandas").fit(frame, y)
    Z = merger.transform(frame)
    assert isinstance(Z, pd.DataFrame)
    assert list(Z.columns) == list(merger.get_feature_names_out())
    assert all("word" in name for name in Z.columns)
    np.testing.assert_array_equal(Z, merger.hierarchy_ and clone(estimator).fit(X, y).transform(X))


def test_unsupervised_criteria_need_no_labels(data):
    X, y = data
    with_labels, without = WordMerger(criterion="lpp").fit(X, y), WordMerger(criterion="lpp").fit(X)
    assert with_labels.hierarchy_ == without.hierarchy_
    assert WordMerger(n_groups=3, criterion="lpp").fit_transform(X).shape == (40, 3)


def test_what_it_was_asked_before_fitting(data):
    merger = WordMerger()
    for use in (lambda: merger.transform(data[0]), lambda: merger.labels_, lambda: merger.get_feature_names_out()):
        with pytest.raises(NotFittedError):
            use()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_groups": 0}, "n_groups"),
        ({"n_groups": "many"}, "n_groups"),
        ({"criterion": "ndaa"}, "Did you mean 'nda'"),
        ({"pooling": "summ"}, "Did you mean 'sum'"),
        ({"search": "polr"}, "Did you mean 'polar'"),
        ({"kernel": "chi"}, "Did you mean 'chi2'"),
        ({"memory_limit": -1}, "memory_limit"),
        ({"memory_limit": 1000, "criterion": "csm"}, "limit is 1.00 kB"),
        ({"memory_limit": "much"}, "not a size"),
    ],
)
def test_bad_parameters(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        WordMerger(**parameters).fit(*data)


def test_interruption_keeps_what_was_merged(data, monkeypatch):
    X, y = data

    run = Engine.run

    def interrupted(engine):
        raise MergingInterrupted(run(engine, n_groups=7))

    monkeypatch.setattr(Engine, "run", interrupted)
    merger = WordMerger(n_groups=10, criterion="csm")
    with pytest.raises(KeyboardInterrupt):
        merger.fit(X, y)
    monkeypatch.undo()
    assert (merger.store_, merger.criterion_) == ("dense", "csm")
    np.testing.assert_array_equal(merger.transform(X), merger.cut(10).fit(X, y).transform(X))
    with pytest.raises(BagwiseError, match=r"7 groups left.*set_params\(n_groups=7\)"):
        merger.set_params(n_groups=5).transform(X)


def test_it_fits_into_pipelines_and_grids(data):
    X, y = data
    pipeline = make_pipeline(WordMerger(criterion=NonparametricDiscriminant()), LinearSVC())
    grid = {"wordmerger__n_groups": [2, 5], "wordmerger__criterion__n_neighbors": [3, 10]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X / X.max(), y)
    assert set(search.best_params_) == set(grid)


def test_a_fitted_merger_can_be_sent_to_another_process(data):
    merger = WordMerger(n_groups=5).fit(*data)
    copy = pickle.loads(pickle.dumps(merger))
    np.testing.assert_array_equal(copy.transform(data[0]), merger.transform(data[0]))


def test_progress(data, capsys):
    WordMerger(verbose=1).fit(*data)
    assert "merging words" in capsys.readouterr().err


@pytest.mark.parametrize("estimator", [WordMerger(n_groups=3), WordMergerCV([3], cv=2)])
def test_a_failed_fit_leaves_nothing_of_an_earlier_one(data, estimator):
    X, y = data
    estimator = clone(estimator).fit(X[:, :10], y)
    with pytest.raises(ValueError, match="class"):
        estimator.fit(X, np.zeros(40))
    with pytest.raises(NotFittedError):
        estimator.transform(X)


def test_changing_the_size_to_nonsense_after_fitting(data):
    merger = WordMerger(n_groups=3).fit(*data)
    for n_groups in (0, "3", None, 2.5):
        with pytest.raises(BagwiseError, match="n_groups must be an integer of at least 1"):
            merger.set_params(n_groups=n_groups).transform(data[0])


def test_totals_of_single_precision_data_do_not_round():
    X = np.full((200, 2), 100_000.0, dtype=np.float32)
    X[0] = 99_999.0
    merger = WordMerger(n_groups=2).fit(X, np.arange(200) % 2)
    np.testing.assert_array_equal(merger.word_totals_, X.sum(axis=0, dtype=np.float64))


@pytest.mark.parametrize("criterion", ["LPP", "lpp"])
def test_tags_know_the_criterion(criterion):
    assert not WordMerger(criterion=criterion).__sklearn_tags__().target_tags.required
    assert WordMerger(criterion=["odd"]).__sklearn_tags__().target_tags.required


@pytest.mark.parametrize("missing", [-1, np.nan, None, pd.NA])
def test_missing_labels(data, missing):
    X, y = data
    partly = np.where(np.arange(40) % 3, y, -1)
    given = pd.Series([missing if label < 0 else label for label in partly], dtype=object)
    if missing is np.nan:
        given = given.astype(float)
    ours = WordMerger(criterion="semi_supervised").fit(X, given)
    np.testing.assert_array_equal(ours.hierarchy_.merges, merge_words(X, partly, criterion="semi_supervised").merges)


def test_cross_validation_leaves_unlabelled_samples_out(data):
    X, y = data
    seen = []

    class Recorder(LinearSVC):
        def fit(self, X, y, sample_weight=None):
            seen.append(set(np.asarray(y).tolist()))
            return super().fit(X, y)

    partly = np.where(np.arange(40) % 3, y, -1)
    as_objects = np.array([None if label < 0 else label for label in partly.tolist()], dtype=object)
    chosen = []
    for labels in (partly, np.where(partly < 0, np.nan, partly), as_objects):
        search = WordMergerCV([2, 5], criterion="semi_supervised", estimator=Recorder(), cv=2).fit(X / 9, labels)
        chosen.append(search.cv_results_["mean_test_score"].tolist())
    assert seen == [{0, 1}] * 12
    assert chosen[0] == chosen[1] == chosen[2]


def test_cross_validation_cannot_split_graphs(data):
    from bagwise.criteria import GraphPair

    with pytest.raises(BagwiseError, match="over all samples"):
        WordMergerCV(criterion=GraphPair(np.ones((40, 40)), np.ones((40, 40)))).fit(*data)


@pytest.mark.parametrize("criterion", ["csm", "aib", "mlt"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_weights_count_samples(data, criterion, form):
    X, y = data
    counts = np.random.default_rng(3).integers(0, 4, len(y))
    weighted = WordMerger(5, criterion=criterion).fit(form(X), y, sample_weight=counts)
    repeated = WordMerger(5, criterion=criterion).fit(form(np.repeat(X, counts, axis=0)), np.repeat(y, counts))
    np.testing.assert_array_equal(weighted.hierarchy_.merges, repeated.hierarchy_.merges)
    np.testing.assert_allclose(weighted.word_totals_, repeated.word_totals_)


def test_criteria_without_weights_refuse_them(data):
    with pytest.raises(BagwiseError, match="'lpp' does not support sample_weight"):
        WordMerger(criterion="lpp").fit(*data, sample_weight=np.ones(40))


def test_weighted_cross_validation(data):
    X, y = data
    weights = np.random.default_rng(4).uniform(0.5, 2, 40)
    folds = StratifiedKFold(3)
    search = WordMergerCV([3, 9], cv=folds).fit(X, y, sample_weight=weights)
    assert search.hierarchy_ == WordMerger().fit(X, y, weights).hierarchy_
    for k, (train, test) in enumerate(folds.split(X, y)):
        merger = WordMerger(9).fit(X[train], y[train], weights[train])
        model = make_pipeline(MaxAbsScaler(), LinearSVC())
        model.fit(merger.transform(X[train]), y[train], linearsvc__sample_weight=weights[train])
        expected = model.score(merger.transform(X[test]), y[test], sample_weight=weights[test])
        np.testing.assert_allclose(search.cv_results_[f"split{k}_test_score"][1], expected)
    with pytest.raises(BagwiseError, match=r"KNeighborsClassifier.fit takes no sample_weight"):
        WordMergerCV([3], estimator=KNeighborsClassifier()).fit(X, y, sample_weight=weights)


def test_names_of_groups_differ_whatever_the_words_are_called():
    X = np.array([[9.0, 8, 1, 0], [8, 9, 0, 1], [0, 1, 9, 1], [1, 0, 8, 9]])
    merger = WordMerger(3).fit(X, [0, 0, 1, 2])
    assert merger.labels_.tolist() == [0, 0, 1, 2]
    names = merger.get_feature_names_out(["a", "b", "a+b", "b+a"])
    assert sorted(names) == ["a+b", "a+b#2", "b+a"] or sorted(names) == ["a+b", "b+a", "b+a#2"]
    assert len(set(merger.get_feature_names_out(["a", "b", "a+b", "a+b#2"]))) == 3
