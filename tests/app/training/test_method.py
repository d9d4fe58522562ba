"""Which method a fit takes, and classifiers of groups that follow one on all words."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, Hierarchy, Model, merge_words, runtime
from bagwise.app import FitOptions, fit_model, run_fit
from bagwise.app.modalities.vectorizers import group_features
from bagwise.app.training.learning import learn_rows
from bagwise.app.training.method import choose_method, choose_weighting
from bagwise.app.training.rows import Rows
from bagwise.codebooks.normalizing import WordWeighting, normalize_rows
from bagwise.codebooks.pyramids import WordLayout
from bagwise.criteria import Clusters
from bagwise.errors import OptionError
from bagwise.merging.pooling import pool
from bagwise.merging.teacher import Teacher, group_weights, mean_weights
from small_sources import texts, write_image_folder, write_text_folder


def test_items_of_several_vocabularies_are_clustered_once():
    """By the words of all vocabularies together, each with its own frequencies, in any fold and without classes."""
    rng = np.random.default_rng(0)
    X = rng.poisson(2.0, (60, 20)).astype(float)
    method = choose_method(FitOptions(random_state=3), "images", 0, (12, 8))
    codes = method.clusterings(X).codes(X)
    apart = [merge_words(X[:, part], criterion=Clusters(clusterings=codes)) for part in (slice(12), slice(12, 20))]
    merged = learn_rows(
        Rows.here(X, X, X, None, range(60), WordLayout(X.shape[1:])), [], method, FitOptions()
    ).hierarchy
    assert merged == Hierarchy.interleave(apart)
    louder = X * np.repeat([50.0, 1.0], [12, 8])
    np.testing.assert_array_equal(method.clusterings(louder).codes(louder), codes)
    assert choose_method(FitOptions(criterion="mmi"), "images", 0, (12, 8)).clusterings(X) is None


@pytest.mark.parametrize(
    ("options", "modality", "n_classes", "criterion", "root"),
    [
        ({}, "texts", 6, "classifier", None),
        ({"n_groups": 6}, "texts", 6, "classifier", None),
        ({"n_groups": 5}, "texts", 6, "aib", None),
        ({}, "texts", 0, "clusters", None),
        ({"criterion": "csm"}, "texts", 2, "csm", None),
        ({}, "images", 2, "classifier", "before"),
        ({"n_groups": 1}, "images", 2, "csm", "before"),
        ({"n_groups": 3, "root": "after"}, "images", 2, "csm", "after"),
        ({}, "images", 3, "classifier", "before"),
        ({"root": "after"}, "images", 3, "aib", "after"),
        ({"root": "after", "n_groups": 40}, "images", 2, "csm", "after"),
        ({"n_groups": 2}, "images", 3, "aib", "after"),
        ({"pyramid": 5}, "images", 3, "aib", "after"),
        ({"pyramid": 5}, "images", 2, "csm", "before"),
        ({"criterion": "csm"}, "images", 3, "csm", "after"),
        ({"criterion": "classifier"}, "images", 3, "classifier", "before"),
        ({"n_groups": 2}, "videos", 2, "classifier", "before"),
        ({}, "images", 0, "clusters", "after"),
        ({}, "table", 2, "classifier", "before"),
        ({"n_groups": 3}, "table", 4, "aib", "after"),
        ({"root": "before", "criterion": "aib"}, "table", 2, "aib", "before"),
        ({}, "table", 0, "clusters", "after"),
    ],
)
def test_the_method_follows_from_modality_classes_and_options(options, modality, n_classes, criterion, root):
    method = choose_method(FitOptions(**options), modality, n_classes)
    assert (method.criterion, method.root) == (criterion, root)
    assert (method.reason == "as given") == ("criterion" in options)
    assert method.follows == (criterion == "classifier")


def test_roots_of_sums_do_not_follow_a_classifier():
    with pytest.raises(OptionError, match="root='after' is not for the criterion 'classifier'"):
        choose_method(FitOptions(criterion="classifier", root="after"), "images", 3)


def counted(n_classes=3, n=90, d=40, seed=0):
    """Counts of words that lean to classes, and classes."""
    random = np.random.default_rng(seed)
    codes = np.arange(n) % n_classes
    rates = random.gamma(0.5, size=(n_classes, d))
    return sp.csr_array(random.poisson(rates[codes]).astype(float)), codes


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("n_cells", [1, 3])
def test_groups_follow_a_classifier_on_all_words(n_classes, n_cells):
    """With all words it is that classifier; sums over items of merged groups are taken from those of finer groups."""
    counts, codes = counted(n_classes, d=40 * n_cells)
    X = WordWeighting("sqrt", None, "l2").apply(counts)
    whole = sum(X[:, 40 * k : 40 * (k + 1)] for k in range(n_cells))  # the sum of the cells of the first grid
    layout = WordLayout((40,), ((1, n_cells),))
    rows = Rows.here(X, X if n_cells == 1 else whole, whole, codes, range(len(codes)), layout)
    method = choose_method(FitOptions(criterion="classifier"), "images", n_classes)
    learned = learn_rows(rows, [2, 7, 20, 40], method, FitOptions())
    svm = LinearSVC(dual=False, random_state=0, max_iter=3000).fit(X, codes)
    teacher = Teacher.of(svm, X)
    scores, expected = learned.heads[40].scores(X), svm.decision_function(X)
    np.testing.assert_allclose(scores[:, 1] if n_classes == 2 else scores, expected, atol=1e-5)
    for size in (2, 7, 20):
        labels = learned.hierarchy.cut(size)
        spread = (np.arange(n_cells)[:, None] * size + labels).ravel()
        start = mean_weights(teacher, spread, n_cells * size)[0]
        coef, intercept = group_weights(pool(X, spread, n_cells * size), teacher.scores(X), start)
        np.testing.assert_allclose(learned.heads[size].coef[-len(coef) :], coef, atol=1e-5)
        np.testing.assert_allclose(learned.heads[size].intercept[-len(coef) :], intercept, atol=1e-5)


@pytest.mark.parametrize("criterion", ["classifier", "aib"])
def test_folds_are_fits_of_the_items_they_do_not_test(criterion, tmp_path):
    fit = run_fit(write_text_folder(tmp_path / "texts"), FitOptions(folds=3, criterion=criterion, n_groups=4, n_jobs=2))
    method, words = choose_method(FitOptions(criterion=criterion), "texts", 3), fit.data.histograms
    rows = Rows.of(fit.data, fit.codes, method, choose_weighting(method, words))
    sizes = fit.model.path.sizes
    assert sorted(np.concatenate([fold.test for fold in fit.folds]).tolist()) == list(range(len(fit.codes)))
    for fold in fit.folds:
        train = np.setdiff1d(np.arange(len(fit.codes)), fold.test)
        again = learn_rows(rows[train], sizes, method, FitOptions(n_groups=4))
        assert again.hierarchy == fold.learned.hierarchy
        assert again.heads == fold.learned.heads
        for k, size in enumerate(sizes):
            grouped = group_features(
                rows.weighted[fold.test], again.hierarchy.cut(size), size, rows.layout, method.normalize
            )
            answers = again.heads[size].scores(grouped).argmax(axis=1)
            np.testing.assert_array_equal(fit.held_out[k, fold.test], answers)


def test_a_model_of_texts_is_tf_idf_and_a_linear_svm_on_all_words(tmp_path):
    """With all words, the default is what people write with scikit-learn."""
    source = write_text_folder(tmp_path / "texts")
    fit = run_fit(source, FitOptions(folds=2))
    model, given = fit.model, [item.load() for item in fit.data.collection]
    single, pairs = CountVectorizer().fit(given), CountVectorizer(ngram_range=(2, 2), min_df=2).fit(given)
    names = sorted([*single.get_feature_names_out(), *pairs.get_feature_names_out()])
    tfidf = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), vocabulary=names)
    peer = make_pipeline(tfidf, LinearSVC(random_state=0, max_iter=3000)).fit(given, fit.codes)
    assert model.options["criterion"] == "classifier"
    assert names == list(model.word_names)
    new = [text for text, _ in texts(n_each=4, seed=5)]
    whole = model.cut(model.hierarchy.n_words)
    np.testing.assert_allclose(whole.transform(new).toarray(), peer[0].transform(new).toarray(), atol=1e-6)
    scores, expected = whole.decision_function(new), peer.decision_function(new)
    np.testing.assert_allclose(scores[:, 1] if expected.ndim == 1 else scores, expected, atol=1e-3)
    loaded = Model.load(model.save(tmp_path / "m.bagwise"))
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    counts = model.histograms(new).toarray()
    np.testing.assert_array_equal(runtime.load(tmp_path / "m.bagwise").predict_counts(counts), model.predict(new))


def test_two_classes_of_images_have_roots_before_merging(tmp_path):
    source = write_image_folder(tmp_path / "stripes")
    options = {"descriptor": "patches", "n_words": 12, "n_groups": 4, "folds": 2, "n_jobs": 1}
    fit = run_fit(source, FitOptions(**options, root="before"))
    assert (fit.model.term, fit.model.norm, fit.model.normalize) == ("sqrt", "l2", ())
    roots = normalize_rows(fit.data.histograms.astype(float))
    expected = pool(roots, fit.model.lookup, 4)
    np.testing.assert_allclose(fit.model.group(fit.data.histograms).toarray(), expected.toarray(), atol=1e-6)


def test_weights_of_words_do_not_depend_on_classes():
    counts, _ = counted()
    weighting = choose_weighting(choose_method(FitOptions(), "texts", 3), counts)
    assert (weighting.term, weighting.norm) == ("log", "l2")
    frequent = np.argsort(-np.asarray((counts > 0).sum(axis=0)).ravel())
    assert (np.diff(weighting.weights[frequent]) >= 0).all()


def test_classifiers_are_followed_only_where_there_are_classes(tmp_path):
    path = tmp_path / "lines.csv"
    path.write_text("text\n" + "\n".join(["a cat", "the dog", "one cat", "one dog"]))
    with pytest.raises(BagwiseError, match="'classifier' needs at least two classes"):
        fit_model(path, criterion="classifier")
