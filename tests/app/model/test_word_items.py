"""Words of large collections are learned from some of the items; each item is described once all the same."""

import numpy as np
import pytest

from bagwise import open_collection
from bagwise.app import FitOptions, run_fit
from bagwise.app.modalities.images import ImageModality
from bagwise.app.training.parts import count_parts
from bagwise.distributed.executors import LocalExecutor
from bagwise.sources.media import ImageDecoder
from small_sources import write_image_folder

OPTIONS = FitOptions(
    descriptor="patches+hog-lbp", n_words=6, n_groups=4, folds=2, n_jobs=1, partition=5, on_error="skip"
)


@pytest.fixture
def folder(tmp_path):
    return write_image_folder(tmp_path / "images", n_each=9)


@pytest.fixture
def few(monkeypatch):
    """Learn words from 20 descriptors of 7 images, which is not all that they have."""
    monkeypatch.setattr(ImageModality, "most_learned_from", 7)
    for module in ("modalities.visual_words", "training.parts"):
        monkeypatch.setattr(f"bagwise.app.{module}.N_SAMPLED_VECTORS", 20)
    monkeypatch.setattr("bagwise.app.training.parts._SLACK", 100.0)


def vectorizer():
    return ImageModality().vectorizer(OPTIONS, n_classes=2)


def assert_equal(one, other):
    assert one.matrix.shape == other.matrix.shape
    assert one.matrix.data.tobytes() == other.matrix.data.tobytes()
    np.testing.assert_array_equal(one.matrix.indices, other.matrix.indices)
    np.testing.assert_array_equal(one.kept, other.kept)
    assert one.skipped == other.skipped
    assert list(one.samples) == list(other.samples)
    for row, sample in one.samples.items():
        for a, b in zip(sample, other.samples[row], strict=True):
            np.testing.assert_array_equal(a, b)


def test_words_are_those_of_the_chosen_items(folder, few):
    items, fitted = open_collection(folder), vectorizer()
    chosen = fitted.items_to_learn_from(items)
    assert len(chosen) == 7
    assert (np.diff(chosen) > 0).all()
    found = count_parts(fitted, items, OPTIONS, LocalExecutor(), n_samples=5).histograms(LocalExecutor())
    alone = vectorizer()
    alone.fit_transform(items[chosen])
    for one, other in zip(fitted.codebooks, alone.codebooks, strict=True):
        assert one.tobytes() == other.tobytes()
    assert_equal(found, fitted.transform(items, n_samples=5))


def test_items_are_chosen_by_their_ids(folder, few):
    items = open_collection(folder)
    chosen = {items[int(k)].id for k in vectorizer().items_to_learn_from(items)}
    turned = items[np.arange(len(items))[::-1]]
    assert {turned[int(k)].id for k in vectorizer().items_to_learn_from(turned)} == chosen
    other = ImageModality().vectorizer(OPTIONS.with_changes(random_state=1)).items_to_learn_from(items)
    assert {items[int(k)].id for k in other} != chosen
    assert vectorizer().items_to_learn_from(items[:7]) is None


@pytest.mark.parametrize("partition", [None, 5])
def test_each_item_is_read_once(folder, few, partition, monkeypatch):
    read = []
    decode = ImageDecoder.decode

    def counted(self, content, max_side=None):
        read.append(content.source)
        return decode(self, content, max_side)

    monkeypatch.setattr(ImageDecoder, "decode", counted)
    run_fit(folder, OPTIONS.with_changes(partition=partition))
    assert len(read) == len(set(read)) == len(open_collection(folder))


@pytest.mark.parametrize("hurt", ["too few", "all chosen"])
def test_words_are_learned_from_all_items_if_the_chosen_do_not_do(folder, few, hurt, monkeypatch):
    items = open_collection(folder)
    if hurt == "too few":
        for module in ("modalities.visual_words", "training.parts"):
            monkeypatch.setattr(f"bagwise.app.{module}.N_SAMPLED_VECTORS", 10**6)
    else:
        for k in vectorizer().items_to_learn_from(items):
            folder.joinpath(items[int(k)].id).write_bytes(b"not an image")
    found = [run_fit(folder, OPTIONS.with_changes(partition=size)) for size in (None, 5)]
    monkeypatch.setattr(ImageModality, "most_learned_from", 100)
    expected = run_fit(folder, OPTIONS)
    for one in found:
        assert one.model.hierarchy == expected.model.hierarchy
        for codebook, other in zip(one.model.codebooks, expected.model.codebooks, strict=True):
            assert codebook.tobytes() == other.tobytes()
        assert one.notes == expected.notes


def test_renamed_items_are_not_found_in_the_cache(folder, few, tmp_path):
    """Items are chosen by their ids, results of earlier runs found by the content of items."""
    chosen = OPTIONS.with_changes(cache=str(tmp_path / "cache"))
    first = run_fit(folder, chosen)
    assert run_fit(folder, chosen).cached
    for path in sorted(folder.rglob("*.png")):
        path.rename(path.with_name(f"a{path.name}"))
    renamed = run_fit(folder, chosen)
    assert first.model.codebooks[0].tobytes() != renamed.model.codebooks[0].tobytes()
    assert renamed.model.hierarchy == run_fit(folder, OPTIONS).model.hierarchy
    assert first.notes[0] == renamed.notes[0]  # copies are those with the same words, which are others now
    assert renamed.notes == run_fit(folder, chosen).notes


@pytest.mark.parametrize("partition", [1, 4])
@pytest.mark.parametrize("damaged", [(), "chosen", "others"])
def test_partitions_do_not_change_the_model(folder, few, partition, damaged, tmp_path):
    items = open_collection(folder)
    chosen = vectorizer().items_to_learn_from(items)
    if damaged:
        hurt = chosen[:3] if damaged == "chosen" else np.setdiff1d(np.arange(len(items)), chosen)[2:]
        for k in hurt:
            folder.joinpath(items[int(k)].id).write_bytes(b"not an image")
    here, there = (run_fit(folder, OPTIONS.with_changes(partition=size, folds=0)) for size in (1000, partition))
    assert here.model.hierarchy == there.model.hierarchy
    assert here.notes == there.notes
    assert "Words were learned from 7 of 18 images, chosen at random; they are counted in all." in here.notes
    assert len(here.data.skipped) == (len(hurt) if damaged else 0)
    assert [one.id for one in here.data.skipped] == sorted(one.id for one in here.data.skipped)
    assert here.data.skipped == there.data.skipped
    assert here.data.collection.ids == there.data.collection.ids
    assert here.data.histograms.data.tobytes() == there.data.histograms.data.tobytes()
    assert here.data.samples.keys() == there.data.samples.keys()


def test_an_interrupted_fit_goes_on_with_the_partitions_that_were_counted(folder, few, tmp_path):
    chosen = OPTIONS.with_changes(partition=2, cache=str(tmp_path / "cache"))

    def interrupt(step, done, total):
        if step == "Counting words" and done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_fit(folder, chosen, progress=interrupt)
    counted = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache" / "histograms").rglob("*.arrays")}
    assert counted
    found = run_fit(folder, chosen)
    assert counted == {path: path.stat().st_mtime_ns for path in counted}
    assert found.model.hierarchy == run_fit(folder, OPTIONS).model.hierarchy
