import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp

from bagwise import BagwiseError, Model, open_collection
from bagwise.sources import TableCollection
from bagwise.training import FitOptions, fit_model, histograms_of, plan_fit
from bagwise.training.path import group_words
from small_sources import (
    table,
    texts,
    write_image_folder,
    write_records,
    write_table,
    write_text_folder,
    zipped,
)

IMAGES = {"descriptor": "patches", "words": 12, "to": 4, "folds": 2, "jobs": 1}
TEXTS = {"to": 4, "folds": 2, "jobs": 1}


def timeless(model):
    """The same model without what differs from run to run."""
    provenance = {name: value for name, value in model.provenance.items() if name not in ("created", "seconds")}
    return dataclasses.replace(model, provenance=provenance)


def table_of(X, y):
    return TableCollection(X, [str(i) for i in range(len(y))], [(label,) for label in y])


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    return write_image_folder(tmp_path_factory.mktemp("stripes"))


def test_the_same_seed_gives_the_same_bytes(image_folder, tmp_path):
    models = [timeless(fit_model(image_folder, FitOptions(**IMAGES)).model) for _ in range(2)]
    files = [model.save(tmp_path / f"{k}.bagwise").read_bytes() for k, model in enumerate(models)]
    assert files[0] == files[1]
    other = timeless(fit_model(image_folder, FitOptions(**IMAGES, seed=1)).model)
    assert other != models[0]


def test_threads_do_not_change_the_model(image_folder):
    one, two = (fit_model(image_folder, FitOptions(**IMAGES | {"jobs": jobs})).model for jobs in (1, 2))
    assert timeless(one).info() | {"options": {}} == timeless(two).info() | {"options": {}}
    np.testing.assert_array_equal(one.codebook, two.codebook)
    assert all(one.heads[size] == two.heads[size] for size in one.heads)


def test_an_archive_gives_the_same_model_as_its_folder(image_folder, tmp_path):
    archive = zipped(image_folder, tmp_path / "stripes.zip")
    from_folder, from_archive = (fit_model(source, FitOptions(**IMAGES)).model for source in (image_folder, archive))
    np.testing.assert_array_equal(from_folder.codebook, from_archive.codebook)
    assert from_folder.provenance["content_hash"] == from_archive.provenance["content_hash"]
    assert from_archive.provenance["source"] == "stripes.zip"


@pytest.mark.parametrize("to", [2, 5, 10])
def test_a_cut_is_what_fitting_to_that_size_gives(to, tmp_path):
    source = write_text_folder(tmp_path / "texts")
    large, small = (fit_model(source, FitOptions(**TEXTS | {"to": n})).model for n in (20, to))
    new = [text for text, _ in texts(n_each=3, seed=5)]
    cut = large.cut(to)
    np.testing.assert_array_equal(cut.lookup, small.lookup)
    np.testing.assert_array_equal(cut.transform(new).toarray(), small.transform(new).toarray())
    np.testing.assert_array_equal(cut.predict(new), small.predict(new))


def test_features_of_the_model_are_those_it_learned_from(image_folder):
    fit = fit_model(image_folder, FitOptions(**IMAGES, pyramid=5))
    model = fit.model
    assert model.n_cells == 5
    histograms, kept = histograms_of(model, open_collection(image_folder))
    assert kept.tolist() == list(range(12))
    np.testing.assert_array_equal(histograms.toarray(), fit.data.histograms.toarray())
    expected = group_words(fit.data.histograms, model.lookup, model.n_groups, 5)
    np.testing.assert_allclose(model.group(histograms).toarray(), expected.toarray(), rtol=1e-5)
    np.testing.assert_allclose(fit.data.whole().toarray(), histograms.toarray()[:, : model.hierarchy.n_words])


@pytest.mark.parametrize("stop_words", [None, "english"])
@pytest.mark.parametrize("ngrams", [1, 2])
def test_the_model_counts_words_of_texts_as_the_fit_did(tmp_path, ngrams, stop_words):
    """Pairs of words reach over a stop word between them, when learning and afterwards."""
    lines = ["the cat of the house", "a cat in the house", "the dog on a lawn", "one dog of the lawn"]
    path = tmp_path / "lines.csv"
    path.write_text("text,label\n" + "\n".join(f"{line},{line.split()[1]}" for line in lines))
    fit = fit_model(path, FitOptions(to=2, folds=0, jobs=1, min_count=1, ngrams=ngrams, stop_words=stop_words))
    assert ("cat house" in fit.data.word_names) == (ngrams == 2 and stop_words == "english")
    np.testing.assert_array_equal(fit.model.histograms(lines).toarray(), fit.data.histograms.toarray())
    loaded = Model.load(fit.model.save(tmp_path / "lines.bagwise"))
    np.testing.assert_array_equal(loaded.histograms(lines).toarray(), fit.data.histograms.toarray())


def test_an_item_that_is_held_out_is_not_learned_from():
    """Other words in the held-out fold of one item change no answer of the others of that fold, given their folds."""
    X, y = table()
    options = FitOptions(to=4, folds=3, jobs=1)
    fit = fit_model(table_of(X, y), options)
    assert fit.held_out.shape == (len(fit.model.path.sizes), len(y))
    errors = (fit.held_out != fit.codes).mean(axis=1)
    np.testing.assert_allclose(errors, fit.model.path.errors)  # folds are of one size here
    from sklearn.model_selection import StratifiedKFold

    _, test = next(iter(StratifiedKFold(3, shuffle=True, random_state=0).split(X, fit.codes)))
    changed = X.copy()
    changed[test[0]] = 1000 * (np.arange(X.shape[1]) == 0)
    again = fit_model(table_of(changed, y), options)
    np.testing.assert_array_equal(again.held_out[:, test[1:]], fit.held_out[:, test[1:]])


def test_auto_takes_the_size_of_one_standard_error():
    X, y = table()
    fit = fit_model(table_of(X, y), FitOptions(to="auto", folds=3))
    path = fit.model.path
    assert fit.model.n_groups == path.one_se
    best = int(np.argmin(path.errors))
    assert path.errors[path.sizes.index(path.one_se)] <= path.errors[best] + path.standard_errors[best]


def test_sparse_and_dense_tables_give_the_same():
    X, y = table()
    dense, sparse = (fit_model(table_of(form(X), y), FitOptions(to=4, folds=3)) for form in (np.asarray, sp.csr_array))
    np.testing.assert_array_equal(dense.model.lookup, sparse.model.lookup)
    np.testing.assert_array_equal(dense.held_out, sparse.held_out)
    assert dense.model.provenance["content_hash"] == sparse.model.provenance["content_hash"]


def test_names_and_totals_of_words_are_kept(tmp_path):
    model = fit_model(write_table(tmp_path / "counts.csv"), FitOptions(to=4, folds=0)).model
    X, _ = table()
    assert model.word_names == tuple(f"w{k}" for k in range(12))
    np.testing.assert_allclose(model.word_totals, X.sum(axis=0))
    assert model.path is None


def test_without_labels_words_are_merged_all_the_same(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("text\n" + "\n".join(text for text, _ in texts()))
    fit = fit_model(path, FitOptions(to=5))
    assert fit.model.classes == ()
    assert fit.model.heads == {}
    assert fit.codes is None
    assert fit.model.options["criterion"] == fit.model.hierarchy.criterion
    with pytest.raises(BagwiseError, match="needs at least two, but the items have no labels"):
        fit_model(path, FitOptions(to=5, criterion="nda"))
    with pytest.raises(BagwiseError, match='to="auto" chooses the number of words by cross-validation'):
        fit_model(path, FitOptions(to="auto"))


def test_one_class_is_said_and_merged_without(tmp_path):
    fit = fit_model(write_text_folder(tmp_path / "fruit only", classes=["fruit"]), FitOptions(to=3))
    assert fit.model.heads == {}
    assert "one class" in fit.notes[0]


def test_items_without_a_label_are_left_out_and_counted(tmp_path):
    source = write_text_folder(tmp_path / "texts")
    (source / "unknown.txt").write_text("apple hammer wren")
    fit = fit_model(source, FitOptions(**TEXTS))
    assert "1 of 37 items have no label" in fit.notes[0]
    assert fit.model.provenance["n_items"] == 36


def test_several_labels_are_refused():
    X, y = table()
    rows = TableCollection(X, [str(i) for i in range(len(y))], [("a", "b")] + [("a",)] * (len(y) - 1))
    with pytest.raises(BagwiseError, match=r"Item '0' has 2 labels \(a, b\)"):
        fit_model(rows)


def test_items_that_cannot_be_read_are_left_out_or_raise(tmp_path):
    source = write_image_folder(tmp_path / "stripes")
    (source / "down" / "broken.png").write_bytes(b"no picture")
    fit = fit_model(source, FitOptions(**IMAGES))
    assert len(fit.data.collection) == 12
    assert "1 items could not be read, the first down/broken.png" in fit.notes[0]
    assert fit.model.provenance["n_skipped"] == 1
    with pytest.raises(BagwiseError, match=r"broken\.png"):
        fit_model(source, FitOptions(**IMAGES, on_error="raise"))


def test_too_few_items_for_folds_are_said(tmp_path):
    source = write_text_folder(tmp_path / "texts")
    (source / "rare").mkdir()
    (source / "rare" / "one.txt").write_text("apple hammer")
    fit = fit_model(source, FitOptions(**TEXTS))
    assert "'rare' has only 1 items" in fit.notes[0]
    assert fit.model.path is None
    assert set(fit.model.heads) >= {2, 4}


def test_parts_are_kept_apart(tmp_path):
    source = write_image_folder(tmp_path / "stripes", parts=("train", "test"))
    fit = fit_model(source, FitOptions(**IMAGES))
    assert all(id.startswith("train/") for id in fit.data.collection.ids)
    assert len(fit.test) == 12


def parted(labels, parts):
    X, _ = table(n_each=4)
    ids = [str(i) for i in range(len(labels))]
    return TableCollection(X[: len(labels)], ids, [() if label is None else (label,) for label in labels], parts)


def test_a_part_test_without_labels_is_noted():
    fit = fit_model(parted(["a", "b", "a", "b", None], ["train"] * 4 + ["test"]), FitOptions(to=2, folds=2, jobs=1))
    assert fit.test is None
    assert "1 items of the part test have no labels" in fit.notes[0]
    some = fit_model(parted(["a", "b", "a", None], ["train"] * 2 + ["test"] * 2), FitOptions(to=2, folds=0, jobs=1))
    assert some.test.ids == ["2"]
    assert "1 of 2 items of the part test have no label" in some.notes[0]


def test_items_of_other_parts_are_noted():
    fit = fit_model(parted(["a", "b", "a", "b"], ["train", "train", "val", "test"]), FitOptions(to=2, folds=0, jobs=1))
    assert fit.notes == ("1 items are neither in the part train nor in the part test and were left out.",)


def test_what_cannot_be_tested_or_chosen_is_said_before_the_work(monkeypatch):
    def no_work(*args):
        raise AssertionError("work began")

    monkeypatch.setattr("bagwise.training.fit.learn_hierarchy", no_work)
    with pytest.raises(BagwiseError, match="needs two classes of 3 items each"):
        fit_model(parted(["a", "b", "a", "b"], None), FitOptions(to="auto", folds=3, jobs=1))
    with pytest.raises(BagwiseError, match="folds=0 asks for none"):
        fit_model(parted(["a", "b", "a", "b"], None), FitOptions(to="auto", folds=0, jobs=1))
    monkeypatch.setattr("bagwise.training.fit.learn_words", no_work)
    with pytest.raises(BagwiseError, match="part test has items labelled 'c'"):
        fit_model(parted(["a", "b", "c"], ["train", "train", "test"]), FitOptions(to=2, jobs=1))


def test_encoding_and_columns_are_options(tmp_path):
    path = tmp_path / "texts.csv"
    rows = [f"{label};{text} é" for text, label in texts()]
    path.write_bytes("\n".join(["what;said", *rows]).replace(";", ",").encode("latin-1"))
    fit = fit_model(path, FitOptions(**TEXTS, text="said", label="what", encoding="latin-1"))
    assert fit.model.classes == ("birds", "fruit", "tools")
    assert json.loads(json.dumps(fit.model.options))["encoding"] == "latin-1"


def test_what_cannot_be_learned_from_is_said(tmp_path):
    path = write_records(tmp_path / "texts.csv")
    with pytest.raises(BagwiseError, match=r"to=5000, but there are only \d+ words"):
        fit_model(path, FitOptions(to=5000))
    with pytest.raises(BagwiseError, match="A pyramid is laid over images"):
        fit_model(path, FitOptions(pyramid=5))
    with pytest.raises(BagwiseError, match="columns of a table are its words"):
        fit_model(write_table(tmp_path / "counts.csv"), FitOptions(words=5))
    for nothing in ({"descriptor": "sift"}, {"step": 4}, {"patch": 8}):
        with pytest.raises(BagwiseError, match="is for images and videos, but these are texts"):
            fit_model(path, FitOptions(**nothing))
    X, y = table()
    for nothing in ({"min_count": 3}, {"stop_words": "english"}, {"ngrams": 2}):
        for ask in (fit_model, plan_fit):
            with pytest.raises(BagwiseError, match="is for texts, but these are table"):
                ask(table_of(X, y), FitOptions(**nothing))
    with pytest.raises(BagwiseError, match="counts of words are never negative"):
        fit_model(table_of(X - 3, y))
    with pytest.raises(BagwiseError, match="does not describe images"):
        fit_model(write_image_folder(tmp_path / "stripes"), FitOptions(descriptor="hog-hof"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("")
    with pytest.raises(BagwiseError, match="no word that occurs"):
        fit_model(tmp_path / "empty")


def test_saved_models_predict_the_same(image_folder, tmp_path):
    model = fit_model(image_folder, FitOptions(**IMAGES)).model
    loaded = Model.load(model.save(tmp_path / "stripes.bagwise"))
    assert loaded == model
    collection = open_collection(image_folder)
    np.testing.assert_array_equal(loaded.predict(collection), model.predict(collection))
