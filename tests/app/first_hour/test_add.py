"""New items, or a new class, without describing images and learning words again: `fit --add INDEX`."""

import dataclasses
import shutil

import numpy as np
import pytest

import bagwise.codebooks.kmeans as clustering
from bagwise import Model, fit_model, open_collection
from bagwise.app import FitOptions, ItemIndex, evaluate_model, run_fit
from bagwise.app.index.item_index import index_of_fit
from bagwise.descriptors import DenseSIFT
from commands import as_json, bagwise
from small_sources import images, png, texts, write_image_folder, write_table, write_text_folder

WORDS = ("--descriptor", "sift", "--words", "16", "--folds", "2", "--no-page", "-q", "--force")


def write_new_class(folder, n=5):
    """Pictures of noise."""
    for k, (pixels, _) in enumerate(images(n_each=n, seed=7)[:n]):
        path = folder / "noise" / f"new{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(np.random.default_rng(k).permutation(pixels.ravel()).reshape(pixels.shape)))


@pytest.fixture
def photos(tmp_path):
    write_image_folder(tmp_path / "photos")
    bagwise("fit", tmp_path / "photos", "--out", tmp_path / "m.bagwise", *WORDS)
    return tmp_path


@pytest.fixture
def described(monkeypatch):
    """How many images are described; none may be learned words from."""
    calls = []
    describe = DenseSIFT._describe

    def counting(self, item, *arguments, **options):
        calls.append(1)
        return describe(self, item, *arguments, **options)

    def refuse(*arguments, **options):
        raise AssertionError("words are learned")

    monkeypatch.setattr(DenseSIFT, "_describe", counting)
    monkeypatch.setattr(clustering, "kmeans_words", refuse)
    return calls


def same_words(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.codebooks, other.codebooks, strict=True))


@pytest.mark.parametrize("where", ["the same folder", "another folder"])
def test_only_new_images_are_described(photos, described, where):
    source = photos / ("photos" if where == "the same folder" else "new")
    write_new_class(source)
    said = as_json("fit", source, "--add", photos / "m.bagwise", "--out", photos / "n.bagwise", *WORDS[4:])
    assert len(described) == 5
    (note,) = (one for one in said["notes"] if one.startswith("Kept: "))
    assert note == (
        "Kept: 16 words, and words of 12 images; 5 more were described. Groups and classifiers are learned anew."
    )
    before, after = Model.load(photos / "m.bagwise"), Model.load(photos / "n.bagwise")
    assert same_words(before, after)
    assert after.classes == ("across", "down", "noise")
    assert after.options["descriptor"] == "sift"
    assert after.options["n_words"] == 16
    assert "noise" in after.predict(open_collection(source)[-5:])
    assert len(ItemIndex.load(photos / "n.index")) == 17
    # as if all had been described
    index = ItemIndex.load(photos / "m.index")
    nothing = dataclasses.replace(index.known_items(), frequencies=index.known_items().frequencies[:0], labels={})
    both = shutil.copytree(photos / "photos", photos / "both")
    if where == "another folder":
        shutil.copytree(photos / "new", both, dirs_exist_ok=True)
    counted = run_fit(both, FitOptions(folds=2), add=nothing)
    assert np.array_equal(counted.model.hierarchy.merges, after.hierarchy.merges)
    np.testing.assert_allclose(counted.model.head.coef, after.head.coef, rtol=1e-3, atol=1e-4)
    assert counted.model.path == after.path
    np.testing.assert_allclose(counted.model.word_totals, after.word_totals, rtol=0.2)
    # of as many as the file has hashes of, an evaluation knows that they were learned from
    seen = as_json("evaluate", photos / "n.bagwise", both)["training_items"]
    assert 0 < seen["n_seen"] == seen["n_compared"]


def test_an_evaluation_knows_all_that_was_learned_from(photos):
    source = photos / "photos"
    options = FitOptions(descriptor="sift", n_words=16, n_groups=4, folds=0)
    known = index_of_fit(run_fit(source, options), None, source, options).known_items()
    write_new_class(source)
    model = run_fit(source, FitOptions(n_groups=4, folds=0), add=known).model
    write_new_class(source, n=6)
    seen = evaluate_model(model, source).seen
    assert (len(seen.ids), seen.n_seen, seen.exact) == (18, 17, True)


def test_items_that_are_gone_and_new_labels(photos, described):
    """Labels are those of the folder now."""
    source = photos / "photos"
    next((source / "down").iterdir()).unlink()
    model = fit_model(source, add=ItemIndex.load(photos / "m.index"), folds=0, n_groups=4)
    assert not described
    assert "1 item of the index is not used" in "".join(model.fit_.notes)
    assert model.provenance["n_items"] == 11
    labels = photos / "labels.csv"
    ids = open_collection(source).ids
    labels.write_text("filename,label\n" + "\n".join(f"{id},{'ab'[k % 2]}" for k, id in enumerate(ids)))
    assert fit_model(source, add=ItemIndex.load(photos / "m.index"), labels=labels, folds=0, n_groups=4).classes == (
        *"ab",
    )
    assert not described


def test_items_without_a_split_are_learned_from(photos, described):
    write_image_folder(photos / "others", parts=("train", "test"), side=20)
    known = ItemIndex.load(photos / "m.index").known_items()
    fit = run_fit(photos / "others", FitOptions(folds=0, n_groups=3), add=known)
    assert (len(fit.data.collection), len(fit.test), len(described)) == (24, 12, 12)


def test_texts_are_counted_again_by_the_words_that_are_kept(tmp_path):
    write_text_folder(tmp_path / "old", classes=("fruit", "tools"))
    new = [text for text, _ in texts(classes=("birds",), seed=3)]
    for k, text in enumerate(new):
        path = tmp_path / "new" / "birds" / f"b{k}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} hammer")
    how = ("--no-page", "--folds", 2)
    bagwise("fit", tmp_path / "old", "--out", tmp_path / "m.bagwise", "--stop-words", "english", *how)
    bagwise("groups", tmp_path / "m.index", "--rename", "0=mine", "--force")
    said = as_json("fit", tmp_path / "new", "--add", tmp_path / "m.index", "--out", tmp_path / "n.bagwise", *how)
    before, after = Model.load(tmp_path / "m.bagwise"), Model.load(tmp_path / "n.bagwise")
    assert before.word_names == after.word_names
    assert after.options["stop_words"] == "english"
    assert after.classes == ("birds", "fruit", "tools")
    assert after.provenance["n_items"] == 36
    assert not after.given_names
    notes = "".join(said["notes"])
    assert "words of all 36 texts were counted, which the index does not hold" in notes
    assert "edits and names of groups are not kept" in notes
    assert "those of " + str(tmp_path / "old") + " are listed without their content" in notes


def test_what_cannot_be_added_to(photos, tmp_path):
    write_image_folder(tmp_path / "again")
    write_table(tmp_path / "t.csv")
    bagwise("fit", tmp_path / "t.csv", "--out", tmp_path / "t.bagwise", "--no-page", "-q")
    bagwise("index", photos / "m.bagwise", photos / "photos", "--out", photos / "g.index", "--by", "groups")
    shutil.copy(photos / "m.bagwise", photos / "alone.bagwise")
    more = tmp_path / "more"
    write_new_class(more)
    out = ("--out", tmp_path / "x.bagwise", "-q", "--no-page")
    for source, index, options, message in [
        (tmp_path / "again", "m.index", (), "12 items of "),
        (tmp_path / "t.csv", "t.index", (), "those of tables are columns. Put all rows into one table"),
        (more, "g.index", (), "compares items by groups and does not hold their words, which --add keeps"),
        (more, "alone.bagwise", (), "alone.index beside the model "),
        (more, "gone.index", (), "There is no "),
        (more, "m.index", ("--words", 20), "--words is about words, but --add keeps those of a model. Remove --words."),
        (more, "m.index", ("--descriptor", "color"), "--descriptor is about words"),
        (more, "m.index", ("--memory-limit", "1MB"), "--memory-limit is not for a fit with --add"),
        (more, "m.index", ("--dry-run",), "--dry-run plans a fit from the beginning"),
    ]:
        assert message in bagwise("fit", source, "--add", photos / index, *out, *options, code=1), message
    next((photos / "photos" / "down").iterdir()).unlink()
    message = bagwise("fit", more, "--add", photos / "m.index", *out, code=1)
    assert f"1 item of the index is not in {photos / 'photos'}" in message
    shutil.rmtree(photos / "photos")
    assert "which does not exist any more" in bagwise("fit", more, "--add", photos / "m.index", *out, code=1)
    with pytest.raises(ValueError, match="add must be an index"):
        fit_model(more, add="m.index")
