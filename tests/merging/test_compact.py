"""CompactClassifier and compress."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from bagwise import BagwiseError, CompactClassifier, compress, merge_words
from bagwise.criteria import ClassifierLoss
from bagwise.merging.compact import alike_weights
from bagwise.merging.engine import merge
from bagwise.merging.scoring import WeightLoss
from bagwise.merging.teacher import Teacher, group_weights, mean_weights
from helpers import topic_counts


def texts_of_classes(n_classes, n=120, d=60, seed=0):
    """Rows of norm 1 in which each class has words of its own."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    rates = rng.gamma(0.3, size=(n_classes, d)) + 0.05
    X = rng.poisson(rates[y]) * 1.0
    X[:, 0] += 1
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.array([f"class {k}" for k in range(n_classes)])[y]


@pytest.fixture(params=[2, 4])
def case(request):
    return texts_of_classes(request.param)


class TestCompactClassifier:
    def test_all_words_give_the_teacher(self, case):
        X, y = case
        compact = CompactClassifier(n_groups=60).fit(X, y)
        svm = LinearSVC(random_state=0).fit(X, y)
        np.testing.assert_allclose(compact.decision_function(X), svm.decision_function(X), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(compact.predict(X), svm.predict(X))
        np.testing.assert_array_equal(compact.estimator_.coef_, svm.coef_)
        assert compact.path_.agreement[-1] == 1.0

    def test_it_is_the_criterion_and_the_function(self, case):
        X, y = case
        compact = CompactClassifier(LogisticRegression(), n_groups=7).fit(X, y)
        assert compact.hierarchy_ == merge_words(X, y, criterion=ClassifierLoss(LogisticRegression()))
        teacher = Teacher.of(LogisticRegression().fit(X, y), X)
        labels = alike_weights(teacher.mass, teacher.coef.T, 7)
        np.testing.assert_array_equal(compact.labels_, labels)
        start, _ = mean_weights(teacher, compact.labels_, 7)
        coef, intercept = group_weights(compact.transform(X), teacher.scores(X), start)
        np.testing.assert_allclose(compact.coef_, coef, rtol=1e-8)
        np.testing.assert_allclose(compact.intercept_, intercept, rtol=1e-8)
        means = CompactClassifier(LogisticRegression(), n_groups=7, weights="mean").fit(X, y)
        np.testing.assert_array_equal(means.coef_, start)

    @pytest.mark.parametrize("weights", ["scores", "mean"])
    def test_a_cut_is_fitting_with_that_size(self, case, weights):
        X, y = case
        one = CompactClassifier(n_groups=20, weights=weights).fit(X, y)
        before = one.coef_.copy()
        for n in (1, 5, 33, 60, 100):
            fitted, cut = CompactClassifier(n_groups=n, weights=weights).fit(X, y), one.cut(n)
            assert cut.n_groups == n
            np.testing.assert_array_equal(cut.labels_, fitted.labels_)
            np.testing.assert_array_equal(cut.coef_, fitted.coef_)
            np.testing.assert_array_equal(cut.intercept_, fitted.intercept_)
            np.testing.assert_array_equal(cut.predict(X), fitted.predict(X))
        np.testing.assert_array_equal(one.coef_, before)

    def test_sparse_equals_dense(self, case):
        X, y = case
        estimator = RidgeClassifier(solver="sparse_cg", tol=1e-12)
        fits = [CompactClassifier(estimator, n_groups=8).fit(form(X), y) for form in FORMS]
        for fitted, form in zip(fits, FORMS, strict=True):
            np.testing.assert_array_equal(fitted.labels_, fits[0].labels_)
            np.testing.assert_allclose(fitted.coef_, fits[0].coef_, rtol=1e-6, atol=1e-9)
            Z = fitted.transform(form(X))
            assert type(Z) is type(form(X))
            np.testing.assert_allclose(Z.toarray() if sp.issparse(Z) else Z, fits[0].transform(X))
            np.testing.assert_allclose(fitted.decision_function(form(X)), fits[0].decision_function(X), rtol=1e-6)

    def test_scores_are_weights_times_group_sums(self, case):
        X, y = case
        compact = CompactClassifier(n_groups=10).fit(X, y)
        scores = compact.transform(X) @ compact.coef_.T + compact.intercept_
        np.testing.assert_allclose(compact.decision_function(X).reshape(scores.shape), scores)
        sums = np.stack([X[:, words].sum(axis=1) for words in compact.groups_], axis=1)
        np.testing.assert_allclose(compact.transform(X), sums)
        assert len(set(compact.get_feature_names_out())) == len(compact.get_feature_names_out()) == 10

    def test_fitting_to_scores_follows_the_teacher_more_closely(self):
        X, y = texts_of_classes(4, n=300)
        teacher = LinearSVC(random_state=0).fit(X, y)
        changes = [
            np.square(
                CompactClassifier(FrozenEstimator(teacher), n_groups=8, weights=weights).fit(X).decision_function(X)
                - teacher.decision_function(X)
            ).mean()
            for weights in ("scores", "mean")
        ]
        assert changes[0] < changes[1]

    def test_a_frozen_teacher_needs_no_labels(self, case):
        X, y = case
        frozen = FrozenEstimator(LinearSVC(random_state=0).fit(X, y))
        without, ours = CompactClassifier(frozen).fit(X), CompactClassifier().fit(X, y)
        np.testing.assert_array_equal(without.coef_, ours.coef_)
        assert without.path_.errors is None
        assert without.estimator_ is frozen
        other = CompactClassifier(frozen).fit(X[:50])  # items of one's own to fit the weights to
        assert not np.array_equal(other.coef_, ours.coef_)

    def test_path(self, case):
        X, y = case
        compact = CompactClassifier(n_groups=6).fit(X, y)
        assert compact.path_.sizes.tolist() == [2, 5, 6, 10, 20, 50, 60]
        for k, size in enumerate(compact.path_.sizes):
            cut = compact.cut(size)
            assert compact.path_.agreement[k] == np.mean(cut.predict(X) == compact.estimator_.predict(X))
            assert compact.path_.errors[k] == np.mean(cut.predict(X) != y)
            expected, scores = (one.decision_function(X) for one in (compact.estimator_, cut))
            loss = np.square(scores - expected).sum() / np.square(expected - expected.mean(axis=0)).sum()
            assert compact.path_.losses[k] == pytest.approx(loss, abs=1e-12)
        some = compact.path(X[:40], sizes=[3, 1])
        assert some.sizes.tolist() == [1, 3]
        assert some.errors is None

    def test_more_groups_than_are_fitted_to_scores(self):
        rng = np.random.default_rng(0)
        X = sp.random(60, 1500, 0.05, format="csr", random_state=0, data_rvs=rng.random)
        y = np.arange(60) % 2
        compact = CompactClassifier(n_groups=1200).fit(X, y)
        teacher = compact.teacher_
        np.testing.assert_array_equal(compact.coef_, mean_weights(teacher, compact.labels_, 1200)[0])
        cut = compact.cut(300)
        start, _ = mean_weights(teacher, cut.labels_, 300)
        expected = group_weights(cut.transform(X), teacher.scores(X), start)
        np.testing.assert_allclose(cut.coef_, expected[0], rtol=1e-6, atol=1e-9)

    def test_save_and_load(self, case):
        X, y = case
        compact = CompactClassifier(n_groups=9).fit(X, y)
        again = pickle.loads(pickle.dumps(compact))
        np.testing.assert_array_equal(again.decision_function(X), compact.decision_function(X))
        np.testing.assert_array_equal(again.cut(4).coef_, compact.cut(4).coef_)

    def test_names_of_words(self, case):
        pd = pytest.importorskip("pandas")
        X, y = case
        frame = pd.DataFrame(X, columns=[f"word{j}" for j in range(60)])
        compact = CompactClassifier(n_groups=5).fit(frame, y)
        first = compact.groups_[0][np.argmax(compact.teacher_.mass[compact.groups_[0]])]
        assert compact.get_feature_names_out()[0].startswith(f"word{first}+")

    @pytest.mark.parametrize(
        ("estimator", "message"),
        [
            (GaussianNB(), "GaussianNB is not a linear classifier"),
            (CalibratedClassifierCV(cv=2), "CalibratedClassifierCV is not a linear classifier"),
        ],
    )
    def test_teachers_that_are_not_linear(self, case, estimator, message):
        with pytest.raises(BagwiseError, match=message):
            CompactClassifier(estimator).fit(*case)

    def test_bad_input(self, case):
        X, y = case
        with pytest.raises(BagwiseError, match=r"^CompactClassifier needs at least two classes"):
            CompactClassifier().fit(X, np.zeros(120))
        with pytest.raises(BagwiseError, match="weighting='tfidf' with a FrozenEstimator"):
            CompactClassifier(FrozenEstimator(LinearSVC().fit(X, y)), weighting="tfidf").fit(X, y)
        compact = CompactClassifier().fit(X, y)
        with pytest.raises(BagwiseError, match="n_groups must be at least 1"):
            compact.cut(0)
        with pytest.raises(BagwiseError, match="sizes must be from 1 to 60"):
            compact.path(X, sizes=[61])


FORMS = (np.asarray, sp.csr_array, sp.csr_matrix)


@pytest.mark.parametrize("form", FORMS)
def test_counts_are_weighted_as_texts_are(form):
    counts, y = topic_counts(np.random.default_rng(0), 200, 40)
    counts[counts < 2] = 0
    X = form(counts)
    weighted = make_pipeline(TfidfTransformer(sublinear_tf=True), CompactClassifier(n_groups=5, weighting=None))
    compact = CompactClassifier(n_groups=5).fit(X, y)
    np.testing.assert_allclose(compact.decision_function(X), weighted.fit(X, y).decision_function(X), atol=1e-6)
    Z, expected = compact.transform(X), weighted.transform(X)
    np.testing.assert_allclose(Z.toarray() if sp.issparse(Z) else Z, expected.toarray(), atol=1e-12)
    assert compact.path(X, sizes=[5]).agreement == np.mean(
        compact.predict(X) == weighted[-1].estimator_.predict(weighted[0].transform(X))
    )
    np.testing.assert_array_equal(compact.cut(3).decision_function(X[:9]), compact.cut(3).decision_function(X)[:9])
    for unlike in (counts / 2, counts + 1, np.minimum(counts, 1), -counts):  # no counts, or not that kind
        assert CompactClassifier(n_groups=5).fit(form(unlike), y).weighting_ is None
    assert CompactClassifier(n_groups=5, weighting=None).fit(X, y).weighting_ is None
    assert CompactClassifier(n_groups=5, weighting="tfidf").fit(form(counts / 2), y).weighting_.norm == "l2"


def test_probabilities_are_those_of_the_estimator(case):
    X, y = case
    for teacher in (LogisticRegression(), SGDClassifier(loss="modified_huber", random_state=0)):
        fitted = teacher.fit(X, y)
        for estimator in (teacher, FrozenEstimator(fitted)):
            all_words = CompactClassifier(estimator, n_groups=60).fit(X, y)
            np.testing.assert_allclose(all_words.predict_proba(X), fitted.predict_proba(X), atol=1e-12)
            few = all_words.cut(6)
            np.testing.assert_allclose(few.predict_proba(sp.csr_array(X)).sum(axis=1), 1)
    binary = LogisticRegression().fit(X, y == "class 1")
    few = CompactClassifier(FrozenEstimator(binary), n_groups=6).fit(X)
    np.testing.assert_allclose(few.predict_proba(X)[:, 1], 1 / (1 + np.exp(-few.decision_function(X))))
    svc = SVC(kernel="linear", probability=True)  # whose probabilities do not come from its weights
    for without in (CompactClassifier(), CompactClassifier().fit(X, y), CompactClassifier(svc)):
        assert not hasattr(without, "predict_proba")


@pytest.mark.parametrize("weighting", ["tfidf", None])
def test_weights_of_samples_are_repeats(case, weighting):
    X, y = case
    weights = np.arange(len(y)) % 3
    X = np.rint(30 * X) if weighting else X
    make = lambda: CompactClassifier(RidgeClassifier(), n_groups=7, weighting=weighting)  # noqa: E731
    weighted = make().fit(X, y, sample_weight=weights)
    repeated = make().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_array_equal(weighted.labels_, repeated.labels_)
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), rtol=1e-6)
    np.testing.assert_allclose(weighted.path_.errors, repeated.path_.errors)
    np.testing.assert_allclose(weighted.path_.losses, repeated.path_.losses, rtol=1e-6)
    assert not np.allclose(weighted.decision_function(X), make().fit(X, y).decision_function(X))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        make().fit(X, y, sample_weight=-np.ones(len(y)))
    with pytest.raises(BagwiseError, match=r"LinearDiscriminantAnalysis\.fit takes no sample_weight"):
        CompactClassifier(LinearDiscriminantAnalysis()).fit(X, y, sample_weight=weights)


def test_metadata_go_where_they_are_requested(case):
    X, y = case
    weights = 1.0 + np.arange(len(y)) % 3
    plain = RidgeClassifier()
    both = CompactClassifier(plain, n_groups=7).fit(X, y, sample_weight=weights)
    with config_context(enable_metadata_routing=True):
        for_estimator = RidgeClassifier().set_fit_request(sample_weight=True)
        asked = CompactClassifier(for_estimator, n_groups=7).set_fit_request(sample_weight=True)
        np.testing.assert_array_equal(asked.fit(X, y, sample_weight=weights).coef_, both.coef_)
        not_groups = clone(asked).set_fit_request(sample_weight=False).fit(X, y, sample_weight=weights)
        np.testing.assert_array_equal(not_groups.estimator_.coef_, both.estimator_.coef_)
        assert not np.allclose(not_groups.coef_, both.coef_)
        not_estimator = CompactClassifier(RidgeClassifier().set_fit_request(sample_weight=False), n_groups=7)
        not_estimator.set_fit_request(sample_weight=True).fit(X, y, sample_weight=weights)
        np.testing.assert_array_equal(not_estimator.estimator_.coef_, plain.fit(X, y).coef_)
        default = CompactClassifier().set_fit_request(sample_weight=True).fit(X, y, sample_weight=weights)
        expected = LinearSVC(random_state=0).fit(X, y, sample_weight=weights).coef_
        np.testing.assert_array_equal(default.estimator_.coef_, expected)
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            CompactClassifier(plain).set_fit_request(sample_weight=True).fit(X, y, sample_weight=weights)


def test_words_of_like_weights_are_the_hierarchy_improved():
    rng = np.random.default_rng(0)
    mass, weights = rng.gamma(1.0, size=200), rng.normal(size=(200, 3))
    labels = alike_weights(mass, weights, 12)
    means = np.stack([np.average(weights[labels == k], axis=0, weights=mass[labels == k]) for k in range(12)])
    hierarchy = merge(WeightLoss(mass, weights), name="classifier")
    assert mass @ ((weights - means[labels]) ** 2).sum(axis=1) <= -hierarchy.scores[200 - 12 - 1]
    assert np.unique(labels).tolist() == list(range(12))


TEXTS = ["cats purr and meow", "a cat may purr", "dogs bark", "the dog will bark", "the cats meow", "a dog barks"] * 3
LABELS = ["cat", "cat", "dog", "dog", "cat", "dog"] * 3


class TestCompress:
    @pytest.fixture
    def pipeline(self):
        return make_pipeline(TfidfVectorizer(), LinearSVC(random_state=0)).fit(TEXTS, LABELS)

    def test_with_data_it_is_the_classifier_on_the_words(self, pipeline):
        compact = compress(pipeline, TEXTS, n_groups=4)
        X = pipeline[0].transform(TEXTS)
        expected = CompactClassifier(LinearSVC(random_state=0), n_groups=4).fit(X, LABELS)
        np.testing.assert_allclose(compact.decision_function(TEXTS), expected.decision_function(X))
        assert compact[0] is pipeline[0]
        assert list(compact.named_steps) == list(pipeline.named_steps)
        assert compact.predict(TEXTS).tolist() == LABELS

    @pytest.mark.filterwarnings("ignore:compress without X")
    def test_without_data(self, pipeline):
        compact = compress(pipeline, n_groups=4)
        assert compact.predict(TEXTS).tolist() == LABELS
        assert compact[-1].path_ is None
        np.testing.assert_array_equal(compact[-1].intercept_, pipeline[-1].intercept_)
        all_words = compress(pipeline, n_groups=10**6)
        np.testing.assert_allclose(all_words.decision_function(TEXTS), pipeline.decision_function(TEXTS))
        assert compact[-1].cut(2).transform(pipeline[0].transform(TEXTS)).shape == (18, 2)

    def test_what_data_would_gain_is_said(self, pipeline):
        with pytest.warns(UserWarning, match=r"is estimated from its idf\. With X, .* fewer answers change"):
            compress(pipeline)
        with pytest.warns(UserWarning, match="all words count equally"):
            compress(pipeline[-1])

    @pytest.mark.filterwarnings("ignore:compress without X")
    def test_masses_come_from_the_idf(self, pipeline):
        n = len(TEXTS)
        df = (pipeline[0].transform(TEXTS) > 0).sum(axis=0)
        mass = compress(pipeline)[-1].teacher_.mass
        np.testing.assert_allclose(mass, np.ravel((1 + df) / (1 + n)) * pipeline[0].idf_ ** 2)
        steps = (CountVectorizer(), TfidfTransformer(), SelectKBest(chi2, k=5), LinearSVC(random_state=0))
        chosen = make_pipeline(*steps).fit(TEXTS, LABELS)
        support = chosen[2].get_support()
        np.testing.assert_allclose(compress(chosen)[-1].teacher_.mass, mass[support])
        plain = make_pipeline(CountVectorizer(), LinearSVC(random_state=0)).fit(TEXTS, LABELS)
        np.testing.assert_array_equal(compress(plain)[-1].teacher_.mass, 1.0)

    @pytest.mark.filterwarnings("ignore:compress without X")
    def test_a_classifier_alone(self):
        X, y = topic_counts(np.random.default_rng(0), 60, 30)
        svm = RidgeClassifier().fit(X, y)
        compact = compress(svm, X, n_groups=5)
        assert isinstance(compact, CompactClassifier)
        expected = CompactClassifier(RidgeClassifier(), n_groups=5, weighting=None).fit(X, y)
        np.testing.assert_array_equal(compact.coef_, expected.coef_)
        assert compress(svm, n_groups=5).coef_.shape == (1, 5)
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(X, columns=[f"word{k}" for k in range(X.shape[1])])
        named = RidgeClassifier().fit(frame, y)  # scikit-learn warns where its names are missing
        np.testing.assert_array_equal(compress(named, frame, n_groups=5).predict(frame), compact.predict(X))

    def test_what_cannot_be_compressed(self, pipeline):
        with pytest.raises(BagwiseError, match="GaussianNB is not a linear classifier"):
            compress(GaussianNB().fit(np.eye(4), [0, 1, 0, 1]))
        with pytest.raises(NotFittedError):
            compress(LinearSVC())
        with pytest.raises(BagwiseError, match=r"compact already.*cut"):
            compress(compress(pipeline, TEXTS))
        with pytest.raises(BagwiseError, match="n_groups must be at least 1"):
            compress(pipeline, n_groups=0)
