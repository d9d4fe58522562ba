import copy
import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bagwise import BagwiseError, Model, WordMerger, __version__, open_collection, runtime
from bagwise.app import FitOptions, ItemIndex, count_words, fit_model, fit_report_data, plan_fit, run_fit
from bagwise.app.training.method import folds_of
from bagwise.distributed.executors import LocalExecutor
from bagwise.sources import Collection
from commands import bagwise
from model_cases import saved
from small_sources import (
    table,
    texts,
    write_image_folder,
    write_records,
    write_table,
    write_text_folder,
    zipped,
)

IMAGES = {"descriptor": "patches", "n_words": 12, "n_groups": 4, "folds": 2, "n_jobs": 1}
TEXTS = {"n_groups": 4, "folds": 2, "n_jobs": 1}


def table_of(X, y):
    return Collection.from_matrix(X, [str(i) for i in range(len(y))], [(label,) for label in y])


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    return write_image_folder(tmp_path_factory.mktemp("stripes"))


def test_the_same_seed_gives_the_same_bytes(image_folder, tmp_path):
    models = [run_fit(image_folder, FitOptions(**IMAGES)).model for _ in range(2)]
    files = [model.save(tmp_path / f"{k}.bagwise").read_bytes() for k, model in enumerate(models)]
    assert files[0] == files[1]
    other = run_fit(image_folder, FitOptions(**IMAGES, random_state=1)).model
    assert other != models[0]


def test_neither_threads_nor_the_time_change_the_bytes_of_a_model(image_folder, tmp_path, monkeypatch):
    one = run_fit(image_folder, FitOptions(**IMAGES | {"n_jobs": 1}))
    monkeypatch.setattr("time.perf_counter", iter(range(0, 10**9, 7)).__next__)
    two = run_fit(image_folder, FitOptions(**IMAGES | {"n_jobs": 2}))
    assert one.timings != two.timings
    assert saved(one.model, tmp_path) == saved(two.model, tmp_path)
    assert "created" not in one.model.provenance


def test_a_model_has_the_date_that_the_environment_asks_for(tmp_path, monkeypatch):
    source = write_table(tmp_path / "table.csv")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    model = run_fit(source, FitOptions(n_groups=2, folds=0)).model
    assert model.provenance["created"] == "1970-01-02T00:00:00+00:00"
    model.save(tmp_path / "table.bagwise")
    assert f"made          1970-01-02T00:00:00+00:00 by bagwise {__version__}" in bagwise(
        "info", tmp_path / "table.bagwise"
    )
    for wrong in ("today", "9" * 30):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", wrong)
        with pytest.raises(BagwiseError, match=r"SOURCE_DATE_EPOCH must be a number of seconds since 1970, got '"):
            run_fit(source, FitOptions(n_groups=2, folds=0))


def test_an_archive_gives_the_same_model_as_its_folder(image_folder, tmp_path):
    archive = zipped(image_folder, tmp_path / "stripes.zip")
    from_folder, from_archive = (run_fit(source, FitOptions(**IMAGES)).model for source in (image_folder, archive))
    np.testing.assert_array_equal(from_folder.codebook, from_archive.codebook)
    assert from_folder.provenance["content_hash"] == from_archive.provenance["content_hash"]
    assert from_archive.provenance["source"] == "stripes.zip"


@pytest.mark.parametrize("n_groups", [2, 5, 10])
@pytest.mark.parametrize("criterion", ["csm", "aib"])
def test_a_cut_is_what_fitting_to_that_size_gives(criterion, n_groups, tmp_path):
    source, options = write_text_folder(tmp_path / "texts"), FitOptions(**TEXTS, criterion=criterion)
    large, small = (run_fit(source, options.with_changes(n_groups=n)).model for n in (20, n_groups))
    new = [text for text, _ in texts(n_each=3, seed=5)]
    cut = large.cut(n_groups)
    np.testing.assert_array_equal(cut.lookup, small.lookup)
    np.testing.assert_array_equal(cut.transform(new).toarray(), small.transform(new).toarray())
    np.testing.assert_array_equal(cut.predict(new), small.predict(new))


def test_features_of_the_model_are_those_it_learned_from(image_folder):
    fit = run_fit(image_folder, FitOptions(**IMAGES, pyramid=5))
    model = fit.model
    assert model.layout.n_cells == 5
    found = count_words(model, open_collection(image_folder))
    assert found.kept.tolist() == list(range(12))
    histograms = found.matrix
    np.testing.assert_array_equal(histograms.toarray(), fit.data.histograms.toarray())
    np.testing.assert_allclose(fit.data.whole().toarray(), histograms.toarray()[:, : model.hierarchy.n_words])


def test_pairs_of_words_are_words_of_texts_with_classes(tmp_path):
    """Those of at least two texts."""
    lines = ["not good at all", "this was not good", "very good it was", "very good indeed", "not bad", "bad at heart"]
    labels = ["bad", "bad", "good", "good", "good", "bad"]
    path = tmp_path / "lines.csv"
    path.write_text("\n".join(["text,label", *map(",".join, zip(lines, labels, strict=True))]))
    model = run_fit(path, FitOptions(n_groups=2, folds=3)).model
    single = sorted({word for line in lines for word in line.split()})
    assert sorted(model.word_names) == sorted([*single, "not good", "very good"])
    assert "all words and pairs of words, TF-IDF, linear SVM" in [one["name"] for one in model.provenance["baselines"]]
    assert "all words, TF-IDF, linear SVM" in [
        one["name"] for one in run_fit(path, FitOptions(n_groups=2, folds=3, ngrams=1)).model.provenance["baselines"]
    ]
    assert set(run_fit(path, FitOptions(n_groups=2), use_classes=False).model.word_names) == set(single)


@pytest.mark.parametrize("stop_words", [None, "english"])
@pytest.mark.parametrize("ngrams", [1, 2])
def test_the_model_counts_words_of_texts_as_the_fit_did(tmp_path, ngrams, stop_words):
    """Pairs of words reach over a stop word between them, when learning and afterwards."""
    lines = ["the cat of the house", "a cat in the house", "the dog on a lawn", "one dog of the lawn"]
    path = tmp_path / "lines.csv"
    path.write_text("text,label\n" + "\n".join(f"{line},{line.split()[1]}" for line in lines))
    fit = run_fit(path, FitOptions(n_groups=2, folds=0, n_jobs=1, min_count=1, ngrams=ngrams, stop_words=stop_words))
    assert ("cat house" in fit.model.word_names) == (ngrams == 2 and stop_words == "english")
    np.testing.assert_array_equal(fit.model.histograms(lines).toarray(), fit.data.histograms.toarray())
    loaded = Model.load(fit.model.save(tmp_path / "lines.bagwise"))
    np.testing.assert_array_equal(loaded.histograms(lines).toarray(), fit.data.histograms.toarray())


def test_an_item_that_is_held_out_is_not_learned_from():
    """Other words in the held-out fold of one item change no answer of the others of that fold, given their folds."""
    X, y = table()
    options = FitOptions(n_groups=4, folds=3, n_jobs=1)
    fit = run_fit(table_of(X, y), options)
    assert fit.held_out.shape == (len(fit.model.path.sizes), len(y))
    errors = (fit.held_out != fit.codes).mean(axis=1)
    np.testing.assert_allclose(errors, fit.model.path.errors)  # folds are of one size here
    from sklearn.model_selection import StratifiedKFold

    _, test = next(iter(StratifiedKFold(3, shuffle=True, random_state=0).split(X, fit.codes)))
    changed = X.copy()
    changed[test[0]] = 1000 * (np.arange(X.shape[1]) == 0)
    again = run_fit(table_of(changed, y), options)
    np.testing.assert_array_equal(again.held_out[:, test[1:]], fit.held_out[:, test[1:]])


def test_the_number_of_groups_is_chosen_by_differences_on_the_same_items():
    X, y = table()
    fit = run_fit(table_of(X, y), FitOptions(n_groups="auto", folds=3))
    path = fit.model.path
    assert fit.model.n_groups == path.auto
    wrong = (fit.held_out != fit.codes).astype(float)
    best = int(np.argmin(path.errors))
    differences = wrong - wrong[best]
    np.testing.assert_allclose(path.paired_errors, differences.std(axis=1, ddof=1) / np.sqrt(len(y)))
    near = path.errors <= path.errors[best] + np.array(path.paired_errors) / 2
    assert path.auto == path.sizes[int(np.argmax(near))]
    lowest = run_fit(table_of(X, y), FitOptions(n_groups="best", folds=3)).model
    assert (lowest.path, lowest.n_groups) == (path, path.best)
    assert run_fit(table_of(X, y), FitOptions(n_groups="best", folds=0)).model.n_groups == min(50, X.shape[1])


def test_sparse_and_dense_tables_give_the_same():
    X, y = table()
    dense, sparse = (
        run_fit(table_of(form(X), y), FitOptions(n_groups=4, folds=3)) for form in (np.asarray, sp.csr_array)
    )
    np.testing.assert_array_equal(dense.model.lookup, sparse.model.lookup)
    np.testing.assert_array_equal(dense.held_out, sparse.held_out)
    assert dense.model.provenance["content_hash"] == sparse.model.provenance["content_hash"]


def test_names_and_totals_of_words_are_kept(tmp_path):
    model = run_fit(write_table(tmp_path / "counts.csv"), FitOptions(n_groups=4, folds=0)).model
    X, _ = table()
    assert model.word_names == tuple(f"w{k}" for k in range(12))
    np.testing.assert_allclose(model.word_totals, X.sum(axis=0))
    assert model.path is None


def test_without_labels_words_are_merged_all_the_same(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("text\n" + "\n".join(text for text, _ in texts()))
    fit = run_fit(path, FitOptions(n_groups=5))
    assert fit.model.classes == ()
    assert fit.model.heads == {}
    assert fit.codes is None
    assert fit.model.options["criterion"] == fit.model.hierarchy.criterion
    with pytest.raises(BagwiseError, match="needs at least two classes, but the items have no labels"):
        run_fit(path, FitOptions(n_groups=5, criterion="nda"))
    by_default = run_fit(path, FitOptions())
    assert by_default.model.n_groups == min(50, by_default.data.n_words)
    assert "groups by default" in by_default.notes[-1]


def test_one_class_is_said_and_merged_without(tmp_path):
    fit = run_fit(write_text_folder(tmp_path / "fruit only", classes=["fruit"]), FitOptions(n_groups=3))
    assert fit.model.heads == {}
    assert "one class" in fit.notes[0]


def test_few_items_without_a_label_lend_their_words_or_are_left_out(tmp_path):
    source = write_text_folder(tmp_path / "texts")
    (source / "unknown.txt").write_text("apple hammer wren")
    fit = run_fit(source, FitOptions(**TEXTS))
    assert "36 of 37 items have a label: words were made from all of them" in fit.notes[0]
    assert (len(fit.codes), len(fit.data.collection), fit.data.collection.ids[-1]) == (36, 37, "unknown.txt")
    by_labels = run_fit(source, FitOptions(**TEXTS, criterion="csm"))
    assert "1 of 37 items has no label and was not used" in by_labels.notes[0]
    assert by_labels.model.provenance["n_items"] == 36


def test_several_labels_are_refused():
    X, y = table()
    rows = Collection.from_matrix(X, [str(i) for i in range(len(y))], [("a", "b")] + [("a",)] * (len(y) - 1))
    with pytest.raises(BagwiseError, match=r"Item '0' has 2 labels \(a, b\)"):
        run_fit(rows, FitOptions())


def test_items_that_cannot_be_read_are_left_out_or_raise(tmp_path):
    source = write_image_folder(tmp_path / "stripes")
    (source / "down" / "broken.png").write_bytes(b"no picture")
    fit = run_fit(source, FitOptions(**IMAGES))
    assert len(fit.data.collection) == 12
    assert "1 of 13 items could not be read and was skipped. down/broken.png: it is damaged" in fit.notes[0]
    assert fit.model.provenance["n_skipped"] == 1
    with pytest.raises(BagwiseError, match=r"broken\.png"):
        run_fit(source, FitOptions(**IMAGES, on_error="raise"))


def test_too_few_items_for_folds_are_said(tmp_path):
    source = write_text_folder(tmp_path / "texts")
    (source / "rare").mkdir()
    (source / "rare" / "one.txt").write_text("apple hammer")
    fit = run_fit(source, FitOptions(**TEXTS))
    assert "'rare' has 1 item, so" in fit.notes[0]
    assert fit.model.path is None
    assert set(fit.model.heads) >= {2, 4}


def test_parts_are_kept_apart(tmp_path):
    source = write_image_folder(tmp_path / "stripes", parts=("train", "test"))
    fit = run_fit(source, FitOptions(**IMAGES))
    assert all(id.startswith("train/") for id in fit.data.collection.ids)
    assert len(fit.test) == 12


def parted(labels, parts):
    X, _ = table(n_each=4)
    ids = [str(i) for i in range(len(labels))]
    return Collection.from_matrix(X[: len(labels)], ids, [() if label is None else (label,) for label in labels], parts)


def test_a_part_test_without_labels_is_noted():
    fit = run_fit(
        parted(["a", "b", "a", "b", None], ["train"] * 4 + ["test"]), FitOptions(n_groups=2, folds=2, n_jobs=1)
    )
    assert fit.test is None
    assert "The split test has no labels: 1 item of it" in fit.notes[0]
    some = run_fit(
        parted(["a", "b", "a", None], ["train"] * 2 + ["test"] * 2), FitOptions(n_groups=2, folds=0, n_jobs=1)
    )
    assert some.test.ids == ["2"]
    assert "1 of 2 items of the split test has no label" in some.notes[0]


def test_items_of_other_parts_are_noted():
    fit = run_fit(
        parted(["a", "b", "a", "b"], ["train", "train", "val", "test"]), FitOptions(n_groups=2, folds=0, n_jobs=1)
    )
    assert fit.notes == ("1 item is neither in the split train nor in the split test and was not used.",)


def test_unknown_classes_of_the_test_split_are_an_error_before_the_work(monkeypatch):
    def no_work(*args):
        raise AssertionError("work began")

    monkeypatch.setattr("bagwise.app.training.preparing.vectorize", no_work)
    with pytest.raises(BagwiseError, match="split test has items labelled 'c'"):
        run_fit(parted(["a", "b", "c"], ["train", "train", "test"]), FitOptions(n_groups=2, n_jobs=1))


def test_encoding_and_columns_are_options(tmp_path):
    path = tmp_path / "texts.csv"
    rows = [f"{label};{text} é" for text, label in texts()]
    path.write_bytes("\n".join(["what;said", *rows]).replace(";", ",").encode("latin-1"))
    fit = run_fit(path, FitOptions(**TEXTS, text="said", label="what", encoding="latin-1"))
    assert fit.model.classes == ("birds", "fruit", "tools")
    assert json.loads(json.dumps(fit.model.options))["encoding"] == "latin-1"


def test_what_cannot_be_learned_from_is_said(tmp_path):
    path = write_records(tmp_path / "texts.csv")
    with pytest.raises(BagwiseError, match=r"n_groups=5000, but there are only \d+ words"):
        run_fit(path, FitOptions(n_groups=5000))
    with pytest.raises(BagwiseError, match="max_side is for images, but these are texts"):
        run_fit(path, FitOptions(max_side=100))
    for wrong in (2, -1, 5000, True, 480.0, None):
        with pytest.raises(
            BagwiseError, match=r"max_side must be (an integer|from 3 to 4096), or 0 \(they keep their size\), got"
        ):
            FitOptions(max_side=wrong)
    with pytest.raises(BagwiseError, match="root is for images, videos and tables, but these are texts"):
        run_fit(path, FitOptions(root="before"))
    with pytest.raises(BagwiseError, match="pyramid is for images, but these are texts"):
        run_fit(path, FitOptions(pyramid=5))
    with pytest.raises(BagwiseError, match=r"n_words is for .*, but this is a table, whose columns are its words"):
        run_fit(write_table(tmp_path / "counts.csv"), FitOptions(n_words=5))
    for nothing in ({"descriptor": "sift"}, {"step": 4}, {"patch": 8}):
        with pytest.raises(BagwiseError, match="is for images and videos, but these are texts"):
            run_fit(path, FitOptions(**nothing))
    X, y = table()
    for nothing in ({"min_count": 3}, {"stop_words": "english"}, {"ngrams": 2}):
        for ask in (fit_model, plan_fit):
            with pytest.raises(BagwiseError, match="is for texts, but this is a table"):
                ask(table_of(X, y), **nothing)
    with pytest.raises(BagwiseError, match="is sparse and holds negative numbers"):
        run_fit(table_of(sp.csr_array(X - 3.0), y), FitOptions())
    with pytest.raises(BagwiseError, match="does not describe images"):
        run_fit(write_image_folder(tmp_path / "stripes"), FitOptions(descriptor="hog-hof"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("")
    with pytest.raises(BagwiseError, match=r"have no word\."):
        run_fit(tmp_path / "empty", FitOptions())
    with pytest.raises(BagwiseError, match="no word that occurs in 3 of them"):
        run_fit(tmp_path / "empty", FitOptions(min_count=3))


def test_saved_models_predict_the_same(image_folder, tmp_path):
    model = run_fit(image_folder, FitOptions(**IMAGES)).model
    loaded = Model.load(model.save(tmp_path / "stripes.bagwise"))
    assert loaded == model
    collection = open_collection(image_folder)
    np.testing.assert_array_equal(loaded.predict(collection), model.predict(collection))


def test_each_item_is_read_once(tmp_path, monkeypatch):
    from bagwise.sources.media import ImageDecoder

    source = write_image_folder(tmp_path / "stripes")
    read = []
    decode = ImageDecoder.decode
    monkeypatch.setattr(
        ImageDecoder, "decode", lambda self, content, *size: read.append(content.source) or decode(self, content, *size)
    )
    run_fit(source, FitOptions(**IMAGES))
    assert sorted(read) == sorted(set(read))
    assert len(read) == 12


def test_large_images_give_what_small_ones_do(tmp_path):
    """Pixels repeated 25 times are shrunk to what they were, in a fit, in its report and by the loaded model."""
    from bagwise.app.training.report_data import fit_report_data

    small = write_image_folder(tmp_path / "small" / "stripes")
    large = tmp_path / "large" / "stripes"
    for path in small.rglob("*.png"):
        target = large / path.relative_to(small)
        target.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.asarray(Image.open(path))
        Image.fromarray(pixels.repeat(25, axis=0).repeat(25, axis=1)).save(target)
    side = max(open_collection(small)[0].load().shape)
    assert 25 * side > FitOptions().max_side > side
    fits = [run_fit(small, FitOptions(**IMAGES)), run_fit(large, FitOptions(**IMAGES, max_side=side))]
    np.testing.assert_array_equal(fits[1].model.codebook, fits[0].model.codebook)
    np.testing.assert_array_equal(fits[1].data.histograms.toarray(), fits[0].data.histograms.toarray())
    patches = [[group.patches for group in fit_report_data(fit).groups] for fit in fits]
    assert patches[0] == patches[1]
    assert any(patches[0])
    loaded = Model.load(fits[1].model.save(tmp_path / "stripes.bagwise"))
    assert loaded.descriptor.max_side == side
    histograms = loaded.histograms(open_collection(large))
    np.testing.assert_array_equal(histograms.toarray(), fits[0].data.histograms.toarray())
    whole = run_fit(large, FitOptions(**IMAGES | {"folds": 0}, max_side=0, step=50)).model
    assert whole.descriptor.max_side is None
    assert whole.histograms(open_collection(large)).sum() > 3 * histograms.sum()


@pytest.mark.parametrize("pyramid", [None, 5])
def test_descriptors_in_a_temporary_file_give_the_same_model(image_folder, pyramid):
    held, spooled = (
        run_fit(image_folder, FitOptions(**IMAGES, pyramid=pyramid), client=LocalExecutor(memory_limit=limit))
        for limit in (None, 1)
    )
    np.testing.assert_array_equal(held.model.codebook, spooled.model.codebook)
    assert held.model.provenance["content_hash"] == spooled.model.provenance["content_hash"]
    for row, sample in held.data.samples.items():
        for one, other in zip(sample, spooled.data.samples[row], strict=True):
            np.testing.assert_array_equal(one, other)


def test_samples_are_the_words_of_the_descriptors(image_folder):
    fit = run_fit(image_folder, FitOptions(**IMAGES))
    assert sorted(fit.data.samples) == list(range(12))
    for row, sample in fit.data.samples.items():
        words = sample.words[:, 0]
        assert sample.words.shape == sample.weights.shape == (len(words), 1)
        counts = np.bincount(words, sample.weights[:, 0], minlength=12)
        np.testing.assert_array_equal(counts, fit.data.histograms[[row]].toarray().ravel())
        values, positions = fit.model.descriptor.describe(fit.data.collection[row].load())
        np.testing.assert_array_equal(sample.positions, positions)
        np.testing.assert_allclose(sample.distances, np.linalg.norm(values - fit.model.codebook[words], axis=1))


def test_fit_model_returns_the_model_of_a_fit(image_folder, tmp_path):
    options = IMAGES | {"n_groups": 3}
    model = fit_model(image_folder, **options)
    assert model.info() == run_fit(image_folder, FitOptions(**options)).model.info()
    assert model.fit_.data.histograms.shape == (12, 12)
    page = model.report(tmp_path / "report.html")
    assert "stripes" in page.read_text("utf-8")
    assert model.cut(2).fit_ is model.fit_
    assert copy.copy(model).fit_ is model.fit_
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other == model
        assert other.fit_ is None  # training data do not belong into files
    for other in (copy.copy(model.fit_), pickle.loads(pickle.dumps(model.fit_))):
        assert other.model == model
        np.testing.assert_array_equal(other.held_out, model.fit_.held_out)
    loaded = Model.load(model.save(tmp_path / "m.bagwise"))
    assert loaded == model
    with pytest.raises(BagwiseError, match="A report needs the items of the fit"):
        loaded.report(tmp_path / "other.html")
    with pytest.raises(BagwiseError, match=r"Errors were measured at .*3.* groups, not at 4"):
        model.cut(4).report(tmp_path / "other.html")
    edited = model.rename_groups({0: "first"}).apply([{"edit": "move", "n_groups": 3, "words": [0], "to": None}])
    with pytest.raises(BagwiseError, match="were edited"):
        edited.report(tmp_path / "other.html")


def test_a_table_of_measurements(tmp_path):
    """Columns are scaled and groups standardised; all of it is in the model, its file, runtime and ONNX."""
    X, y = load_wine(return_X_y=True)
    X = X - X.mean(axis=0)
    fit = run_fit(table_of(X, y.astype(str)), FitOptions(n_groups=5, folds=3))
    model = fit.model
    assert any("measurements, each shifted to a minimum of 0, and divided by its range" in note for note in fit.notes)
    path = model.save(tmp_path / "wine.bagwise")
    assert Model.load(path) == model
    features = model.transform(X)
    assert features.min() > -1e-6
    assert {group.frequency for group in fit_report_data(fit).groups} == {0.0}  # measurements do not occur
    svm = make_pipeline(StandardScaler(), LinearSVC(C=FitOptions().C, random_state=0, max_iter=3000))
    expected = svm.fit(features.astype(np.float64), fit.codes).decision_function(features.astype(np.float64))
    np.testing.assert_allclose(model.decision_function(X), expected, atol=2e-3)
    np.testing.assert_allclose(runtime.load(path).transform_counts(X), features, atol=1e-5)
    merger = WordMerger(5, scaling="range").fit(X.astype(np.float32).astype(np.float64), y)
    np.testing.assert_array_equal(merger.labels_, model.lookup)
    np.testing.assert_allclose(merger.transform(X), features, rtol=1e-4, atol=1e-4)
    assert model.path.errors[-1] < 0.06
    assert plan_fit(table_of(X, y.astype(str)), n_groups=6, folds=0).criterion == "aib"
    sparse = model.transform(sp.csr_array(X))
    assert sp.issparse(sparse)
    np.testing.assert_allclose(sparse.toarray(), features, rtol=1e-6)
    index = ItemIndex.build(model, fit.data.collection, fit.data.histograms)
    assert index.search(X[:3] - 1e-3, k=1)[0][0].id == fit.data.collection.ids[0]


@pytest.mark.filterwarnings("ignore:X has negative values")  # root="after" is for counts
@pytest.mark.parametrize("root", ["auto", "after"])
def test_errors_of_folds_are_those_of_models_of_the_other_folds(root):
    """Measurements are scaled for merging in each fold; sums are scaled only where the model does so."""
    X, y = load_wine(return_X_y=True)
    X, y = X - X.mean(axis=0), y.astype(str)
    options = FitOptions(n_groups=5, folds=3, criterion="aib", root=root, n_jobs=1)
    fit = run_fit(table_of(X, y), options)
    assert (fit.model.column_shift is None) == (root == "after")
    errors = []
    for train, test in folds_of(fit.codes, options):
        one = run_fit(table_of(X[train], y[train]), options.with_changes(folds=0)).model
        errors.append(np.mean(one.predict(X[test]) != y[test]))
    found = dict(zip(fit.model.path.sizes, fit.model.path.errors, strict=True))[5]
    tolerance = 0.012 if root == "auto" else 1e-9  # scales of folds are those of all items
    assert found == pytest.approx(np.mean(errors), abs=tolerance)


def test_another_number_of_folds_takes_no_errors_from_the_cache(tmp_path):
    rows, options = table_of(*table()), FitOptions(n_groups=3, criterion="aib", cache=tmp_path)
    run_fit(rows, options.with_changes(folds=4))
    cached, fresh = (
        run_fit(rows, options.with_changes(folds=3)),
        run_fit(rows, options.with_changes(folds=3, cache=None)),
    )
    assert cached.model.path == fresh.model.path
    assert [fold.test.tolist() for fold in cached.folds] == [fold.test.tolist() for fold in fresh.folds]


def test_counts_in_a_table_are_not_scaled():
    X, y = table()
    assert run_fit(table_of(X, y), FitOptions(n_groups=3)).model.column_shift is None
    model = run_fit(table_of(X - 0.5, y), FitOptions(n_groups=3)).model
    np.testing.assert_array_equal(model.column_shift, (X - 0.5).min(axis=0))


@pytest.mark.parametrize("criterion", ["classifier", "aib", "csm", "mmi"])
def test_a_fit_keeps_what_merging_again_needs(criterion, tmp_path):
    X, y = table(n_words=12)
    model = run_fit(table_of(X, y), FitOptions(n_groups=5, folds=0, criterion=criterion)).model
    d, (first, second) = model.hierarchy.n_words, model.hierarchy.merges[0].tolist()
    links = [{"edit": "cannot_link", "n_groups": 5, "words": [first, second]}]
    if criterion == "mmi":
        with pytest.raises(BagwiseError, match="keeps no statistics"):
            model.apply(links)
        return
    assert model.group_statistics.n_groups == d == 12
    edited = Model.load(model.save(tmp_path / "model")).apply(links)
    assert edited.hierarchy.min_groups == 2
    for n in range(2, 13):
        labels = edited.hierarchy.cut(n)
        assert labels[first] != labels[second]
    assert edited.undo() == model
    free = edited.apply([links[0] | {"edit": "unlink"}])
    if criterion != "classifier":  # whose groups were refined
        assert [free.hierarchy.cut(n).tolist() for n in range(1, 13)] == [
            model.hierarchy.cut(n).tolist() for n in range(1, 13)
        ]


SENTENCES = {
    "zh": ("我今天晚上回家吃饭你呢爱你亲爱的妈妈在家等我们", "恭喜您中奖了请立即致电领取免费奖金优惠活动代开发票"),
    "ja": ("きょうはうちにかえってごはんをたべます", "無料の賞金を今すぐ受け取りクリックください"),
    "th": ("วันนี้ฉันกลับบ้านไปกินข้าวกับแม่รักนะ", "ยินดีด้วยคุณได้รับรางวัลฟรีโทรด่วน"),
    "en": ("see you at home later then tonight ok ", "win a free prize now call claim cash "),
}


@pytest.mark.parametrize("language", SENTENCES)
def test_texts_without_spaces_are_described_by_characters(language):
    rng = np.random.default_rng(0)
    pairs = [
        ("".join(rng.permutation(list(one))), "ab"[k]) for _ in range(8) for k, one in enumerate(SENTENCES[language])
    ]
    words = language == "en"
    if words:
        pairs[0] = SENTENCES["zh"][0] * 40, "a"  # most letters, but one text
    columns = {"text": [one for one, _ in pairs], "label": [label for _, label in pairs]}
    model = fit_model(columns, n_groups=2, folds=0)
    assert model.tokenizer.get("analyzer", "word") == model.options["analyzer"] == ("word" if words else "char")
    assert ("n-grams of characters; analyzer='word'" in " ".join(model.fit_.notes)) is not words
    if not words:
        assert np.mean(model.predict(columns["text"]) == columns["label"]) > 0.9
        split = fit_model(columns, n_groups=2, folds=0, analyzer="word")
        assert split.hierarchy.n_words != model.hierarchy.n_words
    chosen = fit_model(columns, n_groups=2, folds=0, analyzer="char", ngrams=2)
    assert {len(word) for word in chosen.word_names} == {1, 2}
    with pytest.raises(BagwiseError, match="stop_words are words, but these texts are described by n-grams of char"):
        fit_model(columns, n_groups=2, folds=0, analyzer="char", stop_words="english")
