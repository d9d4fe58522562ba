"""Fits with few labels: items without one help to train, and nothing else about the fit differs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bagwise import open_collection
from bagwise.app import FitOptions, run_fit
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.index.suggesting import ItemSuggester
from bagwise.app.training import few_labels
from bagwise.app.training.few_labels import Unlabelled, train_with_groups
from bagwise.app.training.item_answers import HELD_OUT
from bagwise.app.training.method import fitting_svms, make_svm
from bagwise.app.training.validating import path_errors
from bagwise.errors import BagwiseError
from bagwise.merging.path import PathScores
from bagwise.sources.collection import Collection

OPTIONS = FitOptions(n_jobs=1)


def topics(n=240, n_words=160, seed=0):
    """Short texts of two topics: each takes eight of the eighty words of its own, and three of any."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    words = [[*rng.choice(80, 8, replace=False) + 80 * k, *rng.choice(n_words, 3)] for k in y]
    return [" ".join(f"w{w:03}" for w in some) for some in words], np.array(["left", "right"])[y]


def collection(texts, labels):
    return open_collection(pd.DataFrame({"text": list(texts), "label": list(labels)}), text="text", label="label")


def fewest(labels, n_each):
    """The labels of the first items of each class."""
    turns = {name: np.cumsum(labels == name) for name in set(labels.tolist())}
    return [name if turns[name][i] <= n_each else None for i, name in enumerate(labels.tolist())]


@pytest.fixture(scope="module")
def few():
    texts, labels = topics()
    return run_fit(collection(texts, fewest(labels, 3)), OPTIONS), texts, labels


def test_items_without_a_label_lower_the_error_of_new_items(few):
    fit, texts, labels = few
    new, truth = topics(seed=1)
    known = [i for i, name in enumerate(fewest(labels, 3)) if name is not None]
    alone = run_fit(collection([texts[i] for i in known], labels[known]), OPTIONS)
    errors = [float(np.mean(one.model.predict(new) != truth)) for one in (fit, alone)]
    assert errors[0] < 0.6 * errors[1], errors
    assert any("6 of 240 items have a label" in note for note in fit.notes)
    assert any("fewer than 5 of a class" in note for note in fit.notes)


def test_held_out_answers_are_those_of_labelled_items_alone(few):
    fit, _, labels = few
    assert len(fit.codes) == 6
    assert fit.data.collection.n_labels.tolist() == [1] * 6 + [0] * 234
    assert sum(fit.model.provenance["class_counts"].values()) == 6
    index = index_of_fit(fit, None, fit.data.collection, OPTIONS)
    assert np.flatnonzero(index.answers.origins == HELD_OUT).tolist() == [*range(6)]
    assert [name is not None for name in index.labels] == [True] * 6 + [False] * 234
    order = np.concatenate([np.flatnonzero([name is not None for name in fewest(labels, 3)]), np.arange(6, 240)])
    answered = np.array(fit.model.classes)[index.answers.rows[fit.model.n_groups].predicted]
    assert np.mean(answered[6:] == labels[order][6:]) > 0.8


def test_errors_are_means_over_several_divisions_into_folds(few):
    fit, _, _ = few
    path = fit.model.path
    assert path.protocol == "3-fold cross-validation, 4 times"
    assert len(fit.folds) == 3
    wrong = np.asarray(path.errors) * 4 * len(fit.codes)  # folds have as many items: errors count items and rounds
    np.testing.assert_allclose(wrong, np.round(wrong), atol=1e-9)
    assert fit.held_out.shape == (len(path.sizes), len(fit.codes))
    index = index_of_fit(fit, None, fit.data.collection, OPTIONS)
    assert index.answers.protocol == path.protocol_of_answers == "3-fold cross-validation"


def test_further_divisions_of_the_same_items_do_not_make_standard_errors_small():
    wrong, rng = np.arange(40) < 12, np.random.default_rng(0)
    rounds = [[1.0 - np.mean(wrong[fold]) for fold in np.split(rng.permutation(40), 5)] for _ in range(4)]
    alone = [path_errors(PathScores(np.array([2]), np.array([one]).T), 5).standard_errors[0] for one in rounds]
    together = path_errors(PathScores(np.array([2]), np.array([rounds]).reshape(20, 1)), 5, 4)
    assert together.errors[0] == pytest.approx(0.3)
    assert 0.9 * np.mean(alone) < together.standard_errors[0] < 1.1 * np.mean(alone)


def test_explanations_add_up_and_files_keep_it_all(few, tmp_path):
    fit, texts, _ = few
    model = type(fit.model).load(fit.model.save(tmp_path / "few.bagwise"))
    np.testing.assert_array_equal(model.decision_function(texts[:9]), fit.model.decision_function(texts[:9]))
    why = model.explain(texts[0])
    assert why.intercept + why.contributions().sum() == pytest.approx(why.score)


def test_the_order_of_items_does_not_matter(few):
    fit, texts, labels = few
    order = np.random.default_rng(2).permutation(len(texts))
    shuffled = run_fit(collection([texts[i] for i in order], np.array(fewest(labels, 3), object)[order]), OPTIONS)
    new, _ = topics(seed=1)
    assert np.mean(shuffled.model.predict(new) == fit.model.predict(new)) > 0.9


def problem(seed=0, n_labelled=20, n_others=60, d=30, n_groups=4):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n_labelled + n_others, d), density=0.3, rng=rng, format="csr")
    X = sp.csr_array(X / np.maximum(sp.linalg.norm(X, axis=1), 1e-9)[:, np.newaxis])
    groups = rng.random((n_labelled + n_others, n_groups))
    unlabelled = Unlabelled(X[n_labelled:], X[n_labelled:], groups[n_labelled:], groups[:n_labelled])
    return X[:n_labelled], unlabelled, np.arange(n_labelled) % 2


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_weights_of_words_follow_the_svm_beside_groups(weight, monkeypatch):
    X, unlabelled, codes = problem()
    monkeypatch.setattr(few_labels, "_chosen_weight", lambda *given: weight)
    trained = train_with_groups(X, unlabelled.weighted, unlabelled, codes, OPTIONS)
    beside = sp.hstack([X, sp.csr_array(weight * unlabelled.of_labelled)], "csr")
    svm = make_svm(OPTIONS).fit(X if weight == 0 else beside, codes)
    if weight == 0:
        np.testing.assert_array_equal(trained.coef, svm.coef_)
        return
    everything = sp.vstack([X, unlabelled.weighted]).toarray()
    all_groups = np.concatenate([unlabelled.of_labelled, unlabelled.groups])
    scores = np.hstack([everything, all_groups]) @ svm.coef_[0] + svm.intercept_
    centred = everything - everything.mean(axis=0)
    exact = np.linalg.solve(centred.T @ centred + np.eye(X.shape[1]), centred.T @ (scores - scores.mean()))
    np.testing.assert_allclose(trained.coef[0], exact, atol=1e-3)
    dense = train_with_groups(X.toarray(), unlabelled.weighted.toarray(), unlabelled, codes, OPTIONS)
    np.testing.assert_allclose(dense.coef, trained.coef, atol=1e-3)


def test_useless_groups_are_not_used():
    X, unlabelled, _ = problem(n_labelled=80, n_groups=40)
    first, second = X[:, [0, 1]].toarray().T
    codes = (first > second).astype(np.int64)
    assert np.bincount(codes).min() >= 20  # or nothing is measured
    noise = replace(unlabelled, of_labelled=np.random.default_rng(0).normal(0, 20, unlabelled.of_labelled.shape))
    with fitting_svms():
        assert train_with_groups(X, unlabelled.weighted, noise, codes, OPTIONS).weight == 0


@pytest.mark.parametrize("options", [{"criterion": "csm"}, {"memory_limit": "1 GiB"}])
def test_fits_that_learn_from_labels_alone_say_so(options):
    texts, labels = topics(40)
    fit = run_fit(collection(texts, fewest(labels, 10)), OPTIONS.with_changes(**options))
    assert any("20 of 40 items have no label and were not used" in note for note in fit.notes)
    assert len(fit.data.collection) == 20


def test_tables_leave_items_without_a_label_out():
    rows = Collection.from_matrix(
        np.random.default_rng(0).poisson(3, (12, 5)), [*map(str, range(12))], [("a",), ("b",)] * 4 + [()] * 4
    )
    assert len(run_fit(rows, OPTIONS.with_changes(folds=2)).data.collection) == 8


# Which items to label


def unit(n=60, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.eye(4), n // 4, axis=0) + rng.normal(0, 0.15, (n, 4))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_centres_of_clusters_come_first_then_small_margins_of_different_clusters():
    rows = unit()
    suggester = ItemSuggester.of(rows, 4)
    known = np.zeros(60, bool)
    first = suggester.suggest(4, known)
    assert sorted(suggester.clusters[first].tolist()) == [0, 1, 2, 3]
    for item in first:
        of_cluster = suggester.clusters == suggester.clusters[item]
        assert suggester.closeness[item] == suggester.closeness[of_cluster].max()
    known[first] = True
    margins = np.random.default_rng(1).random(60)
    following = suggester.suggest(3, known, margins)
    assert len(set(suggester.clusters[following].tolist())) == 3
    assert not known[following].any()
    assert margins[following[0]] == margins[~known].min()


def test_everything_is_suggested_once_and_duplicates_last():
    rows = unit()
    rows[30:35] = rows[10]  # copies
    suggester = ItemSuggester.of(rows, 4)
    known = np.zeros(60, bool)
    known[10] = True
    order = suggester.suggest(100, known)
    assert sorted(order.tolist()) == [i for i in range(60) if i != 10]
    assert not set(order[:20].tolist()) & {30, 31, 32, 33, 34}


def test_arrays_of_other_lengths_are_refused():
    suggester = ItemSuggester.of(unit(), 4)
    with pytest.raises(BagwiseError, match="known must have one entry for each of 60 items"):
        suggester.suggest(1, np.zeros(5, bool))
    with pytest.raises(BagwiseError, match="margins must have one entry"):
        suggester.suggest(1, np.zeros(60, bool), np.zeros(5))
