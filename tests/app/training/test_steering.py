"""Errors and classifiers of edited groups: slow oracles fit everything by the training items of each fold."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, merge_words
from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.app.index.index_files import FILE, index_to_parts
from bagwise.app.index.index_words import IndexedWords
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.training.folds import FoldModels, fold_model, unkept_note
from bagwise.app.training.item_answers import TopClasses
from bagwise.app.training.steering import Steering
from bagwise.merging.refining import merge_refined
from bagwise.sources import Collection
from small_sources import table, write_image_folder, write_table, write_text_folder

KINDS = {
    "classifier": {"n_groups": 6, "folds": 3},
    "two classes": {"n_groups": 4, "folds": 3, "C": 0.5, "random_state": 7},
    "aib": {"n_groups": 5, "folds": 3, "criterion": "aib", "ngrams": 1},
    "counts": {"n_groups": 4, "folds": 3, "criterion": "aib"},
    "measurements": {"n_groups": 4, "folds": 3},
    "pyramid": {"n_words": 12, "n_groups": 4, "folds": 2, "pyramid": 5, "criterion": "classifier"},
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


def steering_of(fit, model=None):
    words = fit.model.weighting.apply(fit.data.histograms)
    return Steering(fit.model if model is None else model, FoldModels.of(fit.folds, words.shape[0]), words, fit.codes)


def slow_groups(fit, n, train):
    """Merge words down to n groups by some items alone."""
    model, y, whole = fit.model, fit.codes[train], fit.data.whole()[train]
    criterion, options = model.options["criterion"], model.options
    if criterion == "classifier":
        words = model.weighting.apply(whole)
        words = words.toarray() if sp.issparse(words) else words
        svm = LinearSVC(C=options["C"], random_state=options["random_state"], max_iter=3000).fit(words, y)
        weights = item_weights(svm.decision_function(words).reshape(len(words), -1))
        mass = (weights[:, None] * words**2).sum(axis=0) / weights.sum()
        return merge_refined(mass, svm.coef_.T, criterion, options["n_groups"]).cut(n)
    merged = whole if model.column_shift is None else model.weighting.apply(whole)
    return merge_words(merged, y, criterion=criterion).cut(n)


def slow_edits(model, edits, own):
    """Make moves and joins again, by words and by the groups with the largest Jaccard index."""
    mass = np.ones(len(own)) if model.word_totals is None else model.word_totals.astype(float)
    mass = mass * (1 if model.word_weights is None else model.word_weights)
    for k, edit in enumerate(edits):
        before = model.apply(edits[:k]).cut(edit["n_groups"]).lookup

        def jaccard(group, other, before=before, own=own):
            both, either = (before == group) & (own == other), (before == group) | (own == other)
            return mass[both].sum() / mass[either].sum()

        if edit["edit"] == "move":
            to = max(set(own.tolist()), key=lambda other: jaccard(edit["to"], other))
            own = np.where(np.isin(np.arange(len(own)), edit["words"]), to, own)
        else:
            one, two = edit["groups"]
            pairs = permutations(sorted(set(own.tolist())), 2)
            one, two = max(pairs, key=lambda pair: jaccard(one, pair[0]) + jaccard(two, pair[1]))
            own = np.where(own == two, one, own)
    return np.unique(own, return_inverse=True)[1]


def dense_words(fit):
    words = fit.model.weighting.apply(fit.data.histograms)
    return words.toarray() if sp.issparse(words) else words


def item_weights(scores):
    """All classes, as they are answered, count the same, but for very rare ones."""
    told = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    counts = np.bincount(told, minlength=max(scores.shape[1], 2))
    return 1 / (counts[told] + 0.1 * counts.mean())


def slow_scores(fit, labels, n, train, test, without=()):
    """Train on some items by scikit-learn, and score others; of n groups some may have no words."""
    model, words = fit.model, dense_words(fit)
    d = len(labels)
    kept = ~np.isin(np.arange(d), without)[:, None]
    cells = [words[:, k * d : (k + 1) * d] @ (kept * np.eye(n)[labels]) for k in range(model.layout.n_cells)]
    Z, y = np.hstack(cells), fit.codes
    svm = LinearSVC(C=model.options["C"], random_state=model.options["random_state"], max_iter=3000)
    if model.options["criterion"] != "classifier":
        if "l1" in model.normalize:
            Z = Z / np.maximum(Z.sum(axis=1, keepdims=True), 1e-300)
        Z = np.sqrt(Z) if "power" in model.normalize else Z
        fitted = (make_pipeline(StandardScaler(), svm) if model.column_shift is not None else svm).fit(
            Z[train], y[train]
        )
        return fitted.decision_function(Z[test]).reshape(len(test), -1)
    teacher = svm.fit(words[train], y[train])
    scores = teacher.decision_function(words[train]).reshape(len(train), -1)
    weights = item_weights(scores)
    mass = (weights[:, None] * words[train] ** 2).sum(axis=0) / weights.sum()
    where = (np.arange(model.layout.n_cells)[:, None] * n + labels).ravel()
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


def test_edited_groups_have_the_errors_of_scikit_learn(fit):
    steering, model = steering_of(fit), fit.model
    n, words = model.n_groups, np.flatnonzero(fit.model.lookup == 0)[:1].tolist()
    words = (
        words
        if (model.lookup == 0).sum() > 1
        else np.flatnonzero(model.lookup == np.bincount(model.lookup).argmax())[:1].tolist()
    )
    to = (int(model.lookup[words[0]]) + 1) % n
    edits = [
        {"edit": "move", "n_groups": n, "words": words, "to": to},
        {"edit": "join", "n_groups": n, "groups": [0, n - 1]},
    ]
    edited = model.apply(edits)
    found = steering.measure(edited)
    folds = model.options["folds"]
    splitter = StratifiedKFold(folds, shuffle=True, random_state=model.options["random_state"])
    errors, scores = [], np.zeros((len(fit.codes), len(model.classes)))
    for train, test in splitter.split(fit.codes, fit.codes):
        own = slow_edits(model, edits, slow_groups(fit, n, train))
        scores[test] = both_sides(slow_scores(fit, own, own.max() + 1, train, test))
        errors.append(np.mean(scores[test].argmax(axis=1) != fit.codes[test]))
    made = "each fold merges words and makes the edits without the items that it tests"
    assert found.protocol == f"{folds}-fold cross-validation; {made}"
    assert found.error == pytest.approx(np.mean(errors))
    assert found.standard_error == pytest.approx(np.std(errors, ddof=1) / np.sqrt(folds))
    expected = TopClasses.of(scores)
    np.testing.assert_array_equal(found.held_out.predicted, expected.predicted)
    np.testing.assert_allclose(found.held_out.score, expected.score, rtol=2e-3, atol=2e-3)  # of float16
    everything = np.arange(len(fit.codes))
    np.testing.assert_allclose(
        found.head.scores(edited.group(fit.data.histograms)),
        both_sides(slow_scores(fit, edited.lookup, n - 1, everything, everything)),
        atol=1e-3,
    )


def test_without_words_folds_fit_classifiers_to_what_is_left(fit):
    steering, model, n = steering_of(fit), fit.model, fit.model.n_groups
    without = np.flatnonzero(model.lookup == 0)
    scores = np.zeros((len(fit.codes), len(model.classes)))
    for fold in fit.folds:
        train = np.setdiff1d(np.arange(len(fit.codes)), fold.test)
        labels = fold.learned.hierarchy.cut(n)
        scores[fold.test] = both_sides(slow_scores(fit, labels, n, train, fold.test, without))
    np.testing.assert_allclose(steering.scores(model, without), scores, rtol=2e-3, atol=2e-3)
    steered = steering.measure(model, without)
    errors = [(scores[fold.test].argmax(axis=1) != fit.codes[fold.test]).mean() for fold in fit.folds]
    assert steered.error == pytest.approx(np.mean(errors))
    assert np.abs(steering.scores(model) - scores).max() > 0.01  # with them


def test_contributions_of_held_out_answers_add_up(fit):
    steering, items = steering_of(fit), np.arange(len(fit.codes))[::2]
    edited = fit.model.apply([{"edit": "join", "n_groups": fit.model.n_groups, "groups": [0, 1]}])
    for model in (fit.model, fit.model.cut(2), edited):
        added, scores = steering.contributions(model, items, 0, 1), steering.scores(model)[items]
        assert added.shape == (len(items), model.n_groups)
        rest = scores[:, 0] - scores[:, 1] - added.sum(axis=1)
        for fold, (_, _, head) in enumerate(steering.measure(model).models):
            intercept = float(head.intercept[0] - head.intercept[1])
            np.testing.assert_allclose(rest[steering.folds.of_item[items] == fold], intercept, atol=1e-5)


def test_unedited_groups_have_the_errors_and_answers_of_the_fit(fit):
    steering, path = steering_of(fit), fit.model.path
    for k, n in enumerate(path.sizes):
        found = steering.measure(fit.model.cut(n))
        assert found.error == pytest.approx(path.errors[k])
        assert found.standard_error == pytest.approx(path.standard_errors[k])
        np.testing.assert_array_equal(found.held_out.predicted, fit.held_out[k])


def test_the_groups_of_the_fit_have_its_classifier(fit):
    steering = steering_of(fit)
    for n in fit.model.heads:
        found = steering.measure(fit.model.cut(n))
        for name in ("coef", "intercept"):
            np.testing.assert_allclose(getattr(found.head, name), getattr(fit.model.heads[n], name), atol=1e-4)
        edited = found.put_into(fit.model.cut(n))
        assert edited.calibration[n] == found.sharpness
        assert list(edited.heads) == list(fit.model.heads)


def random_table(labels, seed=0):
    """Counts that say nothing about classes."""
    X = np.random.default_rng(seed).poisson(0.08, (len(labels), 300))
    return Collection.from_matrix(X, [f"row{k}" for k in range(len(X))], [(label,) for label in labels])


@pytest.mark.parametrize("criterion", ["classifier", "aib", "csm"])
def test_without_anything_to_learn_errors_are_those_of_chance(criterion):
    fit = run_fit(random_table("ab" * 40), FitOptions(n_groups=6, folds=5, criterion=criterion, root="before"))
    steering = steering_of(fit)
    shared = slow_cross_validation(fit)
    assert shared < 0.25  # held-out items have helped to find their groups
    edits = [
        {"edit": "split", "n_groups": 6, "group": 2},
        {"edit": "join", "n_groups": 7, "groups": [0, 5]},
        {"edit": "cannot_link", "n_groups": 6, "words": np.flatnonzero(fit.model.lookup == 1)[:2].tolist()},
    ]
    for k in range(len(edits) + 1):
        assert steering.measure(fit.model.apply(edits[:k])).error > 0.4


def slow_cross_validation(fit):
    """The error if all folds have the groups of the model."""
    labels, n, every = fit.model.lookup, fit.model.n_groups, np.arange(len(fit.codes))
    splits = [(np.setdiff1d(every, fold.test), fold.test) for fold in fit.folds]
    scores = [both_sides(slow_scores(fit, labels, n, *split)) for split in splits]
    return np.mean([(s.argmax(axis=1) != fit.codes[test]).mean() for s, (_, test) in zip(scores, splits, strict=True)])


@pytest.mark.parametrize("criterion", ["classifier", "aib"])
def test_answers_for_held_out_items_do_not_depend_on_their_classes(criterion, monkeypatch):
    labels = np.array(list("abc" * 20))
    splits = [(np.arange(20, 60), np.arange(20)), (np.r_[:20, 40:60], np.arange(20, 40))]
    splits.append((np.arange(40), np.arange(40, 60)))
    monkeypatch.setattr("bagwise.app.training.validating.folds_of", lambda codes, options: splits)
    other = labels.copy()
    other[:20] = np.roll(labels[:20], 1)
    fits = [
        run_fit(random_table(classes, 1), FitOptions(n_groups=6, folds=3, criterion=criterion, root="before"))
        for classes in (labels, other)
    ]
    assert not np.array_equal(fits[0].model.lookup, fits[1].model.lookup)
    for found in zip(*(fit.held_out_top.arrays for fit in fits), strict=True):  # of the fit
        np.testing.assert_array_equal(found[0][:, :20], found[1][:, :20])
    measured = [steering_of(fit).measure(fit.model) for fit in fits]
    edited = fits[0].model.apply([{"edit": "move", "n_groups": 6, "words": [3, 5, 8], "to": 2}])
    measured += [steering_of(fit, edited).measure(edited) for fit in fits]
    for one, two in (measured[:2], measured[2:]):
        for arrays in zip(one.held_out.arrays, two.held_out.arrays, strict=True):
            np.testing.assert_array_equal(arrays[0][:20], arrays[1][:20])
        assert not np.array_equal(one.held_out.score, two.held_out.score)  # of items that others were learned from


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
    every = words.words(np.ones_like(chosen))
    other = Steering(text_fit.model, index.folds, every, text_fit.codes).measure(text_fit.model)
    assert (one.error, one.standard_error) == (other.error, other.standard_error)
    np.testing.assert_allclose(one.head.coef, other.head.coef, atol=1e-4)


def test_folds_in_a_file_are_those_of_the_fit(fit, tmp_path):
    index = index_of_fit(fit, None, fit.data.collection, FitOptions())
    folds = ItemIndex.load(index.save(tmp_path / "one.index")).folds
    assert len(folds) == fit.model.options["folds"]
    assert folds.sizes == fit.model.path.sizes
    assert folds.complete
    assert unkept_note(fit.folds, fit.model.path) is None
    for k, fold in enumerate(fit.folds):
        assert np.flatnonzero(folds.of_item == k).tolist() == fold.test.tolist()
        np.testing.assert_array_equal(folds.hierarchies[k].merges, fold.learned.hierarchy.merges)
        assert folds.heads[k] == {n: fold.learned.heads[n] for n in folds.sizes}
        assert folds.statistics[k] == fold.learned.statistics
    edited = fit.model.apply([{"edit": "join", "n_groups": fit.model.n_groups, "groups": [0, 1]}])
    words = fit.model.weighting.apply(fit.data.histograms)
    one, other = (Steering(edited, some, words, fit.codes).measure(edited) for some in (index.folds, folds))
    assert (one.error, one.standard_error, one.protocol) == (other.error, other.standard_error, other.protocol)


def test_models_of_folds_give_the_held_out_answers(fit):
    folds, model = FoldModels.of(fit.folds, len(fit.codes)), fit.model
    for k, n in enumerate(model.path.sizes):
        for item in range(0, len(fit.codes), 5):
            own = folds.model(model, item, n)
            scores = own.head.scores(own.group(fit.data.histograms[[item]]))
            assert scores.argmax() == fit.held_out_top.predicted[k, item]
            np.testing.assert_allclose(scores.max(), fit.held_out_top.score[k, item], rtol=2e-3, atol=2e-3)
    assert folds.model(model, 0, max(model.path.sizes) + 1) is None
    edited = model.apply([{"edit": "join", "n_groups": model.n_groups, "groups": [0, 1]}])
    assert (folds.model(edited, 0, 2) is None) == (2 not in folds.sizes)
    found = steering_of(fit).measure(edited)
    for item in (0, len(fit.codes) - 1):
        own = fold_model(edited, *found.models[folds.of_item[item]])
        scores = own.head.scores(own.group(fit.data.histograms[[item]]))
        np.testing.assert_allclose(scores.max(), found.held_out.score[item], rtol=2e-3, atol=2e-3)


def test_classifiers_of_the_most_groups_are_left_out_where_there_is_no_room(text_fit, monkeypatch, tmp_path):
    every, sizes = FoldModels.of(text_fit.folds, 36), text_fit.model.path.sizes
    needed = [sum(one[n].coef.nbytes + one[n].intercept.nbytes for one in every.heads) for n in sizes]
    n_bytes = sum(one.values.nbytes for one in every.statistics)
    for room in (1 << 20, sum(needed) + n_bytes, sum(needed) + n_bytes - 1, 2 * n_bytes, 2 * n_bytes - 1, 0):
        kept = n_bytes <= room // 2
        n_sizes = int((np.cumsum(needed) <= room - kept * n_bytes).sum())
        monkeypatch.setattr("bagwise.app.training.folds.MOST_BYTES", room)
        folds = FoldModels.of(text_fit.folds, 36)
        assert (folds.sizes, bool(folds.statistics)) == (sizes[:n_sizes], kept)
        note = unkept_note(text_fit.folds, text_fit.model.path)
        assert (note is None) if n_sizes == len(sizes) else f"at {sizes[n_sizes]} groups and more" in note
        index = replace(index_of_fit(text_fit, None, text_fit.data.collection, FitOptions()), folds=folds)
        assert ItemIndex.load(index.save(tmp_path / "one.index")).folds.sizes == folds.sizes
    assert FoldModels.of((), 36) is None
    many = text_fit.folds * 100
    assert FoldModels.of(many, 36) is None  # of which the file could not number items
    assert f"up to 255 folds, not of {len(many)}" in unkept_note(many, text_fit.model.path)


@pytest.mark.parametrize("room", [0, 1 << 10])
def test_errors_of_edits_do_not_depend_on_the_room_for_classifiers(fit, monkeypatch, room):
    edited = fit.model.apply([{"edit": "join", "n_groups": fit.model.n_groups, "groups": [0, 1]}])
    expected = steering_of(fit).measure(edited)
    monkeypatch.setattr("bagwise.app.training.folds.MOST_BYTES", room)
    steering = steering_of(fit)
    assert max(fit.model.path.sizes) not in steering.folds.sizes
    found = steering.measure(edited)
    assert (found.error, found.standard_error) == (expected.error, expected.standard_error)
    np.testing.assert_allclose(found.held_out.score, expected.held_out.score, rtol=2e-3, atol=2e-3)  # of float16


def test_threads_measure_the_same_groups_once(text_fit, monkeypatch):
    steering, calls = steering_of(text_fit), []
    measure = steering._measure
    monkeypatch.setattr(steering, "_measure", lambda model, without: calls.append(model) or measure(model, without))
    edited = text_fit.model.apply([{"edit": "join", "n_groups": 6, "groups": [0, 1]}])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: steering.measure(edited), range(4)))
    assert len(calls) == 1
    assert all(one is found[0] for one in found)


def test_folds_of_some_items(text_fit):
    index = index_of_fit(text_fit, None, text_fit.data.collection, FitOptions())
    one = index.ids[3]
    fewer = index.remove([one])
    assert not fewer.folds.complete
    assert fewer.folds.of_item.tolist() == np.delete(index.folds.of_item, 3).tolist()
    again = fewer.add(text_fit.data.collection[[3]], text_fit.data.histograms[[3]])
    assert (again.ids[-1], again.folds.of_item[-1], again.folds.complete) == (one, 255, False)
    with pytest.raises(BagwiseError, match="words must have 36 items"):
        Steering(text_fit.model, again.folds, IndexedWords.of(again).words(again.folds.tested), again.folds.of_item)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, tensors: header["folds"].pop("sizes"), "its folds are"),
        (lambda header, tensors: header.pop("folds"), "its folds are None"),
        (lambda header, tensors: tensors.pop("fold_weights"), "its folds are"),
        (lambda header, tensors: header["folds"].update(sizes=[2, 2]), "do not fit"),
        (lambda header, tensors: header["folds"].update(n_items=1), "do not fit"),
        (lambda header, tensors: header["folds"].update(n_merges=[0, 0, True]), "do not fit"),
        (lambda header, tensors: header["folds"].update(statistics=[[1, 2]] * 3), "do not fit"),
        (lambda header, tensors: tensors.update(fold_of_item=np.full(36, 3, np.uint8)), "do not fit"),
        (lambda header, tensors: tensors.update(fold_weights=tensors["fold_weights"][1:]), "do not fit"),
        (lambda header, tensors: tensors["fold_merges"].fill(60000), "60000"),
    ],
)
def test_folds_that_do_not_fit_are_refused(text_fit, tmp_path, change, message):
    header, tensors = index_to_parts(index_of_fit(text_fit, None, text_fit.data.collection, FitOptions()))
    header["folds"] = dict(header["folds"])
    change(header, tensors)
    FILE.save(tmp_path / "one.index", header, tensors)
    with pytest.raises(BagwiseError, match=message):
        ItemIndex.load(tmp_path / "one.index")
