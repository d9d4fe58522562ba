"""An evaluation on the items a model was learned from says so first."""

import copy
import shutil

import numpy as np
import pytest

from bagwise import Model, open_collection
from bagwise.app import FitOptions, evaluate_model, fit_model, run_fit
from bagwise.app.index.building import index_of_parted_fit
from bagwise.app.index.item_index import index_of_fit
from bagwise.app.modalities.steps import hash_arrays
from bagwise.app.training import preparing, rows, seen
from bagwise.app.training.item_answers import HELD_OUT, NEW, TRAINING
from bagwise.app.training.seen import SeenItems, distinct_hashes, item_hashes, seen_items
from bagwise.sources import Collection
from commands import as_json, bagwise
from small_sources import table, write_image_folder, write_table, write_text_folder


def fitted(source, model, *options):
    bagwise("fit", source, "--out", model, "--no-page", "--no-index", "-q", *options)
    return model


def rows_of(n, seed, n_words=40):
    """Rows of counts that all differ."""
    random = np.random.default_rng(seed)
    X = random.poisson(2.0, (n, n_words)).astype(float)
    X[:, 0] += 3 * (np.arange(n) % 2)
    return Collection.from_matrix(X, [f"{seed}-{k}" for k in range(n)], [("ab"[k % 2],) for k in range(n)])


@pytest.mark.parametrize("what", ["texts", "images", "table.csv"])
def test_training_error_is_told_first(tmp_path, what):
    source = tmp_path / what
    {"texts": write_text_folder, "images": write_image_folder, "table.csv": write_table}[what](source)
    model = fitted(source, tmp_path / "m.bagwise", *(("--words", 20) if what == "images" else ()))
    said = bagwise("evaluate", model, source)
    n = len(open_collection(source))
    assert said.startswith(f"All {n} items are those the model was learned from: this is training error, not that of ")
    error = Model.load(model).path.errors[Model.load(model).path.sizes.index(Model.load(model).n_groups)]
    assert f"For new items, 5-fold cross-validation gave {100 * error:.1f} %." in said.splitlines()[0]
    numbers = as_json("evaluate", model, source)["training_items"]
    assert numbers["all"]
    assert (numbers["n_items"], numbers["n_seen"], numbers["estimate"]) == (n, n, n)


def test_new_items_are_not_told(tmp_path):
    model = fitted(write_text_folder(tmp_path / "texts"), tmp_path / "m.bagwise")
    new = write_text_folder(tmp_path / "new", seed=7)
    assert bagwise("evaluate", model, new).startswith("36 texts of 3 classes")


def test_duplicates_between_train_and_test_are_named(tmp_path):
    write_text_folder(tmp_path / "s" / "train")
    write_text_folder(tmp_path / "s" / "test", n_each=4, seed=9)
    shutil.copy(tmp_path / "s/train/birds/024.txt", tmp_path / "s/test/birds/copy.txt")
    shutil.copy(tmp_path / "s/train/fruit/000.txt", tmp_path / "s/test/fruit/copy.txt")
    said = as_json("fit", tmp_path / "s", "--out", tmp_path / "m.bagwise", "--no-page", "--no-index")
    found = said["test"]["training_items"]
    assert found["ids"] == ["test/birds/copy.txt", "test/fruit/copy.txt"]
    assert (found["n_items"], found["n_seen"], found["exact"]) == (14, 2, True)


def test_what_a_model_in_memory_says(tmp_path):
    """It knows all hashes: some items are training items, and the error of the others is that without them."""
    train, new = rows_of(60, 0), rows_of(50, 1)
    model = fit_model(train, n_groups=5)
    mixed = Collection.from_matrix(
        np.concatenate([train.X[:10], new.X, np.zeros((1, 40))]),
        [*train.ids[:10], *new.ids, "empty"],
        [*train.label_sets[:10], *new.label_sets, ("a",)],
    )
    evaluation = evaluate_model(model, mixed)
    assert evaluation.seen.exact
    assert evaluation.seen.seen.tolist() == [True] * 10 + [False] * 51
    wrong = (evaluation.at(5) != evaluation.codes)[10:].mean()
    told = evaluation.about_seen(model)
    named = "10 of 61 items are exactly in the training data: 0-0, 0-1, 0-2, …"
    assert told == f"{named} Error without them: {100 * wrong:.1f} %."
    assert evaluate_model(model, new).about_seen(model) is None
    some = evaluate_model(model, train[:30])
    assert some.about_seen(model).startswith("All 30 items are exactly in the training data: this is training error")


def test_hashes_take_at_most_one_percent_of_the_file(tmp_path):
    train = rows_of(400, 0, n_words=800)
    model = fit_model(train, n_groups=20, folds=2)
    assert len(model.item_hashes) == model.provenance["n_hashed"] == 400
    path = model.save(tmp_path / "m.bagwise")
    loaded = Model.load(path)
    assert 5 < len(loaded.item_hashes) < 400
    without = copy.copy(model)
    without._set(item_hashes=None)
    assert path.stat().st_size - without.save(tmp_path / "n.bagwise").stat().st_size <= 0.01 * path.stat().st_size
    np.testing.assert_array_equal(loaded.item_hashes, model.item_hashes[: len(loaded.item_hashes)])
    assert loaded == model
    assert loaded.save(tmp_path / "again.bagwise").read_bytes() == path.read_bytes()


def test_predicting_training_items_is_noted(tmp_path):
    train, new = rows_of(100, 0, n_words=800), rows_of(10, 1, n_words=800)
    model = fit_model(train, n_groups=20, folds=2).save(tmp_path / "m.bagwise")
    np.savez(tmp_path / "train.npz", X=train.X)
    np.savez(tmp_path / "new.npz", X=new.X)
    known = len(Model.load(model).item_hashes)
    assert known > 10
    said = as_json("predict", model, tmp_path / "train.npz")
    assert (said["n_training_items"], said["n_compared"]) == (known, known)
    assert as_json("predict", model, tmp_path / "new.npz")["n_training_items"] == 0


def test_a_sample_estimates_the_overlap():
    """Of 4000 items 1000 are training items; the smallest hashes of a tenth of all training items are known."""
    train, new = rows_of(2000, 0), rows_of(3000, 1)
    model = fit_model(train, n_groups=5, folds=0)
    model._set(item_hashes=model.item_hashes[:200])
    mixed = Collection.from_matrix(
        np.concatenate([train.X[:1000], new.X]), [str(k) for k in range(4000)], [("a",)] * 4000
    )
    found = seen_items(model, mixed, mixed.X)
    assert not found.exact
    assert abs(found.estimate - 1000) < 250
    expected = np.isin(item_hashes(mixed.X), model.item_hashes)
    np.testing.assert_array_equal(found.seen, expected)
    assert not (found.seen & ~found.compared).any()
    told = found.sentence(np.zeros(4000, bool))
    assert told.startswith(f"About {found.estimate:,.0f} of 4,000 items are exactly in the training data; ")
    assert told.endswith("Error without them: 0.0 %.")
    of_train = seen_items(model, train[:1500], train.X[:1500]).sentence()
    assert "that can be compared are exactly in the training data: this is training error" in of_train


def test_few_that_can_be_compared_are_a_lower_bound():
    found = SeenItems(list("abcd"), np.array([True, False, False, False]), np.array([True, True, False, False]), False)
    assert found.sentence() == ("At least 1 of 4 items is exactly in the training data: a. Only 2 can be compared.")


def test_hashes_are_of_the_words_alone():
    X, _ = table(n_words=9)
    X[3] = 0
    dense, sparse = (
        item_hashes(X),
        item_hashes(Collection.from_matrix(X).X),
    )
    np.testing.assert_array_equal(dense, sparse)
    np.testing.assert_array_equal(item_hashes(X[::-1].astype(np.float32)), dense[::-1])
    assert dense[3] == 0
    assert 0 not in distinct_hashes(dense)[0]


@pytest.mark.parametrize("memory_limit", [None, 1])
def test_a_fit_hashes_items_once(memory_limit, tmp_path, monkeypatch):
    """Provenance, notes on copies, evaluation and index take the same hashes, the steps in a cache one of all words."""
    hashed, keys = [], []
    for module in (seen, preparing, rows):
        monkeypatch.setattr(module, "item_hashes", lambda X: hashed.append(X.shape[0]) or item_hashes(X))
    monkeypatch.setattr(rows, "hash_arrays", lambda arrays: keys.append(arrays) or hash_arrays(arrays))
    train, new = rows_of(60, 0), rows_of(50, 1)
    options = FitOptions(n_groups=5, folds=2, cache=tmp_path / "cache", memory_limit=memory_limit)
    fit = run_fit(train, options)
    evaluation = evaluate_model(fit.model, new)
    if memory_limit is None:
        index = index_of_fit(fit, evaluation, train, options)
    else:
        index = index_of_parted_fit(fit, evaluation, tmp_path / "rows.index", options)
    assert sum(hashed) == 60 + 50
    assert len(keys) == (1 if memory_limit is None else 2)  # also of the sample
    origins = dict(zip(index.ids, index.answers.origins.tolist(), strict=True))
    assert [origins[id] for id in new.ids] == [NEW] * 50
    assert {origins[id] for id in train.ids} <= {TRAINING, HELD_OUT}
    assert index.answers.exact


def test_models_that_cannot_tell(tmp_path):
    source = write_text_folder(tmp_path / "texts")
    model = fitted(source, tmp_path / "m.bagwise", "--compact")
    assert Model.load(model).item_hashes is None
    assert as_json("evaluate", model, source)["training_items"] is None
    rows = rows_of(60, 0)
    small = fit_model(rows, n_groups=5, folds=0).compact()
    assert evaluate_model(small, rows).seen.all_of_them
