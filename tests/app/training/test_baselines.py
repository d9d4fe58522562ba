"""Simple methods beside a model, in the same folds."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

from bagwise import Model
from bagwise.app import FitOptions, evaluate_model, fit_report_data, run_fit
from bagwise.app.model import PathErrors
from bagwise.app.report import render_report
from bagwise.app.report.sentences import about_model
from bagwise.app.training.baselines import MAJORITY, baselines_of, measure_baselines
from bagwise.app.training.method import choose_method, folds_of
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.sources import Collection
from small_sources import table, write_image_folder


def rows_of(X, y):
    return Collection.from_matrix(X, [str(k) for k in range(len(y))], [(name,) for name in y])


@pytest.fixture(scope="module")
def counted():
    X, y = table()
    X[:9, :] = np.random.default_rng(1).poisson(2, (9, X.shape[1]))  # some noise, so that not all is right
    y[-5:] = "class0"  # one class is more frequent
    return X, y, run_fit(rows_of(X, y), FitOptions(n_groups=3, folds=3))


def test_baselines_are_measured_in_the_folds_of_the_model(counted, tmp_path):
    X, y, fit = counted
    folds = folds_of(fit.codes, FitOptions(folds=3))
    found = {one.name: one for one in baselines_of(fit.model)}
    assert list(found) == sorted(found, key=lambda name: found[name].error)
    majority = 1 - cross_val_score(DummyClassifier(), X, y, cv=folds)
    assert found[MAJORITY].error == pytest.approx(majority.mean())
    assert found[MAJORITY].standard_error == pytest.approx(majority.std(ddof=1) / np.sqrt(3))
    svm = LinearSVC(C=1.0, random_state=0, max_iter=3000)
    everything = 1 - cross_val_score(svm, normalize_rows(X), y, cv=folds)
    assert found["all words, Hellinger, linear SVM"].error == pytest.approx(everything.mean())
    assert baselines_of(Model.load(fit.model.save(tmp_path / "m.bagwise"))) == baselines_of(fit.model)
    assert baselines_of(replace(fit.model, provenance={})) == ()


def test_baselines_are_tested_where_the_model_knows_their_answers(counted):
    X, y, fit = counted
    evaluation = evaluate_model(fit.model, rows_of(X[::2], y[::2]))
    found = {one.name: one.test_error for one in baselines_of(fit.model, evaluation)}
    assert found[MAJORITY] == pytest.approx(np.mean(y[::2] != "class0"))
    answers = fit.model.cut(fit.model.hierarchy.n_words).predict(X[::2])
    assert found["all words, Hellinger, linear SVM"] == pytest.approx(np.mean(answers != y[::2]))


def test_colours_alone_are_a_baseline_of_images(tmp_path):
    options = FitOptions(n_words=12, folds=3, step=4, n_jobs=1)
    fit = run_fit(write_image_folder(tmp_path, color=True), options)
    found = {one.name: one for one in baselines_of(fit.model)}
    colors = found["histogram of colours, linear SVM"]
    features = normalize_rows(fit.data.whole()[:, 12:].astype(np.float64))
    svm = LinearSVC(C=1.0, random_state=0, max_iter=3000)
    scores = cross_val_score(svm, features, fit.codes, cv=folds_of(fit.codes, options))
    assert (colors.n_features, colors.error) == (6, pytest.approx(1 - scores.mean()))
    method = choose_method(options, "images", 2, (12, 6))
    shortened = PathErrors((2,), (0.5,), (0.1,), "")
    names = [one["name"] for one in measure_baselines(fit.data, fit.codes, shortened, method, options)]
    assert sorted(names) == ["histogram of colours, linear SVM", MAJORITY]  # all words were not measured


def test_a_report_begins_with_what_the_model_is_good_for(counted):
    X, y, fit = counted
    data = fit_report_data(fit)
    said = "".join(about_model(data))
    strongest = min(data.baselines, key=lambda one: one.error)
    assert f"{100 * data.curve.error_at(3):.1f}\u202f% in 3-fold cross-validation" in said
    assert f"against {100 * strongest.error:.1f}\u202f% of the strongest simple baseline ({strongest.name})" in said
    wrong = 1 - np.diagonal(data.confusion.counts) / data.confusion.counts.sum(axis=1)
    assert f"best at {data.confusion.classes[wrong.argmin()]} ({100 * wrong.min():.1f}\u202f% wrong)" in said
    assert f"fails most at {data.confusion.classes[wrong.argmax()]} ({100 * wrong.max():.1f}\u202f% wrong" in said
    assert said.count(". ") == 0  # one sentence
    page = render_report(data)
    assert page.index("The model tells 3 classes apart") < page.index("<nav")
    tested = fit_report_data(fit, evaluate_model(fit.model, rows_of(np.roll(X, 3, axis=1), y)))
    assert "on 45 test items, against" in "".join(about_model(tested))
    unlabelled = run_fit(Collection.from_matrix(X), FitOptions(n_groups=3))
    assert "learned without classes" in "".join(about_model(fit_report_data(unlabelled)))
