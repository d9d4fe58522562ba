"""Fits with several vocabularies: colours that are found, groups that are shared out, files that stay readable."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from bagwise import Model, open_collection
from bagwise.app import FitOptions, compare_criteria, evaluate_model, fit_model, fit_report_data, plan_fit, run_fit
from bagwise.app.report import write_markdown, write_report
from bagwise.app.training.learning import learn_rows
from bagwise.app.training.method import choose_method, choose_weighting
from bagwise.app.training.rows import Rows
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.errors import OptionError
from bagwise.sources.media import has_color, images_in_mode
from small_sources import write_image_folder

SMALL = {"n_words": 12, "folds": 3, "step": 4, "n_jobs": 1}


@pytest.fixture(scope="module")
def colored(tmp_path_factory):
    return write_image_folder(tmp_path_factory.mktemp("colored"), color=True)


@pytest.fixture(scope="module")
def grey(tmp_path_factory):
    return write_image_folder(tmp_path_factory.mktemp("grey"))


@pytest.fixture(scope="module")
def fit(colored):
    return run_fit(colored, FitOptions(**SMALL, criterion="csm"))


def test_colours_are_found(fit, grey):
    assert fit.model.layout.vocabularies == (12, 6)
    assert [record.name for record in fit.model.descriptors] == ["DenseSIFT", "ColorCells"]
    assert fit.model.options["descriptor"] == "sift+color"
    assert "12 of 12 images that were looked at have colours" in fit.notes[0]
    plain = run_fit(grey, FitOptions(**SMALL))
    assert plain.model.layout.vocabularies == (12,)
    assert plain.model.options["descriptor"] == "sift"
    assert "0 of 12 images that were looked at have colours" in plain.notes[0]
    same = run_fit(grey, FitOptions(**SMALL, descriptor="sift"))
    assert not [note for note in same.notes if "colours" in note]
    np.testing.assert_array_equal(same.model.codebook, plain.model.codebook)
    np.testing.assert_array_equal(same.data.histograms.toarray(), plain.data.histograms.toarray())


def test_compressed_grey_is_no_colour():
    noise = np.random.default_rng(0).integers(0, 15, (32, 32, 3))
    assert not has_color((100 + noise).astype(np.uint8))
    assert not has_color(np.full((32, 32), 100, np.uint8))
    assert not has_color(np.empty((0, 4, 3), np.uint8))
    spot = (100 + noise).astype(np.uint8)
    spot[:4, :4, 0] = 255
    assert has_color(spot)


def test_files_give_the_same_in_either_mode(colored):
    grey, rgb = (open_collection(colored, mode=mode) for mode in ("grey", "rgb"))
    switched = images_in_mode(grey, "rgb")
    assert switched.ids == grey.ids
    np.testing.assert_array_equal(switched[0].load(), rgb[0].load())
    fits = [run_fit(collection, FitOptions(**SMALL)) for collection in (colored, grey, rgb)]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.data.histograms.toarray(), fits[0].data.histograms.toarray())
    one, other = (run_fit(some, FitOptions(**SMALL, descriptor="sift")) for some in (grey, rgb))
    np.testing.assert_array_equal(one.data.histograms.toarray(), other.data.histograms.toarray())
    assert fits[0].model.predict(grey).tolist() == fits[0].model.predict(rgb).tolist()


def test_each_vocabulary_has_its_own_hierarchy_norm_and_share(fit):
    model, X = fit.model, fit.data.histograms
    assert (model.norm, model.normalize) in {("l1", ("power",)), ("l2", ())}
    for n in range(3, 13):
        labels = model.hierarchy.cut(n)
        n_each = [len(set(labels[part].tolist())) for part in (slice(12), slice(12, None))]
        assert sum(n_each) == n
        assert max(n_each) - min(n_each) <= 1
    features = model.group(X, model.hierarchy.n_words).toarray()
    for part in (slice(12), slice(12, None)):
        # Hellinger normalisation of each vocabulary: the same for roots before and after, as long as nothing is merged
        np.testing.assert_allclose(features[:, part], normalize_rows(X[:, part].astype(float)).toarray(), rtol=1e-5)


@pytest.mark.parametrize("criterion", ["aib", "csm", "classifier", "mmi"])
def test_criteria_merge_vocabularies_by_themselves(colored, fit, criterion):
    model = run_fit(colored, FitOptions(**SMALL, criterion=criterion)).model
    across = [(s < 12) != (t < 12) for s, t in model.hierarchy.merges.tolist()]
    if criterion == "classifier":
        assert any(across[:15])  # it merges words of like weights, whatever their vocabulary
    else:
        assert across == [False] * 15 + [True, False]
    assert (model.hierarchy.min_groups, model.hierarchy.n_words) == (1, 18)
    assert model.path.errors[-1] < 0.2


@pytest.mark.parametrize("criterion", ["aib", "csm"])
def test_cross_validation_merges_as_the_fit_does(fit, criterion):
    options = FitOptions(**SMALL, criterion=criterion)
    method = choose_method(options, "images", 2, fit.data.layout.vocabularies)
    whole = fit.data.whole()
    X = method.merging_input(whole, choose_weighting(method, whole).apply(whole))
    found = learn_rows(
        Rows.here(X, X, X, fit.codes, fit.data.collection.ids, fit.data.layout), [], method, options
    ).hierarchy
    assert found == run_fit(fit.data.collection, options).model.hierarchy


def test_saved_models_read_colours_again(fit, colored, tmp_path):
    model = Model.load(fit.model.save(tmp_path / "m.bagwise"))
    assert model == fit.model
    evaluation = evaluate_model(model, colored)
    np.testing.assert_array_equal(evaluation.histograms.toarray(), fit.data.histograms.toarray())
    assert evaluation.collection[0].load().ndim == 3


def test_reports_show_patches_of_both_vocabularies_in_colour(fit, tmp_path):
    data = fit_report_data(dataclasses.replace(fit, model=fit.model.cut(5)))
    assert data.facts["Words"] == "12 + 6"
    assert data.facts["Descriptor"].startswith("DenseSIFT, patch 16")
    assert "ColorCells, step 8" in data.facts["Descriptor"]
    shown = [group for group in data.groups if group.patches]
    assert len(shown) == 5
    words = {"DenseSIFT": 0, "ColorCells": 0}
    for group in shown:
        words[group.vocabulary] += group.n_words
        pixels = np.array(Image.open(io.BytesIO(group.patches[0])).convert("RGB"))
        assert has_color(pixels)
    assert words == {"DenseSIFT": 12, "ColorCells": 6}
    cut = dataclasses.replace(fit, model=fit.model.cut(1), held_out_top=None)
    (mixed,) = fit_report_data(cut).groups
    assert mixed.vocabulary == ""
    # patches of 16 pixels and cells of 8, enlarged by factors, in turn
    sides = [len(np.unique(np.array(Image.open(io.BytesIO(patch)).convert("RGB")), axis=0)) for patch in mixed.patches]
    assert [side > 8 for side in sides[:6]] == [True, False] * 3
    fit_report = write_report(data, tmp_path / "report.html").read_text(encoding="utf-8")
    assert " of ColorCells, " in fit_report
    write_markdown(data, tmp_path / "markdown")
    assert " ColorCells | " in (tmp_path / "markdown" / "report.md").read_text(encoding="utf-8")


def test_plans_and_comparisons_know_both_vocabularies(colored):
    plan = plan_fit(colored, **SMALL)
    assert plan.n_words == 18
    assert plan.descriptors == ("DenseSIFT", "ColorCells")
    compared = compare_criteria(colored, criteria=["aib"], **SMALL)
    assert compared[0].path.sizes[-1] == 18


@pytest.mark.parametrize("descriptor", ["color+sift", ["color", "sift"]])
def test_the_first_descriptor_has_the_options(colored, descriptor):
    model = fit_model(colored, descriptor=descriptor, n_words=9, patch=6, step=5, folds=0, n_jobs=1)
    cells, sift = model.descriptor
    assert (cells.cell, cells.step, sift.patch, sift.step) == (6, 5, 16, 8)
    assert model.layout.vocabularies == (9, 4)


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        ("sift+colour", "Unknown descriptor: 'colour'. Did you mean 'color'"),
        ("sift+auto", "Unknown descriptor: 'auto'"),
        ("sift+sift", "must differ, got 'sift.sift'"),
        ("", "Unknown descriptor: ''"),
        ("sift+hog-hof", "'hog-hof' does not describe images"),
    ],
)
def test_descriptors_that_cannot_be_are_refused(colored, descriptor, message):
    with pytest.raises(OptionError, match=message):
        fit_model(colored, descriptor=descriptor, **SMALL)
