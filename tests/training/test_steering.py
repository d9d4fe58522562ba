"""Errors and classifiers of edited groups, against scikit-learn over the same folds."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, Hierarchy
from bagwise.runtime import merges_of
from bagwise.sources import TableCollection
from bagwise.training import FitOptions, run_fit
from bagwise.training.index_words import IndexedWords
from bagwise.training.item_answers import TopClasses
from bagwise.training.item_index import index_of_fit
from bagwise.training.seen import are_training_items, seen_items
from bagwise.training.steering import Steering, named_words
from small_sources import table, write_image_folder, write_table, write_text_folder

KINDS = {
    "classifier": {"n_groups": 6, "folds": 3},
    "two classes": {"n_groups": 4, "folds": 3, "C": 0.5, "random_state": 7},
    "aib": {"n_groups": 5, "folds": 3, "criterion": "aib"},
    "counts": {"n_groups": 4, "folds": 3, "criterion": "aib"},
    "measurements": {"n_groups": 4, "folds": 3},
    "pyramid": {"n_words": 12, "n_groups": 4, "folds": 2, "pyramid": 5, "criterion": "classifier"},
    "no folds": {"n_groups": 4, "folds": 0},
}


@pytest.fixture(scope="module", params=KINDS)
def fit(request, tmp_path_factory):
    folder, kind = tmp_path_factory.mktemp("steering"), request.param
    if kind == "counts":
        source = write_table(folder / "table.csv")
    elif kind == "measurements":
        X, y = table()
        lines = [",".join([*(f"w{k}" for k in range(X.shape[1])), "label"])]
        lines += [",".join([*(f"{x - 4.25:.3f}" for x in row), label]) for row, label in zip(X, y, strict=True)]
        source = folder / "table.csv"
        source.write_text("\n".join(lines))
    elif kind == "pyramid":
        source = write_image_folder(folder / "images", n_each=6, side=32)
    else:
        classes = {"classes": ("fruit", "tools")} if kind == "two classes" else {}
        source = write_text_folder(folder / "texts", **classes)
    found = run_fit(source, FitOptions(**KINDS[kind]))
    followed = kind in ("classifier", "two classes", "pyramid")
    assert (found.model.options["criterion"] == "classifier") == followed
    assert (found.model.column_shift is not None) == (kind == "measurements")
    return found


def steering_of(fit):
    return Steering(fit.model, fit.model.weighting.apply(fit.data.histograms, fit.data.n_cells), fit.codes)


def with_groups(model, labels):
    """The model with other groups."""
    n, other = int(labels.max()) + 1, copy.copy(model)
    other.__dict__.pop("lookup", None)
    merges = merges_of(labels)
    hierarchy = Hierarchy(len(labels), merges, np.zeros(len(merges)))
    other._set(hierarchy=hierarchy, n_groups=n, heads={}, calibration={}, given_names={})
    return other


def slow_groups(fit, labels, train):
    """Assign each word to the group whose mean weights or class profile is nearest, by some items alone."""
    model, words, y, n = fit.model, dense_words(fit)[train], fit.codes[train], int(labels.max()) + 1
    d, assigned = len(labels), []
    if model.options["criterion"] == "classifier":
        teacher = LinearSVC(C=model.options["C"], random_state=model.options["random_state"], max_iter=3000)
        teacher.fit(words, y)
        weights = item_weights(teacher.decision_function(words).reshape(len(words), -1))
        mass = (weights[:, None] * words**2).sum(axis=0)
        own = [np.concatenate([teacher.coef_[:, k * d + j] for k in range(model.n_cells)]) for j in range(d)]
        part = [[mass[k * d + j] for k in range(model.n_cells) for _ in teacher.coef_] for j in range(d)]
        centres = []
        for group in range(n):
            inside, weight = np.array(own)[labels == group], np.array(part)[labels == group]
            weight[:, weight.sum(axis=0) == 0] = 1
            centres.append((weight * inside).sum(axis=0) / weight.sum(axis=0))
        for j in range(d):
            costs = np.array([((own[j] - centre) ** 2).sum() for centre in centres])
            assigned.append(labels[j] if costs[labels[j]] <= costs.min() + 1e-14 else costs.argmin())
        return np.array(assigned)
    sums = np.array([[words[y == c, j].sum() for c in range(len(model.classes))] for j in range(d)])
    prior = sums.sum(axis=0) / sums.sum()
    for j in range(d):
        profile = sums[j] / sums[j].sum() if sums[j].sum() else prior
        costs = []
        for group in range(n):
            centre = sums[labels == group].sum(axis=0)
            centre = (centre / centre.sum() if centre.sum() else prior) + 1e-6 * prior
            costs.append((profile * np.log(np.where(profile > 0, profile, 1) / (centre / centre.sum()))).sum())
        assigned.append(labels[j] if costs[labels[j]] <= min(costs) + 1e-12 else np.argmin(costs))
    return np.array(assigned)


def dense_words(fit):
    words = fit.model.weighting.apply(fit.data.histograms, fit.data.n_cells)
    return words.toarray() if sp.issparse(words) else words


def item_weights(scores):
    """All classes, as they are answered, count the same, but for very rare ones."""
    told = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    counts = np.bincount(told, minlength=max(scores.shape[1], 2))
    return 1 / (counts[told] + 0.1 * counts.mean())


def slow_scores(fit, labels, n, train, test):
    """Train on some items by scikit-learn, and score others; of n groups some may have no words."""
    model, words = fit.model, dense_words(fit)
    d = len(labels)
    cells = [words[:, k * d : (k + 1) * d] @ np.eye(n)[labels] for k in range(model.n_cells)]
    Z, y = np.hstack(cells), fit.codes
    svm = LinearSVC(C=model.options["C"], random_state=model.options["random_state"], max_iter=3000)
    if model.options["criterion"] != "classifier":
        if "l1" in model.normalize:
            Z = Z / Z.sum(axis=1, keepdims=True)
        Z = np.sqrt(Z) if "power" in model.normalize else Z
        fitted = (make_pipeline(StandardScaler(), svm) if model.column_shift is not None else svm).fit(
            Z[train], y[train]
        )
        return fitted.decision_function(Z[test]).reshape(len(test), -1)
    teacher = svm.fit(words[train], y[train])
    scores = teacher.decision_function(words[train]).reshape(len(train), -1)
    weights = item_weights(scores)
    mass = (weights[:, None] * words[train] ** 2).sum(axis=0) / weights.sum()
    where = (np.arange(model.n_cells)[:, None] * n + labels).ravel()
    mass = np.where((np.bincount(where, mass) == 0)[where], 1, mass)
    mean = np.zeros((len(teacher.coef_), Z.shape[1]))
    for group in np.unique(where):
        inside = where == group
        mean[:, group] = np.average(teacher.coef_[:, inside], axis=1, weights=mass[inside])
    centred = Z[train] - np.average(Z[train], axis=0, weights=weights)
    penalty = 0.01 * (weights[:, None] * centred**2).sum() / Z.shape[1]
    change = Ridge(alpha=penalty).fit(Z[train], scores - Z[train] @ mean.T, sample_weight=weights)
    return (Z @ mean.T + change.predict(Z).reshape(len(Z), -1))[test]


def both_sides(scores):
    return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores


def test_any_groups_have_the_errors_of_scikit_learn(fit):
    steering, n_words = steering_of(fit), fit.model.hierarchy.n_words
    drawn = np.random.default_rng(3).integers(4, size=n_words)
    _, first, labels = np.unique(drawn, return_index=True, return_inverse=True)
    labels = np.argsort(np.argsort(first))[labels]  # numbered by their first words
    found = steering.measure(with_groups(fit.model, labels))
    folds = fit.model.options["folds"] or 5
    splitter = StratifiedKFold(folds, shuffle=True, random_state=fit.model.options["random_state"])
    errors, scores = [], np.zeros((len(fit.codes), len(fit.model.classes)))
    for train, test in splitter.split(fit.codes, fit.codes):
        own = slow_groups(fit, labels, train)
        scores[test] = both_sides(slow_scores(fit, own, labels.max() + 1, train, test))
        errors.append(np.mean(scores[test].argmax(axis=1) != fit.codes[test]))
    assert found.protocol == f"{folds}-fold cross-validation, in which each fold assigns words anew to these groups"
    assert found.error == pytest.approx(np.mean(errors))
    assert found.standard_error == pytest.approx(np.std(errors, ddof=1) / np.sqrt(folds))
    expected = TopClasses.of(scores)
    np.testing.assert_array_equal(found.held_out.predicted, expected.predicted)
    np.testing.assert_allclose(found.held_out.score, expected.score, rtol=2e-3, atol=2e-3)  # of float16
    everything = np.arange(len(fit.codes))
    features = with_groups(fit.model, labels).group(fit.data.histograms)
    np.testing.assert_allclose(
        found.head.scores(features),
        both_sides(slow_scores(fit, labels, labels.max() + 1, everything, everything)),
        atol=1e-3,
    )


def test_the_groups_of_the_fit_have_its_classifier(fit):
    steering = steering_of(fit)
    for n in fit.model.heads:
        found = steering.measure(fit.model.cut(n))
        for name in ("coef", "intercept"):
            np.testing.assert_allclose(getattr(found.head, name), getattr(fit.model.heads[n], name), atol=1e-4)
        edited = found.put_into(fit.model.cut(n))
        assert edited.calibration[n] == found.sharpness
        assert list(edited.heads) == list(fit.model.heads)


def test_groups_that_were_found_with_held_out_items_do_not_help_them():
    random = np.random.default_rng(0)
    X, y = random.poisson(0.05, (60, 600)), np.repeat([0, 1], 30)  # classes say nothing
    rows = TableCollection(X, [f"row{k}" for k in range(60)], [("ab"[code],) for code in y])
    for criterion in ("classifier", "aib"):
        fit = run_fit(rows, FitOptions(n_groups=6, folds=5, criterion=criterion, root="before"))
        assert steering_of(fit).measure(fit.model).error > 0.3


def test_words_that_edits_name_stay_where_they_are_put(text_fit):
    model = text_fit.model
    words = np.flatnonzero(model.lookup == 0)[:1]
    edited = model.apply([{"edit": "move", "n_groups": 6, "words": [model.word_names[words[0]]], "to": 3}])
    joined = edited.apply([{"edit": "join", "n_groups": 6, "groups": [1, 2]}])
    steering = steering_of(text_fit)
    steering.prepare()
    assert named_words(joined).tolist() == words.tolist()
    labels = steering._labels_of_folds(edited)
    assert {int(own[words[0]]) for own in labels} == {int(edited.lookup[words[0]])}
    assert any((own != edited.lookup).any() for own in labels)
    # parts of a joined group attract words by themselves
    to = np.array([0, 1, 1, 2, 3, 4])
    for one, other in zip(labels, steering._labels_of_folds(joined), strict=True):
        np.testing.assert_array_equal(to[one], other)


@pytest.fixture(scope="module")
def text_fit(tmp_path_factory):
    folder = write_text_folder(tmp_path_factory.mktemp("steered") / "texts")
    return run_fit(folder, FitOptions(n_groups=6, folds=3))


def test_words_of_an_index_give_the_same(text_fit):
    index = index_of_fit(text_fit, None, text_fit.data.collection, FitOptions())
    chosen = np.ones(len(index), np.bool_)
    chosen[[1, 5]] = False
    words = IndexedWords.of(index)
    expected = text_fit.model.weighting.apply(text_fit.data.histograms)
    np.testing.assert_allclose(words.words(chosen).toarray(), expected[chosen].toarray(), atol=1e-6)
    one = steering_of(text_fit).measure(text_fit.model)
    other = Steering(text_fit.model, words.words(np.ones_like(chosen)), text_fit.codes).measure(text_fit.model)
    assert (one.error, one.standard_error) == (other.error, other.standard_error)
    np.testing.assert_allclose(one.head.coef, other.head.coef, atol=1e-4)


def test_classifiers_on_all_words_are_trained_once(text_fit):
    steering, told = steering_of(text_fit), []
    assert not steering.ready
    steering.prepare(lambda *step: told.append(step))
    assert steering.ready
    assert [done for _, done, _ in told] == [0, 1, 2, 3, 4]
    assert {total for *_, total in told} == {4}
    first = steering.measure(text_fit.model)
    steering.prepare(lambda *step: told.append(step))
    assert len(told) == 6
    np.testing.assert_array_equal(steering.measure(text_fit.model).head.coef, first.head.coef)


def test_only_the_training_items_are_cross_validated(text_fit):
    model, collection, histograms = text_fit.model, text_fit.data.collection, text_fit.data.histograms
    every, codes = np.arange(len(collection)), text_fit.codes
    for chosen in (every, every[::-1], every[:-1], every[:0]):
        seen = np.zeros(0, np.bool_)
        if len(chosen):
            seen = seen_items(model, collection[chosen], histograms[chosen]).seen
        assert are_training_items(model, codes[chosen], seen) == (len(chosen) == len(every))
    assert not are_training_items(model, np.where(every == 0, -1, codes), np.ones(len(every), np.bool_))


def test_what_cannot_be_cross_validated_is_refused(text_fit):
    words = text_fit.model.weighting.apply(text_fit.data.histograms)
    with pytest.raises(BagwiseError, match="at least two items of each class; one has 1"):
        Steering(text_fit.model, words[:25], text_fit.codes[:25])
    with pytest.raises(BagwiseError, match=r"got shape \(36, 3\)"):
        Steering(text_fit.model, words[:, :3], text_fit.codes)
    plain = copy.copy(text_fit.model)
    plain._set(classes=(), heads={})
    with pytest.raises(BagwiseError, match="it has no classes"):
        Steering(plain, words, text_fit.codes)
