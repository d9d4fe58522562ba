import json
import os
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, Hierarchy, Model, open_collection
from bagwise.app import (
    FitOptions,
    ItemIndex,
    compare_criteria,
    count_words,
    evaluate_model,
    evaluation_report_data,
    fit_report_data,
    open_items,
    plan_fit,
    read_config,
    run_fit,
)
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.model import Head
from bagwise.app.report import render_report
from bagwise.app.training.evaluate import advised_criteria
from bagwise.app.training.group_data import deciding
from bagwise.app.training.method import choose_method
from bagwise.app.training.references import _components
from bagwise.errors import OptionError
from bagwise.retrieval.blends import BlendSettings
from bagwise.sources import Collection
from bagwise.sources.items import SkippedItemsWarning
from changed_files import read_parts, write_parts
from small_sources import table, write_image_folder, write_records, write_text_folder

OPTIONS = FitOptions(n_groups=4, folds=2, n_jobs=1)


def rows(X, y, splits=None):
    labels = [() if label is None else (label,) for label in y]
    return Collection.from_matrix(X, [str(i) for i in range(len(y))], labels, splits)


@pytest.fixture(scope="module")
def fitted():
    X, y = table()
    return run_fit(rows(X, y), OPTIONS)


def test_errors_on_what_was_learned_are_those_of_predicting(fitted):
    model, (X, y) = fitted.model, table()
    found = evaluate_model(model, rows(X, y))
    for size, error in zip(found.sizes, found.errors, strict=True):
        assert error == np.mean(model.cut(size).predict(X) != y)
    assert found.confusion(4).sum() == len(y)
    assert np.trace(found.confusion(4)) == np.sum(model.predict(X) == y)
    with pytest.raises(BagwiseError, match="no classifier for 7 groups"):
        found.confusion(7)


def test_the_part_test_is_evaluated(fitted):
    X, y = table(seed=1)
    parts = ["test" if i % 2 else "train" for i in range(len(y))]
    found = evaluate_model(fitted.model, rows(X, y, parts))
    assert found.collection.ids == [str(i) for i in range(1, len(y), 2)]
    alone = evaluate_model(fitted.model, rows(X[1::2], y[1::2]))
    assert found.errors == alone.errors


def test_items_without_labels_are_counted_as_left_out(fitted):
    X, y = table()
    found = evaluate_model(fitted.model, rows(X, [None, *y[1:]]))
    assert (len(found.collection), found.n_skipped) == (len(y) - 1, 1)
    with pytest.raises(BagwiseError, match="have no labels"):
        evaluate_model(fitted.model, rows(X, [None] * len(y)))
    with pytest.raises(BagwiseError, match="labelled 'new', which the model does not know"):
        evaluate_model(fitted.model, rows(X, ["new", *y[1:]]))
    with pytest.raises(BagwiseError, match="holds images"):
        open_items(fitted.model, open_images())


def open_images():
    from bagwise.sources import Collection

    return Collection.of([], "images", "nowhere")


def test_models_open_sources_as_they_were_learned(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_bytes(write_records(tmp_path / "plain.csv").read_bytes().replace(b"id,text,label", b"id,said,what"))
    options = OPTIONS.with_changes(text="said", label="what")
    model = run_fit(path, options).model
    assert evaluate_model(model, path).errors == evaluate_model(model, path, **options.to_dict()).errors
    folder = write_text_folder(tmp_path / "folder")
    assert len(evaluate_model(model, folder).collection) == 36


def test_tables_are_opened_by_the_columns_they_were_learned_with(tmp_path):
    rows = [(1, 0, "a"), (2, 1, "a"), (0, 3, "b"), (1, 4, "b")]
    for name, end in (("with.csv", 3), ("without.csv", 2)):
        lines = [",".join(map(str, row[:end])) for row in [("red", "blue", "species"), *rows]]
        (tmp_path / name).write_text("\n".join(lines))
    model = run_fit(tmp_path / "with.csv", FitOptions(n_groups=1, folds=2, label="species")).model
    with_labels, without = (open_items(model, tmp_path / name) for name in ("with.csv", "without.csv"))
    assert with_labels.labels.tolist() == ["a", "a", "b", "b"]
    assert without.label_sets == [()] * 4
    np.testing.assert_array_equal(with_labels.X, without.X)


def test_plans_count_what_fits_find(tmp_path):
    source = write_image_folder(tmp_path / "stripes", parts=("train", "test"))
    options = FitOptions(descriptor="patches", n_words=12, n_groups=4, folds=2, pyramid=5)
    before = sorted(tmp_path.rglob("*"))
    plan = plan_fit(source, **options.to_dict())
    assert sorted(tmp_path.rglob("*")) == before
    fit = run_fit(source, options)
    assert (plan.n_items, plan.n_test) == (len(fit.data.collection), len(fit.test))
    assert (plan.n_words, plan.classes, plan.criterion) == (12, fit.model.classes, fit.model.hierarchy.criterion)
    assert plan.n_features == fit.model.group(fit.data.histograms).shape[1]
    assert plan.memory > 0
    with pytest.raises(BagwiseError, match="only 12 words"):
        plan_fit(source, **options.with_changes(n_groups=13).to_dict())


def test_options_are_read_from_files(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("groups = 7\nstop-words = 'english'\n")
    assert FitOptions(**read_config(path)) == FitOptions(n_groups=7, stop_words="english")
    for text, said in [
        ("groups = ", "not valid TOML"),
        ("[fitt]\ngroups = 3", "not known"),
        ("groups = 0", "at least 1"),
        ("n_groups = 3", "Did you mean 'groups'"),
        ("stop_words = 'english'", "Did you mean 'stop-words'"),
    ]:
        path.write_text(text)
        with pytest.raises(BagwiseError, match=said):
            read_config(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_groups": "all"},
        {"folds": 1},
        {"n_jobs": 0},
        {"C": 0},
        {"C": float("inf")},
        {"random_state": 2**32},
        {"pyramid": 7},
        {"criterion": "x"},
        {"stop_words": "x"},
    ],
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(BagwiseError):
        FitOptions(**wrong)


def test_comparing_gives_what_fitting_gives():
    X, y = table()
    compared = compare_criteria(rows(X, y), ["csm", "aib"], **OPTIONS.to_dict())
    for one in compared:
        path = run_fit(rows(X, y), OPTIONS.with_changes(criterion=one.name)).model.path
        at = {size: error for size, error in zip(path.sizes, path.errors, strict=True) if size in one.path.sizes}
        assert at == dict(zip(one.path.sizes, one.path.errors, strict=True))
    with pytest.warns(SkippedItemsWarning, match="1 of 45 items has no label"):
        compare_criteria(rows(X, [None, *y[1:]]), ["csm"], **OPTIONS.to_dict(), sizes=[2])
    with pytest.raises(BagwiseError, match="at least two classes"):
        compare_criteria(rows(X, [None] * len(y)), ["lpp"], **OPTIONS.to_dict())


def test_references_are_cross_validated_on_the_same_folds():
    X, y = table()
    compared = compare_criteria(rows(X, y), **OPTIONS.to_dict(), sizes=[2, X.shape[1]])
    criteria = [one.name for one in compared if not one.reference]
    default = choose_method(OPTIONS, "table", len(set(y)))
    assert criteria == advised_criteria(default, "table", len(set(y)))[0]
    references = {one.name: one for one in compared if one.reference}
    assert list(references) == ["all words, Hellinger", "SVD", "chi2 selection", "mRMR selection"]
    everything = references["all words, Hellinger"].path.errors
    assert everything[0] == everything[1]
    # all words, as groups of their own, selected or rotated
    assert all(one.path.errors[-1] == everything[0] for one in compared)
    codes = np.unique(y, return_inverse=True)[1]
    features, svm = np.sqrt(X / X.sum(axis=1, keepdims=True)), LinearSVC(C=OPTIONS.C, random_state=0, max_iter=3000)
    wrong = {"all words, Hellinger": [], "SVD": [], "chi2 selection": []}
    for train, test in StratifiedKFold(OPTIONS.folds, shuffle=True, random_state=0).split(X, codes):
        rotation = np.linalg.svd(features[train], full_matrices=False)[2][:2].T
        chosen = SelectKBest(chi2, k=2).fit(X[train], codes[train]).get_support()
        for name, Z in zip(wrong, (features, features @ rotation, features[:, chosen]), strict=True):
            wrong[name].append(np.mean(svm.fit(Z[train], codes[train]).predict(Z[test]) != codes[test]))
    for name, errors in wrong.items():
        assert references[name].path.errors[0] == pytest.approx(np.mean(errors), abs=1 / len(y)), name
    some = compare_criteria(rows(X, y), ["csm"], references=True, **OPTIONS.to_dict(), sizes=[2])
    assert [one.name for one in some] == ["csm", *references]


def test_report_data_has_the_errors_and_confusions_of_the_fit(fitted):
    X, y = table(seed=1)
    tried = evaluate_model(fitted.model, rows(X, y))
    data = fit_report_data(fitted)
    assert data.curve.errors == fitted.model.path.errors
    assert data.confusion.n_items == len(fitted.codes)
    assert sum(group.frequency for group in data.groups) == pytest.approx(1)
    assert sum(group.n_words for group in data.groups) == 12
    with_test = fit_report_data(fitted, tried)
    assert with_test.confusion.counts.tolist() == tried.confusion(4).tolist()
    other = evaluation_report_data(fitted.model, tried)
    for shown in (with_test, other):
        assert (shown.curve.test_sizes, shown.curve.test_errors) == (tried.sizes, tried.errors)
        assert replace(shown.curve, test_sizes=(), test_errors=(), n_test=0, test_seen=0.0) == data.curve
    assert other.confusion.counts.tolist() == tried.confusion(4).tolist()


def test_report_data_has_every_group():
    X, y = table(n_words=80)
    fit = run_fit(rows(X, y), FitOptions(n_groups=60, folds=2, n_jobs=1))
    data = fit_report_data(fit)
    totals = np.bincount(fit.model.lookup, weights=X.sum(axis=0))
    assert sorted(group.number for group in data.groups) == list(range(60))
    for group in data.groups:
        assert group.n_words == np.sum(fit.model.lookup == group.number)
        assert group.frequency == pytest.approx(totals[group.number] / X.sum())
        assert group.name == fit.model.group_names()[group.number]
        assert abs(group.classes[0][1]) == pytest.approx(group.decides)
    decides = [group.decides for group in data.groups]
    assert decides == sorted(decides, reverse=True)


def test_the_weights_of_two_classes_have_opposite_signs():
    X, y = table(n_classes=2)
    fit = run_fit(rows(X, y), FitOptions(n_groups=4, folds=2, n_jobs=1))
    features = np.asarray(fit.model.group(X), np.float64)
    for group in fit_report_data(fit).groups:
        found = dict(group.classes)
        assert sum(found.values()) == pytest.approx(0, abs=1e-6)
        for name, weight in found.items():
            coef = fit.model.head.coef[fit.model.classes.index(name), group.number]
            assert weight == pytest.approx(coef * features[:, group.number].std(), abs=1e-6)


@pytest.mark.parametrize("pyramid", [((1, 1),), ((1, 1), (2, 2))])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_groups_decide_as_far_as_they_move_a_score(pyramid, layout, monkeypatch):
    monkeypatch.setattr("bagwise.app.training.group_data._BATCH", 7)
    rng = np.random.default_rng(0)
    n_cells = sum(rows * columns for rows, columns in pyramid)
    coef, features = rng.normal(size=(3, 4 * n_cells)), rng.random((30, 4 * n_cells))
    parts = {"hierarchy": Hierarchy(4, [], []), "n_groups": 4, "pyramid": pyramid, "codebook": np.eye(4)}
    model = Model(modality="images", classes=list("abc"), heads={4: Head(coef, np.zeros(3))}, **parts)
    added = (coef[:, None] * features).reshape(3, 30, n_cells, 4).sum(axis=2)  # by class, item, group
    np.testing.assert_allclose(deciding(model, layout(features)), added.std(axis=1).max(axis=0), rtol=1e-5)
    model = Model(modality="images", **parts)
    apart = features.reshape(30, n_cells, 4).sum(axis=1).std(axis=0)
    np.testing.assert_allclose(deciding(model, layout(features)), apart, rtol=1e-5)


def test_report_data_says_which_model_predicted_the_examples(fitted):
    assert "may predict another class" in fit_report_data(fitted).notes[-1]
    X, y = table(seed=1)
    tried = evaluate_model(fitted.model, rows(X, y))
    assert fit_report_data(fitted, tried).notes == list(fitted.notes)  # there the model itself has answered


def test_report_data_has_the_vocabulary_size_without_errors():
    X, y = table()
    data = fit_report_data(run_fit(rows(X, [None] * len(y)), OPTIONS))
    assert data.curve.sizes == ()
    assert data.curve.n_words == 12
    assert "groups of 12 words" in render_report(data)


def test_evidence_adds_up_to_the_score():
    X, y = table()
    fit = run_fit(rows(X, y), FitOptions(n_groups=4, folds=2))
    example = fit_report_data(fit).examples[0]
    number = int(example.id)
    answer = fit.model.classes.index(example.predicted)
    scores = fit.model.decision_function(X[[number]])[0]
    assert example.score == pytest.approx(scores[answer], abs=1e-5)
    assert example.intercept == pytest.approx(fit.model.head.intercept[answer])
    assert sum(value for _, value in example.contributions) + example.intercept == pytest.approx(example.score)
    name, score = example.rival
    assert name != example.predicted
    assert score == pytest.approx(np.delete(scores, answer).max(), abs=1e-5)


def test_an_index_finds_by_shares_of_groups(tmp_path):
    X, y = table()
    fitted = run_fit(rows(X, y), OPTIONS.with_changes(criterion="aib"))
    index = ItemIndex.build(fitted.model, fitted.data.collection, fitted.data.histograms, by="groups")
    shares = fitted.model.group(X, normalize=("l1",))
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(shares), fitted.model.group(X), rtol=1e-5)  # Hellinger's kernel, squared
    found = index.search(X[:5], k=3)
    scores = fitted.model.group(X[:5]) @ fitted.model.group(X).T
    for row, hits in zip(scores, found, strict=True):
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(row)[::-1][:3], rtol=1e-5)
    again = ItemIndex.load(index.save(tmp_path / "counts.index"))
    assert again.search(X[:5], k=3) == found
    assert (again.ids, again.labels, again.model) == (index.ids, index.labels, index.model)


def test_an_index_replaces_no_folder(fitted, tmp_path):
    index = index_of_fit(fitted, None, "", OPTIONS)
    path = index.save(tmp_path / "my.index")
    assert len(ItemIndex.load(index.save(path))) == len(index)
    (tmp_path / "folder").mkdir()
    with pytest.raises(BagwiseError, match="is a folder, but a file is needed"):
        index.save(tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "my.index"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reading": {"cache": "/somewhere"}}, "its reading is"),
        ({"reading": {"kind": 3}}, "its reading is"),
        ({"reading": 7}, "its reading is 7; expected object"),
        ({"index": []}, "its header has the unknown field 'index'"),
        ({"source": 5}, "its source is 5; expected string"),
        ({"classes": ["one"]}, "of 1 classes"),
        ({"classes": [1, 2]}, "its classes must be a list of str"),
        ({"by": "size"}, "its by is 'size'; expected string, words, groups"),
        ({"by": "words"}, "its by is 'words', .* and it has the tensors"),
        ({"blend": {"soft": 1}}, "its blend is .*; expected numbers for soft, sharp"),
        ({"blend": BlendSettings().to_header() | {"slope": -1}}, "its blend is .*; expected finite numbers from 0"),
        ({"blend": BlendSettings().to_header() | {"soft": 10**400}}, "its blend is .*; expected finite numbers from 0"),
        ({"blend": BlendSettings().to_header() | {"n_neighbors": 0}}, "its blend is .*n_neighbors from 1"),
        ({"blend": BlendSettings().to_header() | {"word_weight": 2}}, "its blend is .*weights from 0 to 1"),
    ],
)
def test_what_an_index_says_of_its_items_is_checked(fitted, tmp_path, wrong, message):
    path = index_of_fit(fitted, None, "", OPTIONS).save(tmp_path / "my.index")
    entries, data = read_parts(path)
    header = json.loads(entries["__metadata__"]["bagwise"]) | wrong
    entries["__metadata__"]["bagwise"] = json.dumps(header)
    write_parts(path, entries, data)
    with pytest.raises(BagwiseError, match=f"is damaged: .*{message}"):
        ItemIndex.load(path)


def test_what_is_no_index_is_refused(fitted, tmp_path):
    with pytest.raises(BagwiseError, match="does not exist"):
        ItemIndex.load(tmp_path / "nothing")
    with pytest.raises(BagwiseError, match="is not an index"):
        ItemIndex.load(fitted.model.save(tmp_path / "model"))
    path = index_of_fit(fitted, None, "", OPTIONS).save(tmp_path / "my.index")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BagwiseError, match="cut short"):
        ItemIndex.load(path)


def test_items_may_come_one_by_one(tmp_path):
    source = write_image_folder(tmp_path / "stripes")
    model = run_fit(source, FitOptions(descriptor="patches", n_words=12, n_groups=4, folds=0)).model
    collection = open_collection(source)
    whole = count_words(model, collection, FitOptions(n_jobs=2, cache=str(tmp_path / "cache"))).matrix
    for number in (0, 7):
        one = count_words(model, collection[[number]]).matrix
        np.testing.assert_array_equal(one.toarray(), whole.toarray()[[number]])
    assert any((tmp_path / "cache").iterdir())


@pytest.mark.parametrize(
    ("parameter", "value", "option"),
    [
        ("n_groups", 0, "--groups"),
        ("n_words", 1, "--words"),
        ("n_jobs", 0, "--jobs must be from 1 to 1024, or -1 (one per core), got 0"),
        ("random_state", -1, "--seed"),
        ("folds", 1, "--folds must be at least 2, or 0 (no cross-validation), got 1"),
        ("criterion", "amb", "Unknown --criterion"),
        ("stop_words", "french", "Unknown --stop-words"),
        ("memory_limit", "much", "--memory-limit 'much'"),
        ("C", 0, "--C must be"),
    ],
)
def test_errors_name_the_parameter_in_python_and_the_option_on_the_command_line(parameter, value, option):
    from bagwise.app.cli.printing import message_of

    with pytest.raises(OptionError, match=parameter) as caught:
        FitOptions(**{parameter: value})
    assert caught.value.parameter == parameter
    assert option in message_of(caught.value)
    assert not re.search(rf"(?<![\w-]){parameter}\b", message_of(caught.value))


@pytest.mark.parametrize("shape", [(20, 50), (50, 20)])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_components_are_those_of_a_singular_value_decomposition(shape, form):
    random = np.random.default_rng(0)
    train, test = random.random(shape), random.random((7, shape[1]))
    vectors = np.linalg.svd(train)[2]
    for size, parts in zip((2, 9), _components(form(train), None, None, form(test), (2, 9)), strict=True):
        for rows, found in zip((train, test), parts, strict=True):
            np.testing.assert_allclose(np.abs(found), np.abs(rows @ vectors[:size].T), atol=1e-9)


def test_components_of_many_words_take_little_memory():
    X = sp.random_array((300, 30_000), density=0.002, format="csr", random_state=np.random.default_rng(0))
    tracemalloc.start()
    list(_components(X, None, None, X[:50], (10, 200)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * 30_000 * 8 / 4
